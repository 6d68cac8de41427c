use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::model::{LeaderEpoch, Offset, Timestamp};
use crate::records::BatchHeader;
use crate::runtime::fs::{File, OpenMode, write_all_at};

use super::directory::Place;
use super::error::LogError;
use super::index::{Index, OffsetEntry, TimeEntry, Waiting};
use super::marks::{Mark, Marks};
use super::names::FileKind;
use super::open_files::LazyFile;
use super::scan::{BatchScan, HeaderScan, ScanError};

/// A piece of a log: one file of batches from a base offset on, with its indexes.
///
/// One thread at a time changes a segment: the one that holds the log's append lock. Readers see whole
/// batches only, because `size_bytes` is published after the bytes, the index entries and the mark of a
/// batch. A segment is never shortened; truncation puts a new one in its place.
pub(super) struct Segment {
    pub(super) base_offset: Offset,
    pub(super) offset_index: Index<OffsetEntry>,
    pub(super) time_index: Index<TimeEntry>,
    /// When the segment was begun, or opened: where rolling by age starts if records have no timestamps.
    pub(super) opened: Timestamp,
    records: LazyFile,
    size_bytes: AtomicU32,
    bytes_since_index_entry: AtomicU32,
    first_timestamp: AtomicI64,
    max_timestamp: Mutex<TimestampedOffset>,
    /// Empty in a segment that has had no append since it was opened.
    marks: ArcSwapOption<Marks>,
    has_transaction_index: AtomicBool,
    /// Its files were renamed: what cannot be opened any more is not a broken disk.
    is_deleted: AtomicBool,
}

/// A timestamp, and an offset that belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampedOffset {
    pub timestamp: Timestamp,
    pub offset: Offset,
}

/// A record found by its timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundOffset {
    pub offset: Offset,
    pub timestamp: Timestamp,
    /// Of the batch that holds the record. [`LeaderEpoch::UNKNOWN`] in old formats.
    pub leader_epoch: LeaderEpoch,
}

/// A run of whole batches in a segment file; empty if `start` = `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) start: u32,
    pub(super) end: u32,
    /// At most the first record's offset.
    pub(super) first_offset: Offset,
    /// More than the last record's offset.
    pub(super) upper_offset: Offset,
}

const UNKNOWN: i64 = i64::MIN;

impl Segment {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Segment>() + self.offset_index.memory_bytes() + self.time_index.memory_bytes()
    }

    /// Begins a segment: an empty file, in place of one that may be there.
    pub(super) fn create(base_offset: Offset, place: &Place, now: Timestamp) -> io::Result<Segment> {
        let segment =
            Segment::open(base_offset, 0, Index::empty(base_offset), Index::empty(base_offset), now);
        let path = place.join(&FileKind::Records.name(base_offset));
        place.fs().open(&path, OpenMode::CreateEmpty)?;
        Ok(segment)
    }

    /// A segment whose file is there.
    pub(super) fn open(
        base_offset: Offset,
        size_bytes: u32,
        offset_index: Index<OffsetEntry>,
        time_index: Index<TimeEntry>,
        now: Timestamp,
    ) -> Segment {
        let max_timestamp = match time_index.last() {
            Some(last) => TimestampedOffset {
                timestamp: last.timestamp,
                offset: base_offset.plus(i64::from(last.relative_offset)),
            },
            None => TimestampedOffset { timestamp: Timestamp::NONE, offset: base_offset },
        };
        Segment {
            base_offset,
            offset_index,
            time_index,
            opened: now,
            records: LazyFile::new(),
            size_bytes: AtomicU32::new(size_bytes),
            bytes_since_index_entry: AtomicU32::new(0),
            first_timestamp: AtomicI64::new(UNKNOWN),
            max_timestamp: Mutex::new(max_timestamp),
            marks: ArcSwapOption::empty(),
            has_transaction_index: AtomicBool::new(false),
            is_deleted: AtomicBool::new(false),
        }
    }

    pub(super) fn size_bytes(&self) -> u32 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// The greatest timestamp of any record; `-1` without one.
    pub(super) fn max_timestamp(&self) -> TimestampedOffset {
        *self.max_timestamp.lock()
    }

    pub(super) fn file(&self, place: &Place) -> Result<Arc<dyn File>, LogError> {
        let file = place.open_lazy(&self.records, self.base_offset, FileKind::Records, OpenMode::Write);
        self.check(place, file, "opening", FileKind::Records)
    }

    /// Takes space for all the segment may grow to.
    pub(super) fn reserve(&self, place: &Place, size_bytes: u32) -> Result<(), LogError> {
        let reserved = self.file(place)?.reserve(u64::from(size_bytes));
        self.check(place, reserved, "reserving space in", FileKind::Records)
    }

    /// Gives back what was reserved and not used: nothing is appended any more.
    pub(super) fn release(&self, place: &Place) -> Result<(), LogError> {
        let released = self.file(place)?.truncate(u64::from(self.size_bytes()));
        self.check(place, released, "trimming", FileKind::Records)
    }

    /// Writes bytes at the end of the file, where no reader sees them until they are [noted](Self::note).
    pub(super) fn write(&self, place: &Place, parts: &[IoSlice<'_>]) -> Result<(), LogError> {
        self.make_room(place)?;
        let file = self.file(place)?;
        let size_bytes = u64::from(self.size_bytes());
        let written = write_all_at(&*file, parts, size_bytes);
        if written.is_err() {
            // Should this fail too, the next open cuts the remains off.
            let _ = file.truncate(size_bytes);
        }
        self.check(place, written, "appending to", FileKind::Records)
    }

    /// Sees to it that the next entries of the indexes need no write.
    pub(super) fn make_room(&self, place: &Place) -> Result<(), LogError> {
        let made_room = self.offset_index.make_room(place).and_then(|()| self.time_index.make_room(place));
        self.check(place, made_room, "writing", FileKind::OffsetIndex)
    }

    /// Publishes batches that were written at the end of the published ones. Each may get entries in the indexes, also
    /// where several are appended together, as in Kafka 3.9.2.
    pub(super) fn note(&self, headers: &[BatchHeader], index_interval: u32) {
        let mut position = self.size_bytes();
        let is_first = position == 0 && self.first_timestamp.load(Ordering::Relaxed) == UNKNOWN;
        if let Some(first) = headers.first().filter(|_| is_first) {
            self.first_timestamp.store(first.max_timestamp.0, Ordering::Relaxed);
        }
        let marks = self.marks_for_writing();
        let mut since_entry = self.bytes_since_index_entry.load(Ordering::Relaxed);
        for header in headers {
            self.note_timestamp(header);
            if since_entry > index_interval {
                let relative_offset = self.relative(header.last_offset());
                self.offset_index.append(OffsetEntry { relative_offset, position });
                self.append_time_entry();
                since_entry = 0;
            }
            let size_bytes = header.size_bytes() as u32;
            since_entry = since_entry.saturating_add(size_bytes);
            position += size_bytes;
            marks.note(Mark { offset: header.next_offset(), position });
        }
        self.bytes_since_index_entry.store(since_entry, Ordering::Relaxed);
        self.size_bytes.store(position, Ordering::Release);
    }

    fn note_timestamp(&self, header: &BatchHeader) {
        let mut max = self.max_timestamp.lock();
        if header.max_timestamp > max.timestamp {
            *max = TimestampedOffset { timestamp: header.max_timestamp, offset: header.last_offset() };
        }
    }

    /// Brings the time index up to the greatest timestamp so far, if that is not in it.
    pub(super) fn append_time_entry(&self) {
        let max = self.max_timestamp();
        let indexed = self.time_index.last().map_or(Timestamp::NONE, |last| last.timestamp);
        if max.timestamp > indexed {
            let entry = TimeEntry { timestamp: max.timestamp, relative_offset: self.relative(max.offset) };
            self.time_index.append(entry);
        }
    }

    fn marks_for_writing(&self) -> Arc<Marks> {
        self.marks.load_full().unwrap_or_else(|| {
            let marks = Arc::new(Marks::new());
            if self.size_bytes() == 0 {
                marks.note(Mark { offset: self.base_offset, position: 0 });
            }
            self.marks.store(Some(marks.clone()));
            marks
        })
    }

    /// Remembers where the log ends, when a segment that has records becomes the active one.
    pub(super) fn mark_end(&self, log_end_offset: Offset) {
        if self.size_bytes() > 0 {
            self.marks_for_writing().note(Mark { offset: log_end_offset, position: self.size_bytes() });
        }
    }

    fn relative(&self, offset: Offset) -> u32 {
        let relative = offset.since(self.base_offset);
        u32::try_from(relative)
            .unwrap_or_else(|_| panic!("offset {offset} does not fit the segment from {}", self.base_offset))
    }

    /// Whether an index of this segment can express `offset`.
    pub(super) fn can_hold(&self, offset: Offset) -> bool {
        (0..=i64::from(i32::MAX)).contains(&offset.since(self.base_offset))
    }

    /// The greatest timestamp of the first batch, from which the age of the segment counts; `-1` = none.
    pub(super) fn first_timestamp(&self, place: &Place) -> Result<Timestamp, LogError> {
        let known = self.first_timestamp.load(Ordering::Relaxed);
        if known != UNKNOWN || self.size_bytes() == 0 {
            return Ok(if known == UNKNOWN { Timestamp::NONE } else { Timestamp(known) });
        }
        let mut scan = self.scan(place, 0, self.size_bytes(), Waiting::Allowed)?;
        let first = self.step(place, &mut scan)?;
        let timestamp = first.map_or(Timestamp::NONE, |(_, header)| header.max_timestamp);
        self.first_timestamp.store(timestamp.0, Ordering::Relaxed);
        Ok(timestamp)
    }

    /// Whole batches from the one that holds `from`, or follows it, on: those that end before `bound`, up to
    /// `max_bytes`, but at least one if that is asked for. `None` if the segment ends before `from`.
    ///
    /// `is_last` tells that `bound` may lie inside the segment.
    pub(super) fn read(
        &self,
        place: &Place,
        wanted: &Wanted,
        is_last: bool,
    ) -> Result<Option<Range>, LogError> {
        let size_bytes = self.size_bytes();
        let Some((start, first_offset)) = self.locate(place, wanted.from, 0, size_bytes, wanted.waiting)?
        else {
            return Ok(None);
        };
        let cut = start.saturating_add(u32::try_from(wanted.max_bytes).unwrap_or(u32::MAX));
        let limit =
            if is_last { self.bound_position(place, wanted, start, cut, size_bytes)? } else { size_bytes };
        let range = |end, upper_offset| Range { start, end, first_offset, upper_offset };
        if limit <= start {
            return Ok(Some(range(start, first_offset)));
        }
        if limit <= cut {
            return Ok(Some(range(limit, wanted.bound)));
        }
        if let Some(mark) = self.boundary_until(place, cut, wanted.waiting)?
            && mark.position > start
        {
            return Ok(Some(range(mark.position, mark.offset)));
        }
        let (end, upper_offset) = self.cut_by_headers(place, start, cut, limit, wanted)?;
        Ok(Some(range(end, upper_offset)))
    }

    /// The first batch that ends at or after `offset`, at `from_position` or later.
    fn locate(
        &self,
        place: &Place,
        offset: Offset,
        from_position: u32,
        size_bytes: u32,
        waiting: Waiting,
    ) -> Result<Option<(u32, Offset)>, LogError> {
        if let Some(position) = self.marks.load().as_ref().and_then(|marks| marks.find(offset)) {
            return Ok((position < size_bytes).then_some((position, offset)));
        }
        let start = self.floor(place, offset, waiting)?.map_or(0, |entry| entry.position).max(from_position);
        let mut scan = self.scan(place, start, size_bytes, waiting)?;
        while let Some((position, header)) = self.step(place, &mut scan)? {
            if header.last_offset() >= offset {
                // An old message that others are compressed in has the offset of the last of them.
                return Ok(Some((position, header.base_offset.min(offset))));
            }
        }
        Ok(None)
    }

    /// Where the first batch that ends at or after `offset` begins.
    pub(super) fn position_of(&self, place: &Place, offset: Offset) -> Result<Option<u32>, LogError> {
        let found = self.locate(place, offset, 0, self.size_bytes(), Waiting::Allowed)?;
        Ok(found.map(|(position, _)| position))
    }

    /// The first offset of the batch that holds `offset`, if there is one and that can be told; else `offset`.
    pub(super) fn batch_start(&self, place: &Place, offset: Offset) -> Result<Offset, LogError> {
        let found = self.locate(place, offset, 0, self.size_bytes(), Waiting::Allowed)?;
        Ok(found.map_or(offset, |(_, first_offset)| first_offset.min(offset)))
    }

    /// Where the batches that end before the bound stop; any place from `cut` on if that is later.
    fn bound_position(
        &self,
        place: &Place,
        wanted: &Wanted,
        start: u32,
        cut: u32,
        size_bytes: u32,
    ) -> Result<u32, LogError> {
        if let Some(position) = self.marks.load().as_ref().and_then(|marks| marks.find(wanted.bound)) {
            return Ok(position.min(size_bytes));
        }
        let before = self.floor(place, wanted.bound, wanted.waiting)?;
        if let Some(entry) = before.filter(|entry| entry.position > cut) {
            return Ok(entry.position.min(size_bytes));
        }
        let found = self.locate(place, wanted.bound, start, size_bytes, wanted.waiting)?;
        Ok(found.map_or(size_bytes, |(position, _)| position))
    }

    /// The last place between two batches up to `cut` that can be told without looking at batches.
    fn boundary_until(&self, place: &Place, cut: u32, waiting: Waiting) -> Result<Option<Mark>, LogError> {
        if let Some(mark) = self.marks.load().as_ref().and_then(|marks| marks.last_until(cut)) {
            return Ok(Some(mark));
        }
        let entry = self.offset_index.last_where(place, waiting, |entry| entry.position <= cut);
        let entry = self.check(place, entry, "reading", FileKind::OffsetIndex)?;
        Ok(entry.map(|entry| Mark {
            offset: self.base_offset.plus(i64::from(entry.relative_offset)),
            position: entry.position,
        }))
    }

    fn cut_by_headers(
        &self,
        place: &Place,
        start: u32,
        cut: u32,
        limit: u32,
        wanted: &Wanted,
    ) -> Result<(u32, Offset), LogError> {
        let mut scan = self.scan(place, start, limit, wanted.waiting)?;
        let mut taken = (start, wanted.from);
        while let Some((position, header)) = self.step(place, &mut scan)? {
            let end = position + header.size_bytes() as u32;
            let is_first = position == start;
            if end > cut && !(is_first && wanted.at_least_one_batch) {
                break;
            }
            taken = (end, header.next_offset());
            if end >= cut {
                break;
            }
        }
        Ok(taken)
    }

    fn floor(
        &self,
        place: &Place,
        offset: Offset,
        waiting: Waiting,
    ) -> Result<Option<OffsetEntry>, LogError> {
        let relative = offset.since(self.base_offset);
        let is_before = |entry: &OffsetEntry| i64::from(entry.relative_offset) <= relative;
        let entry = self.offset_index.last_where(place, waiting, is_before);
        self.check(place, entry, "reading", FileKind::OffsetIndex)
    }

    /// The first record at or after `timestamp` that is not before `from`.
    pub(super) fn find_timestamp(
        &self,
        place: &Place,
        timestamp: Timestamp,
        from: Offset,
    ) -> Result<Option<FoundOffset>, LogError> {
        let entry = self.time_index.last_where(place, Waiting::Allowed, |entry| entry.timestamp <= timestamp);
        let entry = self.check(place, entry, "reading", FileKind::TimeIndex)?;
        let indexed =
            entry.map_or(self.base_offset, |entry| self.base_offset.plus(i64::from(entry.relative_offset)));
        let start = self.floor(place, indexed.max(from), Waiting::Allowed)?.map_or(0, |entry| entry.position);
        let mut scan = BatchScan::new(self.file(place)?, start, self.size_bytes());
        while let Some(batch) = self.step_batch(place, &mut scan)? {
            if let Some((offset, timestamp)) = batch.first_record_at_or_after(timestamp, from)? {
                return Ok(Some(FoundOffset { offset, timestamp, leader_epoch: batch.header.leader_epoch }));
            }
        }
        Ok(None)
    }

    /// The first record of the batch that has the segment's greatest timestamp.
    pub(super) fn find_max_timestamp(&self, place: &Place) -> Result<Option<FoundOffset>, LogError> {
        let max = self.max_timestamp();
        let size_bytes = self.size_bytes();
        let Some((position, _)) = self.locate(place, max.offset, 0, size_bytes, Waiting::Allowed)? else {
            return Ok(None);
        };
        let mut scan = BatchScan::new(self.file(place)?, position, size_bytes);
        let Some(batch) = self.step_batch(place, &mut scan)? else { return Ok(None) };
        let found = batch.record_with_max_timestamp()?;
        let leader_epoch = batch.header.leader_epoch;
        Ok(found.map(|(offset, timestamp)| FoundOffset { offset, timestamp, leader_epoch }))
    }

    /// Looks for a greater timestamp behind the last entry of the time index, which is all that is known of a
    /// segment that was cut.
    pub(super) fn find_max_timestamp_after_index(&self, place: &Place) -> Result<(), LogError> {
        let start = self.floor(place, self.max_timestamp().offset, Waiting::Allowed)?;
        let mut scan =
            self.scan(place, start.map_or(0, |entry| entry.position), self.size_bytes(), Waiting::Allowed)?;
        while let Some((_, header)) = self.step_to_damage(place, &mut scan)? {
            let mut max = self.max_timestamp.lock();
            if header.max_timestamp > max.timestamp {
                *max = TimestampedOffset { timestamp: header.max_timestamp, offset: header.last_offset() };
            }
        }
        Ok(())
    }

    /// The offset after the last batch, and the position where the batches end.
    pub(super) fn find_end(&self, place: &Place) -> Result<(Offset, u32), LogError> {
        let start = self.offset_index.last().map_or(0, |entry| entry.position);
        Ok(match self.find_last_batch(place)? {
            Some((position, header)) => (header.next_offset(), position + header.size_bytes() as u32),
            None => (self.base_offset, start),
        })
    }

    /// The last sound batch, and where it begins.
    pub(super) fn find_last_batch(&self, place: &Place) -> Result<Option<(u32, BatchHeader)>, LogError> {
        let start = self.offset_index.last().map_or(0, |entry| entry.position);
        let mut scan = self.scan(place, start, self.size_bytes(), Waiting::Allowed)?;
        let mut last = None;
        while let Some(found) = self.step_to_damage(place, &mut scan)? {
            last = Some(found);
        }
        Ok(last)
    }

    /// As [`step`](Self::step), but damage ends the walk.
    pub(super) fn step_to_damage(
        &self,
        place: &Place,
        scan: &mut HeaderScan,
    ) -> Result<Option<(u32, BatchHeader)>, LogError> {
        match scan.next() {
            Err(ScanError::Damaged(_)) => Ok(None),
            outcome => outcome.map_err(|error| self.scan_error(place, error)),
        }
    }

    pub(super) fn scan(
        &self,
        place: &Place,
        position: u32,
        end: u32,
        waiting: Waiting,
    ) -> Result<HeaderScan, LogError> {
        Ok(HeaderScan::new(self.file(place)?, position, end, waiting))
    }

    pub(super) fn step(
        &self,
        place: &Place,
        scan: &mut HeaderScan,
    ) -> Result<Option<(u32, BatchHeader)>, LogError> {
        scan.next().map_err(|error| self.scan_error(place, error))
    }

    pub(super) fn step_batch(
        &self,
        place: &Place,
        scan: &mut BatchScan,
    ) -> Result<Option<crate::records::Batch>, LogError> {
        scan.next().map_err(|error| self.scan_error(place, error))
    }

    pub(super) fn scan_error(&self, place: &Place, error: ScanError) -> LogError {
        match error {
            ScanError::Io(error) => match self.check::<()>(place, Err(error), "reading", FileKind::Records) {
                Err(error) => error,
                Ok(()) => LogError::WouldBlock,
            },
            ScanError::Damaged(error) => error.into(),
        }
    }

    /// Writes all waiting index entries to their files, which are created if they are not there.
    pub(super) fn write_out(&self, place: &Place) -> Result<(), LogError> {
        let written = self.offset_index.write_out(place);
        self.check(place, written, "writing", FileKind::OffsetIndex)?;
        let written = self.time_index.write_out(place);
        self.check(place, written, "writing", FileKind::TimeIndex)
    }

    /// Makes durable what was written so far.
    pub(super) fn sync(&self, place: &Place) -> Result<(), LogError> {
        let synced = self.file(place)?.sync_data();
        self.check(place, synced, "syncing", FileKind::Records)?;
        let synced = self.offset_index.sync(place);
        self.check(place, synced, "syncing", FileKind::OffsetIndex)?;
        let synced = self.time_index.sync(place);
        self.check(place, synced, "syncing", FileKind::TimeIndex)?;
        if !self.has_transaction_index() {
            return Ok(());
        }
        let path = place.join(&FileKind::TransactionIndex.name(self.base_offset));
        let synced = place.fs().open(&path, OpenMode::Write).and_then(|file| file.sync_data());
        self.check(place, synced, "syncing", FileKind::TransactionIndex)
    }

    pub(super) fn has_transaction_index(&self) -> bool {
        self.has_transaction_index.load(Ordering::Acquire)
    }

    pub(super) fn note_transaction_index(&self) {
        self.has_transaction_index.store(true, Ordering::Release);
    }

    /// Told before the files get other names.
    pub(super) fn note_deleted(&self) {
        self.is_deleted.store(true, Ordering::Release);
    }

    /// Lets go of the files until they are needed again.
    pub(super) fn close(&self) {
        self.records.close();
        self.offset_index.close();
        self.time_index.close();
    }

    pub(super) fn check<T>(
        &self,
        place: &Place,
        outcome: io::Result<T>,
        doing: &'static str,
        kind: FileKind,
    ) -> Result<T, LogError> {
        match outcome {
            // What was opened by a name that another segment may have by now says nothing of this one.
            Ok(_) if self.is_deleted.load(Ordering::Acquire) => Err(LogError::SegmentDeleted),
            Ok(value) => Ok(value),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(LogError::WouldBlock),
            Err(_) if self.is_deleted.load(Ordering::Acquire) => Err(LogError::SegmentDeleted),
            Err(error) => place.check(Err(error), doing, &place.join(&kind.name(self.base_offset))),
        }
    }
}

/// What a reader asks of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) from: Offset,
    pub(super) max_bytes: usize,
    /// Batches that reach this offset are left out.
    pub(super) bound: Offset,
    pub(super) at_least_one_batch: bool,
    pub(super) waiting: Waiting,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("base_offset", &self.base_offset)
            .field("size_bytes", &self.size_bytes())
            .finish_non_exhaustive()
    }
}
