//! Fetch.

use std::time::Instant;

use protocol_tests::batch::{Batch, Codec};
use wire::fetch_request::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic};
use wire::fetch_response::FetchResponse;
use wire::{ApiKey, Uuid};

use super::{EMPTY, FILLED, MISSING};
use crate::fields;
use crate::session::{Case, Session, T0, batches};

pub const CASES: &[Case] = &[
    Case { name: "reads", api: ApiKey::Fetch, versions: 4..=18, run: reads },
    Case { name: "limits", api: ApiKey::Fetch, versions: 4..=18, run: limits },
    Case { name: "bad", api: ApiKey::Fetch, versions: 4..=18, run: bad },
    Case { name: "epochs", api: ApiKey::Fetch, versions: 9..=18, run: epochs },
    Case { name: "sessions", api: ApiKey::Fetch, versions: 7..=18, run: sessions },
    Case { name: "codecs", api: ApiKey::Fetch, versions: 4..=18, run: codecs },
    Case { name: "waits", api: ApiKey::Fetch, versions: 4..=18, run: waits },
];

fn topic(session: &mut Session, version: i16, name: &str, partitions: Vec<FetchPartition>) -> FetchTopic {
    // From version 13 on a topic is named by its id only; one that is unknown stands for a missing topic.
    let topic_id = match version {
        ..13 => Uuid::default(),
        _ if name == MISSING => Uuid([7; 16]),
        _ => session.topic_id(name),
    };
    FetchTopic { topic: name.into(), topic_id, partitions }
}

fn from(partition: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition { partition, fetch_offset, partition_max_bytes: 1_000_000, ..Default::default() }
}

/// Answers at once, with no session.
fn plain(topics: Vec<FetchTopic>) -> FetchRequest {
    FetchRequest { max_bytes: 10_000_000, topics, ..Default::default() }
}

fn ask_plain(session: &mut Session, what: &str, version: i16, name: &str, partitions: Vec<FetchPartition>) {
    let topics = vec![topic(session, version, name, partitions)];
    ask(session, what, version, &plain(topics));
}

fn ask(session: &mut Session, what: &str, version: i16, request: &FetchRequest) -> Option<FetchResponse> {
    let response = session.ask_and(what, version, request, |response| {
        response.responses.sort_by(|left, right| left.topic.cmp(&right.topic));
        for topic in &mut response.responses {
            topic.partitions.sort_by_key(|partition| partition.partition_index);
        }
    });
    for partition in response.iter().flat_map(|r| &r.responses).flat_map(|topic| &topic.partitions) {
        let what = format!("{what}, records of {}", partition.partition_index);
        session.note(&what, batches(partition.records.as_ref()));
    }
    response
}

fn reads(session: &mut Session, version: i16) {
    for offset in [0, 1, 4, 5, 12, 19, 20] {
        ask_plain(session, &format!("from {offset}"), version, FILLED, vec![from(0, offset)]);
    }
    ask_plain(session, "empty partitions", version, EMPTY, vec![from(0, 0), from(3, 0)]);
    let topics = vec![topic(session, version, FILLED, vec![from(0, 15)])];
    let committed = FetchRequest { isolation_level: 1, ..plain(topics) };
    ask(session, "read committed", version, &committed);
    ask(session, "no topics", version, &plain(Vec::new()));
    if version <= 14 {
        // A consumer that says it is one for debugging may read like any other.
        let topics = vec![topic(session, version, FILLED, vec![from(0, 15)])];
        ask(session, "debugging consumer", version, &FetchRequest { replica_id: -2, ..plain(topics) });
    }
}

fn limits(session: &mut Session, version: i16) {
    let small = |partition, offset| FetchPartition { partition_max_bytes: 1, ..from(partition, offset) };
    ask_plain(session, "one byte of a partition", version, FILLED, vec![small(0, 0)]);
    ask_plain(session, "one byte, from the middle", version, FILLED, vec![small(0, 7)]);
    let topics = vec![topic(session, version, FILLED, vec![from(0, 0)])];
    ask(session, "one byte in all", version, &FetchRequest { max_bytes: 1, ..plain(topics) });
    ask_plain(
        session,
        "two batches",
        version,
        FILLED,
        vec![FetchPartition { partition_max_bytes: 300, ..from(0, 0) }],
    );
    ask_plain(
        session,
        "no bytes",
        version,
        FILLED,
        vec![FetchPartition { partition_max_bytes: 0, ..from(0, 0) }],
    );
    let name = session.name("two");
    session.topic(&name, 2, &[]);
    for partition in [0, 1] {
        session.append(&name, partition, &Batch::of("k", 20, T0));
    }
    // The first partition that has data gives its first batch, however small the limit.
    ask_plain(session, "two partitions, one byte each", version, &name, vec![small(0, 0), small(1, 0)]);
    let topics = vec![topic(session, version, &name, vec![from(1, 0), from(0, 0)])];
    let response = ask(
        session,
        "two partitions, one byte in all",
        version,
        &FetchRequest { max_bytes: 1, ..plain(topics) },
    );
    let _ = response;
}

fn bad(session: &mut Session, version: i16) {
    ask_plain(session, "beyond the end", version, FILLED, vec![from(0, 21)]);
    ask_plain(session, "negative offset", version, FILLED, vec![from(0, -1)]);
    ask_plain(session, "missing partition", version, FILLED, vec![from(9, 0)]);
    ask_plain(session, "negative partition", version, FILLED, vec![from(-1, 0)]);
    ask_plain(session, "missing topic", version, MISSING, vec![from(0, 0)]);
    ask_plain(session, "good beside missing", version, FILLED, vec![from(0, 15), from(3, 0)]);
    let topics = vec![topic(session, version, FILLED, vec![from(0, 15)])];
    ask(session, "unknown isolation level", version, &FetchRequest { isolation_level: 7, ..plain(topics) });
}

fn epochs(session: &mut Session, version: i16) {
    let with = |epoch| FetchPartition { current_leader_epoch: epoch, ..from(0, 15) };
    ask_plain(session, "current", version, FILLED, vec![with(0)]);
    ask_plain(session, "too new", version, FILLED, vec![with(5)]);
    ask_plain(session, "none", version, FILLED, vec![with(-1)]);
    if version >= 12 {
        for (what, last) in
            [("last epoch fits", 0), ("last epoch is too new", 3), ("negative last epoch", -1)]
        {
            let partition =
                FetchPartition { last_fetched_epoch: last, current_leader_epoch: 0, ..from(0, 15) };
            ask_plain(session, what, version, FILLED, vec![partition]);
        }
    }
}

fn sessions(session: &mut Session, version: i16) {
    let name = session.name("t");
    session.topic(&name, 2, &[]);
    session.append(&name, 0, &Batch::of("a", 2, T0));
    let both = topic(session, version, &name, vec![from(0, 0), from(1, 0)]);
    let start = FetchRequest { session_epoch: 0, ..plain(vec![both.clone()]) };
    let Some(opened) = ask(session, "opens", version, &start) else { return };
    let next =
        |epoch, topics| FetchRequest { session_id: opened.session_id, session_epoch: epoch, ..plain(topics) };
    // Reads on from the end of partition 0, so that there is nothing new.
    let on = topic(session, version, &name, vec![from(0, 2)]);
    ask(session, "nothing new", version, &next(1, vec![on]));
    session.append(&name, 1, &Batch::of("b", 1, T0));
    ask(session, "only what is new", version, &next(2, Vec::new()));
    let moved = topic(session, version, &name, vec![from(1, 1)]);
    ask(session, "position moved", version, &next(3, vec![moved]));
    let forgotten =
        ForgottenTopic { topic: both.topic.clone(), topic_id: both.topic_id, partitions: vec![1] };
    ask(
        session,
        "one forgotten",
        version,
        &FetchRequest { forgotten_topics_data: vec![forgotten], ..next(4, Vec::new()) },
    );
    session.append(&name, 1, &Batch::of("c", 1, T0));
    ask(session, "the forgotten one is not told", version, &next(5, Vec::new()));
    ask(session, "wrong epoch", version, &next(99, Vec::new()));
    ask(session, "epoch from before", version, &next(5, Vec::new()));
    let unknown = FetchRequest { session_id: 123_456_789, session_epoch: 1, ..plain(Vec::new()) };
    ask(session, "unknown session", version, &unknown);
    ask(session, "closes", version, &next(-1, Vec::new()));
    ask(session, "after the close", version, &next(6, Vec::new()));
    ask(session, "no session wanted", version, &FetchRequest { session_epoch: -1, ..plain(vec![both]) });
}

fn codecs(session: &mut Session, version: i16) {
    let name = session.name("t");
    session.topic(&name, 1, &[]);
    for codec in Codec::ALL {
        session.append(&name, 0, &Batch::of(&format!("{codec:?}"), 3, T0).with_codec(codec));
    }
    ask_plain(
        session,
        "without zstd",
        version,
        &name,
        vec![FetchPartition { partition_max_bytes: 500, ..from(0, 0) }],
    );
    ask_plain(session, "only zstd", version, &name, vec![from(0, 12)]);
    ask_plain(session, "all", version, &name, vec![from(0, 0)]);
}

/// Long polls: answered when there is enough, or when the time is over.
fn waits(session: &mut Session, version: i16) {
    let name = session.name("t");
    session.topic(&name, 1, &[]);
    let request = |session: &mut Session, max_wait_ms, min_bytes| {
        let topics = vec![topic(session, version, &name, vec![from(0, 0)])];
        FetchRequest { max_wait_ms, min_bytes, ..plain(topics) }
    };
    let started = Instant::now();
    let short = request(session, 200, 1);
    ask(session, "nothing comes", version, &short);
    let waited = started.elapsed().as_millis() >= 200;
    session.note("nothing comes, waited", vec![("waited".into(), waited.to_string())]);
    let started = Instant::now();
    let no_minimum = request(session, 60_000, 0);
    ask(session, "no minimum", version, &no_minimum);
    let at_once = started.elapsed().as_millis() < 30_000;
    session.note("no minimum, at once", vec![("at once".into(), at_once.to_string())]);
    let long = request(session, 60_000, 1);
    let mut other = session.connect();
    let correlation_id = other.send(version, &long);
    session.append(&name, 0, &Batch::of("k", 1, T0));
    let woken = other.receive::<FetchRequest>(version, correlation_id).expect("an answer to the long poll");
    session.note("woken", fields::of(&format!("{woken:#?}")));
}
