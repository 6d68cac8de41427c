//! The requests that every kind of load sends, in versions that every broker since Kafka 2.4 serves.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use wire::create_topics_request::CreatableTopic;
use wire::fetch_request::{FetchPartition, FetchTopic};
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use wire::produce_request::{PartitionProduceData, TopicProduceData};
use wire::{
    CreateTopicsRequest, DeleteTopicsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest,
    ProduceRequest, Records,
};

use super::error::check;
use super::{LoadConnection, LoadError};
use crate::batch::{self, Batch, Record};

pub(super) const PRODUCE_VERSION: i16 = 9;
pub(super) const FETCH_VERSION: i16 = 11;
pub(super) const CREATE_TOPICS_VERSION: i16 = 5;
pub(super) const DELETE_TOPICS_VERSION: i16 = 4;
const LIST_OFFSETS_VERSION: i16 = 5;
pub(super) const METADATA_VERSION: i16 = 8;

pub(super) const REQUEST_TIMEOUT_MS: i32 = 60_000;
/// Much longer than anything takes on a slow machine, 5,000 partitions of Apache Kafka among it: reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(300);
/// For something that is in the log.
const FETCH_WAIT: Duration = Duration::from_secs(15);

/// Creates a topic of one replica and waits until all its partitions answer.
pub async fn create_topic(address: &str, name: &str, partitions: i32) -> Result<(), LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    request_topic(&mut connection, name, partitions).await?;
    let patience = Patience::to_see("the partitions of a new topic");
    while end_offsets(&mut connection, name, 0..partitions).await?.iter().any(Option::is_none) {
        patience.pause().await?;
    }
    Ok(())
}

/// Creates a topic of one replica; its partitions may need a moment until they answer.
pub(super) async fn request_topic(
    connection: &mut LoadConnection,
    name: &str,
    partitions: i32,
) -> Result<(), LoadError> {
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: 1,
        ..Default::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: REQUEST_TIMEOUT_MS, ..Default::default() };
    let response = connection.call(CREATE_TOPICS_VERSION, &request).await?;
    check("create a topic", response.topics.first().map_or(-1, |topic| topic.error_code))
}

/// Deletes all topics whose names begin with `prefix`.
pub async fn delete_topics(address: &str, prefix: &str) -> Result<(), LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    let metadata =
        connection.call(METADATA_VERSION, &MetadataRequest { topics: None, ..Default::default() }).await?;
    let names = metadata.topics.into_iter().filter_map(|topic| topic.name);
    let request = DeleteTopicsRequest {
        topic_names: names.filter(|name| name.starts_with(prefix)).collect(),
        timeout_ms: REQUEST_TIMEOUT_MS,
        ..Default::default()
    };
    let response = connection.call(DELETE_TOPICS_VERSION, &request).await?;
    response.responses.iter().try_for_each(|topic| check("delete a topic", topic.error_code))
}

/// The log end offset of each of these partitions, in their order; `None` = it does not answer yet.
pub(super) async fn end_offsets(
    connection: &mut LoadConnection,
    topic: &str,
    partitions: impl IntoIterator<Item = i32>,
) -> Result<Vec<Option<i64>>, LoadError> {
    let asked: Vec<i32> = partitions.into_iter().collect();
    let partition =
        |&partition_index| ListOffsetsPartition { partition_index, timestamp: -1, ..Default::default() };
    let partitions = asked.iter().map(partition).collect();
    let topics = vec![ListOffsetsTopic { name: topic.into(), partitions }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let response = connection.call(LIST_OFFSETS_VERSION, &request).await?;
    // Kafka answers in an order of its own.
    let answers = response.topics.into_iter().flat_map(|topic| topic.partitions);
    let offsets: HashMap<i32, i64> = answers
        .filter(|answer| answer.error_code == 0)
        .map(|answer| (answer.partition_index, answer.offset))
        .collect();
    Ok(asked.iter().map(|partition| offsets.get(partition).copied()).collect())
}

/// The end offset of each partition of a topic that is all there.
pub async fn partition_ends(address: &str, topic: &str, partitions: i32) -> Result<Vec<i64>, LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    let offsets = end_offsets(&mut connection, topic, 0..partitions).await?;
    offsets.into_iter().collect::<Option<_>>().ok_or(LoadError::Refused { what: "list offsets", code: -1 })
}

/// Waits until a topic's partitions end at offsets that sum up to `records`.
pub async fn await_records(
    address: &str,
    topic: &str,
    partitions: i32,
    records: i64,
) -> Result<(), LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    let patience = Patience::to_see("all records in the log");
    loop {
        let offsets = end_offsets(&mut connection, topic, 0..partitions).await?;
        if offsets.into_iter().sum::<Option<i64>>() >= Some(records) {
            return Ok(());
        }
        patience.pause().await?;
    }
}

/// A batch of one record.
pub(super) fn one_record(value: Bytes) -> Bytes {
    let record = Record { timestamp: now_ms(), value: Some(value), ..Record::default() };
    Batch { records: vec![record], ..Batch::default() }.encode()
}

/// A batch of equal records.
pub(super) fn batch_of(count: usize, value_bytes: usize) -> Bytes {
    let (timestamp, value) = (now_ms(), Bytes::from(vec![b'x'; value_bytes]));
    let record =
        |offset_delta| Record { offset_delta, timestamp, value: Some(value.clone()), ..Record::default() };
    Batch { records: (0..count as i32).map(record).collect(), ..Batch::default() }.encode()
}

pub(super) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

pub(super) fn produce_request(
    topic: &str,
    batches: impl IntoIterator<Item = (i32, Bytes)>,
    acks: i16,
) -> ProduceRequest {
    let data = batches
        .into_iter()
        .map(|(index, batch)| PartitionProduceData { index, records: Some(Records::Bytes(batch)) });
    let topic = TopicProduceData { name: topic.into(), partition_data: data.collect(), ..Default::default() };
    ProduceRequest { acks, timeout_ms: REQUEST_TIMEOUT_MS, topic_data: vec![topic], ..Default::default() }
}

/// A fetch of one partition that waits up to `max_wait` for something to read.
pub(super) fn fetch_request(
    topic: &str,
    partition: i32,
    fetch_offset: i64,
    max_wait: Duration,
    max_bytes: i32,
) -> FetchRequest {
    let partition =
        FetchPartition { partition, fetch_offset, partition_max_bytes: max_bytes, ..Default::default() };
    let topic = FetchTopic { topic: topic.into(), partitions: vec![partition], ..Default::default() };
    FetchRequest {
        replica_id: -1,
        max_wait_ms: max_wait.as_millis() as i32,
        min_bytes: 1,
        max_bytes: i32::MAX,
        topics: vec![topic],
        ..Default::default()
    }
}

/// Writes one value and gives its offset.
pub(super) async fn produce_one(
    connection: &mut LoadConnection,
    topic: &str,
    partition: i32,
    value: Bytes,
) -> Result<i64, LoadError> {
    let request = produce_request(topic, [(partition, one_record(value))], -1);
    let response = connection.call(PRODUCE_VERSION, &request).await?;
    let answers = response.responses.first().map(|topic| &topic.partition_responses[..]);
    let [answer] = answers.unwrap_or_default() else {
        return Err(LoadError::Wrong { what: "Produce answers for other partitions".to_owned() });
    };
    check("produce", answer.error_code)?;
    Ok(answer.base_offset)
}

/// The value of the record at `offset`, which has been written.
pub(super) async fn fetch_one(
    connection: &mut LoadConnection,
    topic: &str,
    partition: i32,
    offset: i64,
    max_bytes: i32,
) -> Result<Bytes, LoadError> {
    let request = fetch_request(topic, partition, offset, FETCH_WAIT, max_bytes);
    let response = connection.call(FETCH_VERSION, &request).await?;
    check("fetch", response.error_code)?;
    let answer = response.responses.into_iter().flat_map(|topic| topic.partitions).next();
    let answer = answer.ok_or(LoadError::Wrong { what: "Fetch answers for no partition".to_owned() })?;
    check("fetch", answer.error_code)?;
    let Some(Records::Bytes(bytes)) = answer.records else {
        return Err(LoadError::Wrong { what: format!("nothing to read at offset {offset}") });
    };
    let batches = batch::read(&bytes);
    let at = |batch: &Batch| {
        let index = usize::try_from(offset - batch.base_offset).ok()?;
        batch.records.get(index)?.value.clone()
    };
    batches.iter().find_map(at).ok_or(LoadError::Wrong { what: format!("no record at offset {offset}") })
}

/// Asking again and again, until it takes too long.
pub(super) struct Patience {
    what: &'static str,
    deadline: Instant,
}

impl Patience {
    pub(super) fn to_see(what: &'static str) -> Patience {
        Patience { what, deadline: Instant::now() + PATIENCE }
    }

    /// A short pause before the next question, or an error when it was asked for too long.
    pub(super) async fn pause(&self) -> Result<(), LoadError> {
        self.pause_for(Duration::from_millis(10)).await
    }

    /// Between two questions that cost nothing, about what is timed.
    pub(super) async fn short_pause(&self) -> Result<(), LoadError> {
        self.pause_for(Duration::from_millis(1)).await
    }

    async fn pause_for(&self, pause: Duration) -> Result<(), LoadError> {
        if Instant::now() > self.deadline {
            return Err(LoadError::Wrong { what: format!("waited {PATIENCE:?} to see {}", self.what) });
        }
        // Only keeps the question from eating the processor; the condition decides.
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
