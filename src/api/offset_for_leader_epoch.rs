//! Where a leader epoch ended, so that readers can find out where their log left the leader's (KIP-101, KIP-320).
//!
//! Behaviour: answers the largest epoch not above the asked one, with its end offset; -1 and -1 when the epoch is
//! unknown. Only the leader answers.
//!
//! Versions: 1 the epoch is answered too · 2 current leader epoch · 3 replica id · 4 flexible.

use wire::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use wire::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use wire::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::error_code::replica_error;
use super::{ErrorCode, RequestContext, Services};
use crate::model::{LeaderEpoch, Offset, PartitionIndex};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in request.topics {
        let resource = Resource::Topic(&topic.topic);
        let is_allowed = services.authorizer.allows(context.principal(), Operation::Describe, resource);
        let partitions = topic.partitions.iter().map(|wanted| {
            let found = if is_allowed {
                look_up(services, &topic.topic, wanted)
            } else {
                Err(ErrorCode::TopicAuthorizationFailed)
            };
            let (code, epoch, end_offset) = match found {
                Ok((epoch, end_offset)) => (ErrorCode::None, epoch, end_offset),
                Err(code) => (code, LeaderEpoch::UNKNOWN, Offset::NONE),
            };
            EpochEndOffset {
                error_code: code.code(),
                partition: wanted.partition,
                leader_epoch: epoch.0,
                end_offset: end_offset.0,
            }
        });
        let partitions = partitions.collect();
        response.topics.push(OffsetForLeaderTopicResult { topic: topic.topic, partitions });
    }
    response
}

fn look_up(
    services: &Services,
    topic: &str,
    wanted: &OffsetForLeaderPartition,
) -> Result<(LeaderEpoch, Offset), ErrorCode> {
    let index = PartitionIndex(wanted.partition);
    let partition = services.replicas.partition(topic, index).map_err(|error| replica_error(&error))?;
    let current = LeaderEpoch(wanted.current_leader_epoch);
    partition.check_leader_epoch(current, true).map_err(|error| replica_error(&error))?;
    let found = partition.log().end_offset_for_epoch(LeaderEpoch(wanted.leader_epoch));
    Ok((found.epoch, found.end_offset))
}
