use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Notify;
use tracing::{error, info};

use crate::runtime::fs::{Durability, FileLock, FileSystem};

use super::checkpoint::MetaProperties;
use super::directory::LogDirectory;
use super::error::{LogError, NoDirectorySnafu, UnusableDirectorySnafu};
use super::open_files::OpenFiles;
use super::thrifty::ThriftyFileSystem;

/// The folders of `log.dirs`, locked for this process, before their logs are loaded.
///
/// Nothing in them is changed but for creating what is missing and the lock files.
#[derive(Debug)]
pub struct LogDirectories {
    pub(super) directories: Vec<Arc<LogDirectory>>,
    pub(super) locks: Vec<Box<dyn FileLock>>,
    /// Told when one of them fails.
    pub(super) failures: Arc<Notify>,
}

const LOCK_FILE: &str = ".lock";
const META_PROPERTIES: &str = "meta.properties";

impl LogDirectories {
    /// Creates missing folders and locks them all. A folder that cannot be used is offline from the start.
    ///
    /// `open_files_max` bounds how many segment files are kept open at once.
    ///
    /// Errors: [`LogError::UnusableDirectory`] if a folder is named twice or another process holds it,
    /// [`LogError::NoDirectory`] if none can be used.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        paths: &[PathBuf],
        open_files_max: usize,
    ) -> Result<LogDirectories, LogError> {
        let open_files = Arc::new(OpenFiles::new(open_files_max));
        let fs: Arc<dyn FileSystem> =
            Arc::new(ThriftyFileSystem { inner: fs, open_files: open_files.clone() });
        let mut opened =
            LogDirectories { directories: Vec::new(), locks: Vec::new(), failures: Arc::default() };
        for path in paths {
            if opened.directories.iter().any(|directory| directory.path() == path) {
                return unusable(path, "the folder is named twice in log.dirs");
            }
            let directory =
                LogDirectory::new(path.clone(), fs.clone(), open_files.clone(), opened.failures.clone());
            match lock(&*fs, path) {
                Ok(Some(lock)) => opened.locks.push(lock),
                Ok(None) => {
                    return unusable(path, "another process uses the folder: its .lock file is taken");
                }
                Err(source) => {
                    error!(directory = %path.display(), %source, "a log directory cannot be used");
                    directory.take_offline();
                }
            }
            opened.directories.push(Arc::new(directory));
        }
        if opened.online().next().is_none() {
            return NoDirectorySnafu.fail();
        }
        Ok(opened)
    }

    /// Keeps this much of each volume free of records, or a twentieth of it if that is less; 0 = nothing.
    pub fn keep_free(&self, reserve_bytes_max: u64) {
        self.directories.iter().for_each(|directory| directory.keep_free(reserve_bytes_max));
    }

    fn online(&self) -> impl Iterator<Item = &Arc<LogDirectory>> {
        self.directories.iter().filter(|directory| !directory.is_offline())
    }

    /// What `meta.properties` says in each folder that is online; `None` where there is no such file.
    ///
    /// Errors: [`LogError::UnusableDirectory`] for a file that cannot be understood.
    pub fn read_meta_properties(&self) -> Result<Vec<(PathBuf, Option<MetaProperties>)>, LogError> {
        let mut all = Vec::new();
        for directory in self.online() {
            all.push((directory.path().to_owned(), read_meta_properties(directory)?));
        }
        Ok(all)
    }

    /// Whether each folder that is online is still without logs, so that missing `meta.properties` are no sign
    /// of a mix-up.
    pub fn are_empty(&self) -> Result<bool, LogError> {
        for directory in self.online() {
            let entries =
                directory.check(directory.fs.list(directory.path()), "listing", directory.path())?;
            if entries.iter().any(|entry| entry.is_directory) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes `meta.properties` to each folder that is online and does not name the same broker and cluster.
    pub fn write_meta_properties(&self, properties: &MetaProperties) -> Result<(), LogError> {
        let text = properties.format();
        for directory in self.online() {
            if read_meta_properties(directory)?.is_some_and(|found| found.names_the_same(properties)) {
                continue;
            }
            let path = directory.path().join(META_PROPERTIES);
            let written = directory.fs.replace(&path, text.as_bytes(), Durability::Synced);
            directory.check(written, "writing", &path)?;
        }
        Ok(())
    }
}

fn read_meta_properties(directory: &LogDirectory) -> Result<Option<MetaProperties>, LogError> {
    let path = directory.path().join(META_PROPERTIES);
    match directory.fs.read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => match MetaProperties::parse(&directory.check(outcome, "reading", &path)?) {
            Ok(properties) => Ok(Some(properties)),
            Err(error) => unusable(&path, &error.to_string()),
        },
    }
}

fn lock(fs: &dyn FileSystem, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
    if !fs.exists(path)? {
        info!(directory = %path.display(), "creating a log directory");
        fs.create_dir_all(path)?;
        if let Some(parent) = path.parent().filter(|parent| parent.file_name().is_some() || parent.has_root())
        {
            fs.sync_dir(parent)?;
        }
    }
    fs.lock(&path.join(LOCK_FILE))
}

fn unusable<T>(path: &Path, message: &str) -> Result<T, LogError> {
    UnusableDirectorySnafu { path, message }.fail()
}
