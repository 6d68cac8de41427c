//! Opening a partition's directory: after a clean shutdown by looking at its files' ends, else by recovery.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use snafu::ensure;
use tracing::{info, warn};

use crate::model::{Offset, Timestamp, TopicId};
use crate::records::{Batch, BatchHeader};
use crate::runtime::fs::OpenMode;

use super::append::is_in_order;
use super::checkpoint;
use super::config::LogConfig;
use super::directory::{Delay, Place};
use super::epoch_cache::LeaderEpochCache;
use super::error::{DamagedSnafu, LogError, SegmentOverflowSnafu, StoppedSnafu, unless_full};
use super::index::{Entry, Index, OffsetEntry, TimeEntry, Waiting};
use super::listing::Listing;
use super::names::{FileKind, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SmallFile};
use super::partition_log::Loaded;
use super::producers::{Replay, ReplayStart, shorten_transaction_index};
use super::scan::{BatchScan, ScanError};
use super::segment::Segment;
use super::split::split_overflowed;

/// What is known of a log before its directory is read.
pub(super) struct LoadOptions<'a> {
    /// The last process wrote everything out and said so.
    pub(super) is_clean: bool,
    /// Everything below was synced; 0 if that is not known.
    pub(super) recovery_point: Offset,
    pub(super) log_start_offset: Offset,
    pub(super) index_interval_bytes: u32,
    pub(super) file_delete_delay_ms: i64,
    pub(super) producer_expiration_ms: i64,
    pub(super) now: Timestamp,
    /// Set when nobody wants the log any more: recovery stops with [`LogError::Stopped`].
    pub(super) stop: &'a AtomicBool,
    /// Counts the segments whose batches are still to be checked, of all logs that are being loaded.
    pub(super) segments_left: &'a AtomicUsize,
}

impl LoadOptions<'static> {
    /// For a directory that turned up where a log was to be created.
    pub(super) fn of_found(config: &LogConfig, now: Timestamp) -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        static NOBODY_LOOKS: AtomicUsize = AtomicUsize::new(0);
        LoadOptions {
            is_clean: false,
            recovery_point: Offset::ZERO,
            log_start_offset: Offset::ZERO,
            index_interval_bytes: config.index_interval_bytes,
            file_delete_delay_ms: config.file_delete_delay_ms,
            producer_expiration_ms: i64::MAX,
            now,
            stop: &NEVER,
            segments_left: &NOBODY_LOOKS,
        }
    }
}

/// Reads a partition's directory and repairs what a crash left.
///
/// After a clean shutdown only the end of the last segment is read. Otherwise every batch from the recovery
/// point on is checked: the first that is torn, damaged or out of order ends the log, and what follows is cut
/// off. Indexes that are missing or damaged are built anew. What lies below the recovery point is never cut:
/// damage that is found there is told, as [`LogError::Damaged`]. A segment with more offsets than its indexes can
/// express is split, as Kafka does it.
/// None of this needs room on the disk, but for a split: a full one must not keep a broker from starting.
pub(super) fn load(place: &Place, options: &LoadOptions<'_>) -> Result<Loaded, LogError> {
    loop {
        match load_unsplit(place, options) {
            Err(LogError::SegmentOverflow { base_offset }) => {
                split_overflowed(place, base_offset, options.recovery_point, options.index_interval_bytes)?;
            }
            Err(LogError::Records { source }) => {
                return DamagedSnafu { path: place.path(), damage: source.to_string() }.fail();
            }
            outcome => return outcome,
        }
    }
}

fn load_unsplit(place: &Place, options: &LoadOptions<'_>) -> Result<Loaded, LogError> {
    let listing = Listing::read(place)?;
    let topic_id = if listing.has_partition_metadata { read_topic_id(place)? } else { TopicId::ZERO };
    let epochs = if listing.has_leader_epochs { read_epochs(place)? } else { None };
    let mut loading = Loading {
        place,
        options,
        epochs: LeaderEpochCache::default(),
        segments: Vec::new(),
        unsafe_from: UnsafePart { number: usize::MAX, offset: Offset(i64::MAX) },
        // What the last process did to the directory may not be durable either.
        is_changed: listing.is_changed || !options.is_clean,
        is_epochs_changed: false,
        has_learned_epochs: false,
        is_recovered: false,
    };
    loading.open_segments(&listing)?;
    match epochs {
        Some(epochs) => loading.epochs = epochs,
        None => loading.rebuild_epochs()?,
    }
    let start = ReplayStart {
        snapshots: &listing.snapshots,
        until: loading.unsafe_from.offset,
        is_clean: options.is_clean,
        needs_all: true,
        now: options.now,
        expiration_ms: options.producer_expiration_ms,
    };
    let mut replay = Replay::begin(place, &loading.segments, &start)?;
    loading.recover(&mut replay, &listing.snapshots)?;
    loading.finish(replay, &listing, topic_id)
}

struct Loading<'a> {
    place: &'a Place,
    options: &'a LoadOptions<'a>,
    epochs: LeaderEpochCache,
    segments: Vec<Arc<Segment>>,
    unsafe_from: UnsafePart,
    is_changed: bool,
    is_epochs_changed: bool,
    /// Of records that are there.
    has_learned_epochs: bool,
    is_recovered: bool,
}

/// Where the part begins of which every batch must be checked.
#[derive(Clone, Copy)]
struct UnsafePart {
    /// Of this segment a part was opened, of later ones nothing.
    number: usize,
    /// The first offset in it.
    offset: Offset,
}

impl Loading<'_> {
    fn open_segments(&mut self, listing: &Listing) -> Result<(), LogError> {
        let bases: Vec<Offset> = listing.segments.keys().copied().collect();
        for (number, (&base_offset, kinds)) in listing.segments.iter().enumerate() {
            let next_base = bases.get(number + 1).copied();
            let is_flushed = next_base.is_some_and(|next_base| next_base <= self.options.recovery_point);
            let is_after_unsafe = number > self.unsafe_from.number;
            let segment = match (self.options.is_clean || is_flushed) && !is_after_unsafe {
                true => self.open_sound(base_offset, next_base, kinds)?,
                false => None,
            };
            let segment = match segment {
                Some(segment) => segment,
                None => self.open_unsafe(number, base_offset, kinds)?,
            };
            if kinds.contains(&FileKind::TransactionIndex) {
                segment.note_transaction_index();
            }
            self.segments.push(Arc::new(segment));
        }
        Ok(())
    }

    /// A segment whose records are not in doubt. `None` if it is the last and has a torn tail after all.
    fn open_sound(
        &mut self,
        base_offset: Offset,
        next_base: Option<Offset>,
        kinds: &[FileKind],
    ) -> Result<Option<Segment>, LogError> {
        let size_bytes = self.size_of(base_offset, FileKind::Records)?;
        self.ensure_no_overflow(base_offset, next_base, size_bytes)?;
        let offset_index =
            self.open_index(base_offset, kinds, size_bytes, |last: &OffsetEntry| last.position < size_bytes)?;
        let last_offset = next_base.map_or(i64::MAX, |next_base| next_base.since(base_offset));
        let time_index = self.open_index(base_offset, kinds, size_bytes, |last: &TimeEntry| {
            i64::from(last.relative_offset) < last_offset
        })?;
        let segment = match (offset_index, time_index) {
            (Some(offset_index), Some(time_index)) => {
                let segment =
                    Segment::open(base_offset, size_bytes, offset_index, time_index, self.options.now);
                match self.is_time_index_zeroed(&segment)? {
                    true => self.rebuild_indexes(base_offset, next_base.is_some(), size_bytes, kinds)?,
                    false => segment,
                }
            }
            _ => self.rebuild_indexes(base_offset, next_base.is_some(), size_bytes, kinds)?,
        };
        if next_base.is_none() {
            let (end_offset, end) = segment.find_end(self.place)?;
            ensure!(
                segment.can_hold(end_offset.plus(-1).max(base_offset)),
                SegmentOverflowSnafu { base_offset }
            );
            return Ok((end == size_bytes).then_some(segment));
        }
        Ok(Some(segment))
    }

    /// Only a segment that is followed by one far away may hold offsets beyond its reach.
    fn ensure_no_overflow(
        &self,
        base_offset: Offset,
        next_base: Option<Offset>,
        size_bytes: u32,
    ) -> Result<(), LogError> {
        if next_base.is_none_or(|next_base| next_base.since(base_offset) <= 1 << 31) {
            return Ok(());
        }
        let (offset_index, time_index) = (Index::empty(base_offset), Index::empty(base_offset));
        let segment = Segment::open(base_offset, size_bytes, offset_index, time_index, self.options.now);
        let end_offset = segment.find_end(self.place)?.0;
        let is_reached = segment.can_hold(end_offset.plus(-1).max(base_offset));
        ensure!(is_reached, SegmentOverflowSnafu { base_offset });
        Ok(())
    }

    /// Whether the only entry of a time index is all zeros without a record that says so.
    fn is_time_index_zeroed(&self, segment: &Segment) -> Result<bool, LogError> {
        const ZEROS: TimeEntry = TimeEntry { timestamp: Timestamp(0), relative_offset: 0 };
        let is_zeroed = segment.time_index.last() == Some(ZEROS)
            && segment.first_timestamp(self.place)? != ZEROS.timestamp;
        if is_zeroed {
            self.warn_of_index(segment.base_offset, FileKind::TimeIndex);
        }
        Ok(is_zeroed)
    }

    fn warn_of_index(&self, base_offset: Offset, kind: FileKind) {
        let path = self.place.join(&kind.name(base_offset));
        warn!(file = %path.display(), "rebuilding an index that is missing or damaged");
    }

    /// An index as it is in its file; `None`, with a warning, if it is missing or cannot be right.
    fn open_index<E: Entry>(
        &self,
        base_offset: Offset,
        kinds: &[FileKind],
        segment_bytes: u32,
        may_be_last: impl Fn(&E) -> bool,
    ) -> Result<Option<Index<E>>, LogError> {
        let is_present = kinds.contains(&E::KIND);
        if !is_present && segment_bytes == 0 && !self.options.is_clean {
            return Ok(Some(Index::empty(base_offset)));
        }
        let size_bytes = if is_present { self.size_of(base_offset, E::KIND)? as usize } else { 1 };
        let is_even = size_bytes.is_multiple_of(E::SIZE_BYTES);
        if is_even {
            let index = Index::open(base_offset, size_bytes / E::SIZE_BYTES, self.place);
            let path = self.place.join(&E::KIND.name(base_offset));
            let index: Index<E> = self.place.check(index, "reading", &path)?;
            let is_plausible = self.place.check(index.is_plausible(self.place), "reading", &path)?;
            if is_plausible && index.last().is_none_or(|last| may_be_last(&last)) {
                return Ok(Some(index));
            }
        }
        self.warn_of_index(base_offset, E::KIND);
        Ok(None)
    }

    /// Builds both indexes from the records, which are not in doubt: a look at the headers is enough. The last
    /// segment, which none follows, may have a torn tail after all.
    fn rebuild_indexes(
        &mut self,
        base_offset: Offset,
        is_followed: bool,
        size_bytes: u32,
        kinds: &[FileKind],
    ) -> Result<Segment, LogError> {
        self.is_changed = true;
        let segment = self.open_emptied(base_offset, kinds)?;
        let mut scan = segment.scan(self.place, 0, size_bytes, Waiting::Allowed)?;
        while let Some((_, header)) = segment.step_to_damage(self.place, &mut scan)? {
            ensure!(segment.can_hold(header.last_offset()), SegmentOverflowSnafu { base_offset });
            self.note(&segment, &header)?;
        }
        if is_followed {
            let path = self.place.join(&FileKind::Records.name(base_offset));
            let damage = format!("what stands at position {} is no batch", segment.size_bytes());
            ensure!(segment.size_bytes() == size_bytes, DamagedSnafu { path, damage });
        }
        segment.append_time_entry();
        unless_full(segment.write_out(self.place))?;
        Ok(segment)
    }

    /// A segment in doubt: of the first one the part below the recovery point, of others nothing.
    fn open_unsafe(
        &mut self,
        number: usize,
        base_offset: Offset,
        kinds: &[FileKind],
    ) -> Result<Segment, LogError> {
        if number > self.unsafe_from.number {
            return self.open_emptied(base_offset, kinds);
        }
        self.unsafe_from = UnsafePart { number, offset: base_offset };
        if self.options.is_clean || self.options.recovery_point <= base_offset {
            return self.open_emptied(base_offset, kinds);
        }
        match self.open_trusted(base_offset, kinds)? {
            Some((segment, offset)) => {
                self.unsafe_from.offset = offset;
                Ok(segment)
            }
            None => self.open_emptied(base_offset, kinds),
        }
    }

    /// The segment up to the last index entry below the recovery point, and the offset of the batch there.
    fn open_trusted(
        &self,
        base_offset: Offset,
        kinds: &[FileKind],
    ) -> Result<Option<(Segment, Offset)>, LogError> {
        if !kinds.contains(&FileKind::OffsetIndex) || !kinds.contains(&FileKind::TimeIndex) {
            return Ok(None);
        }
        let size_bytes = self.size_of(base_offset, FileKind::Records)?;
        let flushed = self.options.recovery_point.since(base_offset);
        let offset_index = self.open_prefix(base_offset, |entry: &OffsetEntry| {
            i64::from(entry.relative_offset) < flushed && entry.position < size_bytes
        })?;
        let Some(last) = offset_index.last() else { return Ok(None) };
        let time_index =
            self.open_prefix(base_offset, |entry: &TimeEntry| entry.relative_offset <= last.relative_offset)?;
        let segment = Segment::open(base_offset, last.position, offset_index, time_index, self.options.now);
        let mut scan = segment.scan(self.place, last.position, size_bytes, Waiting::Allowed)?;
        let indexed = base_offset.plus(i64::from(last.relative_offset));
        match scan.next() {
            Ok(Some((_, header))) if (base_offset..=indexed).contains(&header.base_offset) => {
                let is_whole_set = header.last_offset() == indexed;
                let segment = if is_whole_set { segment } else { self.without_entry(segment, last)? };
                Ok(Some((segment, header.base_offset)))
            }
            Ok(_) | Err(ScanError::Damaged(_)) => Ok(None),
            Err(error) => Err(segment.scan_error(self.place, error)),
        }
    }

    /// The same segment without its last index entry. Of a Kafka before 3.9.2 that stands for several batches, appended
    /// together, which are read one by one now and may get entries of their own: those must not lie below it.
    fn without_entry(&self, segment: Segment, last: OffsetEntry) -> Result<Segment, LogError> {
        let Segment { base_offset, time_index, .. } = segment;
        let offset_index =
            self.open_prefix(base_offset, |entry: &OffsetEntry| entry.position < last.position)?;
        Ok(Segment::open(base_offset, last.position, offset_index, time_index, self.options.now))
    }

    /// The entries of an index file that are in order and for which `is_trusted` holds; the rest is cut off.
    fn open_prefix<E: Entry>(
        &self,
        base_offset: Offset,
        is_trusted: impl Fn(&E) -> bool,
    ) -> Result<Index<E>, LogError> {
        let entries = self.size_of(base_offset, E::KIND)? as usize / E::SIZE_BYTES;
        let prefix = Index::open(base_offset, entries, self.place)
            .and_then(|index: Index<E>| index.ordered_prefix(self.place, is_trusted));
        self.place.check(prefix, "reading", &self.place.join(&E::KIND.name(base_offset)))
    }

    /// The segment as if it had no records, and its indexes without entries.
    fn open_emptied(&self, base_offset: Offset, kinds: &[FileKind]) -> Result<Segment, LogError> {
        for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
            if kinds.contains(&kind) {
                let path = self.place.join(&kind.name(base_offset));
                let emptied = self.place.fs().open(&path, OpenMode::CreateEmpty);
                self.place.check(emptied, "emptying", &path)?;
            }
        }
        let (offset_index, time_index) = (Index::empty(base_offset), Index::empty(base_offset));
        Ok(Segment::open(base_offset, 0, offset_index, time_index, self.options.now))
    }

    /// Learns from the records that are not in doubt where epochs begin: no file says it.
    fn rebuild_epochs(&mut self) -> Result<(), LogError> {
        self.learn_epochs(Offset::ZERO, Offset(i64::MAX))
    }

    /// The file of epochs is written when the log's start is raised, the checkpoint of starts now and then. After a crash
    /// in between the deleted records are back: without their epochs, a follower that has others at their offsets
    /// would be told too late an end, and keep them. Kafka tells it.
    fn relearn_first_epochs(
        &mut self,
        log_start_offset: Offset,
        log_end_offset: Offset,
    ) -> Result<(), LogError> {
        let known_from = self.epochs.earliest().map_or(log_end_offset, |earliest| earliest.start_offset);
        if self.options.is_clean || known_from <= log_start_offset {
            return Ok(());
        }
        let later = std::mem::take(&mut self.epochs);
        self.learn_epochs(Offset::ZERO, known_from)?;
        for entry in later.entries() {
            self.epochs.assign(entry.epoch, entry.start_offset);
        }
        self.is_epochs_changed |= self.epochs != later;
        Ok(())
    }

    /// The file may be older than the last records, or have lost what it said. It knows no epochs of old messages at the
    /// log's end, nor before them.
    fn relearn_last_epochs(&mut self, last: Option<BatchHeader>, has_file: bool) -> Result<(), LogError> {
        match last {
            Some(last) if last.magic < 2 => {
                self.is_epochs_changed = has_file && !self.epochs.entries().is_empty();
                self.has_learned_epochs = false;
                self.epochs.clear();
                Ok(())
            }
            Some(last) if self.is_epoch_new(&last) => {
                let known_from = self.epochs.latest().map_or(Offset::ZERO, |latest| latest.start_offset);
                self.learn_epochs(known_from, Offset(i64::MAX))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Learns from the segment that holds `from` on, up to `end`.
    fn learn_epochs(&mut self, from: Offset, end: Offset) -> Result<(), LogError> {
        let first = self.segments.partition_point(|segment| segment.base_offset <= from).saturating_sub(1);
        let segments = self.segments.get(first..).unwrap_or_default().to_vec();
        for segment in segments.iter().take_while(|segment| segment.base_offset < end) {
            let mut scan = segment.scan(self.place, 0, segment.size_bytes(), Waiting::Allowed)?;
            while let Some((_, header)) = segment.step_to_damage(self.place, &mut scan)? {
                // Old messages have no epochs, and are rarely followed by others.
                if header.magic < 2 || header.base_offset >= end {
                    break;
                }
                self.learn_epoch(&header);
            }
        }
        Ok(())
    }

    fn learn_epoch(&mut self, header: &BatchHeader) {
        if self.is_epoch_new(header) {
            let is_learned = self.epochs.assign(header.leader_epoch, header.base_offset);
            self.is_epochs_changed |= is_learned;
            self.has_learned_epochs |= is_learned;
        }
    }

    fn is_epoch_new(&self, header: &BatchHeader) -> bool {
        header.leader_epoch.0 >= 0
            && self.epochs.latest_epoch().is_none_or(|latest| header.leader_epoch > latest)
    }

    fn recover(&mut self, replay: &mut Replay, snapshots: &BTreeSet<Offset>) -> Result<(), LogError> {
        let count = self.segments.len().saturating_sub(self.unsafe_from.number);
        let mut left = SegmentsLeft::add(self.options.segments_left, count);
        for number in self.unsafe_from.number..self.segments.len() {
            let Some(segment) = self.segments.get(number).cloned() else { return Ok(()) };
            if number > self.unsafe_from.number && snapshots.contains(&segment.base_offset) {
                replay.correct_snapshot(self.place, segment.base_offset)?;
            }
            if segment.has_transaction_index() {
                shorten_transaction_index(self.place, segment.base_offset, self.unsafe_from.offset)?;
            }
            if number > self.unsafe_from.number && segment.base_offset < replay.next_offset() {
                return self.drop_overlapping(number, replay.next_offset());
            }
            if !self.recover_segment(&segment, replay)? {
                let sound = self.without_lost_entries(&segment)?;
                let lost = self.segments.split_off(number);
                self.segments.push(Arc::new(sound));
                self.drop_segments(lost.get(1..).unwrap_or_default())?;
            }
            left.take_one();
        }
        Ok(())
    }

    /// A segment begins before the end of the one before it: the log ends with that.
    fn drop_overlapping(&mut self, number: usize, end_offset: Offset) -> Result<(), LogError> {
        let damage = format!("the log ends at {end_offset}, and a segment behind it begins earlier");
        let path = self.place.path();
        ensure!(end_offset >= self.options.recovery_point, DamagedSnafu { path, damage });
        let lost = self.segments.split_off(number);
        self.drop_segments(&lost)
    }

    /// Checks the batches that are not part of the segment yet and adds them. Answers whether all are sound;
    /// if not, the file is cut before the first that is not.
    fn recover_segment(&mut self, segment: &Segment, replay: &mut Replay) -> Result<bool, LogError> {
        let size_bytes = self.size_of(segment.base_offset, FileKind::Records)?;
        if size_bytes == 0 {
            return Ok(true);
        }
        self.is_recovered = true;
        let mut scan = BatchScan::new(segment.file(self.place)?, segment.size_bytes(), size_bytes);
        let damage = loop {
            ensure!(!self.options.stop.load(Ordering::Relaxed), StoppedSnafu);
            match scan.next() {
                Ok(None) => break None,
                Ok(Some(batch)) => {
                    if let Some(damage) = self.add_recovered(segment, &batch, replay)? {
                        break Some(damage);
                    }
                }
                Err(ScanError::Damaged(error)) => break Some(error.to_string()),
                Err(error) => return Err(segment.scan_error(self.place, error)),
            }
        };
        let end_offset = replay.next_offset().max(segment.base_offset);
        if let Some(damage) = &damage {
            let path = self.place.join(&FileKind::Records.name(segment.base_offset));
            let damage = format!("offset {end_offset} at position {}: {damage}", segment.size_bytes());
            ensure!(end_offset >= self.options.recovery_point, DamagedSnafu { path, damage });
        }
        segment.append_time_entry();
        unless_full(segment.write_out(self.place))?;
        let Some(damage) = damage else { return Ok(true) };
        self.cut(segment, size_bytes, &damage)?;
        Ok(false)
    }

    /// Adds a batch, or tells what is wrong with it.
    fn add_recovered(
        &mut self,
        segment: &Segment,
        batch: &Batch,
        replay: &mut Replay,
    ) -> Result<Option<String>, LogError> {
        let next_offset = replay.next_offset().max(segment.base_offset);
        if !is_in_order(&batch.header, next_offset) {
            return Ok(Some(format!(
                "its offsets {} to {} do not follow {next_offset}",
                batch.header.base_offset,
                batch.header.last_offset()
            )));
        }
        if let Err(error) = batch.check_crc() {
            return Ok(Some(error.to_string()));
        }
        ensure!(
            segment.can_hold(batch.header.last_offset()),
            SegmentOverflowSnafu { base_offset: segment.base_offset }
        );
        self.note(segment, &batch.header)?;
        self.learn_epoch(&batch.header);
        replay.add(self.place, segment, batch)?;
        Ok(None)
    }

    fn note(&self, segment: &Segment, header: &BatchHeader) -> Result<(), LogError> {
        unless_full(segment.make_room(self.place))?;
        segment.note(std::slice::from_ref(header), self.options.index_interval_bytes);
        Ok(())
    }

    fn cut(&mut self, segment: &Segment, size_bytes: u32, damage: &str) -> Result<(), LogError> {
        let sound_bytes = segment.size_bytes();
        let path = self.place.join(&FileKind::Records.name(segment.base_offset));
        warn!(
            file = %path.display(), sound_bytes, cut_bytes = size_bytes - sound_bytes, damage,
            "cutting the log off at the first batch that is not sound"
        );
        self.is_changed = true;
        let truncated = segment.file(self.place)?.truncate(u64::from(sound_bytes));
        self.place.check(truncated, "truncating", &path)
    }

    /// A segment that was cut below its recovery point may have index entries beyond its end.
    fn without_lost_entries(&self, segment: &Segment) -> Result<Segment, LogError> {
        let (end_offset, size_bytes) = segment.find_end(self.place)?;
        let relative = end_offset.since(segment.base_offset);
        let offset_index = segment.offset_index.shortened(self.place, |entry| entry.position < size_bytes);
        let offset_index = segment.check(self.place, offset_index, "truncating", FileKind::OffsetIndex)?;
        let time_index =
            segment.time_index.shortened(self.place, |entry| i64::from(entry.relative_offset) < relative);
        let time_index = segment.check(self.place, time_index, "truncating", FileKind::TimeIndex)?;
        let sound =
            Segment::open(segment.base_offset, size_bytes, offset_index, time_index, self.options.now);
        sound.find_max_timestamp_after_index(self.place)?;
        if segment.has_transaction_index() {
            sound.note_transaction_index();
        }
        Ok(sound)
    }

    /// Renames the files of segments that come after the end of the log.
    fn drop_segments(&mut self, segments: &[Arc<Segment>]) -> Result<(), LogError> {
        let delay = Delay { since: self.options.now, ms: self.options.file_delete_delay_ms };
        for segment in segments {
            self.is_changed = true;
            for kind in FileKind::OF_SEGMENT {
                let path = self.place.join(&kind.name(segment.base_offset));
                warn!(file = %path.display(), "removing a segment that lies behind the end of the log");
                self.place.check(self.place.directory.delete_later(&path, delay), "deleting", &path)?;
            }
        }
        Ok(())
    }

    fn finish(
        mut self,
        mut replay: Replay,
        listing: &Listing,
        topic_id: TopicId,
    ) -> Result<Loaded, LogError> {
        let last = match self.segments.last() {
            Some(segment) => segment.find_last_batch(self.place)?.map(|(_, header)| header),
            None => None,
        };
        let last_base = self.segments.last().map_or(Offset::ZERO, |last| last.base_offset);
        let mut log_end_offset = last.map_or(last_base, |last| last.next_offset());
        let first_base = self.segments.first().map_or(Offset::ZERO, |first| first.base_offset);
        let log_start_offset = self.options.log_start_offset.max(first_base);
        if self.segments.is_empty() || log_end_offset < log_start_offset {
            self.start_anew(log_start_offset, &mut replay)?;
            log_end_offset = log_start_offset;
        }
        self.is_epochs_changed |= self.epochs.truncate_from_end(log_end_offset);
        self.relearn_first_epochs(log_start_offset, log_end_offset)?;
        let last = last.filter(|last| last.next_offset() == log_end_offset);
        self.relearn_last_epochs(last, listing.has_leader_epochs)?;
        self.is_epochs_changed |= self.epochs.truncate_from_start(log_start_offset);
        let mut unsynced = self.possibly_unsynced(listing);
        let last_snapshot = replay.finish(
            self.place,
            &listing.snapshots,
            &self.segments,
            log_end_offset,
            self.is_recovered,
            &mut unsynced,
        )?;
        if self.is_recovered {
            info!(
                directory = %self.place.path().display(), %log_start_offset, %log_end_offset,
                from = %self.unsafe_from.offset, "recovered a log"
            );
        }
        let recovery_point = match self.options.is_clean && !self.is_recovered {
            true => log_end_offset,
            false => self.options.recovery_point.min(log_end_offset),
        };
        Ok(Loaded {
            segments: self.segments,
            log_start_offset,
            log_end_offset,
            recovery_point,
            epochs: self.epochs,
            producers: replay.into_producers(),
            last_snapshot,
            topic_id,
            is_changed: self.is_changed,
            is_epochs_file_stale: self.is_epochs_changed,
            has_learned_epochs: self.has_learned_epochs,
            unsynced,
        })
    }

    /// The small files that a process wrote which did not end cleanly.
    fn possibly_unsynced(&self, listing: &Listing) -> Vec<SmallFile> {
        if self.options.is_clean {
            return Vec::new();
        }
        let small = [
            (SmallFile::PartitionMetadata, listing.has_partition_metadata),
            (SmallFile::LeaderEpochs, listing.has_leader_epochs),
        ];
        let small = small.into_iter().filter(|(_, is_there)| *is_there).map(|(file, _)| file);
        let snapshots = listing.snapshots.iter().map(|&offset| SmallFile::ProducerSnapshot(offset));
        small.chain(snapshots).collect()
    }

    /// The directory has no segment, or none that reaches the log start: an empty log begins there.
    fn start_anew(&mut self, log_start_offset: Offset, replay: &mut Replay) -> Result<(), LogError> {
        let old = std::mem::take(&mut self.segments);
        self.drop_segments(&old)?;
        let path = self.place.join(&FileKind::Records.name(log_start_offset));
        let created = Segment::create(log_start_offset, self.place, self.options.now);
        self.segments.push(Arc::new(self.place.check(created, "creating", &path)?));
        self.is_changed = true;
        self.is_epochs_changed = !self.epochs.entries().is_empty();
        self.epochs.clear();
        replay.clear(log_start_offset);
        Ok(())
    }

    fn size_of(&self, base_offset: Offset, kind: FileKind) -> Result<u32, LogError> {
        let path = self.place.join(&kind.name(base_offset));
        let metadata = self.place.check(self.place.fs().metadata(&path), "reading", &path)?;
        Ok(u32::try_from(metadata.size_bytes).unwrap_or(u32::MAX))
    }
}

/// The part that one log has in the count of segments to be checked.
struct SegmentsLeft<'a> {
    all: &'a AtomicUsize,
    own: usize,
}

impl<'a> SegmentsLeft<'a> {
    fn add(all: &'a AtomicUsize, own: usize) -> Self {
        all.fetch_add(own, Ordering::Relaxed);
        SegmentsLeft { all, own }
    }

    fn take_one(&mut self) {
        if let Some(left) = self.own.checked_sub(1) {
            self.own = left;
            self.all.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for SegmentsLeft<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// A file that cannot be read as what it should be counts as missing: the controller tells the id again.
fn read_topic_id(place: &Place) -> Result<TopicId, LogError> {
    let text = place.read(PARTITION_METADATA)?.unwrap_or_default();
    Ok(checkpoint::parse_partition_metadata(&String::from_utf8_lossy(&text)).unwrap_or_else(|error| {
        warn!(file = %place.join(PARTITION_METADATA).display(), %error, "ignoring a file that is damaged");
        TopicId::ZERO
    }))
}

/// `None` = the file says nothing that can be used. One that is empty was not written to its end.
fn read_epochs(place: &Place) -> Result<Option<LeaderEpochCache>, LogError> {
    let text = place.read(LEADER_EPOCH_CHECKPOINT)?.unwrap_or_default();
    match checkpoint::parse_leader_epochs(&String::from_utf8_lossy(&text)) {
        Ok(_) if text.is_empty() => Ok(None),
        Ok(entries) => Ok(Some(LeaderEpochCache::new(entries))),
        Err(error) => {
            warn!(file = %place.join(LEADER_EPOCH_CHECKPOINT).display(), %error, "rebuilding a file that is damaged");
            Ok(None)
        }
    }
}
