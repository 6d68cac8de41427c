//! Produce and InitProducerId.

use bytes::Bytes;
use protocol_tests::batch::{Batch, Codec, Record};
use wire::init_producer_id_request::InitProducerIdRequest;
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::{ApiKey, Uuid};

use super::{COMPACT, EMPTY, FILLED, MISSING};
use crate::session::{Case, Session, T0};

pub const CASES: &[Case] = &[
    Case { name: "good", api: ApiKey::Produce, versions: 3..=13, run: good },
    Case { name: "bad batches", api: ApiKey::Produce, versions: 3..=13, run: bad_batches },
    Case { name: "bad requests", api: ApiKey::Produce, versions: 3..=13, run: bad_requests },
    Case { name: "limits", api: ApiKey::Produce, versions: 3..=13, run: limits },
    Case { name: "idempotent", api: ApiKey::Produce, versions: 3..=13, run: idempotent },
    Case { name: "all", api: ApiKey::InitProducerId, versions: 0..=5, run: init_producer_id },
];

/// Records for some partitions of one topic.
struct To<'a> {
    topic: &'a str,
    partitions: Vec<(i32, Option<Bytes>)>,
}

fn to(topic: &str, records: Bytes) -> To<'_> {
    To { topic, partitions: vec![(0, Some(records))] }
}

fn request(session: &mut Session, version: i16, acks: i16, to: To<'_>) -> ProduceRequest {
    let partition = |(index, records): (i32, Option<Bytes>)| PartitionProduceData {
        index,
        records: records.map(Into::into),
    };
    let partition_data = to.partitions.into_iter().map(partition).collect();
    // From version 13 on a topic is named by its id only; one that is unknown stands for a missing topic.
    let topic_id = match version {
        ..13 => Uuid::default(),
        _ if to.topic == MISSING => Uuid([7; 16]),
        _ => session.topic_id(to.topic),
    };
    let topic_data = vec![TopicProduceData { name: to.topic.into(), topic_id, partition_data }];
    ProduceRequest { acks, timeout_ms: 30_000, topic_data, ..Default::default() }
}

fn ask(session: &mut Session, what: &str, version: i16, to: To<'_>) {
    let request = request(session, version, -1, to);
    session.ask_and(what, version, &request, |response| {
        for topic in &mut response.responses {
            topic.partition_responses.sort_by_key(|partition| partition.index);
        }
    });
}

/// Where the log of partition 0 ends.
fn end(session: &mut Session, what: &str, topic: &str) {
    let partitions = vec![ListOffsetsPartition { timestamp: -1, ..Default::default() }];
    let topics = vec![ListOffsetsTopic { name: topic.into(), partitions }];
    session.ask(what, 4, &ListOffsetsRequest { replica_id: -1, topics, ..Default::default() });
}

fn good(session: &mut Session, version: i16) {
    let name = session.name("t");
    session.topic(&name, 2, &[]);
    for codec in Codec::ALL {
        let batch = Batch::of("k", 3, T0).with_codec(codec);
        ask(session, &format!("{codec:?}"), version, to(&name, batch.encode()));
    }
    let two = To {
        topic: &name,
        partitions: vec![
            (0, Some(Batch::of("a", 1, T0).encode())),
            (1, Some(Batch::of("b", 2, T0).encode())),
        ],
    };
    ask(session, "two partitions", version, two);
    let one = request(session, version, 1, to(&name, Batch::of("k", 1, T0).encode()));
    session.ask("acks 1", version, &one);
    // Offsets and leader epoch that the client makes up do not matter.
    let batch = Batch { base_offset: 77, leader_epoch: 9, ..Batch::of("k", 2, T0) };
    ask(session, "made-up base offset", version, to(&name, batch.encode()));
    let record = Record { key: None, value: None, ..Record::new(0, T0, "", "") };
    ask(
        session,
        "null key and value",
        version,
        to(&name, Batch { records: vec![record], ..Default::default() }.encode()),
    );
    end(session, "the end", &name);
    let stamped = session.name("stamped");
    session.topic(&stamped, 1, &[("message.timestamp.type", "LogAppendTime")]);
    ask(session, "log append time", version, to(&stamped, Batch::of("k", 2, T0).encode()));
}

fn bad_batches(session: &mut Session, version: i16) {
    let name = session.name("t");
    session.topic(&name, 1, &[]);
    let good = Batch::of("k", 3, T0);
    let stored = session.name("gaps");
    session.topic(&stored, 1, &[]);
    let gaps = Batch {
        records: vec![Record::new(0, T0, "a", "a"), Record::new(2, T0, "b", "b")],
        ..Default::default()
    };
    let plain = Batch { last_offset_delta: Some(1), ..gaps };
    ask(session, "gap between offsets", version, to(&stored, plain.encode()));
    ask(
        session,
        "gap between compressed offsets",
        version,
        to(&stored, plain.with_codec(Codec::Gzip).encode()),
    );
    let cases: Vec<(&str, Bytes)> = vec![
        ("wrong checksum", Batch { crc_error: 1, ..good.clone() }.encode()),
        (
            "more records than there are",
            Batch { record_count: Some(5), last_offset_delta: Some(4), ..good.clone() }.encode(),
        ),
        (
            "fewer records than there are",
            Batch { record_count: Some(2), last_offset_delta: Some(1), ..good.clone() }.encode(),
        ),
        (
            "last offset delta differs from count",
            Batch { last_offset_delta: Some(7), ..good.clone() }.encode(),
        ),
        ("negative count", Batch { record_count: Some(-1), ..good.clone() }.encode()),
        ("no records", Batch::default().encode()),
        ("magic 3", Batch { magic: 3, ..good.clone() }.encode()),
        ("magic -1", Batch { magic: -1, ..good.clone() }.encode()),
        ("length too short", Batch { length: Some(40), ..good.clone() }.encode()),
        ("negative length", Batch { length: Some(-5), ..good.clone() }.encode()),
        ("length beyond the data", Batch { length: Some(5_000), ..good.clone() }.encode()),
        ("control batch", Batch { attributes: 32, ..good.clone() }.encode()),
        ("unknown codec", Batch { attributes: 5, ..good.clone() }.encode()),
        ("two batches", [good.encode(), good.encode()].concat().into()),
        ("cut batch", good.encode().slice(..70)),
        ("a few bytes", Bytes::from_static(b"abcdef")),
        ("empty record data", Bytes::new()),
        ("garbage in gzip", Batch { codec: Codec::Gzip, ..good.clone() }.encode_with(b"garbage garbage")),
        ("garbage in snappy", Batch { codec: Codec::Snappy, ..good.clone() }.encode_with(b"garbage garbage")),
        ("garbage in lz4", Batch { codec: Codec::Lz4, ..good.clone() }.encode_with(b"garbage garbage")),
        ("garbage in zstd", Batch { codec: Codec::Zstd, ..good.clone() }.encode_with(b"garbage garbage")),
        ("record longer than the batch", good.encode_with(&[0x7e, 0, 0, 0, 0, 0, 0])),
        ("garbage after the records", good.encode_with(&[good.plain_records(), vec![1, 2, 3]].concat())),
    ];
    for (what, records) in cases {
        ask(session, what, version, to(&name, records));
    }
    if version == 3 {
        // Kafka never answers this one.
        let null = To { topic: &name, partitions: vec![(0, None)] };
        session.briefly(|session| ask(session, "null record data", version, null));
    }
    end(session, "nothing was appended", &name);
    ask(session, "good, after all that", version, to(&name, good.encode()));
}

fn bad_requests(session: &mut Session, version: i16) {
    let batch = || Batch::of("k", 1, T0).encode();
    let name = session.name("t");
    session.topic(&name, 1, &[]);
    for acks in [2, -2, 100] {
        let request = request(session, version, acks, to(&name, batch()));
        session.ask(&format!("acks {acks}"), version, &request);
    }
    ask(session, "missing topic", version, to(MISSING, batch()));
    ask(session, "missing partition", version, To { topic: &name, partitions: vec![(9, Some(batch()))] });
    ask(
        session,
        "good beside missing",
        version,
        To { topic: &name, partitions: vec![(0, Some(batch())), (5, Some(batch()))] },
    );
    ask(
        session,
        "keyless to compacted",
        version,
        to(COMPACT, {
            let record = Record { key: None, ..Record::new(0, T0, "", "v") };
            Batch { records: vec![record], ..Default::default() }.encode()
        }),
    );
    ask(session, "internal topic", version, to("__consumer_offsets", batch()));
    session.ask("no topics", version, &ProduceRequest { acks: -1, timeout_ms: 1_000, ..Default::default() });
    let request = request(
        session,
        version,
        -1,
        to(
            &name,
            Batch {
                attributes: 16,
                producer_id: 5,
                producer_epoch: 0,
                base_sequence: 0,
                ..Batch::of("k", 1, T0)
            }
            .encode(),
        ),
    );
    session.ask("transactional batch without an id", version, &request);
    end(session, "the end", &name);
    end(session, "another topic is as it was", FILLED);
    end(session, "an empty topic is empty", EMPTY);
}

fn limits(session: &mut Session, version: i16) {
    let name = session.name("small");
    session.topic(&name, 1, &[("max.message.bytes", "300")]);
    let value = "v".repeat(400);
    let large = Batch { records: vec![Record::new(0, T0, "k", &value)], ..Default::default() };
    ask(session, "too large", version, to(&name, large.encode()));
    ask(
        session,
        "too large only before compression",
        version,
        to(&name, large.with_codec(Codec::Gzip).encode()),
    );
    let old = session.name("strict");
    session.topic(
        &old,
        1,
        &[("message.timestamp.before.max.ms", "3600000"), ("message.timestamp.after.max.ms", "3600000")],
    );
    ask(session, "too old", version, to(&old, Batch::of("k", 2, T0).encode()));
    ask(session, "too new", version, to(&old, Batch::of("k", 2, 5_000_000_000_000).encode()));
    let packed = session.name("packed");
    session.topic(&packed, 1, &[("compression.type", "gzip")]);
    ask(session, "compressed by the broker", version, to(&packed, Batch::of("k", 3, T0).encode()));
}

fn idempotent(session: &mut Session, version: i16) {
    let name = session.name("t");
    session.topic(&name, 2, &[]);
    let given =
        session.quietly(1, &InitProducerIdRequest { transaction_timeout_ms: 60_000, ..Default::default() });
    let batch = |sequence: i32, count: i32, epoch: i16| Batch {
        producer_id: given.producer_id,
        producer_epoch: epoch,
        base_sequence: sequence,
        ..Batch::of("k", count, T0)
    };
    let mut ask = |what: &str, sequence, count, epoch| {
        ask(session, what, version, to(&name, batch(sequence, count, epoch).encode()));
    };
    ask("first", 0, 2, 0);
    ask("second", 2, 3, 0);
    ask("first again", 0, 2, 0);
    ask("second again", 2, 3, 0);
    ask("gap", 9, 1, 0);
    ask("overlap", 3, 1, 0);
    ask("third", 5, 1, 0);
    for (index, sequence) in (6..11).enumerate() {
        ask(&format!("more {index}"), sequence, 1, 0);
    }
    ask("a duplicate older than the last five", 0, 2, 0);
    ask("newer epoch, not from 0", 5, 1, 1);
    ask("newer epoch", 0, 1, 1);
    ask("older epoch", 11, 1, 0);
    ask("negative sequence", -1, 1, 1);
    end(session, "the end", &name);
    let unknown =
        Batch { producer_id: 987_654, producer_epoch: 0, base_sequence: 5, ..Batch::of("k", 1, T0) };
    crate::script::produce::ask(
        session,
        "unknown producer, not from 0",
        version,
        to(&name, unknown.encode()),
    );
}

fn init_producer_id(session: &mut Session, version: i16) {
    let request = || InitProducerIdRequest { transaction_timeout_ms: 60_000, ..Default::default() };
    session.ask("idempotent", version, &request());
    session.ask(
        "idempotent, timeout 0",
        version,
        &InitProducerIdRequest { transaction_timeout_ms: 0, ..request() },
    );
    session.ask(
        "empty transactional id",
        version,
        &InitProducerIdRequest { transactional_id: Some("".into()), ..request() },
    );
    if version >= 3 {
        let given = session.quietly(3, &request());
        let again =
            |producer_id, producer_epoch| InitProducerIdRequest { producer_id, producer_epoch, ..request() };
        session.ask("id without epoch", version, &again(given.producer_id, -1));
        session.ask("epoch without id", version, &again(-1, 0));
        session.ask("both", version, &again(given.producer_id, given.producer_epoch));
    }
}
