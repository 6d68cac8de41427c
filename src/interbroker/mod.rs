//! What this broker asks other brokers.
//!
//! A [`Peer`] is one connection to one broker for one purpose: opened when it is needed, opened again after a
//! pause when it was lost. Its methods speak `model`: requests and answers become wire types here, in the versions
//! that `inter.broker.protocol.version` gives ([`RequestVersions`]). As Kafka does, nobody asks the other side for
//! its versions.

mod administration;
mod alter_partition;
mod connection;
mod control;
mod envelope;
mod error;
mod fetch;
mod offsets;
mod peer;
mod peers;
mod shutdown;
mod transactions;
mod versions;

pub use administration::{BrokerView, ClusterView, PartitionOutcomes, PartitionView};
pub use alter_partition::{AlterPartitionItem, AlteredPartition};
pub use connection::ConnectionOptions;
pub use envelope::ForwardedClient;
pub use error::{PeerError, RemoteError};
pub use fetch::{FetchedPartition, FollowerFetch, FollowerFetchPartition, FollowerFetched};
pub use peer::Peer;
pub use peers::Peers;
pub use transactions::{MarkersToWrite, PartitionResults, PartitionsOfTransaction};
pub use versions::RequestVersions;
