use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::error;

use crate::group::{GroupError, GroupService, OFFSETS_TOPIC};
use crate::log::{FlushWanted, LogError, MarkerRule, ProducerError, ProducerRules};
use crate::model::TopicPartition;
use crate::records::{
    self, AppendOrigin, RecordSetFormat, TargetCompression, TransactionMarker, ValidationRules,
    end_transaction_marker,
};
use crate::replica::{AppendOptions, ReplicaError, ReplicaManager, WatchedOffset};
use crate::runtime::Clock;
use crate::txn::{EndMarkers, MarkerError, MarkerResults};

/// How long a marker may wait for its replicas before its coordinator asks again.
const COMMIT_MAX: Duration = Duration::from_secs(30);

/// Writes the markers of transactions to this broker's own partitions.
pub(super) struct LocalMarkers {
    pub(super) replicas: Arc<ReplicaManager>,
    pub(super) groups: Arc<GroupService>,
    pub(super) clock: Clock,
}

impl LocalMarkers {
    /// What became of each end in each of its partitions.
    pub(super) async fn write_all(&self, ends: &[EndMarkers]) -> Vec<MarkerResults> {
        let appended: Vec<Vec<_>> =
            ends.iter().map(|end| end.partitions.iter().map(|to| self.append(end, to)).collect()).collect();
        let watched: Vec<WatchedOffset> =
            appended.iter().flatten().flatten().map(|appended| appended.watched.clone()).collect();
        let mut committed =
            ReplicaManager::committed(&watched, Instant::now() + COMMIT_MAX).await.into_iter();
        let mut results = Vec::with_capacity(ends.len());
        for (end, appended) in ends.iter().zip(appended) {
            let mut of_end = MarkerResults::with_capacity(appended.len());
            for (partition, appended) in end.partitions.iter().zip(appended) {
                let written = match appended {
                    Ok(appended) => appended.done(committed.next()).await,
                    Err(error) => Err(error),
                };
                of_end.push(match written {
                    Ok(()) => self.tell_groups(end, partition).await,
                    Err(error) => Err(error),
                });
            }
            results.push(of_end);
        }
        results
    }

    fn append(&self, end: &EndMarkers, to: &TopicPartition) -> Result<Appended, MarkerError> {
        let partition =
            self.replicas.partition(&to.topic, to.partition).map_err(|error| marker_error(&error))?;
        let now = self.clock.now();
        let marker = if end.is_commit { TransactionMarker::Commit } else { TransactionMarker::Abort };
        let (producer_id, epoch) = (end.producer_id, end.producer_epoch);
        let batch = end_transaction_marker(marker, producer_id, epoch, end.coordinator_epoch.0, now);
        // Limits of the topic are for clients: a marker must get in.
        let rules = ValidationRules {
            origin: AppendOrigin::Coordinator,
            format: RecordSetFormat::Batch,
            compression: TargetCompression::Producer,
            message_size_max: usize::MAX,
            ..partition.settings().validation.clone()
        };
        let appended = records::validate(batch, &rules, now).map_err(ReplicaError::from).and_then(|marker| {
            let options = AppendOptions {
                producer: ProducerRules { marker: marker_rule(end), ..AppendOrigin::Coordinator.into() },
                needs_isr: true,
                leader_epoch: None,
            };
            partition.append(marker, &options, now)
        });
        let appended = appended.map_err(|error| marker_error(&error))?;
        let flush = partition.start_flush(appended.info.flush, now);
        let (required_offset, leader_epoch) = (appended.required_offset, appended.leader_epoch);
        Ok(Appended {
            watched: WatchedOffset { partition, required_offset, leader_epoch },
            flush: flush.filter(|_| appended.info.flush == FlushWanted::Everything),
        })
    }

    /// Offsets that were stored in the transaction count from now on, or are forgotten.
    async fn tell_groups(&self, end: &EndMarkers, partition: &TopicPartition) -> Result<(), MarkerError> {
        if partition.topic.as_str() != OFFSETS_TOPIC {
            return Ok(());
        }
        let told = self.groups.end_transaction(partition.partition, end.producer_id, end.is_commit).await;
        told.map_err(|error| match error {
            // It was loaded perhaps before the marker was in the log: it has to hear of it.
            GroupError::NotCoordinator
            | GroupError::CoordinatorLoadInProgress
            | GroupError::CoordinatorNotAvailable => MarkerError::NotLeader,
            _ => MarkerError::Unexpected,
        })
    }
}

/// A marker that was written.
struct Appended {
    watched: WatchedOffset,
    /// `flush.messages` asks for this before the marker counts as written.
    flush: Option<JoinHandle<Result<(), LogError>>>,
}

impl Appended {
    /// `committed`: what became of it on the other replicas. The flush went on meanwhile.
    async fn done(self, committed: Option<Result<(), ReplicaError>>) -> Result<(), MarkerError> {
        if let Some(Err(error)) = committed {
            return Err(marker_error(&error));
        }
        match self.flush {
            None => Ok(()),
            Some(flush) => match flush.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) | Err(_) => Err(MarkerError::Storage),
            },
        }
    }
}

fn marker_rule(end: &EndMarkers) -> MarkerRule {
    match (end.version.bumps_epochs(), end.may_repeat) {
        (true, _) => MarkerRule::NewEpoch,
        (false, true) => MarkerRule::MayRepeat,
        (false, false) => MarkerRule::AnyEpoch,
    }
}

fn marker_error(error: &ReplicaError) -> MarkerError {
    match error {
        ReplicaError::UnknownTopicOrPartition => MarkerError::UnknownTopicOrPartition,
        ReplicaError::NotLeaderOrFollower
        | ReplicaError::FencedLeaderEpoch { .. }
        | ReplicaError::UnknownLeaderEpoch { .. }
        | ReplicaError::InconsistentTopicId
        | ReplicaError::OffsetOutOfRange { .. } => MarkerError::NotLeader,
        ReplicaError::NotEnoughReplicas { .. } => MarkerError::NotEnoughReplicas,
        ReplicaError::NotEnoughReplicasAfterAppend => MarkerError::NotEnoughReplicasAfterAppend,
        ReplicaError::TimedOut => MarkerError::TimedOut,
        ReplicaError::Log { source: LogError::Producer { source } } => match source {
            ProducerError::CoordinatorFenced { .. } => MarkerError::CoordinatorFenced,
            _ => MarkerError::InvalidProducerEpoch,
        },
        ReplicaError::Log { source: LogError::StaleLeaderEpoch { .. } | LogError::Closed { .. } } => {
            MarkerError::NotLeader
        }
        ReplicaError::StorageError | ReplicaError::Log { .. } => MarkerError::Storage,
        ReplicaError::Records { source } => {
            error!(error = %source, "the marker of a transaction is refused");
            MarkerError::Unexpected
        }
    }
}
