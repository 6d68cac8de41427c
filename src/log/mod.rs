//! Logs: the records of partitions in Kafka's files, exactly as Kafka 3.9 writes and reads them.
//!
//! [`LogDirectories`] are the folders of `log.dirs`, locked; [`LogManager`] loads, creates and deletes the
//! [`Log`]s in them and keeps their checkpoints. A [`Log`] is one partition's: append, read, truncate, flush.
//!
//! Below that: a `segment` is a file of batches with its two indexes; `marks` remember where the newest batches
//! end; `load` opens a folder, and recovers what a crash left; the `registry` knows all logs, loaded or not; `retention`, [`ProducerState`],
//! [`LeaderEpochCache`], the transaction index, the rules of `compaction` and the [`checkpoint`] texts are pure
//! values. The [`LogCleaner`] compacts logs by these rules.
//!
//! What may wait for the disk says so. Nothing here spawns or sleeps; `now` is passed in.

mod append;
mod change;
pub mod checkpoint;
mod cleaner;
mod compaction;
mod config;
mod conversion;
mod directories;
mod directory;
mod epoch_cache;
mod error;
mod flush;
mod index;
mod index_file;
mod listing;
mod load;
mod load_all;
mod manager;
mod marks;
mod moves;
mod names;
mod open_files;
mod partition_log;
mod producer_entry;
mod producer_limit;
mod producer_snapshot;
mod producer_state;
mod producers;
mod read;
mod registry;
mod retention;
mod room;
mod scan;
mod segment;
mod segment_reader;
mod sparse_indexes;
mod split;
mod survey;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod thrifty;
mod transaction_index;

pub use append::{AppendInfo, FlushWanted};
pub use cleaner::{
    CleanerOptions, CleanerStatus, Cleaning, CleaningReport, FailedPartition, LogCleaner, Step,
};
pub use compaction::{HashSecret, Throttle};
pub use config::{Cleanup, LogConfig};
pub use conversion::{Conversion, ConversionError};
pub use directories::LogDirectories;
pub use directory::LogDirectory;
pub use epoch_cache::{EpochEndOffset, EpochEntry, LeaderEpochCache};
pub use error::LogError;
pub use index_file::{offset_index_entries, time_index_entries};
pub use load_all::LoadProgress;
pub use manager::{DirectoryStatus, LoadAllOptions, LogManager};
pub use moves::Replacement;
pub use names::{DirectoryKind, FileKind, Stage, can_be_moved, classify_directory, parse_file_name};
pub use partition_log::Log;
pub use producer_entry::{LastSign, ProducerEntry, SequencedBatch};
pub use producer_snapshot::{CorruptSnapshot, decode_snapshot, encode_snapshot};
pub use producer_state::{
    Checked, CompletedTransaction, MarkerRule, OpenTransaction, ProducerAppend, ProducerError, ProducerRules,
    ProducerState, VerificationGuard,
};
pub use read::{FileSlice, LogRead};
pub use registry::FailedLog;
pub use segment::{FoundOffset, TimestampedOffset};
pub use segment_reader::{SegmentReadError, SegmentReader};
pub use sparse_indexes::{IndexFiles, SparseIndexes};
pub use survey::{Survey, SurveyError, SurveyedPartition};
pub use transaction_index::{
    AbortedTransaction, CollectedAborts, InvalidIndexEntry, collect_aborted, decode_index,
};
