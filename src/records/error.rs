use snafu::Snafu;

use super::Codec;

/// Why a record set cannot be read or taken.
///
/// [`refusal`](RecordsError::refusal) groups the variants by Kafka's answer to a producer.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum RecordsError {
    /// The bytes end inside a batch: a torn tail of a log, or one to read on from.
    /// `needed` counts from the batch's first byte and may grow once that much is there.
    #[snafu(display("the batch needs {needed} bytes, fewer are there"))]
    Incomplete { needed: usize },

    #[snafu(display("batch length {batch_length} is below the minimum of {length_min}"))]
    InvalidBatchLength { batch_length: i32, length_min: i32 },

    #[snafu(display("unknown magic {magic}"))]
    UnknownMagic { magic: i8 },

    #[snafu(display("Record is corrupt (stored crc = {stored}, computed crc = {computed})"))]
    CrcMismatch { stored: u32, computed: u32 },

    #[snafu(display("unknown compression codec id {id}"))]
    UnknownCodec { id: u8 },

    /// The version of the request does not allow it.
    #[snafu(display("Produce requests with version below 7 are not allowed to use {} compression", codec.name()))]
    UnsupportedCodec { codec: Codec },

    /// The version of the request asks for v2.
    #[snafu(display(
        "Produce requests with version 3 or later may only hold record batches with magic version 2, not {magic}"
    ))]
    WrongMagic { magic: i8 },

    /// The records have what the topic's message format cannot hold.
    #[snafu(display("{what} cannot be used with magic version {magic}"))]
    UnsupportedForFormat { what: &'static str, magic: i8 },

    #[snafu(display("Batch magic {magic} is not the same as the first batch's magic byte {first}"))]
    MixedMagic { magic: i8, first: i8 },

    #[snafu(display("Compressed outer record has more than one batch"))]
    MoreThanOneWrapper,

    #[snafu(display("the record set holds no batch"))]
    NoBatch,

    #[snafu(display(
        "Produce requests with version 3 or later must hold exactly one record batch per partition"
    ))]
    MoreThanOneBatch,

    #[snafu(display("The baseOffset of the record batch must be 0, but it is {base_offset}"))]
    NonZeroBaseOffset { base_offset: i64 },

    #[snafu(display("The record batch size of {size_bytes} bytes exceeds the maximum of {size_max}"))]
    MessageTooLarge { size_bytes: usize, size_max: usize },

    #[snafu(display("The record set of {size_bytes} bytes exceeds the segment size of {size_max}"))]
    RecordListTooLarge { size_bytes: usize, size_max: usize },

    #[snafu(display("Invalid reported count for record batch: {count}"))]
    InvalidCount { count: i32 },

    #[snafu(display(
        "Inconsistent batch offset range [0, {last_offset_delta}] and count of records {count}"
    ))]
    CountMismatch { last_offset_delta: i32, count: i32 },

    #[snafu(display("Clients are not allowed to write control records"))]
    ControlBatch,

    #[snafu(display("Invalid sequence number {sequence} in record batch with producerId {producer_id}"))]
    InvalidSequence { sequence: i32, producer_id: i64 },

    /// The bytes of record `batch_index` do not follow the format.
    #[snafu(display("Record {batch_index} is invalid: {fault}"))]
    MalformedRecord { batch_index: i32, fault: RecordFault },

    /// Bytes follow the last of the declared records.
    #[snafu(display("Incorrect declared batch size, records still remaining in file"))]
    TrailingBytes,

    /// Records break rules of the topic; the batch is refused as a whole.
    #[snafu(display("{}", rejected_message(errors, *is_timestamp, *count)))]
    RejectedRecords {
        /// One of them is about a timestamp, which decides the answer.
        is_timestamp: bool,
        /// How many records are bad; `errors` holds the first of them.
        count: usize,
        errors: Vec<RecordError>,
    },
}

/// One bad record, as `record_errors` of a produce response names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// The record's place in the batch, from 0.
    pub batch_index: i32,
    pub message: String,
}

/// What is wrong with the bytes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFault {
    /// The batch ends inside it.
    Cut,
    /// A varint has more bytes than its type can hold.
    Varint,
    /// The declared length and the fields in it disagree.
    Length,
    /// A negative length that is not `-1`, or any where null is not allowed.
    NegativeLength,
    /// A negative number of headers, or more than there are bytes.
    HeaderCount,
    /// Its offset is not the next one of the batch.
    OffsetDelta,
    /// Its timestamp does not fit 64 bits.
    TimestampDelta,
    /// A control record whose key or value is too short.
    ControlRecord,
    /// The compressed bytes are damaged or end early.
    Compression,
    /// The batch inflates to more than is allowed.
    InflatedTooLarge,
    /// An old message whose format is not 0 or 1, or not that of its wrapper.
    Magic,
    /// A wrapper without a value.
    NoValue,
    /// A wrapper without a message in it.
    EmptyWrapper,
    /// A wrapper inside a wrapper.
    NestedWrapper,
    /// The offset of a wrapper and those of the messages in it do not fit.
    WrapperOffset,
    /// A time before 1970 other than -1, which the target format cannot hold.
    NegativeTimestamp,
}

impl std::fmt::Display for RecordFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RecordFault::Cut => "premature end of the batch",
            RecordFault::Varint => "varint is too long",
            RecordFault::Length => "its fields do not fill the declared length",
            RecordFault::NegativeLength => "negative length",
            RecordFault::HeaderCount => "invalid number of headers",
            RecordFault::OffsetDelta => "its offset does not follow the record before it",
            RecordFault::TimestampDelta => "its timestamp overflows",
            RecordFault::ControlRecord => "the control record is cut short",
            RecordFault::Compression => "the compressed data is damaged",
            RecordFault::InflatedTooLarge => "the batch is too large when decompressed",
            RecordFault::Magic => "its magic does not match the outer magic",
            RecordFault::NoValue => "compressed record set with null value",
            RecordFault::EmptyWrapper => "compressed record set with no inner records",
            RecordFault::NestedWrapper => "inner messages must not be compressed",
            RecordFault::WrapperOffset => "invalid wrapper offset in compressed message set",
            RecordFault::NegativeTimestamp => "its timestamp is negative",
        })
    }
}

/// Kafka's answers to a producer whose record set is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
}

impl RecordsError {
    /// Whether the records inflate to more than they may.
    pub fn is_inflated_too_large(&self) -> bool {
        matches!(self, RecordsError::MalformedRecord { fault: RecordFault::InflatedTooLarge, .. })
    }

    /// Kafka's answer when this is why a produced record set is refused.
    pub fn refusal(&self) -> Refusal {
        match self {
            RecordsError::Incomplete { .. }
            | RecordsError::InvalidBatchLength { .. }
            | RecordsError::UnknownMagic { .. }
            | RecordsError::CrcMismatch { .. } => Refusal::CorruptMessage,
            RecordsError::UnsupportedCodec { .. } => Refusal::UnsupportedCompressionType,
            RecordsError::UnknownCodec { .. }
            | RecordsError::NoBatch
            | RecordsError::MoreThanOneBatch
            | RecordsError::NonZeroBaseOffset { .. }
            | RecordsError::InvalidCount { .. }
            | RecordsError::CountMismatch { .. }
            | RecordsError::ControlBatch
            | RecordsError::InvalidSequence { .. }
            | RecordsError::WrongMagic { .. }
            | RecordsError::MixedMagic { .. }
            | RecordsError::MoreThanOneWrapper
            | RecordsError::TrailingBytes
            | RecordsError::RejectedRecords { is_timestamp: false, .. } => Refusal::InvalidRecord,
            RecordsError::RejectedRecords { is_timestamp: true, .. } => Refusal::InvalidTimestamp,
            RecordsError::UnsupportedForFormat { .. } => Refusal::UnsupportedForMessageFormat,
            RecordsError::MalformedRecord { fault: RecordFault::InflatedTooLarge, .. }
            | RecordsError::MessageTooLarge { .. } => Refusal::MessageTooLarge,
            RecordsError::MalformedRecord { .. } => Refusal::InvalidRecord,
            RecordsError::RecordListTooLarge { .. } => Refusal::RecordListTooLarge,
        }
    }

    /// The records that a produce response names one by one; empty when the batch as a whole is at fault.
    pub fn record_errors(&self) -> &[RecordError] {
        match self {
            RecordsError::RejectedRecords { errors, .. } => errors,
            _ => &[],
        }
    }
}

fn rejected_message(errors: &[RecordError], is_timestamp: bool, count: usize) -> String {
    if is_timestamp {
        return "One or more records have been rejected due to invalid timestamp".to_owned();
    }
    let shown: Vec<&str> = errors.iter().take(3).map(|error| error.message.as_str()).collect();
    format!(
        "One or more records have been rejected due to {count} record errors in total, and only showing the \
         first three errors at most: [{}]",
        shown.join(", ")
    )
}
