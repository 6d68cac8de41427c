//! Tells the partitions of a transaction how it ended, until all of them know.

use std::collections::{BTreeMap, HashMap};
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
    ends_begun: u64,
    queues: HashMap<BrokerId, Arc<Queue>>,
}

type EndKey = (PartitionIndex, TransactionalId);

/// One end of all that a transactional id has in its time. A broker may be asked twice about one of them, and an answer
/// that comes late must not count for the next.
#[derive(Clone, Debug)]
struct Ticket {
    key: EndKey,
    number: u64,
}

impl State {
    fn end(&mut self, ticket: &Ticket) -> Option<&mut OpenEnd> {
        self.ends.get_mut(&ticket.key).filter(|end| end.number == ticket.number)
    }
}

/// An end of which not all partitions know.
struct OpenEnd {
    number: u64,
    decided: EndDecided,
    coordinator_epoch: LeaderEpoch,
    /// The partitions that do not know of it, and whether one is being asked: it is not asked twice at once, as the second
    /// marker could come when the next transaction has begun.
    left: BTreeMap<TopicPartition, bool>,
    since: Instant,
    /// Some partition was asked more than once.
    is_retried: bool,
    /// In a while, for what is not asked now.
    is_to_be_routed: bool,
}

/// What waits for one broker.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Vec<(Ticket, EndMarkers)>>,
    filled: Notify,
}

impl MarkerSender {
    pub fn new(channel: Arc<dyn MarkerChannel>, metadata: Arc<Cache>, shutdown: Shutdown) -> MarkerSender {
        MarkerSender { channel, metadata, shutdown, state: Mutex::default() }
    }

    pub fn report_to(&self, runtime: Runtime<TxnShard>) {
        self.state.lock().runtime = Some(runtime);
    }

    /// What is on its way goes on: the coordinator that decided it is here still, if there was one.
    pub fn elected(&self, partition: PartitionIndex, leader_epoch: LeaderEpoch) {
        self.state.lock().coordinator_epochs.insert(partition, leader_epoch);
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
    pub fn begin(self: &Arc<Self>, partition: PartitionIndex, mut decided: EndDecided) {
        let key = (partition, decided.transactional_id.clone());
        let number = {
            let mut state = self.state.lock();
            let Some(&coordinator_epoch) = state.coordinator_epochs.get(&partition) else { return };
            state.ends_begun += 1;
            let number = state.ends_begun;
            let partitions = std::mem::take(&mut decided.partitions);
            let left = partitions.into_iter().map(|partition| (partition, false)).collect();
            let is_retried = decided.is_resumed;
            let end = OpenEnd {
                number,
                decided,
                coordinator_epoch,
                left,
                since: Instant::now(),
                is_retried,
                is_to_be_routed: false,
            };
            state.ends.insert(key.clone(), end);
            number
        };
        self.route(vec![Ticket { key, number }]);
    }

    /// Gives what is left of ends to the brokers that lead their partitions now.
    fn route(self: &Arc<Self>, tickets: Vec<Ticket>) {
        let image = self.metadata.image();
        let mut again = Vec::new();
        let mut complete = Vec::new();
        for ticket in tickets {
            let by_leader = {
                let mut state = self.state.lock();
                let Some(end) = state.end(&ticket) else { continue };
                end.is_to_be_routed = false;
                let is_old = end.since.elapsed() > UNKNOWN_MAX;
                let (by_leader, gone, has_homeless) = group_by_leader(&image, end.not_asked(), is_old);
                for partition in gone {
                    end.left.remove(&partition);
                }
                if has_homeless && end.will_come_again() {
                    again.push(ticket.clone());
                }
                if end.left.is_empty() {
                    complete.push(ticket.clone());
                }
                by_leader.into_iter().map(|(leader, left)| (leader, end.ask(left))).collect::<Vec<_>>()
            };
            for (leader, markers) in by_leader {
                let queue = self.queue(leader);
                queue.waiting.lock().push((ticket.clone(), markers));
                queue.filled.notify_one();
            }
        }
        self.complete(complete);
        self.route_later(again);
    }

    fn route_later(self: &Arc<Self>, tickets: Vec<Ticket>) {
        if tickets.is_empty() {
            return;
        }
        let sender = Arc::clone(self);
        task::spawn("markers again", async move {
            let mut stopping = sender.shutdown.requested();
            tokio::select! {
                () = sleep(RETRY_PAUSE) => sender.route(tickets),
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
            let (tickets, ends): (Vec<Ticket>, Vec<EndMarkers>) = {
                let mut state = self.state.lock();
                waiting.into_iter().filter(|(ticket, _)| state.end(ticket).is_some()).unzip()
            };
            if ends.is_empty() {
                continue;
            }
            // A broker that stands still may keep its connection: its markers are for those that lead in its place.
            let written = tokio::select! {
                biased;
                written = self.channel.write(to, ends.clone()) => written,
                () = self.until_replaced(to, &ends) => BrokerUnreachableSnafu { reason: "others lead now" }.fail(),
            };
            match written {
                Ok(results) => self.answered(tickets, &ends, results),
                Err(error) => {
                    debug!(broker_id = to.0, %error, "markers of transactions were not sent");
                    self.retry(&tickets, &ends);
                }
            }
        }
    }

    /// Waits until a broker leads none of these partitions.
    async fn until_replaced(&self, broker: BrokerId, ends: &[EndMarkers]) {
        let leads = |image: &Image, partition: &TopicPartition| {
            let known = image.partition(&partition.topic, partition.partition);
            known.is_some_and(|known| known.leader == broker)
        };
        let partitions = ends.iter().flat_map(|end| &end.partitions);
        self.metadata.wait_until(|image| !partitions.clone().any(|partition| leads(image, partition))).await;
    }

    fn answered(self: &Arc<Self>, tickets: Vec<Ticket>, ends: &[EndMarkers], results: Vec<MarkerResults>) {
        let (mut again, mut complete) = (Vec::new(), Vec::new());
        let results = results.into_iter().chain(std::iter::repeat_with(Vec::new));
        for ((ticket, sent), of_end) in tickets.into_iter().zip(ends).zip(results) {
            let mut state = self.state.lock();
            let Some(end) = state.end(&ticket) else { continue };
            let mut fate = Fate::Done;
            let mut of_end = of_end.into_iter();
            for partition in &sent.partitions {
                let result = of_end.next().unwrap_or(Err(MarkerError::Unexpected));
                fate = fate.max(end.take_result(partition, result));
            }
            let is_complete = end.left.is_empty();
            match fate {
                Fate::Fenced => {
                    state.ends.remove(&ticket.key);
                }
                Fate::Again => {
                    end.is_retried = true;
                    if end.will_come_again() {
                        again.push(ticket);
                    }
                }
                Fate::Done if is_complete => complete.push(ticket),
                Fate::Done => {}
            }
        }
        self.complete(complete);
        self.route_later(again);
    }

    /// Whether they were written is not known.
    fn retry(self: &Arc<Self>, tickets: &[Ticket], sent: &[EndMarkers]) {
        let mut again = Vec::new();
        {
            let mut state = self.state.lock();
            for (ticket, sent) in tickets.iter().zip(sent) {
                let Some(end) = state.end(ticket) else { continue };
                end.is_retried = true;
                sent.partitions.iter().for_each(|partition| end.may_be_asked(partition));
                if end.will_come_again() {
                    again.push(ticket.clone());
                }
            }
        }
        self.route_later(again);
    }

    /// Tells the coordinator of ends that all partitions know.
    fn complete(self: &Arc<Self>, tickets: Vec<Ticket>) {
        if tickets.is_empty() {
            return;
        }
        let (runtime, commands) = {
            let mut state = self.state.lock();
            let ended = tickets.into_iter().filter_map(|ticket| {
                state.end(&ticket)?;
                let end = state.ends.remove(&ticket.key)?;
                let (partition, transactional_id) = ticket.key;
                let command = TxnCommand::MarkersWritten {
                    transactional_id,
                    producer_id: end.decided.producer_id,
                    producer_epoch: end.decided.producer_epoch,
                };
                Some((partition, command))
            });
            let commands = ended.collect::<Vec<_>>();
            let Some(runtime) = state.runtime.clone() else { return };
            (runtime, commands)
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
    fn not_asked(&self) -> impl Iterator<Item = &TopicPartition> {
        self.left.iter().filter(|(_, is_asked)| !**is_asked).map(|(partition, _)| partition)
    }

    fn may_be_asked(&mut self, partition: &TopicPartition) {
        if let Some(is_asked) = self.left.get_mut(partition) {
            *is_asked = false;
        }
    }

    /// Whether somebody has to see to it that it is routed again; nobody does so already.
    fn will_come_again(&mut self) -> bool {
        !std::mem::replace(&mut self.is_to_be_routed, true)
    }

    /// The markers for partitions that one broker leads, which is asked now.
    fn ask(&mut self, partitions: Vec<TopicPartition>) -> EndMarkers {
        for partition in &partitions {
            if let Some(is_asked) = self.left.get_mut(partition) {
                *is_asked = true;
            }
        }
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
                self.may_be_asked(partition);
                return Fate::Again;
            }
        }
        self.left.remove(partition);
        Fate::Done
    }
}

type ByLeader = HashMap<BrokerId, Vec<TopicPartition>>;

/// Partitions by leader, those that are gone, and whether some have no leader.
fn group_by_leader<'a>(
    image: &Image,
    left: impl Iterator<Item = &'a TopicPartition>,
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
