//! What an administrator's command asks of a cluster from outside, in versions that every broker since 2.4 knows.

use std::collections::HashMap;
use std::time::Duration;

use indexmap::IndexMap;
use wire::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use wire::describe_configs_request::DescribeConfigsResource;
use wire::elect_leaders_request::TopicPartitions;
use wire::{
    AlterPartitionReassignmentsRequest, DescribeConfigsRequest, ElectLeadersRequest, MetadataRequest,
};

use super::{Peer, PeerError, RemoteError};
use crate::metadata::control::Endpoint;
use crate::model::{BrokerId, PartitionIndex, TopicName, TopicPartition};

/// A cluster as one of its brokers tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// `-1` = none is known.
    pub controller: BrokerId,
    pub brokers: Vec<BrokerView>,
    pub partitions: Vec<PartitionView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerView {
    pub id: BrokerId,
    /// Of the listener that was asked.
    pub host: String,
    pub port: u16,
    pub rack: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    pub topic_partition: TopicPartition,
    /// `-1` = none.
    pub leader: BrokerId,
    pub replicas: Vec<BrokerId>,
    pub isr: Vec<BrokerId>,
}

/// One result for each partition that the broker answers for.
pub type PartitionOutcomes = Vec<(TopicPartition, Option<RemoteError>)>;

/// Elections and reassignments are stored within it, or the caller looks again.
const TIMEOUT_MS: i32 = 30_000;
const PATIENCE: Duration = Duration::from_secs(30);
const TOPIC_RESOURCE: i8 = 2;
const PREFERRED: i8 = 0;

impl BrokerView {
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            listener: "PLAINTEXT".to_owned(),
            security_protocol: "PLAINTEXT".to_owned(),
            host: self.host.clone(),
            port: self.port,
        }
    }
}

impl Peer {
    /// All brokers and partitions.
    pub async fn cluster_view(&self) -> Result<ClusterView, PeerError> {
        let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
        let response = self.call(&request, 5).await?;
        let ids = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect();
        let brokers = response.brokers.into_iter().filter_map(|broker| {
            Some(BrokerView {
                id: BrokerId(broker.node_id),
                host: broker.host.to_string(),
                port: u16::try_from(broker.port).ok()?,
                rack: broker.rack.map(|rack| rack.to_string()),
            })
        });
        let brokers = brokers.collect();
        let mut partitions = Vec::new();
        for topic in response.topics {
            let Some(name) = topic.name.as_deref().and_then(|name| TopicName::new(name).ok()) else {
                continue;
            };
            partitions.extend(topic.partitions.into_iter().map(|partition| PartitionView {
                topic_partition: TopicPartition::new(name.clone(), PartitionIndex(partition.partition_index)),
                leader: BrokerId(partition.leader_id),
                replicas: ids(partition.replica_nodes),
                isr: ids(partition.isr_nodes),
            }));
        }
        Ok(ClusterView { controller: BrokerId(response.controller_id), brokers, partitions })
    }

    /// `min.insync.replicas` of each topic that the broker knows.
    pub async fn min_insync_replicas(
        &self,
        topics: impl Iterator<Item = &TopicName>,
    ) -> Result<HashMap<TopicName, usize>, PeerError> {
        let resource = |topic: &TopicName| DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: topic.as_str().into(),
            configuration_keys: Some(vec!["min.insync.replicas".into()]),
        };
        let request =
            DescribeConfigsRequest { resources: topics.map(resource).collect(), ..Default::default() };
        let response = self.call_patiently(&request, 1, PATIENCE).await?;
        let found = response.results.into_iter().filter_map(|result| {
            let name = TopicName::new(&result.resource_name).ok()?;
            let value = result.configs.into_iter().next()?.value?;
            Some((name, value.parse().ok()?))
        });
        Ok(found.collect())
    }

    /// Gives partitions other replicas, the preferred leader first. Errors: [`PeerError::Refused`] with
    /// `NotController` by all but the controller.
    pub async fn reassign(
        &self,
        assignments: &[(TopicPartition, Vec<BrokerId>)],
    ) -> Result<PartitionOutcomes, PeerError> {
        let mut topics: IndexMap<&TopicName, Vec<ReassignablePartition>> = IndexMap::new();
        for (of, replicas) in assignments {
            topics.entry(&of.topic).or_default().push(ReassignablePartition {
                partition_index: of.partition.0,
                replicas: Some(replicas.iter().map(|id| id.0).collect()),
            });
        }
        let topic = |(name, partitions): (&TopicName, _)| ReassignableTopic {
            name: name.as_str().into(),
            partitions,
        };
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: TIMEOUT_MS,
            topics: topics.into_iter().map(topic).collect(),
            ..Default::default()
        };
        let response = self.call_patiently(&request, 0, PATIENCE).await?;
        RemoteError::check(response.error_code)?;
        let mut outcomes = Vec::new();
        for topic in response.responses {
            let Ok(name) = TopicName::new(&topic.name) else { continue };
            outcomes.extend(topic.partitions.into_iter().map(|partition| {
                let of = TopicPartition::new(name.clone(), PartitionIndex(partition.partition_index));
                (of, RemoteError::of_code(partition.error_code))
            }));
        }
        Ok(outcomes)
    }

    /// Makes the first replica of each partition its leader. Errors as [`Peer::reassign`].
    pub async fn elect_preferred_leaders(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<PartitionOutcomes, PeerError> {
        let mut topics: IndexMap<&TopicName, Vec<i32>> = IndexMap::new();
        for of in partitions {
            topics.entry(&of.topic).or_default().push(of.partition.0);
        }
        let topic =
            |(name, partitions): (&TopicName, _)| TopicPartitions { topic: name.as_str().into(), partitions };
        let request = ElectLeadersRequest {
            election_type: PREFERRED,
            topic_partitions: Some(topics.into_iter().map(topic).collect()),
            timeout_ms: TIMEOUT_MS,
        };
        let response = self.call_patiently(&request, 2, PATIENCE).await?;
        RemoteError::check(response.error_code)?;
        let mut outcomes = Vec::new();
        for topic in response.replica_election_results {
            let Ok(name) = TopicName::new(&topic.topic) else { continue };
            outcomes.extend(topic.partition_result.into_iter().map(|partition| {
                let of = TopicPartition::new(name.clone(), PartitionIndex(partition.partition_id));
                (of, RemoteError::of_code(partition.error_code))
            }));
        }
        Ok(outcomes)
    }
}
