//! Tells the partitions of a transaction how it ended, until all of them know.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use snafu::Snafu;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::messages::{EndDecided, TxnCommand};
use super::shard::TxnShard;
use super::{TransactionVersion, TransactionalId};
use crate::coordination::BoxFuture;
use crate::coordinator::Runtime;
use crate::metadata::{Cache, Image};
use crate::model::{BrokerId, LeaderEpoch, PartitionIndex, ProducerEpoch, ProducerId, TopicPartition};
use crate::runtime::task::{self, Shutdown};

/// Reaches the brokers that lead the partitions of transactions.
///
/// One call for each broker is under way at a time; the next one takes what has gathered meanwhile.
pub trait MarkerChannel: Send + Sync + 'static {
    /// Has markers written: one result for each partition of each end, in their order. `Err` = the broker could
    /// not be asked, or did not answer; what it did is not known.
    fn write(
        &self,
        to: BrokerId,
        ends: Vec<EndMarkers>,
    ) -> BoxFuture<'_, Result<Vec<MarkerResults>, BrokerUnreachable>>;
}

/// One result for each partition of an end.
pub type MarkerResults = Vec<Result<(), MarkerError>>;

/// How a transaction ended, for some of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndMarkers {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub is_commit: bool,
    /// The leader epoch of the coordinator's partition.
    pub coordinator_epoch: LeaderEpoch,
    pub version: TransactionVersion,
    pub partitions: Vec<TopicPartition>,
    /// They may have been written before.
    pub may_repeat: bool,
}

/// Why a marker was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
pub enum MarkerError {
    #[snafu(display("the partition does not exist"))]
    UnknownTopicOrPartition,
    /// Also where the group coordinator of a partition of offsets is not ready.
    #[snafu(display("another broker leads the partition"))]
    NotLeader,
    #[snafu(display("fewer replicas are in sync than min.insync.replicas"))]
    NotEnoughReplicas,
    #[snafu(display("fewer replicas were in sync than min.insync.replicas after the append"))]
    NotEnoughReplicasAfterAppend,
    #[snafu(display("the replicas did not answer in time"))]
    TimedOut,
    #[snafu(display("the log directory is offline or full"))]
    Storage,
    #[snafu(display("the partition knows a later epoch of the producer"))]
    InvalidProducerEpoch,
    #[snafu(display("a later coordinator has written to the partition"))]
    CoordinatorFenced,
    #[snafu(display("the partition's message format has no transactions"))]
    UnsupportedForMessageFormat,
    #[snafu(display("the broker refused for a reason that is not known"))]
    Unexpected,
}

/// The broker was not asked, or did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("the broker did not answer: {reason}"))]
pub struct BrokerUnreachable {
    pub reason: String,
}

/// Pause before partitions that did not take a marker are asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// A partition that is not in the metadata for so long is deleted, not new.
const UNKNOWN_MAX: Duration = Duration::from_secs(5);

/// Sends markers and reports to the coordinator when all partitions of an end have theirs.
pub(super) struct MarkerSender {
    channel: Arc<dyn MarkerChannel>,
    metadata: Arc<Cache>,
    shutdown: Shutdown,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Who hears when an end is complete.
    runtime: Option<Runtime<TxnShard>>,
    coordinator_epochs: HashMap<PartitionIndex, LeaderEpoch>,
    ends: HashMap<EndKey, OpenEnd>,
    queues: HashMap<BrokerId, Arc<Queue>>,
}

type EndKey = (PartitionIndex, TransactionalId);

/// An end of which not all partitions know.
struct OpenEnd {
    decided: EndDecided,
    coordinator_epoch: LeaderEpoch,
    left: BTreeSet<TopicPartition>,
    since: Instant,
    /// Some partition was asked more than once.
    is_retried: bool,
}

/// What waits for one broker.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Vec<(EndKey, EndMarkers)>>,
    filled: Notify,
}

impl MarkerSender {
    pub fn new(channel: Arc<dyn MarkerChannel>, metadata: Arc<Cache>, shutdown: Shutdown) -> MarkerSender {
        MarkerSender { channel, metadata, shutdown, state: Mutex::default() }
    }

    pub fn report_to(&self, runtime: Runtime<TxnShard>) {
        self.state.lock().runtime = Some(runtime);
    }

    pub fn elected(&self, partition: PartitionIndex, leader_epoch: LeaderEpoch) {
        let mut state = self.state.lock();
        state.ends.retain(|(of, _), _| *of != partition);
        state.coordinator_epochs.insert(partition, leader_epoch);
    }

    /// The next coordinator reads from the log what is to be sent.
    pub fn resigned(&self, partition: PartitionIndex) {
        let mut state = self.state.lock();
        state.ends.retain(|(of, _), _| *of != partition);
        state.coordinator_epochs.remove(&partition);
    }

    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.ends.clear();
        state.runtime = None;
    }

    /// How many ends are not known to all their partitions.
    pub fn open_ends(&self) -> usize {
        self.state.lock().ends.len()
    }

    /// Begins to tell the partitions. Returns at once.
    pub fn begin(self: &Arc<Self>, partition: PartitionIndex, decided: EndDecided) {
        let key = (partition, decided.transactional_id.clone());
        {
            let mut state = self.state.lock();
            let Some(&coordinator_epoch) = state.coordinator_epochs.get(&partition) else { return };
            let left = decided.partitions.clone();
            let is_retried = decided.is_resumed;
            let end = OpenEnd { decided, coordinator_epoch, left, since: Instant::now(), is_retried };
            state.ends.insert(key.clone(), end);
        }
        self.route(vec![key]);
    }

    /// Gives what is left of ends to the brokers that lead their partitions now.
    fn route(self: &Arc<Self>, keys: Vec<EndKey>) {
        let image = self.metadata.image();
        let mut again = Vec::new();
        let mut complete = Vec::new();
        for key in keys {
            let by_leader = {
                let mut state = self.state.lock();
                let Some(end) = state.ends.get_mut(&key) else { continue };
                let is_old = end.since.elapsed() > UNKNOWN_MAX;
                let (by_leader, gone, has_homeless) = group_by_leader(&image, &end.left, is_old);
                for partition in gone {
                    end.left.remove(&partition);
                }
                if has_homeless {
                    again.push(key.clone());
                }
                if end.left.is_empty() {
                    complete.push(key.clone());
                }
                let markers = |partitions| end.markers(partitions);
                by_leader.into_iter().map(|(leader, left)| (leader, markers(left))).collect::<Vec<_>>()
            };
            for (leader, markers) in by_leader {
                let queue = self.queue(leader);
                queue.waiting.lock().push((key.clone(), markers));
                queue.filled.notify_one();
            }
        }
        self.complete(complete);
        self.route_later(again);
    }

    fn route_later(self: &Arc<Self>, keys: Vec<EndKey>) {
        if keys.is_empty() {
            return;
        }
        let sender = Arc::clone(self);
        task::spawn("markers again", async move {
            let mut stopping = sender.shutdown.requested();
            tokio::select! {
                () = sleep(RETRY_PAUSE) => sender.route(keys),
                () = &mut stopping => {}
            }
        });
    }

    fn queue(self: &Arc<Self>, to: BrokerId) -> Arc<Queue> {
        let mut state = self.state.lock();
        if let Some(queue) = state.queues.get(&to) {
            return Arc::clone(queue);
        }
        let queue = Arc::new(Queue::default());
        state.queues.insert(to, Arc::clone(&queue));
        let (sender, own) = (Arc::clone(self), Arc::clone(&queue));
        task::spawn("transaction markers", async move { sender.serve(to, &own).await });
        queue
    }

    /// Sends what gathers for one broker, until the broker stops.
    async fn serve(self: Arc<Self>, to: BrokerId, queue: &Queue) {
        let mut stopping = self.shutdown.requested();
        loop {
            tokio::select! {
                () = queue.filled.notified() => {}
                () = &mut stopping => return,
            }
            let waiting = std::mem::take(&mut *queue.waiting.lock());
            // An end whose coordinator was replaced is for the next one to send.
            let (keys, ends): (Vec<EndKey>, Vec<EndMarkers>) = {
                let state = self.state.lock();
                waiting.into_iter().filter(|(key, _)| state.ends.contains_key(key)).unzip()
            };
            if ends.is_empty() {
                continue;
            }
            match self.channel.write(to, ends.clone()).await {
                Ok(results) => self.answered(keys, &ends, results),
                Err(error) => {
                    debug!(broker_id = to.0, %error, "markers of transactions were not sent");
                    self.retry(keys);
                }
            }
        }
    }

    fn answered(self: &Arc<Self>, keys: Vec<EndKey>, ends: &[EndMarkers], results: Vec<MarkerResults>) {
        let (mut again, mut complete) = (Vec::new(), Vec::new());
        let mut results = results.into_iter();
        for (key, sent) in keys.into_iter().zip(ends) {
            let mut state = self.state.lock();
            let Some(end) = state.ends.get_mut(&key) else { continue };
            let mut fate = Fate::Done;
            let mut of_end = results.next().unwrap_or_default().into_iter();
            for partition in &sent.partitions {
                let result = of_end.next().unwrap_or(Err(MarkerError::Unexpected));
                fate = fate.max(end.take_result(partition, result));
            }
            let is_complete = end.left.is_empty();
            match fate {
                Fate::Fenced => {
                    state.ends.remove(&key);
                }
                Fate::Again => {
                    end.is_retried = true;
                    again.push(key);
                }
                Fate::Done if is_complete => complete.push(key),
                Fate::Done => {}
            }
        }
        self.complete(complete);
        self.route_later(again);
    }

    fn retry(self: &Arc<Self>, keys: Vec<EndKey>) {
        {
            let mut state = self.state.lock();
            for key in &keys {
                if let Some(end) = state.ends.get_mut(key) {
                    end.is_retried = true;
                }
            }
        }
        self.route_later(keys);
    }

    /// Tells the coordinator of ends that all partitions know.
    fn complete(self: &Arc<Self>, keys: Vec<EndKey>) {
        if keys.is_empty() {
            return;
        }
        let (runtime, commands) = {
            let mut state = self.state.lock();
            let Some(runtime) = state.runtime.clone() else { return };
            let ended = keys.into_iter().filter_map(|key| {
                let end = state.ends.remove(&key)?;
                let command = TxnCommand::MarkersWritten {
                    transactional_id: key.1,
                    producer_id: end.decided.producer_id,
                    producer_epoch: end.decided.producer_epoch,
                };
                Some((key.0, command))
            });
            (runtime, ended.collect::<Vec<_>>())
        };
        task::spawn("ends of transactions", async move {
            for (partition, command) in commands {
                // A coordinator that was replaced has its successor to do this.
                let _ = runtime.call(partition, command).await;
            }
        });
    }
}

/// What becomes of an end after an answer; the worst of its partitions counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Done,
    Again,
    Fenced,
}

impl OpenEnd {
    fn markers(&self, partitions: Vec<TopicPartition>) -> EndMarkers {
        EndMarkers {
            producer_id: self.decided.producer_id,
            producer_epoch: self.decided.producer_epoch,
            is_commit: self.decided.is_commit,
            coordinator_epoch: self.coordinator_epoch,
            version: self.decided.version,
            partitions,
            may_repeat: self.is_retried,
        }
    }

    fn take_result(&mut self, partition: &TopicPartition, result: Result<(), MarkerError>) -> Fate {
        let transactional_id = &self.decided.transactional_id;
        let producer_id = self.decided.producer_id.0;
        match result {
            Ok(()) | Err(MarkerError::UnsupportedForMessageFormat) => {}
            // Whatever the producer had open there under this epoch was ended by a later one.
            Err(MarkerError::InvalidProducerEpoch) => {
                warn!(%transactional_id, producer_id, topic = %partition.topic,
                    partition = partition.partition.0, "a partition knows a later epoch than the ended transaction's");
            }
            Err(MarkerError::CoordinatorFenced) => {
                warn!(%transactional_id, producer_id, topic = %partition.topic,
                    partition = partition.partition.0, "a later coordinator has ended the transaction");
                return Fate::Fenced;
            }
            Err(
                error @ (MarkerError::UnknownTopicOrPartition
                | MarkerError::NotLeader
                | MarkerError::NotEnoughReplicas
                | MarkerError::NotEnoughReplicasAfterAppend
                | MarkerError::TimedOut
                | MarkerError::Storage
                | MarkerError::Unexpected),
            ) => {
                debug!(%transactional_id, producer_id, topic = %partition.topic,
                    partition = partition.partition.0, %error, "a marker was not written yet");
                return Fate::Again;
            }
        }
        self.left.remove(partition);
        Fate::Done
    }
}

type ByLeader = HashMap<BrokerId, Vec<TopicPartition>>;

/// Partitions by leader, those that are gone, and whether some have no leader.
fn group_by_leader(
    image: &Image,
    left: &BTreeSet<TopicPartition>,
    is_old: bool,
) -> (ByLeader, Vec<TopicPartition>, bool) {
    let (mut by_leader, mut gone, mut has_homeless) = (ByLeader::new(), Vec::new(), false);
    for partition in left {
        match image.partition(&partition.topic, partition.partition) {
            Some(known) if known.leader.0 >= 0 => {
                by_leader.entry(known.leader).or_default().push(partition.clone());
            }
            None if is_old => gone.push(partition.clone()),
            Some(_) | None => has_homeless = true,
        }
    }
    (by_leader, gone, has_homeless)
}
