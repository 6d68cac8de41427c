//! Histories as text: `testdata/*.txt` hold commands and, after each, what the core made of it.
//!
//! To write the expectations anew: `UPDATE_SCRIPTS=1 cargo test scripts`, then read the difference.

use std::fmt::Write;
use std::path::PathBuf;

use super::world::*;
use super::*;
use crate::coordination::znodes::PartitionReassignment;
use crate::metadata::control::{ControlOutcome, IsrMember};
use crate::model::*;

#[test]
fn scripts_run_as_written() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/controller/core/testdata");
    let mut scripts: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    for path in scripts {
        let script = std::fs::read_to_string(&path).unwrap();
        let found = run(&script);
        if std::env::var_os("UPDATE_SCRIPTS").is_some() {
            std::fs::write(&path, found).unwrap();
        } else {
            assert_eq!(found, script, "{}", path.display());
        }
    }
}

/// Commands stand as `> command`, comments as `# comment`; all else is what came of the command before.
fn run(script: &str) -> String {
    let mut world = World::new(&[]);
    let mut text = String::new();
    for line in script.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            if !text.is_empty() && !text.ends_with("\n\n") && !text.ends_with("> ") {
                let is_after_comment = text.lines().last().is_some_and(|line| line.starts_with('#'));
                text.push_str(if is_after_comment { "" } else { "\n" });
            }
            writeln!(text, "> {command}").unwrap();
            world.lines.clear();
            execute(&mut world, command);
            for line in world.lines.drain(..) {
                writeln!(text, "{line}").unwrap();
            }
        } else if line.starts_with('#') {
            let is_first = text.is_empty() || text.lines().last().is_some_and(|line| line.starts_with('#'));
            text.push_str(if is_first { "" } else { "\n" });
            writeln!(text, "{line}").unwrap();
        }
    }
    text
}

pub fn execute(world: &mut World, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (verb, rest) = (words[0], &words[1..]);
    match verb {
        "elected" => world.elect(rest.iter().map(|word| registered(word)).collect()),
        "brokers" => world.run(Event::BrokersChanged(rest.iter().map(|word| registered(word)).collect())),
        "create" => world.create(vec![assigned(rest)]),
        "write" => {
            let topic = assigned(rest);
            world.topics.insert(topic.name.clone(), topic.clone());
            world.run(Event::TopicWritten(topic));
        }
        "delete" => world.delete(rest),
        "mute" => world.mute = rest.iter().map(|id| BrokerId(id.parse().unwrap())).collect(),
        "stopped" | "failed" | "led" => respond(world, verb, rest),
        "isr" => propose(world, rest),
        "states" => show_states(world),
        "shutdown" => {
            let broker_epoch = BrokerEpoch(rest.get(1).map_or(-1, |epoch| epoch.parse().unwrap()));
            let broker = BrokerId(rest[0].parse().unwrap());
            world.run(Event::ControlledShutdown { token: 1, broker, broker_epoch });
        }
        "reassign" => {
            let reassignments = rest.iter().map(|word| {
                let (of, target) = word.split_once('=').unwrap();
                let target = (target != "cancel").then(|| brokers_of(target));
                Reassignment { partition: partition_of(of), target, may_change_factor: true }
            });
            let reassignments = reassignments.collect();
            world.run(Event::ReassignmentRequested { token: 1, reassignments });
        }
        "znode-reassign" => {
            let written = rest.iter().map(|word| {
                let (of, target) = word.split_once('=').unwrap();
                PartitionReassignment { topic_partition: partition_of(of), replicas: brokers_of(target) }
            });
            world.run(Event::ReassignmentWritten(written.collect()));
        }
        "znode-preferred" => {
            let partitions = rest.iter().map(|of| partition_of(of)).collect();
            world.run(Event::PreferredElectionWritten(partitions));
        }
        "balance" => world.run(Event::LeadersUnbalanced),
        "unclean" => {
            world.unclean.insert(name(rest[0]));
            world.run(Event::UncleanElectionEnabled(name(rest[0])));
        }
        "log-dirs-failed" => {
            world.run(Event::LogDirsFailed(rest.iter().map(|id| BrokerId(id.parse().unwrap())).collect()));
        }
        // A leader writes its state itself and notifies.
        "leader-writes" => {
            let of = partition_of(rest[0]);
            let mut state = world.states[&of].clone();
            state.leader_and_isr.isr = brokers_of(rest[1]);
            state.leader_and_isr.partition_epoch += 1;
            world.states.insert(of.clone(), state.clone());
            world.run(Event::StatesWritten(vec![(of, state)]));
        }
        // The same without anyone hearing of it.
        "leader-writes-silently" => {
            let state = world.states.get_mut(&partition_of(rest[0])).unwrap();
            state.leader_and_isr.isr = brokers_of(rest[1]);
            state.leader_and_isr.partition_epoch += 1;
        }
        _ => panic!("unknown command {command}"),
    }
}

/// `2` or `2@7`: a broker and its epoch.
fn registered(word: &str) -> BrokerRegistration {
    let (id, epoch) = word.split_once('@').unwrap_or((word, "1"));
    broker(id.parse().unwrap(), epoch.parse().unwrap())
}

/// `orders 1,2 2,1`: a topic and the replicas of its partitions.
fn assigned(words: &[&str]) -> TopicAssignment {
    let partitions: Vec<Vec<i32>> =
        words[1..].iter().map(|replicas| numbers(&brokers_of(replicas))).collect();
    topic(words[0], &partitions.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn brokers_of(list: &str) -> Vec<BrokerId> {
    list.split(',').filter(|id| !id.is_empty()).map(|id| BrokerId(id.parse().unwrap())).collect()
}

/// `2`, or `2@7` where the leader knows the epoch of the broker.
fn member_of(text: &str) -> IsrMember {
    let (id, epoch) = text.split_once('@').map_or((text, None), |(id, epoch)| (id, Some(epoch)));
    let broker_epoch = epoch.map(|epoch| BrokerEpoch(epoch.parse().unwrap()));
    IsrMember { id: BrokerId(id.parse().unwrap()), broker_epoch }
}

fn partition_of(text: &str) -> TopicPartition {
    let (topic, index) = text.rsplit_once('-').unwrap();
    tp(topic, index.parse().unwrap())
}

/// `failed 2 a-0 a-1`: the broker's answer about these partitions.
fn respond(world: &mut World, verb: &str, words: &[&str]) {
    let outcome = if verb == "failed" { ControlOutcome::StorageError } else { ControlOutcome::Done };
    let outcomes: Vec<_> = words[1..].iter().map(|of| (partition_of(of), outcome)).collect();
    let response = match verb {
        "stopped" => ControlResponse::StopReplica(outcomes),
        _ => ControlResponse::LeaderAndIsr(outcomes),
    };
    world.responds(words[0].parse().unwrap(), response);
}

/// `isr a-0 1,2`: as the leader would ask. `key=value` words change what it says.
fn propose(world: &mut World, words: &[&str]) {
    let of = partition_of(words[0]);
    let known = world.core.cluster().partition(&of).and_then(|partition| partition.leadership.clone());
    let mut state = known.map_or(leadership(1, 0, &[1], 0), |known| known).leader_and_isr;
    let mut broker_epoch = BrokerEpoch(1);
    let mut is_recovering = false;
    for word in &words[2..] {
        let (key, value) = word.split_once('=').unwrap();
        let number: i32 = value.parse().unwrap();
        match key {
            "by" => state.leader = BrokerId(number),
            "epoch" => state.leader_epoch = LeaderEpoch(number),
            "version" => state.partition_epoch = number,
            "broker-epoch" => broker_epoch = BrokerEpoch(number.into()),
            "recovering" => is_recovering = number == 1,
            _ => panic!("unknown word {word}"),
        }
    }
    let wanted = WantedIsr {
        partition: of,
        leader_epoch: state.leader_epoch,
        partition_epoch: state.partition_epoch,
        isr: words[1].split(',').map(member_of).collect(),
        is_recovering,
    };
    let request = AlterPartition { broker: state.leader, broker_epoch, partitions: vec![wanted] };
    world.run(Event::AlterPartition { token: 1, request });
}

fn show_states(world: &mut World) {
    for (of, state) in &world.states {
        let assignment = world.topics.get(&of.topic).and_then(|topic| topic.partitions.get(&of.partition));
        let assignment = assignment.map(show_assignment).unwrap_or_default();
        world.lines.push(format!("{of} {assignment}: {}", show(state)));
    }
}
