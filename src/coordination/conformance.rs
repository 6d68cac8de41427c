//! What every [`Store`] promises, as tests that run on any of them: the memory and the embedded store here, a
//! ZooKeeper ensemble where there is one.
//!
//! Each test works below a node of its own, so that they can share an ensemble that is not empty.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    BoxFuture, Create, CreateMode, Ensemble, Operation, OperationResult, SessionState, Stat, Store,
    StoreError, WatchKind, Watcher,
};

/// A store under test.
pub(crate) trait Subject {
    fn ensemble(&self) -> &dyn Ensemble;

    /// Ends a session from outside, as its timeout does.
    fn expire(&self, session: i64) -> BoxFuture<'_, ()>;
}

/// Runs everything; panics at the first promise that is broken.
pub(crate) async fn conformance(subject: &dyn Subject) {
    versions_count_sets_and_guard_writes(&open(subject, "/versions").await).await;
    stats_tell_who_changed_what(&open(subject, "/stats").await).await;
    refusals_have_their_order(&open(subject, "/refusals").await).await;
    the_root_can_be_read_but_not_removed(&open(subject, "/root").await).await;
    illegal_paths_are_refused(&open(subject, "/paths").await).await;
    null_and_empty_data_differ(&open(subject, "/data").await).await;
    children_are_sorted_names(&open(subject, "/children").await).await;
    sequence_numbers_never_repeat(&open(subject, "/sequences").await).await;
    a_multi_is_all_or_nothing(&open(subject, "/multi").await).await;
    calls_take_effect_in_order(&open(subject, "/order").await).await;
    node_watches_fire_once(&open(subject, "/node-watches").await).await;
    child_watches_fire_for_children(&open(subject, "/child-watches").await).await;
    missing_nodes_are_watched_by_exists_alone(&open(subject, "/missing").await).await;
    a_watch_is_told_before_a_read_sees_the_change(subject, "/told").await;
    ephemeral_nodes_have_no_children(&open(subject, "/childless").await).await;
    closing_removes_ephemeral_nodes(subject, "/closing").await;
    expiry_removes_ephemeral_nodes(subject, "/expiry").await;
}

/// One session and the node below which its test works.
struct Place {
    store: Arc<dyn Store>,
    root: &'static str,
}

async fn session(subject: &dyn Subject) -> Arc<dyn Store> {
    subject.ensemble().open_session().await.unwrap()
}

async fn open(subject: &dyn Subject, root: &'static str) -> Place {
    let place = Place { store: session(subject).await, root };
    place.store.create(node(root, CreateMode::Persistent, None)).await.unwrap();
    place
}

fn node(path: &str, mode: CreateMode, data: Option<&'static str>) -> Create {
    Create { path: path.to_owned(), data: data.map(|data| Bytes::from_static(data.as_bytes())), mode }
}

impl Place {
    fn path(&self, below: &str) -> String {
        format!("{}{below}", self.root)
    }

    async fn create(&self, below: &str) -> Result<String, StoreError> {
        self.create_as(below, CreateMode::Persistent).await
    }

    async fn create_as(&self, below: &str, mode: CreateMode) -> Result<String, StoreError> {
        let (path, _) = self.store.create(node(&self.path(below), mode, None)).await?;
        Ok(path.strip_prefix(self.root).unwrap().to_owned())
    }

    async fn set(&self, below: &str, data: &'static str, version: Option<i32>) -> Result<Stat, StoreError> {
        self.store.set(&self.path(below), Some(Bytes::from_static(data.as_bytes())), version).await
    }

    async fn delete(&self, below: &str, version: Option<i32>) -> Result<(), StoreError> {
        self.store.delete(&self.path(below), version).await
    }

    async fn text(&self, below: &str) -> Option<String> {
        let data = self.store.read(&self.path(below)).await.unwrap().data?;
        Some(String::from_utf8(data.to_vec()).unwrap())
    }

    async fn stat(&self, below: &str) -> Stat {
        self.store.exists(&self.path(below)).await.unwrap().unwrap()
    }

    async fn children(&self, below: &str) -> Vec<String> {
        self.store.children(&self.path(below)).await.unwrap()
    }

    fn creation(&self, below: &str) -> Operation {
        Operation::Create(node(&self.path(below), CreateMode::Persistent, None))
    }

    fn check(&self, below: &str, version: i32) -> Operation {
        Operation::Check { path: self.path(below), version }
    }

    fn deletion(&self, below: &str) -> Operation {
        Operation::Delete { path: self.path(below), version: None }
    }

    fn no_node(&self, below: &str) -> StoreError {
        StoreError::NoNode { path: self.path(below) }
    }

    fn bad_version(&self, below: &str) -> StoreError {
        StoreError::BadVersion { path: self.path(below) }
    }
}

/// What the watch was told already.
fn told(watcher: &mut Watcher) -> Option<WatchKind> {
    watcher.try_recv().ok().map(|event| event.kind)
}

async fn versions_count_sets_and_guard_writes(at: &Place) {
    at.create("/a").await.unwrap();
    assert_eq!(at.stat("/a").await.version, 0);
    assert_eq!(at.set("/a", "one", Some(0)).await.unwrap().version, 1);
    assert_eq!(at.set("/a", "late", Some(0)).await, Err(at.bad_version("/a")));
    assert_eq!(at.set("/a", "two", None).await.unwrap().version, 2);
    assert_eq!(at.set("/a", "three", Some(-1)).await.unwrap().version, 3);
    assert_eq!(at.text("/a").await.as_deref(), Some("three"));
    assert_eq!(at.delete("/a", Some(2)).await, Err(at.bad_version("/a")));
    assert_eq!(at.delete("/a", Some(3)).await, Ok(()));
    at.create("/a").await.unwrap();
    assert_eq!(at.stat("/a").await.version, 0);
}

async fn stats_tell_who_changed_what(at: &Place) {
    at.create("/a").await.unwrap();
    let created = at.stat("/a").await;
    assert_eq!((created.mzxid, created.pzxid), (created.czxid, created.czxid));
    assert_eq!(created.ephemeral_owner, 0);
    let set = at.set("/a", "data", None).await.unwrap();
    assert!(set.mzxid > created.czxid && set.czxid == created.czxid && set.pzxid == created.pzxid);
    assert_eq!(set.data_length, 4);
    at.create("/a/b").await.unwrap();
    at.create("/a/c").await.unwrap();
    at.delete("/a/b", None).await.unwrap();
    let parent = at.stat("/a").await;
    assert_eq!((parent.child_version, parent.children, parent.version), (3, 1, 1));
    assert!(parent.pzxid > set.mzxid && parent.mzxid == set.mzxid);
    at.set("/a/c", "x", None).await.unwrap();
    assert_eq!(at.stat("/a").await, parent);
}

async fn refusals_have_their_order(at: &Place) {
    at.create("/a").await.unwrap();
    at.create("/a/b").await.unwrap();
    assert_eq!(at.create("/a").await, Err(StoreError::NodeExists { path: at.path("/a") }));
    assert!(matches!(at.create("/x/y").await, Err(StoreError::NoNode { .. })));
    assert_eq!(at.set("/x", "", None).await, Err(at.no_node("/x")));
    assert_eq!(at.delete("/x", Some(3)).await, Err(at.no_node("/x")));
    assert_eq!(at.delete("/a", None).await, Err(StoreError::NotEmpty { path: at.path("/a") }));
    // The version is looked at before the children.
    assert_eq!(at.delete("/a", Some(7)).await, Err(at.bad_version("/a")));
    assert_eq!(at.store.read(&at.path("/x")).await, Err(at.no_node("/x")));
    assert_eq!(at.store.children(&at.path("/x")).await, Err(at.no_node("/x")));
    assert_eq!(at.store.exists(&at.path("/x")).await, Ok(None));
}

async fn the_root_can_be_read_but_not_removed(at: &Place) {
    assert!(at.store.read("/").await.is_ok());
    assert!(at.store.children("/").await.unwrap().contains(&"root".to_owned()));
    let again = at.store.create(node("/", CreateMode::Persistent, None)).await;
    assert!(matches!(again, Err(StoreError::NodeExists { .. })), "{again:?}");
    let removed = at.store.delete("/", None).await;
    assert!(matches!(removed, Err(StoreError::BadArguments { .. })), "{removed:?}");
    assert!(at.store.set("/", Some(Bytes::new()), None).await.is_ok());
}

async fn illegal_paths_are_refused(at: &Place) {
    for path in ["", "a", "/a/", "//a", "/./a", "/a/..", "/a\0b"] {
        let refused = StoreError::BadArguments { path: path.to_owned() };
        let created = at.store.create(node(path, CreateMode::Persistent, None)).await;
        assert_eq!(created.map(|_| ()), Err(refused.clone()), "{path:?}");
        assert_eq!(at.store.exists(path).await, Err(refused), "{path:?}");
    }
}

async fn null_and_empty_data_differ(at: &Place) {
    at.create("/null").await.unwrap();
    assert_eq!(at.text("/null").await, None);
    at.set("/null", "", None).await.unwrap();
    assert_eq!(at.text("/null").await.as_deref(), Some(""));
    at.store.set(&at.path("/null"), None, None).await.unwrap();
    assert_eq!(at.text("/null").await, None);
}

async fn children_are_sorted_names(at: &Place) {
    for name in ["/b", "/a", "/10", "/9", "/a.b", "/a-b", "/B", "/a/z"] {
        at.create(name).await.unwrap();
    }
    assert_eq!(at.children("").await, ["10", "9", "B", "a", "a-b", "a.b", "b"]);
    assert_eq!(at.children("/b").await, [""; 0]);
}

async fn sequence_numbers_never_repeat(at: &Place) {
    let sequential = CreateMode::PersistentSequential;
    assert_eq!(at.create_as("/n-", sequential).await.unwrap(), "/n-0000000000");
    at.create("/other").await.unwrap();
    assert_eq!(at.create_as("/n-", sequential).await.unwrap(), "/n-0000000002");
    at.delete("/n-0000000002", None).await.unwrap();
    assert_eq!(at.create_as("/m-", sequential).await.unwrap(), "/m-0000000003");
    assert_eq!(at.create_as("/", sequential).await.unwrap(), "/0000000004");
    let ephemeral = at.create_as("/n-", CreateMode::EphemeralSequential).await.unwrap();
    assert_eq!(ephemeral, "/n-0000000005");
    assert_eq!(at.stat(&ephemeral).await.ephemeral_owner, at.store.session_id());
    let pair = vec![
        Operation::Create(node(&at.path("/n-"), sequential, None)),
        Operation::Create(node(&at.path("/n-"), sequential, None)),
    ];
    at.store.multi(pair).await.unwrap();
    assert_eq!(at.children("").await.len(), 7);
    assert!(at.store.exists(&at.path("/n-0000000007")).await.unwrap().is_some());
}

async fn a_multi_is_all_or_nothing(at: &Place) {
    at.create("/old").await.unwrap();
    let set = Operation::Set { path: at.path("/old"), data: None, version: Some(0) };
    let operations = vec![at.creation("/a"), set.clone(), at.creation("/a/b"), at.check("/old", 1)];
    let results = at.store.multi(operations).await.unwrap();
    let [
        OperationResult::Created { path, stat },
        OperationResult::Set(set_stat),
        _,
        OperationResult::Checked,
    ] = results.as_slice()
    else {
        panic!("one result for each operation: {results:?}")
    };
    assert_eq!((path, set_stat.version), (&at.path("/a"), 1));
    assert_eq!(stat.czxid, set_stat.mzxid, "all in one transaction");

    let operations =
        vec![at.deletion("/a/b"), at.creation("/c"), set.clone(), at.deletion("/nothing"), at.creation("/d")];
    assert_eq!(at.store.multi(operations).await, Err((2, at.bad_version("/old"))));
    assert_eq!(at.store.multi(vec![at.check("/nothing", -1), set]).await, Err((0, at.no_node("/nothing"))));
    assert_eq!(at.children("").await, ["a", "old"]);
    assert_eq!(at.children("/a").await, ["b"]);
    assert_eq!(at.store.multi(vec![at.deletion("/a/b"), at.deletion("/a")]).await.unwrap().len(), 2);
    assert_eq!(at.store.multi(Vec::new()).await, Ok(Vec::new()));
}

async fn calls_take_effect_in_order(at: &Place) {
    let path = at.path("/a");
    let created = at.store.create(node(&path, CreateMode::Persistent, None));
    let sets: Vec<_> = (0..100).map(|version| at.store.set(&path, None, Some(version))).collect();
    let seen = at.store.exists(&path);
    let deleted = at.store.delete(&path, Some(100));
    let gone = at.store.exists(&path);
    // Asked for from behind: the order of the calls counts.
    assert_eq!(gone.await, Ok(None));
    assert_eq!(deleted.await, Ok(()));
    assert_eq!(seen.await.unwrap().unwrap().version, 100);
    for set in sets.into_iter().rev() {
        assert!(set.await.is_ok());
    }
    assert!(created.await.is_ok());
    drop(at.store.create(node(&path, CreateMode::Persistent, None)));
    assert!(at.store.exists(&path).await.unwrap().is_some(), "a call counts whether or not it is awaited");
}

async fn node_watches_fire_once(at: &Place) {
    let path = at.path("/a");
    let (stat, mut created) = at.store.exists_and_watch(&path).await.unwrap();
    assert_eq!(stat, None);
    at.create("/a").await.unwrap();
    assert_eq!(told(&mut created), Some(WatchKind::Created));

    let (_, mut by_read) = at.store.read_and_watch(&path).await.unwrap();
    let (_, mut by_exists) = at.store.exists_and_watch(&path).await.unwrap();
    at.create("/a/child").await.unwrap();
    assert_eq!(told(&mut by_read), None, "children are not data");
    at.set("/a", "x", None).await.unwrap();
    at.set("/a", "y", None).await.unwrap();
    let event = by_read.await.unwrap();
    assert_eq!((event.path, event.kind), (path.clone(), WatchKind::DataChanged));
    assert_eq!(told(&mut by_exists), Some(WatchKind::DataChanged));

    at.delete("/a/child", None).await.unwrap();
    let (_, mut deleted) = at.store.read_and_watch(&path).await.unwrap();
    let recreated = vec![at.deletion("/a"), at.creation("/a")];
    at.store.multi(recreated).await.unwrap();
    assert_eq!(told(&mut deleted), Some(WatchKind::Deleted), "the first change of a multi");

    let (_, mut unfired) = at.store.read_and_watch(&path).await.unwrap();
    assert!(at.store.multi(vec![at.deletion("/a"), at.check("/nothing", 0)]).await.is_err());
    assert_eq!(told(&mut unfired), None, "a refused multi changes nothing");
}

async fn child_watches_fire_for_children(at: &Place) {
    at.create("/a").await.unwrap();
    let path = at.path("/a");
    let (names, mut added) = at.store.children_and_watch(&path).await.unwrap();
    assert_eq!(names, [""; 0]);
    at.set("/a", "x", None).await.unwrap();
    assert_eq!(told(&mut added), None, "data are not children");
    at.create("/a/b").await.unwrap();
    assert_eq!(told(&mut added), Some(WatchKind::ChildrenChanged));

    let (_, mut removed) = at.store.children_and_watch(&path).await.unwrap();
    at.set("/a/b", "x", None).await.unwrap();
    at.create("/a/b/c").await.unwrap();
    at.delete("/a/b/c", None).await.unwrap();
    assert_eq!(told(&mut removed), None, "a child's data and its children are its own");
    at.delete("/a/b", None).await.unwrap();
    assert_eq!(told(&mut removed), Some(WatchKind::ChildrenChanged));

    let (_, mut gone) = at.store.children_and_watch(&path).await.unwrap();
    let (_, mut of_parent) = at.store.children_and_watch(at.root).await.unwrap();
    at.delete("/a", None).await.unwrap();
    assert_eq!(told(&mut gone), Some(WatchKind::Deleted));
    assert_eq!(told(&mut of_parent), Some(WatchKind::ChildrenChanged));
}

async fn missing_nodes_are_watched_by_exists_alone(at: &Place) {
    let path = at.path("/a");
    assert_eq!(at.store.read_and_watch(&path).await.map(|_| ()), Err(at.no_node("/a")));
    assert_eq!(at.store.children_and_watch(&path).await.map(|_| ()), Err(at.no_node("/a")));
    let (_, mut watcher) = at.store.exists_and_watch(&path).await.unwrap();
    at.create("/a").await.unwrap();
    assert_eq!(told(&mut watcher), Some(WatchKind::Created));
}

async fn a_watch_is_told_before_a_read_sees_the_change(subject: &dyn Subject, root: &'static str) {
    let at = open(subject, root).await;
    let other = session(subject).await;
    for round in 0..50 {
        let (_, mut watcher) = at.store.children_and_watch(root).await.unwrap();
        let path = format!("{root}/{round:02}");
        let created = other.create(node(&path, CreateMode::Persistent, None));
        while at.store.exists(&path).await.unwrap().is_none() {}
        assert_eq!(told(&mut watcher), Some(WatchKind::ChildrenChanged), "round {round}");
        created.await.unwrap();
    }
}

async fn ephemeral_nodes_have_no_children(at: &Place) {
    at.create_as("/e", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(at.stat("/e").await.ephemeral_owner, at.store.session_id());
    let refused = at.create("/e/child").await;
    assert!(matches!(refused, Err(StoreError::NoChildrenForEphemerals { .. })), "{refused:?}");
    at.set("/e", "x", Some(0)).await.unwrap();
    at.delete("/e", Some(1)).await.unwrap();
}

async fn closing_removes_ephemeral_nodes(subject: &dyn Subject, root: &'static str) {
    let at = open(subject, root).await;
    let other = session(subject).await;
    assert_ne!(at.store.session_id(), other.session_id());
    at.create_as("/e", CreateMode::Ephemeral).await.unwrap();
    at.create("/p").await.unwrap();
    let (_, removed) = other.exists_and_watch(&at.path("/e")).await.unwrap();
    let (_, own) = at.store.children_and_watch(&at.path("/p")).await.unwrap();
    assert_eq!(at.store.session_state(), SessionState::Connected);
    at.store.close().await.unwrap();
    assert_eq!(removed.await.unwrap().kind, WatchKind::Deleted);
    assert_eq!(own.await.unwrap().kind, WatchKind::SessionExpired);
    assert_eq!(other.children(root).await.unwrap(), ["p"]);
    assert_eq!(at.store.session_state(), SessionState::Expired);
    check_is_over(&at).await;
}

async fn expiry_removes_ephemeral_nodes(subject: &dyn Subject, root: &'static str) {
    let at = open(subject, root).await;
    let other = session(subject).await;
    at.create_as("/e", CreateMode::Ephemeral).await.unwrap();
    let before = at.stat("/e").await;
    let (_, removed) = other.read_and_watch(&at.path("/e")).await.unwrap();
    let (_, own) = at.store.read_and_watch(root).await.unwrap();
    subject.expire(at.store.session_id()).await;
    assert_eq!(removed.await.unwrap().kind, WatchKind::Deleted);
    assert_eq!(own.await.unwrap().kind, WatchKind::SessionExpired);
    check_is_over(&at).await;
    let again = session(subject).await;
    let (_, stat) = again.create(node(&at.path("/e"), CreateMode::Ephemeral, None)).await.unwrap();
    assert!(stat.czxid > before.czxid, "a new registration has a larger epoch");
    assert_eq!(stat.ephemeral_owner, again.session_id());
}

async fn check_is_over(at: &Place) {
    assert_eq!(at.store.read(at.root).await, Err(StoreError::SessionExpired));
    assert_eq!(at.create("/late").await, Err(StoreError::SessionExpired));
    assert_eq!(at.store.multi(vec![at.check("", 0)]).await, Err((0, StoreError::SessionExpired)));
    assert_eq!(at.store.close().await, Err(StoreError::SessionExpired));
}

mod subjects {
    use std::path::Path;

    use super::*;
    use crate::coordination::{EmbeddedStore, EmbeddedStoreOptions, LastingSessions, MemoryEnsemble};
    use crate::runtime::Clock;
    use crate::runtime::fs::{DiskFileSystem, Durability};

    impl Subject for MemoryEnsemble {
        fn ensemble(&self) -> &dyn Ensemble {
            self
        }

        fn expire(&self, session: i64) -> BoxFuture<'_, ()> {
            self.expire_session(session);
            Box::pin(std::future::ready(()))
        }
    }

    impl Subject for EmbeddedStore {
        fn ensemble(&self) -> &dyn Ensemble {
            self
        }

        fn expire(&self, session: i64) -> BoxFuture<'_, ()> {
            let expired = self.expire_session(session);
            Box::pin(async move { expired.await.unwrap() })
        }
    }

    fn embedded(dir: &Path) -> EmbeddedStore {
        let options = EmbeddedStoreOptions {
            file_system: Arc::new(DiskFileSystem),
            dir: dir.to_owned(),
            clock: Clock::system(),
            durability: Durability::Synced,
            lasting_sessions: LastingSessions::Ended,
        };
        EmbeddedStore::open(options).unwrap().store
    }

    #[tokio::test]
    async fn the_memory_store_conforms() {
        conformance(&MemoryEnsemble::new()).await;
    }

    #[tokio::test]
    async fn the_embedded_store_conforms_and_reads_its_history_back() {
        let dir = tempfile::tempdir().unwrap();
        let store = embedded(dir.path());
        conformance(&store).await;
        let names = store.session().unwrap().children("/").await.unwrap();
        drop(store);
        let store = embedded(dir.path());
        assert_eq!(store.session().unwrap().children("/").await.unwrap(), names);
    }
}
