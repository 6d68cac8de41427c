//! The controller: who leads what, and what an administrator changes.
//!
//! [`Core`] decides and does nothing else: [`Event`]s go in, [`StoreCall`]s and [`ControlRequest`]s come out.
//! It keeps the [`Cluster`] it learned from the store and changes it only by what the store confirmed.

pub mod admin;
mod candidacy;
mod cluster;
mod config_changes;
mod core;
#[cfg(test)]
mod core_tests;
mod deletion;
mod election;
mod event;
mod fenced;
mod loader;
mod nodes;
mod patience;
pub mod placement;
pub mod registration;
mod requests;
mod senders;
mod service;
#[cfg(test)]
mod service_tests;
#[cfg(test)]
mod testing;
mod watches;

pub use self::core::{Core, Counts, Settings};
pub use cluster::{Broker, Cluster, Leadership, Partition, Topic, TopicAssignment};
pub use config_changes::{ConfigChanges, StoredConfig};
pub use deletion::Deletion;
pub use event::{
    ControlRequest, ControlResponse, Effects, ElectionError, ElectionKind, ElectionResult, Event, Snapshot,
    StoreCall, StoreReply,
};
pub use senders::{ControlChannel, ControlError};
pub use service::{
    Controller, ControllerEnd, ControllerHandle, ControllerOptions, ControllerStatus, NotController,
};
