//! Stores the offsets of a group.
//!
//! Behaviour: partitions that do not exist fail by themselves, the others are stored together. Version 0 stores
//! them one by one, under `/consumers` in ZooKeeper or what takes its place, and knows no members.
//!
//! Versions: 0 offsets in ZooKeeper · 1 generation and member · 2 retention (until 4) · 6 leader epoch (KIP-320) · 7 static members
//! (KIP-345) · 8 flexible · 9 stale member epochs (KIP-848) · 10 topic ids.

use tracing::warn;
use wire::offset_commit_request::OffsetCommitRequestTopic;
use wire::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use wire::{OffsetCommitRequest, OffsetCommitResponse};

use super::error_code::group_error;
use super::{ErrorCode, RequestContext, Services};
use crate::group::{CommitOffsets, GenerationId, GroupError, GroupId, MemberId, OffsetToCommit};
use crate::metadata::{Image, Topic};
use crate::model::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId, TopicPartition};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let group = Resource::Group(&request.group_id);
    let may_commit = services.authorizer.allows(context.principal(), Operation::Read, group);
    let whole_error = (!may_commit).then_some(ErrorCode::GroupAuthorizationFailed);
    let image = services.metadata.image();
    let mut offsets = Vec::new();
    let mut response = OffsetCommitResponse::default();
    for topic in &request.topics {
        let known = find(context, &image, topic);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let index = PartitionIndex(wanted.partition_index);
            let code = match (whole_error, known) {
                (Some(code), _) => code,
                (None, Err(code)) => code,
                (None, Ok(known)) => match check(services, context, known, index) {
                    Err(code) => code,
                    Ok(topic_partition) => {
                        offsets.push(OffsetToCommit {
                            topic_partition,
                            offset: Offset(wanted.committed_offset),
                            leader_epoch: LeaderEpoch(wanted.committed_leader_epoch),
                            metadata: wanted.committed_metadata.as_deref().unwrap_or_default().to_owned(),
                            commit_timestamp: commit_timestamp(context, wanted.commit_timestamp),
                        });
                        ErrorCode::None
                    }
                },
            };
            partitions.push(OffsetCommitResponsePartition {
                partition_index: wanted.partition_index,
                error_code: code.code(),
            });
        }
        response.topics.push(OffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions,
        });
    }
    let is_asked = request.topics.is_empty() || !offsets.is_empty();
    if whole_error.is_none() && is_asked && context.version == 0 {
        commit_to_store(services, &request.group_id, offsets, &mut response).await;
    } else if whole_error.is_none() && is_asked {
        commit(services, context, &request, offsets, &mut response).await;
    }
    response
}

fn commit_timestamp(context: &RequestContext, timestamp: i64) -> Option<Timestamp> {
    (context.version == 1 && timestamp >= 0).then_some(Timestamp(timestamp))
}

fn find<'a>(
    context: &RequestContext,
    image: &'a Image,
    topic: &OffsetCommitRequestTopic,
) -> Result<&'a Topic, ErrorCode> {
    if context.version >= 10 {
        let known = image.topic_by_id(TopicId(topic.topic_id.0));
        return known.map(|topic| &**topic).ok_or(ErrorCode::UnknownTopicId);
    }
    image.topic(&topic.name).map(|topic| &**topic).ok_or(ErrorCode::UnknownTopicOrPartition)
}

fn check(
    services: &Services,
    context: &RequestContext,
    topic: &Topic,
    index: PartitionIndex,
) -> Result<TopicPartition, ErrorCode> {
    let resource = Resource::Topic(&topic.name);
    if !services.authorizer.allows(context.principal(), Operation::Read, resource) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    topic.partition(index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    Ok(TopicPartition::new(topic.name.clone(), index))
}

/// As [`commit`], for version 0.
async fn commit_to_store(
    services: &Services,
    group: &str,
    offsets: Vec<OffsetToCommit>,
    response: &mut OffsetCommitResponse,
) {
    let size_max = usize::try_from(services.config.load().offset_metadata_max_bytes()).unwrap_or(0);
    for (partition, offset) in passed(response).zip(offsets) {
        if offset.metadata.encode_utf16().count() > size_max {
            partition.error_code = ErrorCode::OffsetMetadataTooLarge.code();
            continue;
        }
        let TopicPartition { topic, partition: index } = &offset.topic_partition;
        let stored = services.admin.store_consumer_offset(group, topic, *index, offset.offset).await;
        if let Err(error) = stored {
            warn!(group_id = group, %topic, partition = index.0, %error, "storing an old consumer's offset");
            partition.error_code = ErrorCode::UnknownServerError.code();
        }
    }
}

/// The partitions of the answer that no check has refused.
fn passed(response: &mut OffsetCommitResponse) -> impl Iterator<Item = &mut OffsetCommitResponsePartition> {
    let partitions = response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
    partitions.filter(|partition| partition.error_code == ErrorCode::None.code())
}

/// Stores what passed the checks and fills its codes in, in order.
async fn commit(
    services: &Services,
    context: &RequestContext,
    request: &OffsetCommitRequest,
    offsets: Vec<OffsetToCommit>,
    response: &mut OffsetCommitResponse,
) {
    let retention_ms = (2..=4).contains(&context.version).then_some(request.retention_time_ms);
    let command = CommitOffsets {
        group_id: GroupId::from(&*request.group_id),
        member_id: MemberId::from(&*request.member_id),
        group_instance_id: request.group_instance_id.as_deref().map(Into::into),
        generation_id: GenerationId(request.generation_id_or_member_epoch),
        retention_ms: retention_ms.filter(|&retention_ms| retention_ms >= 0),
        offsets,
    };
    let result = services.groups.commit_offsets(command).await;
    let passed = passed(response);
    match result {
        Ok(results) => {
            for (partition, result) in passed.zip(results) {
                partition.error_code = result.map_or_else(group_error, |()| ErrorCode::None).code();
            }
        }
        Err(error) => {
            let code = code(context.version, error);
            passed.for_each(|partition| partition.error_code = code.code());
        }
    }
}

/// Clients before version 10 are told that the generation is wrong when there is no such group.
fn code(version: i16, error: GroupError) -> ErrorCode {
    match group_error(error) {
        ErrorCode::GroupIdNotFound if version < 10 => ErrorCode::IllegalGeneration,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_without_a_group_is_wrong_until_version_10_names_the_group() {
        assert_eq!(code(9, GroupError::GroupIdNotFound), ErrorCode::IllegalGeneration);
        assert_eq!(code(10, GroupError::GroupIdNotFound), ErrorCode::GroupIdNotFound);
        assert_eq!(code(10, GroupError::IllegalGeneration), ErrorCode::IllegalGeneration);
    }
}
