//! The store of a cluster of one: the tree in memory, its transactions in an append log, now and then a
//! snapshot. What a call answers is on disk.

mod codec;
mod error;
mod frames;
mod journal;
mod remote;
mod store;

pub use error::OpenStoreError;
pub(super) use remote::RemoteStore;
pub use store::{EmbeddedSession, EmbeddedStore, EmbeddedStoreOptions, LastingSessions, OpenedStore};
