//! Folders grown by random work, handed back and forth between Kafka and Barnabas: each reads what the other wrote, and at
//! each hand-over Kafka's tool and `barnabas check` find them whole.

use std::collections::BTreeMap;

use super::*;

/// Cleaners work while records are written, so that compaction is among what is handed over.
const WORK_SETTINGS: &[(&str, &str)] = &[
    ("log.cleaner.backoff.ms", "100"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.num.partitions", "4"),
    ("offsets.retention.minutes", "2147483647"),
    ("transactional.id.expiration.ms", "2147483647"),
    ("log.message.timestamp.before.max.ms", "9223372036854775807"),
    ("group.initial.rebalance.delay.ms", "0"),
];

/// Each takes minutes of two servers: they run where `BARNABAS_ROUND_TRIPS` is set.
fn is_asked_for() -> bool {
    let is_asked_for = std::env::var_os("BARNABAS_ROUND_TRIPS").is_some();
    if !is_asked_for {
        announce("round trips: left out, BARNABAS_ROUND_TRIPS is not set");
    } else if !command_exists("java") {
        announce("round trips: left out, this machine has no java");
    }
    is_asked_for && command_exists("java")
}

/// Writes as the seed says.
#[track_caller]
fn work(broker: &Broker, seed: u32, formats: &str) {
    java("java/RandomWork.java", &[&broker.address(), &seed.to_string(), formats]);
}

/// What two servers show of one folder. Compaction may have gone on in between: of topics that are compacted the last
/// record of each key counts.
#[track_caller]
fn assert_same_folder(what: &str, left: &Value, right: &Value) {
    assert_same(what, &without_compacted(left), &without_compacted(right));
    let (left, right) = (latest(left), latest(right));
    let differing: Vec<&String> = left.keys().filter(|key| left.get(*key) != right.get(*key)).collect();
    assert!(differing.is_empty() && left.len() == right.len(), "{what}: {differing:?}");
}

fn is_compacted(topic: &str) -> bool {
    topic.starts_with("compacted") || topic.starts_with("__")
}

fn without_compacted(seen: &Value) -> Value {
    let mut seen = seen.clone();
    let topics = seen["topics"].as_object_mut().expect("topics");
    topics.retain(|topic, _| !is_compacted(topic));
    seen
}

/// Partition and key → the newest committed value.
fn latest(seen: &Value) -> BTreeMap<String, Value> {
    let mut latest = BTreeMap::new();
    let topics = seen["topics"].as_object().expect("topics");
    for (topic, described) in topics.iter().filter(|(topic, _)| is_compacted(topic)) {
        for (partition, is) in described["partitions"].as_object().expect("partitions") {
            let committed = is["read_committed_offsets"].as_array();
            for record in is["records"].as_array().expect("records") {
                if committed.is_none_or(|committed| committed.contains(&record["offset"])) {
                    let key = format!("{topic}-{partition} {}", record["key"]);
                    // A tombstone may be gone.
                    match record["value"].is_null() {
                        true => latest.remove(&key),
                        false => latest.insert(key, record["value"].clone()),
                    };
                }
            }
        }
    }
    latest
}

/// Nothing that `barnabas check` or Kafka's own tool complains of.
#[track_caller]
fn check_folder(folder: &Path) {
    run(&mut barnabas(&["check", &folder.display().to_string()]));
    let (list, _) = run(Command::new("find").arg(folder).args(["-type", "f"]));
    let files: Vec<&str> = list
        .lines()
        .filter(|path| [".log", ".index", ".timeindex"].iter().any(|ending| path.ends_with(ending)))
        .filter(|path| !path.contains("__cluster_metadata"))
        .collect();
    let tool = protocol_tests_dir().join("peers/kafka-tool");
    let (printed, complaints) = run(Command::new(tool)
        .args(["3.9.2", "kafka-dump-log", "--deep-iteration", "--files"])
        .arg(files.join(",")));
    let is_complaint = |line: &&str| {
        ["ismatch", "out of order", "not found in the log", "isvalid: false", "sanity", "xception"]
            .iter()
            .any(|word| line.contains(word))
    };
    let odd: Vec<&str> = printed.lines().chain(complaints.lines()).filter(is_complaint).take(10).collect();
    assert!(odd.is_empty(), "kafka-dump-log says:\n{}", odd.join("\n"));
}

#[track_caller]
fn go_back_and_forth(seed: u32, formats: &str, settings: &[(&str, &str)]) {
    let settings = [WORK_SETTINGS, settings].concat();
    let mut broker = Broker::prepare(&settings);
    broker.allow_log("inter.broker.protocol.version");
    broker.allow_log("message.format.version");
    broker.start_again();
    let folder = broker.data_dir();
    let folder_text = folder.display().to_string();
    let mut zookeeper = Some(ZooKeeper::start(&[]));
    for round in 0..3 {
        work(&broker, seed + 2 * round, formats);
        let written = read_back(&broker);
        broker.stop();
        check_folder(&folder);
        let ensemble = zookeeper.take().expect("a ZooKeeper for Kafka");
        if round == 0 {
            let text = broker.dir().join("tree.tsv").display().to_string();
            run(&mut barnabas(&["store", "export", &folder_text, "--to", &text]));
            run(&mut barnabas(&["store", "import", "--zookeeper", &ensemble.address(), "--from", &text]));
        }
        broker.hand_over(Server::named("kafka-3.9.2"), Some(ensemble));
        broker.start_again();
        assert_same_folder("Barnabas and Kafka after it", &written, &read_back(&broker));
        work(&broker, seed + 2 * round + 1, formats);
        let written = read_back(&broker);
        broker.stop();
        check_kafkas_log(&broker);
        check_folder(&folder);
        zookeeper = broker.zookeeper_taken();
        broker.hand_over(Server::Barnabas, None);
        broker.start_again();
        assert_same_folder("Kafka and Barnabas after it", &written, &read_back(&broker));
    }
}

#[test]
fn random_work_goes_back_and_forth() {
    if !is_asked_for() {
        return;
    }
    go_back_and_forth(20_260_101, "-", &[]);
}

#[test]
fn random_work_in_old_formats_goes_back_and_forth() {
    if !is_asked_for() {
        return;
    }
    go_back_and_forth(7, "0.9.0,0.10.2,0.11.0", &[("inter.broker.protocol.version", "2.8")]);
}

/// The files of a partition are the same with and without ZooKeeper; what is around them is not.
#[test]
fn partitions_of_a_kraft_broker_are_served_and_handed_back() {
    if !is_asked_for() {
        return;
    }
    let mut kafka = Broker::start_as(Server::named("kafka-4.3.1"), WORK_SETTINGS);
    work(&kafka, 11, "-");
    let written = read_back(&kafka);
    kafka.stop();
    check_folder(&kafka.data_dir());

    let mut broker = Broker::prepare(WORK_SETTINGS);
    let folder = broker.data_dir();
    std::fs::create_dir_all(&folder).expect("create the folder");
    let cluster_id = written["cluster_id"].as_str().expect("a cluster id");
    let meta = format!("version=0\nbroker.id=1\ncluster.id={cluster_id}\n");
    std::fs::write(folder.join("meta.properties"), meta).expect("write meta.properties");
    copy_partitions(&kafka.data_dir(), &folder);
    run(&mut barnabas(&["check", &folder.display().to_string()]));
    run(&mut barnabas(&["adopt", &folder.display().to_string()]));
    broker.start_again();
    assert_same_partitions("Kafka and Barnabas after it", &written, &read_back(&broker));
    work(&broker, 12, "-");
    let written = read_back(&broker);
    broker.stop();
    check_folder(&folder);

    copy_partitions(&folder, &kafka.data_dir());
    kafka.start_again();
    assert_same_partitions("Barnabas and Kafka after it", &written, &read_back(&kafka));
}

/// Puts the partitions of one folder, and what is said of them, in the place of those of another.
fn copy_partitions(from: &Path, to: &Path) {
    let script = r#"
        set -e
        for at in "$2"/*-[0-9]*; do case "$at" in */__cluster_metadata-0) ;; *) rm -rf "$at";; esac; done
        for at in "$1"/*-[0-9]*; do case "$at" in */__cluster_metadata-0) ;; *) cp -a "$at" "$2";; esac; done
        cp -a "$1"/*-checkpoint "$1"/.kafka_cleanshutdown "$2"
    "#;
    run(Command::new("bash").args(["-c", script, "copy"]).arg(from).arg(to));
}

/// As [`assert_same_folder`], but for settings, which the folder does not have.
#[track_caller]
fn assert_same_partitions(what: &str, left: &Value, right: &Value) {
    let without_settings = |seen: &Value| {
        let mut seen = seen.clone();
        let topics = seen["topics"].as_object_mut().expect("topics");
        topics.retain(|topic, described| {
            described["config"] = Value::Null;
            !topic.starts_with("__share")
        });
        seen
    };
    assert_same_folder(what, &without_settings(left), &without_settings(right));
}
