//! Topics are created, grow and are deleted.

use std::collections::BTreeSet;

use super::cluster::{Leadership, Partition, TopicAssignment};
use super::deletion::{self, Deletion};
use super::event::{OtherPartitions, StoreCall};
use super::{Core, Pending, Work};
use crate::metadata::control::ControlOutcome;
use crate::model::{BrokerId, PartitionIndex, TopicId, TopicName, TopicPartition};

impl Core {
    pub(super) fn topics_created(&mut self, topics: Vec<TopicAssignment>) {
        let mut created = Vec::new();
        for topic in topics {
            if self.cluster.topic(&topic.name).is_none() {
                created.extend(self.add_topic(topic, |_| None));
            }
        }
        self.repair(created);
    }

    pub(super) fn remove_topic(&mut self, name: &TopicName) {
        for partition in self.cluster.partitions_of(name) {
            self.silent.remove(&partition);
            self.retiring.remove(&partition);
        }
        self.cluster.remove_topic(name);
    }

    pub(super) fn topic_written(&mut self, written: TopicAssignment) {
        let Some(topic) = self.cluster.topic(&written.name) else { return };
        let added: Vec<PartitionIndex> = written
            .partitions
            .keys()
            .filter(|index| !topic.partitions.contains_key(index))
            .copied()
            .collect();
        // Tools older than topic ids drop the id; without it replicas would take the topic for another one.
        let id_is_lost = written.id.is_none() && !topic.id.is_zero();
        let is_being_deleted = topic.deletion.is_some();
        let name = written.name.clone();
        if !is_being_deleted && !added.is_empty() {
            let known = TopicAssignment { id: (!topic.id.is_zero()).then_some(topic.id), ..written };
            let partitions = self.add_topic(known, |_| None);
            self.repair(partitions);
        }
        if (id_is_lost || is_being_deleted && !added.is_empty())
            && let Some(assignment) = self.cluster.topic_assignment(&name)
        {
            let others = if is_being_deleted { OtherPartitions::Go } else { OtherPartitions::Stay };
            self.call(Pending::Other, StoreCall::SetAssignment { topic: assignment, others });
        }
    }

    /// Adds a topic or its new partitions and returns these.
    pub(super) fn add_topic(
        &mut self,
        topic: TopicAssignment,
        mut leadership: impl FnMut(&TopicPartition) -> Option<Leadership>,
    ) -> Vec<TopicPartition> {
        self.cluster.add_topic(topic.name.clone(), topic.id.unwrap_or(TopicId::ZERO));
        let mut added = Vec::new();
        for (index, assignment) in topic.partitions {
            let of = TopicPartition::new(topic.name.clone(), index);
            let is_reassigning = assignment.is_reassigning();
            let partition = Partition { assignment, leadership: leadership(&of) };
            if self.cluster.add_partition(&of, partition) {
                self.cluster.set_reassigning(&of, is_reassigning);
                added.push(of);
            }
        }
        added
    }

    pub(super) fn deletion_requested(&mut self, topics: Vec<TopicName>) {
        let is_known =
            |name: &TopicName| self.settings.topic_deletion_enabled && self.cluster.topic(name).is_some();
        let (known, unknown): (Vec<_>, Vec<_>) = topics.into_iter().partition(is_known);
        if !unknown.is_empty() {
            self.call(Pending::Other, StoreCall::RemoveDeletionMarks { topics: unknown });
        }
        let mut requested = Vec::new();
        for name in known {
            if let Some(topic) = self.cluster.topic_mut(&name)
                && topic.deletion.is_none()
            {
                topic.deletion = Some(Deletion::default());
                requested.push(name);
            }
        }
        self.delete(requested);
    }

    pub(super) fn delete(&mut self, topics: Vec<TopicName>) {
        for topic in topics {
            deletion::start_or_retry(&mut self.cluster, &topic, &mut self.batch);
            // A topic without partitions has nobody to wait for.
            self.remove_if_deleted(topic);
        }
        self.flush();
    }

    pub(super) fn remove_if_deleted(&mut self, name: TopicName) {
        let Some(topic) = self.cluster.topic(&name) else { return };
        if topic.deletion.as_ref().is_some_and(Deletion::is_complete) {
            let partitions = topic.partitions.keys().copied().collect();
            let pending = Pending::Delete { topic: name.clone() };
            self.call(pending, StoreCall::DeleteTopic { topic: name, partitions });
        }
    }

    pub(super) fn stop_replica_responded(
        &mut self,
        from: BrokerId,
        outcomes: Vec<(TopicPartition, ControlOutcome)>,
    ) {
        let mut topics = BTreeSet::new();
        for (partition, outcome) in outcomes {
            self.record_deletion(&partition, from, outcome == ControlOutcome::Done);
            self.replica_dropped(&partition, from);
            topics.insert(partition.topic);
        }
        self.work.push_back(Work::FinishDropped);
        for topic in topics {
            self.remove_if_deleted(topic);
        }
    }

    pub(super) fn record_deletion(&mut self, partition: &TopicPartition, broker: BrokerId, is_done: bool) {
        let topic = self.cluster.topic_mut(&partition.topic);
        if let Some(deletion) = topic.and_then(|topic| topic.deletion.as_mut()) {
            deletion.record(partition.partition, broker, is_done);
        }
    }

    pub(super) fn has_deletion_started(&self, topic: &TopicName) -> bool {
        let deletion = self.cluster.topic(topic).and_then(|topic| topic.deletion.as_ref());
        deletion.is_some_and(Deletion::has_started)
    }
}
