//! The versions of the APIs that clients before 0.11 speak, by hand.

use bytes::Bytes;
use protocol_tests::batch::{self, Batch, Codec, Record};
use protocol_tests::messages::{self, Message};
use protocol_tests::{Broker, Connection, wait_for};
use wire::create_topics_request::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use wire::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::fetch_response::PartitionData;
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::list_offsets_response::ListOffsetsPartitionResponse;
use wire::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestTopic};
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::produce_response::PartitionProduceResponse;

/// 2023-11-14.
const T0: i64 = 1_700_000_000_000;
/// What is dated so is older than logs are kept.
const RETAIN: (&str, &str) = ("log.retention.ms", "-1");
/// What a consumer before 0.10 asks for at most.
const FETCH_BYTES: i32 = 1024 * 1024;
const OLD_CODECS: [Codec; 4] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4];

const NONE: i16 = 0;
const CORRUPT_MESSAGE: i16 = 2;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const OFFSET_METADATA_TOO_LARGE: i16 = 12;
const UNSUPPORTED_VERSION: i16 = 35;
const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
const INVALID_RECORD: i16 = 87;

struct Peer {
    broker: Broker,
    connection: Connection,
}

impl Peer {
    fn start() -> Peer {
        Peer::start_with(&[("log.index.interval.bytes", "100"), RETAIN])
    }

    /// Which stores messages of v1.
    fn start_in_an_old_cluster() -> Peer {
        Peer::start_with(&[
            ("inter.broker.protocol.version", "2.8"),
            ("log.message.format.version", "0.10.2"),
            RETAIN,
        ])
    }

    fn start_with(settings: &[(&str, &str)]) -> Peer {
        let broker = Broker::start(settings);
        let connection = Connection::open(&broker.address());
        Peer { broker, connection }
    }

    #[track_caller]
    fn create(&mut self, name: &str, configs: &[(&str, &str)]) {
        let config = |&(name, value): &(&str, &str)| CreatableTopicConfig {
            name: name.into(),
            value: Some(value.into()),
        };
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: 1,
            replication_factor: 1,
            configs: configs.iter().map(config).collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
        let response = self.connection.call(4, &request);
        assert_eq!(response.topics[0].error_code, NONE, "{response:?}");
        wait_for("a leader", || (self.list(1, name, -1, 1).error_code == NONE).then_some(()));
    }

    #[track_caller]
    fn produce(&mut self, version: i16, topic: &str, records: &Bytes) -> PartitionProduceResponse {
        let records = Some(records.clone().into());
        let partition_data = vec![PartitionProduceData { index: 0, records }];
        let topic_data = vec![TopicProduceData { name: topic.into(), partition_data, ..Default::default() }];
        let request = ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data, ..Default::default() };
        self.connection.call(version, &request).responses.remove(0).partition_responses.remove(0)
    }

    #[track_caller]
    fn fetch_at_most(&mut self, version: i16, topic: &str, offset: i64, size: i32) -> PartitionData {
        let partition = FetchPartition {
            partition: 0,
            fetch_offset: offset,
            partition_max_bytes: size,
            ..Default::default()
        };
        let topics =
            vec![FetchTopic { topic: topic.into(), partitions: vec![partition], ..Default::default() }];
        let request = FetchRequest {
            replica_id: -1,
            max_wait_ms: 100,
            min_bytes: 1,
            max_bytes: if version < 3 { i32::MAX } else { 50 << 20 },
            topics,
            ..Default::default()
        };
        self.connection.call(version, &request).responses.remove(0).partitions.remove(0)
    }

    #[track_caller]
    fn fetch(&mut self, version: i16, topic: &str, offset: i64) -> PartitionData {
        self.fetch_at_most(version, topic, offset, FETCH_BYTES)
    }

    /// What an old consumer reads from `offset` on.
    #[track_caller]
    fn messages(&mut self, version: i16, topic: &str, offset: i64) -> Vec<Message> {
        let answer = self.fetch(version, topic, offset);
        assert_eq!(answer.error_code, NONE);
        messages::read(&records(answer))
    }

    #[track_caller]
    fn list(
        &mut self,
        version: i16,
        topic: &str,
        timestamp: i64,
        count: i32,
    ) -> ListOffsetsPartitionResponse {
        let partition = ListOffsetsPartition {
            partition_index: 0,
            timestamp,
            max_num_offsets: count,
            ..Default::default()
        };
        let topics = vec![ListOffsetsTopic { name: topic.into(), partitions: vec![partition] }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        self.connection.call(version, &request).topics.remove(0).partitions.remove(0)
    }
}

fn records(answer: PartitionData) -> Bytes {
    match answer.records {
        Some(wire::Records::Bytes(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn old_producers_and_new_consumers_meet() {
    let mut peer = Peer::start();
    peer.create("up", &[]);
    let mut end = 0;
    for version in 0..3 {
        for magic in [0, 1] {
            for codec in OLD_CODECS {
                let sent = Message::of(magic, "k", 5, T0);
                let answer = peer.produce(version, "up", &messages::encode(&sent, codec));
                assert_eq!((answer.error_code, answer.base_offset), (NONE, end), "v{version} {codec:?}");
                let fetched = batch::read(&records(peer.fetch(4, "up", end)));
                assert_eq!((fetched[0].base_offset, fetched[0].codec), (end, codec));
                let found: Vec<_> = fetched[0].records.iter().map(|r| (r.timestamp, &r.key)).collect();
                let expected: Vec<_> = sent.iter().map(|m| (m.timestamp, &m.key)).collect();
                assert_eq!(found, expected, "v{version} {codec:?}");
                end += 5;
            }
        }
    }
    // An empty set is a success that appends nothing.
    let answer = peer.produce(2, "up", &Bytes::new());
    assert_eq!((answer.error_code, answer.base_offset), (NONE, -1));
    // Before version 3 the format is not asked for.
    let answer = peer.produce(0, "up", &Batch::of("k", 2, T0).encode());
    assert_eq!((answer.error_code, answer.base_offset), (NONE, end));
}

/// C015
#[test]
fn old_consumers_get_messages_of_their_time() {
    let mut peer = Peer::start();
    peer.create("down", &[]);
    let header = ("h".to_owned(), Some(Bytes::from_static(b"x")));
    for codec in OLD_CODECS {
        let mut batch = Batch::of("k", 10, T0).with_codec(codec);
        batch.records.iter_mut().for_each(|record| record.headers = vec![header.clone(), header.clone()]);
        batch.records[3].key = None;
        batch.records[4].value = None;
        let base = peer.produce(3, "down", &batch.encode()).base_offset;
        for version in 0..4 {
            let magic = if version < 2 { 0 } else { 1 };
            let found = peer.messages(version, "down", base + 4);
            let from = if codec == Codec::None { 4 } else { 0 };
            let expected: Vec<Message> = batch.records[from..]
                .iter()
                .map(|record| Message {
                    magic,
                    offset: base + i64::from(record.offset_delta),
                    timestamp: if magic == 0 { -1 } else { record.timestamp },
                    key: record.key.clone(),
                    value: record.value.clone(),
                })
                .collect();
            assert_eq!(found, expected, "v{version} {codec:?}");
        }
    }
    assert_eq!(peer.messages(1, "down", 40), []);
    let answer = peer.fetch(1, "down", 41);
    assert_eq!(answer.error_code, 1, "beyond the end");
}

/// C007
#[test]
fn many_batches_are_converted_to_the_end() {
    let mut peer = Peer::start();
    peer.create("many", &[("segment.bytes", "20000")]);
    let mut expected = 0;
    for round in 0..60 {
        let codec = OLD_CODECS[round % 4];
        let mut batch = Batch::of("k", 40, T0).with_codec(codec);
        let value = Bytes::from("value ".repeat(10 + round));
        batch.records.iter_mut().for_each(|record| record.value = Some(value.clone()));
        assert_eq!(peer.produce(7, "many", &batch.encode()).base_offset, expected);
        expected += 40;
    }
    for version in 0..4 {
        for size in [100, 5_000, 100_000, FETCH_BYTES] {
            let mut next = 0;
            while next < expected {
                let answer = peer.fetch_at_most(version, "many", next, size);
                assert_eq!(answer.error_code, NONE, "v{version} at {next} with {size} bytes");
                let bytes = records(answer);
                if version < 3 && bytes.is_empty() {
                    // The batch is larger than the limit, which is a hard one until then.
                    let stored = records(peer.fetch(4, "many", next));
                    let batch_size = 12 + i32::from_be_bytes(stored[8..12].try_into().unwrap());
                    assert!(batch_size > size, "v{version} has {batch_size} bytes at {next}");
                    next += 40;
                    continue;
                }
                let found = messages::read(&bytes);
                let fresh: Vec<i64> =
                    found.iter().map(|message| message.offset).filter(|offset| *offset >= next).collect();
                assert!(!fresh.is_empty(), "v{version} goes on behind {next} with {size} bytes");
                let consecutive: Vec<i64> = (next..).take(fresh.len()).collect();
                assert_eq!(fresh, consecutive);
                next += fresh.len() as i64;
            }
        }
    }
}

#[test]
fn what_cannot_be_converted_is_said() {
    let mut peer = Peer::start();
    peer.create("zstd", &[]);
    peer.produce(7, "zstd", &Batch::of("k", 3, T0).encode());
    peer.produce(7, "zstd", &Batch::of("k", 3, T0).with_codec(Codec::Zstd).encode());
    for version in 0..4 {
        // First what can be shown, then the reason why there is no more.
        assert_eq!(peer.messages(version, "zstd", 0).len(), 3);
        assert_eq!(peer.fetch(version, "zstd", 3).error_code, UNSUPPORTED_COMPRESSION_TYPE);
    }
    peer.create("off", &[("message.downconversion.enable", "false")]);
    peer.produce(7, "off", &Batch::of("k", 3, T0).encode());
    assert_eq!(peer.fetch(3, "off", 0).error_code, UNSUPPORTED_VERSION);
    assert_eq!(peer.fetch(4, "off", 0).error_code, NONE);
}

/// R16, R17
#[test]
fn damaged_and_nested_sets_are_refused() {
    let mut peer = Peer::start();
    peer.create("bad", &[]);
    for magic in [0, 1] {
        let messages = Message::of(magic, "k", 3, T0);
        let good = messages::encode(&messages, Codec::None);
        let flip = |bytes: &Bytes| {
            let mut flipped = bytes.to_vec();
            *flipped.last_mut().unwrap() ^= 1;
            Bytes::from(flipped)
        };
        let wrap = |bytes: &[u8]| messages::wrap(&messages[0], Codec::Gzip, bytes);
        let mut nested = good.clone();
        for _ in 0..100 {
            nested = wrap(&nested);
        }
        for (records, code) in [
            (flip(&good), CORRUPT_MESSAGE),
            (flip(&messages::encode(&messages, Codec::Gzip)), CORRUPT_MESSAGE),
            (wrap(&flip(&good)), CORRUPT_MESSAGE),
            (nested, INVALID_RECORD),
            (wrap(&[]), INVALID_RECORD),
        ] {
            assert_eq!(peer.produce(1, "bad", &records).error_code, code);
        }
    }
    assert_eq!(peer.list(1, "bad", -1, 1).offset, 0, "nothing was appended");
}

/// C012
#[test]
fn list_offsets_0_gives_where_segments_begin() {
    let mut peer = Peer::start();
    peer.create("listed", &[("segment.bytes", "1000")]);
    let batch = Batch::of("k", 10, T0).encode();
    for _ in 0..9 {
        peer.produce(7, "listed", &batch);
    }
    let all = peer.list(0, "listed", -1, 100).old_style_offsets;
    assert_eq!((all.first(), all.last()), (Some(&90), Some(&0)));
    assert!(all.len() >= 3 && all.is_sorted_by(|a, b| a > b), "{all:?}");
    assert_eq!(peer.list(0, "listed", -1, 2).old_style_offsets, all[..2]);
    assert_eq!(peer.list(0, "listed", -2, 2).old_style_offsets, [0]);
    assert_eq!(peer.list(0, "listed", -1, 0).old_style_offsets, []);
    // By the time of the files, which all were written just now.
    assert_eq!(peer.list(0, "listed", 1_000, 5).old_style_offsets, []);
    assert_eq!(peer.list(0, "listed", i64::MAX, 1).old_style_offsets, [90]);
    for version in 1..=9 {
        let latest = peer.list(version, "listed", -1, 1);
        assert_eq!(latest.offset, 90);
        assert_eq!(latest.leader_epoch >= 0, version >= 4, "v{version}");
        assert_eq!(peer.list(version, "listed", T0 + 3, 1).offset, 3);
    }
    assert_eq!(peer.list(0, "missing", -1, 1).error_code, UNKNOWN_TOPIC_OR_PARTITION);
}

/// C017: a strict decoder of each version's layout finds no byte too many; the throttle time is where it belongs.
#[test]
fn old_layouts_have_their_length() {
    let mut peer = Peer::start();
    peer.create("t", &[]);
    let set = messages::encode(&Message::of(0, "k", 1, T0), Codec::None);
    for version in 0..3 {
        let partition_data = vec![PartitionProduceData { index: 0, records: Some(set.clone().into()) }];
        let topic_data = vec![TopicProduceData { name: "t".into(), partition_data, ..Default::default() }];
        let request = ProduceRequest { acks: 1, timeout_ms: 1_000, topic_data, ..Default::default() };
        peer.connection.send(version, &request);
        let frame = peer.connection.receive_frame().unwrap();
        // Correlation, topics, name, partitions, index, code, offset; then append time, then throttle time.
        let expected = 4 + 4 + 3 + 4 + 4 + 2 + 8 + [0, 4, 12][version as usize];
        assert_eq!(frame.len(), expected, "produce v{version}");
    }
    for version in 0..4 {
        let topics = vec![FetchTopic {
            topic: "t".into(),
            partitions: vec![FetchPartition { fetch_offset: 3, ..Default::default() }],
            ..Default::default()
        }];
        peer.connection.send(version, &FetchRequest { replica_id: -1, topics, ..Default::default() });
        let frame = peer.connection.receive_frame().unwrap();
        let expected = 4 + if version == 0 { 0 } else { 4 } + 4 + 3 + 4 + 4 + 2 + 8 + 4;
        assert_eq!(frame.len(), expected, "fetch v{version}");
    }
}

/// KAFKA-1841
#[test]
fn offsets_of_old_groups_are_kept_apart() {
    let mut peer = Peer::start();
    peer.create("t", &[]);
    let commit = |peer: &mut Peer, version, topic: &str, offset, metadata: &str| {
        let partitions = vec![OffsetCommitRequestPartition {
            partition_index: 0,
            committed_offset: offset,
            committed_metadata: Some(metadata.into()),
            ..Default::default()
        }];
        let topics = vec![OffsetCommitRequestTopic { name: topic.into(), partitions, ..Default::default() }];
        let request = OffsetCommitRequest { group_id: "g".into(), topics, ..Default::default() };
        peer.connection.call(version, &request).topics[0].partitions[0].error_code
    };
    let fetch = |peer: &mut Peer, version, topic: &str| {
        let topics = vec![OffsetFetchRequestTopic { name: topic.into(), partition_indexes: vec![0] }];
        let request = OffsetFetchRequest { group_id: "g".into(), topics: Some(topics), ..Default::default() };
        let found = peer.connection.call(version, &request).topics.remove(0).partitions.remove(0);
        (found.error_code, found.committed_offset, found.metadata.unwrap().to_string())
    };
    let nothing = |code| (code, -1, String::new());
    assert_eq!(fetch(&mut peer, 0, "t"), nothing(UNKNOWN_TOPIC_OR_PARTITION));
    let find = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
    wait_for("the coordinator", || (peer.connection.call(0, &find).error_code == NONE).then_some(()));
    wait_for("the coordinator", || (commit(&mut peer, 1, "t", 20, "m") == NONE).then_some(()));
    assert_eq!(fetch(&mut peer, 1, "t"), (NONE, 20, "m".to_owned()));
    assert_eq!(commit(&mut peer, 0, "t", 10, "m"), NONE);
    assert_eq!(commit(&mut peer, 0, "t", 7, "m"), NONE);
    assert_eq!(fetch(&mut peer, 0, "t"), (NONE, 7, String::new()));
    assert_eq!(fetch(&mut peer, 1, "t"), (NONE, 20, "m".to_owned()));
    assert_eq!(commit(&mut peer, 0, "t", 7, &"m".repeat(5_000)), OFFSET_METADATA_TOO_LARGE);
    assert_eq!(commit(&mut peer, 0, "missing", 7, ""), UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(fetch(&mut peer, 0, "missing"), nothing(UNKNOWN_TOPIC_OR_PARTITION));
    if peer.broker.server().is_barnabas() {
        peer.broker.restart();
        peer.connection = Connection::open(&peer.broker.address());
        assert_eq!(fetch(&mut peer, 0, "t"), (NONE, 7, String::new()));
    }
}

/// A cluster that is upgraded from 0.10 stores what its consumers read.
#[test]
fn an_old_message_format_is_heeded_in_an_old_cluster() {
    let mut peer = Peer::start_in_an_old_cluster();
    peer.create("old", &[("segment.bytes", "2000")]);
    peer.create("new", &[("message.format.version", "2.8")]);
    let mut end = 0;
    for round in 0..20 {
        let codec = OLD_CODECS[round % 4];
        let answer = match round % 3 {
            0 => peer.produce(7, "old", &Batch::of("k", 5, T0).with_codec(codec).encode()),
            magic => {
                let sent = Message::of(magic as i8 - 1, "k", 5, T0);
                peer.produce(2, "old", &messages::encode(&sent, codec))
            }
        };
        assert_eq!((answer.error_code, answer.base_offset), (NONE, end));
        end += 5;
    }
    peer.broker.restart();
    peer.connection = Connection::open(&peer.broker.address());
    for version in [2, 3, 4, 11] {
        let mut next = 0;
        while next < end {
            let found = peer.messages(version, "old", next);
            let fresh: Vec<&Message> = found.iter().filter(|message| message.offset >= next).collect();
            assert!(fresh.iter().all(|message| message.magic == 1), "stored as v1");
            assert_eq!(fresh[0].offset, next, "v{version}");
            next = fresh.last().unwrap().offset + 1;
        }
    }
    assert_eq!(peer.messages(1, "old", 10)[0].magic, 0);
    assert_eq!(peer.list(1, "old", T0 + 2, 1).offset, 2);
    let answer = peer.produce(7, "new", &Batch::of("k", 5, T0).encode());
    assert_eq!(answer.error_code, NONE);
    assert_eq!(batch::read(&records(peer.fetch(4, "new", 0))).len(), 1);
    let with_header = Record { headers: vec![("h".to_owned(), None)], ..Record::new(0, T0, "k", "v") };
    let refused = peer.produce(7, "old", &Batch { records: vec![with_header], ..Batch::default() }.encode());
    assert_ne!(refused.error_code, NONE);
}

/// C007: what is not converted is cut where the limit is, so that clients can tell that they have to ask for more.
#[test]
fn the_beginning_of_a_message_says_that_the_limit_is_too_small() {
    let mut peer = Peer::start_in_an_old_cluster();
    peer.create("cut", &[]);
    let mut sent = Message::of(1, "k", 3, T0);
    sent[1].value = Some(Bytes::from(vec![b'v'; 1_000]));
    assert_eq!(peer.produce(2, "cut", &messages::encode(&sent, Codec::None)).error_code, NONE);
    let whole = records(peer.fetch(2, "cut", 1));
    let first = 12 + i32::from_be_bytes(whole[8..12].try_into().unwrap()) as usize;
    for size in [0, 5, 20, 1_000, first, whole.len()] {
        let found = records(peer.fetch_at_most(2, "cut", 1, size as i32));
        if size < first {
            assert_eq!(found, whole[..size], "{size} bytes");
        } else {
            assert_eq!(messages::read(&found).len(), if size == first { 1 } else { 2 });
        }
    }
    // From version 3 on, and where messages are converted, there is no such beginning.
    assert_eq!(records(peer.fetch_at_most(3, "cut", 1, 20)), whole[..first]);
    assert_eq!(records(peer.fetch_at_most(1, "cut", 1, 20)), Bytes::new());
}
