//! Finding and loading the logs of all directories, several at a time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use snafu::ensure;
use tracing::{error, info};

use crate::model::{Offset, Timestamp, TopicPartition};
use crate::runtime::Random;

use super::append::FlushWanted;
use super::directory::{LogDirectory, Place, WhichCheckpoint};
use super::error::{LogError, StoppedSnafu, UnusableDirectorySnafu};
use super::load::{LoadOptions, load};
use super::manager::{CLEAN_SHUTDOWN, LoadAllOptions};
use super::names::{DirectoryKind, classify_directory};
use super::partition_log::Log;

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

/// Logs by partition, and the copies that moves make of some.
#[derive(Default)]
pub(super) struct LoadedLogs {
    pub(super) logs: HashMap<TopicPartition, Arc<Log>>,
    pub(super) futures: HashMap<TopicPartition, Arc<Log>>,
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
    let offset = |offsets: &BTreeMap<TopicPartition, Offset>, topic_partition: &TopicPartition| {
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
            DirectoryKind::Deleted => directory.remove_later(path, now),
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
    match directory.fs.remove_file(&path) {
        Ok(()) => directory.sync().map(|()| true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => directory.check(Err(error), "removing", &path),
    }
}

/// Loads the logs that were found.
pub(super) struct Loader<'a> {
    pub(super) options: &'a LoadAllOptions<'a>,
    pub(super) random: &'a Random,
    pub(super) directories: &'a [Arc<LogDirectory>],
}

/// How often a long recovery tells how far it is, and saves it.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// From so many logs on one sync of the whole volume is cheaper than syncing each.
const SINGLE_SYNCS_MAX: usize = 32;

impl Loader<'_> {
    /// Loads, and makes durable what was recovered, before anybody is shown it. A recovery that is stopped
    /// keeps what it has done: the next start does not begin again.
    pub(super) fn load(&self, found: Vec<FoundLog>) -> Result<LoadedLogs, LogError> {
        self.refuse_twins(&found)?;
        let next = AtomicUsize::new(0);
        let online = self.directories.iter().filter(|directory| !directory.is_offline()).count();
        let threads = (online.max(1) * self.options.threads_per_directory.max(1)).min(found.len());
        std::thread::scope(|scope| {
            let (sender, results) = mpsc::channel();
            for _ in 0..threads {
                let sender = sender.clone();
                let (next, found) = (&next, &found);
                scope.spawn(move || {
                    while let Some(found) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if sender.send(self.load_one(found)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            self.collect(&results, found.len())
        })
    }

    fn refuse_twins(&self, found: &[FoundLog]) -> Result<(), LogError> {
        let mut seen = HashMap::new();
        for log in found {
            if let Some(other) = seen.insert((&log.topic_partition, log.is_future), log.directory.path()) {
                let message = format!("the partition is also in {}", other.display());
                let path = log.directory.path().join(&log.name);
                return UnusableDirectorySnafu { path, message }.fail();
            }
        }
        Ok(())
    }

    fn collect(
        &self,
        results: &mpsc::Receiver<Result<Arc<Log>, LogError>>,
        total: usize,
    ) -> Result<LoadedLogs, LogError> {
        let mut loaded = LoadedLogs::default();
        let mut unsaved: Vec<Arc<Log>> = Vec::new();
        let mut failed = 0;
        let mut is_stopped = false;
        let mut last_progress = Instant::now();
        loop {
            match results.recv_timeout(PROGRESS_INTERVAL) {
                Ok(Ok(log)) => {
                    if log.needs_sync() {
                        unsaved.push(log.clone());
                    }
                    loaded.add(log);
                }
                Ok(Err(LogError::Stopped)) => is_stopped = true,
                Ok(Err(LogError::DirectoryOffline { .. })) => failed += 1,
                Ok(Err(error)) => {
                    error!(%error, "a log cannot be loaded");
                    failed += 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if last_progress.elapsed() >= PROGRESS_INTERVAL {
                info!(loaded = loaded.logs.len(), failed, total, "loading logs");
                self.save(&std::mem::take(&mut unsaved));
                last_progress = Instant::now();
            }
        }
        self.save(&unsaved);
        ensure!(!is_stopped, StoppedSnafu);
        Ok(loaded)
    }

    /// Makes recovered logs durable and notes that they are.
    fn save(&self, recovered: &[Arc<Log>]) {
        for directory in self.directories.iter().filter(|directory| !directory.is_offline()) {
            let is_here = |log: &&Arc<Log>| Arc::ptr_eq(log.directory(), directory);
            let logs: Vec<Arc<Log>> = recovered.iter().filter(is_here).cloned().collect();
            let saved = sync_logs(directory, &logs, self.options.now).and_then(|()| {
                let points = logs.iter().map(|log| (log.topic_partition().clone(), log.recovery_point()));
                directory.update_recovery_points(points)
            });
            if let Err(error) = saved {
                error!(directory = %directory.path().display(), %error, "recovered logs cannot be synced");
            }
        }
    }

    fn load_one(&self, found: &FoundLog) -> Result<Arc<Log>, LogError> {
        if self.options.stop.load(Ordering::Relaxed) {
            return StoppedSnafu.fail();
        }
        found.directory.ensure_online()?;
        let config = (self.options.config_of)(&found.topic_partition.topic);
        let place = Place::new(found.directory.clone(), &found.name);
        let loaded = load(
            &place,
            &LoadOptions {
                is_clean: found.is_clean,
                recovery_point: found.recovery_point,
                log_start_offset: found.log_start_offset,
                index_interval_bytes: config.index_interval_bytes,
                file_delete_delay_ms: config.file_delete_delay_ms,
                producer_expiration_ms: self.options.producer_expiration_ms,
                now: self.options.now,
                stop: self.options.stop,
            },
        );
        let loaded = loaded.inspect_err(|error| {
            // A log that cannot be understood must not be taken for one that is not there.
            if !matches!(error, LogError::Stopped) {
                found.directory.take_offline();
            }
        })?;
        let topic_partition = found.topic_partition.clone();
        let log = Log::new(topic_partition, place, config, loaded, self.random.clone(), self.options.now);
        log.is_future.store(found.is_future, Ordering::Release);
        log.advance_high_watermark(found.high_watermark);
        Ok(Arc::new(log))
    }
}

impl LoadedLogs {
    fn add(&mut self, log: Arc<Log>) {
        let of = log.topic_partition().clone();
        let is_future = log.is_future.load(Ordering::Acquire);
        if is_future {
            self.futures.insert(of, log)
        } else {
            self.logs.insert(of, log)
        };
    }
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
