use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;

use crate::log::directory::Place;
use crate::log::error::LogError;
use crate::log::index::{Entry, OffsetEntry, TimeEntry};
use crate::log::listing::remove;
use crate::log::names::{FileKind, Stage};
use crate::log::sparse_indexes::{IndexFiles, SparseIndexes};
use crate::log::transaction_index::AbortedTransaction;
use crate::model::{Offset, Timestamp};
use crate::records::BatchHeader;
use crate::runtime::fs::{File, OpenMode, write_all_at};

/// A segment that is written to take the place of others, under names that end in `.cleaned`: nobody else sees it.
#[derive(Debug)]
pub(in crate::log) struct Output {
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
    pub(in crate::log) fn create(
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

    pub(in crate::log) fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Adds a batch behind the others; answers how many bytes were written to the file.
    pub(in crate::log) fn append(
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
    pub(in crate::log) fn finish(
        mut self,
        place: &Place,
        aborted: &[AbortedTransaction],
        modified: Timestamp,
    ) -> Result<CleanedSegment, LogError> {
        self.write_out(place)?;
        let IndexFiles { offsets, times } = self.indexes.finish();
        let path = |kind: FileKind| place.join(&kind.name_in(Stage::Cleaned, self.base_offset));
        let records = path(FileKind::Records);
        place.check(self.file.sync_data(), "syncing", &records)?;
        write_file(place, FileKind::OffsetIndex, self.base_offset, &offsets)?;
        write_file(place, FileKind::TimeIndex, self.base_offset, &times)?;
        if !aborted.is_empty() {
            let index: Vec<u8> = aborted.iter().flat_map(AbortedTransaction::encode).collect();
            write_file(place, FileKind::TransactionIndex, self.base_offset, &index)?;
        }
        place.check(place.fs().set_modified(&records, modified), "dating", &records)?;
        Ok(CleanedSegment {
            base_offset: self.base_offset,
            // Grouping keeps it below a segment's size, or it is not larger than the one it replaces.
            size_bytes: u32::try_from(self.written).unwrap_or(u32::MAX),
            offset_entries: offsets.len() / OffsetEntry::SIZE_BYTES,
            time_entries: times.len() / TimeEntry::SIZE_BYTES,
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
