//! What Apache Kafka 3.9.2 does where disks fail or are full: its column in `docs/reference/disks.md`.

use protocol_tests::Volume;
use protocol_tests::requests::record_bytes;

use super::*;

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;

/// Checkpoints, which would fail before what a test is about.
const CHECKPOINTS_LATER: [(&str, &str); 4] = [
    ("replica.high.watermark.checkpoint.interval.ms", "600000"),
    ("log.flush.offset.checkpoint.interval.ms", "600000"),
    ("log.flush.start.offset.checkpoint.interval.ms", "600000"),
    // Kafka maps its indexes: where a page of them finds no room, the process may end before anything else does.
    ("log.index.size.max.bytes", "4096"),
];

pub(super) fn is_left_out(what: &str) -> bool {
    let missing = ["java", "mvn", "prlimit"].into_iter().find(|needed| !command_exists(needed));
    if let Some(needed) = missing {
        left_out(what, &format!("this machine has no {needed}"));
    }
    missing.is_some()
}

pub(super) fn prepare_kafka(settings: &[(&str, &str)]) -> Broker {
    let common = [("offsets.topic.num.partitions", "1"), ("zookeeper.session.timeout.ms", "6000")];
    Broker::prepare_as(Server::named("kafka-3.9.2"), &[&common[..], settings].concat())
}

pub(super) fn kafkas_log(broker: &Broker) -> String {
    std::fs::read_to_string(broker.dir().join("logs/server.log")).expect("read Kafka's log")
}

fn wait_for_end(broker: &Broker) {
    wait_for("the end of Kafka", || broker.has_ended().then_some(()));
}

fn is_offline(connection: &mut Connection, folder: &Path) -> bool {
    let dirs = log_dirs(connection);
    let dir = dirs.iter().find(|dir| *dir.log_dir == *folder.display().to_string()).expect("a log directory");
    dir.error_code == KAFKA_STORAGE_ERROR
}

fn wait_until_offline(connection: &mut Connection, folder: &Path) {
    wait_for(&format!("the failure of {}", folder.display()), || {
        is_offline(connection, folder).then_some(())
    });
}

/// After a kill: the next start finds the registration of the one before gone.
fn wait_until_forgotten(broker: &Broker) {
    let zookeeper = broker.zookeeper().expect("Kafka has a ZooKeeper");
    wait_for("the end of the session", || (!zookeeper.dump("").contains_key("/brokers/ids/1")).then_some(()));
}

fn large() -> Bytes {
    let mut batch = Batch::of("k", 1, T0);
    batch.records[0].value = Some(Bytes::from(vec![b'x'; 900_000]));
    batch.encode()
}

fn produce(connection: &mut Connection, topic: &str, records: Bytes) -> i16 {
    connection.produce(topic, vec![(0, records)])[0].error_code
}

/// A topic of one partition in this folder.
fn create_in(connection: &mut Connection, name: &str, folder: &Path) {
    // It is remembered for a replica that is not there yet.
    assert_eq!(alter(connection, name, folder), UNKNOWN_TOPIC_OR_PARTITION);
    connection.create_topic(name, 1, &[]);
    assert_eq!(find(connection, name, 0, false).expect("the replica").0, folder);
}

/// Rows 1, 2 and 3.
#[test]
fn kafka_loses_a_directory_that_fails_and_ends_with_the_last() {
    if is_left_out("failed directories of Kafka") {
        return;
    }
    let mut broker = prepare_kafka(&CHECKPOINTS_SOON);
    let (data, more) = (broker.data_dir(), broker.dir().join("more"));
    broker.set("log.dirs", &format!("{},{}", data.display(), more.display()));
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    create_in(&mut connection, "stays", &data);
    create_in(&mut connection, "goes", &more);
    assert_eq!(produce(&mut connection, "goes", Batch::of("x", 1, T0).encode()), NONE);
    std::fs::rename(&more, more.with_extension("gone")).expect("take the folder away");
    wait_until_offline(&mut connection, &more);
    assert_eq!(produce(&mut connection, "goes", Batch::of("x", 1, T0).encode()), KAFKA_STORAGE_ERROR);
    assert_eq!(connection.fetch_partition("goes", 0, 0).error_code, KAFKA_STORAGE_ERROR);
    assert_eq!(produce(&mut connection, "stays", Batch::of("x", 1, T0).encode()), NONE);
    std::fs::rename(&data, data.with_extension("gone")).expect("take the folder away");
    wait_for_end(&broker);
    assert!(kafkas_log(&broker).contains("because all log dirs in"));
    broker.stop();
    // The next start finds one of them usable.
    std::fs::rename(data.with_extension("gone"), &data).expect("bring the folder back");
    std::fs::write(&more, "no folder").expect("put a file in the folder's place");
    wait_until_forgotten(&broker);
    broker.start_again();
    connection = Connection::open(&broker.address());
    connection.wait_for_leaders("stays", 1);
    wait_for("the refusal", || {
        let code = produce(&mut connection, "goes", Batch::of("x", 1, T0).encode());
        (code == KAFKA_STORAGE_ERROR).then_some(())
    });
    connection.create_topic("new", 1, &[]);
    assert!(!data.join("goes-0").exists(), "the replica is created anew");
}

/// Rows 4, 5 and 6.
#[test]
fn kafka_cuts_a_log_at_damage_after_a_crash_only() {
    if is_left_out("damaged logs of Kafka") {
        return;
    }
    let mut broker = prepare_kafka(&CHECKPOINTS_LATER);
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    for topic in ["damaged", "torn"] {
        connection.create_topic(topic, 1, &[]);
        for _ in 0..3 {
            connection.append(topic, 0, &Batch::of("x", 3, T0));
        }
    }
    broker.stop();
    let log = |topic: &str| broker.data_dir().join(format!("{topic}-0/00000000000000000000.log"));
    let (damaged, torn) = (log("damaged"), log("torn"));
    let mut bytes = std::fs::read(&damaged).expect("read a log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&damaged, &bytes).expect("damage a log");
    broker.start_again();
    connection = Connection::open(&broker.address());
    assert_eq!(connection.log_end("damaged", 0), 9);
    // It is served as it lies.
    wait_for("all batches", || {
        (record_bytes(&connection.fetch_partition("damaged", 0, 0)) == bytes).then_some(())
    });
    broker.kill();
    let whole = std::fs::read(&torn).expect("read a log");
    std::fs::write(&torn, [&whole[..], &whole[..whole.len() / 3 - 5]].concat()).expect("tear a log");
    wait_until_forgotten(&broker);
    broker.start_again();
    connection = Connection::open(&broker.address());
    assert_eq!(connection.log_end("torn", 0), 9);
    assert_eq!(std::fs::read(&torn).expect("read a log"), whole);
    // Its last segment was read from its beginning on.
    assert_eq!(connection.log_end("damaged", 0), 3);
    assert_eq!(std::fs::read(&damaged).expect("read a log"), bytes[..whole.len() / 3]);
    let limit = format!("--nofile={0}:{0}", broker.descriptors());
    let status = Command::new("prlimit").args(["--pid", &broker.pid().to_string(), &limit]).status();
    assert!(status.expect("run prlimit").success(), "prlimit {limit}");
    // Some of the descriptors may have been in use for a moment only: each topic takes of those that are free again.
    connection.set_limit(Duration::from_secs(5));
    let mut numbers = 0..;
    wait_for("the end of Kafka", || {
        let name = format!("new-{}", numbers.next()?);
        let topics = vec![topic(&name, 1, &[])];
        // It ends amid one of them.
        let request = CreateTopicsRequest { topics, timeout_ms: 1_000, ..Default::default() };
        let _ = connection.try_call(4, &request);
        broker.has_ended().then_some(())
    });
    assert!(kafkas_log(&broker).contains("Too many open files"));
}

/// Rows 7, 8, 10, 11, 12 and 13: each on a disk of its own.
#[test]
fn kafka_takes_a_full_directory_for_a_failed_one() {
    if is_left_out("full directories of Kafka") {
        return;
    }
    let volumes: Vec<Volume> = (0..5).map_while(|_| Volume::mount(24)).collect();
    let [records, cleaned, new, moved, idle] = &volumes[..] else {
        return left_out("full directories of Kafka", "this machine mounts no ext4 in a file");
    };
    let folder = |volume: &Volume| volume.path().join("logs");
    let mut broker = prepare_kafka(&CHECKPOINTS_LATER);
    broker.set("log.cleaner.backoff.ms", "500");
    let folders = volumes.iter().map(|volume| folder(volume).display().to_string());
    let folders: Vec<String> = [broker.data_dir().display().to_string()].into_iter().chain(folders).collect();
    broker.set("log.dirs", &folders.join(","));
    broker.start_again();
    let mut connection = Connection::open(&broker.address());

    // The first, because no replica that is not new is created while a directory is offline.
    create_in(&mut connection, "moved", &broker.data_dir());
    assert_eq!(produce(&mut connection, "moved", large()), NONE);
    moved.fill_but(300_000);
    assert_eq!(alter(&mut connection, "moved", &folder(moved)), NONE);
    wait_until_offline(&mut connection, &folder(moved));
    assert_eq!(produce(&mut connection, "moved", large()), NONE);

    create_in(&mut connection, "records", &folder(records));
    assert_eq!(produce(&mut connection, "records", large()), NONE);
    records.fill_but(300_000);
    assert_eq!(produce(&mut connection, "records", large()), KAFKA_STORAGE_ERROR);
    wait_until_offline(&mut connection, &folder(records));
    records.empty();
    assert_eq!(connection.fetch_partition("records", 0, 0).error_code, KAFKA_STORAGE_ERROR);
    assert_eq!(produce(&mut connection, "records", large()), KAFKA_STORAGE_ERROR, "with room again");

    create_in(&mut connection, "cleaned", &folder(cleaned));
    set_topic_config(&mut connection, "cleaned", "segment.bytes", "1000000");
    for _ in 0..4 {
        assert_eq!(produce(&mut connection, "cleaned", large()), NONE);
    }
    cleaned.fill_but(300_000);
    set_topic_config(&mut connection, "cleaned", "cleanup.policy", "compact");
    wait_until_offline(&mut connection, &folder(cleaned));
    assert!(kafkas_log(&broker).contains("Failed to clean up log for cleaned-0"));

    new.fill_but(0);
    assert_eq!(alter(&mut connection, "new", &folder(new)), UNKNOWN_TOPIC_OR_PARTITION);
    let request =
        CreateTopicsRequest { topics: vec![topic("new", 1, &[])], timeout_ms: 5_000, ..Default::default() };
    // Its files are begun in what the file system keeps for itself.
    assert_eq!(connection.call(4, &request).topics[0].error_code, NONE);
    assert_eq!(find(&mut connection, "new", 0, false).expect("the replica").0, folder(new));
    assert_eq!(produce(&mut connection, "new", large()), KAFKA_STORAGE_ERROR);
    wait_until_offline(&mut connection, &folder(new));

    // What needs no room goes on until the next checkpoint.
    create_in(&mut connection, "shrinking", &folder(idle));
    assert_eq!(produce(&mut connection, "shrinking", large()), NONE);
    idle.fill_but(0);
    assert_eq!(connection.delete_records("shrinking", 0, 1).error_code, NONE);
    assert!(!is_offline(&mut connection, &folder(idle)));
    let request = DeleteTopicsRequest {
        topic_names: vec!["shrinking".into()],
        timeout_ms: 30_000,
        ..Default::default()
    };
    assert_eq!(connection.call(3, &request).responses[0].error_code, NONE);
    idle.empty();
    broker.stop();
}

/// What Kafka says before it ends.
const REFUSED_RECORDS: &str = "Error while appending records to __consumer_offsets-0";

/// Rows 9 and 14, and what a full disk is to a broker that nobody asks anything.
#[test]
fn kafka_ends_when_its_only_disk_is_full_and_does_not_stay_up() {
    if is_left_out("the full disk of Kafka") {
        return;
    }
    let Some(volume) = Volume::mount(24) else {
        return left_out("the full disk of Kafka", "this machine mounts no ext4 in a file");
    };
    let mut broker = prepare_kafka(&CHECKPOINTS_LATER);
    broker.set("log.dirs", &volume.path().join("logs").display().to_string());
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 1, &[]);
    connection.wait_for_coordinator("readers");
    assert_eq!(connection.commit("readers", "t", 0, 1), NONE);
    volume.fill_but(0);
    commit_until_it_ends(&mut connection);
    wait_for_end(&broker);
    assert!(kafkas_log(&broker).contains(REFUSED_RECORDS));
    broker.stop();
    wait_until_forgotten(&broker);
    // It does not start, or lives until it writes: a checkpoint, the first of which is due in 5 seconds, or a record. A
    // checkpoint may still find a block that the file system let nobody have.
    volume.fill_but(0);
    broker.set("replica.high.watermark.checkpoint.interval.ms", "5000");
    broker.begin_start();
    wait_for("the end of Kafka", || {
        // What it frees while it starts is taken too.
        volume.fill_but(0);
        if let Some(mut connection) = Connection::try_open(&broker.address()) {
            commit_until_it_ends(&mut connection);
        }
        broker.has_ended().then_some(())
    });
    let log = kafkas_log(&broker);
    let is_said =
        |message: &str, times: usize| log.lines().filter(|line| line.contains(message)).count() >= times;
    assert!(is_said("Error while writing to checkpoint file", 1) || is_said(REFUSED_RECORDS, 2), "{log}");
}

/// Commits offsets with much beside them, as long as there are answers.
fn commit_until_it_ends(connection: &mut Connection) {
    let metadata = "m".repeat(4_000);
    for offset in 0..20 {
        let mut request = protocol_tests::requests::commit_request("readers", "t", 0, offset);
        request.topics[0].partitions[0].committed_metadata = Some(metadata.as_str().into());
        if connection.try_call(8, &request).is_err() {
            break;
        }
    }
}

/// Rows 16, 17 and 18.
#[test]
fn kafka_refuses_folders_that_do_not_go_together_and_loses_one_with_a_bad_checkpoint() {
    if is_left_out("odd folders of Kafka") {
        return;
    }
    let mut broker = prepare_kafka(&[]);
    let (data, more) = (broker.data_dir(), broker.dir().join("more"));
    broker.set("log.dirs", &format!("{},{}", data.display(), more.display()));
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    for (topic, folder) in [("one", &data), ("other", &more)] {
        create_in(&mut connection, topic, folder);
        connection.append(topic, 0, &Batch::of("x", 3, T0));
    }
    broker.stop();
    for (line, foreign, said) in [
        ("cluster.id=", "cluster.id=AAAAAAAAQACAAAAAAAAAAQ", "Invalid cluster.id"),
        ("broker.id=", "broker.id=7", "Stored node id 7 doesn't match previous node id 1"),
    ] {
        let originals =
            [&data, &more].map(|folder| change_line(&folder.join("meta.properties"), line, foreign));
        let refusal = broker.start_refused();
        assert!(refusal.contains(said), "{refusal}");
        for (folder, original) in [&data, &more].into_iter().zip(originals) {
            std::fs::write(folder.join("meta.properties"), original).expect("write meta.properties");
        }
    }
    let status = Command::new("cp").arg("-r").args([data.join("one-0"), more.join("one-0")]).status();
    assert!(status.expect("run cp").success());
    let refusal = broker.start_refused();
    assert!(refusal.contains("Duplicate log directories for one-0"), "{refusal}");
    std::fs::remove_dir_all(more.join("one-0")).expect("remove a folder");
    std::fs::write(more.join("recovery-point-offset-checkpoint"), "odd").expect("damage a checkpoint");
    wait_until_forgotten(&broker);
    broker.start_again();
    connection = Connection::open(&broker.address());
    wait_until_offline(&mut connection, &more);
    assert_eq!(connection.log_end("one", 0), 3);
    assert!(kafkas_log(&broker).contains("Malformed line in checkpoint file"));
}

/// Gives what the file was before.
fn change_line(path: &Path, begin: &str, line: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let changed: Vec<&str> = text.lines().map(|is| if is.starts_with(begin) { line } else { is }).collect();
    std::fs::write(path, changed.join("\n")).expect("write a file");
    text
}

fn set_topic_config(connection: &mut Connection, topic: &str, name: &str, value: &str) {
    alter_config(connection, (2, topic), (name, value));
}
