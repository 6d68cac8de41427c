use bytes::Bytes;

use super::{GenerationId, GroupId, InstanceId, MemberId, ProtocolName};
use crate::model::{LeaderEpoch, Offset, Timestamp, TopicPartition};

/// One record of `__consumer_offsets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    /// `value` `None` = the offset is removed.
    Offset { group_id: GroupId, topic_partition: TopicPartition, value: Option<StoredOffset> },
    /// `value` `None` = the group is removed.
    Group { group_id: GroupId, value: Option<StoredGroup> },
}

/// An offset as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOffset {
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
    pub metadata: String,
    pub commit_timestamp: Timestamp,
    /// Set when the client named a retention: the broker's does not count.
    pub expire_timestamp: Option<Timestamp>,
}

/// A group's membership as it is stored, once per completed generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGroup {
    pub protocol_type: Option<ProtocolName>,
    pub generation_id: GenerationId,
    pub protocol_name: Option<ProtocolName>,
    pub leader_id: Option<MemberId>,
    /// When the group entered its state; `None` in records of old versions.
    pub state_timestamp: Option<Timestamp>,
    pub members: Vec<StoredMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMember {
    pub member_id: MemberId,
    pub group_instance_id: Option<InstanceId>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub subscription: Bytes,
    pub assignment: Bytes,
}
