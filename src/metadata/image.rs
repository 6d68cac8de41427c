use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use indexmap::IndexMap;

use super::control::{
    BrokerRegistration, Endpoint, LEADER_DURING_DELETE, PartitionAssignmentState, UpdateMetadataRequest,
};
use super::sharded::ShardedMap;
use crate::model::{BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition};

/// The cluster as this broker last heard of it: live brokers, topics, who leads what.
///
/// Immutable; [`Image::apply`] makes the next one, sharing all topics that did not change. Empty until the
/// controller's first UpdateMetadata.
#[derive(Clone, Debug)]
pub struct Image {
    controller_id: BrokerId,
    brokers: Arc<BTreeMap<BrokerId, BrokerRegistration>>,
    topics: ShardedMap<TopicName, Arc<Topic>>,
    names: ShardedMap<TopicId, TopicName>,
    partition_count: usize,
}

/// A topic and its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub name: TopicName,
    /// Zero where the cluster gives topics no ids (`inter.broker.protocol.version` below 2.8).
    pub id: TopicId,
    /// Ordered by index. While a topic is being created some may be missing.
    partitions: Vec<Arc<Partition>>,
}

/// Who leads and follows a partition, as the controller said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub index: PartitionIndex,
    /// `-1` = none.
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    pub isr: Vec<BrokerId>,
    pub replicas: Vec<BrokerId>,
    /// Replicas on dead brokers or failed log directories.
    pub offline_replicas: Vec<BrokerId>,
    /// The version of the partition's state node; informational here.
    pub partition_epoch: i32,
}

/// Why a client that came over a listener cannot be sent to a partition's leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderUnavailable {
    /// There is no leader, or its broker is not alive.
    LeaderNotAvailable,
    /// The leader lives, but has no endpoint of this listener.
    ListenerNotFound,
}

/// What an update changed, for those who act on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Partitions that are gone with their topic: their committed offsets go too.
    pub deleted: Vec<TopicPartition>,
    /// Topics of which a partition is new, changed or deleted.
    pub topics: Vec<TopicName>,
}

impl Default for Image {
    fn default() -> Self {
        Image {
            controller_id: BrokerId::NONE,
            brokers: Arc::default(),
            topics: ShardedMap::default(),
            names: ShardedMap::default(),
            partition_count: 0,
        }
    }
}

impl Image {
    /// The active controller; `-1` = unknown.
    pub fn controller_id(&self) -> BrokerId {
        self.controller_id
    }

    /// All live brokers, by id.
    pub fn brokers(&self) -> impl ExactSizeIterator<Item = &BrokerRegistration> {
        self.brokers.values()
    }

    pub fn broker(&self, id: BrokerId) -> Option<&BrokerRegistration> {
        self.brokers.get(&id)
    }

    /// Where a live broker listens for clients of `listener`; `None` also when it is not alive.
    pub fn endpoint(&self, id: BrokerId, listener: &str) -> Option<&Endpoint> {
        self.broker(id)?.endpoint(listener)
    }

    /// The live brokers that a client of `listener` can reach, by id.
    pub fn brokers_on<'a>(
        &'a self,
        listener: &'a str,
    ) -> impl Iterator<Item = (&'a BrokerRegistration, &'a Endpoint)> {
        self.brokers().filter_map(move |broker| Some((broker, broker.endpoint(listener)?)))
    }

    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// About what the image holds; parts shared with images before it count in full.
    pub fn memory_bytes(&self) -> usize {
        let partition = |partition: &Arc<Partition>| {
            let ids = partition.isr.len() + partition.replicas.len() + partition.offline_replicas.len();
            size_of::<Partition>() + ids * size_of::<BrokerId>()
        };
        let topic = |topic: &Arc<Topic>| {
            // The name and the id are keys as well.
            let names = size_of::<Topic>() + topic.name.len() + size_of::<(TopicId, TopicName, TopicName)>();
            names + topic.partitions.iter().map(partition).sum::<usize>()
        };
        self.topics().map(topic).sum()
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topic(self.names.get(&id)?)
    }

    pub fn topic_name(&self, id: TopicId) -> Option<&TopicName> {
        self.names.get(&id)
    }

    /// Zero when the topic is unknown or has no id.
    pub fn topic_id(&self, name: &str) -> TopicId {
        self.topic(name).map_or(TopicId::ZERO, |topic| topic.id)
    }

    /// All topics, in no particular order.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// All topics, by name.
    pub fn topics_by_name(&self) -> Vec<&Arc<Topic>> {
        let mut topics: Vec<_> = self.topics().collect();
        topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        topics
    }

    pub fn partition(&self, topic: &str, index: PartitionIndex) -> Option<&Arc<Partition>> {
        self.topic(topic)?.partition(index)
    }

    /// Where a client of `listener` finds the leader of `partition`.
    pub fn leader(&self, partition: &Partition, listener: &str) -> Result<&Endpoint, LeaderUnavailable> {
        let leader = self.broker(partition.leader).ok_or(LeaderUnavailable::LeaderNotAvailable)?;
        leader.endpoint(listener).ok_or(LeaderUnavailable::ListenerNotFound)
    }

    /// The next image and what differs. Partitions are merged, brokers and the controller replaced; a leader
    /// of `-2` removes its partition, and the last one removes the topic and its id.
    pub fn apply(&self, request: UpdateMetadataRequest) -> (Image, Changes) {
        let mut next = self.clone();
        let mut changes = Changes::default();
        next.controller_id = request.sender.controller_id;
        next.brokers = Arc::new(request.live_brokers.into_iter().map(|broker| (broker.id, broker)).collect());

        let mut ids: HashMap<TopicName, TopicId> = request.topic_ids.into_iter().collect();
        for (name, states) in by_topic(request.partitions) {
            let id = ids.remove(&name);
            next.merge_topic(&name, id, states, &mut changes);
            changes.topics.push(name);
        }
        for (name, id) in ids {
            next.rename_id(&name, id);
        }
        (next, changes)
    }

    fn merge_topic(
        &mut self,
        name: &TopicName,
        id: Option<TopicId>,
        states: Vec<PartitionAssignmentState>,
        changes: &mut Changes,
    ) {
        let known = self.topic(name);
        let old_id = known.map_or(TopicId::ZERO, |topic| topic.id);
        let old_count = known.map_or(0, |topic| topic.partitions.len());
        let mut partitions = known.map_or(Vec::new(), |topic| topic.partitions.clone());
        for state in states {
            let index = state.topic_partition.partition;
            let at = partitions.binary_search_by_key(&index, |partition| partition.index);
            if state.leader_and_isr.leader == LEADER_DURING_DELETE {
                if let Ok(at) = at {
                    partitions.remove(at);
                }
                changes.deleted.push(state.topic_partition);
                continue;
            }
            let partition = Arc::new(Partition::from(state));
            match at {
                Ok(at) => partitions[at] = partition,
                Err(at) => partitions.insert(at, partition),
            }
        }

        self.partition_count = self.partition_count + partitions.len() - old_count;
        let id = id.unwrap_or(old_id);
        if partitions.is_empty() || id != old_id {
            self.names.remove(&old_id);
        }
        if partitions.is_empty() {
            self.topics.remove(name);
            return;
        }
        if !id.is_zero() {
            self.names.insert(id, name.clone());
        }
        self.topics.insert(name.clone(), Arc::new(Topic { name: name.clone(), id, partitions }));
    }

    /// An update that names a topic without any of its partitions sets only its id.
    fn rename_id(&mut self, name: &TopicName, id: TopicId) {
        let Some(topic) = self.topic(name).filter(|topic| topic.id != id).cloned() else { return };
        self.names.remove(&topic.id);
        if !id.is_zero() {
            self.names.insert(id, name.clone());
        }
        self.topics.insert(name.clone(), Arc::new(Topic { id, ..Topic::clone(&topic) }));
    }
}

impl Topic {
    /// Ordered by index.
    pub fn partitions(&self) -> &[Arc<Partition>] {
        &self.partitions
    }

    pub fn partition(&self, index: PartitionIndex) -> Option<&Arc<Partition>> {
        // Partitions are numbered from 0 without gaps but for the moment of their creation.
        let guess = self.partitions.get(usize::try_from(index.0).ok()?);
        guess.filter(|partition| partition.index == index).or_else(|| {
            let at = self.partitions.binary_search_by_key(&index, |partition| partition.index).ok()?;
            self.partitions.get(at)
        })
    }
}

impl Partition {
    pub fn has_leader(&self) -> bool {
        self.leader.0 >= 0
    }
}

impl From<PartitionAssignmentState> for Partition {
    fn from(state: PartitionAssignmentState) -> Self {
        Partition {
            index: state.topic_partition.partition,
            leader: state.leader_and_isr.leader,
            leader_epoch: state.leader_and_isr.leader_epoch,
            isr: state.leader_and_isr.isr,
            replicas: state.replicas,
            offline_replicas: state.offline_replicas,
            partition_epoch: state.leader_and_isr.partition_epoch,
        }
    }
}

/// Groups states so that each topic is copied once, in the order in which topics first appear.
fn by_topic(states: Vec<PartitionAssignmentState>) -> IndexMap<TopicName, Vec<PartitionAssignmentState>> {
    let mut topics: IndexMap<TopicName, Vec<PartitionAssignmentState>> = IndexMap::new();
    for state in states {
        topics.entry(state.topic_partition.topic.clone()).or_default().push(state);
    }
    topics
}
