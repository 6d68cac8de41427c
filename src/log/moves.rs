//! Moving a log to another of `log.dirs`: a copy grows in a `-future` folder there, and takes the log's place.
//!
//! A crash between the renames leaves the partition in both directories. Until the old folder is gone, a mark lies in
//! the new one: where both are found, that is the copy, and the old one counts, as nothing was written to either while
//! they changed places.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use snafu::ensure;
use tracing::{info, warn};

use super::append::FlushWanted;
use super::directory::{Delay, LogDirectory, Place};
use super::error::{LogError, NoDirectorySnafu, UnusableDirectorySnafu};
use super::load_all::FoundLog;
use super::manager::{LogManager, report_log};
use super::names::{MOVE_MARK, SmallFile, deleted_directory_name, future_directory_name};
use super::partition_log::{Loaded, Log};
use super::producer_snapshot::encode_snapshot;
use crate::model::{Timestamp, TopicPartition};
use crate::runtime::Random;
use crate::runtime::fs::Durability;

/// What became of the attempt to put a copy in the place of its log.
#[derive(Debug)]
pub enum Replacement {
    /// The copy is the log from now on.
    Done,
    /// The log has grown meanwhile.
    NotCaughtUp,
}

impl LogManager {
    /// The directory of `log.dirs` with this absolute path.
    pub fn directory_at(&self, absolute_path: &str) -> Option<Arc<LogDirectory>> {
        self.directories.iter().find(|directory| directory.absolute_path() == absolute_path).cloned()
    }

    /// The copy of a partition's log that a move is making.
    pub fn future(&self, topic_partition: &TopicPartition) -> Option<Arc<Log>> {
        self.futures.read().get(topic_partition).filter(|log| !log.directory().is_offline()).cloned()
    }

    /// The copies in all directories that are online.
    pub fn futures(&self) -> Vec<Arc<Log>> {
        self.futures.read().values().filter(|log| !log.directory().is_offline()).cloned().collect()
    }

    /// Remembers where the log of a partition is to be created.
    pub fn prefer(&self, topic_partition: &TopicPartition, directory: &LogDirectory) {
        self.preferred.lock().insert(topic_partition.clone(), directory.path().to_owned());
    }

    pub(super) fn take_preferred(&self, topic_partition: &TopicPartition) -> Option<PathBuf> {
        self.preferred.lock().remove(topic_partition)
    }

    /// Begins a copy of a log in another directory, empty. Compaction of the log rests as long as there is one.
    ///
    /// Errors: [`LogError::NoDirectory`] while any directory is offline: a copy may lie there; and those of storage.
    pub fn create_future(
        &self,
        log: &Log,
        directory: &Arc<LogDirectory>,
        now: Timestamp,
    ) -> Result<Arc<Log>, LogError> {
        let _changing = self.changing.lock();
        ensure!(self.offline_directories().is_empty(), NoDirectorySnafu);
        let topic_partition = log.topic_partition();
        let Some(name) = future_directory_name(topic_partition, self.random.bytes()) else {
            let message = "the topic's name is too long for a move";
            return UnusableDirectorySnafu { path: directory.path(), message }.fail();
        };
        directory.forget(std::slice::from_ref(topic_partition))?;
        let place = Place::new(directory.clone(), &name);
        let path = place.path();
        directory.check(directory.fs.create_dir(&path), "creating", &path)?;
        // Nobody knows of a copy that was not begun, and nobody would remove it.
        let begun = self.empty_copy(log, place, now);
        let future = Arc::new(begun.inspect_err(|_| drop(directory.fs.remove_dir_all(&path)))?);
        log.set_moving(true);
        self.futures.write().insert(topic_partition.clone(), future.clone());
        let TopicPartition { topic, partition } = topic_partition;
        info!(%topic, %partition, from = %log.directory().path().display(), to = %path.display(), "moving a log");
        Ok(future)
    }

    fn empty_copy(&self, log: &Log, place: Place, now: Timestamp) -> Result<Log, LogError> {
        let loaded = Loaded::empty(&place, now)?;
        let (of, config) = (log.topic_partition().clone(), log.config());
        let future = Log::new(of, place, config, loaded, self.random.clone(), now);
        future.is_future.store(true, Ordering::Release);
        if !log.topic_id().is_zero() {
            future.assign_topic_id(log.topic_id())?;
        }
        Ok(future)
    }

    /// Gives a move up: its copy is removed after `file.delete.delay.ms`.
    pub fn drop_future(&self, topic_partition: &TopicPartition, now: Timestamp) -> Result<(), LogError> {
        let _changing = self.changing.lock();
        let Some(future) = self.futures.write().remove(topic_partition) else { return Ok(()) };
        if let Some(log) = self.registry.read().loaded_log(topic_partition) {
            log.set_moving(false);
        }
        let TopicPartition { topic, partition } = topic_partition;
        info!(%topic, %partition, directory = %future.place.path().display(), "a move is given up");
        if future.directory().is_offline() {
            return Ok(());
        }
        self.rename_for_deletion(&future, now)?;
        future.directory().sync()
    }

    /// Makes a copy durable, and what its directory's checkpoints say of it, so that little is left to do while the
    /// log stands still.
    pub fn prepare_replacement(&self, future: &Log, now: Timestamp) -> Result<(), LogError> {
        future.flush(FlushWanted::Everything, now)?;
        let directory = future.directory();
        let of = future.topic_partition();
        if let Some(clean_end) =
            self.log(of).and_then(|log| log.directory().cleaner_offset(log.topic_partition()))
        {
            directory.set_cleaner_offset(of, clean_end)?;
        }
        self.checkpoint_recovery_points_of(directory)?;
        self.checkpoint_log_starts_of(directory)?;
        self.checkpoint_high_watermarks_of(directory)
    }

    /// Puts a copy that has all records of its log in the place of it. The old log is closed, and removed after
    /// `file.delete.delay.ms`. Durable when it returns.
    ///
    /// Nothing is written to either meanwhile. An error leaves the old log as it was; a directory that failed is
    /// offline then. Only the old directory may fail and the copy still be the log.
    pub fn replace_with_future(
        &self,
        log: &Arc<Log>,
        future: &Arc<Log>,
        now: Timestamp,
    ) -> Result<Replacement, LogError> {
        let _changing = self.changing.lock();
        let _flushing = log.flushing.lock();
        let mut writer = log.writer.lock();
        log.ensure_open()?;
        future.ensure_open()?;
        if future.log_end_offset() != log.log_end_offset() {
            return Ok(Replacement::NotCaughtUp);
        }
        future.take_over_state(log, &encode_snapshot(&writer.producers))?;
        future.flush(FlushWanted::Everything, now)?;
        future.set_move_mark(&log.place.path().to_string_lossy())?;
        let name = future.topic_partition().to_string();
        future.place.rename(&name)?;
        future.directory().sync()?;
        // From here on it is the log, whatever becomes of the old one.
        let moved = self.rename_for_deletion_locked(log, now).and_then(|()| log.directory().sync());
        report_failed(log, "renaming a log that was moved", moved);
        // Before anything is written: else the next start, should the old folder be there then, would take that for
        // the newer one.
        report_failed(future, "unmarking a log that was moved", future.remove_move_mark());
        future.writer.lock().producers = std::mem::take(&mut writer.producers);
        future.publish_producers(&mut future.writer.lock());
        log.close_locked();
        future.is_future.store(false, Ordering::Release);
        self.registry.write().add_loaded(future.clone());
        self.futures.write().remove(future.topic_partition());
        let TopicPartition { topic, partition } = future.topic_partition();
        let (from, to) = (log.directory().path().display(), future.directory().path().display());
        info!(%topic, %partition, %from, %to, log_end_offset = %future.log_end_offset(), "moved a log");
        Ok(Replacement::Done)
    }

    /// The name under which a log waits for its removal; durable once its directory is synced.
    pub(super) fn rename_for_deletion(&self, log: &Log, now: Timestamp) -> Result<(), LogError> {
        log.close();
        self.rename_for_deletion_locked(log, now)
    }

    fn rename_for_deletion_locked(&self, log: &Log, now: Timestamp) -> Result<(), LogError> {
        let name = deleted_directory_name(log.topic_partition(), self.random.bytes());
        let path = log.place.rename(&name)?;
        let delay = Delay { since: now, ms: log.config_now().file_delete_delay_ms };
        log.directory().remove_later(path, delay);
        Ok(())
    }

    /// Lets go of copies whose directory has failed; answers whose they were.
    pub fn forget_failed_futures(&self) -> Vec<TopicPartition> {
        let _changing = self.changing.lock();
        let is_lost = |_: &TopicPartition, future: &mut Arc<Log>| future.directory().is_offline();
        let lost: Vec<TopicPartition> =
            self.futures.write().extract_if(is_lost).map(|(topic_partition, _)| topic_partition).collect();
        let registry = self.registry.read();
        for log in lost.iter().filter_map(|topic_partition| registry.loaded_log(topic_partition)) {
            log.set_moving(false);
        }
        lost
    }
}

fn report_failed(log: &Log, doing: &'static str, outcome: Result<(), LogError>) {
    if let Err(error) = outcome {
        report_log(log, doing, &error);
    }
}

impl Log {
    /// Waits for a cleaning that is putting its output in place; none does that afterwards.
    pub(super) fn set_moving(&self, is_moving: bool) {
        let _writer = self.writer.lock();
        self.is_moving.store(is_moving, Ordering::Release);
    }

    /// Takes over what cannot be learned from the records alone. The caller holds the append lock of `log`, whose
    /// records this copy has all of.
    fn take_over_state(&self, log: &Log, producers: &[u8]) -> Result<(), LogError> {
        self.update_config(log.config());
        let end = log.log_end_offset();
        self.advance_high_watermark(log.high_watermark());
        self.delete_records_before(log.log_start_offset().min(self.high_watermark()))?;
        if self.topic_id().is_zero() && !log.topic_id().is_zero() {
            self.assign_topic_id(log.topic_id())?;
        }
        let mut writer = self.writer.lock();
        let mut epochs = log.epochs.read().clone();
        epochs.truncate_from_start(self.log_start_offset());
        *self.epochs.write() = epochs;
        self.write_epochs()?;
        if end > self.log_start_offset() {
            self.write_small(SmallFile::ProducerSnapshot(end), producers)?;
            writer.last_snapshot = Some(end);
        }
        Ok(())
    }

    fn set_move_mark(&self, from: &str) -> Result<(), LogError> {
        self.place.replace(MOVE_MARK, from.as_bytes(), Durability::Synced)
    }

    fn remove_move_mark(&self) -> Result<(), LogError> {
        remove_move_mark(&self.place)
    }
}

/// Makes copies again of logs that were about to take the place of others, which are there still.
///
/// Of a mark without another directory of the partition nothing follows; loading removes it.
pub(super) fn demote_copies(found: &mut [FoundLog], random: &Random) -> Result<(), LogError> {
    let mut seen: HashMap<TopicPartition, usize> = HashMap::new();
    let mut twins = Vec::new();
    for (at, log) in found.iter().enumerate().filter(|(_, log)| !log.is_future) {
        if let Some(other) = seen.insert(log.topic_partition.clone(), at) {
            twins.push((other, at));
        }
    }
    for (one, other) in twins {
        let is_marked = |at: usize| -> Result<bool, LogError> {
            let Some(log) = found.get(at) else { return Ok(false) };
            let path = log.directory.path().join(&log.name).join(MOVE_MARK);
            log.directory.check(log.directory.fs.exists(&path), "reading", &path)
        };
        let copy = match (is_marked(one)?, is_marked(other)?) {
            (true, false) => one,
            (false, true) => other,
            // It is not to be told which one counts.
            (false, false) | (true, true) => continue,
        };
        if let Some(log) = found.get_mut(copy) {
            demote(log, random)?;
        }
    }
    Ok(())
}

fn demote(log: &mut FoundLog, random: &Random) -> Result<(), LogError> {
    let Some(name) = future_directory_name(&log.topic_partition, random.bytes()) else { return Ok(()) };
    let place = Place::new(log.directory.clone(), &log.name);
    let path = place.rename(&name)?;
    log.directory.sync()?;
    warn!(directory = %path.display(), "a move that was interrupted at its end goes on");
    log.name = name;
    log.is_future = true;
    Ok(())
}

pub(super) fn remove_move_mark(place: &Place) -> Result<(), LogError> {
    let path = place.join(MOVE_MARK);
    match place.fs().remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        removed => place.check(removed, "removing", &path)?,
    }
    place.sync()
}
