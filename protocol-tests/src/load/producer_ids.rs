use bytes::Bytes;
use tokio::task::JoinSet;

use super::error::check;
use super::requests::{PRODUCE_VERSION, create_topic, now_ms, produce_request};
use super::{LoadConnection, LoadError};
use crate::batch::{Batch, Record};

/// Connections that write at once, each to partitions of its own.
const WRITERS: usize = 4;
/// Partitions of a request, each with a batch of another producer.
const PARTITIONS_EACH: usize = 10;
/// Far from those that a broker gives out.
const FIRST_ID: i64 = 1 << 40;

/// Writes one batch of one record for each of so many producer ids, to partitions of one topic.
pub async fn write_as_many_producers(address: &str, topic: &str, count: usize) -> Result<(), LoadError> {
    create_topic(address, topic, (WRITERS * PARTITIONS_EACH) as i32).await?;
    let mut running = JoinSet::new();
    for writer in 0..WRITERS {
        let (address, topic) = (address.to_owned(), topic.to_owned());
        running.spawn(async move {
            let mut connection = LoadConnection::open(&address).await?;
            let ids: Vec<i64> =
                (writer..count).step_by(WRITERS).map(|index| FIRST_ID + index as i64).collect();
            let first = (writer * PARTITIONS_EACH) as i32;
            for some in ids.chunks(PARTITIONS_EACH) {
                let batches = (first..).zip(some.iter().map(|&producer_id| batch(producer_id)));
                let response =
                    connection.call(PRODUCE_VERSION, &produce_request(&topic, batches, -1)).await?;
                let answers = response.responses.iter().flat_map(|topic| &topic.partition_responses);
                answers.map(|answer| answer.error_code).try_for_each(|code| check("produce", code))?;
            }
            Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap_or_else(|error| Err(LoadError::Wrong { what: format!("a writer: {error}") }))?;
    }
    Ok(())
}

fn batch(producer_id: i64) -> Bytes {
    let record = Record { timestamp: now_ms(), value: Some(Bytes::from_static(b"x")), ..Record::default() };
    let batch =
        Batch { producer_id, producer_epoch: 0, base_sequence: 0, records: vec![record], ..Batch::default() };
    batch.encode()
}
