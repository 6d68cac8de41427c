//! The embedded store's ZooKeeper port: the client protocol of ZooKeeper 3.8 for `zookeeper-shell`, old tools,
//! consumers that keep their offsets in ZooKeeper, and further Barnabas or Kafka brokers.
//!
//! Sessions are in the store's log: after a restart their clients go on with them, or they expire. Requests of a
//! connection take effect in their order and are answered in it, what they answer is durable, and a client is told of
//! a change before it can see it. Left out, and answered as a server does that does not know them: containers, nodes
//! with a time to live, persistent watches, reconfiguration, SASL.
//!
//! [`sessions`] and the store hold the rules; [`connection`] moves bytes.

mod connection;
mod counters;
#[cfg(test)]
mod differential_tests;
mod handler;
mod listener;
mod outbox;
mod protocol;
#[cfg(test)]
pub(crate) mod raw_client;
mod sessions;
#[cfg(test)]
mod tests;
mod words;

pub use listener::{BindServerError, BoundServer, ZooKeeperServer, ZooKeeperServerOptions};
pub use words::FourLetterWords;
