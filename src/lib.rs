//! Barnabas: a Kafka server.
//!
//! `ARCHITECTURE.md` shows how the rooms below fit together and which of them may import which.

pub mod api;
pub mod broker;
pub mod cli;
pub mod config;
pub mod controller;
pub mod coordination;
pub mod coordinator;
pub mod group;
pub mod interbroker;
pub mod log;
pub mod metadata;
pub mod model;
pub mod network;
pub mod observe;
pub mod purgatory;
pub mod quota;
pub mod records;
pub mod replica;
pub mod runtime;
pub mod security;
pub mod txn;

#[cfg(test)]
mod gaps;
#[cfg(test)]
mod tidy;
