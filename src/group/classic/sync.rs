use std::collections::HashMap;

use bytes::Bytes;

use super::super::shard::{GroupReply, PendingWrite};
use super::super::stored::GroupRecord;
use super::super::{GenerationId, GroupError, GroupState, MemberId, SyncGroup, Synced};
use super::group::{Group, Step};
use crate::coordinator::{ReplyToken, WriteError};

impl Group {
    pub fn sync(&mut self, request: SyncGroup, token: ReplyToken, step: &mut Step<'_>) {
        if let Err(error) = self.check_sync(&request) {
            return step.out.reply(token, GroupReply::Sync(Err(error)));
        }
        match self.state {
            GroupState::Empty | GroupState::Dead => {
                step.out.reply(token, GroupReply::Sync(Err(GroupError::UnknownMemberId)));
            }
            GroupState::PreparingRebalance => {
                step.out.reply(token, GroupReply::Sync(Err(GroupError::RebalanceInProgress)));
            }
            GroupState::CompletingRebalance => self.await_assignment(request, token, step),
            GroupState::Stable => self.give_assignment(&request.member_id, token, step),
        }
    }

    fn check_sync(&self, request: &SyncGroup) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        self.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        if request.generation_id != self.generation_id {
            return Err(GroupError::IllegalGeneration);
        }
        let differs = |named: &Option<_>, own: &Option<_>| named.is_some() && named != own;
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol_name)
        {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        Ok(())
    }

    fn await_assignment(&mut self, request: SyncGroup, token: ReplyToken, step: &mut Step<'_>) {
        if let Some(member) = self.members.get_mut(&request.member_id) {
            member.must_sync = false;
            // The client sent its request again: only the newest can be answered with the assignment.
            if let Some(replaced) = member.awaiting_sync.replace(token) {
                step.out.reply(replaced, GroupReply::Sync(Err(GroupError::RebalanceInProgress)));
            }
        }
        // A leader that asks again while its assignment is being stored gets that one: what is stored and what
        // is answered must not differ.
        if self.members.is_leader(&request.member_id) && !self.is_storing_assignment {
            self.store_assignment(request.assignments, step);
        }
    }

    /// Members that the leader left out get an empty assignment; names that are no members get none.
    fn store_assignment(&mut self, assignments: Vec<(MemberId, Bytes)>, step: &mut Step<'_>) {
        // The assignments outlive the request's buffer.
        let assignments: HashMap<MemberId, Bytes> = assignments
            .into_iter()
            .filter(|(member_id, _)| self.members.contains(member_id))
            .map(|(member_id, assignment)| (member_id, Bytes::copy_from_slice(&assignment)))
            .collect();
        let assigned = |member_id: &MemberId| assignments.get(member_id).cloned().unwrap_or_default();
        let value = Some(self.to_stored(|member| assigned(&member.member_id)));
        let record = GroupRecord::Group { group_id: self.id.clone(), value };
        self.is_storing_assignment = true;
        let pending = PendingWrite::Assignment {
            group_id: self.id.clone(),
            generation_id: self.generation_id,
            assignments,
        };
        step.out.write(vec![record], pending);
    }

    /// The assignment is stored: everybody who waits gets its part. Too late for a group that has moved on.
    pub fn assignment_stored(
        &mut self,
        generation_id: GenerationId,
        mut assignments: HashMap<MemberId, Bytes>,
        step: &mut Step<'_>,
    ) {
        if !self.is_completing(generation_id) {
            return;
        }
        self.is_storing_assignment = false;
        for member in self.members.iter_mut() {
            member.assignment = assignments.remove(&member.member_id).unwrap_or_default();
        }
        self.transition_to(GroupState::Stable, step.now.timestamp);
        let waiting = self.members.ids(|member| member.awaiting_sync.is_some());
        for member_id in waiting {
            if let Some(token) = self.take_sync(&member_id) {
                self.give_assignment(&member_id, token, step);
            }
        }
    }

    /// The assignment was not stored: everybody starts over.
    pub fn assignment_refused(
        &mut self,
        generation_id: GenerationId,
        error: WriteError,
        step: &mut Step<'_>,
    ) {
        if self.is_completing(generation_id) {
            self.reset_assignment(GroupError::of_group_write(error), step);
            self.prepare_rebalance(step, "the assignment was not stored");
        }
    }

    /// `is_storing_assignment` is part of it: a refused assignment that is committed after all comes too late
    /// even for the generation it was made for.
    fn is_completing(&self, generation_id: GenerationId) -> bool {
        self.state == GroupState::CompletingRebalance
            && self.generation_id == generation_id
            && self.is_storing_assignment
    }

    /// Answers all who wait for their assignment with an error.
    pub(super) fn reset_assignment(&mut self, error: GroupError, step: &mut Step<'_>) {
        self.is_storing_assignment = false;
        for member in self.members.iter_mut() {
            member.assignment = Bytes::new();
        }
        let waiting = self.members.ids(|member| member.awaiting_sync.is_some());
        for member_id in waiting {
            if let Some(token) = self.take_sync(&member_id) {
                step.out.reply(token, GroupReply::Sync(Err(error)));
                self.restart_session(&member_id, step.now);
            }
        }
    }

    fn give_assignment(&mut self, member_id: &MemberId, token: ReplyToken, step: &mut Step<'_>) {
        let Some(member) = self.members.get_mut(member_id) else {
            return step.out.reply(token, GroupReply::Sync(Err(GroupError::UnknownMemberId)));
        };
        member.must_sync = false;
        let synced = Synced {
            assignment: member.assignment.clone(),
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
        };
        step.out.reply(token, GroupReply::Sync(Ok(synced)));
        self.restart_session(member_id, step.now);
    }

    fn take_sync(&mut self, member_id: &MemberId) -> Option<ReplyToken> {
        self.members.get_mut(member_id)?.awaiting_sync.take()
    }

    pub(super) fn stop_waiting_for_syncs(&mut self) {
        self.sync_deadline = None;
        for member in self.members.iter_mut() {
            member.must_sync = false;
        }
    }

    /// Members that have not asked for their assignment in time are given up.
    pub(super) fn sync_wait_expired(&mut self, step: &mut Step<'_>) {
        self.sync_deadline = None;
        let missing = self.members.ids(|member| member.must_sync);
        if missing.is_empty() {
            return;
        }
        for member_id in missing {
            self.remove_silently(&member_id, "it did not sync in time", step);
        }
        self.prepare_rebalance(step, "members did not sync in time");
    }
}
