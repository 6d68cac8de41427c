//! Leaderships that move fast: no reader ever sees two payloads for one offset. `BARNABAS_TEST_SCALE=10` moves them 200
//! times.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use protocol_tests::batch::Batch;
use protocol_tests::requests::produce_request;
use protocol_tests::{Cluster, Connection, announce, has_java, scaled, wait_for};
use wire::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use wire::elect_leaders_request::{ElectLeadersRequest, TopicPartitions};

/// What was written without waiting for other replicas, and everything that was read, by offset.
struct Watch {
    addresses: Vec<String>,
    seen: Mutex<HashMap<i64, String>>,
    written: Mutex<usize>,
    stops: AtomicBool,
}

impl Watch {
    fn leader(&self) -> Option<Connection> {
        for address in &self.addresses {
            let Some(mut connection) = Connection::try_open(address) else { continue };
            connection.set_limit(Duration::from_secs(2));
            let Some(metadata) = connection.try_metadata(Some("t")) else { continue };
            let leader = metadata.topics.first()?.partitions.first()?.leader_id;
            let broker = metadata.brokers.iter().find(|broker| broker.node_id == leader);
            let mut connection = Connection::try_open(&format!("127.0.0.1:{}", broker?.port))?;
            connection.set_limit(Duration::from_secs(2));
            return Some(connection);
        }
        None
    }

    /// acks=1: what a leader has alone is lost with its leadership, and its offset is given again.
    fn write(&self) {
        let mut number = 0;
        while !self.stops.load(Ordering::SeqCst) {
            let Some(mut leader) = self.leader() else { continue };
            while !self.stops.load(Ordering::SeqCst) {
                let batch = Batch::of(&format!("r{number}"), 1, 1_700_000_000_000).encode();
                number += 1;
                let Ok(response) = leader.try_call(9, &produce_request("t", 1, vec![(0, batch)])) else {
                    break;
                };
                if response.responses[0].partition_responses[0].error_code != 0 {
                    break;
                }
                *self.written.lock().expect("the writer lives") += 1;
            }
        }
    }

    /// Reads on, and what lies behind again.
    fn read(&self) {
        let mut next = 0;
        while !self.stops.load(Ordering::SeqCst) {
            let Some(mut leader) = self.leader() else { continue };
            for _ in 0..20 {
                let request = protocol_tests::requests::fetch_request("t", &[(0, next)], 1 << 16);
                let Ok(mut response) = leader.try_call(11, &request) else { break };
                let partition = response.responses.remove(0).partitions.remove(0);
                if partition.error_code != 0 {
                    break;
                }
                let batches =
                    protocol_tests::batch::read(&protocol_tests::requests::record_bytes(&partition));
                next = self.note(&batches).unwrap_or(next);
            }
            next = (next - 50).max(0);
        }
    }

    #[track_caller]
    fn note(&self, batches: &[Batch]) -> Option<i64> {
        let mut seen = self.seen.lock().expect("the reader lives");
        let mut next = None;
        for batch in batches {
            let value = protocol_tests::requests::values(std::slice::from_ref(batch)).remove(0);
            let before = seen.insert(batch.base_offset, value.clone());
            assert!(
                before.as_ref().is_none_or(|before| *before == value),
                "{} was {before:?} and is {value}",
                batch.base_offset
            );
            next = Some(batch.base_offset + 1);
        }
        next
    }
}

#[test]
fn fast_failovers_never_show_two_payloads_for_one_offset() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::of_three(&[]);
    cluster.create_topic("t", &[&[1, 2, 3]]);
    let watch = Watch {
        addresses: cluster.addresses(),
        seen: Mutex::default(),
        written: Mutex::default(),
        stops: AtomicBool::new(false),
    };
    let moves = scaled(20);
    thread::scope(|scope| {
        // A failing script must not leave the others at work for ever.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let _stop = Stop(&watch.stops);
        scope.spawn(|| watch.write());
        scope.spawn(|| watch.read());
        for number in 0..moves {
            if number % 10 == 9 {
                kill_leader(&mut cluster);
            } else {
                move_leader(&cluster);
            }
            let seen = watch.seen.lock().expect("the reader lives").len();
            wait_for("more records", || {
                (watch.seen.lock().expect("the reader lives").len() > seen + 5).then_some(())
            });
        }
    });
    cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
    cluster.check_logs("t", 0, &[1, 2, 3]);
    let written = *watch.written.lock().expect("the writer is done");
    let seen = watch.seen.lock().expect("the reader is done").len();
    announce(&format!("cluster: {moves} failovers, {written} written with acks=1, {seen} offsets seen"));
}

/// Makes the next broker the preferred leader and has it elected.
pub fn move_leader(cluster: &Cluster) {
    let leader = cluster.leader("t", 0, 0);
    let next = leader % 3 + 1;
    let mut replicas = vec![1, 2, 3];
    replicas.retain(|id| *id != next);
    replicas.insert(0, next);
    let partition = ReassignablePartition { partition_index: 0, replicas: Some(replicas) };
    let reassign = AlterPartitionReassignmentsRequest {
        timeout_ms: 10_000,
        topics: vec![ReassignableTopic { name: "t".into(), partitions: vec![partition] }],
        ..Default::default()
    };
    let elect = ElectLeadersRequest {
        election_type: 0,
        topic_partitions: Some(vec![TopicPartitions { topic: "t".into(), partitions: vec![0] }]),
        timeout_ms: 1_000,
    };
    wait_for("another leader", || {
        let mut connection = cluster.connect(cluster.controller(0));
        connection.try_call(0, &reassign).ok()?;
        connection.try_call(2, &elect).ok()?;
        (cluster.leader("t", 0, 0) != leader).then_some(())
    });
}

fn kill_leader(cluster: &mut Cluster) {
    let leader = cluster.leader("t", 0, 0);
    cluster.broker(leader).kill();
    cluster.leader("t", 0, leader);
    cluster.broker(leader).start_again();
    cluster.wait_for_isr("t", 0, &[1, 2, 3], 0);
}
