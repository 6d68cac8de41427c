use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use wire::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestTopic};

use super::Client;
use crate::chance::one_in;
use crate::history::History;
use crate::switch::Switch;
use crate::world::{Coordinating, World};

/// Commits ever larger offsets for a group, and looks whether they are there.
pub struct Committer {
    pub client: Client,
    pub group: String,
    pub topic: &'static str,
    pub history: History,
    /// Tells whether what is found is committed.
    pub world: Arc<World>,
    pub is_over: Switch,
}

impl Committer {
    pub async fn run(mut self) {
        let mut coordinator = None;
        // No answer means that both may stand.
        let (mut acknowledged, mut sent) = (-1, -1);
        // Whose connections broke: the coordinator may come to them behind what was sent on the next connection.
        let mut unanswered = BTreeSet::new();
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
            let is_answered = if one_in(self.client.random(), 3) {
                let before = self.world.coordinates(&host);
                let found = self.fetch(&host).await;
                let after = self.world.coordinates(&host);
                // One that was deposed and does not know it yet answers from what it knew, as Kafka's does.
                let least = match Coordinating::knows_all(before.as_ref(), after.as_ref()) {
                    true => acknowledged,
                    false => -1,
                };
                let is_right = |found: &i64| (least..=sent).contains(found) || unanswered.contains(found);
                if let Some(found) = found.filter(|found| !is_right(found)) {
                    self.history.violation(format!(
                        "group {}: {acknowledged} was committed, {sent} was sent, {found} is found at {host}",
                        self.group
                    ));
                    return;
                }
                if Coordinating::stands(before.as_ref(), after.as_ref()) {
                    acknowledged = found.unwrap_or(acknowledged);
                }
                found.is_some()
            } else {
                sent += 1;
                let code = self.commit(&host, sent).await;
                if code.is_none() {
                    unanswered.insert(sent);
                }
                if code == Some(0) {
                    acknowledged = sent;
                }
                code == Some(0)
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
