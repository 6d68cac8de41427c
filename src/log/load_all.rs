//! Finding and loading the logs of all directories, several at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use snafu::ensure;
use tracing::{error, info, warn};

use crate::model::{Offset, Timestamp, TopicPartition};

use super::append::FlushWanted;
use super::checkpoint::parse_clean_shutdown;
use super::directory::{Delay, LogDirectory, Offsets, Place, WhichCheckpoint};
use super::error::{LogError, StoppedSnafu, UnusableDirectorySnafu};
use super::load::{LoadOptions, load};
use super::manager::{CLEAN_SHUTDOWN, LoadAllOptions, LogManager};
use super::names::{DirectoryKind, classify_directory};
use super::partition_log::Log;
use super::registry::FailedLog;

/// A directory that holds a log, and what the checkpoints say of it.
pub(super) struct FoundLog {
    pub(super) directory: Arc<LogDirectory>,
    /// Of the folder.
    pub(super) name: String,
    pub(super) topic_partition: TopicPartition,
    /// It is the copy that a move makes.
    pub(super) is_future: bool,
    is_clean: bool,
    recovery_point: Offset,
    log_start_offset: Offset,
    high_watermark: Offset,
}

/// What was found of a partition: its log, the copy that a move makes of it, or both.
pub(super) struct FoundPartition {
    pub(super) topic_partition: TopicPartition,
    pub(super) log: Option<FoundLog>,
    pub(super) copy: Option<FoundLog>,
}

/// Looks for logs in a directory of `log.dirs`, and takes its mark of a clean shutdown away: from now on it
/// is not closed.
pub(super) fn find_logs(directory: &Arc<LogDirectory>, now: Timestamp) -> Result<Vec<FoundLog>, LogError> {
    let recovery_points = directory.read_checkpoint(WhichCheckpoint::RecoveryPoint)?;
    let log_starts = directory.read_checkpoint(WhichCheckpoint::LogStart)?;
    let high_watermarks = directory.read_checkpoint(WhichCheckpoint::HighWatermark)?;
    directory.read_checkpoint(WhichCheckpoint::Cleaner)?;
    let folders = list_partitions(directory, now)?;
    let is_clean = take_clean_mark(directory)?;
    let offset = |offsets: &Offsets, topic_partition: &TopicPartition| {
        offsets.get(topic_partition).copied().unwrap_or(Offset::ZERO)
    };
    let found = folders.into_iter().map(|(name, topic_partition, is_future)| FoundLog {
        directory: directory.clone(),
        name,
        is_future,
        is_clean,
        recovery_point: offset(&recovery_points, &topic_partition),
        log_start_offset: offset(&log_starts, &topic_partition),
        high_watermark: offset(&high_watermarks, &topic_partition),
        topic_partition,
    });
    Ok(found.collect())
}

/// The folders of logs, and whether each is the copy of a move.
fn list_partitions(
    directory: &LogDirectory,
    now: Timestamp,
) -> Result<Vec<(String, TopicPartition, bool)>, LogError> {
    let entries = directory.check(directory.fs.list(directory.path()), "listing", directory.path())?;
    let mut folders = Vec::new();
    for entry in entries.into_iter().filter(|entry| entry.is_directory) {
        let path = directory.path().join(&entry.name);
        match classify_directory(&entry.name) {
            DirectoryKind::Partition(topic_partition) => folders.push((entry.name, topic_partition, false)),
            DirectoryKind::Future(topic_partition) => folders.push((entry.name, topic_partition, true)),
            DirectoryKind::Deleted => directory.remove_later(path, Delay::none(now)),
            DirectoryKind::Stray => {
                warn!(directory = %path.display(), "a stray log stays set aside: it is kept and not served")
            }
            DirectoryKind::Ignored => {}
            DirectoryKind::Foreign => {
                let message = "the folder is not named topic-partition: it does not belong into log.dirs";
                return UnusableDirectorySnafu { path, message }.fail();
            }
        }
    }
    Ok(folders)
}

fn take_clean_mark(directory: &LogDirectory) -> Result<bool, LogError> {
    let path = directory.path().join(CLEAN_SHUTDOWN);
    let mark = match directory.fs.read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        read => directory.check(read, "reading", &path)?,
    };
    *directory.clean_mark_epoch.lock() = parse_clean_shutdown(&String::from_utf8_lossy(&mark));
    directory.check(directory.fs.remove_file(&path), "removing", &path)?;
    directory.sync().map(|()| true)
}

/// How far the loading of all logs is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadProgress {
    /// Logs that were found in directories that work.
    pub total: usize,
    /// Logs that cannot be used yet.
    pub left: usize,
    /// Segments of the logs that are being read whose batches are still to be checked.
    pub segments_left: usize,
}

/// How often a long recovery tells how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// So many are loaded one after the other where one thread is asked for, in an order that does not depend on threads.
const FEW_LOGS: usize = 64;
/// From so many logs on one sync of the whole volume is cheaper than syncing each.
const SINGLE_SYNCS_MAX: usize = 32;

/// What became of one log.
type Outcome = (TopicPartition, Result<LoadedLogs, LogError>);

/// A log, and the copy that a move makes of it.
struct LoadedLogs {
    log: Option<Arc<Log>>,
    copy: Option<Arc<Log>>,
}

impl LogManager {
    /// Loads the logs that were found, several at a time; recovers those that were not closed. May take long.
    ///
    /// Each can be used as soon as it is loaded and what was recovered of it is durable; those that become ready
    /// together share the syncs. `ready` is told of them, and must not wait for anything; also of those that cannot
    /// be used, which stay where they are, and from which no other log suffers. A second call has nothing to do.
    ///
    /// Errors: [`LogError::Stopped`] after [`stop_loading`](LogManager::stop_loading); what was loaded stays so.
    pub fn load_all(
        &self,
        options: &LoadAllOptions<'_>,
        ready: &mut dyn FnMut(&[TopicPartition]),
    ) -> Result<(), LogError> {
        let began = Instant::now();
        let found = std::mem::take(&mut *self.found.lock());
        let next = AtomicUsize::new(0);
        let per_directory = options.threads_per_directory.max(1);
        let threads = (self.online().count().max(1) * per_directory).min(found.len());
        if threads == 1 && found.len() <= FEW_LOGS {
            for found in &found {
                let Some(stop) = self.registry.write().begin(&found.topic_partition) else { continue };
                let loaded = self.load_partition(found, options, &stop);
                self.take_group(vec![(found.topic_partition.clone(), loaded)], options.now, ready);
            }
            return self.end_loading(found.len(), began);
        }
        std::thread::scope(|scope| {
            let (sender, outcomes) = mpsc::channel();
            for _ in 0..threads {
                let sender = sender.clone();
                let (next, found) = (&next, &found);
                scope.spawn(move || {
                    while let Some(found) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let Some(stop) = self.registry.write().begin(&found.topic_partition) else {
                            continue;
                        };
                        let loaded = self.load_partition(found, options, &stop);
                        if sender.send((found.topic_partition.clone(), loaded)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            self.take_all(&outcomes, options.now, ready);
        });
        self.end_loading(found.len(), began)
    }

    fn end_loading(&self, total: usize, began: Instant) -> Result<(), LogError> {
        ensure!(!self.registry.read().is_stopped(), StoppedSnafu);
        if total > 0 {
            let elapsed_ms = began.elapsed().as_millis();
            info!(total, failed = self.failed_logs().len(), elapsed_ms, "loaded all logs");
        }
        Ok(())
    }

    fn take_all(
        &self,
        outcomes: &mpsc::Receiver<Outcome>,
        now: Timestamp,
        ready: &mut dyn FnMut(&[TopicPartition]),
    ) {
        let mut last_progress = Instant::now();
        loop {
            match outcomes.recv_timeout(PROGRESS_INTERVAL) {
                Ok(first) => {
                    let group: Vec<Outcome> = std::iter::once(first).chain(outcomes.try_iter()).collect();
                    self.take_group(group, now, ready);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if last_progress.elapsed() >= PROGRESS_INTERVAL {
                let LoadProgress { total, left, segments_left } = self.load_progress();
                info!(total, left, segments_left, "loading logs");
                last_progress = Instant::now();
            }
        }
    }

    /// Lets logs be used: at once where nothing is to be made durable, else when that is done.
    fn take_group(&self, group: Vec<Outcome>, now: Timestamp, ready: &mut dyn FnMut(&[TopicPartition])) {
        let (mut sound, mut recovered, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (topic_partition, outcome) in group {
            match outcome {
                Ok(loaded) if loaded.all().any(|log| log.needs_sync()) => {
                    recovered.push((topic_partition, loaded));
                }
                Ok(loaded) => sound.push((topic_partition, loaded)),
                Err(LogError::Stopped) => self.registry.write().give_back(&topic_partition),
                Err(error) => {
                    self.fail(&topic_partition, &error);
                    failed.push(topic_partition);
                }
            }
        }
        self.publish(sound, failed, ready);
        if !recovered.is_empty() {
            let logs: Vec<Arc<Log>> =
                recovered.iter().flat_map(|(_, loaded)| loaded.all()).cloned().collect();
            self.save(&logs, now);
            self.publish(recovered, Vec::new(), ready);
        }
    }

    fn fail(&self, topic_partition: &TopicPartition, error: &LogError) {
        let TopicPartition { topic, partition } = topic_partition;
        if !matches!(error, LogError::DirectoryOffline { .. }) {
            error!(%topic, %partition, %error, "a log cannot be loaded: this replica is offline");
        }
        self.registry.write().fail(topic_partition, error.to_string());
    }

    fn publish(
        &self,
        loaded: Vec<(TopicPartition, LoadedLogs)>,
        failed: Vec<TopicPartition>,
        ready: &mut dyn FnMut(&[TopicPartition]),
    ) {
        let mut names = failed;
        {
            let (mut registry, mut futures) = (self.registry.write(), self.futures.write());
            for (topic_partition, LoadedLogs { log, copy }) in loaded {
                futures.extend(copy.map(|copy| (topic_partition.clone(), copy)));
                match log {
                    Some(log) => registry.add_loaded(log),
                    // Of a copy alone the log is elsewhere, or gone.
                    None => registry.forget(&topic_partition),
                }
                names.push(topic_partition);
            }
        }
        drop(self.load_turn.lock());
        self.load_ended.notify_all();
        if !names.is_empty() {
            ready(&names);
        }
    }

    /// Makes recovered logs durable and notes that they are, so that the next recovery does not begin again.
    fn save(&self, recovered: &[Arc<Log>], now: Timestamp) {
        for directory in self.online() {
            let is_here = |log: &&Arc<Log>| Arc::ptr_eq(log.directory(), directory);
            let logs: Vec<Arc<Log>> = recovered.iter().filter(is_here).cloned().collect();
            let saved = sync_logs(directory, &logs, now).and_then(|()| {
                let points = logs.iter().map(|log| (log.topic_partition().clone(), log.recovery_point()));
                directory.update_recovery_points(points)
            });
            if let Err(error) = saved {
                error!(directory = %directory.path().display(), %error, "recovered logs cannot be synced");
            }
        }
    }

    fn load_partition(
        &self,
        found: &FoundPartition,
        options: &LoadAllOptions<'_>,
        stop: &AtomicBool,
    ) -> Result<LoadedLogs, LogError> {
        let log = found.log.as_ref().map(|found| self.load_one(found, options, stop)).transpose()?;
        let copy = match &found.copy {
            Some(found) => self.load_copy(found, options, stop)?,
            None => None,
        };
        if let (Some(log), Some(_)) = (&log, &copy) {
            log.set_moving(true);
        }
        Ok(LoadedLogs { log, copy })
    }

    /// A copy that cannot be used is given up: its log is where it was.
    fn load_copy(
        &self,
        found: &FoundLog,
        options: &LoadAllOptions<'_>,
        stop: &AtomicBool,
    ) -> Result<Option<Arc<Log>>, LogError> {
        let error = match self.load_one(found, options, stop) {
            Ok(copy) => return Ok(Some(copy)),
            Err(LogError::Stopped) => return StoppedSnafu.fail(),
            Err(error) => error,
        };
        let directory = &found.directory;
        warn!(directory = %directory.path().join(&found.name).display(), %error, "giving up a move: its copy cannot be used");
        if !directory.is_offline() {
            let doomed = self.doom(directory, &found.topic_partition, &found.name, options.now);
            if let Err(error) = doomed.and_then(|()| directory.sync()) {
                warn!(%error, "the copy stays behind");
            }
        }
        Ok(None)
    }

    fn load_one(
        &self,
        found: &FoundLog,
        options: &LoadAllOptions<'_>,
        stop: &AtomicBool,
    ) -> Result<Arc<Log>, LogError> {
        found.directory.ensure_online()?;
        let config = (options.config_of)(&found.topic_partition.topic);
        let place = Place::new(found.directory.clone(), &found.name);
        let loaded = load(
            &place,
            &LoadOptions {
                is_clean: found.is_clean,
                recovery_point: found.recovery_point,
                log_start_offset: found.log_start_offset,
                index_interval_bytes: config.index_interval_bytes,
                file_delete_delay_ms: config.file_delete_delay_ms,
                producer_expiration_ms: options.producer_expiration_ms,
                now: options.now,
                stop,
                segments_left: &self.segments_left,
            },
        )?;
        let topic_partition = found.topic_partition.clone();
        let log = Log::new(topic_partition, place, config, loaded, self.random.clone(), options.now);
        log.is_future.store(found.is_future, Ordering::Release);
        log.advance_high_watermark(found.high_watermark);
        Ok(Arc::new(log))
    }

    /// How far loading is.
    pub fn load_progress(&self) -> LoadProgress {
        let registry = self.registry.read();
        let left = registry.count_loading();
        LoadProgress {
            total: registry.count_loaded() + registry.failed().len() + left,
            left,
            segments_left: self.segments_left.load(Ordering::Relaxed),
        }
    }

    /// The logs that cannot be used though their directories can.
    pub fn failed_logs(&self) -> Vec<FailedLog> {
        self.registry.read().failed()
    }

    /// Whether the log is one of those that cannot be used though their directories can.
    pub fn has_failed(&self, topic_partition: &TopicPartition) -> bool {
        self.registry.read().has_failed(topic_partition)
    }

    /// Whether there is a log that will be ready later.
    pub fn is_loading(&self, topic_partition: &TopicPartition) -> bool {
        self.registry.read().is_loading(topic_partition)
    }

    /// Ends [`load_all`](LogManager::load_all) early, which returns soon after. What was loaded stays so.
    pub fn stop_loading(&self) {
        self.registry.write().stop();
    }

    /// Ends the loading of logs that are to be deleted, and waits until nobody touches their files.
    pub(super) fn end_loads_of(&self, topic_partitions: &[TopicPartition]) {
        let mut turn = self.load_turn.lock();
        let is_in_progress = || {
            let mut registry = self.registry.write();
            topic_partitions.iter().filter(|name| registry.end_load(name)).count() > 0
        };
        while is_in_progress() {
            self.load_ended.wait(&mut turn);
        }
    }
}

impl LoadedLogs {
    fn all(&self) -> impl Iterator<Item = &Arc<Log>> {
        self.log.iter().chain(&self.copy)
    }
}

/// Brings what was found of each partition together. Errors: [`LogError::UnusableDirectory`] if its log lies in two
/// directories, or copies of it do.
pub(super) fn pair_up(found: Vec<FoundLog>) -> Result<Vec<FoundPartition>, LogError> {
    let mut partitions: BTreeMap<TopicPartition, FoundPartition> = BTreeMap::new();
    for log in found {
        let topic_partition = log.topic_partition.clone();
        let empty = || FoundPartition { topic_partition: topic_partition.clone(), log: None, copy: None };
        let partition = partitions.entry(topic_partition.clone()).or_insert_with(empty);
        let place = if log.is_future { &mut partition.copy } else { &mut partition.log };
        if let Some(other) = place {
            let message = format!(
                "the partition is also in {}: of two copies, remove the one in the directory that failed",
                other.directory.path().display()
            );
            let path = log.directory.path().join(&log.name);
            return UnusableDirectorySnafu { path, message }.fail();
        }
        *place = Some(log);
    }
    Ok(partitions.into_values().collect())
}

/// Makes logs of one directory durable.
pub(super) fn sync_logs(directory: &LogDirectory, logs: &[Arc<Log>], now: Timestamp) -> Result<(), LogError> {
    if logs.len() <= SINGLE_SYNCS_MAX {
        return logs.iter().try_for_each(|log| log.flush(FlushWanted::Everything, now));
    }
    let ends =
        logs.iter().map(|log| log.write_out(FlushWanted::Everything)).collect::<Result<Vec<_>, _>>()?;
    directory.check(directory.fs.sync_volume(directory.path()), "syncing", directory.path())?;
    logs.iter().zip(ends).for_each(|(log, end)| log.note_volume_synced(end, now));
    Ok(())
}
