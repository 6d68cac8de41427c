//! Transactions: producers that write to several partitions, and to the offsets of a group, all or nothing.
//!
//! The coordinator of a transactional id gives its producer an epoch that fences all earlier ones, notes the
//! partitions of the open transaction, stores the decision to commit or abort, and then has every partition told
//! by a marker ([`MarkerChannel`]). Both generations of the protocol are served: the classic one, and the one in
//! which the epoch grows with each end (KIP-890). Rules and state are pure (`transaction`, `shard`); a state is
//! appended to `__transaction_state` first and counts when it is committed.

mod ends;
mod error;
#[cfg(test)]
mod history_tests;
mod ids;
mod markers;
#[cfg(test)]
mod markers_tests;
mod messages;
mod options;
mod records;
mod reference;
#[cfg(test)]
mod script_tests;
mod service;
#[cfg(test)]
mod service_tests;
mod shard;
#[cfg(test)]
mod testing;
mod transaction;

pub use error::TxnError;
pub use ids::TransactionalId;
pub use markers::{BrokerUnreachable, EndMarkers, MarkerChannel, MarkerError, MarkerResults};
pub use messages::{
    AddPartitions, EndTransaction, InitProducerId, ListTransactions, ListedTransaction, ProducerResult,
    TransactionDescription, VerifyPartitions,
};
pub use options::TxnOptions;
pub use reference::transactions_reference;
pub use service::{TRANSACTION_STATE_TOPIC, TransactionVerifier, TxnService, TxnServiceParts};
pub use transaction::{TransactionState, TransactionVersion};
