use std::io;

use snafu::Snafu;
use wire::{DecodeError, EncodeError};

/// Why a peer's answer could not be had. Whether the peer acted on the request is unknown, but for the first three.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum PeerError {
    /// Nobody knows where the broker listens.
    #[snafu(display("the broker's address is not known"))]
    NoAddress,
    #[snafu(display("connections between brokers by {protocol} are not built yet"))]
    UnsupportedProtocol { protocol: String },
    #[snafu(display("cannot connect to {host}:{port}: {source}"))]
    Connect { host: String, port: u16, source: io::Error },
    #[snafu(display("the connection was lost"))]
    Disconnected,
    #[snafu(display("no answer in time"))]
    TimedOut,
    #[snafu(display("there is another controller before it has answered"))]
    Replaced,
    #[snafu(display("cannot encode the request: {source}"))]
    Encode { source: EncodeError },
    #[snafu(display("cannot read the answer: {source}"))]
    Decode { source: DecodeError },
    /// The peer answered the request as a whole with an error.
    #[snafu(display("the broker answered {error:?}"))]
    Refused { error: RemoteError },
}

/// What another broker answers instead of what it was asked for: the codes that somebody acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteError {
    OffsetOutOfRange,
    CorruptMessage,
    UnknownTopicOrPartition,
    NotLeaderOrFollower,
    StaleControllerEpoch,
    NotController,
    InvalidRequest,
    KafkaStorageError,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    StaleBrokerEpoch,
    InvalidUpdateVersion,
    UnknownTopicId,
    InconsistentTopicId,
    FetchSessionTopicIdError,
    OperationNotAttempted,
    IneligibleReplica,
    NewLeaderElected,
    RequestTimedOut,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    UnsupportedForMessageFormat,
    InvalidProducerEpoch,
    InvalidTxnState,
    InvalidProducerIdMapping,
    ConcurrentTransactions,
    TransactionCoordinatorFenced,
    ProducerFenced,
    TransactionAbortable,
    /// Any other code.
    Other(i16),
}

impl RemoteError {
    /// `None` = no error.
    pub(super) fn of_code(code: i16) -> Option<RemoteError> {
        Some(match code {
            0 => return None,
            1 => RemoteError::OffsetOutOfRange,
            2 => RemoteError::CorruptMessage,
            3 => RemoteError::UnknownTopicOrPartition,
            6 => RemoteError::NotLeaderOrFollower,
            11 => RemoteError::StaleControllerEpoch,
            41 => RemoteError::NotController,
            42 => RemoteError::InvalidRequest,
            55 => RemoteError::OperationNotAttempted,
            56 => RemoteError::KafkaStorageError,
            70 => RemoteError::FetchSessionIdNotFound,
            71 => RemoteError::InvalidFetchSessionEpoch,
            74 => RemoteError::FencedLeaderEpoch,
            75 => RemoteError::UnknownLeaderEpoch,
            77 => RemoteError::StaleBrokerEpoch,
            95 => RemoteError::InvalidUpdateVersion,
            100 => RemoteError::UnknownTopicId,
            103 => RemoteError::InconsistentTopicId,
            106 => RemoteError::FetchSessionTopicIdError,
            107 => RemoteError::IneligibleReplica,
            108 => RemoteError::NewLeaderElected,
            7 => RemoteError::RequestTimedOut,
            14 => RemoteError::CoordinatorLoadInProgress,
            15 => RemoteError::CoordinatorNotAvailable,
            16 => RemoteError::NotCoordinator,
            19 => RemoteError::NotEnoughReplicas,
            20 => RemoteError::NotEnoughReplicasAfterAppend,
            43 => RemoteError::UnsupportedForMessageFormat,
            47 => RemoteError::InvalidProducerEpoch,
            48 => RemoteError::InvalidTxnState,
            49 => RemoteError::InvalidProducerIdMapping,
            51 => RemoteError::ConcurrentTransactions,
            52 => RemoteError::TransactionCoordinatorFenced,
            90 => RemoteError::ProducerFenced,
            120 => RemoteError::TransactionAbortable,
            other => RemoteError::Other(other),
        })
    }

    /// The error of a request as a whole.
    pub(super) fn check(code: i16) -> Result<(), PeerError> {
        match RemoteError::of_code(code) {
            None => Ok(()),
            Some(error) => Err(PeerError::Refused { error }),
        }
    }
}
