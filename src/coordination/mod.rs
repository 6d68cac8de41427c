//! What the cluster agrees on: ZooKeeper's model behind one trait.
//!
//! [`Store`] is a tree of versioned nodes with ephemeral and sequential nodes, multi, one-shot watches and
//! sessions that expire. Everything above uses only this trait, so a broker behaves the same on the
//! embedded store and on a ZooKeeper ensemble. [`CurrentSession`] follows a broker from one session to the next.

mod access;
mod codes;
#[cfg(test)]
mod conformance;
mod copy;
mod current;
mod database;
mod digest;
mod embedded;
mod jute;
mod link_watches;
mod memory;
mod path;
mod server;
mod slab;
mod store;
mod text;
mod tree;
#[cfg(test)]
mod tree_histories_tests;
mod watches;
pub mod znodes;
mod zookeeper;

pub use copy::{Imported, export_tree, import_tree};
pub use current::CurrentSession;
pub use embedded::{
    EmbeddedSession, EmbeddedStore, EmbeddedStoreOptions, LastingSessions, OpenStoreError, OpenedStore,
};
pub use memory::{MemoryEnsemble, MemoryStore};
pub use server::{BindServerError, BoundServer, FourLetterWords, ZooKeeperServer, ZooKeeperServerOptions};
pub use store::{
    BoxFuture, Create, CreateMode, Ensemble, NodeData, Operation, OperationResult, SessionState, Stat, Store,
    StoreError, StoreEvent, WatchKind, Watcher,
};
pub use text::{TextError, TextNode, format_data, format_tree, parse_tree};
pub use zookeeper::{
    AclPolicy, ConnectString, InvalidConnectString, SaslIdentity, Server, ZooKeeperEnsemble,
    ZooKeeperOptions, ZooKeeperStore,
};
