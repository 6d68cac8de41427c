use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::{Mutex, RwLock};
use snafu::ensure;

use crate::model::{LeaderEpoch, Offset, Timestamp, TopicId, TopicPartition};
use crate::runtime::Random;
use crate::runtime::fs::Durability;

use super::append::{Group, WaitingAppend};
use super::checkpoint;
use super::config::LogConfig;
use super::directory::{LogDirectory, Place};
use super::epoch_cache::{EpochEndOffset, LeaderEpochCache};
use super::error::{ClosedSnafu, InconsistentTopicIdSnafu, LogError, unless_full};
use super::listing::remove;
use super::names::{FileKind, LEADER_EPOCH_CHECKPOINT, SmallFile};
use super::producer_state::ProducerState;
use super::segment::Segment;

/// One partition's log: its records as Kafka's segment files, and the offsets that say what they mean.
///
/// `log_start_offset ≤ last_stable_offset ≤ high_watermark ≤ log_end_offset` at all times.
///
/// Writers take turns behind one lock and write inline; those that wait are written together by the one that
/// holds it. Readers take no lock of the log: they see a snapshot of the segments and published offsets. An
/// append publishes the segment's size last but for the log end offset, so that whoever knows an offset finds
/// its records. Order of locks: `flushing`, `writer`, then any other one, of which no two are held at once. Only the end
/// of a move holds those of two logs: those of the old one first.
pub struct Log {
    pub(super) topic_partition: TopicPartition,
    pub(super) place: Place,
    config: ArcSwap<LogConfig>,
    /// Ascending, without gaps; never empty. The last one is the active segment.
    pub(super) segments: ArcSwap<Vec<Arc<Segment>>>,
    pub(super) log_start_offset: AtomicI64,
    pub(super) high_watermark: AtomicI64,
    pub(super) log_end_offset: AtomicI64,
    /// The first offset of the oldest transaction that is not decided below the high watermark;
    /// `i64::MAX` = none.
    pub(super) first_unstable_offset: AtomicI64,
    /// Of producers and verifications that are known.
    pub(super) producer_count: AtomicUsize,
    /// Everything below is durable.
    pub(super) recovery_point: AtomicI64,
    pub(super) last_flush: AtomicI64,
    /// How often records were cut off the end: what was learned of them before is then worth nothing.
    pub(super) truncations: AtomicU64,
    /// Somebody was told to flush the rolled segments.
    pub(super) is_flush_asked: AtomicBool,
    /// Names were added or removed in the directory since it was synced.
    pub(super) is_directory_changed: AtomicBool,
    /// The file of epochs is to be written before records are: it says of epochs without records what is not true.
    pub(super) is_epochs_file_stale: AtomicBool,
    /// The file of epochs does not know those of all records.
    pub(super) has_unwritten_epochs: AtomicBool,
    /// Small files that were written since.
    pub(super) unsynced: Mutex<Vec<SmallFile>>,
    pub(super) is_closed: AtomicBool,
    /// It is the copy that a move makes, and no replica yet.
    pub(super) is_future: AtomicBool,
    /// It is being copied: what compaction removed here would stay there. Changed under the append lock.
    pub(super) is_moving: AtomicBool,
    topic_id: Mutex<TopicId>,
    pub(super) epochs: RwLock<LeaderEpochCache>,
    pub(super) waiting: Mutex<Vec<Arc<WaitingAppend>>>,
    pub(super) writer: Mutex<Writer>,
    pub(super) flushing: Mutex<()>,
    random: Random,
}

/// What only the holder of the append lock touches.
pub(super) struct Writer {
    pub(super) producers: ProducerState,
    /// The offset of the newest snapshot file.
    pub(super) last_snapshot: Option<Offset>,
    /// How much earlier the active segment is rolled than its age would ask for.
    pub(super) roll_jitter_ms: i64,
    /// Reused from append to append.
    pub(super) group: Group,
}

/// What loading found in a partition's directory.
pub(super) struct Loaded {
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) log_start_offset: Offset,
    pub(super) log_end_offset: Offset,
    pub(super) recovery_point: Offset,
    pub(super) epochs: LeaderEpochCache,
    pub(super) producers: ProducerState,
    pub(super) last_snapshot: Option<Offset>,
    pub(super) topic_id: TopicId,
    /// Files were created, removed or renamed, which is not durable yet.
    pub(super) is_changed: bool,
    /// The file of epochs says more than is true: epochs that wrote nothing, or records that are gone.
    pub(super) is_epochs_file_stale: bool,
    /// The file of epochs did not say those of all records; they were learned from the records.
    pub(super) has_learned_epochs: bool,
    /// Small files that were written and not synced.
    pub(super) unsynced: Vec<SmallFile>,
}

impl Loaded {
    /// A log in a directory that was just created.
    pub(super) fn empty(place: &Place, now: Timestamp) -> Result<Loaded, LogError> {
        let created = Segment::create(Offset::ZERO, place, now);
        let path = place.join(&FileKind::Records.name(Offset::ZERO));
        let segment = place.check(created, "creating", &path)?;
        Ok(Loaded {
            segments: vec![Arc::new(segment)],
            log_start_offset: Offset::ZERO,
            log_end_offset: Offset::ZERO,
            recovery_point: Offset::ZERO,
            epochs: LeaderEpochCache::default(),
            producers: ProducerState::default(),
            last_snapshot: None,
            topic_id: TopicId::ZERO,
            is_changed: true,
            is_epochs_file_stale: false,
            has_learned_epochs: false,
            unsynced: Vec::new(),
        })
    }
}

pub(super) const NO_UNSTABLE_OFFSET: i64 = i64::MAX;

impl Log {
    pub(super) fn new(
        topic_partition: TopicPartition,
        place: Place,
        config: Arc<LogConfig>,
        loaded: Loaded,
        random: Random,
        now: Timestamp,
    ) -> Log {
        if let Some(active) = loaded.segments.last() {
            active.mark_end(loaded.log_end_offset);
        }
        let writer = Writer {
            producers: loaded.producers,
            last_snapshot: loaded.last_snapshot,
            roll_jitter_ms: draw_jitter(&config, &random),
            group: Group::default(),
        };
        let log = Log {
            topic_partition,
            place,
            config: ArcSwap::new(config),
            segments: ArcSwap::from_pointee(loaded.segments),
            log_start_offset: AtomicI64::new(loaded.log_start_offset.0),
            high_watermark: AtomicI64::new(loaded.log_start_offset.0),
            log_end_offset: AtomicI64::new(loaded.log_end_offset.0),
            first_unstable_offset: AtomicI64::new(NO_UNSTABLE_OFFSET),
            producer_count: AtomicUsize::new(0),
            recovery_point: AtomicI64::new(loaded.recovery_point.0),
            last_flush: AtomicI64::new(now.0),
            truncations: AtomicU64::new(0),
            is_flush_asked: AtomicBool::new(false),
            is_directory_changed: AtomicBool::new(loaded.is_changed),
            is_epochs_file_stale: AtomicBool::new(loaded.is_epochs_file_stale),
            has_unwritten_epochs: AtomicBool::new(loaded.has_learned_epochs),
            unsynced: Mutex::new(loaded.unsynced),
            is_closed: AtomicBool::new(false),
            is_future: AtomicBool::new(false),
            is_moving: AtomicBool::new(false),
            topic_id: Mutex::new(loaded.topic_id),
            epochs: RwLock::new(loaded.epochs),
            waiting: Mutex::default(),
            writer: Mutex::new(writer),
            flushing: Mutex::new(()),
            random,
        };
        log.publish_producers(&mut log.writer.lock());
        log
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// The one of `log.dirs` that the log lies in.
    pub fn directory(&self) -> &Arc<LogDirectory> {
        &self.place.directory
    }

    pub fn config(&self) -> Arc<LogConfig> {
        self.config.load_full()
    }

    /// Takes effect with the next append, read or tick. All logs of a topic may share it.
    pub fn update_config(&self, config: impl Into<Arc<LogConfig>>) {
        self.config.store(config.into());
    }

    pub(super) fn config_now(&self) -> Guard<Arc<LogConfig>> {
        self.config.load()
    }

    pub(super) fn draw_jitter(&self) -> i64 {
        draw_jitter(&self.config.load(), &self.random)
    }

    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> Offset {
        Offset(self.log_start_offset.load(Ordering::Acquire))
    }

    /// The offset that the next record gets.
    pub fn log_end_offset(&self) -> Offset {
        Offset(self.log_end_offset.load(Ordering::Acquire))
    }

    /// Everything below is on all in-sync replicas.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// Everything below is decided: committed, aborted, or not of a transaction.
    pub fn last_stable_offset(&self) -> Offset {
        let first_unstable = self.first_unstable_offset.load(Ordering::Acquire);
        self.high_watermark().min(Offset(first_unstable))
    }

    /// How often records were cut off the end: a copy of this log has to be compared again then.
    pub fn truncations(&self) -> u64 {
        self.truncations.load(Ordering::Acquire)
    }

    /// Everything below is durable.
    pub fn recovery_point(&self) -> Offset {
        Offset(self.recovery_point.load(Ordering::Acquire))
    }

    /// The bytes of all segments' records, also of those below the log start that are still there.
    pub fn size_bytes(&self) -> u64 {
        self.segments.load().iter().map(|segment| u64::from(segment.size_bytes())).sum()
    }

    pub fn count_segments(&self) -> usize {
        self.segments.load().len()
    }

    /// What the log holds in memory besides its producers: its segments and their waiting index entries.
    pub fn memory_bytes(&self) -> usize {
        let segments = self.segments.load();
        size_of::<Log>() + segments.iter().map(|segment| segment.memory_bytes()).sum::<usize>()
    }

    /// The base offset of the segment that appends go to.
    pub fn active_segment_base_offset(&self) -> Offset {
        self.active().base_offset
    }

    pub(super) fn active(&self) -> Arc<Segment> {
        let segments = self.segments.load();
        segments.last().expect("a log has at least one segment: load and roll keep one").clone()
    }

    /// Moves the high watermark forward, to at most the log end; answers whether it moved.
    pub fn advance_high_watermark(&self, to: Offset) -> bool {
        let to = to.min(self.log_end_offset());
        let before = self.high_watermark.fetch_max(to.0, Ordering::AcqRel);
        // Only a transaction decided below the new mark makes the last stable offset depend on it.
        let has_unstable = self.first_unstable_offset.load(Ordering::Acquire) != NO_UNSTABLE_OFFSET;
        if before < to.0 && has_unstable {
            self.publish_producers(&mut self.writer.lock());
        }
        before < to.0
    }

    /// Shows readers what they need to know of producers without the append lock.
    pub(super) fn publish_producers(&self, writer: &mut Writer) {
        writer.producers.advance_high_watermark(self.high_watermark());
        let first_unstable = writer.producers.first_unstable_offset();
        let first_unstable = first_unstable.map_or(NO_UNSTABLE_OFFSET, |offset| offset.0);
        self.first_unstable_offset.store(first_unstable, Ordering::Release);
        self.producer_count.store(writer.producers.held(), Ordering::Relaxed);
    }

    /// The epoch of the newest records or of the newest leader; [`LeaderEpoch::UNKNOWN`] without any.
    pub fn latest_epoch(&self) -> LeaderEpoch {
        self.epochs.read().latest_epoch().unwrap_or(LeaderEpoch::UNKNOWN)
    }

    /// Where the records of an epoch end: the answer to OffsetForLeaderEpoch.
    pub fn end_offset_for_epoch(&self, leader_epoch: LeaderEpoch) -> EpochEndOffset {
        self.epochs.read().end_offset_for(leader_epoch, self.log_end_offset())
    }

    /// Notes that a leader of `leader_epoch` begins at `start_offset`, before it writes anything.
    ///
    /// The file of epochs is written with the first record: a broker that takes over thousands of partitions would wait
    /// for as many files, and an epoch without records is nothing that a restart has to know.
    pub fn assign_epoch(&self, leader_epoch: LeaderEpoch, start_offset: Offset) -> Result<(), LogError> {
        let _writer = self.writer.lock();
        self.ensure_open()?;
        if self.epochs.write().assign(leader_epoch, start_offset) {
            self.is_epochs_file_stale.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The caller holds the append lock.
    pub(super) fn assign_epochs(
        &self,
        assignments: impl IntoIterator<Item = (LeaderEpoch, Offset)>,
    ) -> Result<(), LogError> {
        let mut is_changed = false;
        {
            let mut epochs = self.epochs.write();
            for (leader_epoch, start_offset) in assignments {
                is_changed |= epochs.assign(leader_epoch, start_offset);
            }
        }
        if is_changed { self.write_epochs() } else { Ok(()) }
    }

    /// Where epochs begin and end cannot be told of a log with old messages at its end: replicas then agree by the
    /// high watermark. The caller holds the append lock.
    pub(super) fn forget_epochs(&self) -> Result<(), LogError> {
        let mut epochs = self.epochs.write();
        if epochs.latest_epoch().is_none() && !self.is_epochs_file_stale.load(Ordering::Acquire) {
            return Ok(());
        }
        epochs.clear();
        drop(epochs);
        // Kafka has no such file beside old messages, and warns of one, even if it is empty.
        remove(&self.place, LEADER_EPOCH_CHECKPOINT)?;
        self.is_directory_changed.store(true, Ordering::Release);
        self.note_epochs_file_right();
        Ok(())
    }

    /// Writes the epochs to their file, which the next flush makes durable.
    ///
    /// Kafka syncs here. There is no need: records carry their epoch, the recovery point does not pass an
    /// epoch's first record before the file is synced, and a leader that lost power writes under a new epoch.
    pub(super) fn write_epochs(&self) -> Result<(), LogError> {
        let text = checkpoint::format_leader_epochs(self.epochs.read().entries());
        self.write_small(SmallFile::LeaderEpochs, text.as_bytes())?;
        self.note_epochs_file_right();
        Ok(())
    }

    fn note_epochs_file_right(&self) {
        self.is_epochs_file_stale.store(false, Ordering::Release);
        self.has_unwritten_epochs.store(false, Ordering::Release);
    }

    /// Whether the file of epochs is to be written when the log is flushed or stopped. What an empty log wrongly says of
    /// epochs is put right when it is loaded.
    pub(super) fn is_epochs_file_wanted(&self) -> bool {
        let is_stale = self.is_epochs_file_stale.load(Ordering::Acquire);
        (is_stale && self.is_dirty()) || self.has_unwritten_epochs.load(Ordering::Acquire)
    }

    /// As [`write_epochs`](Self::write_epochs); on a full disk the file is written before the next record is: nobody who
    /// reads must wait for room.
    pub(super) fn write_epochs_or_later(&self) -> Result<(), LogError> {
        let written = self.write_epochs();
        if written.is_err() {
            self.is_epochs_file_stale.store(true, Ordering::Release);
        }
        unless_full(written)
    }

    /// Writes a file as a whole; the next flush makes it durable.
    pub(super) fn write_small(&self, file: SmallFile, contents: &[u8]) -> Result<(), LogError> {
        self.place.replace(&file.name(), contents, Durability::Cached)?;
        let mut unsynced = self.unsynced.lock();
        if !unsynced.contains(&file) {
            unsynced.push(file);
        }
        drop(unsynced);
        self.is_directory_changed.store(true, Ordering::Release);
        Ok(())
    }

    /// The id of the topic that the files belong to; zero = not known.
    pub fn topic_id(&self) -> TopicId {
        *self.topic_id.lock()
    }

    /// Binds the log to a topic, in `partition.metadata`.
    ///
    /// Errors: [`LogError::InconsistentTopicId`] if it is bound to another one.
    pub fn assign_topic_id(&self, topic_id: TopicId) -> Result<(), LogError> {
        let mut known = self.topic_id.lock();
        if known.is_zero() {
            let text = checkpoint::format_partition_metadata(topic_id);
            self.write_small(SmallFile::PartitionMetadata, text.as_bytes())?;
            *known = topic_id;
        }
        ensure!(
            *known == topic_id,
            InconsistentTopicIdSnafu {
                topic_partition: self.topic_partition.clone(),
                expected: topic_id,
                found: *known
            }
        );
        Ok(())
    }

    /// Refuses work on a log whose files are being removed, or whose directory is offline.
    pub(super) fn ensure_open(&self) -> Result<(), LogError> {
        self.place.directory.ensure_online()?;
        let is_open = !self.is_closed.load(Ordering::Acquire);
        ensure!(is_open, ClosedSnafu { topic_partition: self.topic_partition.clone() });
        Ok(())
    }

    /// Ends all work on the log, and waits for what is being written.
    pub(super) fn close(&self) {
        let _flushing = self.flushing.lock();
        let _writer = self.writer.lock();
        self.close_locked();
    }

    /// The caller holds both locks.
    pub(super) fn close_locked(&self) {
        self.is_closed.store(true, Ordering::Release);
        for segment in self.segments.load().iter() {
            segment.note_deleted();
            segment.close();
        }
    }
}

fn draw_jitter(config: &LogConfig, random: &Random) -> i64 {
    let jitter_max = config.segment_jitter_ms.min(config.segment_ms_max());
    if jitter_max <= 0 { 0 } else { random.number(0..jitter_max as u64) as i64 }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("topic_partition", &self.topic_partition)
            .field("log_start_offset", &self.log_start_offset())
            .field("high_watermark", &self.high_watermark())
            .field("log_end_offset", &self.log_end_offset())
            .finish_non_exhaustive()
    }
}
