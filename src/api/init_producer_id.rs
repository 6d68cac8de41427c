//! A producer's id and epoch (KIP-98).
//!
//! Behaviour: without a transactional id every request gets a new id with epoch 0, whatever the producer had before.
//! Transactions are not built yet: a transactional id is UNSUPPORTED_VERSION, which clients do not ask again.
//!
//! Versions: 1 throttle before quota · 2 flexible · 3 id and epoch of before (KIP-360) · 4 PRODUCER_FENCED ·
//! 5 TRANSACTION_ABORTABLE (KIP-890).

use tracing::error;
use wire::{InitProducerIdRequest, InitProducerIdResponse};

use super::{ErrorCode, RequestContext, Services};
use crate::model::ProducerId;
use crate::security::{Operation, Resource};

const NONE: i64 = -1;
const NO_EPOCH: i16 = -1;

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    match init(services, context, &request).await {
        Ok(producer_id) => InitProducerIdResponse {
            producer_id: producer_id.0,
            producer_epoch: 0,
            ..InitProducerIdResponse::default()
        },
        Err(code) => InitProducerIdResponse {
            error_code: code.code(),
            producer_id: NONE,
            producer_epoch: NO_EPOCH,
            ..InitProducerIdResponse::default()
        },
    }
}

async fn init(
    services: &Services,
    context: &RequestContext,
    request: &InitProducerIdRequest,
) -> Result<ProducerId, ErrorCode> {
    let allows = |operation, resource: Resource<'_>| {
        services.authorizer.allows(context.principal(), operation, resource)
    };
    match &request.transactional_id {
        Some(id) if !allows(Operation::Write, Resource::TransactionalId(id)) => {
            return Err(ErrorCode::TransactionalIdAuthorizationFailed);
        }
        None if !allows(Operation::IdempotentWrite, Resource::Cluster) => {
            return Err(ErrorCode::ClusterAuthorizationFailed);
        }
        _ => {}
    }
    if (request.producer_id == NONE) != (request.producer_epoch == NO_EPOCH) {
        return Err(ErrorCode::InvalidRequest);
    }
    match request.transactional_id.as_deref() {
        Some("") => return Err(ErrorCode::InvalidRequest),
        Some(_) => return Err(transactional(services, request.transaction_timeout_ms)),
        None => {}
    }
    services.producer_ids.next().await.map_err(|error| {
        error!(%error, "a producer got no id");
        ErrorCode::UnknownServerError
    })
}

fn transactional(services: &Services, timeout_ms: i32) -> ErrorCode {
    let timeout_ms_max = services.config.load().transaction_max_timeout_ms();
    if (1..=timeout_ms_max).contains(&timeout_ms) {
        ErrorCode::UnsupportedVersion
    } else {
        ErrorCode::InvalidTransactionTimeout
    }
}
