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

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use protocol_tests::{Cluster, announce, command_exists, wait_for};

fn has_java() -> bool {
    command_exists("java") || {
        announce("cluster: left out, this machine has no java");
        false
    }
}

/// Status and body of a page; `None` while nobody answers.
fn page(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// A metric's value, without labels or with all of them as they are printed.
fn metric(address: &str, name: &str) -> Option<f64> {
    let (_, text) = page(address, "/metrics")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

/// A broker that is not the controller.
#[track_caller]
fn other_than_controller(cluster: &Cluster) -> i32 {
    let controller = cluster.controller(0);
    wait_for("another broker", || (1..=3).find(|id| *id != controller))
}
