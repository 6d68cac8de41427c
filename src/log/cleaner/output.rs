use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;

use crate::log::directory::Place;
use crate::log::error::LogError;
use crate::log::index::{Entry, OffsetEntry, TimeEntry};
use crate::log::listing::remove;
use crate::log::names::{FileKind, Stage};
use crate::log::transaction_index::AbortedTransaction;
use crate::model::{Offset, Timestamp};
use crate::records::BatchHeader;
use crate::runtime::fs::{File, OpenMode, write_all_at};

/// The segment that cleaning writes, under names that end in `.cleaned`: nobody else sees it.
#[derive(Debug)]
pub(super) struct Output {
    base_offset: Offset,
    file: Arc<dyn File>,
    /// Bytes in the file.
    written: u64,
    /// Bytes that wait to be written.
    waiting: Vec<Bytes>,
    waiting_bytes: u64,
    indexes: SparseIndexes,
}

/// A cleaned segment that is complete and durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::log) struct CleanedSegment {
    pub(in crate::log) base_offset: Offset,
    pub(in crate::log) size_bytes: u32,
    pub(in crate::log) offset_entries: usize,
    pub(in crate::log) time_entries: usize,
    pub(in crate::log) has_transaction_index: bool,
}

/// From so many bytes on what waits is written.
const WRITE_BYTES: u64 = 1 << 20;

impl Output {
    /// Begins a segment in place of what an earlier attempt may have left.
    pub(super) fn create(
        place: &Place,
        base_offset: Offset,
        index_interval_bytes: u32,
    ) -> Result<Output, LogError> {
        discard(place, base_offset)?;
        let path = place.join(&FileKind::Records.name_in(Stage::Cleaned, base_offset));
        let file = place.check(place.fs().open(&path, OpenMode::CreateEmpty), "creating", &path)?;
        Ok(Output {
            base_offset,
            file,
            written: 0,
            waiting: Vec::new(),
            waiting_bytes: 0,
            indexes: SparseIndexes::new(base_offset, index_interval_bytes),
        })
    }

    pub(super) fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Adds a batch behind the others; answers how many bytes were written to the file.
    pub(super) fn append(
        &mut self,
        place: &Place,
        header: &BatchHeader,
        bytes: Bytes,
    ) -> Result<u64, LogError> {
        self.indexes.note(header, self.written + self.waiting_bytes);
        self.waiting_bytes += bytes.len() as u64;
        self.waiting.push(bytes);
        if self.waiting_bytes < WRITE_BYTES { Ok(0) } else { self.write_out(place) }
    }

    fn write_out(&mut self, place: &Place) -> Result<u64, LogError> {
        let parts: Vec<IoSlice<'_>> = self.waiting.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let path = place.join(&FileKind::Records.name_in(Stage::Cleaned, self.base_offset));
        place.check(write_all_at(&*self.file, &parts, self.written), "writing", &path)?;
        self.waiting.clear();
        self.written += self.waiting_bytes;
        Ok(std::mem::take(&mut self.waiting_bytes))
    }

    /// Writes what waits and the indexes, makes all of it durable, and dates it `modified`.
    pub(super) fn finish(
        mut self,
        place: &Place,
        aborted: &[AbortedTransaction],
        modified: Timestamp,
    ) -> Result<CleanedSegment, LogError> {
        self.write_out(place)?;
        self.indexes.append_time_entry();
        let SparseIndexes { offsets, times, .. } = &self.indexes;
        let path = |kind: FileKind| place.join(&kind.name_in(Stage::Cleaned, self.base_offset));
        let records = path(FileKind::Records);
        place.check(self.file.sync_data(), "syncing", &records)?;
        write_file(place, FileKind::OffsetIndex, self.base_offset, &encode(offsets))?;
        write_file(place, FileKind::TimeIndex, self.base_offset, &encode(times))?;
        if !aborted.is_empty() {
            let index: Vec<u8> = aborted.iter().flat_map(AbortedTransaction::encode).collect();
            write_file(place, FileKind::TransactionIndex, self.base_offset, &index)?;
        }
        place.check(place.fs().set_modified(&records, modified), "dating", &records)?;
        Ok(CleanedSegment {
            base_offset: self.base_offset,
            // Grouping keeps it below a segment's size, or it is not larger than the one it replaces.
            size_bytes: u32::try_from(self.written).unwrap_or(u32::MAX),
            offset_entries: offsets.len(),
            time_entries: times.len(),
            has_transaction_index: !aborted.is_empty(),
        })
    }
}

/// Removes what there is of an output.
pub(super) fn discard(place: &Place, base_offset: Offset) -> Result<(), LogError> {
    let mut kinds = FileKind::OF_SEGMENT.into_iter();
    kinds.try_for_each(|kind| remove(place, &kind.name_in(Stage::Cleaned, base_offset)))
}

fn write_file(place: &Place, kind: FileKind, base_offset: Offset, bytes: &[u8]) -> Result<(), LogError> {
    let path = place.join(&kind.name_in(Stage::Cleaned, base_offset));
    let written = place.fs().open(&path, OpenMode::CreateEmpty).and_then(|file| {
        write_all_at(&*file, &[IoSlice::new(bytes)], 0)?;
        file.sync_data()
    });
    place.check(written, "writing", &path)
}

fn encode<E: Entry>(entries: &[E]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * E::SIZE_BYTES);
    entries.iter().for_each(|entry| entry.encode(&mut bytes));
    bytes
}

/// Both indexes of a segment while it is written.
#[derive(Debug)]
struct SparseIndexes {
    base_offset: Offset,
    interval_bytes: u64,
    since_entry: u64,
    offsets: Vec<OffsetEntry>,
    times: Vec<TimeEntry>,
    max_timestamp: Timestamp,
    /// The last offset of the batch that has it.
    max_timestamp_offset: Offset,
}

impl SparseIndexes {
    fn new(base_offset: Offset, interval_bytes: u32) -> SparseIndexes {
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

    fn note(&mut self, header: &BatchHeader, position: u64) {
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
