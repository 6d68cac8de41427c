//! Compaction from outside: beside Kafka's own cleaner on the same folder, and amid `kill -9`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use protocol_tests::batch::{self, Batch, Codec, Record};
use protocol_tests::client::{left_out, programs};
use protocol_tests::{
    Broker, CallError, Connection, Process, Server, announce, command_exists, has_java, kafka_tool, seed,
    wait_for,
};
use wire::add_partitions_to_txn_request::{AddPartitionsToTxnRequest, AddPartitionsToTxnTopic};
use wire::create_topics_request::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use wire::end_txn_request::EndTxnRequest;
use wire::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::init_producer_id_request::InitProducerIdRequest;
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestTopic};
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};

const TOPIC: &str = "compacted";
/// No acknowledgement within this time is a failure.
const LIMIT: Duration = Duration::from_secs(180);

/// Three rounds of appends, each cleaned by both servers from the same files: what is left is equal batch for
/// batch, the emptied ones and those with a delete horizon too. From the second round on the files were cleaned
/// by Barnabas before. Keys that are those of control records are among them (C031).
#[test]
fn what_is_left_is_what_kafkas_own_cleaner_leaves() {
    if !has_java() {
        return;
    }
    let mut random = fastrand::Rng::with_seed(seed("compaction", 7));
    let settings = [
        ("transaction.state.log.replication.factor", "1"),
        ("transaction.state.log.min.isr", "1"),
        ("transaction.state.log.num.partitions", "1"),
        ("log.cleaner.backoff.ms", "100"),
        ("log.cleaner.dedupe.buffer.size", "2097153"),
        ("log.retention.ms", "-1"),
    ];
    let mut ours = Broker::start_as(Server::Barnabas, &settings);
    let mut theirs = Broker::start_as(Server::named("kafka-3.9.2"), &settings);
    // With a short retention, the second cleaning after the one that saw a tombstone or marker removes it.
    let configs = [("segment.bytes", "6000"), ("index.interval.bytes", "512"), ("delete.retention.ms", "1")];
    for broker in [&ours, &theirs] {
        create_topic(&mut Connection::open(&broker.address()), 1, &configs);
    }
    theirs.stop();
    for round in 0..3 {
        ours.stop();
        ours.set("log.cleaner.enable", "false");
        ours.start_again();
        append_history(&ours.address(), &mut random, round);
        ours.stop();
        copy_log(&ours.data_dir(), &theirs.data_dir());
        theirs.start_again();
        ours.set("log.cleaner.enable", "true");
        ours.start_again();
        for broker in [&theirs, &ours] {
            wait_for("the log to be cleaned", || is_clean(&broker.data_dir()).then_some(()));
        }
        let (left, expected) = (stored(&ours.data_dir()), stored(&theirs.data_dir()));
        let differing = left.iter().zip(&expected).find(|(left, expected)| left != expected);
        assert!(differing.is_none(), "round {round}: ours and theirs are {differing:#?}");
        assert_eq!(left.len(), expected.len(), "round {round}");
        theirs.stop();
        announce(&format!("compaction: round {round} left {} batches in both", left.len()));
    }
}

/// A transactional producer, or an idempotent one.
struct Producer {
    transactional_id: Option<String>,
    id: i64,
    epoch: i16,
    sequence: i32,
    is_open: bool,
}

impl Producer {
    fn start(connection: &mut Connection, transactional_id: Option<&str>) -> Producer {
        if let Some(id) = transactional_id {
            let request = FindCoordinatorRequest { key: id.into(), key_type: 1, ..Default::default() };
            wait_for("the transaction's coordinator", || {
                (connection.call(3, &request).error_code == 0).then_some(())
            });
        }
        let request = InitProducerIdRequest {
            transactional_id: transactional_id.map(Into::into),
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        };
        let response = wait_for("a producer id", || {
            let response = connection.call(4, &request);
            (response.error_code == 0).then_some(response)
        });
        let (id, epoch) = (response.producer_id, response.producer_epoch);
        let transactional_id = transactional_id.map(str::to_owned);
        Producer { transactional_id, id, epoch, sequence: 0, is_open: false }
    }

    fn send(&mut self, connection: &mut Connection, mut batch: Batch) {
        if let Some(id) = &self.transactional_id {
            if !self.is_open {
                self.add_partition(connection, id);
            }
            self.is_open = true;
            batch.attributes |= 16;
        }
        (batch.producer_id, batch.producer_epoch, batch.base_sequence) = (self.id, self.epoch, self.sequence);
        self.sequence += batch.records.len() as i32;
        let id = self.transactional_id.as_deref();
        produce(connection, 0, id, &batch).expect("an answer to Produce");
    }

    fn add_partition(&self, connection: &mut Connection, id: &str) {
        let topic = AddPartitionsToTxnTopic { name: TOPIC.into(), partitions: vec![0] };
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: id.into(),
            v3_and_below_producer_id: self.id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: vec![topic],
            ..Default::default()
        };
        // The transaction before may not be over yet.
        wait_for("the partition to join the transaction", || {
            let response = connection.call(3, &request);
            let result = &response.results_by_topic_v3_and_below[0].results_by_partition[0];
            (result.partition_error_code == 0).then_some(())
        });
    }

    fn end(&mut self, connection: &mut Connection, committed: bool) {
        let Some(id) = self.transactional_id.clone().filter(|_| self.is_open) else { return };
        let request = EndTxnRequest {
            transactional_id: id.as_str().into(),
            producer_id: self.id,
            producer_epoch: self.epoch,
            committed,
        };
        wait_for("the transaction to end", || (connection.call(3, &request).error_code == 0).then_some(()));
        self.is_open = false;
    }
}

/// Appends batches of all kinds, and leaves no transaction open.
fn append_history(address: &str, random: &mut fastrand::Rng, round: usize) {
    let mut connection = Connection::open(address);
    wait_for_leader(&mut connection, 0);
    let ids = [Some("t-0"), Some("t-1"), None];
    let mut producers = ids.map(|id| Producer::start(&mut connection, id));
    for step in 0..150 {
        let batch = random_batch(random, &format!("{round}-{step}"));
        match random.usize(0..6) {
            at @ 0..3 => producers[at].send(&mut connection, batch),
            3 | 4 => {
                let committed = random.bool();
                producers[random.usize(0..2)].end(&mut connection, committed);
            }
            _ => produce(&mut connection, 0, None, &batch).expect("an answer to Produce"),
        }
    }
    producers.iter_mut().for_each(|producer| producer.end(&mut connection, true));
    // Markers follow the answer; what comes after them stays in the active segment, or rolls it.
    wait_for("the last transaction to be decided", || {
        let [stable, end] = [1, 0].map(|isolation| log_end(&mut connection, 0, isolation));
        (stable == end).then_some(())
    });
}

fn random_batch(random: &mut fastrand::Rng, name: &str) -> Batch {
    let codec = Codec::ALL[random.usize(0..5)];
    let records = (0..random.i32(1..6)).map(|offset_delta| {
        // Keys of control records among them.
        let key = match random.u8(0..12) {
            10 => vec![0, 0, 0, 0],
            11 => vec![0, 0, 0, 1],
            key => format!("key-{key}").into_bytes(),
        };
        let value = format!("{name}-{offset_delta}-{}", "v".repeat(random.usize(0..60)));
        let value = (random.u8(0..6) > 0).then(|| Bytes::from(value));
        let headers = vec![("h".to_owned(), None), ("h".to_owned(), Some(Bytes::from_static(b"x")))];
        let headers = if random.bool() { headers } else { Vec::new() };
        Record { offset_delta, timestamp: now() + random.i64(0..50), key: Some(key.into()), value, headers }
    });
    Batch { codec, records: records.collect(), ..Batch::default() }
}

/// The partition's files but for the topic's id, and how far it was cleaned.
fn copy_log(from: &Path, to: &Path) {
    let (source, target) = (from.join("compacted-0"), to.join("compacted-0"));
    for file in files(&target) {
        if !file.ends_with("partition.metadata") {
            fs::remove_file(&file).expect("remove a file of the log");
        }
    }
    for file in files(&source) {
        let name = file.file_name().expect("a file has a name").to_str().expect("a name of ours");
        if name != "partition.metadata" && !name.ends_with(".deleted") {
            fs::copy(&file, target.join(name)).expect("copy a file of the log");
        }
    }
    let checkpoint = match clean_end(from) {
        Some(offset) => format!("0\n1\n{TOPIC} 0 {offset}\n"),
        None => "0\n0\n".to_owned(),
    };
    fs::write(to.join("cleaner-offset-checkpoint"), checkpoint).expect("write the checkpoint");
}

fn clean_end(data_dir: &Path) -> Option<i64> {
    let text = fs::read_to_string(data_dir.join("cleaner-offset-checkpoint")).ok()?;
    let line = text.lines().find(|line| line.starts_with(&format!("{TOPIC} 0 ")))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Whether everything but the active segment is clean.
fn is_clean(data_dir: &Path) -> bool {
    let active = segments(&data_dir.join("compacted-0")).into_iter().next_back();
    let base = active.and_then(|path| path.file_stem()?.to_str()?.parse::<i64>().ok());
    base.is_some() && clean_end(data_dir) == base
}

/// All batches of the partition, as text; the leader epoch and the sizes of compressed records are the server's own.
fn stored(data_dir: &Path) -> Vec<String> {
    let batches = segments(&data_dir.join("compacted-0")).into_iter().flat_map(|path| {
        let bytes = fs::read(&path).expect("read a segment");
        batch::read(&bytes)
    });
    batches.map(|batch| format!("{:?}", Batch { leader_epoch: 0, length: None, ..batch })).collect()
}

fn segments(log: &Path) -> Vec<PathBuf> {
    let mut segments = files(log);
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    segments.sort_unstable();
    segments
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("read {}: {error}", dir.display()));
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// C032: consumers get past records that were compacted away, those at the ends of segments too, and to the end.
#[test]
fn consumers_get_past_what_was_compacted_away() {
    let mut broker = Broker::start_as(Server::Barnabas, &[("log.cleaner.backoff.ms", "100")]);
    let mut connection = Connection::open(&broker.address());
    create_topic(&mut connection, 1, &[("segment.bytes", "1000")]);
    for round in 0..40 {
        let mut batch = Batch::of(&format!("kept-{round}"), 1, now());
        for (offset_delta, key) in (1..).zip(["a", "b"]) {
            batch.records.push(Record::new(offset_delta, now(), key, "overwritten but for the last"));
        }
        produce(&mut connection, 0, None, &batch).expect("an answer to Produce");
    }
    wait_for("the log to be cleaned", || is_clean(&broker.data_dir()).then_some(()));
    let end = log_end(&mut connection, 0, 0);
    for _ in 0..2 {
        let left = offsets(&broker.data_dir());
        assert!(left.len() < 60 && left.last() == Some(&(end - 1)), "{left:?} of {end}");
        let read = |name: &str, command: Result<Command, String>| match command {
            Err(missing) => left_out(name, &missing),
            Ok(command) => assert_eq!(offsets_printed(name, command), left, "{name}"),
        };
        read("kcat on a compacted log", kcat(&broker));
        read("kafka-python on a compacted log", python_to_end(&broker));
        read("sarama on a compacted log", sarama_to_end(&broker));
        read("Java's consumer on a compacted log", console_consumer(&broker, left.len()));
        broker.restart();
        assert_eq!(log_end(&mut Connection::open(&broker.address()), 0, 0), end);
    }
}

/// Where records are.
fn offsets(data_dir: &Path) -> Vec<i64> {
    let bytes = segments(&data_dir.join("compacted-0")).into_iter().map(|path| fs::read(path).expect("read"));
    let batches = bytes.flat_map(|bytes| batch::read(&bytes));
    let offsets = |batch: Batch| {
        batch.records.into_iter().map(move |record| batch.base_offset + i64::from(record.offset_delta))
    };
    batches.flat_map(offsets).collect()
}

/// What a program prints at the beginnings of its lines.
#[track_caller]
fn offsets_printed(name: &str, command: Command) -> Vec<i64> {
    let text = Process::start(name, command, None).finish(LIMIT).expect_success(name).stdout;
    text.lines()
        .map(|line| line.trim_start_matches("Offset:").split('\t').next().unwrap_or_default())
        .map(|offset| offset.parse().unwrap_or_else(|_| panic!("{name} printed {text}")))
        .collect()
}

fn kcat(broker: &Broker) -> Result<Command, String> {
    if !command_exists("kcat") {
        return Err("this machine has no kcat".to_owned());
    }
    let mut command = Command::new("kcat");
    command.args(["-b", &broker.address(), "-C", "-t", TOPIC, "-p", "0", "-o", "beginning", "-e", "-q"]);
    command.args(["-f", "%o\\n"]);
    Ok(command)
}

fn python_to_end(broker: &Broker) -> Result<Command, String> {
    let mut command = programs::python("read_to_end.py")?;
    command.args([&broker.address(), TOPIC]);
    Ok(command)
}

fn sarama_to_end(broker: &Broker) -> Result<Command, String> {
    let mut command = programs::go("sarama_of")?;
    command.args([&broker.address(), TOPIC, "2.8.0"]);
    Ok(command)
}

fn console_consumer(broker: &Broker, count: usize) -> Result<Command, String> {
    if !["java", "mvn"].into_iter().all(command_exists) {
        return Err("this machine has no java or no mvn".to_owned());
    }
    let mut command = kafka_tool("3.9.2", "kafka-console-consumer");
    command.args(["--bootstrap-server", &broker.address()]);
    command.args(["--topic", TOPIC, "--partition", "0", "--offset", "earliest", "--timeout-ms", "60000"]);
    command.args(["--max-messages", &count.to_string(), "--property", "print.offset=true"]);
    Ok(command)
}

/// Kills come after at most so many acknowledgements.
const MOST_ACKS: usize = 2_000;
const GROUPS: usize = 8;

/// Compaction runs all the time, of a topic and of the groups' offsets, and the server is killed again and again:
/// each key reads as it was last acknowledged, or as was sent since. `BARNABAS_COMPACTION_KILLS` = how often.
#[test]
fn what_was_acknowledged_outlives_kills_amid_compaction() {
    let mut random = fastrand::Rng::with_seed(seed("compaction", 7));
    let kills = std::env::var("BARNABAS_COMPACTION_KILLS").ok().and_then(|text| text.parse().ok());
    let kills: usize = kills.unwrap_or(30);
    let settings = [
        ("log.cleaner.backoff.ms", "100"),
        ("log.cleaner.min.cleanable.ratio", "0.01"),
        ("log.cleaner.io.buffer.size", "8192"),
        ("offsets.topic.num.partitions", "1"),
        ("offsets.topic.segment.bytes", "16384"),
    ];
    let mut broker = Broker::start_as(Server::Barnabas, &settings);
    broker.allow_log("rebuilding an index that is missing or damaged");
    broker.allow_log("removing an index without records");
    broker.allow_log("cut an unfinished write off the store's log");
    broker.allow_log("cutting the log off at the first batch that is not sound");
    let mut connection = Connection::open(&broker.address());
    let configs =
        [("segment.bytes", "16384"), ("index.interval.bytes", "512"), ("file.delete.delay.ms", "500")];
    create_topic(&mut connection, 2, &configs);
    let mut writers = [Writer::new(0), Writer::new(1)];
    let mut committer = Committer::default();
    committer.check(&mut connection);
    for _ in 0..kills {
        let acks = random.usize(1..MOST_ACKS);
        run_until_killed(&mut broker, &mut writers, &mut committer, acks);
        broker.start_again();
        let mut connection = Connection::open(&broker.address());
        writers.iter().for_each(|writer| writer.check(&mut connection));
        committer.check(&mut connection);
    }
    let compactions = broker.log().matches("compacted a log").count();
    assert!(compactions >= kills / 2, "{compactions} compactions over {kills} kills");
    broker.restart();
    let mut connection = Connection::open(&broker.address());
    writers.iter().for_each(|writer| writer.check(&mut connection));
    committer.check(&mut connection);
    announce(&format!("compaction: {compactions} compactions over {kills} kills"));
}

fn run_until_killed(broker: &mut Broker, writers: &mut [Writer], committer: &mut Committer, acks: usize) {
    let (sender, acknowledged) = channel();
    let open = || Connection::open(&broker.address());
    let writers: Vec<_> = writers.iter_mut().map(|writer| (writer, open())).collect();
    let mut commits = open();
    thread::scope(|scope| {
        for (writer, mut connection) in writers {
            let sender = sender.clone();
            scope.spawn(move || until_closed(&sender, || writer.write(&mut connection)));
        }
        scope.spawn(move || until_closed(&sender, || committer.commit(&mut commits)));
        for _ in 0..acks {
            acknowledged.recv_timeout(LIMIT).expect("an acknowledgement");
        }
        broker.kill();
    });
}

/// Goes on as long as answers come, and tells of each.
fn until_closed(acknowledged: &Sender<()>, mut call: impl FnMut() -> Result<(), CallError>) {
    loop {
        match call() {
            // Nobody listens any more once the kill is decided.
            Ok(()) => drop(acknowledged.send(())),
            Err(CallError::Closed) => return,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Counts up the values of a few keys.
struct Writer {
    partition: i32,
    count: i64,
    /// By key: the last value that was acknowledged, and the last that was sent.
    keys: BTreeMap<String, (i64, i64)>,
}

impl Writer {
    fn new(partition: i32) -> Writer {
        Writer { partition, count: 0, keys: BTreeMap::new() }
    }

    fn write(&mut self, connection: &mut Connection) -> Result<(), CallError> {
        let codec = if self.count % 3 == 0 { Codec::Lz4 } else { Codec::None };
        let mut batch = Batch { codec, ..Batch::default() };
        for offset_delta in 0..1 + (self.count % 5) as i32 {
            self.count += 1;
            let key = format!("key-{}", self.count % 37);
            self.keys.entry(key.clone()).or_insert((0, 0)).1 = self.count;
            let value = format!("{}-{}", self.count, "v".repeat(200));
            batch.records.push(Record::new(offset_delta, now(), &key, &value));
        }
        produce(connection, self.partition, None, &batch)?;
        // Only these: what an earlier kill left without an answer may be lost.
        for record in &batch.records {
            let key = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default());
            if let Some((acknowledged, sent)) = self.keys.get_mut(&*key) {
                *acknowledged = *sent;
            }
        }
        Ok(())
    }

    fn check(&self, connection: &mut Connection) {
        let end = wait_for_leader(connection, self.partition);
        let mut found: BTreeMap<String, i64> = BTreeMap::new();
        let mut next = 0;
        while next < end {
            for batch in fetch(connection, self.partition, next) {
                assert!(batch.base_offset + i64::from(batch.last_offset_delta.unwrap_or(0)) >= next);
                next = batch.base_offset + i64::from(batch.last_offset_delta.unwrap_or(0)) + 1;
                for record in &batch.records {
                    let text = |bytes: &Option<Bytes>| {
                        String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned()
                    };
                    let value = text(&record.value).split('-').next().and_then(|text| text.parse().ok());
                    found.insert(text(&record.key), value.expect("a value of ours"));
                }
            }
        }
        for (key, (acknowledged, sent)) in &self.keys {
            let value = found.get(key).copied().unwrap_or(0);
            let range = *acknowledged..=*sent;
            assert!(
                range.contains(&value),
                "{key} of partition {} is {value}, not {range:?}",
                self.partition
            );
        }
    }
}

/// Commits ascending offsets of several groups.
#[derive(Default)]
struct Committer {
    sent: i64,
    /// By group: acknowledged and sent.
    groups: [(i64, i64); GROUPS],
}

impl Committer {
    fn commit(&mut self, connection: &mut Connection) -> Result<(), CallError> {
        self.sent += 1;
        let at = self.sent as usize % GROUPS;
        self.groups[at].1 = self.sent;
        let partition = OffsetCommitRequestPartition { committed_offset: self.sent, ..Default::default() };
        let topic = OffsetCommitRequestTopic {
            name: TOPIC.into(),
            partitions: vec![partition],
            ..Default::default()
        };
        let request = OffsetCommitRequest {
            group_id: format!("group-{at}").as_str().into(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let response = connection.try_call(8, &request)?;
        assert_eq!(response.topics[0].partitions[0].error_code, 0, "OffsetCommit");
        self.groups[at].0 = self.sent;
        Ok(())
    }

    fn check(&self, connection: &mut Connection) {
        for (at, (acknowledged, sent)) in self.groups.iter().enumerate() {
            let topic = OffsetFetchRequestTopic { name: TOPIC.into(), partition_indexes: vec![0] };
            let request = OffsetFetchRequest {
                group_id: format!("group-{at}").as_str().into(),
                topics: Some(vec![topic]),
                ..Default::default()
            };
            let find = FindCoordinatorRequest { key: request.group_id.clone(), ..Default::default() };
            let found = wait_for("the group's offsets", || {
                if connection.call(3, &find).error_code != 0 {
                    return None;
                }
                let response = connection.call(7, &request);
                let answer = (response.error_code == 0).then(|| &response.topics[0].partitions[0])?;
                (answer.error_code == 0).then_some(answer.committed_offset)
            });
            let range = *acknowledged..=*sent;
            assert!(range.contains(&found.max(0)), "group {at} has {found}, not {range:?}");
        }
    }
}

fn now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
    since_1970.as_millis() as i64
}

fn create_topic(connection: &mut Connection, partitions: i32, configs: &[(&str, &str)]) {
    let common = [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")];
    let config =
        |&(name, value): &(&str, &str)| CreatableTopicConfig { name: name.into(), value: Some(value.into()) };
    let topic = CreatableTopic {
        name: TOPIC.into(),
        num_partitions: partitions,
        replication_factor: 1,
        configs: common.iter().chain(configs).map(config).collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    let response = connection.call(5, &request);
    assert_eq!(response.topics[0].error_code, 0, "{response:?}");
    for partition in 0..partitions {
        wait_for_leader(connection, partition);
    }
}

fn produce(
    connection: &mut Connection,
    index: i32,
    transactional_id: Option<&str>,
    batch: &Batch,
) -> Result<(), CallError> {
    let data = PartitionProduceData { index, records: Some(batch.encode().into()) };
    let topic = TopicProduceData { name: TOPIC.into(), partition_data: vec![data], ..Default::default() };
    let request = ProduceRequest {
        transactional_id: transactional_id.map(Into::into),
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![topic],
    };
    let response = connection.try_call(9, &request)?;
    let answer = &response.responses[0].partition_responses[0];
    assert_eq!(answer.error_code, 0, "{answer:?}");
    Ok(())
}

/// Where the partition ends, once it has a leader.
fn wait_for_leader(connection: &mut Connection, partition: i32) -> i64 {
    log_end(connection, partition, 0)
}

fn log_end(connection: &mut Connection, partition_index: i32, isolation_level: i8) -> i64 {
    let partition = ListOffsetsPartition { partition_index, timestamp: -1, ..Default::default() };
    let topics = vec![ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, isolation_level, topics, ..Default::default() };
    wait_for("the partition's leader", || {
        let answer = &connection.call(5, &request).topics[0].partitions[0];
        (answer.error_code == 0).then_some(answer.offset)
    })
}

fn fetch(connection: &mut Connection, partition: i32, fetch_offset: i64) -> Vec<Batch> {
    let partition =
        FetchPartition { partition, fetch_offset, partition_max_bytes: 1 << 20, ..Default::default() };
    let topic = FetchTopic { topic: TOPIC.into(), partitions: vec![partition], ..Default::default() };
    let request = FetchRequest { max_wait_ms: 500, min_bytes: 1, topics: vec![topic], ..Default::default() };
    let response = connection.call(11, &request);
    let answer = &response.responses[0].partitions[0];
    assert_eq!((response.error_code, answer.error_code), (0, 0), "Fetch");
    match &answer.records {
        Some(wire::Records::Bytes(bytes)) if !bytes.is_empty() => batch::read(bytes),
        records => panic!("nothing to read at {fetch_offset}: {records:?}"),
    }
}
