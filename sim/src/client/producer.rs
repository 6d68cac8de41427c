use std::time::Duration;

use barnabas::model::{ProducerEpoch, ProducerId};
use barnabas::records::BatchBuilder;
use tokio::time::{Instant, sleep};
use wire::InitProducerIdRequest;

use super::Client;
use super::code::{
    DUPLICATE_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, NONE, OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_PRODUCER_ID,
};
use crate::history::{self, History};
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

impl Producer {
    pub async fn run(mut self) {
        let (mut id, mut epoch) = self.begin().await;
        let (mut sequence, mut sent) = (0, 0);
        while !self.is_over.is_set() {
            let count = self.client.random().number(1..=3) as i32;
            let payloads: Vec<String> =
                (sent..sent + count).map(|number| format!("{}-{number}", self.name)).collect();
            self.history.attempted(self.partition, &payloads);
            sent += count;
            if self.send(&payloads, id, epoch, sequence).await {
                sequence += count;
            } else if self.history.is_lossy() {
                // What it wrote before is gone, as producers find out by themselves.
                (id, epoch) = self.begin().await;
                sequence = 0;
            } else {
                return;
            }
            let pause = self.client.random().number(0..800);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn begin(&mut self) -> (ProducerId, ProducerEpoch) {
        loop {
            if let Some(identity) = self.ask_for_identity().await {
                return identity;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn ask_for_identity(&mut self) -> Option<(ProducerId, ProducerEpoch)> {
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
            let key = history::key(payload);
            batch.append(self.time.wall(), Some(key.as_bytes()), Some(payload.as_bytes()), &[]);
        }
        let records = batch.build();
        let mut refused_since = None;
        loop {
            let Some(host) = self.client.leader(self.topic, self.partition).await else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let of = (self.topic, self.partition);
            let answer = self.client.produce(&host, of, None, records.clone()).await;
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
                    if self.history.is_lossy() {
                        return false;
                    }
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
