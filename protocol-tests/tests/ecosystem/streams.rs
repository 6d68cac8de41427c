use std::process::Command;

use protocol_tests::{Broker, Line, Process};

use super::{SILENCE, can_run, java};

#[test]
fn streams_4_3_1_exactly_once_gives_the_reference_result_through_kills() {
    walk("4.3.1", "exactly_once_v2", "exact");
}

#[test]
fn streams_3_9_2_exactly_once_gives_the_reference_result_through_kills() {
    walk("3.9.2", "exactly_once_v2", "exact");
}

#[test]
fn streams_4_3_1_at_least_once_loses_nothing_through_kills() {
    walk("4.3.1", "at_least_once", "least");
}

#[test]
fn streams_3_9_2_at_least_once_loses_nothing_through_kills() {
    walk("3.9.2", "at_least_once", "least");
}

const STEP: usize = 400;

/// Two instances; one is killed, then the broker, then the other instance, with more input after each.
#[track_caller]
fn walk(version: &str, guarantee: &str, comparison: &str) {
    if !can_run(&format!("Streams {version}")) {
        return;
    }
    let mut settings = vec![("group.initial.rebalance.delay.ms", "0"), ("num.partitions", "4")];
    settings.extend(super::ONE_TRANSACTION_LOG);
    let mut broker = Broker::start(&settings);
    // Of instances that were killed.
    broker.allow_log("aborting a transaction that outlived its timeout");
    let address = broker.address();
    create_topics(version, &address);
    let feed = |from: usize, to: usize| {
        expect(version, &["feed", &address, &from.to_string(), &to.to_string()], "fed");
    };
    feed(0, STEP);
    let folders = [broker.dir().join("a"), broker.dir().join("b")].map(|dir| dir.display().to_string());
    let start = |folder: &str| start(version, &address, folder, guarantee);
    let (mut first, mut second) = (start(&folders[0]), start(&folders[1]));
    await_running(&mut first);
    feed(STEP, 2 * STEP);
    drop(first); // SIGKILL
    feed(2 * STEP, 3 * STEP);
    let mut first = start(&folders[0]);
    broker.kill();
    broker.start_again();
    feed(3 * STEP, 4 * STEP);
    await_running(&mut first);
    drop(second); // SIGKILL
    second = start(&folders[1]);
    feed(4 * STEP, 5 * STEP);
    expect(version, &["check", &address, &(5 * STEP).to_string(), comparison], "right");
    drop((first, second));
}

#[track_caller]
fn create_topics(version: &str, address: &str) {
    let mut tools = protocol_tests::Tools::of(version);
    for topic in ["customers", "purchases", "totals", "counts"] {
        tools.run(
            "kafka-topics",
            &["--bootstrap-server", address, "--create", "--topic", topic, "--partitions", "4"],
        );
    }
}

fn program(version: &str) -> Command {
    java(version, "StreamsWalk", Some("StreamsWalk.java"))
}

#[track_caller]
fn start(version: &str, address: &str, folder: &str, guarantee: &str) -> Process {
    let mut command = program(version);
    command.args(["app", address, folder, guarantee]);
    Process::start("streams", command, None)
}

#[track_caller]
fn await_running(app: &mut Process) {
    loop {
        match app.next_line(SILENCE) {
            Line::Text(line) if line == "state RUNNING" => return,
            Line::Text(_) => {}
            Line::End => panic!("the application ended\n{}", app.stderr_text()),
        }
    }
}

/// Runs a part of the program to its end and asks for its last line.
#[track_caller]
fn expect(version: &str, arguments: &[&str], last: &str) {
    let mut command = program(version);
    command.args(arguments);
    let finished = Process::start("streams", command, None).finish(SILENCE).expect_success(arguments[0]);
    assert_eq!(finished.stdout.trim_end(), last, "{}", finished.stderr);
}
