//! A cluster that grows from three to five brokers and shrinks again under load, while topics come and go.
//! `BARNABAS_TEST_SCALE=20` creates and deletes 1,000 topics.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use protocol_tests::requests::topic;
use protocol_tests::{
    Cluster, Connection, Process, Server, Tools, announce, barnabas_binary, scaled, under_load, wait_within,
};
use wire::create_topics_request::CreateTopicsRequest;
use wire::delete_topics_request::DeleteTopicsRequest;

use crate::has_java;

const PARTITIONS: i32 = 6;

#[test]
fn a_cluster_grows_and_shrinks_under_load() {
    if !has_java() {
        return;
    }
    let cluster = Cluster::of_three(&[("min.insync.replicas", "2")]);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    let spread: Vec<Vec<i32>> =
        (0..PARTITIONS).map(|index| (0..3).map(|at| (index + at) % 3 + 1).collect()).collect();
    let spread: Vec<&[i32]> = spread.iter().map(Vec::as_slice).collect();
    cluster.create_topic("many", &spread);
    let stops = AtomicBool::new(false);
    let bootstrap = cluster.bootstrap();
    thread::scope(|scope| {
        let churn = scope.spawn(|| churn(&bootstrap, scaled(50), &stops));
        let _cluster = under_load(cluster, &[3, 4, 5], |cluster, writer| {
            cluster.add(4, Server::Barnabas);
            cluster.add(5, Server::Barnabas);
            cluster.wait_for_brokers(5);
            move_half(cluster);
            writer.wait_for_more(50);
            for id in 1..=2 {
                drain(cluster, id);
                cluster.broker(id).stop();
                cluster.forget(id);
                cluster.wait_for_brokers_gone(4 - usize::try_from(id).expect("a small id") + 1);
                writer.wait_for_more(50);
            }
        });
        stops.store(true, Ordering::SeqCst);
        let made = churn.join().expect("topics come and go");
        announce(&format!("growth: {made} topics were created and deleted meanwhile"));
    });
}

/// Half of the partitions go to the new brokers, not faster than they may.
#[track_caller]
fn move_half(cluster: &mut Cluster) {
    let entries: Vec<String> = (0..PARTITIONS / 2)
        .map(|index| format!(r#"{{"topic":"many","partition":{index},"replicas":[4,5,3]}}"#))
        .chain([r#"{"topic":"t","partition":0,"replicas":[4,1,2]}"#.to_owned()])
        .collect();
    let mut tools = Tools::of("3.9.2");
    let plan = tools.dir().join("plan.json");
    std::fs::write(&plan, format!(r#"{{"version":1,"partitions":[{}]}}"#, entries.join(",")))
        .expect("write the plan");
    let (plan, at) = (plan.display().to_string(), cluster.broker(3).address());
    let on = ["--bootstrap-server", &*at, "--reassignment-json-file", &*plan];
    tools.run("kafka-reassign-partitions", &[&on[..], &["--execute", "--throttle", "5000000"]].concat());
    wait_within(Duration::from_secs(120), "the end of the reassignment", || {
        let verified = tools.run("kafka-reassign-partitions", &[&on[..], &["--verify"]].concat());
        verified.contains("Clearing topic-level throttles").then_some(())
    });
    cluster.wait_for_isr("many", 0, &[3, 4, 5], 0);
}

#[track_caller]
fn drain(cluster: &Cluster, id: i32) {
    let mut command = Command::new(barnabas_binary().expect("build it: cargo build -p barnabas"));
    let (bootstrap, id) = (cluster.bootstrap(), id.to_string());
    command.args(["drain", "--bootstrap-server", &bootstrap, "--broker", &id, "--replicas"]);
    let drained = Process::start("barnabas drain", command, None).finish(Duration::from_secs(180));
    drained.expect_success("barnabas drain");
}

/// Creates and deletes topics through whichever broker answers; how many.
fn churn(bootstrap: &str, wanted: usize, stops: &AtomicBool) -> usize {
    let addresses: Vec<&str> = bootstrap.split(',').collect();
    let mut made = 0;
    while made < wanted && !stops.load(Ordering::SeqCst) {
        // The one that stays.
        let Some(mut connection) = addresses.get(2).and_then(|address| Connection::try_open(address)) else {
            continue;
        };
        connection.set_limit(Duration::from_secs(30));
        let name = format!("churn-{made}");
        let mut wanted = topic(&name, 1, &[]);
        wanted.replication_factor = 2;
        let create = CreateTopicsRequest { topics: vec![wanted], timeout_ms: 20_000, ..Default::default() };
        let Ok(created) = connection.try_call(5, &create) else { continue };
        let code = created.topics[0].error_code;
        // It is there already, or its broker has just gone.
        if code != 0 && code != 36 {
            continue;
        }
        let delete = DeleteTopicsRequest {
            topic_names: vec![name.as_str().into()],
            timeout_ms: 20_000,
            ..Default::default()
        };
        let deleted = connection.try_call(5, &delete);
        made += usize::from(deleted.is_ok_and(|deleted| deleted.responses[0].error_code == 0));
    }
    made
}
