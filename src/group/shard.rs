use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::classic::{Group, StaticReplacement, Step};
use super::stored::{GroupRecord, StoredOffset};
use super::{
    CommitOffsets, CommitTransactionalOffsets, DeleteOffsets, FetchOffsets, FetchOffsetsResult,
    FetchedOffset, GenerationId, GroupDescription, GroupError, GroupId, GroupOptions, GroupState, Heartbeat,
    InstanceId, JoinGroup, JoinRefused, JoinResult, LeaveGroup, LeaveResult, ListedGroup, MemberId,
    OffsetToCommit, OffsetsResult, ProtocolName, SyncGroup, SyncResult, records,
};
use crate::coordinator::{
    Deadline, EncodedRecord, Now, Outcome, Replayed, ReplyToken, Shard, Write, WriteError,
};
use crate::model::{Offset, ProducerEpoch, ProducerId, Timestamp, TopicPartition};

/// How many tombstones go into one write: far below any batch limit, so that a huge group can be removed.
const TOMBSTONES_PER_WRITE: usize = 1_000;

/// The groups of one partition of `__consumer_offsets`.
#[derive(Debug)]
pub(super) struct GroupShard {
    options: Arc<GroupOptions>,
    groups: HashMap<GroupId, Group>,
    /// When each group wants to be looked at. Entries that the group no longer stands by are skipped.
    queue: BinaryHeap<Reverse<(Deadline, GroupId)>>,
    next_sweep: Option<Deadline>,
    /// The groups in which a transaction of this producer has stored offsets.
    producers: HashMap<ProducerId, HashSet<GroupId>>,
    /// Ends of transactions that came before the last of their offsets was committed.
    early_ends: HashMap<ProducerId, Vec<(bool, ReplyToken)>>,
    /// Records that could not be read while the shard was loaded.
    skipped_records: u64,
}

/// What a shard of groups is asked.
#[derive(Debug)]
pub(super) enum GroupCommand {
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
pub(super) enum GroupReply {
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
pub(super) enum PendingWrite {
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
pub(super) struct OffsetsAnswer {
    token: ReplyToken,
    /// What is answered if the write succeeds.
    results: Vec<Result<(), GroupError>>,
}

#[derive(Debug)]
pub(super) enum RemovalAnswer {
    OfGroup(ReplyToken),
    OfOffsets(OffsetsAnswer),
}

/// Something that an operator may want to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupEvent {
    RebalanceStarted { group_id: GroupId, generation_id: GenerationId, reason: String },
    GenerationStarted { group_id: GroupId, generation_id: GenerationId, members: usize },
    GroupEmptied { group_id: GroupId, generation_id: GenerationId },
    MemberRemoved { group_id: GroupId, member_id: MemberId, reason: &'static str },
    StaticMemberReplaced { group_id: GroupId, instance_id: InstanceId, old_id: MemberId, new_id: MemberId },
    GroupRemoved { group_id: GroupId },
    WriteRefused { group_id: GroupId, error: WriteError },
    Loaded { groups: usize, skipped_records: u64 },
}

impl GroupShard {
    pub fn new(options: Arc<GroupOptions>) -> GroupShard {
        GroupShard {
            options,
            groups: HashMap::new(),
            queue: BinaryHeap::new(),
            next_sweep: None,
            producers: HashMap::new(),
            early_ends: HashMap::new(),
            skipped_records: 0,
        }
    }

    /// Lets a group do something and notes what follows from it. Does nothing if there is no such group.
    fn with_group<R>(
        &mut self,
        group_id: &GroupId,
        now: Now,
        out: &mut Outcome<GroupShard>,
        act: impl FnOnce(&mut Group, &mut Step<'_>) -> R,
    ) -> Option<R> {
        let group = self.groups.get_mut(group_id)?;
        let result = act(group, &mut Step { options: &self.options, now, out });
        if group.is_blank() {
            self.groups.remove(group_id);
        } else if let Some(next) = group.next_check()
            && group.queued_at.is_none_or(|queued| next < queued)
        {
            group.queued_at = Some(next);
            self.queue.push(Reverse((next, group_id.clone())));
        }
        Some(result)
    }

    fn join(
        &mut self,
        request: JoinGroup,
        random: [u8; 16],
        token: ReplyToken,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        let refuse =
            |error| GroupReply::Join(Err(JoinRefused { error, member_id: request.member_id.clone() }));
        let allowed = self.options.session_timeout_ms_min..=self.options.session_timeout_ms_max;
        if !allowed.contains(&request.session_timeout_ms) {
            return out.reply(token, refuse(GroupError::InvalidSessionTimeout));
        }
        let group_id = request.group_id.clone();
        if !self.groups.contains_key(&group_id) {
            if !request.member_id.is_empty() {
                return out.reply(token, refuse(GroupError::UnknownMemberId));
            }
            self.groups.insert(group_id.clone(), Group::new(group_id.clone(), now.timestamp));
        }
        self.with_group(&group_id, now, out, |group, step| group.join(request, random, token, step));
    }

    fn sync(&mut self, request: SyncGroup, token: ReplyToken, now: Now, out: &mut Outcome<Self>) {
        let group_id = request.group_id.clone();
        let known = self.with_group(&group_id, now, out, |group, step| group.sync(request, token, step));
        if known.is_none() {
            out.reply(token, GroupReply::Sync(Err(GroupError::UnknownMemberId)));
        }
    }

    fn heartbeat(&mut self, request: &Heartbeat, token: ReplyToken, now: Now, out: &mut Outcome<Self>) {
        let beat = |group: &mut Group, _: &mut Step<'_>| group.heartbeat(request, now);
        let result = self.with_group(&request.group_id, now, out, beat);
        out.reply(token, GroupReply::Done(result.unwrap_or(Err(GroupError::UnknownMemberId))));
    }

    fn leave(&mut self, request: LeaveGroup, token: ReplyToken, now: Now, out: &mut Outcome<Self>) {
        let group_id = request.group_id.clone();
        let unknown = vec![Err(GroupError::UnknownMemberId); request.members.len()];
        let known = self.with_group(&group_id, now, out, |group, step| group.leave(request, token, step));
        if known.is_none() {
            out.reply(token, GroupReply::Leave(Ok(unknown)));
        }
    }

    fn commit(&mut self, request: CommitOffsets, token: ReplyToken, now: Now, out: &mut Outcome<Self>) {
        if !self.groups.contains_key(&request.group_id) {
            // A generation belongs to a group that is gone; without one Kafka only stores the offsets.
            if request.generation_id.0 >= 0 {
                return out.reply(token, GroupReply::Offsets(Err(GroupError::IllegalGeneration)));
            }
            self.insert_group(&request.group_id, now);
        }
        let retention_ms = request.retention_ms.filter(|retention_ms| *retention_ms >= 0);
        let storage = OffsetStorage {
            group_id: request.group_id,
            expire_timestamp: retention_ms.map(|retention_ms| now.timestamp.plus_ms(retention_ms)),
            producer: None,
        };
        self.with_group(&storage.group_id.clone(), now, out, |group, step| {
            let instance_id = request.group_instance_id.as_ref();
            match group.accept_commit(&request.member_id, instance_id, request.generation_id, false, now) {
                Ok(()) => storage.store(group, request.offsets, token, step),
                Err(error) => step.out.reply(token, GroupReply::Offsets(Err(error))),
            }
        });
    }

    fn commit_transactional(
        &mut self,
        request: CommitTransactionalOffsets,
        token: ReplyToken,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        self.insert_group(&request.group_id, now);
        let storage = OffsetStorage {
            group_id: request.group_id,
            expire_timestamp: None,
            producer: Some((request.producer_id, request.producer_epoch)),
        };
        self.with_group(&storage.group_id.clone(), now, out, |group, step| {
            let instance_id = request.group_instance_id.as_ref();
            match group.accept_commit(&request.member_id, instance_id, request.generation_id, true, now) {
                Ok(()) => storage.store(group, request.offsets, token, step),
                Err(error) => step.out.reply(token, GroupReply::Offsets(Err(error))),
            }
        });
    }

    fn insert_group(&mut self, group_id: &GroupId, now: Now) {
        if !self.groups.contains_key(group_id) {
            self.groups.insert(group_id.clone(), Group::new(group_id.clone(), now.timestamp));
        }
    }

    fn fetch_offsets(&self, request: FetchOffsets) -> Vec<FetchedOffset> {
        match self.groups.get(&request.group_id) {
            Some(group) => group.fetch_offsets(request),
            None => request.partitions.unwrap_or_default().into_iter().map(FetchedOffset::none).collect(),
        }
    }

    fn describe(&self, group_id: &GroupId) -> GroupDescription {
        let unknown = || GroupDescription {
            state: GroupState::Dead,
            protocol_type: ProtocolName::default(),
            protocol: ProtocolName::default(),
            members: Vec::new(),
        };
        self.groups.get(group_id).map_or_else(unknown, Group::describe)
    }

    fn delete_offsets(
        &mut self,
        request: DeleteOffsets,
        token: ReplyToken,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        let removed = self.with_group(&request.group_id, now, out, |group, step| {
            let results = match group.check_offset_removal(&request.partitions) {
                Ok(results) => results,
                Err(error) => return step.out.reply(token, GroupReply::Offsets(Err(error))),
            };
            let allowed = request.partitions.iter().zip(&results).filter(|(_, result)| result.is_ok());
            let stored = allowed.map(|(partition, _)| partition).filter(|key| group.offsets.contains(key));
            let partitions: Vec<_> = stored.cloned().collect();
            if partitions.is_empty() {
                return step.out.reply(token, GroupReply::Offsets(Ok(results)));
            }
            let answer = Some(OffsetsAnswer { token, results });
            remove_offsets(group, partitions, answer, step);
        });
        if removed.is_none() {
            out.reply(token, GroupReply::Offsets(Err(GroupError::GroupIdNotFound)));
        }
    }

    fn delete_group(&mut self, group_id: &GroupId, token: ReplyToken, now: Now, out: &mut Outcome<Self>) {
        let deleted = self.with_group(group_id, now, out, |group, step| match group.state() {
            GroupState::Dead => {
                step.out.reply(token, GroupReply::Done(Err(GroupError::GroupIdNotFound)));
            }
            GroupState::Empty => {
                let partitions = group.offsets.all_partitions();
                remove_group(group, partitions, Some(RemovalAnswer::OfGroup(token)), step);
            }
            GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable => {
                step.out.reply(token, GroupReply::Done(Err(GroupError::NonEmptyGroup)));
            }
        });
        if deleted.is_none() {
            out.reply(token, GroupReply::Done(Err(GroupError::GroupIdNotFound)));
        }
    }

    fn forget_partitions(&mut self, partitions: &HashSet<TopicPartition>, now: Now, out: &mut Outcome<Self>) {
        self.for_each_group(now, out, |group, step| {
            let stored = group.offsets.all_partitions().into_iter();
            let gone: Vec<_> = stored.filter(|partition| partitions.contains(partition)).collect();
            if group.state() != GroupState::Dead && !gone.is_empty() {
                remove_offsets(group, gone, None, step);
            }
        });
    }

    /// Removes what has outlived its retention, and groups of which nothing is left.
    fn sweep(&mut self, now: Now, out: &mut Outcome<Self>) {
        self.for_each_group(now, out, |group, step| {
            if group.state() == GroupState::Dead {
                return;
            }
            let expired = group.expired_offsets(now.timestamp, step.options);
            if !expired.is_empty() || (group.is_idle() && group.offsets.is_empty()) {
                remove_offsets(group, expired, None, step);
            }
        });
    }

    fn for_each_group(
        &mut self,
        now: Now,
        out: &mut Outcome<Self>,
        mut act: impl FnMut(&mut Group, &mut Step<'_>),
    ) {
        let mut group_ids: Vec<GroupId> = self.groups.keys().cloned().collect();
        // So that a history repeats byte for byte.
        group_ids.sort_unstable();
        for group_id in group_ids {
            self.with_group(&group_id, now, out, &mut act);
        }
    }

    /// The offsets of a transaction count, or are forgotten. Waits for those that are still on their way.
    fn end_transaction(
        &mut self,
        producer_id: ProducerId,
        is_commit: bool,
        token: ReplyToken,
        out: &mut Outcome<Self>,
    ) {
        if self.has_transaction_in_flight(producer_id) {
            self.early_ends.entry(producer_id).or_default().push((is_commit, token));
            return;
        }
        self.apply_transaction_end(producer_id, is_commit);
        out.reply(token, GroupReply::Done(Ok(())));
    }

    fn has_transaction_in_flight(&self, producer_id: ProducerId) -> bool {
        self.groups.values().any(|group| group.offsets.has_transaction_in_flight(producer_id))
    }

    fn apply_transaction_end(&mut self, producer_id: ProducerId, is_commit: bool) {
        for group_id in self.producers.remove(&producer_id).unwrap_or_default() {
            if let Some(group) = self.groups.get_mut(&group_id) {
                group.offsets.end_transaction(producer_id, is_commit);
            }
        }
    }

    fn finish_early_ends(&mut self, producer_id: Option<ProducerId>, out: &mut Outcome<Self>) {
        let Some(producer_id) = producer_id else { return };
        if self.early_ends.contains_key(&producer_id) && !self.has_transaction_in_flight(producer_id) {
            for (is_commit, token) in self.early_ends.remove(&producer_id).unwrap_or_default() {
                self.apply_transaction_end(producer_id, is_commit);
                out.reply(token, GroupReply::Done(Ok(())));
            }
        }
    }

    /// Takes in records of offsets that are committed in the log; the first has this offset.
    fn apply_offsets(
        &mut self,
        records: Vec<GroupRecord>,
        first_offset: Offset,
        producer_id: Option<ProducerId>,
    ) {
        for (at, record) in (0..).zip(records) {
            if let GroupRecord::Offset { group_id, topic_partition, value } = record {
                self.end_write(&group_id, &topic_partition, producer_id, value.is_some());
                self.apply_offset(group_id, topic_partition, value, first_offset.plus(at), producer_id);
            }
        }
    }

    /// Tombstones are not counted: they make no offset unstable.
    fn end_write(
        &mut self,
        group_id: &GroupId,
        topic_partition: &TopicPartition,
        producer_id: Option<ProducerId>,
        is_counted: bool,
    ) {
        if is_counted && let Some(group) = self.groups.get_mut(group_id) {
            group.offsets.end(topic_partition, producer_id);
        }
    }

    fn apply_offset(
        &mut self,
        group_id: GroupId,
        topic_partition: TopicPartition,
        value: Option<StoredOffset>,
        at: Offset,
        producer_id: Option<ProducerId>,
    ) {
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        group.offsets.apply(topic_partition, value, at, producer_id);
        if let Some(producer_id) = producer_id {
            self.producers.entry(producer_id).or_default().insert(group_id);
        }
    }

    fn group_removed(&mut self, group_id: &GroupId, out: &mut Outcome<Self>) {
        if self.groups.get(group_id).is_some_and(|group| group.state() == GroupState::Dead) {
            self.groups.remove(group_id);
            out.events.push(GroupEvent::GroupRemoved { group_id: group_id.clone() });
        }
    }
}

/// How offsets of one request are stored.
struct OffsetStorage {
    group_id: GroupId,
    expire_timestamp: Option<Timestamp>,
    producer: Option<(ProducerId, ProducerEpoch)>,
}

impl OffsetStorage {
    fn store(self, group: &mut Group, offsets: Vec<OffsetToCommit>, token: ReplyToken, step: &mut Step<'_>) {
        let producer_id = self.producer.map(|(producer_id, _)| producer_id);
        let mut results = Vec::with_capacity(offsets.len());
        let mut records = Vec::with_capacity(offsets.len());
        for offset in offsets {
            if is_longer_than(&offset.metadata, step.options.offset_metadata_size_max) {
                results.push(Err(GroupError::OffsetMetadataTooLarge));
                continue;
            }
            group.offsets.begin(&offset.topic_partition, producer_id);
            records.push(self.to_record(offset, step.now));
            results.push(Ok(()));
        }
        if records.is_empty() {
            return step.out.reply(token, GroupReply::Offsets(Ok(results)));
        }
        let answer = Some(OffsetsAnswer { token, results });
        let pending = PendingWrite::Offsets { answer, producer_id };
        step.out.writes.push(Write { records, pending, producer: self.producer });
    }

    fn to_record(&self, offset: OffsetToCommit, now: Now) -> GroupRecord {
        let value = StoredOffset {
            offset: offset.offset,
            leader_epoch: offset.leader_epoch,
            metadata: offset.metadata,
            commit_timestamp: offset.commit_timestamp.unwrap_or(now.timestamp),
            expire_timestamp: self.expire_timestamp,
        };
        GroupRecord::Offset {
            group_id: self.group_id.clone(),
            topic_partition: offset.topic_partition,
            value: Some(value),
        }
    }
}

/// Kafka counts UTF-16 units, of which a text never has more than bytes.
fn is_longer_than(metadata: &str, max: usize) -> bool {
    metadata.len() > max && metadata.encode_utf16().count() > max
}

/// Writes tombstones for these offsets, and for the whole group if nothing of it would be left.
fn remove_offsets(
    group: &mut Group,
    partitions: Vec<TopicPartition>,
    answer: Option<OffsetsAnswer>,
    step: &mut Step<'_>,
) {
    if group.is_idle() && group.offsets.are_all(&partitions) {
        return remove_group(group, partitions, answer.map(RemovalAnswer::OfOffsets), step);
    }
    let mut tombstones = tombstones(group, partitions);
    let last = tombstones.split_off(tombstones.len() - tombstones.len().min(TOMBSTONES_PER_WRITE));
    write_in_parts(tombstones, step);
    step.out.write(last, PendingWrite::Removal { answer });
}

/// Writes the tombstones of a group. The group refuses requests until they are committed.
fn remove_group(
    group: &mut Group,
    partitions: Vec<TopicPartition>,
    answer: Option<RemovalAnswer>,
    step: &mut Step<'_>,
) {
    let mut tombstones = tombstones(group, partitions);
    // A group that never had a generation has no record of its own.
    if group.generation_id().0 > 0 {
        tombstones.push(GroupRecord::Group { group_id: group.id.clone(), value: None });
    }
    if tombstones.is_empty() {
        // The log knows nothing of the group.
        group.forget_membership(step.now.timestamp);
        return reply_to_removal(answer, step.out);
    }
    let last = tombstones.split_off(tombstones.len() - tombstones.len().min(TOMBSTONES_PER_WRITE));
    group.bury(step.now.timestamp);
    write_in_parts(tombstones, step);
    step.out.write(last, PendingWrite::GroupRemoval { group_id: group.id.clone(), answer });
}

/// In the order of the partitions, so that a history repeats byte for byte.
fn tombstones(group: &Group, mut partitions: Vec<TopicPartition>) -> Vec<GroupRecord> {
    partitions.sort_unstable();
    let tombstone =
        |topic_partition| GroupRecord::Offset { group_id: group.id.clone(), topic_partition, value: None };
    partitions.into_iter().map(tombstone).collect()
}

fn write_in_parts(mut tombstones: Vec<GroupRecord>, step: &mut Step<'_>) {
    while !tombstones.is_empty() {
        let rest = tombstones.split_off(tombstones.len().min(TOMBSTONES_PER_WRITE));
        step.out.write(tombstones, PendingWrite::Removal { answer: None });
        tombstones = rest;
    }
}

impl Shard for GroupShard {
    type Command = GroupCommand;
    type Reply = GroupReply;
    type Record = GroupRecord;
    type Pending = PendingWrite;
    type Event = GroupEvent;

    fn handle(&mut self, command: GroupCommand, token: ReplyToken, now: Now) -> Outcome<Self> {
        let mut out = Outcome::new();
        match command {
            GroupCommand::Join(request, random) => self.join(request, random, token, now, &mut out),
            GroupCommand::Sync(request) => self.sync(request, token, now, &mut out),
            GroupCommand::Heartbeat(request) => self.heartbeat(&request, token, now, &mut out),
            GroupCommand::Leave(request) => self.leave(request, token, now, &mut out),
            GroupCommand::CommitOffsets(request) => self.commit(request, token, now, &mut out),
            GroupCommand::CommitTransactionalOffsets(request) => {
                self.commit_transactional(request, token, now, &mut out);
            }
            GroupCommand::EndTransaction { producer_id, is_commit } => {
                self.end_transaction(producer_id, is_commit, token, &mut out);
            }
            GroupCommand::FetchOffsets(request) => {
                out.reply(token, GroupReply::FetchOffsets(Ok(self.fetch_offsets(request))));
            }
            GroupCommand::DeleteOffsets(request) => self.delete_offsets(request, token, now, &mut out),
            GroupCommand::Describe(group_id) => {
                out.reply(token, GroupReply::Describe(self.describe(&group_id)));
            }
            GroupCommand::List => {
                out.reply(token, GroupReply::List(self.groups.values().map(Group::overview).collect()));
            }
            GroupCommand::Delete(group_id) => self.delete_group(&group_id, token, now, &mut out),
            GroupCommand::ForgetPartitions(partitions) => {
                self.forget_partitions(&partitions, now, &mut out);
                out.reply(token, GroupReply::Done(Ok(())));
            }
        }
        out
    }

    fn tick(&mut self, now: Now) -> Outcome<Self> {
        let mut out = Outcome::new();
        for (deadline, group_id) in self.due_groups(now.monotonic) {
            // A group that found an earlier moment since then has another entry.
            let Some(group) = self.groups.get_mut(&group_id) else { continue };
            if group.queued_at == Some(deadline) {
                group.queued_at = None;
                self.with_group(&group_id, now, &mut out, |group, step| group.tick(step));
            }
        }
        if self.next_sweep.is_some_and(|next| next <= now.monotonic) {
            self.sweep(now, &mut out);
            self.next_sweep = Some(now.plus_ms(self.options.offsets_retention_check_interval_ms));
        }
        out
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let group = self.queue.peek().map(|Reverse((deadline, _))| *deadline);
        group.into_iter().chain(self.next_sweep).min()
    }

    fn committed(
        &mut self,
        records: Vec<GroupRecord>,
        pending: PendingWrite,
        first_offset: Offset,
        now: Now,
    ) -> Outcome<Self> {
        let mut out = Outcome::new();
        match pending {
            PendingWrite::Assignment { group_id, generation_id, assignments } => {
                self.with_group(&group_id, now, &mut out, |group, step| {
                    group.assignment_stored(generation_id, assignments, step);
                });
            }
            PendingWrite::EmptyGroup { .. } => {}
            PendingWrite::StaticMember { group_id, generation_id, replacement } => {
                self.with_group(&group_id, now, &mut out, |group, step| {
                    if group.generation_id() == generation_id {
                        group.replacement_stored(replacement, step);
                    }
                });
            }
            PendingWrite::Offsets { answer, producer_id } => {
                self.apply_offsets(records, first_offset, producer_id);
                reply_to_offsets(answer, &mut out);
                self.finish_early_ends(producer_id, &mut out);
            }
            PendingWrite::Removal { answer } => {
                self.apply_offsets(records, first_offset, None);
                reply_to_offsets(answer, &mut out);
            }
            PendingWrite::GroupRemoval { group_id, answer } => {
                self.apply_offsets(records, first_offset, None);
                self.group_removed(&group_id, &mut out);
                reply_to_removal(answer, &mut out);
            }
        }
        out
    }

    fn refused(&mut self, pending: &mut PendingWrite, error: WriteError, now: Now) -> Outcome<Self> {
        let mut out = Outcome::new();
        match pending {
            PendingWrite::Assignment { group_id, generation_id, .. } => {
                self.with_group(group_id, now, &mut out, |group, step| {
                    group.assignment_refused(*generation_id, error, step);
                });
                out.events.push(GroupEvent::WriteRefused { group_id: group_id.clone(), error });
            }
            PendingWrite::EmptyGroup { group_id } => {
                out.events.push(GroupEvent::WriteRefused { group_id: group_id.clone(), error });
            }
            PendingWrite::StaticMember { group_id, replacement, .. } => {
                self.with_group(group_id, now, &mut out, |group, step| {
                    group.replacement_refused(replacement, error, step);
                });
                out.events.push(GroupEvent::WriteRefused { group_id: group_id.clone(), error });
            }
            PendingWrite::Offsets { answer, .. } => {
                if let Some(OffsetsAnswer { token, results }) = answer.take() {
                    let refused = GroupError::of_offset_write(error);
                    let results = results.into_iter().map(|result| result.and(Err(refused))).collect();
                    out.reply(token, GroupReply::Offsets(Ok(results)));
                }
            }
            PendingWrite::Removal { answer } => {
                if let Some(answer) = answer.take() {
                    let refused = GroupError::of_offset_write(error);
                    out.reply(answer.token, GroupReply::Offsets(Err(refused)));
                }
            }
            PendingWrite::GroupRemoval { group_id, answer } => {
                let refused = GroupError::of_offset_write(error);
                match answer.take() {
                    Some(RemovalAnswer::OfGroup(token)) => out.reply(token, GroupReply::Done(Err(refused))),
                    Some(RemovalAnswer::OfOffsets(answer)) => {
                        out.reply(answer.token, GroupReply::Offsets(Err(refused)));
                    }
                    None => out.events.push(GroupEvent::WriteRefused { group_id: group_id.clone(), error }),
                }
            }
        }
        out
    }

    fn discarded(&mut self, records: Vec<GroupRecord>, pending: PendingWrite, now: Now) -> Outcome<Self> {
        let mut out = Outcome::new();
        match pending {
            PendingWrite::Offsets { producer_id, .. } => {
                for record in &records {
                    if let GroupRecord::Offset { group_id, topic_partition, .. } = record {
                        self.end_write(group_id, topic_partition, producer_id, true);
                    }
                }
                self.finish_early_ends(producer_id, &mut out);
            }
            PendingWrite::GroupRemoval { group_id, .. } => {
                self.with_group(&group_id, now, &mut out, |group, _| group.exhume(now.timestamp));
            }
            PendingWrite::Assignment { .. }
            | PendingWrite::EmptyGroup { .. }
            | PendingWrite::StaticMember { .. }
            | PendingWrite::Removal { .. } => {}
        }
        out
    }

    fn replay(&mut self, replayed: Replayed) {
        let record = match records::decode(replayed.key.as_ref(), replayed.value.as_ref()) {
            records::Decoded::Record(record) => record,
            records::Decoded::UnknownType(_) | records::Decoded::Damaged => {
                self.skipped_records += 1;
                return;
            }
        };
        match record {
            GroupRecord::Offset { group_id, topic_partition, value } => {
                if value.is_some() {
                    self.replayed_group(&group_id, replayed.timestamp);
                }
                self.apply_offset(group_id, topic_partition, value, replayed.offset, replayed.producer_id);
            }
            GroupRecord::Group { group_id, value: Some(stored) } => {
                self.replayed_group(&group_id, replayed.timestamp).restore(stored);
            }
            GroupRecord::Group { group_id, value: None } => {
                if let Some(group) = self.groups.get_mut(&group_id) {
                    group.forget_membership(replayed.timestamp);
                }
            }
        }
    }

    fn replay_transaction_end(&mut self, producer_id: ProducerId, is_commit: bool) {
        self.apply_transaction_end(producer_id, is_commit);
    }

    fn loaded(&mut self, now: Now) -> Outcome<Self> {
        let mut out = Outcome::new();
        self.for_each_group(now, &mut out, |group, step| group.loaded(step));
        self.next_sweep = Some(now.plus_ms(self.options.offsets_retention_check_interval_ms));
        let skipped_records = self.skipped_records;
        out.events.push(GroupEvent::Loaded { groups: self.groups.len(), skipped_records });
        out
    }

    fn encode(record: &GroupRecord) -> Option<EncodedRecord> {
        records::encode(record)
    }
}

impl GroupShard {
    fn due_groups(&mut self, now: Deadline) -> Vec<(Deadline, GroupId)> {
        let mut due = Vec::new();
        while let Some(Reverse((deadline, _))) = self.queue.peek()
            && *deadline <= now
            && let Some(Reverse(entry)) = self.queue.pop()
        {
            due.push(entry);
        }
        due
    }

    fn replayed_group(&mut self, group_id: &GroupId, now: Timestamp) -> &mut Group {
        self.groups.entry(group_id.clone()).or_insert_with(|| Group::new(group_id.clone(), now))
    }
}

fn reply_to_offsets(answer: Option<OffsetsAnswer>, out: &mut Outcome<GroupShard>) {
    if let Some(OffsetsAnswer { token, results }) = answer {
        out.reply(token, GroupReply::Offsets(Ok(results)));
    }
}

fn reply_to_removal(answer: Option<RemovalAnswer>, out: &mut Outcome<GroupShard>) {
    match answer {
        Some(RemovalAnswer::OfGroup(token)) => out.reply(token, GroupReply::Done(Ok(()))),
        Some(RemovalAnswer::OfOffsets(answer)) => reply_to_offsets(Some(answer), out),
        None => {}
    }
}
