use bytes::Bytes;

use super::error::check;
use super::requests::{PRODUCE_VERSION, Patience, end_offsets, one_record, produce_request, request_topic};
use super::{LoadConnection, LoadError};

/// A controller of Kafka 4 refuses more than 10,000 records in one request.
const PARTITIONS_PER_TOPIC: i32 = 5000;
/// Partitions that one Produce request writes to.
const PARTITIONS_PER_REQUEST: usize = 500;

/// Topics `PREFIX-0…` with so many partitions in all.
#[derive(Clone, Debug)]
pub struct ManyPartitions {
    pub prefix: String,
    pub count: i32,
}

impl ManyPartitions {
    fn topics(&self) -> impl Iterator<Item = (String, i32)> {
        let whole = (self.count + PARTITIONS_PER_TOPIC - 1) / PARTITIONS_PER_TOPIC;
        (0..whole).map(|topic| {
            let left = self.count - topic * PARTITIONS_PER_TOPIC;
            (format!("{}-{topic}", self.prefix), left.min(PARTITIONS_PER_TOPIC))
        })
    }
}

/// Sends the requests that create them all; each is answered when the controller has decided.
pub async fn create_many(address: &str, many: &ManyPartitions) -> Result<(), LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    for (topic, partitions) in many.topics() {
        request_topic(&mut connection, &topic, partitions).await?;
    }
    Ok(())
}

/// Waits until every partition answers ListOffsets, with exactly this end offset.
pub async fn await_end_offsets(address: &str, many: &ManyPartitions, end: i64) -> Result<(), LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    for (topic, partitions) in many.topics() {
        let mut left: Vec<i32> = (0..partitions).collect();
        let patience = Patience::to_see("all partitions answer");
        loop {
            let offsets = end_offsets(&mut connection, &topic, left.iter().copied()).await?;
            if let Some(other) = offsets.iter().flatten().find(|&&offset| offset != end) {
                return Err(LoadError::Wrong {
                    what: format!("a log of {topic} ends at {other}, not {end}"),
                });
            }
            // Those that have answered are not asked again.
            let mut answers = offsets.iter();
            left.retain(|_| answers.next().is_some_and(Option::is_none));
            if left.is_empty() {
                break;
            }
            patience.pause().await?;
        }
    }
    Ok(())
}

/// Writes one record to each partition, acks=all.
pub async fn write_to_each(address: &str, many: &ManyPartitions) -> Result<(), LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    let batch = one_record(Bytes::from_static(b"one record for every partition"));
    for (topic, partitions) in many.topics() {
        let all: Vec<i32> = (0..partitions).collect();
        for some in all.chunks(PARTITIONS_PER_REQUEST) {
            let request = produce_request(&topic, some.iter().map(|&index| (index, batch.clone())), -1);
            let response = connection.call(PRODUCE_VERSION, &request).await?;
            let answers = response.responses.iter().flat_map(|topic| &topic.partition_responses);
            answers.map(|answer| answer.error_code).try_for_each(|code| check("produce", code))?;
        }
    }
    Ok(())
}
