//! Folders that Kafka wrote: served as they lie, handed back, looked into. Everything that the manifest of the folder
//! names comes back, through Kafka's own consumer and admin client.

mod round_trips;

use std::path::{Path, PathBuf};
use std::process::Command;

use protocol_tests::batch::Batch;
use protocol_tests::client::java_program;
use protocol_tests::{
    Broker, Connection, Server, ZooKeeper, announce, barnabas_binary, command_exists, has_java, has_program,
    kafka_tool, protocol_tests_dir, scaled, wait_for,
};
use serde_json::Value;
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};

/// What the folder needs, so that nothing of it expires and nothing changes under the test.
const SETTINGS: &[(&str, &str)] = &[
    ("log.retention.ms", "-1"),
    ("log.cleaner.enable", "false"),
    ("offsets.retention.minutes", "2147483647"),
    ("transactional.id.expiration.ms", "2147483647"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.num.partitions", "4"),
    ("log.message.timestamp.before.max.ms", "9223372036854775807"),
];

fn data(name: &str) -> PathBuf {
    protocol_tests_dir().join("peers/data").join(name)
}

#[track_caller]
fn run(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    (stdout, stderr)
}

fn barnabas(arguments: &[&str]) -> Command {
    let mut command = Command::new(barnabas_binary().expect("build it: cargo build -p barnabas"));
    command.args(arguments);
    command
}

fn unpack(to: &Path) {
    std::fs::create_dir_all(to).expect("create the folder");
    let tar = data("log-dirs-3.9.2.tar.gz");
    run(Command::new("tar").arg("-xzf").arg(tar).arg("--strip-components=1").arg("-C").arg(to));
}

/// Runs a Java source of this package with the clients of 3.9.2; gives what it prints.
#[track_caller]
fn java(source: &str, arguments: &[&str]) -> String {
    let jars = Command::new("bash")
        .arg("-c")
        .arg(format!(
            ". {}/lib.sh; need_version 3.9.2; echo \"$cache\"",
            protocol_tests_dir().join("peers").display()
        ))
        .output()
        .expect("run bash");
    let cache = String::from_utf8_lossy(&jars.stdout).trim().to_owned();
    let logging = protocol_tests_dir().join("peers/conf/tools-log4j.properties");
    let (text, _) = run(Command::new("java")
        .arg("-Xmx256m")
        .arg("-XX:TieredStopAtLevel=1")
        .arg(format!("-Dlog4j.configuration=file:{}", logging.display()))
        .arg("-Dpeer.level=WARN")
        .args(["-cp", &format!("{cache}/3.9.2/lib/*")])
        .arg(protocol_tests_dir().join(source))
        .args(arguments));
    text
}

/// Everything that Kafka's consumer and admin client see.
#[track_caller]
fn read_back(broker: &Broker) -> Value {
    let text = java("peers/make-data/ReadBack.java", &[&broker.address()]);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("ReadBack printed {text:?}: {error}"))
}

/// Where two values differ, by path.
fn differences(at: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                let (left, right) = (one.get(key), other.get(key));
                let null = Value::Null;
                differences(&format!("{at}/{key}"), left.unwrap_or(&null), right.unwrap_or(&null), found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (left, right)) in one.iter().zip(other).enumerate() {
                differences(&format!("{at}/{index}"), left, right, found);
            }
        }
        _ if left == right => {}
        _ => found.push(format!("{at}: {left} and {right}")),
    }
}

#[track_caller]
fn assert_same(what: &str, left: &Value, right: &Value) {
    let mut found = Vec::new();
    differences("", left, right, &mut found);
    found.truncate(30);
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// Records with this text to some partitions, and an offset of a group of that name.
fn produce(broker: &Broker, text: &str) {
    let mut connection = Connection::open(&broker.address());
    for (name, index) in
        [("fmt-v2-none", 0), ("txn", 1), ("segments", 0), ("fmt-v1-gzip", 0), ("fmt-mixed", 0)]
    {
        let records = Some(Batch::of(text, 3, 1_700_000_500_000).encode().into());
        let data = PartitionProduceData { index, records };
        let topic = TopicProduceData { name: name.into(), partition_data: vec![data], ..Default::default() };
        let request =
            ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic], ..Default::default() };
        wait_for("an acknowledgement", || {
            let code = connection.call(9, &request).responses[0].partition_responses[0].error_code;
            (code == 0).then_some(())
        });
    }
    connection.wait_for_coordinator(text);
    assert_eq!(connection.commit(text, "fmt-v2-none", 0, 7), 0, "commit of {text}");
}

/// What Kafka says of these topics' settings, of its own listener while it starts, and of its own controller and that
/// one's log, which it recovers at each start.
const BESIDE_THE_POINT: &[&str] = &[
    "message.format.version with value",
    "Node may not be available",
    "'s connection to broker",
    "Performing controller activation",
    "close NetworkClient that has already been closed",
    "partition=__cluster_metadata-0",
];

/// Kafka opened the folder as its own: nothing to recover, nothing to warn of.
#[track_caller]
fn check_kafkas_log(broker: &Broker) {
    let log = std::fs::read_to_string(broker.dir().join("logs/server.log")).expect("read Kafka's log");
    let odd = |line: &&str| {
        let is_loud = line.contains(" WARN ") || line.contains(" ERROR ");
        let is_recovery = line.contains("ecovering ") || line.contains("no clean shutdown file");
        (is_loud || is_recovery) && !BESIDE_THE_POINT.iter().any(|known| line.contains(known))
    };
    let lines: Vec<&str> = log.lines().filter(odd).collect();
    assert!(lines.is_empty(), "Kafka says:\n{}", lines.join("\n"));
    std::fs::remove_file(broker.dir().join("logs/server.log")).expect("remove Kafka's log");
}

#[test]
fn a_folder_goes_from_kafka_to_barnabas_and_back_again() {
    if !has_java() || !has_program("tar") {
        return;
    }
    let mut broker = Broker::prepare(SETTINGS);
    broker.allow_log("log.cleaner.enable has no effect");
    let folder = broker.data_dir();
    unpack(&folder);
    let folder_text = folder.display().to_string();
    let znodes = data("log-dirs-3.9.2.zk.txt").display().to_string();
    check(&folder);
    let (plan, _) = run(&mut barnabas(&["adopt", &folder_text, "--znodes", &znodes]));
    assert!(plan.contains("broker 1 of cluster VQCklX-2RYaiQCeEkPRGfw"), "{plan}");
    broker.start_again();
    let manifest = std::fs::read_to_string(data("log-dirs-3.9.2.json")).expect("read the manifest");
    let manifest = serde_json::from_str(&manifest).expect("the manifest is JSON");
    assert_same("the manifest and Barnabas", &manifest, &read_back(&broker));
    check_with_kcat(&broker, &manifest);
    let mut folder = SharedFolder::of(broker, check);
    for round in 0..2 {
        let writers = [format!("barnabas-{round}"), format!("kafka-{round}")];
        produce(&folder.broker, &writers[0]);
        folder.give_to_kafka();
        produce(&folder.broker, &writers[1]);
        let seen = read_back(&folder.broker);
        assert_begins_with(&seen, &manifest, &writers);
        folder.take_back();
        assert_same("Kafka and Barnabas after it", &seen, &read_back(&folder.broker));
    }
}

#[track_caller]
fn check(folder: &Path) {
    run(&mut barnabas(&["check", &folder.display().to_string()]));
}

/// A folder that Barnabas and Kafka 3.9.2 serve by turns, the one with its own store, the other with a ZooKeeper that
/// got the tree of it.
struct SharedFolder {
    broker: Broker,
    /// While Barnabas serves.
    zookeeper: Option<ZooKeeper>,
    has_tree: bool,
    /// What must be well at each hand-over.
    check: fn(&Path),
}

impl SharedFolder {
    /// Barnabas runs.
    #[track_caller]
    fn of(broker: Broker, check: fn(&Path)) -> SharedFolder {
        SharedFolder { broker, zookeeper: Some(ZooKeeper::start(&[])), has_tree: false, check }
    }

    #[track_caller]
    fn give_to_kafka(&mut self) {
        self.broker.stop();
        let folder = self.broker.data_dir();
        (self.check)(&folder);
        let zookeeper = self.zookeeper.take().expect("Barnabas serves the folder");
        if !self.has_tree {
            let text = self.broker.dir().join("tree.tsv").display().to_string();
            run(&mut barnabas(&["store", "export", &folder.display().to_string(), "--to", &text]));
            run(&mut barnabas(&["store", "import", "--zookeeper", &zookeeper.address(), "--from", &text]));
            self.has_tree = true;
        }
        self.broker.hand_over(Server::named("kafka-3.9.2"), Some(zookeeper));
        self.broker.start_again();
    }

    #[track_caller]
    fn take_back(&mut self) {
        self.broker.stop();
        check_kafkas_log(&self.broker);
        (self.check)(&self.broker.data_dir());
        self.zookeeper = self.broker.zookeeper_taken();
        self.broker.hand_over(Server::Barnabas, None);
        self.broker.start_again();
    }
}

/// librdkafka, which reads committed records unless told otherwise, sees the offsets that the manifest names.
#[track_caller]
fn check_with_kcat(broker: &Broker, manifest: &Value) {
    if !command_exists("kcat") {
        return announce("folders: kcat is missing and left out");
    }
    for (topic, described) in manifest["topics"].as_object().expect("topics") {
        for (partition, was) in described["partitions"].as_object().expect("partitions") {
            let offset = |value: &Value| value.as_i64().expect("an offset");
            let expected: Vec<i64> = match &was["read_committed_offsets"] {
                Value::Array(offsets) => offsets.iter().map(offset).collect(),
                _ => {
                    let records = was["records"].as_array().expect("records");
                    records.iter().map(|record| offset(&record["offset"])).collect()
                }
            };
            let address = broker.address();
            let (seen, _) = run(Command::new("kcat")
                .args(["-b", &address, "-C", "-t", topic, "-p", partition, "-o", "beginning", "-e", "-q"])
                .args(["-f", "%o\n"]));
            let seen: Vec<i64> = seen.lines().filter_map(|line| line.parse().ok()).collect();
            assert_eq!(seen, expected, "kcat reads {topic}-{partition}");
        }
    }
}

/// Every record of the manifest stands where it stood, and those of the writers stand behind. Their groups are there too,
/// whoever wrote the offsets topic (C046).
#[track_caller]
fn assert_begins_with(seen: &Value, manifest: &Value, writers: &[String]) {
    let mut found = Vec::new();
    for (topic, described) in manifest["topics"].as_object().expect("topics") {
        for (partition, was) in described["partitions"].as_object().expect("partitions") {
            let is = &seen["topics"][topic]["partitions"][partition]["records"];
            let (Some(was), Some(is)) = (was["records"].as_array(), is.as_array()) else {
                panic!("{topic}-{partition} has no records")
            };
            let begin: Vec<Value> = is.iter().take(was.len()).cloned().collect();
            differences(
                &format!("{topic}-{partition}"),
                &Value::Array(was.clone()),
                &Value::Array(begin),
                &mut found,
            );
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let text = seen.to_string();
    let missing: Vec<&String> =
        writers.iter().filter(|writer| text.matches(&format!("{writer}-2\"")).count() < 10).collect();
    assert!(missing.is_empty(), "the records of {missing:?} are not all there");
    for writer in writers {
        let offset = &seen["groups"][writer]["offsets"]["fmt-v2-none-0"]["offset"];
        assert_eq!(offset.as_i64(), Some(7), "the group {writer}");
    }
}

/// Byte for byte, for every file of the folder.
#[test]
fn dump_log_prints_what_kafkas_tool_prints() {
    if !has_java() || !has_program("tar") {
        return;
    }
    let dir = tempfile::tempdir().expect("create a folder");
    unpack(dir.path());
    let files = |wanted: &dyn Fn(&str) -> bool| {
        let (list, _) = run(Command::new("find").arg(dir.path()).args(["-type", "f"]));
        let mut files: Vec<&str> = list.lines().filter(|line| wanted(line)).collect();
        files.sort_unstable();
        files.join(",")
    };
    let has =
        |endings: &'static [&'static str]| move |path: &str| endings.iter().any(|end| path.ends_with(end));
    let logs = files(&has(&[".log"]));
    let indexes = files(&has(&[".index", ".timeindex"]));
    let compare = |options: &[&str], files: &str| {
        let arguments = [options, &["--files", files]].concat();
        let theirs = run(kafka_tool("3.9.2", "kafka-dump-log").args(&arguments));
        let ours = run(&mut barnabas(&[&["dump-log"], &arguments[..]].concat()));
        for (left, right) in theirs.0.lines().zip(ours.0.lines()) {
            assert_eq!(left, right, "{options:?}");
        }
        assert_eq!(theirs, ours, "{options:?}");
    };
    compare(&[], &files(&has(&[".log", ".index", ".timeindex", ".txnindex", ".snapshot"])));
    compare(&["--print-data-log"], &logs);
    compare(&["--deep-iteration", "--max-bytes", "700"], &logs);
    compare(&["--verify-index-only"], &indexes);
    compare(&["--index-sanity-check"], &indexes);
    compare(
        &["--offsets-decoder"],
        &files(&|path| path.contains("__consumer_offsets") && path.ends_with(".log")),
    );
    let transactions = files(&|path| path.contains("__transaction_state") && path.ends_with(".log"));
    compare(&["--transaction-log-decoder", "--skip-record-metadata"], &transactions);
}

/// What KIP-848, share and streams groups store, and KRaft's metadata, which no broker of Barnabas writes yet.
#[test]
fn dump_log_prints_what_only_kafka_4_3_writes_as_its_tool() {
    if !has_java() {
        return;
    }
    let one = [
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    ];
    let mut settings = one.map(|name| (name, "1")).to_vec();
    settings.push(("metadata.log.max.snapshot.interval.ms", "3000"));
    let mut broker = Broker::start_as(Server::named("kafka-4.3.1"), &settings);
    for config in ["producer_byte_rate=1000", "SCRAM-SHA-256=[password=secret]"] {
        let address = broker.address();
        let of_user = ["--bootstrap-server", &address, "--entity-type", "users", "--entity-name", "u"];
        run(kafka_tool("4.3.1", "kafka-configs").args(of_user).args(["--alter", "--add-config", config]));
    }
    let mut command =
        java_program("4.3.1", "NewGroups", Some("NewGroups.java")).unwrap_or_else(|error| panic!("{error}"));
    command.arg(broker.address()).arg(broker.dir().join("state"));
    let (text, complaints) = run(&mut command);
    assert!(text.contains("done"), "{text}{complaints}");
    broker.stop();
    let compare = |option: &str, file: &Path| {
        let file = file.display().to_string();
        let arguments = [option, "--files", &file];
        let theirs = run(kafka_tool("4.3.1", "kafka-dump-log").args(arguments)).0;
        let ours = run(&mut barnabas(&[&["dump-log"], &arguments[..]].concat())).0;
        for (left, right) in theirs.lines().zip(ours.lines()) {
            assert_eq!(left, right, "{option}");
        }
        assert_eq!(theirs, ours, "{option}");
        theirs
    };
    let log = |folder: &str| broker.data_dir().join(folder).join("00000000000000000000.log");
    let ensure_has = |text: &str, kind: &str| {
        assert!(text.contains(&format!("\"type\":\"{kind}\"")), "no record of type {kind}: {text}");
    };
    let text = compare("--offsets-decoder", &log("__consumer_offsets-0"));
    for kind in [1, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23] {
        ensure_has(&text, &kind.to_string());
    }
    let text = compare("--share-group-state-decoder", &log("__share_group_state-0"));
    ["0", "1"].into_iter().for_each(|kind| ensure_has(&text, kind));
    let text = compare("--cluster-metadata-decoder", &log("__cluster_metadata-0"));
    for kind in
        ["REGISTER_BROKER", "PARTITION_CHANGE", "CLIENT_QUOTA", "USER_SCRAM_CREDENTIAL", "PRODUCER_IDS"]
    {
        ensure_has(&text, &format!("{kind}_RECORD"));
    }
    assert!(text.contains("LeaderChange: {\"version\":"), "{text}");
    let (snapshots, _) = run(Command::new("find").arg(broker.data_dir()).args(["-name", "*.checkpoint"]));
    assert!(snapshots.lines().count() >= 2, "{snapshots}");
    for snapshot in snapshots.lines() {
        let text = compare("--cluster-metadata-decoder", Path::new(snapshot));
        assert!(text.contains("SnapshotHeader {") && text.contains("SnapshotFooter {"), "{text}");
    }
}
