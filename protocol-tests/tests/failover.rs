//! Clusters on a real ZooKeeper whose brokers are killed and stopped: what was acknowledged with acks=all is there
//! afterwards, in order, on every replica. Also with brokers of Apache Kafka among them.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use protocol_tests::batch::Batch;
use protocol_tests::requests::{produce_request, values};
use protocol_tests::{Cluster, Connection, Server, announce, command_exists, protocol_tests_dir, wait_for};

fn has_java() -> bool {
    command_exists("java") || {
        announce("failover: left out, this machine has no java");
        false
    }
}

/// Writes one record after the other with acks=all, to whoever leads, and remembers what was acknowledged.
struct Writer {
    /// Of all brokers.
    addresses: Vec<String>,
    topic: &'static str,
    acknowledged: Mutex<Vec<String>>,
    stops: AtomicBool,
}

impl Writer {
    fn new(cluster: &Cluster, topic: &'static str) -> Writer {
        let addresses = cluster.bootstrap().split(',').map(str::to_owned).collect();
        Writer { addresses, topic, acknowledged: Mutex::default(), stops: AtomicBool::new(false) }
    }

    /// Writes until it is told to stop. A record without an answer is written again, so that it may stand twice.
    fn run(&self) {
        let mut number = 0;
        while !self.stops.load(Ordering::SeqCst) {
            let Some(address) = self.leader() else { continue };
            let Some(mut connection) = Connection::try_open(&address) else { continue };
            connection.set_limit(Duration::from_secs(3));
            loop {
                if self.stops.load(Ordering::SeqCst) {
                    return;
                }
                let prefix = format!("r{number}");
                let batch = Batch::of(&prefix, 1, 1_700_000_000_000).encode();
                let request = produce_request(self.topic, -1, vec![(0, batch)]);
                let Ok(response) = connection.try_call(9, &request) else { break };
                if response.responses[0].partition_responses[0].error_code != 0 {
                    break;
                }
                self.acknowledged.lock().expect("the writer lives").push(format!("{prefix}-0"));
                number += 1;
            }
        }
    }

    fn leader(&self) -> Option<String> {
        for address in &self.addresses {
            let Some(mut connection) = Connection::try_open(address) else { continue };
            connection.set_limit(Duration::from_secs(3));
            let Some(metadata) = connection.try_metadata(Some(self.topic)) else { continue };
            let leader = metadata.topics.first()?.partitions.first()?.leader_id;
            if let Some(broker) = metadata.brokers.iter().find(|broker| broker.node_id == leader) {
                return Some(format!("127.0.0.1:{}", broker.port));
            }
        }
        None
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().expect("the writer lives").len()
    }

    #[track_caller]
    fn wait_for_more(&self, more: usize) {
        let wanted = self.count() + more;
        wait_for(&format!("{more} more acknowledgements"), || (self.count() >= wanted).then_some(()));
    }

    /// Everything acknowledged stands in the log, in the order in which it was written.
    fn check(&self, cluster: &Cluster) {
        let leader = cluster.leader(self.topic, 0, 0);
        let found = values(&cluster.connect(leader).fetch_all(self.topic, 0, 0));
        let mut rest = found.iter();
        for value in self.acknowledged.lock().expect("the writer lives").iter() {
            assert!(
                rest.any(|found| found == value),
                "{value} was acknowledged and is not there, or not in order"
            );
        }
        announce(&format!("failover: {} acknowledged, {} in the log", self.count(), found.len()));
    }
}

/// Runs `script` while a writer writes, then checks its records and that all replicas hold the same bytes.
#[track_caller]
fn under_load(mut cluster: Cluster, replicas: &[i32], script: impl FnOnce(&mut Cluster, &Writer)) -> Cluster {
    let writer = Writer::new(&cluster, "t");
    thread::scope(|scope| {
        // A failing script must not leave the writer writing for ever.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let _stop = Stop(&writer.stops);
        scope.spawn(|| writer.run());
        writer.wait_for_more(20);
        script(&mut cluster, &writer);
        writer.wait_for_more(20);
    });
    cluster.wait_for_isr("t", 0, replicas, 0);
    writer.check(&cluster);
    cluster.check_logs("t", 0, replicas);
    cluster
}

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
    let output = Command::new(protocol_tests_dir().join("peers/kafka-tool"))
        .args(["3.9.2", "kafka-dump-log", "--deep-iteration", "--files", &logs.join(",")])
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
        cluster.broker(id).kill();
        cluster.wait_until_gone(id);
        writer.wait_for_more(20);
        cluster.broker(id).start_again();
        cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
    }
}
