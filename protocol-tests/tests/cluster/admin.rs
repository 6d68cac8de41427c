//! Administrators that ask another broker than the controller: their requests are forwarded (KIP-590).

use protocol_tests::{Cluster, Tools, has_java, wait_for};
use wire::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use wire::create_partitions_request::{CreatePartitionsRequest, CreatePartitionsTopic};
use wire::create_topics_request::CreateTopicsRequest;
use wire::delete_topics_request::DeleteTopicsRequest;
use wire::elect_leaders_request::{ElectLeadersRequest, TopicPartitions};
use wire::list_partition_reassignments_request::ListPartitionReassignmentsRequest;

use crate::other_than_controller;

#[test]
fn any_broker_serves_administrators() {
    if !has_java() {
        return;
    }
    let cluster = Cluster::of_three(&[Cluster::LONG_SESSIONS]);
    let mut other = cluster.connect(other_than_controller(&cluster));
    let mut topic = protocol_tests::requests::topic("t", 1, &[("retention.ms", "1000000")]);
    topic.replication_factor = 3;
    let create = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    let created = other.call(7, &create);
    assert_eq!((created.topics[0].error_code, created.topics[0].num_partitions), (0, 1), "{created:?}");
    assert_eq!(other.call(7, &create).topics[0].error_code, 36);
    let grow = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic { name: "t".into(), count: 3, assignments: None }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    assert_eq!(other.call(3, &grow).results[0].error_code, 0);
    wait_for("three partitions", || cluster.partition("t", 2, 0));
    cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
    reassign_and_elect(&cluster, &mut other);
    let delete =
        DeleteTopicsRequest { topic_names: vec!["t".into()], timeout_ms: 30_000, ..Default::default() };
    assert_eq!(other.call(5, &delete).responses[0].error_code, 0);
    wait_for("the topic's end", || cluster.partition("t", 0, 0).is_none().then_some(()));
}

/// Gives the partition another preferred leader, and has it elected.
fn reassign_and_elect(cluster: &Cluster, other: &mut protocol_tests::Connection) {
    let leader = cluster.leader("t", 0, 0);
    let mut replicas = vec![1, 2, 3];
    replicas.rotate_left(usize::try_from(leader).expect("a small id") % 3);
    let partition = ReassignablePartition { partition_index: 0, replicas: Some(replicas.clone()) };
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: 30_000,
        topics: vec![ReassignableTopic { name: "t".into(), partitions: vec![partition] }],
        ..Default::default()
    };
    let response = other.call(0, &request);
    assert_eq!(response.error_code, 0, "{response:?}");
    assert_eq!(response.responses[0].partitions[0].error_code, 0, "{response:?}");
    let list = ListPartitionReassignmentsRequest { timeout_ms: 30_000, ..Default::default() };
    assert_eq!(other.call(0, &list).error_code, 0);
    let elect = ElectLeadersRequest {
        election_type: 0,
        topic_partitions: Some(vec![TopicPartitions { topic: "t".into(), partitions: vec![0] }]),
        timeout_ms: 30_000,
    };
    wait_for("the preferred leader", || {
        assert_eq!(other.call(2, &elect).error_code, 0);
        (cluster.leader("t", 0, 0) == replicas[0]).then_some(())
    });
}

/// Each broker in turn is the only one that the tool is told of.
#[test]
fn the_topics_tool_works_through_any_broker() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::of_three(&[Cluster::LONG_SESSIONS]);
    let mut tools = Tools::of("4.3.1");
    for id in 1..=3 {
        let (at, name) = (cluster.broker(id).address(), format!("from-{id}"));
        let on = ["--bootstrap-server", &*at, "--topic", &*name];
        let create = ["--create", "--partitions", "2", "--replication-factor", "3"];
        tools.run("kafka-topics", &[&on[..], &create].concat());
        // The controller has decided when the tool is told; this broker may hear of it a moment later.
        wait_until_described(&mut tools, &on, "PartitionCount: 2");
        tools.run("kafka-topics", &[&on[..], &["--alter", "--partitions", "4"]].concat());
        let described = wait_until_described(&mut tools, &on, "PartitionCount: 4");
        assert!(described.contains("ReplicationFactor: 3"), "{described}");
        tools.run("kafka-topics", &[&on[..], &["--delete"]].concat());
    }
}

/// Describes the topic until the description has this in it, and gives it.
#[track_caller]
fn wait_until_described(tools: &mut Tools, on: &[&str], text: &str) -> String {
    wait_for(text, || {
        let run = tools.start("kafka-topics", &[on, &["--describe"]].concat());
        let described = tools.finish_with_any_status(run).stdout;
        described.contains(text).then_some(described)
    })
}
