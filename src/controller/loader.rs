//! What a new controller reads, and how it reads what changes later.

use std::collections::{BTreeSet, HashMap};

use tracing::info;

use super::core::{Leadership, OtherPartitions, Snapshot, TopicAssignment};
use super::fenced::{Deposed, FencedWriter};
use super::nodes;
use super::patience::{self, until_answered};
use super::watches::{Watched, Watches};
use crate::coordination::znodes::{self, PreferredElection, ReassignPartitions, ZnodeError};
use crate::coordination::{NodeData, Store, StoreError};
use crate::metadata::control::BrokerRegistration;
use crate::model::{BrokerEpoch, BrokerId, ControllerEpoch, TopicId, TopicName, TopicPartition};
use crate::runtime::Random;

/// Reads the store for the controller and sets watches on what it read.
pub(super) struct Loader<'a> {
    pub store: &'a dyn Store,
    pub watches: &'a mut Watches,
    /// Brokers that are watched already; a watch that fired is taken out.
    pub watched_brokers: &'a mut BTreeSet<BrokerId>,
    /// `None` where topics get no ids.
    pub topic_ids: Option<&'a Random>,
}

/// What a new controller finds.
pub(super) struct Loaded {
    /// Brokers that went and came back unseen are not among it: what they led, others lead first.
    pub snapshot: Snapshot,
    /// All brokers as they are registered now, if there are such.
    pub returned: Option<Vec<BrokerRegistration>>,
}

/// A partition's state, and the transaction that wrote it.
struct StoredState {
    of: TopicPartition,
    leadership: Leadership,
    written: i64,
}

/// What states say of brokers that are registered later than they were written.
#[derive(Debug, Default, PartialEq, Eq)]
struct LaterRegistrations {
    /// They are called in sync, but went and came back while nobody was controller, perhaps without what they had not synced:
    /// another in-sync replica stayed.
    returned: BTreeSet<BrokerId>,
    /// None of several in-sync replicas stayed, so none of them is better than the others.
    all_returned: BTreeSet<TopicPartition>,
}

impl LaterRegistrations {
    fn find(brokers: &[BrokerRegistration], states: &[StoredState]) -> LaterRegistrations {
        let epochs: HashMap<BrokerId, BrokerEpoch> =
            brokers.iter().map(|broker| (broker.id, broker.epoch)).collect();
        let mut found = LaterRegistrations::default();
        for state in states {
            let isr = &state.leadership.leader_and_isr.isr;
            let live = isr.iter().filter_map(|id| Some((*id, *epochs.get(id)?)));
            let (later, stayed): (Vec<_>, Vec<_>) = live.partition(|(_, epoch)| epoch.0 > state.written);
            if !stayed.is_empty() {
                found.returned.extend(later.into_iter().map(|(id, _)| id));
            } else if later.len() > 1 {
                found.all_returned.insert(state.of.clone());
            }
        }
        found
    }
}

/// What a tool asks for through a node.
pub(super) enum Request<T> {
    Absent,
    Readable(T),
    /// It has been logged. The path of the node, which only stands in the way.
    Unreadable(String),
}

impl Loader<'_> {
    /// Everything, in as few rounds as the tree is deep.
    pub async fn load(
        &mut self,
        writer: &FencedWriter,
        controller_epoch: ControllerEpoch,
    ) -> Result<Loaded, Deposed> {
        let registered = self.brokers().await?;
        let names = self.topic_names().await?;
        let topics = self.new_topics(names, writer).await?;
        let states = self.leaderships(&topics).await?;
        let marked_for_deletion = self.deleted_topics().await?;
        let LaterRegistrations { returned, all_returned } = LaterRegistrations::find(&registered, &states);
        let stayed = registered.iter().filter(|broker| !returned.contains(&broker.id));
        let brokers = stayed.cloned().collect();
        let leaderships = states.into_iter().map(|state| (state.of, state.leadership)).collect();
        let snapshot =
            Snapshot { controller_epoch, brokers, topics, leaderships, marked_for_deletion, all_returned };
        Ok(Loaded { snapshot, returned: (!returned.is_empty()).then_some(registered) })
    }

    /// All registered brokers, and a watch for others to come or go.
    pub async fn brokers(&mut self) -> Result<Vec<BrokerRegistration>, StoreError> {
        let ids = self.children_and_watch(znodes::BROKER_IDS, Watched::Brokers).await?;
        self.registrations(ids).await
    }

    /// All registered brokers, where the watch for others is still set.
    pub async fn brokers_again(&mut self) -> Result<Vec<BrokerRegistration>, StoreError> {
        let ids = patience::children(self.store, znodes::BROKER_IDS).await?;
        self.registrations(ids).await
    }

    /// Registrations that cannot be read are left out.
    async fn registrations(&mut self, ids: Vec<String>) -> Result<Vec<BrokerRegistration>, StoreError> {
        let ids: Vec<BrokerId> = ids.iter().filter_map(|id| id.parse().ok()).map(BrokerId).collect();
        let paths: Vec<String> = ids.iter().map(|&id| znodes::broker(id)).collect();
        let mut brokers = Vec::new();
        for (id, node) in ids.iter().zip(patience::read_and_watch_each(self.store, &paths).await?) {
            let Some((node, watcher)) = node else { continue };
            if self.watched_brokers.insert(*id) {
                self.watches.add(Watched::Broker(*id), watcher);
            }
            brokers.extend(nodes::decode_broker(*id, &node));
        }
        Ok(brokers)
    }

    pub async fn topic_names(&mut self) -> Result<Vec<TopicName>, StoreError> {
        let names = self.children_and_watch(znodes::TOPICS, Watched::Topics).await?;
        Ok(legal_names(names))
    }

    pub async fn deleted_topics(&mut self) -> Result<Vec<TopicName>, StoreError> {
        let names = self.children_and_watch(znodes::DELETE_TOPICS, Watched::DeletedTopics).await?;
        Ok(legal_names(names))
    }

    /// Topics that are not known yet. Those without an id get one, which is stored before anyone hears of it.
    pub async fn new_topics(
        &mut self,
        names: Vec<TopicName>,
        writer: &FencedWriter,
    ) -> Result<Vec<TopicAssignment>, Deposed> {
        let mut topics = self.topics(names).await?;
        for topic in topics.iter_mut().filter(|topic| topic.id.is_none()) {
            let Some(random) = self.topic_ids else { break };
            topic.id = Some(new_topic_id(random));
            info!(topic = %topic.name, "giving an id to a topic that has none");
            writer.set_assignment(topic, OtherPartitions::Stay).await?;
        }
        Ok(topics)
    }

    /// The topics as they stand; those that are gone are left out, and so are nodes that cannot be read.
    pub async fn topics(&mut self, names: Vec<TopicName>) -> Result<Vec<TopicAssignment>, StoreError> {
        let paths: Vec<String> = names.iter().map(|name| znodes::topic(name)).collect();
        let mut topics = Vec::new();
        for (name, node) in names.into_iter().zip(patience::read_and_watch_each(self.store, &paths).await?) {
            let Some((node, watcher)) = node else { continue };
            self.watches.add(Watched::Topic(name.clone()), watcher);
            topics.extend(nodes::decode_topic(&name, &node));
        }
        Ok(topics)
    }

    /// The brokers that reported failed log directories, and the notifications that said so.
    pub async fn log_dir_events(&mut self) -> Result<(BTreeSet<BrokerId>, Vec<String>), StoreError> {
        let names = self.children_and_watch(znodes::LOG_DIR_EVENTS, Watched::LogDirEvents).await?;
        let paths: Vec<String> =
            names.iter().map(|name| format!("{}/{name}", znodes::LOG_DIR_EVENTS)).collect();
        let nodes = patience::read_each(self.store, &paths).await?;
        let brokers = paths
            .iter()
            .zip(nodes)
            .filter_map(|(path, node)| nodes::decode_log_dir_event(path, &node?))
            .collect();
        Ok((brokers, paths))
    }

    /// Partitions whose leaders wrote their states, as these stand now, and the notifications that said so.
    pub async fn isr_changes(
        &mut self,
    ) -> Result<(Vec<(TopicPartition, Leadership)>, Vec<String>), StoreError> {
        let paths = self.isr_change_paths().await?;
        let nodes = patience::read_each(self.store, &paths).await?;
        let named = paths.iter().zip(nodes).filter_map(|(path, node)| nodes::decode_isr_change(path, &node?));
        let partitions: BTreeSet<TopicPartition> = named.flatten().collect();
        let states = self.states(partitions.into_iter().collect()).await?.into_iter();
        Ok((states.map(|state| (state.of, state.leadership)).collect(), paths))
    }

    pub async fn isr_change_paths(&mut self) -> Result<Vec<String>, StoreError> {
        let names = self.children_and_watch(znodes::ISR_CHANGES, Watched::IsrChanges).await?;
        Ok(names.iter().map(|name| format!("{}/{name}", znodes::ISR_CHANGES)).collect())
    }

    /// What stands in `/admin/reassign_partitions`.
    pub async fn reassignments(&mut self) -> Result<Request<ReassignPartitions>, StoreError> {
        self.request(znodes::REASSIGN_PARTITIONS, Watched::Reassignments, ReassignPartitions::decode).await
    }

    /// What stands in `/admin/preferred_replica_election`.
    pub async fn preferred_election(&mut self) -> Result<Request<PreferredElection>, StoreError> {
        self.request(znodes::PREFERRED_ELECTION, Watched::PreferredElection, PreferredElection::decode).await
    }

    /// A node by which a tool asks for something, watched whether it is there or not.
    async fn request<T>(
        &mut self,
        path: &str,
        watched: Watched,
        decode: impl Fn(&NodeData) -> Result<T, ZnodeError>,
    ) -> Result<Request<T>, StoreError> {
        let (_, watcher) = until_answered(|| self.store.exists_and_watch(path)).await?;
        self.watches.add(watched, watcher);
        let Some(node) = patience::read(self.store, path).await? else { return Ok(Request::Absent) };
        Ok(match nodes::readable(path, decode(&node)) {
            Some(request) => Request::Readable(request),
            None => Request::Unreadable(path.to_owned()),
        })
    }

    /// Whether `/controller` still belongs to this session.
    pub async fn is_still_controller(&mut self) -> Result<bool, StoreError> {
        let (stat, watcher) = until_answered(|| self.store.exists_and_watch(znodes::CONTROLLER)).await?;
        self.watches.add(Watched::Controller, watcher);
        Ok(stat.is_some_and(|stat| stat.ephemeral_owner == self.store.session_id()))
    }

    async fn leaderships(&self, topics: &[TopicAssignment]) -> Result<Vec<StoredState>, StoreError> {
        let partitions: Vec<TopicPartition> = topics
            .iter()
            .flat_map(|topic| {
                topic.partitions.keys().map(|&index| TopicPartition::new(topic.name.clone(), index))
            })
            .collect();
        self.states(partitions).await
    }

    /// The states of partitions; those that have none are left out.
    async fn states(&self, partitions: Vec<TopicPartition>) -> Result<Vec<StoredState>, StoreError> {
        let paths: Vec<String> =
            partitions.iter().map(|of| znodes::partition_state(&of.topic, of.partition)).collect();
        let states = patience::read_each(self.store, &paths).await?;
        let known = partitions.into_iter().zip(paths.iter().zip(states));
        let stored = known.filter_map(|(of, (path, node))| {
            let node = node?;
            let leadership = nodes::decode_state(path, &node)?;
            Some(StoredState { of, leadership, written: node.stat.mzxid })
        });
        Ok(stored.collect())
    }

    async fn children_and_watch(&mut self, path: &str, watched: Watched) -> Result<Vec<String>, StoreError> {
        let (children, watcher) = until_answered(|| self.store.children_and_watch(path)).await?;
        self.watches.add(watched, watcher);
        Ok(children)
    }
}

pub(super) fn new_topic_id(random: &Random) -> TopicId {
    loop {
        if let Some(id) = TopicId::from_random(random.bytes()) {
            return id;
        }
    }
}

fn legal_names(names: Vec<String>) -> Vec<TopicName> {
    names.iter().filter_map(|name| TopicName::new(name).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::control::LeaderAndIsr;
    use crate::model::{LeaderEpoch, PartitionIndex};

    /// Brokers as id and epoch, a partition's in-sync replicas and when that was written.
    fn find(brokers: &[(i32, i64)], isr: &[i32], written: i64) -> LaterRegistrations {
        let registration = |&(id, epoch): &(i32, i64)| BrokerRegistration {
            id: BrokerId(id),
            epoch: BrokerEpoch(epoch),
            endpoints: Vec::new(),
            rack: None,
        };
        let brokers: Vec<_> = brokers.iter().map(registration).collect();
        let leader_and_isr = LeaderAndIsr {
            leader: BrokerId(isr[0]),
            leader_epoch: LeaderEpoch(0),
            isr: isr.iter().copied().map(BrokerId).collect(),
            partition_epoch: 0,
        };
        let state = StoredState {
            of: TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(0)),
            leadership: Leadership {
                leader_and_isr,
                is_recovering: false,
                controller_epoch: ControllerEpoch(1),
            },
            written,
        };
        LaterRegistrations::find(&brokers, &[state])
    }

    #[track_caller]
    fn check(brokers: &[(i32, i64)], isr: &[i32], written: i64, expected: &[i32]) {
        let found = find(brokers, isr, written);
        assert_eq!(found.returned.into_iter().map(|id| id.0).collect::<Vec<_>>(), expected);
    }

    /// Found by the simulation: the controller and a leader lost power together, and came back before there was another
    /// controller.
    #[test]
    fn who_is_in_sync_and_registered_later_has_been_gone() {
        check(&[(1, 50), (2, 51), (3, 12)], &[1, 2, 3], 20, &[1, 2]);
        check(&[(1, 10), (2, 11), (3, 12)], &[1, 2, 3], 20, &[]);
        // Out of sync: it is known to have been gone.
        check(&[(1, 10), (2, 50)], &[1], 20, &[]);
        // All went: nobody is better than the others.
        check(&[(1, 50), (2, 51)], &[1, 2, 3], 20, &[]);
        check(&[(1, 50)], &[1], 20, &[]);
    }

    #[test]
    fn a_state_that_is_older_than_all_its_replicas_is_known() {
        let is_old = |brokers: &[(i32, i64)], isr: &[i32]| !find(brokers, isr, 20).all_returned.is_empty();
        assert!(is_old(&[(1, 50), (2, 51), (3, 12)], &[1, 2]));
        assert!(!is_old(&[(1, 50), (2, 51), (3, 12)], &[1, 2, 3]), "another stayed");
        assert!(!is_old(&[(1, 50), (2, 10)], &[1]), "there is nobody to tell it from");
        assert!(!is_old(&[(1, 50)], &[1, 2]), "the other is gone, which is written");
    }
}
