//! Kafka's own tools since 0.8.2.2 on one topic: what one writes, all read.

use std::time::Duration;

use protocol_tests::batch::{Batch, Codec};
use protocol_tests::client::left_out;
use protocol_tests::{Broker, Connection, Process, Server, command_exists, free_port, kafka_tool, wait_for};
use wire::create_topics_request::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use wire::metadata_request::{MetadataRequest, MetadataRequestTopic};
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};

/// Their Java virtual machines start slowly on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
const COUNT: usize = 20;
const TOPIC: &str = "ages";

/// Releases and the codecs that all of them read.
const VERSIONS: [&str; 5] = ["0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "2.8.2"];
const CODECS: [&str; 4] = ["none", "gzip", "snappy", "lz4"];

#[test]
fn every_age_reads_what_every_age_writes() {
    for needed in ["java", "javac", "mvn"] {
        if !command_exists(needed) {
            return left_out("Kafka's old tools", &format!("this machine has no {needed}"));
        }
    }
    let broker = Broker::start(&[("group.initial.rebalance.delay.ms", "0"), ("num.partitions", "1")]);
    let address = broker.address();
    create_topic(&address);
    let mut expected = Vec::new();
    for version in VERSIONS {
        for codec in CODECS {
            let lines: Vec<String> = (0..COUNT).map(|i| format!("{version} {codec} {i}")).collect();
            produce(version, &address, codec, &lines);
            expected.extend(lines);
        }
    }
    for version in VERSIONS {
        assert_eq!(consume(version, &address, expected.len()), expected, "what {version} reads");
    }
    perf_tools_move_everything(&address);
}

/// Waits until it has a leader: producers of 0.8 give up early.
fn create_topic(address: &str) {
    let mut connection = Connection::open(address);
    let topics = vec![MetadataRequestTopic { name: Some(TOPIC.into()), ..Default::default() }];
    let request = MetadataRequest { topics: Some(topics), ..Default::default() };
    wait_for("the topic", || (connection.call(1, &request).topics[0].error_code == 0).then_some(()));
}

/// Starts a tool of a release; each is a process of its own, because those before 0.11 end theirs.
#[track_caller]
fn start(version: &str, tool: &str, arguments: &[&str]) -> Process {
    let mut command = kafka_tool(version, tool);
    command.args(arguments).env("KAFKA_TOOL_TIER", "1");
    Process::start(&format!("{tool} of {version}"), command, None)
}

#[track_caller]
fn produce(version: &str, address: &str, codec: &str, lines: &[String]) {
    let arguments = ["--broker-list", address, "--topic", TOPIC, "--compression-codec", codec];
    // The old default of 1.5 s would send records again on a busy machine.
    let patience = ["--sync", "--request-required-acks", "-1", "--request-timeout-ms", "60000"];
    let mut tool = start(version, "kafka-console-producer", &[&arguments[..], &patience].concat());
    lines.iter().for_each(|line| tool.write_line(line));
    tool.close_stdin();
    tool.finish(LIMIT).expect_success("produce");
}

#[track_caller]
fn consume(version: &str, address: &str, count: usize) -> Vec<String> {
    let count = count.to_string();
    let tool = if version == "0.8.2.2" {
        // Its console consumer finds brokers in ZooKeeper only; this one asks them.
        let place = ["--topic", TOPIC, "--partition", "0", "--offset", "-2"];
        let arguments = ["--broker-list", address, "--no-wait-at-logend", "--max-messages", &count];
        start(version, "kafka-simple-consumer-shell", &[&place[..], &arguments].concat())
    } else {
        let arguments = ["--bootstrap-server", address, "--topic", TOPIC, "--from-beginning"];
        let mut arguments = [&arguments[..], &["--max-messages", &count]].concat();
        if version.starts_with("0.9") || version.starts_with("0.10") {
            arguments.push("--new-consumer");
        }
        start(version, "kafka-console-consumer", &arguments)
    };
    let finished = tool.finish(LIMIT).expect_success("consume");
    let is_record = |line: &&str| VERSIONS.iter().any(|version| line.starts_with(version));
    finished.stdout.lines().filter(is_record).map(str::to_owned).collect()
}

#[track_caller]
fn perf_tools_move_everything(address: &str) {
    let servers = format!("bootstrap.servers={address}");
    for (version, codec) in [("0.8.2.2", "gzip"), ("0.9.0.1", "lz4"), ("0.10.2.2", "snappy")] {
        let compression = format!("compression.type={codec}");
        let arguments = match version {
            "0.8.2.2" => vec!["perf", "2000", "100", "-1", "acks=1", &servers, &compression],
            _ => {
                let size = ["--topic", "perf", "--num-records", "2000", "--record-size", "100"];
                let how = ["--throughput", "-1", "--producer-props", "acks=1", &servers, &compression];
                [&size[..], &how].concat()
            }
        };
        let finished = start(version, "kafka-producer-perf-test", &arguments).finish(LIMIT);
        let text = finished.expect_success("produce quickly").stdout;
        assert!(text.contains("2000 records sent"), "{version}: {text}");
    }
    // Those before it wait for a second and no longer, which a busy machine may need to start.
    let arguments = ["--new-consumer", "--broker-list", address, "--topic", "perf", "--messages", "6000"];
    let arguments = [&arguments[..], &["--hide-header"]].concat();
    let finished = start("0.11.0.3", "kafka-consumer-perf-test", &arguments).finish(LIMIT);
    let text = finished.expect_success("consume quickly").stdout;
    let line = text.lines().rfind(|line| line.matches(", ").count() >= 5).unwrap_or_default();
    let read = line.split(", ").nth(4).and_then(|count| count.parse::<usize>().ok());
    assert_eq!(read, Some(6_000), "{text}");
}

/// Consumers whose limit is smaller than a message end with a word that says so. They are told by the message's beginning,
/// which they get of messages that need no conversion.
#[test]
fn consumers_learn_that_a_message_is_above_their_limit() {
    for needed in ["java", "mvn"] {
        if !command_exists(needed) {
            return left_out("Kafka's old consumers", &format!("this machine has no {needed}"));
        }
    }
    let port = free_port();
    let listener = format!("127.0.0.1:{}", port.number);
    let settings = [("inter.broker.protocol.version", "2.8"), ("log.retention.ms", "-1")];
    let broker = match Server::from_environment() {
        Server::Barnabas => {
            Broker::start(&[&settings[..], &[("barnabas.zookeeper.listener", &listener)]].concat())
        }
        _ => Broker::start(&settings),
    };
    let zookeeper = broker.zookeeper().map_or(listener, |zookeeper| zookeeper.address());
    let mut connection = Connection::open(&broker.address());
    create_with_format(&mut connection, TOPIC, "0.9.0");
    for value in ["0.9.0.1 small".to_owned(), format!("0.9.0.1 {}", "large ".repeat(500))] {
        let mut batch = Batch::of("k", 1, 1_700_000_000_000);
        batch.records[0].value = Some(value.into());
        wait_for("the batch", || (produce_batch(&mut connection, TOPIC, &batch) == 0).then_some(()));
    }
    let config = broker.dir().join("small.properties");
    let limits = "max.partition.fetch.bytes=1000\nfetch.message.max.bytes=1000\ngroup.id=small\n";
    std::fs::write(&config, limits).expect("write a file for a tool");
    let config = ["--topic", TOPIC, "--consumer.config", config.to_str().unwrap(), "--from-beginning"];
    let address = broker.address();
    for (version, place, told) in [
        ("0.8.2.2", &["--zookeeper", &*zookeeper][..], "MessageSizeTooLargeException"),
        ("0.9.0.1", &["--new-consumer", "--bootstrap-server", &*address], "RecordTooLargeException"),
    ] {
        let consumer = start(version, "kafka-console-consumer", &[place, &config].concat());
        let finished = consumer.finish(LIMIT);
        assert!(finished.stdout.contains("0.9.0.1 small"), "{finished:?}");
        assert!(!finished.stdout.contains("large"), "{finished:?}");
        assert!(finished.stderr.contains(told) || finished.stdout.contains(told), "{finished:?}");
    }
}

/// A topic in an old format has files that Kafka's own tool finds in order.
#[test]
fn kafka_reads_the_files_of_every_format() {
    for needed in ["java", "mvn"] {
        if !command_exists(needed) {
            return left_out("kafka-dump-log", &format!("this machine has no {needed}"));
        }
    }
    let settings = [("inter.broker.protocol.version", "2.8"), ("log.retention.ms", "-1")];
    let mut broker = Broker::start(&settings);
    let mut connection = Connection::open(&broker.address());
    let formats = [("v0", "0.9.0"), ("v1", "0.10.2"), ("v2", "2.8")];
    for (topic, version) in formats {
        create_with_format(&mut connection, topic, version);
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
            let batch = Batch::of("k", 5, 1_700_000_000_000).with_codec(codec);
            wait_for("the batch", || (produce_batch(&mut connection, topic, &batch) == 0).then_some(()));
        }
    }
    broker.stop();
    for (topic, _) in formats {
        let file = broker.data_dir().join(format!("{topic}-0/00000000000000000000.log"));
        let file = file.display().to_string();
        let arguments = ["--deep-iteration", "--print-data-log", "--files", &file];
        let text = start("3.9.2", "kafka-dump-log", &arguments).finish(LIMIT).expect_success("dump").stdout;
        let records: Vec<&str> =
            text.lines().filter(|line| line.trim_start().starts_with("| offset")).collect();
        for (offset, record) in records.iter().enumerate() {
            assert!(record.contains(&format!("offset: {offset} ")), "{topic}: {text}");
            assert!(record.contains(&format!("payload: k-{}", offset % 5)), "{topic}: {text}");
        }
        assert_eq!(records.len(), 20, "{topic}: {text}");
        assert!(!text.contains("isvalid: false"), "{topic}: {text}");
        let magic = topic.replace('v', "magic: ");
        let batches = text.lines().filter(|line| line.starts_with("baseOffset"));
        assert!(batches.into_iter().all(|line| line.contains(&magic)), "{topic}: {text}");
    }
}

fn create_with_format(connection: &mut Connection, topic: &str, version: &str) {
    let config = CreatableTopicConfig { name: "message.format.version".into(), value: Some(version.into()) };
    let topic = CreatableTopic {
        name: topic.into(),
        num_partitions: 1,
        replication_factor: 1,
        configs: vec![config],
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    assert_eq!(connection.call(4, &request).topics[0].error_code, 0);
}

fn produce_batch(connection: &mut Connection, topic: &str, batch: &Batch) -> i16 {
    let records = Some(batch.encode().into());
    let partition_data = vec![PartitionProduceData { index: 0, records }];
    let topic_data = vec![TopicProduceData { name: topic.into(), partition_data, ..Default::default() }];
    let request = ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data, ..Default::default() };
    connection.call(7, &request).responses[0].partition_responses[0].error_code
}
