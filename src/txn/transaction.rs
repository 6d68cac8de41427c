//! What is known of a transactional id, and every step it can take: the rules of Kafka's coordinator.
//!
//! A step is decided here and changes nothing: it gives the next state, which is stored first and then counts.

use std::collections::BTreeSet;

use super::TxnError;
use crate::model::{ProducerEpoch, ProducerId, Timestamp, TopicPartition};

/// The state of a transactional id, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transaction {
    pub producer_id: ProducerId,
    /// `-1` = nothing is stored yet.
    pub producer_epoch: ProducerEpoch,
    /// The id before this one, after one whose epochs were used up; else the same. `-1` = not known.
    pub previous_producer_id: ProducerId,
    /// The id that takes over when the end of the transaction is complete; `-1` = the same goes on.
    pub next_producer_id: ProducerId,
    /// The epoch before the last bump, so that a repeated bump is recognised (KIP-360). Not stored.
    pub last_producer_epoch: ProducerEpoch,
    pub timeout_ms: i32,
    pub state: TransactionState,
    /// Of the open transaction, or of the one that is being ended.
    pub partitions: BTreeSet<TopicPartition>,
    /// Of the last transaction; `-1` = there was none.
    pub start_timestamp: Timestamp,
    pub last_update_timestamp: Timestamp,
    /// The generation of the protocol in which the last transaction was begun or ended.
    pub client_version: TransactionVersion,
}

/// Where a transactional id stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransactionState {
    /// No transaction was begun since the producer was initialised.
    Empty,
    Ongoing,
    /// Decided to commit; partitions are being told.
    PrepareCommit,
    /// Decided to abort; partitions are being told.
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

/// Generations of the transaction protocol: levels of the feature `transaction.version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TransactionVersion {
    /// As in Kafka 3.
    #[default]
    Classic,
    /// Records of the coordinator may carry tagged fields.
    Flexible,
    /// The epoch grows with each end of a transaction, and partitions are added as they are written (KIP-890).
    EpochBump,
}

/// What follows from a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next state, to be stored.
    Store(Transaction),
    /// Nothing changes: the request was carried out before.
    Done,
    /// The step needs a producer id that nobody has: ask again with one.
    NeedsProducerId,
    Refuse(TxnError),
}

/// A producer asks for its transactional id's producer id and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    pub timeout_ms: i32,
    /// What the producer had, when it goes on after an error (KIP-360).
    pub expected: Option<(ProducerId, ProducerEpoch)>,
    /// For a new transactional id, or one whose epochs are used up.
    pub fresh_producer_id: Option<ProducerId>,
}

/// How a transaction is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub is_commit: bool,
    pub client_version: TransactionVersion,
    /// For a producer whose epochs are used up by this end.
    pub fresh_producer_id: Option<ProducerId>,
}

impl TransactionState {
    pub const ALL: [TransactionState; 6] = [
        TransactionState::Empty,
        TransactionState::Ongoing,
        TransactionState::PrepareCommit,
        TransactionState::PrepareAbort,
        TransactionState::CompleteCommit,
        TransactionState::CompleteAbort,
    ];

    /// The name that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            TransactionState::Empty => "Empty",
            TransactionState::Ongoing => "Ongoing",
            TransactionState::PrepareCommit => "PrepareCommit",
            TransactionState::PrepareAbort => "PrepareAbort",
            TransactionState::CompleteCommit => "CompleteCommit",
            TransactionState::CompleteAbort => "CompleteAbort",
        }
    }

    /// Whether the end is decided and not all partitions know of it.
    pub fn is_prepared(self) -> bool {
        matches!(self, TransactionState::PrepareCommit | TransactionState::PrepareAbort)
    }

    pub(super) fn may_follow(self, before: TransactionState) -> bool {
        use TransactionState::*;
        match self {
            Empty => matches!(before, Empty | CompleteCommit | CompleteAbort),
            Ongoing => matches!(before, Ongoing | Empty | CompleteCommit | CompleteAbort),
            PrepareCommit => before == Ongoing,
            // Not from Ongoing only: with epoch bumps a producer may abort what it did not begin.
            PrepareAbort => matches!(before, Ongoing | Empty | CompleteCommit | CompleteAbort),
            CompleteCommit => before == PrepareCommit,
            CompleteAbort => before == PrepareAbort,
        }
    }
}

impl TransactionVersion {
    /// The level of the feature; unknown ones are read as the nearest known.
    pub fn from_level(level: i16) -> TransactionVersion {
        match level {
            ..=0 => TransactionVersion::Classic,
            1 => TransactionVersion::Flexible,
            2.. => TransactionVersion::EpochBump,
        }
    }

    pub fn level(self) -> i16 {
        match self {
            TransactionVersion::Classic => 0,
            TransactionVersion::Flexible => 1,
            TransactionVersion::EpochBump => 2,
        }
    }

    pub fn bumps_epochs(self) -> bool {
        self == TransactionVersion::EpochBump
    }
}

/// The last epoch that a client may get: the one after it is for fencing.
const EPOCH_EXHAUSTED: i16 = i16::MAX - 1;

impl Transaction {
    /// A transactional id that nothing is known of, before its first epoch is given out.
    pub fn unknown(producer_id: ProducerId, timeout_ms: i32, now: Timestamp) -> Transaction {
        Transaction {
            producer_id,
            producer_epoch: ProducerEpoch::NONE,
            previous_producer_id: ProducerId::NONE,
            next_producer_id: ProducerId::NONE,
            last_producer_epoch: ProducerEpoch::NONE,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: BTreeSet::new(),
            start_timestamp: Timestamp::NONE,
            last_update_timestamp: now,
            client_version: TransactionVersion::Classic,
        }
    }

    fn is_epoch_exhausted(&self) -> bool {
        self.producer_epoch.0 >= EPOCH_EXHAUSTED
    }

    fn next_epoch(&self) -> ProducerEpoch {
        ProducerEpoch(self.producer_epoch.0.saturating_add(1))
    }

    /// Gives the producer an epoch that fences whoever used the transactional id before. An open transaction
    /// is aborted first, and the producer has to come again.
    pub fn init(&self, init: &Init, server_version: TransactionVersion, now: Timestamp) -> Step {
        if init.expected.is_some_and(|expected| !self.is_valid_expectation(expected)) {
            return Step::Refuse(TxnError::ProducerFenced);
        }
        match self.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                Step::Refuse(TxnError::ConcurrentTransactions)
            }
            TransactionState::Ongoing => Step::Store(self.fence(server_version, now)),
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort => {
                self.begin_epoch(init, now)
            }
        }
    }

    /// A producer that goes on must be the one of this id, or repeat the bump of its last epoch.
    fn is_valid_expectation(&self, (producer_id, epoch): (ProducerId, ProducerEpoch)) -> bool {
        self.producer_epoch == ProducerEpoch::NONE
            || producer_id == self.producer_id
            || (producer_id == self.previous_producer_id && epoch.0 >= EPOCH_EXHAUSTED)
    }

    fn begin_epoch(&self, init: &Init, now: Timestamp) -> Step {
        let expected_epoch = init.expected.map(|(_, epoch)| epoch);
        let begun = |producer_id, producer_epoch, last_producer_epoch| {
            Step::Store(Transaction {
                producer_id,
                producer_epoch,
                previous_producer_id: self.producer_id,
                next_producer_id: ProducerId::NONE,
                last_producer_epoch,
                timeout_ms: init.timeout_ms,
                state: TransactionState::Empty,
                partitions: BTreeSet::new(),
                start_timestamp: Timestamp::NONE,
                last_update_timestamp: now,
                client_version: self.client_version,
            })
        };
        if self.is_epoch_exhausted() && expected_epoch.is_none_or(|epoch| epoch == self.producer_epoch) {
            let Some(producer_id) = init.fresh_producer_id else { return Step::NeedsProducerId };
            let last_epoch = expected_epoch.map_or(ProducerEpoch::NONE, |_| self.producer_epoch);
            return begun(producer_id, ProducerEpoch(0), last_epoch);
        }
        match expected_epoch {
            None => begun(self.producer_id, self.next_epoch(), ProducerEpoch::NONE),
            Some(epoch) if self.producer_epoch == ProducerEpoch::NONE || epoch == self.producer_epoch => {
                begun(self.producer_id, self.next_epoch(), self.producer_epoch)
            }
            // The answer to the bump was lost: it is given again.
            Some(epoch) if epoch == self.last_producer_epoch => {
                begun(self.producer_id, self.producer_epoch, self.last_producer_epoch)
            }
            Some(_) => Step::Refuse(TxnError::ProducerFenced),
        }
    }

    /// Aborts the open transaction under an epoch that its producer does not have.
    pub fn fence(&self, server_version: TransactionVersion, now: Timestamp) -> Transaction {
        Transaction {
            producer_epoch: self.next_epoch(),
            previous_producer_id: self.producer_id,
            last_producer_epoch: ProducerEpoch::NONE,
            state: TransactionState::PrepareAbort,
            last_update_timestamp: now,
            client_version: server_version,
            ..self.clone()
        }
    }

    pub fn add_partitions(
        &self,
        producer: (ProducerId, ProducerEpoch),
        partitions: &BTreeSet<TopicPartition>,
        client_version: TransactionVersion,
        now: Timestamp,
    ) -> Step {
        if let Err(error) = self.check_producer(producer) {
            return Step::Refuse(error);
        }
        if self.state == TransactionState::Ongoing && partitions.is_subset(&self.partitions) {
            return Step::Done;
        }
        let mut next = Transaction {
            previous_producer_id: self.producer_id,
            last_update_timestamp: now,
            client_version,
            ..self.clone()
        };
        if self.state != TransactionState::Ongoing {
            next.state = TransactionState::Ongoing;
            next.start_timestamp = now;
        }
        next.partitions.extend(partitions.iter().cloned());
        Step::Store(next)
    }

    /// Whether the producer may write to the partition as part of its open transaction.
    pub fn verify(
        &self,
        producer: (ProducerId, ProducerEpoch),
        topic_partition: &TopicPartition,
    ) -> Result<(), TxnError> {
        self.check_producer(producer)?;
        // The partitions of a transaction that has ended are forgotten.
        if self.partitions.contains(topic_partition) { Ok(()) } else { Err(TxnError::TransactionAbortable) }
    }

    fn check_producer(&self, (producer_id, epoch): (ProducerId, ProducerEpoch)) -> Result<(), TxnError> {
        // The end was answered with the id that takes over, and its client does not wait for the partitions.
        let is_early = self.state.is_prepared() && self.next_producer_id == producer_id;
        if is_early && (producer_id, epoch) == self.producer_after_end() {
            return Err(TxnError::ConcurrentTransactions);
        }
        if producer_id != self.producer_id {
            return Err(TxnError::InvalidProducerIdMapping);
        }
        if epoch != self.producer_epoch {
            return Err(TxnError::ProducerFenced);
        }
        if self.state.is_prepared() {
            return Err(TxnError::ConcurrentTransactions);
        }
        Ok(())
    }

    /// Decides the transaction, as its producer wishes.
    pub fn end(&self, end: &End, now: Timestamp) -> Step {
        if end.client_version.bumps_epochs() {
            self.end_and_bump(end, now)
        } else {
            self.end_classic(end, now)
        }
    }

    fn end_classic(&self, end: &End, now: Timestamp) -> Step {
        if end.producer_id != self.producer_id {
            return Step::Refuse(TxnError::InvalidProducerIdMapping);
        }
        if end.producer_epoch != self.producer_epoch {
            return Step::Refuse(TxnError::ProducerFenced);
        }
        match (self.state, end.is_commit) {
            (TransactionState::Ongoing, _) => Step::Store(self.decided(end, now)),
            (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false) => Step::Done,
            (TransactionState::PrepareCommit, true) | (TransactionState::PrepareAbort, false) => {
                Step::Refuse(TxnError::ConcurrentTransactions)
            }
            _ => Step::Refuse(TxnError::InvalidTxnState),
        }
    }

    /// As the epoch grows with each end, it tells a repeated end from the end of the next transaction.
    fn end_and_bump(&self, end: &End, now: Timestamp) -> Step {
        let is_repeated = self.producer_id == end.producer_id
            && i32::from(self.producer_epoch.0) == i32::from(end.producer_epoch.0) + 1;
        let is_repeated_over_ids = self.previous_producer_id == end.producer_id
            && self.previous_producer_id != self.producer_id
            && end.producer_epoch.0 == EPOCH_EXHAUSTED
            && self.producer_epoch.0 == 0;
        if end.producer_id != self.producer_id && !is_repeated_over_ids {
            return Step::Refuse(TxnError::InvalidProducerIdMapping);
        }
        let is_current = end.producer_id == self.producer_id && end.producer_epoch == self.producer_epoch;
        let is_valid = match self.state {
            TransactionState::Ongoing | TransactionState::Empty => is_current,
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => is_repeated,
            TransactionState::CompleteCommit | TransactionState::CompleteAbort => {
                is_current || is_repeated || is_repeated_over_ids
            }
        };
        if !is_valid {
            return Step::Refuse(TxnError::ProducerFenced);
        }
        match (self.state, end.is_commit) {
            (TransactionState::Ongoing, _) | (TransactionState::Empty, false) => self.decide(end, now),
            (TransactionState::Empty, true) => Step::Refuse(TxnError::InvalidTxnState),
            (TransactionState::PrepareCommit, true) | (TransactionState::PrepareAbort, false) => {
                Step::Refuse(TxnError::ConcurrentTransactions)
            }
            (TransactionState::PrepareCommit, false) | (TransactionState::PrepareAbort, true) => {
                Step::Refuse(TxnError::InvalidTxnState)
            }
            (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false)
                if !is_current =>
            {
                Step::Done
            }
            (TransactionState::CompleteCommit | TransactionState::CompleteAbort, false) if is_current => {
                self.decide(end, now)
            }
            (TransactionState::CompleteCommit | TransactionState::CompleteAbort, _) => {
                Step::Refuse(TxnError::InvalidTxnState)
            }
        }
    }

    fn decide(&self, end: &End, now: Timestamp) -> Step {
        if self.is_epoch_exhausted() && end.fresh_producer_id.is_none() {
            return Step::NeedsProducerId;
        }
        Step::Store(self.decided(end, now))
    }

    fn decided(&self, end: &End, now: Timestamp) -> Transaction {
        let mut next = Transaction {
            previous_producer_id: self.producer_id,
            state: if end.is_commit {
                TransactionState::PrepareCommit
            } else {
                TransactionState::PrepareAbort
            },
            last_update_timestamp: now,
            client_version: end.client_version,
            ..self.clone()
        };
        if end.client_version.bumps_epochs() {
            if self.is_epoch_exhausted() {
                next.next_producer_id = end.fresh_producer_id.unwrap_or(ProducerId::NONE);
            }
            next.producer_epoch = self.next_epoch();
            next.last_producer_epoch = self.producer_epoch;
            if self.state != TransactionState::Ongoing {
                next.start_timestamp = now;
            }
        }
        next
    }

    /// The state after all partitions know of the end. Only for prepared ones.
    pub fn completed(&self, now: Timestamp) -> Transaction {
        let state = match self.state {
            TransactionState::PrepareCommit => TransactionState::CompleteCommit,
            _ => TransactionState::CompleteAbort,
        };
        let (producer_id, producer_epoch) = self.producer_after_end();
        Transaction {
            producer_id,
            producer_epoch,
            previous_producer_id: self.producer_id,
            next_producer_id: ProducerId::NONE,
            state,
            partitions: BTreeSet::new(),
            last_update_timestamp: now,
            ..self.clone()
        }
    }

    /// What a producer goes on with, once the end is complete.
    pub fn producer_after_end(&self) -> (ProducerId, ProducerEpoch) {
        if self.next_producer_id == ProducerId::NONE {
            (self.producer_id, self.producer_epoch)
        } else {
            (self.next_producer_id, ProducerEpoch(0))
        }
    }

    /// Whether it has been open for longer than its producer allowed.
    pub fn is_timed_out(&self, now: Timestamp) -> bool {
        // A transaction in two phases is open for as long as its producer wants.
        self.state == TransactionState::Ongoing
            && self.timeout_ms != i32::MAX
            && now.since_ms(self.start_timestamp) > i64::from(self.timeout_ms)
    }

    /// Whether nobody has used the transactional id for so long that it is forgotten.
    pub fn is_expired(&self, now: Timestamp, expiration_ms: i64) -> bool {
        let is_idle = match self.state {
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort => {
                true
            }
            TransactionState::Ongoing | TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                false
            }
        };
        is_idle && now.since_ms(self.last_update_timestamp) >= expiration_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client of the new id may be quicker than the markers of its last transaction.
    #[test]
    fn the_id_that_takes_over_comes_again_until_the_end_is_complete() {
        let (old, new) = (ProducerId(7), ProducerId(8));
        let last = (old, ProducerEpoch(EPOCH_EXHAUSTED));
        let open = Transaction {
            producer_epoch: last.1,
            state: TransactionState::Ongoing,
            client_version: TransactionVersion::EpochBump,
            ..Transaction::unknown(old, 60_000, Timestamp(0))
        };
        let end = End {
            producer_id: last.0,
            producer_epoch: last.1,
            is_commit: true,
            client_version: TransactionVersion::EpochBump,
            fresh_producer_id: None,
        };
        assert_eq!(open.end(&end, Timestamp(1)), Step::NeedsProducerId);
        let Step::Store(decided) = open.end(&End { fresh_producer_id: Some(new), ..end }, Timestamp(1))
        else {
            panic!("not decided")
        };
        let next = (new, ProducerEpoch(0));
        assert_eq!(decided.producer_after_end(), next);
        assert_eq!(decided.check_producer(next), Err(TxnError::ConcurrentTransactions));
        assert_eq!(decided.check_producer(last), Err(TxnError::ProducerFenced));
        let later = (new, ProducerEpoch(1));
        assert_eq!(decided.check_producer(later), Err(TxnError::InvalidProducerIdMapping));
        assert_eq!(decided.completed(Timestamp(2)).check_producer(next), Ok(()));
    }
}
