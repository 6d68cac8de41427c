//! The controller: who leads what, and what an administrator changes.
//!
//! [`Core`] decides and does nothing else. [`Controller`] is its shell: it stands for election, watches the
//! store, makes the core's calls in multis that check its epoch, and sends its requests through a
//! [`ControlChannel`]. [`registration`] brings a broker into the cluster, [`admin`] serves administrators,
//! [`ConfigChanges`] tells of configurations.

pub mod admin;
mod candidacy;
#[cfg(test)]
mod cluster_tests;
mod config_changes;
mod core;
pub mod features;
mod fenced;
mod loader;
mod nodes;
mod patience;
pub mod placement;
pub mod registration;
mod senders;
mod service;
#[cfg(test)]
mod service_tests;
#[cfg(test)]
mod testing;
mod watches;

pub use self::core::{
    AlterPartition, AlterPartitionError, AlteredPartitions, Broker, BrokerError, Cluster, Condition,
    ControlRequest, ControlResponse, Core, Counts, Deletion, Effects, ElectionCounts, ElectionError,
    ElectionKind, ElectionResult, Event, Leadership, OtherPartitions, Partition, Reassignment,
    ReassignmentError, Reply, Settings, Snapshot, StoreCall, StoreReply, Topic, TopicAssignment, WantedIsr,
};
pub use config_changes::{ConfigChanges, StoredConfig};
pub use senders::{ControlChannel, ControlError};
pub use service::{
    Controller, ControllerEnd, ControllerHandle, ControllerOptions, ControllerStatus, FeatureForm,
    NotController,
};
