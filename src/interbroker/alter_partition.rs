use std::collections::HashMap;

use indexmap::IndexMap;
use wire::alter_partition_request::{BrokerState, PartitionData, TopicData};
use wire::{AlterPartitionRequest, Uuid};

use super::{Peer, PeerError, RemoteError};
use crate::metadata::control::{IsrMember, LeaderAndIsr};
use crate::model::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition};

/// The ISR that a leader wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterPartitionItem {
    pub topic_partition: TopicPartition,
    /// Zero = none.
    pub topic_id: TopicId,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: i32,
    pub isr: Vec<IsrMember>,
}

/// What the controller made of it: the state that stands now, or why there is none.
pub type AlteredPartition = Result<LeaderAndIsr, RemoteError>;

/// Topics are named by ids from this version on.
const TOPIC_IDS_VERSION: i16 = 2;

impl Peer {
    /// Asks the controller for ISRs. Errors: [`PeerError::Refused`] where it answers for the request as a whole.
    pub async fn alter_partition(
        &self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        items: &[AlterPartitionItem],
    ) -> Result<Vec<(TopicPartition, AlteredPartition)>, PeerError> {
        let newest = self.versions.alter_partition.unwrap_or(0);
        let has_ids = items.iter().all(|item| !item.topic_id.is_zero());
        let version = if has_ids { newest } else { newest.min(TOPIC_IDS_VERSION - 1) };
        let names: HashMap<TopicId, TopicName> =
            items.iter().map(|item| (item.topic_id, item.topic_partition.topic.clone())).collect();
        let request = AlterPartitionRequest {
            broker_id: broker_id.0,
            broker_epoch: broker_epoch.0,
            topics: topics(items, version),
        };
        let response = self.call(&request, version).await?;
        RemoteError::check(response.error_code)?;
        let mut altered = Vec::new();
        for topic in response.topics {
            let name = match version >= TOPIC_IDS_VERSION {
                true => names.get(&TopicId(topic.topic_id.0)).cloned(),
                false => TopicName::new(&topic.topic_name).ok(),
            };
            let Some(name) = name else { continue };
            for data in topic.partitions {
                let of = TopicPartition::new(name.clone(), PartitionIndex(data.partition_index));
                let result = match RemoteError::of_code(data.error_code) {
                    Some(error) => Err(error),
                    None => Ok(LeaderAndIsr {
                        leader: BrokerId(data.leader_id),
                        leader_epoch: LeaderEpoch(data.leader_epoch),
                        isr: data.isr.into_iter().map(BrokerId).collect(),
                        partition_epoch: data.partition_epoch,
                    }),
                };
                altered.push((of, result));
            }
        }
        Ok(altered)
    }
}

fn topics(items: &[AlterPartitionItem], version: i16) -> Vec<TopicData> {
    let mut topics: IndexMap<&TopicName, TopicData> = IndexMap::new();
    for item in items {
        let name = &item.topic_partition.topic;
        let topic = topics.entry(name).or_insert_with(|| TopicData {
            topic_name: name.as_str().into(),
            topic_id: Uuid(item.topic_id.0),
            partitions: Vec::new(),
        });
        let mut data = PartitionData {
            partition_index: item.topic_partition.partition.0,
            leader_epoch: item.leader_epoch.0,
            partition_epoch: item.partition_epoch,
            ..PartitionData::default()
        };
        if version >= 3 {
            // A Kafka controller on ZooKeeper passes the epochs over.
            let epoch = |member: &IsrMember| member.broker_epoch.map_or(-1, |epoch| epoch.0);
            let member =
                |member: &IsrMember| BrokerState { broker_id: member.id.0, broker_epoch: epoch(member) };
            data.new_isr_with_epochs = item.isr.iter().map(member).collect();
        } else {
            data.new_isr = item.isr.iter().map(|member| member.id.0).collect();
        }
        topic.partitions.push(data);
    }
    topics.into_values().collect()
}
