use std::cmp::Reverse;

use super::messages::{
    GroupCommand, GroupEvent, GroupReply, OffsetsAnswer, PendingWrite, RemovalAnswer, reply_to_offsets,
    reply_to_removal,
};
use super::state::GroupShard;
use crate::coordinator::{Deadline, EncodedRecord, Now, Outcome, Replayed, ReplyToken, Shard, WriteError};
use crate::group::classic::Group;
use crate::group::stored::GroupRecord;
use crate::group::{GroupError, records};
use crate::model::{Offset, ProducerId};

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
                self.offsets_write_ended(producer_id, &mut out);
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
                self.offsets_write_ended(producer_id, &mut out);
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
