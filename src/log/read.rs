//! Reading: where records are, by offset and by time.

use std::sync::Arc;

use snafu::ensure;

use crate::model::{LeaderEpoch, Offset, Timestamp};
use crate::runtime::fs::File;

use super::error::{LogError, OffsetOutOfRangeSnafu};
use super::index::Waiting;
use super::names::FileKind;
use super::partition_log::Log;
use super::segment::{FoundOffset, Range, Segment, Wanted};
use super::transaction_index::{AbortedTransaction, collect_aborted, decode_index};

/// Records as places in files, not read yet.
#[derive(Clone, Debug)]
pub struct LogRead {
    /// Empty if there is nothing to read. Each begins and ends between two batches.
    pub slices: Vec<FileSlice>,
    /// At most the offset of the first record: the batch that holds the wanted offset may begin earlier.
    pub first_offset: Offset,
    /// More than the offset of the last record; up to here aborted transactions matter.
    pub upper_offset: Offset,
    pub size_bytes: usize,
}

/// A part of a segment file.
#[derive(Clone, Debug)]
pub struct FileSlice {
    pub file: Arc<dyn File>,
    pub position: u64,
    pub size_bytes: u32,
}

/// How often a read starts over when retention or compaction takes away the segments under it.
const ATTEMPTS_MAX: usize = 3;

impl Log {
    /// Finds records from the batch that holds `from` on, up to `max_bytes`; with `at_least_one_batch` the
    /// first batch is taken however large it is. Only whole batches that end below `bound` (exclusive: the
    /// high watermark, the last stable offset or the log end) are taken. A read ends with its segment.
    ///
    /// Costs no system call for an offset at which one of the newest batches ends or begins; else an index
    /// lookup and the headers after it. May wait for the disk.
    ///
    /// Errors: [`LogError::OffsetOutOfRange`] if `from` is below the log start or above the log end.
    pub fn read(
        &self,
        from: Offset,
        max_bytes: usize,
        bound: Offset,
        at_least_one_batch: bool,
    ) -> Result<LogRead, LogError> {
        let waiting = Waiting::Allowed;
        self.read_wanted(&Wanted { from, max_bytes, bound, at_least_one_batch, waiting })
    }

    /// As [`read`](Log::read), but answers [`LogError::WouldBlock`] if it would have to wait for the disk.
    pub fn read_if_cached(
        &self,
        from: Offset,
        max_bytes: usize,
        bound: Offset,
        at_least_one_batch: bool,
    ) -> Result<LogRead, LogError> {
        let waiting = Waiting::Refused;
        self.read_wanted(&Wanted { from, max_bytes, bound, at_least_one_batch, waiting })
    }

    fn read_wanted(&self, wanted: &Wanted) -> Result<LogRead, LogError> {
        self.again_if_deleted(|| {
            self.ensure_open()?;
            let log_end_offset = self.log_end_offset();
            self.ensure_in_range(wanted.from, log_end_offset)?;
            let bound = wanted.bound.min(log_end_offset);
            if wanted.from >= bound {
                return Ok(LogRead::empty(wanted.from));
            }
            self.find_range(&Wanted { bound, ..*wanted })
        })
    }

    /// Turns the outcome of reading a [`FileSlice`] of this log into this room's: a failure takes the directory offline.
    pub fn check_read<T>(&self, outcome: std::io::Result<T>) -> Result<T, LogError> {
        self.place.check(outcome, "reading", &self.place.path())
    }

    fn ensure_in_range(&self, offset: Offset, log_end_offset: Offset) -> Result<(), LogError> {
        let log_start_offset = self.log_start_offset();
        ensure!(
            (log_start_offset..=log_end_offset).contains(&offset),
            OffsetOutOfRangeSnafu { offset, log_start_offset, log_end_offset }
        );
        Ok(())
    }

    fn find_range(&self, wanted: &Wanted) -> Result<LogRead, LogError> {
        let segments = self.segments.load();
        let first = segments.partition_point(|segment| segment.base_offset <= wanted.from);
        let Some(first) = first.checked_sub(1) else { return Err(LogError::SegmentDeleted) };
        for (at, segment) in segments.iter().enumerate().skip(first) {
            if segment.base_offset >= wanted.bound {
                break;
            }
            let next_base = segments.get(at + 1).map(|next| next.base_offset);
            let is_last = next_base.is_none_or(|next_base| wanted.bound < next_base);
            let bound = next_base.map_or(wanted.bound, |next_base| wanted.bound.min(next_base));
            if let Some(range) = segment.read(&self.place, &Wanted { bound, ..*wanted }, is_last)? {
                return self.read_of(segment, &range);
            }
        }
        Ok(LogRead::empty(wanted.from))
    }

    fn read_of(&self, segment: &Segment, range: &Range) -> Result<LogRead, LogError> {
        let size_bytes = range.end - range.start;
        if size_bytes == 0 {
            return Ok(LogRead::empty(range.first_offset));
        }
        let slice =
            FileSlice { file: segment.file(&self.place)?, position: u64::from(range.start), size_bytes };
        Ok(LogRead {
            slices: vec![slice],
            first_offset: range.first_offset,
            upper_offset: range.upper_offset,
            size_bytes: size_bytes as usize,
        })
    }

    /// The first record with this timestamp or a later one, at or after the log start. May wait for the disk.
    pub fn fetch_offset_by_timestamp(&self, timestamp: Timestamp) -> Result<Option<FoundOffset>, LogError> {
        self.again_if_deleted(|| {
            self.ensure_open()?;
            let segments = self.segments.load();
            // The records that make a segment qualify may lie below the log start; then a later one has them.
            let may_hold = |segment: &&Arc<Segment>| segment.max_timestamp().timestamp >= timestamp;
            for segment in segments.iter().filter(may_hold) {
                let found = segment.find_timestamp(&self.place, timestamp, self.log_start_offset())?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        })
    }

    /// Where segments begin, newest first, as old clients ask for it: up to `count` of them, from the last whose
    /// file was written at or before `timestamp` on backwards; [`Timestamp::NONE`] = from the log's end, -2 = only
    /// the first. The log's end counts as written `now`. May wait for the disk.
    pub fn offsets_before(
        &self,
        timestamp: Timestamp,
        count: usize,
        now: Timestamp,
    ) -> Result<Vec<Offset>, LogError> {
        const EARLIEST: Timestamp = Timestamp(-2);
        self.again_if_deleted(|| {
            self.ensure_open()?;
            let segments = self.segments.load();
            let log_start_offset = self.log_start_offset();
            let mut places = Vec::with_capacity(segments.len() + 1);
            for segment in segments.iter() {
                let written = if timestamp < Timestamp(0) { now } else { self.modified(segment)? };
                places.push((segment.base_offset.max(log_start_offset), written));
            }
            if segments.last().is_some_and(|last| last.size_bytes() > 0) {
                places.push((self.log_end_offset(), now));
            }
            let end = match timestamp {
                Timestamp::NONE => places.len(),
                EARLIEST => 1,
                timestamp => places.iter().rposition(|place| place.1 <= timestamp).map_or(0, |at| at + 1),
            };
            let mut listed: Vec<Offset> =
                places.iter().take(end).rev().take(count).map(|place| place.0).collect();
            listed.sort_by(|a, b| b.cmp(a));
            Ok(listed)
        })
    }

    /// The first record that has the greatest timestamp of all. `None` in a log without timestamps.
    /// May wait for the disk.
    pub fn fetch_offset_of_max_timestamp(&self) -> Result<Option<FoundOffset>, LogError> {
        self.again_if_deleted(|| {
            self.ensure_open()?;
            let segments = self.segments.load();
            let mut latest: Option<(&Arc<Segment>, Timestamp)> = None;
            for segment in segments.iter() {
                let timestamp = segment.max_timestamp().timestamp;
                if timestamp > latest.map_or(Timestamp::NONE, |(_, timestamp)| timestamp) {
                    latest = Some((segment, timestamp));
                }
            }
            latest.map_or(Ok(None), |(segment, _)| segment.find_max_timestamp(&self.place))
        })
    }

    /// The leader epoch under which the record at `offset` was written, if that is known.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.epochs.read().epoch_for_offset(offset)
    }

    /// The aborted transactions that have records in `from..upper`. May wait for the disk.
    pub fn aborted_transactions(
        &self,
        from: Offset,
        upper: Offset,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        self.again_if_deleted(|| {
            self.ensure_open()?;
            let segments = self.segments.load();
            let first = segments.partition_point(|segment| segment.base_offset <= from).saturating_sub(1);
            let mut found = Vec::new();
            for segment in segments.iter().skip(first).filter(|segment| segment.has_transaction_index()) {
                let name = FileKind::TransactionIndex.name(segment.base_offset);
                let Some(index) = self.place.read(&name)? else { return Err(LogError::SegmentDeleted) };
                let collected = collect_aborted(decode_index(&index).map_while(Result::ok), from, upper);
                found.extend(collected.transactions);
                if collected.is_complete {
                    break;
                }
            }
            Ok(found)
        })
    }

    fn again_if_deleted<T>(&self, read: impl Fn() -> Result<T, LogError>) -> Result<T, LogError> {
        for _ in 1..ATTEMPTS_MAX {
            match read() {
                // Whoever takes segments away holds the append lock until the list is as it should be.
                Err(LogError::SegmentDeleted) => drop(self.writer.lock()),
                outcome => return outcome,
            }
        }
        let _nobody_takes_any_away = self.writer.lock();
        read()
    }
}

impl LogRead {
    fn empty(offset: Offset) -> LogRead {
        LogRead { slices: Vec::new(), first_offset: offset, upper_offset: offset, size_bytes: 0 }
    }
}
