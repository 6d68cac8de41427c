use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::store::{
    BoxFuture, Create, NodeData, Operation, OperationResult, SessionState, Stat, Store, StoreError, Watcher,
};

/// The session that a broker has now. When it has expired another one takes its place, and those who do not
/// care which one it is go on: between the two their calls are refused with `SessionExpired`.
pub struct CurrentSession(ArcSwap<Arc<dyn Store>>);

impl CurrentSession {
    pub fn new(session: Arc<dyn Store>) -> CurrentSession {
        CurrentSession(ArcSwap::from_pointee(session))
    }

    pub fn replace(&self, session: Arc<dyn Store>) {
        self.0.store(Arc::new(session));
    }
}

impl Store for CurrentSession {
    fn create(&self, node: Create) -> BoxFuture<'static, Result<(String, Stat), StoreError>> {
        self.0.load().create(node)
    }

    fn delete(&self, path: &str, version: Option<i32>) -> BoxFuture<'static, Result<(), StoreError>> {
        self.0.load().delete(path, version)
    }

    fn set(
        &self,
        path: &str,
        data: Option<Bytes>,
        version: Option<i32>,
    ) -> BoxFuture<'static, Result<Stat, StoreError>> {
        self.0.load().set(path, data, version)
    }

    fn read(&self, path: &str) -> BoxFuture<'static, Result<NodeData, StoreError>> {
        self.0.load().read(path)
    }

    fn exists(&self, path: &str) -> BoxFuture<'static, Result<Option<Stat>, StoreError>> {
        self.0.load().exists(path)
    }

    fn children(&self, path: &str) -> BoxFuture<'static, Result<Vec<String>, StoreError>> {
        self.0.load().children(path)
    }

    fn read_and_watch(&self, path: &str) -> BoxFuture<'static, Result<(NodeData, Watcher), StoreError>> {
        self.0.load().read_and_watch(path)
    }

    fn exists_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Option<Stat>, Watcher), StoreError>> {
        self.0.load().exists_and_watch(path)
    }

    fn children_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Vec<String>, Watcher), StoreError>> {
        self.0.load().children_and_watch(path)
    }

    fn multi(
        &self,
        operations: Vec<Operation>,
    ) -> BoxFuture<'static, Result<Vec<OperationResult>, (usize, StoreError)>> {
        self.0.load().multi(operations)
    }

    fn session_id(&self) -> i64 {
        self.0.load().session_id()
    }

    fn session_state(&self) -> SessionState {
        self.0.load().session_state()
    }

    fn close(&self) -> BoxFuture<'static, Result<(), StoreError>> {
        self.0.load().close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::{CreateMode, MemoryEnsemble};

    #[tokio::test]
    async fn those_who_hold_it_go_on_in_the_next_session() {
        let ensemble = MemoryEnsemble::new();
        let first = ensemble.session();
        let session = CurrentSession::new(Arc::new(first.clone()));
        ensemble.expire_session(first.session_id());
        let node = Create { path: "/a".to_owned(), data: None, mode: CreateMode::Ephemeral };
        assert_eq!(session.create(node.clone()).await.map(|_| ()), Err(StoreError::SessionExpired));
        let second = ensemble.session();
        session.replace(Arc::new(second.clone()));
        let (_, stat) = session.create(node).await.unwrap();
        assert_eq!(stat.ephemeral_owner, second.session_id());
    }
}
