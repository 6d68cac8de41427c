//! Clusters on a real ZooKeeper: what administrators, operators and clients of several brokers see.

mod admin;
mod cases;
mod clients;
mod cuts;
mod disks;
mod ensemble;
mod failovers;
mod growth;
mod levels;
mod listeners;
mod load;
mod operating;
mod throttle;

use protocol_tests::{Cluster, wait_for};

/// A broker that is not the controller.
#[track_caller]
fn other_than_controller(cluster: &Cluster) -> i32 {
    let controller = cluster.controller(0);
    wait_for("another broker", || (1..=3).find(|id| *id != controller))
}
