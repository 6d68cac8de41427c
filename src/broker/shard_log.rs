use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tracing::warn;

use crate::coordination::BoxFuture;
use crate::coordinator::{Appended, ReadError, ShardLog, WriteError};
use crate::log::{FlushWanted, LogError, ProducerError, ProducerRules, VerificationGuard};
use crate::model::{LeaderEpoch, Offset, TopicPartition};
use crate::records::{self, AppendOrigin, RecordSetFormat, Refusal, TargetCompression, ValidationRules};
use crate::replica::{AppendOptions, Partition, ReplicaError, ReplicaManager, WatchedOffset};
use crate::runtime::task;
use crate::runtime::{Clock, fs};

/// How much of a coordinator's log is read at once while it is loaded.
const READ_BYTES: usize = 1024 * 1024;
/// Longer than any broker runs, and still a moment that a clock can name.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The logs of internal topics, for coordinators: this broker's own replicas.
pub(super) struct ReplicaShardLog {
    pub(super) replicas: Arc<ReplicaManager>,
    /// For topics that keep what a producer chose: the coordinator's own choice.
    pub(super) compression: TargetCompression,
    pub(super) clock: Clock,
}

impl ShardLog for ReplicaShardLog {
    fn append(
        &self,
        topic_partition: &TopicPartition,
        leader_epoch: LeaderEpoch,
        batch: Bytes,
        guard: Option<VerificationGuard>,
    ) -> Result<Appended, WriteError> {
        let partition = self.partition(topic_partition).map_err(|error| write_error(&error))?;
        let now = self.clock.now();
        let of_topic = partition.settings().validation.clone();
        let compression = match of_topic.compression {
            TargetCompression::Producer => self.compression,
            fixed @ TargetCompression::Fixed(..) => fixed,
        };
        let rules = ValidationRules {
            origin: AppendOrigin::Coordinator,
            format: RecordSetFormat::Batch,
            compression,
            ..of_topic
        };
        let validated = records::validate(batch, &rules, now).map_err(|error| {
            if matches!(error.refusal(), Refusal::MessageTooLarge | Refusal::RecordListTooLarge) {
                return WriteError::TooLarge;
            }
            warn!(topic = %topic_partition.topic, partition = topic_partition.partition.0, %error,
                "a coordinator's batch is refused");
            WriteError::Storage
        })?;
        let options = AppendOptions {
            producer: ProducerRules { needs_verification: true, guard, ..AppendOrigin::Coordinator.into() },
            needs_isr: true,
            leader_epoch: Some(leader_epoch),
        };
        let appended = partition.append(validated, &options, now).map_err(|error| write_error(&error))?;
        let flush = partition.start_flush(appended.info.flush, now);
        let must_flush = appended.info.flush == FlushWanted::Everything;
        let required_offset = appended.required_offset;
        let committed = async move {
            if let Some(flush) = flush.filter(|_| must_flush)
                && !matches!(flush.await, Ok(Ok(())))
            {
                return Err(WriteError::Storage);
            }
            let watched = [WatchedOffset { partition, required_offset, leader_epoch }];
            // The coordinator looks after the time: what answers late may still count.
            match ReplicaManager::committed(&watched, Instant::now() + FOREVER).await.pop() {
                Some(Err(error)) => Err(write_error(&error)),
                _ => Ok(()),
            }
        };
        Ok(Appended { first_offset: appended.info.first_offset, committed: Box::pin(committed) })
    }

    fn read_all<'a>(
        &'a self,
        topic_partition: &'a TopicPartition,
        leader_epoch: LeaderEpoch,
        visit: &'a mut (dyn FnMut(Bytes) + Send),
    ) -> BoxFuture<'a, Result<(), ReadError>> {
        Box::pin(async move {
            let partition = self.partition(topic_partition).map_err(|_| ReadError::NotLeaderOfShard)?;
            let end = partition.log().log_end_offset();
            let mut from = partition.log().log_start_offset();
            while from < end {
                if !partition.role().has_led_since(leader_epoch) {
                    return Err(ReadError::NotLeaderOfShard);
                }
                let (chunk, next) = read_chunk(Arc::clone(&partition), from, end).await?;
                if next <= from {
                    break;
                }
                from = next;
                visit(chunk);
            }
            Ok(())
        })
    }
}

impl ReplicaShardLog {
    fn partition(&self, topic_partition: &TopicPartition) -> Result<Arc<Partition>, ReplicaError> {
        self.replicas.partition(&topic_partition.topic, topic_partition.partition)
    }
}

/// Whole batches from `from` on, and the offset after them.
async fn read_chunk(
    partition: Arc<Partition>,
    from: Offset,
    end: Offset,
) -> Result<(Bytes, Offset), ReadError> {
    let read = move || -> Result<(Bytes, Offset), String> {
        let found = partition
            .with_log(|log| log.read(from, READ_BYTES, end, true))
            .map_err(|error| error.to_string())?;
        let mut bytes = Vec::with_capacity(found.size_bytes);
        for slice in &found.slices {
            let start = bytes.len();
            bytes.resize(start + slice.size_bytes as usize, 0);
            let target = bytes.get_mut(start..).unwrap_or_default();
            fs::read_full_at(&*slice.file, target, slice.position).map_err(|error| error.to_string())?;
        }
        let bytes = Bytes::from(bytes);
        let last = records::batches(&bytes).filter_map(Result::ok).last();
        let next = last.map_or(from, |batch| batch.header.next_offset());
        Ok((bytes, next))
    };
    match task::blocking(read).await {
        Ok(Ok(chunk)) => Ok(chunk),
        Ok(Err(reason)) => Err(ReadError::Unreadable { reason }),
        Err(error) => Err(ReadError::Unreadable { reason: error.to_string() }),
    }
}

fn write_error(error: &ReplicaError) -> WriteError {
    match error {
        ReplicaError::UnknownTopicOrPartition => WriteError::UnknownTopicOrPartition,
        ReplicaError::NotEnoughReplicas { .. } => WriteError::NotEnoughReplicas,
        ReplicaError::NotEnoughReplicasAfterAppend => WriteError::NotEnoughReplicasAfterAppend,
        ReplicaError::TimedOut => WriteError::TimedOut,
        ReplicaError::Log { source: LogError::Producer { source } } => match source {
            ProducerError::NotVerified { .. } => WriteError::NotInTransaction,
            _ => WriteError::ProducerFenced,
        },
        ReplicaError::StorageError | ReplicaError::Log { .. } => WriteError::Storage,
        ReplicaError::NotLeaderOrFollower
        | ReplicaError::FencedLeaderEpoch { .. }
        | ReplicaError::UnknownLeaderEpoch { .. }
        | ReplicaError::InconsistentTopicId
        | ReplicaError::OffsetOutOfRange { .. } => WriteError::NotLeader,
        ReplicaError::Records { .. } => WriteError::TooLarge,
    }
}
