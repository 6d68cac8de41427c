//! A producer that goes on while brokers come and go.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::batch::Batch;
use crate::requests::{produce_request, values};
use crate::{Cluster, Connection, announce, wait_for};

/// Writes one record after the other with acks=all, to whoever leads, and remembers what was acknowledged.
pub struct Writer {
    /// Of all brokers.
    addresses: Vec<String>,
    topic: &'static str,
    acknowledged: Mutex<Vec<String>>,
    stops: AtomicBool,
    /// Where it asks next: a broker that was cut off tells what it knew, and takes itself for the leader.
    next: AtomicUsize,
}

impl Writer {
    pub fn new(cluster: &Cluster, topic: &'static str) -> Writer {
        Writer {
            addresses: cluster.addresses(),
            topic,
            acknowledged: Mutex::default(),
            stops: AtomicBool::new(false),
            next: AtomicUsize::new(0),
        }
    }

    /// Writes until it is told to stop. A record without an answer is written again, so that it may stand twice.
    pub fn run(&self) {
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
        let from = self.next.fetch_add(1, Ordering::SeqCst) % self.addresses.len();
        let (later, first) = self.addresses.split_at(from);
        for address in first.iter().chain(later) {
            let Some(mut connection) = Connection::try_open(address) else { continue };
            connection.set_limit(Duration::from_secs(3));
            let Some(metadata) = connection.try_metadata(Some(self.topic)) else { continue };
            let leader = metadata.topics.first()?.partitions.first()?.leader_id;
            if let Some(broker) = metadata.brokers.iter().find(|broker| broker.node_id == leader) {
                return Some(format!("{}:{}", &*broker.host, broker.port));
            }
        }
        None
    }

    pub fn count(&self) -> usize {
        self.acknowledged.lock().expect("the writer lives").len()
    }

    #[track_caller]
    pub fn wait_for_more(&self, more: usize) {
        let wanted = self.count() + more;
        wait_for(&format!("{more} more acknowledgements"), || (self.count() >= wanted).then_some(()));
    }

    /// Ends [`Writer::run`].
    pub fn stop(&self) {
        self.stops.store(true, Ordering::SeqCst);
    }

    /// Everything acknowledged stands in the log, in the order in which it was written.
    #[track_caller]
    pub fn check(&self, cluster: &Cluster) {
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
pub fn under_load(
    mut cluster: Cluster,
    replicas: &[i32],
    script: impl FnOnce(&mut Cluster, &Writer),
) -> Cluster {
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
