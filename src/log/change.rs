//! What else than appending changes a log: rolling, retention, deletion of records, truncation.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use snafu::ensure;

use crate::model::{Offset, Timestamp};

use super::config::LogConfig;
use super::directory::Delay;
use super::error::{LogError, OffsetOutOfRangeSnafu};
use super::names::FileKind;
use super::partition_log::{Log, Writer};
use super::producers;
use super::retention::{SegmentFacts, count_deletable};
use super::segment::Segment;

impl Log {
    /// Ends the active segment and begins one at `base_offset`, with a producer snapshot for it.
    pub(super) fn roll(
        &self,
        writer: &mut Writer,
        base_offset: Offset,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let active = self.active();
        if active.base_offset == base_offset {
            return Ok(());
        }
        active.append_time_entry();
        active.write_out(&self.place)?;
        self.write_snapshot(writer, base_offset)?;
        let created = Segment::create(base_offset, &self.place, now);
        let path = self.place.join(&FileKind::Records.name(base_offset));
        let segment = Arc::new(self.place.check(created, "creating", &path)?);
        if self.config_now().preallocate {
            segment.reserve(&self.place, self.config_now().segment_bytes)?;
            active.release(&self.place)?;
        }
        self.is_directory_changed.store(true, Ordering::Release);
        let mut segments = self.segments.load().to_vec();
        segments.push(segment);
        self.segments.store(Arc::new(segments));
        writer.roll_jitter_ms = self.draw_jitter();
        Ok(())
    }

    /// Takes the space of the active segment, if the topic wants that.
    pub(super) fn reserve_space(&self) -> Result<(), LogError> {
        let config = self.config();
        if config.preallocate { self.active().reserve(&self.place, config.segment_bytes) } else { Ok(()) }
    }

    /// Deletes the segments that time, size and log start no longer keep; answers how many.
    ///
    /// Their files get the suffix `.deleted`, and go when `file.delete.delay.ms` has passed.
    pub fn apply_retention(&self, now: Timestamp) -> Result<usize, LogError> {
        let mut writer = self.writer.lock();
        self.ensure_open()?;
        let mut config = LogConfig::clone(&self.config());
        // A copy follows the log that it is made from.
        config.cleanup.deletes &= !self.is_future.load(Ordering::Acquire);
        let segments = self.segments.load_full();
        let facts = self.segment_facts(&segments)?;
        let count = count_deletable(&facts, &config, self.log_start_offset(), self.high_watermark(), now);
        if count == 0 {
            return Ok(0);
        }
        let count = match count == segments.len() {
            true => match self.roll(&mut writer, self.log_end_offset(), now) {
                // There is room for a new segment once the others are gone.
                Err(LogError::DiskFull { .. }) => count - 1,
                rolled => rolled.map(|()| count)?,
            },
            false => count,
        };
        self.delete_oldest(count, now)?;
        Ok(count)
    }

    fn segment_facts(&self, segments: &[Arc<Segment>]) -> Result<Vec<SegmentFacts>, LogError> {
        let next_bases = segments.iter().skip(1).map(|segment| segment.base_offset);
        let ends = next_bases.chain([self.log_end_offset()]);
        let active_base = self.active_segment_base_offset();
        let facts = segments.iter().zip(ends).map(|(segment, end_offset)| {
            let size_bytes = u64::from(segment.size_bytes());
            let max_timestamp = match segment.max_timestamp().timestamp {
                // It stays, however old it is.
                Timestamp::NONE if size_bytes == 0 && segment.base_offset == active_base => segment.opened,
                Timestamp::NONE => self.modified(segment)?,
                timestamp => timestamp,
            };
            Ok(SegmentFacts { size_bytes, end_offset, max_timestamp })
        });
        facts.collect()
    }

    /// When the segment's file was last written.
    pub(super) fn modified(&self, segment: &Segment) -> Result<Timestamp, LogError> {
        let path = self.place.join(&FileKind::Records.name(segment.base_offset));
        let modified = self.place.fs().metadata(&path).map(|metadata| metadata.modified);
        // A name that went with its segment is no broken disk.
        segment.check(&self.place, modified, "reading", FileKind::Records)
    }

    /// Takes the oldest segments out; at least one is left.
    fn delete_oldest(&self, count: usize, now: Timestamp) -> Result<(), LogError> {
        let segments = self.segments.load_full();
        let (old, kept) = segments.split_at(count.min(segments.len() - 1));
        let Some(first_kept) = kept.first() else { return Ok(()) };
        self.raise_log_start(first_kept.base_offset)?;
        self.segments.store(Arc::new(kept.to_vec()));
        self.delete_segments(old, now)
    }

    /// Renames the files of segments that are out of the list, and of the snapshots at their bases.
    pub(super) fn delete_segments(&self, segments: &[Arc<Segment>], now: Timestamp) -> Result<(), LogError> {
        let delay = Delay { since: now, ms: self.config_now().file_delete_delay_ms };
        for segment in segments {
            segment.note_deleted();
            segment.close();
            for kind in FileKind::OF_SEGMENT.into_iter().chain([FileKind::ProducerSnapshot]) {
                let path = self.place.join(&kind.name(segment.base_offset));
                let renamed = self.place.directory.delete_later(&path, delay);
                self.place.check(renamed, "deleting", &path)?;
            }
        }
        self.is_directory_changed.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes `offset` the first that may be read. Segments wholly below it go with the next retention.
    ///
    /// Errors: [`LogError::OffsetOutOfRange`] above the high watermark. An offset below the log start changes
    /// nothing.
    pub fn delete_records_before(&self, offset: Offset) -> Result<Offset, LogError> {
        let _writer = self.writer.lock();
        self.ensure_open()?;
        let (log_start_offset, high_watermark) = (self.log_start_offset(), self.high_watermark());
        ensure!(
            offset <= high_watermark,
            OffsetOutOfRangeSnafu { offset, log_start_offset, log_end_offset: high_watermark }
        );
        self.raise_log_start(offset)?;
        Ok(self.log_start_offset())
    }

    fn raise_log_start(&self, to: Offset) -> Result<(), LogError> {
        let before = self.log_start_offset.fetch_max(to.0, Ordering::AcqRel);
        let is_changed = before < to.0 && self.epochs.write().truncate_from_start(to);
        if !is_changed {
            return Ok(());
        }
        // Of use to retention, which makes room.
        self.write_epochs_or_later()
    }

    /// Removes all records from `offset` on; the log ends there then. For replicas that follow.
    ///
    /// Of a batch that `offset` cuts nothing is left. An epoch without records goes even where nothing else does. If `offset` is below the log start, the log starts there
    /// anew, empty.
    pub fn truncate_to(&self, offset: Offset, now: Timestamp) -> Result<(), LogError> {
        if offset < self.log_start_offset() {
            return self.truncate_fully_and_start_at(offset, now);
        }
        let _flushing = self.flushing.lock();
        let mut writer = self.writer.lock();
        self.ensure_open()?;
        if offset >= self.log_end_offset() {
            // This broker may have led without writing: its epoch stands at the end, and the leader does not know it.
            if self.epochs.write().truncate_from_end(self.log_end_offset()) {
                self.is_epochs_file_stale.store(true, Ordering::Release);
            }
            return Ok(());
        }
        let segments = self.segments.load_full();
        let kept = segments.partition_point(|segment| segment.base_offset <= offset).max(1);
        let (kept, cut) = segments.split_at(kept);
        let Some((last, older)) = kept.split_last() else { return Ok(()) };
        // All that takes room comes before anything is changed: on a full disk the log stays as it is.
        last.write_out(&self.place)?;
        // Whatever is written from here on must not be taken for durable after a power loss. Of a batch that is cut
        // nothing is left.
        self.lower_checkpoints(last.batch_start(&self.place, offset)?)?;
        let cut = self.cut(&mut writer, older, last, cut, offset, now);
        // A log that is cut in half must not be written to. The next start makes it whole.
        cut.inspect_err(|_| self.place.directory.take_offline())
    }

    fn cut(
        &self,
        writer: &mut Writer,
        older: &[Arc<Segment>],
        last: &Segment,
        cut: &[Arc<Segment>],
        offset: Offset,
        now: Timestamp,
    ) -> Result<(), LogError> {
        self.high_watermark.fetch_min(offset.0, Ordering::AcqRel);
        self.log_end_offset.store(offset.0, Ordering::Release);
        if !cut.is_empty() {
            // Durable before anything is written in their place, or is taken from the segment before them: a power
            // loss must not bring them back behind other records, or behind a hole.
            self.delete_segments(cut, now)?;
            self.place.sync()?;
        }
        let shortened = Arc::new(self.shorten(last, offset, now)?);
        shortened.mark_end(offset);
        self.segments.store(Arc::new(older.iter().cloned().chain([shortened]).collect()));
        if self.epochs.write().truncate_from_end(offset) {
            self.write_epochs_or_later()?;
        }
        self.reload_producers(writer, offset, now)
    }

    /// The segment without the batches that reach `offset`; the given one is no longer used.
    fn shorten(&self, segment: &Segment, offset: Offset, now: Timestamp) -> Result<Segment, LogError> {
        let place = &self.place;
        let size_bytes = segment.position_of(place, offset)?.unwrap_or_else(|| segment.size_bytes());
        let relative = offset.since(segment.base_offset);
        let offset_index = segment.offset_index.shortened(place, |entry| {
            i64::from(entry.relative_offset) < relative && entry.position < size_bytes
        });
        let offset_index = segment.check(place, offset_index, "truncating", FileKind::OffsetIndex)?;
        let time_index =
            segment.time_index.shortened(place, |entry| i64::from(entry.relative_offset) < relative);
        let time_index = segment.check(place, time_index, "truncating", FileKind::TimeIndex)?;
        // Durable before another segment is begun behind it: one that is followed from the recovery point on is not
        // looked at again.
        let file = segment.file(place)?;
        let truncated = file.truncate(u64::from(size_bytes)).and_then(|()| file.sync_data());
        segment.check(place, truncated, "truncating", FileKind::Records)?;
        let shortened = Segment::open(segment.base_offset, size_bytes, offset_index, time_index, now);
        shortened.find_max_timestamp_after_index(place)?;
        if segment.has_transaction_index() {
            producers::shorten_transaction_index(place, segment.base_offset, offset)?;
            shortened.note_transaction_index();
        }
        Ok(shortened)
    }

    /// Removes all records and begins anew at `offset`, as a replica does that fell behind its leader's start.
    pub fn truncate_fully_and_start_at(&self, offset: Offset, now: Timestamp) -> Result<(), LogError> {
        let _flushing = self.flushing.lock();
        let mut writer = self.writer.lock();
        self.ensure_open()?;
        self.lower_checkpoints(Offset::ZERO)?;
        let old = self.segments.load_full();
        self.delete_segments(&old, now)?;
        self.forget_all_snapshots(&mut writer, offset)?;
        let created = Segment::create(offset, &self.place, now);
        let path = self.place.join(&FileKind::Records.name(offset));
        let segment = self.place.check(created, "creating", &path)?;
        // The recovery point is beyond what a power loss would bring back.
        self.place.sync()?;
        self.log_start_offset.store(offset.0, Ordering::Release);
        self.high_watermark.store(offset.0, Ordering::Release);
        self.log_end_offset.store(offset.0, Ordering::Release);
        self.segments.store(Arc::new(vec![Arc::new(segment)]));
        self.recovery_point.store(offset.0, Ordering::Release);
        self.epochs.write().clear();
        self.write_epochs()?;
        self.publish_producers(&mut writer);
        Ok(())
    }

    fn lower_checkpoints(&self, offset: Offset) -> Result<(), LogError> {
        self.recovery_point.fetch_min(offset.0, Ordering::AcqRel);
        self.truncations.fetch_add(1, Ordering::AcqRel);
        self.place.directory.lower_checkpoints(&self.topic_partition, offset)
    }
}
