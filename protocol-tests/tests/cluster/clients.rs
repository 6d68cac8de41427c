//! Producers, transactions and groups of Java, librdkafka and franz-go while brokers and ZooKeeper come and go: nothing
//! acknowledged is lost, nothing stands twice, consumers go on by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use protocol_tests::client::{left_out, programs};
use protocol_tests::requests::values;
use protocol_tests::{Cluster, Line, Process, announce, has_java, scaled};
use rustix::process::Signal;

/// A program is quiet for no longer than this unless it hangs.
const SILENCE: Duration = Duration::from_secs(120);

/// A program that does the steady work of `clients/README.md`, and what it has said.
struct Steady {
    name: &'static str,
    topic: String,
    process: Process,
    acked: Vec<String>,
    read: BTreeSet<String>,
    committed: Vec<u64>,
    aborted: Vec<u64>,
    /// How often each record of a transaction was read.
    read_committed: BTreeMap<u64, usize>,
    has_stopped: bool,
    is_done: bool,
}

impl Steady {
    #[track_caller]
    fn start(name: &'static str, cluster: &Cluster, mut command: Command) -> Steady {
        let topic = format!("{name}-plain");
        let transactional = format!("{name}-transactional");
        for topic in [&topic, &transactional] {
            cluster.create_topic(topic, &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]]);
        }
        command.args([&*cluster.bootstrap(), &topic, &transactional, name]);
        Steady {
            name,
            topic,
            process: Process::start(name, command, None),
            acked: Vec::new(),
            read: BTreeSet::new(),
            committed: Vec::new(),
            aborted: Vec::new(),
            read_committed: BTreeMap::new(),
            has_stopped: false,
            is_done: false,
        }
    }

    #[track_caller]
    fn hear(&mut self) {
        let Line::Text(line) = self.process.next_line(SILENCE) else {
            panic!("{} ended\n{}", self.name, self.process.stderr_text())
        };
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |text: &str| text.trim_start_matches("t-").parse::<u64>().expect("a number");
        match fields[..] {
            ["acked", value] => self.acked.push(value.to_owned()),
            ["read", value] => drop(self.read.insert(value.to_owned())),
            ["readtxn", value] => *self.read_committed.entry(number(value)).or_default() += 1,
            ["committed", first, last] => self.committed.extend(number(first)..=number(last)),
            ["aborted", first, last] => self.aborted.extend(number(first)..=number(last)),
            ["stopped"] => self.has_stopped = true,
            ["done"] => self.is_done = true,
            _ => panic!("{} printed {line:?}", self.name),
        }
    }

    /// Hears what comes until so much more was acknowledged, committed and read.
    #[track_caller]
    fn wait_for_more(&mut self, more: usize) {
        let wanted = (self.acked.len() + more, self.committed.len() + more, self.read.len() + more);
        let began = Instant::now();
        while self.acked.len() < wanted.0 || self.committed.len() < wanted.1 || self.read.len() < wanted.2 {
            let state = (self.acked.len(), self.committed.len(), self.read.len());
            assert!(
                began.elapsed() < SILENCE,
                "{} does not get from {state:?} to {wanted:?}\n{}",
                self.name,
                self.process.stderr_text()
            );
            self.hear();
        }
    }

    /// Lets it come to an end, and judges.
    #[track_caller]
    fn finish(mut self, cluster: &Cluster) {
        self.process.write_line("stop");
        while !self.has_stopped {
            self.hear();
        }
        let began = Instant::now();
        while !self.has_read_all() {
            assert!(began.elapsed() < SILENCE, "{} does not read what is there", self.name);
            self.hear();
        }
        self.process.write_line("enough");
        while !self.is_done {
            self.hear();
        }
        for number in &self.aborted {
            assert!(!self.read_committed.contains_key(number), "{}: t-{number} was aborted", self.name);
        }
        let mut stored: BTreeMap<String, usize> = BTreeMap::new();
        for partition in 0..3 {
            let leader = cluster.leader(&self.topic, partition, 0);
            for value in values(&cluster.connect(leader).fetch_all(&self.topic, partition, 0)) {
                *stored.entry(value).or_default() += 1;
            }
        }
        let lost: Vec<_> = self.acked.iter().filter(|value| !stored.contains_key(*value)).collect();
        assert!(lost.is_empty(), "{}: acknowledged and lost: {lost:?}", self.name);
        let twice: Vec<_> = stored.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "{}: stand twice: {twice:?}", self.name);
        announce(&format!(
            "cluster: {}: {} acknowledged, {} stored; {} committed, {} aborted, {} read",
            self.name,
            self.acked.len(),
            stored.len(),
            self.committed.len(),
            self.aborted.len(),
            self.read_committed.len()
        ));
        self.process.finish(SILENCE).expect_success(self.name);
    }

    fn has_read_all(&self) -> bool {
        self.acked.iter().all(|value| self.read.contains(value))
            && self.committed.iter().all(|number| self.read_committed.contains_key(number))
    }
}

#[track_caller]
fn steady_through(build: fn() -> Result<Command, String>, name: &'static str) {
    if !has_java() {
        return;
    }
    let command = match build() {
        Ok(command) => command,
        Err(missing) => return left_out(name, &missing),
    };
    let mut cluster =
        Cluster::of_three(&[("min.insync.replicas", "2"), ("transaction.state.log.min.isr", "2")]);
    let mut steady = Steady::start(name, &cluster, command);
    steady.wait_for_more(50);
    faults(&mut cluster, &mut steady);
    steady.finish(&cluster);
}

fn faults(cluster: &mut Cluster, steady: &mut Steady) {
    let topic = steady.topic.clone();
    let in_sync =
        |cluster: &Cluster| (0..3).for_each(|index| cluster.wait_for_isr(&topic, index, &[1, 2, 3], 0));
    let leader = cluster.leader(&topic, 0, 0);
    announce(&format!("cluster: {}: killing {leader}", steady.name));
    cluster.broker(leader).kill();
    steady.wait_for_more(50);
    cluster.broker(leader).start_again();
    in_sync(cluster);
    // Sessions last 1.5 s.
    for pause_ms in [500, 4_000] {
        let leader = cluster.leader(&topic, 1, 0);
        announce(&format!("cluster: {}: stopping {leader} for {pause_ms} ms", steady.name));
        cluster.broker(leader).signal(Signal::STOP);
        thread::sleep(Duration::from_millis(pause_ms));
        cluster.broker(leader).signal(Signal::CONT);
        steady.wait_for_more(50);
        in_sync(cluster);
    }
    announce(&format!("cluster: {}: ZooKeeper is away", steady.name));
    cluster.zookeeper().stop();
    steady.wait_for_more(50);
    // Past the sessions' end.
    thread::sleep(Duration::from_secs(2));
    cluster.zookeeper().start_again();
    steady.wait_for_more(50);
    in_sync(cluster);
    steady.wait_for_more(50);
}

#[test]
fn java_works_on() {
    steady_through(|| programs::java("4.3.1", "SteadyClient"), "java");
}

#[test]
fn librdkafka_works_on() {
    steady_through(|| programs::python("steady_confluent.py"), "librdkafka");
}

#[test]
fn franz_go_works_on() {
    steady_through(|| programs::go("franzsteady"), "franz-go");
}

/// Members that come and go make a run last for some 15 s, whatever there is to read.
const GROUP_RUNS: usize = 3;
const GROUP_RECORDS: &str = "5000";

/// franz-go gap 1: the library's own test of groups. Members of chained groups come and go, with range, cooperative-sticky
/// and static members; it fails on a member's error, and on a record that is delivered twice or out of order.
#[test]
fn franz_gos_own_test_of_groups_passes() {
    if !has_java() {
        return;
    }
    let mut tests = match programs::go_tests_of("github.com/twmb/franz-go/pkg/kgo") {
        Ok(command) => command,
        Err(missing) => return left_out("franz-go's tests", &missing),
    };
    let cluster = Cluster::of_three(&[Cluster::LONG_SESSIONS]);
    let count = format!("-test.count={}", scaled(GROUP_RUNS));
    tests.args(["-test.run=^TestGroupETL$", "-test.v", "-test.timeout=30m", &count]);
    let environment = [
        ("KGO_SEEDS", &*cluster.bootstrap()),
        ("KGO_TEST_RF", "3"),
        ("KGO_TEST_RECORDS", GROUP_RECORDS),
        ("KGO_LOG_LEVEL", "none"),
    ];
    tests.envs(environment);
    let finished = Process::start("franz-go's tests", tests, None).finish(Duration::from_secs(1800));
    let finished = finished.expect_success("TestGroupETL");
    for part in ["range", "cooperative-sticky", "cooperative-sticky/static"] {
        let line = format!("--- PASS: TestGroupETL/{part} ");
        let passed = finished.stdout.lines().filter(|found| found.trim_start().starts_with(&line)).count();
        assert_eq!(passed, scaled(GROUP_RUNS), "{part}\n{}", finished.stdout);
    }
}
