use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::model::Timestamp;
use crate::runtime::fs::{DirectoryEntry, File, FileLock, FileSystem, Metadata, OpenMode, Space};

use super::open_files::OpenFiles;

/// A file system under which logs give up files that they keep open, rather than fail to open another: connections may
/// take all that the process may open.
#[derive(Debug)]
pub(super) struct ThriftyFileSystem {
    pub(super) inner: Arc<dyn FileSystem>,
    pub(super) open_files: Arc<OpenFiles>,
}

impl FileSystem for ThriftyFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.open_files.making_way(|| self.inner.open(path, mode))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.open_files.making_way(|| self.inner.remove_dir_all(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.open_files.making_way(|| self.inner.list(dir))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.inner.metadata(path)
    }

    fn set_modified(&self, path: &Path, modified: Timestamp) -> io::Result<()> {
        self.open_files.making_way(|| self.inner.set_modified(path, modified))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.open_files.making_way(|| self.inner.sync_dir(dir))
    }

    fn sync_volume(&self, path: &Path) -> io::Result<()> {
        self.open_files.making_way(|| self.inner.sync_volume(path))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.inner.space(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        self.open_files.making_way(|| self.inner.lock(path))
    }
}
