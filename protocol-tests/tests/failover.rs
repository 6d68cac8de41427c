//! Clusters on a real ZooKeeper whose brokers are killed and stopped: what was acknowledged with acks=all is there
//! afterwards, in order, on every replica. Also with brokers of Apache Kafka among them.

use protocol_tests::{Cluster, Server, Writer, announce, has_java, kafka_tool, under_load};

#[test]
fn a_killed_leader_takes_nothing_with_it() {
    if !has_java() {
        return;
    }
    let cluster = Cluster::of_three(&[("min.insync.replicas", "2")]);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    let mut cluster = under_load(cluster, &[1, 2, 3], |cluster, writer| {
        for _ in 0..3 {
            let leader = cluster.leader("t", 0, 0);
            cluster.broker(leader).kill();
            writer.wait_for_more(50);
            cluster.broker(leader).start_again();
            cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
        }
    });
    for id in 1..=3 {
        cluster.broker(id).stop();
    }
    let logs = (1..=3).map(|id| cluster.broker(id).data_dir().join("t-0/00000000000000000000.log"));
    let logs: Vec<String> = logs.map(|log| log.display().to_string()).collect();
    // Not in a session of tools: its class loaders keep the tool from its decoders.
    let output = kafka_tool("3.9.2", "kafka-dump-log")
        .args(["--deep-iteration", "--files", &logs.join(",")])
        .output()
        .expect("run peers/kafka-tool");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "kafka-dump-log: {}\n{printed}", output.status);
    assert!(printed.contains("isvalid: true") && !printed.contains("isvalid: false"), "{printed}");
}

#[test]
fn a_rolling_restart_loses_no_acknowledgement() {
    if !has_java() {
        return;
    }
    let cluster = Cluster::of_three(&[("min.insync.replicas", "2")]);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    under_load(cluster, &[1, 2, 3], |cluster, writer| {
        for id in 1..=3 {
            cluster.broker(id).restart();
            cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
            writer.wait_for_more(10);
        }
    });
}

/// First contact: each kind is controller, leader and follower.
#[test]
fn a_kafka_joins_a_cluster_of_barnabas() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::new(&[("min.insync.replicas", "2")]);
    cluster.add(1, Server::Barnabas);
    cluster.add(2, Server::Barnabas);
    cluster.add(3, Server::named("kafka-3.9.2"));
    cluster.wait_for_brokers(3);
    cluster.create_topic("t", &[&[3, 1, 2]]);
    under_load(cluster, &[1, 2, 3], mixed_failures);
}

#[test]
fn a_barnabas_joins_a_cluster_of_kafka() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::new(&[("min.insync.replicas", "2")]);
    cluster.add(3, Server::named("kafka-3.9.2"));
    cluster.add(2, Server::named("kafka-3.9.2"));
    cluster.add(1, Server::Barnabas);
    cluster.wait_for_brokers(3);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    under_load(cluster, &[1, 2, 3], mixed_failures);
}

/// Each broker is killed once and comes back, so that leadership and control go round.
fn mixed_failures(cluster: &mut Cluster, writer: &Writer) {
    for id in 1..=3 {
        let (leader, controller) = (cluster.leader("t", 0, 0), cluster.controller(0));
        announce(&format!("failover: killing {id}; {leader} leads, {controller} controls"));
        cluster.lose(id);
        writer.wait_for_more(20);
        cluster.broker(id).start_again();
        cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
    }
}
