//! Which logs are being cleaned, and which cannot be.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::log::config::LogConfig;
use crate::model::{Timestamp, TopicPartition};

/// What the cleanings of all logs share.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    in_progress: HashSet<TopicPartition>,
    failures: BTreeMap<TopicPartition, Failure>,
}

#[derive(Debug)]
pub(super) struct Failure {
    pub(super) attempts: u32,
    pub(super) reason: String,
    pub(super) retry_at: Timestamp,
    /// Under which it failed: with another one it is tried again at once.
    config: Arc<LogConfig>,
}

const RETRY_FIRST_MS: i64 = 60_000;
const RETRY_MS_MAX: i64 = 60 * 60_000;

impl Ledger {
    /// Whether a log may be cleaned now.
    pub(super) fn is_free(
        &self,
        topic_partition: &TopicPartition,
        config: &Arc<LogConfig>,
        now: Timestamp,
    ) -> bool {
        let is_waiting = self
            .failures
            .get(topic_partition)
            .is_some_and(|failure| now < failure.retry_at && Arc::ptr_eq(&failure.config, config));
        !is_waiting && !self.in_progress.contains(topic_partition)
    }

    pub(super) fn succeeded(&mut self, topic_partition: &TopicPartition) {
        self.failures.remove(topic_partition);
    }

    /// Answers when it is tried again: after a minute, then after twice as long as before, up to an hour.
    pub(super) fn failed(
        &mut self,
        topic_partition: &TopicPartition,
        config: Arc<LogConfig>,
        reason: String,
        now: Timestamp,
    ) -> Timestamp {
        let attempts = self.failures.get(topic_partition).map_or(0, |failure| failure.attempts) + 1;
        let wait_ms = RETRY_FIRST_MS.saturating_mul(1 << (attempts - 1).min(30)).min(RETRY_MS_MAX);
        let retry_at = now.plus_ms(wait_ms);
        self.failures.insert(topic_partition.clone(), Failure { attempts, reason, retry_at, config });
        retry_at
    }

    /// Forgets the failures of logs that are gone, or not to be compacted any more.
    pub(super) fn retain(&mut self, is_compacted: impl Fn(&TopicPartition) -> bool) {
        self.failures.retain(|topic_partition, _| is_compacted(topic_partition));
    }

    pub(super) fn failures(&self) -> impl Iterator<Item = (&TopicPartition, &Failure)> {
        self.failures.iter()
    }
}

/// One log's place among those being cleaned, given up when it is dropped.
pub(super) struct Claim {
    ledger: Arc<Mutex<Ledger>>,
    topic_partition: TopicPartition,
}

impl Claim {
    /// `None` if somebody is at it.
    pub(super) fn take(ledger: &Arc<Mutex<Ledger>>, topic_partition: &TopicPartition) -> Option<Claim> {
        let is_new = ledger.lock().in_progress.insert(topic_partition.clone());
        is_new.then(|| Claim { ledger: ledger.clone(), topic_partition: topic_partition.clone() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ledger.lock().in_progress.remove(&self.topic_partition);
    }
}
