//! Record batches that lie, and produce requests that want no answer.

use bytes::Bytes;
use protocol_tests::Connection;
use protocol_tests::batch::{Batch, varint};
use protocol_tests::requests::{LATEST, produce_request};
use wire::metadata_request::MetadataRequest;
use wire::produce_response::PartitionProduceResponse;

pub const STEPS: &[fn(&str)] = &[
    a_wrong_checksum_is_refused_and_the_other_partition_is_stored,
    a_batch_that_lies_is_refused_and_leaves_no_trace,
    acks_0_gets_no_answer,
    acks_0_to_a_missing_topic_is_closed,
];

const TOPIC: &str = "hostile";
/// 2023-11-14.
const T0: i64 = 1_700_000_000_000;
const CORRUPT_MESSAGE: i16 = 2;
const INVALID_RECORD: i16 = 87;
const UNKNOWN_SERVER_ERROR: i16 = -1;

/// Two partitions, and waits until they have leaders.
pub fn create_topic(address: &str) {
    Connection::open(address).create_topic(TOPIC, 2, &[]);
}

#[track_caller]
pub fn produce(connection: &mut Connection, partitions: Vec<(i32, Bytes)>) -> Vec<PartitionProduceResponse> {
    connection.produce(TOPIC, partitions)
}

/// The offset behind the last record; `None` while the partition has no leader.
#[track_caller]
pub fn end(connection: &mut Connection, partition: i32) -> Option<i64> {
    connection.offset_at(TOPIC, partition, LATEST).ok()
}

/// R16
fn a_wrong_checksum_is_refused_and_the_other_partition_is_stored(address: &str) {
    let mut connection = Connection::open(address);
    let ends = [0, 1].map(|partition| end(&mut connection, partition).expect("a leader"));
    let good = Batch::of("k", 3, T0);
    let bad = Batch { crc_error: 1, ..good.clone() };
    let answers = produce(&mut connection, vec![(0, bad.encode()), (1, good.encode())]);
    let codes: Vec<i16> = answers.iter().map(|partition| partition.error_code).collect();
    assert_eq!(codes, [CORRUPT_MESSAGE, 0]);
    assert_eq!(end(&mut connection, 0), Some(ends[0]));
    assert_eq!(end(&mut connection, 1), Some(ends[1] + 3));
}

/// R18
fn a_batch_that_lies_is_refused_and_leaves_no_trace(address: &str) {
    let mut connection = Connection::open(address);
    let before = end(&mut connection, 0).expect("a leader");
    for (what, records) in lies() {
        let answer = produce(&mut connection, vec![(0, records)]).remove(0);
        let is_refused = matches!(answer.error_code, CORRUPT_MESSAGE | INVALID_RECORD);
        assert!(is_refused, "{what}: {answer:?}");
        assert_eq!(end(&mut connection, 0), Some(before), "{what}");
    }
    // What is only unlikely may be stored: nothing of it may keep the partition from being read.
    for odd in oddities() {
        let answer = produce(&mut connection, vec![(0, odd)]).remove(0);
        assert_ne!(answer.error_code, UNKNOWN_SERVER_ERROR, "{answer:?}");
    }
    let before = end(&mut connection, 0).expect("a leader");
    let good = Batch::of("after", 2, T0);
    let answer = produce(&mut connection, vec![(0, good.encode())]).remove(0);
    assert_eq!((answer.error_code, answer.base_offset), (0, before));
    let stored = connection.fetch_all(TOPIC, 0, 0);
    assert_eq!(stored.last().expect("a batch").records, good.records);
}

/// Offsets, epochs and producers that a client makes up.
fn oddities() -> Vec<Bytes> {
    let good = Batch::of("k", 2, T0);
    vec![
        Batch { base_offset: i64::MAX - 5, ..good.clone() }.encode(),
        Batch { base_offset: -77, leader_epoch: i32::MAX, ..good.clone() }.encode(),
        Batch { producer_id: 5, ..good.clone() }.encode(),
        Batch { producer_id: i64::MAX, producer_epoch: -9, base_sequence: -8, ..good.clone() }.encode(),
        Batch { producer_id: 77, producer_epoch: 3, base_sequence: i32::MAX, ..good }.encode(),
    ]
}

fn lies() -> Vec<(&'static str, Bytes)> {
    let good = Batch::of("k", 2, T0);
    let with_record = |record: Vec<u8>| {
        let mut payload = Vec::new();
        varint(&mut payload, record.len() as i64);
        payload.extend(record);
        Batch::of("k", 1, T0).encode_with(&payload)
    };
    // Attributes, timestamp delta, offset delta.
    let start = || vec![0, 0, 0];
    let mut key_length = start();
    varint(&mut key_length, -5);
    key_length.extend([1, 0]);
    // In 32 bits its highest one is lost, and a key of no bytes is left.
    let mut wrapped_key = start();
    varint(&mut wrapped_key, 1 << 31);
    wrapped_key.extend([1, 0]);
    let mut long_key = start();
    varint(&mut long_key, 1 << 30);
    long_key.extend([1, 0]);
    // A null key and a null value, then the headers.
    let mut header_count = [start(), vec![1, 1]].concat();
    varint(&mut header_count, (1 << 31) - 1);
    let mut negative_headers = [start(), vec![1, 1]].concat();
    varint(&mut negative_headers, -1);
    let endless_timestamp = [vec![0], vec![0xff; 11], vec![0, 1, 1, 0]].concat();
    vec![
        ("length 0", Batch { length: Some(0), ..good.clone() }.encode()),
        ("length below a header", Batch { length: Some(48), ..good.clone() }.encode()),
        ("negative length", Batch { length: Some(-5), ..good.clone() }.encode()),
        ("largest length", Batch { length: Some(i32::MAX), ..good.clone() }.encode()),
        ("length beyond the set", Batch { length: Some(5_000), ..good.clone() }.encode()),
        ("magic 3", Batch { magic: 3, ..good.clone() }.encode()),
        ("magic 127", Batch { magic: 127, ..good.clone() }.encode()),
        ("magic -1", Batch { magic: -1, ..good.clone() }.encode()),
        ("most records", Batch { record_count: Some(i32::MAX), ..good.clone() }.encode()),
        ("negative count", Batch { record_count: Some(-1), ..good.clone() }.encode()),
        ("last offset delta", Batch { last_offset_delta: Some(i32::MAX), ..good.clone() }.encode()),
        ("control batch", Batch { attributes: 32, ..good.clone() }.encode()),
        ("key of -5 bytes", with_record(key_length)),
        ("key of 2^30 bytes", with_record(long_key)),
        ("key of 2^31 bytes", with_record(wrapped_key)),
        ("2^31 - 1 headers", with_record(header_count)),
        ("-1 headers", with_record(negative_headers)),
        ("timestamp delta without end", with_record(endless_timestamp)),
        ("record beyond the batch", good.encode_with(&[0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0])),
    ]
}

/// C003
fn acks_0_gets_no_answer(address: &str) {
    let mut connection = Connection::open(address);
    let before = end(&mut connection, 1).expect("a leader");
    connection.send(7, &produce_request(TOPIC, 0, vec![(1, Batch::of("quiet", 4, T0).encode())]));
    // Checks that the next bytes are the answer to this request.
    assert_eq!(end(&mut connection, 1), Some(before + 4));
}

/// C003
fn acks_0_to_a_missing_topic_is_closed(address: &str) {
    let mut connection = Connection::open(address);
    connection.send(7, &produce_request("no-such-topic", 0, vec![(0, Batch::of("k", 1, T0).encode())]));
    connection.expect_closed();
    let topics = Connection::open(address).call(1, &MetadataRequest::default()).topics;
    assert!(topics.iter().all(|topic| topic.name.as_deref() != Some("no-such-topic")));
}
