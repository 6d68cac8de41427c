use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Component, Path};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{DirectoryEntry, File, FileLock, FileSystem, Metadata, OpenMode, Space};
use crate::model::Timestamp;
use crate::runtime::{Clock, Random};

/// A file system in memory that tells what is cached from what is durable.
///
/// [`crash`](Self::crash) is a power loss: file contents fall back to their last sync, directories to the
/// names they had at theirs. [`kill`](Self::kill) is the death of the process: everything stays. After
/// either, files that were open answer with errors, so nothing of the old process can write on.
///
/// Every change is a numbered step; [`stop_at`](Self::stop_at) lets all changes from one step on fail, which
/// a test uses to stop at every write in turn. Clones share the disk.
#[derive(Clone, Debug)]
pub struct MemoryFileSystem {
    disk: Arc<Mutex<Disk>>,
    /// The process that this is mounted for; `None` = it outlives all.
    generation: Option<u64>,
}

/// One planned misfortune.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub on: Operation,
    /// How many operations of this kind still succeed before.
    pub after: u64,
    pub outcome: FaultOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Open,
    Read,
    Write,
    Sync,
    Truncate,
    Create,
    Rename,
    Remove,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultOutcome {
    /// Nothing happens but the error.
    Error(io::ErrorKind),
    /// A write takes only this many bytes, without an error.
    Short(usize),
    /// The process has as many files open as it may.
    OutOfFiles,
}

impl MemoryFileSystem {
    /// `clock` gives modification times.
    pub fn new(clock: Clock) -> Self {
        let root = Inode::Directory(Directory::default());
        let disk = Disk {
            inodes: HashMap::from([(ROOT, root)]),
            next_inode: ROOT + 1,
            clock,
            generation: 0,
            steps: 0,
            stop_at: None,
            faults: Vec::new(),
            capacity_bytes: u64::MAX,
            failed: BTreeSet::new(),
            locked: HashMap::new(),
        };
        MemoryFileSystem { disk: Arc::new(Mutex::new(disk)), generation: None }
    }

    /// The disk as one process has it: after the next `crash` or `kill` nothing can be done through it.
    pub fn mounted(&self) -> MemoryFileSystem {
        let generation = self.disk.lock().generation;
        MemoryFileSystem { disk: Arc::clone(&self.disk), generation: Some(generation) }
    }

    /// The disk, to do something at `path`.
    fn disk_at(&self, path: &Path) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.disk.lock();
        match self.generation {
            Some(generation) if generation != disk.generation => Err(stopped()),
            _ if disk.has_failed(&volume(path)) => Err(failed()),
            _ => Ok(disk),
        }
    }

    /// Power loss: what was not synced is gone.
    pub fn crash(&self) {
        let mut disk = self.disk.lock();
        for inode in disk.inodes.values_mut() {
            match inode {
                Inode::Directory(directory) => directory.names.clone_from(&directory.durable),
                Inode::File(file) => file.contents.clone_from(&file.durable),
            }
        }
        disk.restart();
    }

    /// Power loss in which any part of what was not synced may have reached the disk: of a longer file a
    /// part of the new tail, perhaps as zeros; of each new name, its presence.
    pub fn crash_torn(&self, random: &Random) {
        let mut disk = self.disk.lock();
        let mut numbers: Vec<u64> = disk.inodes.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            match disk.inodes.get_mut(&number) {
                // What is there after a loss of power is on the disk.
                Some(Inode::Directory(directory)) => match random.number(0..2) {
                    0 => directory.names.clone_from(&directory.durable),
                    _ => directory.durable.clone_from(&directory.names),
                },
                Some(Inode::File(file)) => {
                    file.tear(random);
                    file.durable.clone_from(&file.contents);
                }
                None => {}
            }
        }
        disk.restart();
    }

    /// The process dies: the page cache survives.
    pub fn kill(&self) {
        self.disk.lock().restart();
    }

    /// How many changes were made so far.
    pub fn steps(&self) -> u64 {
        self.disk.lock().steps
    }

    /// Lets every change from the step of this number on fail, until the next `crash` or `kill`. If that
    /// step is a write, half of it is still done.
    pub fn stop_at(&self, step: u64) {
        self.disk.lock().stop_at = Some(step);
    }

    pub fn inject(&self, fault: Fault) {
        self.disk.lock().faults.push(fault);
    }

    /// Takes back all faults that have not struck yet.
    pub fn heal(&self) {
        self.disk.lock().faults.clear();
    }

    /// Contents beyond this size are refused with `StorageFull`.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        self.disk.lock().capacity_bytes = capacity_bytes;
    }

    /// What all files take now.
    pub fn used_bytes(&self) -> u64 {
        self.disk.lock().used_bytes()
    }

    /// Everything at and below a directory of the root answers with errors, as a disk does whose controller has failed,
    /// also after a `crash` or `kill`, until it is [mended](Self::mend_volume). What is there stays.
    pub fn fail_volume(&self, name: &str) {
        self.disk.lock().failed.insert(name.to_owned());
    }

    pub fn mend_volume(&self, name: &str) {
        self.disk.lock().failed.remove(name);
    }
}

const ROOT: u64 = 0;

#[derive(Debug)]
struct Disk {
    inodes: HashMap<u64, Inode>,
    next_inode: u64,
    clock: Clock,
    /// Counts restarts; open files of an earlier one are dead.
    generation: u64,
    steps: u64,
    stop_at: Option<u64>,
    faults: Vec<Fault>,
    capacity_bytes: u64,
    /// Directories of the root.
    failed: BTreeSet<String>,
    /// Inode number of a locked file → generation of its holder.
    locked: HashMap<u64, u64>,
}

#[derive(Debug)]
enum Inode {
    Directory(Directory),
    File(Contents),
}

#[derive(Debug, Default)]
struct Directory {
    names: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Contents {
    contents: Vec<u8>,
    durable: Vec<u8>,
    modified: Timestamp,
}

impl Contents {
    /// Writes as much of the parts as there is place for. What lies between the end and the place is zero.
    fn write(&mut self, parts: &[IoSlice<'_>], place: Range<usize>) {
        if self.contents.len() < place.end {
            self.contents.resize(place.end, 0);
        }
        let mut place = &mut self.contents[place];
        for part in parts {
            let (here, rest) = place.split_at_mut(part.len().min(place.len()));
            here.copy_from_slice(&part[..here.len()]);
            place = rest;
        }
    }

    fn tear(&mut self, random: &Random) {
        let durable = self.durable.len();
        if self.contents.len() <= durable || !self.contents.starts_with(&self.durable) {
            self.contents = self.durable.clone();
            return;
        }
        let grown = (self.contents.len() - durable) as u64;
        let kept = durable + random.number(0..=grown) as usize;
        self.contents.truncate(kept);
        if random.number(0..2) == 0 {
            let written = durable + random.number(0..=(kept - durable) as u64) as usize;
            self.contents[written..].fill(0);
        }
    }
}

/// What a step may do after faults were consulted.
enum Permit {
    Whole,
    Short(usize),
    /// The machine stops in the middle of this write.
    Half,
}

impl Disk {
    fn restart(&mut self) {
        self.generation += 1;
        self.stop_at = None;
        self.faults.clear();
        self.locked.clear();
    }

    fn has_failed(&self, volume: &str) -> bool {
        self.failed.contains(volume)
    }

    fn fault(&mut self, operation: Operation) -> Option<FaultOutcome> {
        if self.faults.is_empty() {
            return None;
        }
        let mut struck = None;
        self.faults.retain_mut(|fault| {
            if fault.on != operation || struck.is_some() {
                return true;
            }
            if fault.after > 0 {
                fault.after -= 1;
                return true;
            }
            struck = Some(fault.outcome);
            false
        });
        struck
    }

    fn step(&mut self, operation: Operation) -> io::Result<Permit> {
        let step = self.steps;
        self.steps += 1;
        if let Some(stop_at) = self.stop_at
            && step >= stop_at
        {
            let is_torn_write = step == stop_at && operation == Operation::Write;
            return if is_torn_write { Ok(Permit::Half) } else { Err(stopped()) };
        }
        match self.fault(operation) {
            None => Ok(Permit::Whole),
            Some(FaultOutcome::Short(size)) => Ok(Permit::Short(size)),
            Some(FaultOutcome::Error(kind)) => Err(kind.into()),
            Some(FaultOutcome::OutOfFiles) => Err(out_of_files()),
        }
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        let mut at = ROOT;
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => {
                    let names = &self.directory(at)?.names;
                    at = *names.get(&*name.to_string_lossy()).ok_or(io::ErrorKind::NotFound)?;
                }
                Component::ParentDir | Component::Prefix(_) => return Err(io::ErrorKind::InvalidInput.into()),
            }
        }
        Ok(at)
    }

    /// The directory that holds the last name of a path, and that name.
    fn parent(&self, path: &Path) -> io::Result<(u64, String)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.find(path.parent().unwrap_or(Path::new("")))?, text(name)))
    }

    fn directory(&self, inode: u64) -> io::Result<&Directory> {
        match self.inodes.get(&inode) {
            Some(Inode::Directory(directory)) => Ok(directory),
            Some(Inode::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn directory_mut(&mut self, inode: u64) -> io::Result<&mut Directory> {
        match self.inodes.get_mut(&inode) {
            Some(Inode::Directory(directory)) => Ok(directory),
            Some(Inode::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file(&self, inode: u64) -> io::Result<&Contents> {
        match self.inodes.get(&inode) {
            Some(Inode::File(file)) => Ok(file),
            Some(Inode::Directory(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file_mut(&mut self, inode: u64) -> io::Result<&mut Contents> {
        match self.inodes.get_mut(&inode) {
            Some(Inode::File(file)) => Ok(file),
            Some(Inode::Directory(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn add(&mut self, path: &Path, inode: Inode) -> io::Result<u64> {
        let (parent, name) = self.parent(path)?;
        self.directory(parent)?;
        self.step(Operation::Create)?;
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, inode);
        self.directory_mut(parent)?.names.insert(name, number);
        Ok(number)
    }

    /// What has a name takes room.
    fn used_bytes(&self) -> u64 {
        self.used_below(ROOT)
    }

    fn used_below(&self, inode: u64) -> u64 {
        match self.inodes.get(&inode) {
            Some(Inode::File(file)) => file.contents.len() as u64,
            Some(Inode::Directory(directory)) => {
                directory.names.values().map(|&child| self.used_below(child)).sum()
            }
            None => 0,
        }
    }
}

fn text(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

fn out_of_files() -> io::Error {
    rustix::io::Errno::MFILE.into()
}

/// The directory of the root that a path is in; empty for the root.
fn volume(path: &Path) -> String {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(text(name)),
        _ => None,
    });
    names.take(1).collect()
}

fn failed() -> io::Error {
    io::Error::other("the disk has failed")
}

fn stopped() -> io::Error {
    io::Error::other("the machine has stopped")
}

impl FileSystem for MemoryFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut disk = self.disk_at(path)?;
        match disk.fault(Operation::Open) {
            Some(FaultOutcome::Error(kind)) => return Err(kind.into()),
            Some(FaultOutcome::OutOfFiles) => return Err(out_of_files()),
            Some(FaultOutcome::Short(_)) | None => {}
        }
        let may_create = matches!(mode, OpenMode::Create | OpenMode::CreateEmpty);
        let inode = match disk.find(path) {
            Ok(inode) => {
                let size = disk.file(inode)?.contents.len();
                if mode == OpenMode::CreateEmpty && size > 0 {
                    disk.step(Operation::Truncate)?;
                    disk.file_mut(inode)?.contents.clear();
                }
                inode
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_create => {
                let modified = disk.clock.now();
                let file = Contents { contents: Vec::new(), durable: Vec::new(), modified };
                disk.add(path, Inode::File(file))?
            }
            Err(error) => return Err(error),
        };
        let generation = disk.generation;
        let volume = volume(path);
        Ok(Arc::new(MemoryFile { disk: self.disk.clone(), inode, volume, generation, mode }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk_at(path)?;
        if disk.find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        disk.add(path, Inode::Directory(Directory::default()))?;
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut ancestors: Vec<&Path> = path.ancestors().filter(|path| path.file_name().is_some()).collect();
        ancestors.reverse();
        for ancestor in ancestors {
            match self.create_dir(ancestor) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk_at(path)?;
        let (parent, name) = disk.parent(path)?;
        let inode = disk.find(path)?;
        disk.file(inode)?;
        disk.step(Operation::Remove)?;
        disk.directory_mut(parent)?.names.remove(&name);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        for entry in self.list(path)? {
            let child = path.join(entry.name);
            if entry.is_directory { self.remove_dir_all(&child)? } else { self.remove_file(&child)? }
        }
        let mut disk = self.disk_at(path)?;
        let (parent, name) = disk.parent(path)?;
        disk.step(Operation::Remove)?;
        disk.directory_mut(parent)?.names.remove(&name);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk_at(from)?;
        let inode = disk.find(from)?;
        let (from_parent, from_name) = disk.parent(from)?;
        let (to_parent, to_name) = disk.parent(to)?;
        disk.directory(to_parent)?;
        disk.step(Operation::Rename)?;
        disk.directory_mut(from_parent)?.names.remove(&from_name);
        disk.directory_mut(to_parent)?.names.insert(to_name, inode);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let disk = self.disk_at(dir)?;
        let names = &disk.directory(disk.find(dir)?)?.names;
        let entry = |(name, inode): (&String, &u64)| DirectoryEntry {
            name: name.clone(),
            is_directory: matches!(disk.inodes.get(inode), Some(Inode::Directory(_))),
        };
        Ok(names.iter().map(entry).collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let disk = self.disk_at(path)?;
        match disk.inodes.get(&disk.find(path)?) {
            Some(Inode::File(file)) => Ok(Metadata {
                size_bytes: file.contents.len() as u64,
                modified: file.modified,
                is_directory: false,
            }),
            _ => Ok(Metadata { size_bytes: 0, modified: disk.clock.now(), is_directory: true }),
        }
    }

    fn set_modified(&self, path: &Path, modified: Timestamp) -> io::Result<()> {
        let mut disk = self.disk_at(path)?;
        let inode = disk.find(path)?;
        match disk.step(Operation::Write)? {
            Permit::Half => return Err(stopped()),
            Permit::Whole | Permit::Short(_) => disk.file_mut(inode)?.modified = modified,
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.disk_at(dir)?;
        let inode = disk.find(dir)?;
        disk.step(Operation::Sync)?;
        let directory = disk.directory_mut(inode)?;
        directory.durable = directory.names.clone();
        Ok(())
    }

    fn sync_volume(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk_at(path)?;
        disk.step(Operation::Sync)?;
        for inode in disk.inodes.values_mut() {
            match inode {
                Inode::Directory(directory) => directory.durable = directory.names.clone(),
                Inode::File(file) => file.durable = file.contents.clone(),
            }
        }
        Ok(())
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let disk = self.disk_at(path)?;
        let usable_bytes = disk.capacity_bytes.saturating_sub(disk.used_bytes());
        Ok(Space { total_bytes: disk.capacity_bytes, usable_bytes })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn FileLock>>> {
        self.open(path, OpenMode::Create)?;
        let mut disk = self.disk_at(path)?;
        let inode = disk.find(path)?;
        let generation = disk.generation;
        if disk.locked.contains_key(&inode) {
            return Ok(None);
        }
        disk.locked.insert(inode, generation);
        Ok(Some(Box::new(MemoryLock { disk: self.disk.clone(), inode, generation })))
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: Arc<Mutex<Disk>>,
    inode: u64,
    volume: String,
    generation: u64,
    mode: OpenMode,
}

impl MemoryFile {
    fn disk(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.disk.lock();
        if disk.generation != self.generation {
            return Err(stopped());
        }
        if disk.has_failed(&self.volume) { Err(failed()) } else { Ok(disk) }
    }

    fn writable_disk(&self) -> io::Result<MutexGuard<'_, Disk>> {
        if self.mode == OpenMode::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.disk()
    }
}

impl File for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut disk = self.disk()?;
        if let Some(FaultOutcome::Error(kind)) = disk.fault(Operation::Read) {
            return Err(kind.into());
        }
        let contents = &disk.file(self.inode)?.contents;
        let rest = contents.get(usize::try_from(position).unwrap_or(usize::MAX)..).unwrap_or_default();
        let size = rest.len().min(buffer.len());
        buffer[..size].copy_from_slice(&rest[..size]);
        Ok(size)
    }

    fn read_cached_at(&self, buffer: &mut [u8], position: u64) -> io::Result<Option<usize>> {
        self.read_at(buffer, position).map(Some)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        let mut disk = self.writable_disk()?;
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        let permit = disk.step(Operation::Write)?;
        let taken = match permit {
            Permit::Whole => offered,
            Permit::Short(size) => offered.min(size),
            Permit::Half => offered / 2,
        };
        let position = usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let end = position + taken;
        let grows_by = end.saturating_sub(disk.file(self.inode)?.contents.len()) as u64;
        let is_bounded = disk.capacity_bytes < u64::MAX;
        if grows_by > 0 && is_bounded && disk.used_bytes().saturating_add(grows_by) > disk.capacity_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let modified = disk.clock.now();
        let file = disk.file_mut(self.inode)?;
        file.write(parts, position..end);
        file.modified = modified;
        if matches!(permit, Permit::Half) { Err(stopped()) } else { Ok(taken) }
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.disk()?.file(self.inode)?.contents.len() as u64)
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        let mut disk = self.writable_disk()?;
        disk.step(Operation::Truncate)?;
        let modified = disk.clock.now();
        let file = disk.file_mut(self.inode)?;
        file.contents.resize(usize::try_from(size_bytes).map_err(|_| io::ErrorKind::FileTooLarge)?, 0);
        file.modified = modified;
        Ok(())
    }

    /// Changes nothing that anybody could see.
    fn reserve(&self, _size_bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk()?;
        disk.step(Operation::Sync)?;
        let file = disk.file_mut(self.inode)?;
        file.durable = file.contents.clone();
        Ok(())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[derive(Debug)]
struct MemoryLock {
    disk: Arc<Mutex<Disk>>,
    inode: u64,
    generation: u64,
}

impl FileLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut disk = self.disk.lock();
        if disk.locked.get(&self.inode) == Some(&self.generation) {
            disk.locked.remove(&self.inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Durability, write_all_at};
    use super::*;

    fn disk() -> MemoryFileSystem {
        MemoryFileSystem::new(Clock::manual(Timestamp(5)))
    }

    fn write(disk: &MemoryFileSystem, path: &str, contents: &str) -> Arc<dyn File> {
        let file = disk.open(Path::new(path), OpenMode::Create).unwrap();
        write_all_at(&*file, &[IoSlice::new(contents.as_bytes())], 0).unwrap();
        file
    }

    #[track_caller]
    fn check(disk: &MemoryFileSystem, path: &str, contents: Option<&str>) {
        let found = disk.read(Path::new(path)).ok();
        assert_eq!(found.as_deref(), contents.map(str::as_bytes));
    }

    #[test]
    fn a_kill_keeps_what_a_crash_drops() {
        let disk = disk();
        write(&disk, "/a", "1");
        disk.kill();
        check(&disk, "/a", Some("1"));
        disk.crash();
        check(&disk, "/a", None);
    }

    #[test]
    fn contents_and_names_are_durable_each_by_its_own_sync() {
        let disk = disk();
        write(&disk, "/named", "12345");
        write(&disk, "/nameless", "12345").sync_data().unwrap();
        disk.crash();
        check(&disk, "/nameless", None);

        write(&disk, "/named", "12345");
        disk.sync_dir(Path::new("/")).unwrap();
        disk.crash();
        check(&disk, "/named", Some(""));
    }

    #[test]
    fn a_renamed_directory_keeps_its_files_and_falls_back_until_its_parent_is_synced() {
        let disk = disk();
        disk.create_dir_all(Path::new("/data/t-0")).unwrap();
        write(&disk, "/data/t-0/f", "x").sync_data().unwrap();
        for dir in ["/data/t-0", "/data", "/"] {
            disk.sync_dir(Path::new(dir)).unwrap();
        }
        disk.rename(Path::new("/data/t-0"), Path::new("/data/t-0.1-delete")).unwrap();
        check(&disk, "/data/t-0.1-delete/f", Some("x"));
        disk.crash();
        check(&disk, "/data/t-0/f", Some("x"));
        check(&disk, "/data/t-0.1-delete/f", None);
    }

    #[test]
    fn a_synced_replacement_is_old_or_new_at_every_step() {
        let mut step = 0;
        loop {
            let disk = disk();
            disk.replace(Path::new("/c"), b"old", Durability::Synced).unwrap();
            disk.stop_at(disk.steps() + step);
            let done = disk.replace(Path::new("/c"), b"newer", Durability::Synced).is_ok();
            disk.crash();
            check(&disk, "/c", Some(if done { "newer" } else { "old" }));
            if done {
                return;
            }
            step += 1;
        }
    }

    #[test]
    fn files_opened_before_a_restart_are_dead() {
        let disk = disk();
        let file = write(&disk, "/a", "1");
        disk.kill();
        assert!(file.write_at(&[IoSlice::new(b"2")], 0).is_err());
        assert!(file.read_at(&mut [0], 0).is_err());
    }

    #[test]
    fn a_mounted_disk_is_out_of_reach_after_a_restart() {
        let disk = disk();
        let mounted = disk.mounted();
        write(&mounted, "/a", "1");
        disk.kill();
        assert!(mounted.remove_file(Path::new("/a")).is_err());
        check(&disk, "/a", Some("1"));
        write(&disk.mounted(), "/a", "2");
    }

    #[test]
    fn what_survived_a_loss_of_power_survives_the_next() {
        for seed in 0..50 {
            let disk = disk();
            write(&disk, "/a", "123456789");
            disk.crash_torn(&Random::from_seed(seed));
            let kept = disk.read(Path::new("/a")).ok();
            disk.crash();
            assert_eq!(disk.read(Path::new("/a")).ok(), kept);
        }
    }

    #[test]
    fn faults_strike_the_nth_operation_of_their_kind() {
        let disk = disk();
        disk.inject(Fault { on: Operation::Write, after: 1, outcome: FaultOutcome::Short(2) });
        disk.inject(Fault {
            on: Operation::Sync,
            after: 0,
            outcome: FaultOutcome::Error(io::ErrorKind::Other),
        });
        let file = write(&disk, "/a", "1234");
        assert_eq!(file.write_at(&[IoSlice::new(b"abcd")], 0).unwrap(), 2);
        check(&disk, "/a", Some("ab34"));
        assert!(file.sync_data().is_err());
        assert!(file.sync_data().is_ok());
    }

    #[test]
    fn a_full_disk_refuses_growth_and_recovers_when_room_is_made() {
        let disk = disk();
        disk.set_capacity_bytes(6);
        let file = write(&disk, "/a", "1234");
        write(&disk, "/b", "12");
        let error = file.write_at(&[IoSlice::new(b"5")], 4).unwrap_err();
        assert!(super::super::is_disk_full(&error));
        assert_eq!(disk.space(Path::new("/")).unwrap().usable_bytes, 0);
        disk.set_capacity_bytes(7);
        assert_eq!(file.write_at(&[IoSlice::new(b"5")], 4).unwrap(), 1);
    }

    #[test]
    fn a_failed_volume_answers_with_errors_until_it_is_mended_and_keeps_what_it_has() {
        let disk = disk();
        disk.create_dir(Path::new("/one")).unwrap();
        let file = write(&disk, "/one/a", "1");
        disk.fail_volume("one");
        assert!(file.read_at(&mut [0], 0).is_err());
        assert!(file.write_at(&[IoSlice::new(b"2")], 0).is_err());
        assert!(disk.list(Path::new("/one")).is_err());
        write(&disk, "/other", "1");
        disk.kill();
        assert!(disk.read(Path::new("/one/a")).is_err());
        disk.mend_volume("one");
        check(&disk, "/one/a", Some("1"));
    }

    #[test]
    fn a_torn_crash_keeps_a_prefix_of_what_was_added() {
        for seed in 0..50 {
            let disk = disk();
            let file = write(&disk, "/a", "durable");
            file.sync_data().unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            file.write_at(&[IoSlice::new(b"+cached")], 7).unwrap();
            disk.crash_torn(&Random::from_seed(seed));
            let found = disk.read(Path::new("/a")).unwrap();
            assert!(found.starts_with(b"durable") && found.len() <= 14, "{found:?}");
        }
    }
}
