//! What a leader knows of its followers, and what follows from it: the high watermark and the ISR.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::info;

use super::error::{NotLeaderOrFollowerSnafu, UnknownLeaderEpochSnafu};
use super::isr::Progress;
use super::partition::Role;
use super::throttle::Throttles;
use super::{Partition, ReplicaError};
use crate::metadata::Cache;
use crate::metadata::control::{IsrMember, LeaderAndIsr};
use crate::model::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, Timestamp, TopicId, TopicPartition};
use crate::purgatory::Changes;

/// What the partitions of a broker share.
pub(super) struct Replication {
    pub(super) metadata: Arc<Cache>,
    /// `replica.lag.time.max.ms`.
    pub(super) lag_max_ms: AtomicI64,
    pub(super) throttles: Throttles,
    pub(super) proposals: Proposals,
    pub(super) isr_changes: IsrChanges,
    /// Counts the requests of controllers by which this broker began to lead something.
    pub(super) leaderships: watch::Sender<u64>,
}

/// How often ISRs that are led here changed at their leader's wish.
#[derive(Debug, Default)]
pub struct IsrChanges {
    shrinks: AtomicU64,
    expands: AtomicU64,
}

impl IsrChanges {
    pub fn shrinks(&self) -> u64 {
        self.shrinks.load(Ordering::Relaxed)
    }

    pub fn expands(&self) -> u64 {
        self.expands.load(Ordering::Relaxed)
    }

    fn count(&self, before: usize, after: usize) {
        match after.cmp(&before) {
            std::cmp::Ordering::Less => self.shrinks.fetch_add(1, Ordering::Relaxed),
            std::cmp::Ordering::Greater => self.expands.fetch_add(1, Ordering::Relaxed),
            std::cmp::Ordering::Equal => 0,
        };
    }
}

/// The partitions that propose another ISR, until somebody asks the controller for it. Each stands in it once, so that
/// it is bounded by the partitions.
#[derive(Default)]
pub(super) struct Proposals {
    partitions: Mutex<HashSet<TopicPartition>>,
    added: Notify,
}

/// The ISR that a leader proposes, with the state that it is a change of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrProposal {
    pub topic_partition: TopicPartition,
    /// Zero = none.
    pub topic_id: TopicId,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: i32,
    pub isr: Vec<IsrMember>,
}

impl IsrProposal {
    pub fn replicas(&self) -> Vec<BrokerId> {
        self.isr.iter().map(|member| member.id).collect()
    }
}

/// A follower's fetch of one partition.
#[derive(Clone, Copy, Debug)]
pub struct FollowerProgress {
    pub replica: BrokerId,
    /// The registration under which it asks; `None` = it does not tell.
    pub broker_epoch: Option<BrokerEpoch>,
    pub fetch_offset: Offset,
    pub log_start_offset: Offset,
    /// The leader's log end when the fetch was read.
    pub leader_end: Offset,
}

impl Proposals {
    pub(super) fn add(&self, partition: &TopicPartition) {
        self.partitions.lock().insert(partition.clone());
        self.added.notify_one();
    }

    /// All that stand here; waits for the first.
    pub(super) async fn take(&self) -> HashSet<TopicPartition> {
        loop {
            let taken = std::mem::take(&mut *self.partitions.lock());
            if !taken.is_empty() {
                return taken;
            }
            self.added.notified().await;
        }
    }
}

impl Partition {
    /// Refuses fetches of brokers that are no replicas of this partition.
    pub fn check_follower(
        &self,
        replica: BrokerId,
        current_leader_epoch: LeaderEpoch,
    ) -> Result<(), ReplicaError> {
        let role = self.role();
        if role.replicas.contains(&replica) {
            return Ok(());
        }
        // With an epoch the follower has heard of an assignment that this leader has not.
        if current_leader_epoch == LeaderEpoch::UNKNOWN {
            return NotLeaderOrFollowerSnafu.fail();
        }
        let current = role.leader_epoch;
        UnknownLeaderEpochSnafu { requested: current_leader_epoch, current }.fail()
    }

    /// Whether what this follower fetches is throttled and more than it may be: it gets nothing now, unless it is in
    /// sync.
    pub fn is_held_back(&self, replica: BrokerId, now: Timestamp) -> bool {
        self.is_throttled_as_leader()
            && !self.role.load().isr.contains(&replica)
            && self.replication.throttles.leader.is_exceeded(now)
    }

    pub fn is_throttled_as_leader(&self) -> bool {
        self.settings.load().throttled_as_leader.contains(self.topic_partition.partition)
    }

    /// Notes how far a follower is. Moves the high watermark and proposes the follower for the ISR where that follows.
    pub fn record_follower(&self, progress: &FollowerProgress, now: Timestamp) {
        let _shared = self.leadership.read();
        let role = self.role.load();
        if !role.is_leader {
            return;
        }
        let FollowerProgress { replica, broker_epoch, fetch_offset, log_start_offset, leader_end } =
            *progress;
        let is_alive = self.replication.metadata.image().broker(replica).is_some();
        let (joins, starts_elsewhere) = {
            let mut in_sync = self.in_sync.lock();
            let known = in_sync.follower(replica).map(|follower| follower.log_start_offset);
            let progress = Progress { broker_epoch, fetch_offset, log_start_offset, at: now, leader_end };
            if !in_sync.record(replica, &progress) {
                return;
            }
            let high_watermark = self.log().high_watermark();
            let joins = in_sync.propose_join(replica, high_watermark, role.epoch_start_offset, is_alive);
            (joins, known != Some(log_start_offset))
        };
        if let Some(isr) = joins {
            self.proposed(&role, &isr);
        }
        if self.advance_high_watermark(&role, now) {
            self.watchers.wake(Changes::HIGH_WATERMARK);
        }
        if starts_elsewhere {
            self.watchers.wake(Changes::LOG_START);
        }
    }

    /// Moves the high watermark to what all replicas that count have; answers whether it moved. The caller holds the
    /// leadership.
    pub(super) fn advance_high_watermark(&self, role: &Role, now: Timestamp) -> bool {
        if !role.is_leader {
            return false;
        }
        let leader_end = self.log().log_end_offset();
        if role.replicas.len() <= 1 {
            return self.log().advance_high_watermark(leader_end);
        }
        // Fewer replicas than must acknowledge: nothing becomes visible that a failure could take back.
        if role.isr.len() < self.effective_min_insync_replicas(role) {
            return false;
        }
        let lag_max_ms = self.replication.lag_max_ms.load(Ordering::Relaxed);
        let is_alive = |id| self.replication.metadata.image().broker(id).is_some();
        let to = self.in_sync.lock().high_watermark(leader_end, now, lag_max_ms, is_alive);
        self.log().advance_high_watermark(to)
    }

    /// `min.insync.replicas`, but no more than there are replicas.
    pub(super) fn effective_min_insync_replicas(&self, role: &Role) -> usize {
        self.settings.load().min_insync_replicas.min(role.replicas.len())
    }

    /// How many replicas in sync there are beyond those that must acknowledge, negative = too few; `None` where
    /// another broker leads.
    pub fn isr_margin(&self) -> Option<isize> {
        let role = self.role.load();
        let margin = role.isr.len().cast_signed() - self.effective_min_insync_replicas(&role).cast_signed();
        role.is_leader.then_some(margin)
    }

    /// Led here, and nobody else is in sync.
    pub fn is_alone(&self) -> bool {
        let role = self.role.load();
        role.is_leader && role.isr.len() <= 1
    }

    /// Proposes that followers which fell behind leave the ISR.
    pub(super) fn shrink_isr(&self, now: Timestamp) {
        let _shared = self.leadership.read();
        let role = self.role.load();
        if !role.is_leader || role.isr.len() <= 1 {
            return;
        }
        let lag_max_ms = self.replication.lag_max_ms.load(Ordering::Relaxed);
        let leader_end = self.log().log_end_offset();
        let left = self.in_sync.lock().propose_leave(leader_end, now, lag_max_ms);
        if let Some(isr) = left {
            self.proposed(&role, &isr);
        }
    }

    fn proposed(&self, role: &Role, isr: &[BrokerId]) {
        let TopicPartition { topic, partition } = &self.topic_partition;
        info!(%topic, partition = partition.0, leader_epoch = role.leader_epoch.0, from = ?role.isr, to = ?isr,
            "proposing another ISR");
        self.replication.proposals.add(&self.topic_partition);
    }

    /// What to ask the controller for; `None` when the change is void.
    pub(super) fn proposal(&self) -> Option<IsrProposal> {
        let role = self.role.load();
        let isr = self.in_sync.lock().pending()?.to_vec();
        role.is_leader.then(|| IsrProposal {
            topic_partition: self.topic_partition.clone(),
            topic_id: self.topic_id(),
            leader_epoch: role.leader_epoch,
            partition_epoch: role.partition_epoch,
            isr,
        })
    }

    /// Takes the state that the controller stored. One of another leadership, or older than the known one, is late.
    pub(super) fn isr_altered(&self, state: &LeaderAndIsr, now: Timestamp) {
        let _exclusive = self.leadership.write();
        let mut role = Role::clone(&self.role.load());
        let is_late = state.leader_epoch != role.leader_epoch || state.partition_epoch < role.partition_epoch;
        if !role.is_leader || is_late {
            return;
        }
        let TopicPartition { topic, partition } = &self.topic_partition;
        info!(%topic, partition = partition.0, leader_epoch = role.leader_epoch.0, isr = ?state.isr,
            "the ISR changed");
        self.replication.isr_changes.count(role.isr.len(), state.isr.len());
        role.isr = state.isr.clone();
        role.partition_epoch = state.partition_epoch;
        self.in_sync.lock().commit(state.isr.clone());
        let role = Arc::new(role);
        self.role.store(Arc::clone(&role));
        self.advance_high_watermark(&role, now);
        self.watchers.wake_all();
    }

    /// The controller will not make this change.
    pub(super) fn isr_refused(&self, leader_epoch: LeaderEpoch) {
        let _shared = self.leadership.read();
        if self.role.load().leader_epoch == leader_epoch {
            self.in_sync.lock().abandon();
        }
    }

    /// The in-sync replica in the reader's rack that has most of what it wants; `None` = the leader, which is this
    /// broker (KIP-392).
    pub fn preferred_read_replica(&self, rack: &str, fetch_offset: Offset) -> Option<BrokerId> {
        let role = self.role.load();
        if !role.is_leader {
            return None;
        }
        let image = self.replication.metadata.image();
        let is_near =
            |id: BrokerId| image.broker(id).is_some_and(|broker| broker.rack.as_deref() == Some(rack));
        if is_near(role.leader) {
            return None;
        }
        let in_sync = self.in_sync.lock();
        let near = in_sync.followers().iter().filter(|(id, follower)| {
            let has_offset =
                follower.log_start_offset <= fetch_offset && fetch_offset <= follower.log_end_offset;
            role.isr.contains(id) && has_offset && is_near(*id)
        });
        let best = near.max_by_key(|(_, follower)| (follower.log_end_offset, follower.last_caught_up));
        best.map(|(id, _)| *id)
    }

    /// The least log start of the replicas that live: what DeleteRecords waits for.
    pub fn low_watermark(&self) -> Offset {
        let image = self.replication.metadata.image();
        let in_sync = self.in_sync.lock();
        let followers = in_sync.followers().iter().filter(|(id, _)| image.broker(*id).is_some());
        let starts = followers.map(|(_, follower)| follower.log_start_offset);
        starts.chain([self.log().log_start_offset()]).min().unwrap_or(Offset::ZERO)
    }
}
