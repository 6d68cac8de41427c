//! Files and directories: the machine's, or a model in memory that can lose power.
//!
//! What is written stays in the page cache until it is synced, and a new, renamed or removed name stays
//! volatile until its *directory* is synced. [`MemoryFileSystem`] takes both literally.

mod disk;
mod memory;

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use crate::model::Timestamp;

pub use disk::DiskFileSystem;
pub use memory::{Fault, FaultOutcome, MemoryFileSystem, Operation};

/// A tree of directories and files. Paths mean what the operating system makes of them; all errors are its.
pub trait FileSystem: fmt::Debug + Send + Sync {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Fails with `AlreadyExists` if the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with everything in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or directory a new name, atomically; a file that had this name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The names in a directory, in no order, without `.` and `..`.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirectoryEntry>>;

    fn metadata(&self, path: &Path) -> io::Result<Metadata>;

    /// Gives a file another time of its last change.
    fn set_modified(&self, path: &Path, modified: Timestamp) -> io::Result<()>;

    /// Makes the names in this directory durable, not the contents of the files.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes everything durable that was written to the volume of `path`: cheaper than many single syncs.
    fn sync_volume(&self, path: &Path) -> io::Result<()>;

    fn space(&self, path: &Path) -> io::Result<Space>;

    /// Takes the advisory lock of a file, creating it; held until the guard is dropped. `None` if somebody
    /// else holds it. It excludes Apache Kafka, which takes a POSIX record lock, as well as another Barnabas.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>>;

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A whole small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read_to_end(&*self.open(path, OpenMode::Read)?)
    }

    /// Writes a whole file under `<path>.tmp` and renames it, so that readers see the old or the new contents
    /// and nothing between. With [`Durability::Synced`] that also holds across a power loss.
    fn replace(&self, path: &Path, contents: &[u8], durability: Durability) -> io::Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = Path::new(&temporary);
        let file = self.open(temporary, OpenMode::CreateEmpty)?;
        write_all_at(&*file, &[IoSlice::new(contents)], 0)?;
        if durability == Durability::Synced {
            file.sync_data()?;
        }
        self.rename(temporary, path)?;
        match (durability, path.parent()) {
            (Durability::Synced, Some(parent)) => self.sync_dir(parent),
            _ => Ok(()),
        }
    }
}

/// An open file, read and written at explicit positions, by any number of threads.
pub trait File: fmt::Debug + Send + Sync {
    /// Reads up to `buffer.len()` bytes; 0 = end of file. Fewer bytes than asked for means the end is near.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Like [`read_at`](File::read_at), but answers `None` instead of waiting for the disk.
    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>>;

    /// Writes the parts one after the other with one system call, which may stop early; answers how many
    /// bytes were taken. Takes at most [`PARTS_MAX`] parts. Use [`write_all_at`].
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<usize>;

    fn size_bytes(&self) -> io::Result<u64>;

    fn truncate(&self, size_bytes: u64) -> io::Result<()>;

    /// Takes space on the disk for the file to grow to `size_bytes`, without changing its size; what is not used
    /// is given back by [`truncate`](File::truncate). Where a file system cannot, nothing happens.
    fn reserve(&self, size_bytes: u64) -> io::Result<()>;

    /// Makes the contents durable, and the size if it changed.
    fn sync_data(&self) -> io::Result<()>;

    /// The descriptor for `sendfile`; `None` for a file that the kernel does not know.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Held as long as the lock is to be held.
pub trait FileLock: fmt::Debug + Send + Sync {}

/// What opening a file may do to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// Reading and writing; created if missing, else left as it is.
    Create,
    /// Reading and writing; created if missing, else emptied.
    CreateEmpty,
}

/// Whether a write must survive a power loss, or only the death of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    Cached,
    Synced,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DirectoryEntry {
    /// Bytes that are not UTF-8 are replaced: such a name is never one of ours.
    pub name: String,
    pub is_directory: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    pub size_bytes: u64,
    pub modified: Timestamp,
    pub is_directory: bool,
}

/// The room on the volume of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub total_bytes: u64,
    /// What an unprivileged process may still write.
    pub usable_bytes: u64,
}

/// How many parts one vectored write takes (`IOV_MAX` of Linux).
pub const PARTS_MAX: usize = 1024;

/// Writes all bytes of all parts, with as few system calls as the system allows.
///
/// After an error some of the bytes may be in the file.
pub fn write_all_at(file: &dyn File, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
    let mut position = position;
    for group in parts.chunks(PARTS_MAX) {
        let size: usize = group.iter().map(|part| part.len()).sum();
        let written = file.write_at(group, position)?;
        if written < size {
            write_rest(file, group, written, position)?;
        }
        position += size as u64;
    }
    Ok(())
}

/// Finishes a vectored write that stopped early after `written` bytes.
fn write_rest(file: &dyn File, parts: &[IoSlice<'_>], written: usize, position: u64) -> io::Result<()> {
    let mut skip = written;
    let mut position = position + written as u64;
    for part in parts {
        let mut rest: &[u8] = part.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(part.len());
        while !rest.is_empty() {
            let taken = file.write_at(&[IoSlice::new(rest)], position)?;
            if taken == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            position += taken as u64;
            rest = rest.get(taken..).unwrap_or_default();
        }
    }
    Ok(())
}

/// Fills as much of `buffer` as the file has from `position` on; answers how much that is.
pub fn read_full_at(file: &dyn File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, position + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Everything from the beginning to the end. For small files.
pub fn read_to_end(file: &dyn File) -> io::Result<Vec<u8>> {
    let mut contents = vec![0; 1024];
    let mut filled = 0;
    loop {
        let room = contents.len() - filled;
        let read = read_full_at(file, contents.get_mut(filled..).unwrap_or_default(), filled as u64)?;
        filled += read;
        if read < room {
            contents.truncate(filled);
            return Ok(contents);
        }
        contents.resize(contents.len() * 4, 0);
    }
}

/// Whether the process, or the machine, has as many files open as it may, which is not a broken disk.
pub fn is_out_of_files(error: &io::Error) -> bool {
    let found = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].into_iter().any(|errno| found == Some(errno.raw_os_error()))
}

/// Whether the volume has no room left (or the quota is used up), which is not a broken disk.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
