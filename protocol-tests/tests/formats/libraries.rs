//! Libraries that are told to speak as to an old broker, and leave out what it would not know.

use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use protocol_tests::batch::{Batch, Codec};
use protocol_tests::client::programs::node;
use protocol_tests::client::{cached_dir, left_out, run, source};
use protocol_tests::{Broker, Connection, Process, command_exists};

const LIMIT: Duration = Duration::from_secs(120);
const COUNT: usize = 20;

fn broker() -> Broker {
    Broker::start(&[("group.initial.rebalance.delay.ms", "0"), ("num.partitions", "1")])
}

/// C012: also from the end and from the beginning, which it asks ListOffsets 0 for.
#[test]
fn librdkafka_falls_back_to_old_brokers() {
    if !command_exists("kcat") {
        return left_out("librdkafka for old brokers", "this machine has no kcat");
    }
    let broker = broker();
    let mut expected = Vec::new();
    let versions = [Some("0.9.0"), Some("0.10.0"), None];
    for version in versions {
        for codec in ["none", "gzip", "snappy", "lz4"] {
            let lines: Vec<String> = (0..COUNT).map(|i| format!("kcat {version:?} {codec} {i}")).collect();
            let mut kcat = kcat(&broker, version, &["-P", "-t", "ages", "-z", codec]);
            lines.iter().for_each(|line| kcat.write_line(line));
            kcat.close_stdin();
            kcat.finish(LIMIT).expect_success("kcat produces");
            expected.extend(lines);
        }
    }
    for version in versions {
        let read = |offset: &str| {
            let arguments = ["-C", "-t", "ages", "-p", "0", "-e", "-q", "-o", offset];
            let finished = kcat(&broker, version, &arguments).finish(LIMIT);
            let text = finished.expect_success("kcat consumes").stdout;
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(read("beginning"), expected, "{version:?}");
        assert_eq!(read("-7"), expected[expected.len() - 7..], "{version:?} near the end");
        assert_eq!(read("133"), expected[133..], "{version:?} in the middle of a batch");
        let group = format!("group-{}", version.unwrap_or("new"));
        let arguments = ["-G", &group, "ages", "-X", "auto.offset.reset=earliest", "-e", "-q", "-c", "240"];
        let finished = kcat(&broker, version, &arguments).finish(LIMIT);
        let text = finished.expect_success("kcat consumes in a group").stdout;
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{version:?} in a group");
    }
}

fn kcat(broker: &Broker, version: Option<&str>, arguments: &[&str]) -> Process {
    let mut command = Command::new("kcat");
    command.args(["-b", &broker.address(), "-m", "60"]).args(arguments);
    if let Some(version) = version {
        let fallback = format!("broker.version.fallback={version}");
        command.args(["-X", "api.version.request=false", "-X", &fallback]);
    }
    Process::start("kcat", command, None)
}

/// C015
#[test]
fn sarama_speaks_as_to_old_brokers() {
    if !command_exists("go") {
        return left_out("sarama for old brokers", "this machine has no go");
    }
    let dir = cached_dir("go-old", |dir| {
        let mut build = Command::new("go");
        build.args(["build", "-mod=readonly", "-o"]).arg(dir).args(["./sarama_of"]);
        run(build.current_dir(source("go")))
    });
    let program = dir.unwrap_or_else(|error| panic!("{error}")).join("sarama_of");
    let broker = broker();
    let mut expected = Vec::new();
    for (version, codecs) in [
        ("0.8.2.0", &["none", "gzip", "snappy"][..]),
        ("0.10.0.0", &["none", "gzip", "snappy", "lz4"]),
        ("2.8.0", &["none", "gzip", "snappy", "lz4"]),
    ] {
        for codec in codecs {
            expected.extend((0..COUNT).map(|i| format!("sarama {version} {codec} {i}")));
        }
        let mut command = Command::new(&program);
        command.args([&broker.address(), "ages", version]).args(codecs);
        let finished = Process::start("sarama", command, None).finish(LIMIT);
        let text = finished.expect_success("sarama").stdout;
        let lines = (0..).zip(&expected).map(|(offset, line)| format!("{offset}\t{line}\t{line}"));
        assert_eq!(text.lines().collect::<Vec<_>>(), lines.collect::<Vec<_>>(), "sarama as of {version}");
    }
}

/// C015: what a new producer wrote, for a consumer that knows Fetch 0 only.
#[test]
fn kafka_node_reads_what_new_producers_wrote() {
    const BATCHES: i32 = 100;
    const EACH: i32 = 100;
    /// 2023-11-14, which is older than logs are kept.
    const T0: i64 = 1_700_000_000_000;
    let mut command = match node("client_kafka_node.js") {
        Ok(command) => command,
        Err(reason) => return left_out("kafka-node", &reason),
    };
    let broker = Broker::start(&[("log.retention.ms", "-1")]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("new", 1, &[]);
    let codecs = [Codec::None, Codec::Gzip, Codec::Snappy];
    let mut expected = Vec::new();
    for (number, codec) in (0..BATCHES).zip(codecs.into_iter().cycle()) {
        let mut batch = Batch::of(&format!("{codec:?}-{number}"), EACH, T0).with_codec(codec);
        for record in &mut batch.records {
            record.headers = vec![("header".to_owned(), Some(Bytes::from_static(b"x"))); 2];
            let key = record.key.as_deref().unwrap_or_default().escape_ascii();
            expected.push(format!("{}\t{key}\t{key}", expected.len()));
        }
        connection.append("new", 0, &batch);
    }
    command.args([&broker.address(), "new", &expected.len().to_string()]);
    let finished = Process::start("kafka-node", command, None).finish(LIMIT);
    let text = finished.expect_success("kafka-node").stdout;
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}
