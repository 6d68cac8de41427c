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
use crate::purgatory::{Changes, Waiter, WatchList};
use crate::replica::Partition;
use crate::runtime::task;
use crate::security::{Operation, Resource};

/// Means "up to the high watermark".
const HIGH_WATERMARK: i64 = -1;

/// What became of one partition of the request.
enum Outcome {
    /// Deleted here; followers may still have to.
    Raised {
        partition: Arc<Partition>,
        offset: Offset,
    },
    Done {
        low_watermark: Offset,
    },
    Refused {
        code: ErrorCode,
        low_watermark: Offset,
    },
}

/// Deletes in all logs first, then waits for all their followers together, as Kafka does.
pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = Instant::now() + timeout;
    let mut outcomes = Vec::new();
    for topic in &request.topics {
        for wanted in &topic.partitions {
            let index = PartitionIndex(wanted.partition_index);
            let raised = delete(services, context, &topic.name, index, wanted.offset).await;
            outcomes.push(match raised {
                Ok((partition, offset)) => Outcome::Raised { partition, offset },
                Err(code) => Outcome::Refused { code, low_watermark: Offset::NONE },
            });
        }
    }
    wait_for_followers(&mut outcomes, deadline).await;
    let mut outcomes = outcomes.into_iter();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().zip(&mut outcomes);
        let partitions =
            partitions.map(|(wanted, outcome)| result(wanted.partition_index, &outcome)).collect();
        DeleteRecordsTopicResult { name: topic.name, partitions }
    });
    DeleteRecordsResponse { topics: topics.collect(), ..Default::default() }
}

fn result(partition_index: i32, outcome: &Outcome) -> DeleteRecordsPartitionResult {
    let (code, low_watermark) = match outcome {
        Outcome::Done { low_watermark } => (ErrorCode::None, *low_watermark),
        Outcome::Refused { code, low_watermark } => (*code, *low_watermark),
        Outcome::Raised { partition, .. } => (ErrorCode::RequestTimedOut, partition.low_watermark()),
    };
    DeleteRecordsPartitionResult { partition_index, low_watermark: low_watermark.0, error_code: code.code() }
}

async fn delete(
    services: &Services,
    context: &RequestContext,
    topic: &str,
    index: PartitionIndex,
    offset: i64,
) -> Result<(Arc<Partition>, Offset), ErrorCode> {
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
    Ok((partition, offset))
}

/// Followers hear of the new start with one fetch, and tell with the next that theirs is there too.
async fn wait_for_followers(outcomes: &mut [Outcome], deadline: Instant) {
    let waiter = Waiter::new();
    let raised = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Raised { partition, .. } => {
            Some(WatchList::register(partition.watchers(), &waiter, Changes::LOG_START))
        }
        _ => None,
    });
    let _registrations: Vec<_> = raised.collect();
    loop {
        outcomes.iter_mut().for_each(look);
        let is_done = !outcomes.iter().any(|outcome| matches!(outcome, Outcome::Raised { .. }));
        if is_done || tokio::time::timeout_at(deadline, waiter.wait()).await.is_err() {
            return;
        }
    }
}

/// Whether all followers have raised their log starts, or this broker leads the partition no longer.
fn look(outcome: &mut Outcome) {
    let Outcome::Raised { partition, offset } = outcome else { return };
    let low_watermark = partition.low_watermark();
    if low_watermark >= *offset {
        *outcome = Outcome::Done { low_watermark };
    } else if let Err(error) = partition.check_leader_epoch(LeaderEpoch::UNKNOWN, true) {
        *outcome = Outcome::Refused { code: replica_error(&error), low_watermark: Offset::NONE };
    }
}

/// Rolls and renames files, so off the connection's worker.
async fn raise_log_start(partition: Arc<Partition>, offset: Offset) -> Result<Offset, ErrorCode> {
    let watchers = Arc::clone(partition.watchers());
    let raised = task::blocking(move || partition.with_log(|log| log.delete_records_before(offset)));
    match raised.await {
        Ok(Ok(low_watermark)) => {
            watchers.wake(Changes::LOG_START);
            Ok(low_watermark)
        }
        Ok(Err(error)) => Err(replica_error(&crate::replica::ReplicaError::from(error))),
        Err(_) => Err(ErrorCode::UnknownServerError),
    }
}
