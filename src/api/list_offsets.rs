//! Looks offsets up: the first, the last, by time.
//!
//! Behaviour: only the leader answers. Consumers see up to the high watermark, `read_committed` ones up to the
//! last stable offset, the debug consumer up to the log end. Nothing at or after the time gives offset -1.
//!
//! Version 0 lists where segments begin, by the age of their files. Topics whose messages have no timestamps are not
//! searched by time: UNSUPPORTED_FOR_MESSAGE_FORMAT.
//!
//! Versions: 0 offsets of segments · 1 one offset per partition · 2 isolation level · 4 leader epochs (KIP-320) · 5 OFFSET_NOT_AVAILABLE ·
//! 6 flexible · 7 max timestamp (KIP-734) · 8 earliest local (KIP-405) · 9 latest tiered · 10 timeout ·
//! 11 earliest pending upload (KIP-1023).

use std::collections::HashSet;
use std::sync::Arc;

use wire::list_offsets_request::ListOffsetsPartition;
use wire::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use wire::{ListOffsetsRequest, ListOffsetsResponse};

use super::error_code::replica_error;
use super::{ErrorCode, RequestContext, Services};
use crate::model::{LeaderEpoch, Offset, PartitionIndex, Timestamp};
use crate::records::MessageFormat;
use crate::replica::{Isolation, Partition};
use crate::runtime::task;
use crate::security::{Operation, Resource};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

const CONSUMER: i32 = -1;
const DEBUG_CONSUMER: i32 = -2;

/// A position with what is known about the record there; -1 where nothing is.
struct Found {
    offset: Offset,
    timestamp: Timestamp,
    leader_epoch: LeaderEpoch,
}

const NOTHING: Found =
    Found { offset: Offset::NONE, timestamp: Timestamp::NONE, leader_epoch: LeaderEpoch::UNKNOWN };

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let isolation = match (request.replica_id, request.isolation_level) {
        (CONSUMER, 1) => Isolation::Committed,
        (CONSUMER, _) => Isolation::HighWatermark,
        _ => Isolation::LogEnd,
    };
    let needs_leader = request.replica_id != DEBUG_CONSUMER;
    let mut response = ListOffsetsResponse::default();
    for topic in request.topics {
        let is_allowed = services.authorizer.allows(
            context.principal(),
            Operation::Describe,
            Resource::Topic(&topic.name),
        );
        let repeated = repeated(&topic.partitions);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let index = wanted.partition_index;
            if context.version == 0 {
                let listed = list(services, &topic.name, wanted, request.replica_id, is_allowed).await;
                partitions.push(old_response(index, listed));
                continue;
            }
            let found = if !is_allowed {
                Err(ErrorCode::TopicAuthorizationFailed)
            } else if repeated.contains(&index) {
                Err(ErrorCode::InvalidRequest)
            } else {
                look_up(services, context, &topic.name, wanted, isolation, needs_leader).await
            };
            let (code, found) = match found {
                Ok(found) => (ErrorCode::None, found),
                Err(code) => (code, NOTHING),
            };
            partitions.push(ListOffsetsPartitionResponse {
                partition_index: index,
                error_code: code.code(),
                timestamp: found.timestamp.0,
                offset: found.offset.0,
                leader_epoch: if context.version >= 4 { found.leader_epoch.0 } else { -1 },
                ..ListOffsetsPartitionResponse::default()
            });
        }
        response.topics.push(ListOffsetsTopicResponse { name: topic.name, partitions });
    }
    response
}

/// The answer of version 0: offsets where segments begin, newest first.
async fn list(
    services: &Services,
    topic: &str,
    wanted: &ListOffsetsPartition,
    replica_id: i32,
    is_allowed: bool,
) -> Result<Vec<Offset>, ErrorCode> {
    if !is_allowed {
        // As in Kafka: here the topic's existence is not given away.
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    let partition = services
        .replicas
        .partition(topic, PartitionIndex(wanted.partition_index))
        .map_err(|error| replica_error(&error))?;
    let needs_leader = replica_id != DEBUG_CONSUMER;
    partition
        .check_leader_epoch(LeaderEpoch::UNKNOWN, needs_leader)
        .map_err(|error| replica_error(&error))?;
    let high_watermark = partition.visible_end(Isolation::HighWatermark);
    let count = usize::try_from(wanted.max_num_offsets).unwrap_or(0);
    let (timestamp, now) = (Timestamp(wanted.timestamp), services.clock.now());
    let list = move || partition.with_log(|log| log.offsets_before(timestamp, count, now));
    let listed = match task::blocking(list).await {
        Ok(listed) => listed.map_err(|error| replica_error(&error.into()))?,
        Err(_) => return Err(ErrorCode::UnknownServerError),
    };
    let hidden = listed.iter().take_while(|offset| **offset > high_watermark).count();
    if replica_id != CONSUMER || hidden == 0 {
        return Ok(listed);
    }
    Ok([high_watermark].into_iter().chain(listed.into_iter().skip(hidden)).collect())
}

fn old_response(index: i32, listed: Result<Vec<Offset>, ErrorCode>) -> ListOffsetsPartitionResponse {
    let (code, offsets) = match listed {
        Ok(offsets) => (ErrorCode::None, offsets),
        Err(code) => (code, Vec::new()),
    };
    ListOffsetsPartitionResponse {
        partition_index: index,
        error_code: code.code(),
        old_style_offsets: offsets.into_iter().map(|offset| offset.0).collect(),
        ..ListOffsetsPartitionResponse::default()
    }
}

/// Partitions that the request names more than once.
fn repeated(partitions: &[ListOffsetsPartition]) -> HashSet<i32> {
    let mut seen = HashSet::new();
    partitions.iter().map(|wanted| wanted.partition_index).filter(|index| !seen.insert(*index)).collect()
}

async fn look_up(
    services: &Services,
    context: &RequestContext,
    topic: &str,
    wanted: &ListOffsetsPartition,
    isolation: Isolation,
    needs_leader: bool,
) -> Result<Found, ErrorCode> {
    let is_known = match wanted.timestamp {
        timestamp if timestamp >= EARLIEST => true,
        MAX_TIMESTAMP => context.version >= 7,
        EARLIEST_LOCAL => context.version >= 8,
        LATEST_TIERED => context.version >= 9,
        EARLIEST_PENDING_UPLOAD => context.version >= 11,
        _ => false,
    };
    if !is_known {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let index = PartitionIndex(wanted.partition_index);
    let partition = services.replicas.partition(topic, index).map_err(|error| replica_error(&error))?;
    let requested = LeaderEpoch(wanted.current_leader_epoch);
    let role =
        partition.check_leader_epoch(requested, needs_leader).map_err(|error| replica_error(&error))?;
    // Whatever the isolation: an old transaction that is still open unsettles nothing.
    let is_settled = isolation == Isolation::LogEnd
        || partition.visible_end(Isolation::HighWatermark) >= role.epoch_start_offset;
    // Looked at afterwards: the high watermark may reach the epoch between the two looks.
    let end = partition.visible_end(isolation);
    let unsettled =
        if context.version >= 5 { ErrorCode::OffsetNotAvailable } else { ErrorCode::LeaderNotAvailable };
    let found = match wanted.timestamp {
        LATEST if !is_settled => return Err(unsettled),
        LATEST => Found { offset: end, leader_epoch: role.leader_epoch, ..NOTHING },
        EARLIEST | EARLIEST_LOCAL => earliest(&partition),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => NOTHING,
        timestamp if timestamp >= 0 && !has_timestamps(&partition) => {
            return Err(ErrorCode::UnsupportedForMessageFormat);
        }
        MAX_TIMESTAMP => search(partition, None, end).await?,
        timestamp => search(partition, Some(Timestamp(timestamp)), end).await?,
    };
    let is_search = wanted.timestamp >= 0 || wanted.timestamp == MAX_TIMESTAMP;
    if found.offset == Offset::NONE && !is_settled && is_search {
        return Err(unsettled);
    }
    Ok(found)
}

/// Whether the topic's messages have timestamps to be found by.
fn has_timestamps(partition: &Partition) -> bool {
    partition.settings().validation.message_format > MessageFormat::V0
}

fn earliest(partition: &Partition) -> Found {
    let offset = partition.log().log_start_offset();
    let leader_epoch = partition.log().epoch_at(offset).unwrap_or(LeaderEpoch::UNKNOWN);
    Found { offset, leader_epoch, ..NOTHING }
}

/// Looks through the log for a record, on the blocking pool: indexes and batches may have to be read.
async fn search(
    partition: Arc<Partition>,
    timestamp: Option<Timestamp>,
    end: Offset,
) -> Result<Found, ErrorCode> {
    let search = move || match timestamp {
        Some(timestamp) => partition.with_log(|log| log.fetch_offset_by_timestamp(timestamp)),
        None => partition.with_log(|log| log.fetch_offset_of_max_timestamp()),
    };
    let found = match task::blocking(search).await {
        Ok(found) => found.map_err(|error| replica_error(&error.into()))?,
        Err(_) => return Err(ErrorCode::UnknownServerError),
    };
    Ok(found.filter(|found| found.offset < end).map_or(NOTHING, |found| Found {
        offset: found.offset,
        timestamp: found.timestamp,
        leader_epoch: found.leader_epoch,
    }))
}
