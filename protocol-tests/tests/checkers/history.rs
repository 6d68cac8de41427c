//! What workers know of their transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use protocol_tests::wait_for;

use crate::view::View;

/// One transaction that was tried. Its records have the keys `NAME#0`, `NAME#1`, … in the order of its writes.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Partition and offset of each write that was answered.
    pub writes: Vec<(i32, i64)>,
    pub fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Nobody has asked to commit it: no reader may see it.
    Open,
    /// It was asked to commit it, and there is no answer yet: readers see all of it or nothing.
    Asked,
    Committed,
    /// Aborted, or given up before it was committed.
    Aborted,
}

#[derive(Default)]
pub struct History {
    attempts: Mutex<BTreeMap<String, Attempt>>,
    committed: AtomicUsize,
    pub is_over: Flag,
}

#[derive(Default)]
pub struct Flag(AtomicBool);

impl Flag {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Ends the run when whoever holds it panics.
pub struct Alarm<'a>(&'a Flag);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set();
        }
    }
}

/// Commits between two faults.
const PROGRESS: usize = 15;

impl History {
    pub fn alarm(&self) -> Alarm<'_> {
        Alarm(&self.is_over)
    }

    pub fn attempts(&self) -> MutexGuard<'_, BTreeMap<String, Attempt>> {
        self.attempts.lock().expect("nobody panics with the history in its hands")
    }

    /// Noted before anything is sent, so that nothing is seen that nobody knows of.
    pub fn begin(&self, name: &str) {
        let attempt = Attempt { writes: Vec::new(), fate: Fate::Open };
        let before = self.attempts().insert(name.to_owned(), attempt);
        assert!(before.is_none(), "{name} is tried twice");
    }

    pub fn wrote(&self, name: &str, partition: i32, offset: i64) {
        self.change(name, |attempt| attempt.writes.push((partition, offset)));
    }

    pub fn set_fate(&self, name: &str, fate: Fate) {
        self.change(name, |attempt| attempt.fate = fate);
        if fate == Fate::Committed {
            self.committed.fetch_add(1, Ordering::Release);
        }
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Attempt)) {
        change(self.attempts().get_mut(name).expect("it was begun"));
    }

    /// Waits until some transactions were committed since now.
    pub fn await_progress(&self) {
        let enough = self.committed.load(Ordering::Acquire) + PROGRESS;
        wait_for("transactions", || {
            (self.committed.load(Ordering::Acquire) >= enough || self.is_over.is_set()).then_some(())
        });
    }

    /// What a reader sees who has read everything is what was decided.
    pub fn audit(&self, all: &View) {
        for (name, attempt) in &*self.attempts() {
            let seen = all.seen_of(name).len();
            let expected: &[usize] = match attempt.fate {
                Fate::Committed => &[attempt.writes.len()],
                Fate::Asked => &[0, attempt.writes.len()],
                Fate::Open | Fate::Aborted => &[0],
            };
            assert!(expected.contains(&seen), "{name}: {seen} of {attempt:?} are seen");
        }
    }

    /// Those that were committed, in the order of their names.
    pub fn committed(&self) -> BTreeSet<String> {
        let attempts = self.attempts();
        let committed = attempts.iter().filter(|(_, attempt)| attempt.fate == Fate::Committed);
        committed.map(|(name, _)| name.clone()).collect()
    }

    pub fn summary(&self) -> String {
        let mut counts: BTreeMap<Fate, usize> = BTreeMap::new();
        for attempt in self.attempts().values() {
            *counts.entry(attempt.fate).or_default() += 1;
        }
        format!("{counts:?}")
    }
}
