use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::deletion::Deletion;
use crate::coordination::znodes::ReplicaAssignment;
use crate::metadata::control::{BrokerRegistration, LeaderAndIsr, PartitionAssignmentState};
use crate::model::{BrokerId, ControllerEpoch, PartitionIndex, TopicId, TopicName, TopicPartition};

/// The cluster as the active controller knows it: live brokers, topics, assignments and leaders.
///
/// Whether a replica or a partition is online is not stored: it follows from the brokers and the leaders, so
/// that they cannot disagree.
#[derive(Debug, Default)]
pub struct Cluster {
    brokers: BTreeMap<BrokerId, Broker>,
    topics: BTreeMap<TopicName, Topic>,
    names: HashMap<TopicId, TopicName>,
    /// Replicas by broker, live or not: a broker's failure costs what it held, not what there is.
    replicas: HashMap<BrokerId, BTreeSet<TopicPartition>>,
    /// Partitions on their way to other replicas.
    reassigning: BTreeSet<TopicPartition>,
    /// Those of these that everyone is told of as if they were there already: only the final list is to be stored.
    arriving: BTreeSet<TopicPartition>,
}

/// A broker that is registered.
#[derive(Debug)]
pub struct Broker {
    pub registration: BrokerRegistration,
    /// Its replicas on failed log directories, as it answered to LeaderAndIsr.
    pub offline: HashSet<TopicPartition>,
    /// It said that it is about to stop: it gets no leadership any more.
    pub is_shutting_down: bool,
}

/// What a replica can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Its broker is live and its log directory works.
    Online,
    /// As online, but its broker is about to stop: it may keep what it leads and is elected for nothing.
    ShuttingDown,
    Offline,
}

#[derive(Debug, Default)]
pub struct Topic {
    /// Zero where the cluster gives topics no ids.
    pub id: TopicId,
    pub partitions: BTreeMap<PartitionIndex, Partition>,
    /// `Some` once its deletion was asked for.
    pub deletion: Option<Deletion>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    pub assignment: ReplicaAssignment,
    /// `None` until the first leader is written.
    pub leadership: Option<Leadership>,
}

/// A partition's state node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// Its `partition_epoch` is the version of the node.
    pub leader_and_isr: LeaderAndIsr,
    /// After an unclean election, until the leader reports that it has recovered.
    pub is_recovering: bool,
    /// The controller that wrote it.
    pub controller_epoch: ControllerEpoch,
}

/// A topic node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicAssignment {
    pub name: TopicName,
    /// `None` in nodes that tools older than 2.8 wrote.
    pub id: Option<TopicId>,
    pub partitions: BTreeMap<PartitionIndex, ReplicaAssignment>,
}

impl Broker {
    fn new(registration: BrokerRegistration) -> Broker {
        Broker { registration, offline: HashSet::new(), is_shutting_down: false }
    }
}

impl Cluster {
    pub fn brokers(&self) -> impl Iterator<Item = &BrokerRegistration> {
        self.brokers.values().map(|broker| &broker.registration)
    }

    pub fn broker(&self, id: BrokerId) -> Option<&Broker> {
        self.brokers.get(&id)
    }

    pub fn broker_mut(&mut self, id: BrokerId) -> Option<&mut Broker> {
        self.brokers.get_mut(&id)
    }

    pub fn add_broker(&mut self, registration: BrokerRegistration) {
        self.brokers.insert(registration.id, Broker::new(registration));
    }

    pub fn remove_broker(&mut self, id: BrokerId) {
        self.brokers.remove(&id);
    }

    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.get(name)
    }

    pub fn topic_mut(&mut self, name: &str) -> Option<&mut Topic> {
        self.topics.get_mut(name)
    }

    pub fn topics(&self) -> impl Iterator<Item = (&TopicName, &Topic)> {
        self.topics.iter()
    }

    pub fn topic_name(&self, id: TopicId) -> Option<&TopicName> {
        self.names.get(&id)
    }

    pub fn partition(&self, of: &TopicPartition) -> Option<&Partition> {
        self.topic(&of.topic)?.partitions.get(&of.partition)
    }

    pub fn partition_mut(&mut self, of: &TopicPartition) -> Option<&mut Partition> {
        self.topic_mut(&of.topic)?.partitions.get_mut(&of.partition)
    }

    pub fn partitions_of(&self, topic: &TopicName) -> Vec<TopicPartition> {
        let indexes = self.topic(topic).into_iter().flat_map(|topic| topic.partitions.keys());
        indexes.map(|&index| TopicPartition::new(topic.clone(), index)).collect()
    }

    pub fn all_partitions(&self) -> Vec<TopicPartition> {
        let partitions = self.topics.iter().flat_map(|(name, topic)| {
            topic.partitions.keys().map(|&index| TopicPartition::new(name.clone(), index))
        });
        partitions.collect()
    }

    /// What a broker holds, whether it is live or not.
    pub fn replicas_on(&self, broker: BrokerId) -> Vec<TopicPartition> {
        self.replicas.get(&broker).into_iter().flatten().cloned().collect()
    }

    pub fn condition(&self, partition: &TopicPartition, replica: BrokerId) -> Condition {
        match self.brokers.get(&replica) {
            Some(broker) if broker.offline.contains(partition) => Condition::Offline,
            Some(broker) if broker.is_shutting_down => Condition::ShuttingDown,
            Some(_) => Condition::Online,
            None => Condition::Offline,
        }
    }

    /// It can be elected.
    pub fn is_online(&self, partition: &TopicPartition, replica: BrokerId) -> bool {
        self.condition(partition, replica) == Condition::Online
    }

    /// It serves what it has, whether or not its broker is about to stop.
    pub fn is_serving(&self, partition: &TopicPartition, replica: BrokerId) -> bool {
        self.condition(partition, replica) != Condition::Offline
    }

    /// Live and not about to stop.
    pub fn is_available(&self, id: BrokerId) -> bool {
        self.brokers.get(&id).is_some_and(|broker| !broker.is_shutting_down)
    }

    pub fn reassigning(&self) -> impl Iterator<Item = &TopicPartition> {
        self.reassigning.iter()
    }

    pub fn is_reassigning(&self, partition: &TopicPartition) -> bool {
        self.reassigning.contains(partition)
    }

    pub fn is_topic_reassigning(&self, topic: &TopicName) -> bool {
        let first = TopicPartition::new(topic.clone(), PartitionIndex(i32::MIN));
        self.reassigning.range(first..).next().is_some_and(|partition| partition.topic == *topic)
    }

    pub fn set_reassigning(&mut self, partition: &TopicPartition, is_reassigning: bool) {
        self.arriving.remove(partition);
        if is_reassigning {
            self.reassigning.insert(partition.clone());
        } else {
            self.reassigning.remove(partition);
        }
    }

    /// The reassignment only has to be stored: replicas and clients are told of the target from now on.
    pub fn set_arriving(&mut self, partition: &TopicPartition) {
        self.arriving.insert(partition.clone());
    }

    /// Gives a partition that is known other replicas.
    pub fn set_assignment(&mut self, of: &TopicPartition, assignment: ReplicaAssignment) {
        let Some(partition) = self.partition_mut(of) else { return };
        let old = std::mem::replace(&mut partition.assignment, assignment.clone());
        for replica in old.replicas.iter().filter(|id| !assignment.replicas.contains(id)) {
            if let Some(held) = self.replicas.get_mut(replica) {
                held.remove(of);
            }
            if let Some(broker) = self.brokers.get_mut(replica) {
                broker.offline.remove(of);
            }
        }
        for replica in assignment.replicas {
            self.replicas.entry(replica).or_default().insert(of.clone());
        }
    }

    pub fn is_being_deleted(&self, topic: &str) -> bool {
        self.topic(topic).is_some_and(|topic| topic.deletion.is_some())
    }

    pub fn add_topic(&mut self, name: TopicName, id: TopicId) {
        if !id.is_zero() {
            self.names.insert(id, name.clone());
        }
        self.topics.entry(name).or_default().id = id;
    }

    /// Adds a partition to a topic that is known. One that is there already keeps what it is: `false`.
    pub fn add_partition(&mut self, of: &TopicPartition, partition: Partition) -> bool {
        let Some(topic) = self.topics.get_mut(&of.topic) else { return false };
        if topic.partitions.contains_key(&of.partition) {
            return false;
        }
        for &replica in &partition.assignment.replicas {
            self.replicas.entry(replica).or_default().insert(of.clone());
        }
        topic.partitions.insert(of.partition, partition);
        true
    }

    pub fn remove_topic(&mut self, name: &TopicName) {
        let Some(topic) = self.topics.remove(name) else { return };
        self.names.remove(&topic.id);
        for (index, partition) in topic.partitions {
            let partition_of = TopicPartition::new(name.clone(), index);
            self.reassigning.remove(&partition_of);
            self.arriving.remove(&partition_of);
            for replica in partition.assignment.replicas {
                if let Some(held) = self.replicas.get_mut(&replica) {
                    held.remove(&partition_of);
                }
                if let Some(broker) = self.brokers.get_mut(&replica) {
                    broker.offline.remove(&partition_of);
                }
            }
        }
    }

    /// A partition as LeaderAndIsr and UpdateMetadata carry it; `None` before its first leader.
    pub fn assignment_state(&self, of: &TopicPartition) -> Option<PartitionAssignmentState> {
        let partition = self.partition(of)?;
        let leadership = partition.leadership.as_ref()?;
        let mut assignment = partition.assignment.clone();
        if self.arriving.contains(of) {
            assignment = ReplicaAssignment { replicas: assignment.target(), ..ReplicaAssignment::default() };
        }
        Some(PartitionAssignmentState {
            topic_partition: of.clone(),
            controller_epoch: leadership.controller_epoch,
            leader_and_isr: leadership.leader_and_isr.clone(),
            replicas: assignment.replicas,
            adding_replicas: assignment.adding,
            removing_replicas: assignment.removing,
            is_new: false,
            is_recovering: leadership.is_recovering,
            offline_replicas: Vec::new(),
        })
    }

    /// A topic's node as it should stand.
    pub fn topic_assignment(&self, name: &TopicName) -> Option<TopicAssignment> {
        let topic = self.topic(name)?;
        Some(TopicAssignment {
            name: name.clone(),
            id: (!topic.id.is_zero()).then_some(topic.id),
            partitions: topic.partitions.iter().map(|(&index, p)| (index, p.assignment.clone())).collect(),
        })
    }
}
