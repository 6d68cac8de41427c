use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::GroupShard;
use crate::coordinator::{Outcome, ReplyToken, WriteError};
use crate::group::classic::StaticReplacement;
use crate::group::{
    CommitOffsets, CommitTransactionalOffsets, DeleteOffsets, FetchOffsets, FetchOffsetsResult, GenerationId,
    GroupDescription, GroupError, GroupId, Heartbeat, InstanceId, JoinGroup, JoinResult, LeaveGroup,
    LeaveResult, ListedGroup, MemberId, OffsetsResult, SyncGroup, SyncResult,
};
use crate::model::{ProducerId, TopicPartition};

/// What a shard of groups is asked.
#[derive(Debug)]
pub(in crate::group) enum GroupCommand {
    /// The random bytes make the id of a new member.
    Join(JoinGroup, [u8; 16]),
    Sync(SyncGroup),
    Heartbeat(Heartbeat),
    Leave(LeaveGroup),
    CommitOffsets(CommitOffsets),
    CommitTransactionalOffsets(CommitTransactionalOffsets),
    /// A transaction's marker stands in the partition.
    EndTransaction {
        producer_id: ProducerId,
        is_commit: bool,
    },
    FetchOffsets(FetchOffsets),
    DeleteOffsets(DeleteOffsets),
    Describe(GroupId),
    List,
    Delete(GroupId),
    /// These partitions no longer exist.
    ForgetPartitions(Arc<HashSet<TopicPartition>>),
}

#[derive(Debug)]
pub(in crate::group) enum GroupReply {
    Join(JoinResult),
    Sync(SyncResult),
    Leave(LeaveResult),
    Offsets(OffsetsResult),
    FetchOffsets(FetchOffsetsResult),
    Describe(GroupDescription),
    List(Vec<ListedGroup>),
    /// To Heartbeat, Delete, EndTransaction and ForgetPartitions.
    Done(Result<(), GroupError>),
}

/// What is to be done when records are stored.
#[derive(Debug)]
pub(in crate::group) enum PendingWrite {
    Assignment {
        group_id: GroupId,
        generation_id: GenerationId,
        assignments: HashMap<MemberId, Bytes>,
    },
    EmptyGroup {
        group_id: GroupId,
    },
    StaticMember {
        group_id: GroupId,
        generation_id: GenerationId,
        replacement: StaticReplacement,
    },
    /// Offsets of a client; `answer` until it is given.
    Offsets {
        answer: Option<OffsetsAnswer>,
        producer_id: Option<ProducerId>,
    },
    /// Tombstones of offsets.
    Removal {
        answer: Option<OffsetsAnswer>,
    },
    /// The last tombstones of a group.
    GroupRemoval {
        group_id: GroupId,
        answer: Option<RemovalAnswer>,
    },
}

#[derive(Debug)]
pub(in crate::group) struct OffsetsAnswer {
    pub token: ReplyToken,
    /// What is answered if the write succeeds.
    pub results: Vec<Result<(), GroupError>>,
}

#[derive(Debug)]
pub(in crate::group) enum RemovalAnswer {
    OfGroup(ReplyToken),
    OfOffsets(OffsetsAnswer),
}

/// Something that an operator may want to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::group) enum GroupEvent {
    RebalanceStarted { group_id: GroupId, generation_id: GenerationId, reason: String },
    GenerationStarted { group_id: GroupId, generation_id: GenerationId, members: usize },
    GroupEmptied { group_id: GroupId, generation_id: GenerationId },
    MemberRemoved { group_id: GroupId, member_id: MemberId, reason: &'static str },
    StaticMemberReplaced { group_id: GroupId, instance_id: InstanceId, old_id: MemberId, new_id: MemberId },
    GroupRemoved { group_id: GroupId },
    WriteRefused { group_id: GroupId, error: WriteError },
    Loaded { groups: usize, skipped_records: u64 },
}

pub(super) fn reply_to_offsets(answer: Option<OffsetsAnswer>, out: &mut Outcome<GroupShard>) {
    if let Some(OffsetsAnswer { token, results }) = answer {
        out.reply(token, GroupReply::Offsets(Ok(results)));
    }
}

pub(super) fn reply_to_removal(answer: Option<RemovalAnswer>, out: &mut Outcome<GroupShard>) {
    match answer {
        Some(RemovalAnswer::OfGroup(token)) => out.reply(token, GroupReply::Done(Ok(()))),
        Some(RemovalAnswer::OfOffsets(answer)) => reply_to_offsets(Some(answer), out),
        None => {}
    }
}
