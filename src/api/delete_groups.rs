//! Deletes groups with their offsets (KIP-229).
//!
//! Behaviour: only empty groups; one result per group.
//!
//! Versions: 2 flexible.

use wire::delete_groups_response::DeletableGroupResult;
use wire::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::error_code::group_error;
use super::{ErrorCode, RequestContext, Services};
use crate::group::GroupId;
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut response = DeleteGroupsResponse::default();
    for group_id in request.groups_names {
        let resource = Resource::Group(&group_id);
        let code = if services.authorizer.allows(context.principal(), Operation::Delete, resource) {
            let deleted = services.groups.delete_groups(&[GroupId::from(&*group_id)]).await;
            deleted.into_iter().next().map_or(ErrorCode::UnknownServerError, |deleted| {
                deleted.map_or_else(group_error, |()| ErrorCode::None)
            })
        } else {
            ErrorCode::GroupAuthorizationFailed
        };
        response.results.push(DeletableGroupResult { group_id, error_code: code.code() });
    }
    response
}
