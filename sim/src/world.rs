//! A cluster: hosts with their disks and clocks, the network between them, the ensemble; brokers that start, stop and
//! die on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use barnabas::broker::{Broker, Machine};
use barnabas::config::{BrokerConfig, Properties};
use barnabas::coordination::znodes::{self, PartitionState, ReplicaAssignment, TopicAssignment};
use barnabas::coordination::{MemoryEnsemble, MemoryStore, NodeData, Store};
use barnabas::log::{DirectoryKind, checkpoint, classify_directory};
use barnabas::model::{BrokerId, LeaderEpoch, PartitionIndex, Timestamp, TopicId, TopicName};
use barnabas::observe::{Metrics, Names};
use barnabas::runtime::fs::{FileSystem, MemoryFileSystem};
use barnabas::runtime::net::{Delays, MemoryNetwork, Network};
use barnabas::runtime::{Clock, Process, Random};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::ensemble::{SessionFaults, SimEnsemble};
use crate::plan::LOG_DIRS;
use crate::trace::{SimTime, Trace};

const SESSION_TIMEOUT: Duration = Duration::from_millis(6_000);
/// A broker that stops well needs no longer, or hangs.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Fewer than some brokers have segments, so that files are closed and opened again.
const OPEN_FILES_MAX: usize = 8;

/// On an undisturbed network.
pub const CALM: Delays = Delays { min_us: 0, max_us: 2_000, slow_one_in: 0, slow_max_us: 0, break_one_in: 0 };

pub struct World {
    pub nodes: Vec<Node>,
    pub network: MemoryNetwork,
    pub tree: MemoryEnsemble,
    pub random: Random,
    pub time: SimTime,
    pub trace: Trace,
    /// How many of [`LOG_DIRS`] each broker has.
    log_dirs: usize,
    settings: Vec<(String, String)>,
}

/// A partition as it stands in the tree.
pub struct Placed {
    pub topic: String,
    pub partition: i32,
    pub assignment: ReplicaAssignment,
    /// `None` until the controller has elected its first leader.
    pub state: Option<PartitionState>,
}

/// How a host coordinates groups at a moment.
pub struct Coordinating {
    /// Its process, and the leader epoch since which it leads without a break.
    leadership: (usize, LeaderEpoch),
    /// Every in-sync replica has all that its log has.
    is_committed: bool,
}

impl Coordinating {
    /// Whether what was found at a host stands, from how it coordinated before it was asked and after it answered. A
    /// coordinator reads its log to the end when it begins, as Kafka's does: what it answers is perhaps not committed, and
    /// the next one does not have it.
    pub fn stands(before: Option<&Coordinating>, after: Option<&Coordinating>) -> bool {
        Coordinating::knows_all(before, after) && after.is_some_and(|after| after.is_committed)
    }

    /// Whether it knows at least all that was acknowledged before it was asked.
    pub fn knows_all(before: Option<&Coordinating>, after: Option<&Coordinating>) -> bool {
        let (Some(before), Some(after)) = (before, after) else { return false };
        before.leadership == after.leadership
    }
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
    /// The log directory that failed last.
    failed_log_dir: Mutex<Option<PathBuf>>,
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
    /// It could not be started; why.
    Failed(String),
    Stopping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// No process runs.
    Down,
    Starting,
    Running,
    /// The start did not succeed, no disk is left, or the process is on its way down.
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
        log_dirs: usize,
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
                failed_log_dir: Mutex::default(),
            }
        });
        let nodes = nodes.collect();
        World { nodes, network, tree: MemoryEnsemble::new(), random, time, trace, log_dirs, settings }
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
            open_files_max: OPEN_FILES_MAX,
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
                    LifeState::Failed(error.to_string())
                }
            };
        });
        *life = Some(Life { process, sessions, state });
    }

    fn properties(&self, node: &Node) -> Properties {
        let log_dirs: Vec<String> = self.log_dirs().iter().map(|name| format!("/{name}")).collect();
        let own = [
            ("broker.id", node.id.to_string()),
            ("listeners", format!("PLAINTEXT://{}:{}", node.host, crate::client::PORT)),
            ("log.dirs", log_dirs.join(",")),
            ("zookeeper.session.timeout.ms", SESSION_TIMEOUT.as_millis().to_string()),
        ];
        let mut properties = Properties::new();
        properties.extend(own.map(|(key, value)| (key.to_owned(), value)));
        properties.extend(self.settings.iter().cloned());
        properties
    }

    /// The directories of the root in which each broker has its logs.
    pub fn log_dirs(&self) -> &'static [&'static str] {
        &LOG_DIRS[..self.log_dirs]
    }

    /// Ends a broker's process at once.
    pub fn end(&self, node: &Node, death: Death) {
        let failed = node.look(|broker| {
            let offline = broker.services().replicas.logs().offline_directories();
            offline.first().map(|directory| directory.path().to_owned())
        });
        if let Some(failed) = failed.flatten() {
            *node.failed_log_dir.lock() = Some(failed);
        }
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
        let state = std::mem::replace(&mut *life.state.lock(), LifeState::Stopping);
        if let LifeState::Failed(why) = state {
            self.remove_copies(node, &why);
        }
    }

    /// What the operator of a broker does that does not start because a partition lies in two directories. Its topic was
    /// deleted and made again while the directory that had it was offline: the broker made a folder in the other one, as
    /// it does for what is new, and now the first directory is repaired. Kafka does not start either, and asks the
    /// operator to remove one of the two, of the directory that failed. Whose topic is gone he sees in its metadata.
    fn remove_copies(&self, node: &Node, why: &str) {
        let mut folders: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for log_dir in self.log_dirs() {
            let log_dir = Path::new("/").join(log_dir);
            for entry in node.disk.list(&log_dir).unwrap_or_default() {
                if matches!(classify_directory(&entry.name), DirectoryKind::Partition(_)) {
                    folders.entry(entry.name.clone()).or_default().push(log_dir.join(entry.name));
                }
            }
        }
        let failed = node.failed_log_dir.lock().clone();
        let is_refused =
            |copies: &[PathBuf]| copies.iter().any(|copy| why.contains(&format!("{}:", copy.display())));
        for (name, copies) in folders.into_iter().filter(|(_, copies)| copies.len() > 1 && is_refused(copies))
        {
            let topic = name.rsplit_once('-').map_or("", |(topic, _)| topic);
            let assignment = self.read(&znodes::topic(topic));
            let topic_id = assignment.and_then(|node| TopicAssignment::decode(&node).ok()?.topic_id);
            let is_of_the_topic =
                |copy: &&PathBuf| topic_id.is_some() && topic_id_in(&node.disk, copy) == topic_id;
            let is_in_sound_directory =
                |copy: &&PathBuf| failed.as_ref().is_none_or(|failed| !copy.starts_with(failed));
            let of_the_topic: Vec<&PathBuf> = copies.iter().filter(is_of_the_topic).collect();
            let kept = match of_the_topic.as_slice() {
                [only] => Some(*only),
                _ => copies.iter().find(is_in_sound_directory),
            };
            for copy in copies.iter().filter(|copy| Some(*copy) != kept) {
                self.trace.note(format_args!("the operator of {} removes {}", node.host, copy.display()));
                let removed = node.disk.remove_dir_all(copy);
                let directory = copy.parent().unwrap_or(Path::new("/"));
                if removed.and_then(|()| node.disk.sync_dir(directory)).is_err() {
                    self.trace.note("which is not possible");
                }
            }
        }
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
        let node = self.read(&znodes::partition_state(topic, PartitionIndex(partition)))?;
        let state = PartitionState::decode(&node).ok()?;
        Some(state.isr.into_iter().collect())
    }

    /// The leadership in which a host coordinates groups; `None` = it does not, also where it was deposed and does not
    /// know it yet, or nobody can tell.
    pub fn coordinates(&self, host: &str) -> Option<Coordinating> {
        let node = self.nodes.iter().find(|node| node.host == host)?;
        let stored = self.read(&znodes::partition_state("__consumer_offsets", PartitionIndex(0)))?;
        let stored = PartitionState::decode(&stored).ok()?;
        node.look(|broker| {
            let replicas = &broker.services().replicas;
            let topic = TopicName::new("__consumer_offsets").ok()?;
            let partition = replicas.partition(&topic, PartitionIndex(0)).ok()?;
            let (role, log) = (partition.role(), partition.log());
            let is_leader =
                role.is_leader && stored.leader == node.id && stored.leader_epoch == role.leader_epoch;
            is_leader.then(|| Coordinating {
                leadership: (node.lives(), role.leads_since),
                is_committed: log.high_watermark() == log.log_end_offset(),
            })
        })?
    }

    /// All partitions of all topics.
    pub fn partitions(&self) -> Vec<Placed> {
        let mut found = Vec::new();
        for topic in self.children(znodes::TOPICS) {
            let node = self.read(&znodes::topic(&topic));
            let assignment = node.and_then(|node| TopicAssignment::decode(&node).ok()).unwrap_or_default();
            for (index, assignment) in assignment.partitions {
                let state = self.read(&znodes::partition_state(&topic, index));
                let state = state.and_then(|node| PartitionState::decode(&node).ok());
                found.push(Placed { topic: topic.clone(), partition: index.0, assignment, state });
            }
        }
        found
    }

    /// The names below a node of the tree; none where it does not exist.
    pub fn children(&self, path: &str) -> Vec<String> {
        self.look_at_tree(|session| {
            session.children(path).now_or_never().and_then(Result::ok).unwrap_or_default()
        })
    }

    fn read(&self, path: &str) -> Option<NodeData> {
        self.look_at_tree(|session| session.read(path).now_or_never().and_then(Result::ok))
    }

    fn look_at_tree<T>(&self, look: impl FnOnce(&MemoryStore) -> T) -> T {
        let session = self.tree.session();
        let seen = look(&session);
        let _ = session.close().now_or_never();
        seen
    }
}

impl Placed {
    /// Whether all replicas it should have, and no others, are in sync.
    pub fn is_whole(&self) -> bool {
        let replicas: BTreeSet<BrokerId> = self.assignment.replicas.iter().copied().collect();
        !self.assignment.is_reassigning() && self.isr() == replicas
    }

    pub fn isr(&self) -> BTreeSet<BrokerId> {
        self.state.iter().flat_map(|state| state.isr.iter().copied()).collect()
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Placed { topic, partition, assignment, state } = self;
        write!(f, "{topic}-{partition} of {assignment:?} is {state:?}")
    }
}

impl Node {
    pub fn life(&self) -> Option<Life> {
        self.life.lock().clone()
    }

    pub fn state(&self) -> NodeState {
        let Some(life) = self.life() else { return NodeState::Down };
        match &*life.state.lock() {
            LifeState::Starting => NodeState::Starting,
            LifeState::Running(broker) if has_no_disk(broker) => NodeState::Ending,
            LifeState::Running(_) => NodeState::Running,
            LifeState::Failed(_) | LifeState::Stopping => NodeState::Ending,
        }
    }

    /// How often a process was started here.
    pub fn lives(&self) -> usize {
        self.lives.load(Ordering::Relaxed)
    }

    /// Whether its broker could not be started, or has no log directory left, which ends its process.
    pub fn has_failed(&self) -> bool {
        self.life().is_some_and(|life| match &*life.state.lock() {
            LifeState::Failed(_) => true,
            LifeState::Running(broker) => has_no_disk(broker),
            LifeState::Starting | LifeState::Stopping => false,
        })
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

/// Whose folder of a partition it is, where that can be read.
fn topic_id_in(disk: &MemoryFileSystem, folder: &Path) -> Option<TopicId> {
    let text = disk.read(&folder.join("partition.metadata")).ok()?;
    checkpoint::parse_partition_metadata(&String::from_utf8_lossy(&text)).ok()
}

fn has_no_disk(broker: &Broker) -> bool {
    let logs = broker.services().replicas.logs();
    logs.offline_directories().len() == logs.directories().len()
}

/// Another sequence, which the first decides.
pub fn fork(random: &Random) -> Random {
    Random::from_seed(random.number(..))
}

fn clock(time: &SimTime, ahead_ms: &Arc<AtomicI64>) -> Clock {
    let (time, ahead_ms) = (time.clone(), Arc::clone(ahead_ms));
    Clock::told_by(move || Timestamp(time.wall().0 + ahead_ms.load(Ordering::Relaxed)))
}
