//! What this broker knows of the cluster.
//!
//! [`control`] holds the three requests with which a controller tells brokers what to lead, follow, drop and
//! know, as domain values: the same whether they came over a socket or from the controller in this process.
//! [`Image`] is what UpdateMetadata makes of them, an immutable value that answers handlers' questions;
//! [`Cache`] holds the current one and wakes those who wait for a change.

mod cache;
pub mod control;
mod image;
mod sharded;
#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use image::{Changes, Image, LeaderUnavailable, Partition, Topic};
