//! Three brokers: after each step of a script of Kafka's tools, stops and starts the tree is the one that three Apache
//! Kafka 3.9.2 leave.

use std::collections::{BTreeMap, BTreeSet};

use protocol_tests::{Broker, Connection, Server, Tools, Znode, ZooKeeper, has_java, wait_for};
use serde_json::{Value, json};
use wire::find_coordinator_request::FindCoordinatorRequest;

use super::differences;

type Tree = BTreeMap<String, Znode>;

const SETTINGS: &[(&str, &str)] = &[
    ("zookeeper.connection.timeout.ms", "60000"),
    ("controlled.shutdown.retry.backoff.ms", "200"),
    ("offsets.topic.num.partitions", "3"),
    ("offsets.topic.replication.factor", "3"),
    ("transaction.state.log.num.partitions", "3"),
    ("transaction.state.log.replication.factor", "3"),
    ("transaction.state.log.min.isr", "2"),
    ("log.cleaner.dedupe.buffer.size", "4194304"),
    // Leaders and ISRs change when the script says so, however busy the machine is.
    ("auto.leader.rebalance.enable", "false"),
    ("replica.lag.time.max.ms", "120000"),
];

/// Topics for whose replicas the controller draws where to begin.
const DRAWN: &[&str] = &["__consumer_offsets", "__transaction_state", "drawn"];

type Step = (&'static str, fn(&mut Three, &mut Tools));

const STEPS: &[Step] = &[
    ("topics", create_topics),
    ("configurations", change_configs),
    ("a reassignment", reassign),
    ("a broker stops", |three, _| three.broker(2).stop()),
    ("it is back", |three, _| three.broker(2).start_again()),
    ("preferred leaders", elect_preferred_leaders),
    ("the controller stops", |three, _| three.broker(1).stop()),
    ("it is back, too", |three, _| three.broker(1).start_again()),
    ("preferred leaders again", elect_preferred_leaders),
    ("internal topics", create_internal_topics),
];

#[test]
fn the_tree_of_three_brokers_is_kafkas_at_every_step() {
    if !has_java() {
        return;
    }
    let mut tools = Tools::of("3.9.2");
    let theirs = play(Server::named("kafka-3.9.2"), &mut tools);
    let ours = play(Server::Barnabas, &mut tools);
    let mut differing = Vec::new();
    for (((step, _), theirs), ours) in STEPS.iter().zip(theirs).zip(ours) {
        assert!(ours.len() > 50, "{} nodes are not the whole tree", ours.len());
        let found = differences(without_chance(theirs), without_chance(ours));
        differing.extend(found.into_iter().map(|text| format!("{step}: {text}")));
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// The tree after each step.
#[track_caller]
fn play(server: Server, tools: &mut Tools) -> Vec<Tree> {
    let mut three = Three::start(server);
    let mut play_step = |(name, play): &Step| {
        play(&mut three, tools);
        three.settled_tree(name)
    };
    let trees = STEPS.iter().map(|step| play_step(step)).collect();
    // A stop in good order would add nothing but time.
    three.brokers.iter_mut().for_each(Broker::kill);
    trees
}

/// Brokers 1, 2 and 3, the first of which was the first controller.
struct Three {
    /// Stopped before their ZooKeeper.
    brokers: Vec<Broker>,
    zookeeper: ZooKeeper,
}

impl Three {
    #[track_caller]
    fn start(server: Server) -> Three {
        let zookeeper = ZooKeeper::start(&[]);
        let mut three = Three { brokers: Vec::new(), zookeeper };
        for (id, rack) in (1..).zip(["r1", "r2", "r1"]) {
            let settings = [SETTINGS, &[("broker.rack", rack)]].concat();
            let mut broker =
                Broker::prepare_to_join(server.clone(), id, &three.zookeeper.address(), &settings);
            broker.set_variable("KAFKA_HEAP", "256m");
            broker.set_variable("KAFKA_JVM_OPTS", "-XX:TieredStopAtLevel=1 -XX:-UsePerfData");
            broker.start_again();
            three.brokers.push(broker);
            let mut connection = Connection::open(&three.brokers[0].address());
            wait_for("the broker, and the first as the controller", || {
                let metadata = connection.metadata(None);
                (metadata.brokers.len() == three.brokers.len() && metadata.controller_id == 1).then_some(())
            });
        }
        three
    }

    fn broker(&mut self, id: usize) -> &mut Broker {
        &mut self.brokers[id - 1]
    }

    fn running(&self) -> BTreeSet<i64> {
        (1..).zip(&self.brokers).filter(|(_, broker)| broker.is_running()).map(|(id, _)| id).collect()
    }

    /// Of a broker that runs.
    fn bootstrap(&self) -> String {
        self.brokers.iter().find(|broker| broker.is_running()).expect("a broker runs").address()
    }

    /// The tree once nothing is left to be done.
    #[track_caller]
    fn settled_tree(&self, step: &str) -> Tree {
        wait_for(&format!("the tree to settle: {step}"), || {
            let tree = self.zookeeper.dump("");
            is_settled(&tree, &self.running()).then_some(tree)
        })
    }

    /// Runs a tool against a broker that runs.
    #[track_caller]
    fn run(&self, tools: &mut Tools, name: &str, arguments: &str) -> String {
        let bootstrap = self.bootstrap();
        let words = ["--bootstrap-server", &*bootstrap].into_iter().chain(arguments.split(' '));
        tools.run(name, &words.collect::<Vec<_>>())
    }
}

/// These brokers are registered, one of them controls, every partition is led by one of them and has all of them in
/// sync that are its replicas, and no topic is being deleted or moved.
fn is_settled(tree: &Tree, running: &BTreeSet<i64>) -> bool {
    let registered: BTreeSet<i64> =
        children(tree, "/brokers/ids/").filter_map(|id| id.parse().ok()).collect();
    let controller = tree.get("/controller").and_then(|node| parsed(node)["brokerid"].as_i64());
    let is_pending = children(tree, "/admin/delete_topics/").next().is_some()
        || tree.contains_key("/admin/reassign_partitions")
        || tree.contains_key("/admin/preferred_replica_election");
    registered == *running
        && controller.is_some_and(|id| running.contains(&id))
        && !is_pending
        && topics(tree).all(|(topic, node)| is_topic_settled(tree, &topic, &node, running))
}

fn is_topic_settled(tree: &Tree, topic: &str, node: &Value, running: &BTreeSet<i64>) -> bool {
    let is_empty = |key: &str| node[key].as_object().is_none_or(|moving| moving.is_empty());
    is_empty("adding_replicas")
        && is_empty("removing_replicas")
        && replicas(node).all(|(partition, replicas)| {
            let Some(state) = tree.get(&state_path(topic, &partition)).map(parsed) else { return false };
            let live: BTreeSet<i64> = replicas.into_iter().filter(|id| running.contains(id)).collect();
            let isr: BTreeSet<i64> = ids(&state["isr"]).into_iter().collect();
            match state["leader"].as_i64() {
                Some(-1) => live.is_empty(),
                Some(leader) => live.contains(&leader) && live == isr,
                None => false,
            }
        })
}

/// Left out: where replicas begin that are placed by drawing, which of two brokers follows the first controller, and
/// the order of changes that several brokers note at the same time.
fn without_chance(mut tree: Tree) -> Tree {
    for topic in DRAWN {
        let path = format!("/brokers/topics/{topic}");
        let Some(mut node) = tree.get(&path).map(parsed) else { continue };
        for (partition, replicas) in replicas(&node).collect::<Vec<_>>() {
            let place = |id: &i64| replicas.iter().position(|replica| replica == id);
            change(&mut tree, &state_path(topic, &partition), |state| {
                state["isr"] = json!(ids(&state["isr"]).iter().map(place).collect::<Vec<_>>());
                state["leader"] = json!(state["leader"].as_i64().and_then(|leader| place(&leader)));
            });
        }
        let sorted = |mut ids: Vec<i64>| {
            ids.sort_unstable();
            ids
        };
        let firsts = sorted(replicas(&node).filter_map(|(_, replicas)| replicas.first().copied()).collect());
        let lists = replicas(&node).map(|(_, replicas)| sorted(replicas)).collect::<Vec<_>>();
        node["partitions"] = json!([firsts, lists]);
        change(&mut tree, &path, |old| *old = node);
    }
    change(&mut tree, "/controller", |node| {
        if node["brokerid"] != 1 {
            node["brokerid"] = Value::Null;
        }
    });
    let is_note = |path: &String| path.starts_with("/config/changes/");
    let mut noted: Vec<String> =
        tree.iter().filter(|(path, _)| is_note(path)).map(|(_, node)| node.data.clone()).collect();
    noted.sort_unstable();
    let notes = tree.iter_mut().filter(|(path, _)| is_note(path)).map(|(_, node)| node);
    notes.zip(noted).for_each(|(node, data)| node.data = data);
    tree
}

fn change(tree: &mut Tree, path: &str, change: impl FnOnce(&mut Value)) {
    if let Some(node) = tree.get_mut(path) {
        let mut value = parsed(node);
        change(&mut value);
        node.data = value.to_string();
    }
}

#[track_caller]
fn parsed(node: &Znode) -> Value {
    serde_json::from_str(&node.data).unwrap_or_else(|error| panic!("{:?}: {error}", node.data))
}

fn children<'a>(tree: &'a Tree, parent: &'a str) -> impl Iterator<Item = &'a str> {
    tree.keys().filter_map(move |path| path.strip_prefix(parent)).filter(|name| !name.contains('/'))
}

fn topics(tree: &Tree) -> impl Iterator<Item = (String, Value)> {
    let node = |name: &str| (name.to_owned(), parsed(&tree[&format!("/brokers/topics/{name}")]));
    children(tree, "/brokers/topics/").map(node)
}

/// Of a topic's node, by partition.
fn replicas(node: &Value) -> impl Iterator<Item = (String, Vec<i64>)> {
    let partitions = node["partitions"].as_object().into_iter().flatten();
    partitions.map(|(partition, replicas)| (partition.clone(), ids(replicas)))
}

fn ids(list: &Value) -> Vec<i64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_i64).collect()
}

fn state_path(topic: &str, partition: &str) -> String {
    format!("/brokers/topics/{topic}/partitions/{partition}/state")
}

/// Placed by hand and by drawing; grown by hand and by the rule, which goes on from where the first replica is.
fn create_topics(three: &mut Three, tools: &mut Tools) {
    for arguments in [
        "--create --topic orders --replica-assignment 2:3:1,3:1:2 --config retention.ms=-1",
        "--create --topic moved --replica-assignment 1:2",
        "--create --topic turned --replica-assignment 2:1",
        "--create --topic alone --replica-assignment 2",
        "--create --topic gone --partitions 3 --replication-factor 3 --config cleanup.policy=compact",
        "--alter --topic orders --partitions 5",
        "--alter --topic moved --partitions 2 --replica-assignment 1:2,3:2",
        "--delete --topic gone",
    ] {
        three.run(tools, "kafka-topics", arguments);
    }
}

fn change_configs(three: &mut Three, tools: &mut Tools) {
    for arguments in [
        "--entity-type topics --entity-name orders --add-config min.insync.replicas=2,segment.bytes=1000000",
        "--entity-type topics --entity-name orders --delete-config retention.ms",
        "--entity-type brokers --entity-default --add-config message.max.bytes=2000000",
        "--entity-type brokers --entity-name 2 --add-config max.connections=500,log.cleaner.threads=2",
        "--entity-type brokers --entity-name 2 --delete-config max.connections",
    ] {
        three.run(tools, "kafka-configs", &format!("--alter {arguments}"));
    }
}

/// A follower moves, and a leader: one replica of a partition, so that no race decides the order of an ISR, and one
/// partition of a topic, as Barnabas writes all that begin to move to the topic's node together. A third partition gets
/// another preferred leader.
fn reassign(three: &mut Three, tools: &mut Tools) {
    let partitions = json!([
        {"topic": "moved", "partition": 0, "replicas": [1, 3]},
        {"topic": "turned", "partition": 0, "replicas": [3, 1]},
        {"topic": "orders", "partition": 0, "replicas": [1, 3, 2]},
    ]);
    let plan = tools.dir().join("plan.json");
    let text = json!({"version": 1, "partitions": partitions}).to_string();
    std::fs::write(&plan, text).expect("write the plan");
    let plan = format!("--reassignment-json-file {}", plan.display());
    three.run(tools, "kafka-reassign-partitions", &format!("{plan} --execute --throttle 5000000"));
    wait_for("the end of the reassignment", || {
        let verified = three.run(tools, "kafka-reassign-partitions", &format!("{plan} --verify"));
        verified.contains("Clearing topic-level throttles").then_some(())
    });
}

fn elect_preferred_leaders(three: &mut Three, tools: &mut Tools) {
    three.run(tools, "kafka-leader-election", "--election-type preferred --all-topic-partitions");
}

/// What a first group, a first transaction and a first producer id make, beside a topic placed by drawing; and a topic
/// that has a history goes.
fn create_internal_topics(three: &mut Three, tools: &mut Tools) {
    three.run(tools, "kafka-topics", "--create --topic drawn --partitions 3 --replication-factor 3");
    three.run(tools, "kafka-topics", "--delete --topic orders");
    let mut connection = Connection::open(&three.broker(1).address());
    for key_type in 0..=1 {
        let request = FindCoordinatorRequest { key: "key".into(), key_type, ..Default::default() };
        wait_for("a coordinator", || (connection.call(3, &request).error_code == 0).then_some(()));
    }
    connection.take_producer_id();
}
