//! What the cluster agrees on: ZooKeeper's model behind one trait.
//!
//! [`Store`] is a tree of versioned nodes with ephemeral and sequential nodes, multi, one-shot watches and
//! sessions that expire. Everything above uses only this trait, so a broker behaves the same on the
//! embedded store and on a ZooKeeper ensemble.

#[cfg(test)]
mod conformance;
mod database;
mod embedded;
mod memory;
mod path;
mod slab;
mod store;
mod tree;
#[cfg(test)]
mod tree_histories_tests;
mod watches;
pub mod znodes;

pub use embedded::{EmbeddedSession, EmbeddedStore, EmbeddedStoreOptions, OpenStoreError, OpenedStore};
pub use memory::{MemoryEnsemble, MemoryStore};
pub use store::{
    BoxFuture, Create, CreateMode, Ensemble, NodeData, Operation, OperationResult, SessionState, Stat, Store,
    StoreError, StoreEvent, WatchKind, Watcher,
};
