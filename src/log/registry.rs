use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::model::TopicPartition;

use super::directory::LogDirectory;
use super::error::{FailedSnafu, LoadingSnafu, LogError};
use super::load_all::{FoundLog, FoundPartition};
use super::partition_log::Log;

/// Every log that lies in the directories: those that can be used, and those that cannot yet, or not at all.
///
/// A log is in one of both from the moment its folder is found, so that nobody takes it for one that is not there.
#[derive(Default)]
pub(super) struct Registry {
    loaded: HashMap<TopicPartition, Arc<Log>>,
    unloaded: HashMap<TopicPartition, Unloaded>,
    /// No further log is begun.
    is_stopped: bool,
}

struct Unloaded {
    /// `None` = only a copy was found.
    log: Option<Folder>,
    /// That a move makes of it.
    copy: Option<Folder>,
    state: State,
}

/// Where the files of a log are.
struct Folder {
    directory: Arc<LogDirectory>,
    name: String,
}

enum State {
    Waiting,
    /// Somebody reads it. Set to end that early.
    InProgress(Arc<AtomicBool>),
    /// It cannot be used, for this reason.
    Failed(String),
}

/// A log that cannot be used, in a directory that works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedLog {
    pub topic_partition: TopicPartition,
    pub reason: String,
}

impl Registry {
    pub(super) fn add_found(&mut self, found: &FoundPartition) {
        let folder = |log: &FoundLog| Folder { directory: log.directory.clone(), name: log.name.clone() };
        let (log, copy) = (found.log.as_ref().map(folder), found.copy.as_ref().map(folder));
        let unloaded = Unloaded { log, copy, state: State::Waiting };
        self.unloaded.insert(found.topic_partition.clone(), unloaded);
    }

    pub(super) fn add_loaded(&mut self, log: Arc<Log>) {
        self.unloaded.remove(log.topic_partition());
        self.loaded.insert(log.topic_partition().clone(), log);
    }

    /// There is no log of the partition after all.
    pub(super) fn forget(&mut self, topic_partition: &TopicPartition) {
        self.unloaded.remove(topic_partition);
    }

    /// The log of a partition that can be used, also in a directory that went offline.
    pub(super) fn loaded_log(&self, topic_partition: &TopicPartition) -> Option<&Arc<Log>> {
        self.loaded.get(topic_partition)
    }

    /// Claims a log that waits. `None` if it is gone, or nothing is to be begun any more.
    pub(super) fn begin(&mut self, topic_partition: &TopicPartition) -> Option<Arc<AtomicBool>> {
        let unloaded = self.unloaded.get_mut(topic_partition).filter(|_| !self.is_stopped)?;
        if !matches!(unloaded.state, State::Waiting) {
            return None;
        }
        let stop = Arc::new(AtomicBool::new(false));
        unloaded.state = State::InProgress(Arc::clone(&stop));
        Some(stop)
    }

    pub(super) fn fail(&mut self, topic_partition: &TopicPartition, reason: String) {
        self.set_state(topic_partition, State::Failed(reason));
    }

    /// The load of a log was ended early.
    pub(super) fn give_back(&mut self, topic_partition: &TopicPartition) {
        self.set_state(topic_partition, State::Waiting);
    }

    fn set_state(&mut self, topic_partition: &TopicPartition, state: State) {
        if let Some(unloaded) = self.unloaded.get_mut(topic_partition) {
            unloaded.state = state;
        }
    }

    /// Begins no log any more, and ends what is in progress.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
        for unloaded in self.unloaded.values() {
            unloaded.stop();
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Sees to it that a log is not loaded any more; answers whether somebody is still at it.
    pub(super) fn end_load(&mut self, topic_partition: &TopicPartition) -> bool {
        let Some(unloaded) = self.unloaded.get_mut(topic_partition) else { return false };
        let is_in_progress = unloaded.stop();
        if !is_in_progress {
            unloaded.state = State::Failed("it is being deleted".to_owned());
        }
        is_in_progress
    }

    /// The log of a partition; `None` if there is none.
    ///
    /// Errors: [`LogError::Loading`], [`LogError::Failed`], [`LogError::DirectoryOffline`].
    pub(super) fn find(&self, topic_partition: &TopicPartition) -> Result<Option<Arc<Log>>, LogError> {
        if let Some(log) = self.loaded.get(topic_partition) {
            return log.directory().ensure_online().map(|()| Some(Arc::clone(log)));
        }
        let Some(unloaded) = self.unloaded.get(topic_partition) else { return Ok(None) };
        if let Some(log) = &unloaded.log {
            log.directory.ensure_online()?;
        }
        match &unloaded.state {
            State::Waiting | State::InProgress(_) => {
                LoadingSnafu { topic_partition: topic_partition.clone() }.fail()
            }
            State::Failed(reason) => {
                FailedSnafu { topic_partition: topic_partition.clone(), reason: reason.clone() }.fail()
            }
        }
    }

    /// The logs that can be used, also those in directories that went offline.
    pub(super) fn loaded(&self) -> impl Iterator<Item = &Arc<Log>> {
        self.loaded.values()
    }

    /// The partitions of which a log, or a copy, lies in a directory and is not loaded.
    pub(super) fn unloaded_in(&self, directory: &Arc<LogDirectory>) -> impl Iterator<Item = &TopicPartition> {
        let is_here = |folder: &&Folder| Arc::ptr_eq(&folder.directory, directory);
        let all = self.unloaded.iter();
        all.filter(move |(_, unloaded)| unloaded.log.iter().chain(&unloaded.copy).any(|at| is_here(&at)))
            .map(|(name, _)| name)
    }

    fn loaded_in(&self, directory: &Arc<LogDirectory>) -> impl Iterator<Item = &Arc<Log>> {
        self.loaded.values().filter(|log| Arc::ptr_eq(log.directory(), directory))
    }

    /// How many logs lie in a directory.
    pub(super) fn count_in(&self, directory: &Arc<LogDirectory>) -> usize {
        self.loaded_in(directory).count() + self.unloaded_in(directory).count()
    }

    pub(super) fn is_loading(&self, topic_partition: &TopicPartition) -> bool {
        self.unloaded.get(topic_partition).is_some_and(Unloaded::is_loading)
    }

    pub(super) fn is_in_offline_directory(&self, topic_partition: &TopicPartition) -> bool {
        let loaded = self.loaded.get(topic_partition).map(|log| log.directory());
        let unloaded = || Some(&self.unloaded.get(topic_partition)?.log.as_ref()?.directory);
        loaded.or_else(unloaded).is_some_and(|directory| directory.is_offline())
    }

    pub(super) fn count_loaded(&self) -> usize {
        self.loaded.len()
    }

    pub(super) fn count_loading(&self) -> usize {
        self.unloaded.values().filter(|unloaded| unloaded.is_loading()).count()
    }

    pub(super) fn failed(&self) -> Vec<FailedLog> {
        let failed = self.unloaded.iter().filter_map(|(topic_partition, unloaded)| {
            let reason = unloaded.failure()?.to_owned();
            Some(FailedLog { topic_partition: topic_partition.clone(), reason })
        });
        failed.collect()
    }

    pub(super) fn has_failed(&self, topic_partition: &TopicPartition) -> bool {
        self.unloaded.get(topic_partition).is_some_and(|unloaded| unloaded.failure().is_some())
    }

    /// Takes those of the partitions out that lie in this directory: logs, and the folders of those that are not
    /// loaded.
    pub(super) fn take_from(
        &mut self,
        directory: &Arc<LogDirectory>,
        topic_partitions: &[TopicPartition],
    ) -> (Vec<Arc<Log>>, Vec<(TopicPartition, String)>) {
        let (mut logs, mut folders) = (Vec::new(), Vec::new());
        for topic_partition in topic_partitions {
            let is_here = |of: &Arc<LogDirectory>| Arc::ptr_eq(of, directory);
            if self.loaded.get(topic_partition).is_some_and(|log| is_here(log.directory())) {
                logs.extend(self.loaded.remove(topic_partition));
            }
            let folder = self.unloaded.get(topic_partition).and_then(|unloaded| unloaded.log.as_ref());
            if let Some(folder) = folder.filter(|folder| is_here(&folder.directory)) {
                folders.push((topic_partition.clone(), folder.name.clone()));
                self.unloaded.remove(topic_partition);
            }
        }
        (logs, folders)
    }

    /// Takes the copies out that are not loaded and lie in this directory.
    pub(super) fn take_copies_from(
        &mut self,
        directory: &Arc<LogDirectory>,
        topic_partitions: &[TopicPartition],
    ) -> Vec<(TopicPartition, String)> {
        let mut folders = Vec::new();
        for topic_partition in topic_partitions {
            let Some(unloaded) = self.unloaded.get_mut(topic_partition) else { continue };
            let is_here = |copy: &mut Folder| Arc::ptr_eq(&copy.directory, directory);
            folders.extend(unloaded.copy.take_if(is_here).map(|copy| (topic_partition.clone(), copy.name)));
            if unloaded.log.is_none() && unloaded.copy.is_none() {
                self.unloaded.remove(topic_partition);
            }
        }
        folders
    }
}

impl Unloaded {
    /// Why it cannot be used; `None` also where its directory is the reason.
    fn failure(&self) -> Option<&str> {
        match &self.state {
            State::Failed(reason) if !self.is_offline() => Some(reason),
            State::Failed(_) | State::Waiting | State::InProgress(_) => None,
        }
    }

    fn is_loading(&self) -> bool {
        !matches!(self.state, State::Failed(_)) && !self.is_offline()
    }

    fn is_offline(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.directory.is_offline())
    }

    /// Answers whether there was something to stop.
    fn stop(&self) -> bool {
        let State::InProgress(stop) = &self.state else { return false };
        stop.store(true, Ordering::Relaxed);
        true
    }
}
