//! Brokers on three ZooKeeper servers, of which one or the other goes.

use protocol_tests::{Cluster, ZooKeeper, announce, has_java, under_load};

/// Longer than three servers need to agree on a leader, so that no session has an excuse to end.
const SESSION: (&str, &str) = ("zookeeper.session.timeout.ms", "6000");

#[test]
fn sessions_outlive_the_ensembles_leader_and_its_followers() {
    if !has_java() {
        return;
    }
    let ensemble = ZooKeeper::ensemble_of_three(&["tickTime=500"]);
    let cluster = Cluster::on(ensemble, &[("min.insync.replicas", "2"), SESSION]).with_three();
    cluster.create_topic("t", &[&[1, 2, 3]]);
    let controller_epoch =
        |cluster: &Cluster| cluster.zookeeper().dump("/controller_epoch")["/"].data.clone();
    let first = controller_epoch(&cluster);
    let mut cluster = under_load(cluster, &[1, 2, 3], |cluster, writer| {
        let leader = cluster.zookeeper().leader();
        cluster.zookeeper().kill_member(leader);
        writer.wait_for_more(20);
        assert_ne!(cluster.zookeeper().leader(), leader);
        // Needs the ensemble.
        cluster.create_topic("with-two", &[&[1, 2, 3]]);
        writer.wait_for_more(20);
        cluster.zookeeper().start_member(leader);
        cluster.zookeeper().wait_until_serving(leader);
        let leader = cluster.zookeeper().leader();
        let follower = (leader + 1) % 3;
        cluster.zookeeper().stop_member(follower);
        cluster.create_topic("with-two-again", &[&[3, 2, 1]]);
        writer.wait_for_more(20);
        cluster.zookeeper().start_member(follower);
        cluster.zookeeper().wait_until_serving(follower);
    });
    assert_eq!(controller_epoch(&cluster), first, "the controller stayed");
    for id in 1..=3 {
        let log = cluster.broker(id).log();
        assert!(!log.contains("has expired"), "broker {id}");
        announce(&format!(
            "cluster: broker {id} lost {} servers",
            log.matches("lost the connection").count()
        ));
    }
}

/// Two of three servers are enough for brokers to fail over, and one is not enough for anything but data.
#[test]
fn an_ensemble_without_a_majority_is_ridden_out() {
    if !has_java() {
        return;
    }
    let ensemble = ZooKeeper::ensemble_of_three(&["tickTime=500"]);
    let cluster = Cluster::on(ensemble, &[("min.insync.replicas", "2")]).with_three();
    cluster.create_topic("t", &[&[1, 2, 3]]);
    under_load(cluster, &[1, 2, 3], |cluster, writer| {
        let gone = cluster.zookeeper().leader();
        cluster.zookeeper().kill_member(gone);
        let other = cluster.zookeeper().leader();
        let leader = cluster.leader("t", 0, 0);
        cluster.broker(leader).kill();
        cluster.leader("t", 0, leader);
        writer.wait_for_more(20);
        cluster.broker(leader).start_again();
        cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
        cluster.zookeeper().kill_member(other);
        writer.wait_for_more(50);
        cluster.zookeeper().start_member(other);
        cluster.zookeeper().start_member(gone);
        cluster.zookeeper().leader();
        cluster.create_topic("later", &[&[1, 2, 3]]);
        writer.wait_for_more(20);
    });
}

/// The controller asks itself to move its leaderships, and cannot store anything.
#[test]
fn the_controller_stops_while_zookeeper_is_away() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::of_three(&[]);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    let controller = cluster.controller(0);
    cluster.zookeeper().stop();
    let broker = cluster.broker(controller);
    broker.allow_log("stopping without having moved all leaderships");
    broker.allow_log("the store's session was not closed");
    let began = std::time::Instant::now();
    // A stop that waits for ZooKeeper ends in a panic.
    broker.stop();
    announce(&format!("cluster: the controller stopped without ZooKeeper in {:?}", began.elapsed()));
    cluster.zookeeper().start_again();
    cluster.broker(controller).start_again();
    cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
}
