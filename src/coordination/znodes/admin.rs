use bytes::Bytes;
use serde_json::{Value, json};

use super::json::{Object, ZnodeError, broker_list, encode, parse};
use crate::coordination::NodeData;
use crate::model::{BrokerId, PartitionIndex, TopicPartition};

/// What the old reassignment tool asks for, `/admin/reassign_partitions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReassignPartitions(pub Vec<PartitionReassignment>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReassignment {
    pub topic_partition: TopicPartition,
    /// The replicas it is to have in the end.
    pub replicas: Vec<BrokerId>,
}

impl ReassignPartitions {
    pub fn decode(node: &NodeData) -> Result<ReassignPartitions, ZnodeError> {
        let map = parse(node)?;
        let partitions = Object::new(&map).list("partitions")?.iter().map(|entry| {
            let entry = Object::of(entry, "partitions")?;
            let topic_partition = topic_partition(&entry)?;
            Ok(PartitionReassignment { topic_partition, replicas: entry.brokers("replicas")? })
        });
        partitions.collect::<Result<_, _>>().map(ReassignPartitions)
    }

    pub fn encode(&self) -> Bytes {
        let partitions = self.0.iter().map(|PartitionReassignment { topic_partition, replicas }| {
            json!({
                "topic": topic_partition.topic.as_str(),
                "partition": topic_partition.partition.0,
                "replicas": broker_list(replicas),
            })
        });
        encode(&json!({ "version": 1, "partitions": partitions.collect::<Value>() }))
    }
}

/// What the old election tool asks for, `/admin/preferred_replica_election`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreferredElection(pub Vec<TopicPartition>);

impl PreferredElection {
    pub fn decode(node: &NodeData) -> Result<PreferredElection, ZnodeError> {
        decode_partitions(node).map(PreferredElection)
    }

    pub fn encode(&self) -> Bytes {
        encode_partitions(&self.0)
    }
}

pub(super) fn decode_partitions(node: &NodeData) -> Result<Vec<TopicPartition>, ZnodeError> {
    let map = parse(node)?;
    let partitions = Object::new(&map).list("partitions")?.iter();
    partitions.map(|entry| topic_partition(&Object::of(entry, "partitions")?)).collect()
}

pub(super) fn encode_partitions(partitions: &[TopicPartition]) -> Bytes {
    let partitions = partitions.iter().map(|topic_partition| {
        json!({ "topic": topic_partition.topic.as_str(), "partition": topic_partition.partition.0 })
    });
    encode(&json!({ "version": 1, "partitions": partitions.collect::<Value>() }))
}

fn topic_partition(entry: &Object<'_>) -> Result<TopicPartition, ZnodeError> {
    Ok(TopicPartition::new(entry.topic("topic")?, PartitionIndex(entry.number("partition")?)))
}
