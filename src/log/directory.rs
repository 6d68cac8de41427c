use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use snafu::ensure;
use tokio::sync::Notify;
use tracing::{error, warn};

use crate::model::{BrokerEpoch, Offset, Timestamp, TopicPartition};
use crate::runtime::fs::{Durability, File, FileSystem, OpenMode, is_disk_full, is_out_of_files};

use super::checkpoint;
use super::error::{DirectoryOfflineSnafu, DiskFullSnafu, LogError, TooManyOpenFilesSnafu};
use super::names::FileKind;
use super::open_files::{LazyFile, OpenFiles};
use super::room::Room;

/// One of `log.dirs`: where it is, and whether it still works.
///
/// The first read, write or sync that fails takes it offline for good. A sync is never tried again: the
/// kernel may have dropped the pages that it could not write. A full disk is refused room, not a failure.
pub struct LogDirectory {
    path: PathBuf,
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) open_files: Arc<OpenFiles>,
    is_offline: AtomicBool,
    /// Told when this directory, or another that shares it, goes offline.
    failures: Arc<Notify>,
    pub(super) room: Room,
    /// What the last mark of a clean shutdown said, and the next one will say again: a KRaft controller that meets
    /// another epoch than its own takes the broker for one that was not closed. `None` = there was no mark, or no epoch.
    pub(super) clean_mark_epoch: Mutex<Option<BrokerEpoch>>,
    /// Files and directories that wait for their removal.
    doomed: Mutex<Vec<Doomed>>,
    recovery_points: Mutex<Checkpoint>,
    high_watermarks: Mutex<Checkpoint>,
    log_starts: Mutex<Checkpoint>,
    cleaner_offsets: Mutex<Checkpoint>,
    flushes: AtomicU64,
}

/// An offset for each log.
pub(super) type Offsets = BTreeMap<TopicPartition, Offset>;

/// One checkpoint of the directory.
#[derive(Default)]
struct Checkpoint {
    offsets: Offsets,
    file: CheckpointFile,
}

/// How the file of a checkpoint stands to what is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum CheckpointFile {
    /// It was neither read nor written yet.
    #[default]
    Missing,
    Same,
    /// It could not be written.
    Behind,
}

/// The checkpoints of a log directory: an offset for each log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WhichCheckpoint {
    RecoveryPoint,
    HighWatermark,
    LogStart,
    /// Where the part begins that compaction has not cleaned.
    Cleaner,
}

impl WhichCheckpoint {
    const ALL: [WhichCheckpoint; 4] = [
        WhichCheckpoint::RecoveryPoint,
        WhichCheckpoint::HighWatermark,
        WhichCheckpoint::LogStart,
        WhichCheckpoint::Cleaner,
    ];

    fn file_name(self) -> &'static str {
        match self {
            WhichCheckpoint::RecoveryPoint => "recovery-point-offset-checkpoint",
            WhichCheckpoint::HighWatermark => "replication-offset-checkpoint",
            WhichCheckpoint::LogStart => "log-start-offset-checkpoint",
            WhichCheckpoint::Cleaner => "cleaner-offset-checkpoint",
        }
    }
}

#[derive(Debug)]
struct Doomed {
    path: PathBuf,
    delay: Delay,
}

/// How long something waits for its removal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delay {
    pub(super) since: Timestamp,
    pub(super) ms: i64,
}

impl Delay {
    pub(super) fn none(now: Timestamp) -> Delay {
        Delay { since: now, ms: 0 }
    }

    /// Whether it is over. It begins anew where the clock was set back behind its begin, by a year perhaps: room must not
    /// wait for that. Kafka waits.
    fn is_over(&mut self, now: Timestamp) -> bool {
        self.since = self.since.min(now);
        self.since.plus_ms(self.ms) <= now
    }
}

impl LogDirectory {
    pub(super) fn new(
        path: PathBuf,
        fs: Arc<dyn FileSystem>,
        open_files: Arc<OpenFiles>,
        failures: Arc<Notify>,
    ) -> Self {
        LogDirectory {
            path,
            fs,
            open_files,
            is_offline: AtomicBool::new(false),
            failures,
            room: Room::default(),
            clean_mark_epoch: Mutex::default(),
            doomed: Mutex::default(),
            recovery_points: Mutex::default(),
            high_watermarks: Mutex::default(),
            log_starts: Mutex::default(),
            cleaner_offsets: Mutex::default(),
            flushes: AtomicU64::new(0),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_offline(&self) -> bool {
        self.is_offline.load(Ordering::Acquire)
    }

    /// How often records of one of its logs were made durable.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    pub(super) fn count_flush(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// As requests and answers name it.
    pub fn absolute_path(&self) -> String {
        let absolute = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        absolute.to_string_lossy().into_owned()
    }

    pub(super) fn take_offline(&self) {
        if !self.is_offline.swap(true, Ordering::AcqRel) {
            error!(directory = %self.path.display(), "the log directory is offline from now on");
            self.failures.notify_one();
        }
    }

    pub(super) fn ensure_online(&self) -> Result<(), LogError> {
        ensure!(!self.is_offline(), DirectoryOfflineSnafu { path: &self.path });
        Ok(())
    }

    /// Turns the outcome of an operation on `path` into this room's; a failure takes the directory offline, unless the
    /// disk is full, the process has too many files open, or a file is only shorter than it was.
    pub(super) fn check<T>(
        &self,
        outcome: io::Result<T>,
        doing: &'static str,
        path: &Path,
    ) -> Result<T, LogError> {
        match outcome {
            Ok(value) => Ok(value),
            Err(source) if is_disk_full(&source) => {
                self.note_full(0);
                DiskFullSnafu { doing, path }.fail()
            }
            Err(source) if is_out_of_files(&source) => TooManyOpenFilesSnafu { doing, path }.fail(),
            // Nothing is wrong with the disk: a truncation took what a reader was about to read.
            Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                Err(LogError::Storage { doing, path: path.to_owned(), source })
            }
            Err(source) => {
                if !self.is_offline() {
                    error!(path = %path.display(), doing, error = %source, "the disk fails");
                }
                self.take_offline();
                Err(LogError::Storage { doing, path: path.to_owned(), source })
            }
        }
    }
}

impl LogDirectory {
    /// Gives a file, if it is there, the suffix `.deleted`, and removes it when the delay is over.
    pub(super) fn delete_later(&self, path: &Path, delay: Delay) -> io::Result<()> {
        let mut doomed = path.as_os_str().to_owned();
        doomed.push(".deleted");
        let doomed = PathBuf::from(doomed);
        match self.fs.rename(path, &doomed) {
            Ok(()) => self.remove_later(doomed, delay),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes a file or a directory with all that is in it when the delay is over.
    pub(super) fn remove_later(&self, path: PathBuf, delay: Delay) {
        self.doomed.lock().push(Doomed { path, delay });
    }

    /// Removes what is due; answers how much that was.
    pub(super) fn remove_due(&self, now: Timestamp) -> Result<usize, LogError> {
        self.remove_those(|doomed| doomed.delay.is_over(now))
    }

    /// Removes what waits for its removal, whenever it is due.
    pub(super) fn remove_all(&self) -> Result<usize, LogError> {
        self.remove_those(|_| true)
    }

    fn remove_those(&self, is_due: impl Fn(&mut Doomed) -> bool) -> Result<usize, LogError> {
        self.ensure_online()?;
        let due: Vec<Doomed> = self.doomed.lock().extract_if(.., is_due).collect();
        for doomed in &due {
            let removed = match self.fs.metadata(&doomed.path) {
                Ok(found) if found.is_directory => self.fs.remove_dir_all(&doomed.path),
                Ok(_) => self.fs.remove_file(&doomed.path),
                // It went with its directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            };
            self.check(removed, "removing", &doomed.path)?;
        }
        Ok(due.len())
    }

    pub(super) fn sync(&self) -> Result<(), LogError> {
        self.check(self.fs.sync_dir(&self.path), "syncing", &self.path)
    }

    fn checkpoint(&self, which: WhichCheckpoint) -> &Mutex<Checkpoint> {
        match which {
            WhichCheckpoint::RecoveryPoint => &self.recovery_points,
            WhichCheckpoint::HighWatermark => &self.high_watermarks,
            WhichCheckpoint::LogStart => &self.log_starts,
            WhichCheckpoint::Cleaner => &self.cleaner_offsets,
        }
    }

    /// The offsets of a checkpoint; none if there is no such file. A damaged one is ignored with a warning:
    /// all that is lost is time.
    pub(super) fn read_checkpoint(&self, which: WhichCheckpoint) -> Result<Offsets, LogError> {
        let path = self.path.join(which.file_name());
        let bytes = match self.fs.read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            outcome => self.check(outcome, "reading", &path)?,
        };
        let offsets = checkpoint::parse_offsets(&String::from_utf8_lossy(&bytes)).unwrap_or_else(|error| {
            warn!(file = %path.display(), %error, "ignoring a checkpoint that is damaged");
            Vec::new()
        });
        let offsets: BTreeMap<_, _> = offsets.into_iter().collect();
        *self.checkpoint(which).lock() = Checkpoint { offsets: offsets.clone(), file: CheckpointFile::Same };
        Ok(offsets)
    }

    /// Writes the offsets of all logs, if they changed, durably.
    ///
    /// `offsets` is told what is known so far. They are looked up while nobody else changes the checkpoint: an offset
    /// that was read before a truncation must not be written after it.
    pub(super) fn write_checkpoint(
        &self,
        which: WhichCheckpoint,
        offsets: impl FnOnce(&Offsets) -> Offsets,
    ) -> Result<(), LogError> {
        let mut known = self.checkpoint(which).lock();
        let offsets = offsets(&known.offsets);
        if known.offsets == offsets && known.file == CheckpointFile::Same {
            // Where nothing changes, this look is what finds a disk that is gone.
            let path = self.path.join(which.file_name());
            if self.check(self.fs.exists(&path), "looking for", &path)? {
                return Ok(());
            }
        }
        known.offsets = offsets;
        self.write_known(which, &mut known)
    }

    /// Changes the offsets of some logs, durably; those of others stay. `change` answers whether it changed any.
    fn amend(
        &self,
        which: WhichCheckpoint,
        change: impl FnOnce(&mut Offsets) -> bool,
    ) -> Result<(), LogError> {
        let mut known = self.checkpoint(which).lock();
        let is_changed = change(&mut known.offsets);
        match is_changed || known.file == CheckpointFile::Behind {
            true => self.write_known(which, &mut known),
            false => Ok(()),
        }
    }

    fn write_known(&self, which: WhichCheckpoint, known: &mut Checkpoint) -> Result<(), LogError> {
        let text = checkpoint::format_offsets(known.offsets.iter().map(|(name, offset)| (name, *offset)));
        let path = self.path.join(which.file_name());
        known.file = CheckpointFile::Behind;
        self.check(self.fs.replace(&path, text.as_bytes(), Durability::Synced), "writing", &path)?;
        known.file = CheckpointFile::Same;
        Ok(())
    }

    /// Notes the recovery points of some logs; those of others stay.
    pub(super) fn update_recovery_points(
        &self,
        points: impl Iterator<Item = (TopicPartition, Offset)>,
    ) -> Result<(), LogError> {
        self.amend(WhichCheckpoint::RecoveryPoint, |offsets| {
            points.fold(false, |is_changed, (name, point)| {
                offsets.insert(name, point) != Some(point) || is_changed
            })
        })
    }

    /// Where the part of a log begins that was not cleaned; `None` = it was never cleaned.
    pub(super) fn cleaner_offset(&self, topic_partition: &TopicPartition) -> Option<Offset> {
        self.cleaner_offsets.lock().offsets.get(topic_partition).copied()
    }

    /// Notes up to where a log was cleaned, durably.
    pub(super) fn set_cleaner_offset(
        &self,
        topic_partition: &TopicPartition,
        offset: Offset,
    ) -> Result<(), LogError> {
        self.amend(WhichCheckpoint::Cleaner, |offsets| {
            offsets.insert(topic_partition.clone(), offset) != Some(offset)
        })
    }

    /// Sees to it that nothing of a log from `offset` on is taken for durable after a crash, nor for cleaned.
    pub(super) fn lower_checkpoints(
        &self,
        topic_partition: &TopicPartition,
        offset: Offset,
    ) -> Result<(), LogError> {
        let lower = |offsets: &mut Offsets| match offsets.get_mut(topic_partition) {
            Some(noted) if *noted > offset => {
                *noted = offset;
                true
            }
            _ => false,
        };
        self.amend(WhichCheckpoint::RecoveryPoint, lower)?;
        self.amend(WhichCheckpoint::Cleaner, lower)
    }

    /// Takes logs that are deleted out of all checkpoints, lest a later log of the same name is taken for them. On a full
    /// disk they are out of what is known, and go from the files with the next change.
    pub(super) fn forget(&self, deleted: &[TopicPartition]) -> Result<(), LogError> {
        let forgotten = WhichCheckpoint::ALL.map(|which| {
            self.amend(which, |offsets| {
                let before = offsets.len();
                for deleted in deleted {
                    offsets.remove(deleted);
                }
                offsets.len() < before
            })
        });
        forgotten.into_iter().collect()
    }
}

impl fmt::Debug for LogDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogDirectory").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Where the files of one log are. The directory may be renamed while the log is in use.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) directory: Arc<LogDirectory>,
    path: RwLock<Box<Path>>,
}

impl Place {
    pub(super) fn new(directory: Arc<LogDirectory>, name: &str) -> Self {
        let path = directory.path.join(name).into_boxed_path();
        Place { directory, path: RwLock::new(path) }
    }

    pub(super) fn fs(&self) -> &dyn FileSystem {
        &*self.directory.fs
    }

    pub(super) fn path(&self) -> PathBuf {
        self.path.read().to_path_buf()
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path.read().join(name)
    }

    /// Gives the directory a new name, durable once the log directory is synced; answers its new path.
    pub(super) fn rename(&self, name: &str) -> Result<PathBuf, LogError> {
        let to = self.directory.path.join(name);
        let mut path = self.path.write();
        self.check(self.fs().rename(&path, &to), "renaming", &path)?;
        *path = to.clone().into_boxed_path();
        Ok(to)
    }

    pub(super) fn check<T>(
        &self,
        outcome: io::Result<T>,
        doing: &'static str,
        path: &Path,
    ) -> Result<T, LogError> {
        self.directory.check(outcome, doing, path)
    }

    /// Opens a file that stays open as long as it is in use.
    pub(super) fn open_lazy(
        &self,
        lazy: &LazyFile,
        offset: Offset,
        kind: FileKind,
        mode: OpenMode,
    ) -> io::Result<Arc<dyn File>> {
        let path = || self.join(&kind.name(offset)).into_boxed_path();
        lazy.open(&self.directory.open_files, self.fs(), mode, path)
    }

    pub(super) fn replace(
        &self,
        name: &str,
        contents: &[u8],
        durability: Durability,
    ) -> Result<(), LogError> {
        let path = self.join(name);
        self.check(self.fs().replace(&path, contents, durability), "writing", &path)
    }

    /// A small file as a whole; `None` if there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, LogError> {
        let path = self.join(name);
        match self.fs().read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            outcome => self.check(outcome.map(Some), "reading", &path),
        }
    }

    pub(super) fn sync(&self) -> Result<(), LogError> {
        let path = self.path();
        self.check(self.fs().sync_dir(&path), "syncing", &path)
    }
}
