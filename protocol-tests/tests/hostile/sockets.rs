//! Connections that keep the broker waiting: silent, slow, lost, or too many at once.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use protocol_tests::batch::Batch;
use protocol_tests::requests::fetch_request;
use protocol_tests::{Broker, Connection, encode, raise_open_files_limit, reset, scaled, wait_for};
use wire::metadata_request::MetadataRequest;

use crate::frames::{closes, works};
use crate::{CLOSE_LIMIT, GROWTH_BYTES_MAX};

const T0: i64 = 1_700_000_000_000;

#[track_caller]
fn check_growth(broker: &Broker, before: u64) {
    if broker.server().is_barnabas() {
        let growth = broker.memory_bytes("VmHWM:").saturating_sub(before);
        assert!(growth < GROWTH_BYTES_MAX, "the broker grew by {growth} bytes");
    }
}

/// R06
#[test]
fn a_silent_connection_is_closed_when_it_has_been_idle_for_too_long() {
    let broker = Broker::start(&[("connections.max.idle.ms", "2000")]);
    let address = broker.address();
    closes(&address, "nothing at all", &[]);
    closes(&address, "half of the size", &[0, 0]);
    closes(&address, "half of a request", &[0, 0, 0, 20, 0, 3, 0, 1]);
    works(&address);
}

/// R06: a peer that is gone without a word is found out by the kernel, which the broker asks to look.
#[test]
fn a_peer_that_vanishes_is_looked_for() {
    let broker = Broker::start(&[]);
    let connection = Connection::open(&broker.address());
    works(&broker.address());
    let ours = connection.stream().local_addr().expect("an address").port();
    // Local and remote address, state, queues, then the running timer: 02 is that of keep-alive.
    let is_kept_alive = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let ends_with = |column: usize, port: u16| {
            columns.get(column).is_some_and(|address| address.ends_with(&format!(":{port:04X}")))
        };
        ends_with(1, broker.port())
            && ends_with(2, ours)
            && columns.get(5).is_some_and(|timer| timer.starts_with("02:"))
    };
    let table = std::fs::read_to_string("/proc/net/tcp").expect("read /proc/net/tcp");
    assert!(table.lines().any(is_kept_alive), "no keep-alive timer on the broker's side of {ours}");
}

/// R02, R05
#[test]
fn what_is_announced_and_not_sent_takes_no_memory() {
    // More sockets than could each have a buffer out of this.
    let broker = Broker::start(&[
        ("socket.request.max.bytes", "500000000"),
        ("barnabas.request.memory.max.bytes", "8388608"),
    ]);
    let address = broker.address();
    works(&address);
    let before = broker.memory_bytes("VmRSS:");
    // The beginning of a ClientHello is a legal size now; so is a request of 100 million bytes.
    let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    hello.resize(517, 0x5a);
    let slow = 100_000_000_i32.to_be_bytes();
    raise_open_files_limit();
    let mut sockets = Vec::new();
    for number in 0..scaled(300) {
        for bytes in [&hello[..], &slow] {
            let mut stream = TcpStream::connect(&address).expect("connect");
            stream.write_all(bytes).expect("send a beginning");
            sockets.push(stream);
        }
        if number % 50 == 0 {
            works(&address);
        }
    }
    for stream in &mut sockets {
        stream.write_all(&[0]).expect("send a byte");
    }
    // A request as large as the whole budget is served beside them.
    let mut body = encode(1, None, 1, &MetadataRequest { topics: Some(Vec::new()), ..Default::default() })
        .slice(4..)
        .to_vec();
    body.resize(4 << 20, 0);
    let mut connection = Connection::open(&address);
    connection.send_frame(&body);
    connection.receive_frame().expect("an answer");
    works(&address);
    check_growth(&broker, before);
}

/// R07
#[test]
fn a_storm_of_resets_leaves_nothing_behind() {
    const RECORDS: usize = 10;
    let broker = Broker::start(&[]);
    let address = broker.address();
    let mut connection = Connection::open(&address);
    connection.create_topic("large", 1, &[]);
    let mut batch = Batch::of("k", 1, T0);
    batch.records[0].value = Some(vec![b'x'; 1_000_000].into());
    for _ in 0..RECORDS {
        connection.append("large", 0, &batch);
    }
    connection.fetch("large", 0, 0);
    let (base, lines) = (broker.descriptors(), broker.log().lines().count());
    for _ in 0..scaled(1_000) {
        reset(TcpStream::connect(&address).expect("connect"));
    }
    // In the middle of an answer of many megabytes.
    for _ in 0..scaled(10) {
        let mut reader = Connection::open(&address);
        reader.send(11, &fetch_request("large", &[(0, 0)], 50 << 20));
        let mut stream = reader.stream().try_clone().expect("clone a socket");
        stream.read_exact(&mut [0; 1_000]).expect("the beginning of an answer");
        drop(reader);
        reset(stream);
    }
    works(&address);
    wait_for("the descriptors to be given back", || (broker.descriptors() <= base).then_some(()));
    assert_eq!(broker.log().lines().count(), lines, "lines about it in the log");
}

/// R19
#[test]
fn a_flood_of_requests_from_one_socket_is_held_back() {
    // Far more than sockets buffer on both sides.
    const MOST_BYTES: usize = 64 << 20;
    let broker = Broker::start(&[("connections.max.idle.ms", "3000")]);
    let address = broker.address();
    let mut connection = Connection::open(&address);
    for number in 0..50 {
        connection.create_topic(&format!("topic-{number}"), 10, &[]);
    }
    works(&address);
    let before = broker.memory_bytes("VmRSS:");
    let all = MetadataRequest { topics: None, ..Default::default() };
    let request = encode(1, Some("x".repeat(5_000).into()), 1, &all);
    let mut flood = TcpStream::connect(&address).expect("connect");
    flood.set_write_timeout(Some(Duration::from_millis(500))).expect("set a timeout");
    let mut sent = 0;
    let ended = loop {
        match flood.write_all(&request) {
            Ok(()) => sent += request.len(),
            Err(error) => break error.kind(),
        }
        assert!(sent < MOST_BYTES, "the broker reads on although nobody reads its answers");
    };
    assert_eq!(ended, ErrorKind::WouldBlock);
    works(&address);
    check_growth(&broker, before);
    // Nothing moves any more: it is idle, and is closed with what waits for it.
    flood.set_read_timeout(Some(CLOSE_LIMIT)).expect("set a timeout");
    wait_for("the flood to be closed", || match flood.write(&request[..1]) {
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Some(()),
        _ => None,
    });
    works(&address);
}

/// R19
#[test]
fn a_flood_of_sockets_is_served() {
    let broker = Broker::start(&[]);
    let address = broker.address();
    let mut connection = Connection::open(&address);
    connection.create_topic("topic", 50, &[]);
    let all = MetadataRequest { topics: None, ..Default::default() };
    raise_open_files_limit();
    let mut flood: Vec<(Connection, i32)> = (0..scaled(400))
        .map(|_| {
            let mut connection = Connection::open(&address);
            let asked = connection.send(1, &all);
            (connection, asked)
        })
        .collect();
    works(&address);
    for (connection, asked) in &mut flood {
        let answer = connection.receive::<MetadataRequest>(1, *asked).expect("an answer");
        assert_eq!(answer.topics[0].partitions.len(), 50);
    }
}
