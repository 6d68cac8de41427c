//! Kafka's own command-line tools, of four versions. Their producer places records by the hash of the key, so the walk
//! is not that of the libraries; what it shows is the same.

use std::collections::BTreeMap;

use protocol_tests::client::left_out;
use protocol_tests::{Broker, Connection, Tools, command_exists, wait_for_group};
use wire::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use wire::delete_topics_request::DeleteTopicsRequest;

const PARTITIONS: i32 = 4;
const COUNT: usize = 40;

#[test]
fn tools_4_3_1() {
    walk("4.3.1");
}

#[test]
fn tools_3_9_2() {
    walk("3.9.2");
}

#[test]
fn tools_2_8_2() {
    walk("2.8.2");
}

#[test]
fn tools_0_11_0_3() {
    walk("0.11.0.3");
}

#[track_caller]
fn walk(version: &'static str) {
    for needed in ["java", "javac", "mvn"] {
        if !command_exists(needed) {
            return left_out(&format!("Kafka's tools {version}"), &format!("this machine has no {needed}"));
        }
    }
    let broker = Broker::start(&[("group.initial.rebalance.delay.ms", "0"), ("delete.topic.enable", "true")]);
    let mut walk = Walk { address: broker.address(), tools: Tools::of(version), broker };
    walk.create_topic("walk");
    walk.all_codecs_are_read_by_assignment();
    walk.create_topic("shared");
    walk.a_group_shares_and_takes_over();
    walk.commits_outlast_a_restart();
    if walk.is_modern() {
        walk.configs_are_changed_and_told();
        walk.records_are_deleted();
        walk.log_dirs_are_told();
        walk.verifiable_clients_agree();
        walk.offsets_are_reset_and_groups_deleted();
    }
    walk.perf_tools_move_everything();
    walk.delete_topics(&["walk", "shared"]);
}

struct Walk {
    address: String,
    tools: Tools,
    broker: Broker,
}

/// What the console consumer printed of one record.
#[derive(Debug, PartialEq, Eq)]
struct Printed {
    partition: Option<i32>,
    offset: Option<i64>,
    headers: Option<String>,
    key: String,
    value: String,
}

impl Walk {
    /// 0.11 has neither headers on the command line nor most of the admin tools without ZooKeeper.
    fn is_modern(&self) -> bool {
        !self.tools.version().starts_with("0.")
    }

    /// `kafka-console-producer` reads headers since 3.2.
    fn produces_headers(&self) -> bool {
        matches!(self.tools.version(), "3.9.2" | "4.3.1")
    }

    fn codecs(&self) -> &'static [&'static str] {
        if self.is_modern() {
            &["none", "gzip", "snappy", "lz4", "zstd"]
        } else {
            &["none", "gzip", "snappy", "lz4"]
        }
    }

    /// Runs a tool that takes `--bootstrap-server`.
    #[track_caller]
    fn run(&mut self, name: &str, arguments: &[&str]) -> String {
        let address = self.address.clone();
        self.tools.run(name, &[&["--bootstrap-server", address.as_str()], arguments].concat())
    }

    #[track_caller]
    fn create_topic(&mut self, topic: &str) {
        if self.is_modern() {
            self.run(
                "kafka-topics",
                &["--create", "--topic", topic, "--partitions", "4", "--replication-factor", "1"],
            );
            let text = self.run("kafka-topics", &["--describe", "--topic", topic]);
            assert_eq!(text.lines().filter(|line| line.contains("Leader: 1")).count(), 4, "{text}");
        } else {
            // Its kafka-topics knows ZooKeeper only.
            let name = topic.into();
            let created = CreatableTopic {
                name,
                num_partitions: PARTITIONS,
                replication_factor: 1,
                ..Default::default()
            };
            let request =
                CreateTopicsRequest { topics: vec![created], timeout_ms: 30_000, ..Default::default() };
            let response = Connection::open(&self.address).call(2, &request);
            assert_eq!(response.topics[0].error_code, 0);
        }
    }

    #[track_caller]
    fn produce(&mut self, topic: &str, phase: &str, codec: &str) {
        let mut input = String::new();
        for (key, value) in records(phase) {
            if self.produces_headers() {
                input.push_str(&format!("phase:{phase}\t"));
            }
            input.push_str(&format!("{key}:{value}\n"));
        }
        let server = if self.is_modern() { "--bootstrap-server" } else { "--broker-list" };
        let address = self.address.clone();
        let mut arguments = vec![server, &address, "--topic", topic, "--compression-codec", codec];
        // The old default of 1.5 s would send records again on a busy machine.
        arguments.extend(["--request-required-acks", "-1", "--request-timeout-ms", "60000"]);
        arguments.extend(["--property", "parse.key=true", "--property", "key.separator=:"]);
        if self.produces_headers() {
            arguments.extend(["--property", "parse.headers=true"]);
        }
        self.tools.run_with_input("kafka-console-producer", &arguments, &input);
    }

    fn consumer_arguments<'a>(&'a self, topic: &'a str, count: &'a str) -> Vec<&'a str> {
        let mut arguments =
            vec!["--bootstrap-server", &self.address, "--topic", topic, "--max-messages", count];
        let mut properties = vec!["print.key=true", "key.separator=|"];
        if self.is_modern() {
            properties.extend(["print.partition=true", "print.offset=true", "print.headers=true"]);
        }
        for property in properties {
            arguments.extend(["--property", property]);
        }
        arguments
    }

    #[track_caller]
    fn all_codecs_are_read_by_assignment(&mut self) {
        let codecs = self.codecs();
        for codec in codecs {
            self.produce("walk", codec, codec);
        }
        for partition in 0..PARTITIONS {
            let expected: Vec<_> = codecs
                .iter()
                .flat_map(|codec| records(codec))
                .filter(|(key, _)| partition_of(key) == partition)
                .collect();
            let (number, count) = (partition.to_string(), expected.len().to_string());
            let mut arguments = self.consumer_arguments("walk", &count);
            arguments.extend(["--partition", &number, "--offset", "earliest"]);
            let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let text = self.tools.run("kafka-console-consumer", &arguments);
            self.check_partition(partition, &expected, &self.parse(&text));
        }
        if self.is_modern() {
            self.check_end_offsets(codecs.len());
        }
    }

    #[track_caller]
    fn check_partition(&self, partition: i32, expected: &[(String, String)], printed: &[Printed]) {
        let found: Vec<_> = printed.iter().map(|one| (one.key.clone(), one.value.clone())).collect();
        assert_eq!(found, expected, "the records of partition {partition} in order");
        for (offset, one) in printed.iter().enumerate() {
            assert!(one.partition.is_none_or(|found| found == partition), "{one:?}");
            assert!(one.offset.is_none_or(|found| found == offset as i64), "{one:?} at {offset}");
            let phase = one.key.rsplit_once('-').map_or("", |(phase, _)| phase);
            let headers =
                if self.produces_headers() { format!("phase:{phase}") } else { "NO_HEADERS".to_owned() };
            assert!(one.headers.as_ref().is_none_or(|found| *found == headers), "{one:?}");
        }
    }

    #[track_caller]
    fn check_end_offsets(&mut self, phases: usize) {
        let address = self.address.clone();
        // Since 3.0 the tool takes --bootstrap-server; the old flag lasted until 4.0.
        let server = if self.tools.version() == "2.8.2" { "--broker-list" } else { "--bootstrap-server" };
        let text = self.tools.run("kafka-get-offsets", &[server, &address, "--topic", "walk"]);
        let total: i64 = text.lines().filter_map(|line| line.rsplit(':').next()?.parse::<i64>().ok()).sum();
        assert_eq!(total, (phases * COUNT) as i64, "{text}");
    }

    /// Members `a` and `b` own two partitions each; `a` has read its share and leaves; `b` reads everything that follows.
    #[track_caller]
    fn a_group_shares_and_takes_over(&mut self) {
        // The range assignor sorts by member id, which begins with the client id: a gets partitions 0 and 1.
        let for_a = records("together").filter(|(key, _)| partition_of(key) < 2).count();
        let (for_a, for_b) = (for_a.to_string(), (2 * COUNT - for_a).to_string());
        let a = self.start_member("a", &for_a);
        let b = self.start_member("b", &for_b);
        let mut connection = Connection::open(&self.address);
        wait_for_group(&mut connection, "group", &[("a", 2), ("b", 2)]);
        self.produce("shared", "together", "none");
        let read_by_a = self.tools.finish(a);
        wait_for_group(&mut connection, "group", &[("b", 4)]);
        self.produce("shared", "alone", "none");
        let read_by_b = self.tools.finish(b);
        let mut read: Vec<_> = self.parse(&read_by_a).into_iter().chain(self.parse(&read_by_b)).collect();
        read.sort_by(|left, right| left.key.cmp(&right.key));
        let mut expected: Vec<_> = records("together").chain(records("alone")).collect();
        expected.sort();
        let read: Vec<_> = read.into_iter().map(|one| (one.key, one.value)).collect();
        assert_eq!(read, expected, "what both members read together");
    }

    #[track_caller]
    fn start_member(&mut self, client_id: &str, count: &str) -> protocol_tests::ToolRun {
        let id = format!("client.id={client_id}");
        let mut arguments = self.consumer_arguments("shared", count);
        // 0.11 has no --group yet.
        arguments.extend([
            "--consumer-property",
            "group.id=group",
            "--from-beginning",
            "--consumer-property",
            &id,
        ]);
        arguments.extend(["--consumer-property", "heartbeat.interval.ms=200"]);
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.tools.start("kafka-console-consumer", &arguments)
    }

    #[track_caller]
    fn commits_outlast_a_restart(&mut self) {
        self.broker.restart();
        if self.is_modern() {
            let text = self.run("kafka-consumer-groups", &["--describe", "--group", "group"]);
            let lag: Vec<&str> = text.lines().filter(|line| line.contains(" shared ")).collect();
            assert_eq!(lag.len(), 4, "{text}");
            assert!(lag.iter().all(|line| line.split_whitespace().nth(5) == Some("0")), "{text}");
        }
        self.produce("shared", "after", "none");
        let member = self.start_member("c", &COUNT.to_string());
        let text = self.tools.finish(member);
        let mut read: Vec<_> = self.parse(&text).into_iter().map(|one| (one.key, one.value)).collect();
        read.sort();
        let mut expected: Vec<_> = records("after").collect();
        expected.sort();
        assert_eq!(read, expected, "what follows the commit after a restart");
    }

    #[track_caller]
    fn configs_are_changed_and_told(&mut self) {
        let entity = ["--entity-type", "topics", "--entity-name", "walk"];
        self.run(
            "kafka-configs",
            &[&entity[..], &["--alter", "--add-config", "retention.ms=86400000"]].concat(),
        );
        let text = self.run("kafka-configs", &[&entity[..], &["--describe"]].concat());
        assert!(text.contains("retention.ms=86400000"), "{text}");
        self.run("kafka-configs", &[&entity[..], &["--alter", "--delete-config", "retention.ms"]].concat());
        let text = self.run("kafka-configs", &[&entity[..], &["--describe"]].concat());
        assert!(!text.contains("retention.ms=86400000"), "{text}");
        let text = self
            .run("kafka-configs", &["--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"]);
        assert!(text.contains("log.retention.hours=168"), "{text}");
        let loggers = ["--entity-type", "broker-loggers", "--entity-name", "1"];
        let level = |level: &str| {
            ["--alter".to_owned(), "--add-config".to_owned(), format!("barnabas.group={level}")]
        };
        for (wanted, shown) in [("DEBUG", "barnabas.group=DEBUG"), ("INFO", "barnabas.group=INFO")] {
            let change = level(wanted);
            self.run("kafka-configs", &[&loggers[..], &change.each_ref().map(String::as_str)].concat());
            let text = self.run("kafka-configs", &[&loggers[..], &["--describe"]].concat());
            assert!(text.contains(shown) && text.contains("root=INFO"), "{text}");
        }
    }

    #[track_caller]
    fn records_are_deleted(&mut self) {
        let file = self.tools.dir().join("delete.json").display().to_string();
        let json = r#"{"partitions":[{"topic":"walk","partition":0,"offset":5}],"version":1}"#;
        std::fs::write(&file, json).expect("write the offsets to delete");
        let text = self.run("kafka-delete-records", &["--offset-json-file", &file]);
        assert!(text.contains("partition: walk-0\tlow_watermark: 5"), "{text}");
        let address = self.address.clone();
        let server = if self.tools.version() == "2.8.2" { "--broker-list" } else { "--bootstrap-server" };
        let text =
            self.tools.run("kafka-get-offsets", &[server, &address, "--topic", "walk", "--time", "-2"]);
        assert!(text.lines().any(|line| line == "walk:0:5"), "{text}");
    }

    #[track_caller]
    fn log_dirs_are_told(&mut self) {
        let text = self.run("kafka-log-dirs", &["--describe", "--topic-list", "walk"]);
        let json = text.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        for partition in 0..PARTITIONS {
            assert!(json.contains(&format!("\"partition\":\"walk-{partition}\"")), "{text}");
        }
    }

    #[track_caller]
    fn verifiable_clients_agree(&mut self) {
        self.create_topic("verifiable");
        let text = self.run(
            "kafka-verifiable-producer",
            &["--topic", "verifiable", "--max-messages", "100", "--acks", "-1"],
        );
        assert_eq!(text.matches("producer_send_success").count(), 100, "{text}");
        let arguments = ["--topic", "verifiable", "--group-id", "verifiable-group", "--max-messages", "100"];
        let text = self
            .run("kafka-verifiable-consumer", &[&arguments[..], &["--reset-policy", "earliest"]].concat());
        let count = |line: &str| line.split("\"count\":").nth(1)?.split(',').next()?.parse::<usize>().ok();
        let read: usize =
            text.lines().filter(|line| line.contains("records_consumed")).filter_map(count).sum();
        assert_eq!(read, 100, "{text}");
        assert!(text.contains("offsets_committed") && text.contains("\"success\":true"), "{text}");
        self.delete_topics(&["verifiable"]);
    }

    #[track_caller]
    fn offsets_are_reset_and_groups_deleted(&mut self) {
        let to = ["--group", "group", "--topic", "shared", "--reset-offsets", "--to-earliest", "--execute"];
        self.run("kafka-consumer-groups", &to);
        let text = self.run("kafka-consumer-groups", &["--describe", "--group", "group", "--offsets"]);
        let offset = |line: &&str| line.split_whitespace().nth(3) == Some("0");
        assert_eq!(text.lines().filter(|line| line.contains(" shared ")).filter(offset).count(), 4, "{text}");
        let text = self.run("kafka-consumer-groups", &["--list"]);
        assert!(text.lines().any(|line| line == "group"), "{text}");
        self.run("kafka-consumer-groups", &["--delete", "--group", "group"]);
        let text = self.run("kafka-consumer-groups", &["--list"]);
        assert!(!text.lines().any(|line| line == "group"), "{text}");
    }

    #[track_caller]
    fn perf_tools_move_everything(&mut self) {
        self.create_topic("perf");
        let (address, properties) = (self.address.clone(), format!("bootstrap.servers={}", self.address));
        let size = ["--topic", "perf", "--num-records", "5000", "--record-size", "100", "--throughput", "-1"];
        let text = self.tools.run(
            "kafka-producer-perf-test",
            &[&size[..], &["--producer-props", &properties, "acks=all", "compression.type=lz4"]].concat(),
        );
        assert!(text.contains("5000 records sent"), "{text}");
        let server = if self.is_modern() {
            ["--bootstrap-server", address.as_str()]
        } else {
            // The new consumer has to be asked for.
            ["--broker-list", address.as_str()]
        };
        let mut arguments = vec!["--topic", "perf", "--messages", "5000", "--hide-header"];
        arguments.extend(server);
        if !self.is_modern() {
            arguments.push("--new-consumer");
        }
        let text = self.tools.run("kafka-consumer-perf-test", &arguments);
        let line = text.lines().rfind(|line| line.matches(", ").count() >= 5).unwrap_or_default();
        let read = line.split(", ").nth(4).and_then(|count| count.parse::<usize>().ok());
        assert_eq!(read, Some(5_000), "{text}");
        self.delete_topics(&["perf"]);
    }

    #[track_caller]
    fn delete_topics(&mut self, topics: &[&str]) {
        if self.is_modern() {
            for topic in topics {
                self.run("kafka-topics", &["--delete", "--topic", topic]);
            }
            let text = self.run("kafka-topics", &["--list"]);
            assert!(!text.lines().any(|line| topics.contains(&line)), "{text}");
        } else {
            let topic_names = topics.iter().map(|topic| (*topic).into()).collect();
            let request = DeleteTopicsRequest { topic_names, timeout_ms: 30_000, ..Default::default() };
            let response = Connection::open(&self.address).call(1, &request);
            assert!(response.responses.iter().all(|topic| topic.error_code == 0), "{response:?}");
        }
    }

    /// The printed records; the fields come in the order partition, offset, headers, key, value.
    #[track_caller]
    fn parse(&self, text: &str) -> Vec<Printed> {
        let lines = text.lines().filter(|line| line.contains('|'));
        lines.map(if self.is_modern() { parse_full } else { parse_key_value }).collect()
    }
}

#[track_caller]
fn parse_full(line: &str) -> Printed {
    let fields: Vec<&str> = line.split('|').collect();
    let [partition, offset, headers, key, value] = fields[..] else {
        panic!("the console consumer printed {line:?}")
    };
    let number = |text: &str| text.rsplit(':').next().and_then(|number| number.parse::<i64>().ok());
    Printed {
        partition: number(partition).map(|partition| partition as i32),
        offset: number(offset),
        headers: Some(headers.to_owned()),
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

#[track_caller]
fn parse_key_value(line: &str) -> Printed {
    let (key, value) = line.split_once('|').expect("a line of key and value");
    Printed { partition: None, offset: None, headers: None, key: key.to_owned(), value: value.to_owned() }
}

fn records(phase: &str) -> impl Iterator<Item = (String, String)> {
    (0..COUNT).map(move |i| (format!("{phase}-{i}"), format!("{phase} {i} {}", "0123456789".repeat(20))))
}

/// Where Kafka's producer puts a key.
fn partition_of(key: &str) -> i32 {
    (murmur2(key.as_bytes()) & 0x7fff_ffff) % PARTITIONS
}

/// Kafka's variant of MurmurHash2, with its seed.
fn murmur2(data: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c_u32 ^ data.len() as u32;
    let (chunks, rest) = data.as_chunks::<4>();
    for chunk in chunks {
        let mut k = u32::from_le_bytes(*chunk).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)) as i32
}

#[test]
fn keys_are_placed_as_kafka_places_them() {
    // From Kafka's own tests of its hash.
    let known: BTreeMap<&str, i32> =
        [("21", -973_932_308), ("foobar", -790_332_482), ("a-little-bit-long-string", -985_981_536)].into();
    for (key, hash) in known {
        assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
    }
}
