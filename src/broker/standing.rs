//! How this broker stands among the others: what it has to catch up with, and what the cluster would lack without it.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::api::Services;
use crate::metadata::{Image, Partition};
use crate::model::{BrokerId, TopicName, TopicPartition};

/// Answers the questions of those who start and stop brokers. Outlives its broker without keeping it.
pub struct Standing {
    services: Weak<Services>,
    has_caught_up: AtomicBool,
}

/// So many partitions are named to whoever asks; the rest is counted.
const NAMED_MAX: usize = 5;

impl Standing {
    pub(super) fn new(services: Weak<Services>) -> Standing {
        Standing { services, has_caught_up: AtomicBool::new(false) }
    }

    /// What the broker has yet to copy since it started; `None` once it was in sync with everything. Later lags are no
    /// reason to send clients elsewhere.
    pub fn catching_up(&self) -> Option<String> {
        if self.has_caught_up.load(Ordering::Relaxed) {
            return None;
        }
        let services = self.services.upgrade()?;
        let lagging = lagging(&services.metadata.image(), services.broker_id);
        if lagging.is_empty() {
            self.has_caught_up.store(true, Ordering::Relaxed);
            return None;
        }
        Some(format!("catching up with {}", named(&lagging)))
    }

    /// Why the broker should not be stopped now; `None` = every partition keeps enough replicas without it.
    pub fn needed_for(&self) -> Option<String> {
        let services = self.services.upgrade()?;
        let image = services.metadata.image();
        if image.controller_id() == BrokerId::NONE {
            return Some("no controller is known that would move leaderships".to_owned());
        }
        let isr_min = |topic: &TopicName| services.replicas.topic_settings(topic).min_insync_replicas;
        let mut needed = needing(&image, services.broker_id, isr_min);
        // Of what it leads, this broker knows more than it was told.
        let led = services.replicas.partitions().into_iter();
        let led = led.filter(|led| led.isr_margin().is_some_and(|margin| margin <= 0) || led.is_alone());
        needed.extend(led.map(|led| led.topic_partition().clone()));
        needed.sort_unstable();
        needed.dedup();
        (!needed.is_empty()).then(|| format!("needed for {}", named(&needed)))
    }
}

/// Partitions with a replica on `me` that is not in sync. Those in log folders that have failed do not catch up, nor do
/// those without a leader: a cluster that starts cold waits for the brokers that can lead, which may wait for this one.
fn lagging(image: &Image, me: BrokerId) -> Vec<TopicPartition> {
    let is_here =
        |partition: &Partition| partition.replicas.contains(&me) && !partition.offline_replicas.contains(&me);
    select(image, |_, partition| {
        is_here(partition) && partition.leader != BrokerId::NONE && !partition.isr.contains(&me)
    })
}

/// Partitions that would be offline, or have fewer replicas in sync than must acknowledge, without `me`.
fn needing(image: &Image, me: BrokerId, isr_min: impl Fn(&TopicName) -> usize) -> Vec<TopicPartition> {
    select(image, |topic, partition| {
        let others = partition.isr.iter().filter(|id| **id != me).count();
        let needed = isr_min(topic).min(partition.replicas.len()).max(1);
        partition.isr.contains(&me) && others < needed
    })
}

fn select(image: &Image, is_wanted: impl Fn(&TopicName, &Partition) -> bool) -> Vec<TopicPartition> {
    let topics = image.topics().flat_map(|topic| {
        let wanted = topic.partitions().iter().filter(|partition| is_wanted(&topic.name, partition));
        wanted.map(|partition| TopicPartition::new(topic.name.clone(), partition.index))
    });
    let mut selected: Vec<TopicPartition> = topics.collect();
    selected.sort_unstable();
    selected
}

fn named(partitions: &[TopicPartition]) -> String {
    let names: Vec<String> = partitions.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let rest = partitions.len() - names.len();
    let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    format!("{} partitions: {}{more}", partitions.len(), names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::control::{
        BrokerRegistration, ControlSender, PartitionAssignmentState, UpdateMetadataRequest,
    };
    use crate::model::{BrokerEpoch, ControllerEpoch, PartitionIndex};

    fn ids(numbers: &[i32]) -> Vec<BrokerId> {
        numbers.iter().copied().map(BrokerId).collect()
    }

    fn image(partitions: &[(&[i32], &[i32])]) -> Image {
        let state = |(index, (replicas, isr)): (usize, &(&[i32], &[i32]))| {
            let index = PartitionIndex(i32::try_from(index).unwrap());
            let of = TopicPartition::new(TopicName::new("t").unwrap(), index);
            PartitionAssignmentState::at_first(of, ids(replicas), ids(isr))
        };
        let live = |id| BrokerRegistration {
            id: BrokerId(id),
            epoch: BrokerEpoch(1),
            endpoints: vec![],
            rack: None,
        };
        let request = UpdateMetadataRequest {
            sender: ControlSender {
                controller_id: BrokerId(1),
                controller_epoch: ControllerEpoch(1),
                broker_epoch: BrokerEpoch(1),
            },
            topic_ids: vec![],
            partitions: partitions.iter().enumerate().map(state).collect(),
            live_brokers: (1..=3).map(live).collect(),
        };
        Image::default().apply(request).0
    }

    #[track_caller]
    fn check(isr_min: usize, partitions: &[(&[i32], &[i32])], needed: &[i32]) {
        let found = needing(&image(partitions), BrokerId(1), |_| isr_min);
        let found: Vec<i32> = found.iter().map(|of| of.partition.0).collect();
        assert_eq!(found, needed);
    }

    #[test]
    fn a_broker_is_needed_where_too_few_others_are_in_sync() {
        check(2, &[(&[1, 2, 3], &[1, 2, 3]), (&[1, 2, 3], &[2, 1]), (&[2, 3], &[2])], &[1]);
        check(1, &[(&[1, 2, 3], &[1]), (&[1, 2], &[1, 2]), (&[1], &[1])], &[0, 2]);
    }

    #[test]
    fn a_broker_that_is_not_in_sync_is_not_needed() {
        check(2, &[(&[1, 2, 3], &[2, 3]), (&[1, 2, 3], &[2])], &[]);
    }

    #[test]
    fn more_replicas_than_there_are_cannot_be_asked_for() {
        check(2, &[(&[2], &[2]), (&[1], &[1])], &[1]);
    }

    #[test]
    fn a_started_broker_catches_up_with_what_it_has_replicas_of() {
        let image = image(&[(&[1, 2], &[2]), (&[2, 3], &[2]), (&[1, 2], &[2, 1])]);
        let lagging = lagging(&image, BrokerId(1));
        assert_eq!(named(&lagging), "1 partitions: t-0");
    }
}
