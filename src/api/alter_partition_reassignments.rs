//! Partitions move to other brokers, or stop moving (KIP-455).
//!
//! Behaviour: answered when the moves are stored and have begun, not when they are done. Replicas `null` takes a move
//! back. Only the controller moves: NOT_CONTROLLER.
//!
//! Versions: 0 flexible · 1 the replication factor may be kept (KIP-860).

use indexmap::IndexMap;
use wire::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use wire::{AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, Str};

use super::error_code::reassignment_error;
use super::{ErrorCode, RequestContext, Services};
use crate::controller::{Reassignment, ReassignmentError};
use crate::model::{BrokerId, PartitionIndex, TopicName, TopicPartition};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    if !services.authorizer.allows(context.principal(), Operation::Alter, Resource::Cluster) {
        return failed(ErrorCode::ClusterAuthorizationFailed, "Cluster authorization failed.");
    }
    if !services.controller.is_active() {
        return not_controller();
    }
    let mut results: IndexMap<Str, Vec<ReassignablePartitionResponse>> = IndexMap::new();
    let reassignments = reassignments(&request, &mut results);
    let Ok(outcomes) = services.controller.reassign(reassignments).await else { return not_controller() };
    for (of, outcome) in outcomes {
        let result = partition_response(of.partition.0, outcome.err().as_ref());
        results.entry(of.topic.as_str().into()).or_default().push(result);
    }
    let topic = |(name, partitions)| ReassignableTopicResponse { name, partitions };
    AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: request.allow_replication_factor_change,
        responses: results.into_iter().map(topic).collect(),
        ..AlterPartitionReassignmentsResponse::default()
    }
}

/// The moves of partitions that may exist; the others are answered at once.
fn reassignments(
    request: &AlterPartitionReassignmentsRequest,
    results: &mut IndexMap<Str, Vec<ReassignablePartitionResponse>>,
) -> Vec<Reassignment> {
    let mut reassignments = Vec::new();
    for topic in &request.topics {
        let name = TopicName::new(&topic.name).ok();
        for partition in &topic.partitions {
            let Some(name) = name.clone() else {
                let unknown = ReassignmentError::UnknownPartition;
                let result = partition_response(partition.partition_index, Some(&unknown));
                results.entry(topic.name.clone()).or_default().push(result);
                continue;
            };
            let target = partition.replicas.as_ref();
            reassignments.push(Reassignment {
                partition: TopicPartition::new(name, PartitionIndex(partition.partition_index)),
                target: target.map(|ids| ids.iter().copied().map(BrokerId).collect()),
                may_change_factor: request.allow_replication_factor_change,
            });
        }
    }
    reassignments
}

fn partition_response(
    partition_index: i32,
    error: Option<&ReassignmentError>,
) -> ReassignablePartitionResponse {
    ReassignablePartitionResponse {
        partition_index,
        error_code: error.map_or(ErrorCode::None, reassignment_error).code(),
        error_message: error.map(|error| error.to_string().into()),
    }
}

fn not_controller() -> AlterPartitionReassignmentsResponse {
    failed(ErrorCode::NotController, "This is not the correct controller for this cluster.")
}

fn failed(code: ErrorCode, message: &'static str) -> AlterPartitionReassignmentsResponse {
    AlterPartitionReassignmentsResponse {
        error_code: code.code(),
        error_message: Some(Str::from_static(message)),
        ..AlterPartitionReassignmentsResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use wire::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};

    use super::*;

    #[test]
    fn names_that_no_topic_can_have_are_answered_at_once() {
        let topic = |name: &str| ReassignableTopic {
            name: name.into(),
            partitions: vec![
                ReassignablePartition { partition_index: 0, replicas: Some(vec![1, 2]) },
                ReassignablePartition { partition_index: 1, replicas: None },
            ],
        };
        let request = AlterPartitionReassignmentsRequest {
            topics: vec![topic("a b"), topic("orders")],
            ..AlterPartitionReassignmentsRequest::default()
        };
        let mut results = IndexMap::new();
        let moved = reassignments(&request, &mut results);
        let moved: Vec<(String, bool)> =
            moved.iter().map(|one| (one.partition.to_string(), one.target.is_some())).collect();
        assert_eq!(moved, [("orders-0".to_owned(), true), ("orders-1".to_owned(), false)]);
        let codes: Vec<i16> = results["a b"].iter().map(|result| result.error_code).collect();
        assert_eq!(codes, [ErrorCode::UnknownTopicOrPartition.code(); 2]);
    }
}
