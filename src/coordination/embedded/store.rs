use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use snafu::ResultExt;
use tokio::sync::oneshot;
use tracing::{debug, error, warn};

use super::codec::put_transaction;
use super::error::{IoSnafu, OpenStoreError, WriteError};
use super::journal::{self, Journal, Opened, Snapshot};
use super::remote::RemoteStore;
use crate::coordination::access::Access;
use crate::coordination::database::{Database, Written};
use crate::coordination::store::{
    BoxFuture, Create, Ensemble, NodeData, Operation, OperationResult, SessionState, Stat, Store, StoreError,
    Watcher,
};
use crate::coordination::tree::{Request, Undo};
use crate::coordination::watches::Firing;
use crate::runtime::Clock;
use crate::runtime::fs::{Durability, FileSystem};

/// ZooKeeper's place in a cluster of one: opens sessions on a tree that lives in this process and on its disk.
///
/// A write is applied at once, in the order of the calls, and encoded for the log. A thread of its own appends
/// what has gathered as one frame and syncs it; then the answers are given and the watches told, in order. A
/// read that was called after a write that still waits is answered after it, so nothing that could be lost is
/// ever seen. Many calls under way share one sync.
///
/// The memory of calls under way is bounded by their callers. A failed write or sync ends all sessions and is
/// not retried; a full disk only refuses writes (`NoSpace`).
///
/// Dropping it, or [`stop`](EmbeddedStore::stop), finishes what waits. Sessions of this process that are still open
/// are over then; their ephemeral nodes are removed when the store is opened the next time. Sessions of other
/// processes go on where [`EmbeddedStoreOptions`] say so.
#[derive(Debug)]
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Clone, Debug)]
pub struct EmbeddedStoreOptions {
    pub file_system: Arc<dyn FileSystem>,
    /// An existing directory; other files in it are left alone.
    pub dir: PathBuf,
    pub clock: Clock,
    /// `Cached` gives up what was written since the last snapshot when the power fails, not when the process
    /// dies.
    pub durability: Durability,
    pub lasting_sessions: LastingSessions,
}

/// What becomes of the sessions that other processes had in an earlier life of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastingSessions {
    /// They go on: whoever holds the store expires them.
    Kept,
    /// They are over, since there is no way to go on with them.
    Ended,
}

/// An opened store and what opening it found.
#[derive(Debug)]
pub struct OpenedStore {
    pub store: EmbeddedStore,
    /// Bytes cut off the log: a write that a crash cut short, and nobody was told of.
    pub cut_bytes: u64,
}

/// Below this size the log is never replaced by a snapshot.
const LOG_BYTES_MIN: u64 = 1024 * 1024;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    wake_writer: Condvar,
    pub(super) clock: Clock,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) database: Database,
    /// Transactions that the writer has not taken yet, encoded.
    encoded: Vec<u8>,
    /// What takes back every transaction that is not durable, oldest first.
    undos: Vec<Undo>,
    /// Calls that are answered when everything applied before them is durable, oldest first.
    waiting: VecDeque<Waiting>,
    phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The writer finishes what waits, then ends.
    Stopping,
    Failed(String),
}

struct Waiting {
    is_write: bool,
    firings: Vec<Firing>,
    answer: Box<dyn FnOnce(Result<(), StoreError>) + Send>,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("is_write", &self.is_write).finish_non_exhaustive()
    }
}

impl EmbeddedStore {
    /// Opens the store in a directory, or begins one. Blocks while it reads the files.
    ///
    /// Ephemeral nodes of an earlier life of this process are gone, whatever ended it.
    pub fn open(options: EmbeddedStoreOptions) -> Result<OpenedStore, OpenStoreError> {
        let dir = options.dir.clone();
        let (writer, cut_bytes) = Writer::open(options)?;
        let shared = Arc::clone(&writer.shared);
        let thread = thread::Builder::new().name("store-writer".to_owned());
        let writer = thread.spawn(move || writer.run()).context(IoSnafu { path: dir })?;
        let store = EmbeddedStore { shared, writer: Mutex::new(Some(writer)) };
        Ok(OpenedStore { store, cut_bytes })
    }

    /// Whether a directory holds a store.
    pub fn exists(file_system: &dyn FileSystem, dir: &Path) -> io::Result<bool> {
        let entries = file_system.list(dir)?;
        Ok(entries.iter().any(|entry| journal::is_store_file(&entry.name)))
    }

    /// Opens a session; refused with `Failed` after a disk error or [`stop`](EmbeddedStore::stop).
    pub fn session(&self) -> Result<EmbeddedSession, StoreError> {
        let mut state = self.shared.state.lock();
        state.check_running()?;
        let session = state.database.open_session();
        Ok(EmbeddedSession { shared: Arc::clone(&self.shared), session })
    }

    /// Ends a session as a timeout would; for sessions of other processes. `SessionExpired` when it is over.
    pub fn expire_session(&self, session: i64) -> BoxFuture<'static, Result<(), StoreError>> {
        self.shared.end_session_soon(session)
    }

    /// The store for the sessions of other processes.
    pub(in crate::coordination) fn remote(&self) -> RemoteStore {
        RemoteStore { shared: Arc::clone(&self.shared) }
    }

    /// Finishes what waits, ends the log so that a later start finds it whole, and waits for the thread.
    pub fn stop(&self) {
        let mut state = self.shared.state.lock();
        if state.phase == Phase::Running {
            state.phase = Phase::Stopping;
        }
        drop(state);
        self.shared.wake_writer.notify_one();
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            error!("the store's writer has panicked");
        }
        let firings = self.shared.state.lock().database.end_all_sessions();
        firings.into_iter().for_each(Firing::tell);
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Ensemble for EmbeddedStore {
    fn open_session(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        let opened = self.session().map(|session| Arc::new(session) as Arc<dyn Store>);
        Box::pin(std::future::ready(opened))
    }
}

impl State {
    pub(super) fn check_running(&self) -> Result<(), StoreError> {
        match &self.phase {
            Phase::Running => Ok(()),
            Phase::Stopping => Err(StoreError::SessionExpired),
            Phase::Failed(reason) => Err(StoreError::Failed { reason: reason.clone() }),
        }
    }

    /// Keeps an applied write for the writer; its results and its watches.
    pub(super) fn record(&mut self, written: Written) -> (Vec<OperationResult>, Vec<Firing>) {
        put_transaction(&mut self.encoded, &written.transaction);
        self.undos.push(written.undo);
        (written.results, written.firings)
    }

    /// Deletes the ephemeral nodes of sessions that are over. Nobody waits for it: it is written with the next
    /// call, and done again at the next start if that never comes.
    fn remove_orphans(&mut self, clock: &Clock) {
        for written in self.database.remove_orphans(clock.now()) {
            let (_, firings) = self.record(written);
            firings.into_iter().for_each(Firing::tell);
        }
    }

    /// Answers the first `count` calls, and the reads after them that waited for no later write.
    fn release(&mut self, count: usize) {
        let mut released = 0;
        while self.waiting.front().is_some_and(|first| released < count || !first.is_write) {
            released += 1;
            if let Some(Waiting { firings, answer, .. }) = self.waiting.pop_front() {
                firings.into_iter().for_each(Firing::tell);
                answer(Ok(()));
            }
        }
    }

    /// Takes back everything that is not durable, and tells all who wait. Their watches are told too: who
    /// reads again finds what was before, and watches anew.
    fn take_back(&mut self, clock: &Clock, error: &StoreError) {
        self.encoded.clear();
        while let Some(undo) = self.undos.pop() {
            self.database.undo(undo);
        }
        for Waiting { firings, answer, .. } in std::mem::take(&mut self.waiting) {
            firings.into_iter().for_each(Firing::tell);
            answer(Err(error.clone()));
        }
        self.remove_orphans(clock);
    }

    fn fail(&mut self, reason: String) {
        let error = StoreError::Failed { reason: reason.clone() };
        self.phase = Phase::Failed(reason);
        for Waiting { firings, answer, .. } in std::mem::take(&mut self.waiting) {
            firings.into_iter().for_each(Firing::tell);
            answer(Err(error.clone()));
        }
        self.database.end_all_sessions().into_iter().for_each(Firing::tell);
    }
}

/// Owns the files; the store's thread.
#[derive(Debug)]
struct Writer {
    shared: Arc<Shared>,
    journal: Journal,
}

/// What the writer took out of the state at one moment.
struct Batch {
    encoded: Vec<u8>,
    undos: usize,
    waiting: usize,
    /// The tree with the batch applied, when the log is due to be replaced.
    snapshot: Option<Snapshot>,
}

impl Writer {
    fn open(options: EmbeddedStoreOptions) -> Result<(Writer, u64), OpenStoreError> {
        let EmbeddedStoreOptions { file_system, dir, clock, durability, lasting_sessions } = options;
        let now = clock.now();
        let Opened { tree, journal, cut_bytes } =
            Journal::open(file_system, &dir, durability, LOG_BYTES_MIN, now)?;
        // Session ids grow from one life to the next as long as the clock does.
        let used = tree.owners().into_iter().chain(tree.sessions().keys().copied());
        let last_session = used.max().unwrap_or(0).max(now.0.saturating_mul(1 << 16));
        let mut state = State {
            database: Database::new(tree, last_session),
            encoded: Vec::new(),
            undos: Vec::new(),
            waiting: VecDeque::new(),
            phase: Phase::Running,
        };
        if lasting_sessions == LastingSessions::Ended {
            state.database.abandon_lasting_sessions();
        }
        state.remove_orphans(&clock);
        let shared = Shared { state: Mutex::new(state), wake_writer: Condvar::new(), clock };
        Ok((Writer { shared: Arc::new(shared), journal }, cut_bytes))
    }

    fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            if let Err(error) = self.write(batch) {
                error!(%error, "the store has failed");
                self.shared.state.lock().fail(error.to_string());
                return;
            }
        }
        if let Err(error) = self.journal.close() {
            warn!(%error, "the store's log was not closed");
        }
    }

    /// Waits for calls to write for; `None` when the store stops and none are left.
    fn next_batch(&self) -> Option<Batch> {
        let mut state = self.shared.state.lock();
        while state.waiting.is_empty() {
            if state.phase != Phase::Running {
                return None;
            }
            self.shared.wake_writer.wait(&mut state);
        }
        Some(Batch {
            snapshot: self.journal.is_rotation_due().then(|| Snapshot::of(state.database.tree())),
            encoded: std::mem::take(&mut state.encoded),
            undos: state.undos.len(),
            waiting: state.waiting.len(),
        })
    }

    fn write(&mut self, batch: Batch) -> Result<(), WriteError> {
        let appended = self.journal.append(&batch.encoded);
        let mut state = self.shared.state.lock();
        match appended {
            Ok(()) => {
                state.undos.drain(..batch.undos);
                state.release(batch.waiting);
            }
            Err(WriteError::NoSpace) => {
                warn!("no space left for the store: writes are refused");
                state.take_back(&self.shared.clock, &StoreError::NoSpace);
                return Ok(());
            }
            Err(broken @ WriteError::Broken { .. }) => return Err(broken),
        }
        drop(state);
        let Some(snapshot) = batch.snapshot else { return Ok(()) };
        match self.journal.rotate(&snapshot, self.shared.clock.now()) {
            Err(WriteError::NoSpace) => {
                warn!("no space left for a snapshot of the store: its log grows on");
                Ok(())
            }
            rotated => {
                debug!("the store's log was replaced by a snapshot");
                rotated
            }
        }
    }
}

impl Drop for Writer {
    /// Nobody may wait for ever: after a panic the store has failed.
    fn drop(&mut self) {
        if thread::panicking() {
            self.shared.state.lock().fail("its writer has panicked".to_owned());
        }
    }
}

impl Shared {
    /// Applies at once and answers when it is durable, with the number of the transaction; of a refused one, with that
    /// of the last one before.
    pub(super) fn write(
        &self,
        session: i64,
        request: Request,
        access: Access<'_>,
        answer: impl FnOnce(i64, Result<Vec<OperationResult>, (usize, StoreError)>) + Send + 'static,
    ) {
        let mut state = self.state.lock();
        let written = state
            .check_running()
            .map_err(|error| (0, error))
            .and_then(|()| state.database.write(session, request, access, self.clock.now()));
        let zxid = state.database.tree().last_zxid();
        match written {
            Ok(written) => {
                let (results, firings) = state.record(written);
                let answer = move |outcome: Result<(), StoreError>| {
                    answer(zxid, outcome.map(|()| results).map_err(|error| (0, error)));
                };
                self.wait_for_writer(state, firings, Box::new(answer));
            }
            // What refuses it may be a write that still waits.
            Err(refused) => state.answer_in_order(move |outcome| {
                answer(zxid, Err(outcome.map_or_else(|error| (0, error), |()| refused)));
            }),
        }
    }

    /// Answers with the number of the transaction that ends the session.
    pub(super) fn end_session(
        &self,
        session: i64,
        answer: impl FnOnce(Result<i64, StoreError>) + Send + 'static,
    ) {
        let mut state = self.state.lock();
        let ended = state.check_running();
        let ended = ended.and_then(|()| state.database.end_session(session, self.clock.now()));
        match ended {
            Ok(written) => {
                let zxid = written.transaction.zxid;
                let (_, firings) = state.record(written);
                let answer = move |outcome: Result<(), StoreError>| answer(outcome.map(|()| zxid));
                self.wait_for_writer(state, firings, Box::new(answer));
            }
            Err(error) => {
                drop(state);
                answer(Err(error));
            }
        }
    }

    fn end_session_soon(&self, session: i64) -> BoxFuture<'static, Result<(), StoreError>> {
        let (reply, receiver) = oneshot::channel();
        self.end_session(session, move |outcome| {
            // Nobody listens when the future was dropped.
            let _ = reply.send(outcome.map(|_| ()));
        });
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(unanswered())) })
    }

    pub(super) fn wait_for_writer(
        &self,
        mut state: MutexGuard<'_, State>,
        firings: Vec<Firing>,
        answer: Box<dyn FnOnce(Result<(), StoreError>) + Send>,
    ) {
        let is_first = state.waiting.is_empty();
        state.waiting.push_back(Waiting { is_write: true, firings, answer });
        drop(state);
        if is_first {
            self.wake_writer.notify_one();
        }
    }

    /// Reads now and answers when what was read is durable.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Database) -> Result<T, StoreError>,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let mut state = self.state.lock();
        let found = state.check_running().and_then(|()| read(&mut state.database));
        if state.waiting.is_empty() {
            return Box::pin(std::future::ready(found));
        }
        let (reply, receiver) = oneshot::channel();
        state.answer_in_order(move |outcome| {
            let _ = reply.send(outcome.and(found));
        });
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(unanswered())) })
    }
}

impl State {
    /// Answers at once, or after the writes that still wait.
    pub(super) fn answer_in_order(&mut self, answer: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
        if self.waiting.is_empty() {
            answer(Ok(()));
        } else {
            self.waiting.push_back(Waiting {
                is_write: false,
                firings: Vec::new(),
                answer: Box::new(answer),
            });
        }
    }
}

/// Every call that waits is answered; this is for a caller that outlives the store's state all the same.
fn unanswered() -> StoreError {
    StoreError::OutcomeUnknown { reason: "the store has stopped".to_owned() }
}

/// One session of an [`EmbeddedStore`].
#[derive(Clone, Debug)]
pub struct EmbeddedSession {
    shared: Arc<Shared>,
    session: i64,
}

impl EmbeddedSession {
    fn write_one(&self, operation: Operation) -> BoxFuture<'static, Result<OperationResult, StoreError>> {
        let written = self.multi(vec![operation]);
        Box::pin(async move {
            let mut results = written.await.map_err(|(_, error)| error)?;
            Ok(results.pop().expect("an applied operation has a result"))
        })
    }
}

impl Store for EmbeddedSession {
    fn create(&self, node: Create) -> BoxFuture<'static, Result<(String, Stat), StoreError>> {
        let created = self.write_one(Operation::Create(node));
        Box::pin(async move { created.await.map(OperationResult::into_created) })
    }

    fn delete(&self, path: &str, version: Option<i32>) -> BoxFuture<'static, Result<(), StoreError>> {
        let deleted = self.write_one(Operation::Delete { path: path.to_owned(), version });
        Box::pin(async move { deleted.await.map(|_| ()) })
    }

    fn set(
        &self,
        path: &str,
        data: Option<Bytes>,
        version: Option<i32>,
    ) -> BoxFuture<'static, Result<Stat, StoreError>> {
        let set = self.write_one(Operation::Set { path: path.to_owned(), data, version });
        Box::pin(async move { set.await.map(OperationResult::into_stat) })
    }

    fn read(&self, path: &str) -> BoxFuture<'static, Result<NodeData, StoreError>> {
        self.shared.read(|database| database.read(self.session, path))
    }

    fn exists(&self, path: &str) -> BoxFuture<'static, Result<Option<Stat>, StoreError>> {
        self.shared.read(|database| database.exists(self.session, path))
    }

    fn children(&self, path: &str) -> BoxFuture<'static, Result<Vec<String>, StoreError>> {
        self.shared.read(|database| database.children(self.session, path))
    }

    fn read_and_watch(&self, path: &str) -> BoxFuture<'static, Result<(NodeData, Watcher), StoreError>> {
        self.shared.read(|database| database.read_and_watch(self.session, path))
    }

    fn exists_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Option<Stat>, Watcher), StoreError>> {
        self.shared.read(|database| database.exists_and_watch(self.session, path))
    }

    fn children_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Vec<String>, Watcher), StoreError>> {
        self.shared.read(|database| database.children_and_watch(self.session, path))
    }

    fn multi(
        &self,
        operations: Vec<Operation>,
    ) -> BoxFuture<'static, Result<Vec<OperationResult>, (usize, StoreError)>> {
        let (reply, receiver) = oneshot::channel();
        let request = Request::Operations(operations);
        self.shared.write(self.session, request, Access::Unchecked, move |_, outcome| {
            // Nobody listens when the future was dropped.
            let _ = reply.send(outcome);
        });
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err((0, unanswered()))) })
    }

    fn session_id(&self) -> i64 {
        self.session
    }

    /// `Expired` also when the store has failed or stopped.
    fn session_state(&self) -> SessionState {
        let state = self.shared.state.lock();
        match state.phase == Phase::Running && state.database.is_open(self.session) {
            true => SessionState::Connected,
            false => SessionState::Expired,
        }
    }

    fn close(&self) -> BoxFuture<'static, Result<(), StoreError>> {
        self.shared.end_session_soon(self.session)
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
