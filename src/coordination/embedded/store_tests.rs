use std::io;
use std::path::Path;

use super::*;
use crate::coordination::{CreateMode, WatchKind};
use crate::model::Timestamp;
use crate::runtime::fs::{Fault, FaultOutcome, MemoryFileSystem, Operation as DiskOperation};

fn disk() -> MemoryFileSystem {
    let disk = MemoryFileSystem::new(Clock::manual(Timestamp(1_700_000_000_000)));
    disk.create_dir(Path::new("/data")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn options(disk: &MemoryFileSystem) -> EmbeddedStoreOptions {
    EmbeddedStoreOptions {
        file_system: Arc::new(disk.clone()),
        dir: PathBuf::from("/data"),
        clock: Clock::manual(Timestamp(1_700_000_000_000)),
        durability: Durability::Synced,
        lasting_sessions: LastingSessions::Kept,
    }
}

fn open(disk: &MemoryFileSystem) -> EmbeddedStore {
    EmbeddedStore::open(options(disk)).unwrap().store
}

/// A store whose writer works only when told to.
fn by_hand(disk: &MemoryFileSystem) -> (Writer, EmbeddedSession) {
    let (writer, _) = Writer::open(options(disk)).unwrap();
    let session = writer.shared.state.lock().database.open_session();
    let session = EmbeddedSession { shared: Arc::clone(&writer.shared), session };
    (writer, session)
}

fn flush(writer: &mut Writer) {
    let batch = writer.next_batch().unwrap();
    writer.write(batch).unwrap();
}

fn node(path: &str, mode: CreateMode) -> Create {
    Create { path: path.to_owned(), data: Some(Bytes::from_static(b"data")), mode }
}

fn persistent(path: &str) -> Create {
    node(path, CreateMode::Persistent)
}

/// What the future answers without waiting.
fn answered<T>(future: &mut BoxFuture<'_, T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn answers_come_in_order_and_only_when_durable() {
    let (mut writer, session) = by_hand(&disk());
    let mut before = session.exists("/a");
    let mut created = session.create(persistent("/a"));
    let mut refused = session.create(persistent("/a"));
    let mut seen = session.exists("/a");
    assert_eq!(answered(&mut before), Some(Ok(None)));
    assert_eq!(answered(&mut created), None);
    assert_eq!(answered(&mut refused), None);
    assert_eq!(answered(&mut seen), None);
    flush(&mut writer);
    assert!(answered(&mut created).unwrap().is_ok());
    assert!(matches!(answered(&mut refused), Some(Err(StoreError::NodeExists { .. }))));
    assert!(answered(&mut seen).unwrap().unwrap().is_some());
    assert!(answered(&mut session.exists("/a")).unwrap().unwrap().is_some());
}

#[test]
fn calls_during_a_sync_wait_for_their_own() {
    let (mut writer, session) = by_hand(&disk());
    let mut first = session.create(persistent("/a"));
    let batch = writer.next_batch().unwrap();
    let mut seen = session.exists("/a");
    let mut second = session.create(persistent("/b"));
    let mut unseen = session.exists("/b");
    writer.write(batch).unwrap();
    assert!(answered(&mut first).unwrap().is_ok());
    assert!(answered(&mut seen).unwrap().unwrap().is_some());
    assert!(answered(&mut second).is_none());
    assert!(answered(&mut unseen).is_none());
    let batch = writer.next_batch().unwrap();
    let mut third = session.create(persistent("/c"));
    writer.write(batch).unwrap();
    assert!(answered(&mut third).is_none());
    assert!(answered(&mut second).unwrap().is_ok());
    assert!(answered(&mut unseen).unwrap().unwrap().is_some());
}

#[test]
fn a_watch_is_told_when_its_change_is_durable() {
    let (mut writer, session) = by_hand(&disk());
    let mut watching = session.exists_and_watch("/a");
    let (_, mut watcher) = answered(&mut watching).unwrap().unwrap();
    let _created = session.create(persistent("/a"));
    assert!(watcher.try_recv().is_err());
    flush(&mut writer);
    assert_eq!(watcher.try_recv().unwrap().kind, WatchKind::Created);
}

#[test]
fn calls_under_way_share_one_sync() {
    let disk = disk();
    let (mut writer, session) = by_hand(&disk);
    let before = disk.steps();
    let mut created: Vec<_> =
        (0..10_000).map(|number| session.create(persistent(&format!("/{number}")))).collect();
    flush(&mut writer);
    assert_eq!(disk.steps() - before, 2, "one write and one sync");
    assert!(created.iter_mut().all(|created| answered(created).unwrap().is_ok()));
}

#[tokio::test]
async fn writes_survive_a_restart_and_ephemeral_nodes_do_not() {
    let disk = disk();
    let store = open(&disk);
    let session = store.session().unwrap();
    session.create(persistent("/a")).await.unwrap();
    session.create(node("/a/e", CreateMode::Ephemeral)).await.unwrap();
    let (_, stat) = session.create(persistent("/b")).await.unwrap();
    disk.crash();
    drop(store);
    let store = open(&disk);
    let session = store.session().unwrap();
    assert_eq!(session.children("/").await.unwrap(), ["a", "b"]);
    assert_eq!(session.children("/a").await.unwrap(), [""; 0]);
    assert_eq!(session.read("/b").await.unwrap(), NodeData { data: Some(Bytes::from_static(b"data")), stat });
    let (_, again) = session.create(node("/a/e", CreateMode::Ephemeral)).await.unwrap();
    assert!(again.czxid > stat.czxid);
}

#[tokio::test]
async fn a_crash_at_any_step_keeps_every_acknowledged_write() {
    for step in 0..80 {
        let disk = disk();
        let store = open(&disk);
        let session = store.session().unwrap();
        disk.stop_at(disk.steps() + step);
        let under_way: Vec<_> = (0..60)
            .map(|number| {
                let pair = [persistent(&format!("/a{number}")), persistent(&format!("/b{number}"))];
                session.multi(pair.map(Operation::Create).to_vec())
            })
            .collect();
        let mut acknowledged = 0;
        for written in under_way {
            acknowledged += usize::from(written.await.is_ok());
        }
        drop(store);
        disk.crash();
        let store = open(&disk);
        let session = store.session().unwrap();
        let names = session.children("/").await.unwrap();
        assert!(names.len() >= acknowledged * 2, "step {step}: {} nodes, {acknowledged} pairs", names.len());
        for number in 0..names.len() / 2 {
            assert!(session.exists(&format!("/a{number}")).await.unwrap().is_some(), "step {step}");
            assert!(session.exists(&format!("/b{number}")).await.unwrap().is_some(), "step {step}");
        }
    }
}

#[test]
fn a_full_disk_takes_back_what_waited_and_recovers() {
    let disk = disk();
    let (mut writer, session) = by_hand(&disk);
    let mut kept = session.create(persistent("/kept"));
    flush(&mut writer);
    assert!(answered(&mut kept).unwrap().is_ok());
    let mut watching = session.children_and_watch("/");
    let (_, mut watcher) = answered(&mut watching).unwrap().unwrap();

    disk.set_capacity_bytes(0);
    let mut deleted = session.delete("/kept", None);
    let mut created = session.create(persistent("/new"));
    let mut seen = session.children("/");
    flush(&mut writer);
    assert_eq!(answered(&mut deleted), Some(Err(StoreError::NoSpace)));
    assert_eq!(answered(&mut created), Some(Err(StoreError::NoSpace)));
    assert_eq!(answered(&mut seen), Some(Err(StoreError::NoSpace)));
    assert_eq!(watcher.try_recv().unwrap().kind, WatchKind::ChildrenChanged);
    assert_eq!(answered(&mut session.children("/")), Some(Ok(vec!["kept".to_owned()])));

    disk.set_capacity_bytes(u64::MAX);
    let mut created = session.create(persistent("/new"));
    flush(&mut writer);
    let (_, stat) = answered(&mut created).unwrap().unwrap();
    assert_eq!(stat.czxid, 2);
}

#[test]
fn a_session_that_ends_on_a_full_disk_is_over_all_the_same() {
    let disk = disk();
    let (mut writer, session) = by_hand(&disk);
    let other = writer.shared.state.lock().database.open_session();
    let other = EmbeddedSession { shared: Arc::clone(&writer.shared), session: other };
    let _created = session.create(node("/e", CreateMode::Ephemeral));
    flush(&mut writer);
    disk.set_capacity_bytes(0);
    let mut closed = session.close();
    flush(&mut writer);
    assert_eq!(answered(&mut closed), Some(Err(StoreError::NoSpace)));
    assert_eq!(answered(&mut other.exists("/e")), Some(Ok(None)));
    assert_eq!(session.session_state(), SessionState::Expired);
    disk.set_capacity_bytes(u64::MAX);
    let mut created = other.create(persistent("/e"));
    flush(&mut writer);
    assert!(answered(&mut created).unwrap().is_ok());
    disk.kill();
    let (_writer, session) = by_hand(&disk);
    let mut seen = session.read("/e");
    assert_eq!(answered(&mut seen).unwrap().unwrap().stat.ephemeral_owner, 0);
}

#[tokio::test]
async fn a_failed_sync_ends_the_store_for_all_sessions() {
    let disk = disk();
    let store = open(&disk);
    let session = store.session().unwrap();
    let (_, watcher) = session.exists_and_watch("/other").await.unwrap();
    let outcome = FaultOutcome::Error(io::ErrorKind::Other);
    disk.inject(Fault { on: DiskOperation::Sync, after: 0, outcome });
    assert!(matches!(session.create(persistent("/a")).await, Err(StoreError::Failed { .. })));
    assert_eq!(watcher.await.unwrap().kind, WatchKind::SessionExpired);
    assert!(matches!(session.read("/").await, Err(StoreError::Failed { .. })));
    assert!(matches!(store.session(), Err(StoreError::Failed { .. })));
    assert_eq!(session.session_state(), SessionState::Expired);
}

#[tokio::test]
async fn stopping_finishes_what_waits_and_tells_the_watches() {
    let disk = disk();
    let store = open(&disk);
    let session = store.session().unwrap();
    let (_, watcher) = session.exists_and_watch("/other").await.unwrap();
    let created = session.create(persistent("/a"));
    store.stop();
    assert!(created.await.is_ok());
    assert_eq!(watcher.await.unwrap().kind, WatchKind::SessionExpired);
    assert_eq!(session.read("/a").await, Err(StoreError::SessionExpired));
    drop(store);
    let session = open(&disk).session().unwrap();
    drop(session);
}
