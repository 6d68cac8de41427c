use super::super::members::{Member, Orphans};
use super::super::shard::{GroupEvent, GroupReply, PendingWrite};
use super::super::stored::GroupRecord;
use super::super::{
    GroupError, GroupState, InstanceId, JoinGroup, Joined, JoinedMember, MemberId, ProtocolName,
};
use super::group::{Group, JoinWait, Step, refuse_join};
use crate::coordinator::{ReplyToken, WriteError};

/// How long a new member may wait for the end of its first rebalance. Its session cannot count yet: it does not
/// know its id and sends no heartbeats, and clients that gave up must not pile up as members.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1_000;

/// A static member that took its predecessor's place without a rebalance, while that is being stored.
#[derive(Debug)]
pub(in crate::group) struct StaticReplacement {
    pub member_id: MemberId,
    /// The leader's id before the replacement, which clients without `skip_assignment` are told.
    leader_id: MemberId,
    supports_skipping_assignment: bool,
}

impl Group {
    /// `random` makes the id of a new member.
    pub fn join(&mut self, request: JoinGroup, random: [u8; 16], token: ReplyToken, step: &mut Step<'_>) {
        if self.state == GroupState::Dead {
            refuse_join(token, GroupError::CoordinatorNotAvailable, request.member_id, step);
        } else if !self.has_room_for(&request.member_id, step.options.group_size_max) {
            let orphans = self.members.remove(&request.member_id);
            Group::answer_orphans(orphans, GroupError::GroupMaxSizeReached, &MemberId::default(), step);
            refuse_join(token, GroupError::GroupMaxSizeReached, MemberId::default(), step);
        } else if !self.supports(&request) {
            refuse_join(token, GroupError::InconsistentGroupProtocol, request.member_id, step);
        } else if request.member_id.is_empty() {
            self.join_new(request, random, token, step);
        } else {
            self.join_known(request, token, step);
        }
        self.try_complete_join(step);
    }

    /// Whether a group of limited size takes in this member. While it rebalances, those count that have joined:
    /// the last ones to rejoin an oversized group are kept out.
    fn has_room_for(&self, member_id: &MemberId, group_size_max: usize) -> bool {
        let member = self.members.get(member_id);
        match self.state {
            GroupState::Empty | GroupState::Dead => true,
            GroupState::PreparingRebalance => {
                member.is_some_and(Member::is_awaiting_join)
                    || self.members.awaiting_join_count() < group_size_max
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                member.is_some() || self.members.len() < group_size_max
            }
        }
    }

    fn supports(&self, request: &JoinGroup) -> bool {
        if self.state == GroupState::Empty {
            return !request.protocol_type.is_empty() && !request.protocols.is_empty();
        }
        self.protocol_type.as_ref() == Some(&request.protocol_type)
            && self.members.support_one_of(&request.protocols)
    }

    fn join_new(&mut self, request: JoinGroup, random: [u8; 16], token: ReplyToken, step: &mut Step<'_>) {
        let Some(instance_id) = request.group_instance_id.clone() else {
            let member_id = MemberId::generate(&request.client_id, random);
            if !request.requires_known_member_id {
                return self.add_member(request, member_id, token, step);
            }
            let deadline = step.now.plus_ms(i64::from(request.session_timeout_ms));
            self.members.add_pending(member_id.clone(), deadline);
            self.check_at(deadline);
            return refuse_join(token, GroupError::MemberIdRequired, member_id, step);
        };
        let member_id = MemberId::generate(&instance_id, random);
        match self.members.static_member(&instance_id).cloned() {
            Some(old_id) => self.replace_static_member(old_id, member_id, instance_id, request, token, step),
            None => self.add_member(request, member_id, token, step),
        }
    }

    fn join_known(&mut self, request: JoinGroup, token: ReplyToken, step: &mut Step<'_>) {
        let member_id = request.member_id.clone();
        if self.members.is_pending(&member_id) {
            // A static member never got a pending id; Kafka answers the same.
            if request.group_instance_id.is_some() {
                return refuse_join(token, GroupError::UnknownServerError, member_id, step);
            }
            return self.add_member(request, member_id, token, step);
        }
        if let Err(error) = self.check_member(&member_id, request.group_instance_id.as_ref()) {
            return refuse_join(token, error, member_id, step);
        }
        let is_unchanged =
            self.members.get(&member_id).is_some_and(|member| member.matches(&request.protocols));
        let is_leader = self.members.is_leader(&member_id);
        match self.state {
            GroupState::PreparingRebalance => self.rejoin(request, token, step),
            // The reply to its join was lost: it is given again.
            GroupState::CompletingRebalance if is_unchanged => {
                let joined = self.joined(&member_id, is_leader);
                step.out.reply(token, GroupReply::Join(Ok(joined)));
            }
            // A leader that joins a stable group wants a new assignment, for example since topics have grown.
            GroupState::Stable if is_unchanged && !is_leader => {
                let joined = self.joined(&member_id, false);
                step.out.reply(token, GroupReply::Join(Ok(joined)));
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.rejoin(request, token, step);
                let reason =
                    if is_unchanged { "the leader rejoins" } else { "a member rejoins with new metadata" };
                self.prepare_rebalance(step, reason);
            }
            GroupState::Empty | GroupState::Dead => {
                refuse_join(token, GroupError::UnknownMemberId, member_id, step);
            }
        }
    }

    fn rejoin(&mut self, request: JoinGroup, token: ReplyToken, step: &mut Step<'_>) {
        let replaced = self.members.rejoin(
            &request.member_id,
            request.protocols,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            token,
        );
        // The client sent its request again: only the newest can be answered with the next generation.
        let orphans = Orphans { join: replaced, sync: None };
        Group::answer_orphans(orphans, GroupError::RebalanceInProgress, &request.member_id, step);
    }

    fn add_member(
        &mut self,
        request: JoinGroup,
        member_id: MemberId,
        token: ReplyToken,
        step: &mut Step<'_>,
    ) {
        if let Some(JoinWait::Initial { member_added, .. }) = &mut self.join_wait {
            *member_added |= self.generation_id.0 == 0;
        }
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type);
        }
        let deadline = step.now.plus_ms(NEW_MEMBER_JOIN_TIMEOUT_MS);
        let mut member = Member::new(member_id, request.group_instance_id, request.protocols);
        member.client_id = request.client_id;
        member.client_host = request.client_host;
        member.session_timeout_ms = request.session_timeout_ms;
        member.rebalance_timeout_ms = request.rebalance_timeout_ms;
        member.is_new = true;
        member.session_deadline = Some(deadline);
        self.members.add(member, Some(token));
        self.check_at(deadline);
        if self.state != GroupState::PreparingRebalance {
            self.prepare_rebalance(step, request.reason.as_deref().unwrap_or("a member joins"));
        }
    }

    /// A static member comes back under a new id: who still uses the old id is fenced.
    fn replace_static_member(
        &mut self,
        old_id: MemberId,
        new_id: MemberId,
        instance_id: InstanceId,
        request: JoinGroup,
        token: ReplyToken,
        step: &mut Step<'_>,
    ) {
        let leader_id = self.members.leader_id().cloned().unwrap_or_default();
        let orphans = self.members.replace(&old_id, new_id.clone());
        Group::answer_orphans(orphans, GroupError::FencedInstanceId, &old_id, step);
        let supports_skipping_assignment = request.supports_skipping_assignment;
        let event = GroupEvent::StaticMemberReplaced {
            group_id: self.id.clone(),
            instance_id,
            old_id,
            new_id: new_id.clone(),
        };
        self.report(event, step);
        self.rejoin(JoinGroup { member_id: new_id.clone(), ..request }, token, step);
        self.restart_session(&new_id, step.now);
        match self.state {
            GroupState::Stable if self.members.select_protocol() == self.protocol_name => {
                let replacement =
                    StaticReplacement { member_id: new_id, leader_id, supports_skipping_assignment };
                self.store_replacement(replacement, step);
            }
            // The leader may already assign for the old id, so that the new one would get nothing.
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.prepare_rebalance(step, "a static member rejoins");
            }
            GroupState::PreparingRebalance | GroupState::Empty | GroupState::Dead => {}
        }
    }

    fn store_replacement(&mut self, replacement: StaticReplacement, step: &mut Step<'_>) {
        let value = Some(self.to_stored(|member| member.assignment.clone()));
        let record = GroupRecord::Group { group_id: self.id.clone(), value };
        let pending = PendingWrite::StaticMember {
            group_id: self.id.clone(),
            generation_id: self.generation_id,
            replacement,
        };
        step.out.write(vec![record], pending);
    }

    /// The new id of a static member is stored. If a rebalance began meanwhile, the member waits for its end.
    pub fn replacement_stored(&mut self, replacement: StaticReplacement, step: &mut Step<'_>) {
        if self.state != GroupState::Stable {
            return;
        }
        let member_id = replacement.member_id;
        let Some(token) = self.members.take_join(&member_id) else { return };
        self.restart_session(&member_id, step.now);
        let joined = if replacement.supports_skipping_assignment {
            let is_leader = self.members.is_leader(&member_id);
            Joined { skip_assignment: is_leader, ..self.joined(&member_id, is_leader) }
        } else {
            // An older client that saw itself as the leader would assign, and its assignment would be lost on a
            // stable group. It is told the leader's old id, which is nobody's.
            Joined { leader_id: replacement.leader_id, ..self.joined(&member_id, false) }
        };
        step.out.reply(token, GroupReply::Join(Ok(joined)));
    }

    /// The new id was not stored. The client has not learned it; it comes back and is replaced once more.
    pub fn replacement_refused(
        &mut self,
        replacement: &StaticReplacement,
        error: WriteError,
        step: &mut Step<'_>,
    ) {
        if let Some(token) = self.members.take_join(&replacement.member_id) {
            refuse_join(token, GroupError::of_group_write(error), MemberId::default(), step);
            self.restart_session(&replacement.member_id, step.now);
            self.try_complete_join(step);
        }
    }

    /// A member's place in the current generation. `with_members`: what the leader assigns by.
    pub(super) fn joined(&self, member_id: &MemberId, with_members: bool) -> Joined {
        let protocol: Option<&ProtocolName> = self.protocol_name.as_ref();
        let describe = |member: &Member| JoinedMember {
            member_id: member.member_id.clone(),
            group_instance_id: member.group_instance_id.clone(),
            metadata: member.metadata(protocol),
        };
        Joined {
            member_id: member_id.clone(),
            generation_id: self.generation_id,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader_id: self.members.leader_id().cloned().unwrap_or_default(),
            skip_assignment: false,
            members: if with_members { self.members.iter().map(describe).collect() } else { Vec::new() },
        }
    }
}
