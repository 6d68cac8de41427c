//! A store in memory for tests of the core, and what a step makes the store and the brokers do, as lines of text.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::coordination::znodes::{PartitionReassignment, ReplicaAssignment};
use crate::metadata::control::{BrokerRegistration, ControlOutcome, LeaderAndIsr, PartitionAssignmentState};
use crate::model::*;

/// A core with a store that holds what it wrote.
pub struct World {
    pub core: Core,
    pub controller_epoch: ControllerEpoch,
    pub topics: BTreeMap<TopicName, TopicAssignment>,
    pub marked: BTreeSet<TopicName>,
    pub states: BTreeMap<TopicPartition, Leadership>,
    pub unclean: BTreeSet<TopicName>,
    /// What the next controller finds older than all its replicas.
    pub all_returned: BTreeSet<TopicPartition>,
    pub lines: Vec<String>,
    /// All requests since it was emptied.
    pub requests: Vec<(BrokerId, ControlRequest)>,
    /// Brokers that do not answer.
    pub mute: BTreeSet<BrokerId>,
    /// After so many calls the controller dies: what it would have done then is not done.
    pub calls_left: usize,
    /// It has died: it hears of nothing until a new one is elected.
    is_dead: bool,
    /// Every state that a controller or a leader wrote has to pass this.
    pub check_write: fn(&Leadership, &Leadership),
}

pub fn settings() -> Settings {
    Settings {
        broker_id: BrokerId(1),
        topic_deletion_enabled: true,
        unclean_election_by_default: false,
        leader_imbalance_percentage: 10,
        marks_recovery: true,
    }
}

pub fn name(text: &str) -> TopicName {
    TopicName::new(text).unwrap()
}

pub fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(name(topic), PartitionIndex(partition))
}

pub fn ids(numbers: &[i32]) -> Vec<BrokerId> {
    numbers.iter().copied().map(BrokerId).collect()
}

pub fn numbers(ids: &[BrokerId]) -> Vec<i32> {
    ids.iter().map(|id| id.0).collect()
}

pub fn broker(id: i32, epoch: i64) -> BrokerRegistration {
    BrokerRegistration { id: BrokerId(id), epoch: BrokerEpoch(epoch), endpoints: vec![], rack: None }
}

pub fn topic(text: &str, partitions: &[&[i32]]) -> TopicAssignment {
    let assignment = |(index, replicas): (usize, &&[i32])| {
        (PartitionIndex(index as i32), ReplicaAssignment { replicas: ids(replicas), ..Default::default() })
    };
    TopicAssignment {
        name: name(text),
        id: Some(TopicId([text.as_bytes()[0]; 16])),
        partitions: partitions.iter().enumerate().map(assignment).collect(),
    }
}

pub fn leadership(leader: i32, epoch: i32, isr: &[i32], partition_epoch: i32) -> Leadership {
    Leadership {
        leader_and_isr: LeaderAndIsr {
            leader: BrokerId(leader),
            leader_epoch: LeaderEpoch(epoch),
            isr: ids(isr),
            partition_epoch,
        },
        is_recovering: false,
        controller_epoch: ControllerEpoch(1),
    }
}

pub fn show(leadership: &Leadership) -> String {
    let LeaderAndIsr { leader, leader_epoch, isr, partition_epoch } = &leadership.leader_and_isr;
    let recovering = if leadership.is_recovering { " recovering" } else { "" };
    format!(
        "leader {leader} epoch {leader_epoch} isr {:?} version {partition_epoch}{recovering}",
        numbers(isr)
    )
}

pub fn show_partition(state: &PartitionAssignmentState) -> String {
    let offline = match state.offline_replicas.as_slice() {
        [] => String::new(),
        offline => format!(" offline {:?}", numbers(offline)),
    };
    let new = if state.is_new { " new" } else { "" };
    format!("{}={}{offline}{new}", state.topic_partition, state.leader_and_isr.leader)
}

impl World {
    /// A controller in a cluster of these brokers, without topics.
    pub fn new(brokers: &[i32]) -> World {
        World::elected(brokers, vec![], &[], &[])
    }

    pub fn elected(
        brokers: &[i32],
        topics: Vec<TopicAssignment>,
        states: &[(TopicPartition, Leadership)],
        marked: &[&str],
    ) -> World {
        let mut world = World {
            core: Core::new(settings()),
            controller_epoch: ControllerEpoch(1),
            topics: topics.into_iter().map(|topic| (topic.name.clone(), topic)).collect(),
            marked: marked.iter().map(|topic| name(topic)).collect(),
            states: states.iter().cloned().collect(),
            unclean: BTreeSet::new(),
            all_returned: BTreeSet::new(),
            lines: vec![],
            requests: vec![],
            mute: BTreeSet::new(),
            calls_left: usize::MAX,
            is_dead: false,
            check_write: |_, _| {},
        };
        world.elect(brokers.iter().map(|&id| broker(id, 1)).collect());
        world
    }

    /// A new controller reads the store.
    pub fn elect(&mut self, brokers: Vec<BrokerRegistration>) {
        self.controller_epoch.0 += 1;
        self.core = Core::new(settings());
        self.is_dead = false;
        self.run(Event::Elected(Snapshot {
            controller_epoch: self.controller_epoch,
            brokers,
            topics: self.topics.values().cloned().collect(),
            leaderships: self.states.clone().into_iter().collect(),
            marked_for_deletion: self.marked.iter().cloned().collect(),
            all_returned: self.all_returned.clone(),
        }));
    }

    pub fn create(&mut self, topics: Vec<TopicAssignment>) {
        for topic in &topics {
            self.topics.entry(topic.name.clone()).or_insert_with(|| topic.clone());
        }
        self.run(Event::TopicsCreated(topics));
    }

    pub fn delete(&mut self, topics: &[&str]) {
        self.marked.extend(topics.iter().map(|topic| name(topic)));
        self.run(Event::DeletionRequested(self.marked.iter().cloned().collect()));
    }

    pub fn run(&mut self, event: Event) {
        self.run_alone(event);
        while let Some((from, of)) = self.next_answer() {
            let broker = self.core.cluster().broker(from).unwrap();
            let (broker_epoch, response) =
                (broker.registration.epoch, ControlResponse::LeaderAndIsr(vec![(of, ControlOutcome::Done)]));
            self.run_alone(Event::Responded { from, broker_epoch, response });
        }
    }

    /// Of brokers that are asked whether they are there.
    fn next_answer(&self) -> Option<(BrokerId, TopicPartition)> {
        let asked = self.core.silent.iter().flat_map(|(of, brokers)| brokers.iter().map(move |id| (*id, of)));
        let answers = |id: BrokerId| self.core.cluster().broker(id).is_some() && !self.mute.contains(&id);
        let found = asked.filter(|(id, _)| answers(*id)).map(|(id, of)| (id, of.clone())).next();
        found.filter(|_| !self.is_dead)
    }

    fn run_alone(&mut self, event: Event) {
        if self.is_dead {
            return;
        }
        let mut effects = self.core.step(event);
        loop {
            for (broker, request) in std::mem::take(&mut effects.requests) {
                self.lines.push(format!("{broker} <- {}", show_request(&request)));
                self.requests.push((broker, request));
            }
            for (token, reply) in &effects.replies {
                self.lines.push(show_reply(*token, reply));
            }
            if effects.calls.is_empty() {
                return;
            }
            let mut replies = Vec::new();
            for call in std::mem::take(&mut effects.calls) {
                let Some(left) = self.calls_left.checked_sub(1) else {
                    self.is_dead = true;
                    return;
                };
                self.calls_left = left;
                replies.push(self.call(call));
            }
            effects = self.core.replied(replies);
        }
    }

    pub fn call(&mut self, call: StoreCall) -> StoreReply {
        match call {
            StoreCall::CreateState { partition, leadership } => {
                self.lines.push(format!("create {partition} {}", show(&leadership)));
                if let Some(current) = self.states.get(&partition) {
                    return StoreReply::Conflict { current: Some(current.clone()) };
                }
                self.states.insert(partition, leadership);
                StoreReply::Written { partition_epoch: 0 }
            }
            StoreCall::SetState { partition, mut leadership } => {
                self.lines.push(format!("set {partition} {}", show(&leadership)));
                let Some(current) = self.states.get_mut(&partition) else {
                    return StoreReply::Conflict { current: None };
                };
                let version = &mut leadership.leader_and_isr.partition_epoch;
                if *version != current.leader_and_isr.partition_epoch {
                    return StoreReply::Conflict { current: Some(current.clone()) };
                }
                *version += 1;
                let partition_epoch = *version;
                (self.check_write)(current, &leadership);
                *current = leadership;
                StoreReply::Written { partition_epoch }
            }
            StoreCall::ReadUncleanElection { topic } => {
                self.lines.push(format!("ask unclean {topic}"));
                StoreReply::UncleanElection { setting: self.unclean.contains(&topic).then_some(true) }
            }
            StoreCall::SetAssignment { topic, .. } => {
                let replicas: Vec<_> = topic.partitions.values().map(show_assignment).collect();
                self.lines.push(format!("assign {} [{}]", topic.name, replicas.join(", ")));
                assert_eq!(topic.id, Some(TopicId([topic.name.as_bytes()[0]; 16])));
                self.topics.insert(topic.name.clone(), topic);
                StoreReply::Done
            }
            StoreCall::DeleteTopic { topic, partitions } => {
                self.lines.push(format!("remove {topic} {}", partitions.len()));
                self.states.retain(|partition, _| partition.topic != topic);
                self.topics.remove(&topic);
                self.marked.remove(&topic);
                StoreReply::Done
            }
            StoreCall::RemoveDeletionMarks { topics } => {
                self.lines.push(format!("unmark {topics:?}"));
                self.marked.retain(|topic| !topics.contains(topic));
                StoreReply::Done
            }
            StoreCall::SettleReassignments { done, failed } => {
                let show = |entry: &PartitionReassignment| {
                    format!("{} to {:?}", entry.topic_partition, numbers(&entry.replicas))
                };
                let done: Vec<String> = done.iter().map(show).collect();
                let failed: Vec<String> =
                    failed.iter().map(|(entry, error)| format!("{}: {error}", show(entry))).collect();
                self.lines.push(format!("settle done {done:?} failed {failed:?}"));
                StoreReply::Done
            }
            StoreCall::RemovePreferredElection => {
                self.lines.push("remove the preferred election".to_owned());
                StoreReply::Done
            }
        }
    }

    pub fn responds(&mut self, from: i32, response: ControlResponse) {
        self.run(Event::Responded { from: BrokerId(from), broker_epoch: BrokerEpoch(1), response });
    }

    pub fn brokers(&mut self, brokers: &[(i32, i64)]) {
        let brokers = brokers.iter().map(|&(id, epoch)| broker(id, epoch)).collect();
        self.run(Event::BrokersChanged(brokers));
    }

    /// What happened since the last check.
    #[track_caller]
    pub fn check(&mut self, expected: &str) {
        let lines = std::mem::take(&mut self.lines).join("\n");
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(lines, expected.join("\n"));
    }
}

pub fn show_request(request: &ControlRequest) -> String {
    let show_all = |partitions: &[PartitionAssignmentState]| -> String {
        partitions.iter().map(|state| format!(" {}", show_partition(state))).collect()
    };
    match request {
        ControlRequest::LeaderAndIsr(request) => {
            format!("LeaderAndIsr{}", show_all(&request.partitions))
        }
        ControlRequest::UpdateMetadata(request) => {
            let brokers: Vec<i32> = request.live_brokers.iter().map(|broker| broker.id.0).collect();
            format!("UpdateMetadata {brokers:?}{}", show_all(&request.partitions))
        }
        ControlRequest::StopReplica(request) => {
            let deletes = request.partitions.iter().any(|stop| stop.delete);
            let partitions = request.partitions.iter().map(|stop| {
                assert_eq!(stop.delete, deletes);
                format!(" {}@{}", stop.topic_partition, stop.leader_epoch)
            });
            let kind = if deletes { "delete" } else { "stop" };
            format!("StopReplica {kind}{}", partitions.collect::<String>())
        }
    }
}

pub fn show_assignment(assignment: &ReplicaAssignment) -> String {
    let ReplicaAssignment { replicas, adding, removing } = assignment;
    let mut text = format!("{:?}", numbers(replicas));
    for (sign, ids) in [('+', adding), ('-', removing)] {
        text.extend(ids.iter().map(|id| format!(" {sign}{id}")));
    }
    text
}

pub fn show_reply(token: u64, reply: &Reply) -> String {
    match reply {
        Reply::Elections(results) => format!("election {token}: {results:?}"),
        Reply::Altered(Err(error)) => format!("altered {token}: {error:?}"),
        Reply::Altered(Ok(altered)) => {
            let show = |(of, result): &(TopicPartition, Result<Leadership, AlterPartitionError>)| {
                format!("{of} {}", result.as_ref().map_or_else(|error| format!("{error:?}"), show))
            };
            format!("altered {token}: {}", altered.iter().map(show).collect::<Vec<_>>().join("; "))
        }
        Reply::ShutDown(Ok(led)) => format!("shut down {token}: leads {led:?}"),
        Reply::ShutDown(Err(error)) => format!("shut down {token}: {error:?}"),
        Reply::Reassignments(results) => {
            let show = |(partition, result): &(TopicPartition, Result<(), ReassignmentError>)| {
                let result = result.as_ref().map_or_else(ToString::to_string, |()| "ok".into());
                format!("{partition} {result}")
            };
            format!("reassignment {token}: {}", results.iter().map(show).collect::<Vec<_>>().join("; "))
        }
    }
}
