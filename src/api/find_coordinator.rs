//! Which broker coordinates a group or a transactional id.
//!
//! Behaviour: the leader of the key's partition of the internal topic. The topic is created when the first client asks
//! for it; until it has a leader the answer is COORDINATOR_NOT_AVAILABLE.
//!
//! Versions: 1 key type (KIP-98) · 3 flexible · 4 many keys (KIP-699) · 5, 6 share groups (KIP-932).

use wire::find_coordinator_response::Coordinator;
use wire::{FindCoordinatorRequest, FindCoordinatorResponse, Str};

use super::{ErrorCode, RequestContext, Services};
use crate::group::OFFSETS_TOPIC;
use crate::metadata::control::Endpoint;
use crate::model::BrokerId;
use crate::security::{Operation, Resource};
use crate::txn::TRANSACTION_STATE_TOPIC;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

struct Found {
    id: BrokerId,
    endpoint: Endpoint,
}

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    if context.version < 4 {
        return match find(services, context, request.key_type, &request.key).await {
            Ok(found) => FindCoordinatorResponse {
                error_message: Some(Str::from_static("NONE")),
                node_id: found.id.0,
                host: found.endpoint.host.into(),
                port: i32::from(found.endpoint.port),
                ..FindCoordinatorResponse::default()
            },
            Err(code) => FindCoordinatorResponse {
                error_code: code.code(),
                error_message: Some(message(code).into()),
                node_id: -1,
                port: -1,
                ..FindCoordinatorResponse::default()
            },
        };
    }
    let mut response = FindCoordinatorResponse::default();
    for key in request.coordinator_keys {
        let found = find(services, context, request.key_type, &key).await;
        response.coordinators.push(match found {
            Ok(found) => Coordinator {
                key,
                node_id: found.id.0,
                host: found.endpoint.host.into(),
                port: i32::from(found.endpoint.port),
                ..Coordinator::default()
            },
            Err(code) => {
                Coordinator { key, error_code: code.code(), node_id: -1, port: -1, ..Coordinator::default() }
            }
        });
    }
    response
}

/// What version 1 to 3 say in words besides the code.
fn message(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::CoordinatorNotAvailable => "The coordinator is not available.",
        ErrorCode::GroupAuthorizationFailed => "Group authorization failed.",
        ErrorCode::TransactionalIdAuthorizationFailed => "The transactional id authorization failed.",
        _ => "This request is not supported by the broker.",
    }
}

async fn find(
    services: &Services,
    context: &RequestContext,
    key_type: i8,
    key: &str,
) -> Result<Found, ErrorCode> {
    let allows = |resource| services.authorizer.allows(context.principal(), Operation::Describe, resource);
    let (topic, partition) = match key_type {
        GROUP if !allows(Resource::Group(key)) => return Err(ErrorCode::GroupAuthorizationFailed),
        GROUP => (OFFSETS_TOPIC, services.groups.partition_for(key)),
        TRANSACTION if !allows(Resource::TransactionalId(key)) => {
            return Err(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        TRANSACTION => (TRANSACTION_STATE_TOPIC, services.transactions.partition_for(key)),
        _ => return Err(ErrorCode::InvalidRequest),
    };
    let image = services.metadata.image();
    let Some(known) = image.topic(topic) else {
        // Whether it was started, was in flight or was refused, which is logged: the client has to come again.
        services.admin.auto_create([topic.to_owned()], &services.config.load_full()).await;
        return Err(ErrorCode::CoordinatorNotAvailable);
    };
    let partition = known.partition(partition).ok_or(ErrorCode::CoordinatorNotAvailable)?;
    let endpoint =
        image.leader(partition, context.listener()).map_err(|_| ErrorCode::CoordinatorNotAvailable)?;
    Ok(Found { id: partition.leader, endpoint: endpoint.clone() })
}
