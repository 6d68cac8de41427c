//! What an embedded store must hold so that a broker serves the folders it is for: values in, values out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bytes::Bytes;
use snafu::{OptionExt, Snafu, ensure};

use crate::coordination::znodes::{
    self, EntityConfig, PartitionState, ProducerIdBlock, ReplicaAssignment, TopicAssignment,
};
use crate::coordination::{NodeData, Stat, TextNode};
use crate::log::checkpoint::ClusterMode;
use crate::log::{Survey, SurveyedPartition};
use crate::model::{
    BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, ProducerId, TopicId, TopicName, TopicPartition,
};

/// What is known before anything is written.
pub(super) struct Findings {
    pub surveys: Vec<Survey>,
    /// The tree that the folders belonged to, where it was given.
    pub znodes: Vec<TextNode>,
    /// The largest in `__transaction_state`.
    pub producer_id_max: Option<ProducerId>,
}

/// The tree to be written, and what an operator should know about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub broker_id: BrokerId,
    pub cluster_id: String,
    /// By name, with the number of partitions.
    pub topics: BTreeMap<TopicName, usize>,
    /// Parents first.
    pub nodes: Vec<TextNode>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
pub(in crate::cli) enum PlanError {
    #[snafu(display("{} has no meta.properties: it is no folder of a broker", path.display()))]
    NoMetaProperties { path: PathBuf },
    #[snafu(display("{} does not say {what}", path.display()))]
    Incomplete { path: PathBuf, what: &'static str },
    #[snafu(display("{} is another broker's or another cluster's than the folder before it", path.display()))]
    OtherBroker { path: PathBuf },
    #[snafu(display("{of} lies in {} and in {}", first.display(), second.display()))]
    PartitionTwice { of: TopicPartition, first: PathBuf, second: PathBuf },
    #[snafu(display("the partitions of topic {topic} have different topic ids"))]
    TopicIdsDiffer { topic: TopicName },
    #[snafu(display("the given tree is of cluster {found}, the folder of {expected}"))]
    OtherTree { expected: String, found: String },
}

/// Subtrees of the given tree that are not taken over: they are this broker's past, other brokers' or made anew.
const LEFT_BEHIND: [&str; 8] = [
    "/brokers/ids",
    "/brokers/topics",
    "/controller",
    "/zookeeper",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/migration",
    "/cluster/id",
];
const KRAFT_NOTE: &str = "the folders are a KRaft broker's: its metadata, __cluster_metadata-0, is passed over and stays \
                          as it is, with the configurations, ACLs and quotas in it; meta.properties is not changed";
/// Notifications: their parents are taken over, they are not.
const NOTIFICATIONS: [&str; 6] = [
    "/config/changes/",
    "/isr_change_notification/",
    "/log_dir_event_notification/",
    "/kafka-acl-changes/",
    "/kafka-acl-extended-changes/",
    "/delegation_token/token_changes/",
];

impl Plan {
    pub fn of(findings: &Findings) -> Result<Plan, PlanError> {
        let Identity { mode, broker_id, cluster_id } = identity(&findings.surveys)?;
        let given = Tree::of(&findings.znodes);
        if let Some(found) = given.decode(znodes::CLUSTER_ID, znodes::ClusterId::decode) {
            ensure!(found.0 == cluster_id, OtherTreeSnafu { expected: cluster_id, found: found.0 });
        }
        let mut writing = Writing { broker_id, given, nodes: BTreeMap::new(), notes: Vec::new() };
        if mode == ClusterMode::KRaft {
            writing.notes.push(KRAFT_NOTE.to_owned());
        }
        writing.take_over();
        writing.put(znodes::CLUSTER_ID, Some(znodes::ClusterId(cluster_id.clone()).encode()));
        let topics = topics(&findings.surveys)?;
        for (name, partitions) in &topics {
            writing.topic(name, partitions)?;
        }
        writing.topic_configs(&topics, &findings.surveys);
        writing.missing_topics(&topics);
        writing.producer_ids(findings);
        for survey in findings.surveys.iter().filter(|survey| !survey.other_folders.is_empty()) {
            let names = survey.other_folders.join(", ");
            writing.notes.push(format!("left alone in {}: {names}", survey.path.display()));
        }
        let topics = topics.into_iter().map(|(name, partitions)| (name, partitions.len())).collect();
        let Writing { nodes, notes, .. } = writing;
        let nodes =
            nodes.into_iter().map(|(path, data)| TextNode { path, is_ephemeral: false, version: 0, data });
        Ok(Plan { broker_id, cluster_id, topics, nodes: nodes.collect(), notes })
    }
}

type Topics<'a> = BTreeMap<TopicName, Vec<&'a SurveyedPartition>>;

#[derive(Clone, PartialEq, Eq)]
struct Identity {
    mode: ClusterMode,
    broker_id: BrokerId,
    cluster_id: String,
}

fn identity(surveys: &[Survey]) -> Result<Identity, PlanError> {
    let mut known = None;
    for Survey { path, meta, .. } in surveys {
        let meta = meta.as_ref().context(NoMetaPropertiesSnafu { path })?;
        let broker_id = meta.broker_id.context(IncompleteSnafu { path, what: "its broker.id" })?;
        let cluster_id = meta.cluster_id.clone().context(IncompleteSnafu { path, what: "its cluster.id" })?;
        let found = Identity { mode: meta.mode, broker_id, cluster_id };
        ensure!(known.as_ref().is_none_or(|known| *known == found), OtherBrokerSnafu { path });
        known = Some(found);
    }
    known.context(NoMetaPropertiesSnafu { path: PathBuf::new() })
}

fn topics(surveys: &[Survey]) -> Result<Topics<'_>, PlanError> {
    let mut topics: Topics<'_> = BTreeMap::new();
    for partition in surveys.iter().flat_map(|survey| &survey.partitions) {
        let TopicPartition { topic, partition: index } = &partition.topic_partition;
        let partitions = topics.entry(topic.clone()).or_default();
        if let Some(first) = partitions.iter().find(|known| known.topic_partition.partition == *index) {
            let (first, second) = (first.path.clone(), partition.path.clone());
            return PartitionTwiceSnafu { of: partition.topic_partition.clone(), first, second }.fail();
        }
        partitions.push(partition);
    }
    for partitions in topics.values_mut() {
        partitions.sort_by_key(|partition| partition.topic_partition.partition);
    }
    Ok(topics)
}

/// A tree to look things up in.
struct Tree<'a>(BTreeMap<&'a str, &'a TextNode>);

impl<'a> Tree<'a> {
    fn of(nodes: &'a [TextNode]) -> Tree<'a> {
        Tree(nodes.iter().map(|node| (node.path.as_str(), node)).collect())
    }

    /// `None` where there is no such node, or where it cannot be read.
    fn decode<T, E>(&self, path: &str, decode: impl Fn(&NodeData) -> Result<T, E>) -> Option<T> {
        let node = self.0.get(path)?;
        decode(&NodeData { data: node.data.clone(), stat: Stat::default() }).ok()
    }
}

struct Writing<'a> {
    broker_id: BrokerId,
    given: Tree<'a>,
    nodes: BTreeMap<String, Option<Bytes>>,
    notes: Vec<String>,
}

impl Writing<'_> {
    /// Puts a node and, with null data, what is missing above it.
    fn put(&mut self, path: &str, data: Option<Bytes>) {
        for (at, _) in path.match_indices('/').skip(1) {
            self.nodes.entry(path[..at].to_owned()).or_default();
        }
        self.nodes.insert(path.to_owned(), data);
    }

    fn take_over(&mut self) {
        for path in znodes::CREATED_AT_START {
            self.put(path, None);
        }
        let is_left = |path: &str| {
            let is_below = |parent: &str| {
                path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            LEFT_BEHIND.iter().any(|parent| is_below(parent))
                || NOTIFICATIONS.iter().any(|of| path.starts_with(of))
        };
        let taken: Vec<(String, Option<Bytes>)> = self
            .given
            .0
            .values()
            .filter(|node| !node.is_ephemeral && node.path != "/" && !is_left(&node.path))
            .map(|node| (node.path.clone(), node.data.clone()))
            .collect();
        for (path, data) in taken {
            self.put(&path, data);
        }
    }

    fn topic(&mut self, name: &TopicName, partitions: &[&SurveyedPartition]) -> Result<(), PlanError> {
        let given = self.given.decode(&znodes::topic(name), TopicAssignment::decode);
        let topic_id = self.topic_id(name, partitions, given.as_ref())?;
        let replicas = ReplicaAssignment { replicas: vec![self.broker_id], ..ReplicaAssignment::default() };
        let indexes: BTreeSet<PartitionIndex> =
            partitions.iter().map(|partition| partition.topic_partition.partition).collect();
        let assignment = TopicAssignment {
            topic_id,
            partitions: indexes.iter().map(|&index| (index, replicas.clone())).collect(),
        };
        self.put(&znodes::topic(name), Some(assignment.encode()));
        self.put(&znodes::partitions(name), None);
        for partition in partitions {
            self.partition(name, partition);
        }
        self.note_elsewhere(name, &indexes, given);
        Ok(())
    }

    fn topic_id(
        &mut self,
        name: &TopicName,
        partitions: &[&SurveyedPartition],
        given: Option<&TopicAssignment>,
    ) -> Result<Option<TopicId>, PlanError> {
        let ids: BTreeSet<TopicId> = partitions.iter().filter_map(|partition| partition.topic_id).collect();
        ensure!(ids.len() <= 1, TopicIdsDifferSnafu { topic: name.clone() });
        let in_folder = ids.first().copied();
        let in_tree = given.and_then(|given| given.topic_id);
        if let (Some(folder), Some(tree)) = (in_folder, in_tree)
            && folder != tree
        {
            self.notes
                .push(format!("topic {name}: its folders say id {folder}, the tree {tree}; the folders win"));
        }
        Ok(in_folder.or(in_tree))
    }

    /// Leadership goes on at the epoch that the log has seen last: an older one would cut the log.
    fn partition(&mut self, name: &TopicName, partition: &SurveyedPartition) {
        let index = partition.topic_partition.partition;
        let path = znodes::partition_state(name, index);
        let given = self.given.decode(&path, PartitionState::decode);
        let epoch = given.as_ref().map_or(LeaderEpoch(0), |given| given.leader_epoch);
        let state = PartitionState {
            leader: self.broker_id,
            leader_epoch: epoch.max(partition.latest_epoch.unwrap_or(LeaderEpoch(0))),
            isr: vec![self.broker_id],
            controller_epoch: given.map_or(ControllerEpoch(0), |given| given.controller_epoch),
            is_recovering: false,
        };
        self.put(&path, Some(state.encode()));
    }

    fn note_elsewhere(
        &mut self,
        name: &TopicName,
        here: &BTreeSet<PartitionIndex>,
        given: Option<TopicAssignment>,
    ) {
        let last = here.last().map_or(0, |index| index.0 + 1);
        let mut all: BTreeSet<PartitionIndex> = (0..last).map(PartitionIndex).collect();
        all.extend(given.iter().flat_map(|given| given.partitions.keys().copied()));
        let missing: Vec<String> = all.difference(here).map(ToString::to_string).collect();
        if !missing.is_empty() {
            self.notes
                .push(format!("topic {name}: partitions {} are not in the folders", missing.join(", ")));
        }
        let others = |replicas: &ReplicaAssignment| replicas.replicas.iter().any(|id| *id != self.broker_id);
        if given.is_some_and(|given| given.partitions.values().any(others)) {
            self.notes.push(format!("topic {name}: replicas on other brokers are left out"));
        }
    }

    /// Configurations are not in the folders. Without the tree, internal topics get Kafka's, and topics that a
    /// cleaner has compacted stay compacted: retention would delete what they hold.
    fn topic_configs(&mut self, topics: &Topics<'_>, surveys: &[Survey]) {
        let compacted: BTreeSet<&TopicName> =
            surveys.iter().flat_map(|survey| &survey.compacted).map(|of| &of.topic).collect();
        let (mut kept_compacted, mut plain) = (Vec::new(), 0);
        for name in topics.keys() {
            let path = znodes::topic_config(name);
            if self.nodes.contains_key(&path) {
                continue;
            }
            let config: &[(&str, &str)] = match name.as_str() {
                "__consumer_offsets" => &[
                    ("compression.type", "producer"),
                    ("cleanup.policy", "compact"),
                    ("segment.bytes", "104857600"),
                ],
                "__transaction_state" => &[
                    ("compression.type", "uncompressed"),
                    ("cleanup.policy", "compact"),
                    ("segment.bytes", "104857600"),
                    ("unclean.leader.election.enable", "false"),
                ],
                // Kafka keeps the state of share groups until it is written anew.
                "__share_group_state" => &[
                    ("compression.type", "producer"),
                    ("cleanup.policy", "delete"),
                    ("retention.ms", "-1"),
                    ("segment.bytes", "104857600"),
                ],
                _ if compacted.contains(name) => {
                    kept_compacted.push(name.to_string());
                    &[("cleanup.policy", "compact")]
                }
                _ => {
                    plain += 1;
                    &[]
                }
            };
            let entries = config.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
            self.put(&path, Some(EntityConfig(entries).encode()));
        }
        if !kept_compacted.is_empty() {
            let names = kept_compacted.join(", ");
            self.notes.push(format!("compacted as the cleaner's checkpoint says: {names}"));
        }
        if plain > 0 {
            self.notes.push(format!(
                "{plain} topics have no configuration but the broker's defaults, retention included; --znodes or \
                 --zookeeper gives them theirs"
            ));
        }
    }

    fn missing_topics(&mut self, topics: &Topics<'_>) {
        let prefix = format!("{}/", znodes::TOPICS);
        let missing: Vec<&str> = self
            .given
            .0
            .keys()
            .filter_map(|path| path.strip_prefix(&prefix))
            .filter(|name| !name.contains('/') && !topics.keys().any(|known| known.as_str() == *name))
            .collect();
        if missing.is_empty() {
            return;
        }
        let note = format!("topics of the tree without a folder are left out: {}", missing.join(", "));
        let configs: Vec<String> = missing.iter().map(|name| znodes::topic_config(name)).collect();
        configs.iter().for_each(|path| drop(self.nodes.remove(path)));
        self.notes.push(note);
    }

    /// No id may be given out twice.
    fn producer_ids(&mut self, findings: &Findings) {
        let partitions = findings.surveys.iter().flat_map(|survey| &survey.partitions);
        let used = partitions.filter_map(|partition| partition.producer_id_max).max();
        let Some(used) = used.max(findings.producer_id_max) else { return };
        let given = self.given.decode(znodes::PRODUCER_ID_BLOCK, ProducerIdBlock::decode).flatten();
        if given.is_some_and(|given| given.last >= used) {
            return;
        }
        let first = used.0 - used.0 % ProducerIdBlock::SIZE;
        let block = ProducerIdBlock {
            broker_id: self.broker_id,
            first: ProducerId(first),
            last: ProducerId(first + ProducerIdBlock::SIZE - 1),
        };
        self.put(znodes::PRODUCER_ID_BLOCK, Some(block.encode()));
        self.notes.push(format!("producer ids go on above {}", block.last));
    }
}
