use bytes::Bytes;

use crate::model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

use super::compression::Deflater;
use super::control::TransactionMarker;
use super::cursor::write_varlong;
use super::header::{Attributes, BatchHeader, TimestampType};
use super::{Codec, MessageFormat};

/// Writes one v2 batch: coordinators' records, control markers, tests.
///
/// Records get the offsets 0, 1, 2, … from the base offset (0 unless set). The caller keeps a batch below
/// 2 GiB and below the topic's size limit; [`size_bytes`](BatchBuilder::size_bytes) tells where it is.
#[derive(Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    /// Room for the header, then the records.
    output: Option<Deflater>,
    /// The batch's bytes so far, before compression.
    size_bytes: usize,
    record: Vec<u8>,
    length: Vec<u8>,
    level: Option<i32>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// An empty, uncompressed batch without a producer, with create times.
    pub fn new() -> BatchBuilder {
        BatchBuilder {
            header: BatchHeader {
                base_offset: Offset::ZERO,
                batch_length: 0,
                leader_epoch: LeaderEpoch::UNKNOWN,
                magic: 2,
                crc: 0,
                attributes: Attributes::default(),
                last_offset_delta: -1,
                base_timestamp: Timestamp::NONE,
                max_timestamp: Timestamp::NONE,
                producer_id: ProducerId::NONE,
                producer_epoch: ProducerEpoch::NONE,
                base_sequence: -1,
                record_count: 0,
            },
            output: None,
            size_bytes: BatchHeader::SIZE,
            record: Vec::new(),
            length: Vec::new(),
            level: None,
        }
    }

    pub fn base_offset(mut self, base_offset: Offset) -> Self {
        self.header.base_offset = base_offset;
        self
    }

    pub fn leader_epoch(mut self, leader_epoch: LeaderEpoch) -> Self {
        self.header.leader_epoch = leader_epoch;
        self
    }

    /// An idempotent producer's batch; `base_sequence` is the first record's.
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: i32) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    pub fn transactional(mut self) -> Self {
        self.header.attributes = self.header.attributes.with_transactional(true);
        self
    }

    pub fn control(mut self) -> Self {
        self.header.attributes = self.header.attributes.with_control(true);
        self
    }

    /// Compresses the records; `level` `None` = the codec's default. Must be said before the first record.
    pub fn compression(mut self, codec: Codec, level: Option<i32>) -> Self {
        self.header.attributes = self.header.attributes.with_codec(codec);
        self.level = level;
        self
    }

    /// All records read as appended at `now`.
    pub fn log_append_time(mut self, now: Timestamp) -> Self {
        self.header.attributes = self.header.attributes.with_timestamp_type(TimestampType::LogAppendTime);
        self.header.max_timestamp = now;
        self
    }

    /// Adds a record; headers as (key, value).
    pub fn append(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> &mut Self {
        if self.header.record_count == 0 {
            self.header.base_timestamp = timestamp;
        }
        if self.header.attributes.timestamp_type() == TimestampType::CreateTime {
            self.header.max_timestamp = self.header.max_timestamp.max(timestamp);
        }
        self.header.last_offset_delta += 1;
        self.header.record_count += 1;
        self.record.clear();
        self.record.push(0);
        write_varlong(&mut self.record, timestamp.0.wrapping_sub(self.header.base_timestamp.0));
        write_varlong(&mut self.record, i64::from(self.header.last_offset_delta));
        write_field(&mut self.record, key);
        write_field(&mut self.record, value);
        write_varlong(&mut self.record, headers.len() as i64);
        for &(key, value) in headers {
            write_field(&mut self.record, Some(key));
            write_field(&mut self.record, value);
        }
        self.length.clear();
        write_varlong(&mut self.length, self.record.len() as i64);
        self.size_bytes += self.length.len() + self.record.len();
        let output = self.output.get_or_insert_with(|| output(&self.header, self.level));
        output.write(&self.length);
        output.write(&self.record);
        self
    }

    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }

    /// The batch's bytes so far, with the header and before compression.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The batch, with its CRC. A batch without records is what compaction leaves; no client may send it.
    pub fn build(self) -> Bytes {
        self.build_with_header().1
    }

    pub(super) fn build_with_header(self) -> (BatchHeader, Bytes) {
        let output = self.output.unwrap_or_else(|| output(&self.header, self.level));
        seal(self.header, output.finish())
    }

    /// Bytes of the output so far; some may still be held back by the codec.
    pub(super) fn written(&self) -> usize {
        self.output.as_ref().map_or(BatchHeader::SIZE, Deflater::written)
    }
}

fn output(header: &BatchHeader, level: Option<i32>) -> Deflater {
    let codec = header.attributes.codec().unwrap_or_default();
    Deflater::new(codec, MessageFormat::V2, level, vec![0; BatchHeader::SIZE])
}

/// The control batch that ends a transaction on a partition.
pub fn end_transaction_marker(
    marker: TransactionMarker,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    coordinator_epoch: i32,
    now: Timestamp,
) -> Bytes {
    const VERSION: i16 = 0;
    let mut key = [0; 4];
    key[..2].copy_from_slice(&VERSION.to_be_bytes());
    key[2..].copy_from_slice(&marker.id().to_be_bytes());
    let mut value = [0; 6];
    value[..2].copy_from_slice(&VERSION.to_be_bytes());
    value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
    let mut batch = BatchBuilder::new().producer(producer_id, producer_epoch, -1).transactional().control();
    batch.append(now, Some(&key), Some(&value), &[]);
    batch.build()
}

/// Completes a batch: `bytes` holds room for the header, then the records as they are stored.
pub(super) fn seal(mut header: BatchHeader, mut bytes: Vec<u8>) -> (BatchHeader, Bytes) {
    header.batch_length =
        i32::try_from(bytes.len() - BatchHeader::OVERHEAD).expect("a batch stays below 2 GiB");
    let header = seal_in_place(header, &mut bytes);
    (header, bytes.into())
}

/// Writes `header` over the start of `batch`, with the CRC that the batch then has.
pub(super) fn seal_in_place(mut header: BatchHeader, batch: &mut [u8]) -> BatchHeader {
    let (fixed, records) =
        batch.split_first_chunk_mut::<{ BatchHeader::SIZE }>().expect("a batch has room for its header");
    header.write(fixed);
    let crc = crc32c::crc32c(&fixed[BatchHeader::ATTRIBUTES_AT..]);
    header.crc = crc32c::crc32c_append(crc, records);
    header.write(fixed);
    header
}

fn write_field(into: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        Some(field) => {
            write_varlong(into, field.len() as i64);
            into.extend_from_slice(field);
        }
        None => write_varlong(into, -1),
    }
}
