//! Every sub-command of `kafka-transactions` and `kafka-features`, run by the same script against Barnabas and against
//! real Kafka: they print the same and end with the same status, but for the differences that are listed with reasons.

use std::collections::BTreeMap;

use protocol_tests::{Broker, Connection, Output, Server, Tools, announce, wait_for};

use crate::producer::Producer;
use crate::tools::can_run;
use crate::{SETTINGS, set_version};

/// Lines that only one of both prints.
struct Difference {
    /// Of the tools and of the Kafka beside Barnabas.
    version: &'static str,
    /// What the step's name contains.
    step: &'static str,
    /// What such a line contains.
    line: &'static str,
    reason: &'static str,
}

const fn difference(
    version: &'static str,
    step: &'static str,
    line: &'static str,
    reason: &'static str,
) -> Difference {
    Difference { version, step, line, reason }
}

const NO_FEATURES: &str = "Kafka 3.9 with ZooKeeper has no feature whose level could be shown or changed";
const WORDS: &str = "what is refused is told in the words of Kafka 4";
const KRAFT: &str = "it belongs to KRaft";
const PROTOCOLS: &str = "a group protocol that is not there yet";

/// `kafka-transactions` prints the same in all of its sub-commands.
const DIFFERENCES: &[Difference] = &[
    difference("3.9.2", "kafka-features describe", "transaction.version", NO_FEATURES),
    difference("3.9.2", "transaction.version", "transaction.version", NO_FEATURES),
    difference("3.9.2", "transaction.version", "operation(s) failed.", NO_FEATURES),
    difference("3.9.2", "transaction.version", "status ", NO_FEATURES),
    difference("3.9.2", "--feature foo=1", "Could not upgrade foo", WORDS),
    difference("3.9.2", "--metadata 3.9", "Could not upgrade metadata.version", WORDS),
    difference("4.3.1", "kafka-features describe", "metadata.version", KRAFT),
    difference("4.3.1", "kafka-features describe", "kraft.version", KRAFT),
    difference("4.3.1", "kafka-features describe", "eligible.leader.replicas.version", KRAFT),
    difference("4.3.1", "kafka-features describe", "group.version", PROTOCOLS),
    difference("4.3.1", "kafka-features describe", "share.version", PROTOCOLS),
    difference("4.3.1", "kafka-features describe", "streams.version", PROTOCOLS),
    difference(
        "4.3.1",
        "upgrade --release-version",
        "",
        "it means levels of KRaft, and of protocols that are not there",
    ),
];

/// Columns of tables that are of the run, not of the server.
const VOLATILE: &[&str] = &[
    "ProducerId",
    "TransactionDurationMs",
    "CurrentTransactionStartTimeMs",
    "LastTimestamp",
    "Duration(min)",
    "LatestCoordinatorEpoch",
];

#[test]
fn the_tools_of_3_9_2_print_the_same_for_kafka_with_zookeeper() {
    compare("3.9.2");
}

#[test]
fn the_tools_of_4_3_1_print_the_same_for_kafka_4_3_1() {
    compare("4.3.1");
}

#[track_caller]
fn compare(version: &str) {
    if !can_run(&format!("output of transaction tools, {version}")) {
        return;
    }
    let theirs = run_script(Server::named(&format!("kafka-{version}")), version);
    let ours = run_script(Server::Barnabas, version);
    assert_eq!(ours.len(), theirs.len(), "the steps");
    let mut found = Vec::new();
    for (step, ours) in &ours {
        let theirs = &theirs[step];
        let is_listed = |line: &str| {
            DIFFERENCES.iter().any(|known| {
                known.version == version && step.contains(known.step) && line.contains(known.line)
            })
        };
        let rest = |one: &[String], other: &[String]| -> Vec<String> {
            one.iter().filter(|line| !other.contains(line) && !is_listed(line)).cloned().collect()
        };
        found.extend(rest(ours, theirs).iter().map(|line| format!("{step}: only Barnabas: {line}")));
        found.extend(rest(theirs, ours).iter().map(|line| format!("{step}: only Kafka: {line}")));
    }
    assert!(found.is_empty(), "{version}:\n{}", found.join("\n"));
    let mut reasons: Vec<&str> =
        DIFFERENCES.iter().filter(|known| known.version == version).map(|known| known.reason).collect();
    reasons.dedup();
    announce(&format!("tools of {version}: the same but for: {}", reasons.join("; ")));
}

/// The lines of each step, of which one is its status.
type Outputs = BTreeMap<String, Vec<String>>;

struct Script {
    tools: Tools,
    address: String,
    outputs: Outputs,
}

impl Script {
    /// Runs a sub-command.
    #[track_caller]
    fn step(&mut self, tool: &str, arguments: &[&str]) {
        self.step_as(&arguments.join(" "), tool, arguments);
    }

    /// As [`Script::step`], under a name for arguments that differ from run to run.
    #[track_caller]
    fn step_as(&mut self, name: &str, tool: &str, arguments: &[&str]) {
        let step = format!("{:02} {tool} {name}", self.outputs.len());
        let all = [&["--bootstrap-server", &self.address], arguments].concat();
        let run = self.tools.start(tool, &all);
        let output = self.tools.finish_with_any_status(run);
        self.outputs.insert(step, lines_of(&output, &self.address));
    }
}

#[track_caller]
fn run_script(server: Server, version: &str) -> Outputs {
    let mut settings = SETTINGS.to_vec();
    // A transaction that its coordinator does not know of can be begun.
    settings.push(("transaction.partition.verification.enable", "false"));
    let broker = Broker::start_as(server, &settings);
    let mut connection = Connection::open(&broker.address());
    connection.wait_for_coordinator("any");
    connection.create_topic("t", 2, &[]);
    let mut script =
        Script { tools: Tools::of(version), address: broker.address(), outputs: BTreeMap::new() };
    transactions(&mut script, version, &mut connection);
    features(&mut script, version, &mut connection);
    script.outputs
}

fn transactions(script: &mut Script, version: &str, connection: &mut Connection) {
    let is_new = version.starts_with('4');
    let tool = "kafka-transactions";
    script.step(tool, &["list"]);
    script.step(tool, &["describe", "--transactional-id", "nobody"]);
    let mut producer = Producer::new(&script.address, "shown");
    producer.begin("t", &[0]);
    producer.write("t", 0, "x", 1);
    let mut decided = Producer::new(&script.address, "decided");
    decided.begin("t", &[0, 1]);
    decided.write("t", 1, "x", 3);
    assert_eq!(decided.end(3, true), 0);
    wait_for("the end", || {
        let shown = script.tools.run(tool, &["--bootstrap-server", &script.address, "list"]);
        shown.contains("CompleteCommit").then_some(())
    });
    script.step(tool, &["list"]);
    script.step(tool, &["list", "--duration-filter", "3600000"]);
    if is_new {
        script.step(tool, &["list", "--transactional-id-pattern", "sho.*"]);
        script.step(tool, &["list", "--transactional-id-pattern", "("]);
    }
    for id in ["shown", "decided"] {
        script.step(tool, &["describe", "--transactional-id", id]);
    }
    script.step(tool, &["describe-producers", "--topic", "t", "--partition", "0"]);
    script.step(tool, &["describe-producers", "--topic", "t", "--partition", "1", "--broker-id", "1"]);
    script.step(tool, &["describe-producers", "--topic", "t", "--partition", "0", "--broker-id", "7"]);
    // Of a topic that is not there both are asked for as long as the tool is patient.

    // Nobody told the coordinator of this one.
    let mut unknown = Producer::new(&script.address, "unknown");
    unknown.producer_id += 100_000;
    unknown.write("t", 1, "hangs", 1);
    script.step(tool, &["find-hanging", "--broker-id", "1"]);
    script.step(tool, &["find-hanging", "--broker-id", "1", "--topic", "t"]);
    script.step(tool, &["find-hanging", "--topic", "t", "--partition", "1"]);
    script.step(tool, &["find-hanging", "--topic", "t", "--max-transaction-timeout", "1"]);
    script.step(tool, &["find-hanging", "--broker-id", "7"]);
    script.step(tool, &["find-hanging"]);
    script.step(tool, &["find-hanging", "--topic", "nothing"]);
    script.step(tool, &["abort", "--topic", "t", "--partition", "1", "--start-offset", "1"]);
    let offset = connection.log_end("t", 1) - 1;
    script.step(tool, &["abort", "--topic", "t", "--partition", "1", "--start-offset", &offset.to_string()]);
    wait_for("the abort", || {
        let data = connection.fetch_partition("t", 1, 0);
        (data.last_stable_offset == data.high_watermark).then_some(())
    });
    script.step(tool, &["find-hanging", "--broker-id", "1"]);
    let id = producer.producer_id.to_string();
    let epoch = producer.epoch.to_string();
    let of_old_brokers = ["--producer-id", &id, "--producer-epoch", &epoch, "--coordinator-epoch", "0"];
    let abort = [&["abort", "--topic", "t", "--partition", "0"], &of_old_brokers[..]].concat();
    script.step_as("abort by producer id", tool, &abort);
    script.step(tool, &["abort", "--topic", "t", "--partition", "0"]);
    if is_new {
        script.step(tool, &["force-terminate", "--transactional-id", "shown"]);
        script.step(tool, &["force-terminate", "--transactional-id", "nobody"]);
        script.step(tool, &["list"]);
    }
}

fn features(script: &mut Script, version: &str, connection: &mut Connection) {
    let tool = "kafka-features";
    if version.starts_with('4') {
        // Where a new cluster of Kafka 4 begins.
        set_version(connection, 2);
    }
    script.step(tool, &["describe"]);
    script.step(tool, &["upgrade", "--feature", "transaction.version=1"]);
    script.step(tool, &["describe"]);
    script.step(tool, &["upgrade", "--feature", "transaction.version=2"]);
    script.step(tool, &["upgrade", "--feature", "transaction.version=7"]);
    script.step(tool, &["upgrade", "--dry-run", "--feature", "transaction.version=1"]);
    script.step(tool, &["downgrade", "--dry-run", "--feature", "transaction.version=1"]);
    script.step(tool, &["downgrade", "--feature", "transaction.version=1"]);
    script.step(tool, &["downgrade", "--unsafe", "--feature", "transaction.version=0"]);
    script.step(tool, &["disable", "--feature", "transaction.version"]);
    script.step(tool, &["upgrade", "--feature", "foo=1"]);
    script.step(tool, &["upgrade", "--feature", "transaction.version=one"]);
    script.step(tool, &["upgrade"]);
    script.step(tool, &["describe"]);
    if version.starts_with('4') {
        script.step(tool, &["upgrade", "--release-version", "4.3"]);
        script.step(tool, &["version-mapping"]);
        script.step(tool, &["version-mapping", "--release-version", "4.2"]);
        script.step(tool, &["feature-dependencies", "--feature", "transaction.version=2"]);
        script.step(tool, &["feature-dependencies", "--feature", "foo=1"]);
    } else {
        script.step(tool, &["upgrade", "--metadata", "3.9"]);
    }
}

/// What was printed, without what differs from run to run.
fn lines_of(output: &Output, address: &str) -> Vec<String> {
    let mut header: Vec<&str> = Vec::new();
    let mut lines = vec![format!("status {}", output.status.unwrap_or(-1))];
    for line in output.stdout.lines().chain(output.stderr.lines()) {
        // The time of a line of the log.
        let line =
            line.strip_prefix('[').and_then(|line| line.split_once("] ")).map_or(line, |(_, rest)| rest);
        let mut words: Vec<&str> =
            line.split_whitespace().filter(|word| !word.starts_with("clientId=adminclient-")).collect();
        if words.contains(&"ProducerId") {
            header = words.clone();
        } else if [header.len(), header.len() + 1].contains(&(words.len() + 1)) {
            let is_volatile = |name: &&str| VOLATILE.contains(name);
            header
                .iter()
                .zip(&mut words)
                .filter(|(name, _)| is_volatile(name))
                .for_each(|(name, word)| *word = name);
        }
        // Which epoch the levels have got to is the server's own affair.
        if let Some(at) = words.iter().position(|word| *word == "Epoch:") {
            words.truncate(at + 1);
        }
        // Of a stack trace the first line says what went wrong.
        if words.first() != Some(&"at") && !words.is_empty() {
            lines.push(words.join(" ").replace(address, "ADDRESS"));
        }
    }
    lines
}
