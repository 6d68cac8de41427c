use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tracing::{debug, error, info};

use crate::model::{BrokerEpoch, Offset, Timestamp, TopicId, TopicName, TopicPartition};
use crate::runtime::Random;
use crate::runtime::fs::{Durability, FileLock, Space};

use super::append::FlushWanted;
use super::checkpoint;
use super::config::LogConfig;
use super::directories::LogDirectories;
use super::directory::{LogDirectory, Place, WhichCheckpoint};
use super::error::{LogError, NoDirectorySnafu};
use super::load::{LoadOptions, load};
use super::load_all::{Loader, find_logs, sync_logs};
use super::moves::demote_copies;
use super::partition_log::{Loaded, Log};

/// All logs of this broker, in all of its `log.dirs`.
///
/// The methods that wait for the disk, and those ending in `_tick`, are for the blocking pool; a task calls
/// the ticks at Kafka's intervals. A failure in a directory takes only that one offline: see
/// [`offline_directories`](LogManager::offline_directories).
pub struct LogManager {
    pub(super) directories: Vec<Arc<LogDirectory>>,
    _locks: Vec<Box<dyn FileLock>>,
    failures: Arc<Notify>,
    pub(super) logs: RwLock<HashMap<TopicPartition, Arc<Log>>>,
    /// The copies that moves between directories make.
    pub(super) futures: RwLock<HashMap<TopicPartition, Arc<Log>>>,
    /// Where logs are to be created that are not there yet.
    pub(super) preferred: Mutex<HashMap<TopicPartition, PathBuf>>,
    /// One log at a time is created, moved or deleted.
    pub(super) changing: Mutex<()>,
    pub(super) random: Random,
}

/// A log directory as DescribeLogDirs shows it.
#[derive(Clone, Debug)]
pub struct DirectoryStatus {
    pub directory: Arc<LogDirectory>,
    /// `None` if the directory is offline.
    pub space: Option<Space>,
}

/// What is to be known for loading all logs.
pub struct LoadAllOptions<'a> {
    /// The configuration of a topic's logs.
    pub config_of: &'a (dyn Fn(&TopicName) -> LogConfig + Sync),
    /// `num.recovery.threads.per.data.dir`
    pub threads_per_directory: usize,
    /// `producer.id.expiration.ms`
    pub producer_expiration_ms: i64,
    pub now: Timestamp,
    /// Set from outside to end a recovery early, with [`LogError::Stopped`]; what was recovered stays so.
    pub stop: &'a AtomicBool,
}

pub(super) const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

impl LogManager {
    /// Loads all logs, several at a time; recovers those that were not closed. May take long.
    ///
    /// Errors: [`LogError::UnusableDirectory`] if a partition lies in two directories or a folder is no
    /// partition's, [`LogError::Stopped`], [`LogError::NoDirectory`].
    pub fn load(
        directories: LogDirectories,
        options: &LoadAllOptions<'_>,
        random: Random,
    ) -> Result<LogManager, LogError> {
        let mut found = Vec::new();
        for directory in directories.directories.iter().filter(|directory| !directory.is_offline()) {
            match find_logs(directory, options.now) {
                Ok(logs) => found.extend(logs),
                Err(error @ LogError::UnusableDirectory { .. }) => return Err(error),
                Err(error) => {
                    error!(directory = %directory.path().display(), %error, "a log directory cannot be used")
                }
            }
        }
        demote_copies(&mut found, &random)?;
        let loaded =
            Loader { options, random: &random, directories: &directories.directories }.load(found)?;
        for log in loaded.futures.keys().filter_map(|of| loaded.logs.get(of)) {
            log.set_moving(true);
        }
        let manager = LogManager {
            directories: directories.directories,
            _locks: directories.locks,
            failures: directories.failures,
            logs: RwLock::new(loaded.logs),
            futures: RwLock::new(loaded.futures),
            preferred: Mutex::default(),
            changing: Mutex::new(()),
            random,
        };
        if manager.online().next().is_none() {
            return NoDirectorySnafu.fail();
        }
        Ok(manager)
    }

    pub fn log(&self, topic_partition: &TopicPartition) -> Option<Arc<Log>> {
        self.logs.read().get(topic_partition).filter(|log| !log.directory().is_offline()).cloned()
    }

    /// The logs of all directories that are online.
    pub fn logs(&self) -> Vec<Arc<Log>> {
        self.logs.read().values().filter(|log| !log.directory().is_offline()).cloned().collect()
    }

    pub fn directories(&self) -> Vec<DirectoryStatus> {
        let status = |directory: &Arc<LogDirectory>| {
            let is_online = !directory.is_offline();
            let space = is_online.then(|| directory.fs.space(directory.path()).ok()).flatten();
            DirectoryStatus { directory: directory.clone(), space }
        };
        self.directories.iter().map(status).collect()
    }

    pub fn offline_directories(&self) -> Vec<Arc<LogDirectory>> {
        self.directories.iter().filter(|directory| directory.is_offline()).cloned().collect()
    }

    /// Resolves when a directory has gone offline since it was last asked; one task may ask.
    pub async fn directory_failed(&self) {
        self.failures.notified().await;
    }

    /// Whether a log of this partition lies in a directory that is offline.
    pub fn is_offline(&self, topic_partition: &TopicPartition) -> bool {
        self.logs.read().get(topic_partition).is_some_and(|log| log.directory().is_offline())
    }

    fn online(&self) -> impl Iterator<Item = &Arc<LogDirectory>> {
        self.directories.iter().filter(|directory| !directory.is_offline())
    }

    /// With the copies that moves make.
    fn logs_in(&self, directory: &Arc<LogDirectory>) -> Vec<Arc<Log>> {
        let (logs, futures) = (self.logs.read(), self.futures.read());
        let all = logs.values().chain(futures.values());
        all.filter(|log| Arc::ptr_eq(log.directory(), directory)).cloned().collect()
    }

    /// The log of a partition, created if there is none: in the directory that was [preferred](Self::prefer), or is by
    /// `preferred`, if that is online, else in the online directory with the fewest logs.
    ///
    /// A zero `topic_id` is not written. Errors: [`LogError::InconsistentTopicId`] if there is a log of another
    /// topic of this name, [`LogError::NoDirectory`], and those of storage.
    pub fn log_or_create(
        &self,
        topic_partition: &TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        preferred: Option<&Path>,
        now: Timestamp,
    ) -> Result<Arc<Log>, LogError> {
        let _changing = self.changing.lock();
        let known = self.logs.read().get(topic_partition).cloned();
        let log = match known {
            Some(log) => {
                log.directory().ensure_online()?;
                log
            }
            None => self.create(topic_partition, config, preferred, now)?,
        };
        if !topic_id.is_zero() {
            log.assign_topic_id(topic_id)?;
        }
        Ok(log)
    }

    fn create(
        &self,
        topic_partition: &TopicPartition,
        config: LogConfig,
        preferred: Option<&Path>,
        now: Timestamp,
    ) -> Result<Arc<Log>, LogError> {
        let asked_for = self.take_preferred(topic_partition);
        let directory = self.directory_for_new(asked_for.as_deref().or(preferred))?;
        let place = Place::new(directory.clone(), &topic_partition.to_string());
        let path = place.path();
        // A crash may have come between the removal of an earlier log of this name and the checkpoints'.
        directory.forget(std::slice::from_ref(topic_partition))?;
        let loaded = match directory.fs.create_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                load(&place, &LoadOptions::of_found(&config, now))?
            }
            created => {
                directory.check(created, "creating", &path)?;
                Loaded::empty(&place, now)?
            }
        };
        debug!(topic = %topic_partition.topic, partition = %topic_partition.partition, directory = %path.display(), "created a log");
        let log =
            Arc::new(Log::new(topic_partition.clone(), place, config, loaded, self.random.clone(), now));
        log.reserve_space()?;
        self.logs.write().insert(topic_partition.clone(), log.clone());
        Ok(log)
    }

    fn directory_for_new(&self, preferred: Option<&Path>) -> Result<Arc<LogDirectory>, LogError> {
        let mut online: Vec<&Arc<LogDirectory>> = self.online().collect();
        if let Some(&directory) = online.iter().find(|directory| Some(directory.path()) == preferred) {
            return Ok(directory.clone());
        }
        if online.len() > 1 {
            online.sort_by_cached_key(|directory| self.logs_in(directory).len());
        }
        online.first().map(|&directory| directory.clone()).ok_or(LogError::NoDirectory)
    }

    /// Closes logs and renames their directories, which are removed after `file.delete.delay.ms`.
    ///
    /// Partitions without a log are passed over. Durable when it returns.
    pub fn delete(&self, topic_partitions: &[TopicPartition], now: Timestamp) -> Result<(), LogError> {
        let _changing = self.changing.lock();
        // Copies first: a crash must not leave one whose log is gone.
        for logs in [&self.futures, &self.logs] {
            for directory in self.online() {
                let deleted = take_out(&mut logs.write(), topic_partitions, directory);
                if !deleted.is_empty() {
                    self.delete_in(directory, &deleted, now)?;
                }
            }
        }
        Ok(())
    }

    fn delete_in(
        &self,
        directory: &LogDirectory,
        deleted: &[Arc<Log>],
        now: Timestamp,
    ) -> Result<(), LogError> {
        for log in deleted {
            self.rename_for_deletion(log, now)?;
        }
        directory.sync()?;
        let names: Vec<TopicPartition> = deleted.iter().map(|log| log.topic_partition().clone()).collect();
        directory.forget(&names)
    }

    /// Deletes what retention no longer keeps, in all logs, and removes files whose delay is over. Answers how
    /// many segments were deleted.
    pub fn retention_tick(&self, now: Timestamp) -> usize {
        self.retain_in(self.logs().into_iter().chain(self.futures()), now)
    }

    fn retain_in(&self, logs: impl Iterator<Item = Arc<Log>>, now: Timestamp) -> usize {
        let mut count = 0;
        for log in logs {
            match log.apply_retention(now) {
                Ok(deleted) => count += deleted,
                Err(LogError::Closed { .. } | LogError::DirectoryOffline { .. }) => {}
                Err(error) => report_log(&log, "applying retention", &error),
            }
        }
        count
    }

    /// Removes deleted files and directories whose delay is over. In a directory that is short of room nothing is
    /// waited for: retention is applied at once, and what is deleted goes.
    pub fn removal_tick(&self, now: Timestamp) {
        for directory in self.online() {
            directory.look_for_room();
            if directory.is_short_of_room() {
                self.retain_in(self.logs_in(directory).into_iter(), now);
                report(directory, "removing deleted files", directory.remove_all().map(|_| ()));
                directory.look_for_room();
                continue;
            }
            report(directory, "removing deleted files", directory.remove_due(now).map(|_| ()));
        }
    }

    /// Flushes logs that `flush.ms` asks for.
    pub fn flush_tick(&self, now: Timestamp) {
        for log in self.logs().into_iter().chain(self.futures()).filter(|log| log.is_flush_due(now)) {
            if let Err(error) = log.flush(FlushWanted::Everything, now) {
                report_log(&log, "flushing", &error);
            }
        }
    }

    /// Forgets idempotent producers that have been silent for `expiration_ms`.
    pub fn producer_expiry_tick(&self, expiration_ms: i64, now: Timestamp) {
        for log in self.logs() {
            log.expire_producers(expiration_ms, now);
        }
    }

    /// Every `log.flush.offset.checkpoint.interval.ms`.
    pub fn recovery_point_tick(&self) {
        for directory in self.online() {
            report(directory, "writing a checkpoint", self.checkpoint_recovery_points_of(directory));
        }
    }

    /// Every `log.flush.start.offset.checkpoint.interval.ms`.
    pub fn log_start_offset_tick(&self) {
        for directory in self.online() {
            report(directory, "writing a checkpoint", self.checkpoint_log_starts_of(directory));
        }
    }

    /// Every `replica.high.watermark.checkpoint.interval.ms`.
    pub fn high_watermark_tick(&self) {
        for directory in self.online() {
            report(directory, "writing a checkpoint", self.checkpoint_high_watermarks_of(directory));
        }
    }

    pub(super) fn checkpoint_recovery_points_of(
        &self,
        directory: &Arc<LogDirectory>,
    ) -> Result<(), LogError> {
        self.write_offsets(directory, WhichCheckpoint::RecoveryPoint, |log| Some(log.recovery_point()))
    }

    pub(super) fn checkpoint_high_watermarks_of(
        &self,
        directory: &Arc<LogDirectory>,
    ) -> Result<(), LogError> {
        self.write_offsets(directory, WhichCheckpoint::HighWatermark, |log| Some(log.high_watermark()))
    }

    /// Only where the log starts later than its files do: else the files say it.
    pub(super) fn checkpoint_log_starts_of(&self, directory: &Arc<LogDirectory>) -> Result<(), LogError> {
        self.write_offsets(directory, WhichCheckpoint::LogStart, |log| {
            let first_base = log.segments.load().first().map_or(Offset::ZERO, |segment| segment.base_offset);
            Some(log.log_start_offset()).filter(|&offset| offset > first_base)
        })
    }

    fn write_offsets(
        &self,
        directory: &Arc<LogDirectory>,
        which: WhichCheckpoint,
        offset_of: impl Fn(&Log) -> Option<Offset>,
    ) -> Result<(), LogError> {
        // A log that is being deleted must not come back into a checkpoint that it was taken out of.
        let _changing = self.changing.lock();
        let logs = self.logs_in(directory);
        let offsets: BTreeMap<TopicPartition, Offset> =
            logs.iter().filter_map(|log| Some((log.topic_partition().clone(), offset_of(log)?))).collect();
        directory.write_checkpoint(which, offsets)
    }

    /// Ends the work on all logs: everything is made durable, the checkpoints are written, and each directory
    /// where all of that worked is marked as closed cleanly. `broker_epoch` is for clusters without ZooKeeper.
    pub fn shut_down(&self, broker_epoch: Option<BrokerEpoch>, now: Timestamp) {
        for directory in self.online() {
            let outcome = self.shut_down_directory(directory, broker_epoch, now);
            if outcome.is_ok() {
                info!(directory = %directory.path().display(), "closed a log directory");
            }
            report(directory, "closing a log directory", outcome);
        }
    }

    fn shut_down_directory(
        &self,
        directory: &Arc<LogDirectory>,
        broker_epoch: Option<BrokerEpoch>,
        now: Timestamp,
    ) -> Result<(), LogError> {
        self.checkpoint_high_watermarks_of(directory)?;
        let logs = self.logs_in(directory);
        let mut changed = Vec::new();
        for log in logs {
            if log.write_out_for_shutdown()? {
                changed.push(log);
            }
        }
        sync_logs(directory, &changed, now)?;
        self.checkpoint_recovery_points_of(directory)?;
        self.checkpoint_log_starts_of(directory)?;
        let marker = checkpoint::format_clean_shutdown(broker_epoch);
        let path = directory.path().join(CLEAN_SHUTDOWN);
        directory.check(directory.fs.replace(&path, marker.as_bytes(), Durability::Synced), "writing", &path)
    }
}

/// Those of the partitions that lie in the directory.
fn take_out(
    logs: &mut HashMap<TopicPartition, Arc<Log>>,
    topic_partitions: &[TopicPartition],
    directory: &Arc<LogDirectory>,
) -> Vec<Arc<Log>> {
    let is_here = |topic_partition: &&TopicPartition| {
        logs.get(*topic_partition).is_some_and(|log| Arc::ptr_eq(log.directory(), directory))
    };
    let here: Vec<&TopicPartition> = topic_partitions.iter().filter(is_here).collect();
    here.into_iter().filter_map(|topic_partition| logs.remove(topic_partition)).collect()
}

fn report(directory: &LogDirectory, doing: &'static str, outcome: Result<(), LogError>) {
    if let Err(error) = outcome {
        error!(directory = %directory.path().display(), %error, doing, "a log directory has a problem");
    }
}

pub(super) fn report_log(log: &Log, doing: &'static str, error: &LogError) {
    let TopicPartition { topic, partition } = log.topic_partition();
    error!(%topic, %partition, %error, doing, "a log has a problem");
}

impl fmt::Debug for LogManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogManager").field("directories", &self.directories).finish_non_exhaustive()
    }
}
