//! What clients ask a group coordinator and what it answers, free of protocol versions.

use bytes::Bytes;

use super::{GenerationId, GroupError, GroupId, InstanceId, MemberId, ProtocolName};
use crate::log::VerificationGuard;
use crate::model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp, TopicPartition};

/// One embedded protocol that a member supports, with what the member says about itself under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    pub name: ProtocolName,
    pub metadata: Bytes,
}

/// Enter a group, or take part in its next generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinGroup {
    pub group_id: GroupId,
    /// Empty = a new member.
    pub member_id: MemberId,
    pub group_instance_id: Option<InstanceId>,
    pub client_id: String,
    /// As Kafka prints an address: `/127.0.0.1`.
    pub client_host: String,
    pub session_timeout_ms: i32,
    /// Version 0 has none and means the session timeout.
    pub rebalance_timeout_ms: i32,
    pub protocol_type: ProtocolName,
    /// In the member's order of preference.
    pub protocols: Vec<Protocol>,
    /// A new dynamic member is sent back once with its id before it counts (KIP-394): version 4 and later.
    pub requires_known_member_id: bool,
    /// The client understands `skip_assignment` (version 9 and later).
    pub supports_skipping_assignment: bool,
    /// Why the client joins (KIP-800), for the log.
    pub reason: Option<String>,
}

/// A member's place in the new generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub member_id: MemberId,
    pub generation_id: GenerationId,
    pub protocol_type: Option<ProtocolName>,
    pub protocol_name: Option<ProtocolName>,
    pub leader_id: MemberId,
    /// The leader must not assign: the assignment of this generation stands.
    pub skip_assignment: bool,
    /// Filled only for the leader.
    pub members: Vec<JoinedMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    pub member_id: MemberId,
    pub group_instance_id: Option<InstanceId>,
    pub metadata: Bytes,
}

/// A refused JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRefused {
    pub error: GroupError,
    /// With MEMBER_ID_REQUIRED the id to come back with; otherwise the sender's id or empty.
    pub member_id: MemberId,
}

/// Fetch one's assignment; from the leader, also set everyone's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncGroup {
    pub group_id: GroupId,
    pub member_id: MemberId,
    pub group_instance_id: Option<InstanceId>,
    pub generation_id: GenerationId,
    /// Version 5 and later; must be the group's when given.
    pub protocol_type: Option<ProtocolName>,
    pub protocol_name: Option<ProtocolName>,
    pub assignments: Vec<(MemberId, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    pub protocol_type: Option<ProtocolName>,
    pub protocol_name: Option<ProtocolName>,
    pub assignment: Bytes,
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub group_id: GroupId,
    pub member_id: MemberId,
    pub group_instance_id: Option<InstanceId>,
    pub generation_id: GenerationId,
}

/// Members go, by their own wish or an administrator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveGroup {
    pub group_id: GroupId,
    pub members: Vec<LeavingMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeavingMember {
    /// Empty = whoever holds the instance id.
    pub member_id: MemberId,
    pub group_instance_id: Option<InstanceId>,
    pub reason: Option<String>,
}

/// Store offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitOffsets {
    pub group_id: GroupId,
    /// Empty, with generation `-1`, from a consumer that uses Kafka only to store offsets.
    pub member_id: MemberId,
    pub group_instance_id: Option<InstanceId>,
    pub generation_id: GenerationId,
    /// Versions 2 to 4 may name how long to keep the offsets; negative or `None` = the broker's retention.
    pub retention_ms: Option<i64>,
    pub offsets: Vec<OffsetToCommit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetToCommit {
    pub topic_partition: TopicPartition,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    /// Null on the wire is stored as empty.
    pub metadata: String,
    /// Version 1 may name it; `None` = now.
    pub commit_timestamp: Option<Timestamp>,
}

/// Store offsets that become visible when their transaction commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitTransactionalOffsets {
    pub group_id: GroupId,
    pub member_id: MemberId,
    pub group_instance_id: Option<InstanceId>,
    pub generation_id: GenerationId,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// Proof that the coordinator of the transaction knows of it; `None` = it is open in the group's partition.
    pub guard: Option<VerificationGuard>,
    pub offsets: Vec<OffsetToCommit>,
}

/// Read stored offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOffsets {
    pub group_id: GroupId,
    /// `None` = every partition with an offset.
    pub partitions: Option<Vec<TopicPartition>>,
    /// Answer UNSTABLE_OFFSET_COMMIT where a commit is still pending (KIP-447).
    pub require_stable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    pub topic_partition: TopicPartition,
    /// `-1` = none stored, or an error.
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub metadata: String,
    pub error: Option<GroupError>,
}

/// Remove stored offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteOffsets {
    pub group_id: GroupId,
    pub partitions: Vec<TopicPartition>,
}

/// Where a group stands. An unknown group is Dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
    Dead,
}

impl GroupState {
    /// The name that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
            GroupState::Dead => "Dead",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    pub state: GroupState,
    /// Empty for a group that only stores offsets.
    pub protocol_type: ProtocolName,
    /// Empty unless Stable.
    pub protocol: ProtocolName,
    pub members: Vec<MemberDescription>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDescription {
    pub member_id: MemberId,
    pub group_instance_id: Option<InstanceId>,
    pub client_id: String,
    pub client_host: String,
    /// Empty unless the group is Stable, as is `assignment`.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

/// Which groups to list; an empty filter matches every group. Filters ignore case.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ListGroups {
    pub states: Vec<String>,
    pub types: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    pub group_id: GroupId,
    pub protocol_type: ProtocolName,
    pub state: GroupState,
    /// The name that clients see: `classic`.
    pub group_type: &'static str,
}

/// The groups of this broker.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GroupListing {
    pub groups: Vec<ListedGroup>,
    /// COORDINATOR_LOAD_IN_PROGRESS while the list is incomplete.
    pub error: Option<GroupError>,
}

pub type JoinResult = Result<Joined, JoinRefused>;
pub type SyncResult = Result<Synced, GroupError>;
/// One result for each member of the request, in its order.
pub type LeaveResult = Result<Vec<Result<(), GroupError>>, GroupError>;
/// One result for each partition of the request, in its order.
pub type OffsetsResult = Result<Vec<Result<(), GroupError>>, GroupError>;
pub type FetchOffsetsResult = Result<Vec<FetchedOffset>, GroupError>;
