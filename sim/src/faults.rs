//! What goes wrong, when, and for how long.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barnabas::model::BrokerId;
use barnabas::runtime::Random;
use barnabas::runtime::fs::{self, FaultOutcome, Operation};
use barnabas::runtime::net::Delays;
use tokio::time::{Instant, sleep};

use crate::chance::{any, one_in};
use crate::ensemble;
use crate::switch::Switch;
use crate::world::{CALM, Death, Life, Node, NodeState, Placed, World};

/// How often the world is looked after.
const TICK: Duration = Duration::from_millis(100);

/// Kinds of faults; a seed has some of them, so that each meets others with and without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process ends between any two awaits.
    Kill,
    /// All processes end at once.
    KillAll,
    /// A broker is stopped by its operator.
    Stop,
    /// A process is held up, as by a stop signal.
    Pause,
    /// Two hosts do not hear of each other, or one does not hear of the other.
    Partition,
    /// A broker and the ensemble do not hear of each other.
    EnsemblePartition,
    /// The ensemble ends a session between any two awaits of its broker.
    Expire,
    /// The connection to the ensemble breaks, with calls under way.
    EnsembleCut,
    /// All connections between two hosts break.
    Cut,
    /// Bytes are slow, and some connections break.
    BadNetwork,
    SlowDisk,
    /// A disk refuses one thing, or everything for a while; then its host is repaired and started again.
    BadDisk,
    FullDisk,
    ClockJump,
    /// What was not synced is gone, of fewer hosts than are in sync.
    PowerLoss,
}

const ALL: &[Fault] = &[
    Fault::Kill,
    Fault::KillAll,
    Fault::Stop,
    Fault::Pause,
    Fault::Partition,
    Fault::EnsemblePartition,
    Fault::Expire,
    Fault::EnsembleCut,
    Fault::Cut,
    Fault::BadNetwork,
    Fault::SlowDisk,
    Fault::BadDisk,
    Fault::FullDisk,
    Fault::ClockJump,
    Fault::PowerLoss,
];

/// Some of the faults, at least one.
pub fn some(random: &Random) -> Vec<Fault> {
    loop {
        let chosen: Vec<Fault> = ALL.iter().copied().filter(|_| one_in(random, 3)).collect();
        if !chosen.is_empty() {
            return chosen;
        }
    }
}

/// What ends a fault.
enum Undo {
    Unblock(String, String),
    Resume(Life, String),
    CalmNetwork,
    CalmDisk(Life),
    /// Of a directory of the root, where one has failed.
    RepairDisk(BrokerId, Option<&'static str>),
    EmptyDisk(BrokerId),
}

pub struct Faults {
    world: Arc<World>,
    kinds: Vec<Fault>,
    random: Random,
    /// One fault in so many ticks.
    rarity: u64,
    undo: Vec<(Instant, Undo)>,
    restart_at: BTreeMap<BrokerId, Instant>,
    /// Brokers that lost what they had not synced and that the tree may still call in sync.
    tainted: BTreeSet<BrokerId>,
    is_over: Switch,
}

impl Faults {
    pub fn new(world: Arc<World>, kinds: Vec<Fault>, random: Random) -> Faults {
        let rarity = random.number(3..=40);
        Faults {
            world,
            kinds,
            random,
            rarity,
            undo: Vec::new(),
            restart_at: BTreeMap::new(),
            tainted: BTreeSet::new(),
            is_over: Switch::default(),
        }
    }

    /// Disturbs the world until `end`.
    pub async fn run(&mut self, end: Instant) {
        while Instant::now() < end {
            sleep(TICK).await;
            self.tend();
            if one_in(&self.random, self.rarity) {
                self.strike(*any(&self.random, &self.kinds));
            }
        }
    }

    /// Ends all faults; brokers that are down stay so.
    pub fn end(&mut self) {
        self.world.trace.note("faults end");
        self.is_over.set();
        for (_, undo) in std::mem::take(&mut self.undo) {
            self.undo(undo);
        }
        self.forget_actions();
    }

    fn forget_actions(&self) {
        for node in &self.world.nodes {
            if let Some(life) = node.life() {
                life.process.forget_action();
            }
        }
    }

    /// Brokers whose logs may lack what they should have.
    pub fn tainted(&mut self) -> &BTreeSet<BrokerId> {
        let world = &self.world;
        if !self.tainted.is_empty() {
            let in_sync: BTreeSet<BrokerId> = world.partitions().iter().flat_map(Placed::isr).collect();
            self.tainted.retain(|id| in_sync.contains(id));
        }
        &self.tainted
    }

    /// Ends faults whose time is over and starts brokers again.
    fn tend(&mut self) {
        self.tainted();
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.undo).into_iter().partition(|(at, _)| *at <= now);
        self.undo = later;
        let due: Vec<(Instant, Undo)> = due;
        for (_, undo) in due {
            self.undo(undo);
        }
        let world = Arc::clone(&self.world);
        for node in &world.nodes {
            match node.state() {
                NodeState::Starting | NodeState::Running => {
                    self.restart_at.remove(&node.id);
                }
                NodeState::Down => {
                    let at = now + self.random_ms(0, 8_000);
                    if *self.restart_at.entry(node.id).or_insert(at) <= now {
                        world.start(node);
                    }
                }
                NodeState::Ending => {
                    if node.has_failed() {
                        world.end(node, Death::Kill);
                    }
                }
            }
        }
    }

    fn undo(&self, undo: Undo) {
        match undo {
            Undo::Unblock(from, to) => {
                self.world.trace.note(format_args!("{from} reaches {to} again"));
                self.world.network.unblock(&from, &to);
            }
            Undo::Resume(life, host) => {
                self.world.trace.note(format_args!("{host} goes on"));
                life.process.resume();
            }
            Undo::CalmNetwork => self.world.network.set_delays(CALM),
            Undo::CalmDisk(life) => life.process.set_disk_delay_us_max(0),
            Undo::RepairDisk(id, failed) => {
                let node = self.world.node(id);
                self.world.trace.note(format_args!("a disk of {} is repaired", node.host));
                if let Some(failed) = failed {
                    node.disk.mend_volume(failed);
                }
                node.disk.heal();
                self.world.end(node, Death::Kill);
            }
            Undo::EmptyDisk(id) => {
                let node = self.world.node(id);
                self.world.trace.note(format_args!("{} has room again", node.host));
                node.disk.set_capacity_bytes(u64::MAX);
            }
        }
    }

    fn strike(&mut self, fault: Fault) {
        let is_harmless = matches!(fault, Fault::Cut | Fault::SlowDisk | Fault::ClockJump);
        // Who lost power and is still taken for in sync must not become the last one.
        if !self.tainted.is_empty() && !is_harmless {
            return;
        }
        let world = Arc::clone(&self.world);
        let node = self.any_node(&world);
        match fault {
            Fault::Kill => self.kill_between_awaits(node),
            Fault::KillAll => world.nodes.iter().for_each(|node| world.end(node, Death::Kill)),
            Fault::Stop => self.stop(node),
            Fault::Pause => self.pause(node),
            Fault::Partition => self.partition(node),
            Fault::EnsemblePartition => {
                world.trace.note(format_args!("{} is cut off from the ensemble", node.host));
                let until = self.until(500, 15_000);
                self.block(until, &node.host, ensemble::HOST);
                self.block(until, ensemble::HOST, &node.host);
            }
            Fault::Expire => self.expire(node),
            Fault::EnsembleCut => {
                if let Some(life) = node.life() {
                    world.trace.note(format_args!("{} loses its connection to the ensemble", node.host));
                    life.sessions.cut();
                }
            }
            Fault::Cut => {
                let other = self.any_node(&world);
                world.network.reset_between(&node.host, &other.host);
            }
            Fault::BadNetwork => self.worsen_network(),
            Fault::SlowDisk => self.slow_disk(node),
            Fault::BadDisk => self.break_disk(node),
            Fault::FullDisk => self.fill_disk(node),
            Fault::ClockJump => {
                let jump_ms = self.random.number(0..=7_200_000) as i64 - 3_600_000;
                world.trace.note(format_args!("the clock of {} jumps by {jump_ms} ms", node.host));
                node.clock_ahead_ms.fetch_add(jump_ms, Ordering::Relaxed);
            }
            Fault::PowerLoss => self.lose_power(),
        }
    }

    fn any_node<'a>(&self, world: &'a World) -> &'a Node {
        any(&self.random, &world.nodes)
    }

    fn random_ms(&self, min: u64, max: u64) -> Duration {
        Duration::from_millis(self.random.number(min..=max))
    }

    fn until(&self, min_ms: u64, max_ms: u64) -> Instant {
        Instant::now() + self.random_ms(min_ms, max_ms)
    }

    fn block(&mut self, until: Instant, from: &str, to: &str) {
        self.world.network.block(from, to);
        self.undo.push((until, Undo::Unblock(from.to_owned(), to.to_owned())));
    }

    fn kill_between_awaits(&self, node: &Node) {
        let Some(life) = node.life() else { return };
        let (world, id) = (Arc::clone(&self.world), node.id);
        life.process.after_polls(self.random.number(1..500), move || world.end(world.node(id), Death::Kill));
    }

    fn stop(&self, node: &Node) {
        if node.state() == NodeState::Running {
            let (world, id, is_over) = (Arc::clone(&self.world), node.id, self.is_over.clone());
            tokio::spawn(async move {
                // Nobody starts again what stops when the faults have ended.
                if !is_over.is_set() {
                    world.stop(world.node(id)).await;
                }
            });
        }
    }

    fn pause(&mut self, node: &Node) {
        let Some(life) = node.life() else { return };
        self.world.trace.note(format_args!("{} is held up", node.host));
        life.process.pause();
        let until = self.until(100, 15_000);
        self.undo.push((until, Undo::Resume(life, node.host.clone())));
    }

    fn partition(&mut self, node: &Node) {
        let world = Arc::clone(&self.world);
        let other = self.any_node(&world);
        if other.id == node.id {
            return;
        }
        let is_one_way = one_in(&self.random, 3);
        world.trace.note(format_args!("{} does not reach {}", node.host, other.host));
        let until = self.until(500, 20_000);
        self.block(until, &node.host, &other.host);
        if !is_one_way {
            world.trace.note(format_args!("{} does not reach {}", other.host, node.host));
            self.block(until, &other.host, &node.host);
        }
    }

    fn expire(&self, node: &Node) {
        let Some(life) = node.life() else { return };
        let (sessions, trace, host) = (life.sessions.clone(), self.world.trace.clone(), node.host.clone());
        life.process.after_polls(self.random.number(1..500), move || {
            trace.note(format_args!("the session of {host} ends"));
            sessions.expire();
        });
    }

    fn worsen_network(&mut self) {
        let delays = Delays {
            min_us: 0,
            max_us: self.random.number(1_000..=50_000),
            slow_one_in: self.random.number(2..=100),
            slow_max_us: self.random.number(10_000..=2_000_000),
            break_one_in: self.random.number(0..=300),
        };
        self.world.trace.note(format_args!("the network is bad: {delays:?}"));
        self.world.network.set_delays(delays);
        let until = self.until(500, 10_000);
        self.undo.push((until, Undo::CalmNetwork));
    }

    fn slow_disk(&mut self, node: &Node) {
        let Some(life) = node.life() else { return };
        let delay_ms = self.random.number(1..=3_000);
        self.world.trace.note(format_args!("the disk of {} takes up to {delay_ms} ms", node.host));
        life.process.set_disk_delay_us_max(delay_ms * 1_000);
        let until = self.until(500, 15_000);
        self.undo.push((until, Undo::CalmDisk(life)));
    }

    fn break_disk(&mut self, node: &Node) {
        let log_dirs = self.world.log_dirs();
        let failed = match self.random.number(0..3) {
            0 => {
                let log_dir = *any(&self.random, log_dirs);
                self.world.trace.note(format_args!("{log_dir} of {} fails", node.host));
                node.disk.fail_volume(log_dir);
                Some(log_dir)
            }
            _ => {
                let operations = [
                    Operation::Read,
                    Operation::Write,
                    Operation::Sync,
                    Operation::Truncate,
                    Operation::Create,
                    Operation::Rename,
                    Operation::Remove,
                ];
                let on = *any(&self.random, &operations);
                self.world.trace.note(format_args!("a disk of {} fails at a {on:?}", node.host));
                let outcome = FaultOutcome::Error(io::ErrorKind::Other);
                node.disk.inject(fs::Fault { on, after: self.random.number(0..50), outcome });
                None
            }
        };
        let until = self.until(1_000, 20_000);
        self.undo.push((until, Undo::RepairDisk(node.id, failed)));
    }

    fn fill_disk(&mut self, node: &Node) {
        let left = self.random.number(0..=4_000);
        self.world.trace.note(format_args!("the disk of {} has room for {left} bytes", node.host));
        node.disk.set_capacity_bytes(node.disk.used_bytes() + left);
        let until = self.until(500, 10_000);
        self.undo.push((until, Undo::EmptyDisk(node.id)));
    }

    /// Only while all else is well, and at least one broker in sync of each partition keeps its power: what the last
    /// one has not synced is lost in Kafka too.
    fn lose_power(&mut self) {
        let world = Arc::clone(&self.world);
        let is_well = self.undo.is_empty()
            && world.nodes.iter().all(|node| node.state() == NodeState::Running && !node.is_held());
        if !is_well {
            return;
        }
        let mut losing: Vec<&Node> = world.nodes.iter().collect();
        self.random_order(&mut losing);
        losing.truncate(self.random.number(1..world.nodes.len() as u64) as usize);
        let ids: BTreeSet<BrokerId> = losing.iter().map(|node| node.id).collect();
        let keeps_one = |placed: &Placed| placed.isr().difference(&ids).next().is_some();
        if !world.partitions().iter().all(keeps_one) {
            return;
        }
        // What was planned for later would strike the last one that has everything.
        self.forget_actions();
        for node in losing {
            let death = if one_in(&self.random, 2) { Death::PowerLoss } else { Death::TornPowerLoss };
            world.end(node, death);
            self.tainted.insert(node.id);
        }
    }

    fn random_order<T>(&self, items: &mut [T]) {
        self.random.shuffle(items);
    }
}
