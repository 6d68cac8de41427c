//! Transactions of public client libraries: `clients/README.md`, "Transactions".

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use protocol_tests::client::{left_out, programs};
use protocol_tests::{Connection, Line, Process};

use crate::{set_version, start};

/// A program is quiet for no longer than this unless it hangs.
const SILENCE: Duration = Duration::from_secs(120);

/// Runs the program at a level of `transaction.version` and judges what it saw.
#[track_caller]
fn run(name: &str, level: i16, program: Result<Command, String>) {
    let mut command = match program {
        Err(missing) => return left_out(name, &missing),
        Ok(command) => command,
    };
    let broker =
        start(&[("transaction.state.log.num.partitions", "3"), ("offsets.topic.num.partitions", "3")]);
    let mut connection = Connection::open(&broker.address());
    for topic in ["in", "out"] {
        connection.create_topic(topic, 2, &[]);
    }
    if level > 0 {
        set_version(&mut connection, level);
    }
    command.args([&broker.address(), "in", "out", "group"]);
    let mut process = Process::start(name, command, None);
    let mut lines = Vec::new();
    loop {
        match process.next_line(SILENCE) {
            Line::Text(line) if line == "done" => break,
            Line::Text(line) => lines.push(line),
            Line::End => {
                let finished = process.finish(SILENCE);
                panic!("{name} ended with {} before it was done\n{}", finished.status, finished.stderr);
            }
        }
    }
    process.finish(SILENCE).expect_success(name);
    judge(&lines, &mut connection);
}

fn judge(lines: &[String], connection: &mut Connection) {
    let read = |topic: &str| {
        let of_topic = lines.iter().map(|line| line.split('\t').collect::<Vec<_>>());
        let keys = of_topic.filter(|fields| fields[0] == "read" && fields[1] == topic);
        keys.map(|fields| fields[4].to_owned()).collect::<Vec<_>>()
    };
    let keys = |prefix: &str| {
        let first = (0..20).map(|i| format!("{prefix}first-{i}"));
        first.chain((0..10).map(|i| format!("{prefix}second-{i}"))).collect::<BTreeSet<_>>()
    };
    for (topic, prefix) in [("in", ""), ("out", "out-")] {
        let found = read(topic);
        assert_eq!(found.len(), 30, "{topic}: {found:?}");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), keys(prefix), "{topic}");
    }
    assert!(lines.iter().any(|line| line == "fenced"), "the earlier producer was not fenced");
    for partition in 0..2 {
        let of_partition = lines.iter().map(|line| line.split('\t').collect::<Vec<_>>());
        let is_of_input = |fields: &Vec<&str>| {
            fields[0] == "read" && fields[1] == "in" && fields[2] == partition.to_string()
        };
        let offsets = of_partition.filter(is_of_input).filter_map(|fields| fields[3].parse::<i64>().ok());
        let last = offsets.max().expect("something was read");
        // Behind the last record, or behind the marker that follows it: some libraries commit where they go on.
        let committed = connection.committed("group", "in", partition);
        assert!(
            (last + 1..=last + 2).contains(&committed),
            "{committed} of partition {partition}, read to {last}"
        );
    }
}

macro_rules! clients {
    ($($name:ident: $level:literal, $program:expr;)*) => {$(
        #[test]
        fn $name() {
            run(stringify!($name), $level, $program);
        }
    )*};
}

clients! {
    java_4_3_1: 0, programs::java("4.3.1", "JavaTransactions");
    java_4_3_1_with_growing_epochs: 2, programs::java("4.3.1", "JavaTransactions");
    java_3_9_2: 0, programs::java("3.9.2", "JavaTransactions");
    java_3_9_2_beside_growing_epochs: 2, programs::java("3.9.2", "JavaTransactions");
    java_2_8_2: 0, programs::java("2.8.2", "JavaTransactions");
    java_0_11_0_3: 0, programs::java("0.11.0.3", "JavaTransactions");
    java_0_11_0_3_beside_growing_epochs: 2, programs::java("0.11.0.3", "JavaTransactions");
    confluent_kafka: 0, programs::python("transactions_confluent.py");
    confluent_kafka_beside_growing_epochs: 2, programs::python("transactions_confluent.py");
    aiokafka: 0, programs::python("transactions_aiokafka.py");
    aiokafka_beside_growing_epochs: 2, programs::python("transactions_aiokafka.py");
    kafka_python: 0, programs::python("transactions_kafka_python.py");
    kafka_python_beside_growing_epochs: 2, programs::python("transactions_kafka_python.py");
    kafkajs: 0, programs::node("transactions_kafkajs.js");
    kafkajs_beside_growing_epochs: 2, programs::node("transactions_kafkajs.js");
    franz_go: 0, programs::go("franztxn");
    franz_go_with_growing_epochs: 2, programs::go("franztxn");
    sarama: 0, programs::go("saramatxn");
    sarama_beside_growing_epochs: 2, programs::go("saramatxn");
}
