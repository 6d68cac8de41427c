//! What every test from outside needs: a server to run against ([`Broker`]), a raw connection to it
//! ([`Connection`]), and client programs in other languages ([`client`]).
//!
//! The server is Barnabas unless `BARNABAS_TEST_SERVER` names a real Kafka (`kafka-3.9.2`, `kafka-4.3.1`): the same
//! tests then show that they ask for nothing that Kafka does not do.

pub mod batch;
mod broker;
pub mod client;
mod cluster;
mod connection;
mod keys;
pub mod load;
mod log_scan;
mod machine;
pub mod messages;
mod network;
mod pages;
mod process;
mod proxy;
pub mod requests;
mod server;
mod tools;
mod volume;
mod wait;
mod writer;
mod zookeeper;

pub use broker::Broker;
pub use cluster::Cluster;
pub use connection::{CallError, Connection, encode};
pub use keys::Keys;
pub use machine::{
    Port, announce, barnabas_binary, build_dir, command_exists, free_port, has_java, has_program,
    protocol_tests_dir, raise_open_files_limit, reset, scaled, seed,
};
pub use network::Network;
pub use pages::{metric, page};
pub use process::{Finished, Line, Process};
pub use proxy::{Held, Proxy};
pub use server::Server;
pub use tools::{Output, ToolRun, Tools, kafka_tool};
pub use volume::Volume;
pub use wait::{wait_for, wait_for_group, wait_within};
pub use writer::{Writer, under_load};
pub use zookeeper::{Znode, ZooKeeper, dump_tree};
