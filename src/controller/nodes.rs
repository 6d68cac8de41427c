//! Between the store's nodes and the controller's words. What cannot be read is `None` and has been logged.

use bytes::Bytes;
use tracing::warn;

use super::core::{Leadership, TopicAssignment};
use super::registration::Registration;
use crate::coordination::NodeData;
use crate::coordination::znodes::{self, ZnodeError};
use crate::metadata::control::{BrokerRegistration, Endpoint, LeaderAndIsr};
use crate::model::{BrokerEpoch, BrokerId, ControllerEpoch, TopicName, TopicPartition};

pub(super) const UNCLEAN_ELECTION: &str = "unclean.leader.election.enable";

pub(super) fn encode_state(leadership: &Leadership) -> Bytes {
    let state = &leadership.leader_and_isr;
    let node = znodes::PartitionState {
        leader: state.leader,
        leader_epoch: state.leader_epoch,
        isr: state.isr.clone(),
        controller_epoch: leadership.controller_epoch,
        is_recovering: leadership.is_recovering,
    };
    node.encode()
}

pub(super) fn decode_state(path: &str, node: &NodeData) -> Option<Leadership> {
    let state = readable(path, znodes::PartitionState::decode(node))?;
    Some(Leadership {
        leader_and_isr: LeaderAndIsr {
            leader: state.leader,
            leader_epoch: state.leader_epoch,
            isr: state.isr,
            partition_epoch: node.stat.version,
        },
        is_recovering: state.is_recovering,
        controller_epoch: state.controller_epoch,
    })
}

pub(super) fn encode_topic(topic: &TopicAssignment) -> Bytes {
    let node = znodes::TopicAssignment { topic_id: topic.id, partitions: topic.partitions.clone() };
    node.encode()
}

pub(super) fn decode_topic(name: &TopicName, node: &NodeData) -> Option<TopicAssignment> {
    let topic = readable(&znodes::topic(name), znodes::TopicAssignment::decode(node))?;
    Some(TopicAssignment { name: name.clone(), id: topic.topic_id, partitions: topic.partitions })
}

pub(super) fn encode_broker(registration: &Registration) -> Bytes {
    let endpoint = |endpoint: &Endpoint| znodes::BrokerEndpoint {
        listener: endpoint.listener.clone(),
        security_protocol: endpoint.security_protocol.clone(),
        host: endpoint.host.clone(),
        port: endpoint.port,
    };
    let node = znodes::Broker {
        endpoints: registration.endpoints.iter().map(endpoint).collect(),
        rack: registration.rack.clone(),
        jmx_port: -1,
        timestamp: registration.timestamp,
        features: Default::default(),
    };
    node.encode(registration.version)
}

pub(super) fn decode_broker(id: BrokerId, node: &NodeData) -> Option<BrokerRegistration> {
    let broker = readable(&znodes::broker(id), znodes::Broker::decode(node))?;
    let endpoint = |endpoint: znodes::BrokerEndpoint| Endpoint {
        listener: endpoint.listener,
        security_protocol: endpoint.security_protocol,
        host: endpoint.host,
        port: endpoint.port,
    };
    Some(BrokerRegistration {
        id,
        epoch: BrokerEpoch(node.stat.czxid),
        endpoints: broker.endpoints.into_iter().map(endpoint).collect(),
        rack: broker.rack,
    })
}

/// `-1` where the node cannot be read: somebody is the controller.
pub(super) fn decode_controller(node: &NodeData) -> BrokerId {
    let controller = readable(znodes::CONTROLLER, znodes::Controller::decode(node));
    controller.map_or(BrokerId::NONE, |controller| controller.broker_id)
}

pub(super) fn decode_epoch(node: &NodeData) -> ControllerEpoch {
    let epoch = readable(znodes::CONTROLLER_EPOCH, znodes::decode_controller_epoch(node));
    epoch.unwrap_or(ControllerEpoch(0))
}

pub(super) fn decode_cluster_id(node: &NodeData) -> Option<String> {
    Some(readable(znodes::CLUSTER_ID, znodes::ClusterId::decode(node))?.0)
}

pub(super) fn decode_isr_change(path: &str, node: &NodeData) -> Option<Vec<TopicPartition>> {
    Some(readable(path, znodes::IsrChange::decode(node))?.0)
}

pub(super) fn decode_log_dir_event(path: &str, node: &NodeData) -> Option<BrokerId> {
    Some(readable(path, znodes::LogDirEvent::decode(node))?.broker_id)
}

/// A topic's own setting; `None` where it has none.
pub(super) fn unclean_election(topic: &TopicName, node: &NodeData) -> Option<bool> {
    let config = readable(&znodes::topic_config(topic), znodes::EntityConfig::decode(node))?;
    config.0.get(UNCLEAN_ELECTION)?.trim().to_ascii_lowercase().parse().ok()
}

pub(super) fn readable<T>(path: &str, decoded: Result<T, ZnodeError>) -> Option<T> {
    decoded.inspect_err(|error| warn!(path, %error, "the node cannot be read")).ok()
}

/// Two texts of the same JSON, whatever the order of keys.
pub(super) fn is_same_json(stored: Option<&[u8]>, wanted: &[u8]) -> bool {
    let parse = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).ok();
    stored.and_then(parse).is_some_and(|stored| Some(stored) == parse(wanted))
}
