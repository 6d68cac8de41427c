use std::time::{Duration, Instant};

use wire::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use wire::{AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest};

use super::{Members, create_spread};
use crate::load::error::check;
use crate::load::requests::{Patience, REQUEST_TIMEOUT_MS};
use crate::load::{Figure, LoadError, Producers, cpu_seconds_of, produce_at_full_rate};

/// Replicas to move: as many partitions on two brokers, of which the second gives its replicas to a third.
#[derive(Clone, Debug)]
pub struct Move {
    pub topic: String,
    pub partitions: i32,
    /// Of all partitions.
    pub bytes: u64,
}

const REASSIGN_VERSION: i16 = 0;
const BATCH_BYTES: usize = 100_000;
const RECORD_BYTES: usize = 1_000;

/// Fills a topic, then moves one replica of each partition to a broker that had none, and says how fast that went.
pub async fn fill_and_move(
    members: &mut Members,
    pids: &[u32],
    moved: &Move,
) -> Result<Vec<Figure>, LoadError> {
    let ids = members.ids();
    let [first, second, third] = ids[..] else {
        return Err(LoadError::Wrong { what: format!("{} brokers in place of three", ids.len()) });
    };
    // The first keeps what it leads, so that it is the copy alone that is measured.
    let before: Vec<Vec<i32>> = (0..moved.partitions).map(|_| vec![first, second]).collect();
    create_spread(members, &moved.topic, &before).await?;
    let load = Producers {
        topic: moved.topic.clone(),
        partitions: moved.partitions,
        batch_bytes: BATCH_BYTES,
        record_bytes: RECORD_BYTES,
        acks: -1,
        in_flight: 5,
        total_bytes: moved.bytes,
    };
    produce_at_full_rate(&members.addresses()[..1], pids, &load)?;
    let (cpu, began) = (cpu_seconds_of(pids)?, Instant::now());
    reassign(members, moved, &[first, third]).await?;
    let took = await_settled(members, began).await?;
    let cpu = cpu_seconds_of(pids)? - cpu;
    Ok(vec![
        Figure::new("reassignment: MiB/s", moved.bytes as f64 / 1024.0 / 1024.0 / took.as_secs_f64()),
        Figure::new("reassignment: CPU of the brokers, s/GB", cpu / (moved.bytes as f64 / 1e9)),
    ])
}

async fn reassign(members: &mut Members, moved: &Move, to: &[i32]) -> Result<(), LoadError> {
    let partition = |partition_index| ReassignablePartition { partition_index, replicas: Some(to.to_vec()) };
    let topic = ReassignableTopic {
        name: moved.topic.as_str().into(),
        partitions: (0..moved.partitions).map(partition).collect(),
    };
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: REQUEST_TIMEOUT_MS,
        topics: vec![topic],
        ..Default::default()
    };
    let controller = members.controller().await?;
    let response = members.call(controller, REASSIGN_VERSION, &request).await?;
    check("reassign", response.error_code)?;
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| partition.error_code).try_for_each(|code| check("reassign a partition", code))
}

async fn await_settled(members: &mut Members, began: Instant) -> Result<Duration, LoadError> {
    let patience = Patience::to_see("the end of a reassignment");
    let request = ListPartitionReassignmentsRequest { timeout_ms: REQUEST_TIMEOUT_MS, topics: None };
    loop {
        let controller = members.controller().await?;
        let response = members.call(controller, REASSIGN_VERSION, &request).await?;
        check("list reassignments", response.error_code)?;
        if response.topics.is_empty() {
            return Ok(began.elapsed());
        }
        patience.pause().await?;
    }
}
