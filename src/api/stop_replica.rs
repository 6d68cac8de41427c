//! The controller makes this broker drop replicas, with or without their logs.
//!
//! Behaviour: a partition that is not here is answered as done; an older leader epoch is FENCED_LEADER_EPOCH. Logs are
//! renamed away at once and removed later. Refused as a whole when the sender is no longer the controller, or means an
//! earlier life of this broker (KIP-380).
//!
//! Versions: 1 broker epoch, partitions by topic · 2 flexible · 3 leader epochs, deletion by partition (KIP-570) ·
//! 4 KRaft controllers.

use wire::stop_replica_response::StopReplicaPartitionError;
use wire::{StopReplicaRequest, StopReplicaResponse};

use super::error_code::{control_refusal, stop_outcome};
use super::leader_and_isr::sender;
use super::{ErrorCode, RequestContext, Services};
use crate::controller::{ControlError, ControlRequest, ControlResponse};
use crate::metadata::control::{self, StopReplica};
use crate::model::{LeaderEpoch, PartitionIndex, TopicName, TopicPartition};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: StopReplicaRequest,
) -> StopReplicaResponse {
    if !services.authorizer.allows(context.principal(), Operation::ClusterAction, Resource::Cluster) {
        return refused(ErrorCode::ClusterAuthorizationFailed);
    }
    let request = domain(&request);
    let outcomes = match services.control.send(services.broker_id, ControlRequest::StopReplica(request)).await
    {
        Ok(ControlResponse::StopReplica(outcomes)) => outcomes,
        Err(ControlError::Refused { refusal }) => return refused(control_refusal(refusal)),
        Ok(_) | Err(ControlError::Unreachable { .. }) => return refused(ErrorCode::UnknownServerError),
    };
    let errors = outcomes.into_iter().map(|(of, outcome)| StopReplicaPartitionError {
        topic_name: of.topic.as_str().into(),
        partition_index: of.partition.0,
        error_code: stop_outcome(outcome).code(),
    });
    StopReplicaResponse { partition_errors: errors.collect(), ..StopReplicaResponse::default() }
}

fn refused(code: ErrorCode) -> StopReplicaResponse {
    StopReplicaResponse { error_code: code.code(), ..StopReplicaResponse::default() }
}

fn domain(request: &StopReplicaRequest) -> control::StopReplicaRequest {
    let mut partitions = Vec::new();
    let mut add = |topic: &str, index: i32, leader_epoch: LeaderEpoch, delete: bool| {
        if let Ok(topic) = TopicName::new(topic) {
            let topic_partition = TopicPartition::new(topic, PartitionIndex(index));
            partitions.push(StopReplica { topic_partition, leader_epoch, delete });
        }
    };
    let (unknown, deletes_all) = (LeaderEpoch::UNKNOWN, request.delete_partitions);
    for stop in &request.ungrouped_partitions {
        add(&stop.topic_name, stop.partition_index, unknown, deletes_all);
    }
    for topic in &request.topics {
        topic.partition_indexes.iter().for_each(|&index| add(&topic.name, index, unknown, deletes_all));
    }
    for topic in &request.topic_states {
        for state in &topic.partition_states {
            let epoch = LeaderEpoch(state.leader_epoch);
            add(&topic.topic_name, state.partition_index, epoch, state.delete_partition);
        }
    }
    control::StopReplicaRequest {
        sender: sender(request.controller_id, request.controller_epoch, request.broker_epoch),
        partitions,
    }
}
