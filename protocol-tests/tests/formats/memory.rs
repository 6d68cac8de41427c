//! C092, at a scale for every day: consumers of old do not use up memory, however many they are and however slowly they
//! read.

use std::io::Read;

use bytes::Bytes;
use protocol_tests::batch::{Batch, Codec};
use protocol_tests::{Broker, Connection, messages, wait_for};
use wire::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use wire::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::{Message, Reader, ResponseHeader};

const PARTITIONS: i32 = 8;
const BATCHES: usize = 12;
const CLIENTS: usize = 40;
/// What each client asks of each partition: all together a quarter of a gigabyte.
const PARTITION_BYTES: i32 = 1024 * 1024;
/// A batch of 100 KB and what becomes of it for each client, what converts at once, and the allocator's slack.
const GROWTH_BYTES_MAX: u64 = 96 * 1024 * 1024;
const T0: i64 = 1_700_000_000_000;

#[test]
fn slow_readers_of_old_formats_cost_little_memory() {
    let broker = Broker::start(&[("log.retention.ms", "-1")]);
    let address = broker.address();
    fill(&address);
    let before = broker.memory_bytes("VmRSS:");
    let mut clients: Vec<Connection> = (0..CLIENTS).map(|_| Connection::open(&address)).collect();
    for client in &mut clients {
        client.send(1, &fetch_all());
    }
    let sizes: Vec<usize> = clients.iter().map(begin_reading).collect();
    let growth = broker.memory_bytes("VmRSS:").saturating_sub(before);
    let total: usize = sizes.iter().sum();
    assert!(total > 200 * 1024 * 1024, "only {total} bytes are on their way");
    if broker.server().is_barnabas() {
        assert!(growth < GROWTH_BYTES_MAX, "the broker grew by {growth} bytes for {total} in flight");
    }
    for (client, size) in clients.iter().zip(&sizes).take(4) {
        check(client, *size);
    }
}

/// Every partition begins with a compressed batch; the rest is as it came.
fn fill(address: &str) {
    let mut connection = Connection::open(address);
    let topic = CreatableTopic {
        name: "old".into(),
        num_partitions: PARTITIONS,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    assert_eq!(connection.call(4, &request).topics[0].error_code, 0);
    for number in 0..BATCHES {
        let mut batch = Batch::of("k", 100, T0);
        let value = Bytes::from("0123456789abcdef".repeat(64));
        batch.records.iter_mut().for_each(|record| record.value = Some(value.clone()));
        batch.codec = if number == 0 { Codec::Gzip } else { Codec::None };
        let records = batch.encode();
        let partition = |index| PartitionProduceData { index, records: Some(records.clone().into()) };
        let topic_data = vec![TopicProduceData {
            name: "old".into(),
            partition_data: (0..PARTITIONS).map(partition).collect(),
            ..Default::default()
        }];
        let request = ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data, ..Default::default() };
        wait_for("the batches", || {
            let response = connection.call(7, &request);
            let codes = response.responses[0].partition_responses.iter().map(|part| part.error_code);
            codes.into_iter().all(|code| code == 0).then_some(())
        });
    }
}

fn fetch_all() -> FetchRequest {
    let partition = |partition| FetchPartition {
        partition,
        fetch_offset: 0,
        partition_max_bytes: PARTITION_BYTES,
        ..Default::default()
    };
    let topics = vec![FetchTopic {
        topic: "old".into(),
        partitions: (0..PARTITIONS).map(partition).collect(),
        ..Default::default()
    }];
    FetchRequest { replica_id: -1, max_wait_ms: 1_000, min_bytes: 1, topics, ..Default::default() }
}

/// Reads the size of the answer, and nothing more.
fn begin_reading(client: &Connection) -> usize {
    let mut size = [0; 4];
    client.stream().read_exact(&mut size).expect("the size of an answer");
    i32::from_be_bytes(size) as usize
}

fn check(client: &Connection, size: usize) {
    let mut frame = vec![0; size];
    client.stream().read_exact(&mut frame).expect("the rest of the answer");
    let mut reader = Reader::new(Bytes::from(frame));
    ResponseHeader::decode(&mut reader, 0).expect("a response header");
    let response = wire::FetchResponse::decode(&mut reader, 1).expect("a fetch response");
    assert_eq!(reader.remaining(), 0);
    for partition in &response.responses[0].partitions {
        assert_eq!(partition.error_code, 0);
        let Some(wire::Records::Bytes(bytes)) = &partition.records else { panic!("no records") };
        let found = messages::read(bytes);
        assert!(found.len() > 700, "{}", found.len());
        assert!((0..).zip(&found).all(|(offset, message)| message.offset == offset && message.magic == 0));
    }
}
