//! Load on a cluster: topics with replicas, and what becomes of them when brokers go, come back and take over.
//! `src/bin/load-cluster.rs` on the command line.

mod ensemble;
mod failure;
mod members;
mod reassignment;
mod takeover;
mod topics;

pub use ensemble::Ensemble;
pub use failure::{Failed, Failure, fail};
pub use members::Members;
pub use reassignment::{Move, fill_and_move};
pub use takeover::{TakenOver, change_controller};
pub use topics::{
    ReplicatedTopics, await_gone, await_in_sync, create_all, create_at_once, create_one_by_one,
    create_spread, delete_all,
};
