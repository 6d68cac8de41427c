//! A load generator that speaks the protocol itself, so that it costs little beside the broker that it measures:
//! `src/bin/load.rs` on the command line, `tests/load.rs` as tests; [`cluster`] has what is asked of several brokers. It runs against any Kafka broker.
//!
//! Times are taken where a client sees them. Figures are named with their unit ([`Figure`]); GB = 10⁹ bytes.

mod clients;
pub mod cluster;
mod connection;
mod coordinators;
mod error;
mod figure;
mod idle;
mod latency;
mod limits;
mod members;
mod partitions;
mod producer_ids;
mod ready;
mod requests;
mod throughput;
mod transactions;

pub use clients::{Clients, produce_and_consume};
pub use connection::LoadConnection;
pub use coordinators::{Coordinated, await_coordinators, fill_coordinators};
pub use error::LoadError;
pub use figure::{Figure, cpu_seconds, cpu_seconds_of, print_figures, resident_bytes};
pub use idle::{IdleConnections, open_idle, prove_normal_client};
pub use latency::{FixedRate, at_fixed_rate, latency_figures, one_at_a_time};
pub use limits::{receive_check_write, send_file};
pub use partitions::{ManyPartitions, await_end_offsets, create_many, write_to_each};
pub use producer_ids::write_as_many_producers;
pub use ready::{await_ready, start};
pub use requests::{await_records, create_topic, delete_topics, partition_ends};
pub use throughput::{Producers, fetch_at_full_rate, produce_at_full_rate};
pub use transactions::{
    Commits, Generation, Transactions, commit_at_full_rate, read_one_at_a_time, set_transaction_version,
};
