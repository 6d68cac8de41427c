use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::cluster::{Cluster, Leadership, Partition, TopicAssignment};
use super::deletion::{self, Deletion};
use super::election::{Strategy, Verdict, decide};
use super::event::{
    ControlResponse, Effects, ElectionError, ElectionKind, ElectionResult, Event, Snapshot, StoreCall,
    StoreReply,
};
use super::requests::RequestBatch;
use crate::metadata::control::{BrokerRegistration, ControlOutcome};
use crate::model::{
    BrokerEpoch, BrokerId, ControllerEpoch, PartitionIndex, TopicId, TopicName, TopicPartition,
};

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

#[derive(Debug)]
struct RequestedElection {
    token: u64,
    /// Of all partitions: those that need no election are not reported.
    is_of_all: bool,
    results: BTreeMap<TopicPartition, Result<BrokerId, ElectionError>>,
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

    fn elected(&mut self, snapshot: Snapshot) {
        self.controller_epoch = snapshot.controller_epoch;
        self.cluster = Cluster::default();
        snapshot.brokers.into_iter().for_each(|broker| self.cluster.add_broker(broker));
        let mut leaderships: HashMap<_, _> = snapshot.leaderships.into_iter().collect();
        for topic in snapshot.topics {
            self.add_topic(topic, |partition| leaderships.remove(partition));
        }
        // Brokers must know each other before they are told to follow one another.
        self.batch.publish_brokers();
        self.flush();
        self.deletion_requested(snapshot.marked_for_deletion);
        let partitions = self.cluster.all_partitions();
        self.bring_up(partitions, None);
    }

    fn brokers_changed(&mut self, brokers: Vec<BrokerRegistration>) {
        let now: BTreeMap<BrokerId, &BrokerRegistration> =
            brokers.iter().map(|broker| (broker.id, broker)).collect();
        let known: Vec<BrokerRegistration> = self.cluster.brokers().cloned().collect();
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for old in &known {
            match now.get(&old.id) {
                None => gone.push(old.id),
                // It went and came back before anyone looked.
                Some(new) if new.epoch > old.epoch => {
                    gone.push(old.id);
                    come.push((*new).clone());
                }
                Some(new) if new.endpoints != old.endpoints || new.rack != old.rack => {
                    if let Some(broker) = self.cluster.broker_mut(old.id) {
                        broker.registration = (*new).clone();
                    }
                    self.batch.publish_brokers();
                }
                Some(_) => {}
            }
        }
        come.extend(brokers.into_iter().filter(|broker| self.cluster.broker(broker.id).is_none()));
        self.brokers_gone(&gone);
        self.work.push_back(Work::Flush);
        if !come.is_empty() {
            self.work.push_back(Work::Introduce(come));
        }
    }

    fn brokers_gone(&mut self, gone: &[BrokerId]) {
        let mut affected = BTreeSet::new();
        for &broker in gone {
            self.cluster.remove_broker(broker);
            self.batch.publish_brokers();
            for partition in self.cluster.replicas_on(broker) {
                self.record_deletion(&partition, broker, false);
                affected.insert(partition);
            }
        }
        self.replicas_changed(affected);
    }

    fn introduce(&mut self, brokers: Vec<BrokerRegistration>) {
        let ids: Vec<BrokerId> = brokers.iter().map(|broker| broker.id).collect();
        brokers.into_iter().for_each(|broker| self.cluster.add_broker(broker));
        self.batch.publish_brokers();
        ids.iter().for_each(|&id| self.batch.introduce(id));
        self.flush();
        let mut deletions = BTreeSet::new();
        for id in ids {
            let held = self.cluster.replicas_on(id);
            let deleted = held.iter().filter(|partition| self.cluster.is_being_deleted(&partition.topic));
            deletions.extend(deleted.map(|partition| partition.topic.clone()));
            self.bring_up(held, Some(id));
        }
        self.work.push_back(Work::Delete(deletions.into_iter().collect()));
    }

    /// Tells replicas what they are: at once where the leadership stands, after a decision where it does not.
    /// `to` `None` = all online replicas.
    fn bring_up(&mut self, partitions: Vec<TopicPartition>, to: Option<BrokerId>) {
        let mut undecided = Vec::new();
        for partition in partitions {
            if self.has_deletion_started(&partition.topic) {
                continue;
            }
            match (self.verdict(&partition, Strategy::Repair), to) {
                (Some(Verdict::Write(_) | Verdict::AskUnclean), _)
                    if !self.cluster.is_being_deleted(&partition.topic) =>
                {
                    undecided.push(partition);
                }
                (_, Some(broker)) => {
                    self.batch.lead_or_follow(broker, &partition, false);
                    self.batch.publish(&partition);
                }
                (_, None) => self.announce(&partition, false),
            }
        }
        self.flush();
        self.repair(undecided);
    }

    fn topics_created(&mut self, topics: Vec<TopicAssignment>) {
        let mut created = Vec::new();
        for topic in topics {
            if self.cluster.topic(&topic.name).is_none() {
                created.extend(self.add_topic(topic, |_| None));
            }
        }
        self.repair(created);
    }

    fn topic_written(&mut self, written: TopicAssignment) {
        let Some(topic) = self.cluster.topic(&written.name) else { return };
        let added: Vec<PartitionIndex> = written
            .partitions
            .keys()
            .filter(|index| !topic.partitions.contains_key(index))
            .copied()
            .collect();
        // Tools older than topic ids drop the id; without it replicas would take the topic for another one.
        let id_is_lost = written.id.is_none() && !topic.id.is_zero();
        let is_being_deleted = topic.deletion.is_some();
        let name = written.name.clone();
        if !is_being_deleted && !added.is_empty() {
            let known = TopicAssignment { id: (!topic.id.is_zero()).then_some(topic.id), ..written };
            let partitions = self.add_topic(known, |_| None);
            self.repair(partitions);
        }
        if (id_is_lost || is_being_deleted && !added.is_empty())
            && let Some(assignment) = self.cluster.topic_assignment(&name)
        {
            self.call(Pending::Other, StoreCall::SetAssignment(assignment));
        }
    }

    fn deletion_requested(&mut self, topics: Vec<TopicName>) {
        let is_known =
            |name: &TopicName| self.settings.topic_deletion_enabled && self.cluster.topic(name).is_some();
        let (known, unknown): (Vec<_>, Vec<_>) = topics.into_iter().partition(is_known);
        if !unknown.is_empty() {
            self.call(Pending::Other, StoreCall::RemoveDeletionMarks { topics: unknown });
        }
        let mut requested = Vec::new();
        for name in known {
            if let Some(topic) = self.cluster.topic_mut(&name)
                && topic.deletion.is_none()
            {
                topic.deletion = Some(Deletion::default());
                requested.push(name);
            }
        }
        self.delete(requested);
    }

    fn log_dirs_failed(&mut self, brokers: &BTreeSet<BrokerId>) {
        // The answer of the broker says which replicas it can no longer serve.
        for &broker in brokers {
            for partition in self.cluster.replicas_on(broker) {
                self.batch.lead_or_follow(broker, &partition, false);
            }
        }
        self.flush();
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

    fn leader_and_isr_responded(&mut self, from: BrokerId, outcomes: Vec<(TopicPartition, ControlOutcome)>) {
        let Some(broker) = self.cluster.broker_mut(from) else { return };
        let mut changed = BTreeSet::new();
        for (partition, outcome) in outcomes {
            let has_changed = match outcome {
                ControlOutcome::StorageError => broker.offline.insert(partition.clone()),
                ControlOutcome::Done => broker.offline.remove(&partition),
                ControlOutcome::StaleLeaderEpoch
                | ControlOutcome::InconsistentTopicId
                | ControlOutcome::UnknownPartition => false,
            };
            if has_changed {
                changed.insert(partition);
            }
        }
        for partition in &changed {
            if !self.cluster.is_online(partition, from) {
                self.record_deletion(partition, from, false);
            }
        }
        self.replicas_changed(changed);
        self.work.push_back(Work::Flush);
    }

    fn stop_replica_responded(&mut self, from: BrokerId, outcomes: Vec<(TopicPartition, ControlOutcome)>) {
        let mut topics = BTreeSet::new();
        for (partition, outcome) in outcomes {
            self.record_deletion(&partition, from, outcome == ControlOutcome::Done);
            topics.insert(partition.topic);
        }
        for topic in topics {
            self.remove_if_deleted(topic);
        }
    }

    fn election_requested(&mut self, token: u64, kind: ElectionKind, of: Option<Vec<TopicPartition>>) {
        let is_of_all = of.is_none();
        let partitions = of.unwrap_or_else(|| self.cluster.all_partitions());
        let mut results = BTreeMap::new();
        let mut candidates = Vec::new();
        for partition in partitions {
            let error = if self.cluster.partition(&partition).is_none() {
                ElectionError::UnknownPartition
            } else if self.cluster.is_being_deleted(&partition.topic) {
                ElectionError::TopicIsBeingDeleted
            } else {
                candidates.push(partition.clone());
                kind.failure_of(&partition)
            };
            results.insert(partition, Err(error));
        }
        self.election = Some(RequestedElection { token, is_of_all, results });
        let strategy = match kind {
            ElectionKind::Preferred => Strategy::Preferred,
            ElectionKind::Unclean => Strategy::Unclean,
        };
        self.work.push_back(Work::Decide { partitions: candidates, strategy });
        self.work.push_back(Work::Flush);
    }

    /// Replicas came or went without a write of ours: everyone learns which are offline, and leaders and ISRs
    /// follow.
    fn replicas_changed(&mut self, partitions: BTreeSet<TopicPartition>) {
        partitions.iter().for_each(|partition| self.batch.publish(partition));
        let partitions = partitions.into_iter().collect();
        self.work.push_back(Work::Decide { partitions, strategy: Strategy::Repair });
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

    fn elected_on_request(&mut self, partition: &TopicPartition, result: Result<BrokerId, ElectionError>) {
        if let Some(election) = &mut self.election {
            election.results.insert(partition.clone(), result);
        }
    }

    fn delete(&mut self, topics: Vec<TopicName>) {
        for topic in topics {
            deletion::start_or_retry(&mut self.cluster, &topic, &mut self.batch);
            // A topic without partitions has nobody to wait for.
            self.remove_if_deleted(topic);
        }
        self.flush();
    }

    fn remove_if_deleted(&mut self, name: TopicName) {
        let Some(topic) = self.cluster.topic(&name) else { return };
        if topic.deletion.as_ref().is_some_and(Deletion::is_complete) {
            let partitions = topic.partitions.keys().copied().collect();
            let pending = Pending::Delete { topic: name.clone() };
            self.call(pending, StoreCall::DeleteTopic { topic: name, partitions });
        }
    }

    fn record_deletion(&mut self, partition: &TopicPartition, broker: BrokerId, is_done: bool) {
        let topic = self.cluster.topic_mut(&partition.topic);
        if let Some(deletion) = topic.and_then(|topic| topic.deletion.as_mut()) {
            deletion.record(partition.partition, broker, is_done);
        }
    }

    fn has_deletion_started(&self, topic: &TopicName) -> bool {
        let deletion = self.cluster.topic(topic).and_then(|topic| topic.deletion.as_ref());
        deletion.is_some_and(Deletion::has_started)
    }

    /// Adds a topic or its new partitions and returns these.
    fn add_topic(
        &mut self,
        topic: TopicAssignment,
        mut leadership: impl FnMut(&TopicPartition) -> Option<Leadership>,
    ) -> Vec<TopicPartition> {
        self.cluster.add_topic(topic.name.clone(), topic.id.unwrap_or(TopicId::ZERO));
        let mut added = Vec::new();
        for (index, assignment) in topic.partitions {
            let of = TopicPartition::new(topic.name.clone(), index);
            let partition = Partition { assignment, leadership: leadership(&of) };
            if self.cluster.add_partition(&of, partition) {
                added.push(of);
            }
        }
        added
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

impl RequestedElection {
    fn finish(self) -> (u64, Vec<ElectionResult>) {
        let is_reported = |result: &Result<BrokerId, ElectionError>| {
            !self.is_of_all || *result != Err(ElectionError::NotNeeded)
        };
        let results = self.results.into_iter().filter(|(_, result)| is_reported(result)).collect();
        (self.token, results)
    }
}

impl ElectionKind {
    fn failure_of(self, partition: &TopicPartition) -> ElectionError {
        let partition = partition.clone();
        match self {
            ElectionKind::Preferred => ElectionError::PreferredLeaderNotAvailable { partition },
            ElectionKind::Unclean => ElectionError::EligibleLeadersNotAvailable { partition },
        }
    }
}

fn leader_of(partition: &Partition) -> BrokerId {
    partition.leadership.as_ref().map_or(BrokerId::NONE, |leadership| leadership.leader_and_isr.leader)
}
