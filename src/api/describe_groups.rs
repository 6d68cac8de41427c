//! State and members of groups.
//!
//! Behaviour: an unknown group is Dead without an error; from v6 on it is GROUP_ID_NOT_FOUND.
//!
//! Versions: 3 authorized operations (KIP-430) · 4 static members · 5 flexible · 6 error message (KIP-1043).

use wire::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use wire::{DescribeGroupsRequest, DescribeGroupsResponse, Str};

use super::error_code::group_error;
use super::{ErrorCode, RequestContext, Services};
use crate::group::{GroupDescription, GroupId, GroupState};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let mut response = DescribeGroupsResponse::default();
    for group_id in request.groups {
        let resource = Resource::Group(&group_id);
        let mut described = if services.authorizer.allows(context.principal(), Operation::Describe, resource)
        {
            match services.groups.describe(&GroupId::from(&*group_id)).await {
                Ok(description) => describe(context, &group_id, description),
                Err(error) => DescribedGroup { error_code: group_error(error).code(), ..Default::default() },
            }
        } else {
            let code = ErrorCode::GroupAuthorizationFailed.code();
            DescribedGroup { error_code: code, ..Default::default() }
        };
        if request.include_authorized_operations && described.error_code == ErrorCode::None.code() {
            described.authorized_operations =
                services.authorizer.authorized_operations(context.principal(), Resource::Group(&group_id));
        }
        described.group_id = group_id;
        response.groups.push(described);
    }
    response
}

fn describe(context: &RequestContext, group_id: &str, description: GroupDescription) -> DescribedGroup {
    if description.state == GroupState::Dead && context.version >= 6 {
        return DescribedGroup {
            error_code: ErrorCode::GroupIdNotFound.code(),
            error_message: Some(format!("Group {group_id} not found.").into()),
            group_state: description.state.as_str().into(),
            ..DescribedGroup::default()
        };
    }
    let members = description.members.into_iter().map(|member| DescribedGroupMember {
        member_id: member.member_id.as_str().into(),
        group_instance_id: member.group_instance_id.as_deref().map(Str::from),
        client_id: member.client_id.into(),
        client_host: member.client_host.into(),
        member_metadata: member.metadata,
        member_assignment: member.assignment,
    });
    DescribedGroup {
        group_state: description.state.as_str().into(),
        protocol_type: description.protocol_type.as_str().into(),
        protocol_data: description.protocol.as_str().into(),
        members: members.collect(),
        ..DescribedGroup::default()
    }
}
