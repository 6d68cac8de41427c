use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};

use super::{DirectoryEntry, File, FileLock, FileSystem, Metadata, OpenMode, Space};
use crate::model::Timestamp;

/// The machine's own file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFileSystem;

impl FileSystem for DiskFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::Create => options.write(true).create(true).truncate(false),
            OpenMode::CreateEmpty => options.write(true).create(true).truncate(true),
        };
        Ok(Arc::new(DiskFile(options.open(path)?)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirectoryEntry>> {
        std::fs::read_dir(dir)?
            .map(|entry| {
                let entry = entry?;
                let file_type = entry.file_type()?;
                // A link to a directory is a directory: operators spread topics over disks that way.
                let is_directory = file_type.is_dir() || (file_type.is_symlink() && entry.path().is_dir());
                Ok(DirectoryEntry { name: entry.file_name().to_string_lossy().into_owned(), is_directory })
            })
            .collect()
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let found = std::fs::metadata(path)?;
        let since_epoch = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Metadata {
            size_bytes: found.len(),
            modified: Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)),
            is_directory: found.is_dir(),
        })
    }

    fn set_modified(&self, path: &Path, modified: Timestamp) -> io::Result<()> {
        let since_epoch = Duration::from_millis(u64::try_from(modified.0).unwrap_or(0));
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_modified(UNIX_EPOCH + since_epoch)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::File::open(dir)?.sync_all()
    }

    fn sync_volume(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(std::fs::File::open(path)?)?)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let volume = rustix::fs::statvfs(path)?;
        Ok(Space {
            total_bytes: volume.f_blocks.saturating_mul(volume.f_frsize),
            usable_bytes: volume.f_bavail.saturating_mul(volume.f_frsize),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // Java's FileLock is a POSIX record lock, which two openers in one process share; flock tells those apart.
        let taken = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .and_then(|()| rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive));
        match taken {
            Ok(()) => Ok(Some(Box::new(DiskLock { _file: file }))),
            Err(Errno::WOULDBLOCK | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[derive(Debug)]
struct DiskFile(std::fs::File);

impl File for DiskFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        retried(|| self.0.read_at(buffer, position))
    }

    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>> {
        let mut parts = [IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.0, &mut parts, position, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(Some(read)),
            Err(Errno::AGAIN) => Ok(None),
            // A file system that does not know the flag (tmpfs before 6.x, some network ones) may wait.
            Err(Errno::OPNOTSUPP) => self.read_at(buffer, position).map(Some),
            Err(error) => Err(error.into()),
        }
    }

    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        retried(|| match parts {
            [part] => self.0.write_at(part, position),
            parts => Ok(rustix::io::pwritev(&self.0, parts, position)?),
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        self.0.set_len(size_bytes)
    }

    fn reserve(&self, size_bytes: u64) -> io::Result<()> {
        retried(|| match rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, size_bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            outcome => Ok(outcome?),
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[derive(Debug)]
struct DiskLock {
    _file: std::fs::File,
}

impl FileLock for DiskLock {}

/// Runs a system call again as long as a signal interrupts it.
fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Durability, write_all_at};
    use super::*;

    #[test]
    fn reserved_space_is_taken_without_a_change_of_size_and_given_back() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = DiskFileSystem.open(&path, OpenMode::Create).unwrap();
        let occupied = || std::fs::metadata(&path).unwrap().blocks() * 512;
        file.reserve(1 << 20).unwrap();
        assert_eq!(file.size_bytes().unwrap(), 0);
        if occupied() == 0 {
            return; // The file system of this machine reserves nothing.
        }
        assert!(occupied() >= 1 << 20);
        write_all_at(&*file, &[IoSlice::new(b"abc")], 0).unwrap();
        file.truncate(3).unwrap();
        assert!(occupied() < 1 << 20);
        assert_eq!(file.size_bytes().unwrap(), 3);
    }

    #[test]
    fn parts_are_written_in_order_and_read_back_from_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = DiskFileSystem.open(&path, OpenMode::Create).unwrap();
        let parts: Vec<[u8; 2]> = (0..3000u16).map(u16::to_be_bytes).collect();
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        write_all_at(&*file, &slices, 5).unwrap();
        assert_eq!(file.size_bytes().unwrap(), 6005);
        let mut buffer = [0; 4];
        assert_eq!(file.read_cached_at(&mut buffer, 6001).unwrap(), Some(4));
        assert_eq!(buffer, [0x0b, 0xb6, 0x0b, 0xb7]);
        assert_eq!(DiskFileSystem.read(&path).unwrap().len(), 6005);
    }

    #[test]
    fn a_lock_is_exclusive_until_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".lock");
        let held = DiskFileSystem.lock(&path).unwrap();
        assert!(held.is_some());
        assert!(DiskFileSystem.lock(&path).unwrap().is_none());
        drop(held);
        assert!(DiskFileSystem.lock(&path).unwrap().is_some());
    }

    #[test]
    fn replaced_files_leave_no_temporary_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        for contents in ["one", "two"] {
            DiskFileSystem.replace(&path, contents.as_bytes(), Durability::Synced).unwrap();
            assert_eq!(DiskFileSystem.read(&path).unwrap(), contents.as_bytes());
        }
        assert_eq!(DiskFileSystem.list(dir.path()).unwrap().len(), 1);
        assert!(DiskFileSystem.space(dir.path()).unwrap().usable_bytes > 0);
    }
}
