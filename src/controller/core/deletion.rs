use std::collections::BTreeMap;

use super::cluster::Cluster;
use super::requests::RequestBatch;
use crate::model::{BrokerId, PartitionIndex, TopicName, TopicPartition};

/// How far the deletion of one topic is.
///
/// It waits until no partition is being reassigned. Then clients are told that the topic is gone and brokers drop
/// their replicas. The topic's nodes stay until all have confirmed: a broker that missed it would bring the topic
/// back, so one that is dead is asked when it returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Empty until it starts.
    replicas: BTreeMap<(PartitionIndex, BrokerId), Progress>,
    has_started: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Asked,
    Confirmed,
    /// The broker failed or could not delete; asked again when it comes back.
    Failed,
}

impl Deletion {
    pub fn has_started(&self) -> bool {
        self.has_started
    }

    /// All replicas are gone.
    pub fn is_complete(&self) -> bool {
        self.has_started && self.replicas.values().all(|&progress| progress == Progress::Confirmed)
    }

    /// A broker's answer to StopReplica, or its death (`is_done` false).
    pub(super) fn record(&mut self, partition: PartitionIndex, broker: BrokerId, is_done: bool) {
        if let Some(progress) = self.replicas.get_mut(&(partition, broker))
            && *progress == Progress::Asked
        {
            *progress = if is_done { Progress::Confirmed } else { Progress::Failed };
        }
    }
}

/// Starts a deletion that can start, and asks the brokers that failed and are back; the requests are left in
/// `batch`. Does nothing for a topic that is not to be deleted.
pub(super) fn start_or_retry(cluster: &mut Cluster, name: &TopicName, batch: &mut RequestBatch) {
    let Some(topic) = cluster.topic(name) else { return };
    let Some(mut deletion) = topic.deletion.clone() else { return };
    if !deletion.has_started {
        if cluster.is_topic_reassigning(name) {
            return;
        }
        deletion.has_started = true;
        for (&index, partition) in &topic.partitions {
            batch.publish(&TopicPartition::new(name.clone(), index));
            let replicas = partition.assignment.replicas.iter();
            deletion.replicas.extend(replicas.map(|&replica| ((index, replica), Progress::Failed)));
        }
    }
    for (&(index, broker), progress) in &mut deletion.replicas {
        let partition = TopicPartition::new(name.clone(), index);
        if *progress == Progress::Failed && cluster.is_online(&partition, broker) {
            *progress = Progress::Asked;
            batch.delete_replica(broker, &partition);
        }
    }
    if let Some(topic) = cluster.topic_mut(name) {
        topic.deletion = Some(deletion);
    }
}
