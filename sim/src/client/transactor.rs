use std::time::Duration;

use barnabas::model::{ProducerEpoch, ProducerId};
use barnabas::records::BatchBuilder;
use tokio::time::sleep;
use wire::add_partitions_to_txn_request::{AddPartitionsToTxnRequest, AddPartitionsToTxnTopic};
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::{EndTxnRequest, InitProducerIdRequest};

use super::Client;
use crate::history::{Ending, History};
use crate::switch::Switch;
use crate::trace::SimTime;

/// A transactional producer: each transaction writes to all partitions, and is committed or aborted.
pub struct Transactor {
    pub client: Client,
    pub name: String,
    pub topic: &'static str,
    pub partitions: i32,
    pub history: History,
    pub time: SimTime,
    pub is_over: Switch,
}

/// One epoch of the producer. Whatever is unclear ends it.
struct Epoch {
    coordinator: String,
    id: ProducerId,
    epoch: ProducerEpoch,
    sequences: Vec<i32>,
}

const NONE: i16 = 0;
const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
const COORDINATOR_NOT_AVAILABLE: i16 = 15;
const NOT_COORDINATOR: i16 = 16;
const CONCURRENT_TRANSACTIONS: i16 = 51;

impl Transactor {
    pub async fn run(mut self) {
        let mut epoch = None;
        let mut number = 0;
        while !self.is_over.is_set() {
            let pause = self.client.random().number(0..800);
            sleep(Duration::from_millis(pause)).await;
            let Some(mut current) = epoch.take() else {
                epoch = self.begin_epoch().await;
                continue;
            };
            let name = format!("{}-t{number}", self.name);
            number += 1;
            if self.transaction(&mut current, &name).await.is_some() {
                epoch = Some(current);
            }
        }
        // Whatever is open is decided before the logs are looked at.
        for _ in 0..600 {
            if self.begin_epoch().await.is_some() {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
        self.history.violation(format!("{} gets no new epoch", self.name));
    }

    async fn begin_epoch(&mut self) -> Option<Epoch> {
        let coordinator = self.client.coordinator(&self.name, 1).await?;
        let request = InitProducerIdRequest {
            transactional_id: Some(self.name.as_str().into()),
            transaction_timeout_ms: 10_000,
            ..Default::default()
        };
        let response = self.client.call(&coordinator, 3, &request).await?;
        (response.error_code == NONE).then(|| Epoch {
            coordinator,
            id: ProducerId(response.producer_id),
            epoch: ProducerEpoch(response.producer_epoch),
            sequences: vec![0; self.partitions as usize],
        })
    }

    /// `None` where this epoch of the producer cannot go on.
    async fn transaction(&mut self, epoch: &mut Epoch, name: &str) -> Option<()> {
        self.history.ended(name, Ending::Aborted);
        self.add_partitions(epoch).await?;
        for partition in 0..self.partitions {
            let count = self.client.random().number(0..=2) as i32;
            if count > 0 {
                self.produce(epoch, name, partition, count).await?;
            }
        }
        let is_committed = self.client.random().number(0..4) > 0;
        if is_committed {
            self.history.ended(name, Ending::Unknown);
        }
        let request = EndTxnRequest {
            transactional_id: self.name.as_str().into(),
            producer_id: epoch.id.0,
            producer_epoch: epoch.epoch.0,
            committed: is_committed,
        };
        for _ in 0..50 {
            let response = self.client.call(&epoch.coordinator, 2, &request).await;
            match response.map(|response| response.error_code) {
                Some(NONE) => {
                    if is_committed {
                        self.history.ended(name, Ending::Committed);
                    }
                    return Some(());
                }
                None
                | Some(
                    COORDINATOR_LOAD_IN_PROGRESS
                    | COORDINATOR_NOT_AVAILABLE
                    | NOT_COORDINATOR
                    | CONCURRENT_TRANSACTIONS,
                ) => {
                    sleep(Duration::from_millis(100)).await;
                    if let Some(coordinator) = self.client.coordinator(&self.name, 1).await {
                        epoch.coordinator = coordinator;
                    }
                }
                Some(_) => return None,
            }
        }
        None
    }

    async fn add_partitions(&mut self, epoch: &Epoch) -> Option<()> {
        let topic =
            AddPartitionsToTxnTopic { name: self.topic.into(), partitions: (0..self.partitions).collect() };
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.name.as_str().into(),
            v3_and_below_producer_id: epoch.id.0,
            v3_and_below_producer_epoch: epoch.epoch.0,
            v3_and_below_topics: vec![topic],
            ..Default::default()
        };
        // The transaction before may still be ending.
        for _ in 0..50 {
            let response = self.client.call(&epoch.coordinator, 1, &request).await?;
            let results = &response.results_by_topic_v3_and_below.first()?.results_by_partition;
            let code = results.iter().map(|result| result.partition_error_code).find(|code| *code != NONE);
            match code {
                None => return Some(()),
                Some(CONCURRENT_TRANSACTIONS) => sleep(Duration::from_millis(50)).await,
                Some(_) => return None,
            }
        }
        None
    }

    async fn produce(&mut self, epoch: &mut Epoch, name: &str, partition: i32, count: i32) -> Option<()> {
        let sequence = epoch.sequences.get_mut(partition as usize)?;
        let mut batch = BatchBuilder::new().producer(epoch.id, epoch.epoch, *sequence).transactional();
        for number in 0..count {
            let payload = format!("{name}-{partition}-{number}");
            batch.append(self.time.wall(), None, Some(payload.as_bytes()), &[]);
            self.history.wrote(name, partition, &payload);
        }
        *sequence += count;
        let records = batch.build();
        for _ in 0..20 {
            let Some(host) = self.client.leader(self.topic, partition).await else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let data = PartitionProduceData { index: partition, records: Some(records.clone().into()) };
            let topic = TopicProduceData {
                name: self.topic.into(),
                partition_data: vec![data],
                ..Default::default()
            };
            let request = ProduceRequest {
                transactional_id: Some(self.name.as_str().into()),
                acks: -1,
                timeout_ms: 5_000,
                topic_data: vec![topic],
            };
            let response = self.client.call(&host, 8, &request).await;
            let answer = response
                .as_ref()
                .and_then(|response| response.responses.first()?.partition_responses.first());
            match answer.map(|answer| answer.error_code) {
                // 46 = it was stored before.
                Some(NONE | 46) => return Some(()),
                // Fenced, out of order, not in the transaction.
                Some(45 | 47 | 48 | 49 | 59 | 90 | 120) => return None,
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
        None
    }
}
