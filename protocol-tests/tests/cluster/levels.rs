//! `inter.broker.protocol.version` before 2.7: leaders write their ISRs to ZooKeeper themselves.

use protocol_tests::{Cluster, Server, announce, has_java, under_load, wait_for};
use wire::create_topics_request::CreateTopicsRequest;

const OLD: &[(&str, &str)] = &[("min.insync.replicas", "2"), ("inter.broker.protocol.version", "2.6")];

#[test]
fn leaders_of_an_old_level_change_isrs_in_zookeeper() {
    if !has_java() {
        return;
    }
    let cluster = Cluster::of_three(OLD);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    under_load(cluster, &[1, 2, 3], |cluster, writer| {
        for _ in 0..2 {
            let leader = cluster.leader("t", 0, 0);
            let follower = (1..=3).find(|id| *id != leader).expect("three brokers");
            cluster.broker(follower).kill();
            writer.wait_for_more(20);
            cluster.broker(follower).start_again();
            cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
        }
    });
}

/// The Kafka controls; it takes no forwarded requests, and hears of ISRs from ZooKeeper alone.
#[test]
fn a_kafka_of_an_old_level_controls() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::new(&[OLD, &[Cluster::LONG_SESSIONS]].concat());
    cluster.add(3, Server::named("kafka-3.9.2"));
    cluster.add(1, Server::Barnabas);
    cluster.add(2, Server::Barnabas);
    cluster.wait_for_brokers(3);
    assert_eq!(cluster.controller(0), 3);
    let topic = protocol_tests::requests::topic("refused", 1, &[]);
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    assert_eq!(cluster.connect(1).call(5, &request).topics[0].error_code, 41);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    under_load(cluster, &[1, 2, 3], |cluster, writer| {
        cluster.broker(2).kill();
        cluster.wait_for_isr("t", 0, &[1, 3], 0);
        writer.wait_for_more(20);
        cluster.broker(2).start_again();
        cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
        assert_eq!(cluster.leader("t", 0, 0), 1);
        // Its view comes from the notifications that the leader writes.
        let mut kafka = cluster.connect(3);
        wait_for("the Kafka's view of the ISR", || {
            let metadata = kafka.metadata(Some("t"));
            (metadata.topics[0].partitions[0].isr_nodes.len() == 3).then_some(())
        });
        announce("levels: the controller has heard of the ISR");
    });
}
