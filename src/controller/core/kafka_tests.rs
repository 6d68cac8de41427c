//! What the core writes, step by step, beside what a controller of Apache Kafka 3.9.2 wrote to ZooKeeper in the same
//! course of events: `protocol-tests/peers/data/zk-cluster-3.9.2.txt`.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::scripts_tests::execute;
use super::world::World;
use crate::coordination::{NodeData, Stat, znodes};
use crate::model::*;

/// A step of `zk-cluster.sh`, as the controller sees it.
const STEPS: &[(&str, &[&str])] = &[
    (
        "three brokers, five topics",
        &["elected 1 2 3", "create a 1,2,3", "create b 2,1 3,2", "create c 1", "create d 2,3", "create e 3"],
    ),
    ("3 is killed", &["brokers 1 2"]),
    ("3 is back", &["brokers 1 2 3", "isr a-0 1,2,3", "isr b-1 2,3", "isr d-0 2,3"]),
    ("preferred leaders", &["znode-preferred a-0 b-0 b-1 c-0 d-0 e-0"]),
    ("b-0 moves from 2,1 to 3,2", &["reassign b-0=3,2", "isr b-0 2,1,3", "stopped 1 b-0"]),
    (
        "c-0 moves, a-0 shrinks, d-0 turns round",
        &[
            "reassign c-0=2",
            "isr c-0 1,2",
            "stopped 1 c-0",
            "reassign a-0=3,1",
            "stopped 2 a-0",
            "reassign d-0=3,2",
        ],
    ),
    ("e-0 moves through the tree", &["znode-reassign e-0=1", "isr e-0 3,1", "stopped 3 e-0"]),
    ("an election through the tree", &["znode-preferred d-0"]),
    ("2 is stopped", &["shutdown 2", "brokers 1 3"]),
    ("a grows", &["write a 3,1 1,3 3,1"]),
    ("b is deleted while 2 is away, e at once", &["delete b e", "stopped 1 e-0", "stopped 3 b-0 b-1"]),
    ("2 is back", &["brokers 1 2 3", "stopped 2 b-0 b-1", "isr d-0 3,2"]),
    ("1, the controller, is killed", &["elected 2 3"]),
];

/// Where Kafka writes once more than is needed: it takes what it deletes out of ISRs, and a new controller first takes
/// dead leaders away and then elects others.
const LESS_WRITTEN: &[(&str, &str)] = &[
    ("b is deleted while 2 is away, e at once", "b-0"),
    ("b is deleted while 2 is away, e at once", "b-1"),
    ("1, the controller, is killed", "a-0"),
    ("1, the controller, is killed", "a-1"),
];

type Tree = BTreeMap<String, String>;

#[test]
fn each_step_of_a_clusters_life_is_written_as_kafka_writes_it() {
    let text = include_str!("../../../protocol-tests/peers/data/zk-cluster-3.9.2.txt");
    let kafka = recorded(text);
    assert_eq!(kafka.len(), STEPS.len());
    let mut world = World::new(&[]);
    world.controller_epoch = ControllerEpoch(0);
    for (step, commands) in STEPS {
        for command in *commands {
            execute(&mut world, command);
        }
        let (mut expected, mut found) = (kafka[*step].clone(), written(&world));
        for (_, partition) in LESS_WRITTEN.iter().filter(|(at, _)| at == step) {
            let (theirs, ours) = (expected.remove(*partition), found.remove(*partition));
            assert!(theirs.is_some() && ours.is_some() && theirs != ours, "{step}: {partition}: {ours:?}");
        }
        assert_eq!(found, expected, "{step}");
    }
}

/// By step: what topics and partitions are, as text.
fn recorded(text: &str) -> BTreeMap<&str, Tree> {
    let mut steps: BTreeMap<&str, Tree> = BTreeMap::new();
    let mut step = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(title) = line.strip_prefix("== ") {
            step = title;
            steps.entry(step).or_default();
            continue;
        }
        let [path, _, version, data] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let stat = Stat { version: version.parse().unwrap(), ..Stat::default() };
        let node = NodeData { data: Some(Bytes::copy_from_slice(data.as_bytes())), stat };
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let (name, shown) = match parts[..] {
            ["brokers", "topics", topic] => {
                let decoded = znodes::TopicAssignment::decode(&node).unwrap();
                (topic.to_owned(), format!("{:?}", decoded.partitions))
            }
            ["brokers", "topics", topic, "partitions", partition, "state"] => {
                let state = znodes::PartitionState::decode(&node).unwrap();
                (format!("{topic}-{partition}"), format!("version {} {state:?}", node.stat.version))
            }
            ["admin", "delete_topics", topic] => (format!("deleted {topic}"), String::new()),
            _ => continue,
        };
        steps.entry(step).or_default().insert(name, shown);
    }
    steps
}

fn written(world: &World) -> Tree {
    let mut tree = Tree::new();
    for (name, topic) in &world.topics {
        tree.insert(name.to_string(), format!("{:?}", topic.partitions));
    }
    for (of, leadership) in &world.states {
        let state = &leadership.leader_and_isr;
        let node = znodes::PartitionState {
            leader: state.leader,
            leader_epoch: state.leader_epoch,
            isr: state.isr.clone(),
            controller_epoch: leadership.controller_epoch,
            is_recovering: leadership.is_recovering,
        };
        tree.insert(of.to_string(), format!("version {} {node:?}", state.partition_epoch));
    }
    tree.extend(world.marked.iter().map(|topic| (format!("deleted {topic}"), String::new())));
    tree
}
