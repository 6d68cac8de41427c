use snafu::Snafu;

use crate::coordinator::WriteError;

/// Why a coordinator refuses a request. The names are those of Kafka's error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Snafu)]
pub enum GroupError {
    #[snafu(display("The configured groupId is invalid."))]
    InvalidGroupId,
    /// The coordinator is stopping, the group is being removed, or too few replicas are in sync.
    #[snafu(display("The coordinator is not available."))]
    CoordinatorNotAvailable,
    #[snafu(display("The coordinator is loading and hence can't process requests."))]
    CoordinatorLoadInProgress,
    #[snafu(display("This is not the correct coordinator."))]
    NotCoordinator,
    #[snafu(display(
        "The session timeout is not within the range allowed by the broker (as configured by group.min.session.timeout.ms and group.max.session.timeout.ms)."
    ))]
    InvalidSessionTimeout,
    #[snafu(display("The coordinator is not aware of this member."))]
    UnknownMemberId,
    #[snafu(display(
        "The group member's supported protocols are incompatible with those of existing members or first group member tried to join with empty protocol type or empty protocol list."
    ))]
    InconsistentGroupProtocol,
    #[snafu(display("The group has reached its maximum size."))]
    GroupMaxSizeReached,
    #[snafu(display(
        "The group member needs to have a valid member id before actually entering a consumer group."
    ))]
    MemberIdRequired,
    #[snafu(display(
        "The broker rejected this static consumer since another consumer with the same group.instance.id has registered with a different member.id."
    ))]
    FencedInstanceId,
    #[snafu(display("Specified group generation id is not valid."))]
    IllegalGeneration,
    #[snafu(display("The group is rebalancing, so a rejoin is needed."))]
    RebalanceInProgress,
    #[snafu(display("The metadata field of the offset request was too large."))]
    OffsetMetadataTooLarge,
    #[snafu(display("The committing offset data size is not valid."))]
    InvalidCommitOffsetSize,
    /// A transaction that commits this offset is still open.
    #[snafu(display("There are unstable offsets that need to be cleared."))]
    UnstableOffsetCommit,
    #[snafu(display("The group id does not exist."))]
    GroupIdNotFound,
    #[snafu(display("The group is not empty."))]
    NonEmptyGroup,
    #[snafu(display(
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."
    ))]
    GroupSubscribedToTopic,
    /// A transaction's offsets of a producer that was fenced.
    #[snafu(display("Producer attempted to produce with an old epoch."))]
    InvalidProducerEpoch,
    /// A transaction's offsets after its end.
    #[snafu(display("The producer attempted a transactional operation in an invalid state."))]
    InvalidTxnState,
    #[snafu(display("The request timed out."))]
    RequestTimedOut,
    /// What Kafka answers where its own coordinator meets a state it does not expect.
    #[snafu(display("The server experienced an unexpected error when processing the request."))]
    UnknownServerError,
}

impl GroupError {
    /// The answer to an offset commit or deletion that could not be stored.
    pub(super) fn of_offset_write(error: WriteError) -> GroupError {
        match error {
            WriteError::UnknownTopicOrPartition
            | WriteError::NotEnoughReplicas
            | WriteError::NotEnoughReplicasAfterAppend => GroupError::CoordinatorNotAvailable,
            WriteError::NotLeader | WriteError::Storage => GroupError::NotCoordinator,
            WriteError::TooLarge => GroupError::InvalidCommitOffsetSize,
            WriteError::ProducerFenced => GroupError::InvalidProducerEpoch,
            WriteError::NotInTransaction => GroupError::InvalidTxnState,
            WriteError::TimedOut => GroupError::RequestTimedOut,
        }
    }

    /// The answer to members whose group metadata could not be stored.
    pub(super) fn of_group_write(error: WriteError) -> GroupError {
        match error {
            WriteError::UnknownTopicOrPartition
            | WriteError::NotEnoughReplicas
            | WriteError::NotEnoughReplicasAfterAppend => GroupError::CoordinatorNotAvailable,
            WriteError::NotLeader | WriteError::Storage => GroupError::NotCoordinator,
            WriteError::TooLarge | WriteError::ProducerFenced | WriteError::NotInTransaction => {
                GroupError::UnknownServerError
            }
            WriteError::TimedOut => GroupError::RebalanceInProgress,
        }
    }
}
