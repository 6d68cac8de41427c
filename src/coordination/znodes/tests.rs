use bytes::Bytes;

use super::*;
use crate::coordination::{NodeData, Stat};
use crate::model::{
    BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, ProducerId, Timestamp, TopicName, TopicPartition,
};

fn node(text: &str) -> NodeData {
    NodeData { data: Some(Bytes::copy_from_slice(text.as_bytes())), stat: Stat::default() }
}

const NULL: NodeData = NodeData {
    data: None,
    stat: Stat {
        czxid: 0,
        mzxid: 0,
        pzxid: 0,
        created_ms: 0,
        modified_ms: 0,
        version: 0,
        child_version: 0,
        acl_version: 0,
        ephemeral_owner: 0,
        data_length: 0,
        children: 0,
    },
};

fn text(bytes: Bytes) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A node of one of the trees that real brokers wrote, decoded and encoded again; `None` for nodes whose data
/// belongs to other rooms or to nobody.
fn rewritten(path: &str, node: &NodeData) -> Option<Result<Bytes, ZnodeError>> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    Some(match parts.as_slice() {
        ["cluster", "id"] => ClusterId::decode(node).map(|id| id.encode()),
        ["brokers", "ids", _] => Broker::decode(node).map(|broker| {
            let version = if text(node.data.clone().unwrap()).contains("features") {
                BrokerVersion::V5
            } else {
                BrokerVersion::V4
            };
            broker.encode(version)
        }),
        ["brokers", "topics", _] => TopicAssignment::decode(node).map(|topic| topic.encode()),
        ["brokers", "topics", _, "partitions", _, "state"] => {
            PartitionState::decode(node).map(|state| state.encode())
        }
        ["config", "changes", name] => {
            assert!(sequence_number(name, CONFIG_CHANGE_PREFIX).is_some(), "{name}");
            ConfigChange::decode(node).map(|change| change.encode())
        }
        ["config", entity @ ..] if ConfigEntity::from_entity_path(&entity.join("/")).is_some() => {
            let entity = ConfigEntity::from_entity_path(&entity.join("/")).unwrap();
            assert_eq!(entity.path(), path);
            EntityConfig::decode(node).map(|config| config.encode())
        }
        ["controller"] => Controller::decode(node).map(|controller| controller.encode()),
        ["controller_epoch"] => decode_controller_epoch(node).map(encode_controller_epoch),
        ["feature"] => Feature::decode(node).and_then(|feature| feature.encode(2)),
        ["latest_producer_id_block"] => ProducerIdBlock::decode(node).map(|block| block.unwrap().encode()),
        ["kafka-acl" | "kafka-acl-changes" | "kafka-acl-extended" | "kafka-acl-extended-changes", ..] => {
            return None;
        }
        ["consumers" | "zookeeper", ..] | [""] => return None,
        _ => panic!("no reader for {path}"),
    })
}

#[track_caller]
fn check_tree(tree: &str) {
    let mut count = 0;
    for line in tree.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (path, data) = (columns[0], columns[4]);
        if data == "\\N" {
            continue;
        }
        let node = node(data);
        let Some(rewritten) = rewritten(path, &node) else { continue };
        assert_eq!(rewritten.map(text).as_deref(), Ok(data), "{path}");
        count += 1;
    }
    assert!(count > 10, "{count} nodes");
}

#[test]
fn nodes_of_real_clusters_are_written_as_they_were() {
    check_tree(include_str!("../../../protocol-tests/peers/data/zk-tree-3.9.2.txt"));
    check_tree(include_str!("../../../protocol-tests/peers/data/log-dirs-3.9.2.zk.txt"));
}

fn plaintext(host: &str, port: u16) -> BrokerEndpoint {
    BrokerEndpoint {
        listener: "PLAINTEXT".to_owned(),
        security_protocol: "PLAINTEXT".to_owned(),
        host: host.to_owned(),
        port,
    }
}

#[test]
fn registrations_of_all_versions_are_read() {
    #[track_caller]
    fn check(data: &str, endpoints: &[BrokerEndpoint], rack: Option<&str>) {
        let broker = Broker::decode(&node(data)).unwrap();
        assert_eq!(broker.endpoints, endpoints);
        assert_eq!(broker.rack.as_deref(), rack);
    }
    check(
        r#"{"jmx_port":-1,"timestamp":"1","host":"h","version":1,"port":9092}"#,
        &[plaintext("h", 9092)],
        None,
    );
    check(
        r#"{"version":2,"host":"h","port":9,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h:9","SSL://:10"]}"#,
        &[
            plaintext("h", 9),
            BrokerEndpoint {
                listener: "SSL".to_owned(),
                security_protocol: "SSL".to_owned(),
                host: String::new(),
                port: 10,
            },
        ],
        None,
    );
    check(
        r#"{"version":3,"jmx_port":1,"endpoints":["PLAINTEXT://[::1]:9"],"rack":"r"}"#,
        &[plaintext("::1", 9)],
        Some("r"),
    );
    check(
        r#"{"version":9,"jmx_port":1,"endpoints":["IN://h:9"],"listener_security_protocol_map":{"IN":"SASL_SSL"},"rack":null,"new":[1]}"#,
        &[BrokerEndpoint {
            listener: "IN".to_owned(),
            security_protocol: "SASL_SSL".to_owned(),
            ..plaintext("h", 9)
        }],
        None,
    );
}

#[test]
fn registrations_are_written_as_kafka_writes_them() {
    let endpoints = vec![
        BrokerEndpoint {
            listener: "A".to_owned(),
            security_protocol: "SASL_PLAINTEXT".to_owned(),
            ..plaintext("127.0.0.1", 22192)
        },
        BrokerEndpoint {
            listener: "B".to_owned(),
            security_protocol: "SASL_PLAINTEXT".to_owned(),
            ..plaintext("::1", 22193)
        },
    ];
    let timestamp = Timestamp(1795994841156);
    let broker = Broker { endpoints, rack: None, jmx_port: -1, timestamp, features: Default::default() };
    assert_eq!(
        text(broker.encode(BrokerVersion::V4)),
        r#"{"listener_security_protocol_map":{"A":"SASL_PLAINTEXT","B":"SASL_PLAINTEXT"},"endpoints":["A://127.0.0.1:22192","B://[::1]:22193"],"jmx_port":-1,"port":-1,"host":null,"version":4,"timestamp":"1795994841156"}"#
    );
    let broker = Broker { endpoints: vec![plaintext("h", 9)], rack: Some("r1".to_owned()), ..broker };
    assert_eq!(
        text(broker.encode(BrokerVersion::V5)),
        r#"{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9"],"rack":"r1","jmx_port":-1,"port":9,"host":"h","version":5,"timestamp":"1795994841156"}"#
    );
    assert_eq!(
        text(broker.encode(BrokerVersion::V2)),
        r#"{"endpoints":["PLAINTEXT://h:9"],"jmx_port":-1,"port":9,"host":"h","version":2,"timestamp":"1795994841156"}"#
    );
}

/// R17, at the end.
#[test]
fn damaged_nodes_are_refused_with_their_key() {
    #[track_caller]
    fn check<T: std::fmt::Debug + PartialEq>(
        decode: fn(&NodeData) -> Result<T, ZnodeError>,
        data: &str,
        key: &'static str,
    ) {
        assert_eq!(decode(&node(data)), Err(ZnodeError::Unexpected { key }), "{data}");
    }
    check(Broker::decode, r#"{"version":5,"jmx_port":1}"#, "endpoints");
    check(Broker::decode, r#"{"version":5,"jmx_port":1,"endpoints":["h:1"]}"#, "endpoints");
    check(Broker::decode, r#"{"version":5,"jmx_port":1,"endpoints":["A://h:99999"]}"#, "endpoints");
    check(Broker::decode, r#"{"version":5,"jmx_port":"1","endpoints":[]}"#, "jmx_port");
    check(TopicAssignment::decode, r#"{"partitions":{"x":[1]}}"#, "partitions");
    check(TopicAssignment::decode, r#"{"partitions":{"0":[1.5]}}"#, "partitions");
    check(TopicAssignment::decode, r#"{"topic_id":"?"}"#, "topic_id");
    check(PartitionState::decode, r#"{"leader":1,"leader_epoch":0,"controller_epoch":1}"#, "isr");
    check(PartitionState::decode, r#"{"leader":9999999999,"leader_epoch":0,"controller_epoch":1}"#, "leader");
    check(EntityConfig::decode, r#"{"version":1,"config":{"a":1}}"#, "config");
    check(ConfigChange::decode, r#"{"version":2,"entity_path":"nothing/x"}"#, "entity_path");
    check(ReassignPartitions::decode, r#"{"partitions":[{"topic":"a/b","partition":0}]}"#, "topic");

    assert_eq!(TopicAssignment::decode(&NULL), Err(ZnodeError::NoData));
    assert_eq!(PartitionState::decode(&node("[1]")), Err(ZnodeError::NotJson));
    assert_eq!(
        EntityConfig::decode(&node(r#"{"version":2}"#)),
        Err(ZnodeError::UnknownVersion { version: 2 })
    );
    let deep = format!(r#"{{"version":1,"config":{}"#, "[".repeat(100_000));
    assert_eq!(EntityConfig::decode(&node(&deep)), Err(ZnodeError::NotJson));
}

#[test]
fn null_nodes_are_empty_configurations_and_blocks() {
    assert_eq!(EntityConfig::decode(&NULL), Ok(EntityConfig::default()));
    assert_eq!(ProducerIdBlock::decode(&NULL), Ok(None));
}

#[test]
fn assignments_of_all_versions_are_read_and_ids_are_kept() {
    let read = |data| TopicAssignment::decode(&node(data)).unwrap();
    let first = read(r#"{"version":1,"partitions":{"10":[3],"2":[1,2]}}"#);
    assert_eq!(first.topic_id, None);
    let replicas: Vec<_> = first.partitions.iter().map(|(index, of)| (index.0, of.replicas.len())).collect();
    assert_eq!(replicas, [(2, 2), (10, 1)]);
    assert_eq!(
        text(first.encode()),
        r#"{"partitions":{"2":[1,2],"10":[3]},"adding_replicas":{},"removing_replicas":{},"version":2}"#
    );
    let moving = r#"{"partitions":{"0":[1,2,3]},"topic_id":"w56GMbW_So-6XDObUgpUcA","adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]},"version":3}"#;
    let topic = read(moving);
    let partition = &topic.partitions[&PartitionIndex(0)];
    assert_eq!((&*partition.adding, &*partition.removing), (&[BrokerId(3)][..], &[BrokerId(1)][..]));
    assert_eq!(text(topic.encode()), moving);
    assert_eq!(read("{}"), TopicAssignment::default());
}

#[test]
fn a_recovering_leader_is_kept() {
    let state = PartitionState {
        leader: BrokerId(-1),
        leader_epoch: LeaderEpoch(7),
        isr: vec![BrokerId(1)],
        controller_epoch: ControllerEpoch(3),
        is_recovering: true,
    };
    let data = text(state.encode());
    assert!(data.ends_with(r#","isr":[1],"leader_recovery_state":1}"#), "{data}");
    assert_eq!(PartitionState::decode(&node(&data)), Ok(state));
}

#[test]
fn entities_and_their_paths_belong_together() {
    #[track_caller]
    fn check(entity: ConfigEntity, path: &str) {
        assert_eq!(entity.entity_path(), path);
        assert_eq!(ConfigEntity::from_entity_path(path), Some(entity));
    }
    let some = |name: &str| Some(name.to_owned());
    check(ConfigEntity::Topic(TopicName::new("a.b").unwrap()), "topics/a.b");
    check(ConfigEntity::Broker(Some(BrokerId(7))), "brokers/7");
    check(ConfigEntity::Broker(None), "brokers/<default>");
    check(ConfigEntity::User(some("us er*+/ä~")), "users/us%20er%2A%2B%2F%C3%A4%7E");
    check(ConfigEntity::User(some("<default>")), "users/%3Cdefault%3E");
    check(ConfigEntity::Client(None), "clients/<default>");
    let both = ConfigEntity::UserClient { user: None, client: some("a") };
    check(both, "users/<default>/clients/a");
    check(ConfigEntity::Ip(some("::1")), "ips/::1");
    check(ConfigEntity::Ip(None), "ips/<default>");
    for path in
        ["topics", "topics/a/b", "topics/<default>", "brokers/x", "users/a/clients", "users/%zz", "x/y"]
    {
        assert_eq!(ConfigEntity::from_entity_path(path), None, "{path}");
    }
}

#[test]
fn notifications_of_version_1_are_read() {
    let change = ConfigChange::decode(&node(r#"{"version":1,"entity_type":"clients","entity_name":"a"}"#));
    assert_eq!(change, Ok(ConfigChange(ConfigEntity::Client(Some("a".to_owned())))));
}

#[test]
fn lists_of_partitions_are_read_as_written() {
    let of =
        |topic, partition| TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(partition));
    let partitions = vec![of("a", 0), of("b", 7)];
    let expected = r#"{"version":1,"partitions":[{"topic":"a","partition":0},{"topic":"b","partition":7}]}"#;
    assert_eq!(text(IsrChange(partitions.clone()).encode()), expected);
    assert_eq!(text(PreferredElection(partitions.clone()).encode()), expected);
    assert_eq!(IsrChange::decode(&node(expected)), Ok(IsrChange(partitions.clone())));
    assert_eq!(PreferredElection::decode(&node(expected)), Ok(PreferredElection(partitions)));
    let data = r#"{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[2,1]}]}"#;
    let reassignment = ReassignPartitions::decode(&node(data)).unwrap();
    assert_eq!(reassignment.0[0].replicas, [BrokerId(2), BrokerId(1)]);
    assert_eq!(text(reassignment.encode()), data);
    let event = LogDirEvent { broker_id: BrokerId(4) };
    assert_eq!(text(event.encode()), r#"{"version":1,"broker":4,"event":1}"#);
    assert_eq!(LogDirEvent::decode(&node(&text(event.encode()))), Ok(event));
}

#[test]
fn producer_id_blocks_follow_each_other_to_the_last_id() {
    let first = ProducerIdBlock::initial(BrokerId(1));
    let second = first.next(BrokerId(2)).unwrap();
    assert_eq!((second.first, second.last), (ProducerId(1000), ProducerId(1999)));
    let last = ProducerIdBlock { last: ProducerId(i64::MAX - 999), ..first };
    assert_eq!(last.next(BrokerId(1)), None);
}

#[test]
fn a_kraft_controller_is_told_from_a_broker() {
    let epoch = |data| decode_kraft_controller_epoch(&node(data)).unwrap();
    assert_eq!(epoch(r#"{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":8}"#), Some(8));
    assert_eq!(epoch(r#"{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}"#), None);
    assert_eq!(epoch(r#"{"version":1,"brokerid":1,"timestamp":"1"}"#), None);
}

#[test]
fn features_carry_their_levels() {
    let feature = Feature { status: FeatureStatus::Enabled, features: [("f".to_owned(), 3)].into() };
    let data = r#"{"features":{"f":{"max_version_level":3}},"version":2,"status":1}"#;
    assert_eq!(feature.encode(2).map(text).as_deref(), Ok(data));
    assert_eq!(Feature::decode(&node(data)), Ok(feature.clone()));
    let old = r#"{"features":{"f":{"min_version_level":1,"max_version_level":3}},"version":1,"status":1}"#;
    assert_eq!(feature.encode(1).map(text).as_deref(), Ok(old));
    assert_eq!(Feature::decode(&node(old)), Ok(feature));
}

#[test]
fn sequence_numbers_are_read_from_names() {
    assert_eq!(sequence_number("config_change_0000000012", CONFIG_CHANGE_PREFIX), Some(12));
    assert_eq!(sequence_number("config_change_-2147483648", CONFIG_CHANGE_PREFIX), Some(i32::MIN));
    assert_eq!(sequence_number("config_change_x", CONFIG_CHANGE_PREFIX), None);
    assert_eq!(sequence_number("other_1", CONFIG_CHANGE_PREFIX), None);
}
