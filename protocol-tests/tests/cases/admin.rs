//! What administrators ask for: each item gets its own answer, and bad ones leave nothing behind.

use std::thread;

use protocol_tests::batch::Batch;
use protocol_tests::requests::{commit_request, topic};
use protocol_tests::{Broker, Connection, wait_for};
use wire::alter_configs_request::{self, AlterConfigsRequest};
use wire::create_acls_request::{AclCreation, CreateAclsRequest};
use wire::create_partitions_request::{CreatePartitionsRequest, CreatePartitionsTopic};
use wire::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use wire::delete_groups_request::DeleteGroupsRequest;
use wire::delete_records_request::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use wire::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use wire::describe_cluster_request::DescribeClusterRequest;
use wire::describe_configs_request::{DescribeConfigsRequest, DescribeConfigsResource};
use wire::describe_configs_response::DescribeConfigsResourceResult;
use wire::describe_log_dirs_request::{DescribableLogDirTopic, DescribeLogDirsRequest};
use wire::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use wire::init_producer_id_request::InitProducerIdRequest;
use wire::offset_delete_request::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use wire::{Str, Uuid};

use crate::{T0, code};

pub const TOPIC_RESOURCE: i8 = 2;
pub const BROKER_RESOURCE: i8 = 4;
pub const SET: i8 = 0;
pub const DELETE: i8 = 1;
pub const APPEND: i8 = 2;
pub const SUBTRACT: i8 = 3;

/// Where a value comes from, as DescribeConfigs says it.
const DYNAMIC_TOPIC: i8 = 1;
const DYNAMIC_BROKER: i8 = 2;
const DYNAMIC_DEFAULT_BROKER: i8 = 3;

/// Key, operation and value.
pub type Change<'a> = (&'a str, i8, Option<&'a str>);

fn resource(resource_type: i8, name: &str, changes: &[Change<'_>]) -> AlterConfigsResource {
    let config = |(name, operation, value): &Change<'_>| AlterableConfig {
        name: (*name).into(),
        config_operation: *operation,
        value: value.map(Into::into),
    };
    AlterConfigsResource {
        resource_type,
        resource_name: name.into(),
        configs: changes.iter().map(config).collect(),
    }
}

/// Error code and message of an IncrementalAlterConfigs about one resource.
#[track_caller]
pub fn alter(
    connection: &mut Connection,
    resource_type: i8,
    name: &str,
    changes: &[Change<'_>],
) -> (i16, Option<String>) {
    let resources = vec![resource(resource_type, name, changes)];
    let mut response =
        connection.call(1, &IncrementalAlterConfigsRequest { resources, validate_only: false });
    let answer = response.responses.remove(0);
    (answer.error_code, answer.error_message.map(|text| text.to_string()))
}

/// One setting of a resource, with its synonyms.
#[track_caller]
fn describe(
    connection: &mut Connection,
    resource_type: i8,
    name: &str,
    key: &str,
) -> Option<DescribeConfigsResourceResult> {
    let resource = DescribeConfigsResource {
        resource_type,
        resource_name: name.into(),
        configuration_keys: Some(vec![key.into()]),
    };
    let request =
        DescribeConfigsRequest { resources: vec![resource], include_synonyms: true, ..Default::default() };
    let mut result = connection.call(3, &request).results.remove(0);
    assert_eq!(result.error_code, 0, "{result:?}");
    result.configs.pop()
}

/// Value and source.
fn setting(connection: &mut Connection, resource_type: i8, name: &str, key: &str) -> (String, i8) {
    let found =
        describe(connection, resource_type, name, key).unwrap_or_else(|| panic!("{key} is not described"));
    (found.value.map(|value| value.to_string()).unwrap_or_default(), found.config_source)
}

/// C080
#[test]
fn every_item_that_is_asked_for_gets_one_answer() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    for version in 0..=7 {
        let good = format!("good-{version}");
        let topics =
            vec![topic(&good, 1, &[]), topic("a/b", 1, &[]), topic("twice", 1, &[]), topic("twice", 1, &[])];
        let response = connection
            .call(version, &CreateTopicsRequest { topics, timeout_ms: 30_000, ..Default::default() });
        let mut codes: Vec<(String, i16)> =
            response.topics.iter().map(|topic| (topic.name.to_string(), topic.error_code)).collect();
        codes.sort();
        let expected = [
            ("a/b", code::INVALID_TOPIC),
            (&good, code::NONE),
            ("twice", code::INVALID_REQUEST),
            ("twice", code::INVALID_REQUEST),
        ];
        assert_eq!(codes, expected.map(|(name, code)| (name.to_owned(), code)), "CreateTopics v{version}");
        connection.wait_for_leaders(&good, 1);
    }
    partitions_are_answered_one_by_one(&mut connection);
    records_are_answered_one_by_one(&mut connection);
    groups_are_answered_one_by_one(&mut connection);
    deletions_are_answered_one_by_one(&mut connection);
    let acl = AclCreation {
        resource_type: 2,
        resource_name: "x".into(),
        operation: 3,
        permission_type: 3,
        principal: "User:a".into(),
        host: "*".into(),
        ..Default::default()
    };
    for version in 0..=3 {
        let response = connection
            .call(version, &CreateAclsRequest { creations: vec![acl.clone(), acl.clone(), acl.clone()] });
        let codes: Vec<i16> = response.results.iter().map(|result| result.error_code).collect();
        assert_eq!(codes, [code::SECURITY_DISABLED; 3], "CreateAcls v{version}");
    }
}

fn partitions_are_answered_one_by_one(connection: &mut Connection) {
    for version in 0..=3 {
        let count = version as i32 + 2;
        let wanted =
            |name: &str, count| CreatePartitionsTopic { name: name.into(), count, assignments: None };
        let topics = vec![wanted("good-0", count), wanted("good-1", 0), wanted("missing", 3)];
        let request = CreatePartitionsRequest { topics, timeout_ms: 30_000, validate_only: false };
        let mut results = connection.call(version, &request).results;
        results.sort_by(|left, right| left.name.cmp(&right.name));
        let codes: Vec<i16> = results.iter().map(|result| result.error_code).collect();
        assert_eq!(
            codes,
            [code::NONE, code::INVALID_PARTITIONS, code::UNKNOWN_TOPIC_OR_PARTITION],
            "v{version}"
        );
        let fewer = CreatePartitionsRequest {
            topics: vec![wanted("good-0", 1)],
            timeout_ms: 30_000,
            validate_only: false,
        };
        assert_eq!(
            connection.call(version, &fewer).results[0].error_code,
            code::INVALID_PARTITIONS,
            "v{version}"
        );
    }
}

fn records_are_answered_one_by_one(connection: &mut Connection) {
    for version in 0..=2 {
        let topic = |name: &str, offset| DeleteRecordsTopic {
            name: name.into(),
            partitions: vec![DeleteRecordsPartition { partition_index: 0, offset }],
        };
        let topics = vec![topic("good-1", 0), topic("good-2", 99), topic("missing", 0)];
        let mut topics =
            connection.call(version, &DeleteRecordsRequest { topics, timeout_ms: 30_000 }).topics;
        topics.sort_by(|left, right| left.name.cmp(&right.name));
        let codes: Vec<i16> = topics.iter().map(|topic| topic.partitions[0].error_code).collect();
        let expected = [code::NONE, code::OFFSET_OUT_OF_RANGE, code::UNKNOWN_TOPIC_OR_PARTITION];
        assert_eq!(codes, expected, "DeleteRecords v{version}");
    }
}

fn groups_are_answered_one_by_one(connection: &mut Connection) {
    connection.wait_for_coordinator("group-0");
    for version in 0..=2 {
        let group = format!("group-{version}");
        connection.wait_for_coordinator(&group);
        assert_eq!(connection.commit(&group, "good-1", 0, 5), code::NONE);
        let topic = |name: &str| OffsetDeleteRequestTopic {
            name: name.into(),
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
        };
        let request = OffsetDeleteRequest {
            group_id: group.as_str().into(),
            topics: vec![topic("good-1"), topic("good-2"), topic("missing")],
        };
        let mut topics = connection.call(0, &request).topics;
        topics.sort_by(|left, right| left.name.cmp(&right.name));
        let codes: Vec<i16> = topics.iter().map(|topic| topic.partitions[0].error_code).collect();
        assert_eq!(codes, [code::NONE, code::NONE, code::UNKNOWN_TOPIC_OR_PARTITION], "OffsetDelete");
        assert_eq!(connection.commit(&group, "good-1", 0, 5), code::NONE);
        let names: Vec<Str> = [&group, "missing-a", "missing-b"].map(Str::from).to_vec();
        let results = connection.call(version, &DeleteGroupsRequest { groups_names: names.clone() }).results;
        let code_of = |name: &Str| {
            let found: Vec<i16> = results
                .iter()
                .filter(|result| result.group_id == *name)
                .map(|result| result.error_code)
                .collect();
            assert_eq!(found.len(), 1, "DeleteGroups v{version}: {name:?} in {results:?}");
            found[0]
        };
        let codes: Vec<i16> = names.iter().map(code_of).collect();
        assert_eq!(codes, [code::NONE, code::GROUP_ID_NOT_FOUND, code::GROUP_ID_NOT_FOUND], "v{version}");
    }
}

fn deletions_are_answered_one_by_one(connection: &mut Connection) {
    for version in 0..=5 {
        let topic_names: Vec<Str> = [&format!("good-{version}"), "missing", "a/b"].map(Str::from).to_vec();
        let request = DeleteTopicsRequest {
            topic_names: topic_names.clone(),
            timeout_ms: 30_000,
            ..Default::default()
        };
        let responses = connection.call(version, &request).responses;
        assert_eq!(responses.len(), 3, "DeleteTopics v{version}: {responses:?}");
        for (name, is_good) in topic_names.iter().zip([true, false, false]) {
            let answer =
                responses.iter().find(|answer| answer.name.as_ref() == Some(name)).expect("an answer");
            assert_eq!(answer.error_code == 0, is_good, "DeleteTopics v{version}: {answer:?}");
        }
    }
    let id = |connection: &mut Connection, name: &str| {
        let request = wire::MetadataRequest { topics: None, ..Default::default() };
        let topics = connection.call(12, &request).topics;
        topics.iter().find(|topic| topic.name.as_deref() == Some(name)).expect("the topic").topic_id
    };
    let by_id = |topic_id| DeleteTopicState { name: None, topic_id };
    let topics = vec![
        by_id(id(connection, "good-6")),
        by_id(Uuid([7; 16])),
        DeleteTopicState { name: Some("good-7".into()), ..Default::default() },
    ];
    let request = DeleteTopicsRequest { topics, timeout_ms: 30_000, ..Default::default() };
    let mut codes: Vec<i16> =
        connection.call(6, &request).responses.iter().map(|answer| answer.error_code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 0, 100]);
}

/// Key and value that no topic can have.
const BAD: &[(&str, &str)] = &[
    ("compression.type", "foo"),
    ("compression.lz4.level", "18"),
    ("retention.ms", "-2"),
    ("segment.ms", "0"),
    ("min.insync.replicas", "0"),
    ("message.timestamp.type", "x"),
    ("cleanup.policy", "burn"),
    ("no.such.key", "1"),
];

/// C082
#[test]
fn bad_values_are_refused_with_a_message_and_their_neighbours_applied() {
    let mut broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("bad", 1, &[]);
    connection.create_topic("good", 1, &[]);
    let mut retention = 1_000;
    for (key, value) in BAD {
        let topics = vec![topic("new", 1, &[(key, value)])];
        let request = CreateTopicsRequest { topics, timeout_ms: 30_000, ..Default::default() };
        let answer = connection.call(4, &request).topics.remove(0);
        assert_eq!(answer.error_code, code::INVALID_CONFIG, "CreateTopics {key}={value}: {answer:?}");
        assert!(answer.error_message.is_some_and(|text| text.contains(key)), "CreateTopics {key}={value}");

        retention += 1;
        let good = retention.to_string();
        let resources = vec![
            resource(TOPIC_RESOURCE, "bad", &[(key, SET, Some(value))]),
            resource(TOPIC_RESOURCE, "good", &[("retention.ms", SET, Some(&good))]),
        ];
        let request = IncrementalAlterConfigsRequest { resources, validate_only: false };
        let answers = connection.call(1, &request).responses;
        let codes = answers.iter().map(|answer| (&*answer.resource_name, answer.error_code));
        check_codes(codes.collect(), &format!("IncrementalAlterConfigs {key}={value}"));
        assert!(
            answers.iter().any(|answer| answer.error_message.as_ref().is_some_and(|text| text.contains(key)))
        );
        assert_eq!(setting(&mut connection, TOPIC_RESOURCE, "good", "retention.ms"), (good, DYNAMIC_TOPIC));

        let old = |name: &str, key: &str, value: &str| alter_configs_request::AlterConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: name.into(),
            configs: vec![alter_configs_request::AlterableConfig {
                name: key.into(),
                value: Some(value.into()),
            }],
        };
        let resources = vec![old("bad", key, value), old("good", "retention.ms", "77")];
        let answers = connection.call(1, &AlterConfigsRequest { resources, validate_only: false }).responses;
        let codes = answers.iter().map(|answer| (&*answer.resource_name, answer.error_code));
        check_codes(codes.collect(), &format!("AlterConfigs {key}={value}"));
    }
    // A start reads what was stored, and would warn of a value that it cannot use.
    broker.restart();
    let mut connection = Connection::open(&broker.address());
    for (key, _) in BAD.iter().filter(|(key, _)| *key != "no.such.key") {
        assert_ne!(setting(&mut connection, TOPIC_RESOURCE, "bad", key).1, DYNAMIC_TOPIC, "{key}");
    }
    assert_eq!(connection.metadata(None).topics.len(), 2);
}

#[track_caller]
fn check_codes(mut codes: Vec<(&str, i16)>, what: &str) {
    codes.sort_unstable();
    assert_eq!(codes, [("bad", code::INVALID_CONFIG), ("good", code::NONE)], "{what}");
}

/// C082
#[test]
fn list_operations_start_from_what_is_there() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("lists", 1, &[]);
    let mut change = |operation, value| {
        let answer = alter(&mut connection, TOPIC_RESOURCE, "lists", &[("cleanup.policy", operation, value)]);
        assert_eq!(answer, (code::NONE, None));
        setting(&mut connection, TOPIC_RESOURCE, "lists", "cleanup.policy").0
    };
    assert_eq!(change(APPEND, Some("compact")), "delete,compact");
    assert_eq!(change(SUBTRACT, Some("delete")), "compact");
    assert_eq!(change(SUBTRACT, Some("delete")), "compact", "what is not there");
    assert_eq!(change(DELETE, None), "delete");
    let null = alter(&mut connection, TOPIC_RESOURCE, "lists", &[("cleanup.policy", SET, None)]);
    assert!([code::INVALID_CONFIG, code::INVALID_REQUEST].contains(&null.0), "{null:?}");
    let number = alter(&mut connection, TOPIC_RESOURCE, "lists", &[("retention.ms", APPEND, Some("1"))]);
    assert_eq!(number.0, code::INVALID_CONFIG, "{number:?}");
}

/// C084, as far as one broker can show it.
#[test]
fn everybody_tells_of_the_same_cluster() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    let meta =
        std::fs::read_to_string(broker.data_dir().join("meta.properties")).expect("read meta.properties");
    let written =
        meta.lines().find_map(|line| line.strip_prefix("cluster.id=")).expect("cluster.id").to_owned();
    for version in 2..=12 {
        let request = wire::MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
        let answer = connection.call(version, &request);
        assert_eq!(answer.cluster_id.as_deref(), Some(&*written), "Metadata v{version}");
        assert_eq!(answer.controller_id, 1, "Metadata v{version}");
    }
    let described = connection.call(0, &DescribeClusterRequest::default());
    assert_eq!((&*described.cluster_id, described.controller_id), (&*written, 1));
    assert_eq!(described.brokers.len(), 1);
}

/// KAFKA-8875
#[test]
fn of_parallel_creations_one_makes_the_topic() {
    const CLIENTS: usize = 20;
    let broker = Broker::start(&[]);
    let address = broker.address();
    let create = || {
        let topics = vec![topic("raced", 1, &[])];
        let request = CreateTopicsRequest { topics, timeout_ms: 30_000, ..Default::default() };
        Connection::open(&address).call(5, &request).topics[0].error_code
    };
    let mut codes: Vec<i16> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(create)).collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)))
            .collect()
    });
    codes.sort_unstable();
    let mut expected = vec![code::TOPIC_ALREADY_EXISTS; CLIENTS];
    expected[0] = code::NONE;
    assert_eq!(codes, expected);
}

/// KAFKA-7082
#[test]
fn a_created_topic_is_described_and_a_checked_one_is_not_created() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    let of = |topic: CreatableTopic, validate_only| CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: 30_000,
        validate_only,
    };
    let checked = connection.call(5, &of(topic("checked", 3, &[]), true)).topics.remove(0);
    assert_eq!((checked.error_code, checked.num_partitions, checked.replication_factor), (0, 3, 1));
    assert!(connection.metadata(None).topics.is_empty());
    let made = connection.call(5, &of(topic("made", 3, &[("retention.ms", "5000")]), false)).topics.remove(0);
    assert_eq!((made.error_code, made.num_partitions, made.replication_factor), (0, 3, 1));
    let configs = made.configs.expect("configs");
    let retention = configs.iter().find(|config| &*config.name == "retention.ms").expect("retention.ms");
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("5000"), DYNAMIC_TOPIC));
    let many = |name: &str| CreatableTopic { replication_factor: 100, ..topic(name, 1, &[]) };
    let mut code_of = |name: &str| connection.call(5, &of(many(name), false)).topics[0].error_code;
    assert_eq!(code_of("made"), code::TOPIC_ALREADY_EXISTS);
    assert_eq!(code_of("new"), code::INVALID_REPLICATION_FACTOR);
}

/// KAFKA-16807
#[test]
fn log_folders_list_each_partition_once_with_its_size() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("sized", 2, &[]);
    connection.append("sized", 1, &Batch::of("k", 10, T0));
    let file = broker.data_dir().join("sized-1/00000000000000000000.log");
    let size = std::fs::metadata(file).expect("a segment").len();
    for version in 1..=4 {
        let all = connection.call(version, &DescribeLogDirsRequest { topics: None });
        assert_eq!(all.results.len(), 1, "v{version}");
        assert_eq!(&*all.results[0].log_dir, broker.data_dir().to_str().expect("a path of ASCII"));
        let mut partitions: Vec<(i32, i64)> = all.results[0]
            .topics
            .iter()
            .filter(|topic| &*topic.name == "sized")
            .flat_map(|topic| &topic.partitions)
            .map(|partition| (partition.partition_index, partition.partition_size))
            .collect();
        partitions.sort_unstable();
        assert_eq!(partitions, [(0, 0), (1, size as i64)], "v{version}");
        let elsewhere = DescribableLogDirTopic { topic: "elsewhere".into(), partitions: vec![0] };
        let none = connection.call(version, &DescribeLogDirsRequest { topics: Some(vec![elsewhere]) });
        assert!(none.results.iter().all(|dir| dir.topics.is_empty()), "v{version}: {none:?}");
    }
}

/// KAFKA-1580
#[test]
fn nobody_writes_to_internal_topics_but_their_coordinators() {
    let broker = Broker::start(&[("offsets.topic.num.partitions", "1")]);
    let mut connection = Connection::open(&broker.address());
    connection.wait_for_coordinator("group");
    let before = connection.log_end("__consumer_offsets", 0);
    let batch = Batch::of("k", 1, T0).encode();
    let answer = connection.produce("__consumer_offsets", vec![(0, batch)]).remove(0);
    assert_eq!(answer.error_code, code::INVALID_TOPIC);
    assert_eq!(connection.log_end("__consumer_offsets", 0), before);
    let response = connection.call(8, &commit_request("group", "missing", 0, 1));
    assert_eq!(response.topics[0].partitions[0].error_code, code::UNKNOWN_TOPIC_OR_PARTITION);
}

/// KAFKA-5171, without transactions.
#[test]
fn an_idempotent_producer_gets_an_id_of_its_own() {
    let mut broker = Broker::start(&[]);
    let mut ids = Vec::new();
    for round in 0..3 {
        let mut connection = Connection::open(&broker.address());
        for version in 0..=4 {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: i32::MAX,
                ..Default::default()
            };
            let answer = connection.call(version, &request);
            assert_eq!((answer.error_code, answer.producer_epoch), (0, 0), "v{version}");
            ids.push(answer.producer_id);
        }
        if round == 0 {
            broker.kill()
        } else {
            broker.stop()
        }
        broker.start_again();
    }
    let given = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), given, "an id was given twice: {ids:?}");
}

/// The settings of a broker: changed while it runs, with their sources, and kept.
#[test]
fn dynamic_broker_settings_take_effect_show_their_source_and_survive_a_restart() {
    const KEY: &str = "message.max.bytes";
    let mut broker = Broker::start(&[(KEY, "3000")]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("limited", 1, &[]);
    let fits = |connection: &mut Connection, size: usize| {
        let mut batch = Batch::of("k", 1, T0);
        batch.records[0].value = Some(vec![b'x'; size].into());
        connection.produce("limited", vec![(0, batch.encode())])[0].error_code == code::NONE
    };
    assert!(fits(&mut connection, 2_000) && !fits(&mut connection, 4_000));
    let set = |value| [(KEY, SET, Some(value))];
    assert_eq!(alter(&mut connection, BROKER_RESOURCE, "", &set("5000")).0, code::NONE);
    wait_for("the cluster's default", || fits(&mut connection, 4_000).then_some(()));
    assert_eq!(setting(&mut connection, BROKER_RESOURCE, "1", KEY), ("5000".into(), DYNAMIC_DEFAULT_BROKER));
    assert_eq!(alter(&mut connection, BROKER_RESOURCE, "1", &set("9000")).0, code::NONE);
    wait_for("the broker's own", || fits(&mut connection, 8_000).then_some(()));
    assert!(!fits(&mut connection, 10_000));
    let described = describe(&mut connection, BROKER_RESOURCE, "1", KEY).expect("the setting");
    let synonyms: Vec<(&str, i8)> = described
        .synonyms
        .iter()
        .map(|synonym| (synonym.value.as_deref().unwrap_or_default(), synonym.source))
        .collect();
    assert_eq!(synonyms, [("9000", 2), ("5000", 3), ("3000", 4), ("1048588", 5)]);
    let bad = alter(&mut connection, BROKER_RESOURCE, "1", &set("-5"));
    assert_eq!(bad.0, code::INVALID_REQUEST, "{bad:?}");
    assert_eq!(
        alter(&mut connection, BROKER_RESOURCE, "1", &[("log.dirs", SET, Some("/x"))]).0,
        code::INVALID_REQUEST
    );
    broker.restart();
    let mut connection = Connection::open(&broker.address());
    assert_eq!(setting(&mut connection, BROKER_RESOURCE, "1", KEY), ("9000".into(), DYNAMIC_BROKER));
    assert!(fits(&mut connection, 8_000));
    for name in ["1", ""] {
        assert_eq!(alter(&mut connection, BROKER_RESOURCE, name, &[(KEY, DELETE, None)]).0, code::NONE);
    }
    wait_for("the file's value", || (!fits(&mut connection, 4_000)).then_some(()));
    assert_eq!(setting(&mut connection, BROKER_RESOURCE, "1", KEY).0, "3000");
}

/// debezium#418
#[test]
fn settings_that_connectors_look_for_are_described() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    assert_eq!(setting(&mut connection, BROKER_RESOURCE, "1", "default.replication.factor").0, "1");
    connection.create_topic("kept", 1, &[("retention.ms", "-1")]);
    assert_eq!(
        setting(&mut connection, TOPIC_RESOURCE, "kept", "retention.ms"),
        ("-1".into(), DYNAMIC_TOPIC)
    );
}
