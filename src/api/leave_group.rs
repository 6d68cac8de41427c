//! Members leave a group, or are removed from it.
//!
//! Behaviour: one result per member; before v3 there is one member, whose error is the answer's.
//!
//! Versions: 3 several members (KIP-345) · 4 flexible · 5 reason (KIP-800).

use wire::leave_group_response::MemberResponse;
use wire::{LeaveGroupRequest, LeaveGroupResponse};

use super::error_code::group_error;
use super::{ErrorCode, RequestContext, Services};
use crate::group::{GroupId, LeaveGroup, LeavingMember, MemberId};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let failed = |code: ErrorCode| LeaveGroupResponse { error_code: code.code(), ..Default::default() };
    let group = Resource::Group(&request.group_id);
    if !services.authorizer.allows(context.principal(), Operation::Read, group) {
        return failed(ErrorCode::GroupAuthorizationFailed);
    }
    let members = if context.version >= 3 {
        let members = request.members.iter().map(|member| LeavingMember {
            member_id: MemberId::from(&*member.member_id),
            group_instance_id: member.group_instance_id.as_deref().map(Into::into),
            reason: member.reason.as_deref().map(str::to_owned),
        });
        members.collect()
    } else {
        let member_id = MemberId::from(&*request.member_id);
        vec![LeavingMember { member_id, group_instance_id: None, reason: None }]
    };
    let leave = LeaveGroup { group_id: GroupId::from(&*request.group_id), members };
    let results = match services.groups.leave_group(leave).await {
        Ok(results) => results,
        Err(error) => return failed(group_error(error)),
    };
    let codes = results.into_iter().map(|result| result.map_or_else(group_error, |()| ErrorCode::None));
    if context.version < 3 {
        return failed(codes.into_iter().next().unwrap_or(ErrorCode::None));
    }
    let members = request.members.into_iter().zip(codes).map(|(member, code)| MemberResponse {
        member_id: member.member_id,
        group_instance_id: member.group_instance_id,
        error_code: code.code(),
    });
    LeaveGroupResponse { members: members.collect(), ..LeaveGroupResponse::default() }
}
