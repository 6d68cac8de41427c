//! Makes the offsets of a group part of a transaction (KIP-98).
//!
//! Behaviour: adds the partition of `__consumer_offsets` that holds the group.
//!
//! Versions: 2 PRODUCER_FENCED · 3 flexible · 4 TRANSACTION_ABORTABLE (KIP-890).

use std::collections::BTreeSet;

use wire::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};

use super::transactions::{code_before, host};
use super::{ErrorCode, RequestContext, Services};
use crate::group::OFFSETS_TOPIC;
use crate::model::{ProducerEpoch, ProducerId, TopicName, TopicPartition};
use crate::security::{Operation, Resource};
use crate::txn::{AddPartitions, TransactionVersion, TransactionalId};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse {
    let code = add(services, context, &request).await.err().unwrap_or(ErrorCode::None);
    AddOffsetsToTxnResponse { error_code: code.code(), ..AddOffsetsToTxnResponse::default() }
}

async fn add(
    services: &Services,
    context: &RequestContext,
    request: &AddOffsetsToTxnRequest,
) -> Result<(), ErrorCode> {
    let allows = |operation, resource: Resource<'_>| {
        services.authorizer.allows(context.principal(), operation, resource)
    };
    if !allows(Operation::Write, Resource::TransactionalId(&request.transactional_id)) {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    if !allows(Operation::Read, Resource::Group(&request.group_id)) {
        return Err(ErrorCode::GroupAuthorizationFailed);
    }
    let topic = TopicName::new(OFFSETS_TOPIC).map_err(|_| ErrorCode::UnknownServerError)?;
    let partition = TopicPartition::new(topic, services.groups.partition_for(&request.group_id));
    let command = AddPartitions {
        transactional_id: TransactionalId::new(&request.transactional_id).ok_or(ErrorCode::InvalidRequest)?,
        producer_id: ProducerId(request.producer_id),
        producer_epoch: ProducerEpoch(request.producer_epoch),
        partitions: BTreeSet::from([partition]),
        client_version: TransactionVersion::Classic,
        client_host: Some(host(context)),
    };
    let result = services.transactions.add_partitions_in_turn(command).await;
    result.map_err(|error| code_before(error, context, 2))
}
