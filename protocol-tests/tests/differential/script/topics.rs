//! CreateTopics, DeleteTopics, CreatePartitions.

use wire::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use wire::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use wire::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use wire::{ApiKey, Uuid};

use super::{EMPTY, MISSING};
use crate::session::{Case, Session};

pub const CASES: &[Case] = &[
    Case { name: "good", api: ApiKey::CreateTopics, versions: 0..=7, run: create_good },
    Case { name: "bad", api: ApiKey::CreateTopics, versions: 0..=7, run: create_bad },
    Case { name: "assignments", api: ApiKey::CreateTopics, versions: 0..=7, run: create_assigned },
    Case { name: "all", api: ApiKey::DeleteTopics, versions: 0..=6, run: delete },
    Case { name: "all", api: ApiKey::CreatePartitions, versions: 0..=3, run: create_partitions },
];

const TIMEOUT_MS: i32 = 30_000;

fn topic(name: &str, num_partitions: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic { name: name.into(), num_partitions, replication_factor, ..Default::default() }
}

fn with_configs(topic: CreatableTopic, configs: &[(&str, Option<&str>)]) -> CreatableTopic {
    let config = |(name, value): &(&str, Option<&str>)| CreatableTopicConfig {
        name: (*name).into(),
        value: value.map(Into::into),
    };
    CreatableTopic { configs: configs.iter().map(config).collect(), ..topic }
}

/// Asks for topics; the configs of the answer are another case's.
fn create(session: &mut Session, what: &str, version: i16, request: CreateTopicsRequest) {
    session.ask_and(what, version, &request, |response| {
        response.topics.sort_by(|left, right| left.name.cmp(&right.name));
        for topic in &mut response.topics {
            if let Some(configs) = &mut topic.configs {
                configs.retain(|config| ["cleanup.policy", "retention.ms"].contains(&&*config.name));
                configs.sort_by(|left, right| left.name.cmp(&right.name));
            }
        }
    });
}

fn of(topics: Vec<CreatableTopic>) -> CreateTopicsRequest {
    CreateTopicsRequest { topics, timeout_ms: TIMEOUT_MS, ..Default::default() }
}

fn create_good(session: &mut Session, version: i16) {
    let (one, two) = (session.name("one"), session.name("two"));
    create(session, "two", version, of(vec![topic(&one, 1, 1), topic(&two, 3, 1)]));
    create(session, "one of them again", version, of(vec![topic(&one, 1, 1)]));
    let name = session.name("configured");
    let configured = with_configs(
        topic(&name, 1, 1),
        &[("cleanup.policy", Some("compact")), ("retention.ms", Some("5000"))],
    );
    create(session, "with configs", version, of(vec![configured]));
    if version >= 1 {
        let name = session.name("only-checked");
        let request = CreateTopicsRequest { validate_only: true, ..of(vec![topic(&name, 2, 1)]) };
        create(session, "only checked", version, request);
        let request = CreateTopicsRequest { validate_only: true, ..of(vec![topic(EMPTY, 2, 1)]) };
        create(session, "only checked, exists", version, request);
    }
    if version >= 4 {
        let name = session.name("defaults");
        create(session, "defaults", version, of(vec![topic(&name, -1, -1)]));
    }
    create(session, "nothing", version, of(Vec::new()));
}

fn create_bad(session: &mut Session, version: i16) {
    let long = "x".repeat(250);
    for name in ["", ".", "..", "a/b", "a b", "ü", &long] {
        create(session, &format!("name {name:?}"), version, of(vec![topic(name, 1, 1)]));
    }
    let name = session.name("bad");
    for (partitions, factor) in [(0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (1, 100), (-1, 1), (1, -1)] {
        if version >= 4 && (partitions == -1 || factor == -1) {
            continue;
        }
        let what = format!("{partitions} partitions {factor} replicas");
        create(session, &what, version, of(vec![topic(&name, partitions, factor)]));
    }
    create(session, "twice", version, of(vec![topic(&name, 1, 1), topic(&name, 1, 1)]));
    create(session, "bad beside an existing one", version, of(vec![topic(EMPTY, 1, 1), topic(&name, 0, 1)]));
    let collides = session.name("dot.dot");
    session.topic(&collides, 1, &[]);
    create(session, "colliding name", version, of(vec![topic(&collides.replace('.', "_"), 1, 1)]));
    let configs: &[(&str, Option<&str>)] = &[
        ("no.such.config", Some("1")),
        ("retention.ms", Some("x")),
        ("retention.ms", Some("-2")),
        ("retention.ms", None),
        ("cleanup.policy", Some("burn")),
        ("compression.type", Some("foo")),
        ("compression.lz4.level", Some("0")),
        ("compression.lz4.level", Some("18")),
        ("segment.ms", Some("0")),
        ("min.insync.replicas", Some("0")),
        ("message.timestamp.type", Some("x")),
        ("max.message.bytes", Some("-1")),
        ("segment.bytes", Some("1")),
    ];
    for config in configs {
        let what = format!("config {config:?}");
        create(session, &what, version, of(vec![with_configs(topic(&name, 1, 1), &[*config])]));
    }
}

/// Partition and brokers.
type Placed<'a> = (i32, &'a [i32]);

fn create_assigned(session: &mut Session, version: i16) {
    let assigned = |name: &str, partitions: &[Placed<'_>]| {
        let assignment = |(index, brokers): &Placed<'_>| CreatableReplicaAssignment {
            partition_index: *index,
            broker_ids: brokers.to_vec(),
        };
        CreatableTopic { assignments: partitions.iter().map(assignment).collect(), ..topic(name, -1, -1) }
    };
    let name = session.name("assigned");
    let bad: &[(&str, &[Placed<'_>])] = &[
        ("gap", &[(0, &[1]), (2, &[1])]),
        ("no brokers", &[(0, &[])]),
        ("duplicate brokers", &[(0, &[1, 1])]),
        ("different factors", &[(0, &[1]), (1, &[1, 2])]),
    ];
    for (what, partitions) in bad {
        // 3.9.2 takes "no brokers" and then waits for a leader.
        let name = session.name(&what.replace(' ', "-"));
        let request = CreateTopicsRequest { timeout_ms: 100, ..of(vec![assigned(&name, partitions)]) };
        create(session, what, version, request);
    }
    let both = CreatableTopic { num_partitions: 1, ..assigned(&name, &[(0, &[1])]) };
    create(session, "count and assignments", version, of(vec![both]));
    create(session, "good", version, of(vec![assigned(&name, &[(0, &[1]), (1, &[1])])]));
}

fn delete(session: &mut Session, version: i16) {
    let named = |names: &[&str]| {
        let states =
            names.iter().map(|name| DeleteTopicState { name: Some((*name).into()), ..Default::default() });
        DeleteTopicsRequest {
            topics: if version >= 6 { states.collect() } else { Vec::new() },
            topic_names: if version < 6 {
                names.iter().map(|name| (*name).into()).collect()
            } else {
                Vec::new()
            },
            timeout_ms: TIMEOUT_MS,
        }
    };
    let (one, two) = (session.name("one"), session.name("two"));
    session.topic(&one, 1, &[]);
    session.topic(&two, 2, &[]);
    let sorted = |session: &mut Session, what: &str, request: &DeleteTopicsRequest| {
        session.ask_and(what, version, request, |response| {
            response.responses.sort_by(|left, right| left.name.cmp(&right.name));
        });
    };
    sorted(session, "good and missing", &named(&[&one, MISSING]));
    sorted(session, "again", &named(&[&one]));
    sorted(session, "nothing", &named(&[]));
    sorted(session, "illegal name", &named(&["a/b"]));
    if version >= 6 {
        let topic_id = session.topic_id(&two);
        let by_id = |topic_id: Uuid, name: Option<&str>| DeleteTopicsRequest {
            topics: vec![DeleteTopicState { name: name.map(Into::into), topic_id }],
            timeout_ms: TIMEOUT_MS,
            ..Default::default()
        };
        sorted(session, "unknown id", &by_id(Uuid([7; 16]), None));
        sorted(session, "id and name", &by_id(topic_id, Some(&two)));
        sorted(session, "neither", &by_id(Uuid::default(), None));
        sorted(session, "id", &by_id(topic_id, None));
    }
}

fn create_partitions(session: &mut Session, version: i16) {
    let name = session.name("grows");
    session.topic(&name, 2, &[]);
    let ask = |session: &mut Session,
               what: &str,
               topics: &[(&str, i32)],
               assignments: Option<&[&[i32]]>,
               validate_only| {
        let assignments = assignments.map(|list| {
            list.iter()
                .map(|brokers| CreatePartitionsAssignment { broker_ids: brokers.to_vec() })
                .collect::<Vec<_>>()
        });
        let topic = |(name, count): &(&str, i32)| CreatePartitionsTopic {
            name: (*name).into(),
            count: *count,
            assignments: assignments.clone(),
        };
        let topics = topics.iter().map(topic).collect();
        let request = CreatePartitionsRequest { topics, timeout_ms: TIMEOUT_MS, validate_only };
        session.ask_and(what, version, &request, |response| {
            response.results.sort_by(|left, right| left.name.cmp(&right.name));
        });
    };
    ask(session, "fewer", &[(&name, 1)], None, false);
    ask(session, "as many", &[(&name, 2)], None, false);
    ask(session, "zero", &[(&name, 0)], None, false);
    ask(session, "negative", &[(&name, -1)], None, false);
    ask(session, "missing topic", &[(MISSING, 3)], None, false);
    ask(session, "twice", &[(&name, 3), (&name, 4)], None, false);
    ask(session, "too few assignments", &[(&name, 4)], Some(&[&[1]]), false);
    ask(session, "unknown broker", &[(&name, 3)], Some(&[&[99]]), false);
    ask(session, "other factor", &[(&name, 3)], Some(&[&[1, 2]]), false);
    ask(session, "duplicate broker", &[(&name, 3)], Some(&[&[1, 1]]), false);
    ask(session, "only checked", &[(&name, 5)], None, true);
    ask(session, "good", &[(&name, 3)], None, false);
    ask(session, "good with assignments", &[(&name, 4)], Some(&[&[1]]), false);
}
