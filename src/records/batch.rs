use bytes::Bytes;

use crate::model::{Offset, Timestamp};

use super::MessageFormat;
use super::compression::{InflateLimits, Inflater};
use super::cursor::{RecordCursor, Source};
use super::error::{CrcMismatchSnafu, IncompleteSnafu, InvalidCountSnafu, RecordsError};
use super::header::BatchHeader;
use super::legacy::Messages;
use super::record::{Records, STORED_LIMITS};

/// One whole batch: its header, and its bytes with the header.
#[derive(Clone, Debug)]
pub struct Batch {
    pub header: BatchHeader,
    /// A slice of what the batch was read from: keeping it keeps that alive.
    pub bytes: Bytes,
}

/// Walks the batches in `input`, which may end inside one.
///
/// Yields whole batches without looking at their CRC or records. A tail that is not a whole batch is
/// yielded last as [`RecordsError::Incomplete`], a damaged header as its error; then the walk ends, and
/// [`Batches::position`] tells where. A `input` of only whole batches ends without an error.
pub fn batches(input: &Bytes) -> Batches {
    Batches { input: input.clone(), position: 0, is_over: false }
}

/// The iterator of [`batches`].
#[derive(Clone, Debug)]
pub struct Batches {
    input: Bytes,
    position: usize,
    is_over: bool,
}

impl Batches {
    /// How many bytes the batches yielded so far take: where the next one begins.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over || self.position == self.input.len() {
            return None;
        }
        let batch = Batch::read(self.input.slice(self.position..));
        match &batch {
            Ok(batch) => self.position += batch.bytes.len(),
            Err(_) => self.is_over = true,
        }
        Some(batch)
    }
}

impl Batch {
    /// The batch that `bytes` begins with; what follows it is left out.
    ///
    /// Errors: as [`BatchHeader::read`], and [`RecordsError::Incomplete`] with the whole size.
    pub fn read(bytes: Bytes) -> Result<Batch, RecordsError> {
        let header = BatchHeader::read(&bytes)?;
        let size_bytes = header.size_bytes();
        if bytes.len() < size_bytes {
            return IncompleteSnafu { needed: size_bytes }.fail();
        }
        Ok(Batch { header, bytes: bytes.slice(..size_bytes) })
    }

    /// Checks the bytes against the CRC in the header: CRC-32C for v2, CRC-32 before it.
    pub fn check_crc(&self) -> Result<(), RecordsError> {
        let computed = match self.header.magic {
            2 => crc32c::crc32c(&self.bytes[BatchHeader::ATTRIBUTES_AT..]),
            _ => {
                let mut crc = flate2::Crc::new();
                crc.update(&self.bytes[BatchHeader::PREFIX..]);
                crc.sum()
            }
        };
        if computed != self.header.crc {
            return CrcMismatchSnafu { stored: self.header.crc, computed }.fail();
        }
        Ok(())
    }

    /// The records, decompressed as they are walked. Messages of v0 and v1 are records without headers.
    ///
    /// Errors: [`RecordsError::UnknownCodec`], [`RecordsError::InvalidCount`], and
    /// [`RecordsError::MalformedRecord`] for damaged messages. Damage further on comes out of the iterator.
    pub fn records(&self) -> Result<Records, RecordsError> {
        Records::of(self, STORED_LIMITS)
    }

    /// The checksum of each message of v0 and v1 as it was written, and whether it is right.
    ///
    /// Errors: as [`records`](Batch::records).
    pub fn message_checksums(&self) -> Result<Vec<(u32, bool)>, RecordsError> {
        let messages = Messages::of(self, STORED_LIMITS)?;
        messages.map(|message| message.map(|message| (message.crc, message.check_crc().is_ok()))).collect()
    }

    /// The records' bytes, compressed as they are.
    pub(super) fn payload(&self) -> Bytes {
        self.bytes.slice(BatchHeader::SIZE..)
    }

    /// Decompresses the records; `None` when they are not compressed.
    pub(super) fn inflater(&self, limits: InflateLimits) -> Result<Option<Inflater>, RecordsError> {
        Ok(Inflater::new(self.header.attributes.codec()?, MessageFormat::V2, self.payload(), limits))
    }

    /// The first record that is at or after `timestamp` and not before `from`.
    ///
    /// Errors: as [`records`](Batch::records) and its iterator.
    pub fn first_record_at_or_after(
        &self,
        timestamp: Timestamp,
        from: Offset,
    ) -> Result<Option<(Offset, Timestamp)>, RecordsError> {
        if self.header.max_timestamp < timestamp || self.header.last_offset() < from {
            return Ok(None);
        }
        self.find_record(|found| found.0 >= from && found.1 >= timestamp)
    }

    /// The first record that has the batch's greatest timestamp. `None` when the batch holds no record.
    ///
    /// Errors: as [`records`](Batch::records) and its iterator.
    pub fn record_with_max_timestamp(&self) -> Result<Option<(Offset, Timestamp)>, RecordsError> {
        let mut greatest: Option<(Offset, Timestamp)> = None;
        self.find_record(|found| {
            if greatest.is_none_or(|(_, timestamp)| found.1 > timestamp) {
                greatest = Some(found);
            }
            false
        })?;
        Ok(greatest)
    }

    /// Walks the records' places without building them; stops at the first that is wanted.
    fn find_record(
        &self,
        mut is_wanted: impl FnMut((Offset, Timestamp)) -> bool,
    ) -> Result<Option<(Offset, Timestamp)>, RecordsError> {
        let header = &self.header;
        if header.magic != 2 {
            return self.find_message(is_wanted);
        }
        snafu::ensure!(header.record_count >= 0, InvalidCountSnafu { count: header.record_count });
        let mut inflater = self.inflater(STORED_LIMITS)?;
        let mut plain = &self.bytes[BatchHeader::SIZE..];
        let source: &mut dyn Source = match &mut inflater {
            Some(inflater) => inflater,
            None => &mut plain,
        };
        let mut cursor = RecordCursor::new(source);
        for batch_index in 0..header.record_count {
            let shape =
                cursor.next_shape().map_err(|fault| RecordsError::MalformedRecord { batch_index, fault })?;
            let offset = header.base_offset.plus(i64::from(shape.offset_delta));
            let found = (offset, header.timestamp_of(shape.timestamp_delta));
            if is_wanted(found) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn find_message(
        &self,
        mut is_wanted: impl FnMut((Offset, Timestamp)) -> bool,
    ) -> Result<Option<(Offset, Timestamp)>, RecordsError> {
        for message in Messages::of(self, STORED_LIMITS)? {
            let message = message?;
            let found = (message.offset, message.timestamp);
            if is_wanted(found) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use crate::records::{BatchBuilder, RecordView};

    use super::*;

    fn batch(base_offset: i64, count: i64) -> Bytes {
        let mut builder = BatchBuilder::new().base_offset(Offset(base_offset));
        for index in 0..count {
            let header: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(b"x")), (b"h", None)];
            builder.append(Timestamp(1000 + index), Some(b"key"), None, header);
        }
        builder.build()
    }

    fn log() -> Bytes {
        [batch(0, 2), batch(2, 1)].concat().into()
    }

    #[test]
    fn whole_batches_are_walked_to_the_end() {
        let mut walk = batches(&log());
        let found: Vec<Batch> = walk.by_ref().map(Result::unwrap).collect();
        let offsets: Vec<i64> = found.iter().map(|batch| batch.header.last_offset().0).collect();
        assert_eq!(offsets, [1, 2]);
        assert_eq!(walk.position(), log().len());
        assert!(found.iter().all(|batch| batch.check_crc().is_ok()));
    }

    #[test]
    fn a_torn_tail_says_where_it_begins_and_what_it_needs() {
        let whole = batch(0, 2).len();
        let size = log().len();
        for cut in whole + 1..size {
            let mut walk = batches(&log().slice(..cut));
            assert!(walk.next().unwrap().is_ok());
            let needed = match cut - whole {
                0..17 => 17,
                17..61 => 61,
                _ => size - whole,
            };
            assert_eq!(walk.next().unwrap().unwrap_err(), RecordsError::Incomplete { needed });
            assert_eq!(walk.position(), whole);
            assert!(walk.next().is_none());
        }
    }

    #[test]
    fn records_read_back_as_they_were_appended() {
        let batch = Batch::read(batch(5, 2)).unwrap();
        let records: Vec<RecordView> = batch.records().unwrap().map(Result::unwrap).collect();
        assert_eq!(records.len(), 2);
        assert_eq!(records[1].offset(&batch.header), Offset(6));
        assert_eq!(records[1].timestamp(&batch.header), Timestamp(1001));
        assert_eq!(records[1].key.as_deref(), Some(&b"key"[..]));
        assert_eq!(records[1].value, None);
        assert_eq!(records[1].headers[1], (Bytes::from_static(b"h"), None));
    }

    #[test]
    fn the_first_record_at_or_after_a_time_is_found() {
        let batch = Batch::read(batch(5, 3)).unwrap();
        let find = |timestamp, from| {
            batch.first_record_at_or_after(Timestamp(timestamp), Offset(from)).unwrap().map(|found| found.0.0)
        };
        assert_eq!(find(0, 0), Some(5));
        assert_eq!(find(1001, 0), Some(6));
        assert_eq!(find(1001, 7), Some(7));
        assert_eq!(find(1003, 0), None);
        assert_eq!(find(0, 8), None);
        assert_eq!(batch.record_with_max_timestamp().unwrap(), Some((Offset(7), Timestamp(1002))));
    }

    #[test]
    fn a_flipped_bit_is_found_by_the_crc() {
        let mut bytes = batch(0, 1).to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        let error = Batch::read(bytes.into()).unwrap().check_crc().unwrap_err();
        assert!(matches!(error, RecordsError::CrcMismatch { .. }));
    }
}
