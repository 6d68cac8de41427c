use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::error;

use crate::group::{GroupError, GroupService, OFFSETS_TOPIC};
use crate::log::{LogError, MarkerRule, ProducerError, ProducerRules};
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
        let mut results = Vec::with_capacity(ends.len());
        let mut watched = Vec::new();
        for end in ends {
            let appended = end.partitions.iter().map(|partition| self.append(end, partition));
            let appended: Vec<Result<WatchedOffset, MarkerError>> = appended.collect();
            watched.extend(appended.iter().flatten().cloned());
            results.push(appended.into_iter().map(|result| result.map(drop)).collect::<MarkerResults>());
        }
        let mut committed =
            ReplicaManager::committed(&watched, Instant::now() + COMMIT_MAX).await.into_iter();
        for (end, results) in ends.iter().zip(&mut results) {
            for (partition, result) in end.partitions.iter().zip(results) {
                if result.is_ok() {
                    *result = match committed.next() {
                        Some(Err(error)) => Err(marker_error(&error)),
                        _ => self.tell_groups(end, partition).await,
                    };
                }
            }
        }
        results
    }

    fn append(&self, end: &EndMarkers, to: &TopicPartition) -> Result<WatchedOffset, MarkerError> {
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
        partition.start_flush(appended.info.flush, now);
        let (required_offset, leader_epoch) = (appended.required_offset, appended.leader_epoch);
        Ok(WatchedOffset { partition, required_offset, leader_epoch })
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
