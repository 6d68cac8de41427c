use std::collections::{BTreeMap, HashMap};

use snafu::{Snafu, ensure};

use crate::model::{Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::records::{AppendOrigin, BatchHeader, EndTransaction, TransactionMarker};

use super::producer_entry::{LastSign, ProducerEntry, SequencedBatch};

/// What a partition knows of its idempotent and transactional producers.
///
/// Pure. An append goes in two steps, so that a write that fails between them leaves no trace:
/// [`check`](ProducerState::check) each batch into a [`ProducerAppend`], write, then
/// [`apply`](ProducerState::apply) it. The last stable offset is the
/// [first unstable one](ProducerState::first_unstable_offset), where there is one, or the high watermark.
#[derive(Debug, Default)]
pub struct ProducerState {
    /// A tree grows in small steps, however many there are, and has no hash that clients could aim at.
    producers: BTreeMap<ProducerId, ProducerEntry>,
    /// Open transactions by the offset of their first record.
    ongoing: BTreeMap<Offset, ProducerId>,
    /// Ended transactions whose marker may not be replicated yet: first record to marker.
    unreplicated: BTreeMap<Offset, Offset>,
    // Clients choose producer ids, so this map keeps the standard hasher.
    verifications: HashMap<ProducerId, Verification>,
    last_guard: u64,
    end_offset: Offset,
}

/// Proof that the transaction coordinator knows of the transaction that a batch would open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerificationGuard(u64);

#[derive(Clone, Copy, Debug)]
struct Verification {
    guard: VerificationGuard,
    since: Timestamp,
    /// Of the batches that wait for it: none above it may come first.
    lowest_sequence: i32,
    epoch: ProducerEpoch,
}

/// How a batch came, as far as producers are concerned.
#[derive(Clone, Copy, Debug)]
pub struct ProducerRules {
    pub origin: AppendOrigin,
    /// `transaction.partition.verification.enable`: a transaction may only be opened with a guard.
    pub needs_verification: bool,
    pub guard: Option<VerificationGuard>,
    pub marker: MarkerRule,
}

/// What is expected of the marker that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerRule {
    /// Its epoch is the producer's, or a later one that fences it. It is written also where nothing is open.
    AnyEpoch,
    /// As before, but it may have been written already: where the producer has its epoch and nothing open, it
    /// is not written again.
    MayRepeat,
    /// Each end of a transaction has an epoch of its own (KIP-890), so that the producer's own is a repetition.
    NewEpoch,
}

impl From<AppendOrigin> for ProducerRules {
    /// Without the proof that transactions are known to their coordinator.
    fn from(origin: AppendOrigin) -> ProducerRules {
        ProducerRules { origin, needs_verification: false, guard: None, marker: MarkerRule::AnyEpoch }
    }
}

/// What became of a checked batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It may be written.
    Accepted,
    /// It was written before: answer with where. Nothing is to be written.
    Duplicate(SequencedBatch),
    /// The transaction that the marker ends has ended. Nothing is to be written.
    AlreadyEnded,
}

/// Checked batches that are not written yet. Dropping it undoes them.
#[derive(Debug, Default)]
pub struct ProducerAppend {
    entries: Vec<(ProducerId, ProducerEntry)>,
    started: Vec<(Offset, ProducerId)>,
    completed: Vec<CompletedTransaction>,
    verified: Vec<ProducerId>,
    end_offset: Option<Offset>,
}

/// A transaction without a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// Of its first record.
    pub first_offset: Offset,
    /// Of its producer's last batch.
    pub last_timestamp: Timestamp,
}

/// How much a [`ProducerAppend`] held at some moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppendMark {
    entries: usize,
    started: usize,
    completed: usize,
    verified: usize,
    end_offset: Option<Offset>,
}

/// A transaction whose marker was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    /// Of the marker.
    pub last_offset: Offset,
    pub is_aborted: bool,
    /// What the transaction index notes of an aborted one: the first offset of the next open transaction,
    /// or the offset after the marker.
    pub last_stable_offset: Offset,
}

/// Why a producer's batch is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum ProducerError {
    /// INVALID_PRODUCER_EPOCH
    #[snafu(display(
        "Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {known}"
    ))]
    InvalidProducerEpoch { producer_id: ProducerId, epoch: ProducerEpoch, known: ProducerEpoch },

    /// OUT_OF_ORDER_SEQUENCE_NUMBER
    #[snafu(display(
        "Out of order sequence number for producer {producer_id}: {sequence} (incoming seq. number), {last_sequence} \
         (current end sequence number)"
    ))]
    OutOfOrderSequence { producer_id: ProducerId, sequence: i32, last_sequence: i32 },

    /// OUT_OF_ORDER_SEQUENCE_NUMBER
    #[snafu(display(
        "Invalid sequence number for new epoch of producer {producer_id}: {epoch} (request epoch), {sequence} (seq. \
         number), {known} (current producer epoch)"
    ))]
    NewEpochNotAtZero { producer_id: ProducerId, epoch: ProducerEpoch, sequence: i32, known: ProducerEpoch },

    /// INVALID_TXN_STATE
    #[snafu(display("Expected transactional write from producer {producer_id}"))]
    NotTransactional { producer_id: ProducerId },

    /// INVALID_TXN_STATE
    #[snafu(display("Record was not part of an ongoing transaction"))]
    NotVerified { producer_id: ProducerId },

    /// TRANSACTION_COORDINATOR_FENCED
    #[snafu(display(
        "Invalid coordinator epoch for producerId {producer_id}: {epoch} (zombie), {known} (current)"
    ))]
    CoordinatorFenced { producer_id: ProducerId, epoch: i32, known: i32 },
}

impl ProducerState {
    /// State as a snapshot at `end_offset` holds it, without the producers that have expired since.
    pub fn load(
        entries: impl IntoIterator<Item = (ProducerId, ProducerEntry)>,
        end_offset: Offset,
        now: Timestamp,
        expiration_ms: i64,
    ) -> ProducerState {
        let mut state = ProducerState { end_offset, ..ProducerState::default() };
        for (producer_id, entry) in entries {
            if entry.is_expired(now, expiration_ms) {
                continue;
            }
            if entry.has_transaction() {
                state.ongoing.insert(entry.transaction_first_offset(), producer_id);
            }
            state.producers.insert(producer_id, entry);
        }
        state
    }

    /// Checks the next batch of an append, after those that `append` holds already.
    ///
    /// `batch` has its final offsets. `end` is what a control batch says, `None` for data and for one that
    /// marks no transaction. On an error `append` is as it was.
    pub fn check(
        &self,
        append: &mut ProducerAppend,
        batch: &BatchHeader,
        end: Option<EndTransaction>,
        rules: &ProducerRules,
    ) -> Result<Checked, ProducerError> {
        if batch.has_producer_id() {
            let known = append.entry(batch.producer_id).or_else(|| self.producers.get(&batch.producer_id));
            let known = known.cloned();
            if rules.origin == AppendOrigin::Client
                && let Some(earlier) = known.as_ref().and_then(|entry| entry.duplicate_of(batch))
            {
                return Ok(Checked::Duplicate(earlier));
            }
            self.check_transaction_is_known(known.as_ref(), batch, rules)?;
            let entry = known.unwrap_or(ProducerEntry::UNKNOWN);
            match end {
                Some(_) if entry.has_ended(batch, rules.marker) => return Ok(Checked::AlreadyEnded),
                Some(end) => append.take_marker(entry, batch, end, rules)?,
                None if batch.attributes.is_control() => {}
                None => {
                    // One that was begun for a late batch of an earlier epoch holds nobody back.
                    let verification = self.verifications.get(&batch.producer_id);
                    let verification = verification.filter(|of| of.epoch == batch.producer_epoch);
                    let lowest_waiting = verification.map(|verification| verification.lowest_sequence);
                    append.take_data(entry, batch, lowest_waiting, rules.origin)?;
                }
            }
            // Where each end has an epoch of its own, its marker has the epoch of the next transaction, whose first
            // write may be waiting already.
            let waits_for_next = end.is_some()
                && rules.marker == MarkerRule::NewEpoch
                && self
                    .verifications
                    .get(&batch.producer_id)
                    .is_some_and(|of| of.epoch >= batch.producer_epoch);
            if batch.attributes.is_transactional() && !waits_for_next {
                append.verified.push(batch.producer_id);
            }
        }
        append.end_offset = Some(batch.next_offset());
        Ok(Checked::Accepted)
    }

    /// A transaction may only be opened when its coordinator knows of it (KIP-890).
    fn check_transaction_is_known(
        &self,
        known: Option<&ProducerEntry>,
        batch: &BatchHeader,
        rules: &ProducerRules,
    ) -> Result<(), ProducerError> {
        // What an earlier epoch has open is another transaction.
        let is_ongoing =
            known.is_some_and(|known| known.has_transaction() && known.epoch == batch.producer_epoch);
        if rules.origin == AppendOrigin::Replication || !batch.attributes.is_transactional() || is_ongoing {
            return Ok(());
        }
        let producer_id = batch.producer_id;
        if let Some(known) = known {
            known.check_epoch(batch, rules.origin)?;
        }
        let guard = self.verifications.get(&producer_id).map(|verification| verification.guard);
        let is_verified = rules.guard.is_some() && rules.guard == guard;
        ensure!(
            !rules.needs_verification || batch.attributes.is_control() || is_verified,
            NotVerifiedSnafu { producer_id }
        );
        Ok(())
    }

    /// Takes over what was written; returns the transactions that it ended, in order.
    pub fn apply(&mut self, append: ProducerAppend) -> Vec<CompletedTransaction> {
        self.producers.extend(append.entries);
        self.ongoing.extend(append.started);
        for producer_id in append.verified {
            self.verifications.remove(&producer_id);
        }
        let mut completed = append.completed;
        complete(&mut self.ongoing, &mut completed);
        for transaction in &completed {
            self.unreplicated.insert(transaction.first_offset, transaction.last_offset);
        }
        if let Some(end_offset) = append.end_offset {
            self.end_offset = end_offset;
        }
        completed
    }

    /// The aborted ones of the transactions that [`apply`](Self::apply) will return, before anything is written.
    pub fn aborted_by(&self, append: &ProducerAppend) -> Vec<CompletedTransaction> {
        // Few appends abort anything: only those pay for a copy of what is open.
        if !append.completed.iter().any(|transaction| transaction.is_aborted) {
            return Vec::new();
        }
        let (mut ongoing, mut aborted) = (self.ongoing.clone(), append.completed.clone());
        ongoing.extend(append.started.iter().copied());
        complete(&mut ongoing, &mut aborted);
        aborted.retain(|transaction| transaction.is_aborted);
        aborted
    }

    /// The offset up to which batches were applied: where a snapshot of this state belongs.
    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }

    /// Where the oldest transaction begins that is open, or whose marker is not known to be replicated.
    /// The last stable offset is this, or the high watermark.
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        let ongoing = self.ongoing.keys().next();
        let unreplicated = self.unreplicated.keys().next();
        ongoing.into_iter().chain(unreplicated).min().copied()
    }

    /// Forgets ended transactions whose marker lies below the high watermark.
    pub fn advance_high_watermark(&mut self, high_watermark: Offset) {
        self.unreplicated.retain(|_, &mut marker| marker >= high_watermark);
    }

    /// The log now begins at `log_start_offset`. Producers stay: their sequences go on.
    pub fn advance_log_start(&mut self, log_start_offset: Offset) {
        self.advance_high_watermark(log_start_offset);
        self.end_offset = self.end_offset.max(log_start_offset);
    }

    /// Forgets everything: the log is empty and begins at `offset`.
    pub fn reset(&mut self, offset: Offset) {
        let last_guard = self.last_guard;
        *self = ProducerState { end_offset: offset, last_guard, ..ProducerState::default() };
    }

    /// Forgets producers without an open transaction that were silent for `expiration_ms`
    /// (`producer.id.expiration.ms`), and verifications as old. Returns how many producers went.
    pub fn remove_expired(&mut self, now: Timestamp, expiration_ms: i64) -> usize {
        let before = self.producers.len();
        self.producers.retain(|_, entry| !entry.is_expired(now, expiration_ms));
        self.verifications.retain(|_, verification| now.since_ms(verification.since) < expiration_ms);
        before - self.producers.len()
    }

    /// Gives back what producers hold that wrote nothing since the last call: only their last batch is known from
    /// then on, as after a restart.
    pub fn settle(&mut self) {
        self.producers.values_mut().for_each(ProducerEntry::settle);
    }

    /// Of everyone that [`forget`](ProducerState::forget) may forget.
    pub fn last_signs(&self) -> impl Iterator<Item = LastSign> + '_ {
        let idle = self.producers.values().filter(|entry| !entry.has_transaction());
        idle.map(ProducerEntry::last_sign).chain(self.verifications.values().map(Verification::last_sign))
    }

    /// Forgets producers without an open transaction, and verifications, that gave no sign after `until`. Returns how
    /// many went.
    pub fn forget(&mut self, until: LastSign) -> usize {
        let before = self.held();
        self.producers.retain(|_, entry| entry.has_transaction() || entry.last_sign() > until);
        self.verifications.retain(|_, verification| verification.last_sign() > until);
        before - self.held()
    }

    /// The producers and verifications that take memory.
    pub fn held(&self) -> usize {
        self.producers.len() + self.verifications.len()
    }

    /// The known producers, in the order of their ids.
    pub fn producers(&self) -> impl Iterator<Item = (ProducerId, &ProducerEntry)> {
        self.producers.iter().map(|(&producer_id, entry)| (producer_id, entry))
    }

    pub fn producer(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.producers.get(&producer_id)
    }

    pub fn producer_count(&self) -> usize {
        self.producers.len()
    }

    /// Whether the producer has a transaction open under this epoch.
    pub fn has_ongoing_transaction(&self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool {
        let known = self.producers.get(&producer_id);
        known.is_some_and(|known| known.has_transaction() && known.epoch == epoch)
    }

    /// The oldest one that is open, to tell whether it hangs.
    pub fn oldest_transaction(&self) -> Option<OpenTransaction> {
        let (&first_offset, &producer_id) = self.ongoing.first_key_value()?;
        let entry = self.producers.get(&producer_id)?;
        Some(OpenTransaction {
            producer_id,
            producer_epoch: entry.epoch,
            first_offset,
            last_timestamp: entry.last_timestamp,
        })
    }

    /// Notes that a batch waits until its transaction is verified with the coordinator.
    ///
    /// The batch is to be checked with the guard that this returns. `None`: the transaction is open already.
    pub fn begin_verification(
        &mut self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: i32,
        now: Timestamp,
    ) -> Option<VerificationGuard> {
        if self.has_ongoing_transaction(producer_id, epoch) {
            return None;
        }
        let last_guard = &mut self.last_guard;
        let verification = self.verifications.entry(producer_id).or_insert_with(|| {
            *last_guard += 1;
            let guard = VerificationGuard(*last_guard);
            Verification { guard, since: now, lowest_sequence: sequence, epoch }
        });
        if verification.epoch < epoch {
            verification.epoch = epoch;
            verification.lowest_sequence = sequence;
        } else if verification.epoch == epoch {
            verification.lowest_sequence = verification.lowest_sequence.min(sequence);
        }
        Some(verification.guard)
    }
}

impl Verification {
    fn last_sign(&self) -> LastSign {
        LastSign { is_recent: true, timestamp: self.since }
    }
}

impl ProducerAppend {
    /// To [rewind](Self::rewind) to.
    pub(super) fn mark(&self) -> AppendMark {
        AppendMark {
            entries: self.entries.len(),
            started: self.started.len(),
            completed: self.completed.len(),
            verified: self.verified.len(),
            end_offset: self.end_offset,
        }
    }

    /// Undoes the batches that were checked since. They are of producers that had none in it then.
    pub(super) fn rewind(&mut self, mark: AppendMark) {
        self.entries.truncate(mark.entries);
        self.started.truncate(mark.started);
        self.completed.truncate(mark.completed);
        self.verified.truncate(mark.verified);
        self.end_offset = mark.end_offset;
    }

    fn entry(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.entries.iter().find(|(known, _)| *known == producer_id).map(|(_, entry)| entry)
    }

    fn put(&mut self, producer_id: ProducerId, entry: ProducerEntry) {
        match self.entries.iter_mut().find(|(known, _)| *known == producer_id) {
            Some((_, known)) => *known = entry,
            None => self.entries.push((producer_id, entry)),
        }
    }

    fn take_data(
        &mut self,
        mut entry: ProducerEntry,
        batch: &BatchHeader,
        lowest_waiting: Option<i32>,
        origin: AppendOrigin,
    ) -> Result<(), ProducerError> {
        let producer_id = batch.producer_id;
        let is_transactional = batch.attributes.is_transactional();
        entry.check_epoch(batch, origin)?;
        if origin == AppendOrigin::Client {
            entry.check_sequence(batch, lowest_waiting)?;
        }
        ensure!(!entry.has_transaction() || is_transactional, NotTransactionalSnafu { producer_id });
        entry.add_batch(batch);
        if is_transactional && !entry.has_transaction() {
            entry.begin_transaction(batch.base_offset);
            self.started.push((batch.base_offset, producer_id));
        }
        self.put(producer_id, entry);
        Ok(())
    }

    fn take_marker(
        &mut self,
        mut entry: ProducerEntry,
        batch: &BatchHeader,
        end: EndTransaction,
        rules: &ProducerRules,
    ) -> Result<(), ProducerError> {
        let producer_id = batch.producer_id;
        entry.check_epoch(batch, rules.origin)?;
        ensure!(
            rules.marker != MarkerRule::NewEpoch || batch.producer_epoch > entry.epoch,
            InvalidProducerEpochSnafu { producer_id, epoch: batch.producer_epoch, known: entry.epoch }
        );
        ensure!(
            rules.origin == AppendOrigin::Replication || end.coordinator_epoch >= entry.coordinator_epoch,
            CoordinatorFencedSnafu {
                producer_id,
                epoch: end.coordinator_epoch,
                known: entry.coordinator_epoch
            }
        );
        if entry.has_transaction() {
            self.completed.push(CompletedTransaction {
                producer_id,
                first_offset: entry.transaction_first_offset(),
                last_offset: batch.base_offset,
                is_aborted: end.marker == TransactionMarker::Abort,
                last_stable_offset: batch.next_offset(),
            });
        }
        entry.end_transaction(batch, end.coordinator_epoch);
        self.put(producer_id, entry);
        Ok(())
    }
}

/// Takes ended transactions, in order, out of those that are open, and notes where the next open one begins after each.
fn complete(ongoing: &mut BTreeMap<Offset, ProducerId>, completed: &mut [CompletedTransaction]) {
    for transaction in completed {
        // A follower may hear of the same producer's next transaction in the same append.
        ongoing.remove(&transaction.first_offset);
        transaction.last_stable_offset =
            ongoing.keys().next().copied().unwrap_or(transaction.last_offset.plus(1));
    }
}

#[cfg(test)]
mod tests;
