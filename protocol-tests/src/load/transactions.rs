use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use wire::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use wire::fetch_request::{FetchPartition, FetchTopic};
use wire::update_features_request::FeatureUpdateKey;
use wire::{
    AddPartitionsToTxnRequest, EndTxnRequest, FetchRequest, FindCoordinatorRequest, InitProducerIdRequest,
    Records, UpdateFeaturesRequest,
};

use super::error::check;
use super::latency::histogram;
use super::requests::{FETCH_VERSION, PRODUCE_VERSION, Patience, produce_request};
use super::{LoadConnection, LoadError};
use crate::batch::{self, Batch, Record};

/// Transactions that write one record to each partition of a topic, and commit.
#[derive(Clone, Debug)]
pub struct Transactions {
    pub topic: String,
    pub partitions: i32,
    pub generation: Generation,
    pub record_bytes: usize,
}

/// How a producer speaks of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Partitions are added by a request of their own, as all clients before Kafka 4 do.
    Classic,
    /// Partitions are added by writing to them, and the epoch grows with each end (KIP-890).
    EpochBump,
}

/// What producers did that work at once.
#[derive(Clone, Debug)]
pub struct Commits {
    pub per_s: f64,
    /// From the first request of a transaction to the answer to its end, in microseconds.
    pub latencies: Histogram<u64>,
}

const CONTROL: i16 = 0x20;
const TRANSACTIONAL: i16 = 0x10;
const COORDINATOR_OF_TRANSACTIONS: i8 = 1;

/// Raises or lowers `transaction.version`; a broker that has the level already says so by no error.
pub async fn set_transaction_version(address: &str, level: i16) -> Result<(), LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    let update = FeatureUpdateKey {
        feature: "transaction.version".into(),
        max_version_level: level,
        ..Default::default()
    };
    let request =
        UpdateFeaturesRequest { feature_updates: vec![update], timeout_ms: 60_000, ..Default::default() };
    check("change transaction.version", connection.call(1, &request).await?.error_code)
}

/// `producers` at once, each with a connection and a transactional id of its own, one transaction after the other.
/// What is answered in the first `warm_up` is not counted. The topic exists.
pub async fn commit_at_full_rate(
    address: &str,
    load: &Transactions,
    producers: usize,
    warm_up: Duration,
    measured: Duration,
) -> Result<Commits, LoadError> {
    let mut all = Vec::with_capacity(producers);
    for index in 0..producers {
        all.push(Producer::open(address, load, &format!("{}-{index}", load.topic)).await?);
    }
    let from = Instant::now() + warm_up;
    let until = from + measured;
    let mut running = JoinSet::new();
    for mut producer in all {
        running.spawn(async move {
            let mut latencies = histogram();
            loop {
                let started = Instant::now();
                producer.commit_one().await?;
                let ended = Instant::now();
                if ended >= until {
                    return Ok(latencies);
                }
                if ended >= from {
                    latencies.saturating_record((ended - started).as_micros() as u64);
                }
            }
        });
    }
    let mut latencies = histogram();
    while let Some(ended) = running.join_next().await {
        let of_one: Result<Histogram<u64>, LoadError> = ended.unwrap_or_else(|error| {
            Err(LoadError::Wrong { what: format!("a transactional producer: {error}") })
        });
        // Both have the same bounds.
        let _ = latencies.add(of_one?);
    }
    Ok(Commits { per_s: latencies.len() as f64 / measured.as_secs_f64(), latencies })
}

/// From the first request of a transaction until a reader of committed records has all of it, in microseconds; one
/// transaction after the other, of which the first `warm_up` are not counted. The topic exists and is empty.
pub async fn read_one_at_a_time(
    address: &str,
    load: &Transactions,
    warm_up: usize,
    count: usize,
) -> Result<Histogram<u64>, LoadError> {
    let mut producer = Producer::open(address, load, &format!("{}-single", load.topic)).await?;
    let mut reader = Reader::open(address, load).await?;
    let mut latencies = histogram();
    for done in 0..warm_up + count {
        let started = Instant::now();
        tokio::try_join!(producer.commit_one(), reader.read_one_each())?;
        if done >= warm_up {
            latencies.saturating_record(started.elapsed().as_micros() as u64);
        }
    }
    Ok(latencies)
}

/// A transactional id's connection to its coordinator.
pub(super) async fn open_coordinator(address: &str, id: &str) -> Result<LoadConnection, LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    let patience = Patience::to_see("a transaction coordinator");
    let find = FindCoordinatorRequest {
        key: id.into(),
        key_type: COORDINATOR_OF_TRANSACTIONS,
        ..Default::default()
    };
    while connection.call(3, &find).await?.error_code != 0 {
        patience.pause().await?;
    }
    Ok(connection)
}

/// The producer id and epoch of a transactional id, once its coordinator is ready.
pub(super) async fn init(connection: &mut LoadConnection, id: &str) -> Result<(i64, i16), LoadError> {
    let request = InitProducerIdRequest {
        transactional_id: Some(id.into()),
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    let patience = Patience::to_see("a producer id");
    loop {
        let response = connection.call(4, &request).await?;
        match response.error_code {
            0 => return Ok((response.producer_id, response.producer_epoch)),
            // The coordinator is not ready, or ends the transaction before.
            14..=16 | 51 => patience.pause().await?,
            code => return Err(LoadError::Refused { what: "ask for a producer id", code }),
        }
    }
}

struct Producer {
    connection: LoadConnection,
    load: Transactions,
    id: String,
    producer_id: i64,
    epoch: i16,
    /// The next one, in every partition.
    sequence: i32,
    value: Bytes,
}

impl Producer {
    async fn open(address: &str, load: &Transactions, id: &str) -> Result<Producer, LoadError> {
        let mut connection = open_coordinator(address, id).await?;
        let (producer_id, epoch) = init(&mut connection, id).await?;
        Ok(Producer {
            connection,
            load: load.clone(),
            id: id.to_owned(),
            producer_id,
            epoch,
            sequence: 0,
            value: Bytes::from(vec![b'x'; load.record_bytes]),
        })
    }

    async fn commit_one(&mut self) -> Result<(), LoadError> {
        if self.load.generation == Generation::Classic {
            self.add_partitions().await?;
        }
        self.write().await?;
        self.end().await
    }

    async fn add_partitions(&mut self) -> Result<(), LoadError> {
        let partitions = (0..self.load.partitions).collect();
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.id.as_str().into(),
            v3_and_below_producer_id: self.producer_id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                name: self.load.topic.as_str().into(),
                partitions,
            }],
            ..Default::default()
        };
        loop {
            let response = self.connection.call(3, &request).await?;
            let results = response.results_by_topic_v3_and_below.iter();
            let mut codes = results
                .flat_map(|topic| &topic.results_by_partition)
                .map(|partition| partition.partition_error_code);
            match codes.find(|code| *code != 0) {
                None => return Ok(()),
                // The end of the transaction before is on its way.
                Some(51) => pause().await,
                Some(code) => return Err(LoadError::Refused { what: "add partitions", code }),
            }
        }
    }

    async fn write(&mut self) -> Result<(), LoadError> {
        let batch = self.batch();
        let batches = (0..self.load.partitions).map(|partition| (partition, batch.clone()));
        let mut request = produce_request(&self.load.topic, batches, -1);
        request.transactional_id = Some(self.id.as_str().into());
        let version = match self.load.generation {
            Generation::Classic => PRODUCE_VERSION,
            Generation::EpochBump => 12,
        };
        loop {
            let response = self.connection.call(version, &request).await?;
            let answers = response.responses.iter().flat_map(|topic| &topic.partition_responses);
            match answers.map(|answer| answer.error_code).find(|code| *code != 0) {
                None => {
                    self.sequence += 1;
                    return Ok(());
                }
                Some(19 | 51) => pause().await,
                Some(code) => return Err(LoadError::Refused { what: "produce in a transaction", code }),
            }
        }
    }

    fn batch(&self) -> Bytes {
        let record = Record {
            timestamp: super::requests::now_ms(),
            value: Some(self.value.clone()),
            ..Record::default()
        };
        let batch = Batch {
            attributes: TRANSACTIONAL,
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            base_sequence: self.sequence,
            records: vec![record],
            ..Batch::default()
        };
        batch.encode()
    }

    async fn end(&mut self) -> Result<(), LoadError> {
        let request = EndTxnRequest {
            transactional_id: self.id.as_str().into(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            committed: true,
        };
        let version = match self.load.generation {
            Generation::Classic => 3,
            Generation::EpochBump => 5,
        };
        let response = self.connection.call(version, &request).await?;
        check("commit", response.error_code)?;
        if self.load.generation == Generation::EpochBump {
            (self.producer_id, self.epoch) = (response.producer_id, response.producer_epoch);
            self.sequence = 0;
        }
        Ok(())
    }
}

/// What a client does that is told to come again.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// A reader of committed records.
struct Reader {
    connection: LoadConnection,
    topic: String,
    /// Where each partition is read next.
    positions: Vec<i64>,
}

impl Reader {
    async fn open(address: &str, load: &Transactions) -> Result<Reader, LoadError> {
        let connection = LoadConnection::open(address).await?;
        let positions = vec![0; usize::try_from(load.partitions).unwrap_or(0)];
        Ok(Reader { connection, topic: load.topic.clone(), positions })
    }

    /// Waits for one record of each partition.
    async fn read_one_each(&mut self) -> Result<(), LoadError> {
        let mut seen = vec![false; self.positions.len()];
        while seen.iter().any(|seen| !seen) {
            let response = self.connection.call(FETCH_VERSION, &self.request()).await?;
            check("fetch", response.error_code)?;
            for answer in response.responses.into_iter().flat_map(|topic| topic.partitions) {
                check("fetch", answer.error_code)?;
                let Some(Records::Bytes(bytes)) = &answer.records else { continue };
                let at = usize::try_from(answer.partition_index).unwrap_or(usize::MAX);
                let (Some(position), Some(seen)) = (self.positions.get_mut(at), seen.get_mut(at)) else {
                    return Err(LoadError::Wrong { what: "Fetch answers for other partitions".to_owned() });
                };
                for batch in batch::read(bytes) {
                    let end = batch.base_offset + i64::from(batch.last_offset_delta.unwrap_or(0)) + 1;
                    *seen |= batch.attributes & CONTROL == 0 && end > *position;
                    *position = end.max(*position);
                }
            }
        }
        Ok(())
    }

    fn request(&self) -> FetchRequest {
        let partition = |(partition, &fetch_offset)| FetchPartition {
            partition,
            fetch_offset,
            partition_max_bytes: 1 << 16,
            ..Default::default()
        };
        let partitions = (0..).zip(&self.positions).map(partition).collect();
        FetchRequest {
            replica_id: -1,
            max_wait_ms: 30_000,
            min_bytes: 1,
            max_bytes: i32::MAX,
            isolation_level: 1,
            topics: vec![FetchTopic { topic: self.topic.as_str().into(), partitions, ..Default::default() }],
            ..Default::default()
        }
    }
}
