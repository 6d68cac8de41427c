//! This broker's replicas: which partitions it leads or follows, what may be appended and read, how far each
//! is committed.
//!
//! [`ReplicaManager`] applies what controllers say ([`crate::metadata::control`]), checks leadership and epochs
//! for every append and read, moves high watermarks, and wakes who waits for them. [`FetchSessions`] remember
//! what a client fetches (KIP-227). Partition data itself is [`crate::log`]'s.

mod alter_isr;
mod conversion;
mod error;
mod fetch_plan;
mod fetch_session;
mod fetcher;
mod fetchers;
mod following;
mod hanging;
mod isr;
mod leading;
mod log_dirs;
mod manager;
mod mover;
#[cfg(test)]
mod moves_tests;
mod moving;
mod partition;
mod throttle;
mod truncation;

pub use alter_isr::{AlterIsr, IsrAnswer, IsrChannel, NoAnswer};
pub use conversion::{begin_conversion, next_converted_piece};
pub use error::ReplicaError;
pub use fetch_session::{
    FetchContext, FetchKind, FetchPartition, FetchSessionError, FetchSessionOptions, FetchSessions,
    PartitionChange, PartitionKey, Session, TopicRef,
};
pub use fetchers::{FetcherOptions, FetcherStatus, Fetchers};
pub use hanging::HangingTransaction;
pub use leading::{FollowerProgress, IsrChanges, IsrProposal};
pub use log_dirs::AlterLogDirError;
pub use manager::{LeaderAndIsrReply, ReplicaManager, ReplicationOptions, RoleChange};
pub use mover::{LogDirMover, LogDirMoverOptions};
pub use partition::{
    AppendOptions, Appended, Isolation, Partition, PartitionRead, ReadParameters, Role, TopicSettings,
    WatchedOffset,
};
pub use throttle::{Throttle, ThrottleWindows, ThrottledReplicas, Throttles};
