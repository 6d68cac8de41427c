//! Partitions move to other replicas.
//!
//! A reassignment first writes the union of old and new replicas to the topic's node, raises the leader epoch
//! so that all of them take the list, and waits until the new ones are in sync. Where others are to go it asks the
//! brokers of those that stay, as they may have died without anybody knowing it yet: Kafka does not ask, and may take
//! away the only replica that has everything. Then leadership goes to one of them where it has to, the old ones leave
//! the ISR one by one, the final list is written, and only after that are the old replicas dropped. Each step is stored
//! before the next, and what a dead controller left half done its successor begins again from the topic's node.

use std::collections::{BTreeMap, BTreeSet};

use snafu::{Snafu, ensure};

use super::election::Strategy;
use super::event::{OtherPartitions, Reply, StoreCall};
use super::{Asked, Core, Pending, Work, leader_of};
use crate::coordination::znodes::{PartitionReassignment, ReplicaAssignment};
use crate::model::{BrokerId, PartitionIndex, TopicName, TopicPartition};

/// Where one partition is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    pub partition: TopicPartition,
    /// `None` = back to where it was before the reassignment that is under way.
    pub target: Option<Vec<BrokerId>>,
    /// It may get more or fewer replicas than it has.
    pub may_change_factor: bool,
}

/// Why a partition is not moved, in the words of Kafka.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
pub enum ReassignmentError {
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display("Empty replica list specified in partition reassignment."))]
    NoReplicas,
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display(
        "Duplicate replica ids in partition reassignment replica list: {}",
        list("ArrayBuffer", replicas)
    ))]
    DuplicateReplicas { replicas: Vec<BrokerId> },
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display("Invalid broker id in replica list: {}", list("ArrayBuffer", replicas)))]
    InvalidReplicas { replicas: Vec<BrokerId> },
    /// INVALID_REPLICA_ASSIGNMENT
    #[snafu(display(
        "Replica assignment has brokers that are not alive. Replica list: {}, live broker list: {}",
        list("ArrayBuffer", adding),
        list("Set", live)
    ))]
    DeadReplicas { adding: Vec<BrokerId>, live: Vec<BrokerId> },
    /// INVALID_REPLICA_ASSIGNMENT: only replicas that would go are in sync. Kafka's later controllers refuse
    /// that too.
    #[snafu(display(
        "Unable to revert partition assignment for {}:{} because it would require an unclean leader election.",
        partition.topic, partition.partition
    ))]
    WouldLoseData { partition: TopicPartition },
    /// INVALID_REPLICATION_FACTOR
    #[snafu(display("The replication factor is changed from {from} to {to}"))]
    FactorChanged { from: usize, to: usize },
    /// NO_REASSIGNMENT_IN_PROGRESS
    #[snafu(display("No partition reassignment is in progress."))]
    NotInProgress,
    /// UNKNOWN_TOPIC_OR_PARTITION, also while the topic is being deleted.
    #[snafu(display("The partition does not exist."))]
    UnknownPartition,
    /// UNKNOWN_SERVER_ERROR
    #[snafu(display("The server experienced an unexpected error when processing the request."))]
    NotWritten,
}

fn list(kind: &str, ids: &[BrokerId]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("{kind}({})", ids.join(", "))
}

type Outcome = Result<(), ReassignmentError>;

/// A request on its way.
#[derive(Debug)]
pub(super) struct RequestedReassignment {
    outcomes: Vec<(TopicPartition, Outcome)>,
}

impl RequestedReassignment {
    pub fn finish(self) -> Reply {
        Reply::Reassignments(self.outcomes)
    }
}

/// A topic's node that was sent to the store, with the partitions that it changes.
#[derive(Debug)]
pub(super) struct Assigned {
    topic: TopicName,
    partitions: BTreeMap<PartitionIndex, ReplicaAssignment>,
    is_final: bool,
}

impl Core {
    pub(super) fn reassignment_requested(&mut self, token: u64, reassignments: Vec<Reassignment>) {
        let mut outcomes = Vec::with_capacity(reassignments.len());
        let mut accepted = BTreeMap::new();
        for Reassignment { partition, target, may_change_factor } in reassignments {
            let planned = self.plan(&partition, target.as_deref());
            let checked = planned.and_then(|planned| match &target {
                Some(target) if !may_change_factor => self.check_factor(&partition, target).map(|()| planned),
                _ => Ok(planned),
            });
            let outcome = checked.map(|planned| {
                accepted.insert(partition.clone(), planned);
            });
            outcomes.push((partition, outcome));
        }
        // The latest wish counts: what the node asked for is forgotten.
        let done: Vec<PartitionReassignment> =
            accepted.keys().filter_map(|partition| self.take_written(partition)).collect();
        self.settle(done, Vec::new());
        self.asked = Some((token, Asked::Reassignment(RequestedReassignment { outcomes })));
        self.reassign(accepted);
    }

    pub(super) fn reassignment_written(&mut self, written: Vec<PartitionReassignment>) {
        let mut accepted = BTreeMap::new();
        let mut failed = Vec::new();
        self.written =
            written.iter().map(|entry| (entry.topic_partition.clone(), entry.replicas.clone())).collect();
        for entry in written {
            let of = &entry.topic_partition;
            let is_under_way = self.cluster.is_reassigning(of)
                && self
                    .cluster
                    .partition(of)
                    .is_some_and(|known| known.assignment.target() == entry.replicas);
            if is_under_way {
                continue;
            }
            match self.plan(of, Some(&entry.replicas)) {
                Ok(assignment) => {
                    accepted.insert(of.clone(), assignment);
                }
                Err(error) => {
                    self.written.remove(of);
                    failed.push((entry, error));
                }
            }
        }
        self.settle(Vec::new(), failed);
        self.reassign(accepted);
    }

    /// What a topic's node has to say of the partition while it moves; the order of the checks is Kafka's.
    fn plan(
        &self,
        of: &TopicPartition,
        target: Option<&[BrokerId]>,
    ) -> Result<ReplicaAssignment, ReassignmentError> {
        let known = self.cluster.partition(of).map(|partition| partition.assignment.clone());
        let current = known.clone().unwrap_or_default();
        let planned = match target {
            Some(target) => {
                self.check_replicas(target, &current)?;
                current.reassigned_to(target)
            }
            None => {
                ensure!(current.is_reassigning(), NotInProgressSnafu);
                current.reassigned_to(&current.origin())
            }
        };
        let is_there = known.is_some() && !self.cluster.is_being_deleted(&of.topic);
        ensure!(is_there, UnknownPartitionSnafu);
        let isr = self.cluster.partition(of).and_then(|known| known.leadership.as_ref());
        let isr = isr.map(|leadership| leadership.leader_and_isr.isr.as_slice()).unwrap_or_default();
        let keeps_data = isr.is_empty() || isr.iter().any(|id| planned.replicas.contains(id));
        ensure!(keeps_data, WouldLoseDataSnafu { partition: of.clone() });
        Ok(planned)
    }

    fn check_replicas(
        &self,
        target: &[BrokerId],
        current: &ReplicaAssignment,
    ) -> Result<(), ReassignmentError> {
        ensure!(!target.is_empty(), NoReplicasSnafu);
        let distinct: BTreeSet<&BrokerId> = target.iter().collect();
        ensure!(distinct.len() == target.len(), DuplicateReplicasSnafu { replicas: target });
        ensure!(target.iter().all(|id| id.0 >= 0), InvalidReplicasSnafu { replicas: target });
        let adding = current.reassigned_to(target).adding;
        if !adding.iter().all(|&id| self.cluster.is_available(id)) {
            let live = self.cluster.brokers().map(|broker| broker.id);
            let live = live.filter(|&id| self.cluster.is_available(id)).collect();
            return Err(ReassignmentError::DeadReplicas { adding, live });
        }
        Ok(())
    }

    fn check_factor(&self, of: &TopicPartition, target: &[BrokerId]) -> Result<(), ReassignmentError> {
        let current = self.cluster.partition(of).map(|known| known.assignment.target().len());
        let (from, to) = (current.unwrap_or(target.len()), target.len());
        ensure!(from == to, FactorChangedSnafu { from, to });
        Ok(())
    }

    fn reassign(&mut self, planned: BTreeMap<TopicPartition, ReplicaAssignment>) {
        let partitions: Vec<TopicPartition> = planned.keys().cloned().collect();
        let changed = planned.into_iter().filter(|(partition, planned)| {
            self.cluster.partition(partition).is_some_and(|known| known.assignment != *planned)
        });
        let changed = changed.collect();
        for partition in &partitions {
            self.silent.remove(partition);
            self.retiring.remove(partition);
            self.cluster.set_reassigning(partition, true);
        }
        self.assign(changed, false);
        self.work.push_back(Work::Reassign(partitions));
        self.work.push_back(Work::Flush);
    }

    /// Sends the topics' nodes with these partitions changed.
    fn assign(&mut self, changed: BTreeMap<TopicPartition, ReplicaAssignment>, is_final: bool) {
        let mut topics: BTreeMap<TopicName, BTreeMap<PartitionIndex, ReplicaAssignment>> = BTreeMap::new();
        for (of, assignment) in changed {
            topics.entry(of.topic).or_default().insert(of.partition, assignment);
        }
        for (name, partitions) in topics {
            let Some(mut topic) = self.cluster.topic_assignment(&name) else { continue };
            topic.partitions.extend(partitions.clone());
            let pending = Pending::Assigned(Assigned { topic: name, partitions, is_final });
            self.call(pending, StoreCall::SetAssignment { topic, others: OtherPartitions::Stay });
        }
    }

    pub(super) fn assigned(&mut self, assigned: Assigned) {
        let Assigned { topic, partitions, is_final } = assigned;
        let mut unneeded: BTreeMap<BrokerId, Vec<TopicPartition>> = BTreeMap::new();
        let mut moved = Vec::new();
        for (index, assignment) in partitions {
            let of = TopicPartition::new(topic.clone(), index);
            let Some(known) = self.cluster.partition(&of) else { continue };
            let old = known.assignment.replicas.iter();
            let gone: Vec<BrokerId> = old.copied().filter(|id| !assignment.replicas.contains(id)).collect();
            self.cluster.set_assignment(&of, assignment);
            for replica in gone {
                if !is_final {
                    self.batch.delete_replica(replica, &of);
                }
                unneeded.entry(replica).or_default().push(of.clone());
            }
            moved.push(of);
        }
        if is_final {
            moved.iter().for_each(|of| self.reassignment_ended(of));
            self.work.push_front(Work::Delete(vec![topic]));
            return;
        }
        // Where a replica goes that even led, somebody else has to.
        self.work.push_front(Work::Decide { partitions: moved, strategy: Strategy::Repair });
        self.remove_from_isrs(unneeded);
    }

    pub(super) fn assignment_refused(&mut self, assigned: Assigned) {
        for index in assigned.partitions.into_keys() {
            let of = TopicPartition::new(assigned.topic.clone(), index);
            let is_reassigning =
                self.cluster.partition(&of).is_some_and(|known| known.assignment.is_reassigning());
            self.cluster.set_reassigning(&of, is_reassigning);
            if let Some((_, Asked::Reassignment(asked))) = &mut self.asked {
                let outcome = asked.outcomes.iter_mut().find(|(partition, _)| *partition == of);
                if let Some((_, outcome)) = outcome {
                    *outcome = Err(ReassignmentError::NotWritten);
                }
            }
        }
    }

    /// Begins, goes on with, or ends the reassignment of these partitions.
    pub(super) fn advance_reassignments(&mut self, partitions: Vec<TopicPartition>) {
        let moving = partitions.into_iter().filter(|of| self.is_moving(of));
        let (ready, waiting): (Vec<_>, Vec<_>) = moving.partition(|of| self.has_caught_up(of));
        self.work.push_front(Work::Decide { partitions: waiting, strategy: Strategy::Renew });
        self.end_heard_reassignments(ready);
    }

    /// Ends these reassignments, where no replica goes; else asks those that stay first.
    fn end_heard_reassignments(&mut self, caught_up: Vec<TopicPartition>) {
        let takes_away = |of: &TopicPartition| {
            self.cluster.partition(of).is_some_and(|known| !known.assignment.removing.is_empty())
        };
        let (asking, ready): (Vec<_>, Vec<_>) = caught_up.into_iter().partition(takes_away);
        for of in asking {
            let target =
                self.cluster.partition(&of).map(|known| known.assignment.target()).unwrap_or_default();
            // What they are they know: it is their answer that matters.
            target.iter().for_each(|&replica| self.batch.lead_or_follow(replica, &of, false));
            self.silent.insert(of, target.into_iter().collect());
        }
        self.end_reassignments(ready);
    }

    pub(super) fn is_waiting_for(&self, broker: BrokerId, of: &TopicPartition) -> bool {
        self.silent.get(of).is_some_and(|silent| silent.contains(&broker))
    }

    /// A broker has answered what it was told of these partitions.
    pub(super) fn heard_of_replicas(&mut self, broker: BrokerId, partitions: &[TopicPartition]) {
        let mut ready = Vec::new();
        for of in partitions {
            let Some(silent) = self.silent.get_mut(of) else { continue };
            silent.remove(&broker);
            if silent.is_empty() {
                self.silent.remove(of);
                ready.push(of.clone());
            }
        }
        // Meanwhile one may have left the ISR.
        ready.retain(|of| self.is_moving(of) && self.has_caught_up(of));
        if !ready.is_empty() {
            self.end_reassignments(ready);
        }
    }

    fn is_moving(&self, of: &TopicPartition) -> bool {
        self.cluster.is_reassigning(of) && !self.retiring.contains_key(of)
    }

    fn end_reassignments(&mut self, ready: Vec<TopicPartition>) {
        self.work.push_front(Work::RetireReplicas(ready.clone()));
        self.work.push_front(Work::Decide { partitions: ready, strategy: Strategy::Reassign });
    }

    /// The leader is a target replica by now, or there is none to lead, and then nothing is taken away.
    pub(super) fn retire_replicas(&mut self, partitions: Vec<TopicPartition>) {
        let mut removing: BTreeMap<BrokerId, Vec<TopicPartition>> = BTreeMap::new();
        let mut led = Vec::new();
        for of in partitions {
            let Some(known) = self.cluster.partition(&of) else { continue };
            if !known.assignment.target().contains(&leader_of(known)) {
                continue;
            }
            for &replica in &known.assignment.removing {
                removing.entry(replica).or_default().push(of.clone());
            }
            led.push(of);
        }
        // The replicas take the final list with the epochs of the next writes, as they would not take it later.
        led.iter().for_each(|of| self.cluster.set_arriving(of));
        self.work.push_front(Work::DropReplicas(led));
        self.remove_from_isrs(removing);
    }

    /// Tells the replicas that go; the reassignment ends when they are gone. Those on dead brokers are not waited
    /// for, as in Kafka.
    pub(super) fn drop_replicas(&mut self, partitions: Vec<TopicPartition>) {
        let mut dropped = Vec::new();
        for of in partitions {
            let Some(known) = self.cluster.partition(&of) else { continue };
            let removing = known.assignment.removing.iter().copied();
            let live: BTreeSet<BrokerId> =
                removing.filter(|&replica| self.cluster.broker(replica).is_some()).collect();
            if live.is_empty() {
                dropped.push(of);
                continue;
            }
            live.iter().for_each(|&replica| self.batch.delete_replica(replica, &of));
            self.retiring.insert(of, live);
        }
        self.work.push_front(Work::FinishReassignments(dropped));
    }

    /// A replica that was to go is gone, or its broker is dead, or could not do it and will not be asked again.
    pub(super) fn replica_dropped(&mut self, of: &TopicPartition, replica: BrokerId) {
        let Some(retiring) = self.retiring.get_mut(of) else { return };
        retiring.remove(&replica);
        if retiring.is_empty() {
            self.retiring.remove(of);
            self.dropped.push(of.clone());
        }
    }

    pub(super) fn is_retiring(&self, of: &TopicPartition, replica: BrokerId) -> bool {
        self.retiring.get(of).is_some_and(|retiring| retiring.contains(&replica))
    }

    /// Ends the reassignments whose last old replica has gone within this event.
    pub(super) fn finish_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.dropped);
        if !dropped.is_empty() {
            self.work.push_front(Work::Flush);
            self.work.push_front(Work::FinishReassignments(dropped));
        }
    }

    pub(super) fn finish_reassignments(&mut self, partitions: Vec<TopicPartition>) {
        let mut changed = BTreeMap::new();
        for of in partitions {
            let Some(known) = self.cluster.partition(&of) else { continue };
            let replicas = known.assignment.target();
            changed.insert(of, ReplicaAssignment { replicas, ..ReplicaAssignment::default() });
        }
        self.assign(changed, true);
    }

    fn reassignment_ended(&mut self, of: &TopicPartition) {
        self.cluster.set_reassigning(of, false);
        self.batch.publish(of);
        let replicas = self.cluster.partition(of).map(|known| known.assignment.replicas.clone());
        // Another wish may have been written there meanwhile: that one stays.
        if replicas.is_some() && self.written.get(of) == replicas.as_ref() {
            let done = self.take_written(of).into_iter().collect();
            self.work.push_back(Work::Settle(done));
        }
    }

    /// A replica may have come into the ISR: the reassignment ends once whoever asked for it has his answer.
    pub(super) fn note_isr_change(&mut self, of: &TopicPartition) {
        if self.cluster.is_reassigning(of) {
            self.isr_changed.push(of.clone());
        }
    }

    pub(super) fn end_caught_up_reassignments(&mut self) {
        let mut partitions = std::mem::take(&mut self.isr_changed);
        partitions.retain(|of| self.is_moving(of) && self.has_caught_up(of));
        if !partitions.is_empty() {
            self.work.push_front(Work::Flush);
            self.end_heard_reassignments(partitions);
        }
    }

    /// All target replicas are in sync, or it is only their order that changes.
    fn has_caught_up(&self, of: &TopicPartition) -> bool {
        self.cluster.partition(of).is_some_and(|known| {
            let isr = known.leadership.as_ref().map(|leadership| &leadership.leader_and_isr.isr);
            let in_sync = isr.is_some_and(|isr| known.assignment.target().iter().all(|id| isr.contains(id)));
            in_sync || !known.assignment.is_reassigning()
        })
    }

    /// Those of which a target replica is on one of these brokers, which have just come up.
    pub(super) fn reassigned_to(&self, brokers: &[BrokerId]) -> Vec<TopicPartition> {
        let is_target = |of: &&TopicPartition| {
            let known = self.cluster.partition(of);
            known.is_some_and(|known| known.assignment.target().iter().any(|id| brokers.contains(id)))
        };
        self.cluster.reassigning().filter(is_target).cloned().collect()
    }

    /// One replica after the other, as each removal is a write of its own.
    fn remove_from_isrs(&mut self, replicas: BTreeMap<BrokerId, Vec<TopicPartition>>) {
        for (replica, partitions) in replicas.into_iter().rev() {
            let strategy = Strategy::Remove(replica);
            self.work.push_front(Work::Decide { partitions, strategy });
        }
    }

    fn take_written(&mut self, of: &TopicPartition) -> Option<PartitionReassignment> {
        let replicas = self.written.remove(of)?;
        Some(PartitionReassignment { topic_partition: of.clone(), replicas })
    }

    pub(super) fn settle(
        &mut self,
        done: Vec<PartitionReassignment>,
        failed: Vec<(PartitionReassignment, ReassignmentError)>,
    ) {
        if !done.is_empty() || !failed.is_empty() {
            self.call(Pending::Other, StoreCall::SettleReassignments { done, failed });
        }
    }
}
