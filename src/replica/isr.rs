//! Which replicas have what the leader has: followers' positions, the ISR and its changes, the high watermark. Pure.

use crate::metadata::control::IsrMember;
use crate::model::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, Timestamp};

/// How far a follower is, as its fetches tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Everything below is on it. `-1` until its first fetch in this leadership.
    pub log_end_offset: Offset,
    pub log_start_offset: Offset,
    /// The registration under which it has that; `None` = its fetches do not tell.
    broker_epoch: Option<BrokerEpoch>,
    /// When it last had everything that the leader had.
    pub last_caught_up: Timestamp,
    /// The leader's log end and the time of the fetch before: what it will have had when it fetches next.
    leader_end_at_last_fetch: Offset,
    last_fetch: Timestamp,
}

/// One fetch of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// `None` = the fetch does not tell.
    pub broker_epoch: Option<BrokerEpoch>,
    pub fetch_offset: Offset,
    pub log_start_offset: Offset,
    pub at: Timestamp,
    /// The leader's log end when the fetch was read.
    pub leader_end: Offset,
}

/// The followers of a partition that is led here, and who of them is in sync.
///
/// A change of the ISR is *pending* from the moment it is proposed until the controller has answered. While it is,
/// both the old and the new members count for the high watermark: either of the two may be what stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InSync {
    me: BrokerId,
    committed: Vec<BrokerId>,
    pending: Option<Vec<IsrMember>>,
    /// By id. There are few, of ten thousand partitions: a tree's first node has room for eleven.
    followers: Box<[(BrokerId, Follower)]>,
    leader_epoch: LeaderEpoch,
}

impl Follower {
    /// A replica that has not fetched yet in this leadership. A member of the ISR counts as caught up now, so that
    /// it gets its time to fetch.
    fn unknown(is_in_sync: bool, now: Timestamp) -> Follower {
        Follower {
            log_end_offset: Offset::NONE,
            log_start_offset: Offset::NONE,
            broker_epoch: None,
            last_caught_up: if is_in_sync { now } else { Timestamp(0) },
            leader_end_at_last_fetch: Offset::ZERO,
            last_fetch: Timestamp(0),
        }
    }

    fn advance(&mut self, progress: &Progress) {
        if progress.fetch_offset >= progress.leader_end {
            self.last_caught_up = self.last_caught_up.max(progress.at);
        } else if progress.fetch_offset >= self.leader_end_at_last_fetch {
            // It has what there was at its last fetch: only what came since is missing.
            self.last_caught_up = self.last_caught_up.max(self.last_fetch);
        }
        self.broker_epoch = progress.broker_epoch;
        self.log_end_offset = progress.fetch_offset;
        self.log_start_offset = progress.log_start_offset;
        self.leader_end_at_last_fetch = progress.leader_end;
        self.last_fetch = progress.at;
    }

    pub fn is_caught_up(&self, leader_end: Offset, now: Timestamp, lag_max_ms: i64) -> bool {
        self.log_end_offset == leader_end || now.since_ms(self.last_caught_up) <= lag_max_ms
    }
}

impl InSync {
    /// Takes the state that a controller sent. A new leadership knows nothing of its followers; within one they keep
    /// their positions. A pending change is void: the controller has decided otherwise, or has not seen it.
    pub fn take_role(
        &mut self,
        me: BrokerId,
        leader_epoch: LeaderEpoch,
        isr: &[BrokerId],
        replicas: &[BrokerId],
        now: Timestamp,
    ) {
        let known = match self.leader_epoch == leader_epoch && self.me == me {
            true => std::mem::take(&mut self.followers),
            false => Box::default(),
        };
        let mut others: Vec<BrokerId> = replicas.iter().copied().filter(|&id| id != me).collect();
        others.sort_unstable();
        others.dedup();
        let followers = others.into_iter().map(|id| {
            let unknown = Follower::unknown(isr.contains(&id), now);
            (id, find(&known, id).copied().unwrap_or(unknown))
        });
        self.followers = followers.collect();
        self.me = me;
        self.leader_epoch = leader_epoch;
        self.committed = isr.to_vec();
        self.pending = None;
    }

    /// This broker does not lead any more.
    pub fn clear(&mut self) {
        *self = InSync::default();
    }

    /// By id.
    pub fn followers(&self) -> &[(BrokerId, Follower)] {
        &self.followers
    }

    pub fn follower(&self, id: BrokerId) -> Option<&Follower> {
        find(&self.followers, id)
    }

    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The ISR that was proposed and not answered yet.
    pub fn pending(&self) -> Option<&[IsrMember]> {
        self.pending.as_deref()
    }

    /// How many replicas acknowledge at the least, whichever of the ISRs stands.
    pub fn maximal_count(&self) -> usize {
        let new = self.pending.iter().flatten().filter(|member| !self.committed.contains(&member.id)).count();
        self.committed.len() + new
    }

    fn is_in_maximal(&self, id: BrokerId) -> bool {
        self.committed.contains(&id) || self.pending.iter().flatten().any(|member| member.id == id)
    }

    /// Notes a fetch. `false` = the replica is not one of this partition's, or has been registered anew since it asked.
    pub fn record(&mut self, replica: BrokerId, progress: &Progress) -> bool {
        let Some((_, follower)) = self.followers.iter_mut().find(|(id, _)| *id == replica) else {
            return false;
        };
        let is_late = progress.broker_epoch.is_some() && progress.broker_epoch < follower.broker_epoch;
        if !is_late {
            follower.advance(progress);
        }
        !is_late
    }

    /// Under the registrations that the members' last fetches told of: a change that is asked for later must not take in who
    /// has come back meanwhile.
    fn propose(&mut self, isr: &[BrokerId]) {
        let epoch_of = |id: BrokerId| self.follower(id).and_then(|follower| follower.broker_epoch);
        let member = |&id: &BrokerId| IsrMember { id, broker_epoch: epoch_of(id) };
        self.pending = Some(isr.iter().map(member).collect());
    }

    /// Everything below is on all replicas that count: those in the ISR, and those that are about to join it, so that
    /// they need not catch up with a mark that runs ahead of them.
    pub fn high_watermark(
        &self,
        leader_end: Offset,
        now: Timestamp,
        lag_max_ms: i64,
        is_alive: impl Fn(BrokerId) -> bool,
    ) -> Offset {
        let counts = |(id, follower): &&(BrokerId, Follower)| {
            self.is_in_maximal(*id) || (follower.is_caught_up(leader_end, now, lag_max_ms) && is_alive(*id))
        };
        let counted = self.followers.iter().filter(counts);
        counted.map(|(_, follower)| follower.log_end_offset).min().unwrap_or(leader_end).min(leader_end)
    }

    /// Proposes that a follower joins, when it has everything below the high watermark and all that this leadership
    /// began with.
    pub fn propose_join(
        &mut self,
        replica: BrokerId,
        high_watermark: Offset,
        epoch_start: Offset,
        is_alive: bool,
    ) -> Option<Vec<BrokerId>> {
        if self.is_pending() || self.committed.contains(&replica) || !is_alive {
            return None;
        }
        let end = self.follower(replica)?.log_end_offset;
        if end < high_watermark || end < epoch_start {
            return None;
        }
        let mut isr = self.committed.clone();
        isr.push(replica);
        self.propose(&isr);
        Some(isr)
    }

    /// Proposes that followers which fell behind leave.
    pub fn propose_leave(
        &mut self,
        leader_end: Offset,
        now: Timestamp,
        lag_max_ms: i64,
    ) -> Option<Vec<BrokerId>> {
        if self.is_pending() {
            return None;
        }
        let is_behind = |id: &BrokerId| {
            self.follower(*id).is_some_and(|follower| !follower.is_caught_up(leader_end, now, lag_max_ms))
        };
        let isr: Vec<BrokerId> = self.committed.iter().copied().filter(|id| !is_behind(id)).collect();
        if isr.len() == self.committed.len() {
            return None;
        }
        self.propose(&isr);
        Some(isr)
    }

    /// The controller has stored this ISR.
    pub fn commit(&mut self, isr: Vec<BrokerId>) {
        self.committed = isr;
        self.pending = None;
    }

    /// The controller refused, and will not store the change later either.
    pub fn abandon(&mut self) {
        self.pending = None;
    }
}

fn find(followers: &[(BrokerId, Follower)], id: BrokerId) -> Option<&Follower> {
    followers.iter().find(|(known, _)| *known == id).map(|(_, follower)| follower)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG_MAX_MS: i64 = 100;
    const EPOCH: LeaderEpoch = LeaderEpoch(3);

    fn ids(numbers: &[i32]) -> Vec<BrokerId> {
        numbers.iter().copied().map(BrokerId).collect()
    }

    fn leading(isr: &[i32]) -> InSync {
        let mut in_sync = InSync::default();
        in_sync.take_role(BrokerId(1), EPOCH, &ids(isr), &ids(&[1, 2, 3]), Timestamp(1_000));
        in_sync
    }

    fn fetch(in_sync: &mut InSync, replica: i32, offset: i64, at: i64, leader_end: i64) {
        let progress = Progress {
            broker_epoch: None,
            fetch_offset: Offset(offset),
            log_start_offset: Offset::ZERO,
            at: Timestamp(at),
            leader_end: Offset(leader_end),
        };
        assert!(in_sync.record(BrokerId(replica), &progress));
    }

    fn high_watermark(in_sync: &InSync, leader_end: i64, now: i64) -> i64 {
        in_sync.high_watermark(Offset(leader_end), Timestamp(now), LAG_MAX_MS, |_| true).0
    }

    #[test]
    fn the_high_watermark_is_the_least_end_of_the_isr() {
        let mut in_sync = leading(&[1, 2, 3]);
        assert_eq!(high_watermark(&in_sync, 10, 1_000), -1);
        fetch(&mut in_sync, 2, 10, 1_001, 10);
        fetch(&mut in_sync, 3, 7, 1_001, 10);
        assert_eq!(high_watermark(&in_sync, 10, 1_001), 7);
    }

    #[test]
    fn a_replica_about_to_join_is_waited_for_while_it_keeps_up() {
        let mut in_sync = leading(&[1, 2]);
        fetch(&mut in_sync, 2, 10, 1_001, 10);
        assert_eq!(high_watermark(&in_sync, 10, 1_001), 10);
        fetch(&mut in_sync, 3, 9, 1_001, 9);
        assert_eq!(high_watermark(&in_sync, 10, 1_050), 9);
        assert_eq!(high_watermark(&in_sync, 10, 1_102), 10);
    }

    #[test]
    fn a_follower_that_has_what_there_was_at_its_last_fetch_keeps_up() {
        let mut in_sync = leading(&[1, 2]);
        fetch(&mut in_sync, 2, 5, 2_000, 10);
        fetch(&mut in_sync, 2, 10, 2_090, 20);
        assert_eq!(in_sync.follower(BrokerId(2)).unwrap().last_caught_up, Timestamp(2_000));
        assert_eq!(in_sync.propose_leave(Offset(20), Timestamp(2_100), LAG_MAX_MS), None);
        let left = in_sync.propose_leave(Offset(20), Timestamp(2_101), LAG_MAX_MS);
        assert_eq!(left, Some(ids(&[1])));
    }

    #[test]
    fn a_follower_joins_at_the_high_watermark_and_past_the_epochs_start() {
        let mut in_sync = leading(&[1, 2]);
        fetch(&mut in_sync, 3, 8, 1_000, 10);
        let (three, alive) = (BrokerId(3), true);
        assert_eq!(in_sync.propose_join(three, Offset(9), Offset::ZERO, alive), None);
        assert_eq!(in_sync.propose_join(three, Offset(8), Offset(9), alive), None);
        assert_eq!(in_sync.propose_join(three, Offset(8), Offset(8), false), None);
        assert_eq!(in_sync.propose_join(three, Offset(8), Offset(8), alive), Some(ids(&[1, 2, 3])));
        assert_eq!(in_sync.propose_join(three, Offset(8), Offset(8), alive), None, "one change at a time");
    }

    #[test]
    fn pending_members_and_leavers_count_until_the_controller_has_answered() {
        let mut in_sync = leading(&[1, 2]);
        fetch(&mut in_sync, 2, 10, 1_000, 10);
        fetch(&mut in_sync, 3, 8, 1_000, 10);
        in_sync.propose_join(BrokerId(3), Offset(8), Offset::ZERO, true);
        assert_eq!((in_sync.maximal_count(), high_watermark(&in_sync, 10, 9_000)), (3, 8));
        in_sync.abandon();
        assert_eq!((in_sync.maximal_count(), high_watermark(&in_sync, 10, 9_000)), (2, 10));

        let left = in_sync.propose_leave(Offset(12), Timestamp(9_000), LAG_MAX_MS);
        assert_eq!(left, Some(ids(&[1])));
        assert_eq!((in_sync.maximal_count(), high_watermark(&in_sync, 12, 9_000)), (2, 10));
        in_sync.commit(ids(&[1]));
        assert_eq!((in_sync.maximal_count(), high_watermark(&in_sync, 12, 9_000)), (1, 12));
    }

    #[test]
    fn positions_outlive_a_change_within_the_leadership_only() {
        let mut in_sync = leading(&[1, 2, 3]);
        fetch(&mut in_sync, 2, 10, 1_000, 10);
        let all = ids(&[1, 2, 3]);
        in_sync.take_role(BrokerId(1), EPOCH, &ids(&[1, 2]), &all, Timestamp(2_000));
        assert_eq!(in_sync.follower(BrokerId(2)).unwrap().log_end_offset, Offset(10));
        in_sync.take_role(BrokerId(1), LeaderEpoch(4), &all, &all, Timestamp(3_000));
        assert_eq!(in_sync.follower(BrokerId(2)).unwrap().log_end_offset, Offset::NONE);
        assert_eq!(in_sync.propose_leave(Offset(10), Timestamp(3_100), LAG_MAX_MS), None);
    }

    /// Found by the simulation: a proposal waited for a controller while the follower lost power and came back empty, and
    /// was stored then (KIP-903).
    #[test]
    fn a_member_is_proposed_as_it_was_registered_when_it_fetched() {
        let progress = |epoch, offset| Progress {
            broker_epoch: Some(BrokerEpoch(epoch)),
            fetch_offset: Offset(offset),
            log_start_offset: Offset::ZERO,
            at: Timestamp(1_000),
            leader_end: Offset(10),
        };
        let mut in_sync = leading(&[1]);
        assert!(in_sync.record(BrokerId(3), &progress(40, 10)));
        in_sync.propose_join(BrokerId(3), Offset(10), Offset::ZERO, true);
        assert!(in_sync.record(BrokerId(3), &progress(70, 0)));
        assert!(!in_sync.record(BrokerId(3), &progress(40, 10)), "of its earlier life");
        assert_eq!(in_sync.follower(BrokerId(3)).unwrap().log_end_offset, Offset(0));
        let joining = IsrMember { id: BrokerId(3), broker_epoch: Some(BrokerEpoch(40)) };
        assert_eq!(in_sync.pending(), Some([BrokerId(1).into(), joining].as_slice()));
    }

    #[test]
    fn others_are_no_followers() {
        let progress = Progress {
            broker_epoch: None,
            fetch_offset: Offset(1),
            log_start_offset: Offset(0),
            at: Timestamp(1),
            leader_end: Offset(1),
        };
        assert!(!leading(&[1]).record(BrokerId(9), &progress));
    }
}
