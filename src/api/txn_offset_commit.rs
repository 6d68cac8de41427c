//! Stores the offsets of a group as part of a transaction (KIP-98).
//!
//! Behaviour: the offsets count when the transaction commits. From version 3 on the sender has to be a member of the
//! group's generation (KIP-447). That the transaction has the group's partition is confirmed by its coordinator;
//! from version 5 on it is added.
//!
//! Versions: 2 leader epoch · 3 flexible, member and generation (KIP-447) · 4 TRANSACTION_ABORTABLE (KIP-890) · 5 adds
//! the group's partition.

use wire::txn_offset_commit_response::{TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic};
use wire::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};

use super::error_code::{group_error, txn_error};
use super::transactions::{Writer, verify};
use super::{ErrorCode, RequestContext, Services};
use crate::group::{
    CommitTransactionalOffsets, GenerationId, GroupId, MemberId, OFFSETS_TOPIC, OffsetToCommit,
};
use crate::log::VerificationGuard;
use crate::metadata::Image;
use crate::model::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition,
};
use crate::security::{Operation, Resource};
use crate::txn::TransactionalId;

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    let whole_error = refuse_whole(services, context, &request);
    let image = services.metadata.image();
    let mut offsets = Vec::new();
    let mut response = TxnOffsetCommitResponse::default();
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let index = PartitionIndex(wanted.partition_index);
            let checked = match whole_error {
                Some(code) => Err(code),
                None => check(services, context, &image, &topic.name, index),
            };
            let code = match checked {
                Err(code) => code,
                Ok(topic_partition) => {
                    offsets.push(OffsetToCommit {
                        topic_partition,
                        offset: Offset(wanted.committed_offset),
                        leader_epoch: LeaderEpoch(wanted.committed_leader_epoch),
                        metadata: wanted.committed_metadata.as_deref().unwrap_or_default().to_owned(),
                        commit_timestamp: None,
                    });
                    ErrorCode::None
                }
            };
            let (partition_index, error_code) = (wanted.partition_index, code.code());
            partitions.push(TxnOffsetCommitResponsePartition { partition_index, error_code });
        }
        response.topics.push(TxnOffsetCommitResponseTopic { name: topic.name.clone(), partitions });
    }
    if !offsets.is_empty() {
        commit(services, context, &request, offsets, &mut response).await;
    }
    response
}

fn refuse_whole(
    services: &Services,
    context: &RequestContext,
    request: &TxnOffsetCommitRequest,
) -> Option<ErrorCode> {
    let allows = |operation, resource: Resource<'_>| {
        services.authorizer.allows(context.principal(), operation, resource)
    };
    if !allows(Operation::Write, Resource::TransactionalId(&request.transactional_id)) {
        return Some(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    if !allows(Operation::Read, Resource::Group(&request.group_id)) {
        return Some(ErrorCode::GroupAuthorizationFailed);
    }
    None
}

fn check(
    services: &Services,
    context: &RequestContext,
    image: &Image,
    topic: &str,
    index: PartitionIndex,
) -> Result<TopicPartition, ErrorCode> {
    if !services.authorizer.allows(context.principal(), Operation::Read, Resource::Topic(topic)) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let known = image.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    known.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    Ok(TopicPartition::new(known.name.clone(), index))
}

/// Stores what passed the checks and fills its codes in, in order.
async fn commit(
    services: &Services,
    context: &RequestContext,
    request: &TxnOffsetCommitRequest,
    offsets: Vec<OffsetToCommit>,
    response: &mut TxnOffsetCommitResponse,
) {
    let passed = response
        .topics
        .iter_mut()
        .flat_map(|topic| &mut topic.partitions)
        .filter(|partition| partition.error_code == ErrorCode::None.code());
    let refuse = |code: ErrorCode| code_for(context.version, code).code();
    let guard = match guard(services, context, request).await {
        Ok(guard) => guard,
        Err(code) => return passed.for_each(|partition| partition.error_code = refuse(code)),
    };
    let command = CommitTransactionalOffsets {
        group_id: GroupId::from(&*request.group_id),
        member_id: MemberId::from(&*request.member_id),
        group_instance_id: request.group_instance_id.as_deref().map(Into::into),
        generation_id: GenerationId(request.generation_id),
        producer_id: ProducerId(request.producer_id),
        producer_epoch: ProducerEpoch(request.producer_epoch),
        guard,
        offsets,
    };
    match services.groups.commit_transactional_offsets(command).await {
        Ok(results) => {
            for (partition, result) in passed.zip(results) {
                partition.error_code =
                    result.map_or_else(|error| refuse(group_error(error)), |()| ErrorCode::None.code());
            }
        }
        Err(error) => passed.for_each(|partition| partition.error_code = refuse(group_error(error))),
    }
}

/// Proof that the group's partition is part of the transaction; `None` = it is open there.
async fn guard(
    services: &Services,
    context: &RequestContext,
    request: &TxnOffsetCommitRequest,
) -> Result<Option<VerificationGuard>, ErrorCode> {
    let index = services.groups.partition_for(&request.group_id);
    // The group coordinator tells better than the log what is wrong when the partition is not here.
    let Ok(partition) = services.replicas.partition(OFFSETS_TOPIC, index) else { return Ok(None) };
    let (producer_id, producer_epoch) =
        (ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch));
    let now = services.clock.now();
    let Some(guard) = partition.begin_verification(producer_id, producer_epoch, -1, now) else {
        return Ok(None);
    };
    let transactional_id =
        TransactionalId::new(&request.transactional_id).ok_or(ErrorCode::InvalidRequest)?;
    let topic = TopicName::new(OFFSETS_TOPIC).map_err(|_| ErrorCode::UnknownServerError)?;
    let adds_partitions = context.version >= 5;
    let writer = Writer { transactional_id, producer_id, producer_epoch, adds_partitions };
    let guards = vec![(TopicPartition::new(topic, index), guard)];
    let verified = verify(services, context, writer, guards).await.into_values().next();
    match verified {
        Some(Ok(guard)) => Ok(Some(guard)),
        Some(Err(error)) => Err(verification_code(context, txn_error(error))),
        None => Err(ErrorCode::UnknownServerError),
    }
}

/// What a refused verification is to the producer.
fn verification_code(context: &RequestContext, code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::NetworkException => ErrorCode::CoordinatorLoadInProgress,
        // From version 5 on clients know it; earlier ones come again after this.
        ErrorCode::ConcurrentTransactions if context.version < 5 => ErrorCode::CoordinatorLoadInProgress,
        ErrorCode::TransactionAbortable if context.version < 4 => ErrorCode::InvalidTxnState,
        code => code,
    }
}

/// Clients before version 2 take "loading" for fatal (KAFKA-7296).
fn code_for(version: i16, code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::CoordinatorLoadInProgress if version < 2 => ErrorCode::CoordinatorNotAvailable,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_is_a_code_that_the_version_retries() {
        assert_eq!(code_for(1, ErrorCode::CoordinatorLoadInProgress), ErrorCode::CoordinatorNotAvailable);
        assert_eq!(code_for(2, ErrorCode::CoordinatorLoadInProgress), ErrorCode::CoordinatorLoadInProgress);
    }
}
