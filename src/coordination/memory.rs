use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::access::Access;
use super::database::{Database, Written};
use super::store::{
    BoxFuture, Create, Ensemble, NodeData, Operation, OperationResult, SessionState, Stat, Store, StoreError,
    Watcher,
};
use super::tree::{Request, Tree};
use super::watches::Firing;
use crate::model::Timestamp;

/// A whole ensemble in memory, for tests and simulation: it opens sessions and plays the network's part.
///
/// Nothing waits: every call is done when it returns, and time stands still until it is set.
#[derive(Clone, Debug)]
pub struct MemoryEnsemble {
    shared: Arc<Mutex<Shared>>,
}

/// One session of a [`MemoryEnsemble`].
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Mutex<Shared>>,
    session: i64,
}

#[derive(Debug)]
struct Shared {
    database: Database,
    now: Timestamp,
    /// The sessions out of reach, with the watches that fired meanwhile.
    disconnected: BTreeMap<i64, Vec<Firing>>,
    /// The sessions that lose their connection between their next write and its answer.
    losing: BTreeSet<i64>,
}

impl Default for MemoryEnsemble {
    fn default() -> Self {
        MemoryEnsemble::new()
    }
}

impl MemoryEnsemble {
    pub fn new() -> MemoryEnsemble {
        let shared = Shared {
            database: Database::new(Tree::new(), 0),
            now: Timestamp(0),
            disconnected: BTreeMap::new(),
            losing: BTreeSet::new(),
        };
        MemoryEnsemble { shared: Arc::new(Mutex::new(shared)) }
    }

    pub fn session(&self) -> MemoryStore {
        let session = self.shared.lock().database.open_session();
        MemoryStore { shared: Arc::clone(&self.shared), session }
    }

    /// The time that later writes carry.
    pub fn set_time(&self, now: Timestamp) {
        self.shared.lock().now = now;
    }

    /// Ends a session as its timeout does. Nothing happens when it is over already.
    pub fn expire_session(&self, session: i64) {
        let mut shared = self.shared.lock();
        for firing in shared.disconnected.remove(&session).unwrap_or_default() {
            firing.tell();
        }
        shared.losing.remove(&session);
        let now = shared.now;
        if let Ok(written) = shared.database.end_session(session, now) {
            shared.tell(written.firings);
        }
    }

    /// Puts a session out of reach: its calls change nothing and are answered with `OutcomeUnknown`, and its
    /// watches are told when it comes back.
    pub fn disconnect(&self, session: i64) {
        let mut shared = self.shared.lock();
        if shared.database.is_open(session) {
            shared.disconnected.entry(session).or_default();
        }
    }

    /// As [`disconnect`](MemoryEnsemble::disconnect), after the session's next write has taken effect and
    /// before it is answered: the caller cannot know.
    pub fn disconnect_after_next_write(&self, session: i64) {
        self.shared.lock().losing.insert(session);
    }

    /// Ends a disconnection. The watches that fired meanwhile are told first.
    pub fn reconnect(&self, session: i64) {
        for firing in self.shared.lock().disconnected.remove(&session).unwrap_or_default() {
            firing.tell();
        }
    }
}

impl Ensemble for MemoryEnsemble {
    fn open_session(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        done(Ok(Arc::new(self.session())))
    }
}

impl Shared {
    fn write(&mut self, session: i64, request: Request) -> Result<Vec<OperationResult>, (usize, StoreError)> {
        self.check_connected(session).map_err(|error| (0, error))?;
        let written = self.database.write(session, request, Access::Unchecked, self.now);
        let is_lost = self.losing.remove(&session);
        if is_lost {
            self.disconnected.insert(session, Vec::new());
        }
        let Written { results, firings, .. } = written?;
        self.tell(firings);
        if is_lost { Err((0, connection_lost())) } else { Ok(results) }
    }

    fn tell(&mut self, firings: Vec<Firing>) {
        for firing in firings {
            match self.disconnected.get_mut(&firing.session) {
                Some(held) => held.push(firing),
                None => firing.tell(),
            }
        }
    }

    fn check_connected(&self, session: i64) -> Result<(), StoreError> {
        if self.disconnected.contains_key(&session) { Err(connection_lost()) } else { Ok(()) }
    }
}

fn connection_lost() -> StoreError {
    StoreError::OutcomeUnknown { reason: "connection lost".to_owned() }
}

fn done<'a, T: Send + 'a>(outcome: T) -> BoxFuture<'a, T> {
    Box::pin(ready(outcome))
}

impl MemoryStore {
    fn write_one(&self, operation: Operation) -> Result<OperationResult, StoreError> {
        let mut results = self.write(vec![operation]).map_err(|(_, error)| error)?;
        Ok(results.pop().expect("an applied operation has a result"))
    }

    fn write(&self, operations: Vec<Operation>) -> Result<Vec<OperationResult>, (usize, StoreError)> {
        self.shared.lock().write(self.session, Request::Operations(operations))
    }

    fn connected(&self) -> Result<MutexGuard<'_, Shared>, StoreError> {
        let shared = self.shared.lock();
        shared.check_connected(self.session)?;
        Ok(shared)
    }
}

impl Store for MemoryStore {
    fn create(&self, node: Create) -> BoxFuture<'static, Result<(String, Stat), StoreError>> {
        done(self.write_one(Operation::Create(node)).map(OperationResult::into_created))
    }

    fn delete(&self, path: &str, version: Option<i32>) -> BoxFuture<'static, Result<(), StoreError>> {
        let path = path.to_owned();
        done(self.write_one(Operation::Delete { path, version }).map(|_| ()))
    }

    fn set(
        &self,
        path: &str,
        data: Option<Bytes>,
        version: Option<i32>,
    ) -> BoxFuture<'static, Result<Stat, StoreError>> {
        let path = path.to_owned();
        done(self.write_one(Operation::Set { path, data, version }).map(OperationResult::into_stat))
    }

    fn read(&self, path: &str) -> BoxFuture<'static, Result<NodeData, StoreError>> {
        done(self.connected().and_then(|shared| shared.database.read(self.session, path)))
    }

    fn exists(&self, path: &str) -> BoxFuture<'static, Result<Option<Stat>, StoreError>> {
        done(self.connected().and_then(|shared| shared.database.exists(self.session, path)))
    }

    fn children(&self, path: &str) -> BoxFuture<'static, Result<Vec<String>, StoreError>> {
        done(self.connected().and_then(|shared| shared.database.children(self.session, path)))
    }

    fn read_and_watch(&self, path: &str) -> BoxFuture<'static, Result<(NodeData, Watcher), StoreError>> {
        done(self.connected().and_then(|mut shared| shared.database.read_and_watch(self.session, path)))
    }

    fn exists_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Option<Stat>, Watcher), StoreError>> {
        done(self.connected().and_then(|mut shared| shared.database.exists_and_watch(self.session, path)))
    }

    fn children_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Vec<String>, Watcher), StoreError>> {
        done(self.connected().and_then(|mut shared| shared.database.children_and_watch(self.session, path)))
    }

    fn multi(
        &self,
        operations: Vec<Operation>,
    ) -> BoxFuture<'static, Result<Vec<OperationResult>, (usize, StoreError)>> {
        done(self.write(operations))
    }

    fn session_id(&self) -> i64 {
        self.session
    }

    fn session_state(&self) -> SessionState {
        let shared = self.shared.lock();
        match (shared.database.is_open(self.session), shared.disconnected.contains_key(&self.session)) {
            (false, _) => SessionState::Expired,
            (true, true) => SessionState::Disconnected,
            (true, false) => SessionState::Connected,
        }
    }

    fn close(&self) -> BoxFuture<'static, Result<(), StoreError>> {
        let closed = self.connected().and_then(|mut shared| {
            let now = shared.now;
            let written = shared.database.end_session(self.session, now)?;
            shared.tell(written.firings);
            Ok(())
        });
        done(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::{CreateMode, WatchKind};

    fn node(path: &str, mode: CreateMode) -> Create {
        Create { path: path.to_owned(), data: None, mode }
    }

    #[tokio::test]
    async fn a_write_whose_answer_is_lost_has_taken_effect() {
        let ensemble = MemoryEnsemble::new();
        let store = ensemble.session();
        ensemble.disconnect_after_next_write(store.session_id());
        let unknown = store.create(node("/a", CreateMode::Persistent)).await;
        assert!(matches!(unknown, Err(StoreError::OutcomeUnknown { .. })), "{unknown:?}");
        assert_eq!(store.session_state(), SessionState::Disconnected);
        ensemble.reconnect(store.session_id());
        assert!(store.exists("/a").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_disconnected_session_changes_nothing_and_is_told_when_it_is_back() {
        let ensemble = MemoryEnsemble::new();
        let (store, other) = (ensemble.session(), ensemble.session());
        let (_, mut watcher) = store.exists_and_watch("/a").await.unwrap();
        ensemble.disconnect(store.session_id());
        assert!(store.create(node("/b", CreateMode::Persistent)).await.is_err());
        other.create(node("/a", CreateMode::Persistent)).await.unwrap();
        assert!(watcher.try_recv().is_err());
        ensemble.reconnect(store.session_id());
        assert_eq!(watcher.try_recv().unwrap().kind, WatchKind::Created);
        assert_eq!(store.children("/").await.unwrap(), ["a"]);
    }

    #[tokio::test]
    async fn an_expired_session_loses_its_nodes_and_its_watches() {
        let ensemble = MemoryEnsemble::new();
        let (store, other) = (ensemble.session(), ensemble.session());
        store.create(node("/a", CreateMode::Ephemeral)).await.unwrap();
        let (_, mut mine) = store.children_and_watch("/").await.unwrap();
        let (_, mut others) = other.read_and_watch("/a").await.unwrap();
        ensemble.expire_session(store.session_id());
        assert_eq!(others.try_recv().unwrap().kind, WatchKind::Deleted);
        assert_eq!(mine.try_recv().unwrap().kind, WatchKind::ChildrenChanged);
        assert_eq!(store.session_state(), SessionState::Expired);
        assert_eq!(store.read("/").await, Err(StoreError::SessionExpired));
        assert_eq!(other.exists("/a").await, Ok(None));
    }

    #[tokio::test]
    async fn writes_carry_the_time_that_was_set() {
        let ensemble = MemoryEnsemble::new();
        ensemble.set_time(Timestamp(1_700_000_000_000));
        let (_, stat) = ensemble.session().create(node("/a", CreateMode::Persistent)).await.unwrap();
        assert_eq!(stat.created_ms, 1_700_000_000_000);
    }
}
