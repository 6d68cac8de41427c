use std::time::Duration;

use barnabas::records;
use tokio::time::sleep;
use wire::fetch_request::{FetchPartition, FetchRequest, FetchTopic};

use super::Client;
use crate::history::History;
use crate::switch::Switch;

/// Reads one partition from its start, again and again from where it is, as a consumer does.
pub struct Reader {
    pub client: Client,
    pub name: String,
    pub topic: &'static str,
    pub partition: i32,
    pub history: History,
    pub is_over: Switch,
}

const OFFSET_OUT_OF_RANGE: i16 = 1;

impl Reader {
    pub async fn run(mut self) {
        let mut position = 0;
        let mut leader = None;
        while !self.is_over.is_set() && self.history.violations().is_empty() {
            let host = match leader.take() {
                Some(host) => host,
                None => match self.client.leader(self.topic, self.partition).await {
                    Some(host) => host,
                    None => {
                        sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
            };
            match self.fetch(&host, position).await {
                Some(next) => {
                    position = next;
                    leader = Some(host);
                }
                None => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Where to go on; `None` where the broker has no answer for this partition.
    async fn fetch(&mut self, host: &str, position: i64) -> Option<i64> {
        let partition = FetchPartition {
            partition: self.partition,
            fetch_offset: position,
            partition_max_bytes: 64 * 1024,
            ..FetchPartition::default()
        };
        let topics =
            vec![FetchTopic { topic: self.topic.into(), partitions: vec![partition], ..Default::default() }];
        let request =
            FetchRequest { max_wait_ms: 500, min_bytes: 1, max_bytes: 1 << 20, topics, ..Default::default() };
        // From version 11 on a follower answers as well, and one that lags does not have the offset.
        let response = self.client.call(host, 10, &request).await?;
        let found = response.responses.into_iter().next()?.partitions.into_iter().next()?;
        match found.error_code {
            0 => {}
            // Nothing is removed from the start of these logs, and what was read is committed.
            OFFSET_OUT_OF_RANGE => {
                self.history.violation(format!(
                    "{}-{}: {} has read up to {position}, which is out of range at {host}",
                    self.topic, self.partition, self.name
                ));
                return None;
            }
            _ => return None,
        }
        let Some(wire::Records::Bytes(bytes)) = found.records else { return Some(position) };
        let mut next = position;
        for batch in records::batches(&bytes) {
            let Ok(batch) = batch else { break };
            if batch.check_crc().is_err() {
                self.history.violation(format!("{host} sent a batch with a wrong checksum at {next}"));
                return None;
            }
            let Ok(found) = batch.records() else { return None };
            for record in found.flatten() {
                let offset = record.offset(&batch.header).0;
                if offset < position {
                    continue;
                }
                if offset != next {
                    self.history.violation(format!(
                        "{}-{}: {} finds {offset} after {}",
                        self.topic,
                        self.partition,
                        self.name,
                        next - 1
                    ));
                }
                next = offset + 1;
                if batch.header.attributes.is_control() {
                    continue;
                }
                let value = record.value.as_deref().unwrap_or_default();
                self.history.read(&self.name, self.partition, offset, &String::from_utf8_lossy(value));
            }
        }
        Some(next)
    }
}
