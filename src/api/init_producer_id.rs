//! A producer's id and epoch (KIP-98).
//!
//! Behaviour: without a transactional id every request gets a new id with epoch 0, whatever the producer had before.
//! With one, the coordinator gives the same id with a new epoch, which fences earlier producers; an open transaction
//! is aborted first and the producer has to come again (CONCURRENT_TRANSACTIONS).
//!
//! Versions: 1 throttle before quota · 2 flexible · 3 id and epoch of before (KIP-360) · 4 PRODUCER_FENCED ·
//! 5 TRANSACTION_ABORTABLE (KIP-890) · 6 two-phase commit (KIP-939), accepted and not advertised, as in Kafka 4.3.

use wire::{InitProducerIdRequest, InitProducerIdResponse};

use super::error_code::txn_error;
use super::transactions::{code_before, fresh_producer_id};
use super::{ErrorCode, RequestContext, Services};
use crate::model::{ProducerEpoch, ProducerId};
use crate::security::{Operation, Resource};
use crate::txn::{InitProducerId, TransactionalId};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    match init(services, context, &request).await {
        Ok((producer_id, producer_epoch)) => InitProducerIdResponse {
            producer_id: producer_id.0,
            producer_epoch: producer_epoch.0,
            ..InitProducerIdResponse::default()
        },
        Err(code) => InitProducerIdResponse {
            error_code: code.code(),
            producer_id: ProducerId::NONE.0,
            producer_epoch: ProducerEpoch::NONE.0,
            ..InitProducerIdResponse::default()
        },
    }
}

async fn init(
    services: &Services,
    context: &RequestContext,
    request: &InitProducerIdRequest,
) -> Result<(ProducerId, ProducerEpoch), ErrorCode> {
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
    let producer_id = ProducerId(request.producer_id);
    let producer_epoch = ProducerEpoch(request.producer_epoch);
    if (producer_id == ProducerId::NONE) != (producer_epoch == ProducerEpoch::NONE) {
        return Err(ErrorCode::InvalidRequest);
    }
    let fresh = || fresh_producer_id(services, context);
    let Some(transactional_id) = &request.transactional_id else {
        let producer_id = fresh().await.map_err(txn_error)?;
        return Ok((producer_id, ProducerEpoch(0)));
    };
    let init = InitProducerId {
        transactional_id: TransactionalId::new(transactional_id).ok_or(ErrorCode::InvalidRequest)?,
        timeout_ms: request.transaction_timeout_ms,
        expected: (producer_id != ProducerId::NONE).then_some((producer_id, producer_epoch)),
        two_phase_commit: request.enable_2pc,
        keep_prepared: request.keep_prepared_txn,
    };
    let result = services.transactions.init_producer_id(init, fresh).await;
    result.map_err(|error| code_before(error, context, 4))
}
