use std::path::Path;

use protocol_tests::{Broker, Cluster, Port, Process, Server, Tools, free_port, wait_within};

use super::{SILENCE, can_run, start_java};

#[test]
fn mirror_maker_2_from_kafka_to_barnabas() {
    mirror_2("kafka-3.9.2", "barnabas", "disabled");
}

#[test]
fn mirror_maker_2_from_barnabas_to_kafka_exactly_once() {
    mirror_2("barnabas", "kafka-4.3.1", "enabled");
}

#[test]
fn mirror_maker_2_from_barnabas_to_barnabas_exactly_once() {
    mirror_2("barnabas", "barnabas", "enabled");
}

#[test]
fn mirror_maker_1_from_kafka_to_barnabas() {
    mirror_1("3.9.2", "kafka-3.9.2", "barnabas");
}

#[test]
fn mirror_maker_1_from_barnabas_to_kafka() {
    mirror_1("3.9.2", "barnabas", "kafka-3.9.2");
}

#[test]
fn mirror_maker_1_from_barnabas_to_barnabas() {
    mirror_1("3.9.2", "barnabas", "barnabas");
}

/// With the consumer that needs no ZooKeeper.
#[test]
fn mirror_maker_1_of_0_10_2_2_from_barnabas_to_barnabas() {
    mirror_1("0.10.2.2", "barnabas", "barnabas");
}

/// One broker, or several.
pub(super) trait Bootstrap {
    /// As clients take it.
    fn bootstrap(&self) -> String;
}

impl Bootstrap for Broker {
    fn bootstrap(&self) -> String {
        self.address()
    }
}

impl Bootstrap for Cluster {
    fn bootstrap(&self) -> String {
        Cluster::bootstrap(self)
    }
}

pub(super) const RECORDS: usize = 300;
const PARTITIONS: &str = "3";

/// MirrorMaker 2 in its dedicated mode: records, topic settings, heartbeats and translated group offsets, with a
/// restart of each Barnabas in the middle.
#[track_caller]
fn mirror_2(source: &str, target: &str, exactly_once: &str) {
    if !can_run("MirrorMaker 2") {
        return;
    }
    let (mut source, mut target) = (start(source), start(target));
    let mut tools = Tools::of("4.3.1");
    create(&mut tools, &source, &["--config", "retention.ms=123456789"]);
    produce(&mut tools, &source, 0);
    read_as_group(&mut tools, &source, "orders", RECORDS);

    let (config, port) = (target.dir().join("mm2.properties"), free_port());
    std::fs::write(&config, mm2_properties(&source, &target, &port, exactly_once, 1))
        .expect("write mm2.properties");
    let start = || {
        start_java("4.3.1", "org.apache.kafka.connect.mirror.MirrorMaker", &[&config.display().to_string()])
    };
    let mut mirror = start();
    await_records(&mut tools, &target, "source.orders", RECORDS, &mut mirror);
    restart(&mut source);
    restart(&mut target);
    produce(&mut tools, &source, RECORDS);
    await_records(&mut tools, &target, "source.orders", 2 * RECORDS, &mut mirror);
    stop(mirror);
    let mut mirror = start();
    produce(&mut tools, &source, 2 * RECORDS);
    await_records(&mut tools, &target, "source.orders", 3 * RECORDS, &mut mirror);
    assert_eq!(
        records(&mut tools, &target, "source.orders", 3 * RECORDS),
        records(&mut tools, &source, "orders", 3 * RECORDS)
    );

    await_text(
        &mut tools,
        "kafka-configs",
        &target,
        &["--describe", "--topic", "source.orders"],
        "retention.ms=123456789",
    );
    await_text(&mut tools, "kafka-topics", &target, &["--list"], "heartbeats");
    await_text(&mut tools, "kafka-topics", &target, &["--list"], "source.checkpoints.internal");
    // The group goes on in the target behind what it had read in the source.
    await_text(
        &mut tools,
        "kafka-consumer-groups",
        &target,
        &["--describe", "--group", "readers"],
        "source.orders",
    );
    stop(mirror);
    let rest = read_rest_as_group(&mut tools, &target, "source.orders");
    // Translated offsets may lie a little before what was read, never behind it.
    let lost = (RECORDS..3 * RECORDS).filter(|number| !rest.contains(&format!("key-{number}\t")));
    assert_eq!(lost.count(), 0, "{rest}");
}

/// MirrorMaker 1 copies under the same name.
#[track_caller]
fn mirror_1(version: &str, source: &str, target: &str) {
    if !can_run("MirrorMaker 1") {
        return;
    }
    let (mut source, mut target) = (start(source), start(target));
    let mut tools = Tools::of("3.9.2");
    create(&mut tools, &source, &[]);
    create(&mut tools, &target, &[]);
    produce(&mut tools, &source, 0);
    // Makes internal topics, which stay where they are.
    read_as_group(&mut tools, &source, "orders", RECORDS);

    let folder = target.dir().to_owned();
    let clusters = (source.bootstrap(), target.bootstrap());
    let start = || start_mirror_1(version, &folder, (&clusters.0, &clusters.1), ".*", "none");
    let mut mirror = start();
    await_records(&mut tools, &target, "orders", RECORDS, &mut mirror);
    restart(&mut source);
    restart(&mut target);
    produce(&mut tools, &source, RECORDS);
    await_records(&mut tools, &target, "orders", 2 * RECORDS, &mut mirror);
    // Its orderly end commits what it has copied, so that nothing comes twice.
    stop(mirror);
    let mut mirror = start();
    produce(&mut tools, &source, 2 * RECORDS);
    await_records(&mut tools, &target, "orders", 3 * RECORDS, &mut mirror);
    assert_eq!(
        records(&mut tools, &target, "orders", 3 * RECORDS),
        records(&mut tools, &source, "orders", 3 * RECORDS)
    );
    let groups = tools.run("kafka-consumer-groups", &["--bootstrap-server", &target.address(), "--list"]);
    assert!(!groups.contains("readers"), "an internal topic was mirrored: {groups}");
    stop(mirror);
}

/// `topics` is a pattern, `codec` that of the mirror's producer. Its files are written to the folder.
#[track_caller]
pub(super) fn start_mirror_1(
    version: &str,
    folder: &Path,
    (source, target): (&str, &str),
    topics: &str,
    codec: &str,
) -> Process {
    let file = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("write a file for MirrorMaker");
        path.display().to_string()
    };
    let consumer = file(
        "consumer.properties",
        format!(
            "bootstrap.servers={source}\ngroup.id=mirror\nauto.offset.reset=earliest\nexclude.internal.topics=true\n\
             metadata.max.age.ms=1000\n",
        ),
    );
    let producer =
        file("producer.properties", format!("bootstrap.servers={target}\ncompression.type={codec}\n"));
    let mut arguments = vec!["--consumer.config", &consumer, "--producer.config", &producer];
    arguments.extend(["--offset.commit.interval.ms", "500"]);
    // Before 0.11 it reads through ZooKeeper unless told otherwise.
    arguments.extend((version == "0.10.2.2").then_some("--new.consumer"));
    let include = if matches!(version, "0.10.2.2" | "2.8.2") { "--whitelist" } else { "--include" };
    arguments.extend([include, topics]);
    start_java(version, "kafka.tools.MirrorMaker", &arguments)
}

#[track_caller]
pub(super) fn start(server: &str) -> Broker {
    let mut settings = vec![("group.initial.rebalance.delay.ms", "0")];
    settings.extend(super::ONE_TRANSACTION_LOG);
    let mut broker = Broker::start_as(Server::named(server), &settings);
    // Of a mirror that is slow to stop.
    broker.allow_log("aborting a transaction that outlived its timeout");
    broker
}

/// Real Kafka takes long to restart and is not what is tested here.
#[track_caller]
fn restart(broker: &mut Broker) {
    if broker.server().is_barnabas() {
        broker.restart();
    }
}

#[track_caller]
pub(super) fn stop(mut mirror: Process) {
    mirror.terminate();
    assert!(mirror.wait(SILENCE).is_some(), "the mirror still runs\n{}", mirror.stderr_text());
}

#[track_caller]
pub(super) fn create(tools: &mut Tools, broker: &impl Bootstrap, more: &[&str]) {
    let address = broker.bootstrap();
    let mut arguments =
        vec!["--bootstrap-server", &address, "--create", "--topic", "orders", "--partitions", PARTITIONS];
    arguments.extend(more);
    tools.run("kafka-topics", &arguments);
}

#[track_caller]
pub(super) fn produce(tools: &mut Tools, broker: &impl Bootstrap, from: usize) {
    let input: String =
        (from..from + RECORDS).map(|number| format!("key-{number}\tvalue of {number}\n")).collect();
    tools.run_with_input(
        "kafka-console-producer",
        &["--bootstrap-server", &broker.bootstrap(), "--topic", "orders", "--property", "parse.key=true"],
        &input,
    );
}

/// Reads `count` records as a member of the group `readers` and commits.
#[track_caller]
fn read_as_group(tools: &mut Tools, broker: &impl Bootstrap, topic: &str, count: usize) -> String {
    consume(
        tools,
        broker,
        topic,
        count,
        &["--group", "readers", "--from-beginning", "--property", "print.key=true"],
    )
}

/// Goes on as a member of the group `readers` until nothing comes any more.
#[track_caller]
fn read_rest_as_group(tools: &mut Tools, broker: &impl Bootstrap, topic: &str) -> String {
    let address = broker.bootstrap();
    let arguments = ["--bootstrap-server", &address, "--topic", topic, "--group", "readers"];
    let more = ["--property", "print.key=true", "--timeout-ms", "40000"];
    let run = tools.start("kafka-console-consumer", &[&arguments[..], &more[..]].concat());
    tools.finish_with_any_status(run).stdout
}

/// A topic's records with their partitions, in an order that does not depend on how partitions are read.
#[track_caller]
pub(super) fn records(tools: &mut Tools, broker: &impl Bootstrap, topic: &str, count: usize) -> Vec<String> {
    let more = ["--from-beginning", "--property", "print.key=true", "--property", "print.partition=true"];
    let mut lines: Vec<String> =
        consume(tools, broker, topic, count, &more).lines().map(str::to_owned).collect();
    // Stable: within a partition the order of the log stays.
    lines.sort_by_key(|line| line.split('\t').next().unwrap_or_default().to_owned());
    lines
}

#[track_caller]
fn consume(tools: &mut Tools, broker: &impl Bootstrap, topic: &str, count: usize, more: &[&str]) -> String {
    let (address, count) = (broker.bootstrap(), count.to_string());
    let mut arguments = vec!["--bootstrap-server", &address, "--topic", topic, "--max-messages", &count];
    arguments.extend(["--consumer-property", "isolation.level=read_committed", "--timeout-ms", "60000"]);
    arguments.extend(more);
    tools.run("kafka-console-consumer", &arguments)
}

/// Waits until the partitions of a topic together have `count` records; markers of transactions count as well, so
/// that it may wait too short for what a reader sees, never too long.
#[track_caller]
pub(super) fn await_records(
    tools: &mut Tools,
    broker: &impl Bootstrap,
    topic: &str,
    count: usize,
    mirror: &mut Process,
) {
    wait_within(SILENCE, "the mirrored records", || {
        assert!(mirror.is_running(), "the mirror ended\n{}", mirror.stderr_text());
        (self::count(tools, broker, topic) >= count).then_some(())
    });
}

/// How many records a topic holds, markers of transactions included.
#[track_caller]
pub(super) fn count(tools: &mut Tools, broker: &impl Bootstrap, topic: &str) -> usize {
    let address = broker.bootstrap();
    let run = tools.start("kafka-get-offsets", &["--bootstrap-server", &address, "--topic", topic]);
    let output = tools.finish_with_any_status(run);
    output.stdout.lines().filter_map(|line| line.rsplit(':').next()?.parse::<usize>().ok()).sum()
}

#[track_caller]
fn await_text(tools: &mut Tools, tool: &str, broker: &impl Bootstrap, arguments: &[&str], text: &str) {
    let address = broker.bootstrap();
    let mut line = vec!["--bootstrap-server", &address];
    line.extend(arguments);
    wait_within(SILENCE, text, || {
        let run = tools.start(tool, &line);
        tools.finish_with_any_status(run).stdout.contains(text).then_some(())
    });
}

pub(super) fn mm2_properties(
    source: &impl Bootstrap,
    target: &impl Bootstrap,
    port: &Port,
    exactly_once: &str,
    replicas: usize,
) -> String {
    let flow = "source->target";
    let mut text = format!(
        "clusters=source,target\nsource.bootstrap.servers={}\ntarget.bootstrap.servers={}\n\
         {flow}.enabled=true\ntarget->source.enabled=false\n{flow}.topics=orders\n{flow}.groups=readers\n\
         target.exactly.once.source.support={exactly_once}\n\
         dedicated.mode.enable.internal.rest=true\nlisteners=http://127.0.0.1:{}\n",
        source.bootstrap(),
        target.bootstrap(),
        port.number
    );
    for of in [
        "",
        "checkpoints.topic.",
        "heartbeats.topic.",
        "offset-syncs.topic.",
        "offset.storage.",
        "status.storage.",
        "config.storage.",
    ] {
        text.push_str(&format!("{of}replication.factor={replicas}\n"));
    }
    for setting in [
        "offset.storage.partitions=2",
        "offset.flush.interval.ms=500",
        "sync.topic.acls.enabled=false",
        "sync.topic.configs.interval.seconds=2",
        "refresh.topics.interval.seconds=2",
        "refresh.groups.interval.seconds=2",
        "emit.checkpoints.interval.seconds=1",
        "emit.heartbeats.interval.seconds=1",
        "sync.group.offsets.enabled=true",
        "sync.group.offsets.interval.seconds=1",
    ] {
        text.push_str(setting);
        text.push('\n');
    }
    text
}
