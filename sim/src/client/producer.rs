use std::time::Duration;

use barnabas::model::{ProducerEpoch, ProducerId};
use barnabas::records::BatchBuilder;
use tokio::time::{Instant, sleep};
use wire::InitProducerIdRequest;
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};

use super::Client;
use crate::history::History;
use crate::switch::Switch;
use crate::trace::SimTime;

/// An idempotent producer with acks=all that sends one batch after the other to one partition, each until it is
/// answered.
pub struct Producer {
    pub client: Client,
    pub name: String,
    pub topic: &'static str,
    pub partition: i32,
    pub history: History,
    pub time: SimTime,
    pub is_over: Switch,
}

/// No leader is deposed without knowing it for so long: faults last 20 seconds.
const REFUSED_MAX: Duration = Duration::from_secs(60);

const NONE: i16 = 0;
const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;
const UNKNOWN_PRODUCER_ID: i16 = 59;
const INVALID_PRODUCER_EPOCH: i16 = 47;

impl Producer {
    pub async fn run(mut self) {
        let (id, epoch) = loop {
            if let Some(identity) = self.begin().await {
                break identity;
            }
            sleep(Duration::from_millis(200)).await;
        };
        let mut sequence = 0;
        while !self.is_over.is_set() {
            let count = self.client.random().number(1..=3) as i32;
            let payloads: Vec<String> =
                (sequence..sequence + count).map(|number| format!("{}-{number}", self.name)).collect();
            self.history.attempted(self.partition, &payloads);
            if !self.send(&payloads, id, epoch, sequence).await {
                return;
            }
            sequence += count;
            let pause = self.client.random().number(0..800);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn begin(&mut self) -> Option<(ProducerId, ProducerEpoch)> {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            ..Default::default()
        };
        let asked = self.client.any_broker();
        let response = self.client.call(&asked, 3, &request).await?;
        let identity = (ProducerId(response.producer_id), ProducerEpoch(response.producer_epoch));
        (response.error_code == NONE).then_some(identity)
    }

    /// Sends a batch until it is known to be stored. Whether the producer can go on.
    async fn send(
        &mut self,
        payloads: &[String],
        id: ProducerId,
        epoch: ProducerEpoch,
        sequence: i32,
    ) -> bool {
        let mut batch = BatchBuilder::new().producer(id, epoch, sequence);
        for payload in payloads {
            batch.append(self.time.wall(), None, Some(payload.as_bytes()), &[]);
        }
        let records = batch.build();
        let mut refused_since = None;
        loop {
            let Some(host) = self.client.leader(self.topic, self.partition).await else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let partition_data =
                vec![PartitionProduceData { index: self.partition, records: Some(records.clone().into()) }];
            let topic_data =
                vec![TopicProduceData { name: self.topic.into(), partition_data, ..Default::default() }];
            let request = ProduceRequest { acks: -1, timeout_ms: 5_000, topic_data, ..Default::default() };
            let response = self.client.call(&host, 8, &request).await;
            let answer = response
                .as_ref()
                .and_then(|response| response.responses.first()?.partition_responses.first());
            match answer.map(|answer| (answer.error_code, answer.base_offset)) {
                Some((NONE, base_offset)) => {
                    self.history.acknowledged(self.partition, base_offset, payloads);
                    return true;
                }
                Some((DUPLICATE_SEQUENCE_NUMBER, _)) => {
                    self.history.acknowledged_somewhere(self.partition, payloads);
                    return true;
                }
                // Each batch is sent after the one before was acknowledged. Only a leader that does not know yet that it
                // was deposed lacks some, as in Kafka: a client that asks again finds the right one.
                Some((
                    error @ (OUT_OF_ORDER_SEQUENCE_NUMBER | UNKNOWN_PRODUCER_ID | INVALID_PRODUCER_EPOCH),
                    _,
                )) => {
                    if refused_since.get_or_insert_with(Instant::now).elapsed() < REFUSED_MAX {
                        sleep(Duration::from_millis(500)).await;
                        continue;
                    }
                    self.history.violation(format!(
                        "{}-{}: {} was refused with error {error} after {sequence} records were acknowledged",
                        self.topic, self.partition, payloads[0],
                    ));
                    return false;
                }
                _ => {
                    refused_since = None;
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}
