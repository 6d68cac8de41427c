use std::collections::HashSet;

use super::super::members::{Member, Members, Orphans};
use super::super::offsets::GroupOffsets;
use super::super::shard::{GroupEvent, GroupReply, GroupShard};
use super::super::stored::{StoredGroup, StoredMember};
use super::super::{
    GenerationId, GroupDescription, GroupError, GroupId, GroupOptions, GroupState, InstanceId, JoinRefused,
    ListedGroup, MemberDescription, MemberId, ProtocolName, subscription,
};
use crate::coordinator::{Deadline, Now, Outcome, ReplyToken};
use crate::model::Timestamp;

/// The protocol type of Kafka's consumers, the one whose subscriptions the coordinator reads.
const CONSUMER: &str = "consumer";

/// One group.
#[derive(Debug)]
pub(in crate::group) struct Group {
    pub id: GroupId,
    pub offsets: GroupOffsets,
    pub(super) state: GroupState,
    /// When the group entered its state; `None` if an old record did not tell.
    pub(super) state_timestamp: Option<Timestamp>,
    /// `None` while only offsets were ever stored.
    pub(super) protocol_type: Option<ProtocolName>,
    pub(super) protocol_name: Option<ProtocolName>,
    pub(super) generation_id: GenerationId,
    pub(super) members: Members,
    /// What the members of a consumer group subscribe to, where they tell.
    pub(super) subscribed_topics: Option<HashSet<String>>,
    /// Set while PreparingRebalance.
    pub(super) join_wait: Option<JoinWait>,
    /// When members that have not synced are given up.
    pub(super) sync_deadline: Option<Deadline>,
    /// The leader's assignment for this generation is being stored.
    pub(super) is_storing_assignment: bool,
    /// Nothing is due before this moment; it may be too early, never too late.
    pub(super) next_check: Option<Deadline>,
    /// The moment under which the shard's queue holds this group.
    pub queued_at: Option<Deadline>,
}

/// How long members are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinWait {
    /// A group that was empty waits a while for more members, and a while longer each time some came.
    Initial { deadline: Deadline, delay_ms: i64, remaining_ms: i64, member_added: bool },
    /// Until all known members have rejoined, or the deadline.
    Rejoin { deadline: Deadline },
}

impl JoinWait {
    pub(super) fn deadline(self) -> Deadline {
        match self {
            JoinWait::Initial { deadline, .. } | JoinWait::Rejoin { deadline } => deadline,
        }
    }
}

/// The surroundings of one step: the settings, the moment, and where results go.
pub(in crate::group) struct Step<'a> {
    pub options: &'a GroupOptions,
    pub now: Now,
    pub out: &'a mut Outcome<GroupShard>,
}

impl Group {
    pub fn new(id: GroupId, now: Timestamp) -> Group {
        Group {
            id,
            offsets: GroupOffsets::default(),
            state: GroupState::Empty,
            state_timestamp: Some(now),
            protocol_type: None,
            protocol_name: None,
            generation_id: GenerationId::default(),
            members: Members::default(),
            subscribed_topics: None,
            join_wait: None,
            sync_deadline: None,
            is_storing_assignment: false,
            next_check: None,
            queued_at: None,
        }
    }

    pub fn state(&self) -> GroupState {
        self.state
    }

    pub fn generation_id(&self) -> GenerationId {
        self.generation_id
    }

    pub fn next_check(&self) -> Option<Deadline> {
        self.next_check
    }

    /// The group holds nothing that anybody could ask for later.
    pub fn is_blank(&self) -> bool {
        self.is_idle() && self.protocol_type.is_none() && self.offsets.is_empty()
    }

    /// Nobody is a member or about to become one.
    pub fn is_idle(&self) -> bool {
        self.state == GroupState::Empty && self.members.is_empty() && !self.members.has_pending()
    }

    /// The group is being removed. Requests are refused until it is gone.
    pub fn bury(&mut self, now: Timestamp) {
        self.transition_to(GroupState::Dead, now);
    }

    /// The removal was not stored: the group lives on, empty.
    pub fn exhume(&mut self, now: Timestamp) {
        if self.state == GroupState::Dead {
            self.transition_to(GroupState::Empty, now);
        }
    }

    pub fn describe(&self) -> GroupDescription {
        let is_stable = self.state == GroupState::Stable;
        let describe = |member: &Member| MemberDescription {
            member_id: member.member_id.clone(),
            group_instance_id: member.group_instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: if is_stable {
                member.metadata(self.protocol_name.as_ref())
            } else {
                Default::default()
            },
            assignment: if is_stable { member.assignment.clone() } else { Default::default() },
        };
        GroupDescription {
            state: self.state,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol: self.protocol_name.clone().filter(|_| is_stable).unwrap_or_default(),
            members: self.members.iter().map(describe).collect(),
        }
    }

    pub fn overview(&self) -> ListedGroup {
        ListedGroup {
            group_id: self.id.clone(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            state: self.state,
            group_type: "classic",
        }
    }

    /// Takes over the membership of a record. Offsets stay as they are.
    pub fn restore(&mut self, stored: StoredGroup) {
        self.state = if stored.members.is_empty() { GroupState::Empty } else { GroupState::Stable };
        self.state_timestamp = stored.state_timestamp;
        self.protocol_type = stored.protocol_type;
        self.protocol_name = stored.protocol_name;
        self.generation_id = stored.generation_id;
        self.members = Members::default();
        for member in stored.members {
            let restored = Member::restored(member, self.protocol_name.clone().unwrap_or_default());
            self.members.add(restored, None);
        }
        self.members.set_leader(stored.leader_id);
    }

    /// Forgets the membership: a record removed it. Offsets stay as they are.
    pub fn forget_membership(&mut self, now: Timestamp) {
        let offsets = std::mem::take(&mut self.offsets);
        *self = Group { offsets, ..Group::new(self.id.clone(), now) };
    }

    /// Begins to watch over a group that was read from the log.
    pub fn loaded(&mut self, step: &mut Step<'_>) {
        self.subscribed_topics = self.compute_subscribed_topics();
        let member_ids = self.members.ids(|_| true);
        if self.members.len() > step.options.group_size_max {
            self.prepare_rebalance(step, "the loaded group is over its capacity");
        }
        for member_id in member_ids {
            self.restart_session(&member_id, step.now);
        }
    }

    /// What a record of this group holds, with these assignments.
    pub(super) fn to_stored(&self, assignment: impl Fn(&Member) -> bytes::Bytes) -> StoredGroup {
        let to_stored = |member: &Member| StoredMember {
            member_id: member.member_id.clone(),
            group_instance_id: member.group_instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout_ms,
            subscription: member.metadata(self.protocol_name.as_ref()),
            assignment: assignment(member),
        };
        StoredGroup {
            protocol_type: self.protocol_type.clone(),
            generation_id: self.generation_id,
            protocol_name: self.protocol_name.clone(),
            leader_id: self.members.leader_id().cloned(),
            state_timestamp: self.state_timestamp,
            members: self.members.iter().map(to_stored).collect(),
        }
    }

    pub(super) fn transition_to(&mut self, state: GroupState, now: Timestamp) {
        self.state = state;
        self.state_timestamp = Some(now);
    }

    /// Makes sure that the group is looked at no later than `deadline`.
    pub(super) fn check_at(&mut self, deadline: Deadline) {
        self.next_check = Some(self.next_check.map_or(deadline, |next| next.min(deadline)));
    }

    /// A request that names an instance must come from its holder, and any request from a member.
    pub(super) fn check_member(
        &self,
        member_id: &MemberId,
        group_instance_id: Option<&InstanceId>,
    ) -> Result<(), GroupError> {
        if let Some(instance_id) = group_instance_id {
            match self.members.static_member(instance_id) {
                None => return Err(GroupError::UnknownMemberId),
                Some(holder) if holder != member_id => return Err(GroupError::FencedInstanceId),
                Some(_) => {}
            }
        }
        if !self.members.contains(member_id) {
            return Err(GroupError::UnknownMemberId);
        }
        Ok(())
    }

    pub(super) fn is_consumer_group(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    /// Whether members read this topic; `true` where they do not tell, to be safe.
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        self.subscribed_topics.as_ref().is_none_or(|topics| topics.contains(topic))
    }

    pub(super) fn compute_subscribed_topics(&self) -> Option<HashSet<String>> {
        if !self.is_consumer_group() {
            return None;
        }
        if self.members.is_empty() {
            return Some(HashSet::new());
        }
        let protocol = self.protocol_name.as_ref();
        let subscriptions: Vec<_> = self.members.iter().map(|member| member.metadata(protocol)).collect();
        subscription::union(subscriptions.iter().map(|subscription| &subscription[..]))
    }

    /// Answers the requests of a member that is no longer there to wait.
    pub(super) fn answer_orphans(
        orphans: Orphans,
        error: GroupError,
        member_id: &MemberId,
        step: &mut Step<'_>,
    ) {
        if let Some(token) = orphans.join {
            refuse_join(token, error, member_id.clone(), step);
        }
        if let Some(token) = orphans.sync {
            step.out.reply(token, GroupReply::Sync(Err(error)));
        }
    }

    pub(super) fn report(&self, event: GroupEvent, step: &mut Step<'_>) {
        step.out.events.push(event);
    }
}

pub(super) fn refuse_join(token: ReplyToken, error: GroupError, member_id: MemberId, step: &mut Step<'_>) {
    step.out.reply(token, GroupReply::Join(Err(JoinRefused { error, member_id })));
}
