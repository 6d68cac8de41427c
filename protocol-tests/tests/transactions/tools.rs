//! Kafka's own tools about transactions and features.

use std::time::Duration;

use protocol_tests::client::left_out;
use protocol_tests::{Connection, Process, Tools, command_exists, kafka_tool, wait_for};

use crate::code;
use crate::producer::Producer;
use crate::start;

/// redpanda#11947: an empty list is no error, and what there is is shown; `kafka-features` raises and lowers levels.
#[test]
fn tools_show_transactions_and_change_levels() {
    if !can_run("the tools of transactions") {
        return;
    }
    for version in ["4.3.1", "3.9.2"] {
        let broker = start(&[]);
        let address = broker.address();
        let mut tools = Tools::of(version);
        let server = ["--bootstrap-server", &address];
        let mut connection = Connection::open(&address);
        connection.create_topic("t", 1, &[]);
        let list = tools.run("kafka-transactions", &[&server[..], &["list"]].concat());
        assert_eq!(list.lines().count(), 1, "{list}");
        let mut producer = Producer::new(&address, "shown");
        producer.begin("t", &[0]);
        producer.write("t", 0, "x", 1);
        let list = tools.run("kafka-transactions", &[&server[..], &["list"]].concat());
        assert!(list.contains("shown") && list.contains("Ongoing"), "{list}");
        let describe = ["describe", "--transactional-id", "shown"];
        let described = tools.run("kafka-transactions", &[&server[..], &describe].concat());
        assert!(described.contains("t-0"), "{described}");
        let producers = ["describe-producers", "--topic", "t", "--partition", "0"];
        let shown = tools.run("kafka-transactions", &[&server[..], &producers].concat());
        assert!(shown.contains(&format!("{}", producer.producer_id)), "{shown}");
        let hanging = ["find-hanging", "--broker-id", "1"];
        let found = tools.run("kafka-transactions", &[&server[..], &hanging].concat());
        assert_eq!(found.lines().count(), 1, "{found}");
        let abort = ["abort", "--topic", "t", "--partition", "0", "--start-offset", "0"];
        tools.run("kafka-transactions", &[&server[..], &abort].concat());
        wait_for("the abort", || {
            let data = connection.fetch_partition("t", 0, 0);
            (data.last_stable_offset == data.high_watermark).then_some(())
        });
        // The coordinator does not know of it: the producer's end is one marker more.
        assert_eq!(producer.end(3, false), code::NONE);

        let upgrade = ["upgrade", "--feature", "transaction.version=2"];
        tools.run("kafka-features", &[&server[..], &upgrade].concat());
        let features = tools.run("kafka-features", &[&server[..], &["describe"]].concat());
        let level = |features: &str| {
            let line = features.lines().find(|line| line.contains("transaction.version")).map(str::to_owned);
            line.and_then(|line| {
                let rest = line.split("FinalizedVersionLevel:").nth(1)?.trim().to_owned();
                rest.chars().next()
            })
        };
        assert_eq!(level(&features), Some('2'), "{features}");
        let downgrade = ["downgrade", "--feature", "transaction.version=1"];
        tools.run("kafka-features", &[&server[..], &downgrade].concat());
        let features = tools.run("kafka-features", &[&server[..], &["describe"]].concat());
        assert_eq!(level(&features), Some('1'), "{features}");
        let unknown =
            tools.start("kafka-features", &[&server[..], &["upgrade", "--feature", "foo=1"]].concat());
        let output = tools.finish_with_any_status(unknown);
        assert_ne!(output.status, Some(0), "{output:?}");
    }
}

/// What the coordinators write is what Kafka's decoders read.
#[test]
fn kafkas_decoders_read_the_internal_topics() {
    if !can_run("the decoders of internal topics") {
        return;
    }
    let mut broker = start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 1, &[]);
    let mut producer = Producer::new(&broker.address(), "decoded");
    producer.begin("t", &[0]);
    producer.write("t", 0, "x", 1);
    assert_eq!(producer.end(3, true), code::NONE);
    crate::producer::wait_until_stable(&mut connection, "t", 0);
    assert_eq!(connection.commit("decoded-group", "t", 0, 1), 0);
    for version in ["3.9.2", "4.3.1"] {
        let printed = console_consumer(version, &broker.address(), "__transaction_state", "TransactionLog");
        assert!(printed.contains("decoded"), "{version}:\n{printed}");
        let printed = console_consumer(version, &broker.address(), "__consumer_offsets", "Offsets");
        assert!(printed.contains("decoded-group"), "{version}:\n{printed}");
    }
    broker.stop();
    let file =
        |topic: &str| broker.data_dir().join(topic).join("00000000000000000000.log").display().to_string();
    let state = file("__transaction_state-0");
    let decoded = dump_log(&["--transaction-log-decoder", "--files", &state]);
    for part in ["transactionalId=decoded", "state=Ongoing", "state=PrepareCommit", "state=CompleteCommit"] {
        assert!(decoded.contains(part), "{part} is missing in\n{decoded}");
    }
    let decoded = dump_log(&["--offsets-decoder", "--files", &file("__consumer_offsets-0")]);
    assert!(decoded.contains("decoded-group") && decoded.contains("\"offset\":1"), "{decoded}");
    // The record is dated years before its marker, which therefore begins a segment.
    let marker = file("t-0").replace("00.log", "01.log");
    let decoded = dump_log(&["--files", &marker]);
    assert!(decoded.contains("isTransactional: true isControl: true"), "{decoded}");
    broker.start_again();
}

/// `false` and a line in the run's output where this machine cannot run Kafka's tools.
pub fn can_run(what: &str) -> bool {
    let missing = ["javac", "mvn"].into_iter().find(|tool| !command_exists(tool));
    missing.inspect(|tool| left_out(what, &format!("this machine has no {tool}"))).is_none()
}

/// The first record of an internal topic, as a formatter of Kafka's console consumer prints it.
#[track_caller]
fn console_consumer(version: &str, address: &str, topic: &str, formatter: &str) -> String {
    let mut command = kafka_tool(version, "kafka-console-consumer");
    command.args(["--bootstrap-server", address, "--topic", topic]);
    command.args(["--from-beginning", "--max-messages", "1", "--timeout-ms", "60000", "--formatter"]);
    command.arg(format!("org.apache.kafka.tools.consumer.{formatter}MessageFormatter"));
    let finished = Process::start("kafka-console-consumer", command, None).finish(Duration::from_secs(180));
    finished.expect_success("kafka-console-consumer").stdout
}

/// In a JVM of its own: its decoders are not found by the class loaders of [`Tools`].
#[track_caller]
fn dump_log(arguments: &[&str]) -> String {
    let mut command = kafka_tool("3.9.2", "kafka-dump-log");
    command.args(arguments);
    let finished = Process::start("kafka-dump-log", command, None).finish(Duration::from_secs(180));
    finished.expect_success("kafka-dump-log").stdout
}
