//! Enters a consumer group.
//!
//! Behaviour: answered when the rebalance that it takes part in completes. A new dynamic member is first sent back
//! with an id (v4, KIP-394). The client host is kept as Kafka prints addresses.
//!
//! Versions: 1 rebalance timeout (KIP-62) · 4 member id required · 5 static members (KIP-345) · 6 flexible ·
//! 7 protocol type (KIP-559) · 8 reason (KIP-800) · 9 skip assignment (KIP-814).

use wire::join_group_response::JoinGroupResponseMember;
use wire::{JoinGroupRequest, JoinGroupResponse, Str};

use super::error_code::group_error;
use super::{ErrorCode, RequestContext, Services};
use crate::group::{GroupId, JoinGroup, JoinResult, MemberId, Protocol};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let member_id = request.member_id.clone();
    let group = Resource::Group(&request.group_id);
    if !services.authorizer.allows(context.principal(), Operation::Read, group) {
        return refused(context, ErrorCode::GroupAuthorizationFailed, &member_id);
    }
    let protocols = request.protocols.into_iter().map(|protocol| Protocol {
        name: (&*protocol.name).into(),
        metadata: super::groups::owned(&protocol.metadata),
    });
    let rebalance_timeout_ms =
        if context.version == 0 { request.session_timeout_ms } else { request.rebalance_timeout_ms };
    let join = JoinGroup {
        group_id: GroupId::from(&*request.group_id),
        member_id: MemberId::from(&*request.member_id),
        group_instance_id: request.group_instance_id.as_deref().map(Into::into),
        client_id: context.client_id.to_string(),
        client_host: super::groups::client_host(context),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms,
        protocol_type: (&*request.protocol_type).into(),
        protocols: protocols.collect(),
        requires_known_member_id: context.version >= 4 && request.group_instance_id.is_none(),
        supports_skipping_assignment: context.version >= 9,
        reason: request.reason.as_deref().map(str::to_owned),
    };
    response(context, services.groups.join_group(join).await)
}

fn response(context: &RequestContext, result: JoinResult) -> JoinGroupResponse {
    let joined = match result {
        Ok(joined) => joined,
        Err(refusal) => return refused(context, group_error(refusal.error), &refusal.member_id),
    };
    let members = joined.members.into_iter().map(|member| JoinGroupResponseMember {
        member_id: member.member_id.as_str().into(),
        group_instance_id: member.group_instance_id.as_deref().map(Str::from),
        metadata: member.metadata,
    });
    JoinGroupResponse {
        generation_id: joined.generation_id.0,
        protocol_type: joined.protocol_type.as_deref().map(Str::from),
        protocol_name: protocol_name(context, joined.protocol_name.as_deref()),
        leader: joined.leader_id.as_str().into(),
        skip_assignment: joined.skip_assignment,
        member_id: joined.member_id.as_str().into(),
        members: members.collect(),
        ..JoinGroupResponse::default()
    }
}

fn refused(context: &RequestContext, code: ErrorCode, member_id: &str) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: code.code(),
        protocol_name: protocol_name(context, None),
        member_id: member_id.into(),
        ..JoinGroupResponse::default()
    }
}

/// Before v7 the name may not be null.
fn protocol_name(context: &RequestContext, name: Option<&str>) -> Option<Str> {
    match name {
        None if context.version >= 7 => None,
        name => Some(name.unwrap_or_default().into()),
    }
}
