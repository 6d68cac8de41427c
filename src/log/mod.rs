//! One partition's log: what is on disk, and what is known about it.

pub mod checkpoint;
mod epoch_cache;
mod producer_snapshot;
mod producer_state;
mod transaction_index;

pub use epoch_cache::{EpochEndOffset, EpochEntry, LeaderEpochCache};
pub use producer_snapshot::{CorruptSnapshot, decode_snapshot, encode_snapshot};
pub use producer_state::{
    Checked, CompletedTransaction, ProducerAppend, ProducerEntry, ProducerError, ProducerRules,
    ProducerState, SequencedBatch, VerificationGuard,
};
pub use transaction_index::{
    AbortedTransaction, CollectedAborts, InvalidIndexEntry, collect_aborted, decode_index,
};
