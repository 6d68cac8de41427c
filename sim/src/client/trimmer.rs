use std::time::Duration;

use tokio::time::sleep;
use wire::DeleteRecordsRequest;
use wire::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};

use super::Client;
use crate::history::History;
use crate::plan::TOPIC;
use crate::switch::Switch;

/// Deletes records from the start of partitions.
pub struct Trimmer {
    pub client: Client,
    pub partitions: i32,
    pub history: History,
    pub is_over: Switch,
}

/// Stands for the end of the log in a request for offsets.
const LATEST: i64 = -1;

impl Trimmer {
    pub async fn run(mut self) {
        while !self.is_over.is_set() {
            let pause = self.client.random().number(500..6_000);
            sleep(Duration::from_millis(pause)).await;
            let partition = self.client.random().number(0..self.partitions as u64) as i32;
            // Whether it was done shows in the logs.
            let _ = self.trim(partition).await;
        }
    }

    async fn trim(&mut self, partition: i32) -> Option<()> {
        let host = self.client.leader(TOPIC, partition).await?;
        let end = self.client.offset(&host, TOPIC, partition, LATEST).await?;
        let offset = self.client.random().number(0..=end.max(0) as u64) as i64;
        self.history.trims(partition, offset);
        let partitions = vec![DeleteRecordsPartition { partition_index: partition, offset }];
        let topics = vec![DeleteRecordsTopic { name: TOPIC.into(), partitions }];
        let request = DeleteRecordsRequest { topics, timeout_ms: 5_000 };
        self.client.call(&host, 1, &request).await?;
        Some(())
    }
}
