use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::fetcher::{Assignment, AssignmentStatus, Fetcher};
use super::following::Following;
use super::{Partition, ReplicaManager, RoleChange};
use crate::interbroker::RequestVersions;
use crate::metadata::Cache;
use crate::model::{BrokerId, TopicPartition};
use crate::runtime::Clock;
use crate::runtime::net::Network;
use crate::runtime::task::{self, Shutdown};

/// How followers fetch, from the settings.
#[derive(Clone, Debug)]
pub struct FetcherOptions {
    pub network: Network,
    /// The listener that brokers use among themselves.
    pub listener: String,
    /// `num.replica.fetchers`: connections to each leader.
    pub fetchers_per_leader: usize,
    /// `replica.fetch.wait.max.ms`.
    pub wait_max_ms: i32,
    /// `replica.fetch.min.bytes`.
    pub bytes_min: i32,
    /// `replica.fetch.response.max.bytes`.
    pub response_bytes_max: i32,
    /// `replica.fetch.max.bytes`.
    pub partition_bytes_max: i32,
    /// `replica.fetch.backoff.ms`.
    pub backoff: Duration,
    /// `replica.socket.timeout.ms`.
    pub request_timeout: Duration,
    pub versions: RequestVersions,
}

/// Everything that this broker fetches from leaders.
///
/// A partition always goes to the same of a leader's fetchers. Fetchers start with their first partition and stay, as
/// leaders come back.
pub struct Fetchers {
    parts: Parts,
    per_leader: AtomicUsize,
    fetchers: Mutex<HashMap<FetcherKey, Arc<Assignment>>>,
}

/// What each fetcher is built of.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) me: BrokerId,
    pub(super) options: Arc<FetcherOptions>,
    pub(super) replicas: Arc<ReplicaManager>,
    pub(super) metadata: Arc<Cache>,
    pub(super) clock: Clock,
    pub(super) shutdown: Shutdown,
}

/// One fetcher, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetcherStatus {
    pub leader: BrokerId,
    /// Among those of the leader.
    pub index: usize,
    pub assignment: AssignmentStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FetcherKey {
    pub(super) leader: BrokerId,
    pub(super) index: usize,
}

impl Fetchers {
    pub fn new(
        options: FetcherOptions,
        replicas: Arc<ReplicaManager>,
        metadata: Arc<Cache>,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Fetchers {
        let me = replicas.broker_id();
        let parts = Parts { me, options: Arc::new(options), replicas, metadata, clock, shutdown };
        let per_leader = AtomicUsize::new(parts.options.fetchers_per_leader);
        Fetchers { parts, per_leader, fetchers: Mutex::default() }
    }

    /// Fetches what is followed from now on, and no longer what is led.
    pub fn apply(&self, changes: &[RoleChange]) {
        let changed: Vec<&TopicPartition> = changes.iter().map(|change| &change.topic_partition).collect();
        self.stop(changed.iter().copied());
        for change in changes.iter().filter(|change| !change.is_leader && change.leader != BrokerId::NONE) {
            let of = &change.topic_partition;
            // Taken away again meanwhile.
            let Ok(partition) = self.parts.replicas.partition(&of.topic, of.partition) else { continue };
            let following = Following { leader: change.leader, leader_epoch: change.leader_epoch };
            self.follow(partition, following);
        }
    }

    fn follow(&self, partition: Arc<Partition>, following: Following) {
        let count = self.per_leader.load(Ordering::Relaxed).max(1);
        let index = fetcher_index(partition.topic_partition(), count);
        let key = FetcherKey { leader: following.leader, index };
        let assignment = {
            let mut fetchers = self.fetchers.lock();
            let start = || {
                let assignment = Arc::new(Assignment::default());
                let fetcher = Fetcher::new(self.parts.clone(), key, Arc::clone(&assignment));
                task::spawn_owner("replica fetcher", fetcher.run());
                assignment
            };
            Arc::clone(fetchers.entry(key).or_insert_with(start))
        };
        assignment.add(partition, following);
    }

    /// What each fetcher is at; none of those without partitions.
    pub fn status(&self) -> Vec<FetcherStatus> {
        let fetchers = self.fetchers.lock();
        let all = fetchers.iter().map(|(key, assignment)| FetcherStatus {
            leader: key.leader,
            index: key.index,
            assignment: assignment.status(),
        });
        all.filter(|status| status.assignment.partitions > 0).collect()
    }

    /// Spreads partitions over another number of connections to each leader.
    pub fn change_count(&self, per_leader: usize) {
        if self.per_leader.swap(per_leader, Ordering::Relaxed) == per_leader {
            return;
        }
        let all: Vec<Arc<Assignment>> = self.fetchers.lock().values().cloned().collect();
        for (partition, following) in all.iter().flat_map(|assignment| assignment.take()) {
            self.follow(partition, following);
        }
    }

    /// Fetches these no longer.
    pub fn stop<'a>(&self, partitions: impl Iterator<Item = &'a TopicPartition> + Clone) {
        let all: Vec<Arc<Assignment>> = self.fetchers.lock().values().cloned().collect();
        for assignment in all {
            assignment.remove(partitions.clone());
        }
    }
}

/// Java's hash of the topic's name, as Kafka spreads partitions over fetchers.
fn fetcher_index(of: &TopicPartition, count: usize) -> usize {
    let hash = of
        .topic
        .as_str()
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    let spread = hash.wrapping_mul(31).wrapping_add(of.partition.0);
    spread.unsigned_abs() as usize % count
}
