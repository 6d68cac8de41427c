use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::log::compaction::{HashSecret, KeyMapBudget, Pass};
use crate::log::config::LogConfig;
use crate::log::error::LogError;
use crate::log::partition_log::Log;
use crate::log::scan::{BatchScan, ScanError};
use crate::log::segment::Segment;
use crate::model::{Offset, Timestamp, TopicPartition};
use crate::records::Batch;

use super::failures::Claim;
use super::indexing::Indexing;
use super::rewriting::Rewriting;

/// The cleaning of one log, done a [step](Cleaning::step) at a time.
///
/// First the keys of the dirty part are mapped, as far as the map has room; then all segments up to there are
/// rewritten, a group at a time, each put in place when it is complete; then the checkpoint is written.
/// Whatever is dropped before its end has done no harm: what it was writing is removed with it.
pub struct Cleaning {
    target: Target,
    phase: Phase,
    report: CleaningReport,
    _claim: Claim,
}

/// What is cleaned, and with what.
pub(super) struct Target {
    pub(super) log: Arc<Log>,
    pub(super) config: Arc<LogConfig>,
    pub(super) first_dirty: Offset,
    /// The base of the first segment that is left alone.
    pub(super) first_uncleanable: Offset,
    /// As counted before anything of the log was read.
    pub(super) truncations: u64,
    pub(super) budget: KeyMapBudget,
    pub(super) secret: HashSecret,
    /// How much is read at once, and done in a step.
    pub(super) piece_bytes: u64,
}

enum Phase {
    Beginning,
    Indexing(Box<Indexing>),
    Rewriting(Box<Rewriting>),
    Done,
}

/// What became of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// There is more to do. These bytes were read and written.
    Went {
        bytes: u64,
    },
    Done,
}

/// What a cleaning has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CleaningReport {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub segments_before: usize,
    pub segments_after: usize,
    /// Of the segments that were replaced, and of those in their place.
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub keys: usize,
    /// Where the clean part ends now.
    pub clean_end: Offset,
}

impl Cleaning {
    pub(super) fn new(target: Target, claim: Claim) -> Cleaning {
        Cleaning { target, phase: Phase::Beginning, report: CleaningReport::default(), _claim: claim }
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        self.target.log.topic_partition()
    }

    pub fn report(&self) -> &CleaningReport {
        &self.report
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Reads and writes some more: about as many bytes as the I/O buffer takes. Waits for the disk.
    ///
    /// Errors: [`LogError::SegmentDeleted`] and [`LogError::Closed`] if the log was changed by others so that
    /// the work is in vain, [`LogError::Uncleanable`], [`LogError::DiskFull`], and those of storage. The
    /// cleaning is over then.
    pub fn step(&mut self, now: Timestamp) -> Result<Step, LogError> {
        self.target.log.ensure_open()?;
        self.advance(now).map_err(|error| self.because_of_others().unwrap_or(error))
    }

    /// Names that changed and records that were cut off under the work are no damage.
    fn because_of_others(&self) -> Option<LogError> {
        let is_cut = self.target.log.truncations.load(Ordering::Acquire) != self.target.truncations;
        let is_open = self.target.log.ensure_open();
        is_open.err().or(is_cut.then_some(LogError::SegmentDeleted))
    }

    fn advance(&mut self, now: Timestamp) -> Result<Step, LogError> {
        let (before, report) = (self.report, &mut self.report);
        match &mut self.phase {
            Phase::Beginning => self.phase = Phase::Indexing(Box::new(Indexing::begin(&self.target)?)),
            Phase::Indexing(indexing) => {
                if indexing.step(&self.target, report)? {
                    let pass = indexing.take_pass(&self.target, now);
                    report.keys = pass.map.count();
                    self.phase = Phase::Rewriting(Box::new(Rewriting::begin(&self.target, pass)?));
                }
            }
            Phase::Rewriting(rewriting) => {
                if rewriting.step(&self.target, report, now)? {
                    report.clean_end = rewriting.pass().mapped_end;
                    self.target.log.note_cleaned(report.clean_end, self.target.truncations)?;
                    self.phase = Phase::Done;
                }
            }
            Phase::Done => {}
        }
        if matches!(self.phase, Phase::Done) {
            return Ok(Step::Done);
        }
        let moved = |report: &CleaningReport| report.bytes_read + report.bytes_written;
        Ok(Step::Went { bytes: moved(&self.report) - moved(&before) })
    }
}

impl Drop for Cleaning {
    fn drop(&mut self) {
        if let Phase::Rewriting(rewriting) = &mut self.phase {
            rewriting.discard(&self.target);
        }
    }
}

impl Target {
    pub(super) fn new(
        log: Arc<Log>,
        (first_dirty, first_uncleanable): (Offset, Offset),
        budget: KeyMapBudget,
        secret: HashSecret,
        piece_bytes: u64,
    ) -> Target {
        let (config, truncations) = (log.config(), log.truncations.load(Ordering::Acquire));
        Target { log, config, first_dirty, first_uncleanable, truncations, budget, secret, piece_bytes }
    }

    pub(super) fn scan(&self, segment: &Segment, position: u32) -> Result<BatchScan, LogError> {
        let file = segment.file(&self.log.place)?;
        Ok(BatchScan::with_piece(file, position, segment.size_bytes(), self.piece_bytes))
    }

    /// The next batch; `expected` is the offset to name if there is none that can be read.
    pub(super) fn next_batch(
        &self,
        segment: &Segment,
        scan: &mut BatchScan,
        expected: Offset,
    ) -> Result<Option<Batch>, LogError> {
        scan.next().map_err(|error| match error {
            ScanError::Damaged(source) => LogError::Uncleanable { offset: expected, source },
            ScanError::Io(_) => segment.scan_error(&self.log.place, error),
        })
    }

    pub(super) fn pass(
        &self,
        map: crate::log::compaction::KeyMap,
        mapped_end: Offset,
        now: Timestamp,
    ) -> Pass {
        Pass {
            map,
            mapped_end,
            upper_bound: self.first_uncleanable,
            now,
            delete_retention_ms: self.config.delete_retention_ms,
        }
    }
}
