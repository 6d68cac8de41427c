//! One Barnabas broker on a real ZooKeeper: what it writes there, and what it lives through.

mod security;
mod three_brokers;

use std::collections::{BTreeMap, BTreeSet};

use protocol_tests::batch::Batch;
use protocol_tests::requests::{produce_request, values};
use protocol_tests::{
    Broker, Connection, Server, Znode, ZooKeeper, has_java, has_program, kafka_tool, wait_for,
};
use rustix::process::Signal;
use serde_json::Value;
use wire::create_partitions_request::{CreatePartitionsRequest, CreatePartitionsTopic};
use wire::create_topics_request::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use wire::delete_topics_request::DeleteTopicsRequest;
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use wire::metadata_request::{MetadataRequest, MetadataRequestTopic};

/// Sessions of 1.5 s, which the test can wait for.
const SHORT_SESSIONS: &[&str] = &["tickTime=500"];
const MESSAGE_TOO_LARGE: i16 = 10;
const SESSION_TIMEOUT: (&str, &str) = ("zookeeper.session.timeout.ms", "1500");
/// A server that has just started may take its time.
const CONNECTION_TIMEOUT: (&str, &str) = ("zookeeper.connection.timeout.ms", "60000");
/// What the broker says of an ensemble that is out of reach.
const OUTAGE: &[&str] = &["lost the connection to ZooKeeper", "has expired", "joining the cluster again"];

/// The same requests to a broker of each kind leave the same tree, node for node.
#[test]
fn the_tree_is_kafkas() {
    if !has_java() {
        return;
    }
    let settings = [
        ("broker.rack", "r1"),
        ("offsets.topic.num.partitions", "4"),
        ("offsets.topic.replication.factor", "1"),
        ("log.cleaner.dedupe.buffer.size", "2097153"),
    ];
    let kafka = Broker::start_as(Server::named("kafka-3.9.2"), &settings);
    script(&kafka);
    let theirs = kafka.zookeeper().expect("this Kafka has a ZooKeeper").dump("");
    drop(kafka);
    let zookeeper = ZooKeeper::start(&[]);
    let connect = format!("{}/kafka/one", zookeeper.address());
    let broker =
        Broker::start_as(Server::Barnabas, &[&settings[..], &[("zookeeper.connect", &connect)]].concat());
    script(&broker);
    let ours = zookeeper.dump("/kafka/one");
    check_equal(theirs, ours);
}

#[track_caller]
fn check_equal(theirs: BTreeMap<String, Znode>, ours: BTreeMap<String, Znode>) {
    assert!(ours.len() > 50, "{} nodes are not the whole tree", ours.len());
    let differing = differences(theirs, ours);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// What of the trees differs and does not depend on the run, node by node.
fn differences(theirs: BTreeMap<String, Znode>, ours: BTreeMap<String, Znode>) -> Vec<String> {
    let (theirs, mut ours) = (comparable(theirs), comparable(ours));
    // What Kafka has no node for lies apart: which brokers are ours, and levels of features.
    ours.retain(|path, _| !path.starts_with("/barnabas"));
    let all: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    let shown = |node: Option<&Comparable>| match node {
        Some((stat, data)) => format!("{stat} {data}"),
        None => "nothing".to_owned(),
    };
    all.into_iter()
        .map(|path| (path, theirs.get(path), ours.get(path)))
        .filter(|(_, theirs, ours)| theirs != ours)
        .map(|(path, theirs, ours)| {
            format!("{path}\n  kafka    {}\n  barnabas {}", shown(theirs), shown(ours))
        })
        .collect()
}

/// Topics, configurations, a group's coordinator, a producer id, growth, deletion.
fn script(broker: &Broker) {
    let mut connection = Connection::open(&broker.address());
    create_topic(&mut connection, "orders", 3, &[("min.insync.replicas", "1"), ("retention.ms", "-1")]);
    create_topic(&mut connection, "plain", 1, &[]);
    create_topic(&mut connection, "gone", 2, &[("cleanup.policy", "compact")]);
    alter(&mut connection, 2, "orders", &[("segment.bytes", "1000000")]);
    alter(&mut connection, 4, "", &[("message.max.bytes", "2000000")]);
    alter(&mut connection, 4, "1", &[("max.connections", "500")]);
    let growth = CreatePartitionsTopic { name: "plain".into(), count: 3, assignments: None };
    let request = CreatePartitionsRequest { topics: vec![growth], timeout_ms: 30_000, ..Default::default() };
    assert_eq!(connection.call(2, &request).results[0].error_code, 0, "CreatePartitions");
    connection.take_producer_id();
    wait_for("the group's coordinator", || {
        let request = FindCoordinatorRequest { key: "group".into(), ..Default::default() };
        (connection.call(3, &request).error_code == 0).then_some(())
    });
    let request =
        DeleteTopicsRequest { topic_names: vec!["gone".into()], timeout_ms: 30_000, ..Default::default() };
    assert_eq!(connection.call(4, &request).responses[0].error_code, 0, "DeleteTopics");
    wait_for("the deletion, and leaders of the rest", || {
        let topics = connection.call(9, &MetadataRequest { topics: None, ..Default::default() }).topics;
        let is_led = topics.iter().all(|topic| topic.partitions.iter().all(|one| one.leader_id == 1));
        (topics.len() == 3 && is_led).then_some(())
    });
}

fn create_topic(connection: &mut Connection, name: &str, partitions: i32, configs: &[(&str, &str)]) {
    let config =
        |&(name, value): &(&str, &str)| CreatableTopicConfig { name: name.into(), value: Some(value.into()) };
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: 1,
        configs: configs.iter().map(config).collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    wait_for(&format!("topic {name}"), || {
        let code = connection.call(5, &request).topics[0].error_code;
        // After an outage the first attempt may have been carried out without an answer.
        (code == 0 || code == 36).then_some(())
    });
}

fn alter(connection: &mut Connection, resource_type: i8, name: &str, configs: &[(&str, &str)]) {
    let config = |&(name, value): &(&str, &str)| AlterableConfig {
        name: name.into(),
        config_operation: 0,
        value: Some(value.into()),
    };
    let resource = AlterConfigsResource {
        resource_type,
        resource_name: name.into(),
        configs: configs.iter().map(config).collect(),
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let response = connection.call(1, &request);
    assert_eq!(response.responses[0].error_code, 0, "{name}: {:?}", response.responses[0].error_message);
}

/// Kind, version and access list of a node, and its data.
type Comparable = (String, Value);

/// What does not depend on the run: JSON by value; times, ids and addresses left out.
fn comparable(tree: BTreeMap<String, Znode>) -> BTreeMap<String, Comparable> {
    let mut comparable = BTreeMap::new();
    for (path, node) in tree {
        // ZooKeeper's own; and the root, which is a node of the user's behind a chroot.
        if path.starts_with("/zookeeper") || path == "/" {
            continue;
        }
        let data = match serde_json::from_str::<Value>(&node.data) {
            Ok(mut value @ Value::Object(_)) => {
                for key in ["timestamp", "topic_id", "port", "endpoints"] {
                    if let Some(field) = value.get_mut(key) {
                        *field = Value::Null;
                    }
                }
                if path == "/cluster/id" {
                    value["id"] = Value::Null;
                }
                value
            }
            _ => Value::String(node.data),
        };
        comparable.insert(path, (format!("{} {} {}", node.kind, node.version, node.acl), data));
    }
    comparable
}

fn produce(connection: &mut Connection, topic: &str, text: &str) {
    wait_for("an acknowledgement", || (produced(connection, topic, text) == 0).then_some(()));
}

fn wait_until_large_records_are_refused(connection: &mut Connection, topic: &str) {
    wait_for("the changed setting", || {
        (produced(connection, topic, &"x".repeat(2_000)) == MESSAGE_TOO_LARGE).then_some(())
    });
}

/// The error code of the answer to a record.
fn produced(connection: &mut Connection, topic: &str, text: &str) -> i16 {
    let batch = Batch::of(text, 1, 1_500_000_000_000).encode();
    let request = produce_request(topic, -1, vec![(0, batch)]);
    connection.call(9, &request).responses[0].partition_responses[0].error_code
}

fn consume(connection: &mut Connection, topic: &str) -> Vec<String> {
    values(&connection.fetch_all(topic, 0, 0))
}

fn start_on(zookeeper: &ZooKeeper) -> Broker {
    let connect = ("zookeeper.connect", &*zookeeper.address());
    let mut broker = Broker::start_as(Server::Barnabas, &[connect, SESSION_TIMEOUT, CONNECTION_TIMEOUT]);
    OUTAGE.iter().for_each(|text| broker.allow_log(text));
    broker
}

fn registration(zookeeper: &ZooKeeper) -> Option<Znode> {
    zookeeper.dump("").remove("/brokers/ids/1")
}

/// C062, C096.
#[test]
fn data_flow_while_zookeeper_is_down_and_the_broker_stops_without_it() {
    if !has_java() {
        return;
    }
    let zookeeper = ZooKeeper::start(SHORT_SESSIONS);
    let mut broker = start_on(&zookeeper);
    let mut connection = Connection::open(&broker.address());
    create_topic(&mut connection, "t", 1, &[]);
    produce(&mut connection, "t", "before");
    zookeeper.stop();
    for _ in 0..20 {
        produce(&mut connection, "t", "during");
    }
    assert_eq!(consume(&mut connection, "t").len(), 21);
    zookeeper.start_again();
    create_topic(&mut connection, "later", 1, &[]);
    produce(&mut connection, "later", "after");
    wait_for("the registration", || registration(&zookeeper));
    zookeeper.stop();
    broker.allow_log("the store's session was not closed");
    broker.allow_log("the broker's id is taken");
    // A stop that waits for ZooKeeper would end in a panic here.
    broker.stop();
    zookeeper.start_again();
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    assert_eq!(consume(&mut connection, "t").len(), 21);
    assert_eq!(consume(&mut connection, "later"), ["after-0"]);
}

/// C062, C063.
#[test]
fn an_expired_broker_joins_again_by_itself() {
    if !has_java() {
        return;
    }
    let zookeeper = ZooKeeper::start(SHORT_SESSIONS);
    let broker = start_on(&zookeeper);
    let mut connection = Connection::open(&broker.address());
    create_topic(&mut connection, "t", 1, &[]);
    let controllers = |tree: &BTreeMap<String, Znode>| tree["/controller_epoch"].data.clone();
    let first = zookeeper.dump("");
    broker.signal(Signal::STOP);
    wait_for("the end of the session", || registration(&zookeeper).is_none().then_some(()));
    broker.signal(Signal::CONT);
    wait_for("the broker's return", || registration(&zookeeper));
    create_topic(&mut connection, "u", 1, &[]);
    produce(&mut connection, "t", "again");
    produce(&mut connection, "u", "again");
    alter(&mut connection, 2, "u", &[("max.message.bytes", "1000")]);
    wait_until_large_records_are_refused(&mut connection, "u");
    assert_ne!(controllers(&first), controllers(&zookeeper.dump("")));
}

/// C063, KAFKA-4428: an earlier life is waited for, another broker's is respected.
#[test]
fn a_killed_broker_waits_for_its_old_session_and_a_live_id_is_refused() {
    if !has_java() {
        return;
    }
    let zookeeper = ZooKeeper::start(SHORT_SESSIONS);
    let connect = ("zookeeper.connect", &*zookeeper.address());
    // A session that a busy machine does not end: the live broker is to be the same all the time.
    let settings = [connect, ("zookeeper.session.timeout.ms", "6000"), CONNECTION_TIMEOUT];
    let mut broker = Broker::start_as(Server::Barnabas, &settings);
    broker.allow_log("lost the connection to ZooKeeper");
    broker.allow_log("the broker's id is taken");
    broker.kill();
    broker.start_again();
    let alive = registration(&zookeeper).expect("the broker is registered");
    let mut other = Broker::prepare(&settings);
    other.allow_log("the broker's id is taken");
    let said = other.start_refused();
    assert!(said.contains("a live broker is registered with id 1 already"), "{said}");
    assert_eq!(registration(&zookeeper), Some(alive));
    let mut connection = Connection::open(&broker.address());
    create_topic(&mut connection, "t", 1, &[]);
    let names = connection.call(
        9,
        &MetadataRequest {
            topics: Some(vec![MetadataRequestTopic { name: Some("t".into()), ..Default::default() }]),
            ..Default::default()
        },
    );
    assert_eq!(names.brokers.len(), 1);
}

#[test]
fn an_ensemble_that_is_not_there_is_one_clear_line() {
    let mut broker = Broker::prepare(&[
        ("zookeeper.connect", "127.0.0.1:1/x"),
        ("zookeeper.connection.timeout.ms", "500"),
    ]);
    let said = broker.start_refused();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("no session with ZooKeeper within 500 ms: 127.0.0.1:1"), "{said}");
    assert!(!broker.data_dir().join("meta.properties").exists());
}

/// What a broker's Metadata says: the ids of the brokers, and the controller.
fn cluster_of(broker: &Broker) -> (Vec<i32>, i32) {
    let mut connection = Connection::open(&broker.address());
    let metadata = connection.call(9, &MetadataRequest { topics: Some(Vec::new()), ..Default::default() });
    let mut ids: Vec<i32> = metadata.brokers.iter().map(|broker| broker.node_id).collect();
    ids.sort_unstable();
    (ids, metadata.controller_id)
}

#[test]
fn three_brokers_show_each_other_and_elect_another_controller() {
    if !has_java() {
        return;
    }
    let zookeeper = ZooKeeper::start(SHORT_SESSIONS);
    let connect = ("zookeeper.connect", &*zookeeper.address());
    let mut brokers: Vec<Broker> = ["1", "2", "3"]
        .into_iter()
        .map(|id| {
            let settings = [connect, SESSION_TIMEOUT, CONNECTION_TIMEOUT, ("broker.id", id)];
            let mut broker = Broker::start_as(Server::Barnabas, &settings);
            OUTAGE.iter().for_each(|text| broker.allow_log(text));
            broker.allow_log("moved all leaderships");
            broker
        })
        .collect();
    wait_for("three brokers on each", || {
        let seen: Vec<_> = brokers.iter().map(cluster_of).collect();
        seen.iter().all(|(ids, controller)| *ids == [1, 2, 3] && *controller == seen[0].1).then_some(())
    });
    let controller = usize::try_from(cluster_of(&brokers[0]).1).expect("a controller");
    let mut killed = brokers.remove(controller - 1);
    killed.kill();
    wait_for("a new controller", || {
        let seen: Vec<_> = brokers.iter().map(cluster_of).collect();
        let is_new = |(ids, now): &(Vec<i32>, i32)| ids.len() == 2 && ids.contains(now) && *now == seen[0].1;
        seen.iter().all(is_new).then_some(())
    });
}

/// Tools that know ZooKeeper alone write topics and configurations there, and Barnabas does what they say.
#[test]
fn old_tools_work_through_zookeeper() {
    if !has_java() || !has_program("mvn") {
        return;
    }
    let zookeeper = ZooKeeper::start(SHORT_SESSIONS);
    let broker = start_on(&zookeeper);
    let address = zookeeper.address();
    // Not in a session of tools: its class loaders keep the tool from Kafka's own classes.
    let run = |name: &str, arguments: &[&str]| {
        let output = kafka_tool("2.8.2", name)
            .args(["--zookeeper", &address])
            .args(arguments)
            .output()
            .expect("run peers/kafka-tool");
        assert!(output.status.success(), "{name} {arguments:?}: {output:?}");
    };
    run("kafka-topics", &["--create", "--topic", "old", "--partitions", "2", "--replication-factor", "1"]);
    let mut connection = Connection::open(&broker.address());
    let mut partitions = || {
        let topics = connection.call(9, &MetadataRequest { topics: None, ..Default::default() }).topics;
        let topic = topics.iter().find(|topic| topic.name.as_deref() == Some("old"))?;
        let is_led = topic.partitions.iter().all(|partition| partition.leader_id == 1);
        is_led.then_some(topic.partitions.len())
    };
    wait_for("the topic", || (partitions() == Some(2)).then_some(()));
    run("kafka-topics", &["--alter", "--topic", "old", "--partitions", "3"]);
    wait_for("its third partition", || (partitions() == Some(3)).then_some(()));
    // The tool writes no topic id when it creates a topic: the controller adds one.
    wait_for("the topic's id", || {
        zookeeper.dump("")["/brokers/topics/old"].data.contains("topic_id").then_some(())
    });
    run(
        "kafka-configs",
        &[
            "--alter",
            "--entity-type",
            "topics",
            "--entity-name",
            "old",
            "--add-config",
            "max.message.bytes=1000",
        ],
    );
    let mut connection = Connection::open(&broker.address());
    wait_until_large_records_are_refused(&mut connection, "old");
    run("kafka-topics", &["--delete", "--topic", "old"]);
    wait_for("the end of the topic", || {
        (!zookeeper.dump("").contains_key("/brokers/topics/old")).then_some(())
    });
}
