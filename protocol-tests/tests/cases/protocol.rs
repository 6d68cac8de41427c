//! Versions, layouts, fetches.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol_tests::batch::{Batch, Codec, Record};
use protocol_tests::requests::{fetch_request, produce_request, record_bytes, values};
use protocol_tests::{Broker, CallError, Connection, batch};
use wire::api_versions_request::ApiVersionsRequest;
use wire::delete_topics_request::DeleteTopicsRequest;
use wire::fetch_request::FetchRequest;
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::metadata_request::{MetadataRequest, MetadataRequestTopic};
use wire::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use wire::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use wire::{ApiKey, Request, Uuid};

use crate::{T0, code};

const TOPIC: &str = "cases";

fn offered(connection: &mut Connection) -> BTreeMap<i16, RangeInclusive<i16>> {
    let response = connection.call(0, &ApiVersionsRequest::default());
    response.api_keys.iter().map(|api| (api.api_key, api.min_version..=api.max_version)).collect()
}

/// C004
#[test]
fn versions_that_name_topics_by_id_come_with_metadata_that_tells_ids() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    let offered = offered(&mut connection);
    let newest = |api: ApiKey| offered.get(&(api as i16)).map_or(-1, |versions| *versions.end());
    let uses_ids = newest(ApiKey::Fetch) >= 13
        || newest(ApiKey::Produce) >= 13
        || newest(ApiKey::OffsetCommit).max(newest(ApiKey::OffsetFetch)) >= 10;
    assert!(uses_ids && newest(ApiKey::Metadata) >= 10);
    connection.create_topic(TOPIC, 1, &[]);
    connection.wait_for_coordinator("any");
    let all = MetadataRequest { topics: None, ..Default::default() };
    for version in 10..=newest(ApiKey::Metadata) {
        let topics = connection.call(version, &all).topics;
        assert_eq!(topics.len(), 2, "{topics:?}");
        assert!(topics.iter().all(|topic| topic.topic_id != Uuid::default()), "v{version}: {topics:?}");
    }
    let known =
        connection.call(12, &all).topics.into_iter().find(|topic| topic.name.as_deref() == Some(TOPIC));
    connection.append(TOPIC, 0, &Batch::of("k", 3, T0));
    let mut by_id = fetch_request("", &[(0, 0)], 1 << 20);
    by_id.topics[0].topic_id = known.expect("the topic").topic_id;
    for version in 13..=newest(ApiKey::Fetch) {
        let answer = &connection.call(version, &by_id).responses[0].partitions[0];
        assert_eq!(batch::read(&record_bytes(answer)).len(), 1, "v{version}");
    }
}

/// C005
#[test]
fn all_topics_and_no_topics_are_told_apart_in_each_version() {
    let broker = Broker::start(&[("auto.create.topics.enable", "false")]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("a", 1, &[]);
    connection.create_topic("b", 2, &[]);
    let newest = *offered(&mut connection)[&(ApiKey::Metadata as i16)].end();
    for version in 0..=newest {
        let none = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
        let answer = connection.call(version, &none);
        assert_eq!(answer.topics.len(), if version == 0 { 2 } else { 0 }, "v{version}: an empty list");
        assert_eq!(answer.brokers.len(), 1, "v{version}");
        if version >= 1 {
            assert_eq!(answer.controller_id, 1, "v{version}");
            let all = MetadataRequest { topics: None, ..Default::default() };
            assert_eq!(connection.call(version, &all).topics.len(), 2, "v{version}: null");
        }
        if version >= 2 {
            assert!(answer.cluster_id.is_some_and(|id| !id.is_empty()), "v{version}");
        }
        let missing = MetadataRequestTopic { name: Some("missing".into()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![missing]), ..Default::default() };
        let topics = connection.call(version, &request).topics;
        assert_eq!(topics.len(), 1, "v{version}");
        let found = (topics[0].error_code, topics[0].partitions.len(), topics[0].is_internal);
        assert_eq!(found, (code::UNKNOWN_TOPIC_OR_PARTITION, 0, false), "v{version}");
    }
}

fn large_record(size: usize) -> Batch {
    let record = Record { value: Some(Bytes::from(vec![b'x'; size])), timestamp: T0, ..Record::default() };
    Batch { records: vec![record], ..Batch::default() }
}

/// C007
#[test]
fn a_batch_larger_than_the_limits_is_returned_when_it_is_the_first() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 3, &[("max.message.bytes", "5242880")]);
    for partition in [1, 2] {
        connection.append(TOPIC, partition, &large_record(3 << 20));
    }
    let request = fetch_request(TOPIC, &[(0, 0), (1, 0), (2, 0)], 1024);
    for version in 4..=12 {
        let partitions = connection.call(version, &request).responses.remove(0).partitions;
        let sizes: Vec<usize> = partitions.iter().map(|partition| record_bytes(partition).len()).collect();
        assert_eq!(partitions.len(), 3, "v{version}");
        assert!(sizes[0] == 0 && sizes[1] > 3 << 20 && sizes[2] == 0, "v{version}: {sizes:?}");
        assert_eq!(batch::read(&record_bytes(&partitions[1])).len(), 1, "v{version}");
    }
}

fn in_session(session_id: i32, session_epoch: i32, mut request: FetchRequest) -> FetchRequest {
    (request.session_id, request.session_epoch) = (session_id, session_epoch);
    request
}

/// C008
#[test]
fn a_fetch_session_that_is_refused_still_answers_with_records() {
    let broker = Broker::start(&[("max.incremental.fetch.session.cache.slots", "2")]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    connection.append(TOPIC, 0, &Batch::of("k", 3, T0));
    let full = in_session(0, 0, fetch_request(TOPIC, &[(0, 0)], 1 << 20));
    let opened: Vec<i32> = (0..3)
        .map(|_| {
            let response = connection.call(11, &full);
            assert_eq!(batch::read(&record_bytes(&response.responses[0].partitions[0])).len(), 1);
            response.session_id
        })
        .collect();
    assert!(opened[0] != 0 && opened[1] != 0 && opened[2] == 0, "{opened:?}");
    let empty = |id, epoch| in_session(id, epoch, FetchRequest::default());
    let unknown = connection.call(11, &empty(opened[0].wrapping_add(12_345), 1));
    assert_eq!(unknown.error_code, code::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(connection.call(11, &empty(opened[0], 9)).error_code, code::INVALID_FETCH_SESSION_EPOCH);
}

/// C008
#[test]
fn an_incremental_fetch_without_news_waits() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    let full = in_session(0, 0, fetch_request(TOPIC, &[(0, 0)], 1 << 20));
    let session_id = connection.call(11, &full).session_id;
    assert_ne!(session_id, 0);
    let waiting = FetchRequest { max_wait_ms: 500, min_bytes: 1, max_bytes: 1 << 20, ..Default::default() };
    let started = Instant::now();
    let response = connection.call(11, &in_session(session_id, 1, waiting));
    assert!(started.elapsed() >= Duration::from_millis(480), "answered after {:?}", started.elapsed());
    assert_eq!((response.error_code, response.responses.len()), (0, 0));
}

/// C008
#[test]
fn every_partition_of_a_session_gets_its_turn() {
    const PARTITIONS: i32 = 20;
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, PARTITIONS, &[]);
    for partition in 0..PARTITIONS {
        for _ in 0..3 {
            connection.append(TOPIC, partition, &large_record(90_000));
        }
    }
    let from_start: Vec<(i32, i64)> = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
    let limited = |positions: &[(i32, i64)]| {
        let mut request = fetch_request(TOPIC, positions, 100_000);
        request.max_bytes = 200_000;
        request
    };
    let mut response = connection.call(11, &in_session(0, 0, limited(&from_start)));
    let session_id = response.session_id;
    let mut seen = BTreeSet::new();
    for epoch in 1..=40 {
        let mut moved = Vec::new();
        for partition in &response.responses[0].partitions {
            let records = batch::read(&record_bytes(partition)).len() as i64;
            let is_new = !moved.iter().any(|(index, _)| *index == partition.partition_index);
            assert!(is_new, "partition {} twice in an answer", partition.partition_index);
            if records > 0 {
                let offset = batch::read(&record_bytes(partition))[0].base_offset + records;
                moved.push((partition.partition_index, offset));
                seen.insert(partition.partition_index);
            }
        }
        if seen.len() == PARTITIONS as usize {
            return;
        }
        response = connection.call(11, &in_session(session_id, epoch, limited(&moved)));
        assert_eq!(response.error_code, 0);
    }
    panic!("after 40 fetches only {seen:?} have had their turn");
}

/// C009, as far as one broker can show it: what a fetch may be told of a topic that comes and goes.
#[test]
fn a_fetch_of_a_topic_that_comes_and_goes_is_told_codes_that_clients_expect() {
    let mut broker = Broker::start(&[]);
    let address = broker.address();
    let mut admin = Connection::open(&address);
    let mut codes = BTreeSet::new();
    for _ in 0..10 {
        admin.create_topic(TOPIC, 2, &[]);
        admin.append(TOPIC, 0, &Batch::of("k", 3, T0));
        let mut fetcher = Connection::open(&address);
        let delete =
            DeleteTopicsRequest { topic_names: vec![TOPIC.into()], timeout_ms: 30_000, ..Default::default() };
        let deletion = admin.send(3, &delete);
        for version in [4, 11, 12, 4, 11, 12] {
            for partition in
                &fetcher.call(version, &fetch_request(TOPIC, &[(0, 0), (1, 0)], 1000)).responses[0].partitions
            {
                codes.insert(partition.error_code);
            }
        }
        let deleted = admin.receive::<DeleteTopicsRequest>(3, deletion).expect("an answer");
        assert_eq!(deleted.responses[0].error_code, 0);
    }
    admin.create_topic(TOPIC, 1, &[]);
    broker.restart();
    let mut connection = Connection::open(&address);
    codes.insert(connection.fetch_partition(TOPIC, 0, 0).error_code);
    let expected = [0, 1, 3, 5, 6, 9, 56, 74, 75, 78, 100, 103];
    assert!(codes.iter().all(|code| expected.contains(code)), "{codes:?}");
}

/// C010
#[test]
fn a_fetch_inside_a_batch_begins_with_that_batch() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    for codec in Codec::ALL {
        let name = format!("{codec:?}");
        connection.create_topic(&name, 1, &[]);
        for prefix in ["a", "b"] {
            connection.append(&name, 0, &Batch::of(prefix, 2, T0).with_codec(codec));
        }
        for (offset, base) in [(0, 0), (1, 0), (2, 2), (3, 2)] {
            let found = connection.fetch(&name, 0, offset);
            assert_eq!(found[0].base_offset, base, "{codec:?} at {offset}");
            assert_eq!(found.last().map(|batch| batch.base_offset), Some(2), "{codec:?} at {offset}");
        }
        assert_eq!(values(&connection.fetch(&name, 0, 1)), ["a-0", "a-1", "b-0", "b-1"], "{codec:?}");
    }
}

/// C012, from version 1 on.
#[test]
fn offsets_are_listed_in_the_layout_of_each_version() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    let versions = offered(&mut connection)[&(ApiKey::ListOffsets as i16)].clone();
    connection.create_topic(TOPIC, 1, &[("segment.bytes", "2000")]);
    for _ in 0..3 {
        connection.append(TOPIC, 0, &large_record(1500));
    }
    for version in versions.filter(|version| *version >= 1) {
        for (timestamp, offset) in [(-1, 3), (-2, 0), (T0, 0), (T0 + 1, -1)] {
            let partition = ListOffsetsPartition { timestamp, ..Default::default() };
            let topics = vec![ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] }];
            let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
            let response = connection.call(version, &request);
            let answer = &response.topics[0].partitions[0];
            assert_eq!((answer.error_code, answer.offset), (0, offset), "v{version} at {timestamp}");
            let has_epoch = version >= 4 && offset >= 0;
            assert_eq!(answer.leader_epoch >= 0, has_epoch, "v{version} at {timestamp}: {answer:?}");
        }
    }
}

/// C014, as far as one broker can show it: alone it never begins a new epoch.
#[test]
fn an_epoch_that_has_not_been_has_no_end() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    for _ in 0..20 {
        connection.append(TOPIC, 0, &Batch::of("k", 1, T0));
    }
    let current = connection.metadata(Some(TOPIC)).topics[0].partitions[0].leader_epoch;
    for (epoch, expected) in [(current, (current, 20)), (current + 7, (-1, -1)), (-1, (-1, -1))] {
        let answer = end_of_epoch(&mut connection, epoch, -1);
        assert_eq!(answer, (code::NONE, expected.0, expected.1), "the end of epoch {epoch}");
    }
    assert_eq!(end_of_epoch(&mut connection, current, current).0, code::NONE);
    assert_eq!(end_of_epoch(&mut connection, current, current + 1).0, code::UNKNOWN_LEADER_EPOCH);
}

/// Error code, epoch and end offset.
fn end_of_epoch(
    connection: &mut Connection,
    leader_epoch: i32,
    current_leader_epoch: i32,
) -> (i16, i32, i64) {
    let partition = OffsetForLeaderPartition { leader_epoch, current_leader_epoch, ..Default::default() };
    let topics = vec![OffsetForLeaderTopic { topic: TOPIC.into(), partitions: vec![partition] }];
    let response = connection.call(3, &OffsetForLeaderEpochRequest { replica_id: -1, topics });
    let answer = &response.topics[0].partitions[0];
    (answer.error_code, answer.leader_epoch, answer.end_offset)
}

/// The key of each request and a function that sends its default.
macro_rules! requests {
    ($($kind:ident $name:ident;)*) => {{
        let mut found: BTreeMap<i16, AskDefault> = BTreeMap::new();
        $(add_request!(found, $kind $name);)*
        found
    }};
}

macro_rules! add_request {
    ($found:ident, request $name:ident) => {
        $found.insert(<wire::$name as Request>::KEY as i16, ask_default::<wire::$name>)
    };
    ($found:ident, $kind:ident $name:ident) => {};
}

type AskDefault = fn(&mut Connection, i16) -> Result<(), CallError>;

fn ask_default<R: Request>(connection: &mut Connection, version: i16) -> Result<(), CallError> {
    connection.try_call(version, &R::default()).map(drop)
}

/// C017. What holds something is asked by the comparison with real Kafka, which decodes as strictly.
#[test]
fn every_version_on_offer_answers_in_its_own_layout() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    every_version_of_produce_is_answered(&mut connection);
    let requests = wire::for_every_message!(requests);
    for (key, versions) in offered(&mut connection) {
        // The default of acks is 0, which has no answer.
        if key == ApiKey::Produce as i16 {
            continue;
        }
        let ask = requests.get(&key).unwrap_or_else(|| panic!("API {key} has no request"));
        for version in versions {
            if let Err(error) = ask(&mut connection, version) {
                panic!("API {key} v{version}: {error:?}");
            }
        }
    }
}

fn every_version_of_produce_is_answered(connection: &mut Connection) {
    connection.create_topic(TOPIC, 1, &[]);
    for version in 3..=12 {
        let request = produce_request(TOPIC, 1, vec![(0, Batch::of("k", 1, T0).encode())]);
        let response = connection.call(version, &request);
        assert_eq!(response.responses[0].partition_responses[0].error_code, 0, "Produce v{version}");
    }
}

/// C017
#[test]
fn an_offset_that_was_never_committed_has_empty_metadata() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    connection.wait_for_coordinator("nobody");
    for version in 1..=7 {
        let topic = OffsetFetchRequestTopic { name: TOPIC.into(), partition_indexes: vec![0] };
        let request =
            OffsetFetchRequest { group_id: "nobody".into(), topics: Some(vec![topic]), ..Default::default() };
        let response = connection.call(version, &request);
        let answer = &response.topics[0].partitions[0];
        let found = (answer.error_code, answer.committed_offset, answer.committed_leader_epoch);
        assert_eq!((found, answer.metadata.as_deref()), ((0, -1, -1), Some("")), "v{version}");
    }
    for version in 8..=9 {
        let topic =
            OffsetFetchRequestTopics { name: TOPIC.into(), partition_indexes: vec![0], ..Default::default() };
        let group = OffsetFetchRequestGroup {
            group_id: "nobody".into(),
            topics: Some(vec![topic]),
            ..Default::default()
        };
        let response =
            connection.call(version, &OffsetFetchRequest { groups: vec![group], ..Default::default() });
        let answer = &response.groups[0].topics[0].partitions[0];
        let found = (answer.error_code, answer.committed_offset, answer.committed_leader_epoch);
        assert_eq!((found, answer.metadata.as_deref()), ((0, -1, -1), Some("")), "v{version}");
    }
}

/// C019
#[test]
fn a_batch_whose_counts_do_not_fit_is_refused_and_the_other_partition_is_stored() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 2, &[]);
    let good = Batch::of("k", 3, T0);
    let mut gap = good.clone().with_codec(Codec::Gzip);
    gap.records[2].offset_delta = 7;
    let two = [good.encode(), Batch::of("l", 1, T0).encode()].concat();
    let wrong = [
        ("more counted than there are", Batch { record_count: Some(5), ..good.clone() }.encode()),
        ("fewer counted than there are", Batch { record_count: Some(2), ..good.clone() }.encode()),
        ("last offset", Batch { last_offset_delta: Some(5), ..good.clone() }.encode()),
        ("record past the batch", good.encode_with(&[0xfe, 0x0f, 0, 0, 0, 0, 0, 0])),
        ("negative count", Batch { record_count: Some(-3), ..good.clone() }.encode()),
        ("gap in a compressed batch", gap.encode()),
        ("two batches", Bytes::from(two)),
    ];
    for version in 3..=12 {
        for (what, records) in &wrong {
            let ends = [0, 1].map(|partition| connection.log_end(TOPIC, partition));
            let request = produce_request(TOPIC, -1, vec![(0, records.clone()), (1, good.encode())]);
            let mut answers = connection.call(version, &request).responses.remove(0).partition_responses;
            answers.sort_by_key(|partition| partition.index);
            let is_refused = [code::CORRUPT_MESSAGE, code::INVALID_RECORD].contains(&answers[0].error_code);
            assert!(is_refused, "v{version} {what}: {:?}", answers[0]);
            assert_eq!(answers[1].error_code, code::NONE, "v{version} {what}");
            assert_eq!(connection.log_end(TOPIC, 0), ends[0], "v{version} {what}");
            assert_eq!(connection.log_end(TOPIC, 1), ends[1] + 3, "v{version} {what}");
        }
    }
}

/// redpanda#11358
#[test]
fn unknown_tags_are_skipped() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    let large_tag = |tag: u8| [&[1, tag, 0xac, 0x02][..], &[0x5a; 300]].concat();
    // Metadata v9 without client id: header tags, no topics, two times "no" and one for the cluster, body tags.
    let header = [0, 3, 0, 9, 0, 0, 0, 7, 0xff, 0xff];
    let body = [&header[..], &large_tag(90), &[1, 0, 0, 0], &large_tag(91)].concat();
    connection.send_frame(&body);
    let answer = connection.receive_frame().expect("an answer");
    assert_eq!(answer[..4], [0, 0, 0, 7]);
}

/// WarpStream
#[test]
fn fetch_limits_count_stored_bytes() {
    const LIMIT: usize = 100_000;
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    // Noise ten times over: stored, it is little more than the noise.
    let mut random = fastrand::Rng::with_seed(1);
    let noise: Vec<u8> = (0..2_000).map(|_| random.u8(..)).collect();
    let record = Record { value: Some(noise.repeat(10).into()), timestamp: T0, ..Record::default() };
    let batch = Batch { records: vec![record], codec: Codec::Gzip, ..Batch::default() };
    let size = batch.encode().len();
    assert!((2_000..4_000).contains(&size), "{size} bytes");
    for _ in 0..2 * LIMIT / size {
        connection.append(TOPIC, 0, &batch);
    }
    let response = connection.call(11, &fetch_request(TOPIC, &[(0, 0)], LIMIT as i32));
    let found = record_bytes(&response.responses[0].partitions[0]).len();
    assert!(found > LIMIT - size && found <= LIMIT + size, "{found} bytes");
}

/// The order of answers is that of the requests, also where the first has to wait.
#[test]
fn pipelined_requests_are_answered_in_order() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    let mut waiting = fetch_request(TOPIC, &[(0, 0)], 1000);
    (waiting.max_wait_ms, waiting.min_bytes) = (300, 1);
    let first = connection.send(11, &waiting);
    let second = connection.send(0, &ApiVersionsRequest::default());
    connection.receive::<FetchRequest>(11, first).expect("the answer to the fetch");
    connection.receive::<ApiVersionsRequest>(0, second).expect("the answer behind it");
}
