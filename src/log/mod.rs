//! One partition's log, and all logs of the broker's folders, in Kafka's own files.
//!
//! [`Log`] appends, reads, truncates and recovers; positions are published so that readers take no lock.
//! [`LogManager`] loads, creates and deletes logs and does the periodic work of each folder of `log.dirs`. The
//! rules stand in pure files: producer state, leader epochs, checkpoints, the transaction index, retention.

mod append;
mod change;
pub mod checkpoint;
mod config;
mod directories;
mod directory;
mod epoch_cache;
mod error;
mod flush;
mod index;
mod listing;
mod load;
mod load_all;
mod manager;
mod marks;
mod names;
mod open_files;
mod partition_log;
mod producer_snapshot;
mod producer_state;
mod producers;
mod read;
mod retention;
mod scan;
mod segment;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod transaction_index;

pub use append::{AppendInfo, FlushWanted};
pub use config::{Cleanup, LogConfig};
pub use directories::LogDirectories;
pub use directory::LogDirectory;
pub use epoch_cache::{EpochEndOffset, EpochEntry, LeaderEpochCache};
pub use error::LogError;
pub use manager::{DirectoryStatus, LoadAllOptions, LogManager};
pub use partition_log::Log;
pub use producer_snapshot::{CorruptSnapshot, decode_snapshot, encode_snapshot};
pub use producer_state::{
    Checked, CompletedTransaction, ProducerAppend, ProducerEntry, ProducerError, ProducerRules,
    ProducerState, SequencedBatch, VerificationGuard,
};
pub use read::{FileSlice, LogRead};
pub use segment::{FoundOffset, TimestampedOffset};
pub use transaction_index::{
    AbortedTransaction, CollectedAborts, InvalidIndexEntry, collect_aborted, decode_index,
};
