//! Taking records out of a batch that lies in a log, as compaction does.

use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};
use snafu::ensure;

use crate::model::Timestamp;

use super::batch::Batch;
use super::builder::seal;
use super::compression::Deflater;
use super::cursor::{RecordCursor, SliceReader, write_varlong};
use super::error::{InvalidCountSnafu, MalformedRecordSnafu, RecordFault, RecordsError};
use super::format::MessageFormat;
use super::header::{Attributes, BatchHeader, TimestampType};
use super::legacy::{MessageSetBuilder, Messages};
use super::record::STORED_LIMITS;

/// A record as it lies in its batch, for those who move records rather than read them.
#[derive(Clone, Copy, Debug)]
pub struct StoredRecord<'a> {
    /// From the batch's base offset; negative in a wrapper of the old formats, which has its last offset.
    pub offset_delta: i64,
    /// Milliseconds from the batch's base timestamp.
    pub timestamp_delta: i64,
    pub key: Option<&'a [u8]>,
    /// `None` for a tombstone.
    pub value: Option<&'a [u8]>,
    /// In v2, the key with its length, and everything after it.
    rest: &'a [u8],
}

impl<'a> StoredRecord<'a> {
    fn parse(body: &'a [u8]) -> Result<StoredRecord<'a>, RecordFault> {
        let mut reader = SliceReader { rest: body };
        reader.attributes()?;
        let timestamp_delta = reader.varlong()?;
        let offset_delta = i64::from(reader.varint()?);
        let rest = reader.rest;
        let key = reader.field()?;
        let value = reader.field()?;
        Ok(StoredRecord { offset_delta, timestamp_delta, key, value, rest })
    }
}

impl Batch {
    /// Shows each record to `visit` until that breaks off. `scratch` is room that batches may share.
    ///
    /// Errors: as [`records`](Batch::records) and its iterator; the records before the damage were shown.
    pub fn visit_stored(
        &self,
        scratch: &mut BytesMut,
        mut visit: impl FnMut(StoredRecord<'_>) -> ControlFlow<()>,
    ) -> Result<(), RecordsError> {
        let BatchHeader { magic, record_count, .. } = self.header;
        if magic != 2 {
            return self.visit_messages(visit);
        }
        ensure!(record_count >= 0, InvalidCountSnafu { count: record_count });
        let malformed = |batch_index| move |fault| MalformedRecordSnafu { batch_index, fault }.build();
        match self.inflater(STORED_LIMITS)? {
            None => {
                let mut rest = self.bytes.get(BatchHeader::SIZE..).unwrap_or_default();
                for batch_index in 0..record_count {
                    let record = next_plain(&mut rest).and_then(StoredRecord::parse);
                    if visit(record.map_err(malformed(batch_index))?).is_break() {
                        break;
                    }
                }
            }
            Some(inflater) => {
                let mut cursor = RecordCursor::new(inflater);
                for batch_index in 0..record_count {
                    scratch.clear();
                    cursor
                        .next_body(scratch, STORED_LIMITS.record_size_max)
                        .map_err(malformed(batch_index))?;
                    let record = StoredRecord::parse(scratch).map_err(malformed(batch_index))?;
                    if visit(record).is_break() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn visit_messages(
        &self,
        mut visit: impl FnMut(StoredRecord<'_>) -> ControlFlow<()>,
    ) -> Result<(), RecordsError> {
        for message in Messages::of(self, STORED_LIMITS)? {
            let message = message?;
            let record = StoredRecord {
                offset_delta: message.offset.since(self.header.base_offset),
                timestamp_delta: message.timestamp.since_ms(self.header.base_timestamp),
                key: message.key.as_deref(),
                value: message.value.as_deref(),
                rest: &[],
            };
            if visit(record).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The batch with the records at the positions that `is_kept` names, at least one, and with this delete
    /// horizon.
    ///
    /// Offsets, sequences, producer, leader epoch and codec stay, and so do the offset and sequence that the
    /// batch ends at; the greatest timestamp is that of the kept records, if they have their own. The old
    /// formats have no delete horizon, and a wrapper of theirs ends at the last record that is kept.
    ///
    /// Errors: as [`visit_stored`](Batch::visit_stored).
    pub fn with_records(
        &self,
        scratch: &mut BytesMut,
        is_kept: impl Fn(usize) -> bool,
        delete_horizon: Option<Timestamp>,
    ) -> Result<Bytes, RecordsError> {
        let codec = self.header.attributes.codec()?;
        let format = MessageFormat::from_magic(self.header.magic).unwrap_or_default();
        if format.is_legacy() {
            return self.with_messages(format, is_kept);
        }
        let has_own_times = self.header.attributes.timestamp_type() == TimestampType::CreateTime;
        let mut header = BatchHeader {
            attributes: self.header.attributes.with_delete_horizon(delete_horizon.is_some()),
            base_timestamp: delete_horizon.unwrap_or(Timestamp::NONE),
            max_timestamp: if has_own_times { Timestamp::NONE } else { self.header.max_timestamp },
            record_count: 0,
            ..self.header
        };
        let mut records = Deflater::new(codec, format, None, vec![0; BatchHeader::SIZE]);
        let mut position = 0;
        let (mut body, mut length) = (Vec::new(), Vec::new());
        self.visit_stored(scratch, |record| {
            if is_kept(position) {
                let timestamp = self.header.timestamp_of(record.timestamp_delta);
                if header.record_count == 0 && delete_horizon.is_none() {
                    header.base_timestamp = timestamp;
                }
                if has_own_times {
                    header.max_timestamp = header.max_timestamp.max(timestamp);
                }
                header.record_count += 1;
                body.clear();
                body.push(0);
                write_varlong(&mut body, timestamp.0.wrapping_sub(header.base_timestamp.0));
                write_varlong(&mut body, record.offset_delta);
                length.clear();
                write_varlong(&mut length, (body.len() + record.rest.len()) as i64);
                records.write(&length);
                records.write(&body);
                records.write(record.rest);
            }
            position += 1;
            ControlFlow::Continue(())
        })?;
        Ok(seal(header, records.finish()).1)
    }

    fn with_messages(
        &self,
        format: MessageFormat,
        is_kept: impl Fn(usize) -> bool,
    ) -> Result<Bytes, RecordsError> {
        let BatchHeader { attributes, base_offset, max_timestamp, .. } = self.header;
        let codec = (attributes.codec()?, None);
        let mut messages = MessageSetBuilder::new(format, codec, attributes.timestamp_type(), max_timestamp);
        let mut position = 0;
        self.visit_messages(|record| {
            if is_kept(position) {
                let timestamp = self.header.base_timestamp.plus_ms(record.timestamp_delta);
                messages.append(base_offset.plus(record.offset_delta), timestamp, record.key, record.value);
            }
            position += 1;
            ControlFlow::Continue(())
        })?;
        Ok(messages.finish())
    }

    /// What is left of a batch of v2 without records, of which only offsets, sequences and producer still matter.
    pub fn emptied(&self) -> Bytes {
        let attributes = self.header.attributes;
        let header = BatchHeader {
            attributes: Attributes::default()
                .with_timestamp_type(attributes.timestamp_type())
                .with_transactional(attributes.is_transactional())
                .with_control(attributes.is_control()),
            base_timestamp: Timestamp::NONE,
            record_count: 0,
            ..self.header
        };
        seal(header, vec![0; BatchHeader::SIZE]).1
    }
}

/// The body of the next record of an uncompressed batch.
fn next_plain<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], RecordFault> {
    let mut reader = SliceReader { rest };
    let length = usize::try_from(reader.varint()?).map_err(|_| RecordFault::NegativeLength)?;
    let (body, after) = reader.rest.split_at_checked(length).ok_or(RecordFault::Cut)?;
    *rest = after;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use crate::model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
    use crate::records::{BatchBuilder, Codec, RecordView};

    use super::*;

    const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn builder(codec: Codec) -> BatchBuilder {
        let builder = BatchBuilder::new().base_offset(Offset(100)).leader_epoch(LeaderEpoch(3));
        builder.producer(ProducerId(7), ProducerEpoch(1), 40).transactional().compression(codec, None)
    }

    fn batch(codec: Codec, values: &[Option<&str>]) -> Batch {
        let mut builder = builder(codec);
        for (at, value) in values.iter().enumerate() {
            let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", None), (b"h", Some(b"x"))];
            let key = format!("key {at}");
            let time = Timestamp(1_000 + 7 * at as i64);
            builder.append(time, Some(key.as_bytes()), value.map(str::as_bytes), headers);
        }
        Batch::read(builder.build()).unwrap()
    }

    fn read(bytes: Bytes) -> (Batch, Vec<RecordView>) {
        let batch = Batch::read(bytes).unwrap();
        batch.check_crc().unwrap();
        let records = batch.records().unwrap().map(Result::unwrap).collect();
        (batch, records)
    }

    #[test]
    fn kept_records_and_the_ends_of_the_batch_stay_as_they_were() {
        for codec in CODECS {
            let original = batch(codec, &[Some("a"), None, Some("b"), Some("c")]);
            let (_, before) = read(original.bytes.clone());
            let kept = original.with_records(&mut BytesMut::new(), |at| at == 1 || at == 2, None).unwrap();
            let (kept, after) = read(kept);
            let expected = BatchHeader {
                batch_length: kept.header.batch_length,
                crc: kept.header.crc,
                base_timestamp: Timestamp(1_007),
                max_timestamp: Timestamp(1_014),
                record_count: 2,
                ..original.header
            };
            assert_eq!(kept.header, expected, "{codec:?}");
            for (before, after) in before[1..3].iter().zip(&after) {
                assert_eq!(before.timestamp(&original.header), after.timestamp(&kept.header));
                assert_eq!(
                    (before.offset_delta, &before.key, &before.value, &before.headers),
                    (after.offset_delta, &after.key, &after.value, &after.headers)
                );
            }
        }
    }

    #[test]
    fn a_delete_horizon_takes_the_base_timestamps_place_and_no_records_time() {
        for codec in CODECS {
            let original = batch(codec, &[Some("a"), None]);
            let horizon = Timestamp(90_000);
            let marked = original.with_records(&mut BytesMut::new(), |_| true, Some(horizon)).unwrap();
            let (marked, records) = read(marked);
            assert!(marked.header.attributes.has_delete_horizon());
            assert_eq!(marked.header.base_timestamp, horizon);
            assert_eq!(marked.header.max_timestamp, Timestamp(1_007));
            assert_eq!(records[1].timestamp(&marked.header), Timestamp(1_007));
            let again = marked.with_records(&mut BytesMut::new(), |at| at == 1, Some(horizon)).unwrap();
            let (again, records) = read(again);
            assert_eq!(records[0].timestamp(&again.header), Timestamp(1_007));
        }
    }

    #[test]
    fn append_times_stay_when_records_go() {
        let mut builder = builder(Codec::None).log_append_time(Timestamp(5_000));
        for time in [1, 2] {
            builder.append(Timestamp(time), Some(b"k"), Some(b"v"), &[]);
        }
        let original = Batch::read(builder.build()).unwrap();
        let (kept, records) = read(original.with_records(&mut BytesMut::new(), |at| at == 0, None).unwrap());
        assert_eq!(kept.header.max_timestamp, Timestamp(5_000));
        assert_eq!(records[0].timestamp(&kept.header), Timestamp(5_000));
    }

    #[test]
    fn an_emptied_batch_keeps_its_offsets_and_its_producer() {
        let original = batch(Codec::Zstd, &[Some("a"), Some("b")]);
        let (empty, records) = read(original.emptied());
        assert!(records.is_empty());
        assert_eq!(empty.bytes.len(), BatchHeader::SIZE);
        assert_eq!(empty.header.last_offset(), Offset(101));
        assert_eq!(empty.header.last_sequence(), 41);
        assert_eq!(empty.header.max_timestamp, original.header.max_timestamp);
        assert_eq!(empty.header.attributes, Attributes::default().with_transactional(true));
    }

    #[test]
    fn a_wrapper_of_the_old_formats_ends_at_the_last_record_that_is_kept() {
        for (format, time) in [(MessageFormat::V0, -1), (MessageFormat::V1, 9)] {
            for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
                let count = if codec == Codec::None { 1 } else { 4 };
                let mut messages =
                    MessageSetBuilder::new(format, (codec, None), TimestampType::CreateTime, Timestamp(0));
                for offset in 50..50 + count {
                    messages.append(Offset(offset), Timestamp(9), Some(&[offset as u8]), Some(b"v"));
                }
                let original = Batch::read(messages.finish()).unwrap();
                let mut seen = Vec::new();
                let visited = original.visit_stored(&mut BytesMut::new(), |record| {
                    seen.push(original.header.base_offset.plus(record.offset_delta).0);
                    ControlFlow::Continue(())
                });
                assert_eq!((visited, &seen), (Ok(()), &(50..50 + count).collect()), "{format:?} {codec:?}");
                let last = (count as usize - 1).min(2);
                let is_kept = |at: usize| at == 0 || at == last;
                let kept = original.with_records(&mut BytesMut::new(), is_kept, None).unwrap();
                let (kept, records) = read(kept);
                assert_eq!(kept.header.last_offset(), Offset(50 + last as i64));
                let found: Vec<(i64, i64)> = records
                    .iter()
                    .map(|record| (record.offset(&kept.header).0, record.timestamp(&kept.header).0))
                    .collect();
                let expected = [(50, time), (50 + last as i64, time)];
                assert_eq!(found, expected[..last.min(1) + 1], "{format:?} {codec:?}");
            }
        }
    }

    #[test]
    fn a_visit_ends_where_it_is_broken_off() {
        for codec in CODECS {
            let mut seen = Vec::new();
            let visited =
                batch(codec, &[Some("a"), None, Some("b")]).visit_stored(&mut BytesMut::new(), |record| {
                    seen.push((record.key.map(<[u8]>::to_vec), record.value.is_some()));
                    if record.value.is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
            assert_eq!(visited, Ok(()));
            assert_eq!(seen, [(Some(b"key 0".to_vec()), true), (Some(b"key 1".to_vec()), false)]);
        }
    }
}
