//! Topics and partitions page by page (KIP-966).
//!
//! Behaviour: topics in the order of their names; an answer holds a limited number of partitions and says where to
//! go on. Eligible leader replicas are a KRaft notion, their lists are empty.
//!
//! Versions: 0.

use std::collections::BTreeSet;

use wire::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use wire::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, Str, Uuid};

use super::metadata::ids;
use super::{ErrorCode, RequestContext, Services};
use crate::metadata::{Image, Topic};
use crate::model::{BrokerId, TopicName, is_internal_topic};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let image = services.metadata.image();
    let mut names: BTreeSet<Str> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let lists_all = names.is_empty();
    if lists_all {
        names = image.topics().map(|topic| topic.name.as_str().into()).collect();
    }
    let mut first_partition = 0;
    if let Some(cursor) = &request.cursor {
        if cursor.partition_index < 0 || (!lists_all && !names.contains(&cursor.topic_name)) {
            return refuse(request);
        }
        first_partition = cursor.partition_index;
        names = names.split_off(&cursor.topic_name);
        // A topic deleted since the last page leaves the cursor without its partitions.
        if !names.contains(&cursor.topic_name) {
            first_partition = 0;
        }
    }
    let limit = services
        .config
        .load()
        .max_request_partition_size_limit()
        .min(request.response_partition_limit)
        .max(1);
    page(services, context, &image, names, lists_all, first_partition, limit)
}

/// An illegal cursor fails every topic asked for.
fn refuse(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let topics = request.topics.into_iter().map(|topic| DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::InvalidRequest.code(),
        name: Some(topic.name),
        ..DescribeTopicPartitionsResponseTopic::default()
    });
    DescribeTopicPartitionsResponse { topics: topics.collect(), ..Default::default() }
}

fn page(
    services: &Services,
    context: &RequestContext,
    image: &Image,
    names: BTreeSet<Str>,
    lists_all: bool,
    mut first_partition: i32,
    limit: i32,
) -> DescribeTopicPartitionsResponse {
    let mut response = DescribeTopicPartitionsResponse::default();
    let mut forbidden = Vec::new();
    let mut left = limit as usize;
    for name in names {
        if !services.authorizer.allows(context.principal(), Operation::Describe, Resource::Topic(&name)) {
            if !lists_all {
                forbidden.push(failed(&name, ErrorCode::TopicAuthorizationFailed));
            }
            continue;
        }
        let Some(topic) = image.topic(&name) else {
            response.topics.push(missing(services, context, &name));
            continue;
        };
        if left == 0 {
            response.next_cursor = Some(Cursor { topic_name: name, partition_index: 0 });
            break;
        }
        let skip = std::mem::take(&mut first_partition);
        let mut described = describe(services, context, topic);
        let all = topic.partitions().iter().filter(|partition| partition.index.0 >= skip);
        let partitions: Vec<_> = all.take(left + 1).collect();
        let is_cut = partitions.len() > left;
        described.partitions = partitions
            .iter()
            .take(left)
            .map(|partition| DescribeTopicPartitionsResponsePartition {
                error_code: match image.leader(partition, context.listener()) {
                    Ok(_) => ErrorCode::None,
                    Err(crate::metadata::LeaderUnavailable::ListenerNotFound) => ErrorCode::ListenerNotFound,
                    Err(_) => ErrorCode::LeaderNotAvailable,
                }
                .code(),
                partition_index: partition.index.0,
                leader_id: match image.leader(partition, context.listener()) {
                    Ok(_) => partition.leader.0,
                    Err(_) => BrokerId::NONE.0,
                },
                leader_epoch: partition.leader_epoch.0,
                replica_nodes: ids(&partition.replicas),
                isr_nodes: ids(&partition.isr),
                eligible_leader_replicas: Some(Vec::new()),
                last_known_elr: Some(Vec::new()),
                offline_replicas: ids(&partition.offline_replicas),
            })
            .collect();
        left -= described.partitions.len();
        response.topics.push(described);
        if is_cut {
            let next = partitions.last().map_or(0, |partition| partition.index.0);
            response.next_cursor = Some(Cursor { topic_name: name, partition_index: next });
            break;
        }
    }
    response.topics.extend(forbidden);
    response
}

fn missing(
    services: &Services,
    context: &RequestContext,
    name: &str,
) -> DescribeTopicPartitionsResponseTopic {
    let code = match TopicName::new(name) {
        Ok(_) => ErrorCode::UnknownTopicOrPartition,
        Err(_) => ErrorCode::InvalidTopicException,
    };
    DescribeTopicPartitionsResponseTopic {
        // Told even so, as by Kafka.
        topic_authorized_operations: services
            .authorizer
            .authorized_operations(context.principal(), Resource::Topic(name)),
        ..failed(name, code)
    }
}

fn failed(name: &str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        error_code: code.code(),
        name: Some(name.into()),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn describe(
    services: &Services,
    context: &RequestContext,
    topic: &Topic,
) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        name: Some(topic.name.as_str().into()),
        topic_id: Uuid(topic.id.0),
        is_internal: is_internal_topic(&topic.name),
        topic_authorized_operations: services
            .authorizer
            .authorized_operations(context.principal(), Resource::Topic(&topic.name)),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}
