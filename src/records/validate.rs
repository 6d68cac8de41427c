mod convert;
#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};

use crate::model::{LeaderEpoch, Offset, Timestamp};

use super::batch::{Batch, batches};
use super::builder::{seal, seal_in_place};
use super::compression::{Deflater, InflateLimits, Inflater};
use super::cursor::{RecordCursor, Source};
use super::error::*;
use super::header::{BatchHeader, TimestampType};
use super::{Codec, MessageFormat};

/// Who appends, which decides what is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A producer's request.
    Client,
    /// This broker's group or transaction coordinator: control batches are allowed, sequences not checked.
    Coordinator,
    /// A leader's batches on a follower, or the log itself on recovery: what is there counts.
    Replication,
}

/// What the version of a produce request allows in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSetFormat {
    /// Versions 0 to 2: any number of messages of any format, also none.
    MessageSet,
    /// Versions 3 to 6: exactly one v2 batch, not with zstd.
    BatchWithoutZstd,
    /// Version 7 and later: exactly one v2 batch.
    Batch,
}

/// `compression.type` of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetCompression {
    /// `producer`: as it came.
    Producer,
    /// The named codec at a level; `None` = the codec's default level. `uncompressed` is [`Codec::None`].
    Fixed(Codec, Option<i32>),
}

/// The rules of a topic and of the request that a record set is checked against.
#[derive(Clone, Debug)]
pub struct ValidationRules {
    pub origin: AppendOrigin,
    pub format: RecordSetFormat,
    /// What is stored: v2, but in a cluster that is being upgraded from before 0.11.
    pub message_format: MessageFormat,
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far a create time may lie in the past.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far it may lie in the future.
    pub timestamp_after_max_ms: i64,
    /// The topic is compacted: a record without a key could never be cleaned.
    pub needs_keys: bool,
    pub compression: TargetCompression,
    /// `max.message.bytes`, for the batch as it comes and as it is stored.
    pub message_size_max: usize,
    /// `segment.bytes`: a record set must fit one segment.
    pub record_set_size_max: usize,
    /// How far a batch may inflate, for a caller that wants to know early of one that takes long; never more than
    /// what is refused as a bomb.
    pub inflated_size_max: usize,
}

/// What Kafka's default settings ask of a client's batches in the current format.
impl Default for ValidationRules {
    fn default() -> ValidationRules {
        ValidationRules {
            origin: AppendOrigin::Client,
            format: RecordSetFormat::Batch,
            message_format: MessageFormat::V2,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            needs_keys: false,
            compression: TargetCompression::Producer,
            message_size_max: 1_048_588,
            record_set_size_max: 1 << 30,
            inflated_size_max: usize::MAX,
        }
    }
}

/// A record set that may be appended.
#[derive(Clone, Debug)]
pub struct ValidatedRecords {
    /// Empty only for an empty message set of an old produce request.
    pub batches: Vec<ValidatedBatch>,
    /// The time that every record reads as, when the topic's timestamps are append times.
    pub log_append_time: Option<Timestamp>,
}

/// A batch that may be appended once it has its offset and epoch: see [`prefix`](ValidatedBatch::prefix).
#[derive(Clone, Debug)]
pub struct ValidatedBatch {
    /// As stored, but for base offset and leader epoch. `max_timestamp` is exact.
    pub header: BatchHeader,
    /// The whole batch. Its first 16 bytes are to be replaced by the prefix.
    pub bytes: Bytes,
}

impl ValidatedRecords {
    pub fn size_bytes(&self) -> usize {
        self.batches.iter().map(|batch| batch.bytes.len()).sum()
    }
}

impl ValidatedBatch {
    /// The first 16 bytes of the stored batch. They lie outside the CRC, so `prefix` followed by
    /// `bytes[16..]` is a valid batch without a byte being copied. Old messages have their last offset there,
    /// and their CRC in place of the leader epoch.
    pub fn prefix(&self, base_offset: Offset, leader_epoch: LeaderEpoch) -> [u8; BatchHeader::PREFIX] {
        let (offset, last) = match self.header.magic {
            2 => (base_offset, leader_epoch.0.to_be_bytes()),
            _ => {
                let delta = i64::from(self.header.last_offset_delta);
                (base_offset.plus(delta), self.header.crc.to_be_bytes())
            }
        };
        let mut prefix = [0; BatchHeader::PREFIX];
        prefix[..8].copy_from_slice(&offset.0.to_be_bytes());
        prefix[8..12].copy_from_slice(&self.header.batch_length.to_be_bytes());
        prefix[12..].copy_from_slice(&last);
        prefix
    }
}

/// Checks `input` as Kafka's `LogValidator` does and gives it the form in which it is stored.
///
/// `now` is the append time. A batch of trailing bytes that is not whole is left out, as Kafka does. The
/// batch's bytes are reused unless a rule changes them. Needs no log and no lock; the walk over the records
/// allocates nothing.
pub fn validate(
    input: Bytes,
    rules: &ValidationRules,
    now: Timestamp,
) -> Result<ValidatedRecords, RecordsError> {
    let log_append_time = (rules.timestamp_type == TimestampType::LogAppendTime).then_some(now);
    let batches = match record_set(input, rules.format)? {
        RecordSet::Empty => Vec::new(),
        RecordSet::Batch(batch) => {
            check_batch(&batch, rules)?;
            match rules.message_format {
                MessageFormat::V2 if !loses_append_time(&batch.header, rules)? => {
                    vec![stored_form(batch, rules, now)?]
                }
                _ => convert::convert(&[batch], rules, now)?,
            }
        }
        RecordSet::Messages(messages) => {
            messages.iter().try_for_each(|message| check_message(message, rules))?;
            convert::convert(&messages, rules, now)?
        }
    };
    let size_max = rules.message_size_max;
    if let Some(size_bytes) = batches.iter().map(|batch| batch.bytes.len()).find(|size| *size > size_max) {
        return MessageTooLargeSnafu { size_bytes, size_max }.fail();
    }
    let validated = ValidatedRecords { batches, log_append_time };
    let (size_bytes, size_max) = (validated.size_bytes(), rules.record_set_size_max);
    snafu::ensure!(size_bytes <= size_max, RecordListTooLargeSnafu { size_bytes, size_max });
    Ok(validated)
}

/// What a producer may send for a partition.
enum RecordSet {
    Empty,
    /// One batch of v2.
    Batch(Batch),
    /// Messages of v0 or v1, all of one of them: many, or one wrapper.
    Messages(Vec<Batch>),
}

fn record_set(input: Bytes, format: RecordSetFormat) -> Result<RecordSet, RecordsError> {
    let mut walk = batches(&input);
    drop(input);
    let first = match walk.next() {
        Some(Ok(batch)) => batch,
        None | Some(Err(RecordsError::Incomplete { .. })) if format == RecordSetFormat::MessageSet => {
            return Ok(RecordSet::Empty);
        }
        None | Some(Err(RecordsError::Incomplete { .. })) => return NoBatchSnafu.fail(),
        Some(Err(error)) => return Err(error),
    };
    let magic = first.header.magic;
    if magic != 2 {
        snafu::ensure!(format == RecordSetFormat::MessageSet, WrongMagicSnafu { magic });
        return messages(first, walk).map(RecordSet::Messages);
    }
    match walk.next() {
        None | Some(Err(RecordsError::Incomplete { .. })) => Ok(RecordSet::Batch(first)),
        Some(Ok(_)) => MoreThanOneBatchSnafu.fail(),
        Some(Err(error)) => Err(error),
    }
}

fn messages(first: Batch, walk: super::batch::Batches) -> Result<Vec<Batch>, RecordsError> {
    let first_magic = first.header.magic;
    let mut messages = vec![first];
    for message in walk {
        let message = match message {
            Err(RecordsError::Incomplete { .. }) => break,
            message => message?,
        };
        let magic = message.header.magic;
        snafu::ensure!(magic == first_magic, MixedMagicSnafu { magic, first: first_magic });
        messages.push(message);
    }
    Ok(messages)
}

/// The checks of an old message that need not look into it.
fn check_message(message: &Batch, rules: &ValidationRules) -> Result<(), RecordsError> {
    let (size_bytes, size_max) = (message.bytes.len(), rules.message_size_max);
    snafu::ensure!(size_bytes <= size_max, MessageTooLargeSnafu { size_bytes, size_max });
    message.check_crc()
}

/// The checks that need only the header and the CRC, in Kafka's order.
fn check_batch(batch: &Batch, rules: &ValidationRules) -> Result<(), RecordsError> {
    let header = &batch.header;
    let is_client = rules.origin == AppendOrigin::Client;
    let codec = header.attributes.codec()?;
    snafu::ensure!(
        rules.format != RecordSetFormat::BatchWithoutZstd || codec != Codec::Zstd,
        UnsupportedCodecSnafu { codec }
    );
    snafu::ensure!(
        !is_client || header.base_offset == Offset::ZERO,
        NonZeroBaseOffsetSnafu { base_offset: header.base_offset.0 }
    );
    snafu::ensure!(
        batch.bytes.len() <= rules.message_size_max,
        MessageTooLargeSnafu { size_bytes: batch.bytes.len(), size_max: rules.message_size_max }
    );
    batch.check_crc()?;
    snafu::ensure!(header.record_count > 0, InvalidCountSnafu { count: header.record_count });
    snafu::ensure!(
        header.last_offset_delta == header.record_count - 1,
        CountMismatchSnafu { last_offset_delta: header.last_offset_delta, count: header.record_count }
    );
    if is_client {
        snafu::ensure!(!header.attributes.is_control(), ControlBatchSnafu);
        snafu::ensure!(
            !header.has_producer_id() || header.base_sequence >= 0,
            InvalidSequenceSnafu { sequence: header.base_sequence, producer_id: header.producer_id.0 }
        );
    }
    Ok(())
}

/// The largest record that is taken apart, where the topic's batches may not be larger anyway.
const RECORD_SIZE_MAX: usize = 32 << 20;

/// How far a batch may inflate: what Kafka takes in practice, and no bomb.
fn inflate_limits(rules: &ValidationRules) -> InflateLimits {
    InflateLimits {
        size_max: rules.message_size_max.saturating_mul(16).max(256 << 20).min(rules.inflated_size_max),
        large_window_size_max: rules.message_size_max.saturating_mul(16).clamp(32 << 20, 128 << 20),
        record_size_max: rules.message_size_max.max(RECORD_SIZE_MAX),
    }
}

/// Whether a producer's append time, which is one for all records, is to be each record's own time in a batch that
/// is written anew anyway.
fn loses_append_time(header: &BatchHeader, rules: &ValidationRules) -> Result<bool, RecordsError> {
    let source = header.attributes.codec()?;
    let is_kept = match rules.compression {
        TargetCompression::Producer => true,
        TargetCompression::Fixed(target, _) => source == target,
    };
    let has_append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    Ok(has_append_time && !is_kept && rules.timestamp_type == TimestampType::CreateTime)
}

/// Checks the records and gives the batch the codec and the timestamps that the topic wants.
fn stored_form(
    batch: Batch,
    rules: &ValidationRules,
    now: Timestamp,
) -> Result<ValidatedBatch, RecordsError> {
    let source = batch.header.attributes.codec()?;
    let (target, level) = match rules.compression {
        TargetCompression::Producer => (source, None),
        TargetCompression::Fixed(codec, level) => (codec, level),
    };
    let is_kept = source == target || (source == Codec::None && batch.header.attributes.is_control());
    let (max_timestamp, recompressed) = if is_kept {
        (check_in_place(&batch, rules, now)?, None)
    } else {
        let deflater = Deflater::new(target, MessageFormat::V2, level, vec![0; BatchHeader::SIZE]);
        let (max_timestamp, bytes) = recompress(&batch, deflater, rules, now)?;
        (max_timestamp, Some((target, bytes)))
    };
    let mut header = BatchHeader {
        attributes: batch.header.attributes.with_timestamp_type(rules.timestamp_type),
        max_timestamp: match rules.timestamp_type {
            TimestampType::CreateTime => max_timestamp,
            TimestampType::LogAppendTime => now,
        },
        ..batch.header
    };
    if let Some((codec, bytes)) = recompressed {
        header.attributes = header.attributes.with_codec(codec);
        let (header, bytes) = seal(header, bytes);
        return Ok(ValidatedBatch { header, bytes });
    }
    if header == batch.header {
        return Ok(ValidatedBatch { header, bytes: batch.bytes });
    }
    let mut bytes = batch.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    let header = seal_in_place(header, &mut bytes);
    Ok(ValidatedBatch { header, bytes: bytes.freeze() })
}

fn check_in_place(batch: &Batch, rules: &ValidationRules, now: Timestamp) -> Result<Timestamp, RecordsError> {
    match batch.inflater(inflate_limits(rules))? {
        Some(inflater) => check_records(&mut RecordCursor::new(inflater), &batch.header, rules, now),
        None => {
            let records = &batch.bytes[BatchHeader::SIZE..];
            check_records(&mut RecordCursor::new(records), &batch.header, rules, now)
        }
    }
}

/// Checks the records while their bytes, which stay as they are, go through another codec.
fn recompress(
    batch: &Batch,
    mut deflater: Deflater,
    rules: &ValidationRules,
    now: Timestamp,
) -> Result<(Timestamp, Vec<u8>), RecordsError> {
    let max_timestamp = match batch.inflater(inflate_limits(rules))? {
        Some(inflater) => {
            let tee = Tee { inflater, deflater: &mut deflater, size_max: rules.message_size_max };
            check_records(&mut RecordCursor::new(tee), &batch.header, rules, now)?
        }
        None => {
            let records = &batch.bytes[BatchHeader::SIZE..];
            let max_timestamp = check_records(&mut RecordCursor::new(records), &batch.header, rules, now)?;
            deflater.write(records);
            max_timestamp
        }
    };
    Ok((max_timestamp, deflater.finish()))
}

/// Passes on each chunk that is walked. Stops when the output is larger than a batch may be.
struct Tee<'a> {
    inflater: Inflater,
    deflater: &'a mut Deflater,
    size_max: usize,
}

impl Source for Tee<'_> {
    fn chunk(&self) -> &[u8] {
        self.inflater.chunk()
    }

    fn refill(&mut self) -> Result<bool, RecordFault> {
        let is_filled = self.inflater.refill()?;
        self.deflater.write(self.inflater.chunk());
        if self.deflater.written() > self.size_max {
            return Err(RecordFault::InflatedTooLarge);
        }
        Ok(is_filled)
    }
}

/// Walks the declared records; returns their greatest timestamp, `-1` when none has one.
fn check_records<S: Source>(
    cursor: &mut RecordCursor<S>,
    header: &BatchHeader,
    rules: &ValidationRules,
    now: Timestamp,
) -> Result<Timestamp, RecordsError> {
    let has_append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    let mut max_timestamp = Timestamp::NONE;
    let mut rejected = Rejected::default();
    for batch_index in 0..header.record_count {
        let malformed = |fault| RecordsError::MalformedRecord { batch_index, fault };
        let shape = cursor.next_shape().map_err(malformed)?;
        if shape.offset_delta != batch_index {
            return Err(malformed(RecordFault::OffsetDelta));
        }
        let Some(timestamp) = header.base_timestamp.0.checked_add(shape.timestamp_delta).map(Timestamp)
        else {
            return Err(malformed(RecordFault::TimestampDelta));
        };
        let timestamp = if has_append_time { header.max_timestamp } else { timestamp };
        max_timestamp = max_timestamp.max(timestamp);
        if let Some(reason) = rejection(shape.has_key, timestamp, header, rules, now) {
            rejected.add(batch_index, timestamp, reason, rules, now);
        }
    }
    let at_end = cursor.is_at_end();
    let batch_index = header.record_count;
    if !at_end.map_err(|fault| RecordsError::MalformedRecord { batch_index, fault })? {
        return TrailingBytesSnafu.fail();
    }
    rejected.into_result()?;
    Ok(max_timestamp)
}

/// Which rule of the topic a record breaks.
#[derive(Clone, Copy)]
enum Rejection {
    NoKey,
    TimestampRange,
    TimestampType,
}

#[inline(always)]
fn rejection(
    has_key: bool,
    timestamp: Timestamp,
    header: &BatchHeader,
    rules: &ValidationRules,
    now: Timestamp,
) -> Option<Rejection> {
    if rules.needs_keys && !has_key {
        return Some(Rejection::NoKey);
    }
    if rules.timestamp_type == TimestampType::CreateTime && timestamp != Timestamp::NONE {
        let is_in_range = now.since_ms(timestamp) <= rules.timestamp_before_max_ms
            && timestamp.since_ms(now) <= rules.timestamp_after_max_ms;
        return (!is_in_range).then_some(Rejection::TimestampRange);
    }
    (header.attributes.timestamp_type() == TimestampType::LogAppendTime).then_some(Rejection::TimestampType)
}

/// The bad records of a batch. Only the first are described: a batch may hold millions.
#[derive(Default)]
struct Rejected {
    count: usize,
    is_timestamp: bool,
    errors: Vec<RecordError>,
}

impl Rejected {
    const DESCRIBED_MAX: usize = 1000;

    #[cold]
    fn add(
        &mut self,
        batch_index: i32,
        timestamp: Timestamp,
        rejection: Rejection,
        rules: &ValidationRules,
        now: Timestamp,
    ) {
        self.count += 1;
        self.is_timestamp |= !matches!(rejection, Rejection::NoKey);
        if self.errors.len() == Self::DESCRIBED_MAX {
            return;
        }
        let message = match rejection {
            Rejection::NoKey => "Compacted topic cannot accept message without key".to_owned(),
            Rejection::TimestampRange => format!(
                "Timestamp {timestamp} of message with offset {batch_index} is out of range. The timestamp should \
                 be within [{}, {}]",
                now.plus_ms(rules.timestamp_before_max_ms.saturating_neg()),
                now.plus_ms(rules.timestamp_after_max_ms)
            ),
            Rejection::TimestampType => format!(
                "Invalid timestamp type in message with offset {batch_index}. Producer should not set timestamp type \
                 to LogAppendTime."
            ),
        };
        self.errors.push(RecordError { batch_index, message });
    }

    fn into_result(self) -> Result<(), RecordsError> {
        if self.count == 0 {
            return Ok(());
        }
        RejectedRecordsSnafu { is_timestamp: self.is_timestamp, count: self.count, errors: self.errors }
            .fail()
    }
}
