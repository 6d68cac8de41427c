//! The store of a cluster: sessions with an Apache ZooKeeper ensemble.
//!
//! The client is our own (`docs/decisions/0004-a-zookeeper-client-of-our-own.md`): it writes null data as Kafka
//! does, keeps the order of calls and watches that [`Store`](super::Store) promises, and gives a session up only
//! when the ensemble says so.

mod acl;
mod connect_string;
#[cfg(test)]
pub(super) mod live_tests;
mod peer;
mod protocol;
mod sasl;
mod session;
mod store;
mod watch_table;

pub use acl::AclPolicy;
pub use connect_string::{ConnectString, InvalidConnectString, Server};
pub use sasl::SaslIdentity;
pub use store::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperStore};
