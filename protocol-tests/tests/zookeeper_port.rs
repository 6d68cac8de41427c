//! The embedded store's ZooKeeper port: a single Barnabas takes ZooKeeper's place for Kafka's tools and consumers of
//! all ages, and for further brokers.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::Duration;

use protocol_tests::batch::Batch;
use protocol_tests::requests::values;
use protocol_tests::{
    Broker, Connection, Port, Process, Server, Znode, dump_tree, free_port, has_java, has_program,
    kafka_tool, wait_for, wait_within,
};

/// Old consumers wait long before they share partitions anew, and JVMs start slowly on a busy machine.
const SLOW: Duration = Duration::from_secs(180);

/// Tools of several versions.
fn has_tools() -> bool {
    has_java() && has_program("mvn")
}

/// A broker whose store others reach at the port.
fn start(settings: &[(&str, &str)]) -> (Broker, Port) {
    let port = free_port();
    let address = address_of(&port);
    let own = [
        ("barnabas.zookeeper.listener", &*address),
        ("barnabas.zookeeper.4lw.commands.whitelist", "*"),
        ("replica.lag.time.max.ms", "4000"),
    ];
    (Broker::start_as(Server::Barnabas, &[&own[..], settings].concat()), port)
}

fn address_of(port: &Port) -> String {
    format!("127.0.0.1:{}", port.number)
}

fn tool_command(version: &str, name: &str, arguments: &[&str]) -> Command {
    let mut command = kafka_tool(version, name);
    command.env("KAFKA_TOOL_TIER", "1").args(arguments);
    command
}

#[track_caller]
fn tool(version: &str, name: &str, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } =
        tool_command(version, name, arguments).output().expect("run peers/kafka-tool");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{version} {name} {arguments:?}: {status}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

#[track_caller]
fn file_for(broker: &Broker, name: &str, text: &str) -> String {
    let path = broker.dir().join(name);
    std::fs::write(&path, text).expect("write a file for a tool");
    path.display().to_string()
}

fn word(address: &str, word: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connect to the port");
    stream.write_all(word.as_bytes()).expect("send a word");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("read the answer");
    text
}

#[test]
fn the_shell_of_zookeeper_shows_kafkas_nodes() {
    if !has_tools() {
        return;
    }
    let (broker, port) = start(&[]);
    let address = address_of(&port);
    Connection::open(&broker.address()).create_topic("seen", 2, &[]);
    let shell = |command: &[&str]| tool("3.9.2", "zookeeper-shell", &[&[&*address], command].concat());
    #[track_caller]
    fn check(said: String, expected: &[&str]) {
        for text in expected {
            assert!(said.contains(text), "{text} is not in: {said}");
        }
    }
    check(
        shell(&["ls", "/"]),
        &["admin", "brokers", "cluster", "config", "consumers", "controller", "feature", "zookeeper"],
    );
    check(
        shell(&["get", "-s", "/brokers/ids/1"]),
        &["\"version\":5", "ephemeralOwner = 0x", "dataVersion = 1"],
    );
    check(shell(&["ls", "-R", "/brokers/topics/seen"]), &["/brokers/topics/seen/partitions/1/state"]);
    check(shell(&["create", "/mine", "text"]), &["Created /mine"]);
    check(shell(&["get", "/mine"]), &["text"]);
    check(shell(&["set", "-v", "0", "/mine", "other"]), &[]);
    check(shell(&["stat", "/mine"]), &["dataVersion = 1", "dataLength = 5", "numChildren = 0"]);
    check(shell(&["getAcl", "/mine"]), &["'world,'anyone", ": cdrwa"]);
    check(shell(&["create", "-s", "/mine/n-"]), &["Created /mine/n-0000000000"]);
    check(shell(&["deleteall", "/mine"]), &[]);
    assert!(!shell(&["ls", "/"]).contains("mine"));
    assert_eq!(word(&address, "ruok"), "imok");
    check(word(&address, "srvr"), &["Mode: standalone", "Zookeeper version: 3.8.4-barnabas-"]);
}

#[test]
fn old_tools_work_through_the_port() {
    if !has_tools() {
        return;
    }
    let (broker, port) = start(&[]);
    let address = address_of(&port);
    let run = |name: &str, arguments: &[&str]| {
        tool("2.8.2", name, &[&["--zookeeper", &*address], arguments].concat())
    };
    run("kafka-topics", &["--create", "--topic", "old", "--partitions", "2", "--replication-factor", "1"]);
    let mut connection = Connection::open(&broker.address());
    connection.wait_for_leaders("old", 2);
    run("kafka-topics", &["--alter", "--topic", "old", "--partitions", "3"]);
    connection.wait_for_leaders("old", 3);
    let described = run("kafka-topics", &["--describe", "--topic", "old"]);
    assert!(described.contains("Partition: 2\tLeader: 1\tReplicas: 1\tIsr: 1"), "{described}");
    let topic = ["--entity-type", "topics", "--entity-name", "old"];
    run("kafka-configs", &[&["--alter", "--add-config", "retention.ms=86400001"], &topic[..]].concat());
    let described = run("kafka-configs", &[&["--describe"], &topic[..]].concat());
    assert!(described.contains("retention.ms=86400001"), "{described}");
    let plan = r#"{"version":1,"partitions":[{"topic":"old","partition":0,"replicas":[1]}]}"#;
    let plan = file_for(&broker, "plan.json", plan);
    run("kafka-reassign-partitions", &["--reassignment-json-file", &plan, "--execute"]);
    wait_within(SLOW, "the end of the reassignment", || {
        let said = run("kafka-reassign-partitions", &["--reassignment-json-file", &plan, "--verify"]);
        said.contains("is complete").then_some(())
    });
    let elected = tool("0.11.0.3", "kafka-preferred-replica-election", &["--zookeeper", &address]);
    assert!(elected.contains("old"), "{elected}");
    wait_for("the end of the election", || {
        (!dump_tree(&address).contains_key("/admin/preferred_replica_election")).then_some(())
    });
    run("kafka-topics", &["--delete", "--topic", "old"]);
    wait_for("the end of the topic", || {
        (!dump_tree(&address).contains_key("/brokers/topics/old")).then_some(())
    });
}

#[test]
fn consumers_of_0_8_2_2_keep_their_offsets_in_zookeeper() {
    old_consumers("0.8.2.2");
}

#[test]
fn consumers_of_0_9_0_1_keep_their_offsets_in_zookeeper() {
    old_consumers("0.9.0.1");
}

#[test]
fn consumers_of_0_10_2_2_keep_their_offsets_in_zookeeper() {
    old_consumers("0.10.2.2");
}

/// A console consumer of the old kind, with all that it has printed.
struct OldConsumer {
    process: Process,
    read: Vec<String>,
}

impl OldConsumer {
    /// `more`: for the first of a group `--from-beginning`, which others may not say.
    fn start(version: &str, zookeeper: &str, config: &str, more: &[&str]) -> OldConsumer {
        let arguments = ["--zookeeper", zookeeper, "--topic", "t", "--consumer.config", config];
        let command = tool_command(version, "kafka-console-consumer", &[&arguments[..], more].concat());
        OldConsumer { process: Process::start("an old consumer", command, None), read: Vec::new() }
    }

    #[track_caller]
    fn has_read(&mut self, records: &[String]) -> bool {
        self.look();
        records.iter().all(|record| self.read.contains(record))
    }

    #[track_caller]
    fn has_read_any(&mut self, records: &[String]) -> bool {
        self.look();
        records.iter().any(|record| self.read.contains(record))
    }

    #[track_caller]
    fn look(&mut self) {
        assert!(self.process.is_running(), "the consumer has ended\n{}", self.process.stderr_text());
        self.read.extend(self.process.printed());
    }

    fn stop(mut self) -> Vec<String> {
        self.process.terminate();
        assert!(self.process.wait(SLOW).is_some(), "the consumer still runs");
        self.read.extend(self.process.printed());
        self.read
    }
}

/// Writes one record to each of the two partitions.
fn append(connection: &mut Connection, round: usize) -> Vec<String> {
    for partition in 0..2 {
        connection.append(
            "t",
            partition,
            &Batch::of(&format!("r{round}-p{partition}"), 1, 1_500_000_000_000),
        );
    }
    (0..2).map(|partition| format!("r{round}-p{partition}-0")).collect()
}

fn old_config(broker: &Broker) -> String {
    let text = "group.id=old\nauto.offset.reset=smallest\nauto.commit.interval.ms=200\n\
                zookeeper.session.timeout.ms=6000\nzookeeper.connection.timeout.ms=60000\n\
                rebalance.backoff.ms=1000\nrebalance.max.retries=20\n";
    file_for(broker, "consumer.properties", text)
}

/// One reads all, a second one takes a partition over, the first one goes, and the broker restarts in between.
#[track_caller]
fn old_consumers(version: &str) {
    if !has_tools() {
        return;
    }
    let (mut broker, port) = start(&[]);
    let address = address_of(&port);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 2, &[]);
    connection.wait_for_leaders("t", 2);
    let config = old_config(&broker);
    let mut round = 0;
    let mut all = BTreeSet::new();
    let mut write = |connection: &mut Connection| {
        round += 1;
        let records = append(connection, round);
        all.extend(records.iter().cloned());
        records
    };
    let mut first = OldConsumer::start(version, &address, &config, &["--from-beginning"]);
    let records = write(&mut connection);
    wait_within(SLOW, "the first consumer", || first.has_read(&records).then_some(()));
    let mut second = OldConsumer::start(version, &address, &config, &[]);
    wait_within(SLOW, "both consumers", || {
        let records = write(&mut connection);
        wait_some(|| second.has_read_any(&records)).then_some(())
    });
    // The first may still be on its way to what the second has left it.
    wait_within(SLOW, "an owner of each partition", || {
        let owners = owners(&dump_tree(&address));
        (owners.len() == 2 && owners[0] != owners[1]).then_some(())
    });
    // The sessions and their nodes outlive a restart of the broker that holds them.
    broker.restart();
    let mut connection = Connection::open(&broker.address());
    connection.wait_for_leaders("t", 2);
    let records = write(&mut connection);
    wait_within(SLOW, "both consumers after the restart", || {
        (first.has_read_any(&records) && second.has_read_any(&records)).then_some(())
    });
    let mut read = first.stop();
    wait_within(SLOW, "the second consumer alone", || {
        let records = write(&mut connection);
        wait_some(|| second.has_read(&records)).then_some(())
    });
    read.extend(second.stop());
    let read: BTreeSet<String> = read.into_iter().filter(|line| line.starts_with('r')).collect();
    assert_eq!(read, all, "{version}");
    let tree = dump_tree(&address);
    let offset = |partition: i32| tree[&format!("/consumers/old/offsets/t/{partition}")].data.parse().ok();
    let ends = [0, 1].map(|partition| connection.log_end("t", partition));
    assert_eq!([offset(0), offset(1)], ends.map(Some));
    assert_eq!(self::owners(&tree), [""; 0]);
}

/// Gives what was written a moment to be read.
fn wait_some(mut is_so: impl FnMut() -> bool) -> bool {
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        if is_so() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Who has the partitions of the topic.
fn owners(tree: &std::collections::BTreeMap<String, Znode>) -> Vec<String> {
    let owners = tree.iter().filter(|(path, _)| path.starts_with("/consumers/old/owners/t/"));
    owners.map(|(_, node)| node.data.clone()).collect()
}

#[test]
fn the_mirror_maker_of_0_8_2_2_works_through_the_port() {
    mirror("0.8.2.2");
}

#[test]
fn the_mirror_maker_of_0_10_2_2_works_through_the_port() {
    mirror("0.10.2.2");
}

/// MirrorMaker with a consumer that keeps its offsets in ZooKeeper, from one Barnabas to another, both of which
/// restart.
#[track_caller]
fn mirror(version: &str) {
    if !has_tools() {
        return;
    }
    let (mut source, port) = start(&[]);
    let mut target = Broker::start_as(Server::Barnabas, &[]);
    let consumer = old_config(&source);
    let consumer = {
        let text = std::fs::read_to_string(&consumer).expect("read the file back");
        file_for(&source, "mirror.properties", &format!("{text}zookeeper.connect={}\n", address_of(&port)))
    };
    let producer = if version.starts_with("0.8") {
        // By default its producer asks for no answer, and loses without a word what it writes to a connection that the
        // target has closed; and it gives up after three tries.
        format!(
            "metadata.broker.list={}\nrequest.required.acks=-1\nmessage.send.max.retries=100\nretry.backoff.ms=200\n",
            target.address()
        )
    } else {
        format!("bootstrap.servers={}\n", target.address())
    };
    let producer = file_for(&source, "producer.properties", &producer);
    for broker in [&source, &target] {
        let mut connection = Connection::open(&broker.address());
        connection.create_topic("t", 2, &[]);
        connection.wait_for_leaders("t", 2);
    }
    let arguments = [
        "--consumer.config",
        &*consumer,
        "--producer.config",
        &producer,
        "--whitelist",
        "t",
        "--num.streams",
        "2",
    ];
    let command = tool_command(version, "kafka-mirror-maker", &arguments);
    let mut process = Process::start("MirrorMaker", command, None);
    let mut written = BTreeSet::new();
    for round in 0..3 {
        let mut connection = Connection::open(&source.address());
        connection.wait_for_leaders("t", 2);
        for number in 0..50 {
            written.extend(append(&mut connection, round * 100 + number));
        }
        let mut connection = Connection::open(&target.address());
        wait_within(SLOW, "the mirrored records", || {
            assert!(process.is_running(), "MirrorMaker has ended\n{}", process.stderr_text());
            (mirrored(&mut connection) == written).then_some(())
        });
        match round {
            0 => source.restart(),
            1 => target.restart(),
            _ => {}
        }
    }
    process.terminate();
    assert!(process.wait(SLOW).is_some(), "MirrorMaker still runs");
}

fn mirrored(connection: &mut Connection) -> BTreeSet<String> {
    (0..2).flat_map(|partition| values(&connection.fetch_all("t", partition, 0))).collect()
}

/// Brokers that take the first one's port for their ZooKeeper are a cluster, also with one of Apache Kafka among them,
/// and stay one while the first one restarts.
#[test]
fn further_brokers_take_the_port_for_their_zookeeper() {
    if !has_tools() {
        return;
    }
    let more = [("zookeeper.session.timeout.ms", "20000"), ("controlled.shutdown.retry.backoff.ms", "200")];
    let (mut first, port) = start(&more);
    let address = address_of(&port);
    let joining = |id: &str| {
        let own = [
            ("broker.id", id),
            ("zookeeper.connect", &*address),
            ("zookeeper.connection.timeout.ms", "60000"),
        ];
        let mut broker = Broker::start_as(Server::Barnabas, &[&own[..], &more[..]].concat());
        broker.allow_log("lost the connection to ZooKeeper");
        broker.allow_log("moved all leaderships");
        broker
    };
    first.allow_log("moved all leaderships");
    let (second, third) = (joining("2"), joining("3"));
    let kafka =
        Broker::join(Server::named("kafka-3.9.2"), 4, &address, &[("zookeeper.session.timeout.ms", "20000")]);
    let mut connection = Connection::open(&second.address());
    wait_for("four brokers", || (connection.metadata(None).brokers.len() == 4).then_some(()));
    let before = dump_tree(&address);
    assert_eq!(before.keys().filter(|path| path.starts_with("/brokers/ids/")).count(), 4);
    first.restart();
    for broker in [&first, &second, &third, &kafka] {
        let mut connection = Connection::open(&broker.address());
        wait_for("four brokers again", || (connection.metadata(None).brokers.len() == 4).then_some(()));
    }
    let after = dump_tree(&address);
    let registered = |id: i32| format!("/brokers/ids/{id}");
    for id in 2..=4 {
        assert_eq!(after[&registered(id)], before[&registered(id)], "the session of {id} went on");
    }
    tool(
        "2.8.2",
        "kafka-topics",
        &[
            "--zookeeper",
            &address,
            "--create",
            "--topic",
            "wide",
            "--replica-assignment",
            "2:3:4,4:2:3,3:4:2",
        ],
    );
    let mut writer = Connection::open(&second.address());
    wait_for("leaders and followers", || {
        let topic = writer.metadata(Some("wide")).topics.into_iter().next()?;
        let is_whole = topic.partitions.len() == 3
            && topic
                .partitions
                .iter()
                .all(|partition| partition.isr_nodes.len() == 3 && partition.leader_id > 0);
        is_whole.then_some(())
    });
    let leader = writer.metadata(Some("wide")).topics[0]
        .partitions
        .iter()
        .find(|partition| partition.leader_id == 2)
        .expect("the second broker leads one")
        .partition_index;
    writer.append("wide", leader, &Batch::of("all", 1, 1_500_000_000_000));
    drop(kafka);
}
