//! Reads the stored offsets of groups.
//!
//! Behaviour: a partition without a stored offset is answered with -1, empty metadata and no error. Null topics ask
//! for every stored offset. Version 0 reads what old consumers keep under `/consumers`, where a partition without
//! an offset is an unknown one. Errors of the group: before v2 on each partition, until v7 on top, then per group.
//!
//! Versions: 0 offsets in ZooKeeper · 1 offsets in Kafka · 2 all topics, top-level error · 5 leader epoch · 6 flexible · 7 require stable
//! (KIP-447) · 8 many groups (KIP-709) · 9 member epoch (KIP-848) · 10 topic ids.

use tracing::warn;
use wire::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use wire::{OffsetFetchRequest, OffsetFetchResponse, Str, Uuid};

use super::error_code::group_error;
use super::{ErrorCode, RequestContext, Services};
use crate::group::{FetchOffsets, FetchedOffset, GroupId};
use crate::metadata::Image;
use crate::model::{PartitionIndex, TopicId, TopicName, TopicPartition};
use crate::security::{Operation, Resource};

/// What one group is asked for; `None` topics = all.
struct Asked {
    group_id: Str,
    topics: Option<Vec<AskedTopic>>,
}

struct AskedTopic {
    name: Str,
    topic_id: Uuid,
    partitions: Vec<i32>,
}

/// One group's answer, free of the two layouts.
struct Answered {
    group_id: Str,
    error: ErrorCode,
    topics: Vec<AnsweredTopic>,
}

struct AnsweredTopic {
    name: Str,
    topic_id: Uuid,
    partitions: Vec<AnsweredPartition>,
}

struct AnsweredPartition {
    index: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: Str,
    error: ErrorCode,
}

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let require_stable = request.require_stable;
    if context.version >= 8 {
        let mut response = OffsetFetchResponse::default();
        for group in request.groups {
            let topics = group.topics.map(|topics| {
                let topics = topics.into_iter().map(|topic| AskedTopic {
                    name: topic.name,
                    topic_id: topic.topic_id,
                    partitions: topic.partition_indexes,
                });
                topics.collect()
            });
            let asked = Asked { group_id: group.group_id, topics };
            response.groups.push(group_response(answer(services, context, asked, require_stable).await));
        }
        return response;
    }
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| AskedTopic {
            name: topic.name,
            topic_id: Uuid::default(),
            partitions: topic.partition_indexes,
        });
        topics.collect()
    });
    let asked = Asked { group_id: request.group_id, topics };
    single_response(context, answer(services, context, asked, require_stable).await)
}

async fn answer(
    services: &Services,
    context: &RequestContext,
    asked: Asked,
    require_stable: bool,
) -> Answered {
    let group = Resource::Group(&asked.group_id);
    if !services.authorizer.allows(context.principal(), Operation::Describe, group) {
        return failed(asked, ErrorCode::GroupAuthorizationFailed);
    }
    let group_id = GroupId::from(&*asked.group_id);
    let Some(topics) = &asked.topics else {
        let fetch = FetchOffsets { group_id, partitions: None, require_stable };
        return match services.groups.fetch_offsets(fetch).await {
            Ok(offsets) => all(services, context, asked.group_id, offsets),
            Err(error) => failed(asked, group_error(error)),
        };
    };
    let image = services.metadata.image();
    if context.version == 0 {
        return stored_by_old_consumers(services, context, &image, &asked.group_id, topics).await;
    }
    let resolved: Vec<Result<TopicName, ErrorCode>> = topics
        .iter()
        .map(|topic| {
            let name = if context.version >= 10 {
                let known = image.topic_name(TopicId(topic.topic_id.0));
                known.cloned().ok_or(ErrorCode::UnknownTopicId)?
            } else {
                TopicName::new(&topic.name).map_err(|_| ErrorCode::UnknownTopicOrPartition)?
            };
            let resource = Resource::Topic(&name);
            let is_allowed = services.authorizer.allows(context.principal(), Operation::Describe, resource);
            if is_allowed { Ok(name) } else { Err(ErrorCode::TopicAuthorizationFailed) }
        })
        .collect();
    let wanted = topics.iter().zip(&resolved).filter_map(|(topic, name)| Some((topic, name.as_ref().ok()?)));
    let partitions = wanted.flat_map(|(topic, name)| {
        let indexes = topic.partitions.iter();
        indexes.map(|&index| TopicPartition::new(name.clone(), PartitionIndex(index)))
    });
    let fetch = FetchOffsets { group_id, partitions: Some(partitions.collect()), require_stable };
    match services.groups.fetch_offsets(fetch).await {
        Ok(offsets) => named(asked.group_id, topics, &resolved, offsets),
        Err(error) => failed(asked, group_error(error)),
    }
}

/// The answer of version 0.
async fn stored_by_old_consumers(
    services: &Services,
    context: &RequestContext,
    image: &Image,
    group: &Str,
    topics: &[AskedTopic],
) -> Answered {
    let mut answered = Answered { group_id: group.clone(), error: ErrorCode::None, topics: Vec::new() };
    for topic in topics {
        let resource = Resource::Topic(&topic.name);
        let is_allowed = services.authorizer.allows(context.principal(), Operation::Describe, resource);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for &index in &topic.partitions {
            let known = image.topic(&topic.name);
            let is_known = known.is_some_and(|topic| topic.partition(PartitionIndex(index)).is_some());
            partitions.push(match known {
                _ if !is_allowed => nothing(index, ErrorCode::TopicAuthorizationFailed),
                Some(topic) if is_known => stored_by_old_consumer(services, group, &topic.name, index).await,
                _ => nothing(index, ErrorCode::UnknownTopicOrPartition),
            });
        }
        let (name, topic_id) = (topic.name.clone(), topic.topic_id);
        answered.topics.push(AnsweredTopic { name, topic_id, partitions });
    }
    answered
}

async fn stored_by_old_consumer(
    services: &Services,
    group: &str,
    topic: &TopicName,
    index: i32,
) -> AnsweredPartition {
    match services.admin.consumer_offset(group, topic, PartitionIndex(index)).await {
        Ok(Some(offset)) => AnsweredPartition { offset: offset.0, ..nothing(index, ErrorCode::None) },
        Ok(None) => nothing(index, ErrorCode::UnknownTopicOrPartition),
        Err(error) => {
            warn!(group_id = group, %topic, partition = index, %error, "reading an old consumer's offset");
            nothing(index, ErrorCode::UnknownServerError)
        }
    }
}

/// The answer to null topics, grouped by topic.
fn all(
    services: &Services,
    context: &RequestContext,
    group_id: Str,
    offsets: Vec<FetchedOffset>,
) -> Answered {
    let image = services.metadata.image();
    let mut topics: Vec<AnsweredTopic> = Vec::new();
    let mut sorted = offsets;
    sorted.sort_by(|a, b| a.topic_partition.cmp(&b.topic_partition));
    for fetched in sorted {
        let name = &fetched.topic_partition.topic;
        let topic_id = image.topic_id(name);
        // By id only what still exists can be told.
        if context.version >= 10 && topic_id.is_zero() {
            continue;
        }
        if !services.authorizer.allows(context.principal(), Operation::Describe, Resource::Topic(name)) {
            continue;
        }
        if topics.last().is_none_or(|topic| *topic.name != **name) {
            let name = name.as_str().into();
            topics.push(AnsweredTopic { name, topic_id: Uuid(topic_id.0), partitions: Vec::new() });
        }
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(found(fetched));
        }
    }
    Answered { group_id, error: ErrorCode::None, topics }
}

/// The answer to named partitions, in the order of the request.
fn named(
    group_id: Str,
    asked: &[AskedTopic],
    resolved: &[Result<TopicName, ErrorCode>],
    offsets: Vec<FetchedOffset>,
) -> Answered {
    let mut offsets = offsets.into_iter();
    let topics = asked.iter().zip(resolved).map(|(topic, name)| {
        let partitions = topic.partitions.iter().map(|&index| match name {
            Ok(_) => offsets.next().map_or_else(|| nothing(index, ErrorCode::None), found),
            Err(code) => nothing(index, *code),
        });
        let partitions = partitions.collect();
        AnsweredTopic { name: topic.name.clone(), topic_id: topic.topic_id, partitions }
    });
    Answered { group_id, error: ErrorCode::None, topics: topics.collect() }
}

/// The answer where the group as a whole is at fault: every partition that was asked for is in it.
fn failed(asked: Asked, error: ErrorCode) -> Answered {
    let topics = asked.topics.unwrap_or_default().into_iter().map(|topic| AnsweredTopic {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic.partitions.into_iter().map(|index| nothing(index, error)).collect(),
    });
    Answered { group_id: asked.group_id, error, topics: topics.collect() }
}

fn found(fetched: FetchedOffset) -> AnsweredPartition {
    AnsweredPartition {
        index: fetched.topic_partition.partition.0,
        offset: fetched.offset.0,
        leader_epoch: fetched.leader_epoch.0,
        metadata: fetched.metadata.into(),
        error: fetched.error.map_or(ErrorCode::None, group_error),
    }
}

fn nothing(index: i32, error: ErrorCode) -> AnsweredPartition {
    AnsweredPartition { index, offset: -1, leader_epoch: -1, metadata: Str::EMPTY, error }
}

/// The layout of one group, until v7.
fn single_response(context: &RequestContext, answered: Answered) -> OffsetFetchResponse {
    // With a top-level field for it, a group's error leaves the topics out.
    let has_topics = answered.error == ErrorCode::None || context.version < 2;
    let topics = answered.topics.into_iter().filter(|_| has_topics).map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetFetchResponsePartition {
                partition_index: partition.index,
                committed_offset: partition.offset,
                committed_leader_epoch: partition.leader_epoch,
                metadata: Some(partition.metadata),
                error_code: partition.error.code(),
            })
            .collect(),
    });
    OffsetFetchResponse {
        topics: topics.collect(),
        error_code: answered.error.code(),
        ..OffsetFetchResponse::default()
    }
}

/// The layout of many groups, from v8 on.
fn group_response(answered: Answered) -> OffsetFetchResponseGroup {
    let has_topics = answered.error == ErrorCode::None;
    let topics = answered.topics.into_iter().filter(|_| has_topics).map(|topic| OffsetFetchResponseTopics {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetFetchResponsePartitions {
                partition_index: partition.index,
                committed_offset: partition.offset,
                committed_leader_epoch: partition.leader_epoch,
                metadata: Some(partition.metadata),
                error_code: partition.error.code(),
            })
            .collect(),
    });
    OffsetFetchResponseGroup {
        group_id: answered.group_id,
        topics: topics.collect(),
        error_code: answered.error.code(),
    }
}
