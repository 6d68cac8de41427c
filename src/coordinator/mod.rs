//! Coordinators: state that lives in the partitions of an internal topic.
//!
//! A [`Shard`] is the pure state of one partition. The runtime appends what a shard wants stored, applies it
//! when it is committed, and only then gives the replies; after a failover the next leader reads the log and
//! replays the same records. [`ShardLog`] is what lies below.

mod log;
mod placement;
mod shard;

pub use log::{Appended, ReadError, ShardLog, WriteError};
pub use placement::partition_for;
pub use shard::{Deadline, Now, Outcome, Replayed, ReplyToken, Shard, Write};
