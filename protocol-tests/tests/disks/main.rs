//! Several log directories: replicas that move between them, directories that fail, disks that are full.

mod kafka;
mod strays;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use protocol_tests::batch::Batch;
use protocol_tests::client::left_out;
use protocol_tests::requests::{topic, values};
use protocol_tests::{
    Broker, Cluster, Connection, Server, Tools, announce, command_exists, free_port, metric, page,
    protocol_tests_dir, wait_for,
};
use wire::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use wire::create_topics_request::CreateTopicsRequest;
use wire::delete_topics_request::DeleteTopicsRequest;
use wire::describe_log_dirs_request::DescribeLogDirsRequest;
use wire::describe_log_dirs_response::DescribeLogDirsResult;
use wire::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};

const T0: i64 = 1_700_000_000_000;

const NONE: i16 = 0;
const KAFKA_STORAGE_ERROR: i16 = 56;

/// A directory that is gone is noticed when its checkpoints are written.
const CHECKPOINTS_SOON: [(&str, &str); 2] =
    [("replica.high.watermark.checkpoint.interval.ms", "300"), ("log.initial.task.delay.ms", "500")];

/// A broker with the folders `data` and `more`.
fn broker_with_two(settings: &[(&str, &str)]) -> Broker {
    let mut broker = Broker::prepare(settings);
    let (data, more) = (broker.data_dir(), broker.dir().join("more"));
    broker.set("log.dirs", &format!("{},{}", data.display(), more.display()));
    broker.start_again();
    broker
}

fn log_dirs(connection: &mut Connection) -> Vec<DescribeLogDirsResult> {
    connection.call(4, &DescribeLogDirsRequest { topics: None }).results
}

/// The directory that holds a replica or, with `is_future`, its copy; and the copy's lag.
fn find(connection: &mut Connection, topic: &str, index: i32, is_future: bool) -> Option<(PathBuf, i64)> {
    log_dirs(connection).into_iter().find_map(|dir| {
        let topics = dir.topics.iter().filter(|found| &*found.name == topic);
        let mut partitions = topics.flat_map(|found| &found.partitions);
        let found = partitions
            .find(|partition| partition.partition_index == index && partition.is_future_key == is_future)?;
        Some((PathBuf::from(&*dir.log_dir), found.offset_lag))
    })
}

fn other_folder(broker: &Broker, than: &Path) -> PathBuf {
    let folders = [broker.data_dir(), broker.dir().join("more")];
    folders.into_iter().find(|folder| folder != than).expect("two folders")
}

#[test]
fn reassign_partitions_of_3_9_2_moves_replicas_between_log_dirs() {
    tools_move_replicas("3.9.2");
}

#[test]
fn reassign_partitions_of_4_3_1_moves_replicas_between_log_dirs() {
    tools_move_replicas("4.3.1");
}

fn tools_move_replicas(version: &'static str) {
    for needed in ["java", "mvn"] {
        if !command_exists(needed) {
            return left_out(&format!("Kafka's tools {version}"), &format!("this machine has no {needed}"));
        }
    }
    let broker = broker_with_two(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("moved", 2, &[]);
    for number in 0..20 {
        for partition in 0..2 {
            connection.append("moved", partition, &Batch::of(&format!("r{number}"), 10, T0));
        }
    }
    let from: Vec<PathBuf> =
        (0..2).map(|index| find(&mut connection, "moved", index, false).expect("the replica").0).collect();
    let to: Vec<PathBuf> = from.iter().map(|from| other_folder(&broker, from)).collect();
    let partitions: Vec<String> = (0..2)
        .map(|index| {
            let to = to[index].display();
            format!(r#"{{"topic":"moved","partition":{index},"replicas":[1],"log_dirs":["{to}"]}}"#)
        })
        .collect();
    let json = format!(r#"{{"version":1,"partitions":[{}]}}"#, partitions.join(","));
    let mut tools = Tools::of(version);
    let file = tools.dir().join("moves.json");
    std::fs::write(&file, json).expect("write the moves");
    let address = broker.address();
    let file = file.display().to_string();
    let arguments = ["--bootstrap-server", &address, "--reassignment-json-file", &file];
    let throttle = ["--execute", "--replica-alter-log-dirs-throttle", "100000000"];
    let text = tools.run("kafka-reassign-partitions", &[&arguments[..], &throttle].concat());
    for (index, to) in to.iter().enumerate() {
        let line = format!(
            "Successfully started moving log directory to {} for replica moved-{index} with broker 1",
            to.display()
        );
        assert!(text.contains(&line), "{text}");
    }
    // Records come while the copies are made.
    let mut appended = 0;
    wait_for("the moves", || {
        connection.append("moved", appended % 2, &Batch::of("meanwhile", 1, T0));
        appended += 1;
        (0..2)
            .all(|index| {
                let found = find(&mut connection, "moved", index, false);
                found.is_some_and(|(found, _)| found == to[index as usize])
            })
            .then_some(())
    });
    let text = tools.run("kafka-reassign-partitions", &[&arguments[..], &["--verify"]].concat());
    for index in 0..2 {
        let line = format!("Reassignment of replica moved-{index}-1 completed successfully.");
        assert!(text.contains(&line), "{text}");
    }
    let list = ["--bootstrap-server", &address, "--describe", "--topic-list", "moved"];
    let text = tools.run("kafka-log-dirs", &list);
    assert!(text.contains("\"isFuture\":false") && !text.contains("\"isFuture\":true"), "{text}");
    for index in 0..2 {
        let found = values(&connection.fetch_all("moved", index, 0));
        let before: Vec<String> =
            (0..20).flat_map(|batch| (0..10).map(move |record| format!("r{batch}-{record}"))).collect();
        assert_eq!(found[..200], before);
        assert!(found[200..].iter().all(|value| value == "meanwhile-0"), "{found:?}");
        assert!(to[index as usize].join(format!("moved-{index}")).is_dir());
        assert!(!from[index as usize].join(format!("moved-{index}")).exists());
    }
}

#[test]
fn a_move_goes_on_after_a_restart_and_a_kill() {
    let mut broker = broker_with_two(&[]);
    broker.allow_log("recovered");
    let address = broker.address();
    let mut connection = Connection::open(&address);
    connection.create_topic("moved", 1, &[]);
    let mut large = Batch::of("k", 1, T0);
    large.records[0].value = Some(Bytes::from(vec![b'x'; 900_000]));
    for _ in 0..12 {
        connection.append("moved", 0, &large);
    }
    limit_moves(&mut connection, "100000");
    let from = find(&mut connection, "moved", 0, false).expect("the replica").0;
    let to = other_folder(&broker, &from);
    assert_eq!(alter(&mut connection, "moved", &to), NONE);
    // The first piece goes, then the limit holds the rest back.
    let lag = |connection: &mut Connection| find(connection, "moved", 0, true).map(|(_, lag)| lag);
    wait_for("the first piece", || (lag(&mut connection)? < 12).then_some(()));
    broker.restart();
    connection = Connection::open(&address);
    connection.wait_for_leaders("moved", 1);
    let (folder, left) = find(&mut connection, "moved", 0, true).expect("the copy after a restart");
    assert!(folder == to && (1..12).contains(&left), "{left}");
    broker.kill();
    broker.start_again();
    connection = Connection::open(&address);
    connection.wait_for_leaders("moved", 1);
    assert!(find(&mut connection, "moved", 0, true).is_some_and(|(folder, _)| folder == to));
    limit_moves(&mut connection, "1000000000");
    wait_for("the move", || (find(&mut connection, "moved", 0, false)?.0 == to).then_some(()));
    assert_eq!(connection.fetch_all("moved", 0, 0).len(), 12);
    assert_eq!(connection.append("moved", 0, &large), 12);
}

fn alter(connection: &mut Connection, topic: &str, to: &Path) -> i16 {
    let topics = vec![AlterReplicaLogDirTopic { name: topic.into(), partitions: vec![0] }];
    let dirs = vec![AlterReplicaLogDir { path: to.display().to_string().into(), topics }];
    let response = connection.call(2, &AlterReplicaLogDirsRequest { dirs });
    response.results[0].partitions[0].error_code
}

/// Sets `replica.alter.log.dirs.io.max.bytes.per.second` of broker 1.
fn limit_moves(connection: &mut Connection, bytes_per_second: &str) {
    let limit = ("replica.alter.log.dirs.io.max.bytes.per.second", bytes_per_second);
    alter_config(connection, (4, "1"), limit);
}

/// Sets a config of a resource, which is a type and a name.
#[track_caller]
fn alter_config(connection: &mut Connection, resource: (i8, &str), config: (&str, &str)) {
    assert_eq!(try_config(connection, resource, config), NONE, "{config:?}");
}

/// As [`alter_config`]; answers the code.
fn try_config(
    connection: &mut Connection,
    (resource_type, resource_name): (i8, &str),
    (name, value): (&str, &str),
) -> i16 {
    let config = AlterableConfig { name: name.into(), config_operation: 0, value: Some(value.into()) };
    let resource =
        AlterConfigsResource { resource_type, resource_name: resource_name.into(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    connection.call(1, &request).responses[0].error_code
}

/// What the broker says of a directory that is gone.
fn allow_failures(broker: &mut Broker) {
    for text in [
        "the log directory is offline from now on",
        "the disk fails",
        "a log directory has a problem",
        "a log has a problem",
        "a log directory has failed",
        "all log directories have failed",
        "following no more",
        "the leader refuses to be fetched from",
        "cannot take the role",
        "writing a checkpoint",
        "a move",
    ] {
        broker.allow_log(text);
    }
}

#[test]
fn a_log_directory_that_fails_takes_its_replicas_along_and_no_others() {
    for needed in ["java", "mvn"] {
        if !command_exists(needed) {
            return left_out("a failed directory in a cluster", &format!("this machine has no {needed}"));
        }
    }
    let http_port = free_port();
    let http = format!("127.0.0.1:{}", http_port.number);
    let mut cluster = Cluster::new(&[&CHECKPOINTS_SOON[..], &[Cluster::LONG_SESSIONS]].concat());
    for id in 1..=2 {
        cluster.add_with_two_folders(id);
        allow_failures(cluster.broker(id));
    }
    cluster.broker(1).set("barnabas.http.listener", &http);
    cluster.broker(1).restart();
    cluster.wait_for_brokers(2);
    cluster.create_topic("t", &[&[1, 2], &[1, 2], &[1, 2], &[1, 2]]);
    let mut first = cluster.connect(1);
    for partition in 0..4 {
        first.append("t", partition, &Batch::of("before", 3, T0));
    }
    let failed = cluster.broker(1).dir().join("more");
    let places: Vec<PathBuf> =
        (0..4).map(|index| find(&mut first, "t", index, false).expect("the replica").0).collect();
    let lost: Vec<i32> = (0..4).filter(|index| places[*index as usize] == failed).collect();
    assert_eq!(lost.len(), 2, "{places:?}");
    // Whatever is created in it from here on fails.
    std::fs::rename(&failed, failed.with_extension("gone")).expect("take the folder away");
    for index in 0..4 {
        if lost.contains(&index) {
            assert_eq!(cluster.leader("t", index, 1), 2);
            // The broker with the failed directory may hear of it last.
            wait_for("the offline replica", || {
                (cluster.partition("t", index, 0)?.offline_replicas == [1]).then_some(())
            });
            let refused = first.produce("t", vec![(index, Batch::of("x", 1, T0).encode())])[0].error_code;
            assert_eq!(refused, KAFKA_STORAGE_ERROR);
            assert_eq!(first.fetch_partition("t", index, 0).error_code, KAFKA_STORAGE_ERROR);
            wait_for("the rest of the replicas", || {
                let answer =
                    cluster.connect(2).produce("t", vec![(index, Batch::of("after", 1, T0).encode())]);
                (answer[0].error_code == NONE).then_some(())
            });
            assert!(cluster.connect(2).fetch_all("t", index, 0).len() >= 2);
        } else {
            assert_eq!(cluster.leader("t", index, 0), 1);
            assert_eq!(first.append("t", index, &Batch::of("after", 1, T0)), 3);
        }
    }
    let offline: Vec<i16> = log_dirs(&mut first).iter().map(|dir| dir.error_code).collect();
    assert_eq!(offline, [NONE, KAFKA_STORAGE_ERROR]);
    wait_for("the offline replicas", || (metric(&http, "barnabas_offline_replicas")? == 2.0).then_some(()));
    let is_online = format!("barnabas_log_dir_online{{dir=\"{}\"}}", failed.display());
    wait_for("the directory to be offline", || (metric(&http, &is_online)? == 0.0).then_some(()));
    let log = cluster.broker(1).log();
    for line in
        ["the log directory is offline from now on", "a log directory has failed: its replicas are offline"]
    {
        assert!(log.contains(line), "{line}");
    }
    // With the folder back, the replicas come back with the next start.
    cluster.broker(1).stop();
    std::fs::rename(failed.with_extension("gone"), &failed).expect("bring the folder back");
    cluster.broker(1).start_again();
    for index in 0..4 {
        cluster.wait_for_isr("t", index, &[1, 2], 0);
    }
}

#[test]
fn the_last_log_directory_that_fails_ends_the_broker() {
    let mut broker = broker_with_two(&CHECKPOINTS_SOON);
    allow_failures(&mut broker);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 2, &[]);
    broker.stop();
    let process = broker.spawn();
    wait_for("the broker", || Connection::try_open(&broker.address()));
    let mut connection = Connection::open(&broker.address());
    connection.wait_for_leaders("t", 2);
    for folder in [broker.data_dir(), broker.dir().join("more")] {
        std::fs::rename(&folder, folder.with_extension("gone")).expect("take the folder away");
    }
    wait_for("the end of the broker", || {
        for partition in 0..2 {
            let request = protocol_tests::requests::produce_request(
                "t",
                -1,
                vec![(partition, Batch::of("x", 1, T0).encode())],
            );
            let connection = Connection::try_open(&broker.address());
            if connection.is_none_or(|mut connection| connection.try_call(7, &request).is_err()) {
                return Some(());
            }
        }
        None::<()>
    });
    let finished = process.finish(Duration::from_secs(120));
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("all log directories have failed"), "{}", finished.stderr);
}

/// As in an outage of ZooKeeper: what is led is led on, and what would change it is refused.
#[test]
fn the_first_directory_that_fails_takes_the_store_along_and_no_other_directory() {
    let http_port = free_port();
    let http = format!("127.0.0.1:{}", http_port.number);
    let settings = [("barnabas.http.listener", &*http), ("offsets.topic.num.partitions", "4")];
    let mut broker = broker_with_two(&[&CHECKPOINTS_SOON[..], &settings].concat());
    allow_failures(&mut broker);
    for text in ["the store has failed", "not heard of any more", "serving on without", "the session expired"]
    {
        broker.allow_log(text);
    }
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 2, &[]);
    ["a", "b", "c", "d"].into_iter().for_each(|group| connection.wait_for_coordinator(group));
    for partition in 0..2 {
        connection.append("t", partition, &Batch::of("before", 3, T0));
    }
    let data = broker.data_dir();
    let lost = (0..2).find(|index| find(&mut connection, "t", *index, false).unwrap().0 == data).unwrap();
    let kept = 1 - lost;
    // The hash of a letter is its number.
    let (gone, there): (Vec<u8>, Vec<u8>) = (b'a'..=b'd').partition(|group| {
        find(&mut connection, "__consumer_offsets", i32::from(group % 4), false).unwrap().0 == data
    });
    assert_eq!((gone.len(), there.len()), (2, 2));
    let name = |group: &u8| char::from(*group).to_string();
    std::fs::rename(&data, data.with_extension("gone")).expect("take the folder away");
    wait_for("the failure", || {
        let answer = connection.produce("t", vec![(lost, Batch::of("x", 1, T0).encode())]).remove(0);
        (answer.error_code == KAFKA_STORAGE_ERROR).then_some(())
    });
    // The store writes to its open file, until that is long enough to be replaced by a snapshot.
    let mut written = 0;
    // Nobody looks at it.
    let throttled = ["0:1"; 20_000].join(",");
    let large = ("leader.replication.throttled.replicas", &*throttled);
    while try_config(&mut connection, (2, "t"), large) == NONE {
        written += 1;
        assert!(written < 50, "the store does not fail");
    }
    wait_for("the word of it", || (metric(&http, "barnabas_store_connected")? == 0.0).then_some(()));
    wait_for("the page to tell of it", || {
        let (status, text) = page(&http, "/readyz")?;
        (status == 503 && text.contains("store: failed")).then_some(())
    });
    wait_for("the log to tell of it", || {
        let text = "serving on without the store: it is opened again with the next start";
        broker.log().contains(text).then_some(())
    });

    // A connection of its own, as of a client that comes now.
    let mut connection = Connection::open(&broker.address());
    for round in 0..3 {
        assert_eq!(connection.append("t", kept, &Batch::of("after", 1, T0)), 3 + round);
        for group in &there {
            assert_eq!(connection.commit(&name(group), "t", kept, round), NONE);
            assert_eq!(connection.committed(&name(group), "t", kept), round);
        }
    }
    assert_eq!(connection.fetch_all("t", kept, 0).len(), 4);
    assert_ne!(connection.commit(&name(&gone[0]), "t", kept, 1), NONE);
    assert_eq!(connection.fetch_partition("t", lost, 0).error_code, KAFKA_STORAGE_ERROR);
    let created =
        CreateTopicsRequest { topics: vec![topic("new", 1, &[])], timeout_ms: 1_000, ..Default::default() };
    assert_ne!(connection.call(4, &created).topics[0].error_code, NONE);
    assert!(connection.metadata(Some("t")).topics[0].partitions.len() == 2);

    broker.stop();
    std::fs::rename(data.with_extension("gone"), &data).expect("bring the folder back");
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    connection.wait_for_leaders("t", 2);
    let acknowledged = values(&connection.fetch_all("t", lost, 0));
    assert_eq!(acknowledged[..3], ["before-0", "before-1", "before-2"]);
    assert_eq!(connection.fetch_all("t", kept, 0).len(), 4);
    connection.wait_for_coordinator(&name(&there[0]));
    assert_eq!(connection.committed(&name(&there[0]), "t", kept), 2);
}

/// A small file system of its own; `None` where this machine lets nobody mount one.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn mount(mebibytes: usize) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().expect("create a folder");
        let size = format!("size={mebibytes}m");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path());
        command.output().is_ok_and(|output| output.status.success()).then_some(SmallDisk { folder })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).output();
    }
}

#[test]
fn a_full_disk_refuses_records_while_reads_go_on_and_recovers_by_itself() {
    let Some(disk) = SmallDisk::mount(48) else {
        return left_out("a full disk", "this machine mounts no tmpfs");
    };
    let http_port = free_port();
    let http = format!("127.0.0.1:{}", http_port.number);
    let mut broker = Broker::prepare(&[
        ("barnabas.http.listener", &http),
        ("offsets.topic.num.partitions", "1"),
        ("log.segment.bytes", "4194304"),
        ("log.cleaner.backoff.ms", "1000"),
    ]);
    broker.allow_log("no room left");
    broker.allow_log("is not compacted");
    let folder = disk.folder.path().join("logs");
    broker.set("log.dirs", &folder.display().to_string());
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    for topic in ["first", "second"] {
        connection.create_topic(topic, 1, &[]);
    }
    connection.wait_for_coordinator("readers");
    let mut large = Batch::of("k", 1, T0);
    large.records[0].value = Some(Bytes::from(vec![b'x'; 500_000]));
    let mut appended = 0_usize;
    let refused = loop {
        let topic = if appended.is_multiple_of(2) { "first" } else { "second" };
        let answer = connection.produce(topic, vec![(0, large.encode())]).remove(0);
        if answer.error_code != NONE {
            break answer.error_code;
        }
        appended += 1;
        assert!(appended < 100, "the disk does not fill");
    };
    assert_eq!(refused, KAFKA_STORAGE_ERROR);
    assert!(broker.log().contains("no room left: records are refused until there is, reads go on"));
    let is_full = || metric(&http, &format!("barnabas_log_dir_full{{dir=\"{}\"}}", folder.display()));
    assert_eq!(is_full(), Some(1.0));
    announce(&format!("disks: {appended} batches of 500 kB until a disk of 48 MiB refused more"));
    // Half of the reserve is for what coordinators write.
    assert_eq!(connection.commit("readers", "first", 0, 7), NONE);
    assert_eq!(connection.committed("readers", "first", 0), 7);
    assert_eq!(connection.fetch_all("first", 0, 0).len(), appended.div_ceil(2));
    let full = log_dirs(&mut connection);
    assert!(full[0].error_code == NONE && full[0].usable_bytes < 3 << 20, "{full:?}");
    // What is deleted goes at once, not after file.delete.delay.ms.
    let request =
        DeleteTopicsRequest { topic_names: vec!["second".into()], timeout_ms: 30_000, ..Default::default() };
    assert_eq!(connection.call(3, &request).responses[0].error_code, NONE);
    wait_for("room", || {
        (connection.produce("first", vec![(0, large.encode())])[0].error_code == NONE).then_some(())
    });
    assert!(broker.log().contains("there is room for records again"));
    assert_eq!(is_full(), Some(0.0));
    broker.restart();
    let mut connection = Connection::open(&broker.address());
    assert!(connection.fetch_all("first", 0, 0).len() > appended.div_ceil(2));
    assert_eq!(connection.committed("readers", "first", 0), 7);
}

/// Kafka as the model of what a broker with a failed directory is to its controller.
#[test]
fn a_kafka_controller_gives_the_replicas_of_a_failed_directory_other_leaders() {
    for needed in ["java", "mvn"] {
        if !command_exists(needed) {
            return left_out("a failed directory under Kafka", &format!("this machine has no {needed}"));
        }
    }
    let mut cluster = Cluster::new(&[&CHECKPOINTS_SOON[..], &[Cluster::LONG_SESSIONS]].concat());
    cluster.add(2, Server::named("kafka-3.9.2"));
    cluster.add_with_two_folders(1);
    allow_failures(cluster.broker(1));
    cluster.wait_for_brokers(2);
    assert_eq!(cluster.controller(0), 2);
    cluster.create_topic("t", &[&[1, 2], &[1, 2]]);
    let mut first = cluster.connect(1);
    let failed = cluster.broker(1).dir().join("more");
    let places: Vec<PathBuf> =
        (0..2).map(|index| find(&mut first, "t", index, false).expect("the replica").0).collect();
    let lost = places.iter().position(|place| *place == failed).expect("one partition in each folder") as i32;
    std::fs::rename(&failed, failed.with_extension("gone")).expect("take the folder away");
    assert_eq!(cluster.leader("t", lost, 1), 2);
    wait_for("the offline replica", || {
        (cluster.partition("t", lost, 1)?.offline_replicas == [1]).then_some(())
    });
    assert_eq!(cluster.leader("t", 1 - lost, 0), 1);
}

#[test]
fn a_topic_that_is_created_on_a_full_disk_is_served_when_there_is_room() {
    let Some(disk) = SmallDisk::mount(8) else {
        return left_out("a full disk", "this machine mounts no tmpfs");
    };
    let mut broker = Broker::prepare(&[]);
    for text in ["no room left", "it is tried again until it can be"] {
        broker.allow_log(text);
    }
    let small = disk.folder.path().join("logs");
    broker.set("log.dirs", &format!("{},{}", broker.data_dir().display(), small.display()));
    broker.start_again();
    let filler = disk.folder.path().join("filler");
    let full = std::fs::write(&filler, vec![0; 16 << 20]).expect_err("the disk is full");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let mut connection = Connection::open(&broker.address());
    let request =
        CreateTopicsRequest { topics: vec![topic("t", 2, &[])], timeout_ms: 30_000, ..Default::default() };
    assert_eq!(connection.call(4, &request).topics[0].error_code, NONE);
    let mut codes = || {
        let mut codes = [0, 1].map(|index| {
            connection.produce("t", vec![(index, Batch::of("x", 1, T0).encode())])[0].error_code
        });
        codes.sort_unstable();
        codes
    };
    // One partition in each folder.
    wait_for("the refusal", || (codes() == [NONE, KAFKA_STORAGE_ERROR]).then_some(()));
    std::fs::remove_file(filler).expect("make room");
    wait_for("room", || (codes() == [NONE, NONE]).then_some(()));
}

/// `docs/reference/disks.md` promises nothing without a test, and no log line or metric that is not there.
#[test]
fn what_the_page_about_disks_names_is_there() {
    let root = protocol_tests_dir().parent().expect("the repository");
    let page = std::fs::read_to_string(root.join("docs/reference/disks.md")).expect("read the page");
    let sources = all_text(&root.join("src"));
    let tests = sources.clone() + &all_text(&root.join("protocol-tests/tests/disks"));
    let (tables, list) = page.split_once("## The tests").expect("a list of tests");
    let of_row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
        Some(quoted(&cells.get(4..6)?.concat()))
    };
    // Metrics and log lines begin a string in the source.
    let named: Vec<String> =
        tables.lines().filter_map(of_row).flatten().map(|text| format!("\"{text}")).collect();
    let listed = quoted(list).into_iter().filter(|name| !name.contains('/'));
    let listed: Vec<String> = listed.map(|name| format!("fn {name}()")).collect();
    assert!(named.len() > 20 && listed.len() > 20, "{named:?} {listed:?}");
    let missing: Vec<&String> = named
        .iter()
        .filter(|text| !sources.contains(text.as_str()))
        .chain(listed.iter().filter(|text| !tests.contains(text.as_str())))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Of a file, or of all files below a folder.
fn all_text(path: &Path) -> String {
    if path.is_file() {
        return std::fs::read_to_string(path).unwrap_or_default();
    }
    let entries = std::fs::read_dir(path).expect("list a folder");
    entries.map(|entry| all_text(&entry.expect("list a folder").path())).collect()
}

/// What stands between back quotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
