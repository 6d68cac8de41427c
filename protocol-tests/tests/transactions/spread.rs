//! C055 on three brokers: a transaction's coordinator and its partitions are apart, and between the decision and its
//! markers brokers die, stand still, or lose what they lead. Whatever happens, every partition gets one marker, all with
//! the same verdict, and nothing stays open. `BARNABAS_TEST_SCALE=10` does it in a hundred rounds.

use std::thread;
use std::time::{Duration, Instant};

use protocol_tests::{Cluster, Connection, announce, has_java, scaled, wait_for};
use rustix::process::Signal;
use wire::api_versions_request::ApiVersionsRequest;
use wire::find_coordinator_request::FindCoordinatorRequest;

use crate::producer::{Producer, committed_keys, markers, wait_until_stable};
use crate::{code, set_version};

#[test]
fn every_partition_learns_of_an_end_once_whatever_happens_to_brokers() {
    play(0);
}

#[test]
fn every_partition_learns_of_an_end_once_where_epochs_grow() {
    play(2);
}

/// What a transaction writes to, and the replicas, the usual leader first. The last one has no other than broker 3: while
/// that is gone, nobody can be told of the end there.
const PARTITIONS: [(&str, i32, &[i32]); 4] =
    [("t", 0, &[1, 2, 3]), ("t", 1, &[2, 3, 1]), ("t", 2, &[3, 1, 2]), ("alone", 0, &[3])];
const STATES: &str = "__transaction_state";

/// What happens while the partitions are told.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The coordinator dies at some moment of the 50 ms after its answer.
    CoordinatorDies,
    /// A leader that the coordinator has to reach over the network dies at such a moment.
    LeaderDies,
    /// A leader stands still until its session has ended and others lead.
    LeaderStandsStill,
    LeadersMove,
    CoordinatorMoves,
    /// One partition cannot be told, so that the next coordinator tells those again that know.
    CoordinatorDiesWithAPartitionAway,
}

const FAULTS: [Fault; 6] = [
    Fault::CoordinatorDies,
    Fault::LeaderDies,
    Fault::CoordinatorDiesWithAPartitionAway,
    Fault::LeadersMove,
    Fault::CoordinatorMoves,
    Fault::LeaderStandsStill,
];

fn play(level: i16) {
    if !has_java() {
        return;
    }
    let mut stage = Stage::new(level);
    for round in 0..scaled(FAULTS.len() + 1) {
        let fault = FAULTS[round % FAULTS.len()];
        announce(&format!("transactions: level {level}, round {round}: {fault:?}"));
        stage.play_round(round, fault);
    }
}

/// Leaders ask it about writes, and not for longer than it coordinates: producers would not wait for so long.
#[test]
fn writes_do_not_wait_for_a_coordinator_that_was_replaced() {
    if !has_java() {
        return;
    }
    let mut stage = Stage::new(0);
    stage.settle(1);
    let mut producer = Producer::new(&stage.cluster.address(1), "spread");
    producer.begin("t", &[1]);
    let batch = producer.batch("t", 1, "x", 1);
    let request = producer.write_request("t", 1, &batch);
    stage.cluster.broker(1).signal(Signal::STOP);
    wait_for("a record to be written", || {
        let leader = stage.cluster.leader("t", 1, 1);
        let mut connection = stage.cluster.connect(leader);
        let asked = Instant::now();
        let answer = connection.call(9, &request);
        // A request between brokers has 30 s.
        assert!(asked.elapsed() < Duration::from_secs(25), "{:?}", asked.elapsed());
        let code = answer.responses[0].partition_responses[0].error_code;
        assert!(code == code::NONE || COMES_AGAIN.contains(&code), "{code}");
        (code == code::NONE).then_some(())
    });
    stage.cluster.broker(1).signal(Signal::CONT);
    stage.producer = Some(producer);
    stage.end(true);
    stage.wait_until_complete();
}

struct Stage {
    cluster: Cluster,
    level: i16,
    random: fastrand::Rng,
    producer: Option<Producer>,
    /// The verdicts so far.
    verdicts: Vec<bool>,
    /// What each partition's committed keys are; the same in all.
    keys: Vec<String>,
}

impl Stage {
    #[track_caller]
    fn new(level: i16) -> Stage {
        let cluster = Cluster::of_three(&[
            ("transaction.state.log.num.partitions", "1"),
            ("transaction.state.log.min.isr", "1"),
        ]);
        cluster.create_topic("t", &[PARTITIONS[0].2, PARTITIONS[1].2, PARTITIONS[2].2]);
        cluster.create_topic("alone", &[PARTITIONS[3].2]);
        let addresses = cluster.addresses();
        if level > 0 {
            set_version(&mut cluster.connect(cluster.controller(0)), level);
            addresses.iter().for_each(|address| wait_for_level(address, level));
        }
        wait_for("a coordinator", || coordinator(&addresses));
        let random = fastrand::Rng::with_seed(55 + level.unsigned_abs() as u64);
        Stage { cluster, level, random, producer: None, verdicts: Vec::new(), keys: Vec::new() }
    }

    #[track_caller]
    fn play_round(&mut self, round: usize, fault: Fault) {
        // Each in turn coordinates, but for the last fault, which needs broker 3 elsewhere.
        let turn = round / FAULTS.len() + round;
        let coordinator = 1 + i32::try_from(turn % 2).expect("small");
        self.settle(coordinator);
        self.write(round, coordinator);
        let is_commit = round % 3 != 1;
        self.verdicts.push(is_commit);
        if is_commit {
            self.keys.push(format!("r{round}-0"));
        }
        self.end_with(fault, coordinator, is_commit);
        self.check();
    }

    /// All brokers are there, each leads a partition, and this one coordinates.
    #[track_caller]
    fn settle(&self, coordinator: i32) {
        self.cluster.wait_for_isr(STATES, 0, &[1, 2, 3], 0);
        if self.cluster.leader(STATES, 0, 0) != coordinator {
            self.cluster.lead(STATES, 0, coordinator);
        }
        for (topic, index, replicas) in PARTITIONS {
            self.cluster.wait_for_isr(topic, index, replicas, 0);
            if self.cluster.leader(topic, index, 0) != replicas[0] {
                self.cluster.lead(topic, index, replicas[0]);
            }
        }
    }

    /// Writes one record to each partition, as part of a transaction.
    #[track_caller]
    fn write(&mut self, round: usize, coordinator: i32) {
        let address = self.cluster.address(coordinator);
        let mut producer = match self.producer.take().filter(|_| !round.is_multiple_of(4)) {
            Some(mut producer) => {
                producer.reconnect(&address);
                producer
            }
            None => Producer::new(&address, "spread"),
        };
        // The newer generation adds what it writes to.
        let version = if self.level == 2 { 12 } else { 9 };
        if self.level == 0 {
            producer.begin("t", &[0, 1, 2]);
            producer.begin("alone", &[0]);
        }
        for (topic, partition, _) in PARTITIONS {
            let batch = producer.next_batch(topic, partition, &format!("r{round}"), 1);
            let request = producer.write_request(topic, partition, &batch);
            wait_for("a record to be written", || {
                let leader = self.cluster.leader(topic, partition, 0);
                let answer = self.cluster.connect(leader).call(version, &request);
                match answer.responses[0].partition_responses[0].error_code {
                    code::NONE => Some(()),
                    again if COMES_AGAIN.contains(&again) => None,
                    other => panic!("round {round}: {topic}-{partition} answers {other}"),
                }
            });
            producer.count(topic, partition, 1);
        }
        self.producer = Some(producer);
    }

    #[track_caller]
    fn end_with(&mut self, fault: Fault, coordinator: i32, is_commit: bool) {
        let moment = Duration::from_millis(self.random.u64(0..50));
        let other = 3 - coordinator;
        match fault {
            Fault::CoordinatorDies => {
                self.end(is_commit);
                thread::sleep(moment);
                self.restart(coordinator);
            }
            Fault::LeaderDies => {
                self.end(is_commit);
                thread::sleep(moment / 5);
                self.restart(3);
            }
            Fault::LeaderStandsStill => {
                self.end(is_commit);
                self.cluster.broker(3).signal(Signal::STOP);
                // Sessions last 1.5 s.
                thread::sleep(Duration::from_secs(4));
                self.cluster.broker(3).signal(Signal::CONT);
            }
            Fault::LeadersMove => self.end_while(is_commit, |cluster| {
                for (index, leader) in [(0, other), (1, 3), (2, coordinator)] {
                    cluster.lead("t", index, leader);
                }
            }),
            Fault::CoordinatorMoves => self.end_while(is_commit, |cluster| {
                for leader in [other, 3, coordinator] {
                    cluster.lead(STATES, 0, leader);
                }
            }),
            Fault::CoordinatorDiesWithAPartitionAway => {
                self.cluster.lose(3);
                self.end(is_commit);
                for partition in 0..3 {
                    let leader = self.cluster.leader("t", partition, 3);
                    wait_until_stable(&mut self.cluster.connect(leader), "t", partition);
                }
                self.cluster.lose(coordinator);
                self.cluster.broker(3).start_again();
                self.cluster.broker(coordinator).start_again();
            }
        }
    }

    /// Kills a broker, and starts it again when the others know.
    #[track_caller]
    fn restart(&mut self, id: i32) {
        self.cluster.lose(id);
        self.cluster.broker(id).start_again();
    }

    /// Has the transaction decided, by whoever coordinates it.
    #[track_caller]
    fn end(&mut self, is_commit: bool) {
        self.end_while(is_commit, |_| ());
    }

    #[track_caller]
    fn end_while(&mut self, is_commit: bool, moves: impl FnOnce(&Cluster)) {
        let (addresses, level) = (self.cluster.addresses(), self.level);
        let producer = self.producer.as_mut().expect("a producer that has written");
        thread::scope(|scope| {
            scope.spawn(|| end(&addresses, producer, level, is_commit));
            moves(&self.cluster);
        });
    }

    /// One marker for each transaction in each partition, all verdicts alike, and nothing open.
    #[track_caller]
    fn check(&self) {
        for (topic, partition, replicas) in PARTITIONS {
            self.cluster.wait_for_isr(topic, partition, replicas, 0);
            let leader = self.cluster.leader(topic, partition, 0);
            let mut connection = self.cluster.connect(leader);
            wait_for("the end of the transaction", || {
                let count = markers(&mut connection, topic, partition).len();
                (count >= self.verdicts.len()).then_some(())
            });
            wait_until_stable(&mut connection, topic, partition);
        }
        // What is told twice comes before the coordinator knows that all were told.
        self.wait_until_complete();
        for (topic, partition, _) in PARTITIONS {
            let leader = self.cluster.leader(topic, partition, 0);
            let mut connection = self.cluster.connect(leader);
            let found: Vec<bool> = markers(&mut connection, topic, partition)
                .into_iter()
                .map(|(.., is_commit)| is_commit)
                .collect();
            assert_eq!(found, self.verdicts, "the markers in {topic}-{partition}");
            assert_eq!(committed_keys(&mut connection, topic, partition), self.keys, "{topic}-{partition}");
        }
    }

    #[track_caller]
    fn wait_until_complete(&self) {
        use wire::describe_transactions_request::DescribeTransactionsRequest;
        let addresses = self.cluster.addresses();
        let request = DescribeTransactionsRequest { transactional_ids: vec!["spread".into()] };
        wait_for("the transaction to be complete", || {
            let answer = Connection::open(&coordinator(&addresses)?).call(0, &request);
            let state = &answer.transaction_states[0];
            (state.error_code == 0 && state.transaction_state.starts_with("Complete")).then_some(())
        });
    }
}

/// Each broker hears of the level by itself, and works as before until then.
#[track_caller]
fn wait_for_level(address: &str, level: i16) {
    let request =
        ApiVersionsRequest { client_software_name: "test".into(), client_software_version: "1".into() };
    let mut connection = Connection::open(address);
    wait_for("the level", || {
        let told = connection.call(3, &request).finalized_features;
        told.iter().any(|feature| feature.max_version_level == level).then_some(())
    });
}

/// Errors after which clients send the same again.
const COMES_AGAIN: [i16; 11] = [3, 5, 6, 7, 13, 14, 15, 16, 19, 20, 51];

#[track_caller]
fn end(addresses: &[String], producer: &mut Producer, level: i16, is_commit: bool) {
    let version = if level == 2 { 5 } else { 3 };
    wait_for("the decision", || match producer.end(version, is_commit) {
        code::NONE => Some(()),
        again if COMES_AGAIN.contains(&again) => {
            producer.connection = Connection::open(&coordinator(addresses)?);
            None
        }
        other => panic!("EndTxn answers {other}"),
    });
}

/// The address of the broker that coordinates, as the first that answers knows it.
fn coordinator(addresses: &[String]) -> Option<String> {
    let request = FindCoordinatorRequest { key: "spread".into(), key_type: 1, ..Default::default() };
    let mut any = addresses.iter().find_map(|address| Connection::try_open(address))?;
    let answer = any.call(3, &request);
    (answer.error_code == 0).then(|| format!("{}:{}", &*answer.host, answer.port))
}
