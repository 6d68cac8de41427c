use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, sleep_until};

use super::runtime::Shared;
use super::{
    Appended, Deadline, EncodedRecord, Now, Outcome, ReadError, Replayed, ReplyToken, Shard,
    TransactionalWriter, Write, WriteError,
};
use crate::coordination::BoxFuture;
use crate::model::{LeaderEpoch, Offset, TopicPartition};
use crate::records::{Batch, BatchBuilder, RecordsError, TransactionMarker, batches};

/// How many waiting requests are taken at once. Their records share batches.
const COMMANDS_PER_ROUND: usize = 256;
/// A batch is closed when it has grown to this size. One write alone may be larger.
const BATCH_SIZE_BYTES: usize = 64 * 1024;
/// Batches that may wait for their replicas; beyond that, requests wait in the queue.
const IN_FLIGHT_MAX: usize = 256;
/// Writes that wait for one of those batches to end.
const WRITES_WAITING_MAX: usize = 10_000;
const LOAD_RETRY: Duration = Duration::from_secs(1);

/// A request on its way to a shard.
pub(super) struct Envelope<S: Shard> {
    pub command: S::Command,
    pub reply: oneshot::Sender<S::Reply>,
}

/// Owns one shard: takes requests, appends what the shard wants stored, and hands it back once committed.
///
/// Requests that wait are handled together and their records appended as one batch. A batch does not wait for
/// the one before it: the next requests are handled while replicas copy. Dropping the task drops every waiting
/// reply, which its caller sees as "not here".
pub(super) struct ShardTask<S: Shard> {
    shared: Arc<Shared<S>>,
    topic_partition: TopicPartition,
    leader_epoch: LeaderEpoch,
    is_loaded: Arc<AtomicBool>,
    shard: S,
    replies: HashMap<ReplyToken, oneshot::Sender<S::Reply>, foldhash::fast::FixedState>,
    next_token: u64,
    /// Writes that the shard wants and that are not appended yet.
    writes: Vec<Write<S>>,
    in_flight: VecDeque<InFlight<S>>,
}

/// A batch in the log that is not known to be committed.
struct InFlight<S: Shard> {
    writes: Vec<StoredWrite<S>>,
    committed: BoxFuture<'static, Result<(), WriteError>>,
    deadline: Deadline,
    /// The shard has been told that the writes failed, or are late.
    is_refused: bool,
}

struct StoredWrite<S: Shard> {
    records: Vec<S::Record>,
    pending: S::Pending,
    first_offset: Offset,
}

/// A write whose records are encoded.
struct EncodedWrite<S: Shard> {
    write: Write<S>,
    records: Vec<EncodedRecord>,
    size_bytes: usize,
}

impl<S: Shard> ShardTask<S> {
    pub fn new(
        shared: Arc<Shared<S>>,
        topic_partition: TopicPartition,
        leader_epoch: LeaderEpoch,
        is_loaded: Arc<AtomicBool>,
    ) -> ShardTask<S> {
        let shard = (shared.parts.new_shard)(topic_partition.partition);
        ShardTask {
            shared,
            topic_partition,
            leader_epoch,
            is_loaded,
            shard,
            replies: HashMap::default(),
            next_token: 0,
            writes: Vec::new(),
            in_flight: VecDeque::new(),
        }
    }

    /// Loads the shard and serves it until `stopped`.
    pub async fn run(
        mut self,
        commands: mpsc::Receiver<Box<Envelope<S>>>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        tokio::select! {
            biased;
            _ = &mut stopped => return,
            () = self.load() => {}
        }
        self.serve(commands, stopped).await;
    }

    /// Reads the log until it succeeds: a coordinator that gave up would leave its groups without one.
    async fn load(&mut self) {
        while let Err(reason) = self.try_load().await {
            let (partition, leader_epoch) = (&self.topic_partition, self.leader_epoch);
            match reason {
                // The leadership went while it was loaded: whoever took it says so, and stops this.
                ReadError::NotLeaderOfShard => {
                    tracing::debug!(%partition, %leader_epoch, %reason, "loading the coordinator");
                }
                ReadError::Unreadable { .. } => {
                    tracing::warn!(%partition, %leader_epoch, %reason, "loading the coordinator");
                }
            }
            self.shard = (self.shared.parts.new_shard)(partition.partition);
            sleep(LOAD_RETRY).await;
        }
        let now = self.shared.now();
        let outcome = self.shard.loaded(now);
        self.absorb(outcome);
        self.flush(now);
        self.is_loaded.store(true, Ordering::Release);
    }

    async fn try_load(&mut self) -> Result<(), ReadError> {
        let mut damage: Option<(u64, RecordsError)> = None;
        let shard = &mut self.shard;
        let mut visit = |bytes: Bytes| {
            for batch in batches(&bytes) {
                if let Err(error) = batch.and_then(|batch| replay_batch(shard, &batch)) {
                    let count = damage.as_ref().map_or(0, |(count, _)| *count);
                    damage = Some((count + 1, error));
                }
            }
        };
        self.shared.parts.log.read_all(&self.topic_partition, self.leader_epoch, &mut visit).await?;
        if let Some((batches, error)) = damage {
            let partition = &self.topic_partition;
            tracing::warn!(%partition, batches, %error, "damaged batches of a coordinator are left out");
        }
        Ok(())
    }

    async fn serve(
        &mut self,
        mut commands: mpsc::Receiver<Box<Envelope<S>>>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let mut round = Vec::new();
        loop {
            let wake_at = self.next_deadline().map(|deadline| self.shared.instant(deadline));
            let oldest = self.in_flight.front_mut();
            let has_oldest = oldest.is_some();
            let committed = async {
                match oldest {
                    Some(batch) => batch.committed.as_mut().await,
                    None => std::future::pending().await,
                }
            };
            let wake = async {
                match wake_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = &mut stopped => return,
                result = committed, if has_oldest => self.oldest_ended(result),
                count = commands.recv_many(&mut round, COMMANDS_PER_ROUND) => {
                    if count == 0 {
                        return;
                    }
                }
                () = wake => {}
            }
            let now = self.shared.now();
            for envelope in round.drain(..) {
                self.handle(*envelope, now);
            }
            self.tick(now);
            self.flush(now);
        }
    }

    fn handle(&mut self, envelope: Envelope<S>, now: Now) {
        let token = ReplyToken(self.next_token);
        self.next_token += 1;
        self.replies.insert(token, envelope.reply);
        let outcome = self.shard.handle(envelope.command, token, now);
        self.absorb(outcome);
    }

    /// Does what is due. A busy queue must not hold it up, so every round looks.
    fn tick(&mut self, now: Now) {
        if self.shard.next_deadline().is_some_and(|deadline| deadline <= now.monotonic) {
            let outcome = self.shard.tick(now);
            self.absorb(outcome);
        }
        for at in 0..self.in_flight.len() {
            let Some(batch) = self.in_flight.get_mut(at) else { break };
            if batch.deadline > now.monotonic {
                break;
            }
            if !batch.is_refused {
                batch.is_refused = true;
                let outcomes = refuse(&mut self.shard, &mut batch.writes, WriteError::TimedOut, now);
                outcomes.into_iter().for_each(|outcome| self.absorb(outcome));
            }
        }
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let late = self.in_flight.iter().find(|batch| !batch.is_refused).map(|batch| batch.deadline);
        self.shard.next_deadline().into_iter().chain(late).min()
    }

    /// Gives replies and events, and keeps writes for the next append.
    fn absorb(&mut self, outcome: Outcome<S>) {
        for (token, reply) in outcome.replies {
            let waiting = self.replies.remove(&token);
            assert!(waiting.is_some(), "a request of {} is answered twice", self.topic_partition);
            // A client that is gone does not read its answer.
            waiting.map(|waiting| waiting.send(reply).ok());
        }
        for event in outcome.events {
            self.shared.parts.events.emit(self.topic_partition.partition, event);
        }
        self.writes.extend(outcome.writes);
    }

    /// Appends all writes, in their order and in as few batches as their size and producers allow.
    ///
    /// While as many batches wait for replicas as may, writes wait here, and what needs none, such as heartbeats, goes
    /// on. They wait no longer than the batches before them.
    fn flush(&mut self, now: Now) {
        while !self.writes.is_empty() {
            if let Some(oldest) = self.in_flight.front().filter(|_| self.in_flight.len() >= IN_FLIGHT_MAX) {
                if !oldest.is_refused && self.writes.len() <= WRITES_WAITING_MAX {
                    return;
                }
                let late = std::mem::take(&mut self.writes);
                late.into_iter().for_each(|write| self.lose(write, WriteError::TimedOut, now));
                continue;
            }
            let mut batch: Vec<EncodedWrite<S>> = Vec::new();
            for write in std::mem::take(&mut self.writes) {
                let Some(encoded) = encode(write) else { continue };
                match encoded {
                    Ok(encoded) => {
                        if !fits(&batch, &encoded) {
                            self.append(std::mem::take(&mut batch), now);
                        }
                        batch.push(encoded);
                    }
                    Err(write) => self.lose(write, WriteError::TooLarge, now),
                }
            }
            self.append(batch, now);
        }
    }

    fn append(&mut self, batch: Vec<EncodedWrite<S>>, now: Now) {
        let Some(producer) = batch.first().map(|first| first.write.producer) else { return };
        let bytes = build(&batch, producer, now);
        let guard = producer.and_then(|producer| producer.guard);
        match self.shared.parts.log.append(&self.topic_partition, self.leader_epoch, bytes, guard) {
            Ok(appended) => self.appended(batch, appended, now),
            // One of the writes may be the reason.
            Err(WriteError::TooLarge) if batch.len() > 1 => {
                for write in batch {
                    self.append(vec![write], now);
                }
            }
            Err(error) => {
                for encoded in batch {
                    self.lose(encoded.write, error, now);
                }
            }
        }
    }

    fn appended(&mut self, batch: Vec<EncodedWrite<S>>, appended: Appended, now: Now) {
        let mut first_offset = appended.first_offset;
        let place = |encoded: EncodedWrite<S>| {
            let Write { records, pending, .. } = encoded.write;
            let stored = StoredWrite { records, pending, first_offset };
            first_offset = first_offset.plus(encoded.records.len() as i64);
            stored
        };
        self.in_flight.push_back(InFlight {
            writes: batch.into_iter().map(place).collect(),
            committed: appended.committed,
            deadline: now.plus_ms(self.shared.parts.write_timeout_ms),
            is_refused: false,
        });
    }

    /// The write could not be appended.
    fn lose(&mut self, mut write: Write<S>, error: WriteError, now: Now) {
        let outcome = self.shard.refused(&mut write.pending, error, now);
        self.absorb(outcome);
        let outcome = self.shard.discarded(write.records, write.pending, now);
        self.absorb(outcome);
    }

    fn oldest_ended(&mut self, result: Result<(), WriteError>) {
        let Some(mut batch) = self.in_flight.pop_front() else { return };
        let now = self.shared.now();
        if let Err(error) = result
            && !batch.is_refused
        {
            let outcomes = refuse(&mut self.shard, &mut batch.writes, error, now);
            outcomes.into_iter().for_each(|outcome| self.absorb(outcome));
        }
        // What stands in the leader's log is committed sooner or later, unless the leader changes, which drops
        // this shard. So a write that is only late counts, or memory and log would differ from here on.
        let is_in_log =
            matches!(result, Ok(()) | Err(WriteError::NotEnoughReplicasAfterAppend | WriteError::TimedOut));
        for StoredWrite { records, pending, first_offset } in batch.writes {
            let outcome = if is_in_log {
                self.shard.committed(records, pending, first_offset, now)
            } else {
                self.shard.discarded(records, pending, now)
            };
            self.absorb(outcome);
        }
    }
}

fn refuse<S: Shard>(
    shard: &mut S,
    writes: &mut [StoredWrite<S>],
    error: WriteError,
    now: Now,
) -> Vec<Outcome<S>> {
    writes.iter_mut().map(|write| shard.refused(&mut write.pending, error, now)).collect()
}

/// `None` = there is nothing to store; `Err` = a text is too long for the format.
fn encode<S: Shard>(write: Write<S>) -> Option<Result<EncodedWrite<S>, Write<S>>> {
    debug_assert!(!write.records.is_empty(), "a write without records can never be committed");
    let records: Option<Vec<EncodedRecord>> = write.records.iter().map(S::encode).collect();
    let Some(records) = records else { return Some(Err(write)) };
    let size = |record: &EncodedRecord| record.key.len() + record.value.as_ref().map_or(0, Bytes::len);
    let size_bytes = records.iter().map(size).sum();
    (!records.is_empty()).then_some(Ok(EncodedWrite { write, records, size_bytes }))
}

/// Whether a write may share a batch: a transaction's records need one of their own.
fn fits<S: Shard>(batch: &[EncodedWrite<S>], next: &EncodedWrite<S>) -> bool {
    let Some(first) = batch.first() else { return true };
    let size_bytes: usize = batch.iter().map(|encoded| encoded.size_bytes).sum();
    first.write.producer.is_none()
        && next.write.producer.is_none()
        && size_bytes + next.size_bytes <= BATCH_SIZE_BYTES
}

fn build<S: Shard>(batch: &[EncodedWrite<S>], producer: Option<TransactionalWriter>, now: Now) -> Bytes {
    let mut builder = BatchBuilder::new();
    if let Some(producer) = producer {
        // Coordinators write without sequence numbers.
        builder = builder.producer(producer.producer_id, producer.producer_epoch, -1).transactional();
    }
    for record in batch.iter().flat_map(|encoded| &encoded.records) {
        builder.append(now.timestamp, Some(&record.key), record.value.as_deref(), &[]);
    }
    builder.build()
}

fn replay_batch<S: Shard>(shard: &mut S, batch: &Batch) -> Result<(), RecordsError> {
    let attributes = batch.header.attributes;
    let producer_id = attributes.is_transactional().then_some(batch.header.producer_id);
    for record in batch.records()? {
        let record = record?;
        match (attributes.is_control(), producer_id) {
            (true, Some(producer_id)) => {
                if let Some(is_commit) = record.key.as_deref().and_then(commits) {
                    shard.replay_transaction_end(producer_id, is_commit);
                }
            }
            (true, None) => {}
            (false, _) => shard.replay(Replayed {
                offset: record.offset(&batch.header),
                timestamp: record.timestamp(&batch.header),
                producer_id,
                key: record.key,
                value: record.value,
            }),
        }
    }
    Ok(())
}

/// Whether a control record commits its transaction; `None` = it is of another kind.
fn commits(key: &[u8]) -> Option<bool> {
    let kind = i16::from_be_bytes(*key.get(2..)?.first_chunk::<2>()?);
    if kind == TransactionMarker::Commit.id() {
        Some(true)
    } else if kind == TransactionMarker::Abort.id() {
        Some(false)
    } else {
        None
    }
}
