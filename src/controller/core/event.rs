use std::collections::BTreeSet;

use snafu::Snafu;

use super::alter_partition::AlterPartitionError;
use super::cluster::{Leadership, TopicAssignment};
use super::reassignment::{Reassignment, ReassignmentError};
use crate::coordination::znodes::PartitionReassignment;
use crate::metadata::control::{
    BrokerRegistration, ControlOutcome, IsrMember, LeaderAndIsrRequest, StopReplicaRequest,
    UpdateMetadataRequest,
};
use crate::model::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, TopicName, TopicPartition,
};

/// Something the active controller has to act on.
#[derive(Clone, Debug)]
pub enum Event {
    /// This broker won the election: everything the store holds.
    Elected(Snapshot),
    /// All brokers that are registered now.
    BrokersChanged(Vec<BrokerRegistration>),
    /// Topics that appeared.
    TopicsCreated(Vec<TopicAssignment>),
    /// Topics whose nodes are gone without the controller's doing.
    TopicsVanished(Vec<TopicName>),
    /// A topic's node was written by somebody.
    TopicWritten(TopicAssignment),
    /// The topics that are marked for deletion, also those known to be.
    DeletionRequested(Vec<TopicName>),
    /// A log directory of these brokers failed.
    LogDirsFailed(BTreeSet<BrokerId>),
    /// `unclean.leader.election.enable` became true for this topic.
    UncleanElectionEnabled(TopicName),
    /// The value of `unclean.leader.election.enable` where a topic does not set it.
    UncleanElectionByDefault(bool),
    /// A broker answered.
    Responded { from: BrokerId, broker_epoch: BrokerEpoch, response: ControlResponse },
    /// An operator asks for elections. `partitions` `None` = all of which the leader is not what it should be.
    ElectionRequested { token: u64, kind: ElectionKind, partitions: Option<Vec<TopicPartition>> },
    /// An operator wrote these partitions to `/admin/preferred_replica_election`.
    PreferredElectionWritten(Vec<TopicPartition>),
    /// Time to move leadership back to preferred replicas where too much of it has wandered.
    LeadersUnbalanced,
    /// A leader asks for other ISRs.
    AlterPartition { token: u64, request: AlterPartition },
    /// Leaders wrote these states themselves, as they do where `inter.broker.protocol.version` is below 2.7.
    StatesWritten(Vec<(TopicPartition, Leadership)>),
    /// A broker is about to stop, and wants its leaderships to be moved before. `broker_epoch` `-1` = the broker
    /// is too old to tell.
    ControlledShutdown { token: u64, broker: BrokerId, broker_epoch: BrokerEpoch },
    /// An operator moves replicas.
    ReassignmentRequested { token: u64, reassignments: Vec<Reassignment> },
    /// What stands in `/admin/reassign_partitions`: all of it, also what is on its way already.
    ReassignmentWritten(Vec<PartitionReassignment>),
}

/// The ISRs that a leader wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterPartition {
    pub broker: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub partitions: Vec<WantedIsr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedIsr {
    pub partition: TopicPartition,
    /// The epoch in which the broker leads.
    pub leader_epoch: LeaderEpoch,
    /// The version of the partition's state that it knows.
    pub partition_epoch: i32,
    pub isr: Vec<IsrMember>,
    /// It was elected uncleanly and has not recovered yet.
    pub is_recovering: bool,
}

/// The broker is not the one that the controller knows by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
pub enum BrokerError {
    #[snafu(display("the broker is not registered"))]
    Unknown,
    #[snafu(display("the broker has registered anew since"))]
    StaleEpoch,
}

/// What became of a leader's wishes, in their order: the state that stands, or why it was not changed.
pub type AlteredPartitions = Vec<(TopicPartition, Result<Leadership, AlterPartitionError>)>;

/// What a new controller reads first.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub controller_epoch: ControllerEpoch,
    pub brokers: Vec<BrokerRegistration>,
    pub topics: Vec<TopicAssignment>,
    /// Partitions that never had a leader are missing.
    pub leaderships: Vec<(TopicPartition, Leadership)>,
    pub marked_for_deletion: Vec<TopicName>,
    /// Partitions whose states are older than the registrations of all their in-sync replicas. They are written again, as
    /// from now on it can be told who goes.
    pub all_returned: BTreeSet<TopicPartition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionKind {
    Preferred,
    Unclean,
}

/// Why a requested election did not make a leader.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
pub enum ElectionError {
    #[snafu(display("The partition does not exist."))]
    UnknownPartition,
    #[snafu(display("The topic is being deleted"))]
    TopicIsBeingDeleted,
    /// The preferred replica leads already; for an unclean election: the leader is live.
    #[snafu(display("Leader election not needed for topic partition."))]
    NotNeeded,
    #[snafu(display(
        "Failed to elect leader for partition {partition} under strategy PreferredReplicaPartitionLeaderElectionStrategy"
    ))]
    PreferredLeaderNotAvailable { partition: TopicPartition },
    #[snafu(display(
        "Failed to elect leader for partition {partition} under strategy OfflinePartitionLeaderElectionStrategy(true)"
    ))]
    EligibleLeadersNotAvailable { partition: TopicPartition },
}

/// The leader that was elected, or why none was.
pub type ElectionResult = (TopicPartition, Result<BrokerId, ElectionError>);

/// The answer to the event with the same token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Elections(Vec<ElectionResult>),
    Altered(Result<AlteredPartitions, BrokerError>),
    /// The partitions that the broker still leads.
    ShutDown(Result<Vec<TopicPartition>, BrokerError>),
    /// For each partition, in order.
    Reassignments(Vec<(TopicPartition, Result<(), ReassignmentError>)>),
}

/// What a step asks the shell to do: send the requests, in this order for each broker, and make the calls,
/// whose replies go to [`Core::replied`](super::Core::replied).
#[derive(Debug, Default)]
pub struct Effects {
    /// Independent of each other. Each is fenced by the controller's epoch.
    pub calls: Vec<StoreCall>,
    pub requests: Vec<(BrokerId, ControlRequest)>,
    pub replies: Vec<(u64, Reply)>,
}

/// A read or write of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCall {
    /// The partition's first state, with its parents.
    CreateState { partition: TopicPartition, leadership: Leadership },
    /// Succeeds only on the version `leadership.leader_and_isr.partition_epoch`.
    SetState { partition: TopicPartition, leadership: Leadership },
    /// The topic's own `unclean.leader.election.enable`.
    ReadUncleanElection { topic: TopicName },
    /// Overwrites the topic's node. Partitions that it has besides these stay or go.
    SetAssignment { topic: TopicAssignment, others: OtherPartitions },
    /// Removes the topic's nodes, then its configuration and the mark.
    DeleteTopic { topic: TopicName, partitions: Vec<PartitionIndex> },
    /// Forgets the wish to delete topics.
    RemoveDeletionMarks { topics: Vec<TopicName> },
    /// Takes these out of `/admin/reassign_partitions`, and the node away when nothing is left. An entry that
    /// asks for other replicas by now stays.
    SettleReassignments {
        done: Vec<PartitionReassignment>,
        failed: Vec<(PartitionReassignment, ReassignmentError)>,
    },
    /// Removes `/admin/preferred_replica_election`.
    RemovePreferredElection,
}

/// What becomes of partitions in a topic's node that the controller has not heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPartitions {
    /// Somebody is just adding them.
    Stay,
    /// The topic is being deleted.
    Go,
}

/// The answer to the [`StoreCall`] of the same position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReply {
    Done,
    /// A partition state was written; its node has this version now.
    Written {
        partition_epoch: i32,
    },
    /// Somebody else wrote the partition state: this is what stands. `None` = there is no such node.
    Conflict {
        current: Option<Leadership>,
    },
    /// `None` = the topic does not set it.
    UncleanElection {
        setting: Option<bool>,
    },
    /// The store refused this call for good; it has been logged.
    Refused,
}

/// A request to one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRequest {
    LeaderAndIsr(LeaderAndIsrRequest),
    StopReplica(StopReplicaRequest),
    UpdateMetadata(UpdateMetadataRequest),
}

/// What a broker did with a request, partition by partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlResponse {
    LeaderAndIsr(Vec<(TopicPartition, ControlOutcome)>),
    StopReplica(Vec<(TopicPartition, ControlOutcome)>),
    UpdateMetadata,
}
