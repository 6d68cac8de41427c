//! Which partitions are on their way to other brokers (KIP-455).
//!
//! Behaviour: partitions that are not being moved, and such as do not exist, are left out. Only the controller knows:
//! NOT_CONTROLLER.
//!
//! Versions: 0 flexible.

use indexmap::IndexMap;
use wire::list_partition_reassignments_response::{OngoingPartitionReassignment, OngoingTopicReassignment};
use wire::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, Str};

use super::{ErrorCode, RequestContext, Services};
use crate::coordination::znodes::ReplicaAssignment;
use crate::model::{BrokerId, PartitionIndex, TopicName, TopicPartition};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    if !services.authorizer.allows(context.principal(), Operation::Describe, Resource::Cluster) {
        return answered(ErrorCode::ClusterAuthorizationFailed, "Cluster authorization failed.");
    }
    let not_controller =
        || answered(ErrorCode::NotController, "This is not the correct controller for this cluster.");
    if !services.controller.is_active() {
        return not_controller();
    }
    match services.controller.reassignments(partitions(&request)).await {
        // The message is empty, not null, as in Kafka.
        Ok(under_way) => {
            ListPartitionReassignmentsResponse { topics: topics(under_way), ..answered(ErrorCode::None, "") }
        }
        Err(_) => not_controller(),
    }
}

/// `None` = all.
fn partitions(request: &ListPartitionReassignmentsRequest) -> Option<Vec<TopicPartition>> {
    let mut partitions = Vec::new();
    for topic in request.topics.as_ref()? {
        let Ok(name) = TopicName::new(&topic.name) else { continue };
        let indexes = topic.partition_indexes.iter();
        partitions.extend(indexes.map(|&index| TopicPartition::new(name.clone(), PartitionIndex(index))));
    }
    Some(partitions)
}

fn topics(under_way: Vec<(TopicPartition, ReplicaAssignment)>) -> Vec<OngoingTopicReassignment> {
    let mut topics: IndexMap<Str, Vec<OngoingPartitionReassignment>> = IndexMap::new();
    for (of, assignment) in under_way {
        let ids = |ids: &[BrokerId]| ids.iter().map(|id| id.0).collect();
        topics.entry(of.topic.as_str().into()).or_default().push(OngoingPartitionReassignment {
            partition_index: of.partition.0,
            replicas: ids(&assignment.replicas),
            adding_replicas: ids(&assignment.adding),
            removing_replicas: ids(&assignment.removing),
        });
    }
    topics.into_iter().map(|(name, partitions)| OngoingTopicReassignment { name, partitions }).collect()
}

fn answered(code: ErrorCode, message: &'static str) -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse {
        error_code: code.code(),
        error_message: Some(Str::from_static(message)),
        ..ListPartitionReassignmentsResponse::default()
    }
}
