//! Bytes that are no request of ours: other protocols, wrong sizes, keys, versions, counts and lengths.

use std::io::{ErrorKind, Read};

use protocol_tests::{Connection, encode, scaled};
use wire::metadata_request::MetadataRequest;
use wire::{ApiKey, ApiVersionsRequest};

use crate::{CLOSE_LIMIT, REQUEST_BYTES_MAX};

pub const STEPS: &[fn(&str)] = &[
    another_protocol_is_closed_at_once,
    a_frame_size_that_cannot_be_is_closed_at_once,
    a_frame_of_exactly_the_limit_is_served,
    an_unknown_api_is_closed,
    an_unknown_version_is_closed,
    apiversions_alone_answers_a_version_that_it_does_not_know,
    a_client_id_of_impossible_length_is_closed,
    a_count_beyond_the_frame_is_closed,
    a_request_between_brokers_changes_nothing,
    a_varint_that_cannot_be_is_closed,
    tags_that_repeat_or_descend_are_closed,
    what_follows_a_request_in_its_frame_is_ignored,
];

/// Repetitions of what would be noticed if each left something behind, per hostile variant; times
/// `BARNABAS_TEST_SCALE`.
const TRIES: usize = 100;

/// An ordinary client is served.
#[track_caller]
pub fn works(address: &str) {
    let metadata = Connection::open(address).call(1, &no_topics());
    assert_eq!(metadata.brokers.len(), 1);
}

/// Panics unless the broker closes the connection after `bytes` without a byte of its own.
#[track_caller]
pub fn closes(address: &str, what: &str, bytes: &[u8]) {
    let mut connection = Connection::open(address);
    connection.set_limit(CLOSE_LIMIT);
    connection.send_raw(bytes);
    match connection.stream().read(&mut [0]) {
        Ok(0) => {}
        Ok(_) => panic!("{what}: answered"),
        // What the broker had not read yet makes a reset of the close.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{what}: not closed: {error}"),
    }
}

/// Panics unless the request `body` is answered. Shows that a broken variant is refused for what is broken in it.
#[track_caller]
fn answers(address: &str, what: &str, body: &[u8]) {
    let mut connection = Connection::open(address);
    connection.send_frame(body);
    assert!(connection.receive_frame().is_some(), "{what}: closed");
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as i32).to_be_bytes(), body].concat()
}

/// A request header without client id, of version 1.
fn header(key: i16, version: i16) -> Vec<u8> {
    [&key.to_be_bytes()[..], &version.to_be_bytes(), &7_i32.to_be_bytes(), &(-1_i16).to_be_bytes()].concat()
}

fn header_of(api: ApiKey, version: i16) -> Vec<u8> {
    header(api as i16, version)
}

fn no_topics() -> MetadataRequest {
    MetadataRequest { topics: Some(vec![]), allow_auto_topic_creation: true, ..Default::default() }
}

/// R01, R02, and greetings of other protocols as in R20.
fn another_protocol_is_closed_at_once(address: &str) {
    for method in ["GET", "POST", "OPTIONS"] {
        closes(address, method, format!("{method} / HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    }
    let greetings = [
        ("PROXY", &b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 9092\r\n"[..]),
        ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n"),
        ("Redis", b"*1\r\n$4\r\nPING\r\n"),
        ("SMTP", b"EHLO example.org\r\n"),
        ("PROXY v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"),
    ];
    for (what, greeting) in greetings {
        closes(address, what, greeting);
    }
    // Handshake record of 512 bytes, ClientHello of TLS 1.2.
    let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    hello.resize(517, 0x5a);
    for _ in 0..scaled(TRIES) {
        closes(address, "ClientHello", &hello);
    }
}

/// R04
fn a_frame_size_that_cannot_be_is_closed_at_once(address: &str) {
    let limit = REQUEST_BYTES_MAX as i32;
    for size in [-1, i32::MIN, i32::MAX, limit + 1] {
        closes(address, &format!("size {size}"), &size.to_be_bytes());
    }
    let header = header_of(ApiKey::Metadata, 1);
    for size in 0..8 {
        closes(address, &format!("{size} bytes"), &frame(&header[..size]));
    }
}

/// R04
fn a_frame_of_exactly_the_limit_is_served(address: &str) {
    let mut body = header_of(ApiKey::ApiVersions, 0);
    body.resize(REQUEST_BYTES_MAX, 0);
    answers(address, "the limit", &body);
}

/// R08
fn an_unknown_api_is_closed(address: &str) {
    // The last ones belong to KRaft: Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot, BrokerRegistration,
    // BrokerHeartbeat.
    for key in [9999, -1, i16::MIN, i16::MAX, 52, 53, 54, 59, 62, 63] {
        let body = [header(key, 0), vec![0; 64]].concat();
        closes(address, &format!("key {key}"), &frame(&body));
    }
}

/// R08
fn a_request_between_brokers_changes_nothing(address: &str) {
    let before = Connection::open(address).metadata(None);
    // LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers, AlterPartition, Envelope.
    for key in [4, 5, 6, 7, 27, 56, 58] {
        let mut connection = Connection::open(address);
        connection.set_limit(CLOSE_LIMIT);
        connection.send_frame(&[header(key, 0), vec![0; 64]].concat());
        // Closed, or refused: without an authorizer Kafka takes them from anybody.
        let _ = connection.receive_frame();
        assert_eq!(Connection::open(address).metadata(None), before, "key {key}");
    }
}

/// R09
fn an_unknown_version_is_closed(address: &str) {
    for (api, version) in [
        (ApiKey::Metadata, 99),
        (ApiKey::Metadata, -1),
        (ApiKey::Metadata, i16::MIN),
        (ApiKey::Produce, -1),
        (ApiKey::Fetch, i16::MAX),
    ] {
        let body = [header_of(api, version), vec![0; 64]].concat();
        closes(address, &format!("{api:?} v{version}"), &frame(&body));
    }
}

/// C001
fn apiversions_alone_answers_a_version_that_it_does_not_know(address: &str) {
    let mut connection = Connection::open(address);
    // The header's tags, then the names and tags of a body that is flexible, as all later versions are.
    connection.send_frame(&[header_of(ApiKey::ApiVersions, 127), b"\0\x02x\x021\0".to_vec()].concat());
    let answer = connection.receive_frame().expect("an answer");
    // Correlation id, UNSUPPORTED_VERSION, one entry: key 18 and its versions. No tags anywhere.
    let (start, versions) = answer.split_at(answer.len().min(12));
    assert_eq!(start, [0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18]);
    assert_eq!(versions.len(), 4);
    let request =
        ApiVersionsRequest { client_software_name: "x".into(), client_software_version: "1".into() };
    let response = connection.call(3, &request);
    assert_eq!(response.error_code, 0);
    let own = response.api_keys.iter().find(|api| api.api_key == 18).expect("its own versions");
    assert_eq!(versions, [own.min_version.to_be_bytes(), own.max_version.to_be_bytes()].concat());
    assert!(response.api_keys.len() > 10);
}

/// R10
fn a_client_id_of_impossible_length_is_closed(address: &str) {
    let named = |length: i16, name: &[u8]| {
        let start = &header_of(ApiKey::ApiVersions, 0)[..8];
        [start, &length.to_be_bytes(), name].concat()
    };
    closes(address, "length -2", &frame(&named(-2, b"0123456789")));
    closes(address, "length -32768", &frame(&named(i16::MIN, b"0123456789")));
    closes(address, "length beyond the frame", &frame(&named(i16::MAX, b"0123456789")));
    answers(address, "NUL bytes", &named(4, b"a\0\r\n"));
    // Kafka replaces what is no UTF-8; to close is as good.
    let mut connection = Connection::open(address);
    connection.send_frame(&named(4, b"\xff\xfe\xc0\x80"));
    let _ = connection.receive_frame();
}

/// R11
fn a_count_beyond_the_frame_is_closed(address: &str) {
    // Replica, wait, least and most bytes, isolation level.
    let fetch = [&(-1_i32).to_be_bytes()[..], &[0; 8], &1000_i32.to_be_bytes(), &[0]].concat();
    // Transactional id, acks, timeout.
    let produce = [0xff, 0xff, 0, 1, 0, 0, 0, 100].to_vec();
    // Group, generation, member, retention.
    let commit = [&[0, 1, b'g'][..], &(-1_i32).to_be_bytes(), &[0, 0], &[0xff; 8]].concat();
    let one_topic = [0, 0, 0, 1, 0, 1, b't'];
    let until_count = [
        ("Metadata", header_of(ApiKey::Metadata, 1)),
        ("Fetch", [header_of(ApiKey::Fetch, 4), fetch.clone()].concat()),
        ("Fetch, nested", [&header_of(ApiKey::Fetch, 4)[..], &fetch, &one_topic].concat()),
        ("Produce", [header_of(ApiKey::Produce, 3), produce.clone()].concat()),
        ("Produce, nested", [&header_of(ApiKey::Produce, 3)[..], &produce, &one_topic].concat()),
        ("OffsetCommit", [header_of(ApiKey::OffsetCommit, 2), commit].concat()),
    ];
    for (what, start) in until_count {
        let with = |count: i32| [&start[..], &count.to_be_bytes(), &[0; 3]].concat();
        answers(address, what, &with(0));
        for count in [i32::MAX, 100_000_000, 4] {
            closes(address, &format!("{what}: {count}"), &frame(&with(count)));
        }
        for _ in 0..scaled(TRIES) {
            closes(address, what, &frame(&with(100_000_000)));
        }
    }
    let produce = [&header_of(ApiKey::Produce, 3)[..], &produce, &(-2_i32).to_be_bytes()].concat();
    closes(address, "Produce: -2", &frame(&produce));
}

/// R12
fn a_varint_that_cannot_be_is_closed(address: &str) {
    let with = |tags: &[u8], topics: &[u8], end: &[u8]| {
        // Behind the topics: three times "no".
        [&header_of(ApiKey::Metadata, 9)[..], tags, topics, &[0; 3], end].concat()
    };
    answers(address, "no tags, no topics", &with(&[0], &[1], &[0]));
    answers(address, "an unknown tag in header and body", &with(&[1, 99, 1, 0], &[1], &[1, 99, 1, 0]));
    let tags: [(&str, &[u8]); 5] = [
        ("2^31 tags", &[0x80, 0x80, 0x80, 0x80, 8]),
        ("a tag beyond the frame", &[1, 99, 0xff, 0x7f]),
        ("a tag of 2^32 - 1 bytes", &[1, 99, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("six bytes", &[0xff; 6]),
        ("ten bytes", &[0xff; 10]),
    ];
    for (what, tags) in tags {
        closes(address, &format!("{what} in the header"), &frame(&with(tags, &[1], &[0])));
        closes(address, &format!("{what} in the body"), &frame(&with(&[0], &[1], tags)));
    }
    let topics: [(&str, &[u8]); 3] = [
        ("2^32 - 2 topics", &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("a count that would wrap to none", &[0x81, 0x80, 0x80, 0x80, 0x10]),
        ("a count of ten bytes", &[0xff; 10]),
    ];
    for (what, topics) in topics {
        closes(address, what, &frame(&with(&[0], topics, &[0])));
    }
}

/// R12
fn tags_that_repeat_or_descend_are_closed(address: &str) {
    let with = |tags: &[u8]| [&header_of(ApiKey::Metadata, 9)[..], tags, &[1], &[0; 4]].concat();
    answers(address, "two tags that ascend", &with(&[2, 90, 1, 0, 91, 1, 0]));
    closes(address, "a tag twice", &frame(&with(&[2, 90, 1, 0, 90, 1, 0])));
    closes(address, "tags that descend", &frame(&with(&[2, 91, 1, 0, 90, 1, 0])));
}

/// R13
fn what_follows_a_request_in_its_frame_is_ignored(address: &str) {
    let body = |correlation_id| encode(correlation_id, None, 1, &no_topics()).slice(4..);
    let padded = [&body(100)[..], &[0x55; 1024 * 1024]].concat();
    let glued = [body(200), body(201)].concat();
    let mut connection = Connection::open(address);
    for (tail, id) in [(padded, 100_i32), (glued, 200)] {
        connection.send_frame(&tail);
        let answer = connection.receive_frame().expect("an answer");
        assert_eq!(answer[..4], id.to_be_bytes());
        // Checks that the next bytes are the answer to this request.
        connection.call(1, &no_topics());
    }
}
