//! Which partitions are on their way to other brokers (KIP-455).
//!
//! Behaviour: this version moves none, so the answer is always that there are none.
//!
//! Versions: 0 flexible.

use wire::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse};

use super::{ErrorCode, RequestContext, Services};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    _request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let code = if !services.authorizer.allows(context.principal(), Operation::Describe, Resource::Cluster) {
        ErrorCode::ClusterAuthorizationFailed
    } else if !services.controller.is_active() {
        ErrorCode::NotController
    } else {
        ErrorCode::None
    };
    ListPartitionReassignmentsResponse {
        error_code: code.code(),
        error_message: None,
        ..ListPartitionReassignmentsResponse::default()
    }
}
