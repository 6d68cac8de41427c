use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tracing::{error, info};

use crate::runtime::fs::{File, FileSystem, OpenMode, is_out_of_files};

/// Keeps the number of open files below a limit, by closing those not used lately.
///
/// A broker may hold many more segments than a process may open files. A file handed out stays usable until
/// its last user drops it, so the process may for a moment hold a few more than the limit.
pub(super) struct OpenFiles {
    limit: usize,
    /// Slots that hold a file, least recently opened first.
    opened: Mutex<VecDeque<Weak<Slot>>>,
    /// Not even without these could a file be opened the last time. Told once.
    is_short: AtomicBool,
}

/// The place of one file: opened when it is wanted.
pub(super) struct LazyFile {
    slot: Arc<Slot>,
}

#[derive(Default)]
struct Slot {
    file: ArcSwapOption<Opened>,
    /// Since the last search for a file to close.
    is_used: AtomicBool,
}

struct Opened(Arc<dyn File>);

impl OpenFiles {
    pub(super) fn new(limit: usize) -> Self {
        OpenFiles { limit, opened: Mutex::default(), is_short: AtomicBool::new(false) }
    }

    /// Runs what opens a file; once more, with the files closed that nobody uses at the moment, if the process has too
    /// many open.
    pub(super) fn making_way<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if is_out_of_files(&error) => {
                for slot in self.opened.lock().drain(..).filter_map(|slot| slot.upgrade()) {
                    slot.file.store(None);
                }
                let again = open();
                let is_short = again.as_ref().is_err_and(is_out_of_files);
                if is_short && !self.is_short.swap(true, Ordering::Relaxed) {
                    error!("the process may not open more files (ulimit -n): logs that need one fail");
                }
                again
            }
            outcome => {
                if self.is_short.load(Ordering::Relaxed) && self.is_short.swap(false, Ordering::Relaxed) {
                    info!("files can be opened again");
                }
                outcome
            }
        }
    }

    fn add(&self, slot: &Arc<Slot>) {
        let mut opened = self.opened.lock();
        opened.push_back(Arc::downgrade(slot));
        // Each round closes a file, forgets a slot that is gone, or uses up a second chance.
        let mut rounds = 2 * opened.len();
        while opened.len() > self.limit && rounds > 0 {
            rounds -= 1;
            let Some(candidate) = opened.pop_front() else { return };
            let Some(slot) = candidate.upgrade() else { continue };
            if slot.is_used.swap(false, Ordering::Relaxed) {
                opened.push_back(candidate);
            } else {
                slot.file.store(None);
            }
        }
    }
}

impl LazyFile {
    pub(super) fn new() -> Self {
        LazyFile { slot: Arc::default() }
    }

    /// The file, opened at the path that `path` computes if it is not open.
    pub(super) fn open(
        &self,
        files: &OpenFiles,
        fs: &dyn FileSystem,
        mode: OpenMode,
        path: impl FnOnce() -> Box<Path>,
    ) -> io::Result<Arc<dyn File>> {
        if let Some(opened) = &*self.slot.file.load() {
            self.slot.is_used.store(true, Ordering::Relaxed);
            return Ok(opened.0.clone());
        }
        let file = fs.open(&path(), mode)?;
        self.slot.is_used.store(true, Ordering::Relaxed);
        // Two threads may open the file at once; either handle serves, and the slot is counted twice at worst.
        self.slot.file.store(Some(Arc::new(Opened(file.clone()))));
        files.add(&self.slot);
        Ok(file)
    }

    /// Lets go of the file; the next use opens it again.
    pub(super) fn close(&self) {
        self.slot.file.store(None);
    }
}

impl fmt::Debug for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFiles").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl fmt::Debug for LazyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyFile").field("is_open", &self.slot.file.load().is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;
    use crate::runtime::Clock;
    use crate::runtime::fs::MemoryFileSystem;

    fn open(lazy: &LazyFile, files: &OpenFiles, fs: &MemoryFileSystem, path: &str) -> Arc<dyn File> {
        lazy.open(files, fs, OpenMode::Create, || Path::new(path).into()).unwrap()
    }

    fn is_open(lazy: &LazyFile) -> bool {
        lazy.slot.file.load().is_some()
    }

    #[test]
    fn the_file_not_used_lately_is_closed_when_there_are_too_many() {
        let fs = MemoryFileSystem::new(Clock::manual(Timestamp(0)));
        let files = OpenFiles::new(2);
        let [a, b, c] = [LazyFile::new(), LazyFile::new(), LazyFile::new()];
        open(&a, &files, &fs, "/a");
        open(&b, &files, &fs, "/b");
        a.slot.is_used.store(false, Ordering::Relaxed);
        open(&c, &files, &fs, "/c");
        assert!(!is_open(&a) && is_open(&b) && is_open(&c));
        open(&a, &files, &fs, "/a");
        assert_eq!([&a, &b, &c].into_iter().filter(|lazy| is_open(lazy)).count(), 2);
    }

    #[test]
    fn slots_of_dropped_files_take_no_room() {
        let fs = MemoryFileSystem::new(Clock::manual(Timestamp(0)));
        let files = OpenFiles::new(2);
        for _ in 0..100 {
            open(&LazyFile::new(), &files, &fs, "/a");
        }
        assert!(files.opened.lock().len() <= 2);
    }
}
