//! What is built on Kafka and runs on Barnabas unchanged: Kafka Streams, Connect, the two MirrorMakers.

mod connect;
mod http;
mod mirror_maker;
mod mirrors;
mod streams;

use std::process::Command;
use std::time::Duration;

use protocol_tests::client::{java_program, left_out};
use protocol_tests::{Process, command_exists};

/// No step of these programs is quiet for longer unless it hangs.
pub const SILENCE: Duration = Duration::from_secs(240);

/// The topic of transactions on a single broker.
pub const ONE_TRANSACTION_LOG: [(&str, &str); 2] =
    [("transaction.state.log.replication.factor", "1"), ("transaction.state.log.min.isr", "1")];

/// `false` and a line in the run's output where this machine cannot run Java programs.
pub fn can_run(what: &str) -> bool {
    for tool in ["javac", "mvn"] {
        if !command_exists(tool) {
            left_out(what, &format!("this machine has no {tool}"));
            return false;
        }
    }
    true
}

/// Starts a class of Kafka's own jars.
#[track_caller]
pub fn start_java(version: &str, main_class: &str, arguments: &[&str]) -> Process {
    let mut command = java(version, main_class, None);
    command.args(arguments);
    Process::start(main_class, command, None)
}

#[track_caller]
pub fn java(version: &str, main_class: &str, source: Option<&str>) -> Command {
    java_program(version, main_class, source).unwrap_or_else(|error| panic!("{error}"))
}
