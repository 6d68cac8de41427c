//! Partitions that move at a limited rate, as kafka-reassign-partitions sets it and takes it back.

use std::time::{Duration, Instant};

use protocol_tests::batch::Batch;
use protocol_tests::{Cluster, Tools, announce, has_java, wait_within};

const RATE: usize = 2_000_000;
const SIZE: usize = 8 * 1024 * 1024;

#[test]
fn a_partition_moves_no_faster_than_it_may() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::of_three(&[("replica.fetch.max.bytes", "262144"), Cluster::LONG_SESSIONS]);
    cluster.create_topic("t", &[&[1]]);
    fill(&cluster);
    let mut tools = Tools::of("4.3.1");
    let plan = tools.dir().join("plan.json");
    let text = r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}"#;
    std::fs::write(&plan, text).expect("write the plan");
    let (plan, at) = (plan.display().to_string(), cluster.broker(3).address());
    let on = ["--bootstrap-server", &*at, "--reassignment-json-file", &*plan];
    let rate = RATE.to_string();
    // The tool may take its time after the move has begun.
    let began = Instant::now();
    tools.run("kafka-reassign-partitions", &[&on[..], &["--execute", "--throttle", &rate]].concat());
    let configs = describe(&mut tools, &at);
    assert!(configs.contains("leader.replication.throttled.replicas=0:1"), "{configs}");
    assert!(configs.contains("follower.replication.throttled.replicas=0:2"), "{configs}");
    cluster.wait_for_isr("t", 0, &[1, 2], 0);
    let took = began.elapsed();
    announce(&format!("throttle: {SIZE} bytes at {RATE} bytes/s took {took:?}"));
    // Half of it goes before the rate is known to be exceeded.
    assert!(took > Duration::from_secs_f64(SIZE as f64 / RATE as f64 / 2.0), "{took:?}");
    wait_within(Duration::from_secs(240), "the end of the reassignment", || {
        let verified = tools.run("kafka-reassign-partitions", &[&on[..], &["--verify"]].concat());
        verified.contains("Clearing topic-level throttles").then_some(())
    });
    let configs = describe(&mut tools, &at);
    assert!(!configs.contains("throttled"), "{configs}");
}

fn describe(tools: &mut Tools, at: &str) -> String {
    let topic = ["--bootstrap-server", at, "--describe", "--entity-type", "topics", "--entity-name", "t"];
    let brokers = ["--bootstrap-server", at, "--describe", "--entity-type", "brokers", "--entity-name", "2"];
    tools.run("kafka-configs", &topic) + &tools.run("kafka-configs", &brokers)
}

fn fill(cluster: &Cluster) {
    let mut connection = cluster.connect(1);
    let mut size = 0;
    while size < SIZE {
        let mut batch = Batch::of("r", 100, 1_700_000_000_000);
        for record in &mut batch.records {
            record.value = Some(vec![b'x'; 2_000].into());
        }
        size += batch.encode().len();
        connection.append("t", 0, &batch);
    }
}

/// What is in sync already is not held back, however much it is: its ISR must not shrink.
#[test]
fn replicas_in_sync_are_not_held_back() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::of_three(&[("min.insync.replicas", "2"), Cluster::LONG_SESSIONS]);
    cluster.create_topic("t", &[&[1, 2]]);
    let mut tools = Tools::of("4.3.1");
    let at = cluster.broker(3).address();
    let on = ["--bootstrap-server", &*at, "--alter", "--add-config"];
    for (entity, name, config) in [
        ("topics", "t", "leader.replication.throttled.replicas=*,follower.replication.throttled.replicas=*"),
        ("brokers", "1", "leader.replication.throttled.rate=1000"),
        ("brokers", "2", "follower.replication.throttled.rate=1000"),
    ] {
        tools.run(
            "kafka-configs",
            &[&on[..], &[config, "--entity-type", entity, "--entity-name", name]].concat(),
        );
    }
    let began = Instant::now();
    fill(&cluster);
    // With the rate it would take more than two hours.
    assert!(began.elapsed() < Duration::from_secs(1_800), "{:?}", began.elapsed());
    cluster.wait_for_isr("t", 0, &[1, 2], 0);
}
