//! Brokers whose network is cut: from ZooKeeper, from each other, in one direction. Left out where network namespaces
//! cannot be made.

use std::thread;
use std::time::Duration;

use protocol_tests::{Cluster, Network, announce, has_java, under_load, wait_for};

fn cluster() -> Option<Cluster> {
    if !has_java() {
        return None;
    }
    let Some(network) = Network::new(&[1, 2, 3]) else {
        announce("cluster: cuts are left out, this machine makes no network namespaces");
        return None;
    };
    let cluster = Cluster::of_three_in(network, &[("min.insync.replicas", "2")]);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    Some(cluster)
}

/// C062: Its session ends, others lead, and what it still takes it cannot acknowledge.
#[test]
fn a_leader_that_lost_zookeeper_only_acknowledges_nothing_alone() {
    let Some(cluster) = cluster() else { return };
    under_load(cluster, &[1, 2, 3], |cluster, writer| {
        for _ in 0..2 {
            let leader = cluster.leader("t", 0, 0);
            let zookeeper = cluster.network().zookeeper();
            cluster.network().cut(leader, &zookeeper);
            cluster.leader("t", 0, leader);
            writer.wait_for_more(20);
            cluster.network().heal(leader, &zookeeper);
            cluster.wait_for_isr("t", 0, &[1, 2, 3], leader);
            // Until then it has told clients what it knew when it was cut off.
            let mut healed = cluster.connect(leader);
            wait_for("the healed broker's view", || {
                let metadata = healed.try_metadata(Some("t"))?;
                (metadata.topics.first()?.partitions.first()?.leader_id != leader).then_some(())
            });
        }
    });
}

/// It is alive to ZooKeeper and to clients, and cannot replicate: nothing is acknowledged until it can.
#[test]
fn a_leader_that_lost_its_peers_acknowledges_nothing_alone() {
    let Some(cluster) = cluster() else { return };
    under_load(cluster, &[1, 2, 3], |cluster, writer| {
        let leader = cluster.leader("t", 0, 0);
        let others: Vec<i32> = (1..=3).filter(|id| *id != leader).collect();
        for other in &others {
            cluster.network().cut(leader, &cluster.network().host(*other));
        }
        thread::sleep(Duration::from_secs(6));
        for other in &others {
            cluster.network().heal(leader, &cluster.network().host(*other));
        }
        writer.wait_for_more(20);
        cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
    });
}

/// The follower's fetches arrive, and their answers do not come back: the others go on without it.
#[test]
fn a_follower_that_hears_nothing_leaves_the_isr() {
    let Some(cluster) = cluster() else { return };
    under_load(cluster, &[1, 2, 3], |cluster, writer| {
        let leader = cluster.leader("t", 0, 0);
        // The controller has to hear of it.
        let controller = cluster.controller(0);
        let is_neither = |id: &i32| *id != leader && *id != controller;
        let deaf = (1..=3).find(is_neither).expect("three brokers");
        let staying = (1..=3).find(|id| *id != leader && *id != deaf).expect("three brokers");
        cluster.network().cut(leader, &cluster.network().host(deaf));
        cluster.wait_for_isr("t", 0, &[leader, staying], deaf);
        writer.wait_for_more(20);
        cluster.network().heal(leader, &cluster.network().host(deaf));
        cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
    });
}
