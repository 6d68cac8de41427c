use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexSet;

use super::cluster::Cluster;
use super::deletion::Deletion;
use super::event::ControlRequest;
use crate::metadata::control::{
    ControlSender, LEADER_DURING_DELETE, LeaderAndIsr, LeaderAndIsrRequest, PartitionAssignmentState,
    StopReplica, StopReplicaRequest, UpdateMetadataRequest,
};
use crate::model::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicName, TopicPartition};

/// Collects what brokers have to be told, so that each gets at most one request of a kind per flush.
///
/// Only partitions are collected, not their states: what is sent is what holds when the batch is flushed.
#[derive(Debug, Default)]
pub(super) struct RequestBatch {
    /// By broker: the partition, and whether its replica is new there.
    leader_and_isr: BTreeMap<BrokerId, BTreeMap<TopicPartition, bool>>,
    /// By broker: the partition, and whether its log goes too.
    stop_replica: BTreeMap<BrokerId, BTreeMap<TopicPartition, bool>>,
    metadata: IndexSet<TopicPartition>,
    /// Brokers change even where no partition does.
    metadata_to_all: bool,
    /// Brokers that know nothing yet and get every partition.
    full_metadata_to: BTreeSet<BrokerId>,
}

impl RequestBatch {
    /// Tells a replica to lead or follow, and everyone who leads.
    pub fn lead_or_follow(&mut self, broker: BrokerId, partition: &TopicPartition, is_new: bool) {
        let sticky = self.leader_and_isr.entry(broker).or_default().entry(partition.clone()).or_default();
        *sticky |= is_new;
    }

    /// Tells everyone about a partition.
    pub fn publish(&mut self, partition: &TopicPartition) {
        self.metadata.insert(partition.clone());
        self.metadata_to_all = true;
    }

    /// Tells everyone which brokers are live.
    pub fn publish_brokers(&mut self) {
        self.metadata_to_all = true;
    }

    /// Tells one broker everything.
    pub fn introduce(&mut self, broker: BrokerId) {
        self.full_metadata_to.insert(broker);
    }

    /// Makes a broker stop leading or following.
    pub fn stop_replica(&mut self, broker: BrokerId, partition: &TopicPartition) {
        self.stop_replica.entry(broker).or_default().entry(partition.clone()).or_insert(false);
    }

    /// Makes a broker drop a replica with its log.
    pub fn delete_replica(&mut self, broker: BrokerId, partition: &TopicPartition) {
        self.stop_replica.entry(broker).or_default().insert(partition.clone(), true);
    }

    /// The requests in the order in which each broker has to see them: replicas lead before clients are sent
    /// to them, and clients are sent away before replicas are dropped. Brokers that are not live get nothing.
    pub fn flush(
        &mut self,
        cluster: &Cluster,
        controller_id: BrokerId,
        controller_epoch: ControllerEpoch,
    ) -> Vec<(BrokerId, ControlRequest)> {
        let batch = std::mem::take(self);
        let sender = |broker_epoch| ControlSender { controller_id, controller_epoch, broker_epoch };
        let mut requests = Vec::new();
        for (broker, partitions) in &batch.leader_and_isr {
            if let Some(epoch) = epoch_of(cluster, *broker) {
                let request = leader_and_isr(cluster, sender(epoch), *broker, partitions, &batch);
                if !request.partitions.is_empty() {
                    requests.push((*broker, ControlRequest::LeaderAndIsr(request)));
                }
            }
        }
        for broker in cluster.brokers() {
            let sender = sender(broker.epoch);
            let request = if batch.full_metadata_to.contains(&broker.id) {
                update_metadata(cluster, sender, cluster.all_partitions().iter())
            } else if batch.metadata_to_all {
                update_metadata(cluster, sender, batch.metadata.iter())
            } else {
                continue;
            };
            requests.push((broker.id, ControlRequest::UpdateMetadata(request)));
        }
        for (&broker, partitions) in &batch.stop_replica {
            let Some(epoch) = epoch_of(cluster, broker) else { continue };
            // Apart, as only the answers about deletions are waited for.
            for delete in [false, true] {
                let stops: Vec<StopReplica> = partitions
                    .iter()
                    .filter(|(_, deletes)| **deletes == delete)
                    .map(|(partition, _)| stop_replica(cluster, partition, delete))
                    .collect();
                if !stops.is_empty() {
                    let request = StopReplicaRequest { sender: sender(epoch), partitions: stops };
                    requests.push((broker, ControlRequest::StopReplica(request)));
                }
            }
        }
        requests
    }
}

fn epoch_of(cluster: &Cluster, broker: BrokerId) -> Option<BrokerEpoch> {
    Some(cluster.broker(broker)?.registration.epoch)
}

/// Replicas that have been taken away or stopped since they were to be told are left out.
fn leader_and_isr(
    cluster: &Cluster,
    sender: ControlSender,
    to: BrokerId,
    partitions: &BTreeMap<TopicPartition, bool>,
    batch: &RequestBatch,
) -> LeaderAndIsrRequest {
    let stopped = batch.stop_replica.get(&to);
    let states: Vec<PartitionAssignmentState> = partitions
        .iter()
        .filter(|(partition, _)| !stopped.is_some_and(|stopped| stopped.contains_key(*partition)))
        .filter_map(|(partition, &is_new)| {
            let state = cluster.assignment_state(partition)?;
            state.replicas.contains(&to).then_some(PartitionAssignmentState { is_new, ..state })
        })
        .collect();
    let leaders: BTreeSet<BrokerId> = states.iter().map(|state| state.leader_and_isr.leader).collect();
    LeaderAndIsrRequest {
        sender,
        topic_ids: topic_ids(cluster, &states),
        live_leaders: cluster.brokers().filter(|broker| leaders.contains(&broker.id)).cloned().collect(),
        partitions: states,
    }
}

fn update_metadata<'a>(
    cluster: &Cluster,
    sender: ControlSender,
    partitions: impl Iterator<Item = &'a TopicPartition>,
) -> UpdateMetadataRequest {
    let states: Vec<_> = partitions.filter_map(|partition| metadata_state(cluster, partition)).collect();
    UpdateMetadataRequest {
        sender,
        topic_ids: topic_ids(cluster, &states),
        partitions: states,
        live_brokers: cluster.brokers().cloned().collect(),
    }
}

fn metadata_state(cluster: &Cluster, partition: &TopicPartition) -> Option<PartitionAssignmentState> {
    let state = cluster.assignment_state(partition)?;
    if cluster.topic(&partition.topic)?.deletion.as_ref().is_some_and(|deletion| deletion.has_started()) {
        let leader_and_isr = LeaderAndIsr {
            leader: LEADER_DURING_DELETE,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: 0,
            ..state.leader_and_isr
        };
        return Some(PartitionAssignmentState { leader_and_isr, ..state });
    }
    let offline_replicas =
        state.replicas.iter().copied().filter(|&replica| !cluster.is_online(partition, replica)).collect();
    Some(PartitionAssignmentState { offline_replicas, ..state })
}

fn stop_replica(cluster: &Cluster, partition: &TopicPartition, delete: bool) -> StopReplica {
    let topic = cluster.topic(&partition.topic);
    let is_topic_deleted =
        topic.is_none_or(|topic| topic.deletion.as_ref().is_some_and(Deletion::has_started));
    let leadership = cluster.partition(partition).and_then(|partition| partition.leadership.as_ref());
    let leader_epoch = match leadership {
        _ if is_topic_deleted => LeaderEpoch(LEADER_DURING_DELETE.0),
        Some(leadership) => leadership.leader_and_isr.leader_epoch,
        None => LeaderEpoch::UNKNOWN,
    };
    StopReplica { topic_partition: partition.clone(), leader_epoch, delete }
}

fn topic_ids(cluster: &Cluster, states: &[PartitionAssignmentState]) -> Vec<(TopicName, TopicId)> {
    let topics: IndexSet<&TopicName> = states.iter().map(|state| &state.topic_partition.topic).collect();
    let id = |topic: &TopicName| cluster.topic(topic).map_or(TopicId::ZERO, |topic| topic.id);
    topics.into_iter().map(|topic| (topic.clone(), id(topic))).collect()
}
