//! Leadership goes back to preferred replicas.

use std::collections::BTreeMap;

use super::election::Strategy;
use super::{Core, Work, leader_of};
use crate::model::{BrokerId, TopicPartition};

/// Of the partitions that a broker should lead.
#[derive(Default)]
struct Balance {
    total: usize,
    led_elsewhere: Vec<TopicPartition>,
}

impl Core {
    pub(super) fn preferred_election_written(&mut self, mut partitions: Vec<TopicPartition>) {
        partitions.retain(|partition| !self.cluster.is_being_deleted(&partition.topic));
        self.prefer(partitions);
        self.work.push_back(Work::RemovePreferredElection);
    }

    /// Moves leaders where more of a broker's partitions are led by others than is tolerated.
    pub(super) fn balance_leaders(&mut self) {
        let mut balances: BTreeMap<BrokerId, Balance> = BTreeMap::new();
        for (name, topic) in self.cluster.topics().filter(|(_, topic)| topic.deletion.is_none()) {
            for (&index, partition) in &topic.partitions {
                let Some(&preferred) = partition.assignment.replicas.first() else { continue };
                let balance = balances.entry(preferred).or_default();
                balance.total += 1;
                if partition.leadership.is_some() && leader_of(partition) != preferred {
                    balance.led_elsewhere.push(TopicPartition::new(name.clone(), index));
                }
            }
        }
        let tolerated = f64::from(self.settings.leader_imbalance_percentage) / 100.0;
        let mut partitions = Vec::new();
        for balance in balances.into_values() {
            if balance.led_elsewhere.len() as f64 / balance.total as f64 > tolerated {
                partitions.extend(balance.led_elsewhere);
            }
        }
        self.prefer(partitions);
    }

    fn prefer(&mut self, partitions: Vec<TopicPartition>) {
        self.work.push_back(Work::Decide { partitions, strategy: Strategy::Preferred });
        self.work.push_back(Work::Flush);
    }
}
