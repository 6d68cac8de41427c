use bytes::Bytes;

use super::super::shard::{GroupEvent, GroupReply, PendingWrite};
use super::super::stored::GroupRecord;
use super::super::{GroupError, GroupState, MemberId};
use super::group::{Group, JoinWait, Step};

/// The shortest wait after a rebalance that nobody joined: a client may set its rebalance timeout to zero.
const RETRY_WAIT_MS_MIN: i64 = 100;

impl Group {
    /// Calls all members to rejoin.
    pub(super) fn prepare_rebalance(&mut self, step: &mut Step<'_>, reason: &str) {
        if self.state == GroupState::CompletingRebalance {
            self.reset_assignment(GroupError::RebalanceInProgress, step);
        }
        self.stop_waiting_for_syncs();
        let rebalance_timeout_ms = self.members.rebalance_timeout_ms();
        let wait = if self.state == GroupState::Empty {
            let delay_ms = i64::from(step.options.initial_rebalance_delay_ms);
            JoinWait::Initial {
                deadline: step.now.plus_ms(delay_ms),
                delay_ms,
                remaining_ms: (rebalance_timeout_ms - delay_ms).max(0),
                member_added: false,
            }
        } else {
            JoinWait::Rejoin { deadline: step.now.plus_ms(rebalance_timeout_ms) }
        };
        self.wait_for_joins(wait);
        self.transition_to(GroupState::PreparingRebalance, step.now.timestamp);
        let event = GroupEvent::RebalanceStarted {
            group_id: self.id.clone(),
            generation_id: self.generation_id,
            reason: reason.to_owned(),
        };
        self.report(event, step);
        self.try_complete_join(step);
    }

    /// Starts the next generation as soon as everybody is there. An empty group waits its delay in any case.
    pub(super) fn try_complete_join(&mut self, step: &mut Step<'_>) {
        if matches!(self.join_wait, Some(JoinWait::Rejoin { .. })) && self.members.all_joined() {
            self.complete_join(step);
        }
    }

    /// The time to join is over, or, for a group that was empty, is prolonged because members came.
    pub(super) fn join_wait_expired(&mut self, step: &mut Step<'_>) {
        let Some(wait) = self.join_wait else { return };
        match wait {
            JoinWait::Initial { delay_ms, remaining_ms, member_added: true, .. } if remaining_ms > 0 => {
                let next_delay_ms = i64::from(step.options.initial_rebalance_delay_ms).min(remaining_ms);
                self.wait_for_joins(JoinWait::Initial {
                    deadline: step.now.plus_ms(next_delay_ms),
                    delay_ms: next_delay_ms,
                    remaining_ms: (remaining_ms - delay_ms).max(0),
                    member_added: false,
                });
            }
            JoinWait::Initial { .. } | JoinWait::Rejoin { .. } => self.complete_join(step),
        }
    }

    fn wait_for_joins(&mut self, wait: JoinWait) {
        self.join_wait = Some(wait);
        self.check_at(wait.deadline());
    }

    /// Goes on with those who are there. Static members are kept until their session ends.
    fn complete_join(&mut self, step: &mut Step<'_>) {
        let late = self.members.ids(|member| !member.is_awaiting_join() && !member.is_static());
        for member_id in late {
            self.remove_silently(&member_id, "it did not rejoin in time", step);
        }
        if !self.members.is_empty() && !self.members.elect_joined_leader() {
            // Only static members are left and none has rejoined.
            let timeout_ms = self.members.rebalance_timeout_ms().max(RETRY_WAIT_MS_MIN);
            return self.wait_for_joins(JoinWait::Rejoin { deadline: step.now.plus_ms(timeout_ms) });
        }
        self.join_wait = None;
        self.start_generation(step);
    }

    fn start_generation(&mut self, step: &mut Step<'_>) {
        self.generation_id = self.generation_id.next();
        self.protocol_name = self.members.select_protocol();
        self.subscribed_topics = self.compute_subscribed_topics();
        self.is_storing_assignment = false;
        self.stop_waiting_for_syncs();
        if self.members.is_empty() {
            return self.become_empty(step);
        }
        self.transition_to(GroupState::CompletingRebalance, step.now.timestamp);
        let event = GroupEvent::GenerationStarted {
            group_id: self.id.clone(),
            generation_id: self.generation_id,
            members: self.members.len(),
        };
        self.report(event, step);
        let sync_deadline = step.now.plus_ms(self.members.rebalance_timeout_ms());
        self.sync_deadline = Some(sync_deadline);
        self.check_at(sync_deadline);
        for member_id in self.members.ids(|_| true) {
            self.give_generation(&member_id, step);
        }
    }

    fn give_generation(&mut self, member_id: &MemberId, step: &mut Step<'_>) {
        if let Some(token) = self.members.take_join(member_id) {
            let joined = self.joined(member_id, self.members.is_leader(member_id));
            step.out.reply(token, GroupReply::Join(Ok(joined)));
        }
        if let Some(member) = self.members.get_mut(member_id) {
            member.is_new = false;
            member.must_sync = true;
        }
        self.restart_session(member_id, step.now);
    }

    /// The last member has gone. If this cannot be stored, the old generation wakes up after a failover and its
    /// members, who are gone, time out once more; so nothing waits for it.
    fn become_empty(&mut self, step: &mut Step<'_>) {
        self.transition_to(GroupState::Empty, step.now.timestamp);
        let event = GroupEvent::GroupEmptied { group_id: self.id.clone(), generation_id: self.generation_id };
        self.report(event, step);
        let value = Some(self.to_stored(|_| Bytes::new()));
        let record = GroupRecord::Group { group_id: self.id.clone(), value };
        step.out.write(vec![record], PendingWrite::EmptyGroup { group_id: self.id.clone() });
    }

    /// Removes a member without a rebalance on its account.
    pub(super) fn remove_silently(
        &mut self,
        member_id: &MemberId,
        reason: &'static str,
        step: &mut Step<'_>,
    ) {
        let orphans = self.members.remove(member_id);
        Group::answer_orphans(orphans, GroupError::UnknownMemberId, &MemberId::default(), step);
        let event =
            GroupEvent::MemberRemoved { group_id: self.id.clone(), member_id: member_id.clone(), reason };
        self.report(event, step);
    }

    /// Removes a member and lets the others share its part.
    pub(super) fn remove_member(&mut self, member_id: &MemberId, reason: &'static str, step: &mut Step<'_>) {
        self.remove_silently(member_id, reason, step);
        match self.state {
            GroupState::Stable | GroupState::CompletingRebalance => self.prepare_rebalance(step, reason),
            GroupState::PreparingRebalance => self.try_complete_join(step),
            GroupState::Empty | GroupState::Dead => {}
        }
    }
}
