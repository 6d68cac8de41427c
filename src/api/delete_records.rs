//! Moves log start offsets up, so that older records are gone (KIP-107).
//!
//! Behaviour: -1 = up to the high watermark. An offset below the log start changes nothing and succeeds. Answered
//! when every live replica's log starts there, with the lowest of their starts.
//!
//! Versions: 2 flexible.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wire::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use wire::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::error_code::replica_error;
use super::{ErrorCode, RequestContext, Services};
use crate::model::{LeaderEpoch, Offset, PartitionIndex, is_internal_topic};
use crate::purgatory::{Waiter, WatchList};
use crate::replica::Partition;
use crate::runtime::task;
use crate::security::{Operation, Resource};

/// Means "up to the high watermark".
const HIGH_WATERMARK: i64 = -1;

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = Instant::now() + timeout;
    let mut response = DeleteRecordsResponse::default();
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let index = PartitionIndex(wanted.partition_index);
            let deleted = delete(services, context, &topic.name, index, wanted.offset, deadline).await;
            let (code, low_watermark) = match deleted {
                Ok(low_watermark) => (ErrorCode::None, low_watermark),
                Err(code) => (code, Offset::NONE),
            };
            partitions.push(DeleteRecordsPartitionResult {
                partition_index: index.0,
                low_watermark: low_watermark.0,
                error_code: code.code(),
            });
        }
        response.topics.push(DeleteRecordsTopicResult { name: topic.name, partitions });
    }
    response
}

async fn delete(
    services: &Services,
    context: &RequestContext,
    topic: &str,
    index: PartitionIndex,
    offset: i64,
    deadline: Instant,
) -> Result<Offset, ErrorCode> {
    if !services.authorizer.allows(context.principal(), Operation::Delete, Resource::Topic(topic)) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    if services.metadata.image().topic(topic).is_none() {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    if is_internal_topic(topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let partition = services.replicas.partition(topic, index).map_err(|error| replica_error(&error))?;
    partition.check_leader_epoch(LeaderEpoch::UNKNOWN, true).map_err(|error| replica_error(&error))?;
    if !partition.settings().log.cleanup.deletes {
        return Err(ErrorCode::PolicyViolation);
    }
    let high_watermark = partition.log().high_watermark();
    let offset = if offset == HIGH_WATERMARK { high_watermark } else { Offset(offset) };
    if offset < Offset::ZERO || offset > high_watermark {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    raise_log_start(Arc::clone(&partition), offset).await?;
    wait_for_followers(&partition, offset, deadline).await
}

/// Followers hear of the new start with one fetch, and tell with the next that theirs is there too.
async fn wait_for_followers(
    partition: &Partition,
    offset: Offset,
    deadline: Instant,
) -> Result<Offset, ErrorCode> {
    let waiter = Waiter::new();
    let _registration = WatchList::register(partition.watchers(), &waiter);
    loop {
        let low_watermark = partition.low_watermark();
        if low_watermark >= offset {
            return Ok(low_watermark);
        }
        partition.check_leader_epoch(LeaderEpoch::UNKNOWN, true).map_err(|error| replica_error(&error))?;
        if tokio::time::timeout_at(deadline, waiter.wait()).await.is_err() {
            return Err(ErrorCode::RequestTimedOut);
        }
    }
}

/// Rolls and renames files, so off the connection's worker.
async fn raise_log_start(partition: Arc<Partition>, offset: Offset) -> Result<Offset, ErrorCode> {
    let raised = task::blocking(move || partition.with_log(|log| log.delete_records_before(offset)));
    match raised.await {
        Ok(Ok(low_watermark)) => Ok(low_watermark),
        Ok(Err(error)) => Err(replica_error(&crate::replica::ReplicaError::from(error))),
        Err(_) => Err(ErrorCode::UnknownServerError),
    }
}
