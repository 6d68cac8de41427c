//! A folder that Apache Kafka 3.9.2 wrote opens, reads as its own consumer reads it, and stays as it is.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::super::testing::*;
use super::super::{Log, LogConfig, LogManager};
use crate::model::{Offset, PartitionIndex, ProducerId, Timestamp, TopicName, TopicPartition};
use crate::records::{Batch, kafka_folder};
use crate::runtime::fs::{FileSystem, OpenMode, write_all_at};

fn machine() -> Machine {
    let machine = Machine::new(LogConfig { retention_ms: None, ..LogConfig::default() });
    for (path, bytes) in kafka_folder::FILES.iter() {
        let path = Path::new("/data").join(path);
        machine.fs.create_dir_all(path.parent().unwrap()).unwrap();
        let file = machine.fs.open(&path, OpenMode::CreateEmpty).unwrap();
        write_all_at(&*file, &[std::io::IoSlice::new(bytes)], 0).unwrap();
    }
    machine
}

/// Every partition that has records, with what the manifest says of it.
fn partitions() -> Vec<(TopicPartition, &'static Value, &'static Value)> {
    let topics = kafka_folder::MANIFEST["topics"].as_object().unwrap();
    let of_topic = |(name, topic): (&'static String, &'static Value)| {
        topic["partitions"].as_object().unwrap().iter().map(move |(number, partition)| {
            let name = TopicName::new(name).unwrap();
            (TopicPartition::new(name, PartitionIndex(number.parse().unwrap())), topic, partition)
        })
    };
    topics.iter().flat_map(of_topic).collect()
}

/// The offsets of data records, and of those that a committed reader is shown.
fn offsets(log: &Log) -> (Vec<i64>, Vec<i64>) {
    let end = log.log_end_offset();
    let mut aborted = log.aborted_transactions(log.log_start_offset(), end).unwrap();
    aborted.sort_by_key(|transaction| transaction.first_offset);
    let mut skipped: BTreeSet<ProducerId> = BTreeSet::new();
    let (mut all, mut committed) = (Vec::new(), Vec::new());
    for batch in batches_of(log) {
        let header = &batch.header;
        aborted.retain(|transaction| {
            let begins = transaction.first_offset <= header.base_offset;
            if begins {
                skipped.insert(transaction.producer_id);
            }
            !begins
        });
        if header.attributes.is_control() {
            skipped.remove(&header.producer_id);
            continue;
        }
        let from = log.log_start_offset();
        let found = batch.records().unwrap().map(|record| record.unwrap().offset(header).0);
        let found: Vec<i64> = found.filter(|&offset| offset >= from.0).collect();
        if !(header.attributes.is_transactional() && skipped.contains(&header.producer_id)) {
            committed.extend(&found);
        }
        all.extend(found);
    }
    (all, committed)
}

fn batches_of(log: &Log) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut next = log.log_start_offset();
    while next < log.log_end_offset() {
        let read = log.read(next, 500, log.log_end_offset(), true).unwrap();
        let found = read_batches(&read);
        next = found.last().unwrap().header.next_offset();
        batches.extend(found);
    }
    batches
}

#[track_caller]
fn check(manager: &LogManager) {
    let number = |value: &Value| Offset(value.as_i64().unwrap());
    for (topic_partition, topic, partition) in partitions() {
        let log = manager.log(&topic_partition).unwrap();
        assert_eq!(log.topic_id().to_string(), topic["topic_id"].as_str().unwrap());
        assert_eq!(log.log_start_offset(), number(&partition["log_start_offset"]), "{topic_partition}");
        assert_eq!(log.log_end_offset(), number(&partition["high_watermark"]), "{topic_partition}");
        assert_eq!(log.high_watermark(), number(&partition["high_watermark"]), "{topic_partition}");
        assert_eq!(log.last_stable_offset(), number(&partition["last_stable_offset"]), "{topic_partition}");
        check_times(&log, partition);
        if topic_partition.topic.starts_with("fmt-v0") || topic_partition.topic.starts_with("fmt-v1") {
            continue;
        }
        if &*topic_partition.topic == "fmt-mixed" {
            continue;
        }
        let records = partition["records"].as_array().unwrap();
        let expected: Vec<i64> = records.iter().map(|record| record["offset"].as_i64().unwrap()).collect();
        let expected_committed = match &partition["read_committed_offsets"] {
            Value::Array(offsets) => offsets.iter().map(|offset| offset.as_i64().unwrap()).collect(),
            _ => expected.clone(),
        };
        assert_eq!(offsets(&log), (expected, expected_committed), "{topic_partition}");
    }
}

/// A lookup by the time of any record finds the first with it or a later one. What a consumer is not shown
/// counts too: markers, and the front of old compressed messages.
#[track_caller]
fn check_times(log: &Log, partition: &Value) {
    let records = partition["records"].as_array().unwrap();
    let records: Vec<(i64, i64)> = records
        .iter()
        .map(|record| (record["offset"].as_i64().unwrap(), record["timestamp"].as_i64().unwrap()))
        .collect();
    for &(_, timestamp) in records.iter().filter(|(_, timestamp)| *timestamp >= 0) {
        let found =
            log.fetch_offset_by_timestamp(Timestamp(timestamp)).unwrap().expect("there is such a record");
        let expected = records.iter().find(|(_, other)| *other >= timestamp).unwrap().0;
        let is_exact = !["fmt-v1", "fmt-mixed", "txn-", "__consumer", "compacted"]
            .iter()
            .any(|prefix| log.topic_partition().to_string().starts_with(prefix));
        assert!(found.offset.0 == expected || !is_exact && found.offset.0 < expected, "{found:?} {expected}");
    }
}

/// The contents of files of logs that end so.
fn files(machine: &Machine, endings: &[&str]) -> Vec<(String, Vec<u8>)> {
    let read = |path: &str| machine.fs.read(&Path::new("/data").join(path)).unwrap();
    let is_kept = |path: &&String| endings.iter().any(|ending| path.ends_with(ending));
    let kept = kafka_folder::FILES.keys().filter(is_kept);
    kept.map(|path| (path.clone(), read(path))).collect()
}

const RECORDS: [&str; 4] = [".log", ".index", ".timeindex", ".txnindex"];

#[test]
fn a_closed_folder_reads_as_kafka_reads_it_and_stays_byte_for_byte() {
    let machine = machine();
    let kept =
        [&RECORDS[..], &["partition.metadata", "start-offset-checkpoint", "replication-offset-checkpoint"]];
    let kept = kept.concat();
    let before = files(&machine, &kept);
    let manager = machine.start().unwrap();
    check(&manager);
    manager.shut_down(machine.now());
    drop(manager);
    for ((path, before), (_, after)) in before.into_iter().zip(files(&machine, &kept)) {
        assert_eq!(before, after, "{path}");
    }
    machine.fs.kill();
    check(&machine.start().unwrap());
}

#[test]
fn a_folder_that_was_not_closed_is_recovered_to_the_same() {
    let machine = machine();
    machine.fs.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
    machine.fs.remove_file(Path::new("/data/recovery-point-offset-checkpoint")).unwrap();
    let before = files(&machine, &RECORDS);
    let manager = machine.start().unwrap();
    check(&manager);
    for ((path, before), (_, after)) in before.into_iter().zip(files(&machine, &RECORDS)) {
        assert_eq!(before, after, "{path}");
    }
}
