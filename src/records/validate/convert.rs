//! Record sets whose format is not the topic's: every record is checked and written anew.

use bytes::Bytes;
use snafu::ensure;

use crate::model::{Offset, Timestamp};
use crate::records::batch::{Batch, batches};
use crate::records::builder::BatchBuilder;
use crate::records::error::*;
use crate::records::header::{BatchHeader, TimestampType};
use crate::records::legacy::{MessageSetBuilder, Messages};
use crate::records::record::Records;
use crate::records::{Codec, MessageFormat};

use super::{Rejected, TargetCompression, ValidatedBatch, ValidationRules, inflate_limits, rejection};

/// Gives the records of `set` the topic's format, in one batch where the format has batches. `set` is not
/// empty, all of one format, and each of it was checked from outside.
pub(super) fn convert(
    set: &[Batch],
    rules: &ValidationRules,
    now: Timestamp,
) -> Result<Vec<ValidatedBatch>, RecordsError> {
    let (codec, level) = target_codec(set, rules)?;
    let Some(first) = set.first() else { return Ok(Vec::new()) };
    let mut writer = Writer::new(&first.header, rules, (codec, level), now);
    let mut rejected = Rejected::default();
    for batch in set {
        check_for_format(&batch.header, rules.message_format)?;
        let mut batch_index = 0;
        read(batch, rules, &mut |record| {
            if let Some(reason) = rejection(record.key.is_some(), record.timestamp, &batch.header, rules, now)
            {
                rejected.add(batch_index, record.timestamp, reason, rules, now);
            }
            if rejected.count == 0 {
                writer.append(&record, batch_index)?;
            }
            batch_index += 1;
            Ok(())
        })?;
    }
    rejected.into_result()?;
    writer.finish()
}

/// The codec of the whole set: the last message's that has one. What is compressed is one wrapper.
fn target_codec(set: &[Batch], rules: &ValidationRules) -> Result<(Codec, Option<i32>), RecordsError> {
    let mut source = Codec::None;
    for batch in set {
        match batch.header.attributes.codec()? {
            Codec::None => {}
            codec => source = codec,
        }
    }
    ensure!(source == Codec::None || set.len() == 1, MoreThanOneWrapperSnafu);
    let (codec, level) = match rules.compression {
        TargetCompression::Producer => (source, None),
        TargetCompression::Fixed(codec, level) => (codec, level),
    };
    let (format, magic) = (rules.message_format, rules.message_format.magic());
    ensure!(
        codec != Codec::Zstd || format == MessageFormat::V2,
        UnsupportedForFormatSnafu { what: "Zstd compression", magic }
    );
    // The offsets inside a v0 wrapper are absolute, and known too late. Alone each message has its own.
    let is_wrapper_possible = format != MessageFormat::V0;
    Ok(if is_wrapper_possible { (codec, level) } else { (Codec::None, None) })
}

fn check_for_format(header: &BatchHeader, format: MessageFormat) -> Result<(), RecordsError> {
    if format == MessageFormat::V2 {
        return Ok(());
    }
    let magic = format.magic();
    ensure!(
        !header.attributes.is_transactional(),
        UnsupportedForFormatSnafu { what: "Transactional records", magic }
    );
    ensure!(!header.has_producer_id(), UnsupportedForFormatSnafu { what: "Idempotent records", magic });
    Ok(())
}

/// A record of any format.
struct Record {
    timestamp: Timestamp,
    key: Option<Bytes>,
    value: Option<Bytes>,
    headers: Vec<(Bytes, Option<Bytes>)>,
}

fn read(
    batch: &Batch,
    rules: &ValidationRules,
    visit: &mut dyn FnMut(Record) -> Result<(), RecordsError>,
) -> Result<(), RecordsError> {
    let limits = inflate_limits(rules);
    let header = &batch.header;
    if header.magic == 2 {
        for (batch_index, record) in (0..).zip(Records::of(batch, limits)?) {
            let record = record?;
            let is_next = record.offset_delta == batch_index;
            ensure!(is_next, MalformedRecordSnafu { batch_index, fault: RecordFault::OffsetDelta });
            let timestamp = record.timestamp(header);
            let (key, value, headers) = (record.key, record.value, record.headers);
            visit(Record { timestamp, key, value, headers })?;
        }
        return Ok(());
    }
    let is_wrapper = header.attributes.codec()? != Codec::None;
    for (batch_index, message) in (0..).zip(Messages::of(batch, limits)?) {
        let message = message?;
        if is_wrapper {
            let is_alike = message.format.magic() == header.magic;
            ensure!(is_alike, MalformedRecordSnafu { batch_index, fault: RecordFault::Magic });
            message.check_crc()?;
        }
        let (timestamp, key, value) = (message.timestamp, message.key, message.value);
        visit(Record { timestamp, key, value, headers: Vec::new() })?;
    }
    Ok(())
}

/// Writes the records, with offsets from 0 on.
enum Writer {
    Batch { builder: BatchBuilder, size_max: usize },
    Messages { builder: MessageSetBuilder, format: MessageFormat, count: i32, size_max: usize },
}

impl Writer {
    fn new(
        first: &BatchHeader,
        rules: &ValidationRules,
        (codec, level): (Codec, Option<i32>),
        now: Timestamp,
    ) -> Writer {
        if rules.message_format == MessageFormat::V2 {
            let builder = BatchBuilder::new()
                .producer(first.producer_id, first.producer_epoch, first.base_sequence)
                .compression(codec, level);
            let builder = if first.attributes.is_transactional() { builder.transactional() } else { builder };
            let builder = match rules.timestamp_type {
                TimestampType::CreateTime => builder,
                TimestampType::LogAppendTime => builder.log_append_time(now),
            };
            return Writer::Batch { builder, size_max: rules.message_size_max };
        }
        let format = rules.message_format;
        let builder = MessageSetBuilder::new(format, (codec, level), rules.timestamp_type, now);
        // Messages that stand alone are bounded one by one.
        let size_max = if codec == Codec::None { rules.record_set_size_max } else { rules.message_size_max };
        Writer::Messages { builder, format, count: 0, size_max }
    }

    fn append(&mut self, record: &Record, batch_index: i32) -> Result<(), RecordsError> {
        let Record { timestamp, key, value, headers } = record;
        let (key, value) = (key.as_deref(), value.as_deref());
        let is_possible = *timestamp >= Timestamp::NONE;
        ensure!(is_possible, MalformedRecordSnafu { batch_index, fault: RecordFault::NegativeTimestamp });
        let (size_bytes, size_max) = match self {
            Writer::Batch { builder, size_max } => {
                let headers: Vec<(&[u8], Option<&[u8]>)> =
                    headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
                builder.append(*timestamp, key, value, &headers);
                (builder.written(), *size_max)
            }
            Writer::Messages { builder, format, count, size_max } => {
                let magic = format.magic();
                ensure!(headers.is_empty(), UnsupportedForFormatSnafu { what: "Record headers", magic });
                builder.append(Offset(i64::from(*count)), *timestamp, key, value);
                *count += 1;
                (builder.written(), *size_max)
            }
        };
        // What a codec holds back is counted when the batch is whole.
        ensure!(size_bytes <= size_max, MessageTooLargeSnafu { size_bytes, size_max });
        Ok(())
    }

    fn finish(self) -> Result<Vec<ValidatedBatch>, RecordsError> {
        match self {
            Writer::Batch { builder, .. } => {
                let (header, bytes) = builder.build_with_header();
                Ok(vec![ValidatedBatch { header, bytes }])
            }
            Writer::Messages { builder, count, .. } => {
                let mut written = Vec::new();
                for batch in batches(&builder.finish()) {
                    let Batch { mut header, bytes } = batch?;
                    if header.attributes.codec()? != Codec::None {
                        header.last_offset_delta = count - 1;
                    }
                    written.push(ValidatedBatch { header, bytes });
                }
                Ok(written)
            }
        }
    }
}
