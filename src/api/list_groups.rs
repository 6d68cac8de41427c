//! The groups that this broker coordinates.
//!
//! Behaviour: filters ignore case; an unknown type matches nothing. While partitions are loading the list is partial
//! and says COORDINATOR_LOAD_IN_PROGRESS.
//!
//! Versions: 3 flexible · 4 states (KIP-518) · 5 types (KIP-848).

use wire::list_groups_response::ListedGroup;
use wire::{ListGroupsRequest, ListGroupsResponse};

use super::error_code::group_error;
use super::{ErrorCode, RequestContext, Services};
use crate::group::ListGroups;
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let principal = context.principal();
    let sees_all = services.authorizer.allows(principal, Operation::Describe, Resource::Cluster);
    let filter = ListGroups {
        states: request.states_filter.iter().map(|state| state.to_string()).collect(),
        types: request.types_filter.iter().map(|group_type| group_type.to_string()).collect(),
    };
    let listing = services.groups.list(&filter).await;
    let visible = listing.groups.into_iter().filter(|group| {
        let resource = Resource::Group(&group.group_id);
        sees_all || services.authorizer.allows(principal, Operation::Describe, resource)
    });
    let groups = visible.map(|group| ListedGroup {
        group_id: group.group_id.as_str().into(),
        protocol_type: group.protocol_type.as_str().into(),
        group_state: group.state.as_str().into(),
        group_type: group.group_type.into(),
    });
    ListGroupsResponse {
        error_code: listing.error.map_or(ErrorCode::None, group_error).code(),
        groups: groups.collect(),
        ..ListGroupsResponse::default()
    }
}
