use std::time::{Duration, Instant};

use wire::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use wire::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use wire::{CreateTopicsRequest, DeleteTopicsRequest};

use super::Members;
use crate::load::LoadError;
use crate::load::error::check;
use crate::load::requests::{CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION, Patience, REQUEST_TIMEOUT_MS};

/// Topics `PREFIX-0…` with so many partitions each, which have so many replicas each.
#[derive(Clone, Debug)]
pub struct ReplicatedTopics {
    pub prefix: String,
    pub topics: i32,
    pub partitions: i32,
    pub replicas: i16,
}

/// It was not done when the request's time was up, and is done later.
const REQUEST_TIMED_OUT: i16 = 7;
const UNKNOWN_TOPIC: i16 = 3;
const NOT_CONTROLLER: i16 = 41;

impl ReplicatedTopics {
    pub fn names(&self) -> Vec<String> {
        (0..self.topics).map(|topic| format!("{}-{topic}", self.prefix)).collect()
    }

    pub fn partition_count(&self) -> i32 {
        self.topics * self.partitions
    }

    fn creatable(&self, name: &str) -> CreatableTopic {
        CreatableTopic {
            name: name.into(),
            num_partitions: self.partitions,
            replication_factor: self.replicas,
            ..CreatableTopic::default()
        }
    }

    fn are_in_sync(&self, topic: &MetadataResponseTopic) -> bool {
        let is_in_sync = |partition: &MetadataResponsePartition| {
            partition.leader_id >= 0 && partition.isr_nodes.len() == self.replicas as usize
        };
        topic.partitions.len() == self.partitions as usize && topic.partitions.iter().all(is_in_sync)
    }
}

/// Creates the topics, one request each, and waits until all brokers know the leader of every partition and all replicas
/// are in sync.
pub async fn create_all(members: &mut Members, topics: &ReplicatedTopics) -> Result<(), LoadError> {
    create_one_by_one(members, topics).await?;
    await_in_sync(members, topics).await
}

/// The time until each was answered: brokers answer when the controller has decided.
pub async fn create_one_by_one(
    members: &mut Members,
    topics: &ReplicatedTopics,
) -> Result<Duration, LoadError> {
    let started = Instant::now();
    for name in topics.names() {
        create(members, vec![topics.creatable(&name)]).await?;
    }
    Ok(started.elapsed())
}

/// The time until all brokers know all of them, created with one request.
pub async fn create_at_once(members: &mut Members, topics: &ReplicatedTopics) -> Result<Duration, LoadError> {
    let started = Instant::now();
    create(members, topics.names().iter().map(|name| topics.creatable(name)).collect()).await?;
    await_in_sync(members, topics).await?;
    Ok(started.elapsed())
}

/// Creates a topic with a partition for each of these lists of replicas, the leader in front, and waits for all.
pub async fn create_spread(
    members: &mut Members,
    name: &str,
    replicas: &[Vec<i32>],
) -> Result<(), LoadError> {
    let assignment = |(index, brokers): (usize, &Vec<i32>)| CreatableReplicaAssignment {
        partition_index: index as i32,
        broker_ids: brokers.clone(),
    };
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: replicas.iter().enumerate().map(assignment).collect(),
        ..CreatableTopic::default()
    };
    create(members, vec![topic]).await?;
    let leads = |(partition, brokers): (&MetadataResponsePartition, &Vec<i32>)| {
        Some(&partition.leader_id) == brokers.first() && partition.isr_nodes.len() == brokers.len()
    };
    for id in members.ids() {
        let are_led = |topic: &MetadataResponseTopic| {
            let mut partitions = topic.partitions.to_vec();
            partitions.sort_by_key(|partition| partition.partition_index);
            partitions.len() == replicas.len() && partitions.iter().zip(replicas).all(leads)
        };
        members.await_topic(id, name, "the partitions of a new topic", are_led).await?;
    }
    Ok(())
}

/// Waits until all brokers know a leader of every partition, and all replicas to be in sync.
pub async fn await_in_sync(members: &mut Members, topics: &ReplicatedTopics) -> Result<(), LoadError> {
    for name in topics.names() {
        for id in members.ids() {
            members.await_topic(id, &name, "all replicas in sync", |topic| topics.are_in_sync(topic)).await?;
        }
    }
    Ok(())
}

/// Deletes topics with one request.
pub async fn delete_all(members: &mut Members, names: &[String]) -> Result<(), LoadError> {
    let request = DeleteTopicsRequest {
        topic_names: names.iter().map(|name| name.as_str().into()).collect(),
        timeout_ms: REQUEST_TIMEOUT_MS,
        ..DeleteTopicsRequest::default()
    };
    let controller = members.controller().await?;
    let response = members.call(controller, DELETE_TOPICS_VERSION, &request).await?;
    let codes = response.responses.iter().map(|topic| topic.error_code);
    codes.filter(|&code| code != REQUEST_TIMED_OUT).try_for_each(|code| check("delete a topic", code))
}

/// Waits until no broker knows any of them.
pub async fn await_gone(members: &mut Members, names: &[String]) -> Result<(), LoadError> {
    for name in names {
        for id in members.ids() {
            let is_gone = |topic: &MetadataResponseTopic| topic.error_code == UNKNOWN_TOPIC;
            members.await_topic(id, name, "the end of a deleted topic", is_gone).await?;
        }
    }
    Ok(())
}

/// Asks the controller, whoever that is.
pub(super) async fn create(members: &mut Members, topics: Vec<CreatableTopic>) -> Result<(), LoadError> {
    let request = CreateTopicsRequest { topics, timeout_ms: REQUEST_TIMEOUT_MS, ..Default::default() };
    let patience = Patience::to_see("a controller that creates topics");
    loop {
        let controller = members.controller().await?;
        if controller >= 0 {
            let response = members.call(controller, CREATE_TOPICS_VERSION, &request).await?;
            let mut codes = response.topics.iter().map(|topic| topic.error_code);
            if codes.clone().all(|code| code != NOT_CONTROLLER) {
                return codes
                    .find(|&code| code != 0 && code != REQUEST_TIMED_OUT)
                    .map_or(Ok(()), |code| check("create a topic", code));
            }
        }
        patience.pause().await?;
    }
}
