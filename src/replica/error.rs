use snafu::Snafu;

use crate::log::LogError;
use crate::model::{LeaderEpoch, Offset};
use crate::records::RecordsError;

/// Why a replica does not do what was asked.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum ReplicaError {
    #[snafu(display("this broker knows no such topic or partition"))]
    UnknownTopicOrPartition,
    #[snafu(display("this broker does not lead the partition"))]
    NotLeaderOrFollower,
    /// The log directory is offline.
    #[snafu(display("the partition's log directory is offline"))]
    StorageError,
    #[snafu(display("the leader epoch {requested} is older than {current}"))]
    FencedLeaderEpoch { requested: LeaderEpoch, current: LeaderEpoch },
    #[snafu(display("the leader epoch {requested} is newer than {current}"))]
    UnknownLeaderEpoch { requested: LeaderEpoch, current: LeaderEpoch },
    /// The request names the topic by an id that is not the hosted partition's.
    #[snafu(display("the topic id does not match the partition's"))]
    InconsistentTopicId,
    #[snafu(display("offset {offset} is outside of {log_start_offset} to {log_end_offset}"))]
    OffsetOutOfRange { offset: Offset, log_start_offset: Offset, log_end_offset: Offset },
    /// Fewer in-sync replicas than `min.insync.replicas`; nothing was appended.
    #[snafu(display("{isr} replicas are in sync, {min_insync_replicas} are needed"))]
    NotEnoughReplicas { isr: usize, min_insync_replicas: usize },
    /// Appended, but too few replicas stayed in sync to acknowledge it.
    #[snafu(display("appended, but too few replicas are in sync"))]
    NotEnoughReplicasAfterAppend,
    /// Appended, but not committed in time.
    #[snafu(display("appended, but not committed in time"))]
    TimedOut,
    #[snafu(display("{source}"))]
    Records { source: RecordsError },
    #[snafu(display("{source}"))]
    Log { source: LogError },
}

impl From<LogError> for ReplicaError {
    fn from(source: LogError) -> Self {
        ReplicaError::Log { source }
    }
}

impl From<RecordsError> for ReplicaError {
    fn from(source: RecordsError) -> Self {
        ReplicaError::Records { source }
    }
}
