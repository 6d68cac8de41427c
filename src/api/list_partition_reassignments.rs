//! Which partitions are on their way to other brokers (KIP-455).
//!
//! Behaviour: this version moves none, so the answer is always that there are none.
//!
//! Versions: 0 flexible.

use wire::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, Str};

use super::{ErrorCode, RequestContext, Services};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    _request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let (code, message) =
        if !services.authorizer.allows(context.principal(), Operation::Describe, Resource::Cluster) {
            (ErrorCode::ClusterAuthorizationFailed, "Cluster authorization failed.")
        } else if !services.controller.is_active() {
            (ErrorCode::NotController, "This is not the correct controller for this cluster.")
        } else {
            // Empty, not null, as in Kafka.
            (ErrorCode::None, "")
        };
    ListPartitionReassignmentsResponse {
        error_code: code.code(),
        error_message: Some(Str::from_static(message)),
        ..ListPartitionReassignmentsResponse::default()
    }
}
