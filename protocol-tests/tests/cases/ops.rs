//! Sockets, descriptors, ports, sizes: what an operator meets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use protocol_tests::batch::Batch;
use protocol_tests::requests::{produce_request, record_bytes, topic};
use protocol_tests::{
    Broker, CallError, Connection, announce, batch, encode, free_port, reset, scaled, wait_for,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use wire::create_topics_request::CreateTopicsRequest;
use wire::delete_topics_request::DeleteTopicsRequest;
use wire::describe_log_dirs_request::DescribeLogDirsRequest;
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::metadata_request::MetadataRequest;
use wire::produce_request::ProduceRequest;

use crate::{T0, code};

const TOPIC: &str = "cases";
const LIMIT: Duration = Duration::from_secs(120);

fn metadata() -> MetadataRequest {
    MetadataRequest { topics: Some(Vec::new()), ..Default::default() }
}

/// C095
#[test]
fn connections_that_are_reset_at_any_point_are_not_counted_for_ever() {
    const PER_ADDRESS: usize = 10;
    let http_port = free_port();
    let http = format!("127.0.0.1:{}", http_port.number);
    let broker = Broker::start(&[("max.connections.per.ip", "10"), ("barnabas.http.listener", &http)]);
    let address = broker.address();
    let base = broker.descriptors();
    assert_eq!(connections(&http), 0.0);
    let request = encode(1, None, 1, &metadata());
    for number in 0..scaled(300) {
        let mut stream = TcpStream::connect(&address).expect("connect");
        // Nothing, a part, all of it, and an answer that nobody reads.
        let sent = [0, 2, 9, request.len()][number % 4];
        let _ = stream.write_all(&request[..sent]);
        if number % 8 == 7 {
            let _ = stream.read(&mut [0; 4]);
        }
        reset(stream);
    }
    let mut open = Vec::new();
    // The last resets may not have been noticed yet.
    wait_for("as many connections as there may be", || {
        let mut connection = Connection::open(&address);
        if connection.try_call(1, &metadata()).is_ok() {
            open.push(connection);
        }
        (open.len() == PER_ADDRESS).then_some(())
    });
    Connection::open(&address).expect_closed();
    for connection in &mut open {
        connection.call(1, &metadata());
    }
    drop(open);
    wait_for("the descriptors to be given back", || (broker.descriptors() <= base).then_some(()));
    wait_for("the connections to be counted off", || (connections(&http) == 0.0).then_some(()));
}

/// C095
#[test]
fn a_broker_out_of_descriptors_accepts_again_when_there_are_some() {
    let mut broker = Broker::start(&[]);
    broker.allow_log("cannot accept connections, pausing");
    let address = broker.address();
    let pid = Pid::from_raw(broker.pid() as i32).expect("a process id");
    let limit = |current: u64| {
        let limits = Rlimit { current: Some(current), maximum: Some(current) };
        prlimit(Some(pid), Resource::Nofile, limits).expect("limit the descriptors");
    };
    let used = broker.descriptors() as u64;
    limit(used + 5);
    let mut accepted = Vec::new();
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let mut connection = Connection::open(&address);
        connection.set_limit(Duration::from_millis(if waiting.is_empty() { 10_000 } else { 50 }));
        match connection.try_call(1, &metadata()) {
            Ok(_) => accepted.push(connection),
            Err(CallError::NoAnswer) => waiting.push(connection),
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(!waiting.is_empty() && !accepted.is_empty(), "{} accepted", accepted.len());
    let told = broker.log().lines().filter(|line| line.contains("cannot accept connections")).count();
    assert!((1..30).contains(&told), "{told} lines about it");
    drop(accepted);
    drop(waiting);
    wait_for("a new client to be served", || {
        let mut connection = Connection::open(&address);
        connection.set_limit(Duration::from_secs(10));
        connection.try_call(1, &metadata()).is_ok().then_some(())
    });
}

/// KAFKA-4428
#[test]
fn a_start_that_cannot_succeed_says_why_and_writes_nothing() {
    let mut broker = Broker::start(&[]);
    broker.stop();
    fs::remove_dir_all(broker.data_dir()).expect("remove the data folder");
    let taken = TcpListener::bind(("127.0.0.1", broker.port())).expect("take the port");
    check_refused(&broker, &broker.port().to_string());
    drop(taken);
    let own = broker.address();
    broker.set("listeners", &format!("PLAINTEXT://0.0.0.0:{}", broker.port()));
    broker.set("advertised.listeners", &format!("PLAINTEXT://0.0.0.0:{}", broker.port()));
    check_refused(&broker, "advertised.listeners");
    // Two listeners may be advertised under one port: a proxy tells them apart by name.
    let other = free_port();
    let port = broker.port();
    broker.set("listeners", &format!("PLAINTEXT://{own},OTHER://127.0.0.1:{}", other.number));
    broker.set("advertised.listeners", &format!("PLAINTEXT://127.0.0.1:{port},OTHER://localhost:{port}"));
    broker.set("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT");
    broker.start_again();
    assert_eq!(Connection::open(&own).call(1, &metadata()).brokers[0].port, i32::from(port));
}

#[track_caller]
fn check_refused(broker: &Broker, named: &str) {
    let mut process = broker.spawn();
    let status = process.wait(LIMIT).expect("the end of a start that cannot succeed");
    assert_eq!(status.code(), Some(1));
    let log = process.stderr_text();
    assert!(log.lines().last().is_some_and(|line| line.contains(named)), "{named} is not named:\n{log}");
    let left = fs::read_dir(broker.data_dir()).map_or(0, Iterator::count);
    assert_eq!(left, 0, "files were made");
}

/// C090
#[test]
fn a_batch_one_byte_too_large_is_refused_alone() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 2, &[("max.message.bytes", "1000")]);
    let of_size = |size: usize| {
        let mut batch = Batch::of("k", 1, T0);
        let around = {
            batch.records[0].value = Some(vec![b'x'; 500].into());
            batch.encode().len() - 500
        };
        batch.records[0].value = Some(vec![b'x'; size - around].into());
        batch.encode()
    };
    let sizes = (of_size(1000).len(), of_size(1001).len());
    assert_eq!(sizes, (1000, 1001));
    let answers = connection.produce(TOPIC, vec![(0, of_size(1001)), (1, of_size(1000))]);
    let codes: Vec<i16> = answers.iter().map(|answer| answer.error_code).collect();
    assert_eq!(codes, [code::MESSAGE_TOO_LARGE, code::NONE]);
    assert_eq!((connection.log_end(TOPIC, 0), connection.log_end(TOPIC, 1)), (0, 1));
}

/// C092, without old consumers: requests that are sent without a look at the answers.
#[test]
fn pipelined_produces_are_stored_in_order_within_bounded_memory() {
    const SIZE: usize = 500_000;
    const GROWTH_MAX: u64 = 128 << 20;
    let broker = Broker::start(&[("barnabas.request.memory.max.bytes", "16777216")]);
    let address = broker.address();
    let mut connection = Connection::open(&address);
    connection.create_topic(TOPIC, 1, &[]);
    let before = broker.memory_bytes("VmRSS:");
    let count = scaled(200) as i64;
    let mut batch = Batch::of("k", 1, T0);
    batch.records[0].value = Some(vec![b'x'; SIZE].into());
    let request = produce_request(TOPIC, -1, vec![(0, batch.encode())]);
    let mut sender = Connection::open(&address);
    let asked: Vec<i32> = (0..count).map(|_| sender.send(7, &request)).collect();
    for (asked, offset) in asked.into_iter().zip(0..) {
        let answer = sender.receive::<ProduceRequest>(7, asked).expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].base_offset, offset);
    }
    assert_eq!(connection.log_end(TOPIC, 0), count);
    if broker.server().is_barnabas() {
        let growth = broker.memory_bytes("VmHWM:").saturating_sub(before);
        assert!(growth < GROWTH_MAX, "the broker grew by {growth} bytes");
    }
}

/// C093: the times of the case need `BARNABAS_TEST_SCALE=67`, which makes it 20,000 topics.
#[test]
fn many_topics_are_told_of_and_a_large_one_goes_while_others_are_written() {
    let topics = scaled(300);
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    let names: Vec<String> = (0..topics).map(|number| format!("many-{number}")).collect();
    for some in names.chunks(100) {
        let topics = some.iter().map(|name| topic(name, 1, &[])).collect();
        let request = CreateTopicsRequest { topics, timeout_ms: 60_000, ..Default::default() };
        assert!(connection.call(4, &request).topics.iter().all(|topic| topic.error_code == 0));
    }
    connection.wait_for_leaders(&names[topics - 1], 1);
    let alone = Pace::of_writes(&broker, &names[0], || {});
    let beside = Pace::of_writes(&broker, &names[0], || {
        let took = |what: &str, began: Instant| {
            announce(&format!("{what} of {topics} topics: {:?}", began.elapsed()))
        };
        let began = Instant::now();
        assert_eq!(connection.metadata(None).topics.len(), topics);
        took("Metadata", began);
        let began = Instant::now();
        let dirs = connection.call(4, &DescribeLogDirsRequest { topics: None });
        assert_eq!(dirs.results[0].topics.len(), topics);
        took("DescribeLogDirs", began);
        let began = Instant::now();
        assert_eq!(connection.call(5, &ends_of(&names)).topics.len(), topics);
        took("ListOffsets", began);
    });
    announce(&format!("a write: {alone}; beside what is asked of {topics} topics: {beside}"));
    connection.create_topic("large", scaled(128) as i32, &[]);
    let mut owner = Connection::open(&broker.address());
    let batch = Batch::of("k", 1, T0).encode();
    assert_eq!(owner.produce("large", vec![(0, batch.clone())])[0].error_code, code::NONE);
    let delete =
        DeleteTopicsRequest { topic_names: vec!["large".into()], timeout_ms: 60_000, ..Default::default() };
    let deletion = connection.send(3, &delete);
    // Others write on, and the owner is told and not kept waiting.
    let mut others = Connection::open(&broker.address());
    for name in names.iter().take(50) {
        wait_for("a leader", || {
            (others.produce(name, vec![(0, batch.clone())])[0].error_code == 0).then_some(())
        });
    }
    let deleted = connection.receive::<DeleteTopicsRequest>(3, deletion).expect("an answer");
    assert_eq!(deleted.responses[0].error_code, code::NONE);
    let refused = owner.produce("large", vec![(0, batch)])[0].error_code;
    assert_eq!(refused, code::UNKNOWN_TOPIC_OR_PARTITION);
}

/// The ends of partition 0 of each.
fn ends_of(names: &[String]) -> ListOffsetsRequest {
    let partition = ListOffsetsPartition { timestamp: -1, current_leader_epoch: -1, ..Default::default() };
    let topic =
        |name: &String| ListOffsetsTopic { name: name.as_str().into(), partitions: vec![partition.clone()] };
    ListOffsetsRequest { replica_id: -1, topics: names.iter().map(topic).collect(), ..Default::default() }
}

/// How long single writes take.
struct Pace(Vec<Duration>);

impl Pace {
    /// Writes one batch after another while the work lasts, and at least a hundred.
    fn of_writes(broker: &Broker, topic: &str, work: impl FnOnce()) -> Pace {
        let mut writer = Connection::open(&broker.address());
        let batch = Batch::of("k", 1, T0).encode();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let writes = scope.spawn(|| {
                let mut took = Vec::new();
                while took.len() < 100 || !is_done.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    assert_eq!(writer.produce(topic, vec![(0, batch.clone())])[0].error_code, code::NONE);
                    took.push(began.elapsed());
                }
                took.sort_unstable();
                Pace(took)
            });
            work();
            is_done.store(true, Ordering::Relaxed);
            writes.join().expect("the writer")
        })
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |percent: usize| self.0[self.0.len() * percent / 100];
        write!(formatter, "median {:?}, p99 {:?}", at(50), at(99))
    }
}

/// A full answer goes on when its reader does.
#[test]
fn a_slow_reader_gets_all_of_a_large_answer() {
    const RECORDS: i64 = 20;
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    let mut batch = Batch::of("k", 1, T0);
    batch.records[0].value = Some(vec![b'x'; 900_000].into());
    for _ in 0..RECORDS {
        connection.append(TOPIC, 0, &batch);
    }
    let request = protocol_tests::requests::fetch_request(TOPIC, &[(0, 0)], 50 << 20);
    let asked = connection.send(11, &request);
    // Another connection is served while the first does not read.
    Connection::open(&broker.address()).call(1, &metadata());
    let answer = connection.receive::<wire::FetchRequest>(11, asked).expect("an answer");
    let bytes = record_bytes(&answer.responses[0].partitions[0]);
    assert_eq!(batch::read(&bytes).len() as i64, RECORDS);
}

/// Open connections, as `/metrics` counts them.
fn connections(http: &str) -> f64 {
    let mut stream = TcpStream::connect(http).expect("connect to /metrics");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("ask for /metrics");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("read /metrics");
    let value = text.lines().find_map(|line| line.strip_prefix("barnabas_connections ")).expect("the metric");
    value.parse().expect("a number")
}
