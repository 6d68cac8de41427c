use snafu::Snafu;

use crate::coordinator::{CallError, WriteError};

/// Why a transaction coordinator refuses a request. The names are those of Kafka's error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Snafu)]
pub enum TxnError {
    #[snafu(display("The transactional id is empty or the request contradicts itself."))]
    InvalidRequest,
    #[snafu(display(
        "The transaction timeout is larger than the maximum value allowed by the broker (as configured by transaction.max.timeout.ms)."
    ))]
    InvalidTransactionTimeout,
    #[snafu(display(
        "The producer attempted to use a producer id which is not currently assigned to its transactional id."
    ))]
    InvalidProducerIdMapping,
    #[snafu(display(
        "There is a newer producer with the same transactionalId which fences the current one."
    ))]
    ProducerFenced,
    #[snafu(display(
        "The producer attempted to update a transaction while another concurrent operation on the same transaction was ongoing."
    ))]
    ConcurrentTransactions,
    #[snafu(display("The producer attempted a transactional operation in an invalid state."))]
    InvalidTxnState,
    /// The partition is not part of the transaction: the client may abort it and go on.
    #[snafu(display(
        "The server encountered an error with the transaction. The client can abort the transaction to continue using this transactional ID."
    ))]
    TransactionAbortable,
    /// Two-phase commits are switched off (`transaction.two.phase.commit.enable`).
    #[snafu(display("The transactional id authorization failed."))]
    TransactionalIdAuthorizationFailed,
    /// To go on with a prepared transaction is not offered, nor by Kafka 4.3.
    #[snafu(display("The version of API is not supported."))]
    UnsupportedVersion,
    #[snafu(display("The transactionalId could not be found."))]
    TransactionalIdNotFound,
    #[snafu(display("The coordinator is not available."))]
    CoordinatorNotAvailable,
    #[snafu(display("The coordinator is loading and hence can't process requests."))]
    CoordinatorLoadInProgress,
    #[snafu(display("This is not the correct coordinator."))]
    NotCoordinator,
    /// The broker that coordinates cannot be reached.
    #[snafu(display("The server disconnected before a response was received."))]
    NetworkException,
    #[snafu(display("The server experienced an unexpected error when processing the request."))]
    UnknownServerError,
}

impl TxnError {
    /// The answer to a change of state that could not be stored.
    pub(super) fn of_write(error: WriteError) -> TxnError {
        match error {
            WriteError::UnknownTopicOrPartition
            | WriteError::NotEnoughReplicas
            | WriteError::NotEnoughReplicasAfterAppend
            | WriteError::TimedOut => TxnError::CoordinatorNotAvailable,
            WriteError::NotLeader | WriteError::Storage => TxnError::NotCoordinator,
            WriteError::TooLarge | WriteError::ProducerFenced | WriteError::NotInTransaction => {
                TxnError::UnknownServerError
            }
        }
    }
}

impl From<CallError> for TxnError {
    fn from(error: CallError) -> TxnError {
        match error {
            CallError::NotHere => TxnError::NotCoordinator,
            CallError::Loading => TxnError::CoordinatorLoadInProgress,
            CallError::Stopped => TxnError::CoordinatorNotAvailable,
        }
    }
}
