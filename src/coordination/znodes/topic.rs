use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use snafu::OptionExt;

use super::json::{Object, UnexpectedSnafu, ZnodeError, broker_list, brokers, encode, parse};
use crate::coordination::NodeData;
use crate::model::{BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, TopicId};

/// Which brokers hold a topic's partitions, `/brokers/topics/<topic>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicAssignment {
    /// `None` where a tool older than 2.8 wrote the node; the controller then adds an id. Whoever writes the
    /// node again keeps it.
    pub topic_id: Option<TopicId>,
    pub partitions: BTreeMap<PartitionIndex, ReplicaAssignment>,
}

/// The replicas of one partition, the preferred leader first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaAssignment {
    /// All current replicas, also those being added and removed.
    pub replicas: Vec<BrokerId>,
    /// Empty unless the partition is being reassigned.
    pub adding: Vec<BrokerId>,
    pub removing: Vec<BrokerId>,
}

impl ReplicaAssignment {
    pub fn is_reassigning(&self) -> bool {
        !self.adding.is_empty() || !self.removing.is_empty()
    }

    /// The replicas before the reassignment.
    pub fn origin(&self) -> Vec<BrokerId> {
        self.replicas.iter().copied().filter(|id| !self.adding.contains(id)).collect()
    }

    /// The replicas after it.
    pub fn target(&self) -> Vec<BrokerId> {
        self.replicas.iter().copied().filter(|id| !self.removing.contains(id)).collect()
    }

    /// On the way from the replicas before any reassignment to `target`.
    pub fn reassigned_to(&self, target: &[BrokerId]) -> ReplicaAssignment {
        let origin = self.origin();
        let mut replicas = target.to_vec();
        replicas.extend(origin.iter().filter(|id| !target.contains(id)));
        ReplicaAssignment {
            adding: target.iter().copied().filter(|id| !origin.contains(id)).collect(),
            removing: origin.iter().copied().filter(|id| !target.contains(id)).collect(),
            replicas,
        }
    }
}

impl TopicAssignment {
    /// Reads versions 1 to 3, and later ones as 3. Adding and removing replicas of partitions that are not
    /// there are ignored.
    pub fn decode(node: &NodeData) -> Result<TopicAssignment, ZnodeError> {
        let map = parse(node)?;
        let object = Object::new(&map);
        let mut adding = replica_map(&object, "adding_replicas")?;
        let mut removing = replica_map(&object, "removing_replicas")?;
        let partitions = replica_map(&object, "partitions")?.into_iter().map(|(partition, replicas)| {
            let adding = adding.remove(&partition).unwrap_or_default();
            let removing = removing.remove(&partition).unwrap_or_default();
            (partition, ReplicaAssignment { replicas, adding, removing })
        });
        let partitions = partitions.collect();
        let topic_id = object.optional_text("topic_id")?;
        let topic_id = topic_id.map(|id| id.parse().ok().context(UnexpectedSnafu { key: "topic_id" }));
        Ok(TopicAssignment { topic_id: topic_id.transpose()?, partitions })
    }

    /// Writes version 3 with a topic id, else version 2.
    pub fn encode(&self) -> Bytes {
        let mut map = Map::new();
        map.insert("partitions".to_owned(), self.lists(|assignment| Some(&assignment.replicas[..])));
        if let Some(topic_id) = self.topic_id {
            map.insert("topic_id".to_owned(), topic_id.to_string().into());
        }
        map.insert("adding_replicas".to_owned(), self.lists(|assignment| filled(&assignment.adding)));
        map.insert("removing_replicas".to_owned(), self.lists(|assignment| filled(&assignment.removing)));
        map.insert("version".to_owned(), if self.topic_id.is_some() { 3 } else { 2 }.into());
        encode(&Value::Object(map))
    }

    fn lists(&self, choose: impl Fn(&ReplicaAssignment) -> Option<&[BrokerId]>) -> Value {
        let partitions = self.partitions.iter();
        let lists = partitions.filter_map(|(partition, assignment)| {
            Some((partition.to_string(), broker_list(choose(assignment)?)))
        });
        lists.collect()
    }
}

fn filled(list: &[BrokerId]) -> Option<&[BrokerId]> {
    Some(list).filter(|list| !list.is_empty())
}

fn replica_map(
    object: &Object<'_>,
    key: &'static str,
) -> Result<BTreeMap<PartitionIndex, Vec<BrokerId>>, ZnodeError> {
    let entries = object.entries(key)?.map(|(partition, replicas)| {
        let partition = partition.parse().ok().context(UnexpectedSnafu { key })?;
        Ok((PartitionIndex(partition), brokers(replicas, key)?))
    });
    entries.collect()
}

/// Who leads a partition, `/brokers/topics/<topic>/partitions/<partition>/state`. The node's version is the
/// partition epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    /// `-1` = no leader.
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    pub isr: Vec<BrokerId>,
    /// The controller that wrote it.
    pub controller_epoch: ControllerEpoch,
    /// After an unclean election, until the leader has recovered.
    pub is_recovering: bool,
}

impl PartitionState {
    pub fn decode(node: &NodeData) -> Result<PartitionState, ZnodeError> {
        let map = parse(node)?;
        let object = Object::new(&map);
        Ok(PartitionState {
            leader: BrokerId(object.number("leader")?),
            leader_epoch: LeaderEpoch(object.number("leader_epoch")?),
            isr: object.brokers("isr")?,
            controller_epoch: ControllerEpoch(object.number("controller_epoch")?),
            is_recovering: object.optional_number("leader_recovery_state")? == Some(1),
        })
    }

    pub fn encode(&self) -> Bytes {
        let mut value = json!({
            "controller_epoch": self.controller_epoch.0,
            "leader": self.leader.0,
            "version": 1,
            "leader_epoch": self.leader_epoch.0,
            "isr": broker_list(&self.isr),
        });
        if self.is_recovering
            && let Some(map) = value.as_object_mut()
        {
            map.insert("leader_recovery_state".to_owned(), 1.into());
        }
        encode(&value)
    }
}
