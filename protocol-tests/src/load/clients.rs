use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;

use super::idle::{OPENING, ask};
use super::members::{GROUP_SIZE, member};
use super::requests::{create_topic, fetch_one, produce_one};
use super::{LoadConnection, LoadError};

/// Partitions of the topic that clients without a group share.
const PARTITIONS: i32 = 50;
/// Enough for one value and its batch.
const FETCH_BYTES: i32 = 4096;

/// Many clients at once, each with a connection of its own.
#[derive(Clone, Debug)]
pub struct Clients {
    pub count: usize,
    /// How many of them are members of groups, ten to a group; the rest read by assignment.
    pub in_groups: usize,
    /// How many records each client writes and reads back, one after the other.
    pub rounds: usize,
    /// Topics begin with this, so that runs do not meet.
    pub prefix: String,
}

/// Lets all clients connect, then produce (acks=all) and consume at once. Each checks that it reads what it wrote, and
/// members of groups that their commits are kept. The first error of any client is the error of the run.
pub async fn produce_and_consume(address: &str, clients: &Clients) -> Result<(), LoadError> {
    let groups = clients.in_groups / GROUP_SIZE;
    let lone = clients.count - groups * GROUP_SIZE;
    create_topic(address, &clients.prefix, PARTITIONS).await?;
    for group in 0..groups {
        create_topic(address, &format!("{}-{group}", clients.prefix), GROUP_SIZE as i32).await?;
    }
    let gate = Arc::new(Gate { opening: Semaphore::new(OPENING), all: Barrier::new(clients.count) });
    let mut running = JoinSet::new();
    for index in 0..lone {
        let (address, clients, gate) = (address.to_owned(), clients.clone(), Arc::clone(&gate));
        running.spawn(async move { lone_client(&address, &clients, index, &gate).await });
    }
    for group in 0..groups {
        let together = Arc::new(Barrier::new(GROUP_SIZE));
        for _ in 0..GROUP_SIZE {
            let (address, clients) = (address.to_owned(), clients.clone());
            let (gate, together) = (Arc::clone(&gate), Arc::clone(&together));
            running.spawn(async move { member(&address, &clients, group, &gate, &together).await });
        }
    }
    while let Some(ended) = running.join_next().await {
        // The others are dropped with the set: they may wait for the one that failed.
        ended.unwrap_or_else(|error| Err(LoadError::Wrong { what: format!("a client: {error}") }))?;
    }
    Ok(())
}

/// Where all clients meet before they begin.
pub(super) struct Gate {
    opening: Semaphore,
    pub(super) all: Barrier,
}

/// A connection that the broker has accepted. No more are opened at once than fit into the backlog of any listener.
pub(super) async fn open(address: &str, gate: &Gate) -> Result<LoadConnection, LoadError> {
    let permit = gate.opening.acquire().await;
    let mut connection = LoadConnection::open(address).await?;
    ask(&mut connection).await?;
    drop(permit);
    Ok(connection)
}

async fn lone_client(address: &str, clients: &Clients, index: usize, gate: &Gate) -> Result<(), LoadError> {
    let mut connection = open(address, gate).await?;
    gate.all.wait().await;
    let partition = index as i32 % PARTITIONS;
    for round in 0..clients.rounds {
        let value = value(&format!("client {index}"), round);
        let offset = produce_one(&mut connection, &clients.prefix, partition, value.clone()).await?;
        let found = fetch_one(&mut connection, &clients.prefix, partition, offset, FETCH_BYTES).await?;
        expect_value(&value, &found)?;
    }
    Ok(())
}

/// A value of about 1 KB that names its writer.
pub(super) fn value(writer: &str, round: usize) -> Bytes {
    Bytes::from(format!("{writer}, round {round} {}", "x".repeat(1000)))
}

pub(super) fn expect_value(written: &Bytes, read: &Bytes) -> Result<(), LoadError> {
    if written == read {
        return Ok(());
    }
    let start = |value: &Bytes| String::from_utf8_lossy(value).chars().take(60).collect::<String>();
    Err(LoadError::Wrong { what: format!("wrote {:?}, read {:?}", start(written), start(read)) })
}
