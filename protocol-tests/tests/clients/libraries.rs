use std::process::Command;

use protocol_tests::Broker;
use protocol_tests::client::programs::{go, java, node, python, rust};
use protocol_tests::client::{ALL_CODECS, Client};

/// A group must not wait for further members, so that no test waits for them.
const SETTINGS: &[(&str, &str)] = &[("group.initial.rebalance.delay.ms", "0")];

#[track_caller]
fn walk(name: &'static str, groups: bool, program: fn() -> Result<Command, String>) {
    let mut broker = Broker::start(SETTINGS);
    Client { name, codecs: ALL_CODECS, groups, program }.walk(&mut broker);
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
