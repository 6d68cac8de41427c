use std::io;
use std::path::PathBuf;

use snafu::Snafu;

use crate::model::{LeaderEpoch, Offset, TopicId, TopicPartition};
use crate::records::RecordsError;

use super::producer_state::ProducerError;

/// Why a log does not do what it was asked to.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum LogError {
    /// The offset to read is not in the log.
    #[snafu(display(
        "offset {offset} is outside of the log, which has offsets {log_start_offset} to {log_end_offset}"
    ))]
    OffsetOutOfRange { offset: Offset, log_start_offset: Offset, log_end_offset: Offset },

    /// The records would not fit an empty segment.
    #[snafu(display("the record set has {size_bytes} bytes, more than a segment's {size_max}"))]
    RecordListTooLarge { size_bytes: u64, size_max: u64 },

    /// The producer's sequence, epoch or transaction does not allow this batch.
    #[snafu(transparent)]
    Producer { source: ProducerError },

    /// Records that another broker sent are damaged.
    #[snafu(transparent)]
    Records { source: RecordsError },

    /// Compaction came upon a batch that it cannot read.
    #[snafu(display("the batch at offset {offset} cannot be compacted: {source}"))]
    Uncleanable { offset: Offset, source: RecordsError },

    /// What was durable cannot be read any more. Nothing of it is cut off: the replica is offline, no other one is.
    #[snafu(display("{}: damaged below the recovery point: {damage}", path.display()))]
    Damaged { path: PathBuf, damage: String },

    /// The log cannot be used since it was found damaged when it was loaded.
    #[snafu(display("the log of {topic_partition} is offline: {reason}"))]
    Failed { topic_partition: TopicPartition, reason: String },

    /// Offsets lie so far behind the base of their segment that its indexes cannot express them. Loading splits it.
    #[snafu(display("the segment from {base_offset} holds offsets that its indexes cannot express"))]
    SegmentOverflow { base_offset: Offset },

    /// The log was not read yet since the process began.
    #[snafu(display("the log of {topic_partition} is being loaded"))]
    Loading { topic_partition: TopicPartition },

    /// Records that another broker sent do not follow one another.
    #[snafu(display("offsets of the records to append are out of order at {offset}"))]
    OffsetsOutOfOrder { offset: Offset },

    /// Records that another broker sent begin before the end of this log.
    #[snafu(display(
        "records from offset {first_offset} on to append to a log that ends at {log_end_offset}"
    ))]
    UnexpectedAppendOffset { first_offset: Offset, log_end_offset: Offset },

    /// A leader must not write under an epoch older than that of the newest records.
    #[snafu(display("leader epoch {leader_epoch} is older than {latest}, under which records were written"))]
    StaleLeaderEpoch { leader_epoch: LeaderEpoch, latest: LeaderEpoch },

    /// The volume has no room. The log is unchanged, and takes records again when there is room.
    #[snafu(display("no room left while {doing} {}", path.display()))]
    DiskFull { doing: &'static str, path: PathBuf },

    /// The process has as many files open as it may. Nothing is wrong with the disk; it may work the next time.
    #[snafu(display("too many open files while {doing} {}", path.display()))]
    TooManyOpenFiles { doing: &'static str, path: PathBuf },

    /// A read or write failed: the whole log directory is offline from now on.
    #[snafu(display("{doing} {}: {source}", path.display()))]
    Storage { doing: &'static str, path: PathBuf, source: io::Error },

    /// The log directory went offline earlier.
    #[snafu(display("log directory {} is offline", path.display()))]
    DirectoryOffline { path: PathBuf },

    /// The log was deleted, or its directory renamed away.
    #[snafu(display("the log of {topic_partition} is closed"))]
    Closed { topic_partition: TopicPartition },

    /// The segment was deleted while it was being read; a second try sees what is left.
    #[snafu(display("the segment was deleted"))]
    SegmentDeleted,

    /// The directory belongs to another topic of the same name.
    #[snafu(display("{topic_partition} has topic id {found} on disk, not {expected}"))]
    InconsistentTopicId { topic_partition: TopicPartition, expected: TopicId, found: TopicId },

    /// A partition lies in two log directories, or a directory holds what is no partition.
    #[snafu(display("{}: {message}", path.display()))]
    UnusableDirectory { path: PathBuf, message: String },

    /// The index needed to answer is not in the page cache, and the caller did not want to wait for the disk.
    #[snafu(display("the disk would have to be read"))]
    WouldBlock,

    /// Recovery was told to stop.
    #[snafu(display("recovery was stopped"))]
    Stopped,

    /// No log directory is online.
    #[snafu(display("all log directories are offline"))]
    NoDirectory,
}

/// Passes over what will pass, where what cannot be written now is only a shortcut for later.
pub(super) fn unless_full(outcome: Result<(), LogError>) -> Result<(), LogError> {
    match outcome {
        Err(error) if error.will_pass() => Ok(()),
        outcome => outcome,
    }
}

impl LogError {
    /// Whether the same may work later, with nothing mended but the room on the disk or the number of open files.
    pub fn will_pass(&self) -> bool {
        matches!(self, LogError::DiskFull { .. } | LogError::TooManyOpenFiles { .. })
    }

    /// The same failure, for another request that shares it.
    pub(super) fn for_another(&self) -> LogError {
        match self {
            LogError::DiskFull { doing, path } => LogError::DiskFull { doing, path: path.clone() },
            LogError::Storage { doing, path, source } => {
                LogError::Storage { doing, path: path.clone(), source: source.kind().into() }
            }
            LogError::TooManyOpenFiles { doing, path } => {
                LogError::TooManyOpenFiles { doing, path: path.clone() }
            }
            LogError::Closed { topic_partition } => {
                LogError::Closed { topic_partition: topic_partition.clone() }
            }
            other => LogError::Storage {
                doing: "appending to",
                path: PathBuf::new(),
                source: io::Error::other(other.to_string()),
            },
        }
    }
}
