//! Putting a cleaned segment in the place of those that it was made from.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use snafu::ensure;

use crate::log::directory::Delay;
use crate::log::error::{LogError, SegmentDeletedSnafu};
use crate::log::index::Index;
use crate::log::names::{FileKind, Stage};
use crate::log::partition_log::Log;
use crate::log::segment::Segment;
use crate::model::Timestamp;

use super::output::CleanedSegment;

impl Log {
    /// Replaces segments by a cleaned one that is complete and durable. Durable when it returns.
    ///
    /// The order of renames is Kafka's, and a restart finishes or drops what is half done: `.cleaned` becomes
    /// `.swap`, the old files `.deleted`, `.swap` loses its suffix. Nobody reads or appends through a name
    /// meanwhile: readers that find an old segment gone wait for the append lock and look again.
    ///
    /// Errors: [`LogError::SegmentDeleted`] if the segments are not those of the log any more, or records
    /// were cut off since `truncations`, or a move has begun; nothing was changed then.
    pub(super) fn replace_segments(
        &self,
        old: &[Arc<Segment>],
        cleaned: &CleanedSegment,
        truncations: u64,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let _flushing = self.flushing.lock();
        {
            let _writer = self.writer.lock();
            self.ensure_open()?;
            self.ensure_untouched(truncations)?;
            // Else a move would copy what was removed here before, and not what was removed because of it.
            ensure!(!self.is_moving.load(Ordering::Acquire), SegmentDeletedSnafu);
            let segments = self.segments.load_full();
            let Some(first) = position_of(&segments, old) else { return Err(LogError::SegmentDeleted) };
            self.is_directory_changed.store(true, Ordering::Release);
            let replaced = self.rename_cleaned(cleaned, Stage::Cleaned, Stage::Swap).and_then(|()| {
                self.delete_replaced(old, now)?;
                self.rename_cleaned(cleaned, Stage::Swap, Stage::Live)?;
                self.open_cleaned(cleaned, now)
            });
            // The names are neither the old nor the new ones: only a restart puts that right.
            let replacement = replaced.inspect_err(|_| self.place.directory.take_offline())?;
            let mut segments = segments.to_vec();
            segments.splice(first..first + old.len(), [Arc::new(replacement)]);
            self.segments.store(Arc::new(segments));
        }
        self.place.sync()
    }

    /// Notes that everything below `offset` is clean, unless records were cut off since `truncations`.
    pub(super) fn note_cleaned(
        &self,
        offset: crate::model::Offset,
        truncations: u64,
    ) -> Result<(), LogError> {
        let _flushing = self.flushing.lock();
        self.ensure_open()?;
        self.ensure_untouched(truncations)?;
        self.place.directory.set_cleaner_offset(&self.topic_partition, offset)
    }

    /// The caller holds `flushing`, without which nothing is cut off.
    fn ensure_untouched(&self, truncations: u64) -> Result<(), LogError> {
        match self.truncations.load(Ordering::Acquire) == truncations {
            true => Ok(()),
            false => Err(LogError::SegmentDeleted),
        }
    }

    fn rename_cleaned(&self, cleaned: &CleanedSegment, from: Stage, to: Stage) -> Result<(), LogError> {
        let has = |kind: &FileKind| *kind != FileKind::TransactionIndex || cleaned.has_transaction_index;
        for kind in FileKind::OF_SEGMENT.into_iter().filter(has) {
            let from = self.place.join(&kind.name_in(from, cleaned.base_offset));
            let to = self.place.join(&kind.name_in(to, cleaned.base_offset));
            self.place.check(self.place.fs().rename(&from, &to), "renaming", &from)?;
        }
        Ok(())
    }

    /// The snapshot at the base that stays is still one of the state there.
    fn delete_replaced(&self, old: &[Arc<Segment>], now: Timestamp) -> Result<(), LogError> {
        let delay = Delay { since: now, ms: self.config_now().file_delete_delay_ms };
        let Some((first, others)) = old.split_first() else { return Ok(()) };
        first.note_deleted();
        first.close();
        for kind in FileKind::OF_SEGMENT {
            let path = self.place.join(&kind.name(first.base_offset));
            self.place.check(self.place.directory.delete_later(&path, delay), "deleting", &path)?;
        }
        self.delete_segments(others, now)
    }

    fn open_cleaned(&self, cleaned: &CleanedSegment, now: Timestamp) -> Result<Segment, LogError> {
        let CleanedSegment { base_offset, size_bytes, .. } = *cleaned;
        let offsets = Index::open(base_offset, cleaned.offset_entries, &self.place);
        let path = |kind: FileKind| self.place.join(&kind.name(base_offset));
        let offsets = self.place.check(offsets, "reading", &path(FileKind::OffsetIndex))?;
        let times = Index::open(base_offset, cleaned.time_entries, &self.place);
        let times = self.place.check(times, "reading", &path(FileKind::TimeIndex))?;
        let segment = Segment::open(base_offset, size_bytes, offsets, times, now);
        if cleaned.has_transaction_index {
            segment.note_transaction_index();
        }
        Ok(segment)
    }
}

/// Where `run` stands among the log's segments, if all of it still does.
fn position_of(segments: &[Arc<Segment>], run: &[Arc<Segment>]) -> Option<usize> {
    let first = run.first()?;
    let at = segments.iter().position(|segment| Arc::ptr_eq(segment, first))?;
    let found = segments.get(at..at + run.len())?;
    found.iter().zip(run).all(|(found, wanted)| Arc::ptr_eq(found, wanted)).then_some(at)
}
