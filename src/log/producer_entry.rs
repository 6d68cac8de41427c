use snafu::ensure;

use crate::model::{Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::records::{AppendOrigin, BatchHeader};

use super::producer_state::{
    InvalidProducerEpochSnafu, MarkerRule, NewEpochNotAtZeroSnafu, OutOfOrderSequenceSnafu, ProducerError,
};

/// One producer, as its last batches left it.
///
/// Forty bytes where it is idle: there may be a million of them. Only a producer at work has more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// Of the last batch or marker.
    pub last_timestamp: Timestamp,
    /// Of the last batch; `-1` = none is known, only a marker.
    last_offset: Offset,
    last_sequence: i32,
    offset_delta: i32,
    /// Of the last marker; `-1` = none seen.
    pub coordinator_epoch: i32,
    pub epoch: ProducerEpoch,
    /// It wrote since the last [`settle`](ProducerEntry::settle).
    is_recent: bool,
    at_work: Option<Box<AtWork>>,
}

/// What a producer has that is in the middle of something, or was a moment ago.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AtWork {
    /// Of the open transaction; `-1` = none is open.
    transaction_first_offset: Offset,
    /// Of the last batch, which a marker may have followed.
    batch_timestamp: Timestamp,
    /// The batches before the last one, oldest first.
    earlier: [SequencedBatch; EARLIER_KEPT],
    earlier_count: u8,
}

/// Retries are recognised among five batches, which is also how many a producer may have in flight: these and the
/// last one.
const EARLIER_KEPT: usize = 4;

/// A batch of an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencedBatch {
    pub last_sequence: i32,
    pub last_offset: Offset,
    pub offset_delta: i32,
    pub timestamp: Timestamp,
}

/// When a producer last gave a sign: the least of these is forgotten first.
///
/// By this broker's own knowledge first, as the times of records are whatever their producers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LastSign {
    pub(super) is_recent: bool,
    pub(super) timestamp: Timestamp,
}

impl ProducerEntry {
    /// What an idle one takes with its id, in a tree that is filled in the order of ids.
    pub(super) const IDLE_BYTES: usize = 2 * size_of::<(ProducerId, ProducerEntry)>();

    /// A producer of which nothing is known.
    pub(super) const UNKNOWN: ProducerEntry = ProducerEntry {
        last_timestamp: Timestamp::NONE,
        last_offset: Offset::NONE,
        last_sequence: -1,
        offset_delta: 0,
        coordinator_epoch: -1,
        epoch: ProducerEpoch::NONE,
        is_recent: false,
        at_work: None,
    };

    /// An entry as a snapshot holds it, with its last batch at most, which has the time of the entry.
    pub fn new(
        epoch: ProducerEpoch,
        coordinator_epoch: i32,
        last_timestamp: Timestamp,
        transaction_first_offset: Offset,
        last_batch: Option<SequencedBatch>,
    ) -> ProducerEntry {
        let mut entry = ProducerEntry { epoch, coordinator_epoch, last_timestamp, ..ProducerEntry::UNKNOWN };
        if let Some(batch) = last_batch {
            entry.put_last(&batch);
        }
        if transaction_first_offset >= Offset::ZERO {
            entry.begin_transaction(transaction_first_offset);
        }
        entry
    }

    /// The last batches, oldest first.
    pub fn batches(&self) -> impl Iterator<Item = SequencedBatch> + '_ {
        let earlier = self.at_work.as_deref().map_or(&[][..], AtWork::earlier);
        earlier.iter().copied().chain(self.last_batch())
    }

    pub fn last_batch(&self) -> Option<SequencedBatch> {
        (self.last_offset >= Offset::ZERO).then(|| SequencedBatch {
            last_sequence: self.last_sequence,
            last_offset: self.last_offset,
            offset_delta: self.offset_delta,
            timestamp: self.at_work.as_ref().map_or(self.last_timestamp, |work| work.batch_timestamp),
        })
    }

    /// `-1` when no batch is known, only a marker.
    pub fn last_sequence(&self) -> i32 {
        self.last_sequence
    }

    /// Of the open transaction; `-1` = none is open.
    pub fn transaction_first_offset(&self) -> Offset {
        self.at_work.as_ref().map_or(Offset::NONE, |work| work.transaction_first_offset)
    }

    pub fn has_transaction(&self) -> bool {
        self.transaction_first_offset() >= Offset::ZERO
    }

    pub(super) fn last_sign(&self) -> LastSign {
        LastSign { is_recent: self.is_recent, timestamp: self.last_timestamp }
    }

    pub(super) fn is_expired(&self, now: Timestamp, expiration_ms: i64) -> bool {
        !self.has_transaction() && now.since_ms(self.last_timestamp) >= expiration_ms
    }

    /// Whether a marker would be a repetition.
    pub(super) fn has_ended(&self, marker: &BatchHeader, rule: MarkerRule) -> bool {
        match rule {
            MarkerRule::AnyEpoch => false,
            MarkerRule::MayRepeat | MarkerRule::NewEpoch => {
                self.epoch == marker.producer_epoch && !self.has_transaction()
            }
        }
    }

    pub(super) fn duplicate_of(&self, batch: &BatchHeader) -> Option<SequencedBatch> {
        if batch.producer_epoch != self.epoch {
            return None;
        }
        let sequences = (batch.base_sequence, batch.last_sequence());
        self.batches().find(|known| (known.first_sequence(), known.last_sequence) == sequences)
    }

    /// Followers take what their leader took.
    pub(super) fn check_epoch(&self, batch: &BatchHeader, origin: AppendOrigin) -> Result<(), ProducerError> {
        let (producer_id, epoch, known) = (batch.producer_id, batch.producer_epoch, self.epoch);
        let is_allowed = origin == AppendOrigin::Replication || epoch >= known;
        ensure!(is_allowed, InvalidProducerEpochSnafu { producer_id, epoch, known });
        Ok(())
    }

    /// `lowest_waiting`: of the batches whose transaction is being verified, none above may come first.
    pub(super) fn check_sequence(
        &self,
        batch: &BatchHeader,
        lowest_waiting: Option<i32>,
    ) -> Result<(), ProducerError> {
        let (producer_id, sequence) = (batch.producer_id, batch.base_sequence);
        if let Some(last_sequence) = lowest_waiting {
            let is_first = sequence <= last_sequence;
            ensure!(is_first, OutOfOrderSequenceSnafu { producer_id, sequence, last_sequence });
        }
        // A producer that expired, or was deleted with its records, goes on where it was.
        if self.epoch == ProducerEpoch::NONE {
            return Ok(());
        }
        if batch.producer_epoch != self.epoch {
            let (epoch, known) = (batch.producer_epoch, self.epoch);
            ensure!(sequence == 0, NewEpochNotAtZeroSnafu { producer_id, epoch, sequence, known });
            return Ok(());
        }
        let last_sequence = self.last_sequence;
        let is_next = i64::from(sequence) == i64::from(last_sequence) + 1
            || (sequence == 0 && last_sequence == i32::MAX);
        ensure!(is_next, OutOfOrderSequenceSnafu { producer_id, sequence, last_sequence });
        Ok(())
    }

    pub(super) fn add_batch(&mut self, batch: &BatchHeader) {
        self.set_epoch(batch.producer_epoch);
        if let Some(last) = self.last_batch() {
            self.at_work().push(last);
        }
        let batch = SequencedBatch {
            last_sequence: batch.last_sequence(),
            last_offset: batch.last_offset(),
            offset_delta: batch.last_offset_delta,
            timestamp: batch.max_timestamp,
        };
        self.put_last(&batch);
        self.last_timestamp = batch.timestamp;
        self.is_recent = true;
    }

    pub(super) fn begin_transaction(&mut self, first_offset: Offset) {
        self.at_work().transaction_first_offset = first_offset;
    }

    /// The transaction is over; a marker of another epoch begins that.
    pub(super) fn end_transaction(&mut self, marker: &BatchHeader, coordinator_epoch: i32) {
        self.set_epoch(marker.producer_epoch);
        self.coordinator_epoch = coordinator_epoch;
        if self.last_batch().is_some_and(|batch| batch.timestamp != marker.max_timestamp) {
            self.at_work();
        }
        self.last_timestamp = marker.max_timestamp;
        self.is_recent = true;
        if self.last_offset < Offset::ZERO {
            self.at_work = None;
        } else if let Some(work) = &mut self.at_work {
            work.transaction_first_offset = Offset::NONE;
        }
    }

    /// Called from time to time: a producer that wrote nothing since the last call is no longer at work, and only what
    /// a snapshot holds of it is kept.
    pub(super) fn settle(&mut self) {
        if !std::mem::take(&mut self.is_recent) && !self.has_transaction() {
            self.at_work = None;
        }
    }

    fn put_last(&mut self, batch: &SequencedBatch) {
        self.last_offset = batch.last_offset;
        self.last_sequence = batch.last_sequence;
        self.offset_delta = batch.offset_delta;
        if let Some(work) = &mut self.at_work {
            work.batch_timestamp = batch.timestamp;
        }
    }

    /// Sequences begin anew with an epoch.
    fn set_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.last_offset = Offset::NONE;
            self.last_sequence = -1;
            self.offset_delta = 0;
            if let Some(work) = &mut self.at_work {
                work.earlier_count = 0;
            }
        }
    }

    fn at_work(&mut self) -> &mut AtWork {
        let batch_timestamp = self.last_timestamp;
        self.at_work.get_or_insert_with(|| {
            Box::new(AtWork {
                transaction_first_offset: Offset::NONE,
                batch_timestamp,
                earlier: [SequencedBatch::NONE; EARLIER_KEPT],
                earlier_count: 0,
            })
        })
    }
}

impl AtWork {
    fn earlier(&self) -> &[SequencedBatch] {
        &self.earlier[..usize::from(self.earlier_count)]
    }

    fn push(&mut self, batch: SequencedBatch) {
        if usize::from(self.earlier_count) == EARLIER_KEPT {
            self.earlier.rotate_left(1);
        } else {
            self.earlier_count += 1;
        }
        self.earlier[usize::from(self.earlier_count) - 1] = batch;
    }
}

impl SequencedBatch {
    const NONE: SequencedBatch = SequencedBatch {
        last_sequence: -1,
        last_offset: Offset::NONE,
        offset_delta: 0,
        timestamp: Timestamp::NONE,
    };

    pub fn first_offset(&self) -> Offset {
        self.last_offset.plus(-i64::from(self.offset_delta))
    }

    /// Sequences wrap from 2^31-1 to 0.
    pub fn first_sequence(&self) -> i32 {
        if self.last_sequence < 0 {
            return self.last_sequence;
        }
        ((i64::from(self.last_sequence) - i64::from(self.offset_delta)) & i64::from(i32::MAX)) as i32
    }
}

/// A million idle producers are to take tens of megabytes: with its id an entry takes 48 bytes, and the tree that holds
/// it is half to wholly full.
const _: () = assert!(size_of::<(ProducerId, ProducerEntry)>() <= 48);
