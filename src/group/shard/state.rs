use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use super::messages::{GroupEvent, GroupReply, OffsetsAnswer, RemovalAnswer};
use super::removal::{remove_group, remove_offsets};
use super::storing::OffsetStorage;
use crate::coordinator::{Deadline, Now, Outcome, ReplyToken, TransactionalWriter};
use crate::group::classic::{Group, Step};
use crate::group::stored::{GroupRecord, StoredOffset};
use crate::group::{
    CommitOffsets, CommitTransactionalOffsets, DeleteOffsets, FetchOffsets, FetchedOffset, GroupDescription,
    GroupError, GroupId, GroupOptions, GroupState, Heartbeat, JoinGroup, JoinRefused, LeaveGroup,
    ProtocolName, SyncGroup,
};
use crate::model::{Offset, ProducerId, Timestamp, TopicPartition};

/// The groups of one partition of `__consumer_offsets`.
#[derive(Debug)]
pub(in crate::group) struct GroupShard {
    pub(super) options: Arc<GroupOptions>,
    pub(super) groups: HashMap<GroupId, Group>,
    /// When each group wants to be looked at. Entries that the group no longer stands by are skipped.
    pub(super) queue: BinaryHeap<Reverse<(Deadline, GroupId)>>,
    pub(super) next_sweep: Option<Deadline>,
    /// The groups in which a transaction of this producer has stored offsets.
    producers: HashMap<ProducerId, HashSet<GroupId>>,
    /// How many writes of each producer's transaction are on their way.
    transactions_in_flight: HashMap<ProducerId, usize>,
    /// Ends of transactions that came before the last of their offsets was committed.
    early_ends: HashMap<ProducerId, Vec<(bool, ReplyToken)>>,
    /// Records that could not be read while the shard was loaded.
    pub(super) skipped_records: u64,
}

impl GroupShard {
    pub fn new(options: Arc<GroupOptions>) -> GroupShard {
        GroupShard {
            options,
            groups: HashMap::new(),
            queue: BinaryHeap::new(),
            next_sweep: None,
            producers: HashMap::new(),
            transactions_in_flight: HashMap::new(),
            early_ends: HashMap::new(),
            skipped_records: 0,
        }
    }

    /// Lets a group do something and notes what follows from it. Does nothing if there is no such group.
    pub(super) fn with_group<R>(
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

    pub(super) fn join(
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

    pub(super) fn sync(&mut self, request: SyncGroup, token: ReplyToken, now: Now, out: &mut Outcome<Self>) {
        let group_id = request.group_id.clone();
        let known = self.with_group(&group_id, now, out, |group, step| group.sync(request, token, step));
        if known.is_none() {
            out.reply(token, GroupReply::Sync(Err(GroupError::UnknownMemberId)));
        }
    }

    pub(super) fn heartbeat(
        &mut self,
        request: &Heartbeat,
        token: ReplyToken,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        let beat = |group: &mut Group, _: &mut Step<'_>| group.heartbeat(request, now);
        let result = self.with_group(&request.group_id, now, out, beat);
        out.reply(token, GroupReply::Done(result.unwrap_or(Err(GroupError::UnknownMemberId))));
    }

    pub(super) fn leave(
        &mut self,
        request: LeaveGroup,
        token: ReplyToken,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        let group_id = request.group_id.clone();
        let unknown = vec![Err(GroupError::UnknownMemberId); request.members.len()];
        let known = self.with_group(&group_id, now, out, |group, step| group.leave(request, token, step));
        if known.is_none() {
            out.reply(token, GroupReply::Leave(Ok(unknown)));
        }
    }

    pub(super) fn commit(
        &mut self,
        request: CommitOffsets,
        token: ReplyToken,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        if !self.groups.contains_key(&request.group_id) {
            // A generation belongs to a group that is gone; without one Kafka only stores the offsets.
            if request.generation_id.0 >= 0 {
                return out.reply(token, GroupReply::Offsets(Err(GroupError::GroupIdNotFound)));
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

    pub(super) fn commit_transactional(
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
            producer: Some(TransactionalWriter {
                producer_id: request.producer_id,
                producer_epoch: request.producer_epoch,
                guard: request.guard,
            }),
        };
        let producer_id = request.producer_id;
        let writes = out.writes.len();
        self.with_group(&storage.group_id.clone(), now, out, |group, step| {
            let instance_id = request.group_instance_id.as_ref();
            match group.accept_commit(&request.member_id, instance_id, request.generation_id, true, now) {
                Ok(()) => storage.store(group, request.offsets, token, step),
                Err(error) => step.out.reply(token, GroupReply::Offsets(Err(error))),
            }
        });
        if out.writes.len() > writes {
            *self.transactions_in_flight.entry(producer_id).or_default() += 1;
        }
    }

    pub(super) fn insert_group(&mut self, group_id: &GroupId, now: Now) {
        if !self.groups.contains_key(group_id) {
            self.groups.insert(group_id.clone(), Group::new(group_id.clone(), now.timestamp));
        }
    }

    pub(super) fn fetch_offsets(&self, request: FetchOffsets) -> Vec<FetchedOffset> {
        match self.groups.get(&request.group_id) {
            Some(group) => group.fetch_offsets(request),
            None => request.partitions.unwrap_or_default().into_iter().map(FetchedOffset::none).collect(),
        }
    }

    pub(super) fn describe(&self, group_id: &GroupId) -> GroupDescription {
        let unknown = || GroupDescription {
            state: GroupState::Dead,
            protocol_type: ProtocolName::default(),
            protocol: ProtocolName::default(),
            members: Vec::new(),
        };
        self.groups.get(group_id).map_or_else(unknown, Group::describe)
    }

    pub(super) fn delete_offsets(
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

    pub(super) fn delete_group(
        &mut self,
        group_id: &GroupId,
        token: ReplyToken,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
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

    pub(super) fn forget_partitions(
        &mut self,
        partitions: &HashSet<TopicPartition>,
        now: Now,
        out: &mut Outcome<Self>,
    ) {
        self.for_each_group(now, out, |group, step| {
            let gone: Vec<_> = partitions.iter().filter(|of| group.offsets.contains(of)).cloned().collect();
            if group.state() != GroupState::Dead && !gone.is_empty() {
                remove_offsets(group, gone, None, step);
            }
        });
    }

    /// Removes what has outlived its retention, and groups of which nothing is left.
    pub(super) fn sweep(&mut self, now: Now, out: &mut Outcome<Self>) {
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

    pub(super) fn for_each_group(
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
    pub(super) fn end_transaction(
        &mut self,
        producer_id: ProducerId,
        is_commit: bool,
        token: ReplyToken,
        out: &mut Outcome<Self>,
    ) {
        if self.transactions_in_flight.contains_key(&producer_id) {
            self.early_ends.entry(producer_id).or_default().push((is_commit, token));
            return;
        }
        self.apply_transaction_end(producer_id, is_commit);
        out.reply(token, GroupReply::Done(Ok(())));
    }

    pub(super) fn apply_transaction_end(&mut self, producer_id: ProducerId, is_commit: bool) {
        for group_id in self.producers.remove(&producer_id).unwrap_or_default() {
            if let Some(group) = self.groups.get_mut(&group_id) {
                group.offsets.end_transaction(producer_id, is_commit);
            }
        }
    }

    /// A write of offsets is committed or lost. With the last one of a transaction, its end may be due.
    pub(super) fn offsets_write_ended(&mut self, producer_id: Option<ProducerId>, out: &mut Outcome<Self>) {
        let Some(producer_id) = producer_id else { return };
        if let Some(writes) = self.transactions_in_flight.get_mut(&producer_id) {
            *writes -= 1;
            if *writes > 0 {
                return;
            }
            self.transactions_in_flight.remove(&producer_id);
        }
        for (is_commit, token) in self.early_ends.remove(&producer_id).unwrap_or_default() {
            self.apply_transaction_end(producer_id, is_commit);
            out.reply(token, GroupReply::Done(Ok(())));
        }
    }

    /// Takes in records of offsets that are committed in the log; the first has this offset.
    pub(super) fn apply_offsets(
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
    pub(super) fn end_write(
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

    pub(super) fn apply_offset(
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

    pub(super) fn group_removed(&mut self, group_id: &GroupId, out: &mut Outcome<Self>) {
        if self.groups.get(group_id).is_some_and(|group| group.state() == GroupState::Dead) {
            self.groups.remove(group_id);
            out.events.push(GroupEvent::GroupRemoved { group_id: group_id.clone() });
        }
    }

    pub(super) fn due_groups(&mut self, now: Deadline) -> Vec<(Deadline, GroupId)> {
        let mut due = Vec::new();
        while let Some(Reverse((deadline, _))) = self.queue.peek()
            && *deadline <= now
            && let Some(Reverse(entry)) = self.queue.pop()
        {
            due.push(entry);
        }
        due
    }

    pub(super) fn replayed_group(&mut self, group_id: &GroupId, now: Timestamp) -> &mut Group {
        self.groups.entry(group_id.clone()).or_insert_with(|| Group::new(group_id.clone(), now))
    }
}
