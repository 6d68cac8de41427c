//! Coordinators: state that lives in the partitions of an internal topic.
//!
//! A [`Shard`] is the pure state of one partition. The [`Runtime`] appends what a shard wants stored, applies it
//! when it is committed, and only then gives the replies; after a failover the next leader reads the log and
//! replays the same records. [`ShardLog`] is what lies below.

mod log;
#[cfg(test)]
pub(crate) mod memory_log;
mod placement;
mod runtime;
mod shard;
mod task;

pub use log::{Appended, ReadError, ShardLog, WriteError};
pub use placement::partition_for;
pub use runtime::{CallError, EventSink, Runtime, RuntimeParts};
pub use shard::{
    Deadline, EncodedRecord, Now, Outcome, Replayed, ReplyToken, Shard, TransactionalWriter, Write,
};
