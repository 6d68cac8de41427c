use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use snafu::{OptionExt, ResultExt, ensure};

use super::codec::{Input, Record, put_node, put_session};
use super::error::{DamagedSnafu, InUseSnafu, IoSnafu, MissingSnafu, OpenStoreError, WriteError};
use super::frames::{FileKind, Frame, FrameReader, FrameWriter, HEADER_BYTES, Header};
use crate::coordination::tree::{Tree, TreeBuilder};
use crate::model::Timestamp;
use crate::runtime::fs::{Durability, FileLock, FileSystem, OpenMode, is_disk_full};

/// The files of an embedded store: the tree as of one transaction, and the log of those after it.
///
/// Plain files beside the topics' directories: Apache Kafka passes over files in its log directories.
///
/// | file | holds |
/// |---|---|
/// | `barnabas-store.lock` | the advisory lock |
/// | `barnabas-store.<zxid>.snapshot` | the whole tree after that transaction; none for zxid 0 |
/// | `barnabas-store.<zxid>.log` | the transactions after it |
///
/// The newest snapshot counts, with the log of its number. A log is complete on disk, header and name, before
/// its snapshot gets its name, and no transaction is written to it earlier; older files are removed after.
/// So every moment leaves one pair that is whole, and a log without its snapshot is empty.
#[derive(Debug)]
pub(super) struct Journal {
    file_system: Arc<dyn FileSystem>,
    dir: PathBuf,
    durability: Durability,
    writer: FrameWriter,
    /// The log is long enough to be replaced by a snapshot.
    rotate_at_bytes: u64,
    log_bytes_min: u64,
    _lock: Box<dyn FileLock>,
}

/// What opening found.
#[derive(Debug)]
pub(super) struct Opened {
    pub tree: Tree,
    pub journal: Journal,
    /// What a crash left of a write that nobody was told of; it has been cut off.
    pub cut_bytes: u64,
}

/// A tree as it is written to a snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    zxid: i64,
    frames: Vec<Vec<u8>>,
}

/// Large enough that a snapshot of this size is few system calls, small enough to be read in one piece.
const SNAPSHOT_FRAME_BYTES: usize = 64 * 1024;

const PREFIX: &str = "barnabas-store.";
const LOG_SUFFIX: &str = ".log";
const SNAPSHOT_SUFFIX: &str = ".snapshot";
const LOCK_NAME: &str = "barnabas-store.lock";

/// Whether a file of this name holds a part of a store.
pub(super) fn is_store_file(name: &str) -> bool {
    name.starts_with(PREFIX) && (name.ends_with(LOG_SUFFIX) || name.ends_with(SNAPSHOT_SUFFIX))
}

impl Snapshot {
    pub(super) fn of(tree: &Tree) -> Snapshot {
        let mut frames = Vec::new();
        let mut frame = Vec::with_capacity(SNAPSHOT_FRAME_BYTES + SNAPSHOT_FRAME_BYTES / 4);
        tree.walk(|node| {
            put_node(&mut frame, node);
            if frame.len() >= SNAPSHOT_FRAME_BYTES {
                let size = frame.capacity();
                frames.push(std::mem::replace(&mut frame, Vec::with_capacity(size)));
            }
        });
        for (session, terms) in tree.sessions() {
            put_session(&mut frame, *session, terms);
        }
        // An empty frame would say that the snapshot ends here.
        if !frame.is_empty() {
            frames.push(frame);
        }
        Snapshot { zxid: tree.last_zxid(), frames }
    }

    fn size_bytes(&self) -> u64 {
        self.frames.iter().map(|frame| frame.len() as u64).sum()
    }
}

impl Journal {
    /// Reads the tree back, cuts off a torn tail, and stands ready to append.
    ///
    /// `log_bytes_min`: a log shorter than this is never replaced by a snapshot.
    pub(super) fn open(
        file_system: Arc<dyn FileSystem>,
        dir: &Path,
        durability: Durability,
        log_bytes_min: u64,
        now: Timestamp,
    ) -> Result<Opened, OpenStoreError> {
        let lock_path = dir.join(LOCK_NAME);
        let lock = file_system.lock(&lock_path).context(IoSnafu { path: &lock_path })?;
        let lock = lock.context(InUseSnafu { dir })?;
        let files = Files { file_system: &*file_system, dir };
        let listing = files.list()?;
        let base_zxid = listing.snapshots.iter().copied().max().unwrap_or(0);
        files.check_logs(&listing, base_zxid)?;
        let mut tree = files.read_snapshot(base_zxid)?;
        let (writer, cut_bytes) = match files.open_log(base_zxid)? {
            Some(mut reader) => {
                let torn_at = files.replay(&mut reader, &mut tree)?;
                let cut_bytes = torn_at.map_or(0, |position| reader.size_bytes() - position);
                let writer = reader.into_writer();
                // Even without a torn tail: the last frame may have been written by a process that died
                // before it synced, and what is read from now on must be durable.
                let settled = if cut_bytes > 0 { writer.cut() } else { writer.sync() };
                settled.context(IoSnafu { path: files.log(base_zxid) })?;
                (writer, cut_bytes)
            }
            None => (files.create_first_log(now)?, 0),
        };
        files.remove_all_but(base_zxid);
        let mut journal = Journal {
            file_system,
            dir: dir.to_owned(),
            durability,
            writer,
            rotate_at_bytes: 0,
            log_bytes_min,
            _lock: lock,
        };
        journal.plan_rotation(journal.snapshot_bytes(base_zxid));
        Ok(Opened { tree, journal, cut_bytes })
    }

    /// Appends one frame and makes it durable: all of it will be read back, or none.
    pub(super) fn append(&mut self, transactions: &[u8]) -> Result<(), WriteError> {
        if let Err(source) = self.writer.write(transactions) {
            return Err(self.after_failed_write(source));
        }
        match self.durability {
            Durability::Synced => self.writer.sync().map_err(|source| WriteError::Broken { source }),
            Durability::Cached => Ok(()),
        }
    }

    /// A full disk is no broken one when what was written of the frame can be cut off again.
    fn after_failed_write(&self, source: io::Error) -> WriteError {
        if !is_disk_full(&source) {
            return WriteError::Broken { source };
        }
        match self.writer.cut() {
            Ok(()) => WriteError::NoSpace,
            Err(source) => WriteError::Broken { source },
        }
    }

    /// The log has outgrown the snapshot: time to [`rotate`](Journal::rotate).
    pub(super) fn is_rotation_due(&self) -> bool {
        self.writer.size_bytes() >= self.rotate_at_bytes
    }

    /// Replaces snapshot and log by a snapshot of the tree and an empty log. Everything appended so far must
    /// be in the snapshot. After `NoSpace` the old ones stay, and it is tried again when the log has grown.
    pub(super) fn rotate(&mut self, snapshot: &Snapshot, now: Timestamp) -> Result<(), WriteError> {
        let path = self.files().snapshot(snapshot.zxid);
        let temporary = path.with_extension("tmp");
        match self.write_pair(snapshot, &temporary, &path, now) {
            Ok(writer) => self.writer = writer,
            Err(source) if is_disk_full(&source) => {
                self.rotate_at_bytes = self.writer.size_bytes().saturating_mul(2);
                return Err(WriteError::NoSpace);
            }
            Err(source) => return Err(WriteError::Broken { source }),
        }
        // From here on a restart may find the new pair, so there is no way back to the old log.
        self.file_system.sync_dir(&self.dir).map_err(|source| WriteError::Broken { source })?;
        self.plan_rotation(snapshot.size_bytes());
        self.files().remove_all_but(snapshot.zxid);
        Ok(())
    }

    fn write_pair(
        &self,
        snapshot: &Snapshot,
        temporary: &Path,
        path: &Path,
        now: Timestamp,
    ) -> io::Result<FrameWriter> {
        let header = Header { kind: FileKind::Snapshot, base_zxid: snapshot.zxid, created: now };
        let file = self.file_system.open(temporary, OpenMode::CreateEmpty)?;
        let mut writer = FrameWriter::create(file, &header)?;
        for frame in &snapshot.frames {
            writer.write(frame)?;
        }
        // The empty frame says that the snapshot is whole.
        writer.write(&[])?;
        writer.sync()?;
        let log = self.files().create_log(snapshot.zxid, now)?;
        self.file_system.rename(temporary, path)?;
        Ok(log)
    }

    /// Reading the log back takes longer by the byte than reading the snapshot, and both bound the start.
    fn plan_rotation(&mut self, snapshot_bytes: u64) {
        self.rotate_at_bytes = self.log_bytes_min.max(snapshot_bytes / 2);
    }

    fn snapshot_bytes(&self, zxid: i64) -> u64 {
        self.file_system.metadata(&self.files().snapshot(zxid)).map_or(0, |found| found.size_bytes)
    }

    fn files(&self) -> Files<'_> {
        Files { file_system: &*self.file_system, dir: &self.dir }
    }

    /// Ends the log with an empty frame: damage of what stands before it will not look like a torn tail.
    pub(super) fn close(&mut self) -> Result<(), WriteError> {
        self.append(&[])
    }
}

/// The store's files in a directory that holds others too.
#[derive(Clone, Copy, Debug)]
struct Files<'a> {
    file_system: &'a dyn FileSystem,
    dir: &'a Path,
}

#[derive(Debug, Default)]
struct Listing {
    snapshots: Vec<i64>,
    logs: Vec<i64>,
}

impl Files<'_> {
    fn log(&self, zxid: i64) -> PathBuf {
        self.dir.join(format!("{PREFIX}{zxid:020}{LOG_SUFFIX}"))
    }

    fn snapshot(&self, zxid: i64) -> PathBuf {
        self.dir.join(format!("{PREFIX}{zxid:020}{SNAPSHOT_SUFFIX}"))
    }

    fn list(&self) -> Result<Listing, OpenStoreError> {
        let mut listing = Listing::default();
        for entry in self.file_system.list(self.dir).context(IoSnafu { path: self.dir })? {
            let Some(rest) = entry.name.strip_prefix(PREFIX) else { continue };
            if let Some(zxid) = rest.strip_suffix(LOG_SUFFIX).and_then(|digits| digits.parse().ok()) {
                listing.logs.push(zxid);
            } else if let Some(zxid) =
                rest.strip_suffix(SNAPSHOT_SUFFIX).and_then(|digits| digits.parse().ok())
            {
                listing.snapshots.push(zxid);
            }
        }
        Ok(listing)
    }

    /// A log whose snapshot is missing must be one that a crash left before its first transaction.
    fn check_logs(&self, listing: &Listing, base_zxid: i64) -> Result<(), OpenStoreError> {
        let is_first_start = base_zxid == 0 && listing.logs.is_empty();
        ensure!(
            is_first_start || listing.logs.contains(&base_zxid),
            MissingSnafu { file: self.log(base_zxid) }
        );
        for &zxid in listing.logs.iter().filter(|&&zxid| zxid > base_zxid) {
            let path = self.log(zxid);
            let found = self.file_system.metadata(&path).context(IoSnafu { path: &path })?;
            ensure!(found.size_bytes <= HEADER_BYTES, MissingSnafu { file: self.snapshot(zxid) });
        }
        Ok(())
    }

    fn read_snapshot(&self, zxid: i64) -> Result<Tree, OpenStoreError> {
        if zxid == 0 {
            return Ok(Tree::new());
        }
        let path = self.snapshot(zxid);
        let mut builder = TreeBuilder::new(zxid);
        let mut reader = self.open_frames(&path, FileKind::Snapshot, zxid)?;
        let version = reader.version();
        let mut is_whole = false;
        loop {
            let position = reader.position();
            let damaged = |what| DamagedSnafu { file: &path, position, what };
            match reader.next().context(IoSnafu { path: &path })? {
                Frame::Content(content) => {
                    ensure!(!is_whole, damaged("content after the end"));
                    is_whole = content.is_empty();
                    add_records(&mut builder, content, version).context(damaged("a node cannot be read"))?;
                }
                Frame::End => {
                    ensure!(is_whole, damaged("the end is missing"));
                    return builder.finish().context(damaged("the root is missing"));
                }
                Frame::Unreadable { .. } => return damaged("the checksum is wrong").fail(),
            }
        }
    }

    /// `None` where the very first log has not been begun, or a crash cut its beginning short.
    fn open_log(&self, zxid: i64) -> Result<Option<FrameReader>, OpenStoreError> {
        let path = self.log(zxid);
        if zxid > 0 {
            return self.open_frames(&path, FileKind::Log, zxid).map(Some);
        }
        match self.file_system.metadata(&path) {
            Ok(found) if found.size_bytes > HEADER_BYTES => {
                self.open_frames(&path, FileKind::Log, zxid).map(Some)
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OpenStoreError::Io { path, source }),
        }
    }

    fn open_frames(&self, path: &Path, kind: FileKind, zxid: i64) -> Result<FrameReader, OpenStoreError> {
        let file = self.file_system.open(path, OpenMode::Write).context(IoSnafu { path })?;
        let reader = FrameReader::open(file, kind).context(IoSnafu { path })?;
        let damaged = || DamagedSnafu { file: path, position: 0u64, what: "the header cannot be read" };
        reader.filter(|reader| reader.header().base_zxid == zxid).with_context(damaged)
    }

    /// Applies the log to the tree. Gives the position of a torn tail, if there is one.
    fn replay(&self, reader: &mut FrameReader, tree: &mut Tree) -> Result<Option<u64>, OpenStoreError> {
        let path = self.log(reader.header().base_zxid);
        loop {
            let position = reader.position();
            let damaged = |what| DamagedSnafu { file: &path, position, what };
            match reader.next().context(IoSnafu { path: &path })? {
                Frame::Content(content) => {
                    apply_all(tree, content).context(damaged("a transaction cannot be applied"))?;
                }
                Frame::End => return Ok(None),
                Frame::Unreadable { is_last } => {
                    ensure!(is_last, damaged("the checksum is wrong, and good data follows"));
                    return Ok(Some(position));
                }
            }
        }
    }

    fn create_first_log(&self, now: Timestamp) -> Result<FrameWriter, OpenStoreError> {
        self.create_log(0, now).context(IoSnafu { path: self.log(0) })
    }

    fn create_log(&self, zxid: i64, now: Timestamp) -> io::Result<FrameWriter> {
        let file = self.file_system.open(&self.log(zxid), OpenMode::CreateEmpty)?;
        let header = Header { kind: FileKind::Log, base_zxid: zxid, created: now };
        let writer = FrameWriter::create(file, &header)?;
        writer.sync()?;
        self.file_system.sync_dir(self.dir)?;
        Ok(writer)
    }

    /// Removes what rotations left. What cannot be removed does no harm and is tried again at the next one.
    fn remove_all_but(&self, zxid: i64) {
        let kept = [self.log(zxid), self.snapshot(zxid), self.dir.join(LOCK_NAME)];
        for entry in self.file_system.list(self.dir).unwrap_or_default() {
            let path = self.dir.join(&entry.name);
            if entry.name.starts_with(PREFIX) && !kept.contains(&path) {
                let _ = self.file_system.remove_file(&path);
            }
        }
    }
}

fn add_records(builder: &mut TreeBuilder, content: &[u8], version: u32) -> Option<()> {
    let mut input = Input(content);
    while !input.is_empty() {
        match input.record(version).ok()? {
            Record::Node(node) => builder.push(&node).ok()?,
            Record::Session(session, terms) => builder.push_session(session, terms),
        }
    }
    Some(())
}

fn apply_all(tree: &mut Tree, content: &[u8]) -> Option<()> {
    let mut input = Input(content);
    while !input.is_empty() {
        let transaction = input.transaction().ok()?;
        let is_next = transaction.zxid == tree.last_zxid() + 1;
        if !is_next {
            return None;
        }
        tree.apply(&transaction).ok()?;
    }
    Some(())
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
