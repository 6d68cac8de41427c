//! Brokers that are about to stop hand their leadership over (ControlledShutdown).

use super::election::Strategy;
use super::event::{BrokerError, Reply};
use super::{Asked, Core, Work, leader_of};
use crate::model::{BrokerEpoch, BrokerId, TopicPartition};

impl Core {
    /// `broker_epoch` `-1` = the broker is too old to tell.
    pub(super) fn controlled_shutdown(&mut self, token: u64, id: BrokerId, broker_epoch: BrokerEpoch) {
        let error = match self.cluster.broker_mut(id) {
            None => Some(BrokerError::Unknown),
            // What asks is left over from its earlier life.
            Some(broker) if broker_epoch.0 >= 0 && broker_epoch < broker.registration.epoch => {
                Some(BrokerError::StaleEpoch)
            }
            Some(broker) => {
                broker.is_shutting_down = true;
                None
            }
        };
        if let Some(error) = error {
            self.effects.replies.push((token, Reply::ShutDown(Err(error))));
            return;
        }
        let mut partitions = Vec::new();
        for partition in self.cluster.replicas_on(id) {
            let Some(known) = self.cluster.partition(&partition) else { continue };
            let has_others = known.assignment.replicas.len() > 1 && known.leadership.is_some();
            if !has_others || self.cluster.is_being_deleted(&partition.topic) {
                continue;
            }
            // A follower that goes on fetching would be taken into the ISR again.
            if leader_of(known) != id {
                self.batch.stop_replica(id, &partition);
            }
            self.batch.publish(&partition);
            partitions.push(partition);
        }
        self.asked = Some((token, Asked::ShutDown(id)));
        self.work.push_back(Work::Decide { partitions, strategy: Strategy::Yield });
        self.work.push_back(Work::Flush);
    }

    /// What a broker leads that another could lead some day.
    pub(super) fn still_led_by(&self, id: BrokerId) -> Vec<TopicPartition> {
        let mut led = self.cluster.replicas_on(id);
        led.retain(|partition| {
            let known = self.cluster.partition(partition);
            let is_led =
                known.is_some_and(|known| leader_of(known) == id && known.assignment.replicas.len() > 1);
            is_led && !self.cluster.is_being_deleted(&partition.topic)
        });
        led
    }
}
