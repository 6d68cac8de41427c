//! What the coordinator knows of transactional ids (KIP-664).
//!
//! Behaviour: partitions of topics that the client may not describe are left out.
//!
//! Versions: only 0.

use wire::describe_transactions_response::{TopicData, TransactionState};
use wire::{DescribeTransactionsRequest, DescribeTransactionsResponse, Str};

use super::error_code::txn_error;
use super::{ErrorCode, RequestContext, Services};
use crate::security::{Operation, Resource};
use crate::txn::{TransactionDescription, TransactionalId};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let mut response = DescribeTransactionsResponse::default();
    for id in request.transactional_ids {
        let state = match describe(services, context, &id).await {
            Ok(description) => state(services, context, id, description),
            Err(code) => TransactionState {
                error_code: code.code(),
                transactional_id: id,
                ..TransactionState::default()
            },
        };
        response.transaction_states.push(state);
    }
    response
}

async fn describe(
    services: &Services,
    context: &RequestContext,
    id: &Str,
) -> Result<TransactionDescription, ErrorCode> {
    let resource = Resource::TransactionalId(id);
    if !services.authorizer.allows(context.principal(), Operation::Describe, resource) {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    let id = TransactionalId::new(id).ok_or(ErrorCode::InvalidRequest)?;
    services.transactions.describe(&id).await.map_err(txn_error)
}

fn state(
    services: &Services,
    context: &RequestContext,
    transactional_id: Str,
    description: TransactionDescription,
) -> TransactionState {
    let mut topics: Vec<TopicData> = Vec::new();
    for partition in &description.partitions {
        let topic = partition.topic.as_str();
        if !services.authorizer.allows(context.principal(), Operation::Describe, Resource::Topic(topic)) {
            continue;
        }
        match topics.last_mut().filter(|last| *last.topic == *topic) {
            Some(last) => last.partitions.push(partition.partition.0),
            None => {
                topics.push(TopicData { topic: topic.into(), partitions: vec![partition.partition.0] });
            }
        }
    }
    TransactionState {
        error_code: ErrorCode::None.code(),
        transactional_id,
        transaction_state: description.state.as_str().into(),
        transaction_timeout_ms: description.timeout_ms,
        transaction_start_time_ms: description.start_timestamp.0,
        producer_id: description.producer_id.0,
        producer_epoch: description.producer_epoch.0,
        topics,
    }
}
