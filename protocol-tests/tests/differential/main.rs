//! One script of requests, good and bad, to Barnabas and to real Kafka: 3.9.2 on ZooKeeper, which is the model, and
//! 4.3.1 for what is newer. The answers are compared field by field.

mod allowed;
mod fields;
mod script;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use allowed::ALLOWED;
use fields::Field;
use protocol_tests::client::left_out;
use protocol_tests::{Broker, Server, build_dir, command_exists};
use session::{NO_ANSWER, Session, Transcript};

/// Group joins that answer at once, records that stay whatever their time, an internal topic that is quickly made.
const SETTINGS: &[(&str, &str)] = &[
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "4"),
    ("log.retention.ms", "-1"),
    ("num.partitions", "2"),
];

#[test]
fn barnabas_answers_as_kafka_does() {
    for needed in ["java", "mvn"] {
        if !command_exists(needed) {
            return left_out("the comparison with real Kafka", &format!("this machine has no {needed}"));
        }
    }
    // With a real Kafka in the environment this shows how that one differs from the model.
    let servers = [Server::from_environment(), Server::named("kafka-3.9.2"), Server::named("kafka-4.3.1")];
    let [barnabas, kafka_3, kafka_4] = servers.map(|server| thread::spawn(move || transcript(server)));
    let model = thread_result(kafka_3);
    let newer = thread_result(kafka_4);
    let differences = differences(&thread_result(barnabas), &model, &newer);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[track_caller]
fn thread_result(thread: thread::JoinHandle<Transcript>) -> Transcript {
    thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
}

fn transcript(server: Server) -> Transcript {
    let broker = Broker::start_as(server, SETTINGS);
    let mut session = Session::new(&broker.address());
    script::prepare(&mut session);
    for case in script::cases() {
        session.run(&case);
    }
    let transcript = session.into_transcript();
    write_transcript(broker.server(), &transcript);
    transcript
}

/// Leaves the whole transcript in the build folder: the quickest way to see what a difference is about.
fn write_transcript(server: &Server, transcript: &Transcript) {
    let mut text = String::new();
    for (label, fields) in transcript {
        for (path, value) in fields {
            text.push_str(&format!("{label}: {path}: {value}\n"));
        }
    }
    let file = build_dir().join(format!("differential-{server}.txt"));
    std::fs::write(&file, text).unwrap_or_else(|error| panic!("write {}: {error}", file.display()));
}

/// What Barnabas answers otherwise than 3.9.2, or than 4.3.1 where 3.9.2 does not know the version.
fn differences(barnabas: &Transcript, model: &Transcript, newer: &Transcript) -> Vec<String> {
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    let labels: BTreeSet<&String> = model.keys().chain(newer.keys()).collect();
    for label in labels {
        let answered = |fields: &&Vec<Field>| fields.iter().all(|(_, value)| value != NO_ANSWER);
        let (model, newer) = (model.get(label).filter(answered), newer.get(label).filter(answered));
        let (server, kafka) = match (model, newer) {
            (Some(fields), _) => ("3.9.2", fields),
            (None, Some(fields)) => ("4.3.1", fields),
            (None, None) => continue,
        };
        let Some(ours) = barnabas.get(label) else {
            found.push(format!("{label}: not answered"));
            continue;
        };
        for (path, ours, theirs) in unequal(ours, kafka) {
            match ALLOWED.iter().position(|allowed| allowed.covers(label, &path)) {
                Some(index) => drop(used.insert(index)),
                None => found.push(format!("{label}: {path}: {ours}, {server} has {theirs}")),
            }
        }
    }
    for (index, allowed) in ALLOWED.iter().enumerate() {
        if !used.contains(&index) {
            found.push(format!(
                "allowed, but there is no such difference: {} {} {}: {}",
                allowed.api, allowed.question, allowed.field, allowed.reason
            ));
        }
    }
    found
}

/// Fields that differ, with both values; `-` for one that is missing.
fn unequal(ours: &[Field], theirs: &[Field]) -> Vec<(String, String, String)> {
    let ours: BTreeMap<&String, &String> = ours.iter().map(|(path, value)| (path, value)).collect();
    let theirs: BTreeMap<&String, &String> = theirs.iter().map(|(path, value)| (path, value)).collect();
    let paths: BTreeSet<&&String> = ours.keys().chain(theirs.keys()).collect();
    let text = |fields: &BTreeMap<&String, &String>, path: &String| {
        fields.get(path).map_or_else(|| "-".to_owned(), |value| (*value).clone())
    };
    let both = |path: &&&String| ((**path).clone(), text(&ours, path), text(&theirs, path));
    paths.iter().map(both).filter(|(_, ours, theirs)| ours != theirs).collect()
}
