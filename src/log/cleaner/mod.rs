//! Compaction of the logs on this broker: it picks logs, reads and rewrites their segments, and puts the new
//! ones in place while readers and appends go on. The rules are in `compaction`.
//!
//! A [`LogCleaner`] chooses; a [`Cleaning`] does the work for one log, a piece at a time, so that whoever
//! drives it may wait between pieces and may stop at any of them. What has been cleaned of a log is durable
//! before its checkpoint says so.

mod cleaning;
mod failures;
mod indexing;
mod output;
mod picking;
mod rewriting;
mod swap;

pub(in crate::log) use output::{CleanedSegment, Output};

pub use cleaning::{Cleaning, CleaningReport, Step};
pub use picking::{CleanerOptions, CleanerStatus, FailedPartition, LogCleaner};
