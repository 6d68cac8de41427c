use std::time::Duration;

use tokio::time::sleep;
use wire::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestTopic};

use super::Client;
use crate::history::History;
use crate::switch::Switch;

/// Commits ever larger offsets for a group, and looks whether they are there.
pub struct Committer {
    pub client: Client,
    pub group: String,
    pub topic: &'static str,
    pub history: History,
    pub is_over: Switch,
}

impl Committer {
    pub async fn run(mut self) {
        let mut coordinator = None;
        // No answer means that both may stand.
        let (mut acknowledged, mut sent) = (-1, -1);
        while !self.is_over.is_set() {
            let pause = self.client.random().number(20..500);
            sleep(Duration::from_millis(pause)).await;
            let host = match coordinator.take() {
                Some(host) => host,
                None => match self.client.coordinator(&self.group, 0).await {
                    Some(host) => host,
                    None => continue,
                },
            };
            let is_answered = if self.client.random().number(0..3) == 0 {
                let found = self.fetch(&host).await;
                if let Some(found) = found.filter(|found| !(acknowledged..=sent).contains(found)) {
                    self.history.violation(format!(
                        "group {}: {acknowledged} was committed, {sent} was sent, {found} is found at {host}",
                        self.group
                    ));
                    return;
                }
                // What was read once stands.
                acknowledged = found.unwrap_or(acknowledged);
                found.is_some()
            } else {
                sent += 1;
                let is_committed = self.commit(&host, sent).await == Some(0);
                if is_committed {
                    acknowledged = sent;
                }
                is_committed
            };
            coordinator = is_answered.then_some(host);
        }
        self.history.committed(acknowledged);
    }

    async fn commit(&mut self, host: &str, offset: i64) -> Option<i16> {
        let partition = OffsetCommitRequestPartition { committed_offset: offset, ..Default::default() };
        let topic = OffsetCommitRequestTopic {
            name: self.topic.into(),
            partitions: vec![partition],
            ..Default::default()
        };
        let request = OffsetCommitRequest {
            group_id: self.group.as_str().into(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let response = self.client.call(host, 7, &request).await?;
        Some(response.topics.first()?.partitions.first()?.error_code)
    }

    async fn fetch(&mut self, host: &str) -> Option<i64> {
        let topic = OffsetFetchRequestTopic { name: self.topic.into(), partition_indexes: vec![0] };
        let request = OffsetFetchRequest {
            group_id: self.group.as_str().into(),
            topics: Some(vec![topic]),
            ..Default::default()
        };
        let response = self.client.call(host, 5, &request).await?;
        let partition = response.topics.first()?.partitions.first()?;
        (response.error_code == 0 && partition.error_code == 0).then_some(partition.committed_offset)
    }
}
