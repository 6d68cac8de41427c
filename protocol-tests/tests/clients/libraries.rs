use std::process::Command;

use protocol_tests::client::programs::{go, java, node, python, rust};
use protocol_tests::client::{ALL_CODECS, Client};
use protocol_tests::{Broker, Connection};
use wire::{MetadataRequest, Uuid};

/// A group must not wait for further members, so that no test waits for them.
const SETTINGS: &[(&str, &str)] = &[("group.initial.rebalance.delay.ms", "0")];

#[track_caller]
fn walk(name: &'static str, groups: bool, program: fn() -> Result<Command, String>) {
    let mut broker = Broker::start(SETTINGS);
    Client { name, codecs: ALL_CODECS, groups, program }.walk(&mut broker);
}

/// C004: topics have no ids under a version before 2.8, and clients that would commit offsets by id do it by name.
#[track_caller]
fn walk_without_topic_ids(name: &'static str, program: fn() -> Result<Command, String>) {
    let settings = [SETTINGS, &[("inter.broker.protocol.version", "2.7")]].concat();
    let mut broker = Broker::start(&settings);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("without-id", 1, &[]);
    let topics = connection.call(12, &MetadataRequest { topics: None, ..Default::default() }).topics;
    assert!(!topics.is_empty() && topics.iter().all(|topic| topic.topic_id == Uuid::default()), "{topics:?}");
    Client { name, codecs: ALL_CODECS, groups: true, program }.walk(&mut broker);
}

#[test]
fn confluent_kafka_without_topic_ids() {
    walk_without_topic_ids("confluent-kafka", || python("client_confluent.py"));
}

#[test]
fn franz_go_without_topic_ids() {
    walk_without_topic_ids("franz-go", || go("franz"));
}

#[test]
fn java_3_9_2_without_topic_ids() {
    walk_without_topic_ids("java-3.9.2", || java("3.9.2", "JavaClient"));
}

#[test]
fn confluent_kafka() {
    walk("confluent-kafka", true, || python("client_confluent.py"));
}

#[test]
fn kafka_python() {
    walk("kafka-python", true, || python("client_kafka_python.py"));
}

#[test]
fn aiokafka() {
    walk("aiokafka", true, || python("client_aiokafka.py"));
}

#[test]
fn kafkajs() {
    walk("kafkajs", true, || node("client_kafkajs.js"));
}

#[test]
fn franz_go() {
    walk("franz-go", true, || go("franz"));
}

#[test]
fn sarama() {
    walk("sarama", true, || go("sarama"));
}

#[test]
fn segmentio_kafka_go() {
    walk("kafka-go", true, || go("kafkago"));
}

#[test]
fn rdkafka() {
    walk("rdkafka", true, || rust("client_rdkafka"));
}

#[test]
fn rskafka() {
    walk("rskafka", false, || rust("client_rskafka"));
}

#[test]
fn java_4_3_1() {
    walk("java-4.3.1", true, || java("4.3.1", "JavaClient"));
}

#[test]
fn java_3_9_2() {
    walk("java-3.9.2", true, || java("3.9.2", "JavaClient"));
}

#[test]
fn java_2_8_2() {
    walk("java-2.8.2", true, || java("2.8.2", "JavaClient"));
}
