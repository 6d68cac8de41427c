use std::time::Duration;

use barnabas::records::{self, BatchBuilder};
use tokio::time::{Instant, sleep};
use wire::create_partitions_request::{CreatePartitionsRequest, CreatePartitionsTopic};
use wire::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use wire::{DeleteTopicsRequest, Records};

use super::code::{INVALID_PARTITIONS, NONE, TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION};
use super::{Client, Isolation, Leadership};
use crate::chance::one_in;
use crate::history::History;
use crate::plan::REPLICATION_FACTOR;
use crate::switch::Switch;
use crate::trace::SimTime;

/// Creates a topic, writes to it, adds partitions, deletes it, and begins again under the same name.
pub struct Churner {
    pub client: Client,
    pub topic: String,
    pub history: History,
    pub time: SimTime,
    pub is_over: Switch,
}

#[derive(Clone, Copy)]
enum Change {
    Create { partitions: i32 },
    Grow { partitions: i32 },
    Delete,
}

/// Whatever goes wrong is over within this time.
const PATIENCE: Duration = Duration::from_secs(300);

impl Churner {
    pub async fn run(mut self) {
        let mut life = 0;
        while !self.is_over.is_set() {
            life += 1;
            if self.live(life).await.is_none() {
                return;
            }
        }
    }

    /// From the topic's creation to its deletion. `None` where something does not come to an end.
    async fn live(&mut self, life: u32) -> Option<()> {
        let partitions = self.client.random().number(1..=2) as i32;
        // It may exist because an earlier answer was lost, or because it is still being deleted.
        let created = self.until(Change::Create { partitions }, &[NONE, TOPIC_ALREADY_EXISTS]).await?;
        self.pause().await;
        self.write(life, created == NONE).await;
        self.pause().await;
        if one_in(self.client.random(), 2) {
            let grown = [NONE, INVALID_PARTITIONS, UNKNOWN_TOPIC_OR_PARTITION];
            self.until(Change::Grow { partitions: partitions + 1 }, &grown).await?;
            self.pause().await;
        }
        self.until(Change::Delete, &[NONE, UNKNOWN_TOPIC_OR_PARTITION]).await?;
        self.pause().await;
        Some(())
    }

    async fn pause(&mut self) {
        let pause = self.client.random().number(0..4_000);
        sleep(Duration::from_millis(pause)).await;
    }

    /// Asks the controller until it gives one of these answers.
    async fn until(&mut self, change: Change, done: &[i16]) -> Option<i16> {
        let deadline = Instant::now() + PATIENCE;
        let mut last = None;
        while Instant::now() < deadline {
            if let Some(controller) = self.client.controller().await {
                let answer = match change {
                    Change::Create { partitions } => self.create(&controller, partitions).await,
                    Change::Grow { partitions } => self.grow(&controller, partitions).await,
                    Change::Delete => self.delete(&controller).await,
                };
                last = answer.or(last);
                if last.is_some_and(|code| done.contains(&code)) {
                    return last;
                }
            }
            sleep(Duration::from_millis(300)).await;
        }
        self.history.violation(format!("{} does not change, the last answer is {last:?}", self.topic));
        None
    }

    async fn create(&mut self, controller: &str, partitions: i32) -> Option<i16> {
        let topic = CreatableTopic {
            name: self.topic.as_str().into(),
            num_partitions: partitions,
            replication_factor: REPLICATION_FACTOR,
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 5_000, ..Default::default() };
        Some(self.client.call(controller, 5, &request).await?.topics.first()?.error_code)
    }

    async fn grow(&mut self, controller: &str, count: i32) -> Option<i16> {
        let topic = CreatePartitionsTopic { name: self.topic.as_str().into(), count, assignments: None };
        let request =
            CreatePartitionsRequest { topics: vec![topic], timeout_ms: 5_000, ..Default::default() };
        Some(self.client.call(controller, 1, &request).await?.results.first()?.error_code)
    }

    async fn delete(&mut self, controller: &str) -> Option<i16> {
        let topic_names = vec![self.topic.as_str().into()];
        let request = DeleteTopicsRequest { topic_names, timeout_ms: 5_000, ..Default::default() };
        Some(self.client.call(controller, 3, &request).await?.responses.first()?.error_code)
    }

    /// Writes a record; a topic that was made anew has none of an earlier life.
    async fn write(&mut self, life: u32, is_new: bool) {
        let payload = life.to_string();
        let Some(leader) = self.client.leadership(&self.topic, 0).await else { return };
        let mut batch = BatchBuilder::new();
        batch.append(self.time.wall(), None, Some(payload.as_bytes()), &[]);
        let answer = self.client.produce(&leader.host, (&self.topic, 0), None, batch.build()).await;
        if !is_new || answer.is_none_or(|answer| answer.error_code != NONE) {
            return;
        }
        for found in self.read(&leader).await.unwrap_or_default() {
            if found != payload {
                self.history.violation(format!("{}: life {life} finds a record of {found}", self.topic));
            }
        }
    }

    async fn read(&mut self, leader: &Leadership) -> Option<Vec<String>> {
        let found = self.client.fetch(leader, (&self.topic, 0), 0, Isolation::ReadUncommitted).await?;
        let Some(Records::Bytes(bytes)) = found.records else { return None };
        let batches = records::batches(&bytes).filter_map(Result::ok);
        let found = batches.filter_map(|batch| batch.records().ok()).flat_map(|records| records.flatten());
        let value = |record: records::RecordView| {
            String::from_utf8_lossy(&record.value.unwrap_or_default()).into_owned()
        };
        Some(found.map(value).collect())
    }
}
