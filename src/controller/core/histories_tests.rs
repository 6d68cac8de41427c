//! Random histories of a cluster, with controllers that die in the middle of what they do.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::world::*;
use super::*;
use crate::coordination::znodes::{PartitionReassignment, ReplicaAssignment};
use crate::metadata::control::{BrokerRegistration, ControlOutcome};
use crate::model::*;

const BROKERS: i32 = 5;
const TOPICS: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 60;

struct History {
    world: World,
    random: Rng,
    /// The live ones, with their epochs.
    live: BTreeMap<i32, i64>,
    last_epoch: i64,
    /// Deletions that brokers were asked for and have not answered.
    deletions: Vec<(BrokerId, BrokerEpoch, TopicPartition)>,
    /// What `/admin/reassign_partitions` holds.
    written: BTreeMap<TopicPartition, Vec<BrokerId>>,
    steps: Vec<String>,
}

/// One leader an epoch, epochs and versions that only grow, leaders that have every acknowledged record.
fn check_write(old: &Leadership, new: &Leadership) {
    let (before, after) = (&old.leader_and_isr, &new.leader_and_isr);
    assert!(after.leader_epoch >= before.leader_epoch, "{old:?} then {new:?}");
    assert!(new.controller_epoch >= old.controller_epoch, "{old:?} then {new:?}");
    assert!(!after.isr.is_empty(), "{new:?}");
    if after.leader_epoch == before.leader_epoch {
        assert_eq!(after.leader, before.leader, "two leaders of an epoch");
        assert!(after.isr.contains(&after.leader), "{new:?}");
        return;
    }
    assert_eq!(after.leader_epoch.0, before.leader_epoch.0 + 1, "{old:?} then {new:?}");
    if after.leader != BrokerId::NONE {
        assert!(after.isr.contains(&after.leader), "{new:?}");
        assert!(before.isr.contains(&after.leader), "an unclean election: {old:?} then {new:?}");
    }
    assert!(after.isr.iter().all(|id| before.isr.contains(id)), "the ISR grew in an election");
}

impl History {
    fn new(seed: u64) -> History {
        let mut world = World::new(&[]);
        world.check_write = check_write;
        let mut history = History {
            world,
            random: Rng::with_seed(seed),
            live: BTreeMap::new(),
            last_epoch: 0,
            deletions: Vec::new(),
            written: BTreeMap::new(),
            steps: Vec::new(),
        };
        for id in 1..=3 {
            history.start(id);
        }
        history
    }

    fn step(&mut self) {
        // Now and then the controller dies within the event, and a new one takes over.
        let dies = self.random.u32(..10) == 0;
        self.world.calls_left = if dies { self.random.usize(..6) } else { usize::MAX };
        match self.random.u32(..22) {
            0 | 1 => self.stop(),
            2 | 3 => {
                let id = self.random.i32(1..=BROKERS);
                self.start(id);
            }
            4 => self.bounce(),
            5 | 6 => self.create(),
            7 => self.grow(),
            8 => self.delete(),
            9..=11 => self.reassign(),
            12 => self.write_reassignment(),
            13..=17 => self.change_isr(),
            18 => self.shut_down(),
            19 => self.world.run(Event::LeadersUnbalanced),
            _ => self.answer_deletions(),
        }
        self.world.calls_left = usize::MAX;
        if dies {
            self.note("the controller dies");
            self.world.elect(self.registrations());
            self.world.run(Event::ReassignmentWritten(self.written_entries()));
        }
        self.after_event();
    }

    fn note(&mut self, step: impl Into<String>) {
        self.steps.push(step.into());
    }

    fn registrations(&self) -> Vec<BrokerRegistration> {
        self.live.iter().map(|(&id, &epoch)| broker(id, epoch)).collect()
    }

    fn tell_brokers(&mut self) {
        self.world.run(Event::BrokersChanged(self.registrations()));
    }

    fn start(&mut self, id: i32) {
        if !self.live.contains_key(&id) {
            self.note(format!("{id} starts"));
            self.last_epoch += 1;
            self.live.insert(id, self.last_epoch);
            self.tell_brokers();
        }
    }

    fn stop(&mut self) {
        if let Some(id) = self.some_broker() {
            self.note(format!("{id} stops"));
            self.live.remove(&id);
            self.tell_brokers();
        }
    }

    fn bounce(&mut self) {
        if let Some(id) = self.some_broker() {
            self.note(format!("{id} bounces"));
            self.last_epoch += 1;
            self.live.insert(id, self.last_epoch);
            self.tell_brokers();
        }
    }

    fn shut_down(&mut self) {
        if let Some(id) = self.some_broker() {
            self.note(format!("{id} shuts down"));
            let (broker, broker_epoch) = (BrokerId(id), BrokerEpoch(self.live[&id]));
            self.world.run(Event::ControlledShutdown { token: 1, broker, broker_epoch });
        }
    }

    fn some_broker(&mut self) -> Option<i32> {
        let live: Vec<i32> = self.live.keys().copied().collect();
        self.random.choice(live)
    }

    fn some_partition(&mut self) -> Option<TopicPartition> {
        let partitions = self.world.core.cluster().all_partitions();
        self.random.choice(partitions)
    }

    /// Distinct brokers, live or not.
    fn some_replicas(&mut self) -> Vec<i32> {
        let mut brokers: Vec<i32> = (1..=BROKERS).collect();
        self.random.shuffle(&mut brokers);
        brokers.truncate(self.random.usize(1..=3));
        brokers
    }

    fn create(&mut self) {
        let name_of = TOPICS[self.random.usize(..TOPICS.len())];
        if self.world.topics.contains_key(&name(name_of)) {
            return;
        }
        let partitions = [self.some_replicas(), self.some_replicas()];
        self.note(format!("create {name_of} {partitions:?}"));
        self.world.create(vec![topic(name_of, &partitions.each_ref().map(Vec::as_slice))]);
    }

    /// Somebody adds a partition; the node is written before the controller hears of it.
    fn grow(&mut self) {
        let names: Vec<TopicName> = self.world.topics.keys().cloned().collect();
        let Some(name) = self.random.choice(names) else { return };
        let replicas = ids(&self.some_replicas());
        self.note(format!("grow {name} {replicas:?}"));
        let topic = self.world.topics.get_mut(&name).unwrap();
        let index = PartitionIndex(topic.partitions.len() as i32);
        topic.partitions.insert(index, ReplicaAssignment { replicas, ..Default::default() });
        let written = topic.clone();
        self.world.run(Event::TopicWritten(written));
    }

    fn delete(&mut self) {
        let names: Vec<TopicName> = self.world.topics.keys().cloned().collect();
        if let Some(name) = self.random.choice(names) {
            self.note(format!("delete {name}"));
            self.world.delete(&[&name]);
        }
    }

    fn reassign(&mut self) {
        let Some(partition) = self.some_partition() else { return };
        let is_cancelled = self.random.u32(..4) == 0;
        let target = (!is_cancelled).then(|| ids(&self.some_replicas()));
        self.note(format!("reassign {partition} {target:?}"));
        let reassignments = vec![Reassignment { partition, target, may_change_factor: true }];
        self.world.run(Event::ReassignmentRequested { token: 1, reassignments });
    }

    fn write_reassignment(&mut self) {
        let Some(partition) = self.some_partition() else { return };
        let target = ids(&self.some_replicas());
        self.note(format!("write the reassignment of {partition} {target:?}"));
        self.written.insert(partition, target);
        self.world.run(Event::ReassignmentWritten(self.written_entries()));
    }

    fn written_entries(&self) -> Vec<PartitionReassignment> {
        let entries = self.written.iter();
        entries
            .map(|(of, replicas)| PartitionReassignment {
                topic_partition: of.clone(),
                replicas: replicas.clone(),
            })
            .collect()
    }

    /// The leader asks for a random ISR that it leads.
    fn change_isr(&mut self) {
        let Some(partition) = self.some_partition() else { return };
        let is_in = |random: &mut Rng| random.u32(..3) > 0;
        let mut random = self.random.fork();
        self.propose(&partition, |_| is_in(&mut random));
    }

    fn propose(&mut self, partition: &TopicPartition, mut is_in: impl FnMut(BrokerId) -> bool) {
        // The leader knows what is stored: it was told, or it wrote it.
        let Some(state) = self.world.states.get(partition).map(|state| state.leader_and_isr.clone()) else {
            return;
        };
        let Some(&epoch) = self.live.get(&state.leader.0) else { return };
        let cluster = self.world.core.cluster();
        let Some(known) = cluster.partition(partition) else { return };
        let replicas = known.assignment.replicas.clone();
        let live = &self.live;
        let isr: Vec<BrokerId> = replicas
            .into_iter()
            .filter(|id| *id == state.leader || live.contains_key(&id.0) && is_in(*id))
            .collect();
        self.note(format!("{} asks for {partition} isr {isr:?}", state.leader));
        let wanted = WantedIsr {
            partition: partition.clone(),
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            isr: isr.into_iter().map(Into::into).collect(),
            is_recovering: false,
        };
        let request = AlterPartition {
            broker: state.leader,
            broker_epoch: BrokerEpoch(epoch),
            partitions: vec![wanted],
        };
        self.world.run(Event::AlterPartition { token: 1, request });
    }

    fn answer_deletions(&mut self) {
        let mut deletions = std::mem::take(&mut self.deletions);
        self.random.shuffle(&mut deletions);
        for (from, broker_epoch, partition) in deletions {
            if self.live.get(&from.0) == Some(&broker_epoch.0) {
                let response = ControlResponse::StopReplica(vec![(partition, ControlOutcome::Done)]);
                self.world.run(Event::Responded { from, broker_epoch, response });
            }
            self.take_requests();
        }
    }

    fn after_event(&mut self) {
        for line in self.world.lines.drain(..).filter(|line| line.starts_with("settle")) {
            for partition in self.written.keys().cloned().collect::<Vec<_>>() {
                let entry = format!("{partition} to {:?}", numbers(&self.written[&partition]));
                if line.contains(&entry) {
                    self.written.remove(&partition);
                }
            }
        }
        self.take_requests();
        self.check_cluster();
    }

    /// Brokers are told only what concerns them, and what stands in the store.
    fn take_requests(&mut self) {
        for (to, request) in std::mem::take(&mut self.world.requests) {
            match request {
                ControlRequest::LeaderAndIsr(request) => {
                    for state in request.partitions {
                        assert!(state.replicas.contains(&to), "{to} is told of {}", state.topic_partition);
                    }
                }
                ControlRequest::UpdateMetadata(_) => {}
                ControlRequest::StopReplica(request) => {
                    for stop in request.partitions.into_iter().filter(|stop| stop.delete) {
                        let epoch = request.sender.broker_epoch;
                        self.deletions.push((to, epoch, stop.topic_partition));
                    }
                }
            }
        }
    }

    /// What the controller remembers is what the store holds, and it holds nothing odd.
    fn check_cluster(&self) {
        let cluster = self.world.core.cluster();
        for partition in cluster.all_partitions() {
            let known = cluster.partition(&partition).unwrap();
            let topic = &self.world.topics[&partition.topic];
            assert_eq!(topic.partitions.get(&partition.partition), Some(&known.assignment), "{partition}");
            assert_eq!(self.world.states.get(&partition), known.leadership.as_ref(), "{partition}");
            let Some(leadership) = &known.leadership else { continue };
            let isr = &leadership.leader_and_isr.isr;
            let is_assigned = |id: &BrokerId| known.assignment.replicas.contains(id);
            assert!(isr.iter().all(is_assigned), "{partition}: {known:?}");
            let leader = leadership.leader_and_isr.leader;
            assert!(leader == BrokerId::NONE || is_assigned(&leader), "{partition}: {known:?}");
        }
    }

    /// All brokers are back and do what they are told: whatever was asked for comes true.
    fn finish(&mut self) {
        for id in 1..=BROKERS {
            self.start(id);
            self.after_event();
        }
        for id in self.live.keys().copied().collect::<Vec<_>>() {
            // Whoever announced his end comes back from it.
            self.last_epoch += 1;
            self.live.insert(id, self.last_epoch);
            self.tell_brokers();
            self.after_event();
        }
        for _ in 0..4 {
            for partition in self.world.core.cluster().all_partitions() {
                self.propose(&partition, |_| true);
                self.after_event();
            }
            while !self.deletions.is_empty() {
                self.answer_deletions();
                self.after_event();
            }
        }
        let cluster = self.world.core.cluster();
        assert_eq!(cluster.reassigning().count(), 0);
        assert_eq!(self.written, BTreeMap::new());
        assert_eq!(self.world.marked, BTreeSet::new());
        for (of, state) in &self.world.states {
            let state = &state.leader_and_isr;
            let assignment = &self.world.topics[&of.topic].partitions[&of.partition];
            assert!(!assignment.is_reassigning(), "{of}: {assignment:?}");
            assert_ne!(state.leader, BrokerId::NONE, "{of} has no leader");
            let in_sync: BTreeSet<&BrokerId> = state.isr.iter().collect();
            assert_eq!(in_sync, assignment.replicas.iter().collect(), "{of}");
        }
        let states = self.world.states.len();
        let partitions: usize = self.world.topics.values().map(|topic| topic.partitions.len()).sum();
        assert_eq!(states, partitions);
    }
}

/// `CONTROLLER_SEED` runs one history; `CONTROLLER_SEEDS` so many.
#[test]
fn whatever_happens_nothing_is_lost_and_everything_asked_for_comes_true() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("CONTROLLER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CONTROLLER_SEEDS").unwrap_or(300),
    };
    for seed in seeds {
        let mut history = History::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                history.step();
            }
            history.finish();
        }));
        if outcome.is_err() {
            panic!("seed {seed}:\n{}\n{:#?}", history.steps.join("\n"), history.world.topics);
        }
    }
}
