use std::collections::HashMap;

use bytes::Bytes;
use indexmap::IndexMap;

use super::stored::StoredMember;
use super::{InstanceId, MemberId, Protocol, ProtocolName};
use crate::coordinator::{Deadline, ReplyToken};

/// The members of one group, who leads them and what they have in common.
///
/// Counts of waiting joins and of supported protocols are kept up to date by every change, so that a join into
/// a large group looks at the newcomer only.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// In the order of arrival.
    by_id: IndexMap<MemberId, Member>,
    static_ids: HashMap<InstanceId, MemberId>,
    /// Ids given to clients that have not come back with them yet (KIP-394), each until its deadline.
    pending: HashMap<MemberId, Deadline>,
    supporters: HashMap<ProtocolName, usize>,
    awaiting_join: usize,
    leader_id: Option<MemberId>,
}

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    pub member_id: MemberId,
    pub group_instance_id: Option<InstanceId>,
    pub client_id: String,
    pub client_host: String,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    pub assignment: Bytes,
    pub awaiting_sync: Option<ReplyToken>,
    /// It has not seen the end of its first rebalance, so it does not know its id and sends no heartbeats.
    pub is_new: bool,
    /// It has not asked for its assignment in this generation.
    pub must_sync: bool,
    /// When it is given up. `None` while a waiting request stands for it.
    pub session_deadline: Option<Deadline>,
    protocols: Vec<Protocol>,
    awaiting_join: Option<ReplyToken>,
}

impl Member {
    /// A member that waits for nothing. `protocols` are copied: they outlive the request that brought them.
    pub fn new(
        member_id: MemberId,
        group_instance_id: Option<InstanceId>,
        protocols: Vec<Protocol>,
    ) -> Member {
        Member {
            member_id,
            group_instance_id,
            client_id: String::new(),
            client_host: String::new(),
            session_timeout_ms: 0,
            rebalance_timeout_ms: 0,
            assignment: Bytes::new(),
            awaiting_sync: None,
            is_new: false,
            must_sync: false,
            session_deadline: None,
            protocols: owned(protocols),
            awaiting_join: None,
        }
    }

    /// A member as it was stored. Of its protocols only the chosen one is known.
    pub fn restored(stored: StoredMember, protocol: ProtocolName) -> Member {
        let protocols = vec![Protocol { name: protocol, metadata: stored.subscription }];
        Member {
            client_id: stored.client_id,
            client_host: stored.client_host,
            session_timeout_ms: stored.session_timeout_ms,
            rebalance_timeout_ms: stored.rebalance_timeout_ms,
            assignment: Bytes::copy_from_slice(&stored.assignment),
            ..Member::new(stored.member_id, stored.group_instance_id, protocols)
        }
    }

    pub fn is_static(&self) -> bool {
        self.group_instance_id.is_some()
    }

    pub fn is_awaiting_join(&self) -> bool {
        self.awaiting_join.is_some()
    }

    /// What the member says about itself under this protocol; empty if it does not support it.
    pub fn metadata(&self, protocol: Option<&ProtocolName>) -> Bytes {
        let supported = self.protocols.iter().find(|supported| Some(&supported.name) == protocol);
        supported.map(|supported| supported.metadata.clone()).unwrap_or_default()
    }

    /// The same protocols in the same order with the same metadata.
    pub fn matches(&self, protocols: &[Protocol]) -> bool {
        self.protocols == protocols
    }
}

/// What a change of a member's requests leaves to be answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Orphans {
    pub join: Option<ReplyToken>,
    pub sync: Option<ReplyToken>,
}

impl Members {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn contains(&self, member_id: &MemberId) -> bool {
        self.by_id.contains_key(member_id)
    }

    pub fn get(&self, member_id: &MemberId) -> Option<&Member> {
        self.by_id.get(member_id)
    }

    pub fn get_mut(&mut self, member_id: &MemberId) -> Option<&mut Member> {
        self.by_id.get_mut(member_id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.by_id.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.by_id.values_mut()
    }

    /// The ids of the members for which `is_wanted` holds.
    pub fn ids(&self, is_wanted: impl Fn(&Member) -> bool) -> Vec<MemberId> {
        self.iter().filter(|member| is_wanted(member)).map(|member| member.member_id.clone()).collect()
    }

    pub fn leader_id(&self) -> Option<&MemberId> {
        self.leader_id.as_ref()
    }

    pub fn is_leader(&self, member_id: &MemberId) -> bool {
        self.leader_id.as_ref() == Some(member_id)
    }

    /// Restores the leader that was stored, if it is a member.
    pub fn set_leader(&mut self, leader_id: Option<MemberId>) {
        if leader_id.as_ref().is_some_and(|leader_id| self.contains(leader_id)) {
            self.leader_id = leader_id;
        }
    }

    /// The member that holds a static id.
    pub fn static_member(&self, instance_id: &InstanceId) -> Option<&MemberId> {
        self.static_ids.get(instance_id)
    }

    pub fn awaiting_join_count(&self) -> usize {
        self.awaiting_join
    }

    /// Every member waits for the next generation and nobody is expected to come.
    pub fn all_joined(&self) -> bool {
        self.awaiting_join == self.by_id.len() && self.pending.is_empty()
    }

    pub fn rebalance_timeout_ms(&self) -> i64 {
        let longest = self.iter().map(|member| member.rebalance_timeout_ms).max();
        i64::from(longest.unwrap_or(0).max(0))
    }

    /// Adds a member that waits for the next generation, or, when it is restored from the log, for nothing.
    /// The first member leads.
    pub fn add(&mut self, mut member: Member, awaiting_join: Option<ReplyToken>) {
        member.awaiting_join = awaiting_join;
        self.awaiting_join += usize::from(awaiting_join.is_some());
        self.pending.remove(&member.member_id);
        if let Some(instance_id) = &member.group_instance_id {
            self.static_ids.insert(instance_id.clone(), member.member_id.clone());
        }
        self.leader_id.get_or_insert_with(|| member.member_id.clone());
        count_protocols(&mut self.supporters, &member.protocols);
        self.by_id.insert(member.member_id.clone(), member);
    }

    /// Removes a member; if it led, the oldest other one leads.
    pub fn remove(&mut self, member_id: &MemberId) -> Orphans {
        self.pending.remove(member_id);
        let Some(member) = self.by_id.shift_remove(member_id) else { return Orphans::default() };
        discount_protocols(&mut self.supporters, &member.protocols);
        self.awaiting_join -= usize::from(member.is_awaiting_join());
        if let Some(instance_id) = &member.group_instance_id {
            self.static_ids.remove(instance_id);
        }
        if self.is_leader(member_id) {
            self.leader_id = self.by_id.keys().next().cloned();
        }
        Orphans { join: member.awaiting_join, sync: member.awaiting_sync }
    }

    /// Gives a static member's place to its next incarnation, which keeps everything but the id.
    pub fn replace(&mut self, old_id: &MemberId, new_id: MemberId) -> Orphans {
        let Some((at, _, mut member)) = self.by_id.shift_remove_full(old_id) else {
            return Orphans::default();
        };
        let orphans = Orphans { join: member.awaiting_join.take(), sync: member.awaiting_sync.take() };
        self.awaiting_join -= usize::from(orphans.join.is_some());
        if self.is_leader(old_id) {
            self.leader_id = Some(new_id.clone());
        }
        if let Some(instance_id) = &member.group_instance_id {
            self.static_ids.insert(instance_id.clone(), new_id.clone());
        }
        member.member_id = new_id.clone();
        self.by_id.shift_insert(at, new_id, member);
        orphans
    }

    /// Takes over what a rejoining member says, and lets its request wait. Returns an earlier request that it
    /// replaces.
    pub fn rejoin(
        &mut self,
        member_id: &MemberId,
        protocols: Vec<Protocol>,
        rebalance_timeout_ms: i32,
        session_timeout_ms: i32,
        token: ReplyToken,
    ) -> Option<ReplyToken> {
        let member = self.by_id.get_mut(member_id)?;
        discount_protocols(&mut self.supporters, &member.protocols);
        member.protocols = owned(protocols);
        count_protocols(&mut self.supporters, &member.protocols);
        member.rebalance_timeout_ms = rebalance_timeout_ms;
        member.session_timeout_ms = session_timeout_ms;
        let replaced = member.awaiting_join.replace(token);
        self.awaiting_join += usize::from(replaced.is_none());
        replaced
    }

    /// Ends a member's wait for the next generation.
    pub fn take_join(&mut self, member_id: &MemberId) -> Option<ReplyToken> {
        let token = self.by_id.get_mut(member_id)?.awaiting_join.take();
        self.awaiting_join -= usize::from(token.is_some());
        token
    }

    /// Keeps the leader if it has rejoined, else lets any member that has rejoined lead. `false` = none has.
    pub fn elect_joined_leader(&mut self) -> bool {
        let leader = self.leader_id.as_ref().and_then(|leader_id| self.by_id.get(leader_id));
        if leader.is_some_and(Member::is_awaiting_join) {
            return true;
        }
        let joined = self.by_id.values().find(|member| member.is_awaiting_join());
        let Some(joined) = joined.map(|member| member.member_id.clone()) else { return false };
        self.leader_id = Some(joined);
        true
    }

    pub fn is_pending(&self, member_id: &MemberId) -> bool {
        self.pending.contains_key(member_id)
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub fn add_pending(&mut self, member_id: MemberId, deadline: Deadline) {
        self.pending.insert(member_id, deadline);
    }

    /// Forgets the ids that nobody came back with until `now`.
    pub fn expire_pending(&mut self, now: Deadline) -> Vec<MemberId> {
        self.pending.extract_if(|_, deadline| *deadline <= now).map(|(member_id, _)| member_id).collect()
    }

    /// The earliest moment at which a member or a pending id is given up.
    pub fn next_deadline(&self) -> Option<Deadline> {
        let sessions = self.iter().filter_map(|member| member.session_deadline);
        sessions.chain(self.pending.values().copied()).min()
    }

    /// Whether every member supports one of these protocols.
    pub fn support_one_of(&self, protocols: &[Protocol]) -> bool {
        protocols.iter().any(|protocol| self.is_common(&protocol.name))
    }

    /// The common protocol that most members prefer; of equally preferred ones the first voted for.
    pub fn select_protocol(&self) -> Option<ProtocolName> {
        let mut votes: IndexMap<&ProtocolName, usize> = IndexMap::new();
        for member in self.iter() {
            if let Some(choice) = member.protocols.iter().find(|protocol| self.is_common(&protocol.name)) {
                *votes.entry(&choice.name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.clone())
    }

    fn is_common(&self, protocol: &ProtocolName) -> bool {
        self.supporters.get(protocol).copied().unwrap_or(0) == self.by_id.len()
    }
}

/// Keeps nothing of the request's buffer. A name that a client lists twice would count as two supporters, so the
/// first one stands for both.
fn owned(protocols: Vec<Protocol>) -> Vec<Protocol> {
    let mut kept: Vec<Protocol> = Vec::with_capacity(protocols.len());
    for protocol in protocols {
        if kept.iter().all(|known| known.name != protocol.name) {
            kept.push(Protocol { name: protocol.name, metadata: Bytes::copy_from_slice(&protocol.metadata) });
        }
    }
    kept
}

fn count_protocols(supporters: &mut HashMap<ProtocolName, usize>, protocols: &[Protocol]) {
    for protocol in protocols {
        *supporters.entry(protocol.name.clone()).or_default() += 1;
    }
}

fn discount_protocols(supporters: &mut HashMap<ProtocolName, usize>, protocols: &[Protocol]) {
    for protocol in protocols {
        if let Some(count) = supporters.get_mut(&protocol.name) {
            *count -= 1;
            if *count == 0 {
                supporters.remove(&protocol.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocols(names: &str) -> Vec<Protocol> {
        names
            .split_whitespace()
            .map(|name| Protocol { name: name.into(), metadata: Bytes::from(name.to_owned()) })
            .collect()
    }

    fn members(supported: &[&str]) -> Members {
        let mut members = Members::default();
        for (at, names) in supported.iter().enumerate() {
            let member = Member::new(format!("m{at}").into(), None, protocols(names));
            members.add(member, Some(ReplyToken(at as u64)));
        }
        members
    }

    #[track_caller]
    fn check_choice(supported: &[&str], expected: Option<&str>) {
        let chosen = members(supported).select_protocol();
        assert_eq!(chosen.as_ref().map(|name| name.as_str()), expected);
    }

    #[test]
    fn the_most_preferred_common_protocol_is_selected() {
        check_choice(&[], None);
        check_choice(&["range"], Some("range"));
        check_choice(&["sticky range", "range sticky", "sticky range"], Some("sticky"));
        check_choice(&["sticky range", "range"], Some("range"));
        check_choice(&["a b c", "c b a", "b a"], Some("b"));
        check_choice(&["range range sticky", "sticky"], Some("sticky"));
    }

    #[test]
    fn a_newcomer_needs_a_protocol_that_all_support() {
        let members = members(&["sticky range", "range"]);
        assert!(members.support_one_of(&protocols("roundrobin range")));
        assert!(!members.support_one_of(&protocols("sticky")));
        assert!(!members.support_one_of(&[]));
    }

    #[test]
    fn removal_gives_the_lead_to_the_oldest_and_forgets_the_votes() {
        let mut members = members(&["range", "range sticky", "range sticky"]);
        assert!(members.is_leader(&"m0".into()));
        assert_eq!(members.remove(&"m0".into()), Orphans { join: Some(ReplyToken(0)), sync: None });
        assert!(members.is_leader(&"m1".into()));
        assert!(members.support_one_of(&protocols("sticky")));
        assert!(members.all_joined());
        members.take_join(&"m1".into());
        assert!(!members.all_joined());
        assert!(members.elect_joined_leader() && members.is_leader(&"m2".into()));
        members.take_join(&"m2".into());
        assert!(!members.elect_joined_leader());
    }

    #[test]
    fn a_replaced_static_member_keeps_its_place_and_lead() {
        let mut members = members(&["range"]);
        let member = Member::new("s-1".into(), Some("s".into()), protocols("range"));
        members.add(member, Some(ReplyToken(7)));
        members.remove(&"m0".into());
        assert_eq!(members.replace(&"s-1".into(), "s-2".into()).join, Some(ReplyToken(7)));
        assert!(members.is_leader(&"s-2".into()) && !members.contains(&"s-1".into()));
        assert_eq!(members.static_member(&"s".into()), Some(&"s-2".into()));
        assert_eq!(members.awaiting_join_count(), 0);
    }
}
