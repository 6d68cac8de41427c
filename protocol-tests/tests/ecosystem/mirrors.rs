//! Both MirrorMakers at once, from the same source to the same target: between clusters that lose brokers, and with
//! records just below a megabyte.

use protocol_tests::{Cluster, Port, Process, Server, Tools, free_port, wait_within};

use super::mirror_maker::{
    Bootstrap, RECORDS, await_records, count, create, mm2_properties, produce, records, start,
    start_mirror_1, stop,
};
use super::{SILENCE, can_run, start_java};

#[test]
fn mirrors_from_a_cluster_of_barnabas_to_one_of_kafka_live_through_failovers() {
    mirror_clusters("barnabas", "kafka-3.9.2");
}

#[test]
fn mirrors_from_a_cluster_of_kafka_to_one_of_barnabas_live_through_failovers() {
    mirror_clusters("kafka-3.9.2", "barnabas");
}

/// C090
#[test]
fn mirrors_from_barnabas_to_barnabas_copy_records_of_900_kb() {
    mirror_large("barnabas", "barnabas", "none");
}

/// C090
#[test]
fn mirrors_from_kafka_to_barnabas_copy_records_of_900_kb() {
    mirror_large("kafka-3.9.2", "barnabas", "lz4");
}

/// MirrorMaker 1, which copies under the same name, and MirrorMaker 2; each with its topic in the target.
struct Mirrors {
    running: [(&'static str, Process); 2],
    _port: Port,
    _folder: tempfile::TempDir,
}

impl Mirrors {
    /// `older`: the release of MirrorMaker 1. `codec`: its producer's.
    #[track_caller]
    fn start(
        older: &str,
        newer: &str,
        (source, target): (&impl Bootstrap, &impl Bootstrap),
        codec: &str,
        replicas: usize,
    ) -> Mirrors {
        let (folder, port) = (tempfile::tempdir().expect("create a folder for the mirrors"), free_port());
        let properties = folder.path().join("mm2.properties");
        std::fs::write(&properties, mm2_properties(source, target, &port, "disabled", replicas))
            .expect("write mm2.properties");
        let properties = properties.display().to_string();
        let newer = start_java(newer, "org.apache.kafka.connect.mirror.MirrorMaker", &[&properties]);
        let clusters = (&*source.bootstrap(), &*target.bootstrap());
        let older = start_mirror_1(older, folder.path(), clusters, "orders", codec);
        Mirrors { running: [("orders", older), ("source.orders", newer)], _port: port, _folder: folder }
    }

    #[track_caller]
    fn await_records(&mut self, tools: &mut Tools, target: &impl Bootstrap, count: usize) {
        for (topic, mirror) in &mut self.running {
            await_records(tools, target, topic, count, mirror);
        }
    }

    #[track_caller]
    fn stop(self) {
        self.running.into_iter().for_each(|(_, mirror)| stop(mirror));
    }
}

/// Between two clusters of two brokers, of which each loses one: nothing is lost.
#[track_caller]
fn mirror_clusters(source: &str, target: &str) {
    if !can_run("the mirrors between clusters") {
        return;
    }
    let (mut source, mut target) = (start_two(source), start_two(target));
    let mut tools = Tools::of("3.9.2");
    let two = ["--replication-factor", "2"];
    create(&mut tools, &source, &two);
    create(&mut tools, &target, &two);
    produce(&mut tools, &source, 0);
    let mut mirrors = Mirrors::start("3.9.2", "3.9.2", (&source, &target), "none", 2);
    mirrors.await_records(&mut tools, &target, RECORDS);
    lose_one(&mut source);
    produce(&mut tools, &source, RECORDS);
    mirrors.await_records(&mut tools, &target, 2 * RECORDS);
    lose_one(&mut target);
    produce(&mut tools, &source, 2 * RECORDS);
    for (topic, _) in &mirrors.running {
        await_all_keys(&mut tools, &target, topic);
    }
    mirrors.stop();
}

/// Waits until nothing lacks. What was under way when a broker went may stand twice, so that a count does not tell.
#[track_caller]
fn await_all_keys(tools: &mut Tools, target: &Cluster, topic: &str) {
    let mut lost = Vec::new();
    let mut found_all = || {
        let count = count(tools, target, topic);
        let found = records(tools, target, topic, count);
        let keys: std::collections::HashSet<&str> =
            found.iter().filter_map(|line| line.split('\t').nth(1)).collect();
        lost = (0..3 * RECORDS).filter(|number| !keys.contains(&*format!("key-{number}"))).collect();
        lost.is_empty()
    };
    wait_within(SILENCE, &format!("all records in {topic}"), || found_all().then_some(()));
}

#[track_caller]
fn start_two(server: &str) -> Cluster {
    let mut cluster = Cluster::new(&[
        ("offsets.topic.replication.factor", "2"),
        ("transaction.state.log.replication.factor", "2"),
        ("transaction.state.log.min.isr", "1"),
    ]);
    (1..=2).for_each(|id| cluster.add(id, Server::named(server)));
    cluster.wait_for_brokers(2);
    cluster
}

/// Kills the broker that leads the first partition, and leaves it dead until another one leads.
#[track_caller]
fn lose_one(cluster: &mut Cluster) {
    (0..3).for_each(|index| cluster.wait_for_isr("orders", index, &[1, 2], 0));
    let leader = cluster.leader("orders", 0, 0);
    cluster.broker(leader).kill();
    cluster.leader("orders", 0, leader);
    cluster.wait_until_gone(leader);
    cluster.broker(leader).start_again();
}

/// Two records of each codec, of clients before and after the format of 0.11.
const LARGE: usize = 2 * (3 + 4);
const LARGE_BYTES: usize = 900_000;

#[track_caller]
fn mirror_large(source: &str, target: &str, codec: &str) {
    if !can_run("the mirrors of large records") {
        return;
    }
    let (source, target) = (start(source), start(target));
    let mut tools = Tools::of("3.9.2");
    create(&mut tools, &source, &[]);
    create(&mut tools, &target, &[]);
    produce_large("0.10.2.2", &source.address(), &["gzip", "snappy", "lz4"]);
    produce_large("2.8.2", &source.address(), &["none", "gzip", "snappy", "lz4"]);
    let mut mirrors = Mirrors::start("2.8.2", "4.3.1", (&source, &target), codec, 1);
    mirrors.await_records(&mut tools, &target, LARGE);
    let wanted = digests(&records(&mut tools, &source, "orders", LARGE));
    for (topic, _) in &mirrors.running {
        assert_eq!(count(&mut tools, &target, topic), LARGE, "{topic}");
        assert_eq!(digests(&records(&mut tools, &target, topic, LARGE)), wanted, "{topic}");
    }
    mirrors.stop();
}

#[track_caller]
fn produce_large(version: &str, address: &str, codecs: &[&str]) {
    let mut random = fastrand::Rng::with_seed(90);
    for codec in codecs {
        let arguments = ["--broker-list", address, "--topic", "orders", "--compression-codec", codec];
        let more = ["--request-required-acks", "-1", "--property", "parse.key=true"];
        let mut producer =
            start_java(version, "kafka.tools.ConsoleProducer", &[&arguments[..], &more[..]].concat());
        for number in 0..2 {
            let value: String = std::iter::repeat_with(|| random.alphanumeric()).take(LARGE_BYTES).collect();
            producer.write_line(&format!("{version}-{codec}-{number}\t{value}"));
        }
        producer.finish(SILENCE).expect_success("the console producer");
    }
}

/// A failure that shows the records would show megabytes.
fn digests(records: &[String]) -> Vec<String> {
    let digest = |line: &String| {
        let (head, value) = line.rsplit_once('\t').unwrap_or((line, ""));
        format!("{head} {} {:08x}", value.len(), crc32c::crc32c(value.as_bytes()))
    };
    records.iter().map(digest).collect()
}
