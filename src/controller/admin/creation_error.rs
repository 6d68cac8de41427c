use snafu::Snafu;

use crate::config::ConfigError;
use crate::controller::placement::PlacementError;
use crate::coordination::StoreError;
use crate::model::{InvalidTopicName, PartitionIndex};

/// Why a topic was not created, in the words of Kafka.
#[derive(Debug, PartialEq, Eq, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum CreateTopicError {
    /// INVALID_REQUEST
    #[snafu(display("Found multiple entries for this topic."))]
    NamedTwice,
    /// INVALID_REQUEST
    #[snafu(display("Creation of internal topic __cluster_metadata is prohibited."))]
    ProhibitedName,
    /// TOPIC_AUTHORIZATION_FAILED
    #[snafu(display("Authorization failed."))]
    NotAuthorized,
    /// TOPIC_ALREADY_EXISTS
    #[snafu(display("Topic '{topic}' already exists."))]
    TopicExists { topic: String },
    /// TOPIC_ALREADY_EXISTS
    #[snafu(display("Topic '{topic}' is marked for deletion."))]
    MarkedForDeletion { topic: String },
    /// INVALID_CONFIG
    #[snafu(display("Null value not supported for topic configs: {}", keys.join(",")))]
    NullConfig { keys: Vec<String> },
    /// INVALID_CONFIG
    #[snafu(display("{source}"), context(false))]
    InvalidConfig { source: ConfigError },
    /// INVALID_REQUEST
    #[snafu(display(
        "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same time."
    ))]
    CountsAndAssignments,
    /// INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, or UNKNOWN_SERVER_ERROR for incomplete racks
    #[snafu(display("{source}"), context(false))]
    Placement { source: PlacementError },
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display("All partitions should have the same number of replicas"))]
    UnevenReplicas,
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display("Cannot have replication factor of 0 for partition id {partition}."))]
    NoReplicas { partition: PartitionIndex },
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display("Duplicate replica assignment found: {assignment}"))]
    DuplicateReplicas { assignment: String },
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display("partitions should be a consecutive 0-based integer sequence"))]
    PartitionsNotConsecutive,
    /// INVALID_TOPIC_EXCEPTION
    #[snafu(display("{name}"))]
    InvalidName { name: InvalidTopicName },
    /// INVALID_TOPIC_EXCEPTION
    #[snafu(display("Topic '{topic}' collides with existing topics: {}", existing.join(", ")))]
    NameCollides { topic: String, existing: Vec<String> },
    /// REQUEST_TIMED_OUT, without a message: it is being created.
    #[snafu(display("the topic is created, but not led by anyone yet"))]
    TimedOut,
    /// UNKNOWN_SERVER_ERROR
    #[snafu(display("{source}"), context(false))]
    Store { source: StoreError },
}
