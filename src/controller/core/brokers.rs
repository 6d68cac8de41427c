//! Brokers and their log directories come and go.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::cluster::Cluster;
use super::election::{Strategy, Verdict};
use super::event::Snapshot;
use super::{Core, Work};
use crate::metadata::control::{BrokerRegistration, ControlOutcome};
use crate::model::{BrokerId, TopicPartition};

impl Core {
    pub(super) fn elected(&mut self, snapshot: Snapshot) {
        self.controller_epoch = snapshot.controller_epoch;
        self.cluster = Cluster::default();
        snapshot.brokers.into_iter().for_each(|broker| self.cluster.add_broker(broker));
        let mut leaderships: HashMap<_, _> = snapshot.leaderships.into_iter().collect();
        for topic in snapshot.topics {
            self.add_topic(topic, |partition| leaderships.remove(partition));
        }
        // Brokers must know each other before they are told to follow one another.
        self.batch.publish_brokers();
        self.flush();
        self.deletion_requested(snapshot.marked_for_deletion);
        let mut unwritten = snapshot.all_returned;
        unwritten.retain(|partition| self.verdict(partition, Strategy::Repair) == Some(Verdict::Keep));
        let partitions = self.cluster.all_partitions();
        self.bring_up(partitions, None);
        let partitions = unwritten.into_iter().collect();
        self.work.push_back(Work::Decide { partitions, strategy: Strategy::Renew });
        let reassigning = self.cluster.reassigning().cloned().collect();
        self.work.extend([Work::Reassign(reassigning), Work::Flush]);
    }

    pub(super) fn brokers_changed(&mut self, brokers: Vec<BrokerRegistration>) {
        let now: BTreeMap<BrokerId, &BrokerRegistration> =
            brokers.iter().map(|broker| (broker.id, broker)).collect();
        let known: Vec<BrokerRegistration> = self.cluster.brokers().cloned().collect();
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for old in &known {
            match now.get(&old.id) {
                None => gone.push(old.id),
                // It went and came back before anyone looked.
                Some(new) if new.epoch > old.epoch => {
                    gone.push(old.id);
                    come.push((*new).clone());
                }
                Some(new) if new.endpoints != old.endpoints || new.rack != old.rack => {
                    if let Some(broker) = self.cluster.broker_mut(old.id) {
                        broker.registration = (*new).clone();
                    }
                    self.batch.publish_brokers();
                }
                Some(_) => {}
            }
        }
        come.extend(brokers.into_iter().filter(|broker| self.cluster.broker(broker.id).is_none()));
        self.brokers_gone(&gone);
        self.work.extend([Work::Flush, Work::FinishDropped]);
        if !come.is_empty() {
            self.work.push_back(Work::Introduce(come));
        }
    }

    pub(super) fn brokers_gone(&mut self, gone: &[BrokerId]) {
        let mut affected = BTreeSet::new();
        for &broker in gone {
            self.cluster.remove_broker(broker);
            self.batch.publish_brokers();
            for partition in self.cluster.replicas_on(broker) {
                self.record_deletion(&partition, broker, false);
                self.replica_dropped(&partition, broker);
                affected.insert(partition);
            }
        }
        self.replicas_changed(affected);
    }

    pub(super) fn introduce(&mut self, brokers: Vec<BrokerRegistration>) {
        let ids: Vec<BrokerId> = brokers.iter().map(|broker| broker.id).collect();
        brokers.into_iter().for_each(|broker| self.cluster.add_broker(broker));
        self.batch.publish_brokers();
        ids.iter().for_each(|&id| self.batch.introduce(id));
        self.flush();
        let mut deletions = BTreeSet::new();
        for &id in &ids {
            let held = self.cluster.replicas_on(id);
            let deleted = held.iter().filter(|partition| self.cluster.is_being_deleted(&partition.topic));
            deletions.extend(deleted.map(|partition| partition.topic.clone()));
            self.bring_up(held, Some(id));
        }
        self.work.extend([Work::Reassign(self.reassigned_to(&ids)), Work::Flush]);
        self.work.push_back(Work::Delete(deletions.into_iter().collect()));
    }

    /// Tells replicas what they are: at once where the leadership stands, after a decision where it does not.
    /// `to` `None` = all online replicas.
    pub(super) fn bring_up(&mut self, partitions: Vec<TopicPartition>, to: Option<BrokerId>) {
        let mut undecided = Vec::new();
        for partition in partitions {
            if self.has_deletion_started(&partition.topic) {
                continue;
            }
            match (self.verdict(&partition, Strategy::Repair), to) {
                (Some(Verdict::Write(_) | Verdict::AskUnclean), _) => undecided.push(partition),
                (_, Some(broker)) => {
                    self.batch.lead_or_follow(broker, &partition, false);
                    self.batch.publish(&partition);
                }
                (_, None) => self.announce(&partition, |_| false),
            }
        }
        self.flush();
        self.repair(undecided);
    }

    pub(super) fn log_dirs_failed(&mut self, brokers: &BTreeSet<BrokerId>) {
        // The answer of the broker says which replicas it can no longer serve.
        for &broker in brokers {
            for partition in self.cluster.replicas_on(broker) {
                self.batch.lead_or_follow(broker, &partition, false);
            }
        }
        self.flush();
    }

    pub(super) fn leader_and_isr_responded(
        &mut self,
        from: BrokerId,
        outcomes: Vec<(TopicPartition, ControlOutcome)>,
    ) {
        let is_there = |(partition, outcome): &&(TopicPartition, ControlOutcome)| {
            *outcome != ControlOutcome::StorageError && self.is_waiting_for(from, partition)
        };
        let heard: Vec<TopicPartition> =
            outcomes.iter().filter(is_there).map(|(partition, _)| partition.clone()).collect();
        let Some(broker) = self.cluster.broker_mut(from) else { return };
        let mut changed = BTreeSet::new();
        for (partition, outcome) in outcomes {
            let has_changed = match outcome {
                ControlOutcome::StorageError => broker.offline.insert(partition.clone()),
                ControlOutcome::Done => broker.offline.remove(&partition),
                ControlOutcome::StaleLeaderEpoch
                | ControlOutcome::InconsistentTopicId
                | ControlOutcome::UnknownPartition => false,
            };
            if has_changed {
                changed.insert(partition);
            }
        }
        for partition in &changed {
            if !self.cluster.is_serving(partition, from) {
                self.record_deletion(partition, from, false);
            }
        }
        self.replicas_changed(changed);
        self.heard_of_replicas(from, &heard);
        self.work.push_back(Work::Flush);
    }

    /// Replicas came or went without a write of ours: everyone learns which are offline, and leaders and ISRs
    /// follow.
    pub(super) fn replicas_changed(&mut self, partitions: BTreeSet<TopicPartition>) {
        partitions.iter().for_each(|partition| self.batch.publish(partition));
        let partitions = partitions.into_iter().collect();
        self.work.push_back(Work::Decide { partitions, strategy: Strategy::Repair });
    }
}
