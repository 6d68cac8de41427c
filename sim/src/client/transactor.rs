use std::collections::BTreeSet;
use std::time::Duration;

use barnabas::model::{ProducerEpoch, ProducerId};
use barnabas::records::BatchBuilder;
use tokio::time::sleep;
use wire::add_partitions_to_txn_request::{AddPartitionsToTxnRequest, AddPartitionsToTxnTopic};
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestTopic};
use wire::txn_offset_commit_request::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use wire::{AddOffsetsToTxnRequest, EndTxnRequest, InitProducerIdRequest};

use super::Client;
use super::code::{
    CONCURRENT_TRANSACTIONS, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
    DUPLICATE_SEQUENCE_NUMBER, NONE, NOT_COORDINATOR,
};
use crate::chance::one_in;
use crate::history::{self, Ending, History};
use crate::plan::TOPIC;
use crate::switch::Switch;
use crate::trace::SimTime;

/// A transactional producer: each transaction writes to all partitions, perhaps with an offset of a group, and is
/// committed or aborted.
pub struct Transactor {
    pub client: Client,
    pub name: String,
    pub topic: &'static str,
    pub partitions: i32,
    pub history: History,
    pub time: SimTime,
    pub is_over: Switch,
    /// What the group that is named as the producer may have committed by now; -1 = nothing.
    offsets: BTreeSet<i64>,
}

/// One epoch of the producer. Whatever is unclear ends it.
struct Epoch {
    coordinator: String,
    id: ProducerId,
    epoch: ProducerEpoch,
    sequences: Vec<i32>,
}

impl Transactor {
    pub fn new(
        client: Client,
        name: String,
        partitions: i32,
        history: History,
        time: SimTime,
        is_over: Switch,
    ) -> Transactor {
        let offsets = BTreeSet::from([-1]);
        Transactor { client, name, topic: TOPIC, partitions, history, time, is_over, offsets }
    }

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
            number += 1;
            if self.transaction(&mut current, number).await.is_some() {
                epoch = Some(current);
            }
        }
        // Whatever is open is decided before the logs are looked at.
        for _ in 0..600 {
            if self.begin_epoch().await.is_some() {
                return self.check_offset().await;
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
    async fn transaction(&mut self, epoch: &mut Epoch, number: i64) -> Option<()> {
        let name = &format!("{}-t{number}", self.name);
        self.history.ended(name, Ending::Aborted);
        self.add_partitions(epoch).await?;
        for partition in 0..self.partitions {
            let count = self.client.random().number(0..=2) as i32;
            if count > 0 {
                self.produce(epoch, name, partition, count).await?;
            }
        }
        let has_offset = one_in(self.client.random(), 3);
        if has_offset {
            self.add_offset(epoch, number).await?;
        }
        let is_committed = !one_in(self.client.random(), 4);
        if is_committed {
            self.history.ended(name, Ending::Unknown);
            if has_offset {
                self.offsets.insert(number);
            }
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
                        if has_offset {
                            self.offsets = BTreeSet::from([number]);
                        }
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

    async fn add_offset(&mut self, epoch: &Epoch, number: i64) -> Option<()> {
        let request = AddOffsetsToTxnRequest {
            transactional_id: self.name.as_str().into(),
            producer_id: epoch.id.0,
            producer_epoch: epoch.epoch.0,
            group_id: self.name.as_str().into(),
        };
        let response = self.client.call(&epoch.coordinator, 2, &request).await?;
        if response.error_code != NONE {
            return None;
        }
        let partition = TxnOffsetCommitRequestPartition { committed_offset: number, ..Default::default() };
        let topic = TxnOffsetCommitRequestTopic { name: self.topic.into(), partitions: vec![partition] };
        let request = TxnOffsetCommitRequest {
            transactional_id: self.name.as_str().into(),
            group_id: self.name.as_str().into(),
            producer_id: epoch.id.0,
            producer_epoch: epoch.epoch.0,
            topics: vec![topic],
            ..Default::default()
        };
        for _ in 0..20 {
            let Some(coordinator) = self.client.coordinator(&self.name, 0).await else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let response = self.client.call(&coordinator, 2, &request).await;
            let code =
                response.and_then(|response| Some(response.topics.first()?.partitions.first()?.error_code));
            match code {
                Some(NONE) => return Some(()),
                None | Some(COORDINATOR_LOAD_IN_PROGRESS | COORDINATOR_NOT_AVAILABLE | NOT_COORDINATOR) => {
                    sleep(Duration::from_millis(100)).await;
                }
                Some(_) => return None,
            }
        }
        None
    }

    /// No transaction is open any more: the offset is that of the last one that was committed with one.
    async fn check_offset(&mut self) {
        for _ in 0..300 {
            if let Some(found) = self.committed_offset().await {
                if !self.offsets.contains(&found) {
                    let (name, offsets) = (&self.name, &self.offsets);
                    self.history
                        .violation(format!("{name} finds the offset {found}, not one of {offsets:?}"));
                }
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
        self.history.violation(format!("{} is not told its offset", self.name));
    }

    async fn committed_offset(&mut self) -> Option<i64> {
        let coordinator = self.client.coordinator(&self.name, 0).await?;
        let topic = OffsetFetchRequestTopic { name: self.topic.into(), partition_indexes: vec![0] };
        let request = OffsetFetchRequest {
            group_id: self.name.as_str().into(),
            topics: Some(vec![topic]),
            require_stable: true,
            ..Default::default()
        };
        let response = self.client.call(&coordinator, 7, &request).await?;
        let found = response.topics.first()?.partitions.first()?;
        (response.error_code == NONE && found.error_code == NONE).then_some(found.committed_offset)
    }

    async fn produce(&mut self, epoch: &mut Epoch, name: &str, partition: i32, count: i32) -> Option<()> {
        let sequence = epoch.sequences.get_mut(partition as usize)?;
        let mut batch = BatchBuilder::new().producer(epoch.id, epoch.epoch, *sequence).transactional();
        for number in 0..count {
            let payload = format!("{name}-{partition}-{number}");
            let key = history::key(&payload);
            batch.append(self.time.wall(), Some(key.as_bytes()), Some(payload.as_bytes()), &[]);
            self.history.wrote(name, partition, &payload);
        }
        *sequence += count;
        let records = batch.build();
        for _ in 0..20 {
            let Some(host) = self.client.leader(self.topic, partition).await else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let of = (self.topic, partition);
            let answer = self.client.produce(&host, of, Some(&self.name), records.clone()).await;
            match answer.map(|answer| answer.error_code) {
                Some(NONE | DUPLICATE_SEQUENCE_NUMBER) => return Some(()),
                // Fenced, out of order, not in the transaction.
                Some(45 | 47 | 48 | 49 | 59 | 90 | 120) => return None,
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
        None
    }
}
