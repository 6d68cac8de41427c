//! A transactional producer that goes on whatever happens to its connection and its broker.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol_tests::batch::{Batch, Record};
use protocol_tests::requests::produce_request;
use protocol_tests::{Connection, wait_for};
use wire::Request;
use wire::add_offsets_to_txn_request::AddOffsetsToTxnRequest;
use wire::add_partitions_to_txn_request::{AddPartitionsToTxnRequest, AddPartitionsToTxnTopic};
use wire::end_txn_request::EndTxnRequest;
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::init_producer_id_request::InitProducerIdRequest;
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestTopic};
use wire::txn_offset_commit_request::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use wire::update_features_request::{FeatureUpdateKey, UpdateFeaturesRequest};

use crate::TRANSACTION_TIMEOUT_MS;

/// How clients speak of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    Classic,
    /// KIP-890
    EpochBump,
}

/// The transaction cannot be committed any more, and was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp;

/// Nothing is asked for longer than this.
const PATIENCE: Duration = Duration::from_secs(120);
/// As clients wait before they connect again. What a connection carried when it ended is still handled by the broker, and
/// in the classic protocol an end that is overtaken by its repetition would end the next transaction.
const BACK_OFF: Duration = Duration::from_millis(100);
const TRANSACTIONAL: i16 = 0x10;

pub struct Client {
    address: String,
    id: String,
    generation: Generation,
    connection: Option<Connection>,
    producer_id: i64,
    epoch: i16,
    /// The next one of each partition.
    sequences: HashMap<(String, i32), i32>,
}

/// What an answer asks a client to do.
enum Verdict {
    Done,
    Again,
    GiveUp,
}

impl Verdict {
    #[track_caller]
    fn of(what: &str, code: i16) -> Verdict {
        match code {
            0 => Verdict::Done,
            // Unknown topic, no leader, timed out, no coordinator, not enough replicas, storage, concurrent transactions.
            3 | 5 | 6 | 7 | 13 | 14 | 15 | 16 | 19 | 51 | 56 => Verdict::Again,
            // Fenced, not in a transaction.
            47 | 48 | 49 | 90 | 120 => Verdict::GiveUp,
            code => panic!("{what} is answered {code}"),
        }
    }
}

impl Client {
    pub fn new(address: &str, id: &str, generation: Generation) -> Client {
        Client {
            address: address.to_owned(),
            id: id.to_owned(),
            generation,
            connection: None,
            producer_id: -1,
            epoch: -1,
            sequences: HashMap::new(),
        }
    }

    pub fn is_ready(&self) -> bool {
        self.producer_id >= 0
    }

    /// Takes a new epoch, and so ends what this id had open.
    pub fn init(&mut self) {
        let find = FindCoordinatorRequest { key: self.id.as_str().into(), key_type: 1, ..Default::default() };
        let request = InitProducerIdRequest {
            transactional_id: Some(self.id.as_str().into()),
            transaction_timeout_ms: TRANSACTION_TIMEOUT_MS,
            ..Default::default()
        };
        self.repeat("FindCoordinator", 3, &find, |response| response.error_code).expect("nobody fences this");
        let response = self.repeat("InitProducerId", 4, &request, |response| response.error_code);
        let response = response.expect("a new epoch is fenced by nobody: each worker has an id of its own");
        (self.producer_id, self.epoch) = (response.producer_id, response.producer_epoch);
        self.sequences.clear();
    }

    /// Adds the partitions, where that is asked for.
    pub fn begin(&mut self, topic: &str, partitions: &[i32]) -> Result<(), GivenUp> {
        if self.generation == Generation::EpochBump {
            return Ok(());
        }
        let topics = vec![AddPartitionsToTxnTopic { name: topic.into(), partitions: partitions.to_vec() }];
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.id.as_str().into(),
            v3_and_below_producer_id: self.producer_id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: topics,
            ..Default::default()
        };
        let added = self.repeat("AddPartitionsToTxn", 3, &request, |response| {
            let topics = &response.results_by_topic_v3_and_below;
            let codes = topics.iter().flat_map(|topic| &topic.results_by_partition);
            codes.map(|partition| partition.partition_error_code).find(|code| *code != 0).unwrap_or(0)
        });
        added.map(drop)
    }

    /// Writes one batch of these records, and gives the offset of the first.
    pub fn append(
        &mut self,
        topic: &str,
        partition: i32,
        records: &[(String, String)],
    ) -> Result<i64, GivenUp> {
        let place = (topic.to_owned(), partition);
        let base_sequence = *self.sequences.get(&place).unwrap_or(&0);
        let records: Vec<Record> =
            (0..).zip(records).map(|(delta, (key, value))| record(delta, key, value)).collect();
        let next = base_sequence + records.len() as i32;
        let batch = Batch {
            attributes: TRANSACTIONAL,
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            base_sequence,
            records,
            ..Batch::default()
        };
        let mut request = produce_request(topic, -1, vec![(partition, batch.encode())]);
        request.transactional_id = Some(self.id.as_str().into());
        let version = if self.generation == Generation::EpochBump { 12 } else { 9 };
        let response = self.repeat("Produce", version, &request, |response| {
            response.responses[0].partition_responses[0].error_code
        })?;
        self.sequences.insert(place, next);
        Ok(response.responses[0].partition_responses[0].base_offset)
    }

    /// Commits, with the transaction, where the group goes on.
    pub fn commit_position(
        &mut self,
        group: &str,
        topic: &str,
        partition_index: i32,
        committed_offset: i64,
    ) -> Result<(), GivenUp> {
        if self.generation == Generation::Classic {
            let request = AddOffsetsToTxnRequest {
                transactional_id: self.id.as_str().into(),
                producer_id: self.producer_id,
                producer_epoch: self.epoch,
                group_id: group.into(),
            };
            self.repeat("AddOffsetsToTxn", 3, &request, |response| response.error_code)?;
        }
        let partition = TxnOffsetCommitRequestPartition {
            partition_index,
            committed_offset,
            committed_metadata: Some("".into()),
            ..Default::default()
        };
        let request = TxnOffsetCommitRequest {
            transactional_id: self.id.as_str().into(),
            group_id: group.into(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            generation_id: -1,
            topics: vec![TxnOffsetCommitRequestTopic { name: topic.into(), partitions: vec![partition] }],
            ..Default::default()
        };
        let version = if self.generation == Generation::EpochBump { 5 } else { 3 };
        let committed = self.repeat("TxnOffsetCommit", version, &request, |response| {
            response.topics[0].partitions[0].error_code
        });
        committed.map(drop)
    }

    /// Where the group goes on, once nothing is open; 0 = at the start.
    pub fn position(&mut self, group: &str, topic: &str, partition: i32) -> i64 {
        let topic = OffsetFetchRequestTopic { name: topic.into(), partition_indexes: vec![partition] };
        let request = OffsetFetchRequest {
            group_id: group.into(),
            topics: Some(vec![topic]),
            require_stable: true,
            ..Default::default()
        };
        let response = self.repeat("OffsetFetch", 7, &request, |response| {
            match (response.error_code, response.topics.first()) {
                (0, Some(topic)) => match topic.partitions[0].error_code {
                    // The end of the transaction before is on its way.
                    88 => 51,
                    code => code,
                },
                (code, _) => code,
            }
        });
        response.expect("an offset is not fenced").topics[0].partitions[0].committed_offset.max(0)
    }

    /// Commits or aborts; repeated until it is answered.
    pub fn end(&mut self, committed: bool) -> Result<(), GivenUp> {
        let request = EndTxnRequest {
            transactional_id: self.id.as_str().into(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            committed,
        };
        let version = if self.generation == Generation::EpochBump { 5 } else { 3 };
        let response = self.repeat("EndTxn", version, &request, |response| response.error_code)?;
        if self.generation == Generation::EpochBump {
            (self.producer_id, self.epoch) = (response.producer_id, response.producer_epoch);
            self.sequences.clear();
        }
        Ok(())
    }

    /// Forgets its epoch: the next one begins anew.
    pub fn give_up(&mut self) {
        self.producer_id = -1;
    }

    /// Asks until there is an answer other than "come again".
    fn repeat<R: Request>(
        &mut self,
        what: &str,
        version: i16,
        request: &R,
        code_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, GivenUp> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "{what} of {} gets no answer", self.id);
            let limit = self.patience();
            let Some(connection) = open(&mut self.connection, &self.address, limit) else { continue };
            let Ok(response) = connection.try_call(version, request) else {
                self.connection = None;
                std::thread::sleep(BACK_OFF);
                continue;
            };
            match Verdict::of(what, code_of(&response)) {
                Verdict::Done => return Ok(response),
                // Only keeps the question from eating the processor.
                Verdict::Again => std::thread::sleep(Duration::from_millis(2)),
                Verdict::GiveUp => return Err(GivenUp),
            }
        }
    }

    /// How long an answer is waited for before it is asked for again over another connection. In the classic protocol
    /// the first request may then end the next transaction (KIP-890 tells of it): it is waited for longer than any
    /// fault lasts.
    fn patience(&self) -> Duration {
        match self.generation {
            Generation::Classic => Duration::from_secs(30),
            Generation::EpochBump => Duration::from_secs(1),
        }
    }
}

/// The connection, opened where there is none; `None` while nobody listens.
pub fn open<'a>(
    connection: &'a mut Option<Connection>,
    address: &str,
    limit: Duration,
) -> Option<&'a mut Connection> {
    if connection.is_none() {
        *connection = Connection::try_open(address);
        match connection {
            Some(connection) => connection.set_limit(limit),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    connection.as_mut()
}

fn record(offset_delta: i32, key: &str, value: &str) -> Record {
    let bytes = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let timestamp = i64::try_from(since.as_millis()).unwrap_or(0);
    Record { offset_delta, timestamp, key: bytes(key), value: bytes(value), headers: Vec::new() }
}

/// Sets the level at which clients of this generation work.
pub fn set_generation(connection: &mut Connection, generation: Generation) {
    if generation == Generation::EpochBump {
        let update = FeatureUpdateKey {
            feature: "transaction.version".into(),
            max_version_level: 2,
            ..Default::default()
        };
        let request = UpdateFeaturesRequest { feature_updates: vec![update], ..Default::default() };
        assert_eq!(connection.call(1, &request).error_code, 0);
    }
}

pub fn wait_until_stable(connection: &mut Connection, topic: &str, partitions: i32) {
    for partition in 0..partitions {
        wait_for("the last stable offset", || {
            // A broker that starts may not have loaded the partition yet, and knows neither offset then.
            let data = connection.fetch_partition(topic, partition, 0);
            (data.error_code == 0 && data.last_stable_offset == data.high_watermark).then_some(())
        });
    }
}
