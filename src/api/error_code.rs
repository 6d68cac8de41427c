//! Kafka's error codes: the one place where they are written as numbers, and the table from domain errors
//! to them. Domain rooms name facts; only here do facts become codes.

use crate::config::ConfigError;
use crate::controller::admin::{
    AlterConfigsError, CreatePartitionsError, CreateTopicError, DeleteTopicError, LeaderElectionError,
};
use crate::controller::placement::PlacementError;
use crate::controller::{AlterPartitionError, ElectionError, ReassignmentError};
use crate::group::GroupError;
use crate::log::{LogError, ProducerError};
use crate::metadata::control::{ControlOutcome, ControlRefusal};
use crate::records::{RecordsError, Refusal};
use crate::replica::{AlterLogDirError, ReplicaError};
use crate::txn::{MarkerError, TxnError};

/// What a response tells its client about the request or one item of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum ErrorCode {
    UnknownServerError = -1,
    None = 0,
    OffsetOutOfRange = 1,
    CorruptMessage = 2,
    UnknownTopicOrPartition = 3,
    InvalidFetchSize = 4,
    LeaderNotAvailable = 5,
    NotLeaderOrFollower = 6,
    RequestTimedOut = 7,
    BrokerNotAvailable = 8,
    ReplicaNotAvailable = 9,
    MessageTooLarge = 10,
    StaleControllerEpoch = 11,
    OffsetMetadataTooLarge = 12,
    NetworkException = 13,
    CoordinatorLoadInProgress = 14,
    CoordinatorNotAvailable = 15,
    NotCoordinator = 16,
    InvalidTopicException = 17,
    RecordListTooLarge = 18,
    NotEnoughReplicas = 19,
    NotEnoughReplicasAfterAppend = 20,
    InvalidRequiredAcks = 21,
    IllegalGeneration = 22,
    InconsistentGroupProtocol = 23,
    InvalidGroupId = 24,
    UnknownMemberId = 25,
    InvalidSessionTimeout = 26,
    RebalanceInProgress = 27,
    InvalidCommitOffsetSize = 28,
    TopicAuthorizationFailed = 29,
    GroupAuthorizationFailed = 30,
    ClusterAuthorizationFailed = 31,
    InvalidTimestamp = 32,
    UnsupportedSaslMechanism = 33,
    IllegalSaslState = 34,
    UnsupportedVersion = 35,
    TopicAlreadyExists = 36,
    InvalidPartitions = 37,
    InvalidReplicationFactor = 38,
    InvalidReplicaAssignment = 39,
    InvalidConfig = 40,
    NotController = 41,
    InvalidRequest = 42,
    UnsupportedForMessageFormat = 43,
    PolicyViolation = 44,
    OutOfOrderSequenceNumber = 45,
    DuplicateSequenceNumber = 46,
    InvalidProducerEpoch = 47,
    InvalidTxnState = 48,
    InvalidProducerIdMapping = 49,
    InvalidTransactionTimeout = 50,
    ConcurrentTransactions = 51,
    TransactionCoordinatorFenced = 52,
    TransactionalIdAuthorizationFailed = 53,
    SecurityDisabled = 54,
    OperationNotAttempted = 55,
    KafkaStorageError = 56,
    LogDirNotFound = 57,
    SaslAuthenticationFailed = 58,
    UnknownProducerId = 59,
    ReassignmentInProgress = 60,
    DelegationTokenAuthDisabled = 61,
    DelegationTokenNotFound = 62,
    DelegationTokenOwnerMismatch = 63,
    DelegationTokenRequestNotAllowed = 64,
    DelegationTokenAuthorizationFailed = 65,
    DelegationTokenExpired = 66,
    InvalidPrincipalType = 67,
    NonEmptyGroup = 68,
    GroupIdNotFound = 69,
    FetchSessionIdNotFound = 70,
    InvalidFetchSessionEpoch = 71,
    ListenerNotFound = 72,
    TopicDeletionDisabled = 73,
    FencedLeaderEpoch = 74,
    UnknownLeaderEpoch = 75,
    UnsupportedCompressionType = 76,
    StaleBrokerEpoch = 77,
    OffsetNotAvailable = 78,
    MemberIdRequired = 79,
    PreferredLeaderNotAvailable = 80,
    GroupMaxSizeReached = 81,
    FencedInstanceId = 82,
    EligibleLeadersNotAvailable = 83,
    ElectionNotNeeded = 84,
    NoReassignmentInProgress = 85,
    GroupSubscribedToTopic = 86,
    InvalidRecord = 87,
    UnstableOffsetCommit = 88,
    ThrottlingQuotaExceeded = 89,
    ProducerFenced = 90,
    ResourceNotFound = 91,
    DuplicateResource = 92,
    UnacceptableCredential = 93,
    InconsistentVoterSet = 94,
    InvalidUpdateVersion = 95,
    FeatureUpdateFailed = 96,
    PrincipalDeserializationFailure = 97,
    SnapshotNotFound = 98,
    PositionOutOfRange = 99,
    UnknownTopicId = 100,
    DuplicateBrokerRegistration = 101,
    BrokerIdNotRegistered = 102,
    InconsistentTopicId = 103,
    InconsistentClusterId = 104,
    TransactionalIdNotFound = 105,
    FetchSessionTopicIdError = 106,
    IneligibleReplica = 107,
    NewLeaderElected = 108,
    OffsetMovedToTieredStorage = 109,
    FencedMemberEpoch = 110,
    UnreleasedInstanceId = 111,
    UnsupportedAssignor = 112,
    StaleMemberEpoch = 113,
    MismatchedEndpointType = 114,
    UnsupportedEndpointType = 115,
    UnknownControllerId = 116,
    UnknownSubscriptionId = 117,
    TelemetryTooLarge = 118,
    InvalidRegistration = 119,
    TransactionAbortable = 120,
    InvalidRecordState = 121,
    ShareSessionNotFound = 122,
    InvalidShareSessionEpoch = 123,
    FencedStateEpoch = 124,
    InvalidVoterKey = 125,
    DuplicateVoter = 126,
    VoterNotFound = 127,
    InvalidRegularExpression = 128,
    RebootstrapRequired = 129,
    StreamsInvalidTopology = 130,
    StreamsInvalidTopologyEpoch = 131,
    StreamsTopologyFenced = 132,
    ShareSessionLimitReached = 133,
}

/// Every code with its name in Kafka, ascending.
pub const ERROR_CODES: &[(ErrorCode, &str)] = &[
    (ErrorCode::UnknownServerError, "UNKNOWN_SERVER_ERROR"),
    (ErrorCode::None, "NONE"),
    (ErrorCode::OffsetOutOfRange, "OFFSET_OUT_OF_RANGE"),
    (ErrorCode::CorruptMessage, "CORRUPT_MESSAGE"),
    (ErrorCode::UnknownTopicOrPartition, "UNKNOWN_TOPIC_OR_PARTITION"),
    (ErrorCode::InvalidFetchSize, "INVALID_FETCH_SIZE"),
    (ErrorCode::LeaderNotAvailable, "LEADER_NOT_AVAILABLE"),
    (ErrorCode::NotLeaderOrFollower, "NOT_LEADER_OR_FOLLOWER"),
    (ErrorCode::RequestTimedOut, "REQUEST_TIMED_OUT"),
    (ErrorCode::BrokerNotAvailable, "BROKER_NOT_AVAILABLE"),
    (ErrorCode::ReplicaNotAvailable, "REPLICA_NOT_AVAILABLE"),
    (ErrorCode::MessageTooLarge, "MESSAGE_TOO_LARGE"),
    (ErrorCode::StaleControllerEpoch, "STALE_CONTROLLER_EPOCH"),
    (ErrorCode::OffsetMetadataTooLarge, "OFFSET_METADATA_TOO_LARGE"),
    (ErrorCode::NetworkException, "NETWORK_EXCEPTION"),
    (ErrorCode::CoordinatorLoadInProgress, "COORDINATOR_LOAD_IN_PROGRESS"),
    (ErrorCode::CoordinatorNotAvailable, "COORDINATOR_NOT_AVAILABLE"),
    (ErrorCode::NotCoordinator, "NOT_COORDINATOR"),
    (ErrorCode::InvalidTopicException, "INVALID_TOPIC_EXCEPTION"),
    (ErrorCode::RecordListTooLarge, "RECORD_LIST_TOO_LARGE"),
    (ErrorCode::NotEnoughReplicas, "NOT_ENOUGH_REPLICAS"),
    (ErrorCode::NotEnoughReplicasAfterAppend, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    (ErrorCode::InvalidRequiredAcks, "INVALID_REQUIRED_ACKS"),
    (ErrorCode::IllegalGeneration, "ILLEGAL_GENERATION"),
    (ErrorCode::InconsistentGroupProtocol, "INCONSISTENT_GROUP_PROTOCOL"),
    (ErrorCode::InvalidGroupId, "INVALID_GROUP_ID"),
    (ErrorCode::UnknownMemberId, "UNKNOWN_MEMBER_ID"),
    (ErrorCode::InvalidSessionTimeout, "INVALID_SESSION_TIMEOUT"),
    (ErrorCode::RebalanceInProgress, "REBALANCE_IN_PROGRESS"),
    (ErrorCode::InvalidCommitOffsetSize, "INVALID_COMMIT_OFFSET_SIZE"),
    (ErrorCode::TopicAuthorizationFailed, "TOPIC_AUTHORIZATION_FAILED"),
    (ErrorCode::GroupAuthorizationFailed, "GROUP_AUTHORIZATION_FAILED"),
    (ErrorCode::ClusterAuthorizationFailed, "CLUSTER_AUTHORIZATION_FAILED"),
    (ErrorCode::InvalidTimestamp, "INVALID_TIMESTAMP"),
    (ErrorCode::UnsupportedSaslMechanism, "UNSUPPORTED_SASL_MECHANISM"),
    (ErrorCode::IllegalSaslState, "ILLEGAL_SASL_STATE"),
    (ErrorCode::UnsupportedVersion, "UNSUPPORTED_VERSION"),
    (ErrorCode::TopicAlreadyExists, "TOPIC_ALREADY_EXISTS"),
    (ErrorCode::InvalidPartitions, "INVALID_PARTITIONS"),
    (ErrorCode::InvalidReplicationFactor, "INVALID_REPLICATION_FACTOR"),
    (ErrorCode::InvalidReplicaAssignment, "INVALID_REPLICA_ASSIGNMENT"),
    (ErrorCode::InvalidConfig, "INVALID_CONFIG"),
    (ErrorCode::NotController, "NOT_CONTROLLER"),
    (ErrorCode::InvalidRequest, "INVALID_REQUEST"),
    (ErrorCode::UnsupportedForMessageFormat, "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
    (ErrorCode::PolicyViolation, "POLICY_VIOLATION"),
    (ErrorCode::OutOfOrderSequenceNumber, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    (ErrorCode::DuplicateSequenceNumber, "DUPLICATE_SEQUENCE_NUMBER"),
    (ErrorCode::InvalidProducerEpoch, "INVALID_PRODUCER_EPOCH"),
    (ErrorCode::InvalidTxnState, "INVALID_TXN_STATE"),
    (ErrorCode::InvalidProducerIdMapping, "INVALID_PRODUCER_ID_MAPPING"),
    (ErrorCode::InvalidTransactionTimeout, "INVALID_TRANSACTION_TIMEOUT"),
    (ErrorCode::ConcurrentTransactions, "CONCURRENT_TRANSACTIONS"),
    (ErrorCode::TransactionCoordinatorFenced, "TRANSACTION_COORDINATOR_FENCED"),
    (ErrorCode::TransactionalIdAuthorizationFailed, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    (ErrorCode::SecurityDisabled, "SECURITY_DISABLED"),
    (ErrorCode::OperationNotAttempted, "OPERATION_NOT_ATTEMPTED"),
    (ErrorCode::KafkaStorageError, "KAFKA_STORAGE_ERROR"),
    (ErrorCode::LogDirNotFound, "LOG_DIR_NOT_FOUND"),
    (ErrorCode::SaslAuthenticationFailed, "SASL_AUTHENTICATION_FAILED"),
    (ErrorCode::UnknownProducerId, "UNKNOWN_PRODUCER_ID"),
    (ErrorCode::ReassignmentInProgress, "REASSIGNMENT_IN_PROGRESS"),
    (ErrorCode::DelegationTokenAuthDisabled, "DELEGATION_TOKEN_AUTH_DISABLED"),
    (ErrorCode::DelegationTokenNotFound, "DELEGATION_TOKEN_NOT_FOUND"),
    (ErrorCode::DelegationTokenOwnerMismatch, "DELEGATION_TOKEN_OWNER_MISMATCH"),
    (ErrorCode::DelegationTokenRequestNotAllowed, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"),
    (ErrorCode::DelegationTokenAuthorizationFailed, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"),
    (ErrorCode::DelegationTokenExpired, "DELEGATION_TOKEN_EXPIRED"),
    (ErrorCode::InvalidPrincipalType, "INVALID_PRINCIPAL_TYPE"),
    (ErrorCode::NonEmptyGroup, "NON_EMPTY_GROUP"),
    (ErrorCode::GroupIdNotFound, "GROUP_ID_NOT_FOUND"),
    (ErrorCode::FetchSessionIdNotFound, "FETCH_SESSION_ID_NOT_FOUND"),
    (ErrorCode::InvalidFetchSessionEpoch, "INVALID_FETCH_SESSION_EPOCH"),
    (ErrorCode::ListenerNotFound, "LISTENER_NOT_FOUND"),
    (ErrorCode::TopicDeletionDisabled, "TOPIC_DELETION_DISABLED"),
    (ErrorCode::FencedLeaderEpoch, "FENCED_LEADER_EPOCH"),
    (ErrorCode::UnknownLeaderEpoch, "UNKNOWN_LEADER_EPOCH"),
    (ErrorCode::UnsupportedCompressionType, "UNSUPPORTED_COMPRESSION_TYPE"),
    (ErrorCode::StaleBrokerEpoch, "STALE_BROKER_EPOCH"),
    (ErrorCode::OffsetNotAvailable, "OFFSET_NOT_AVAILABLE"),
    (ErrorCode::MemberIdRequired, "MEMBER_ID_REQUIRED"),
    (ErrorCode::PreferredLeaderNotAvailable, "PREFERRED_LEADER_NOT_AVAILABLE"),
    (ErrorCode::GroupMaxSizeReached, "GROUP_MAX_SIZE_REACHED"),
    (ErrorCode::FencedInstanceId, "FENCED_INSTANCE_ID"),
    (ErrorCode::EligibleLeadersNotAvailable, "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
    (ErrorCode::ElectionNotNeeded, "ELECTION_NOT_NEEDED"),
    (ErrorCode::NoReassignmentInProgress, "NO_REASSIGNMENT_IN_PROGRESS"),
    (ErrorCode::GroupSubscribedToTopic, "GROUP_SUBSCRIBED_TO_TOPIC"),
    (ErrorCode::InvalidRecord, "INVALID_RECORD"),
    (ErrorCode::UnstableOffsetCommit, "UNSTABLE_OFFSET_COMMIT"),
    (ErrorCode::ThrottlingQuotaExceeded, "THROTTLING_QUOTA_EXCEEDED"),
    (ErrorCode::ProducerFenced, "PRODUCER_FENCED"),
    (ErrorCode::ResourceNotFound, "RESOURCE_NOT_FOUND"),
    (ErrorCode::DuplicateResource, "DUPLICATE_RESOURCE"),
    (ErrorCode::UnacceptableCredential, "UNACCEPTABLE_CREDENTIAL"),
    (ErrorCode::InconsistentVoterSet, "INCONSISTENT_VOTER_SET"),
    (ErrorCode::InvalidUpdateVersion, "INVALID_UPDATE_VERSION"),
    (ErrorCode::FeatureUpdateFailed, "FEATURE_UPDATE_FAILED"),
    (ErrorCode::PrincipalDeserializationFailure, "PRINCIPAL_DESERIALIZATION_FAILURE"),
    (ErrorCode::SnapshotNotFound, "SNAPSHOT_NOT_FOUND"),
    (ErrorCode::PositionOutOfRange, "POSITION_OUT_OF_RANGE"),
    (ErrorCode::UnknownTopicId, "UNKNOWN_TOPIC_ID"),
    (ErrorCode::DuplicateBrokerRegistration, "DUPLICATE_BROKER_REGISTRATION"),
    (ErrorCode::BrokerIdNotRegistered, "BROKER_ID_NOT_REGISTERED"),
    (ErrorCode::InconsistentTopicId, "INCONSISTENT_TOPIC_ID"),
    (ErrorCode::InconsistentClusterId, "INCONSISTENT_CLUSTER_ID"),
    (ErrorCode::TransactionalIdNotFound, "TRANSACTIONAL_ID_NOT_FOUND"),
    (ErrorCode::FetchSessionTopicIdError, "FETCH_SESSION_TOPIC_ID_ERROR"),
    (ErrorCode::IneligibleReplica, "INELIGIBLE_REPLICA"),
    (ErrorCode::NewLeaderElected, "NEW_LEADER_ELECTED"),
    (ErrorCode::OffsetMovedToTieredStorage, "OFFSET_MOVED_TO_TIERED_STORAGE"),
    (ErrorCode::FencedMemberEpoch, "FENCED_MEMBER_EPOCH"),
    (ErrorCode::UnreleasedInstanceId, "UNRELEASED_INSTANCE_ID"),
    (ErrorCode::UnsupportedAssignor, "UNSUPPORTED_ASSIGNOR"),
    (ErrorCode::StaleMemberEpoch, "STALE_MEMBER_EPOCH"),
    (ErrorCode::MismatchedEndpointType, "MISMATCHED_ENDPOINT_TYPE"),
    (ErrorCode::UnsupportedEndpointType, "UNSUPPORTED_ENDPOINT_TYPE"),
    (ErrorCode::UnknownControllerId, "UNKNOWN_CONTROLLER_ID"),
    (ErrorCode::UnknownSubscriptionId, "UNKNOWN_SUBSCRIPTION_ID"),
    (ErrorCode::TelemetryTooLarge, "TELEMETRY_TOO_LARGE"),
    (ErrorCode::InvalidRegistration, "INVALID_REGISTRATION"),
    (ErrorCode::TransactionAbortable, "TRANSACTION_ABORTABLE"),
    (ErrorCode::InvalidRecordState, "INVALID_RECORD_STATE"),
    (ErrorCode::ShareSessionNotFound, "SHARE_SESSION_NOT_FOUND"),
    (ErrorCode::InvalidShareSessionEpoch, "INVALID_SHARE_SESSION_EPOCH"),
    (ErrorCode::FencedStateEpoch, "FENCED_STATE_EPOCH"),
    (ErrorCode::InvalidVoterKey, "INVALID_VOTER_KEY"),
    (ErrorCode::DuplicateVoter, "DUPLICATE_VOTER"),
    (ErrorCode::VoterNotFound, "VOTER_NOT_FOUND"),
    (ErrorCode::InvalidRegularExpression, "INVALID_REGULAR_EXPRESSION"),
    (ErrorCode::RebootstrapRequired, "REBOOTSTRAP_REQUIRED"),
    (ErrorCode::StreamsInvalidTopology, "STREAMS_INVALID_TOPOLOGY"),
    (ErrorCode::StreamsInvalidTopologyEpoch, "STREAMS_INVALID_TOPOLOGY_EPOCH"),
    (ErrorCode::StreamsTopologyFenced, "STREAMS_TOPOLOGY_FENCED"),
    (ErrorCode::ShareSessionLimitReached, "SHARE_SESSION_LIMIT_REACHED"),
];

impl ErrorCode {
    pub fn code(self) -> i16 {
        self as i16
    }

    /// The name in Kafka's documentation, for logs and metrics.
    pub fn name(self) -> &'static str {
        ERROR_CODES.iter().find(|(code, _)| *code == self).map_or("UNKNOWN_SERVER_ERROR", |(_, name)| name)
    }
}

/// Answers to produce requests.
pub(super) fn produce_error(error: &ReplicaError) -> ErrorCode {
    match error {
        ReplicaError::Records { source } => records_error(source),
        ReplicaError::Log { source: LogError::Records { source } } => records_error(source),
        error => replica_error(error),
    }
}

/// Answers to fetch requests: only codes that consumers know what to do with.
pub(super) fn fetch_error(error: &ReplicaError) -> ErrorCode {
    match error {
        // What is damaged on disk cannot be mended by asking again, but consumers know no better code.
        ReplicaError::Records { .. } | ReplicaError::Log { source: LogError::Records { .. } } => {
            ErrorCode::CorruptMessage
        }
        error => replica_error(error),
    }
}

/// Answers about one partition.
pub(super) fn replica_error(error: &ReplicaError) -> ErrorCode {
    match error {
        ReplicaError::UnknownTopicOrPartition => ErrorCode::UnknownTopicOrPartition,
        ReplicaError::NotLeaderOrFollower => ErrorCode::NotLeaderOrFollower,
        ReplicaError::StorageError => ErrorCode::KafkaStorageError,
        ReplicaError::FencedLeaderEpoch { .. } => ErrorCode::FencedLeaderEpoch,
        ReplicaError::UnknownLeaderEpoch { .. } => ErrorCode::UnknownLeaderEpoch,
        ReplicaError::InconsistentTopicId => ErrorCode::InconsistentTopicId,
        ReplicaError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReplicaError::NotEnoughReplicas { .. } => ErrorCode::NotEnoughReplicas,
        ReplicaError::NotEnoughReplicasAfterAppend => ErrorCode::NotEnoughReplicasAfterAppend,
        ReplicaError::TimedOut => ErrorCode::RequestTimedOut,
        ReplicaError::Records { source } => records_error(source),
        ReplicaError::Log { source } => log_error(source),
    }
}

fn log_error(error: &LogError) -> ErrorCode {
    match error {
        LogError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        LogError::RecordListTooLarge { .. } => ErrorCode::RecordListTooLarge,
        LogError::Producer { source } => producer_error(source),
        LogError::Records { source } => records_error(source),
        LogError::OffsetsOutOfOrder { .. }
        | LogError::UnexpectedAppendOffset { .. }
        | LogError::Uncleanable { .. } => ErrorCode::UnknownServerError,
        // The leadership ended between the check and the append, or the log was deleted: look it up again.
        LogError::StaleLeaderEpoch { .. }
        | LogError::Closed { .. }
        | LogError::SegmentDeleted
        | LogError::Loading { .. } => ErrorCode::NotLeaderOrFollower,
        LogError::DiskFull { .. }
        | LogError::TooManyOpenFiles { .. }
        | LogError::Storage { .. }
        | LogError::DirectoryOffline { .. }
        | LogError::UnusableDirectory { .. }
        | LogError::Damaged { .. }
        | LogError::Failed { .. }
        | LogError::SegmentOverflow { .. }
        | LogError::Stopped
        | LogError::NoDirectory => ErrorCode::KafkaStorageError,
        LogError::InconsistentTopicId { .. } => ErrorCode::InconsistentTopicId,
        LogError::WouldBlock => ErrorCode::UnknownServerError,
    }
}

fn records_error(error: &RecordsError) -> ErrorCode {
    match error.refusal() {
        Refusal::CorruptMessage => ErrorCode::CorruptMessage,
        Refusal::InvalidRecord => ErrorCode::InvalidRecord,
        Refusal::InvalidTimestamp => ErrorCode::InvalidTimestamp,
        Refusal::MessageTooLarge => ErrorCode::MessageTooLarge,
        Refusal::RecordListTooLarge => ErrorCode::RecordListTooLarge,
        Refusal::UnsupportedCompressionType => ErrorCode::UnsupportedCompressionType,
        Refusal::UnsupportedForMessageFormat => ErrorCode::UnsupportedForMessageFormat,
    }
}

fn producer_error(error: &ProducerError) -> ErrorCode {
    match error {
        ProducerError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        ProducerError::OutOfOrderSequence { .. } | ProducerError::NewEpochNotAtZero { .. } => {
            ErrorCode::OutOfOrderSequenceNumber
        }
        ProducerError::NotTransactional { .. } | ProducerError::NotVerified { .. } => {
            ErrorCode::InvalidTxnState
        }
        ProducerError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
    }
}

/// Answers about a group.
pub(super) fn group_error(error: GroupError) -> ErrorCode {
    match error {
        GroupError::InvalidGroupId => ErrorCode::InvalidGroupId,
        GroupError::CoordinatorNotAvailable => ErrorCode::CoordinatorNotAvailable,
        GroupError::CoordinatorLoadInProgress => ErrorCode::CoordinatorLoadInProgress,
        GroupError::NotCoordinator => ErrorCode::NotCoordinator,
        GroupError::InvalidSessionTimeout => ErrorCode::InvalidSessionTimeout,
        GroupError::UnknownMemberId => ErrorCode::UnknownMemberId,
        GroupError::InconsistentGroupProtocol => ErrorCode::InconsistentGroupProtocol,
        GroupError::GroupMaxSizeReached => ErrorCode::GroupMaxSizeReached,
        GroupError::MemberIdRequired => ErrorCode::MemberIdRequired,
        GroupError::FencedInstanceId => ErrorCode::FencedInstanceId,
        GroupError::IllegalGeneration => ErrorCode::IllegalGeneration,
        GroupError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        GroupError::OffsetMetadataTooLarge => ErrorCode::OffsetMetadataTooLarge,
        GroupError::InvalidCommitOffsetSize => ErrorCode::InvalidCommitOffsetSize,
        GroupError::UnstableOffsetCommit => ErrorCode::UnstableOffsetCommit,
        GroupError::GroupIdNotFound => ErrorCode::GroupIdNotFound,
        GroupError::NonEmptyGroup => ErrorCode::NonEmptyGroup,
        GroupError::GroupSubscribedToTopic => ErrorCode::GroupSubscribedToTopic,
        GroupError::InvalidProducerEpoch => ErrorCode::InvalidProducerEpoch,
        GroupError::InvalidTxnState => ErrorCode::InvalidTxnState,
        GroupError::RequestTimedOut => ErrorCode::RequestTimedOut,
        GroupError::UnknownServerError => ErrorCode::UnknownServerError,
    }
}

/// Answers about a transaction.
pub(super) fn txn_error(error: TxnError) -> ErrorCode {
    match error {
        TxnError::InvalidRequest => ErrorCode::InvalidRequest,
        TxnError::InvalidTransactionTimeout => ErrorCode::InvalidTransactionTimeout,
        TxnError::InvalidProducerIdMapping => ErrorCode::InvalidProducerIdMapping,
        TxnError::ProducerFenced => ErrorCode::ProducerFenced,
        TxnError::ConcurrentTransactions => ErrorCode::ConcurrentTransactions,
        TxnError::InvalidTxnState => ErrorCode::InvalidTxnState,
        TxnError::TransactionAbortable => ErrorCode::TransactionAbortable,
        TxnError::TransactionalIdAuthorizationFailed => ErrorCode::TransactionalIdAuthorizationFailed,
        TxnError::UnsupportedVersion => ErrorCode::UnsupportedVersion,
        TxnError::TransactionalIdNotFound => ErrorCode::TransactionalIdNotFound,
        TxnError::CoordinatorNotAvailable => ErrorCode::CoordinatorNotAvailable,
        TxnError::CoordinatorLoadInProgress => ErrorCode::CoordinatorLoadInProgress,
        TxnError::NotCoordinator => ErrorCode::NotCoordinator,
        TxnError::NetworkException => ErrorCode::NetworkException,
        TxnError::UnknownServerError => ErrorCode::UnknownServerError,
    }
}

/// Answers about the marker of a transaction.
pub(super) fn marker_error(error: MarkerError) -> ErrorCode {
    match error {
        MarkerError::UnknownTopicOrPartition => ErrorCode::UnknownTopicOrPartition,
        MarkerError::NotLeader => ErrorCode::NotLeaderOrFollower,
        MarkerError::NotEnoughReplicas => ErrorCode::NotEnoughReplicas,
        MarkerError::NotEnoughReplicasAfterAppend => ErrorCode::NotEnoughReplicasAfterAppend,
        MarkerError::TimedOut => ErrorCode::RequestTimedOut,
        MarkerError::Storage => ErrorCode::KafkaStorageError,
        MarkerError::InvalidProducerEpoch => ErrorCode::InvalidProducerEpoch,
        MarkerError::CoordinatorFenced => ErrorCode::TransactionCoordinatorFenced,
        MarkerError::UnsupportedForMessageFormat => ErrorCode::UnsupportedForMessageFormat,
        MarkerError::Unexpected => ErrorCode::UnknownServerError,
    }
}

/// Answers about a topic that was to be created.
pub(super) fn create_topic_error(error: &CreateTopicError) -> ErrorCode {
    match error {
        CreateTopicError::NamedTwice
        | CreateTopicError::ProhibitedName
        | CreateTopicError::CountsAndAssignments => ErrorCode::InvalidRequest,
        CreateTopicError::NotAuthorized => ErrorCode::TopicAuthorizationFailed,
        CreateTopicError::TopicExists { .. } | CreateTopicError::MarkedForDeletion { .. } => {
            ErrorCode::TopicAlreadyExists
        }
        CreateTopicError::NullConfig { .. } | CreateTopicError::InvalidConfig { .. } => {
            ErrorCode::InvalidConfig
        }
        CreateTopicError::Placement { source } => placement_error(source),
        CreateTopicError::UnevenReplicas
        | CreateTopicError::NoReplicas { .. }
        | CreateTopicError::DuplicateReplicas { .. }
        | CreateTopicError::PartitionsNotConsecutive => ErrorCode::InvalidReplicaAssignment,
        CreateTopicError::InvalidName { .. } | CreateTopicError::NameCollides { .. } => {
            ErrorCode::InvalidTopicException
        }
        CreateTopicError::TimedOut => ErrorCode::RequestTimedOut,
        CreateTopicError::Store { .. } => ErrorCode::UnknownServerError,
    }
}

fn placement_error(error: &PlacementError) -> ErrorCode {
    match error {
        PlacementError::PartitionsNotPositive | PlacementError::TooManyPartitions => {
            ErrorCode::InvalidPartitions
        }
        PlacementError::ReplicationFactorNotPositive | PlacementError::ReplicationFactorTooLarge { .. } => {
            ErrorCode::InvalidReplicationFactor
        }
        PlacementError::RacksIncomplete => ErrorCode::UnknownServerError,
    }
}

/// Answers about a topic that was to be deleted.
pub(super) fn delete_topic_error(error: &DeleteTopicError) -> ErrorCode {
    match error {
        DeleteTopicError::DeletionDisabled => ErrorCode::TopicDeletionDisabled,
        DeleteTopicError::UnknownTopicId => ErrorCode::UnknownTopicId,
        DeleteTopicError::UnknownTopic => ErrorCode::UnknownTopicOrPartition,
        DeleteTopicError::NotAuthorized => ErrorCode::TopicAuthorizationFailed,
        DeleteTopicError::TimedOut => ErrorCode::RequestTimedOut,
        DeleteTopicError::Store { .. } => ErrorCode::UnknownServerError,
    }
}

/// Answers about a topic that was to get more partitions.
pub(super) fn create_partitions_error(error: &CreatePartitionsError) -> ErrorCode {
    match error {
        CreatePartitionsError::NamedTwice => ErrorCode::InvalidRequest,
        CreatePartitionsError::NotAuthorized => ErrorCode::TopicAuthorizationFailed,
        CreatePartitionsError::MarkedForDeletion => ErrorCode::InvalidTopicException,
        CreatePartitionsError::UnknownTopic { .. } => ErrorCode::UnknownTopicOrPartition,
        CreatePartitionsError::ReassignmentInProgress { .. } => ErrorCode::ReassignmentInProgress,
        CreatePartitionsError::FewerPartitions { .. } | CreatePartitionsError::SamePartitions { .. } => {
            ErrorCode::InvalidPartitions
        }
        CreatePartitionsError::UnknownBrokers { .. }
        | CreatePartitionsError::WrongCount { .. }
        | CreatePartitionsError::NoReplicas { .. }
        | CreatePartitionsError::DuplicateReplicas { .. }
        | CreatePartitionsError::UnevenReplicas { .. } => ErrorCode::InvalidReplicaAssignment,
        CreatePartitionsError::Placement { source } => placement_error(source),
        CreatePartitionsError::TimedOut => ErrorCode::RequestTimedOut,
        CreatePartitionsError::FirstPartitionMissing { .. } | CreatePartitionsError::Store { .. } => {
            ErrorCode::UnknownServerError
        }
    }
}

/// Answers about settings that were to be changed.
pub(super) fn alter_configs_error(error: &AlterConfigsError) -> ErrorCode {
    match error {
        AlterConfigsError::ResourceTwice
        | AlterConfigsError::KeyTwice
        | AlterConfigsError::NullValue { .. }
        | AlterConfigsError::UnknownOperation { .. }
        | AlterConfigsError::DefaultTopic
        | AlterConfigsError::BrokerIdNotNumeric { .. }
        | AlterConfigsError::OtherBroker { .. } => ErrorCode::InvalidRequest,
        AlterConfigsError::UnknownTopic { .. } => ErrorCode::UnknownTopicOrPartition,
        AlterConfigsError::InvalidTopicConfig { .. } => ErrorCode::InvalidConfig,
        AlterConfigsError::InvalidBrokerConfig { source }
        | AlterConfigsError::InvalidOperation { source } => broker_config_error(source),
        AlterConfigsError::KraftInCharge => ErrorCode::NotController,
        AlterConfigsError::Unreadable { .. } | AlterConfigsError::Store { .. } => {
            ErrorCode::UnknownServerError
        }
    }
}

fn broker_config_error(error: &ConfigError) -> ErrorCode {
    match error {
        ConfigError::ListOperation { .. }
        | ConfigError::UnknownKey { .. }
        | ConfigError::NoPasswordEncoder => ErrorCode::InvalidConfig,
        ConfigError::InvalidValue { .. }
        | ConfigError::UnknownTopicKey { .. }
        | ConfigError::CompactionLags { .. }
        | ConfigError::TieredStorageDisabled
        | ConfigError::TieringNeedsKraft
        | ConfigError::Inconsistent { .. }
        | ConfigError::NotDynamic { .. }
        | ConfigError::NeedsListenerPrefix { .. }
        | ConfigError::NeedsBrokerId { .. }
        | ConfigError::NotBuiltYet { .. }
        | ConfigError::Override { .. }
        | ConfigError::OverrideWithoutValue { .. }
        | ConfigError::UnicodeEscape { .. } => ErrorCode::InvalidRequest,
    }
}

/// Answers to AlterPartition about one partition. Version 1 and older do not know INELIGIBLE_REPLICA.
pub(super) fn alter_partition_error(version: i16, error: AlterPartitionError) -> ErrorCode {
    match error {
        AlterPartitionError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        AlterPartitionError::NotController => ErrorCode::NotController,
        AlterPartitionError::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
        AlterPartitionError::InvalidUpdateVersion => ErrorCode::InvalidUpdateVersion,
        AlterPartitionError::InvalidRequest => ErrorCode::InvalidRequest,
        AlterPartitionError::IneligibleReplica if version < 2 => ErrorCode::OperationNotAttempted,
        AlterPartitionError::IneligibleReplica => ErrorCode::IneligibleReplica,
        // What leaders have no other word for, they ask for again.
        AlterPartitionError::NotStored => ErrorCode::UnknownServerError,
    }
}

/// Answers to a controller's request as a whole.
pub(super) fn control_refusal(refusal: ControlRefusal) -> ErrorCode {
    match refusal {
        ControlRefusal::StaleControllerEpoch => ErrorCode::StaleControllerEpoch,
        ControlRefusal::StaleBrokerEpoch => ErrorCode::StaleBrokerEpoch,
    }
}

/// Answers to LeaderAndIsr about one partition.
pub(super) fn control_outcome(outcome: ControlOutcome) -> ErrorCode {
    match outcome {
        ControlOutcome::Done => ErrorCode::None,
        ControlOutcome::StaleLeaderEpoch => ErrorCode::StaleControllerEpoch,
        ControlOutcome::InconsistentTopicId => ErrorCode::InconsistentTopicId,
        ControlOutcome::StorageError => ErrorCode::KafkaStorageError,
        ControlOutcome::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
    }
}

/// Answers about a move between log directories.
pub(super) fn alter_log_dir_error(error: &AlterLogDirError) -> ErrorCode {
    match error {
        AlterLogDirError::NameTooLong => ErrorCode::InvalidTopicException,
        AlterLogDirError::LogDirNotFound => ErrorCode::LogDirNotFound,
        AlterLogDirError::DirectoryOffline => ErrorCode::KafkaStorageError,
        AlterLogDirError::NoReplica => ErrorCode::ReplicaNotAvailable,
        AlterLogDirError::UnknownTopicOrPartition => ErrorCode::UnknownTopicOrPartition,
        AlterLogDirError::Storage { source } => log_error(source),
    }
}

/// Answers to StopReplica about one partition.
pub(super) fn stop_outcome(outcome: ControlOutcome) -> ErrorCode {
    match outcome {
        ControlOutcome::StaleLeaderEpoch => ErrorCode::FencedLeaderEpoch,
        outcome => control_outcome(outcome),
    }
}

/// Answers about a leader that was asked for.
pub(super) fn election_error(error: &LeaderElectionError) -> ErrorCode {
    match error {
        LeaderElectionError::TimedOut => ErrorCode::RequestTimedOut,
        LeaderElectionError::Election { source } => match source {
            ElectionError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
            ElectionError::TopicIsBeingDeleted => ErrorCode::InvalidTopicException,
            ElectionError::NotNeeded => ErrorCode::ElectionNotNeeded,
            ElectionError::PreferredLeaderNotAvailable { .. } => ErrorCode::PreferredLeaderNotAvailable,
            ElectionError::EligibleLeadersNotAvailable { .. } => ErrorCode::EligibleLeadersNotAvailable,
        },
    }
}

/// Answers about partitions that are to move.
pub(super) fn reassignment_error(error: &ReassignmentError) -> ErrorCode {
    match error {
        ReassignmentError::NoReplicas
        | ReassignmentError::DuplicateReplicas { .. }
        | ReassignmentError::InvalidReplicas { .. }
        | ReassignmentError::DeadReplicas { .. }
        | ReassignmentError::WouldLoseData { .. } => ErrorCode::InvalidReplicaAssignment,
        ReassignmentError::FactorChanged { .. } => ErrorCode::InvalidReplicationFactor,
        ReassignmentError::NotInProgress => ErrorCode::NoReassignmentInProgress,
        ReassignmentError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        ReassignmentError::NotWritten => ErrorCode::UnknownServerError,
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> i16 {
        code as i16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_complete_and_ascending() {
        let codes: Vec<i16> = ERROR_CODES.iter().map(|(code, _)| code.code()).collect();
        assert_eq!(codes, (-1..=133).collect::<Vec<_>>());
    }

    #[test]
    fn names_are_kafkas() {
        assert_eq!(ErrorCode::NotLeaderOrFollower.name(), "NOT_LEADER_OR_FOLLOWER");
        assert_eq!(ErrorCode::NotLeaderOrFollower.code(), 6);
    }
}
