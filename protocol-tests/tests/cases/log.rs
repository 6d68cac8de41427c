//! What is stored, for how long, and under which names.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use protocol_tests::batch::{Batch, Codec, Record};
use protocol_tests::requests::{EARLIEST, record_bytes, topic};
use protocol_tests::{Broker, Connection, wait_for};
use wire::create_topics_request::CreateTopicsRequest;
use wire::delete_records_request::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use wire::delete_topics_request::DeleteTopicsRequest;
use wire::produce_response::PartitionProduceResponse;

use crate::admin::{SET, TOPIC_RESOURCE, alter};
use crate::{T0, code};

const TOPIC: &str = "cases";
const HOUR_MS: i64 = 3_600_000;

fn now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
    since_1970.as_millis() as i64
}

/// C020
#[test]
fn log_append_time_is_the_brokers_clock_and_the_batch_says_so() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[("message.timestamp.type", "LogAppendTime")]);
    for codec in Codec::ALL {
        let before = now();
        let batch = Batch::of("k", 3, 0).with_codec(codec);
        let answer = connection.produce(TOPIC, vec![(0, batch.encode())]).remove(0);
        let time = answer.log_append_time_ms;
        assert!((before..=now()).contains(&time), "{codec:?}: {answer:?}, asked at {before}");
        let bytes = record_bytes(&connection.fetch_partition(TOPIC, 0, answer.base_offset));
        assert_eq!(bytes[22] & 8, 8, "{codec:?}: the attribute");
        assert_eq!(bytes[35..43], time.to_be_bytes(), "{codec:?}: the greatest timestamp");
        // Checks the checksum.
        assert_eq!(connection.fetch(TOPIC, 0, answer.base_offset)[0].records.len(), 3, "{codec:?}");
    }
}

/// C020
#[test]
fn groups_commit_where_log_append_time_is_the_brokers_default() {
    let mut broker = Broker::start(&[("log.message.timestamp.type", "LogAppendTime")]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    connection.wait_for_coordinator("group");
    assert_eq!(connection.commit("group", TOPIC, 0, 5), code::NONE);
    broker.restart();
    assert_eq!(Connection::open(&broker.address()).committed("group", TOPIC, 0), 5);
}

/// A batch of this size as it is stored.
fn batch_of_size(size: usize) -> Batch {
    let value = |length| Some(Bytes::from(vec![b'x'; length]));
    let with = |length| Batch {
        records: vec![Record { value: value(length), timestamp: now(), ..Record::default() }],
        ..Batch::default()
    };
    let around = with(size).encode().len() - size;
    with(size - around)
}

fn segments(broker: &Broker, log: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(broker.data_dir().join(log)).expect("read the partition's folder");
    let paths = entries.map(|entry| entry.expect("read the partition's folder").path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    found.sort_unstable();
    found
}

/// C021
#[test]
fn size_retention_never_goes_below_its_target() {
    const SIZE: usize = 100_000;
    let broker =
        Broker::start(&[("log.retention.check.interval.ms", "100"), ("log.initial.task.delay.ms", "1")]);
    let mut connection = Connection::open(&broker.address());
    // Two batches do not fit into a segment, so each has one.
    let segment = ("segment.bytes", "150000");
    for name in ["first", "second"] {
        connection.create_topic(name, 1, &[segment]);
        for _ in 0..10 {
            connection.append(name, 0, &batch_of_size(SIZE));
        }
        assert_eq!(segments(&broker, &format!("{name}-0")).len(), 10);
    }
    let retention = ("retention.bytes", Some("550000"));
    assert_eq!(alter(&mut connection, TOPIC_RESOURCE, "first", &[(retention.0, SET, retention.1)]).0, 0);
    wait_for("retention", || (connection.log_start("first", 0) > 0).then_some(()));
    // Retention that has visited the second topic has been over the first one once more.
    assert_eq!(alter(&mut connection, TOPIC_RESOURCE, "second", &[(retention.0, SET, retention.1)]).0, 0);
    wait_for("retention", || (connection.log_start("second", 0) > 0).then_some(()));
    assert_eq!(connection.log_start("first", 0), 4);
    assert_eq!(segments(&broker, "first-0").len(), 6);
    assert_eq!(connection.log_end("first", 0), 10);
}

fn delete_records(connection: &mut Connection, version: i16, topic: &str, offset: i64) -> (i16, i64) {
    let partition = DeleteRecordsPartition { partition_index: 0, offset };
    let topics = vec![DeleteRecordsTopic { name: topic.into(), partitions: vec![partition] }];
    let response = connection.call(version, &DeleteRecordsRequest { topics, timeout_ms: 30_000 });
    let answer = &response.topics[0].partitions[0];
    (answer.error_code, answer.low_watermark)
}

/// C024
#[test]
fn records_are_deleted_or_refused_with_kafkas_codes() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("compacted", 1, &[("cleanup.policy", "compact")]);
    for version in 0..=2 {
        let name = format!("deleted-{version}");
        connection.create_topic(&name, 1, &[]);
        for prefix in ["a", "b"] {
            connection.append(&name, 0, &Batch::of(prefix, 10, T0));
        }
        let mut ask = |topic: &str, offset| delete_records(&mut connection, version, topic, offset);
        assert_eq!(ask(&name, 21).0, code::OFFSET_OUT_OF_RANGE, "past the end");
        assert_eq!(ask(&name, -2).0, code::OFFSET_OUT_OF_RANGE, "-2");
        assert_eq!(ask("missing", 1).0, code::UNKNOWN_TOPIC_OR_PARTITION);
        assert_eq!(ask("compacted", 0).0, code::POLICY_VIOLATION);
        assert_eq!(ask(&name, 5), (code::NONE, 5), "in the middle of a batch");
        assert_eq!(connection.offset_at(&name, 0, EARLIEST), Ok(5));
        assert_eq!(connection.fetch_partition(&name, 0, 4).error_code, code::OFFSET_OUT_OF_RANGE);
        assert_eq!(connection.fetch(&name, 0, 5)[0].base_offset, 0, "the batch that holds it");
        assert_eq!(delete_records(&mut connection, version, &name, -1), (code::NONE, 20), "everything");
        assert_eq!(connection.log_start(&name, 0), 20);
    }
}

/// KAFKA-14991
#[test]
fn a_record_from_too_far_in_the_future_is_named() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[("message.timestamp.after.max.ms", "3600000")]);
    let at = |connection: &mut Connection, timestamps: &[i64]| -> PartitionProduceResponse {
        let records = timestamps.iter().zip(0..).map(|(timestamp, offset_delta)| Record {
            timestamp: *timestamp,
            ..Record::new(offset_delta, 0, "k", "v")
        });
        let batch = Batch { records: records.collect(), ..Batch::default() };
        let request = protocol_tests::requests::produce_request(TOPIC, -1, vec![(0, batch.encode())]);
        connection.call(8, &request).responses.remove(0).partition_responses.remove(0)
    };
    let soon = now() + HOUR_MS / 2;
    let late = now() + 2 * HOUR_MS;
    let answer = at(&mut connection, &[soon, late]);
    assert_eq!(answer.error_code, code::INVALID_TIMESTAMP, "{answer:?}");
    let named: Vec<i32> = answer.record_errors.iter().map(|error| error.batch_index).collect();
    assert_eq!(named, [1], "{answer:?}");
    assert_eq!(at(&mut connection, &[soon]).error_code, code::NONE);
    let longer = [("message.timestamp.after.max.ms", SET, Some("14400000"))];
    assert_eq!(alter(&mut connection, TOPIC_RESOURCE, TOPIC, &longer).0, 0);
    wait_for("the longer limit", || (at(&mut connection, &[late]).error_code == code::NONE).then_some(()));
}

fn create(connection: &mut Connection, name: &str) -> (i16, String) {
    let topics = vec![topic(name, 1, &[])];
    let request = CreateTopicsRequest { topics, timeout_ms: 30_000, ..Default::default() };
    let answer = connection.call(4, &request).topics.remove(0);
    (answer.error_code, answer.error_message.map(|text| text.to_string()).unwrap_or_default())
}

/// KAFKA-4893
#[test]
fn long_and_dotted_names_survive_deletion_kill_and_restart() {
    let mut broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    let long = "x".repeat(249);
    let names = [long.as_str(), "a.b", "...", "-"];
    for name in names {
        connection.create_topic(name, 1, &[]);
        connection.append(name, 0, &Batch::of("before", 1, T0));
    }
    let topic_names = names.map(Into::into).to_vec();
    let deleted =
        connection.call(3, &DeleteTopicsRequest { topic_names, timeout_ms: 30_000, ..Default::default() });
    assert!(deleted.responses.iter().all(|topic| topic.error_code == 0), "{deleted:?}");
    broker.kill();
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    for name in names {
        connection.create_topic(name, 1, &[]);
        assert_eq!(connection.log_end(name, 0), 0, "{name}");
        connection.append(name, 0, &Batch::of("after", 1, T0));
    }
    broker.kill();
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    for name in names {
        assert_eq!(connection.log_end(name, 0), 1, "{name}");
    }
}

/// KAFKA-2337
#[test]
fn names_that_no_topic_can_have_are_refused_in_kafkas_words() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    let long = "x".repeat(250);
    let too_long = format!("the length of '{long}' is longer than the max allowed length 249");
    let others = "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'";
    for (name, why) in [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a/b", others),
        (&long, &too_long),
    ] {
        assert_eq!(
            create(&mut connection, name),
            (code::INVALID_TOPIC, format!("Topic name is invalid: {why}"))
        );
    }
    connection.create_topic("a.b", 1, &[]);
    assert_eq!(create(&mut connection, "a_b").0, code::INVALID_TOPIC, "collides in the names of metrics");
}
