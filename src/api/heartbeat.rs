//! A member's sign of life; tells it when a rebalance is on.
//!
//! Behaviour: resets the member's session timeout.
//!
//! Versions: 3 static members (KIP-345) · 4 flexible.

use wire::{HeartbeatRequest, HeartbeatResponse};

use super::error_code::group_error;
use super::{ErrorCode, RequestContext, Services};
use crate::group::{GenerationId, GroupId, Heartbeat, MemberId};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    let group = Resource::Group(&request.group_id);
    let code = if services.authorizer.allows(context.principal(), Operation::Read, group) {
        let heartbeat = Heartbeat {
            group_id: GroupId::from(&*request.group_id),
            member_id: MemberId::from(&*request.member_id),
            group_instance_id: request.group_instance_id.as_deref().map(Into::into),
            generation_id: GenerationId(request.generation_id),
        };
        services.groups.heartbeat(heartbeat).await.map_or_else(group_error, |()| ErrorCode::None)
    } else {
        ErrorCode::GroupAuthorizationFailed
    };
    HeartbeatResponse { error_code: code.code(), ..HeartbeatResponse::default() }
}
