//! A cluster: hosts with their disks and clocks, the network between them, the ensemble; brokers that start, stop and
//! die on them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use barnabas::broker::{Broker, Machine};
use barnabas::config::{BrokerConfig, Properties};
use barnabas::coordination::{MemoryEnsemble, Store, znodes};
use barnabas::model::{BrokerId, PartitionIndex, Timestamp};
use barnabas::observe::{Metrics, Names};
use barnabas::runtime::fs::MemoryFileSystem;
use barnabas::runtime::net::{Delays, MemoryNetwork, Network};
use barnabas::runtime::{Clock, Process, Random};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::ensemble::{SessionFaults, SimEnsemble};
use crate::trace::{SimTime, Trace};

const SESSION_TIMEOUT: Duration = Duration::from_millis(6_000);
/// A broker that stops well needs no longer, or hangs.
const STOP_MAX: Duration = Duration::from_secs(60);

/// On an undisturbed network.
pub const CALM: Delays = Delays { min_us: 0, max_us: 2_000, slow_one_in: 0, slow_max_us: 0, break_one_in: 0 };

pub struct World {
    pub nodes: Vec<Node>,
    pub network: MemoryNetwork,
    pub tree: MemoryEnsemble,
    pub random: Random,
    pub time: SimTime,
    pub trace: Trace,
    settings: Vec<(String, String)>,
}

/// One host for a broker.
pub struct Node {
    pub id: BrokerId,
    pub host: String,
    pub disk: MemoryFileSystem,
    /// What its wall clock is ahead, in milliseconds.
    pub clock_ahead_ms: Arc<AtomicI64>,
    life: Mutex<Option<Life>>,
    lives: AtomicUsize,
}

/// A broker's process, from its start to its end.
#[derive(Clone)]
pub struct Life {
    pub process: Process,
    pub sessions: SessionFaults,
    state: Arc<Mutex<LifeState>>,
}

enum LifeState {
    Starting,
    Running(Box<Broker>),
    Failed,
    Stopping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// No process runs.
    Down,
    Starting,
    Running,
    /// The start did not succeed, or the process is on its way down.
    Ending,
}

/// What becomes of what was written and not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process ends, the page cache stays.
    Kill,
    /// All that was not synced is gone.
    PowerLoss,
    /// Of what was not synced, parts are gone.
    TornPowerLoss,
}

impl World {
    pub fn new(
        brokers: i32,
        settings: Vec<(String, String)>,
        random: Random,
        trace: Trace,
        time: SimTime,
    ) -> World {
        let network = MemoryNetwork::new(fork(&random), CALM);
        let nodes = (1..=brokers).map(|id| {
            let clock_ahead_ms = Arc::new(AtomicI64::new(0));
            let disk = MemoryFileSystem::new(clock(&time, &clock_ahead_ms));
            Node {
                id: BrokerId(id),
                host: format!("b{id}"),
                disk,
                clock_ahead_ms,
                life: Mutex::default(),
                lives: AtomicUsize::new(0),
            }
        });
        let nodes = nodes.collect();
        World { nodes, network, tree: MemoryEnsemble::new(), random, time, trace, settings }
    }

    pub fn node(&self, id: BrokerId) -> &Node {
        self.nodes.iter().find(|node| node.id == id).expect("brokers are numbered as nodes are")
    }

    pub fn hosts(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.host.clone()).collect()
    }

    pub fn client(&self, name: &str) -> Client {
        Client::new(self.host(name), name, self.hosts(), fork(&self.random))
    }

    fn host(&self, name: &str) -> Network {
        self.network.host(name)
    }

    /// Starts a broker's process where none runs.
    pub fn start(&self, node: &Node) {
        let mut life = node.life.lock();
        if life.is_some() {
            return;
        }
        self.trace.note(format_args!("{} starts", node.host));
        node.lives.fetch_add(1, Ordering::Relaxed);
        // Who still waits for an earlier life hears that it is over.
        self.network.reset_host(&node.host);
        let process = Process::new(fork(&self.random));
        let sessions = SessionFaults::default();
        let ensemble = SimEnsemble {
            tree: self.tree.clone(),
            network: self.network.clone(),
            host: node.host.clone(),
            process: process.clone(),
            session_timeout: SESSION_TIMEOUT,
            random: fork(&self.random),
            trace: self.trace.clone(),
            sessions: sessions.clone(),
        };
        let machine = Machine {
            file_system: Arc::new(node.disk.mounted()),
            network: self.host(&node.host),
            clock: clock(&self.time, &node.clock_ahead_ms),
            random: fork(&self.random),
            parallelism: 1,
            open_files_max: 100,
        };
        let config = BrokerConfig::new(self.properties(node)).expect("the settings are known");
        let state = Arc::new(Mutex::new(LifeState::Starting));
        let (started, host, trace) = (Arc::clone(&state), node.host.clone(), self.trace.clone());
        process.spawn(async move {
            let metrics = Arc::new(Metrics::new(&Names::default()));
            let result = Broker::start_on(machine, Box::new(ensemble), config, metrics).await;
            *started.lock() = match result {
                Ok(broker) => {
                    trace.note(format_args!("{host} runs"));
                    LifeState::Running(Box::new(broker))
                }
                Err(error) => {
                    trace.note(format_args!("{host} does not start: {error}"));
                    LifeState::Failed
                }
            };
        });
        *life = Some(Life { process, sessions, state });
    }

    fn properties(&self, node: &Node) -> Properties {
        let own = [
            ("broker.id", node.id.to_string()),
            ("listeners", format!("PLAINTEXT://{}:{}", node.host, crate::client::PORT)),
            ("log.dirs", DATA.to_owned()),
            ("zookeeper.session.timeout.ms", SESSION_TIMEOUT.as_millis().to_string()),
        ];
        let mut properties = Properties::new();
        properties.extend(own.map(|(key, value)| (key.to_owned(), value)));
        properties.extend(self.settings.iter().cloned());
        properties
    }

    /// Ends a broker's process at once.
    pub fn end(&self, node: &Node, death: Death) {
        let life = node.life.lock().take();
        let Some(life) = life else { return };
        self.trace.note(format_args!("{} ends by {death:?}", node.host));
        // The disk first: what the dropped tasks do must not reach it.
        match death {
            Death::Kill => node.disk.kill(),
            Death::PowerLoss => node.disk.crash(),
            Death::TornPowerLoss => node.disk.crash_torn(&self.random),
        }
        life.process.kill();
        match death {
            Death::Kill => self.network.reset_host(&node.host),
            Death::PowerLoss | Death::TornPowerLoss => self.network.silence_host(&node.host),
        }
        *life.state.lock() = LifeState::Stopping;
    }

    /// Stops a broker as its operator does, and ends its process.
    pub async fn stop(&self, node: &Node) {
        let Some(life) = node.life() else { return };
        let state = std::mem::replace(&mut *life.state.lock(), LifeState::Stopping);
        let LifeState::Running(broker) = state else {
            self.end(node, Death::Kill);
            return;
        };
        self.trace.note(format_args!("{} stops", node.host));
        let stopped = life.process.spawn(broker.stop());
        if tokio::time::timeout(STOP_MAX, stopped).await.is_err() {
            self.trace.note(format_args!("{} does not stop in time", node.host));
        }
        // It may have died meanwhile, and even live again.
        if node.life().is_some_and(|now| Arc::ptr_eq(&now.state, &life.state)) {
            self.end(node, Death::Kill);
        }
    }

    /// Waits until all brokers run. Whether they do in time.
    pub async fn all_run(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            for node in &self.nodes {
                match node.state() {
                    NodeState::Down => self.start(node),
                    NodeState::Ending => self.end(node, Death::Kill),
                    NodeState::Starting | NodeState::Running => {}
                }
            }
            if self.nodes.iter().all(|node| node.state() == NodeState::Running) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// The in-sync replicas of a partition as they stand in the tree.
    pub fn isr(&self, topic: &str, partition: i32) -> Option<BTreeSet<BrokerId>> {
        let path = znodes::partition_state(topic, PartitionIndex(partition));
        let session = self.tree.session();
        let node = session.read(&path).now_or_never().and_then(Result::ok);
        let _ = session.close().now_or_never();
        let state = znodes::PartitionState::decode(&node?).ok()?;
        Some(state.isr.into_iter().collect())
    }

    /// The partitions that have a state in the tree.
    pub fn partitions(&self) -> Vec<(String, i32)> {
        let session = self.tree.session();
        let children =
            |path: &str| session.children(path).now_or_never().and_then(Result::ok).unwrap_or_default();
        let mut found = Vec::new();
        for topic in children(znodes::TOPICS) {
            let indexes = children(&znodes::partitions(&topic));
            found.extend(indexes.iter().filter_map(|index| Some((topic.clone(), index.parse().ok()?))));
        }
        let _ = session.close().now_or_never();
        found
    }
}

/// Where brokers have their logs.
const DATA: &str = "/data";

impl Node {
    pub fn life(&self) -> Option<Life> {
        self.life.lock().clone()
    }

    pub fn state(&self) -> NodeState {
        let Some(life) = self.life() else { return NodeState::Down };
        match &*life.state.lock() {
            LifeState::Starting => NodeState::Starting,
            LifeState::Running(_) => NodeState::Running,
            LifeState::Failed | LifeState::Stopping => NodeState::Ending,
        }
    }

    /// How often a process was started here.
    pub fn lives(&self) -> usize {
        self.lives.load(Ordering::Relaxed)
    }

    /// Whether its broker could not be started.
    pub fn has_failed(&self) -> bool {
        self.life().is_some_and(|life| matches!(&*life.state.lock(), LifeState::Failed))
    }

    /// Whether its process runs, but none of its tasks does.
    pub fn is_held(&self) -> bool {
        self.life().is_some_and(|life| life.process.is_held())
    }

    /// Looks at the broker, where it runs.
    pub fn look<T>(&self, look: impl FnOnce(&Broker) -> T) -> Option<T> {
        let life = self.life()?;
        match &*life.state.lock() {
            LifeState::Running(broker) => Some(look(broker)),
            _ => None,
        }
    }
}

/// Another sequence, which the first decides.
pub fn fork(random: &Random) -> Random {
    Random::from_seed(random.number(..))
}

fn clock(time: &SimTime, ahead_ms: &Arc<AtomicI64>) -> Clock {
    let (time, ahead_ms) = (time.clone(), Arc::clone(ahead_ms));
    Clock::told_by(move || Timestamp(time.wall().0 + ahead_ms.load(Ordering::Relaxed)))
}
