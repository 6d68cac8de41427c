use std::sync::Arc;

use parking_lot::Mutex;

use crate::group::{GroupService, OFFSETS_TOPIC};
use crate::metadata::control::{ControlOutcome, ControlRefusal, LeaderAndIsrRequest, StopReplicaRequest};
use crate::model::{LeaderEpoch, Timestamp, TopicPartition};
use crate::replica::{Fetchers, ReplicaManager, RoleChange};
use crate::txn::{TRANSACTION_STATE_TOPIC, TxnService};

/// Who has to know what this broker leads and follows: replicas first, then fetchers and coordinators.
///
/// Changes are told to all of them before the next one is made, lest a fetcher is left with an older role than its
/// replica. The methods wait for the disk.
pub(super) struct Roles {
    pub(super) replicas: Arc<ReplicaManager>,
    pub(super) fetchers: Arc<Fetchers>,
    pub(super) groups: Arc<GroupService>,
    pub(super) transactions: Arc<TxnService>,
    pub(super) turn: Mutex<()>,
}

type Outcomes = Vec<(TopicPartition, ControlOutcome)>;

impl Roles {
    pub(super) fn lead_and_follow(
        &self,
        request: &LeaderAndIsrRequest,
        now: Timestamp,
    ) -> Result<Outcomes, ControlRefusal> {
        let _turn = self.turn.lock();
        let reply = self.replicas.become_leader_or_follower(request, now)?;
        self.tell(&reply.changes);
        Ok(reply.outcomes)
    }

    pub(super) fn stop(
        &self,
        request: &StopReplicaRequest,
        now: Timestamp,
    ) -> Result<Outcomes, ControlRefusal> {
        let _turn = self.turn.lock();
        let outcomes = self.replicas.stop_replicas(request, now)?;
        // What was refused goes on being fetched.
        let is_stopped = |outcome: &ControlOutcome| *outcome != ControlOutcome::StaleLeaderEpoch;
        let stopped = outcomes.iter().filter(|(_, outcome)| is_stopped(outcome));
        self.fetchers.stop(stopped.map(|(topic_partition, _)| topic_partition));
        for ((of, outcome), stop) in outcomes.iter().zip(&request.partitions) {
            if *outcome == ControlOutcome::Done {
                self.resign(of, Some(stop.leader_epoch).filter(|epoch| epoch.0 >= 0));
            }
        }
        Ok(outcomes)
    }

    /// Gives partitions the roles that waited for their logs. Answers those that cannot take them, of which the
    /// controller believes that all is well.
    pub(super) fn logs_loaded(
        &self,
        topic_partitions: &[TopicPartition],
        now: Timestamp,
    ) -> Vec<TopicPartition> {
        let _turn = self.turn.lock();
        let reply = self.replicas.logs_loaded(topic_partitions, now);
        self.tell(&reply.changes);
        let failed =
            reply.outcomes.into_iter().filter(|(_, outcome)| *outcome == ControlOutcome::StorageError);
        failed.map(|(topic_partition, _)| topic_partition).collect()
    }

    /// Lets go of the replicas in log directories that failed; answers how many they were.
    pub(super) fn drop_offline_replicas(&self) -> usize {
        let _turn = self.turn.lock();
        let dropped = self.replicas.drop_offline_replicas();
        self.tell(&dropped);
        dropped.len()
    }

    fn tell(&self, changes: &[RoleChange]) {
        // First: two brokers should not answer for a group for longer than it takes the news to reach both.
        for change in changes {
            self.tell_coordinators(change);
        }
        self.fetchers.apply(changes);
    }

    fn tell_coordinators(&self, change: &RoleChange) {
        let (partition, epoch) = (change.topic_partition.partition, change.leader_epoch);
        match change.topic_partition.topic.as_str() {
            _ if !change.is_leader => self.resign(&change.topic_partition, Some(epoch)),
            OFFSETS_TOPIC => self.groups.on_elected(partition, epoch),
            TRANSACTION_STATE_TOPIC => self.transactions.on_elected(partition, epoch),
            _ => {}
        }
    }

    /// `None` = the topic is gone, and epochs with it.
    fn resign(&self, of: &TopicPartition, leader_epoch: Option<LeaderEpoch>) {
        match of.topic.as_str() {
            OFFSETS_TOPIC => self.groups.on_resigned(of.partition, leader_epoch),
            TRANSACTION_STATE_TOPIC => self.transactions.on_resigned(of.partition, leader_epoch),
            _ => {}
        }
    }
}
