//! What a move to another log directory does to a partition: its copy is filled, cut where the log was cut, and put in
//! the place of the log.

use std::sync::Arc;

use bytes::Bytes;
use snafu::ensure;

use super::error::StorageSnafu;
use super::truncation::{self, Truncation};
use super::{Partition, ReplicaError};
use crate::log::{Log, LogError, LogManager, LogRead, Replacement};
use crate::model::{LeaderEpoch, Timestamp};
use crate::runtime::fs::read_full_at;

/// A copy of a partition's log, on its way to take the log's place.
#[derive(Debug)]
pub(super) struct Moving {
    future: Arc<Log>,
    /// How often the log had been cut when the copy was last made to agree with it; `None` = it was not yet.
    agreed_at: Option<u64>,
}

/// What a step of a move did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveStep {
    /// These bytes were copied. There may be more.
    Copied { bytes: u64 },
    /// The copy has what the log has.
    CaughtUp,
    /// The copy is the log.
    Done,
    /// There is no move any more.
    Over,
}

/// What the log may have grown by while the copy was made durable is copied while nobody can write.
const LAST_STEPS_MAX: usize = 8;

impl Partition {
    /// The copy that a move is making.
    pub fn future(&self) -> Option<Arc<Log>> {
        self.moving.lock().as_ref().map(|moving| Arc::clone(&moving.future))
    }

    /// Begins to copy into `future`; what is in it already is compared first.
    pub(super) fn begin_move(&self, future: Arc<Log>) {
        *self.moving.lock() = Some(Moving { future, agreed_at: None });
    }

    /// Waits for the step that is being done; there is none afterwards.
    pub(super) fn end_move(&self) {
        *self.moving.lock() = None;
    }

    /// Copies up to `bytes_max`, or one batch. Waits for the disk.
    pub(super) fn copy_some(&self, bytes_max: usize, now: Timestamp) -> Result<MoveStep, ReplicaError> {
        match self.moving.lock().as_mut() {
            Some(moving) => Ok(moving.copy_some(&self.log(), bytes_max, now)?),
            None => Ok(MoveStep::Over),
        }
    }

    /// Puts a copy that has caught up in the place of the log. Nobody can write meanwhile.
    pub(super) fn finish_move(
        &self,
        logs: &LogManager,
        bytes_max: usize,
        now: Timestamp,
    ) -> Result<MoveStep, ReplicaError> {
        let Some(future) = self.future() else { return Ok(MoveStep::Over) };
        logs.prepare_replacement(&future, now)?;
        let _exclusive = self.leadership.write();
        let mut current = self.moving.lock();
        let Some(moving) = current.as_mut().filter(|moving| Arc::ptr_eq(&moving.future, &future)) else {
            return Ok(MoveStep::Over);
        };
        let log = self.log();
        ensure!(!log.directory().is_offline(), StorageSnafu);
        let mut copied_bytes = 0;
        for _ in 0..LAST_STEPS_MAX {
            match moving.copy_some(&log, bytes_max, now)? {
                MoveStep::Copied { bytes } => copied_bytes += bytes,
                MoveStep::CaughtUp | MoveStep::Done | MoveStep::Over => break,
            }
        }
        match logs.replace_with_future(&log, &future, now)? {
            Replacement::NotCaughtUp => Ok(MoveStep::Copied { bytes: copied_bytes }),
            Replacement::Done => {
                self.log.store(future);
                *current = None;
                self.watchers.wake_all();
                Ok(MoveStep::Done)
            }
        }
    }
}

impl Moving {
    fn copy_some(&mut self, log: &Log, bytes_max: usize, now: Timestamp) -> Result<MoveStep, LogError> {
        self.agree(log, now)?;
        let future = &self.future;
        if future.log_end_offset() < log.log_start_offset() {
            future.truncate_fully_and_start_at(log.log_start_offset(), now)?;
        }
        let (from, end) = (future.log_end_offset(), log.log_end_offset());
        let step = if from >= end {
            MoveStep::CaughtUp
        } else {
            MoveStep::Copied { bytes: self.copy(log, bytes_max, now)? }
        };
        future.advance_high_watermark(log.high_watermark());
        if future.log_start_offset() < log.log_start_offset() {
            future.delete_records_before(log.log_start_offset().min(future.high_watermark()))?;
        }
        Ok(step)
    }

    fn copy(&self, log: &Log, bytes_max: usize, now: Timestamp) -> Result<u64, LogError> {
        let truncations = log.truncations();
        let from = self.future.log_end_offset();
        let records =
            match log.read(from, bytes_max, log.log_end_offset(), true).and_then(|read| load(log, &read)) {
                Ok(records) => records,
                // It was cut meanwhile, or its oldest segments went.
                Err(LogError::OffsetOutOfRange { .. } | LogError::SegmentDeleted) => return Ok(0),
                Err(error) => return Err(error),
            };
        let size_bytes = records.len() as u64;
        match self.append(records, now) {
            Ok(()) => Ok(size_bytes),
            // What was read was being cut off, and others were written in its place.
            Err(
                LogError::Records { .. }
                | LogError::OffsetsOutOfOrder { .. }
                | LogError::UnexpectedAppendOffset { .. },
            ) if log.truncations() != truncations => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn append(&self, records: Bytes, now: Timestamp) -> Result<(), LogError> {
        let future = &self.future;
        match future.append_as_follower(records.clone(), now) {
            // The log starts in the middle of a batch, which is copied whole.
            Err(LogError::UnexpectedAppendOffset { first_offset, .. })
                if future.log_start_offset() == future.log_end_offset() =>
            {
                future.truncate_fully_and_start_at(first_offset, now)?;
                future.append_as_follower(records, now)?;
            }
            appended => drop(appended?),
        }
        Ok(())
    }

    /// Cuts off what the log does not have: where epochs part, as a follower does with its leader.
    fn agree(&mut self, log: &Log, now: Timestamp) -> Result<(), LogError> {
        let truncations = log.truncations();
        if self.agreed_at == Some(truncations) {
            return Ok(());
        }
        let future = &self.future;
        loop {
            let (end, epoch) = (future.log_end_offset(), future.latest_epoch());
            let found = log.end_offset_for_epoch(epoch);
            let own = |epoch: LeaderEpoch| {
                let end = future.end_offset_for_epoch(epoch);
                (end.epoch, end.end_offset)
            };
            let Truncation { to, is_final } =
                truncation::decide((found.epoch, found.end_offset), own, future.high_watermark(), end);
            future.truncate_to(to.min(end), now)?;
            // An epoch without records at the end is not cut off by cutting records.
            if is_final || future.log_end_offset() == end {
                break;
            }
        }
        future.truncate_to(log.log_end_offset().min(future.log_end_offset()), now)?;
        self.agreed_at = Some(truncations);
        Ok(())
    }
}

/// The bytes of what was found. A file that ends early was cut meanwhile.
fn load(log: &Log, read: &LogRead) -> Result<Bytes, LogError> {
    let mut bytes = vec![0; read.size_bytes];
    let mut filled = 0;
    for slice in &read.slices {
        let end = filled + slice.size_bytes as usize;
        let target = bytes.get_mut(filled..end).unwrap_or_default();
        filled += log.check_read(read_full_at(&*slice.file, target, slice.position))?;
    }
    bytes.truncate(filled);
    Ok(bytes.into())
}
