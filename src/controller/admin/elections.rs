use std::collections::BTreeMap;

use snafu::Snafu;

use super::Admin;
use crate::controller::core::{ElectionError, ElectionKind};
use crate::controller::service::NotController;
use crate::model::{BrokerId, TopicPartition};

/// Why a partition does not have the leader that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
pub enum LeaderElectionError {
    #[snafu(display("{source}"), context(false))]
    Election { source: ElectionError },
    /// REQUEST_TIMED_OUT, without a message: it is elected, and this broker has not heard of it.
    #[snafu(display("the leader is elected, but not known here yet"))]
    TimedOut,
}

impl Admin {
    /// Elects leaders and waits until this broker's metadata shows them. `partitions` `None` = all; then those
    /// that need no election are not in the answer.
    pub async fn elect_leaders(
        &self,
        kind: ElectionKind,
        partitions: Option<Vec<TopicPartition>>,
        timeout_ms: i32,
    ) -> Result<Vec<(TopicPartition, Result<(), LeaderElectionError>)>, NotController> {
        if !self.controller.is_active() {
            return Err(NotController);
        }
        let results = self.controller.elect_leaders(kind, partitions).await?;
        let mut waiting: BTreeMap<TopicPartition, BrokerId> = results
            .iter()
            .filter_map(|(partition, result)| Some((partition.clone(), *result.as_ref().ok()?)))
            .collect();
        if !waiting.is_empty() {
            self.await_metadata(timeout_ms, |image| {
                waiting.retain(|of, leader| {
                    let known = image.partition(&of.topic, of.partition);
                    known.is_none_or(|partition| partition.leader != *leader)
                });
                waiting.is_empty()
            })
            .await;
        }
        let outcome = |(partition, result): (TopicPartition, Result<BrokerId, ElectionError>)| {
            let outcome = match result {
                Err(error) => Err(error.into()),
                Ok(_) if waiting.contains_key(&partition) => Err(LeaderElectionError::TimedOut),
                Ok(_) => Ok(()),
            };
            (partition, outcome)
        };
        Ok(results.into_iter().map(outcome).collect())
    }
}
