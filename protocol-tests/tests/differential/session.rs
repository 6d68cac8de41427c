use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use protocol_tests::batch::{self, Batch};
use protocol_tests::{CallError, Connection, wait_for};
use wire::api_versions_request::ApiVersionsRequest;
use wire::create_topics_request::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::metadata_request::{MetadataRequest, MetadataRequestTopic};
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::{ApiKey, Request, Uuid};

use crate::fields::{self, Field};

/// All answers of one server, in the order of the script: what was asked, and the fields of the answer.
pub type Transcript = BTreeMap<String, Vec<Field>>;

/// One case of the script: some questions about one API, asked in each version.
pub struct Case {
    pub name: &'static str,
    pub api: ApiKey,
    /// As far as the server knows them.
    pub versions: RangeInclusive<i16>,
    pub run: fn(&mut Session, i16),
}

/// The script's connection to one server.
pub struct Session {
    address: String,
    connection: Connection,
    versions: BTreeMap<i16, RangeInclusive<i16>>,
    label: String,
    transcript: Transcript,
}

/// What a server did that owes an answer still: Kafka has such faults.
pub const NO_ANSWER: &str = "no answer";

/// Nothing that the script asks for takes longer than its own timeouts.
const LIMIT: Duration = Duration::from_secs(120);

fn connect(address: &str) -> Connection {
    let mut connection = Connection::open(address);
    connection.set_limit(LIMIT);
    connection
}

/// Create times of all records: a fixed moment in 2017.
pub const T0: i64 = 1_500_000_000_000;

impl Session {
    pub fn new(address: &str) -> Session {
        let mut connection = connect(address);
        let response = connection.call(0, &ApiVersionsRequest::default());
        let versions =
            response.api_keys.iter().map(|api| (api.api_key, api.min_version..=api.max_version)).collect();
        let (label, transcript) = (String::new(), Transcript::new());
        Session { address: address.to_owned(), connection, versions, label, transcript }
    }

    pub fn run(&mut self, case: &Case) {
        let Some(known) = self.versions.get(&(case.api as i16)).cloned() else { return };
        for version in case.versions.clone().filter(|version| known.contains(version)) {
            self.label = format!("{:?} v{version} {}", case.api, case.name);
            (case.run)(self, version);
        }
    }

    pub fn into_transcript(self) -> Transcript {
        self.transcript
    }

    /// Asks and notes the answer under `what`. A server that closes the connection has answered too.
    #[track_caller]
    pub fn ask<R: Request>(&mut self, what: &str, version: i16, request: &R) -> Option<R::Response>
    where
        R::Response: Debug,
    {
        self.ask_and(what, version, request, |_| ())
    }

    /// As [`Session::ask`]; `tidy` puts in order what a server may answer in any order.
    #[track_caller]
    pub fn ask_and<R: Request>(
        &mut self,
        what: &str,
        version: i16,
        request: &R,
        tidy: impl FnOnce(&mut R::Response),
    ) -> Option<R::Response>
    where
        R::Response: Debug,
    {
        match self.connection.try_call(version, request) {
            Ok(mut response) => {
                tidy(&mut response);
                self.note(what, fields::of(&format!("{response:#?}")));
                Some(response)
            }
            Err(CallError::Closed) => {
                self.note(what, vec![("connection".into(), "closed".into())]);
                self.connection = connect(&self.address);
                None
            }
            Err(CallError::NoAnswer) => {
                self.note(what, vec![("connection".into(), NO_ANSWER.into())]);
                self.connection = connect(&self.address);
                None
            }
            Err(CallError::Malformed(why)) => panic!("{}: {what}: {why}", self.label),
        }
    }

    /// For a question that some server never answers: waits for little more than a moment.
    #[track_caller]
    pub fn briefly(&mut self, ask: impl FnOnce(&mut Session)) {
        self.connection.set_limit(Duration::from_secs(5));
        ask(self);
        self.connection.set_limit(LIMIT);
    }

    /// Asks without a note: for what a case only needs on its way.
    #[track_caller]
    pub fn quietly<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let label = self.label.clone();
        self.connection
            .try_call(version, request)
            .unwrap_or_else(|error| panic!("{label}: {}: {error:?}", R::NAME))
    }

    #[track_caller]
    pub fn note(&mut self, what: &str, answer: Vec<Field>) {
        let label = format!("{}: {what}", self.label);
        assert!(!self.transcript.contains_key(&label), "asked twice: {label}");
        self.transcript.insert(label, answer);
    }

    /// A second connection, for what has to wait beside the first.
    pub fn connect(&self) -> Connection {
        Connection::open(&self.address)
    }

    /// A name that no other case and version uses.
    pub fn name(&self, suffix: &str) -> String {
        let label: String =
            self.label.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!("{label}-{suffix}").to_lowercase()
    }

    /// Makes a topic and waits until it has leaders.
    #[track_caller]
    pub fn topic(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> String {
        let configs = configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig { name: (*name).into(), value: Some((*value).into()) })
            .collect();
        let (num_partitions, replication_factor) = (partitions, 1);
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions,
            replication_factor,
            configs,
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
        let response = self.quietly(4, &request);
        assert_eq!(response.topics[0].error_code, 0, "create {name}: {response:?}");
        let partition =
            |partition_index| ListOffsetsPartition { partition_index, timestamp: -1, ..Default::default() };
        let topics = vec![ListOffsetsTopic {
            name: name.into(),
            partitions: (0..partitions).map(partition).collect(),
        }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        // The metadata may tell of leaders that do not know themselves yet.
        wait_for("a new topic to have leaders", || {
            let topic = &self.quietly(4, &request).topics[0];
            topic.partitions.iter().all(|partition| partition.error_code == 0).then_some(())
        });
        name.to_owned()
    }

    /// Makes the topic of the committed offsets, which comes with the first search for a coordinator.
    #[track_caller]
    pub fn offsets_topic(&mut self) {
        let request = FindCoordinatorRequest { key: "any".into(), ..Default::default() };
        wait_for("a coordinator", || (self.quietly(1, &request).error_code == 0).then_some(()));
    }

    fn about(&self, topic: &str) -> MetadataRequest {
        let topic = MetadataRequestTopic { name: Some(topic.into()), ..Default::default() };
        MetadataRequest { topics: Some(vec![topic]), allow_auto_topic_creation: false, ..Default::default() }
    }

    #[track_caller]
    pub fn topic_id(&mut self, name: &str) -> Uuid {
        let request = self.about(name);
        self.quietly(10, &request).topics[0].topic_id
    }

    /// Appends a batch and gives its first offset. A leader that does not know itself yet is asked again.
    #[track_caller]
    pub fn append(&mut self, topic: &str, partition: i32, batch: &Batch) -> i64 {
        let records = Some(batch.encode().into());
        let partition_data = vec![PartitionProduceData { index: partition, records }];
        let topic_data = vec![TopicProduceData { name: topic.into(), partition_data, ..Default::default() }];
        let request = ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data, ..Default::default() };
        wait_for("a leader to take a batch", || {
            let answer = self.quietly(7, &request).responses.first()?.partition_responses.first()?.clone();
            let is_early = matches!(answer.error_code, 3 | 6);
            assert!(is_early || answer.error_code == 0, "append to {topic}-{partition}: {answer:?}");
            (answer.error_code == 0).then_some(answer.base_offset)
        })
    }

    /// A topic of one partition with four batches of five records each, at offsets 0, 5, 10, 15.
    #[track_caller]
    pub fn filled_topic(&mut self, name: &str) -> String {
        let topic = self.topic(name, 1, &[]);
        for i in 0..4 {
            self.append(&topic, 0, &Batch::of(&format!("b{i}"), 5, T0 + 1_000 * i));
        }
        topic
    }
}

/// What record data holds, as fields; a cut batch at the end is left out.
#[track_caller]
pub fn batches(records: Option<&wire::Records>) -> Vec<Field> {
    let Some(wire::Records::Bytes(bytes)) = records else { return Vec::new() };
    let mut fields = Vec::new();
    for (index, batch) in batch::read(bytes).iter().enumerate() {
        let epoch = batch.leader_epoch;
        let head = format!(
            "{} {:?} {} {} {}",
            batch.base_offset, batch.codec, batch.attributes, epoch, batch.base_sequence
        );
        fields.push((format!("batch[{index}]"), head));
        for record in &batch.records {
            let offset = batch.base_offset + i64::from(record.offset_delta);
            let text =
                format!("{} {:?} {:?} {:?}", record.timestamp, record.key, record.value, record.headers);
            fields.push((format!("record[{offset}]"), text));
        }
    }
    fields
}
