use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use snafu::Snafu;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::task::{Envelope, ShardTask};
use super::{Deadline, Now, Shard, ShardLog};
use crate::model::{LeaderEpoch, PartitionIndex, TopicName, TopicPartition};
use crate::runtime::{Clock, task};

/// Requests that may wait for one shard; more wait in their connections.
const COMMANDS_MAX: usize = 1_024;

/// The shards of an internal topic that this broker leads.
///
/// Each led partition has one task that owns its [`Shard`]. A call finds the task, waits for its answer, and is
/// refused while the shard is being loaded or led elsewhere. Clones are the same runtime.
pub struct Runtime<S: Shard> {
    shared: Arc<Shared<S>>,
}

/// What a runtime is made of.
pub struct RuntimeParts<S: Shard> {
    /// The internal topic.
    pub topic: TopicName,
    /// How long a write may wait for its replicas.
    pub write_timeout_ms: i64,
    pub log: Arc<dyn ShardLog>,
    pub clock: Clock,
    /// Makes the empty state of a partition.
    pub new_shard: Box<dyn Fn(PartitionIndex) -> S + Send + Sync>,
    pub events: Box<dyn EventSink<S::Event>>,
}

/// Takes what shards report, at once and without waiting.
pub trait EventSink<E>: Send + Sync + 'static {
    fn emit(&self, partition: PartitionIndex, event: E);
}

/// Why a shard cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
pub enum CallError {
    #[snafu(display("another broker leads the partition"))]
    NotHere,
    #[snafu(display("the partition is being loaded"))]
    Loading,
    #[snafu(display("the broker is stopping"))]
    Stopped,
}

pub(super) struct Shared<S: Shard> {
    pub parts: RuntimeParts<S>,
    started: Instant,
    is_stopped: AtomicBool,
    shards: RwLock<HashMap<PartitionIndex, Place<S>>>,
}

/// What is known of one partition.
struct Place<S: Shard> {
    /// The newest epoch heard of; older news are ignored.
    leader_epoch: LeaderEpoch,
    handle: Option<Handle<S>>,
}

/// The task of a led partition. It ends when this is dropped.
struct Handle<S: Shard> {
    /// Boxed, because a queue reserves room for dozens of commands, of which some are large, for each shard.
    commands: mpsc::Sender<Box<Envelope<S>>>,
    is_loaded: Arc<AtomicBool>,
    _stop: oneshot::Sender<()>,
}

impl<S: Shard> Clone for Runtime<S> {
    fn clone(&self) -> Self {
        Runtime { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Shard> Runtime<S> {
    pub fn new(parts: RuntimeParts<S>) -> Runtime<S> {
        let shared = Shared {
            parts,
            started: Instant::now(),
            is_stopped: AtomicBool::new(false),
            shards: RwLock::new(HashMap::new()),
        };
        Runtime { shared: Arc::new(shared) }
    }

    /// This broker leads the partition from this epoch on: its shard is loaded and then answers. A shard that is here
    /// stays: the leader has a new epoch whenever a replica goes or the assignment changes, and its log is what the shard
    /// has written.
    ///
    /// Must be called within a tokio runtime. News that are not newer than what is known are ignored.
    pub fn on_elected(&self, partition: PartitionIndex, leader_epoch: LeaderEpoch) {
        if self.shared.is_stopped.load(Ordering::Acquire) {
            return;
        }
        let mut shards = self.shared.shards.write();
        let place =
            shards.entry(partition).or_insert(Place { leader_epoch: LeaderEpoch::UNKNOWN, handle: None });
        if place.leader_epoch >= leader_epoch {
            return;
        }
        place.leader_epoch = leader_epoch;
        place.handle.get_or_insert_with(|| self.start_shard(partition, leader_epoch));
    }

    /// Another broker leads the partition since this epoch, or (`None`) the partition is gone: waiting requests
    /// are refused and the state is dropped.
    pub fn on_resigned(&self, partition: PartitionIndex, leader_epoch: Option<LeaderEpoch>) {
        let mut shards = self.shared.shards.write();
        let Some(leader_epoch) = leader_epoch else {
            shards.remove(&partition);
            return;
        };
        let place = shards.entry(partition).or_insert(Place { leader_epoch, handle: None });
        if place.leader_epoch <= leader_epoch {
            place.leader_epoch = leader_epoch;
            place.handle = None;
        }
    }

    /// Asks the shard of a partition.
    ///
    /// Errors: [`CallError::NotHere`] also when the partition is lost before the answer is there.
    pub async fn call(&self, partition: PartitionIndex, command: S::Command) -> Result<S::Reply, CallError> {
        let commands = self.loaded_shard(partition)?;
        let answer = send(&commands, command).await?;
        drop(commands);
        answer.await.map_err(|_| CallError::NotHere)
    }

    /// Asks every loaded shard. The second value tells whether there are others that are still being loaded.
    pub async fn call_all(&self, command: impl Fn() -> S::Command) -> (Vec<S::Reply>, bool) {
        let (loaded, is_any_loading) = self.loaded_shards();
        let mut answers = Vec::with_capacity(loaded.len());
        for commands in loaded {
            answers.extend(send(&commands, command()).await.ok());
        }
        let mut replies = Vec::with_capacity(answers.len());
        for answer in answers {
            replies.extend(answer.await.ok());
        }
        (replies, is_any_loading)
    }

    /// Refuses everything from now on and drops all shards.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        self.shared.shards.write().clear();
    }

    pub fn is_stopped(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire)
    }

    fn start_shard(&self, partition: PartitionIndex, leader_epoch: LeaderEpoch) -> Handle<S> {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (stop, stopped) = oneshot::channel();
        let is_loaded = Arc::new(AtomicBool::new(false));
        let topic_partition = TopicPartition::new(self.shared.parts.topic.clone(), partition);
        let task =
            ShardTask::new(Arc::clone(&self.shared), topic_partition, leader_epoch, Arc::clone(&is_loaded));
        task::spawn_owner("coordinator shard", task.run(receiver, stopped));
        Handle { commands, is_loaded, _stop: stop }
    }

    fn loaded_shard(&self, partition: PartitionIndex) -> Result<mpsc::Sender<Box<Envelope<S>>>, CallError> {
        if self.is_stopped() {
            return Err(CallError::Stopped);
        }
        let shards = self.shared.shards.read();
        let handle = shards.get(&partition).and_then(|place| place.handle.as_ref());
        let handle = handle.ok_or(CallError::NotHere)?;
        if !handle.is_loaded.load(Ordering::Acquire) {
            return Err(CallError::Loading);
        }
        Ok(handle.commands.clone())
    }

    fn loaded_shards(&self) -> (Vec<mpsc::Sender<Box<Envelope<S>>>>, bool) {
        let shards = self.shared.shards.read();
        let handles = || shards.values().filter_map(|place| place.handle.as_ref());
        let is_loaded = |handle: &&Handle<S>| handle.is_loaded.load(Ordering::Acquire);
        let loaded: Vec<_> = handles().filter(is_loaded).map(|handle| handle.commands.clone()).collect();
        let is_any_loading = loaded.len() < handles().count();
        (loaded, is_any_loading)
    }
}

async fn send<S: Shard>(
    commands: &mpsc::Sender<Box<Envelope<S>>>,
    command: S::Command,
) -> Result<oneshot::Receiver<S::Reply>, CallError> {
    let (reply, answer) = oneshot::channel();
    commands.send(Box::new(Envelope { command, reply })).await.map_err(|_| CallError::NotHere)?;
    Ok(answer)
}

impl<S: Shard> Shared<S> {
    pub fn now(&self) -> Now {
        let elapsed_ms = self.started.elapsed().as_millis();
        Now {
            timestamp: self.parts.clock.now(),
            monotonic: Deadline(i64::try_from(elapsed_ms).unwrap_or(i64::MAX)),
        }
    }

    pub fn instant(&self, deadline: Deadline) -> Instant {
        let elapsed_ms = u64::try_from(deadline.0).unwrap_or(0);
        // A deadline beyond the clock's range is one that never comes.
        let far = std::time::Duration::from_secs(86_400 * 365);
        let elapsed = std::time::Duration::from_millis(elapsed_ms);
        self.started.checked_add(elapsed).unwrap_or_else(|| Instant::now() + far)
    }
}
