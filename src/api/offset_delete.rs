//! Removes stored offsets of a group (KIP-496).
//!
//! Behaviour: offsets of topics that members subscribe to stay, with GROUP_SUBSCRIBED_TO_TOPIC.
//!
//! Versions: 0.

use wire::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use wire::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::error_code::group_error;
use super::{ErrorCode, RequestContext, Services};
use crate::group::{DeleteOffsets, GroupId};
use crate::model::{PartitionIndex, TopicPartition};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let failed = |code: ErrorCode| OffsetDeleteResponse { error_code: code.code(), ..Default::default() };
    let group = Resource::Group(&request.group_id);
    if !services.authorizer.allows(context.principal(), Operation::Delete, group) {
        return failed(ErrorCode::GroupAuthorizationFailed);
    }
    let image = services.metadata.image();
    let mut partitions = Vec::new();
    let mut response = OffsetDeleteResponse::default();
    for topic in request.topics {
        let resource = Resource::Topic(&topic.name);
        let is_allowed = services.authorizer.allows(context.principal(), Operation::Read, resource);
        let mut results = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions {
            let index = PartitionIndex(wanted.partition_index);
            let known = image.topic(&topic.name).filter(|known| known.partition(index).is_some());
            let code = match known {
                _ if !is_allowed => ErrorCode::TopicAuthorizationFailed,
                None => ErrorCode::UnknownTopicOrPartition,
                Some(known) => {
                    partitions.push(TopicPartition::new(known.name.clone(), index));
                    ErrorCode::None
                }
            };
            results.push(OffsetDeleteResponsePartition { partition_index: index.0, error_code: code.code() });
        }
        response.topics.push(OffsetDeleteResponseTopic { name: topic.name, partitions: results });
    }
    let delete = DeleteOffsets { group_id: GroupId::from(&*request.group_id), partitions };
    match services.groups.delete_offsets(delete).await {
        Err(error) => failed(group_error(error)),
        Ok(results) => {
            let passed = response
                .topics
                .iter_mut()
                .flat_map(|topic| &mut topic.partitions)
                .filter(|partition| partition.error_code == ErrorCode::None.code());
            for (partition, result) in passed.zip(results) {
                partition.error_code = result.map_or_else(group_error, |()| ErrorCode::None).code();
            }
            response
        }
    }
}
