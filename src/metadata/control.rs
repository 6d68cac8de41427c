//! LeaderAndIsr, StopReplica and UpdateMetadata, free of protocol versions.

use std::net::IpAddr;

use crate::model::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicName, TopicPartition};

/// Who leads a partition and which replicas are in sync, as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderAndIsr {
    /// `-1` = no leader, `-2` = the topic is being deleted.
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    pub isr: Vec<BrokerId>,
    /// The version of the partition's state node; `-1` = unknown.
    pub partition_epoch: i32,
}

/// A replica that a leader wants in the ISR (KIP-903).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsrMember {
    pub id: BrokerId,
    /// The registration under which it has fetched what it has: under another one it may have lost that. `None` where no
    /// fetch has told.
    pub broker_epoch: Option<BrokerEpoch>,
}

impl From<BrokerId> for IsrMember {
    fn from(id: BrokerId) -> IsrMember {
        IsrMember { id, broker_epoch: None }
    }
}

/// The leader id that UpdateMetadata carries while a topic is being deleted.
pub const LEADER_DURING_DELETE: BrokerId = BrokerId(-2);

/// One partition as a controller sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionAssignmentState {
    pub topic_partition: TopicPartition,
    pub controller_epoch: ControllerEpoch,
    pub leader_and_isr: LeaderAndIsr,
    pub replicas: Vec<BrokerId>,
    pub adding_replicas: Vec<BrokerId>,
    pub removing_replicas: Vec<BrokerId>,
    /// The replica never held this partition before: create its log.
    pub is_new: bool,
    /// The leader was elected uncleanly and has not reported that it has recovered.
    pub is_recovering: bool,
    /// Only UpdateMetadata fills this.
    pub offline_replicas: Vec<BrokerId>,
}

#[cfg(test)]
impl PartitionAssignmentState {
    /// As a controller of epoch 1 tells it at first: the first in sync leads, with epoch 0.
    pub(crate) fn at_first(
        topic_partition: TopicPartition,
        replicas: Vec<BrokerId>,
        isr: Vec<BrokerId>,
    ) -> PartitionAssignmentState {
        PartitionAssignmentState {
            topic_partition,
            controller_epoch: ControllerEpoch(1),
            leader_and_isr: LeaderAndIsr {
                leader: isr[0],
                leader_epoch: LeaderEpoch(0),
                isr,
                partition_epoch: 0,
            },
            replicas,
            adding_replicas: vec![],
            removing_replicas: vec![],
            is_new: false,
            is_recovering: false,
            offline_replicas: vec![],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub listener: String,
    /// `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
    pub security_protocol: String,
    pub host: String,
    pub port: u16,
}

/// A live broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRegistration {
    pub id: BrokerId,
    pub epoch: BrokerEpoch,
    pub endpoints: Vec<Endpoint>,
    pub rack: Option<String>,
}

impl BrokerRegistration {
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.listener == listener)
    }
}

/// Who sends a control request, to fence older controllers and requests for an earlier life of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlSender {
    pub controller_id: BrokerId,
    pub controller_epoch: ControllerEpoch,
    /// The registration of the receiver that the controller means; `-1` skips the check.
    pub broker_epoch: BrokerEpoch,
}

/// Lead or follow these partitions.
///
/// Whether it names all of the receiver's is not kept: only a KRaft controller says so (type FULL), for a migration, where
/// the replicas that it leaves out are stray. Brokers on ZooKeeper keep the folders that no controller names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderAndIsrRequest {
    pub sender: ControlSender,
    pub partitions: Vec<PartitionAssignmentState>,
    pub topic_ids: Vec<(TopicName, TopicId)>,
    pub live_leaders: Vec<BrokerRegistration>,
}

/// Stop following or leading these partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReplicaRequest {
    pub sender: ControlSender,
    pub partitions: Vec<StopReplica>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReplica {
    pub topic_partition: TopicPartition,
    /// `-1` skips the check, `-2` = the topic is being deleted.
    pub leader_epoch: LeaderEpoch,
    /// Delete the log too.
    pub delete: bool,
}

/// What brokers tell clients about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateMetadataRequest {
    pub sender: ControlSender,
    pub partitions: Vec<PartitionAssignmentState>,
    pub topic_ids: Vec<(TopicName, TopicId)>,
    /// All live brokers: the image's broker list is replaced by it.
    pub live_brokers: Vec<BrokerRegistration>,
}

/// What a replica did with one partition of a control request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlOutcome {
    Done,
    /// The request's leader epoch is not newer than the replica's.
    StaleLeaderEpoch,
    /// The log's topic id differs from the request's.
    InconsistentTopicId,
    /// The log directory is offline.
    StorageError,
    UnknownPartition,
}

/// A whole control request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRefusal {
    StaleControllerEpoch,
    StaleBrokerEpoch,
}

/// The address a client connects from, kept with groups and transactions.
pub type ClientAddress = IpAddr;
