//! A broker's side of the controller for tests: a store in memory, and a channel that does what it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::registration::{self, Registration};
use super::*;
use crate::coordination::*;
use crate::metadata::Cache;
use crate::metadata::control::{ControlOutcome, Endpoint};
use crate::model::*;
use crate::observe::{Metrics, Names};
use crate::runtime::{Clock, Random};

/// What a broker keeps of the controller's requests. It hosts what it is told to, and drops it.
#[derive(Default)]
pub struct FakeBroker {
    pub metadata: Arc<Cache>,
    pub hosted: Mutex<BTreeSet<TopicPartition>>,
    pub has_failed_disk: AtomicBool,
    /// So many requests do not reach it.
    pub losses: AtomicUsize,
}

impl ControlChannel for FakeBroker {
    fn send(
        &self,
        _to: BrokerId,
        request: ControlRequest,
    ) -> BoxFuture<'_, Result<ControlResponse, ControlError>> {
        Box::pin(async move {
            if self
                .losses
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok()
            {
                return Err(ControlError::Unreachable { request: Box::new(request) });
            }
            let mut hosted = self.hosted.lock();
            Ok(match request {
                ControlRequest::LeaderAndIsr(request) => {
                    let partitions = request.partitions.into_iter().map(|state| state.topic_partition);
                    let outcomes = partitions.map(|partition| {
                        hosted.insert(partition.clone());
                        let is_lost = self.has_failed_disk.load(Ordering::SeqCst);
                        (partition, if is_lost { ControlOutcome::StorageError } else { ControlOutcome::Done })
                    });
                    ControlResponse::LeaderAndIsr(outcomes.collect())
                }
                ControlRequest::StopReplica(request) => {
                    let partitions = request.partitions.into_iter().map(|stop| stop.topic_partition);
                    let outcomes = partitions.map(|partition| {
                        hosted.remove(&partition);
                        (partition, ControlOutcome::Done)
                    });
                    ControlResponse::StopReplica(outcomes.collect())
                }
                ControlRequest::UpdateMetadata(request) => {
                    self.metadata.apply(request);
                    ControlResponse::UpdateMetadata
                }
            })
        })
    }
}

/// The brokers of a cluster, as every controller in it reaches them.
#[derive(Default)]
pub struct FakeNetwork {
    pub brokers: Mutex<BTreeMap<BrokerId, Arc<FakeBroker>>>,
}

impl ControlChannel for FakeNetwork {
    fn send(
        &self,
        to: BrokerId,
        request: ControlRequest,
    ) -> BoxFuture<'_, Result<ControlResponse, ControlError>> {
        Box::pin(async move {
            let broker = self.brokers.lock().get(&to).cloned();
            match broker {
                Some(broker) => broker.send(to, request).await,
                None => Err(ControlError::Unreachable { request: Box::new(request) }),
            }
        })
    }
}

/// Several brokers on one store.
pub struct FakeCluster {
    pub ensemble: MemoryEnsemble,
    pub network: Arc<FakeNetwork>,
    /// By id.
    pub running: BTreeMap<i32, Running>,
}

impl FakeCluster {
    pub async fn start(ids: impl IntoIterator<Item = i32>) -> FakeCluster {
        let ensemble = MemoryEnsemble::new();
        let mut cluster = FakeCluster { ensemble, network: Arc::default(), running: BTreeMap::new() };
        for id in ids {
            cluster.add(id).await;
        }
        cluster
    }

    /// A broker in a session of its own. The first one becomes the controller.
    pub async fn add(&mut self, id: i32) {
        let session = Arc::new(self.ensemble.session());
        self.add_on(session, id).await.unwrap();
        if self.running.len() == 1 {
            let mut status = self.running[&id].controller.subscribe();
            status.wait_for(|status| status.active_epoch.is_some()).await.unwrap();
        }
    }

    pub async fn add_on(&mut self, session: Arc<dyn Store>, id: i32) -> Result<(), StoreError> {
        let broker = Arc::new(FakeBroker::default());
        self.network.brokers.lock().insert(BrokerId(id), Arc::clone(&broker));
        let channel = Arc::clone(&self.network) as Arc<dyn ControlChannel>;
        let running = start_with(session, id, broker, channel).await?;
        self.running.insert(id, running);
        Ok(())
    }

    /// The broker is gone at once.
    pub fn kill(&mut self, id: i32) {
        self.network.brokers.lock().remove(&BrokerId(id));
        if let Some(running) = self.running.remove(&id) {
            self.ensemble.expire_session(running.store.session_id());
        }
    }

    /// Waits until somebody is the controller.
    pub async fn controller(&self) -> ControllerHandle {
        loop {
            for running in self.running.values() {
                if running.controller.is_active() {
                    return running.controller.clone();
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    pub fn broker(&self, id: i32) -> &FakeBroker {
        &self.running[&id].broker
    }

    pub fn store(&self) -> MemoryStore {
        self.ensemble.session()
    }
}

/// The timestamp of everything in these tests.
pub const NOW: Timestamp = Timestamp(1_795_982_690_929);

pub fn registration(id: i32) -> Registration {
    let endpoint = Endpoint {
        listener: "PLAINTEXT".into(),
        security_protocol: "PLAINTEXT".into(),
        host: "127.0.0.1".into(),
        port: 19_100 + id as u16,
    };
    Registration {
        id: BrokerId(id),
        endpoints: vec![endpoint],
        rack: None,
        timestamp: NOW,
        version: znodes::BrokerVersion::V5,
    }
}

pub fn options(id: i32) -> ControllerOptions {
    let settings = Settings {
        broker_id: BrokerId(id),
        topic_deletion_enabled: true,
        unclean_election_by_default: false,
        leader_imbalance_percentage: 10,
        marks_recovery: true,
    };
    ControllerOptions {
        settings,
        uses_topic_ids: true,
        feature_form: FeatureForm { status: znodes::FeatureStatus::Enabled, version: 2 },
        balance_interval: None,
        clock: Clock::manual(NOW),
        random: Random::from_seed(1),
        metrics: Arc::new(Metrics::new(&Names::default())),
    }
}

/// A broker that runs: its session, its controller in a task, what it was told.
pub struct Running {
    pub store: Arc<dyn Store>,
    pub broker: Arc<FakeBroker>,
    pub controller: ControllerHandle,
    pub task: tokio::task::JoinHandle<ControllerEnd>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Registers a broker in this session and runs its controller, which knows no other broker.
pub async fn start(store: Arc<dyn Store>, id: i32, broker: Arc<FakeBroker>) -> Result<Running, StoreError> {
    let channel = Arc::clone(&broker) as Arc<dyn ControlChannel>;
    start_with(store, id, broker, channel).await
}

async fn start_with(
    store: Arc<dyn Store>,
    id: i32,
    broker: Arc<FakeBroker>,
    channel: Arc<dyn ControlChannel>,
) -> Result<Running, StoreError> {
    registration::create_top_level_nodes(&*store).await?;
    registration::cluster_id(&*store, &Random::from_seed(2)).await?;
    let patience = std::time::Duration::from_secs(1);
    match registration::register(&*store, &registration(id), patience).await {
        Ok(_) => {}
        Err(registration::RegistrationError::Store { source }) => return Err(source),
        Err(error) => panic!("{error}"),
    }
    let (mut controller, handle) = Controller::new(options(id));
    let session = Arc::clone(&store);
    let task = tokio::spawn(async move { controller.run(session, channel, std::future::pending()).await });
    Ok(Running { store, broker, controller: handle, task })
}

pub async fn start_alone() -> Running {
    let ensemble = MemoryEnsemble::new();
    start(Arc::new(ensemble.session()), 1, Arc::default()).await.unwrap()
}

/// The tree as lines: path, version, data; ephemeral nodes are marked.
pub async fn dump(store: &dyn Store) -> Vec<String> {
    let mut lines = Vec::new();
    let mut paths = vec!["/".to_owned()];
    while let Some(path) = paths.pop() {
        for child in store.children(&path).await.unwrap().into_iter().rev() {
            paths.push(format!("{}/{child}", path.trim_end_matches('/')));
        }
        if path == "/" {
            continue;
        }
        let node = store.read(&path).await.unwrap();
        let data = node.data.map_or("\\N".into(), |data| String::from_utf8(data.to_vec()).unwrap());
        let kind = if node.stat.ephemeral_owner == 0 { "" } else { " ephemeral" };
        lines.push(format!("{path}{kind} {} {data}", node.stat.version));
    }
    lines
}

/// A session that ends at its nth write: just before the write takes effect, or just after.
pub struct DyingStore {
    inner: MemoryStore,
    ensemble: MemoryEnsemble,
    writes_left: AtomicUsize,
    dies_after_write: bool,
}

impl DyingStore {
    pub fn new(ensemble: &MemoryEnsemble, writes: usize, dies_after_write: bool) -> DyingStore {
        let inner = ensemble.session();
        let writes_left = AtomicUsize::new(writes);
        DyingStore { inner, ensemble: ensemble.clone(), writes_left, dies_after_write }
    }

    pub fn has_died(&self) -> bool {
        self.inner.session_state() == SessionState::Expired
    }

    fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce() -> BoxFuture<'static, T>,
        expired: T,
    ) -> BoxFuture<'static, T> {
        let left = self.writes_left.load(Ordering::SeqCst);
        if left > 0 {
            self.writes_left.store(left - 1, Ordering::SeqCst);
            return write();
        }
        if self.dies_after_write {
            drop(write());
        }
        self.ensemble.expire_session(self.inner.session_id());
        Box::pin(std::future::ready(expired))
    }
}

impl Store for DyingStore {
    fn create(&self, node: Create) -> BoxFuture<'static, Result<(String, Stat), StoreError>> {
        self.write(|| self.inner.create(node), Err(StoreError::SessionExpired))
    }

    fn delete(&self, path: &str, version: Option<i32>) -> BoxFuture<'static, Result<(), StoreError>> {
        let path = path.to_owned();
        self.write(move || self.inner.delete(&path, version), Err(StoreError::SessionExpired))
    }

    fn set(
        &self,
        path: &str,
        data: Option<Bytes>,
        version: Option<i32>,
    ) -> BoxFuture<'static, Result<Stat, StoreError>> {
        let path = path.to_owned();
        self.write(move || self.inner.set(&path, data, version), Err(StoreError::SessionExpired))
    }

    fn multi(
        &self,
        operations: Vec<Operation>,
    ) -> BoxFuture<'static, Result<Vec<OperationResult>, (usize, StoreError)>> {
        self.write(|| self.inner.multi(operations), Err((0, StoreError::SessionExpired)))
    }

    fn read(&self, path: &str) -> BoxFuture<'static, Result<NodeData, StoreError>> {
        self.inner.read(path)
    }

    fn exists(&self, path: &str) -> BoxFuture<'static, Result<Option<Stat>, StoreError>> {
        self.inner.exists(path)
    }

    fn children(&self, path: &str) -> BoxFuture<'static, Result<Vec<String>, StoreError>> {
        self.inner.children(path)
    }

    fn read_and_watch(&self, path: &str) -> BoxFuture<'static, Result<(NodeData, Watcher), StoreError>> {
        self.inner.read_and_watch(path)
    }

    fn exists_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Option<Stat>, Watcher), StoreError>> {
        self.inner.exists_and_watch(path)
    }

    fn children_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Vec<String>, Watcher), StoreError>> {
        self.inner.children_and_watch(path)
    }

    fn session_id(&self) -> i64 {
        self.inner.session_id()
    }

    fn session_state(&self) -> SessionState {
        self.inner.session_state()
    }

    fn close(&self) -> BoxFuture<'static, Result<(), StoreError>> {
        self.inner.close()
    }
}
