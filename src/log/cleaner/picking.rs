use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tracing::{debug, error, info, warn};

use crate::log::compaction::{Cleanable, CleaningRules, DirtyLog, HashSecret, KeyMapBudget, SegmentDirt};
use crate::log::error::LogError;
use crate::log::manager::LogManager;
use crate::log::partition_log::Log;
use crate::model::{Timestamp, TopicPartition};

use super::cleaning::{Cleaning, Target};
use super::failures::{Claim, Ledger};

/// Picks the logs to compact, one after the other, the filthiest first, and keeps account of those that
/// cannot be compacted.
///
/// A log that failed is tried again, later and later, and at once when its settings change.
pub struct LogCleaner {
    logs: Arc<LogManager>,
    ledger: Arc<Mutex<Ledger>>,
    /// As the last look at the logs found it.
    dirtiest: Mutex<Dirtiest>,
}

/// What one cleaning may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CleanerOptions {
    /// `log.cleaner.dedupe.buffer.size`, shared out.
    pub map_bytes: u64,
    /// `log.cleaner.io.buffer.load.factor`
    pub load_factor: f64,
    /// `log.cleaner.io.buffer.size`, shared out.
    pub io_buffer_bytes: u64,
}

/// What operators are shown.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CleanerStatus {
    pub failed: Vec<FailedPartition>,
    /// The greatest part of any log that was dirty when somebody last looked, from 0 to 1.
    pub dirty_ratio_max: f64,
    /// How long the longest-waiting record had waited beyond `max.compaction.lag.ms` by then.
    pub delay_ms_max: i64,
}

/// A log that could not be compacted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedPartition {
    pub topic_partition: TopicPartition,
    pub reason: String,
    pub attempts: u32,
    pub retry_at: Timestamp,
}

#[derive(Clone, Copy, Default)]
struct Dirtiest {
    ratio: f64,
    delay_ms: i64,
}

/// A log that is due, and how much.
struct Candidate {
    log: Arc<Log>,
    cleanable: Cleanable,
}

impl LogCleaner {
    pub fn new(logs: Arc<LogManager>) -> LogCleaner {
        LogCleaner { logs, ledger: Arc::default(), dirtiest: Mutex::default() }
    }

    /// The log that needs it most, claimed: nobody else gets it until the cleaning is dropped. `None` if no
    /// log is due. `secret` should be another one each time. May wait for the disk.
    pub fn pick(&self, options: &CleanerOptions, secret: HashSecret, now: Timestamp) -> Option<Cleaning> {
        let due = self.due(now);
        let mut due: Vec<Candidate> = due.into_iter().collect();
        due.sort_by(|a, b| b.cleanable.dirty_ratio().total_cmp(&a.cleanable.dirty_ratio()));
        due.into_iter().find_map(|Candidate { log, cleanable }| {
            let claim = Claim::take(&self.ledger, log.topic_partition())?;
            let budget = KeyMapBudget { size_bytes: options.map_bytes, load_factor: options.load_factor };
            let range = (cleanable.first_dirty, cleanable.first_uncleanable);
            let target = Target::new(log, range, budget, secret, options.io_buffer_bytes.max(4096));
            Some(Cleaning::new(target, claim))
        })
    }

    fn due(&self, now: Timestamp) -> Vec<Candidate> {
        let logs: Vec<Arc<Log>> =
            self.logs.logs().into_iter().filter(|log| log.config().cleanup.compacts).collect();
        let compacted: HashSet<&TopicPartition> = logs.iter().map(|log| log.topic_partition()).collect();
        self.ledger.lock().retain(|topic_partition| compacted.contains(topic_partition));
        let mut dirtiest = Dirtiest::default();
        let mut due = Vec::new();
        for log in &logs {
            let config = log.config();
            if log.is_moving.load(Ordering::Acquire)
                || !self.ledger.lock().is_free(log.topic_partition(), &config, now)
            {
                continue;
            }
            match log.examine(now) {
                Ok((cleanable, rules)) => {
                    dirtiest.ratio = dirtiest.ratio.max(cleanable.dirty_ratio());
                    dirtiest.delay_ms = dirtiest.delay_ms.max(cleanable.delay_ms);
                    if cleanable.is_due(&rules) {
                        due.push(Candidate { log: log.clone(), cleanable });
                    }
                }
                Err(error) => self.note_failure(log, &error, now),
            }
        }
        *self.dirtiest.lock() = dirtiest;
        due
    }

    /// Takes the outcome of a cleaning.
    pub fn finish(&self, cleaning: Cleaning, outcome: Result<(), LogError>, now: Timestamp) {
        let log = cleaning.target().log.clone();
        match outcome {
            Ok(()) => {
                self.ledger.lock().succeeded(log.topic_partition());
                let TopicPartition { topic, partition } = log.topic_partition();
                let report = cleaning.report();
                info!(
                    %topic, %partition, from = %cleaning.target().first_dirty, to = %report.clean_end,
                    keys = report.keys, segments_before = report.segments_before,
                    segments_after = report.segments_after, bytes_before = report.bytes_before,
                    bytes_after = report.bytes_after, "compacted a log"
                );
            }
            Err(error) => self.note_failure(&log, &error, now),
        }
    }

    /// Takes note that a cleaning did not come back.
    pub fn lost(&self, topic_partition: &TopicPartition, now: Timestamp) {
        let TopicPartition { topic, partition } = topic_partition;
        error!(%topic, %partition, "the compaction of a log panicked; it is tried again later");
        if let Some(log) = self.logs.log(topic_partition) {
            let reason = "the work panicked".to_owned();
            self.ledger.lock().failed(topic_partition, log.config(), reason, now);
        }
    }

    fn note_failure(&self, log: &Log, error: &LogError, now: Timestamp) {
        let TopicPartition { topic, partition } = log.topic_partition();
        match error {
            // Deleted, truncated or taken offline meanwhile, which whoever did it has told.
            LogError::Closed { .. } | LogError::SegmentDeleted | LogError::DirectoryOffline { .. } => {
                debug!(%topic, %partition, %error, "a log changed while it was compacted");
                return;
            }
            LogError::DiskFull { .. } | LogError::TooManyOpenFiles { .. } => {
                warn!(%topic, %partition, %error, "a log is not compacted");
            }
            _ => error!(%topic, %partition, %error, "a log cannot be compacted; it is tried again later"),
        }
        self.ledger.lock().failed(log.topic_partition(), log.config(), error.to_string(), now);
    }

    pub fn status(&self) -> CleanerStatus {
        let failed =
            |(topic_partition, failure): (&TopicPartition, &super::failures::Failure)| FailedPartition {
                topic_partition: topic_partition.clone(),
                reason: failure.reason.clone(),
                attempts: failure.attempts,
                retry_at: failure.retry_at,
            };
        let Dirtiest { ratio, delay_ms } = *self.dirtiest.lock();
        CleanerStatus {
            failed: self.ledger.lock().failures().map(failed).collect(),
            dirty_ratio_max: ratio,
            delay_ms_max: delay_ms,
        }
    }
}

impl Log {
    /// What of the log may be cleaned. A checkpoint that is outside of the log is put right.
    fn examine(&self, now: Timestamp) -> Result<(Cleanable, CleaningRules), LogError> {
        self.ensure_open()?;
        let config = self.config();
        let rules = CleaningRules {
            min_compaction_lag_ms: config.min_compaction_lag_ms,
            max_compaction_lag_ms: config.max_compaction_lag_ms,
            min_cleanable_dirty_ratio: config.min_cleanable_dirty_ratio,
        };
        let has_max_lag = rules.max_compaction_lag_ms != i64::MAX;
        // Before the segments: what is stable is in segments that are listed.
        let last_stable_offset = self.last_stable_offset();
        let segments = self.segments.load_full();
        let dirt = segments.iter().map(|segment| {
            Ok(SegmentDirt {
                base_offset: segment.base_offset,
                size_bytes: u64::from(segment.size_bytes()),
                max_timestamp: segment.max_timestamp().timestamp,
                first_timestamp: match has_max_lag {
                    true => segment.first_timestamp(&self.place)?,
                    false => Timestamp::NONE,
                },
            })
        });
        let log = DirtyLog {
            log_start_offset: self.log_start_offset(),
            log_end_offset: self.log_end_offset(),
            last_stable_offset,
            checkpoint: self.place.directory.cleaner_offset(&self.topic_partition),
            segments: dirt.collect::<Result<_, LogError>>()?,
            rules,
        };
        let cleanable = log.cleanable(now);
        if cleanable.is_checkpoint_reset {
            let TopicPartition { topic, partition } = &self.topic_partition;
            if !config.cleanup.deletes {
                warn!(
                    %topic, %partition, checkpoint = ?log.checkpoint, log_start_offset = %log.log_start_offset,
                    "the cleaner's checkpoint is outside of the log, which is compacted from its start"
                );
            }
            self.place.directory.set_cleaner_offset(&self.topic_partition, cleanable.first_dirty)?;
        }
        Ok((cleanable, rules))
    }
}

impl fmt::Debug for LogCleaner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogCleaner").field("status", &self.status()).finish_non_exhaustive()
    }
}
