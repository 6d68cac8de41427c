use crate::model::{Offset, Timestamp};
use crate::records::BatchHeader;

use super::index::{Entry, OffsetEntry, TimeEntry};

/// Both indexes of a segment, built from its batches one by one, as a recovering broker builds them.
#[derive(Debug)]
pub struct SparseIndexes {
    base_offset: Offset,
    interval_bytes: u64,
    since_entry: u64,
    offsets: Vec<OffsetEntry>,
    times: Vec<TimeEntry>,
    max_timestamp: Timestamp,
    /// The last offset of the batch that has it.
    max_timestamp_offset: Offset,
}

/// The contents of a segment's two index files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexFiles {
    pub offsets: Vec<u8>,
    pub times: Vec<u8>,
}

impl SparseIndexes {
    /// `interval_bytes`: `index.interval.bytes`.
    pub fn new(base_offset: Offset, interval_bytes: u32) -> SparseIndexes {
        SparseIndexes {
            base_offset,
            interval_bytes: u64::from(interval_bytes),
            since_entry: 0,
            offsets: Vec::new(),
            times: Vec::new(),
            max_timestamp: Timestamp::NONE,
            max_timestamp_offset: base_offset,
        }
    }

    /// Takes the next batch, which begins at `position` of the segment file.
    pub fn note(&mut self, header: &BatchHeader, position: u64) {
        if header.max_timestamp > self.max_timestamp {
            self.max_timestamp = header.max_timestamp;
            self.max_timestamp_offset = header.last_offset();
        }
        if self.since_entry > self.interval_bytes {
            let relative_offset = self.relative(header.last_offset());
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            self.offsets.push(OffsetEntry { relative_offset, position });
            self.append_time_entry();
            self.since_entry = 0;
        }
        self.since_entry += header.size_bytes() as u64;
    }

    /// The segment is complete.
    pub fn finish(mut self) -> IndexFiles {
        self.append_time_entry();
        IndexFiles { offsets: encode(&self.offsets), times: encode(&self.times) }
    }

    fn append_time_entry(&mut self) {
        let indexed = self.times.last().map_or(Timestamp::NONE, |last| last.timestamp);
        if self.max_timestamp > indexed {
            let relative_offset = self.relative(self.max_timestamp_offset);
            self.times.push(TimeEntry { timestamp: self.max_timestamp, relative_offset });
        }
    }

    fn relative(&self, offset: Offset) -> u32 {
        u32::try_from(offset.since(self.base_offset)).unwrap_or(u32::MAX)
    }
}

fn encode<E: Entry>(entries: &[E]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * E::SIZE_BYTES);
    entries.iter().for_each(|entry| entry.encode(&mut bytes));
    bytes
}
