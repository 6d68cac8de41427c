//! What was acknowledged is there after `kill -9`: the server is killed again and again amid the traffic of writers and
//! a committer, and at the end Kafka's own `kafka-dump-log` reads what lies on the disk.
//!
//! A killed process keeps what it has written in the page cache, so nothing here depends on syncs to the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol_tests::batch::{self, Batch, Codec};
use protocol_tests::{Broker, CallError, Connection, Server, announce, kafka_tool, seed, wait_for};
use wire::create_topics_request::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use wire::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::init_producer_id_request::InitProducerIdRequest;
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestTopic};
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};

const TOPIC: &str = "kept";
const GROUP: &str = "keepers";
const KILLS: usize = 55;
/// A kill comes after at most so many acknowledgements, of all clients together.
const MOST_ACKS: usize = 250;
/// No acknowledgement within this time is a failure.
const LIMIT: Duration = Duration::from_secs(180);

const ACKS_1: i32 = 0;
const ACKS_ALL: i32 = 1;
const IDEMPOTENT: i32 = 2;

#[test]
fn what_was_acknowledged_outlives_kills() {
    let mut random = fastrand::Rng::with_seed(seed("durability", 7));
    let mut broker = Broker::start_as(Server::Barnabas, &[("offsets.topic.num.partitions", "1")]);
    // What a kill may well leave behind, and the start says that it mends.
    broker.allow_log("rebuilding an index that is missing or damaged");
    broker.allow_log("cut an unfinished write off the store's log");
    // A write that is killed may end at the end of a page.
    broker.allow_log("cutting the log off at the first batch that is not sound");
    let mut connection = Connection::open(&broker.address());
    create_topic(&mut connection);
    let mut clients = Clients::new(&mut connection);
    for _ in 0..KILLS {
        clients.run_until_killed(&mut broker, random.usize(0..MOST_ACKS));
        broker.start_again();
        clients.check_ends(&mut Connection::open(&broker.address()));
    }
    let mut connection = Connection::open(&broker.address());
    clients.finish(&mut connection);
    for writer in &clients.writers {
        writer.check(&read_all(&mut connection, writer.partition));
    }
    announce(&format!("durability: {} acknowledgements over {KILLS} kills", clients.acknowledged()));
    drop(connection);
    broker.stop();
    check_files(&broker.data_dir());
}

/// Everybody who writes; between two kills each has a thread.
struct Clients {
    writers: Vec<Writer>,
    committer: Committer,
}

impl Clients {
    /// Two of each kind, so that batches of different connections meet in one log.
    fn new(connection: &mut Connection) -> Clients {
        let mut writers = vec![
            Writer::new("one-a", ACKS_1, 1),
            Writer::new("one-b", ACKS_1, 1),
            Writer::new("all-a", ACKS_ALL, -1),
            Writer::new("all-b", ACKS_ALL, -1),
        ];
        for name in ["idempotent-a", "idempotent-b"] {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: 60_000,
                ..Default::default()
            };
            let response = connection.call(4, &request);
            assert_eq!(response.error_code, 0, "InitProducerId");
            let writer = Writer::new(name, IDEMPOTENT, -1);
            writers
                .push(Writer { producer: Some((response.producer_id, response.producer_epoch)), ..writer });
        }
        Clients { writers, committer: Committer::default() }
    }

    /// Lets all write until `acks` batches and commits are acknowledged, and kills the server amid the next ones.
    fn run_until_killed(&mut self, broker: &mut Broker, acks: usize) {
        let (sender, acknowledged) = channel();
        let open = || Connection::open(&broker.address());
        let writers: Vec<_> = self.writers.iter_mut().map(|writer| (writer, open())).collect();
        let committer = (&mut self.committer, open());
        thread::scope(|scope| {
            for (writer, mut connection) in writers {
                let sender = sender.clone();
                scope.spawn(move || until_closed(&sender, || writer.write(&mut connection)));
            }
            let (committer, mut connection) = committer;
            scope.spawn(move || until_closed(&sender, || committer.commit(&mut connection)));
            for _ in 0..acks {
                acknowledged.recv_timeout(LIMIT).expect("an acknowledgement");
            }
            broker.kill();
        });
    }

    /// Neither the ends of the logs nor the committed offset have gone back behind what was acknowledged.
    fn check_ends(&self, connection: &mut Connection) {
        for writer in &self.writers {
            let (end, acknowledged) = (log_end(connection, writer.partition), writer.acknowledged_end());
            assert!(end >= acknowledged, "{}: the log ends at {end} before {acknowledged}", writer.name);
        }
        let (found, Committer { sent, acknowledged }) = (committed(connection), &self.committer);
        assert!((*acknowledged..=*sent).contains(&found), "{found} is not in {acknowledged}..={sent}");
    }

    /// Sends again what the last kill left without an answer.
    fn finish(&mut self, connection: &mut Connection) {
        for writer in self.writers.iter_mut().filter(|writer| writer.unanswered.is_some()) {
            writer.write(connection).expect("nobody kills the server now");
        }
    }

    fn acknowledged(&self) -> usize {
        self.writers.iter().map(|writer| writer.acknowledged.len()).sum()
    }
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

/// One connection's producer to one partition; its values are `NAME-BATCH-RECORD`.
struct Writer {
    name: &'static str,
    partition: i32,
    acks: i16,
    /// Id and epoch of an idempotent producer, which sends again what was not answered.
    producer: Option<(i64, i16)>,
    batches: usize,
    next_sequence: i32,
    unanswered: Option<Batch>,
    /// Base offset and values of each acknowledged batch.
    acknowledged: Vec<(i64, Vec<String>)>,
}

impl Writer {
    fn new(name: &'static str, partition: i32, acks: i16) -> Writer {
        Writer {
            name,
            partition,
            acks,
            producer: None,
            batches: 0,
            next_sequence: 0,
            unanswered: None,
            acknowledged: Vec::new(),
        }
    }

    fn write(&mut self, connection: &mut Connection) -> Result<(), CallError> {
        let batch = match self.unanswered.take() {
            Some(batch) => batch,
            None => self.next_batch(),
        };
        // Without a producer id a second try would be a second batch.
        self.unanswered = self.producer.is_some().then(|| batch.clone());
        let data = PartitionProduceData { index: self.partition, records: Some(batch.encode().into()) };
        let topic = TopicProduceData { name: TOPIC.into(), partition_data: vec![data], ..Default::default() };
        let request = ProduceRequest {
            acks: self.acks,
            timeout_ms: 30_000,
            topic_data: vec![topic],
            ..Default::default()
        };
        let response = connection.try_call(9, &request)?;
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!(answer.error_code, 0, "{}: {answer:?}", self.name);
        self.unanswered = None;
        self.acknowledged.push((answer.base_offset, values(&batch)));
        Ok(())
    }

    fn next_batch(&mut self) -> Batch {
        let count = 1 + self.batches as i32 % 7;
        // One in three is compressed; a long text makes segments and index entries come often.
        let codec = if self.batches.is_multiple_of(3) { Codec::Zstd } else { Codec::None };
        let mut batch = Batch::of(&format!("{}-{}", self.name, self.batches), count, now()).with_codec(codec);
        if let Some((id, epoch)) = self.producer {
            (batch.producer_id, batch.producer_epoch, batch.base_sequence) = (id, epoch, self.next_sequence);
        }
        for record in &mut batch.records {
            record.key = Some(vec![b'k'; 300].into());
        }
        self.batches += 1;
        self.next_sequence += count;
        batch
    }

    /// Behind the last record that was acknowledged.
    fn acknowledged_end(&self) -> i64 {
        self.acknowledged.last().map_or(0, |(offset, values)| offset + values.len() as i64)
    }

    /// Compares with the whole partition, by offset.
    fn check(&self, stored: &BTreeMap<i64, String>) {
        for (base_offset, values) in &self.acknowledged {
            for (offset, value) in (*base_offset..).zip(values) {
                assert_eq!(stored.get(&offset), Some(value), "{}: offset {offset}", self.name);
            }
        }
        if self.producer.is_none() {
            return;
        }
        let prefix = format!("{}-", self.name);
        let found: Vec<&String> = stored.values().filter(|value| value.starts_with(&prefix)).collect();
        let sent: Vec<&String> = self.acknowledged.iter().flat_map(|(_, values)| values).collect();
        assert!(found == sent, "{}: {} records of {} sent", self.name, found.len(), sent.len());
    }
}

/// Commits ascending offsets without being a member of its group.
#[derive(Default)]
struct Committer {
    sent: i64,
    acknowledged: i64,
}

impl Committer {
    fn commit(&mut self, connection: &mut Connection) -> Result<(), CallError> {
        self.sent += 1;
        let partition = OffsetCommitRequestPartition { committed_offset: self.sent, ..Default::default() };
        let topic = OffsetCommitRequestTopic {
            name: TOPIC.into(),
            partitions: vec![partition],
            ..Default::default()
        };
        let request = OffsetCommitRequest {
            group_id: GROUP.into(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let response = connection.try_call(8, &request)?;
        assert_eq!(response.topics[0].partitions[0].error_code, 0, "OffsetCommit");
        self.acknowledged = self.sent;
        Ok(())
    }
}

fn now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
    since_1970.as_millis() as i64
}

fn values(batch: &Batch) -> Vec<String> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    batch.records.iter().map(|record| text(record.value.as_deref().unwrap_or_default())).collect()
}

/// The topic, and the one of offsets.
fn create_topic(connection: &mut Connection) {
    // Small segments and many index entries: kills hit rolls and indexes too.
    let configs = [("segment.bytes", "131072"), ("index.interval.bytes", "1024")]
        .map(|(name, value)| CreatableTopicConfig { name: name.into(), value: Some(value.into()) });
    let topic = CreatableTopic {
        name: TOPIC.into(),
        num_partitions: 3,
        replication_factor: 1,
        configs: configs.to_vec(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    let response = connection.call(5, &request);
    assert_eq!(response.topics[0].error_code, 0, "{response:?}");
    for partition in [ACKS_1, ACKS_ALL, IDEMPOTENT] {
        log_end(connection, partition);
    }
    wait_for("the group's coordinator", || {
        let request = FindCoordinatorRequest { key: GROUP.into(), ..Default::default() };
        (connection.call(3, &request).error_code == 0).then_some(())
    });
    assert_eq!(committed(connection), -1, "nothing is committed yet");
}

fn log_end(connection: &mut Connection, partition_index: i32) -> i64 {
    let partition = ListOffsetsPartition { partition_index, timestamp: -1, ..Default::default() };
    let topics = vec![ListOffsetsTopic { name: TOPIC.into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    wait_for("the partition's leader", || {
        let answer = &connection.call(5, &request).topics[0].partitions[0];
        (answer.error_code == 0).then_some(answer.offset)
    })
}

fn committed(connection: &mut Connection) -> i64 {
    let topic = OffsetFetchRequestTopic { name: TOPIC.into(), partition_indexes: vec![0] };
    let request =
        OffsetFetchRequest { group_id: GROUP.into(), topics: Some(vec![topic]), ..Default::default() };
    wait_for("the group's offsets", || {
        let response = connection.call(7, &request);
        let answer = (response.error_code == 0).then(|| &response.topics[0].partitions[0])?;
        (answer.error_code == 0).then_some(answer.committed_offset)
    })
}

/// All values of a partition by offset; panics unless the offsets begin at 0 and leave none out.
fn read_all(connection: &mut Connection, partition: i32) -> BTreeMap<i64, String> {
    let (end, mut stored) = (log_end(connection, partition), BTreeMap::new());
    let mut next = 0;
    while next < end {
        for batch in fetch(connection, partition, next) {
            for (offset, value) in (batch.base_offset..).zip(values(&batch)) {
                assert_eq!(offset, next, "the offsets of partition {partition}");
                stored.insert(offset, value);
                next += 1;
            }
        }
    }
    stored
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

/// Kafka's tool finds nothing to object to in the segments, indexes and snapshots.
fn check_files(data_dir: &Path) {
    let logs = ["kept-0", "kept-1", "kept-2", "__consumer_offsets-0"];
    let files: Vec<PathBuf> = logs.iter().flat_map(|log| files(&data_dir.join(log))).collect();
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    // Not in a session of tools: its class loaders keep the tool from its decoders.
    let output = kafka_tool("3.9.2", "kafka-dump-log")
        .args(["--deep-iteration", "--files", &names.join(",")])
        .output()
        .expect("run peers/kafka-tool");
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "kafka-dump-log: {}\n{stderr}", output.status);
    let complaints: Vec<&str> =
        stdout.lines().chain(stderr.lines()).filter(|line| is_complaint(line)).collect();
    assert!(complaints.is_empty(), "kafka-dump-log:\n{}", complaints.join("\n"));
    for (file, name) in files.iter().zip(&names) {
        assert!(stdout.contains(&format!("Dumping {name}\n")), "{} was not read", file.display());
    }
    let segments = files.iter().filter(|file| file.extension().is_some_and(|end| end == "log")).count();
    assert!(segments > logs.len() && stdout.contains("isvalid: true"), "{segments} segments\n{stdout}");
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("read {}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("read a folder").path()).collect();
    let known = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("log" | "index" | "timeindex" | "snapshot"))
    };
    files.retain(known);
    files.sort_unstable();
    files
}

fn is_complaint(line: &str) -> bool {
    let line = line.to_lowercase();
    let signs = [
        "isvalid: false",
        "mismatch",
        "non-consecutive",
        "out of order",
        "invalid",
        "corrupt",
        "exception",
        "error",
        "not found",
    ];
    signs.iter().any(|sign| line.contains(sign))
}
