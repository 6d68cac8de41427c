//! Commits or aborts a transaction (KIP-98).
//!
//! Behaviour: answers when the decision is stored; the partitions are told afterwards, and the next transaction of the
//! producer waits for that (CONCURRENT_TRANSACTIONS). The same end may be asked for again, from any connection.
//!
//! Versions: 2 PRODUCER_FENCED · 3 flexible · 4 TRANSACTION_ABORTABLE (KIP-890) · 5 the epoch grows with each end, and
//! is answered.

use wire::{EndTxnRequest, EndTxnResponse};

use super::transactions::{code_before, fresh_producer_id};
use super::{ErrorCode, RequestContext, Services};
use crate::model::{ProducerEpoch, ProducerId};
use crate::security::{Operation, Resource};
use crate::txn::{EndTransaction, TransactionVersion, TransactionalId};

pub async fn handle(services: &Services, context: &RequestContext, request: EndTxnRequest) -> EndTxnResponse {
    match end(services, context, &request).await {
        Ok((producer_id, producer_epoch)) if context.version >= 5 => EndTxnResponse {
            producer_id: producer_id.0,
            producer_epoch: producer_epoch.0,
            ..EndTxnResponse::default()
        },
        Ok(_) => EndTxnResponse::default(),
        Err(code) => EndTxnResponse { error_code: code.code(), ..EndTxnResponse::default() },
    }
}

async fn end(
    services: &Services,
    context: &RequestContext,
    request: &EndTxnRequest,
) -> Result<(ProducerId, ProducerEpoch), ErrorCode> {
    let id = Resource::TransactionalId(&request.transactional_id);
    if !services.authorizer.allows(context.principal(), Operation::Write, id) {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    let end = EndTransaction {
        transactional_id: TransactionalId::new(&request.transactional_id).ok_or(ErrorCode::InvalidRequest)?,
        producer_id: ProducerId(request.producer_id),
        producer_epoch: ProducerEpoch(request.producer_epoch),
        is_commit: request.committed,
        client_version: match context.version {
            ..5 => TransactionVersion::Classic,
            5.. => TransactionVersion::EpochBump,
        },
    };
    let result = services.transactions.end_transaction(end, || fresh_producer_id(services, context)).await;
    result.map_err(|error| code_before(error, context, 2))
}
