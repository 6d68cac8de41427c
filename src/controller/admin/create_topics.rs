use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use snafu::ensure;
use tokio::time::sleep;
use tracing::info;

use super::Admin;
use super::creation_error::{
    CountsAndAssignmentsSnafu, CreateTopicError, DuplicateReplicasSnafu, MarkedForDeletionSnafu,
    NameCollidesSnafu, NoReplicasSnafu, NullConfigSnafu, PartitionsNotConsecutiveSnafu, TopicExistsSnafu,
    UnevenReplicasSnafu,
};
use crate::config::{BrokerConfig, Properties, TopicConfig};
use crate::controller::core::TopicAssignment;
use crate::controller::loader::new_topic_id;
use crate::controller::nodes;
use crate::controller::patience::{self, RETRY_PAUSE, is_unknown, until_answered};
use crate::controller::placement::{Start, place};
use crate::controller::service::NotController;
use crate::coordination::znodes::{self, EntityConfig, ReplicaAssignment};
use crate::coordination::{BoxFuture, Create, CreateMode, Operation, OperationResult, Store, StoreError};
use crate::metadata::Image;
use crate::model::{BrokerId, PartitionIndex, TopicId, TopicName};

/// Topics that a client wants to have.
#[derive(Clone, Debug, Default)]
pub struct CreateTopics {
    pub topics: Vec<NewTopic>,
    /// Check everything, write nothing.
    pub validate_only: bool,
    /// How long to wait for leaders, in milliseconds. 0 and less: not at all.
    pub timeout_ms: i32,
}

#[derive(Clone, Debug, Default)]
pub struct NewTopic {
    pub name: String,
    /// `-1` = `num.partitions`.
    pub partitions: i32,
    /// `-1` = `default.replication.factor`.
    pub replication_factor: i16,
    /// Which brokers are to hold which partition; empty = the controller chooses.
    pub assignments: Vec<(PartitionIndex, Vec<BrokerId>)>,
    pub configs: Vec<(String, Option<String>)>,
}

/// A topic that was created, or could be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Zero when it was only validated, or where topics get no ids.
    pub id: TopicId,
    pub partitions: i32,
    pub replication_factor: i16,
    /// What differs from the brokers' defaults.
    pub overrides: Properties,
}

type Outcome = Result<CreatedTopic, CreateTopicError>;

/// A topic that passed the checks which need no store.
struct Candidate {
    name: TopicName,
    partitions: BTreeMap<PartitionIndex, ReplicaAssignment>,
    overrides: Properties,
}

const CLUSTER_METADATA: &str = "__cluster_metadata";

impl Admin {
    /// Creates topics and waits until they have leaders. One answer for each name, in the order of the request.
    ///
    /// A topic whose answer is [`CreateTopicError::TimedOut`] exists nevertheless.
    pub async fn create_topics(
        &self,
        request: CreateTopics,
        config: &BrokerConfig,
        may_create: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, Outcome)>, NotController> {
        if !self.controller.is_active() {
            return Err(NotController);
        }
        let mut topics: IndexMap<String, Vec<NewTopic>> = IndexMap::new();
        for topic in request.topics {
            topics.entry(topic.name.clone()).or_default().push(topic);
        }
        let mut outcomes: IndexMap<String, Outcome> = IndexMap::new();
        let mut accepted = Vec::new();
        for (name, mut named) in topics {
            let refusal = if named.len() > 1 {
                CreateTopicError::NamedTwice
            } else if name == CLUSTER_METADATA {
                CreateTopicError::ProhibitedName
            } else if !may_create(&name) {
                CreateTopicError::NotAuthorized
            } else {
                accepted.extend(named.pop());
                // Stands until the topic is created; no way leads around that.
                CreateTopicError::TimedOut
            };
            outcomes.insert(name, Err(refusal));
        }
        for (name, outcome) in self.create(accepted, request.validate_only, config).await {
            outcomes.insert(name, outcome);
        }
        if !request.validate_only {
            self.await_leaders(&mut outcomes, request.timeout_ms).await;
        }
        Ok(outcomes.into_iter().collect())
    }

    /// Checks and writes, without waiting.
    pub(super) async fn create(
        &self,
        topics: Vec<NewTopic>,
        validate_only: bool,
        config: &BrokerConfig,
    ) -> Vec<(String, Outcome)> {
        let image = self.metadata.image();
        let mut outcomes = Vec::new();
        let mut candidates = Vec::new();
        for topic in topics {
            match self.check(&topic, &image, config) {
                Ok(candidate) => candidates.push(candidate),
                Err(error) => outcomes.push((topic.name, Err(error))),
            }
        }
        let store = self.store();
        let stored = match Stored::look_up(&*store, &candidates).await {
            Ok(stored) => stored,
            Err(error) => {
                let failed =
                    candidates.into_iter().map(|topic| (topic.name.to_string(), Err(error.clone().into())));
                outcomes.extend(failed);
                return outcomes;
            }
        };
        let mut writes = Vec::new();
        for (topic, refusal) in stored.check_all(candidates, config) {
            match refusal {
                Some(error) => outcomes.push((topic.name.to_string(), Err(error))),
                None if validate_only => {
                    outcomes.push((topic.name.to_string(), Ok(topic.created(TopicId::ZERO))));
                }
                None => {
                    let id = self.options.uses_topic_ids.then(|| new_topic_id(&self.random));
                    writes.push(TopicWrite::start(&*store, topic, id));
                }
            }
        }
        for write in writes {
            let name = write.topic.name.to_string();
            outcomes.push((name, write.finish(&*store).await));
        }
        outcomes
    }

    /// The checks that need no store, in Kafka's order.
    fn check(
        &self,
        topic: &NewTopic,
        image: &Image,
        config: &BrokerConfig,
    ) -> Result<Candidate, CreateTopicError> {
        ensure!(image.topic(&topic.name).is_none(), TopicExistsSnafu { topic: topic.name.clone() });
        let null_keys = |configs: &[(String, Option<String>)]| -> Vec<String> {
            configs.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.clone()).collect()
        };
        let keys = null_keys(&topic.configs);
        ensure!(keys.is_empty(), NullConfigSnafu { keys });
        let has_counts = topic.partitions != -1 || topic.replication_factor != -1;
        ensure!(!has_counts || topic.assignments.is_empty(), CountsAndAssignmentsSnafu);
        let partitions = if topic.assignments.is_empty() {
            self.place(topic, image, config)?
        } else {
            let assigned = topic.assignments.iter().cloned();
            assigned.map(|(index, replicas)| (index, assignment_of(replicas))).collect()
        };
        let name = TopicName::new(&topic.name).map_err(|name| CreateTopicError::InvalidName { name })?;
        let configs = topic.configs.iter().cloned();
        let overrides = configs.filter_map(|(key, value)| Some((key, value?))).collect();
        Ok(Candidate { name, partitions, overrides })
    }

    fn place(
        &self,
        topic: &NewTopic,
        image: &Image,
        config: &BrokerConfig,
    ) -> Result<BTreeMap<PartitionIndex, ReplicaAssignment>, CreateTopicError> {
        let or_default = |given: i32, default: i32| if given == -1 { default } else { given };
        let brokers = Admin::candidates(image);
        let draw = || self.random.number(0..brokers.len().max(1) as u64) as usize;
        let placed = place(
            &brokers,
            or_default(topic.partitions, config.num_partitions()),
            or_default(topic.replication_factor.into(), config.default_replication_factor()),
            Start { first: draw(), shift: draw(), partition: 0 },
        )?;
        Ok((0..).map(PartitionIndex).zip(placed.into_iter().map(assignment_of)).collect())
    }

    /// Turns the answers of topics that do not get leaders in time.
    async fn await_leaders(&self, outcomes: &mut IndexMap<String, Outcome>, timeout_ms: i32) {
        let mut waiting: BTreeMap<String, i32> = outcomes
            .iter()
            .filter_map(|(name, outcome)| Some((name.clone(), outcome.as_ref().ok()?.partitions)))
            .collect();
        if timeout_ms > 0 && !waiting.is_empty() {
            self.await_metadata(timeout_ms, |image| {
                waiting.retain(|name, partitions| !has_leaders(image, name, *partitions));
                waiting.is_empty()
            })
            .await;
        }
        for name in waiting.into_keys() {
            outcomes.insert(name, Err(CreateTopicError::TimedOut));
        }
    }
}

/// All partitions from 0 have leaders as far as this broker knows.
pub(super) fn has_leaders(image: &Image, topic: &str, partitions: i32) -> bool {
    let Some(topic) = image.topic(topic) else { return false };
    (0..partitions)
        .all(|index| topic.partition(PartitionIndex(index)).is_some_and(|partition| partition.has_leader()))
}

fn assignment_of(replicas: Vec<BrokerId>) -> ReplicaAssignment {
    ReplicaAssignment { replicas, ..ReplicaAssignment::default() }
}

impl Candidate {
    fn created(&self, id: TopicId) -> CreatedTopic {
        let replicas = self.partitions.values().next().map_or(0, |first| first.replicas.len());
        CreatedTopic {
            id,
            partitions: i32::try_from(self.partitions.len()).unwrap_or(i32::MAX),
            replication_factor: i16::try_from(replicas).unwrap_or(i16::MAX),
            overrides: self.overrides.clone(),
        }
    }

    fn check_assignment(&self) -> Result<(), CreateTopicError> {
        let replicas = || self.partitions.iter().map(|(index, assignment)| (*index, &assignment.replicas));
        let factors: BTreeSet<usize> = replicas().map(|(_, replicas)| replicas.len()).collect();
        ensure!(factors.len() == 1, UnevenReplicasSnafu);
        if let Some((partition, _)) = replicas().find(|(_, replicas)| replicas.is_empty()) {
            return NoReplicasSnafu { partition }.fail();
        }
        let is_duplicate =
            |replicas: &Vec<BrokerId>| replicas.iter().collect::<BTreeSet<_>>().len() < replicas.len();
        if replicas().any(|(_, replicas)| is_duplicate(replicas)) {
            let show = |(index, replicas): (PartitionIndex, &Vec<BrokerId>)| {
                let ids: Vec<String> = replicas.iter().map(ToString::to_string).collect();
                format!("{index} -> ArrayBuffer({})", ids.join(", "))
            };
            let assignment = format!("Map({})", replicas().map(show).collect::<Vec<_>>().join(", "));
            return DuplicateReplicasSnafu { assignment }.fail();
        }
        let is_consecutive = self.partitions.keys().zip(0..).all(|(index, expected)| index.0 == expected);
        ensure!(is_consecutive, PartitionsNotConsecutiveSnafu);
        Ok(())
    }
}

/// What the store says about the topics of a request.
struct Stored {
    existing: Vec<Presence>,
    /// By collision key, the names of all topics; empty when no name of the request can collide.
    names: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Copy)]
struct Presence {
    is_marked: bool,
    exists: bool,
}

impl Stored {
    async fn look_up(store: &dyn Store, topics: &[Candidate]) -> Result<Stored, StoreError> {
        let paths: Vec<String> = topics
            .iter()
            .flat_map(|topic| [znodes::delete_topic(&topic.name), znodes::topic(&topic.name)])
            .collect();
        let found = patience::exists_each(store, &paths).await?;
        let existing = found.chunks(2).map(|pair| Presence {
            is_marked: pair.first().is_some_and(|&exists| exists),
            exists: pair.get(1).is_some_and(|&exists| exists),
        });
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        if topics.iter().any(|topic| topic.name.contains(['.', '_'])) {
            for name in patience::children(store, znodes::TOPICS).await? {
                names.entry(collision_key(&name)).or_default().push(name);
            }
        }
        Ok(Stored { existing: existing.collect(), names })
    }

    /// The rest of the checks, in Kafka's order: topic after topic, each seeing those before it.
    fn check_all(
        mut self,
        topics: Vec<Candidate>,
        config: &BrokerConfig,
    ) -> Vec<(Candidate, Option<CreateTopicError>)> {
        let mut checked = Vec::new();
        for (topic, presence) in topics.into_iter().zip(std::mem::take(&mut self.existing)) {
            let refusal = self.check(&topic, presence, config).err();
            if refusal.is_none() {
                self.names.entry(collision_key(&topic.name)).or_default().push(topic.name.to_string());
            }
            checked.push((topic, refusal));
        }
        checked
    }

    fn check(
        &self,
        topic: &Candidate,
        presence: Presence,
        config: &BrokerConfig,
    ) -> Result<(), CreateTopicError> {
        let name = topic.name.as_str();
        ensure!(!presence.is_marked, MarkedForDeletionSnafu { topic: name });
        ensure!(!presence.exists, TopicExistsSnafu { topic: name });
        let existing = self.names.get(&collision_key(name)).cloned().unwrap_or_default();
        // Created by another broker after it was looked for.
        ensure!(!existing.iter().any(|known| known == name), TopicExistsSnafu { topic: name });
        ensure!(existing.is_empty(), NameCollidesSnafu { topic: name, existing });
        topic.check_assignment()?;
        TopicConfig::validate(&topic.overrides, config)?;
        Ok(())
    }
}

/// As [`TopicName::collision_key`], also for names that other tools made.
fn collision_key(name: &str) -> String {
    name.replace('.', "_")
}

type MultiResult = Result<Vec<OperationResult>, (usize, StoreError)>;

/// The nodes of a topic, on their way.
struct TopicWrite<'a> {
    topic: Candidate,
    assignment: TopicAssignment,
    multi: BoxFuture<'a, MultiResult>,
}

impl<'a> TopicWrite<'a> {
    /// Writes the configuration and the assignment at once: the controller must not start the topic with
    /// other settings, and who loses a race for the name must not leave his.
    fn start(store: &'a dyn Store, topic: Candidate, id: Option<TopicId>) -> TopicWrite<'a> {
        let assignment =
            TopicAssignment { name: topic.name.clone(), id, partitions: topic.partitions.clone() };
        let path = znodes::topic_config(&topic.name);
        let config = Operation::Create(Create {
            path,
            data: Some(topic.encode_config()),
            mode: CreateMode::Persistent,
        });
        let multi = store.multi(vec![config, create_topic(&assignment)]);
        TopicWrite { topic, assignment, multi }
    }

    async fn finish(self, store: &dyn Store) -> Outcome {
        let TopicWrite { topic, assignment, multi } = self;
        let created = topic.created(assignment.id.unwrap_or(TopicId::ZERO));
        let mut result = multi.await;
        loop {
            match result {
                Ok(_) => {
                    info!(topic = %topic.name, partitions = created.partitions, "topic created");
                    return Ok(created);
                }
                Err((1, StoreError::NodeExists { .. })) => {
                    return TopicExistsSnafu { topic: topic.name.as_str() }.fail();
                }
                // A configuration is there, or the answer was lost.
                Err((0, StoreError::NodeExists { .. } | StoreError::BadVersion { .. })) => {}
                Err((_, error)) if is_unknown(&error) => sleep(RETRY_PAUSE).await,
                Err((_, error)) => return Err(error.into()),
            }
            if let Some(node) = patience::read(store, &znodes::topic(&topic.name)).await? {
                let is_ours = nodes::decode_topic(&topic.name, &node).as_ref() == Some(&assignment);
                let is_ours = is_ours && assignment.id.is_some();
                let name = topic.name.as_str();
                return if is_ours { Ok(created) } else { TopicExistsSnafu { topic: name }.fail() };
            }
            // Left over by a topic that is gone.
            let path = znodes::topic_config(&topic.name);
            let config = match until_answered(|| store.exists(&path)).await? {
                Some(stat) => {
                    let version = Some(stat.version);
                    Operation::Set { path, data: Some(topic.encode_config()), version }
                }
                None => {
                    let data = Some(topic.encode_config());
                    Operation::Create(Create { path, data, mode: CreateMode::Persistent })
                }
            };
            result = store.multi(vec![config, create_topic(&assignment)]).await;
        }
    }
}

impl Candidate {
    fn encode_config(&self) -> bytes::Bytes {
        EntityConfig(self.overrides.clone().into_iter().collect()).encode()
    }
}

fn create_topic(assignment: &TopicAssignment) -> Operation {
    Operation::Create(Create {
        path: znodes::topic(&assignment.name),
        data: Some(nodes::encode_topic(assignment)),
        mode: CreateMode::Persistent,
    })
}
