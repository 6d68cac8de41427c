use crate::model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

use super::Codec;
use super::error::{IncompleteSnafu, InvalidBatchLengthSnafu, RecordsError, UnknownMagicSnafu};

/// The fixed fields of one batch, decoded.
///
/// A message of format v0 or v1 reads as a batch of its own, as in Kafka's log: `base_offset` is its
/// offset (of a compressed one: that of the *last* inner message), it has no leader epoch and no producer,
/// and [`record_count`](BatchHeader::record_count) is `-1`, unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: Offset,
    /// Bytes that follow this field: the batch's size is 12 more.
    pub batch_length: i32,
    pub leader_epoch: LeaderEpoch,
    /// The message format: 0, 1 or 2.
    pub magic: i8,
    /// CRC-32C over everything after this field (v0 and v1: CRC-32).
    pub crc: u32,
    pub attributes: Attributes,
    /// The last record's offset is `base_offset + last_offset_delta`; compaction keeps it.
    pub last_offset_delta: i32,
    /// The first record's timestamp, or the delete horizon when the attributes say so. `-1` = none.
    pub base_timestamp: Timestamp,
    /// The greatest timestamp of the records, or the append time. `-1` = none.
    pub max_timestamp: Timestamp,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// The sequence of the record at `base_offset`. `-1` = none.
    pub base_sequence: i32,
    /// `0` only in a batch that compaction emptied; `-1` = unknown (v0 and v1).
    pub record_count: i32,
}

impl BatchHeader {
    /// Bytes of a v2 header.
    pub const SIZE: usize = 61;
    /// Bytes of base offset and length, which every format has.
    pub const OVERHEAD: usize = 12;
    /// Bytes before the part that the CRC covers not at all: base offset, length, leader epoch.
    pub const PREFIX: usize = 16;

    const MAGIC_AT: usize = 16;
    pub(super) const CRC_AT: usize = 17;
    pub(super) const ATTRIBUTES_AT: usize = 21;
    pub(super) const MAX_TIMESTAMP_AT: usize = 35;

    /// Reads the header at the start of `bytes`, which may be longer or shorter than the batch.
    ///
    /// Checks the length and the magic, neither the CRC nor that the batch is whole.
    /// Errors: [`RecordsError::Incomplete`] with the bytes that are needed to go on,
    /// [`RecordsError::InvalidBatchLength`], [`RecordsError::UnknownMagic`].
    pub fn read(bytes: &[u8]) -> Result<BatchHeader, RecordsError> {
        let Some(start) = bytes.first_chunk::<{ Self::MAGIC_AT + 1 }>() else {
            return IncompleteSnafu { needed: Self::MAGIC_AT + 1 }.fail();
        };
        let batch_length = i32_at(start, 8);
        let magic = start[Self::MAGIC_AT] as i8;
        let length_min = match magic {
            0 => 14,
            1 => 22,
            2 => (Self::SIZE - Self::OVERHEAD) as i32,
            _ => return UnknownMagicSnafu { magic }.fail(),
        };
        if batch_length < length_min {
            return InvalidBatchLengthSnafu { batch_length, length_min }.fail();
        }
        if magic == 2 { Self::read_v2(bytes) } else { Self::read_legacy(bytes, magic) }
    }

    fn read_v2(bytes: &[u8]) -> Result<BatchHeader, RecordsError> {
        let Some(fixed) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return IncompleteSnafu { needed: Self::SIZE }.fail();
        };
        Ok(BatchHeader {
            base_offset: Offset(i64_at(fixed, 0)),
            batch_length: i32_at(fixed, 8),
            leader_epoch: LeaderEpoch(i32_at(fixed, 12)),
            magic: 2,
            crc: i32_at(fixed, Self::CRC_AT) as u32,
            attributes: Attributes(i16_at(fixed, Self::ATTRIBUTES_AT)),
            last_offset_delta: i32_at(fixed, 23),
            base_timestamp: Timestamp(i64_at(fixed, 27)),
            max_timestamp: Timestamp(i64_at(fixed, Self::MAX_TIMESTAMP_AT)),
            producer_id: ProducerId(i64_at(fixed, 43)),
            producer_epoch: ProducerEpoch(i16_at(fixed, 51)),
            base_sequence: i32_at(fixed, 53),
            record_count: i32_at(fixed, 57),
        })
    }

    fn read_legacy(bytes: &[u8], magic: i8) -> Result<BatchHeader, RecordsError> {
        let Some(fixed) = bytes.first_chunk::<26>() else {
            return IncompleteSnafu { needed: 26usize }.fail();
        };
        let timestamp = if magic == 1 { Timestamp(i64_at(fixed, 18)) } else { Timestamp::NONE };
        Ok(BatchHeader {
            base_offset: Offset(i64_at(fixed, 0)),
            batch_length: i32_at(fixed, 8),
            leader_epoch: LeaderEpoch::UNKNOWN,
            magic,
            crc: i32_at(fixed, 12) as u32,
            // The eight bits of the old formats mean the same as the lowest bits of v2, as far as they go.
            attributes: Attributes(i16::from(fixed[17]) & if magic == 1 { 0x0f } else { 0x07 }),
            last_offset_delta: 0,
            base_timestamp: timestamp,
            max_timestamp: timestamp,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: -1,
            record_count: -1,
        })
    }

    /// Writes the fields into the 61 bytes that a v2 batch begins with.
    pub(super) fn write(&self, into: &mut [u8; Self::SIZE]) {
        into[0..8].copy_from_slice(&self.base_offset.0.to_be_bytes());
        into[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        into[12..16].copy_from_slice(&self.leader_epoch.0.to_be_bytes());
        into[16] = self.magic as u8;
        into[17..21].copy_from_slice(&self.crc.to_be_bytes());
        into[21..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        into[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        into[27..35].copy_from_slice(&self.base_timestamp.0.to_be_bytes());
        into[35..43].copy_from_slice(&self.max_timestamp.0.to_be_bytes());
        into[43..51].copy_from_slice(&self.producer_id.0.to_be_bytes());
        into[51..53].copy_from_slice(&self.producer_epoch.0.to_be_bytes());
        into[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        into[57..61].copy_from_slice(&self.record_count.to_be_bytes());
    }

    /// The bytes of the whole batch. Not negative: [`read`](BatchHeader::read) checked the length.
    pub fn size_bytes(&self) -> usize {
        Self::OVERHEAD + self.batch_length.max(0) as usize
    }

    pub fn last_offset(&self) -> Offset {
        self.base_offset.plus(i64::from(self.last_offset_delta))
    }

    /// The offset after the batch.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().plus(1)
    }

    /// The sequence of the last record, `-1` without a base sequence. Sequences wrap from 2^31-1 to 0.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        sequence_plus(self.base_sequence, self.last_offset_delta)
    }

    /// The time of a record with this delta: its own, or the batch's append time.
    pub fn timestamp_of(&self, timestamp_delta: i64) -> Timestamp {
        match self.attributes.timestamp_type() {
            TimestampType::CreateTime => self.base_timestamp.plus_ms(timestamp_delta),
            TimestampType::LogAppendTime => self.max_timestamp,
        }
    }

    pub fn has_producer_id(&self) -> bool {
        self.producer_id.0 > ProducerId::NONE.0
    }
}

/// `sequence + count`, wrapping from 2^31-1 to 0. Both must not be negative.
pub fn sequence_plus(sequence: i32, count: i32) -> i32 {
    ((i64::from(sequence) + i64::from(count)) & i64::from(i32::MAX)) as i32
}

/// The attribute bits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Attributes(pub i16);

/// Whose clock gave the timestamps of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimestampType {
    /// The producer's, one for each record.
    #[default]
    CreateTime,
    /// The leader's at the append: every record has the batch's maximum timestamp.
    LogAppendTime,
}

impl Attributes {
    const CODEC: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    /// Errors: [`RecordsError::UnknownCodec`] for the ids 5 to 7.
    pub fn codec(self) -> Result<Codec, RecordsError> {
        Codec::from_id((self.0 & Self::CODEC) as u8)
    }

    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// The base timestamp is the moment from which compaction may remove the batch's tombstones.
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    pub fn with_codec(self, codec: Codec) -> Attributes {
        Attributes((self.0 & !Self::CODEC) | i16::from(codec.id()))
    }

    pub fn with_timestamp_type(self, timestamp_type: TimestampType) -> Attributes {
        self.with(Self::LOG_APPEND_TIME, timestamp_type == TimestampType::LogAppendTime)
    }

    pub fn with_transactional(self, is_transactional: bool) -> Attributes {
        self.with(Self::TRANSACTIONAL, is_transactional)
    }

    pub fn with_control(self, is_control: bool) -> Attributes {
        self.with(Self::CONTROL, is_control)
    }

    pub fn with_delete_horizon(self, has_delete_horizon: bool) -> Attributes {
        self.with(Self::DELETE_HORIZON, has_delete_horizon)
    }

    fn with(self, bit: i16, is_set: bool) -> Attributes {
        Attributes(if is_set { self.0 | bit } else { self.0 & !bit })
    }
}

// `at` is a constant inside the fixed array in every call.
fn i16_at<const N: usize>(bytes: &[u8; N], at: usize) -> i16 {
    i16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn i32_at<const N: usize>(bytes: &[u8; N], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn i64_at<const N: usize>(bytes: &[u8; N], at: usize) -> i64 {
    (i64::from(i32_at(bytes, at)) << 32) | i64::from(i32_at(bytes, at + 4) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BatchHeader {
        BatchHeader {
            base_offset: Offset(0x0102_0304_0506_0708),
            batch_length: 49,
            leader_epoch: LeaderEpoch(7),
            magic: 2,
            crc: 0xdead_beef,
            attributes: Attributes(0x35),
            last_offset_delta: 3,
            base_timestamp: Timestamp(-1),
            max_timestamp: Timestamp(i64::MAX),
            producer_id: ProducerId(11),
            producer_epoch: ProducerEpoch(i16::MAX),
            base_sequence: i32::MAX - 1,
            record_count: 4,
        }
    }

    fn written(header: &BatchHeader) -> [u8; BatchHeader::SIZE] {
        let mut bytes = [0; BatchHeader::SIZE];
        header.write(&mut bytes);
        bytes
    }

    #[test]
    fn a_written_header_reads_back() {
        assert_eq!(BatchHeader::read(&written(&header())), Ok(header()));
    }

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(header().last_sequence(), 1);
        assert_eq!(BatchHeader { base_sequence: -1, ..header() }.last_sequence(), -1);
    }

    #[test]
    fn a_cut_header_says_how_much_it_needs() {
        let bytes = written(&header());
        for cut in 0..BatchHeader::SIZE {
            let needed = if cut < 17 { 17 } else { 61 };
            assert_eq!(BatchHeader::read(&bytes[..cut]), Err(RecordsError::Incomplete { needed }));
        }
    }

    #[test]
    fn lengths_below_the_formats_minimum_are_refused() {
        for batch_length in [i32::MIN, -1, 0, 48] {
            let bytes = written(&BatchHeader { batch_length, ..header() });
            let expected = Err(RecordsError::InvalidBatchLength { batch_length, length_min: 49 });
            assert_eq!(BatchHeader::read(&bytes), expected);
        }
    }

    #[test]
    fn unknown_magics_are_refused() {
        for magic in [-1, 3, 127, i8::MIN] {
            let bytes = written(&BatchHeader { magic, ..header() });
            assert_eq!(BatchHeader::read(&bytes), Err(RecordsError::UnknownMagic { magic }));
        }
    }
}
