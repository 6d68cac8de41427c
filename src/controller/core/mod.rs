//! What the active controller decides, free of I/O.
//!
//! [`Event`]s go in, [`StoreCall`]s and [`ControlRequest`]s come out. [`Core`] keeps the [`Cluster`] it learned
//! from the store and changes it only by what the store confirmed. Whether a replica or a partition is online
//! is derived, not stored: where Kafka has state machines for both, [`election`] looks at what is.

mod brokers;
mod cluster;
mod deletion;
mod election;
mod elections;
mod event;
mod requests;
#[cfg(test)]
mod tests;
mod topics;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

pub use cluster::{Broker, Cluster, Leadership, Partition, Topic, TopicAssignment};
pub use deletion::Deletion;
use election::{Strategy, Verdict, decide};
use elections::RequestedElection;
pub use event::{
    ControlRequest, ControlResponse, Effects, ElectionError, ElectionKind, ElectionResult, Event, Snapshot,
    StoreCall, StoreReply,
};
use requests::RequestBatch;

use crate::metadata::control::BrokerRegistration;
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
    election: Option<RequestedElection>,
}

/// What the operator set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub broker_id: BrokerId,
    /// `delete.topic.enable`
    pub topic_deletion_enabled: bool,
    /// `unclean.leader.election.enable` of the brokers.
    pub unclean_election_by_default: bool,
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
    Flush,
}

#[derive(Debug)]
enum Pending {
    State { partition: TopicPartition, strategy: Strategy, leadership: Leadership },
    UncleanElection { topic: TopicName },
    Delete { topic: TopicName },
    Other,
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
            election: None,
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
            Event::TopicsVanished(topics) => topics.iter().for_each(|name| self.cluster.remove_topic(name)),
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
            match (pending, reply) {
                (
                    Pending::State { partition, strategy, leadership },
                    StoreReply::Written { partition_epoch },
                ) => {
                    self.state_written(&partition, strategy, leadership, partition_epoch);
                }
                (Pending::State { partition, strategy, .. }, StoreReply::Conflict { current }) => {
                    if self.state_conflicts(&partition, current) {
                        again.entry(strategy).or_default().push(partition);
                    }
                }
                (Pending::UncleanElection { topic }, StoreReply::UncleanElection { setting }) => {
                    let is_allowed = setting.unwrap_or(self.settings.unclean_election_by_default);
                    self.unclean_election.insert(topic, is_allowed);
                }
                (Pending::UncleanElection { topic }, _) => {
                    self.unclean_election.insert(topic, false);
                }
                (Pending::Delete { topic }, StoreReply::Done) => self.cluster.remove_topic(&topic),
                (Pending::State { .. } | Pending::Delete { .. } | Pending::Other, _) => {}
            }
        }
        for (strategy, partitions) in again {
            self.work.push_front(Work::Decide { partitions, strategy });
        }
        self.advance()
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts { brokers: self.cluster.brokers().count(), ..Counts::default() };
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
                counts.offline_partitions += usize::from(!self.cluster.is_online(&of, leader));
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
                Some(Work::Flush) => self.flush(),
                None => {
                    self.effects.elections.extend(self.election.take().map(RequestedElection::finish));
                    break;
                }
            }
        }
        std::mem::take(&mut self.effects)
    }

    fn decide_all(&mut self, partitions: Vec<TopicPartition>, strategy: Strategy) {
        let mut asking = Vec::new();
        for partition in partitions {
            if self.cluster.is_being_deleted(&partition.topic) {
                continue;
            }
            match self.verdict(&partition, strategy) {
                Some(Verdict::Write(leadership)) => self.write(partition, strategy, leadership),
                Some(Verdict::AskUnclean) => asking.push(partition),
                Some(Verdict::Keep) if strategy != Strategy::Repair => {
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
        let unclean_allowed = self.unclean_election.get(&of.topic).copied();
        let is_online = |replica| self.cluster.is_online(of, replica);
        Some(decide(partition, strategy, self.controller_epoch, unclean_allowed, is_online))
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
        let is_new = partition.leadership.replace(leadership).is_none();
        self.announce(of, is_new);
        if strategy != Strategy::Repair {
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
        self.announce(of, is_new);
        true
    }

    fn announce(&mut self, of: &TopicPartition, is_new: bool) {
        let Some(partition) = self.cluster.partition(of) else { return };
        for &replica in &partition.assignment.replicas {
            if self.cluster.is_online(of, replica) {
                self.batch.lead_or_follow(replica, of, is_new);
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

fn leader_of(partition: &Partition) -> BrokerId {
    partition.leadership.as_ref().map_or(BrokerId::NONE, |leadership| leadership.leader_and_isr.leader)
}
