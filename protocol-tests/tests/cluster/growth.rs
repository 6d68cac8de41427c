//! A cluster that grows from three to five brokers and shrinks again under load, while topics come and go.
//! `BARNABAS_TEST_SCALE=20` creates and deletes 1,000 topics.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use protocol_tests::requests::topic;
use protocol_tests::{
    Cluster, Connection, Process, Server, Tools, announce, barnabas_binary, has_java, scaled, under_load,
    wait_within,
};
use wire::create_topics_request::CreateTopicsRequest;
use wire::delete_topics_request::DeleteTopicsRequest;

const PARTITIONS: i32 = 6;

#[test]
fn a_cluster_grows_and_shrinks_under_load() {
    if !has_java() {
        return;
    }
    let cluster = Cluster::of_three(&[("min.insync.replicas", "2"), Cluster::LONG_SESSIONS]);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    let spread: Vec<Vec<i32>> =
        (0..PARTITIONS).map(|index| (0..3).map(|at| (index + at) % 3 + 1).collect()).collect();
    let spread: Vec<&[i32]> = spread.iter().map(Vec::as_slice).collect();
    cluster.create_topic("many", &spread);
    let (stops, made, wanted) = (AtomicBool::new(false), AtomicUsize::new(0), scaled(50));
    // Of the three, the one that stays.
    let bootstrap = cluster.bootstrap();
    let address = bootstrap.rsplit(',').next().expect("three brokers");
    thread::scope(|scope| {
        let _stop = Stop(&stops);
        scope.spawn(|| churn(address, wanted, &made, &stops));
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
            wait_within(Duration::from_secs(900), "enough topics", || {
                (made.load(Ordering::SeqCst) >= wanted).then_some(())
            });
        });
        announce(&format!("growth: {wanted} topics were created and deleted meanwhile"));
    });
}

/// A failing script must not leave topics coming and going for ever.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
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
    wait_within(Duration::from_secs(240), "the end of the reassignment", || {
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

/// So many topics are created by one request, and deleted by the next.
const TOGETHER: usize = 10;

/// Creates and deletes topics until there were enough, counting them in `made`.
fn churn(address: &str, wanted: usize, made: &AtomicUsize, stops: &AtomicBool) {
    while made.load(Ordering::SeqCst) < wanted && !stops.load(Ordering::SeqCst) {
        let Some(mut connection) = Connection::try_open(address) else { continue };
        connection.set_limit(Duration::from_secs(30));
        let from = made.load(Ordering::SeqCst);
        let names: Vec<String> = (from..from + TOGETHER).map(|number| format!("churn-{number}")).collect();
        let topics = names.iter().map(|name| {
            let mut wanted = topic(name, 1, &[]);
            wanted.replication_factor = 2;
            wanted
        });
        let create =
            CreateTopicsRequest { topics: topics.collect(), timeout_ms: 20_000, ..Default::default() };
        let Ok(created) = connection.try_call(5, &create) else { continue };
        // They are there already, or a broker has just gone.
        if created.topics.iter().any(|created| created.error_code != 0 && created.error_code != 36) {
            continue;
        }
        let delete = DeleteTopicsRequest {
            topic_names: names.iter().map(|name| name.as_str().into()).collect(),
            timeout_ms: 20_000,
            ..Default::default()
        };
        let deleted = connection.try_call(5, &delete);
        if deleted.is_ok_and(|deleted| deleted.responses.iter().all(|deleted| deleted.error_code == 0)) {
            made.fetch_add(TOGETHER, Ordering::SeqCst);
        }
    }
}
