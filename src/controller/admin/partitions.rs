use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use snafu::{Snafu, ensure};
use tracing::info;

use super::Admin;
use super::create_topics::has_leaders;
use crate::controller::nodes;
use crate::controller::patience::{self, RETRY_PAUSE, is_unknown};
use crate::controller::placement::{Candidate, PlacementError, Start, place};
use crate::controller::service::NotController;
use crate::coordination::StoreError;
use crate::coordination::znodes::{self, ReplicaAssignment};
use crate::model::{BrokerId, PartitionIndex, TopicName};

/// A topic that is to have more partitions.
#[derive(Clone, Debug, Default)]
pub struct NewPartitions {
    pub topic: String,
    /// How many it shall have in all.
    pub count: i32,
    /// The replicas of each new partition; `None` = the controller chooses.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// Why a topic got no more partitions, in the words of Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
pub enum CreatePartitionsError {
    /// INVALID_REQUEST
    #[snafu(display("Duplicate topic in request."))]
    NamedTwice,
    /// TOPIC_AUTHORIZATION_FAILED
    #[snafu(display("The topic authorization is failed."))]
    NotAuthorized,
    /// INVALID_TOPIC_EXCEPTION
    #[snafu(display("The topic is queued for deletion."))]
    MarkedForDeletion,
    /// UNKNOWN_TOPIC_OR_PARTITION
    #[snafu(display("The topic '{topic}' does not exist."))]
    UnknownTopic { topic: String },
    /// REASSIGNMENT_IN_PROGRESS
    #[snafu(display("A partition reassignment is in progress for the topic '{topic}'."))]
    ReassignmentInProgress { topic: String },
    /// INVALID_PARTITIONS
    #[snafu(display(
        "Topic currently has {current} partitions, which is higher than the requested {requested}."
    ))]
    FewerPartitions { current: i32, requested: i32 },
    /// INVALID_PARTITIONS
    #[snafu(display("Topic already has {current} partitions."))]
    SamePartitions { current: i32 },
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display("Unknown broker(s) in replica assignment: {}.", join(brokers)))]
    UnknownBrokers { brokers: Vec<BrokerId> },
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display(
        "Increasing the number of partitions by {added} but {assignments} assignments provided."
    ))]
    WrongCount { added: i32, assignments: usize },
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display("Cannot have replication factor of 0 for partition id {partition}."))]
    NoReplicas { partition: PartitionIndex },
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display(
        "Duplicate brokers not allowed in replica assignment: {} for partition id {partition}.",
        join(replicas)
    ))]
    DuplicateReplicas { partition: PartitionIndex, replicas: Vec<BrokerId> },
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display(
        "Inconsistent replication factor between partitions, partition 0 has {expected} while partitions [{}] have replication factors [{}], respectively.",
        join(partitions),
        join(factors)
    ))]
    UnevenReplicas { expected: usize, partitions: Vec<PartitionIndex>, factors: Vec<usize> },
    /// UNKNOWN_SERVER_ERROR
    #[snafu(display(
        "Unexpected existing replica assignment for topic '{topic}', partition id 0 is missing."
    ))]
    FirstPartitionMissing { topic: String },
    /// As for new topics.
    #[snafu(display("{source}"), context(false))]
    Placement { source: PlacementError },
    /// REQUEST_TIMED_OUT, without a message: they are being created.
    #[snafu(display("the partitions are created, but not led by anyone yet"))]
    TimedOut,
    /// UNKNOWN_SERVER_ERROR
    #[snafu(display("{source}"), context(false))]
    Store { source: StoreError },
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Admin {
    /// Adds partitions and waits until they have leaders. One answer for each topic, in the order of the
    /// request.
    pub async fn create_partitions(
        &self,
        request: Vec<NewPartitions>,
        validate_only: bool,
        timeout_ms: i32,
        may_alter: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, Result<(), CreatePartitionsError>)>, NotController> {
        if !self.controller.is_active() {
            return Err(NotController);
        }
        let mut topics: IndexMap<String, Vec<NewPartitions>> = IndexMap::new();
        for topic in request {
            topics.entry(topic.topic.clone()).or_default().push(topic);
        }
        let mut answers = IndexMap::new();
        let mut waiting: BTreeMap<String, i32> = BTreeMap::new();
        for (name, named) in topics {
            let outcome = match named.as_slice() {
                [topic] if may_alter(&name) => self.add_partitions(topic, validate_only).await,
                [_] => Err(CreatePartitionsError::NotAuthorized),
                _ => Err(CreatePartitionsError::NamedTwice),
            };
            if let Ok(count) = outcome {
                waiting.insert(name.clone(), count);
            }
            answers.insert(name, outcome.map(|_| ()));
        }
        if validate_only {
            return Ok(answers.into_iter().collect());
        }
        if timeout_ms > 0 && !waiting.is_empty() {
            self.await_metadata(timeout_ms, |image| {
                waiting.retain(|name, count| !has_leaders(image, name, *count));
                waiting.is_empty()
            })
            .await;
        }
        for name in waiting.into_keys() {
            answers.insert(name, Err(CreatePartitionsError::TimedOut));
        }
        Ok(answers.into_iter().collect())
    }

    /// Checks and writes; gives the number of partitions that the topic has then.
    async fn add_partitions(
        &self,
        request: &NewPartitions,
        validate_only: bool,
    ) -> Result<i32, CreatePartitionsError> {
        let unknown = || CreatePartitionsError::UnknownTopic { topic: request.topic.clone() };
        let name = TopicName::new(&request.topic).map_err(|_| unknown())?;
        let store = self.store();
        if patience::read(&*store, &znodes::delete_topic(&name)).await?.is_some() {
            return Err(CreatePartitionsError::MarkedForDeletion);
        }
        let path = znodes::topic(&name);
        let brokers = Admin::candidates(&self.metadata.image());
        loop {
            let node = patience::read(&*store, &path).await?.ok_or_else(unknown)?;
            let mut topic = nodes::decode_topic(&name, &node).ok_or_else(unknown)?;
            let added = new_assignments(request, &topic.partitions, &brokers)?;
            topic.partitions.extend(added);
            if validate_only {
                return Ok(request.count);
            }
            // On the version that was checked: a reassignment that starts meanwhile must not be undone.
            match store.set(&path, Some(nodes::encode_topic(&topic)), Some(node.stat.version)).await {
                Ok(_) => {
                    info!(topic = %name, partitions = request.count, "partitions added");
                    return Ok(request.count);
                }
                Err(StoreError::BadVersion { .. }) => {}
                Err(error) if is_unknown(&error) => tokio::time::sleep(RETRY_PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The partitions to add, checked in Kafka's order.
fn new_assignments(
    request: &NewPartitions,
    existing: &BTreeMap<PartitionIndex, ReplicaAssignment>,
    brokers: &[Candidate],
) -> Result<BTreeMap<PartitionIndex, ReplicaAssignment>, CreatePartitionsError> {
    let topic = &request.topic;
    let is_reassigned =
        |assignment: &ReplicaAssignment| !assignment.adding.is_empty() || !assignment.removing.is_empty();
    ensure!(!existing.values().any(is_reassigned), ReassignmentInProgressSnafu { topic });
    ensure!(!existing.is_empty(), UnknownTopicSnafu { topic });
    let (current, requested) = (i32::try_from(existing.len()).unwrap_or(i32::MAX), request.count);
    ensure!(requested >= current, FewerPartitionsSnafu { current, requested });
    ensure!(requested > current, SamePartitionsSnafu { current });
    let added = requested - current;
    if let Some(assignments) = &request.assignments {
        let known: BTreeSet<BrokerId> = brokers.iter().map(|broker| broker.id).collect();
        let named: BTreeSet<BrokerId> = assignments.iter().flatten().copied().collect();
        let unknown: Vec<BrokerId> = named.difference(&known).copied().collect();
        ensure!(unknown.is_empty(), UnknownBrokersSnafu { brokers: unknown });
        let provided = assignments.len();
        ensure!(usize::try_from(added) == Ok(provided), WrongCountSnafu { added, assignments: provided });
    }
    let Some(first) = existing.get(&PartitionIndex(0)) else {
        return FirstPartitionMissingSnafu { topic }.fail();
    };
    let replicas = match &request.assignments {
        Some(assignments) => {
            check_replicas(assignments, current, first.replicas.len())?;
            assignments.clone()
        }
        None => continue_pattern(first, current, added, brokers)?,
    };
    let assignment = |replicas| ReplicaAssignment { replicas, ..ReplicaAssignment::default() };
    Ok((current..).map(PartitionIndex).zip(replicas.into_iter().map(assignment)).collect())
}

fn check_replicas(
    assignments: &[Vec<BrokerId>],
    current: i32,
    expected: usize,
) -> Result<(), CreatePartitionsError> {
    for (partition, replicas) in (current..).map(PartitionIndex).zip(assignments) {
        ensure!(!replicas.is_empty(), NoReplicasSnafu { partition });
        let distinct: BTreeSet<&BrokerId> = replicas.iter().collect();
        ensure!(
            distinct.len() == replicas.len(),
            DuplicateReplicasSnafu { partition, replicas: replicas.clone() }
        );
    }
    let (mut partitions, mut factors) = (Vec::new(), Vec::new());
    for (partition, replicas) in (current..).map(PartitionIndex).zip(assignments) {
        if replicas.len() != expected {
            partitions.push(partition);
            factors.push(replicas.len());
        }
    }
    ensure!(partitions.is_empty(), UnevenReplicasSnafu { expected, partitions, factors });
    Ok(())
}

/// Places partitions as if the topic had been created with them.
fn continue_pattern(
    first: &ReplicaAssignment,
    current: i32,
    added: i32,
    brokers: &[Candidate],
) -> Result<Vec<Vec<BrokerId>>, CreatePartitionsError> {
    let leader = first.replicas.first().copied().unwrap_or(BrokerId::NONE);
    let at = brokers.iter().position(|broker| broker.id >= leader).unwrap_or(0);
    let start = Start { first: at, shift: at, partition: usize::try_from(current).unwrap_or(0) };
    let factor = i32::try_from(first.replicas.len()).unwrap_or(i32::MAX);
    Ok(place(brokers, added, factor, start)?)
}
