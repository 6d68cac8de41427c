//! The rules of compaction, as Kafka 3.9's log cleaner has them. Pure.
//!
//! `choice` tells which part of a log is to be cleaned and which log is the filthiest; a [`KeyMap`] remembers
//! the last offset of each key in the dirty part; a [`Filter`] then says of each batch, from the log's start
//! on, what is left of it; `grouping` tells which segments become one. `cleaner` does all of that to files.
//!
//! Records of all formats are seen as [`StoredRecord`](crate::records::StoredRecord)s; what only v2 has (delete
//! horizons, empty batches) is asked of the batch's header.

mod choice;
mod filter;
mod grouping;
mod key_map;
mod throttle;
mod transactions;

pub use choice::{Cleanable, CleaningRules, DirtyLog, SegmentDirt};
pub use filter::{Filter, Filtered, LastRecord, Pass, Scratch, pass_batch};
pub use grouping::{GroupLimits, SegmentExtent, group_segments};
pub use key_map::{HashSecret, KeyMap, KeyMapBudget};
pub use throttle::Throttle;
pub use transactions::CleanedTransactions;
