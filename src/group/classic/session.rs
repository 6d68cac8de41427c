use super::super::shard::GroupReply;
use super::super::{GroupError, GroupState, Heartbeat, LeaveGroup, LeavingMember, MemberId};
use super::group::{Group, JoinWait, Step};
use crate::coordinator::{Now, ReplyToken};

impl Group {
    pub fn heartbeat(&mut self, request: &Heartbeat, now: Now) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        self.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        if request.generation_id != self.generation_id {
            return Err(GroupError::IllegalGeneration);
        }
        match self.state {
            GroupState::Empty | GroupState::Dead => Err(GroupError::UnknownMemberId),
            GroupState::PreparingRebalance => {
                self.restart_session(&request.member_id, now);
                Err(GroupError::RebalanceInProgress)
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.restart_session(&request.member_id, now);
                Ok(())
            }
        }
    }

    pub fn leave(&mut self, request: LeaveGroup, token: ReplyToken, step: &mut Step<'_>) {
        if self.state == GroupState::Dead {
            return step.out.reply(token, GroupReply::Leave(Err(GroupError::CoordinatorNotAvailable)));
        }
        let results = request.members.iter().map(|member| self.leave_one(member, step)).collect();
        step.out.reply(token, GroupReply::Leave(Ok(results)));
    }

    fn leave_one(&mut self, leaving: &LeavingMember, step: &mut Step<'_>) -> Result<(), GroupError> {
        let member_id = if leaving.member_id.is_empty() {
            // An administrator removes a static member by its lasting name.
            let instance_id = leaving.group_instance_id.as_ref();
            let holder = instance_id.and_then(|instance_id| self.members.static_member(instance_id));
            holder.cloned().ok_or(GroupError::UnknownMemberId)?
        } else {
            leaving.member_id.clone()
        };
        if self.members.is_pending(&member_id) {
            self.members.remove(&member_id);
            self.try_complete_join(step);
            return Ok(());
        }
        self.check_member(&member_id, leaving.group_instance_id.as_ref())?;
        self.remove_member(&member_id, "it left", step);
        Ok(())
    }

    /// A sign of life: the member's session begins anew.
    pub(super) fn restart_session(&mut self, member_id: &MemberId, now: Now) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        let deadline = now.plus_ms(i64::from(member.session_timeout_ms));
        member.session_deadline = Some(deadline);
        self.check_at(deadline);
    }

    /// Does what is due and finds out when to look again.
    pub fn tick(&mut self, step: &mut Step<'_>) {
        self.next_check = None;
        let now = step.now.monotonic;
        if !self.members.expire_pending(now).is_empty() {
            self.try_complete_join(step);
        }
        self.expire_sessions(step);
        if self.sync_deadline.is_some_and(|deadline| deadline <= now) {
            self.sync_wait_expired(step);
        }
        if self.join_wait.is_some_and(|wait| wait.deadline() <= now) {
            self.join_wait_expired(step);
        }
        let waits =
            [self.sync_deadline, self.join_wait.map(JoinWait::deadline), self.members.next_deadline()];
        self.next_check = waits.into_iter().flatten().min();
    }

    fn expire_sessions(&mut self, step: &mut Step<'_>) {
        let now = step.now.monotonic;
        let due = self.members.ids(|member| member.session_deadline.is_some_and(|deadline| deadline <= now));
        for member_id in due {
            let Some(member) = self.members.get_mut(&member_id) else { continue };
            // Removing another member may have answered this one, which restarts its session.
            if member.session_deadline.is_none_or(|deadline| deadline > now) {
                continue;
            }
            let is_waiting = member.is_awaiting_join() || member.awaiting_sync.is_some();
            if is_waiting && !member.is_new {
                // Its connection waits for our answer, so it cannot send heartbeats. The answer restarts its
                // session.
                member.session_deadline = None;
            } else {
                self.remove_member(&member_id, "its session expired", step);
            }
        }
    }
}
