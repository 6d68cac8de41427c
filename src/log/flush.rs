//! Making records durable, and what has to be durable with them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::model::{Offset, Timestamp};
use crate::runtime::fs::OpenMode;

use super::append::FlushWanted;
use super::error::{LogError, unless_full};
use super::partition_log::Log;
use super::segment::Segment;

impl Log {
    /// Makes durable what [`AppendInfo::flush`](super::AppendInfo) asked for, and moves the recovery point.
    ///
    /// Waits for the disk, without holding the append lock meanwhile: for the blocking pool. Flushes that
    /// come together share one sync.
    pub fn flush(&self, wanted: FlushWanted, now: Timestamp) -> Result<(), LogError> {
        let end = match wanted {
            FlushWanted::Nothing => return Ok(()),
            FlushWanted::RolledSegments => self.active_segment_base_offset(),
            FlushWanted::Everything => self.log_end_offset(),
        };
        let _flushing = self.flushing.lock();
        if self.recovery_point() >= end && !self.needs_sync() {
            return Ok(());
        }
        let end = self.write_out(wanted)?;
        self.sync_until(end)?;
        self.note_flushed(end, now);
        self.place.directory.count_flush();
        Ok(())
    }

    /// Whether records have waited for a flush for longer than `flush.ms`.
    pub fn is_flush_due(&self, now: Timestamp) -> bool {
        let last_flush = Timestamp(self.last_flush.load(Ordering::Acquire));
        self.is_dirty() && now.since_ms(last_flush) >= self.config_now().flush_ms
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.recovery_point() < self.log_end_offset()
    }

    /// Whether there is anything that a power loss would undo.
    pub(super) fn needs_sync(&self) -> bool {
        self.is_dirty()
            || self.is_directory_changed.load(Ordering::Acquire)
            || !self.unsynced.lock().is_empty()
    }

    /// Writes index entries that wait in memory; answers up to which offset everything is written.
    pub(super) fn write_out(&self, wanted: FlushWanted) -> Result<Offset, LogError> {
        let _writer = self.writer.lock();
        self.ensure_open()?;
        let end = match wanted {
            FlushWanted::Everything => self.log_end_offset(),
            FlushWanted::Nothing | FlushWanted::RolledSegments => self.active_segment_base_offset(),
        };
        if self.is_epochs_file_wanted() {
            unless_full(self.write_epochs())?;
        }
        for segment in self.unflushed_segments(end) {
            segment.write_out(&self.place)?;
        }
        Ok(end)
    }

    fn unflushed_segments(&self, end: Offset) -> Vec<Arc<Segment>> {
        let segments = self.segments.load();
        let recovery_point = self.recovery_point();
        let first =
            segments.partition_point(|segment| segment.base_offset <= recovery_point).saturating_sub(1);
        segments.iter().skip(first).filter(|segment| segment.base_offset < end).cloned().collect()
    }

    /// The order matters: names before the recovery point moves, which is when nobody will scan again.
    fn sync_until(&self, end: Offset) -> Result<(), LogError> {
        for segment in self.unflushed_segments(end) {
            match segment.sync(&self.place) {
                // Retention was faster.
                Err(LogError::SegmentDeleted) => {}
                outcome => outcome?,
            }
        }
        for file in std::mem::take(&mut *self.unsynced.lock()) {
            let path = self.place.join(&file.name());
            match self.place.fs().open(&path, OpenMode::Write).and_then(|file| file.sync_data()) {
                // A snapshot that was deleted since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                synced => self.place.check(synced, "syncing", &path)?,
            }
        }
        if self.is_directory_changed.swap(false, Ordering::AcqRel) {
            self.place.sync()?;
            self.place.directory.sync()?;
        }
        Ok(())
    }

    /// The whole volume was synced after everything below `end` had been written.
    pub(super) fn note_volume_synced(&self, end: Offset, now: Timestamp) {
        *self.unsynced.lock() = Vec::new();
        self.is_directory_changed.store(false, Ordering::Release);
        self.note_flushed(end, now);
    }

    fn note_flushed(&self, end: Offset, now: Timestamp) {
        self.recovery_point.fetch_max(end.min(self.log_end_offset()).0, Ordering::AcqRel);
        self.last_flush.store(now.0, Ordering::Release);
        self.is_flush_asked.store(false, Ordering::Release);
    }

    /// Prepares the end of the process: everything is written, but not synced yet. Answers whether there is
    /// something to sync.
    ///
    /// Kafka that finds the clean-shutdown marker trusts indexes and the newest producer snapshot, so both
    /// must be complete, and files of empty indexes must be there.
    pub(super) fn write_out_for_shutdown(&self) -> Result<bool, LogError> {
        let mut writer = self.writer.lock();
        self.ensure_open()?;
        if self.is_epochs_file_wanted() {
            self.write_epochs()?;
        }
        self.write_snapshot(&mut writer, self.log_end_offset())?;
        self.active().append_time_entry();
        for segment in self.unflushed_segments(Offset(i64::MAX)) {
            segment.write_out(&self.place)?;
        }
        Ok(self.needs_sync())
    }
}
