//! Folders grown by random work, handed back and forth between Kafka and Barnabas: each reads what the other wrote, and at
//! each hand-over Kafka's tool and `barnabas check` find them whole.

use std::collections::BTreeMap;

use super::*;

/// Cleaners work while records are written, so that compaction is among what is handed over.
const WORK_SETTINGS: &[(&str, &str)] = &[
    ("log.cleaner.backoff.ms", "100"),
    // The records are of any time.
    ("log.retention.ms", "-1"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.num.partitions", "4"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("offsets.retention.minutes", "2147483647"),
    ("transactional.id.expiration.ms", "2147483647"),
    ("log.message.timestamp.before.max.ms", "9223372036854775807"),
    ("group.initial.rebalance.delay.ms", "0"),
];

const OLD_FORMATS: &str = "0.9.0,0.10.2,0.11.0";
/// The last whose brokers write them.
const OLD_PROTOCOL: &[(&str, &str)] = &[("inter.broker.protocol.version", "2.8")];

/// How often a folder goes there and back, and how much is written between two hand-overs: with
/// `BARNABAS_TEST_SCALE=3`, three times three rounds, which take minutes.
fn rounds() -> usize {
    scaled(1)
}

/// Writes as the seed says.
#[track_caller]
fn work(broker: &Broker, seed: usize, formats: &str) {
    let (seed, rounds) = (seed.to_string(), rounds().to_string());
    java("java/RandomWork.java", &[&broker.address(), &seed, formats, &rounds]);
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
    check(folder);
    let (list, _) = run(Command::new("find").arg(folder).args(["-type", "f"]));
    let files: Vec<&str> = list
        .lines()
        .filter(|path| [".log", ".index", ".timeindex"].iter().any(|ending| path.ends_with(ending)))
        .filter(|path| !path.contains("__cluster_metadata") && !path.contains("/barnabas-store."))
        .collect();
    let (printed, complaints) =
        run(kafka_tool("3.9.2", "kafka-dump-log").args(["--deep-iteration", "--files"]).arg(files.join(",")));
    let is_complaint = |line: &&str| {
        ["ismatch", "out of order", "not found in the log", "isvalid: false", "sanity", "xception"]
            .iter()
            .any(|word| line.contains(word))
    };
    let odd: Vec<&str> = printed.lines().chain(complaints.lines()).filter(is_complaint).take(10).collect();
    assert!(odd.is_empty(), "kafka-dump-log says:\n{}", odd.join("\n"));
}

#[track_caller]
fn go_back_and_forth(seed: usize, formats: &str, settings: &[(&str, &str)]) {
    let settings = [WORK_SETTINGS, settings].concat();
    let mut broker = Broker::prepare(&settings);
    broker.allow_log("inter.broker.protocol.version");
    broker.allow_log("message.format.version");
    broker.start_again();
    let mut folder = SharedFolder::of(broker, check_folder);
    for turn in 0..rounds() {
        work(&folder.broker, seed + 2 * turn, formats);
        let written = read_back(&folder.broker);
        folder.give_to_kafka();
        assert_same_folder("Barnabas and Kafka after it", &written, &read_back(&folder.broker));
        work(&folder.broker, seed + 2 * turn + 1, formats);
        let written = read_back(&folder.broker);
        folder.take_back();
        assert_same_folder("Kafka and Barnabas after it", &written, &read_back(&folder.broker));
    }
}

#[test]
fn random_work_goes_back_and_forth() {
    if has_java() {
        go_back_and_forth(20_260_101, "-", &[]);
    }
}

#[test]
fn random_work_in_old_formats_goes_back_and_forth() {
    if has_java() {
        go_back_and_forth(7, OLD_FORMATS, OLD_PROTOCOL);
    }
}

/// The files of partitions are the same with and without ZooKeeper.
#[test]
fn a_kraft_brokers_folder_is_adopted_and_handed_back() {
    if !has_java() {
        return;
    }
    let kafka = Server::named("kafka-4.3.1");
    let mut broker = Broker::start_as(kafka.clone(), WORK_SETTINGS);
    work(&broker, 11, "-");
    let written = read_back(&broker);
    broker.stop();
    let folder = broker.data_dir();
    let meta = std::fs::read(folder.join("meta.properties")).expect("read meta.properties");
    check_folder(&folder);

    broker.hand_over(Server::Barnabas, None);
    let refusal = broker.start_refused();
    assert!(refusal.contains("`barnabas adopt` makes one"), "{refusal}");
    let (plan, _) = run(&mut barnabas(&["adopt", &folder.display().to_string()]));
    assert!(plan.contains("__cluster_metadata-0, is passed over"), "{plan}");
    broker.start_again();
    assert_same_partitions("Kafka and Barnabas after it", &written, &read_back(&broker));
    work(&broker, 12, "-");
    let written = read_back(&broker);
    broker.stop();
    check_folder(&folder);
    assert_eq!(std::fs::read(folder.join("meta.properties")).expect("read meta.properties"), meta);

    broker.hand_over(kafka, None);
    broker.start_again();
    assert_same_partitions("Barnabas and Kafka after it", &written, &read_back(&broker));
    broker.stop();
    check_kafkas_log(&broker);
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
