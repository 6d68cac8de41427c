use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::messages::{
    AddPartitions, EndDecided, EndTransaction, ListedTransaction, Overdue, PendingWrite,
    TransactionDescription, TxnCommand, TxnEvent, TxnReply, VerifyPartitions, WriteKind,
};
use super::records::{self, TxnRecord};
use super::transaction::{End, Init, Step, Transaction, TransactionVersion};
use super::{TransactionalId, TxnError, TxnOptions};
use crate::coordinator::{Deadline, EncodedRecord, Now, Outcome, Replayed, ReplyToken, Shard, WriteError};
use crate::model::{Offset, ProducerEpoch, ProducerId};

/// The transactional ids of one partition of `__transaction_state`.
#[derive(Debug)]
pub(super) struct TxnShard {
    options: Arc<TxnOptions>,
    version: TransactionVersion,
    entries: HashMap<TransactionalId, Entry>,
    /// Ends whose completion could not be stored, to be stored again.
    incomplete: Vec<TransactionalId>,
    next_retry: Option<Deadline>,
    next_timeout_check: Option<Deadline>,
    next_expiration_check: Option<Deadline>,
    /// Records that could not be read while the shard was loaded.
    skipped_records: u64,
}

#[derive(Debug)]
struct Entry {
    transaction: Transaction,
    /// A next state is on its way to the log; nothing else may be decided meanwhile.
    is_pending: bool,
    /// Where the client came from that began the open transaction.
    client_host: Option<Arc<str>>,
}

/// Pause before a completion that could not be stored is stored again.
const RETRY_MS: i64 = 100;
/// An end that some partition has not heard of after this time is reported.
const HANGING_MS: i64 = 60_000;

impl TxnShard {
    pub fn new(options: Arc<TxnOptions>, version: TransactionVersion) -> TxnShard {
        TxnShard {
            options,
            version,
            entries: HashMap::new(),
            incomplete: Vec::new(),
            next_retry: None,
            next_timeout_check: None,
            next_expiration_check: None,
            skipped_records: 0,
        }
    }

    /// The entry, if nothing is on its way for it.
    fn settled(&self, transactional_id: &TransactionalId) -> Result<&Entry, TxnError> {
        let entry = self.entries.get(transactional_id).ok_or(TxnError::InvalidProducerIdMapping)?;
        if entry.is_pending { Err(TxnError::ConcurrentTransactions) } else { Ok(entry) }
    }

    /// Gives a state to the log.
    fn store(
        &mut self,
        transactional_id: &TransactionalId,
        next: Option<Transaction>,
        pending: PendingWrite,
        out: &mut Outcome<Self>,
    ) {
        if let Some(entry) = self.entries.get_mut(transactional_id) {
            let before = entry.transaction.state;
            let is_legal = next.as_ref().is_none_or(|next| next.state.may_follow(before));
            assert!(is_legal, "a transaction cannot go from {before:?} to {next:?}");
            assert!(!entry.is_pending, "two states of {transactional_id} are on their way");
            entry.is_pending = true;
        }
        let record = TxnRecord {
            transactional_id: transactional_id.clone(),
            transaction: next,
            version: self.version,
        };
        out.write(vec![record], pending);
    }

    fn init(
        &mut self,
        transactional_id: TransactionalId,
        init: Init,
        token: ReplyToken,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        if !self.entries.contains_key(&transactional_id) {
            let Some(producer_id) = init.fresh_producer_id else {
                return out.reply(token, TxnReply::NeedsProducerId);
            };
            let transaction = Transaction::unknown(producer_id, init.timeout_ms, now.timestamp);
            let entry = Entry { transaction, is_pending: false, client_host: None };
            self.entries.insert(transactional_id.clone(), entry);
        }
        let step = match self.settled(&transactional_id) {
            Ok(entry) => entry.transaction.init(&init, self.version, now.timestamp),
            Err(error) => Step::Refuse(error),
        };
        match step {
            Step::Store(next) => {
                let kind = if next.state.is_prepared() { WriteKind::Fence } else { WriteKind::Init };
                self.store(&transactional_id, Some(next), PendingWrite { kind, answer: Some(token) }, out);
            }
            Step::NeedsProducerId => out.reply(token, TxnReply::NeedsProducerId),
            Step::Refuse(error) => out.reply(token, TxnReply::Producer(Err(error))),
            Step::Done => unreachable!("an epoch is given out or refused"),
        }
    }

    fn add_partitions(
        &mut self,
        request: AddPartitions,
        token: ReplyToken,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        let producer = (request.producer_id, request.producer_epoch);
        let step = match self.settled(&request.transactional_id) {
            Ok(entry) => entry.transaction.add_partitions(
                producer,
                &request.partitions,
                request.client_version,
                now.timestamp,
            ),
            Err(error) => Step::Refuse(error),
        };
        match step {
            Step::Store(next) => {
                let kind = WriteKind::AddPartitions;
                self.store(
                    &request.transactional_id,
                    Some(next),
                    PendingWrite { kind, answer: Some(token) },
                    out,
                );
                if let Some(entry) = self.entries.get_mut(&request.transactional_id) {
                    entry.client_host = request.client_host.or(entry.client_host.take());
                }
            }
            Step::Done => out.reply(token, TxnReply::Done(Ok(()))),
            Step::Refuse(error) => out.reply(token, TxnReply::Done(Err(error))),
            Step::NeedsProducerId => unreachable!("partitions need no producer id"),
        }
    }

    /// Looks at what is stored, also while a next state is on its way: a decision that is not stored yet has
    /// sent no marker that a write could miss.
    fn verify(&self, request: &VerifyPartitions) -> Vec<Result<(), TxnError>> {
        let producer = (request.producer_id, request.producer_epoch);
        let entry = self.entries.get(&request.transactional_id);
        let verify = |partition| match entry {
            Some(entry) => entry.transaction.verify(producer, partition),
            None => Err(TxnError::InvalidProducerIdMapping),
        };
        request.partitions.iter().map(verify).collect()
    }

    fn end(
        &mut self,
        request: EndTransaction,
        fresh_producer_id: Option<ProducerId>,
        token: ReplyToken,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        let end = End {
            producer_id: request.producer_id,
            producer_epoch: request.producer_epoch,
            is_commit: request.is_commit,
            client_version: request.client_version,
            fresh_producer_id,
        };
        let step = match self.settled(&request.transactional_id) {
            Ok(entry) => entry.transaction.end(&end, now.timestamp),
            Err(error) => Step::Refuse(error),
        };
        match step {
            Step::Store(next) => {
                let pending = PendingWrite { kind: WriteKind::End, answer: Some(token) };
                self.store(&request.transactional_id, Some(next), pending, out);
            }
            Step::Done => {
                let entry = self.entries.get(&request.transactional_id);
                let producer = entry.map_or((end.producer_id, end.producer_epoch), |entry| {
                    (entry.transaction.producer_id, entry.transaction.producer_epoch)
                });
                out.reply(token, TxnReply::Producer(Ok(producer)));
            }
            Step::NeedsProducerId => out.reply(token, TxnReply::NeedsProducerId),
            Step::Refuse(error) => out.reply(token, TxnReply::Producer(Err(error))),
        }
    }

    /// Notes that the end is complete, unless it is another end by now.
    fn markers_written(
        &mut self,
        transactional_id: &TransactionalId,
        producer: (ProducerId, ProducerEpoch),
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        let Ok(Entry { transaction, .. }) = self.settled(transactional_id) else { return };
        let is_this = (transaction.producer_id, transaction.producer_epoch) == producer;
        if transaction.state.is_prepared() && is_this {
            let next = transaction.completed(now.timestamp);
            let pending = PendingWrite { kind: WriteKind::Complete, answer: None };
            self.store(transactional_id, Some(next), pending, out);
        }
    }

    /// Lets the partitions know of a decided end; without any it is complete.
    fn tell_partitions(
        &mut self,
        transactional_id: &TransactionalId,
        is_resumed: bool,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        let Some(Entry { transaction, .. }) = self.entries.get(transactional_id) else { return };
        let producer = (transaction.producer_id, transaction.producer_epoch);
        if transaction.partitions.is_empty() {
            return self.markers_written(transactional_id, producer, now, out);
        }
        out.events.push(TxnEvent::WriteMarkers(EndDecided {
            transactional_id: transactional_id.clone(),
            producer_id: producer.0,
            producer_epoch: producer.1,
            is_commit: transaction.state == super::TransactionState::PrepareCommit,
            version: transaction.client_version,
            partitions: transaction.partitions.clone(),
            is_resumed,
        }));
    }

    fn describe(&self, transactional_id: &TransactionalId) -> Option<TransactionDescription> {
        let transaction = &self.known(transactional_id)?.transaction;
        Some(TransactionDescription {
            state: transaction.state,
            timeout_ms: transaction.timeout_ms,
            start_timestamp: transaction.start_timestamp,
            producer_id: transaction.producer_id,
            producer_epoch: transaction.producer_epoch,
            partitions: transaction.partitions.clone(),
        })
    }

    fn list(&self) -> Vec<ListedTransaction> {
        let known = self.entries.iter().filter(|(_, entry)| entry.is_stored());
        let listed = known.map(|(transactional_id, Entry { transaction, .. })| ListedTransaction {
            transactional_id: transactional_id.clone(),
            producer_id: transaction.producer_id,
            state: transaction.state,
            start_timestamp: transaction.start_timestamp,
        });
        listed.collect()
    }

    fn known(&self, transactional_id: &TransactionalId) -> Option<&Entry> {
        self.entries.get(transactional_id).filter(|entry| entry.is_stored())
    }

    /// Aborts what is open for too long, and reports ends that do not come to theirs.
    fn check_timeouts(&mut self, now: Now, out: &mut Outcome<Self>) {
        let mut timed_out: BTreeSet<TransactionalId> = BTreeSet::new();
        for (transactional_id, entry) in &self.entries {
            let transaction = &entry.transaction;
            if transaction.is_timed_out(now.timestamp) && !entry.is_pending {
                timed_out.insert(transactional_id.clone());
            }
            let since_ms = now.timestamp.since_ms(transaction.last_update_timestamp);
            if transaction.state.is_prepared() && since_ms > HANGING_MS {
                out.events.push(TxnEvent::Hanging(entry.overdue(transactional_id, now)));
            }
        }
        for transactional_id in timed_out {
            let Some(entry) = self.entries.get(&transactional_id) else { continue };
            out.events.push(TxnEvent::TimedOut(entry.overdue(&transactional_id, now)));
            let next = entry.transaction.fence(self.version, now.timestamp);
            let pending = PendingWrite { kind: WriteKind::Fence, answer: None };
            self.store(&transactional_id, Some(next), pending, out);
        }
    }

    fn check_expiration(&mut self, now: Now, out: &mut Outcome<Self>) {
        let is_expired = |entry: &Entry| {
            !entry.is_pending && entry.transaction.is_expired(now.timestamp, self.options.id_expiration_ms)
        };
        let expired: BTreeSet<TransactionalId> =
            self.entries.iter().filter(|(_, entry)| is_expired(entry)).map(|(id, _)| id.clone()).collect();
        for transactional_id in expired {
            let pending = PendingWrite { kind: WriteKind::Expire, answer: None };
            self.store(&transactional_id, None, pending, out);
        }
    }

    fn complete_again(&mut self, now: Now, out: &mut Outcome<Self>) {
        for transactional_id in std::mem::take(&mut self.incomplete) {
            let Some(Entry { transaction, .. }) = self.entries.get(&transactional_id) else { continue };
            let producer = (transaction.producer_id, transaction.producer_epoch);
            self.markers_written(&transactional_id, producer, now, out);
        }
    }
}

#[cfg(test)]
impl TxnShard {
    /// What the log should say, without what is not stored.
    pub fn stored(&self) -> std::collections::BTreeMap<TransactionalId, Transaction> {
        let stored = self.entries.iter().filter(|(_, entry)| entry.is_stored());
        // Records without tagged fields lack what only growing epochs need.
        let comparable = |transaction: &Transaction| {
            let mut transaction = transaction.clone();
            transaction.last_producer_epoch = ProducerEpoch::NONE;
            if !transaction.client_version.bumps_epochs() {
                transaction.previous_producer_id = ProducerId::NONE;
                transaction.client_version = TransactionVersion::Classic;
            }
            transaction
        };
        stored.map(|(id, entry)| (id.clone(), comparable(&entry.transaction))).collect()
    }
}

impl Entry {
    /// Whether the log knows it.
    fn is_stored(&self) -> bool {
        self.transaction.producer_epoch != ProducerEpoch::NONE
    }

    fn overdue(&self, transactional_id: &TransactionalId, now: Now) -> Overdue {
        Overdue {
            transactional_id: transactional_id.clone(),
            producer_id: self.transaction.producer_id,
            producer_epoch: self.transaction.producer_epoch,
            state: self.transaction.state,
            partitions: self.transaction.partitions.clone(),
            age_ms: now.timestamp.since_ms(self.transaction.start_timestamp),
            client_host: self.client_host.clone(),
        }
    }
}

fn is_due(deadline: Option<Deadline>, now: Now) -> bool {
    deadline.is_some_and(|deadline| deadline <= now.monotonic)
}

/// The answer to whoever waits for a write that failed.
fn refusal(kind: WriteKind, error: TxnError) -> TxnReply {
    match kind {
        WriteKind::Init | WriteKind::Fence | WriteKind::End => TxnReply::Producer(Err(error)),
        WriteKind::AddPartitions | WriteKind::Complete | WriteKind::Expire => TxnReply::Done(Err(error)),
    }
}

impl Shard for TxnShard {
    type Command = TxnCommand;
    type Reply = TxnReply;
    type Record = TxnRecord;
    type Pending = PendingWrite;
    type Event = TxnEvent;

    fn handle(&mut self, command: TxnCommand, token: ReplyToken, now: Now) -> Outcome<Self> {
        let mut out = Outcome::new();
        match command {
            TxnCommand::Init(transactional_id, init) => {
                self.init(transactional_id, init, token, now, &mut out);
            }
            TxnCommand::AddPartitions(request) => self.add_partitions(request, token, now, &mut out),
            TxnCommand::Verify(request) => out.reply(token, TxnReply::Verified(self.verify(&request))),
            TxnCommand::End(request, fresh) => self.end(request, fresh, token, now, &mut out),
            TxnCommand::MarkersWritten { transactional_id, producer_id, producer_epoch } => {
                self.markers_written(&transactional_id, (producer_id, producer_epoch), now, &mut out);
                out.reply(token, TxnReply::Done(Ok(())));
            }
            TxnCommand::Describe(transactional_id) => {
                out.reply(token, TxnReply::Describe(self.describe(&transactional_id)));
            }
            TxnCommand::List => out.reply(token, TxnReply::List(self.list())),
            TxnCommand::SetVersion(version) => {
                self.version = version;
                out.reply(token, TxnReply::Done(Ok(())));
            }
        }
        out
    }

    fn tick(&mut self, now: Now) -> Outcome<Self> {
        let mut out = Outcome::new();
        if is_due(self.next_retry, now) {
            self.next_retry = None;
            self.complete_again(now, &mut out);
        }
        if is_due(self.next_timeout_check, now) {
            self.next_timeout_check = Some(now.plus_ms(self.options.timeout_check_interval_ms));
            self.check_timeouts(now, &mut out);
        }
        if is_due(self.next_expiration_check, now) {
            self.next_expiration_check = Some(now.plus_ms(self.options.id_expiration_check_interval_ms));
            self.check_expiration(now, &mut out);
        }
        out
    }

    fn next_deadline(&self) -> Option<Deadline> {
        [self.next_retry, self.next_timeout_check, self.next_expiration_check].into_iter().flatten().min()
    }

    fn committed(
        &mut self,
        records: Vec<TxnRecord>,
        pending: PendingWrite,
        _first_offset: Offset,
        now: Now,
    ) -> Outcome<Self> {
        let mut out = Outcome::new();
        let PendingWrite { kind, answer } = pending;
        for TxnRecord { transactional_id, transaction, .. } in records {
            let Some(next) = transaction else {
                self.entries.remove(&transactional_id);
                out.events.push(TxnEvent::Expired { transactional_id });
                continue;
            };
            let producer = match kind {
                WriteKind::End => next.producer_after_end(),
                _ => (next.producer_id, next.producer_epoch),
            };
            let Some(entry) = self.entries.get_mut(&transactional_id) else { continue };
            entry.transaction = next;
            entry.is_pending = false;
            if matches!(kind, WriteKind::Init | WriteKind::Complete) {
                entry.client_host = None;
            }
            let reply = match kind {
                WriteKind::Init | WriteKind::End => TxnReply::Producer(Ok(producer)),
                // The epoch of the fence is nobody's: the producer asks again and gets the one after it.
                WriteKind::Fence => TxnReply::Producer(Err(TxnError::ConcurrentTransactions)),
                WriteKind::AddPartitions | WriteKind::Complete | WriteKind::Expire => TxnReply::Done(Ok(())),
            };
            if let Some(token) = answer {
                out.reply(token, reply);
            }
            match kind {
                WriteKind::Fence | WriteKind::End => {
                    self.tell_partitions(&transactional_id, false, now, &mut out);
                }
                WriteKind::Complete => out.events.push(TxnEvent::Completed { transactional_id }),
                WriteKind::Init | WriteKind::AddPartitions | WriteKind::Expire => {}
            }
        }
        out
    }

    fn refused(&mut self, pending: &mut PendingWrite, error: WriteError, _now: Now) -> Outcome<Self> {
        let mut out = Outcome::new();
        if let Some(token) = pending.answer.take() {
            out.reply(token, refusal(pending.kind, TxnError::of_write(error)));
        }
        out
    }

    fn discarded(&mut self, records: Vec<TxnRecord>, pending: PendingWrite, now: Now) -> Outcome<Self> {
        let mut out = Outcome::new();
        for TxnRecord { transactional_id, .. } in records {
            let Some(entry) = self.entries.get_mut(&transactional_id) else { continue };
            entry.is_pending = false;
            out.events.push(TxnEvent::NotStored { transactional_id: transactional_id.clone() });
            if !entry.is_stored() {
                self.entries.remove(&transactional_id);
            } else if pending.kind == WriteKind::Complete {
                self.incomplete.push(transactional_id);
                self.next_retry = Some(now.plus_ms(RETRY_MS));
            }
        }
        out
    }

    fn replay(&mut self, replayed: Replayed) {
        match records::decode(replayed.key.as_ref(), replayed.value.as_ref()) {
            records::Decoded::Transaction(transactional_id, Some(transaction)) => {
                let entry = Entry { transaction, is_pending: false, client_host: None };
                self.entries.insert(transactional_id, entry);
            }
            records::Decoded::Transaction(transactional_id, None) => {
                self.entries.remove(&transactional_id);
            }
            records::Decoded::UnknownType(_) | records::Decoded::Damaged => self.skipped_records += 1,
        }
    }

    /// Records of this topic belong to no transaction themselves.
    fn replay_transaction_end(&mut self, _producer_id: ProducerId, _is_commit: bool) {}

    fn loaded(&mut self, now: Now) -> Outcome<Self> {
        let mut out = Outcome::new();
        self.next_timeout_check = Some(now.plus_ms(self.options.timeout_check_interval_ms));
        self.next_expiration_check = Some(now.plus_ms(self.options.id_expiration_check_interval_ms));
        out.events.push(TxnEvent::Loaded {
            transactions: self.entries.len(),
            skipped_records: self.skipped_records,
        });
        let prepared = self.entries.iter().filter(|(_, entry)| entry.transaction.state.is_prepared());
        let prepared: BTreeSet<TransactionalId> = prepared.map(|(id, _)| id.clone()).collect();
        for transactional_id in prepared {
            self.tell_partitions(&transactional_id, true, now, &mut out);
        }
        out
    }

    fn encode(record: &TxnRecord) -> Option<EncodedRecord> {
        records::encode(record)
    }
}
