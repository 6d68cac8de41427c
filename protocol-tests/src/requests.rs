//! Requests that many tests make on their way, as methods of a connection: each in one version that every server
//! under test knows, and a failure of the test where the answer is not the ordinary one.

use bytes::Bytes;
use wire::create_topics_request::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use wire::delete_records_request::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use wire::delete_records_response::DeleteRecordsPartitionResult;
use wire::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::fetch_response::PartitionData;
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::init_producer_id_request::InitProducerIdRequest;
use wire::init_producer_id_response::InitProducerIdResponse;
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::metadata_request::{MetadataRequest, MetadataRequestTopic};
use wire::metadata_response::MetadataResponse;
use wire::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestTopic};
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::produce_response::PartitionProduceResponse;

use crate::batch::{self, Batch};
use crate::{Connection, wait_for};

/// The end of a log, as a timestamp of ListOffsets.
pub const LATEST: i64 = -1;
/// The start of a log.
pub const EARLIEST: i64 = -2;

/// Unknown topic, no leader, not the leader: what a broker answers that has not heard of its leadership, or has not
/// loaded the log.
const DOES_NOT_LEAD_YET: [i16; 3] = [3, 5, 6];

/// A topic of one replica with these configs.
pub fn topic(name: &str, partitions: i32, configs: &[(&str, &str)]) -> CreatableTopic {
    let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
        name: (*name).into(),
        value: Some((*value).into()),
    };
    CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: 1,
        configs: configs.iter().map(config).collect(),
        ..Default::default()
    }
}

/// Batches for partitions of one topic.
pub fn produce_request(topic: &str, acks: i16, partitions: Vec<(i32, Bytes)>) -> ProduceRequest {
    let partition =
        |(index, records): (i32, Bytes)| PartitionProduceData { index, records: Some(records.into()) };
    let partition_data = partitions.into_iter().map(partition).collect();
    let topic_data = vec![TopicProduceData { name: topic.into(), partition_data, ..Default::default() }];
    ProduceRequest { acks, timeout_ms: 30_000, topic_data, ..Default::default() }
}

/// A fetch of partitions of one topic from these offsets, answered at once.
pub fn fetch_request(topic: &str, partitions: &[(i32, i64)], max_bytes: i32) -> FetchRequest {
    let partition = |(partition, fetch_offset): &(i32, i64)| FetchPartition {
        partition: *partition,
        fetch_offset: *fetch_offset,
        partition_max_bytes: max_bytes,
        ..Default::default()
    };
    let partitions = partitions.iter().map(partition).collect();
    let topics = vec![FetchTopic { topic: topic.into(), partitions, ..Default::default() }];
    FetchRequest { max_bytes, topics, ..Default::default() }
}

/// The record bytes of a fetched partition; none where there are none.
pub fn record_bytes(partition: &PartitionData) -> Bytes {
    match &partition.records {
        Some(wire::Records::Bytes(bytes)) => bytes.clone(),
        _ => Bytes::new(),
    }
}

/// The values of records, as text.
pub fn values(batches: &[Batch]) -> Vec<String> {
    let text =
        |value: &Option<Bytes>| String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned();
    batches.iter().flat_map(|batch| &batch.records).map(|record| text(&record.value)).collect()
}

/// An offset for a partition, committed by somebody who is no member of the group.
pub fn commit_request(group: &str, topic: &str, partition: i32, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition {
        partition_index: partition,
        committed_offset: offset,
        ..Default::default()
    };
    let topic =
        OffsetCommitRequestTopic { name: topic.into(), partitions: vec![partition], ..Default::default() };
    OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

impl Connection {
    /// Makes a topic and waits until its partitions have leaders.
    #[track_caller]
    pub fn create_topic(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) {
        let topics = vec![topic(name, partitions, configs)];
        let request = CreateTopicsRequest { topics, timeout_ms: 30_000, ..Default::default() };
        let response = self.call(4, &request);
        assert_eq!(response.topics[0].error_code, 0, "create {name}: {response:?}");
        self.wait_for_leaders(name, partitions);
    }

    /// The metadata may tell of leaders that do not know themselves yet, and leaders may know themselves before the
    /// metadata tells of them: writes need both.
    #[track_caller]
    pub fn wait_for_leaders(&mut self, topic: &str, partitions: i32) {
        wait_for("leaders", || {
            (0..partitions).all(|index| self.offset_at(topic, index, LATEST).is_ok()).then_some(())?;
            let told = self.metadata(Some(topic)).topics.into_iter().next()?.partitions;
            let led = told.iter().filter(|partition| partition.error_code == 0).count();
            (led >= usize::try_from(partitions).unwrap_or(0)).then_some(())
        });
    }

    /// An offset by ListOffsets, or the error code.
    #[track_caller]
    pub fn offset_at(&mut self, topic: &str, partition_index: i32, timestamp: i64) -> Result<i64, i16> {
        let partitions = vec![ListOffsetsPartition { partition_index, timestamp, ..Default::default() }];
        let topics = vec![ListOffsetsTopic { name: topic.into(), partitions }];
        let response = self.call(4, &ListOffsetsRequest { replica_id: -1, topics, ..Default::default() });
        let partition = &response.topics[0].partitions[0];
        if partition.error_code == 0 { Ok(partition.offset) } else { Err(partition.error_code) }
    }

    #[track_caller]
    pub fn log_end(&mut self, topic: &str, partition: i32) -> i64 {
        wait_for("the partition's leader", || self.offset_at(topic, partition, LATEST).ok())
    }

    #[track_caller]
    pub fn log_start(&mut self, topic: &str, partition: i32) -> i64 {
        wait_for("the partition's leader", || self.offset_at(topic, partition, EARLIEST).ok())
    }

    /// Sends batches with acks=all; the answers by partition.
    #[track_caller]
    pub fn produce(&mut self, topic: &str, partitions: Vec<(i32, Bytes)>) -> Vec<PartitionProduceResponse> {
        let mut response = self.call(7, &produce_request(topic, -1, partitions));
        let mut partitions = response.responses.remove(0).partition_responses;
        partitions.sort_by_key(|partition| partition.index);
        partitions
    }

    /// Appends one batch and gives its first offset. A broker that has just started, or has just been given the
    /// leadership, is asked again until it leads: nothing is appended before.
    #[track_caller]
    pub fn append(&mut self, topic: &str, partition: i32, batch: &Batch) -> i64 {
        wait_for("the partition's leader", || {
            let answer = self.produce(topic, vec![(partition, batch.encode())]).remove(0);
            let is_early = DOES_NOT_LEAD_YET.contains(&answer.error_code);
            assert!(is_early || answer.error_code == 0, "append to {topic}-{partition}: {answer:?}");
            (!is_early).then_some(answer.base_offset)
        })
    }

    /// Deletes the records of a partition before an offset; -1 = all of them.
    #[track_caller]
    pub fn delete_records(
        &mut self,
        topic: &str,
        partition_index: i32,
        offset: i64,
    ) -> DeleteRecordsPartitionResult {
        let partitions = vec![DeleteRecordsPartition { partition_index, offset }];
        let topics = vec![DeleteRecordsTopic { name: topic.into(), partitions }];
        let mut response = self.call(2, &DeleteRecordsRequest { topics, timeout_ms: 30_000 });
        response.topics.remove(0).partitions.remove(0)
    }

    /// What a fetch of one partition answers, with room for a megabyte and no wait.
    #[track_caller]
    pub fn fetch_partition(&mut self, topic: &str, partition: i32, offset: i64) -> PartitionData {
        let mut response = self.call(11, &fetch_request(topic, &[(partition, offset)], 1 << 20));
        assert_eq!(response.error_code, 0, "Fetch");
        response.responses.remove(0).partitions.remove(0)
    }

    /// The batches from one that holds `offset` on, as many as a megabyte holds.
    #[track_caller]
    pub fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> Vec<Batch> {
        wait_for("the partition's leader", || {
            let answer = self.fetch_partition(topic, partition, offset);
            let is_early = DOES_NOT_LEAD_YET.contains(&answer.error_code);
            assert!(is_early || answer.error_code == 0, "Fetch {topic}-{partition} at {offset}: {answer:?}");
            (!is_early).then(|| batch::read(&record_bytes(&answer)))
        })
    }

    /// Every batch of a partition from `offset` to its end.
    #[track_caller]
    pub fn fetch_all(&mut self, topic: &str, partition: i32, offset: i64) -> Vec<Batch> {
        let (end, mut next, mut all) = (self.log_end(topic, partition), offset, Vec::new());
        while next < end {
            let batches = self.fetch(topic, partition, next);
            let last = batches.last().unwrap_or_else(|| panic!("nothing at {next} of {topic}-{partition}"));
            next = last.base_offset + i64::from(last.last_offset_delta.unwrap_or(0)) + 1;
            all.extend(batches);
        }
        all
    }

    /// Metadata of all topics, or of one without making it.
    #[track_caller]
    pub fn metadata(&mut self, topic: Option<&str>) -> MetadataResponse {
        self.try_metadata(topic).expect("an answer about topics")
    }

    /// As [`Connection::metadata`]; `None` when the connection ends instead.
    pub fn try_metadata(&mut self, topic: Option<&str>) -> Option<MetadataResponse> {
        let named = |name: &str| vec![MetadataRequestTopic { name: Some(name.into()), ..Default::default() }];
        let request = MetadataRequest {
            topics: topic.map(named),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        self.try_call(7, &request).ok()
    }

    /// An id of its own for an idempotent producer, as soon as there is one.
    #[track_caller]
    pub fn take_producer_id(&mut self) -> InitProducerIdResponse {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            ..Default::default()
        };
        wait_for("a producer id", || Some(self.call(3, &request)).filter(|answer| answer.error_code == 0))
    }

    /// Waits until the group has a coordinator that has loaded it.
    #[track_caller]
    pub fn wait_for_coordinator(&mut self, group: &str) {
        wait_for("the group's coordinator", || {
            let request = FindCoordinatorRequest { key: group.into(), ..Default::default() };
            (self.call(3, &request).error_code == 0).then_some(())
        });
        self.committed(group, "any", 0);
    }

    /// The error code of a commit by nobody in particular.
    #[track_caller]
    pub fn commit(&mut self, group: &str, topic: &str, partition: i32, offset: i64) -> i16 {
        let response = self.call(8, &commit_request(group, topic, partition, offset));
        response.topics[0].partitions[0].error_code
    }

    /// The committed offset; -1 where there is none. Waits for a transaction that has one to commit: whoever ends it is
    /// answered before its markers are written.
    #[track_caller]
    pub fn committed(&mut self, group: &str, topic: &str, partition: i32) -> i64 {
        let topic = OffsetFetchRequestTopic { name: topic.into(), partition_indexes: vec![partition] };
        let request = OffsetFetchRequest {
            group_id: group.into(),
            topics: Some(vec![topic]),
            require_stable: true,
            ..Default::default()
        };
        wait_for("the group's offsets", || {
            let response = self.call(7, &request);
            let answer = (response.error_code == 0).then(|| &response.topics[0].partitions[0])?;
            (answer.error_code == 0).then_some(answer.committed_offset)
        })
    }
}
