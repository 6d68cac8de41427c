//! Cases of `cases.toml` that one broker cannot show: leaders and coordinators that move, followers, brokers that are gone.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use bytes::Bytes;
use protocol_tests::batch::Batch;
use protocol_tests::requests::{EARLIEST, LATEST, fetch_request, produce_request, values};
use protocol_tests::{Cluster, Connection, Tools, announce, has_java, has_program, kafka_tool, wait_for};
use rustix::process::Signal;
use wire::Uuid;
use wire::describe_cluster_request::DescribeClusterRequest;
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use wire::join_group_request::{JoinGroupRequest, JoinGroupRequestProtocol};
use wire::list_groups_request::ListGroupsRequest;
use wire::metadata_request::{MetadataRequest, MetadataRequestTopic};
use wire::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use wire::sync_group_request::{SyncGroupRequest, SyncGroupRequestAssignment};

/// Create times of records: 2023-11-14.
const T0: i64 = 1_700_000_000_000;
const SETTINGS: &[(&str, &str)] = &[Cluster::LONG_SESSIONS];
const NONE: i16 = 0;
const LEADER_NOT_AVAILABLE: i16 = 5;
const NOT_LEADER_OR_FOLLOWER: i16 = 6;
const FENCED_LEADER_EPOCH: i16 = 74;
const UNKNOWN_LEADER_EPOCH: i16 = 75;

/// Runs `script` while `work` runs in threads that look whether they shall stop.
fn beside(work: &[&(dyn Fn(&AtomicBool) + Sync)], script: impl FnOnce()) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&is_over);
        for work in work {
            scope.spawn(|| work(&is_over));
        }
        script();
    });
}

/// Asks a broker for a partition in several versions again and again, and notes the error codes.
fn fetch_until(is_over: &AtomicBool, addresses: &[String], codes: &Mutex<BTreeSet<i16>>) {
    let mut connections: Vec<Connection> =
        addresses.iter().map(|address| Connection::open(address)).collect();
    // Who leads it waits, and leaves the machine to others.
    let mut request = fetch_request("t", &[(0, 0)], 1 << 20);
    (request.max_wait_ms, request.min_bytes) = (50, 1 << 20);
    while !is_over.load(Ordering::SeqCst) {
        for version in [4, 11, 12] {
            for connection in &mut connections {
                let answer = connection.call(version, &request);
                let code = answer.responses[0].partitions[0].error_code;
                codes.lock().expect("a set of codes").extend([answer.error_code, code]);
            }
        }
    }
}

/// Writes one record after the other as an idempotent producer that repeats what was refused, and notes the error
/// codes; gives the number of records.
fn produce_until(is_over: &AtomicBool, addresses: &[String], codes: &Mutex<BTreeSet<i16>>) -> i32 {
    let mut any = Connection::open(&addresses[0]);
    let id = any.take_producer_id();
    let mut sequence = 0;
    while !is_over.load(Ordering::SeqCst) {
        let leader = any.metadata(Some("t")).topics[0].partitions[0].leader_id;
        let Ok(position) = usize::try_from(leader - 1) else { continue };
        let mut connection = Connection::open(&addresses[position]);
        while !is_over.load(Ordering::SeqCst) {
            let mut batch = Batch::of(&format!("r{sequence}"), 1, T0);
            (batch.producer_id, batch.producer_epoch) = (id.producer_id, id.producer_epoch);
            batch.base_sequence = sequence;
            let answer = connection.call(7, &produce_request("t", -1, vec![(0, batch.encode())]));
            let code = answer.responses[0].partition_responses[0].error_code;
            codes.lock().expect("a set of codes").insert(code);
            if code != NONE {
                break;
            }
            sequence += 1;
        }
    }
    sequence
}

/// C009, C057
#[test]
fn answers_while_leaders_move_are_those_that_clients_expect() {
    if !has_java() {
        return;
    }
    let cluster = Cluster::of_three(SETTINGS);
    cluster.create_topic("t", &[&[1, 2]]);
    for id in 1..=3 {
        let knows =
            || (!cluster.connect(id).metadata(Some("t")).topics[0].partitions.is_empty()).then_some(());
        wait_for("every broker to know the topic", knows);
    }
    let (fetched, produced) = (Mutex::default(), Mutex::default());
    let count = AtomicI32::new(0);
    let addresses = cluster.addresses();
    beside(
        &[
            // Former replicas, and brokers that never were one, are asked as well.
            &|is_over| fetch_until(is_over, &addresses, &fetched),
            &|is_over| count.store(produce_until(is_over, &addresses, &produced), Ordering::SeqCst),
        ],
        || {
            for pair in [[2, 3], [3, 1], [1, 2], [2, 3], [3, 1]] {
                cluster.reassign("t", 0, &pair);
                for leader in [pair[1], pair[0], pair[1], pair[0]] {
                    cluster.lead("t", 0, leader);
                }
            }
        },
    );
    let fetched = fetched.into_inner().expect("a set of codes");
    let produced = produced.into_inner().expect("a set of codes");
    announce(&format!("cluster: fetch answered {fetched:?}, produce {produced:?}"));
    let expected = [0, 1, 5, 6, 9, 56, 74, 75, 78, 100, 103].into();
    assert!(fetched.is_subset(&expected) && fetched.contains(&NOT_LEADER_OR_FOLLOWER), "{fetched:?}");
    assert!(produced.is_subset(&[0, 5, 6, 7, 19, 20, 56].into()), "{produced:?}");
    // No record is lost or there twice.
    let leader = cluster.leader("t", 0, 0);
    let found = values(&cluster.connect(leader).fetch_all("t", 0, 0));
    let wanted: Vec<String> = (0..count.into_inner()).map(|number| format!("r{number}-0")).collect();
    assert!(
        found.starts_with(&wanted) && found.len() <= wanted.len() + 1,
        "{} of {}",
        found.len(),
        wanted.len()
    );
}

/// The id of the topic, as the broker of this address tells it.
#[track_caller]
fn topic_id(connection: &mut Connection) -> Uuid {
    let topics = vec![MetadataRequestTopic { name: Some("t".into()), ..Default::default() }];
    connection.call(12, &MetadataRequest { topics: Some(topics), ..Default::default() }).topics[0].topic_id
}

/// C065: who writes the topic's node without its id, as all did before 2.8, makes partitions, and the id stays.
#[test]
fn a_tool_from_before_topic_ids_does_no_harm() {
    if !has_java() || !has_program("mvn") {
        return;
    }
    let mut cluster = Cluster::of_three(SETTINGS);
    cluster.create_topic("t", &[&[1, 2, 3], &[2, 3, 1]]);
    let id = topic_id(&mut cluster.connect(1));
    let (fetched, produced) = (Mutex::default(), Mutex::default());
    let count = AtomicI32::new(0);
    let addresses = cluster.addresses();
    beside(
        &[&|is_over| fetch_until(is_over, &addresses, &fetched), &|is_over| {
            count.store(produce_until(is_over, &addresses, &produced), Ordering::SeqCst)
        }],
        || {
            let output = kafka_tool("0.11.0.3", "kafka-topics")
                .args(["--zookeeper", &cluster.zookeeper().address()])
                .args(["--alter", "--topic", "t", "--partitions", "4"])
                .output()
                .expect("run peers/kafka-tool");
            assert!(output.status.success(), "{output:?}");
            for index in 0..4 {
                wait_for("a partition with all its replicas", || {
                    let partition = cluster.partition("t", index, 0)?;
                    (partition.leader_id > 0 && partition.isr_nodes.len() == 3).then_some(())
                });
            }
        },
    );
    let unknown_ids = [100, 103].into();
    let fetched = fetched.into_inner().expect("a set of codes");
    assert!(fetched.contains(&NONE) && fetched.is_disjoint(&unknown_ids), "{fetched:?}");
    assert_eq!(produced.into_inner().expect("a set of codes"), [NONE].into());
    let found = values(&cluster.connect(cluster.leader("t", 0, 0)).fetch_all("t", 0, 0)).len();
    assert_eq!(found, count.into_inner() as usize);
    let controller = cluster.controller(0);
    cluster.broker(controller).stop();
    cluster.controller(controller);
    cluster.broker(controller).start_again();
    cluster.wait_for_brokers(3);
    for broker in 1..=3 {
        assert_eq!(topic_id(&mut cluster.connect(broker)), id, "the id on {broker}");
    }
    for index in 0..4 {
        let leader = cluster.leader("t", index, 0);
        cluster.connect(leader).append("t", index, &Batch::of("later", 1, T0));
    }
}

/// The end of an epoch by OffsetForLeaderEpoch, or the error code.
#[track_caller]
fn epoch_end(connection: &mut Connection, current: i32, asked: i32) -> Result<(i32, i64), i16> {
    let partition =
        OffsetForLeaderPartition { partition: 0, current_leader_epoch: current, leader_epoch: asked };
    let topics = vec![OffsetForLeaderTopic { topic: "t".into(), partitions: vec![partition] }];
    let answer = connection.call(3, &OffsetForLeaderEpochRequest { replica_id: -2, topics });
    let partition = &answer.topics[0].partitions[0];
    if partition.error_code == NONE {
        Ok((partition.leader_epoch, partition.end_offset))
    } else {
        Err(partition.error_code)
    }
}

/// C014, C024
#[test]
fn followers_and_old_epochs_are_refused_with_their_own_codes() {
    if !has_java() {
        return;
    }
    let cluster = Cluster::of_three(SETTINGS);
    cluster.create_topic("t", &[&[1, 2]]);
    let epoch = |leader: i32| cluster.partition("t", 0, 0).filter(|found| found.leader_id == leader);
    let epoch = |leader: i32| wait_for("the leader", || epoch(leader)).leader_epoch;
    let first = epoch(1);
    cluster.connect(1).append("t", 0, &Batch::of("a", 10, T0));
    cluster.lead("t", 0, 2);
    cluster.lead("t", 0, 1);
    let second = epoch(1);
    assert!(second >= first + 2);
    cluster.connect(1).append("t", 0, &Batch::of("b", 10, T0));
    let mut leader = cluster.connect(1);
    assert_eq!(epoch_end(&mut leader, -1, first), Ok((first, 10)));
    assert_eq!(epoch_end(&mut leader, -1, first + 1), Ok((first, 10)));
    assert_eq!(epoch_end(&mut leader, -1, second), Ok((second, 20)));
    assert_eq!(epoch_end(&mut leader, -1, second + 4), Ok((-1, -1)));
    assert_eq!(epoch_end(&mut leader, -1, -1), Ok((-1, -1)));
    assert_eq!(epoch_end(&mut leader, first, first), Err(FENCED_LEADER_EPOCH));
    assert_eq!(epoch_end(&mut leader, second + 1, first), Err(UNKNOWN_LEADER_EPOCH));
    let mut follower = cluster.connect(2);
    assert_eq!(epoch_end(&mut follower, -1, first), Err(NOT_LEADER_OR_FOLLOWER));
    assert_eq!(follower.delete_records("t", 0, 5).error_code, NOT_LEADER_OR_FOLLOWER);
    // The leader does it, and with it every replica.
    let deleted = leader.delete_records("t", 0, 5);
    assert_eq!((deleted.error_code, deleted.low_watermark), (NONE, 5));
    assert_eq!(leader.log_start("t", 0), 5);
    cluster.lead("t", 0, 2);
    assert_eq!(cluster.connect(2).log_start("t", 0), 5);
}

/// C021
#[test]
fn retention_waits_for_a_follower_that_is_in_sync_and_stands_still() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::of_three(&[
        ("zookeeper.session.timeout.ms", "120000"),
        ("replica.lag.time.max.ms", "120000"),
        ("log.retention.check.interval.ms", "50"),
        ("log.roll.ms", "100"),
        ("log.initial.task.delay.ms", "100"),
    ]);
    cluster.create_topic("t", &[&[1, 2]]);
    let mut leader = cluster.connect(1);
    leader.append("t", 0, &Batch::of("a", 10, T0));
    cluster.broker(2).signal(Signal::STOP);
    // What was old when it came: all of it could go at once.
    let answer = leader.call(7, &produce_request("t", 1, vec![(0, Batch::of("b", 10, T0 + 1_000).encode())]));
    assert_eq!(answer.responses[0].partition_responses[0].error_code, NONE);
    let config = [("retention.ms", "1")];
    alter_topic(&mut leader, "t", &config);
    // What all replicas have goes, and nothing beyond.
    wait_for("the committed records to be deleted", || {
        let start = leader.offset_at("t", 0, EARLIEST).expect("the leader answers");
        assert!(start <= leader.offset_at("t", 0, LATEST).expect("the leader answers"));
        (start == 10).then_some(())
    });
    assert_eq!(leader.offset_at("t", 0, LATEST), Ok(10));
    cluster.broker(2).signal(Signal::CONT);
    wait_for("the rest to be deleted", || (leader.offset_at("t", 0, EARLIEST) == Ok(20)).then_some(()));
}

#[track_caller]
fn alter_topic(connection: &mut Connection, topic: &str, configs: &[(&str, &str)]) {
    let configs = configs.iter().map(|(name, value)| AlterableConfig {
        name: (*name).into(),
        config_operation: 0,
        value: Some((*value).into()),
    });
    let resource =
        AlterConfigsResource { resource_type: 2, resource_name: topic.into(), configs: configs.collect() };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    assert_eq!(connection.call(1, &request).responses[0].error_code, NONE);
}

/// C084
#[test]
fn a_cluster_without_one_of_its_brokers_is_described_as_it_is() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::of_three(SETTINGS);
    cluster.create_topic("t", &[&[3, 1]]);
    cluster.create_topic("alone", &[&[3]]);
    let znode = cluster.zookeeper().dump("/cluster").remove("/id").expect("/cluster/id");
    let ids: BTreeSet<String> = (1..=3)
        .flat_map(|id| {
            let mut connection = cluster.connect(id);
            let described = connection.call(0, &DescribeClusterRequest::default());
            assert!((1..=3).contains(&described.controller_id), "{described:?}");
            let metadata =
                connection.call(7, &MetadataRequest { topics: Some(Vec::new()), ..Default::default() });
            [described.cluster_id.to_string(), metadata.cluster_id.expect("a cluster id").to_string()]
        })
        .collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert!(znode.data.contains(ids.first().expect("one id")), "{ids:?} but {}", znode.data);
    cluster.lose(3);
    assert_eq!(cluster.leader("t", 0, 3), 1);
    let metadata = cluster.connect(1).metadata(Some("alone"));
    assert_eq!(metadata.brokers.iter().map(|broker| broker.node_id).collect::<BTreeSet<_>>(), [1, 2].into());
    let alone = &metadata.topics[0].partitions[0];
    assert_eq!((alone.error_code, alone.leader_id), (LEADER_NOT_AVAILABLE, -1));
    let mut tools = Tools::of("4.3.1");
    let described = tools.run("kafka-topics", &["--bootstrap-server", &cluster.bootstrap(), "--describe"]);
    assert!(described.contains("Leader: 1") && described.contains("Leader: none"), "{described}");
}

/// A member of a stable group of one, on the broker that coordinates it.
#[track_caller]
fn join_alone(coordinator: &mut Connection, group: &str) {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: Bytes::new() };
    let request = JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 300_000,
        rebalance_timeout_ms: 300_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    };
    let joined = coordinator.call(3, &request);
    assert_eq!(joined.error_code, NONE, "JoinGroup");
    let assignment = SyncGroupRequestAssignment {
        member_id: joined.member_id.clone(),
        assignment: Bytes::from_static(b"all"),
    };
    let request = SyncGroupRequest {
        group_id: group.into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id,
        assignments: vec![assignment],
        ..Default::default()
    };
    assert_eq!(coordinator.call(3, &request).error_code, NONE, "SyncGroup");
}

/// Connections to brokers whose ids count from 1.
fn numbered(addresses: &[String]) -> Vec<(i32, Connection)> {
    (1..).zip(addresses).map(|(id, address)| (id, Connection::open(address))).collect()
}

/// Whether a broker says that the group is stable.
fn reports(broker: &mut Connection, group: &str) -> bool {
    let request = ListGroupsRequest { states_filter: vec!["Stable".into()], ..Default::default() };
    broker.call(4, &request).groups.iter().any(|found| &*found.group_id == group)
}

/// Whether a broker reports a group while it follows another one that coordinates it, and has told so.
///
/// The news of a move reaches one broker before the other, and so does that of the next: a group is reported by two for
/// as long as one of them has not heard. What is asked for here is that nobody reports who has.
fn reports_what_another_coordinates(broker: &mut Connection, id: i32, group: &str) -> bool {
    let known = broker.metadata(Some("__consumer_offsets")).topics[0].partitions[0].clone();
    let is_other = known.leader_id >= 0 && known.leader_id != id;
    // It may have become the leader meanwhile, of a later epoch.
    is_other && reports(broker, group) && code_at_epoch(broker, known.leader_epoch) == NOT_LEADER_OR_FOLLOWER
}

/// The error code for somebody who knows the offsets topic at this leader epoch.
fn code_at_epoch(broker: &mut Connection, current_leader_epoch: i32) -> i16 {
    let partition = OffsetForLeaderPartition { partition: 0, current_leader_epoch, leader_epoch: 0 };
    let topic = OffsetForLeaderTopic { topic: "__consumer_offsets".into(), partitions: vec![partition] };
    let request = OffsetForLeaderEpochRequest { replica_id: -1, topics: vec![topic] };
    broker.call(3, &request).topics[0].partitions[0].error_code
}

/// C085
#[test]
fn a_group_whose_coordinator_moves_is_never_reported_twice() {
    if !has_java() {
        return;
    }
    let cluster = Cluster::of_three(&[SETTINGS[0], ("offsets.topic.num.partitions", "1")]);
    wait_for("a coordinator", || {
        let request = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
        (cluster.connect(1).call(3, &request).error_code == NONE).then_some(())
    });
    cluster.wait_for_isr("__consumer_offsets", 0, &[1, 2, 3], 0);
    cluster.lead("__consumer_offsets", 0, 1);
    let mut coordinator = cluster.connect(1);
    coordinator.wait_for_coordinator("g");
    join_alone(&mut coordinator, "g");
    let addresses = cluster.addresses();
    let watch = |is_over: &AtomicBool| {
        let mut brokers = numbered(&addresses);
        while !is_over.load(Ordering::SeqCst) {
            for (id, broker) in &mut brokers {
                assert!(!reports_what_another_coordinates(broker, *id, "g"), "broker {id} reports the group");
            }
        }
    };
    beside(&[&watch], || {
        let mut brokers = numbered(&addresses);
        for leader in (0..7).flat_map(|_| [2, 3, 1]) {
            cluster.lead("__consumer_offsets", 0, leader);
            for (id, broker) in &mut brokers {
                wait_for("the news of a move", || {
                    let metadata = broker.metadata(Some("__consumer_offsets"));
                    (metadata.topics[0].partitions[0].leader_id == leader).then_some(())
                });
                assert!(
                    *id == leader || !reports(broker, "g"),
                    "broker {id} reports what {leader} coordinates"
                );
            }
            let (_, coordinator) = brokers.iter_mut().find(|(id, _)| *id == leader).expect("a broker");
            wait_for("the new coordinator to know the group", || reports(coordinator, "g").then_some(()));
        }
    });
}
