//! The groups of one partition of `__consumer_offsets`, as a coordinator's shard.

mod messages;
mod removal;
mod state;
mod step;
mod storing;

pub(super) use messages::{GroupCommand, GroupEvent, GroupReply, PendingWrite};
pub(super) use state::GroupShard;
