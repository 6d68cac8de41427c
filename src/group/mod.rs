//! Groups: consumers that share partitions, and the offsets they store.
//!
//! The classic protocol of Kafka: members join, the coordinator starts a generation, the leader assigns, all
//! fetch their part. Everything here is free of protocol versions and of I/O but for the service.

mod classic;
mod error;
#[cfg(test)]
mod history_tests;
mod ids;
mod members;
mod offsets;
mod options;
mod records;
mod requests;
#[cfg(test)]
mod script_tests;
mod service;
#[cfg(test)]
mod service_tests;
mod shard;
mod stored;
mod subscription;

pub use error::GroupError;
pub use ids::{GenerationId, GroupId, InstanceId, MemberId, ProtocolName};
pub use options::GroupOptions;
pub use requests::{
    CommitOffsets, CommitTransactionalOffsets, DeleteOffsets, FetchOffsets, FetchOffsetsResult,
    FetchedOffset, GroupDescription, GroupListing, GroupState, Heartbeat, JoinGroup, JoinRefused, JoinResult,
    Joined, JoinedMember, LeaveGroup, LeaveResult, LeavingMember, ListGroups, ListedGroup, MemberDescription,
    OffsetToCommit, OffsetsResult, Protocol, SyncGroup, SyncResult, Synced,
};
pub use service::{GroupService, GroupServiceParts, OFFSETS_TOPIC};
