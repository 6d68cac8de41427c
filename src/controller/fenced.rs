use std::sync::Arc;

use snafu::Snafu;
use tokio::time::sleep;
use tracing::warn;

use super::candidacy::Term;
use super::core::{Leadership, OtherPartitions, ReassignmentError, StoreCall, StoreReply, TopicAssignment};
use super::nodes;
use super::patience::{self, RETRY_PAUSE, is_unknown};
use crate::coordination::znodes::{self, PartitionReassignment, ReassignPartitions};
use crate::coordination::{Create, CreateMode, NodeData, Operation, OperationResult, Store, StoreError};
use crate::model::{TopicName, TopicPartition};

/// Writes of a controller, each in a multi that checks its epoch: once another broker was elected, none of
/// them succeeds.
pub(super) struct FencedWriter {
    store: Arc<dyn Store>,
    term: Term,
}

/// Why a controller may no longer act.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
pub(super) enum Deposed {
    #[snafu(display("another controller was elected"))]
    Fenced,
    #[snafu(display("{source}"), context(false))]
    Store { source: StoreError },
}

/// As many partition states in one multi as stay far below ZooKeeper's limit of 1 MiB for a request, which
/// kills the connection.
const STATES_PER_MULTI: usize = 200;
const DELETIONS_PER_MULTI: usize = 500;

/// How often the tree of a topic may change under its deletion.
const DELETION_ATTEMPTS: usize = 5;

type MultiResult = Result<Vec<OperationResult>, (usize, StoreError)>;

impl FencedWriter {
    pub fn new(store: Arc<dyn Store>, term: Term) -> FencedWriter {
        FencedWriter { store, term }
    }

    /// Makes all calls, many in one write where they allow it, and answers each.
    pub async fn run(&self, calls: &[StoreCall]) -> Result<Vec<StoreReply>, Deposed> {
        let mut replies: Vec<Option<StoreReply>> = vec![None; calls.len()];
        let states: Vec<(usize, Vec<Operation>)> =
            calls.iter().enumerate().filter_map(|(at, call)| Some((at, state_operations(call)?))).collect();
        let chunks: Vec<_> = states.chunks(STATES_PER_MULTI).collect();
        let multis: Vec<_> = chunks
            .iter()
            .map(|chunk| self.multi(chunk.iter().flat_map(|(_, operations)| operations.clone()).collect()))
            .collect();
        for (chunk, multi) in chunks.into_iter().zip(multis) {
            // When one member is refused nothing of the chunk was written: then each call goes alone.
            if let Some(results) = accepted(multi.await)? {
                let mut results = results.into_iter().skip(1);
                for (at, operations) in chunk {
                    let last = results.by_ref().take(operations.len()).last();
                    if let Some(reply) = replies.get_mut(*at) {
                        *reply =
                            last.map(|result| StoreReply::Written { partition_epoch: version_of(&result) });
                    }
                }
            }
        }
        self.assign_at_once(calls, &mut replies).await?;
        let mut answers = Vec::with_capacity(calls.len());
        for (call, reply) in calls.iter().zip(replies) {
            answers.push(match reply {
                Some(reply) => reply,
                None => self.run_alone(call).await?,
            });
        }
        Ok(answers)
    }

    /// Deletes nodes that are there; those that are gone already are no error.
    pub async fn delete_each(&self, paths: Vec<String>) -> Result<(), Deposed> {
        let deletions: Vec<_> = paths
            .iter()
            .map(|path| self.multi(vec![Operation::Delete { path: path.clone(), version: None }]))
            .collect();
        for (path, multi) in paths.iter().zip(deletions) {
            if accepted(multi.await)?.is_none() {
                // Refused because it is gone, or has children that its reader will see next time.
                let _ = self.alone(vec![Operation::Delete { path: path.clone(), version: None }]).await?;
            }
        }
        Ok(())
    }

    async fn run_alone(&self, call: &StoreCall) -> Result<StoreReply, Deposed> {
        match call {
            StoreCall::CreateState { partition, leadership } => {
                self.create_state(partition, leadership).await
            }
            StoreCall::SetState { partition, leadership } => self.set_state(partition, leadership).await,
            StoreCall::ReadUncleanElection { topic } => {
                let config = patience::read(&*self.store, &znodes::topic_config(topic)).await?;
                Ok(StoreReply::UncleanElection {
                    setting: config.and_then(|node| nodes::unclean_election(topic, &node)),
                })
            }
            StoreCall::SetAssignment { topic, others } => self.set_assignment(topic, *others).await,
            StoreCall::DeleteTopic { topic, .. } => self.delete_topic(topic).await,
            StoreCall::RemoveDeletionMarks { topics } => {
                let marks = topics.iter().map(|topic| znodes::delete_topic(topic)).collect();
                self.delete_each(marks).await?;
                Ok(StoreReply::Done)
            }
            StoreCall::SettleReassignments { done, failed } => self.settle_reassignments(done, failed).await,
            StoreCall::RemovePreferredElection => {
                self.delete_each(vec![znodes::PREFERRED_ELECTION.to_owned()]).await?;
                Ok(StoreReply::Done)
            }
        }
    }

    async fn create_state(
        &self,
        partition: &TopicPartition,
        leadership: &Leadership,
    ) -> Result<StoreReply, Deposed> {
        let parents =
            [znodes::partitions(&partition.topic), znodes::partition(&partition.topic, partition.partition)];
        for path in parents {
            match self.alone(vec![create(path, None)]).await? {
                Ok(_) | Err(StoreError::NodeExists { .. }) => {}
                Err(error) => return Ok(refused("create partition", partition, &error)),
            }
        }
        let path = znodes::partition_state(&partition.topic, partition.partition);
        match self.alone(vec![create(path, Some(nodes::encode_state(leadership)))]).await? {
            Ok(_) => Ok(StoreReply::Written { partition_epoch: 0 }),
            Err(StoreError::NodeExists { .. }) => self.settle(partition, leadership, 0).await,
            Err(error) => Ok(refused("create partition state", partition, &error)),
        }
    }

    async fn set_state(
        &self,
        partition: &TopicPartition,
        leadership: &Leadership,
    ) -> Result<StoreReply, Deposed> {
        let expected = leadership.leader_and_isr.partition_epoch;
        let set = Operation::Set {
            path: znodes::partition_state(&partition.topic, partition.partition),
            data: Some(nodes::encode_state(leadership)),
            version: Some(expected),
        };
        match self.alone(vec![set]).await? {
            Ok(results) => {
                let partition_epoch = results.last().map_or(expected + 1, version_of);
                Ok(StoreReply::Written { partition_epoch })
            }
            Err(StoreError::BadVersion { .. } | StoreError::NoNode { .. }) => {
                self.settle(partition, leadership, expected + 1).await
            }
            Err(error) => Ok(refused("write partition state", partition, &error)),
        }
    }

    /// Finds out what stands where our write was refused. It may be that very write, whose answer was lost.
    async fn settle(
        &self,
        partition: &TopicPartition,
        wanted: &Leadership,
        version: i32,
    ) -> Result<StoreReply, Deposed> {
        let path = znodes::partition_state(&partition.topic, partition.partition);
        let current =
            patience::read(&*self.store, &path).await?.and_then(|node| nodes::decode_state(&path, &node));
        let is_ours = current.as_ref().is_some_and(|current| {
            let mut wanted = wanted.clone();
            wanted.leader_and_isr.partition_epoch = version;
            *current == wanted
        });
        Ok(if is_ours {
            StoreReply::Written { partition_epoch: version }
        } else {
            StoreReply::Conflict { current }
        })
    }

    /// Writes the nodes of many topics side by side; those that somebody else is just writing go alone.
    async fn assign_at_once(
        &self,
        calls: &[StoreCall],
        replies: &mut [Option<StoreReply>],
    ) -> Result<(), Deposed> {
        let (mut topics, mut paths) = (Vec::new(), Vec::new());
        for (at, call) in calls.iter().enumerate() {
            if let StoreCall::SetAssignment { topic, others } = call {
                topics.push((at, topic, *others));
                paths.push(znodes::topic(&topic.name));
            }
        }
        if topics.len() < 2 {
            return Ok(());
        }
        let nodes = patience::read_each(&*self.store, &paths).await?;
        let mut writes = Vec::new();
        for ((at, topic, others), node) in topics.into_iter().zip(nodes) {
            if let Some(node) = node {
                writes.push((at, self.multi(vec![assignment_write(topic, others, &node)])));
            }
        }
        for (at, write) in writes {
            let is_written = accepted(write.await)?.is_some();
            if let Some(reply) = replies.get_mut(at).filter(|_| is_written) {
                *reply = Some(StoreReply::Done);
            }
        }
        Ok(())
    }

    /// Overwrites a topic's node. What somebody else adds to it meanwhile is not lost.
    pub async fn set_assignment(
        &self,
        topic: &TopicAssignment,
        others: OtherPartitions,
    ) -> Result<StoreReply, Deposed> {
        let path = znodes::topic(&topic.name);
        loop {
            let Some(node) = patience::read(&*self.store, &path).await? else {
                warn!(topic = %topic.name, "the topic's node is gone, its assignment is not written");
                return Ok(StoreReply::Refused);
            };
            let set = assignment_write(topic, others, &node);
            match self.alone(vec![set]).await? {
                Ok(_) => return Ok(StoreReply::Done),
                Err(StoreError::BadVersion { .. } | StoreError::NoNode { .. }) => {}
                Err(error) => {
                    warn!(topic = %topic.name, %error, "the topic's assignment was not written");
                    return Ok(StoreReply::Refused);
                }
            }
        }
    }

    async fn settle_reassignments(
        &self,
        done: &[PartitionReassignment],
        failed: &[(PartitionReassignment, ReassignmentError)],
    ) -> Result<StoreReply, Deposed> {
        for (entry, error) in failed {
            let TopicPartition { topic, partition } = &entry.topic_partition;
            warn!(%topic, %partition, %error, "a reassignment in the store is left out");
        }
        let is_settled = |entry: &PartitionReassignment| {
            done.contains(entry) || failed.iter().any(|(failed, _)| failed == entry)
        };
        let path = znodes::REASSIGN_PARTITIONS.to_owned();
        loop {
            let Some(node) = patience::read(&*self.store, &path).await? else { return Ok(StoreReply::Done) };
            let Some(mut written) = nodes::readable(&path, ReassignPartitions::decode(&node)) else {
                return Ok(StoreReply::Refused);
            };
            let before = written.0.len();
            written.0.retain(|entry| !is_settled(entry));
            if written.0.len() == before {
                return Ok(StoreReply::Done);
            }
            let version = Some(node.stat.version);
            let operation = if written.0.is_empty() {
                Operation::Delete { path: path.clone(), version }
            } else {
                Operation::Set { path: path.clone(), data: Some(written.encode()), version }
            };
            match self.alone(vec![operation]).await? {
                Ok(_) => return Ok(StoreReply::Done),
                Err(StoreError::BadVersion { .. } | StoreError::NoNode { .. }) => {}
                Err(error) => {
                    warn!(%error, "finished reassignments stay in the store");
                    return Ok(StoreReply::Refused);
                }
            }
        }
    }

    /// Removes everything below the topic first. The topic, its configuration and the mark go in one write, so
    /// that no configuration is left for a later topic of the same name.
    async fn delete_topic(&self, topic: &TopicName) -> Result<StoreReply, Deposed> {
        for _ in 0..DELETION_ATTEMPTS {
            let below = self.below_partitions(topic).await?;
            let chunks: Vec<_> =
                below.chunks(DELETIONS_PER_MULTI).map(|chunk| self.multi(chunk.to_vec())).collect();
            for chunk in chunks {
                accepted(chunk.await)?;
            }
            let mut last = Vec::new();
            let ends = [
                znodes::partitions(topic),
                znodes::topic(topic),
                znodes::topic_config(topic),
                znodes::delete_topic(topic),
            ];
            for (path, node) in ends.iter().zip(patience::read_each(&*self.store, &ends).await?) {
                if node.is_some() {
                    last.push(Operation::Delete { path: path.clone(), version: None });
                }
            }
            match self.alone(last).await? {
                Ok(_) => return Ok(StoreReply::Done),
                // Someone else changes the same nodes: look again.
                Err(StoreError::NoNode { .. } | StoreError::NotEmpty { .. }) => {}
                Err(error) => {
                    warn!(%topic, %error, "the topic's nodes were not removed");
                    return Ok(StoreReply::Refused);
                }
            }
        }
        warn!(%topic, "the topic's nodes were not removed: they keep changing");
        Ok(StoreReply::Refused)
    }

    async fn below_partitions(&self, topic: &TopicName) -> Result<Vec<Operation>, Deposed> {
        let root = znodes::partitions(topic);
        let partitions: Vec<String> = patience::children(&*self.store, &root)
            .await?
            .into_iter()
            .map(|partition| format!("{root}/{partition}"))
            .collect();
        let children = patience::children_of_each(&*self.store, &partitions).await?;
        let mut operations = Vec::new();
        for (partition, children) in partitions.into_iter().zip(children) {
            let children = children.unwrap_or_default().into_iter();
            let paths = children.map(|child| format!("{partition}/{child}")).chain([partition.clone()]);
            operations.extend(paths.map(|path| Operation::Delete { path, version: None }));
        }
        Ok(operations)
    }

    /// One fenced write, made again until its outcome is known: a repetition that finds its own work done is
    /// refused, and the caller reads what stands.
    async fn alone(
        &self,
        operations: Vec<Operation>,
    ) -> Result<Result<Vec<OperationResult>, StoreError>, Deposed> {
        loop {
            match self.multi(operations.clone()).await {
                Err((_, error)) if is_unknown(&error) => sleep(RETRY_PAUSE).await,
                // A full disk is waited out: what the controller has decided, nobody else will write.
                Err((_, StoreError::NoSpace)) => sleep(RETRY_PAUSE).await,
                Err((0, error)) => return Err(deposed(error)),
                Err((_, error)) => return Ok(Err(error)),
                Ok(results) => return Ok(Ok(results)),
            }
        }
    }

    fn multi(&self, operations: Vec<Operation>) -> crate::coordination::BoxFuture<'_, MultiResult> {
        let check =
            Operation::Check { path: znodes::CONTROLLER_EPOCH.to_owned(), version: self.term.epoch_version };
        self.store.multi([check].into_iter().chain(operations).collect())
    }
}

/// `None` = nothing was written, or it is not known: ask for each member alone.
fn accepted(result: MultiResult) -> Result<Option<Vec<OperationResult>>, Deposed> {
    match result {
        Ok(results) => Ok(Some(results)),
        Err((_, StoreError::NoSpace)) => Ok(None),
        Err((0, error)) if !is_unknown(&error) => Err(deposed(error)),
        Err(_) => Ok(None),
    }
}

fn deposed(error: StoreError) -> Deposed {
    match error {
        StoreError::BadVersion { .. } | StoreError::NoNode { .. } => Deposed::Fenced,
        source => Deposed::Store { source },
    }
}

/// The writes of a partition state; `None` for other calls.
fn state_operations(call: &StoreCall) -> Option<Vec<Operation>> {
    match call {
        StoreCall::CreateState { partition, leadership } => {
            let (topic, index) = (&partition.topic, partition.partition);
            let mut operations = Vec::with_capacity(3);
            // The first partition brings the parent of all with it.
            if index.0 == 0 {
                operations.push(create(znodes::partitions(topic), None));
            }
            operations.push(create(znodes::partition(topic, index), None));
            operations
                .push(create(znodes::partition_state(topic, index), Some(nodes::encode_state(leadership))));
            Some(operations)
        }
        StoreCall::SetState { partition, leadership } => Some(vec![Operation::Set {
            path: znodes::partition_state(&partition.topic, partition.partition),
            data: Some(nodes::encode_state(leadership)),
            version: Some(leadership.leader_and_isr.partition_epoch),
        }]),
        StoreCall::ReadUncleanElection { .. }
        | StoreCall::SetAssignment { .. }
        | StoreCall::DeleteTopic { .. }
        | StoreCall::RemoveDeletionMarks { .. }
        | StoreCall::SettleReassignments { .. }
        | StoreCall::RemovePreferredElection => None,
    }
}

/// A topic's node over the one that was read.
fn assignment_write(topic: &TopicAssignment, others: OtherPartitions, read: &NodeData) -> Operation {
    let mut wanted = topic.clone();
    if others == OtherPartitions::Stay
        && let Some(current) = nodes::decode_topic(&topic.name, read)
    {
        for (index, assignment) in current.partitions {
            wanted.partitions.entry(index).or_insert(assignment);
        }
    }
    let data = Some(nodes::encode_topic(&wanted));
    Operation::Set { path: znodes::topic(&topic.name), data, version: Some(read.stat.version) }
}

fn create(path: String, data: Option<bytes::Bytes>) -> Operation {
    Operation::Create(Create { path, data, mode: CreateMode::Persistent })
}

fn version_of(result: &OperationResult) -> i32 {
    match result {
        OperationResult::Created { stat, .. } | OperationResult::Set(stat) => stat.version,
        OperationResult::Deleted | OperationResult::Checked => 0,
    }
}

fn refused(attempt: &str, partition: &TopicPartition, error: &StoreError) -> StoreReply {
    warn!(topic = %partition.topic, partition = %partition.partition, %error, "the store refused to {attempt}");
    StoreReply::Refused
}
