//! What the active controller decides, free of I/O.
//!
//! [`Event`]s go in, [`StoreCall`]s and [`ControlRequest`]s come out. [`Core`] keeps the [`Cluster`] it learned
//! from the store and changes it only by what the store confirmed. Whether a replica or a partition is online
//! is derived, not stored: where Kafka has state machines for both, [`election`] looks at what is.
//!
//! An event is worked off as a queue of [`Work`]: decisions become calls, confirmed calls fill a
//! [`RequestBatch`], and a flush turns it into requests. Work that follows from a reply goes to the front.

mod alter_partition;
mod brokers;
mod cluster;
mod deletion;
mod election;
mod elections;
mod event;
#[cfg(test)]
mod histories_tests;
#[cfg(test)]
mod kafka_tests;
mod preferred;
mod reassignment;
mod requests;
#[cfg(test)]
mod scripts_tests;
mod shutdown;
#[cfg(test)]
mod tests;
mod topics;
#[cfg(test)]
mod world;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

pub use alter_partition::AlterPartitionError;
pub use cluster::{Broker, Cluster, Condition, Leadership, Partition, Topic, TopicAssignment};
pub use deletion::Deletion;
use election::{Rules, Strategy, Verdict, decide};
use elections::RequestedElection;
pub use event::{
    AlterPartition, AlteredPartitions, BrokerError, ControlRequest, ControlResponse, Effects, ElectionError,
    ElectionKind, ElectionResult, Event, OtherPartitions, Reply, Snapshot, StoreCall, StoreReply, WantedIsr,
};
use reassignment::{Assigned, RequestedReassignment};
pub use reassignment::{Reassignment, ReassignmentError};
use requests::RequestBatch;

use crate::coordination::znodes::PartitionReassignment;
use crate::metadata::control::{BrokerRegistration, LeaderAndIsr};
use crate::model::{BrokerEpoch, BrokerId, ControllerEpoch, TopicName, TopicPartition};

/// The active controller's decisions: events in, store calls and requests to brokers out.
///
/// One event is worked off at a time. [`step`](Core::step) and [`replied`](Core::replied) return effects;
/// while these have calls, the shell makes them and hands the replies back before the next event. What has
/// been written is remembered only once the store has confirmed it, so a core that is dropped at any moment
/// leaves nothing that its successor does not read.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    controller_epoch: ControllerEpoch,
    cluster: Cluster,
    batch: RequestBatch,
    /// What the current event still needs, in order.
    work: VecDeque<Work>,
    /// The calls that are out, in their order.
    pending: Vec<Pending>,
    effects: Effects,
    /// Of the topics that had to be asked about, within the current event.
    unclean_election: HashMap<TopicName, bool>,
    /// Who asked for the current event, by its token.
    asked: Option<(u64, Asked)>,
    /// Partitions being reassigned whose ISR changed within the current event.
    isr_changed: Vec<TopicPartition>,
    /// By partition whose reassignment can end: the target replicas that have not shown that they are there.
    silent: BTreeMap<TopicPartition, BTreeSet<BrokerId>>,
    /// By partition at the end of its reassignment: the replicas that were told to go and have not confirmed it.
    retiring: BTreeMap<TopicPartition, BTreeSet<BrokerId>>,
    /// Partitions of which the last of these has gone within the current event.
    dropped: Vec<TopicPartition>,
    elections: ElectionCounts,
    /// What stands in `/admin/reassign_partitions`.
    written: BTreeMap<TopicPartition, Vec<BrokerId>>,
}

/// What the operator set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub broker_id: BrokerId,
    /// `delete.topic.enable`
    pub topic_deletion_enabled: bool,
    /// `unclean.leader.election.enable` of the brokers.
    pub unclean_election_by_default: bool,
    /// `leader.imbalance.per.broker.percentage`
    pub leader_imbalance_percentage: i32,
    /// `inter.broker.protocol.version` is 3.2 or later: a leader that was elected uncleanly is marked until it
    /// has recovered.
    pub marks_recovery: bool,
}

/// Counts for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub brokers: usize,
    pub topics: usize,
    pub partitions: usize,
    /// Without a live leader.
    pub offline_partitions: usize,
    /// Led by another replica than the first of their assignment.
    pub preferred_replica_imbalance: usize,
    pub topics_to_delete: usize,
    /// On their way to other replicas.
    pub reassigning_partitions: usize,
}

/// Partitions that were given another leader, since the controller was elected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElectionCounts {
    pub all: u64,
    /// Of these, those whose leader was not in sync.
    pub unclean: u64,
}

#[derive(Debug)]
enum Work {
    Decide {
        partitions: Vec<TopicPartition>,
        strategy: Strategy,
    },
    /// These brokers have come up.
    Introduce(Vec<BrokerRegistration>),
    /// Start these deletions, or ask again the brokers that failed.
    Delete(Vec<TopicName>),
    /// Take these reassignments one step further.
    Reassign(Vec<TopicPartition>),
    EndCaughtUpReassignments,
    RetireReplicas(Vec<TopicPartition>),
    DropReplicas(Vec<TopicPartition>),
    FinishDropped,
    FinishReassignments(Vec<TopicPartition>),
    Settle(Vec<PartitionReassignment>),
    RemovePreferredElection,
    Flush,
    /// Whoever asked gets the answer, though there is more to do.
    Answer,
}

#[derive(Debug)]
enum Pending {
    State { partition: TopicPartition, strategy: Strategy, leadership: Leadership },
    Isr { position: usize, partition: TopicPartition, leadership: Leadership },
    UncleanElection { topic: TopicName },
    Assigned(Assigned),
    Delete { topic: TopicName },
    Other,
}

/// A request that is answered when its event is worked off.
#[derive(Debug)]
enum Asked {
    Election(RequestedElection),
    Alteration(AlteredPartitions),
    ShutDown(BrokerId),
    Reassignment(RequestedReassignment),
}

impl Core {
    pub fn new(settings: Settings) -> Core {
        Core {
            settings,
            controller_epoch: ControllerEpoch(0),
            cluster: Cluster::default(),
            batch: RequestBatch::default(),
            work: VecDeque::new(),
            pending: Vec::new(),
            effects: Effects::default(),
            unclean_election: HashMap::new(),
            asked: None,
            isr_changed: Vec::new(),
            elections: ElectionCounts::default(),
            silent: BTreeMap::new(),
            retiring: BTreeMap::new(),
            dropped: Vec::new(),
            written: BTreeMap::new(),
        }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Begins with an event. The effects of the one before must have been worked off.
    pub fn step(&mut self, event: Event) -> Effects {
        assert!(self.pending.is_empty(), "an event came while store calls are out: {:?}", self.pending);
        self.unclean_election.clear();
        match event {
            Event::Elected(snapshot) => self.elected(snapshot),
            Event::BrokersChanged(brokers) => self.brokers_changed(brokers),
            Event::TopicsCreated(topics) => self.topics_created(topics),
            Event::TopicsVanished(topics) => topics.iter().for_each(|name| self.remove_topic(name)),
            Event::TopicWritten(topic) => self.topic_written(topic),
            Event::DeletionRequested(topics) => self.deletion_requested(topics),
            Event::LogDirsFailed(brokers) => self.log_dirs_failed(&brokers),
            Event::UncleanElectionEnabled(topic) => self.repair(self.cluster.partitions_of(&topic)),
            Event::UncleanElectionByDefault(is_enabled) => {
                self.settings.unclean_election_by_default = is_enabled;
                if is_enabled {
                    self.repair(self.cluster.all_partitions());
                }
            }
            Event::Responded { from, broker_epoch, response } => self.responded(from, broker_epoch, response),
            Event::ElectionRequested { token, kind, partitions } => {
                self.election_requested(token, kind, partitions);
            }
            Event::PreferredElectionWritten(partitions) => self.preferred_election_written(partitions),
            Event::LeadersUnbalanced => self.balance_leaders(),
            Event::AlterPartition { token, request } => self.alter_partition(token, request),
            Event::StatesWritten(states) => self.states_written(states),
            Event::ControlledShutdown { token, broker, broker_epoch } => {
                self.controlled_shutdown(token, broker, broker_epoch);
            }
            Event::ReassignmentRequested { token, reassignments } => {
                self.reassignment_requested(token, reassignments);
            }
            Event::ReassignmentWritten(written) => self.reassignment_written(written),
        }
        self.advance()
    }

    /// Goes on with the store's answers, one for each call of the last effects, in their order.
    pub fn replied(&mut self, replies: Vec<StoreReply>) -> Effects {
        let pending = std::mem::take(&mut self.pending);
        assert!(
            pending.len() == replies.len(),
            "{} replies to {} calls: {pending:?}",
            replies.len(),
            pending.len()
        );
        let mut again: BTreeMap<Strategy, Vec<TopicPartition>> = BTreeMap::new();
        for (pending, reply) in pending.into_iter().zip(replies) {
            if let Some((strategy, partition)) = self.settle_call(pending, reply) {
                again.entry(strategy).or_default().push(partition);
            }
        }
        for (strategy, partitions) in again {
            self.work.push_front(Work::Decide { partitions, strategy });
        }
        self.advance()
    }

    /// Takes a reply in; gives the partition that has to be decided on again.
    fn settle_call(&mut self, pending: Pending, reply: StoreReply) -> Option<(Strategy, TopicPartition)> {
        match (pending, reply) {
            (Pending::State { partition, strategy, leadership }, StoreReply::Written { partition_epoch }) => {
                self.state_written(&partition, strategy, leadership, partition_epoch);
            }
            (Pending::State { partition, strategy, .. }, StoreReply::Conflict { current }) => {
                return self.state_conflicts(&partition, current).then_some((strategy, partition));
            }
            (Pending::Isr { position, partition, leadership }, StoreReply::Written { partition_epoch }) => {
                self.isr_written(position, &partition, leadership, partition_epoch);
            }
            // Its leader asks with what it knows, for ever: only a new leader epoch makes it take the state over.
            (Pending::Isr { partition, .. }, StoreReply::Conflict { current }) => {
                return self.state_conflicts(&partition, current).then_some((Strategy::Renew, partition));
            }
            (Pending::Isr { position, .. }, _) => self.isr_not_stored(position),
            (Pending::UncleanElection { topic }, StoreReply::UncleanElection { setting }) => {
                let is_allowed = setting.unwrap_or(self.settings.unclean_election_by_default);
                self.unclean_election.insert(topic, is_allowed);
            }
            (Pending::UncleanElection { topic }, _) => {
                self.unclean_election.insert(topic, false);
            }
            (Pending::Assigned(assigned), StoreReply::Done) => self.assigned(assigned),
            (Pending::Assigned(assigned), _) => self.assignment_refused(assigned),
            (Pending::Delete { topic }, StoreReply::Done) => self.remove_topic(&topic),
            // A refusal has been logged; a later event tries again.
            (Pending::State { .. } | Pending::Delete { .. } | Pending::Other, _) => {}
        }
        None
    }

    pub fn elections(&self) -> ElectionCounts {
        self.elections
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            brokers: self.cluster.brokers().count(),
            reassigning_partitions: self.cluster.reassigning().count(),
            ..Counts::default()
        };
        for (name, topic) in self.cluster.topics() {
            counts.topics += 1;
            counts.partitions += topic.partitions.len();
            counts.topics_to_delete += usize::from(topic.deletion.is_some());
            if topic.deletion.is_some() {
                continue;
            }
            for (&index, partition) in &topic.partitions {
                let of = TopicPartition::new(name.clone(), index);
                let leader = leader_of(partition);
                counts.offline_partitions += usize::from(!self.cluster.is_serving(&of, leader));
                let preferred = partition.assignment.replicas.first();
                counts.preferred_replica_imbalance += usize::from(preferred != Some(&leader));
            }
        }
        counts
    }

    /// Gives leaders to partitions that lack one and can have one, and takes offline replicas out of ISRs.
    fn repair(&mut self, partitions: Vec<TopicPartition>) {
        self.work.push_back(Work::Decide { partitions, strategy: Strategy::Repair });
        self.work.push_back(Work::Flush);
    }

    fn responded(&mut self, from: BrokerId, broker_epoch: BrokerEpoch, response: ControlResponse) {
        let is_current =
            self.cluster.broker(from).is_some_and(|broker| broker.registration.epoch == broker_epoch);
        if !is_current {
            return;
        }
        match response {
            ControlResponse::LeaderAndIsr(outcomes) => self.leader_and_isr_responded(from, outcomes),
            ControlResponse::StopReplica(outcomes) => self.stop_replica_responded(from, outcomes),
            ControlResponse::UpdateMetadata => {}
        }
    }

    fn advance(&mut self) -> Effects {
        while self.pending.is_empty() {
            match self.work.pop_front() {
                Some(Work::Decide { partitions, strategy }) => self.decide_all(partitions, strategy),
                Some(Work::Introduce(brokers)) => self.introduce(brokers),
                Some(Work::Delete(topics)) => self.delete(topics),
                Some(Work::Reassign(partitions)) => self.advance_reassignments(partitions),
                Some(Work::EndCaughtUpReassignments) => self.end_caught_up_reassignments(),
                Some(Work::RetireReplicas(partitions)) => self.retire_replicas(partitions),
                Some(Work::DropReplicas(partitions)) => self.drop_replicas(partitions),
                Some(Work::FinishDropped) => self.finish_dropped(),
                Some(Work::FinishReassignments(partitions)) => self.finish_reassignments(partitions),
                Some(Work::Settle(done)) => self.settle(done, Vec::new()),
                Some(Work::RemovePreferredElection) => {
                    self.call(Pending::Other, StoreCall::RemovePreferredElection);
                }
                Some(Work::Flush) => self.flush(),
                Some(Work::Answer) => self.answer(),
                None => {
                    self.answer();
                    break;
                }
            }
        }
        std::mem::take(&mut self.effects)
    }

    fn answer(&mut self) {
        let Some((token, asked)) = self.asked.take() else { return };
        let reply = match asked {
            Asked::Election(election) => Reply::Elections(election.finish()),
            Asked::Alteration(outcomes) => Reply::Altered(Ok(outcomes)),
            Asked::ShutDown(broker) => Reply::ShutDown(Ok(self.still_led_by(broker))),
            Asked::Reassignment(requested) => requested.finish(),
        };
        self.effects.replies.push((token, reply));
    }

    fn decide_all(&mut self, partitions: Vec<TopicPartition>, strategy: Strategy) {
        let mut asking = Vec::new();
        for partition in partitions {
            if self.has_deletion_started(&partition.topic) {
                continue;
            }
            match self.verdict(&partition, strategy) {
                Some(Verdict::Write(leadership)) => self.write(partition, strategy, leadership),
                Some(Verdict::AskUnclean) => asking.push(partition),
                Some(Verdict::Keep) if is_requested(strategy) => {
                    self.elected_on_request(&partition, Err(ElectionError::NotNeeded));
                }
                Some(Verdict::Keep | Verdict::NoCandidate) | None => {}
            }
        }
        if asking.is_empty() {
            return;
        }
        let topics: BTreeSet<&TopicName> = asking.iter().map(|partition| &partition.topic).collect();
        for topic in topics.into_iter().cloned().collect::<Vec<_>>() {
            let pending = Pending::UncleanElection { topic: topic.clone() };
            self.call(pending, StoreCall::ReadUncleanElection { topic });
        }
        self.work.push_front(Work::Decide { partitions: asking, strategy });
    }

    fn verdict(&self, of: &TopicPartition, strategy: Strategy) -> Option<Verdict> {
        let partition = self.cluster.partition(of)?;
        let rules = Rules {
            controller_epoch: self.controller_epoch,
            unclean_allowed: self.unclean_election.get(&of.topic).copied(),
            marks_recovery: self.settings.marks_recovery,
        };
        Some(decide(partition, strategy, rules, |replica| self.cluster.condition(of, replica)))
    }

    fn write(&mut self, partition: TopicPartition, strategy: Strategy, leadership: Leadership) {
        let is_new = self.cluster.partition(&partition).is_some_and(|known| known.leadership.is_none());
        let pending =
            Pending::State { partition: partition.clone(), strategy, leadership: leadership.clone() };
        let call = if is_new {
            StoreCall::CreateState { partition, leadership }
        } else {
            StoreCall::SetState { partition, leadership }
        };
        self.call(pending, call);
    }

    fn state_written(
        &mut self,
        of: &TopicPartition,
        strategy: Strategy,
        mut leadership: Leadership,
        partition_epoch: i32,
    ) {
        let Some(partition) = self.cluster.partition_mut(of) else { return };
        leadership.leader_and_isr.partition_epoch = partition_epoch;
        let leader = leadership.leader_and_isr.leader;
        let before = partition.leadership.replace(leadership);
        let is_new = before.is_none();
        if let Some(LeaderAndIsr { leader: before, isr, .. }) = before.map(|before| before.leader_and_isr)
            && before != leader
            && leader != BrokerId::NONE
        {
            self.elections.all += 1;
            self.elections.unclean += u64::from(!isr.contains(&leader));
        }
        let adding = partition.assignment.adding.clone();
        self.announce(of, |replica| is_new || strategy == Strategy::Renew && adding.contains(&replica));
        if is_requested(strategy) {
            self.elected_on_request(of, Ok(leader));
        }
    }

    /// Takes over what another writer stored; `true` when it has to be decided on again.
    fn state_conflicts(&mut self, of: &TopicPartition, current: Option<Leadership>) -> bool {
        let controller_epoch = self.controller_epoch;
        let Some(partition) = self.cluster.partition_mut(of) else { return false };
        // A newer controller is at work, which will fence this one at its next write.
        let Some(current) = current.filter(|state| state.controller_epoch <= controller_epoch) else {
            return false;
        };
        let is_new = partition.leadership.replace(current).is_none();
        self.announce(of, |_| is_new);
        true
    }

    /// Tells the partition's replicas, and everyone who leads it.
    fn announce(&mut self, of: &TopicPartition, is_new: impl Fn(BrokerId) -> bool) {
        let Some(partition) = self.cluster.partition(of) else { return };
        for &replica in &partition.assignment.replicas {
            if self.cluster.is_serving(of, replica) {
                self.batch.lead_or_follow(replica, of, is_new(replica));
            }
        }
        self.batch.publish(of);
    }

    fn call(&mut self, pending: Pending, call: StoreCall) {
        self.pending.push(pending);
        self.effects.calls.push(call);
    }

    fn flush(&mut self) {
        let requests = self.batch.flush(&self.cluster, self.settings.broker_id, self.controller_epoch);
        self.effects.requests.extend(requests);
    }
}

fn is_requested(strategy: Strategy) -> bool {
    matches!(strategy, Strategy::Preferred | Strategy::Unclean)
}

fn leader_of(partition: &Partition) -> BrokerId {
    partition.leadership.as_ref().map_or(BrokerId::NONE, |leadership| leadership.leader_and_isr.leader)
}
