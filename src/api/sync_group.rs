//! Hands a member its assignment; the leader brings everyone's.
//!
//! Behaviour: answered when the leader's assignment is stored.
//!
//! Versions: 3 static members (KIP-345) · 4 flexible · 5 protocol type and name (KIP-559).

use wire::{Str, SyncGroupRequest, SyncGroupResponse};

use super::error_code::group_error;
use super::groups::owned;
use super::{ErrorCode, RequestContext, Services};
use crate::group::{GenerationId, GroupId, MemberId, SyncGroup};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    let refused = |code: ErrorCode| SyncGroupResponse { error_code: code.code(), ..Default::default() };
    let group = Resource::Group(&request.group_id);
    if !services.authorizer.allows(context.principal(), Operation::Read, group) {
        return refused(ErrorCode::GroupAuthorizationFailed);
    }
    // A v5 client must say under which protocol it assigns.
    if context.version >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        return refused(ErrorCode::InconsistentGroupProtocol);
    }
    let assignments = request.assignments.iter();
    let sync = SyncGroup {
        group_id: GroupId::from(&*request.group_id),
        member_id: MemberId::from(&*request.member_id),
        group_instance_id: request.group_instance_id.as_deref().map(Into::into),
        generation_id: GenerationId(request.generation_id),
        protocol_type: request.protocol_type.as_deref().map(Into::into),
        protocol_name: request.protocol_name.as_deref().map(Into::into),
        assignments: assignments
            .map(|assigned| (MemberId::from(&*assigned.member_id), owned(&assigned.assignment)))
            .collect(),
    };
    match services.groups.sync_group(sync).await {
        Ok(synced) => SyncGroupResponse {
            protocol_type: synced.protocol_type.as_deref().map(Str::from),
            protocol_name: synced.protocol_name.as_deref().map(Str::from),
            assignment: synced.assignment,
            ..SyncGroupResponse::default()
        },
        Err(error) => refused(group_error(error)),
    }
}
