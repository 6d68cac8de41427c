//! Starts after hard stops, on damaged files, and in the wrong folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use protocol_tests::batch::Batch;
use protocol_tests::requests::values;
use protocol_tests::{Broker, Connection, Process, announce, free_port, scaled, wait_for, wait_within};
use wire::init_producer_id_request::InitProducerIdRequest;

use crate::{T0, code};

const TOPIC: &str = "cases";
/// Anything that a start or a stop may take.
const LIMIT: Duration = Duration::from_secs(120);
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";

fn files(broker: &Broker, log: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(broker.data_dir().join(log)).expect("read the partition's folder");
    let paths = entries.map(|entry| entry.expect("read the partition's folder").path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort_unstable();
    found
}

fn append_to(path: &Path, bytes: &[u8]) {
    let mut file = fs::File::options().append(true).open(path).expect("open a segment");
    file.write_all(bytes).expect("append to a segment");
}

/// C026
#[test]
fn what_a_kill_left_behind_the_last_whole_batch_is_cut_off() {
    let mut broker = Broker::start(&[]);
    broker.allow_log("cutting the log off at the first batch that is not sound");
    let mut connection = Connection::open(&broker.address());
    // A batch in good order but for its offset, which has been there.
    let back = Batch::of("back", 1, T0).encode();
    let tails: [(&str, Vec<u8>); 3] =
        [("random", vec![0xa7; 37]), ("backwards", back.to_vec()), ("zeros", vec![0; 10_000_000])];
    for (name, _) in &tails {
        connection.create_topic(name, 1, &[("index.interval.bytes", "100")]);
        for _ in 0..20 {
            connection.append(name, 0, &Batch::of(name, 5, T0));
        }
    }
    broker.kill();
    let mut sound = BTreeMap::new();
    for (name, tail) in &tails {
        let path = files(&broker, &format!("{name}-0"), "log").remove(0);
        sound.insert(path.clone(), fs::read(&path).expect("read a segment"));
        append_to(&path, tail);
    }
    broker.start_again();
    let log = broker.log();
    for (path, bytes) in &sound {
        assert_eq!(fs::read(path).expect("read a segment"), *bytes, "{}", path.display());
        let is_told = |line: &str| line.contains("WARN") && line.contains(&path.display().to_string());
        assert!(log.lines().any(is_told), "no warning names {}", path.display());
    }
    let mut connection = Connection::open(&broker.address());
    for (name, _) in &tails {
        assert_eq!(values(&connection.fetch_all(name, 0, 0)).len(), 100, "{name}");
        assert_eq!(connection.append(name, 0, &Batch::of(name, 1, T0)), 100, "{name}");
    }
}

/// C027
#[test]
fn damaged_indexes_are_built_anew_as_they_were() {
    let mut broker = Broker::start(&[]);
    broker.allow_log("rebuilding an index that is missing or damaged");
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("empty", 1, &[]);
    connection.create_topic("zeros", 1, &[("index.interval.bytes", "100")]);
    connection.create_topic("short", 1, &[("index.interval.bytes", "100")]);
    for name in ["zeros", "short"] {
        for i in 0..20 {
            connection.append(name, 0, &Batch::of(name, 5, T0 + i));
        }
    }
    broker.stop();
    let index = |log: &str, extension: &str| files(&broker, log, extension).remove(0);
    let (missing, zeros, short) =
        (index("empty-0", "index"), index("zeros-0", "timeindex"), index("short-0", "index"));
    let before: Vec<Vec<u8>> =
        [&zeros, &short].iter().map(|path| fs::read(path).expect("read an index")).collect();
    assert!(before.iter().all(|bytes| bytes.len() > 20), "an index without entries shows nothing");
    fs::remove_file(&missing).expect("remove an index");
    fs::write(&zeros, vec![0; before[0].len()]).expect("overwrite an index");
    fs::write(&short, &before[1][..5]).expect("shorten an index");
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    assert_eq!(connection.append("empty", 0, &Batch::of("k", 1, T0)), 0);
    for name in ["zeros", "short"] {
        assert_eq!(values(&connection.fetch_all(name, 0, 50)).len(), 50, "{name}");
        assert_eq!(connection.offset_at(name, 0, T0 + 10), Ok(34), "{name}");
    }
    let log = broker.log();
    for path in [&missing, &zeros, &short] {
        let warnings =
            log.lines().filter(|line| line.contains("WARN") && line.contains(&path.display().to_string()));
        assert_eq!(warnings.count(), 1, "warnings that name {}", path.display());
    }
    broker.stop();
    let after: Vec<Vec<u8>> =
        [&zeros, &short].iter().map(|path| fs::read(path).expect("read an index")).collect();
    assert_eq!(before, after);
}

/// C028, without transactions.
#[test]
fn a_damaged_producer_snapshot_is_made_good_from_the_log() {
    let mut broker = Broker::start(&[]);
    broker.allow_log("removing a producer snapshot that is damaged");
    let mut connection = Connection::open(&broker.address());
    let request = InitProducerIdRequest { transaction_timeout_ms: 60_000, ..Default::default() };
    let producer = connection.call(1, &InitProducerIdRequest { transactional_id: None, ..request });
    assert_eq!((producer.error_code, producer.producer_epoch), (0, 0));
    let batch = |number: i32| Batch {
        producer_id: producer.producer_id,
        producer_epoch: 0,
        base_sequence: 3 * number,
        ..Batch::of(&number.to_string(), 3, T0)
    };
    let names = ["emptied", "halved", "garbage"];
    for name in names {
        connection.create_topic(name, 1, &[]);
        for number in 0..6 {
            connection.append(name, 0, &batch(number));
        }
    }
    broker.stop();
    for name in names {
        let newest = files(&broker, &format!("{name}-0"), "snapshot").pop().expect("a snapshot");
        let bytes = fs::read(&newest).expect("read a snapshot");
        let damaged = match name {
            "emptied" => Vec::new(),
            "halved" => bytes[..bytes.len() / 2].to_vec(),
            _ => bytes.iter().map(|byte| byte ^ 0x5a).collect(),
        };
        fs::write(&newest, damaged).expect("damage a snapshot");
    }
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    for name in names {
        connection.wait_for_leaders(name, 1);
        let again = connection.produce(name, vec![(0, batch(5).encode())]).remove(0);
        assert_eq!((again.error_code, again.base_offset), (code::NONE, 15), "{name}: {again:?}");
        assert_eq!(connection.log_end(name, 0), 18, "{name}");
        assert_eq!(connection.append(name, 0, &batch(6)), 18, "{name}");
    }
}

/// Writes a segment of one-record batches behind the broker's back, and gives how many.
fn fill(segment: &Path, size_bytes: usize) -> i64 {
    fill_with(segment, size_bytes, &Batch::of("k", 1, T0))
}

/// As [`fill`], with copies of a batch of one record.
fn fill_with(segment: &Path, size_bytes: usize, batch: &Batch) -> i64 {
    let batch = batch.encode();
    let count = size_bytes / batch.len();
    let mut bytes = Vec::with_capacity(count * batch.len());
    for offset in 0..count as i64 {
        // The offset lies outside of what the checksum covers, and so does the leader epoch.
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&batch[8..12]);
        bytes.extend_from_slice(&0_i32.to_be_bytes());
        bytes.extend_from_slice(&batch[16..]);
    }
    fs::write(segment, bytes).expect("write a segment");
    count as i64
}

/// Whether the process has a segment of the topic open.
fn holds_a_segment(process: &Process) -> bool {
    let links = fs::read_dir(format!("/proc/{}/fd", process.pid())).into_iter().flatten().flatten();
    let mut paths = links.filter_map(|link| fs::read_link(link.path()).ok());
    paths.any(|path| {
        let is_segment = path.extension().is_some_and(|extension| extension == "log");
        let dir = path.parent().and_then(Path::file_name).unwrap_or_default();
        is_segment && dir.to_string_lossy().starts_with(TOPIC)
    })
}

/// C030, C096
#[test]
fn sigterm_ends_a_recovery_soon_and_the_next_start_finishes_it() {
    const PARTITIONS: usize = 6;
    let mut broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, PARTITIONS as i32, &[]);
    broker.kill();
    let segment = |partition| broker.data_dir().join(format!("{TOPIC}-{partition}/00000000000000000000.log"));
    let mark = broker.data_dir().join(CLEAN_SHUTDOWN);
    // On a busy machine the recovery may be over before this test gets to stop it: then there is another one.
    let counts = wait_for("a recovery that is stopped in the middle", || {
        let counts: Vec<i64> =
            (0..PARTITIONS).map(|partition| fill(&segment(partition), scaled(16 << 20))).collect();
        let process = broker.spawn();
        wait_for("a recovery to be under way", || holds_a_segment(&process).then_some(()));
        process.terminate();
        process.finish(LIMIT).expect_success("a start that is given up");
        if mark.exists() {
            fs::remove_file(&mark).expect("remove the mark");
            fs::remove_file(broker.data_dir().join(RECOVERY_POINTS)).expect("remove the recovery points");
            return None;
        }
        Some(counts)
    });
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    for (partition, count) in counts.iter().enumerate() {
        // Each is served when it is recovered.
        assert_eq!(connection.log_end(TOPIC, partition as i32), *count);
    }
}

/// C030: times and size of the case need `BARNABAS_TEST_SCALE=50`, which makes it 2,000 partitions with 5 GB.
#[test]
fn a_large_recovery_stays_small_and_is_not_begun_again() {
    const SEGMENT_BYTES: usize = 5 << 19;
    const MEMORY_MAX_BYTES: u64 = 1 << 30;
    let partitions = scaled(40);
    let mut broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, partitions as i32, &[]);
    broker.kill();
    let mut batch = Batch::of("k", 1, T0);
    batch.records[0].value = Some(vec![b'x'; 1_000].into());
    let segment = |partition| broker.data_dir().join(format!("{TOPIC}-{partition}/00000000000000000000.log"));
    let count = (0..partitions).map(|partition| fill_with(&segment(partition), SEGMENT_BYTES, &batch)).max();
    let began = Instant::now();
    broker.start_again();
    let ready = began.elapsed();
    let mut connection = Connection::open(&broker.address());
    for partition in 0..partitions as i32 {
        assert_eq!(Some(connection.log_end(TOPIC, partition)), count);
    }
    let recovered = began.elapsed();
    let peak = broker.memory_bytes("VmHWM:");
    assert!(peak < MEMORY_MAX_BYTES, "a peak of {peak} bytes");
    // What is recovered is recorded at once: a kill right now does not bring it all back.
    broker.kill();
    let began = Instant::now();
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    assert_eq!(Some(connection.log_end(TOPIC, partitions as i32 - 1)), count);
    announce(&format!(
        "recovery of {partitions} partitions: ready after {ready:?}, all after {recovered:?}, a peak of {} MiB; again: {:?}",
        peak >> 20,
        began.elapsed()
    ));
    let log = broker.log();
    let from_start = log.lines().filter(|line| line.contains("recovered a log") && line.ends_with(" from=0"));
    let from_start = from_start.count();
    assert!(from_start <= partitions, "{from_start} logs were read from their start");
}

/// What the page says, with its status line.
fn page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connect");
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").expect("ask");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read the page");
    answer
}

#[test]
fn a_partition_is_served_while_another_is_still_recovered() {
    let http_port = free_port();
    let http = format!("127.0.0.1:{}", http_port.number);
    let mut broker = Broker::start(&[("barnabas.http.listener", &http)]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    connection.create_topic("small", 1, &[]);
    connection.append("small", 0, &Batch::of("k", 5, T0));
    broker.kill();
    let segment = broker.data_dir().join(format!("{TOPIC}-0/00000000000000000000.log"));
    let count = fill(&segment, scaled(384 << 20));
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    assert_eq!(connection.log_end("small", 0), 5);
    let early = connection.offset_at(TOPIC, 0, -1);
    assert_eq!(early, Err(code::NOT_LEADER_OR_FOLLOWER), "the recovery was too quick to be seen");
    let readyz = page(&http, "/readyz");
    assert!(readyz.starts_with("HTTP/1.1 503 ") && readyz.contains("log: loading 1 of "), "{readyz}");
    let metrics = page(&http, "/metrics");
    assert!(metrics.contains("\nbarnabas_logs_to_load 1\n"), "{metrics}");
    assert!(metrics.contains("\nbarnabas_segments_to_recover 1\n"), "{metrics}");
    assert_eq!(connection.append("small", 0, &Batch::of("k", 1, T0)), 5);
    let recovered = || connection.offset_at(TOPIC, 0, -1).ok();
    assert_eq!(wait_within(Duration::from_secs(600), "the end of the recovery", recovered), count);
    wait_for("all to be ready", || page(&http, "/readyz").starts_with("HTTP/1.1 200 ").then_some(()));
    assert!(page(&http, "/metrics").contains("\nbarnabas_logs_to_load 0\n"));
}

/// A replica whose log is damaged where it was durable is offline, and nothing else is.
#[test]
fn a_damaged_log_takes_one_replica_offline() {
    let mut broker = Broker::start(&[]);
    broker.allow_log("a log cannot be loaded: this replica is offline");
    let mut connection = Connection::open(&broker.address());
    for name in [TOPIC, "sound"] {
        connection.create_topic(name, 1, &[]);
        connection.append(name, 0, &Batch::of("k", 5, T0));
    }
    // The recovery points of a clean stop stay when its mark goes.
    broker.stop();
    fs::remove_file(broker.data_dir().join(CLEAN_SHUTDOWN)).expect("remove the mark");
    let segment = broker.data_dir().join(format!("{TOPIC}-0/00000000000000000000.log"));
    let mut bytes = fs::read(&segment).expect("read a segment");
    bytes[80] ^= 1;
    fs::write(&segment, &bytes).expect("write a segment");
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    assert_eq!(connection.append("sound", 0, &Batch::of("k", 1, T0)), 5);
    let refused = wait_for("the end of loading", || {
        let answer = connection.produce(TOPIC, vec![(0, Batch::of("k", 1, T0).encode())]).remove(0);
        Some(answer).filter(|answer| answer.error_code != code::NOT_LEADER_OR_FOLLOWER)
    });
    assert_eq!(refused.error_code, code::KAFKA_STORAGE_ERROR, "{refused:?}");
    assert_eq!(fs::read(&segment).expect("read a segment"), bytes, "nothing is cut off");
    drop(connection);
    // Who gives up the copy removes the folder.
    broker.stop();
    fs::remove_dir_all(segment.parent().expect("a folder")).expect("remove the folder");
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    assert_eq!(connection.log_end("sound", 0), 6);
    connection.wait_for_leaders(TOPIC, 1);
    assert_eq!(connection.append(TOPIC, 0, &Batch::of("k", 1, T0)), 0);
}

/// C096
#[test]
fn sigterm_at_any_moment_of_a_start_is_a_quick_end_without_a_false_mark() {
    let mut broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 20, &[]);
    connection.append(TOPIC, 0, &Batch::of("k", 5, T0));
    drop(connection);
    broker.kill();
    broker.allow_log("cutting the log off at the first batch that is not sound");
    let segment = broker.data_dir().join(format!("{TOPIC}-0/00000000000000000000.log"));
    let sound_bytes = fs::metadata(&segment).expect("the segment is there").len();
    for delay_ms in [0, 2, 5, 10, 20, 40, 80, 160] {
        // Who marks the folder as closed has cut this off before.
        append_to(&segment, b"the beginning of a batch");
        let mut process = broker.spawn();
        // Any moment will do: this only spreads them.
        let _ = process.wait(Duration::from_millis(delay_ms));
        process.terminate();
        assert!(
            process.wait(LIMIT).is_some(),
            "still there {LIMIT:?} after SIGTERM, sent after {delay_ms} ms"
        );
        drop(process);
        let size_bytes = fs::metadata(&segment).expect("the segment is there").len();
        let is_marked = broker.data_dir().join(CLEAN_SHUTDOWN).exists();
        assert!(!is_marked || size_bytes == sound_bytes, "marked as closed with a torn tail, {delay_ms} ms");
        broker.start_again();
        assert_eq!(Connection::open(&broker.address()).log_end(TOPIC, 0), 5, "marked as clean: {is_marked}");
        broker.kill();
    }
}

/// The first client that gets in (case "first client") sees every topic with its leader: one that did not would create it again.
#[test]
fn metadata_is_complete_before_the_first_client_is_accepted() {
    const TOPICS: usize = 60;
    let mut broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    for number in 0..TOPICS {
        connection.create_topic(&format!("topic-{number}"), 2, &[]);
    }
    drop(connection);
    for round in 0..3 {
        if round % 2 == 0 {
            broker.kill()
        } else {
            broker.stop()
        }
        let (address, is_started) = (broker.address(), AtomicBool::new(false));
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                while !is_started.load(Ordering::Relaxed) {
                    if TcpStream::connect(&address).is_ok() {
                        break;
                    }
                }
                Connection::open(&address).metadata(None)
            });
            broker.start_again();
            is_started.store(true, Ordering::Relaxed);
            let metadata = first.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
            assert_eq!(metadata.topics.len(), TOPICS, "round {round}");
            let partitions = metadata.topics.iter().flat_map(|topic| &topic.partitions);
            assert!(
                partitions.clone().all(|partition| partition.leader_id == 1),
                "round {round}: {metadata:?}"
            );
            assert_eq!(partitions.count(), 2 * TOPICS, "round {round}");
        });
    }
}

/// Every file below a folder with its content; the lock is taken by every start.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("read a folder") {
        let path = entry.expect("read a folder").path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else if path.file_name().is_some_and(|name| name != ".lock") {
            found.insert(path.clone(), fs::read(&path).expect("read a file"));
        }
    }
    found
}

/// KAFKA-7335
#[test]
fn a_folder_of_another_cluster_or_broker_is_refused_and_left_alone() {
    let mut broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    connection.append(TOPIC, 0, &Batch::of("k", 5, T0));
    broker.stop();
    let meta = broker.data_dir().join("meta.properties");
    let own = fs::read_to_string(&meta).expect("read meta.properties");
    let changed = |key: &str, value: &str| -> String {
        let line = |line: &str| {
            if line.starts_with(key) { format!("{key}={value}\n") } else { format!("{line}\n") }
        };
        own.lines().map(line).collect()
    };
    for (key, value) in [("cluster.id", "AAAAAAAAAAAAAAAAAAAAAA"), ("broker.id", "7")] {
        fs::write(&meta, changed(key, value)).expect("change meta.properties");
        let before = contents(&broker.data_dir());
        let mut process = broker.spawn();
        let status = process.wait(LIMIT).expect("the end of a start that cannot succeed");
        assert_eq!(status.code(), Some(1), "{key}");
        assert!(process.stderr_text().contains(value), "{key} is not named:\n{}", process.stderr_text());
        let after = contents(&broker.data_dir());
        // The store marks the end of its log each time that it is opened.
        let is_same = |path: &PathBuf| match (before.get(path), after.get(path)) {
            (Some(before), Some(after)) if path.to_string_lossy().contains("barnabas-store") => {
                after.starts_with(before) && after.len() < before.len() + 50
            }
            (before, after) => before == after,
        };
        let changed: Vec<_> = before.keys().chain(after.keys()).filter(|path| !is_same(path)).collect();
        assert!(changed.is_empty(), "{key}: {changed:?}");
    }
    fs::write(&meta, own).expect("restore meta.properties");
    broker.start_again();
    assert_eq!(Connection::open(&broker.address()).log_end(TOPIC, 0), 5);
}
