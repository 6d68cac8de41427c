//! What a broker compresses for its topics, at a level of their own, is read by Kafka's client (lz4-java) and by kcat
//! (librdkafka with the C library).

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use protocol_tests::batch::{Batch, Codec};
use protocol_tests::client::left_out;
use protocol_tests::requests::{record_bytes, values};
use protocol_tests::{Broker, Connection, Process, Tools, command_exists};

const COUNT: i32 = 4_000;

fn name(level: i32) -> String {
    format!("level-{level:02}")
}

/// Records of several blocks, of a kind that a better search makes smaller.
fn batch(level: i32) -> Batch {
    let mut batch = Batch::of("", COUNT, 1_700_000_000_000);
    for (number, record) in batch.records.iter_mut().enumerate() {
        let value = format!("{} record {number} of {}", name(level), number * number);
        record.value = Some(value.into());
    }
    batch
}

/// The size of what a broker stores of [`batch`] at each level.
fn stored_sizes(connection: &mut Connection) -> BTreeMap<i32, usize> {
    let store = |level: i32| {
        let (topic, level_text) = (name(level), level.to_string());
        let configs = [("compression.type", "lz4"), ("compression.lz4.level", level_text.as_str())];
        connection.create_topic(&topic, 1, &configs);
        connection.append(&topic, 0, &batch(level));
        let stored = connection.fetch(&topic, 0, 0);
        assert_eq!(stored[0].codec, Codec::Lz4, "{topic}");
        assert_eq!(values(&stored), values(&[batch(level)]), "{topic}");
        (level, record_bytes(&connection.fetch_partition(&topic, 0, 0)).len())
    };
    (1..=17).map(store).collect()
}

#[test]
fn lz4_of_every_level_is_read_and_saves_more_at_higher_ones() {
    let broker = Broker::start(&[("group.initial.rebalance.delay.ms", "0")]);
    let sizes = stored_sizes(&mut Connection::open(&broker.address()));
    let chosen: Vec<usize> = [9, 1, 4, 8, 12].iter().map(|level| sizes[level]).collect();
    assert!(chosen.is_sorted_by(|left, right| left > right), "9 is the fast compressor: {sizes:?}");
    let mut expected: Vec<String> = (1..=17).flat_map(|level| values(&[batch(level)])).collect();
    expected.sort();
    match ["java", "javac", "mvn"].into_iter().find(|needed| !command_exists(needed)) {
        Some(needed) => left_out("Kafka's consumer", &format!("this machine has no {needed}")),
        None => assert_eq!(read_with_kafka(&broker.address(), expected.len()), expected),
    }
    if command_exists("kcat") {
        assert_eq!(read_with_kcat(&broker.address()), expected);
    } else {
        left_out("kcat", "this machine has no kcat");
    }
}

fn read_with_kafka(address: &str, count: usize) -> Vec<String> {
    let count = count.to_string();
    let arguments = ["--bootstrap-server", address, "--include", "level-.*", "--from-beginning"];
    let limit = ["--max-messages", &count];
    sorted_lines(&Tools::of("3.9.2").run("kafka-console-consumer", &[&arguments[..], &limit].concat()))
}

fn read_with_kcat(address: &str) -> Vec<String> {
    let read = |level| {
        let mut command = Command::new("kcat");
        command.args(["-b", address, "-C", "-q", "-t", &name(level), "-p", "0", "-o", "beginning", "-e"]);
        Process::start("kcat", command, None).finish(Duration::from_secs(120)).expect_success("kcat").stdout
    };
    sorted_lines(&(1..=17).map(read).collect::<String>())
}

fn sorted_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
