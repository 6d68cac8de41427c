//! Leaders tell the controller which replicas are in sync (KIP-497).
//!
//! Behaviour: only the controller answers; NOT_CONTROLLER else. The broker must be registered under the epoch that it
//! names. A wish that stands already succeeds, as the answer to an earlier one may have been lost.
//!
//! Versions: 1 recovery state (KIP-704) · 2 topic ids (KIP-841) · 3 epochs of the members (KIP-903), checked where they are
//! told: leaders of Kafka's on ZooKeeper do not know them.

use indexmap::IndexMap;
use wire::alter_partition_request::{BrokerState, PartitionData as Wanted};
use wire::alter_partition_response::{PartitionData, TopicData};
use wire::{AlterPartitionRequest, AlterPartitionResponse, Str, Uuid};

use super::error_code::alter_partition_error;
use super::{ErrorCode, RequestContext, Services};
use crate::controller::{AlterPartition, AlterPartitionError, Leadership, WantedIsr};
use crate::metadata::control::IsrMember;
use crate::model::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition};
use crate::security::{Operation, Resource};

type Result<T> = std::result::Result<T, ErrorCode>;

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: AlterPartitionRequest,
) -> AlterPartitionResponse {
    match alter(services, context, request).await {
        Ok(topics) => AlterPartitionResponse { topics, ..AlterPartitionResponse::default() },
        Err(code) => AlterPartitionResponse { error_code: code.code(), ..AlterPartitionResponse::default() },
    }
}

async fn alter(
    services: &Services,
    context: &RequestContext,
    request: AlterPartitionRequest,
) -> Result<Vec<TopicData>> {
    if !services.authorizer.allows(context.principal(), Operation::ClusterAction, Resource::Cluster) {
        return Err(ErrorCode::ClusterAuthorizationFailed);
    }
    let image = services.metadata.image();
    let mut unknown = Vec::new();
    let mut partitions = Vec::new();
    let mut ids: IndexMap<TopicName, Uuid> = IndexMap::new();
    for topic in request.topics {
        let name = match context.version {
            ..2 => TopicName::new(&topic.topic_name).ok(),
            2.. => image.topic_name(TopicId(topic.topic_id.0)).cloned(),
        };
        let Some(name) = name else {
            unknown.push(unknown_topic(context, topic.topic_name, topic.topic_id, &topic.partitions));
            continue;
        };
        ids.insert(name.clone(), topic.topic_id);
        partitions.extend(topic.partitions.iter().map(|wanted| wanted_isr(context, &name, wanted)));
    }
    let wishes = AlterPartition {
        broker: BrokerId(request.broker_id),
        broker_epoch: BrokerEpoch(request.broker_epoch),
        partitions,
    };
    let altered = services.controller.alter_partition(wishes).await;
    let altered = altered.map_err(|_| ErrorCode::NotController)?.map_err(|_| ErrorCode::StaleBrokerEpoch)?;
    let mut topics: IndexMap<TopicName, Vec<PartitionData>> = IndexMap::new();
    for (of, result) in altered {
        topics.entry(of.topic).or_default().push(partition(context, of.partition, result));
    }
    let known = topics.into_iter().map(|(name, partitions)| TopicData {
        topic_name: name.as_str().into(),
        topic_id: ids.get(&name).copied().unwrap_or_default(),
        partitions,
    });
    Ok(known.chain(unknown).collect())
}

fn wanted_isr(context: &RequestContext, topic: &TopicName, wanted: &Wanted) -> WantedIsr {
    let isr = match context.version {
        ..3 => wanted.new_isr.iter().map(|&id| BrokerId(id).into()).collect(),
        3.. => wanted.new_isr_with_epochs.iter().map(member).collect(),
    };
    WantedIsr {
        partition: TopicPartition::new(topic.clone(), PartitionIndex(wanted.partition_index)),
        leader_epoch: LeaderEpoch(wanted.leader_epoch),
        partition_epoch: wanted.partition_epoch,
        isr,
        is_recovering: wanted.leader_recovery_state == 1,
    }
}

fn member(wanted: &BrokerState) -> IsrMember {
    IsrMember { id: BrokerId(wanted.broker_id), broker_epoch: BrokerEpoch::told(wanted.broker_epoch) }
}

fn unknown_topic(context: &RequestContext, topic_name: Str, topic_id: Uuid, wanted: &[Wanted]) -> TopicData {
    let code = match context.version {
        ..2 => ErrorCode::UnknownTopicOrPartition,
        2.. => ErrorCode::UnknownTopicId,
    };
    let partitions = wanted.iter().map(|wanted| PartitionData {
        partition_index: wanted.partition_index,
        error_code: code.code(),
        ..PartitionData::default()
    });
    TopicData { topic_name, topic_id, partitions: partitions.collect() }
}

fn partition(
    context: &RequestContext,
    index: PartitionIndex,
    result: std::result::Result<Leadership, AlterPartitionError>,
) -> PartitionData {
    match result {
        Err(error) => PartitionData {
            partition_index: index.0,
            error_code: alter_partition_error(context.version, error).code(),
            ..PartitionData::default()
        },
        Ok(leadership) => PartitionData {
            partition_index: index.0,
            error_code: ErrorCode::None.code(),
            leader_id: leadership.leader_and_isr.leader.0,
            leader_epoch: leadership.leader_and_isr.leader_epoch.0,
            isr: leadership.leader_and_isr.isr.iter().map(|id| id.0).collect(),
            leader_recovery_state: i8::from(leadership.is_recovering),
            partition_epoch: leadership.leader_and_isr.partition_epoch,
        },
    }
}
