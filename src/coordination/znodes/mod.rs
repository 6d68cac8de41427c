//! Every node that Kafka keeps in ZooKeeper: its path and its data, typed both ways.
//!
//! Readers are as lenient as Kafka's: any key order, unknown keys, and older versions as far as Kafka reads
//! them. Writers give the bytes that Kafka 3.9 gives, key order included, except that partitions are sorted
//! by number, where Kafka's hash order shows above four of them. Nodes of ACLs and delegation tokens are not
//! here: their data belongs to `security`.

mod admin;
mod broker;
mod cluster;
mod config;
mod controller;
mod json;
mod notification;
mod paths;
mod topic;

pub use admin::{PartitionReassignment, PreferredElection, ReassignPartitions};
pub use broker::{Broker, BrokerEndpoint, BrokerVersion, SupportedVersions};
pub use cluster::{ClusterId, Feature, FeatureStatus, ProducerIdBlock};
pub use config::{ConfigChange, ConfigEntity, EntityConfig};
pub use controller::{
    Controller, decode_controller_epoch, decode_kraft_controller_epoch, encode_controller_epoch,
};
pub use json::ZnodeError;
pub use notification::{IsrChange, LogDirEvent, sequence_number};
pub use paths::*;
pub use topic::{PartitionState, ReplicaAssignment, TopicAssignment};

#[cfg(test)]
mod tests;
