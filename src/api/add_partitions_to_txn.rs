//! Makes partitions part of a transaction, or asks whether they are (KIP-98, KIP-890).
//!
//! Behaviour: all or nothing: where one partition is not known or not allowed, the others are not attempted. From
//! version 4 on it is for brokers, which add or verify for many producers at once. A producer whose last end is not
//! complete is kept waiting for a little before it is told to come again.
//!
//! Versions: 2 PRODUCER_FENCED · 3 flexible · 4 many transactions, verification (KIP-890) · 5
//! TRANSACTION_ABORTABLE.

use wire::add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
use wire::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use wire::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};

use super::error_code::txn_error;
use super::transactions::{code_before, host};
use super::{ErrorCode, RequestContext, Services};
use crate::metadata::Image;
use crate::model::{PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition, is_internal_topic};
use crate::security::{Operation, Resource};
use crate::txn::{AddPartitions, TransactionVerifier, TransactionVersion, TransactionalId, VerifyPartitions};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse {
    let mut response = AddPartitionsToTxnResponse::default();
    if context.version < 4 {
        let transaction = AddPartitionsToTxnTransaction {
            transactional_id: request.v3_and_below_transactional_id,
            producer_id: request.v3_and_below_producer_id,
            producer_epoch: request.v3_and_below_producer_epoch,
            topics: request.v3_and_below_topics,
            ..AddPartitionsToTxnTransaction::default()
        };
        let codes = add(services, context, &transaction, Sender::Client).await;
        response.results_by_topic_v3_and_below = results(&transaction.topics, codes);
        return response;
    }
    if !services.authorizer.allows(context.principal(), Operation::ClusterAction, Resource::Cluster) {
        response.error_code = ErrorCode::ClusterAuthorizationFailed.code();
        return response;
    }
    for transaction in request.transactions {
        let codes = if transaction.verify_only {
            verify(services, context, &transaction).await
        } else {
            add(services, context, &transaction, Sender::Broker).await
        };
        response.results_by_transaction.push(AddPartitionsToTxnResult {
            topic_results: results(&transaction.topics, codes),
            transactional_id: transaction.transactional_id,
        });
    }
    response
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Client,
    Broker,
}

/// One code for each partition, in the order of the request.
async fn add(
    services: &Services,
    context: &RequestContext,
    transaction: &AddPartitionsToTxnTransaction,
    sender: Sender,
) -> Vec<ErrorCode> {
    let image = services.metadata.image();
    let checked: Vec<Result<TopicPartition, ErrorCode>> = partitions(transaction)
        .map(|(topic, index)| check(services, context, &image, (topic, index), sender))
        .collect();
    let id = Resource::TransactionalId(&transaction.transactional_id);
    if sender == Sender::Client && !services.authorizer.allows(context.principal(), Operation::Write, id) {
        return vec![ErrorCode::TransactionalIdAuthorizationFailed; checked.len()];
    }
    if checked.iter().any(Result::is_err) {
        let code = |checked: Result<_, ErrorCode>| checked.err().unwrap_or(ErrorCode::OperationNotAttempted);
        return checked.into_iter().map(code).collect();
    }
    let count = checked.len();
    let Some(transactional_id) = TransactionalId::new(&transaction.transactional_id) else {
        return vec![ErrorCode::InvalidRequest; count];
    };
    let command = AddPartitions {
        transactional_id,
        producer_id: ProducerId(transaction.producer_id),
        producer_epoch: ProducerEpoch(transaction.producer_epoch),
        partitions: checked.into_iter().flatten().collect(),
        client_version: match sender {
            Sender::Client => TransactionVersion::Classic,
            Sender::Broker => TransactionVersion::EpochBump,
        },
        client_host: (sender == Sender::Client).then(|| host(context)),
    };
    let result = match sender {
        Sender::Client => services.transactions.add_partitions_in_turn(command).await,
        // Questions of other producers wait behind this one.
        Sender::Broker => services.transactions.add_partitions(command).await,
    };
    vec![result.map_or_else(|error| code_before(error, context, 2), |()| ErrorCode::None); count]
}

async fn verify(
    services: &Services,
    context: &RequestContext,
    transaction: &AddPartitionsToTxnTransaction,
) -> Vec<ErrorCode> {
    let named: Vec<Option<TopicPartition>> = partitions(transaction)
        .map(|(topic, index)| TopicName::new(topic).ok().map(|topic| TopicPartition::new(topic, index)))
        .collect();
    let Some(transactional_id) = TransactionalId::new(&transaction.transactional_id) else {
        return vec![ErrorCode::InvalidRequest; named.len()];
    };
    let request = VerifyPartitions {
        transactional_id,
        producer_id: ProducerId(transaction.producer_id),
        producer_epoch: ProducerEpoch(transaction.producer_epoch),
        partitions: named.iter().flatten().cloned().collect(),
    };
    let mut verified = services.transactions.verify(request).await.into_iter();
    let code = |named: &Option<TopicPartition>| match named {
        None => ErrorCode::UnknownTopicOrPartition,
        Some(_) => match verified.next().map(|result| result.map_err(txn_error)) {
            Some(Ok(())) => ErrorCode::None,
            // Brokers of version 4 do not know it.
            Some(Err(ErrorCode::TransactionAbortable)) if context.version < 5 => ErrorCode::InvalidTxnState,
            Some(Err(code)) => code,
            None => ErrorCode::UnknownServerError,
        },
    };
    named.iter().map(code).collect()
}

fn partitions(transaction: &AddPartitionsToTxnTransaction) -> impl Iterator<Item = (&str, PartitionIndex)> {
    let topics = transaction.topics.iter();
    topics.flat_map(|topic| topic.partitions.iter().map(|&index| (&*topic.name, PartitionIndex(index))))
}

fn check(
    services: &Services,
    context: &RequestContext,
    image: &Image,
    (topic, index): (&str, PartitionIndex),
    sender: Sender,
) -> Result<TopicPartition, ErrorCode> {
    let is_allowed = match sender {
        // Offsets of groups are added by AddOffsetsToTxn.
        Sender::Client => {
            !is_internal_topic(topic)
                && services.authorizer.allows(context.principal(), Operation::Write, Resource::Topic(topic))
        }
        Sender::Broker => true,
    };
    if !is_allowed {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let known = image.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    known.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    Ok(TopicPartition::new(known.name.clone(), index))
}

fn results(topics: &[AddPartitionsToTxnTopic], codes: Vec<ErrorCode>) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut codes = codes.into_iter();
    let topics = topics.iter().map(|topic| AddPartitionsToTxnTopicResult {
        name: topic.name.clone(),
        results_by_partition: topic
            .partitions
            .iter()
            .map(|&partition_index| AddPartitionsToTxnPartitionResult {
                partition_index,
                partition_error_code: codes.next().unwrap_or(ErrorCode::UnknownServerError).code(),
            })
            .collect(),
    });
    topics.collect()
}
