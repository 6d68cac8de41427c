use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::Notify;
use tracing::{debug, error, info};

use crate::model::{Offset, Timestamp, TopicId, TopicName, TopicPartition};
use crate::runtime::Random;
use crate::runtime::fs::{Durability, FileLock, Space};

use super::append::FlushWanted;
use super::checkpoint;
use super::config::LogConfig;
use super::directories::LogDirectories;
use super::directory::{Delay, LogDirectory, Place, WhichCheckpoint};
use super::error::{LogError, NoDirectorySnafu, unless_full};
use super::load::{LoadOptions, load};
use super::load_all::{FoundPartition, find_logs, pair_up, sync_logs};
use super::moves::demote_copies;
use super::names::deleted_directory_name;
use super::partition_log::{Loaded, Log};
use super::registry::Registry;

/// All logs of this broker, in all of its `log.dirs`.
///
/// The methods that wait for the disk, and those ending in `_tick`, are for the blocking pool; a task calls
/// the ticks at Kafka's intervals. A failure in a directory takes only that one offline: see
/// [`offline_directories`](LogManager::offline_directories).
pub struct LogManager {
    pub(super) directories: Vec<Arc<LogDirectory>>,
    _locks: Vec<Box<dyn FileLock>>,
    failures: Arc<Notify>,
    pub(super) registry: RwLock<Registry>,
    /// What [`load_all`](LogManager::load_all) is to load.
    pub(super) found: Mutex<Vec<FoundPartition>>,
    pub(super) segments_left: AtomicUsize,
    /// Who waits for the end of a load holds it while looking.
    pub(super) load_turn: Mutex<()>,
    pub(super) load_ended: Condvar,
    /// The copies that moves between directories make.
    pub(super) futures: RwLock<HashMap<TopicPartition, Arc<Log>>>,
    /// Where logs are to be created that are not there yet.
    pub(super) preferred: Mutex<HashMap<TopicPartition, PathBuf>>,
    /// A directory was offline from the start: nobody knows what lies there.
    has_unlisted: bool,
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
    pub config_of: &'a (dyn Fn(&TopicName) -> Arc<LogConfig> + Sync),
    /// How many logs are read at a time, for each directory.
    pub threads_per_directory: usize,
    /// `producer.id.expiration.ms`
    pub producer_expiration_ms: i64,
    pub now: Timestamp,
}

pub(super) const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

impl LogManager {
    /// Finds the logs of all directories. None can be used before [`load_all`](LogManager::load_all) comes to it.
    ///
    /// Errors: [`LogError::UnusableDirectory`] if a partition lies in two directories or a folder is no
    /// partition's, [`LogError::NoDirectory`].
    pub fn open(directories: LogDirectories, random: Random, now: Timestamp) -> Result<LogManager, LogError> {
        let mut found = Vec::new();
        for directory in directories.directories.iter().filter(|directory| !directory.is_offline()) {
            match find_logs(directory, now) {
                Ok(logs) => found.extend(logs),
                Err(error @ LogError::UnusableDirectory { .. }) => return Err(error),
                Err(error) => {
                    error!(directory = %directory.path().display(), %error, "a log directory cannot be used")
                }
            }
        }
        demote_copies(&mut found, &random)?;
        let found = pair_up(found)?;
        let mut registry = Registry::default();
        found.iter().for_each(|partition| registry.add_found(partition));
        let has_unlisted = directories.directories.iter().any(|directory| directory.is_offline());
        let manager = LogManager {
            directories: directories.directories,
            _locks: directories.locks,
            failures: directories.failures,
            registry: RwLock::new(registry),
            found: Mutex::new(found),
            segments_left: AtomicUsize::new(0),
            load_turn: Mutex::new(()),
            load_ended: Condvar::new(),
            futures: RwLock::default(),
            preferred: Mutex::default(),
            has_unlisted,
            changing: Mutex::new(()),
            random,
        };
        if manager.online().next().is_none() {
            return NoDirectorySnafu.fail();
        }
        Ok(manager)
    }

    /// The log of a partition, if there is one that can be used.
    pub fn log(&self, topic_partition: &TopicPartition) -> Option<Arc<Log>> {
        self.registry.read().find(topic_partition).ok().flatten()
    }

    /// The logs that can be used.
    pub fn logs(&self) -> Vec<Arc<Log>> {
        let registry = self.registry.read();
        registry.loaded().filter(|log| !log.directory().is_offline()).cloned().collect()
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
        self.registry.read().is_in_offline_directory(topic_partition)
    }

    /// Whether a log of this partition, of which none is known, may lie in a directory that was offline from the start.
    pub fn may_lie_offline(&self, topic_partition: &TopicPartition) -> bool {
        self.has_unlisted && matches!(self.registry.read().find(topic_partition), Ok(None))
    }

    pub(super) fn online(&self) -> impl Iterator<Item = &Arc<LogDirectory>> {
        self.directories.iter().filter(|directory| !directory.is_offline())
    }

    /// With the copies that moves make.
    fn logs_in(&self, directory: &Arc<LogDirectory>) -> Vec<Arc<Log>> {
        let (registry, futures) = (self.registry.read(), self.futures.read());
        let is_here = |log: &&Arc<Log>| Arc::ptr_eq(log.directory(), directory);
        registry.loaded().chain(futures.values()).filter(is_here).cloned().collect()
    }

    /// The log of a partition, created if there is none: in the directory that was [preferred](Self::prefer), or is by
    /// `preferred`, if that is online, else in the online directory with the fewest logs.
    ///
    /// A zero `topic_id` is not written. Errors: [`LogError::Loading`] and [`LogError::Failed`] for a log that cannot
    /// be used, [`LogError::InconsistentTopicId`] if there is a log of another topic of this name,
    /// [`LogError::NoDirectory`], and those of storage.
    pub fn log_or_create(
        &self,
        topic_partition: &TopicPartition,
        topic_id: TopicId,
        config: impl Into<Arc<LogConfig>>,
        preferred: Option<&Path>,
        now: Timestamp,
    ) -> Result<Arc<Log>, LogError> {
        let _changing = self.changing.lock();
        let known = self.registry.read().find(topic_partition)?;
        let log = match known {
            Some(log) => log,
            None => self.create(topic_partition, config.into(), preferred, now)?,
        };
        if !topic_id.is_zero() {
            log.assign_topic_id(topic_id)?;
        }
        Ok(log)
    }

    fn create(
        &self,
        topic_partition: &TopicPartition,
        config: Arc<LogConfig>,
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
                // The next start must not take it for a log.
                Loaded::empty(&place, now).inspect_err(|_| drop(directory.fs.remove_dir_all(&path)))?
            }
        };
        debug!(topic = %topic_partition.topic, partition = %topic_partition.partition, directory = %path.display(), "created a log");
        let log =
            Arc::new(Log::new(topic_partition.clone(), place, config, loaded, self.random.clone(), now));
        log.reserve_space()?;
        self.registry.write().add_loaded(log.clone());
        Ok(log)
    }

    fn directory_for_new(&self, preferred: Option<&Path>) -> Result<Arc<LogDirectory>, LogError> {
        let mut online: Vec<&Arc<LogDirectory>> = self.online().collect();
        if let Some(&directory) = online.iter().find(|directory| Some(directory.path()) == preferred) {
            return Ok(directory.clone());
        }
        if online.len() > 1 {
            let registry = self.registry.read();
            online.sort_by_cached_key(|directory| registry.count_in(directory));
        }
        online.first().map(|&directory| directory.clone()).ok_or(LogError::NoDirectory)
    }

    /// Closes logs and renames their directories, which are removed after `file.delete.delay.ms`.
    ///
    /// Logs that are not loaded are deleted as well, and partitions without a log passed over. Durable when it
    /// returns.
    pub fn delete(&self, topic_partitions: &[TopicPartition], now: Timestamp) -> Result<(), LogError> {
        let _changing = self.changing.lock();
        self.end_loads_of(topic_partitions);
        // Copies first: a crash must not leave one whose log is gone.
        for directory in self.online() {
            let copies = self.registry.write().take_copies_from(directory, topic_partitions);
            let futures = take_out(&mut self.futures.write(), topic_partitions, directory);
            self.delete_in(directory, &futures, &copies, now)?;
        }
        for directory in self.online() {
            let (logs, folders) = self.registry.write().take_from(directory, topic_partitions);
            self.delete_in(directory, &logs, &folders, now)?;
        }
        Ok(())
    }

    /// `folders` are those of logs that are not loaded.
    fn delete_in(
        &self,
        directory: &Arc<LogDirectory>,
        logs: &[Arc<Log>],
        folders: &[(TopicPartition, String)],
        now: Timestamp,
    ) -> Result<(), LogError> {
        if logs.is_empty() && folders.is_empty() {
            return Ok(());
        }
        for log in logs {
            self.rename_for_deletion(log, now)?;
        }
        for (topic_partition, name) in folders {
            self.doom(directory, topic_partition, name, now)?;
        }
        directory.sync()?;
        let names = logs.iter().map(|log| log.topic_partition());
        let names: Vec<TopicPartition> = names.chain(folders.iter().map(|(of, _)| of)).cloned().collect();
        // A deletion makes room, so it needs none: who makes a log of the same name asks again.
        unless_full(directory.forget(&names))
    }

    /// Gives a folder that nobody has a file of open the name under which it waits for its removal.
    pub(super) fn doom(
        &self,
        directory: &Arc<LogDirectory>,
        topic_partition: &TopicPartition,
        name: &str,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let place = Place::new(directory.clone(), name);
        let path = place.rename(&deleted_directory_name(topic_partition, self.random.bytes()))?;
        directory.remove_later(path, Delay::none(now));
        Ok(())
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
        directory.write_checkpoint(which, |known| {
            let (registry, futures) = (self.registry.read(), self.futures.read());
            // What was known of logs that are not loaded is all that is known of them.
            let unloaded = registry.unloaded_in(directory).filter_map(|name| known.get_key_value(name));
            let unloaded = unloaded.map(|(name, offset)| (name.clone(), *offset));
            let is_here = |log: &&Arc<Log>| Arc::ptr_eq(log.directory(), directory);
            let loaded = registry.loaded().chain(futures.values()).filter(is_here);
            let loaded = loaded.filter_map(|log| Some((log.topic_partition().clone(), offset_of(log)?)));
            unloaded.chain(loaded).collect()
        })
    }

    /// Ends the work on all logs: everything is made durable, the checkpoints are written, and each directory
    /// where all of that worked is marked as closed cleanly, unless it has logs that were not loaded.
    pub fn shut_down(&self, now: Timestamp) {
        for directory in self.online() {
            let outcome = self.shut_down_directory(directory, now);
            if outcome.is_ok() {
                info!(directory = %directory.path().display(), "closed a log directory");
            }
            report(directory, "closing a log directory", outcome);
        }
    }

    fn shut_down_directory(&self, directory: &Arc<LogDirectory>, now: Timestamp) -> Result<(), LogError> {
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
        if self.registry.read().unloaded_in(directory).next().is_some() {
            // The mark would say of them as well that nothing is to be recovered.
            return Ok(());
        }
        let marker = checkpoint::format_clean_shutdown(*directory.clean_mark_epoch.lock());
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
