use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::leading::{IsrChanges, Proposals, Replication};
use super::mover::Moves;
use super::partition::WatchedOffset;
use super::throttle::{ThrottleWindows, Throttles};
use super::{Partition, ReplicaError, TopicSettings};
use crate::log::{LogError, LogManager};
use crate::metadata::Cache;
use crate::metadata::control::{
    ControlOutcome, ControlRefusal, ControlSender, LeaderAndIsrRequest, PartitionAssignmentState,
    StopReplica, StopReplicaRequest,
};
use crate::model::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, Timestamp, TopicId, TopicName,
    TopicPartition,
};
use crate::purgatory::{Changes, Waiter, WatchList};

/// Every replica of this broker.
///
/// Control requests are applied one at a time; appends and reads go on beside them.
pub struct ReplicaManager {
    me: BrokerId,
    logs: Arc<LogManager>,
    metadata: Arc<Cache>,
    replication: Arc<Replication>,
    hosted: RwLock<HashMap<TopicName, HashMap<i32, Hosted>>>,
    settings: RwLock<Settings>,
    /// Held while roles and logs change.
    pub(super) control: Mutex<()>,
    /// Apart, as UpdateMetadata must not wait while logs are made.
    controller_epoch: Mutex<ControllerEpoch>,
    pub(super) moves: Moves,
    /// The czxid of this broker's registration; requests for an earlier one are refused.
    broker_epoch: AtomicI64,
}

#[derive(Clone)]
pub(super) enum Hosted {
    Online(Arc<Partition>),
    /// Its log is being loaded: the role that the controller gave waits for it.
    Loading(Arc<AwaitedRole>),
    /// Its log could not be created for want of room or of open files: the role waits until it can.
    Uncreated(Arc<AwaitedRole>),
    /// Its log, or its log directory, has failed.
    Offline,
}

/// What the controller said of a partition whose log cannot be used yet.
pub(super) struct AwaitedRole {
    state: PartitionAssignmentState,
    topic_id: TopicId,
}

struct Settings {
    default: Arc<TopicSettings>,
    of_topic: HashMap<TopicName, Arc<TopicSettings>>,
}

/// A partition that this broker leads or follows from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleChange {
    pub topic_partition: TopicPartition,
    /// `-1` = none at the moment.
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    pub is_leader: bool,
}

/// What a LeaderAndIsr request did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderAndIsrReply {
    pub outcomes: Vec<(TopicPartition, ControlOutcome)>,
    /// New leaderships and followerships: coordinators load and unload by them.
    pub changes: Vec<RoleChange>,
}

/// How this broker replicates, from the settings.
#[derive(Clone, Copy, Debug)]
pub struct ReplicationOptions {
    /// `replica.lag.time.max.ms`.
    pub lag_max_ms: i64,
    pub throttle_windows: ThrottleWindows,
}

impl ReplicaManager {
    pub fn new(
        me: BrokerId,
        logs: Arc<LogManager>,
        metadata: Arc<Cache>,
        default_settings: TopicSettings,
        options: ReplicationOptions,
    ) -> ReplicaManager {
        let replication = Replication {
            metadata: Arc::clone(&metadata),
            lag_max_ms: AtomicI64::new(options.lag_max_ms),
            throttles: Throttles::new(options.throttle_windows),
            proposals: Proposals::default(),
            isr_changes: IsrChanges::default(),
            leaderships: watch::Sender::new(0),
        };
        ReplicaManager {
            me,
            logs,
            metadata,
            replication: Arc::new(replication),
            hosted: RwLock::new(HashMap::new()),
            settings: RwLock::new(Settings { default: Arc::new(default_settings), of_topic: HashMap::new() }),
            moves: Moves::default(),
            control: Mutex::default(),
            controller_epoch: Mutex::new(ControllerEpoch(0)),
            broker_epoch: AtomicI64::new(-1),
        }
    }

    pub fn broker_id(&self) -> BrokerId {
        self.me
    }

    pub fn logs(&self) -> &Arc<LogManager> {
        &self.logs
    }

    /// The broker was registered, or registered again.
    pub fn registered(&self, epoch: BrokerEpoch) {
        self.broker_epoch.store(epoch.0, Ordering::SeqCst);
    }

    pub fn broker_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.broker_epoch.load(Ordering::SeqCst))
    }

    /// The replica that answers for a partition, whatever its role.
    pub fn partition(&self, topic: &str, index: PartitionIndex) -> Result<Arc<Partition>, ReplicaError> {
        if let Some(hosted) = self.hosted.read().get(topic).and_then(|topic| topic.get(&index.0)) {
            return match hosted {
                Hosted::Online(partition) => Ok(Arc::clone(partition)),
                // Clients ask again, and find it when it is loaded.
                Hosted::Loading(_) => Err(ReplicaError::NotLeaderOrFollower),
                Hosted::Uncreated(_) | Hosted::Offline => Err(ReplicaError::StorageError),
            };
        }
        // Retriable beats precise: a partition that exists elsewhere, or is not here yet, has moved.
        match self.metadata.image().partition(topic, index) {
            Some(_) => Err(ReplicaError::NotLeaderOrFollower),
            None => Err(ReplicaError::UnknownTopicOrPartition),
        }
    }

    /// Proposes to take out of ISRs who fell behind; every half of `replica.lag.time.max.ms`.
    pub fn isr_tick(&self, now: Timestamp) {
        for partition in self.partitions() {
            partition.shrink_isr(now);
        }
    }

    pub fn isr_changes(&self) -> &IsrChanges {
        &self.replication.isr_changes
    }

    /// Replicas whose logs cannot be used, most because their directories have failed.
    pub fn offline_count(&self) -> usize {
        let hosted = self.hosted.read();
        let all = hosted.values().flat_map(HashMap::values);
        all.filter(|hosted| matches!(hosted, Hosted::Offline | Hosted::Uncreated(_))).count()
    }

    /// How fast throttled replicas may copy.
    pub fn throttles(&self) -> &Throttles {
        &self.replication.throttles
    }

    pub(super) fn replication(&self) -> &Arc<Replication> {
        &self.replication
    }

    /// All replicas whose logs are online, in no order.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        let hosted = self.hosted.read();
        let all = hosted.values().flat_map(HashMap::values);
        all.filter_map(|hosted| match hosted {
            Hosted::Online(partition) => Some(Arc::clone(partition)),
            Hosted::Loading(_) | Hosted::Uncreated(_) | Hosted::Offline => None,
        })
        .collect()
    }

    pub fn partition_count(&self) -> usize {
        self.hosted.read().values().map(HashMap::len).sum()
    }

    /// The settings of a topic, now and for partitions that come later; `None` = it has none of its own.
    pub fn change_topic_settings(&self, topic: &TopicName, settings: Option<TopicSettings>) {
        let effective = {
            let mut all = self.settings.write();
            match settings {
                Some(settings) => {
                    all.of_topic.insert(topic.clone(), Arc::new(settings));
                }
                None => {
                    all.of_topic.remove(topic);
                }
            }
            all.of(topic)
        };
        if let Some(partitions) = self.hosted.read().get(topic) {
            for hosted in partitions.values() {
                if let Hosted::Online(partition) = hosted {
                    partition.change_settings(Arc::clone(&effective));
                }
            }
        }
    }

    /// The settings of topics that have none of their own.
    pub fn change_default_settings(&self, settings: TopicSettings) {
        let settings = Arc::new(settings);
        let own: Vec<TopicName> = {
            let mut all = self.settings.write();
            all.default = Arc::clone(&settings);
            all.of_topic.keys().cloned().collect()
        };
        for (topic, partitions) in self.hosted.read().iter() {
            if own.contains(topic) {
                continue;
            }
            for hosted in partitions.values() {
                if let Hosted::Online(partition) = hosted {
                    partition.change_settings(Arc::clone(&settings));
                }
            }
        }
    }

    pub fn topic_settings(&self, topic: &TopicName) -> Arc<TopicSettings> {
        self.settings.read().of(topic)
    }

    /// Leads and follows as the controller says. Creates logs, so it may block.
    pub fn become_leader_or_follower(
        &self,
        request: &LeaderAndIsrRequest,
        now: Timestamp,
    ) -> Result<LeaderAndIsrReply, ControlRefusal> {
        let _control = self.control.lock();
        self.admit(&request.sender)?;
        let topic_ids: HashMap<&TopicName, TopicId> =
            request.topic_ids.iter().map(|(name, id)| (name, *id)).collect();
        let mut reply = LeaderAndIsrReply::default();
        for state in &request.partitions {
            let topic_partition = &state.topic_partition;
            let topic_id = topic_ids.get(&topic_partition.topic).copied().unwrap_or(TopicId::ZERO);
            let outcome = match self.take_role(state, topic_id, now) {
                Ok(change) => {
                    reply.changes.extend(change);
                    ControlOutcome::Done
                }
                Err(outcome) => outcome,
            };
            reply.outcomes.push((topic_partition.clone(), outcome));
        }
        if reply.changes.iter().any(|change| change.is_leader) {
            self.replication.leaderships.send_modify(|count| *count += 1);
        }
        Ok(reply)
    }

    /// Changes when this broker has begun to lead something.
    pub fn leaderships(&self) -> watch::Receiver<u64> {
        self.replication.leaderships.subscribe()
    }

    /// The partitions whose logs could not be created yet: it is tried again with [`logs_loaded`](Self::logs_loaded).
    pub fn uncreated(&self) -> Vec<TopicPartition> {
        let hosted = self.hosted.read();
        let all = hosted.iter().flat_map(|(topic, partitions)| partitions.iter().map(move |of| (topic, of)));
        let uncreated = all.filter(|(_, (_, hosted))| matches!(hosted, Hosted::Uncreated(_)));
        uncreated
            .map(|(topic, (index, _))| TopicPartition::new(topic.clone(), PartitionIndex(*index)))
            .collect()
    }

    /// Takes the roles that waited for logs, now that these are loaded, may be created, or have failed. The outcomes name
    /// only partitions for which the controller was told that all is well.
    pub fn logs_loaded(&self, topic_partitions: &[TopicPartition], now: Timestamp) -> LeaderAndIsrReply {
        let _control = self.control.lock();
        let mut reply = LeaderAndIsrReply::default();
        for topic_partition in topic_partitions {
            let Some(Hosted::Loading(awaited) | Hosted::Uncreated(awaited)) = self.hosted(topic_partition)
            else {
                continue;
            };
            let outcome = match self.take_role(&awaited.state, awaited.topic_id, now) {
                Ok(change) => {
                    reply.changes.extend(change);
                    ControlOutcome::Done
                }
                Err(outcome) => {
                    warn!(topic = %topic_partition.topic, partition = topic_partition.partition.0, ?outcome,
                        "a partition was loaded and cannot take its role");
                    self.forget_awaited(topic_partition);
                    outcome
                }
            };
            reply.outcomes.push((topic_partition.clone(), outcome));
        }
        reply
    }

    /// Answers no change where the role has to wait for the log.
    fn take_role(
        &self,
        state: &PartitionAssignmentState,
        topic_id: TopicId,
        now: Timestamp,
    ) -> Result<Option<RoleChange>, ControlOutcome> {
        let topic_partition = &state.topic_partition;
        if !state.replicas.contains(&self.me) {
            warn!(topic = %topic_partition.topic, partition = topic_partition.partition.0, "not a replica");
            return Err(ControlOutcome::UnknownPartition);
        }
        let partition = match self.hosted(topic_partition) {
            Some(Hosted::Online(partition)) => partition,
            Some(Hosted::Offline) => return Err(ControlOutcome::StorageError),
            // Under the control lock: a log that is loaded from here on is told after the role has been noted.
            known @ (None | Some(Hosted::Loading(_))) if self.logs.is_loading(topic_partition) => {
                return self.await_log(known, state, topic_id).map(|()| None);
            }
            None | Some(Hosted::Loading(_) | Hosted::Uncreated(_)) => {
                let Some(opened) = self.open(state, topic_id, now)? else { return Ok(None) };
                opened
            }
        };
        let known_id = partition.topic_id();
        if !topic_id.is_zero() && known_id.is_zero() {
            partition.learn_topic_id(topic_id);
        } else if !topic_id.is_zero() && known_id != topic_id {
            return Err(ControlOutcome::InconsistentTopicId);
        }
        let requested = state.leader_and_isr.leader_epoch;
        let current = partition.role().leader_epoch;
        // The same epoch again is what a new controller sends to everyone. The ISR in it may be older than the one
        // that this leader was given since.
        if requested <= current {
            return Err(ControlOutcome::StaleLeaderEpoch);
        }
        partition.take_role(self.me, &state.leader_and_isr, &state.replicas, now).map_err(|error| {
            error!(topic = %topic_partition.topic, partition = topic_partition.partition.0, %error,
                "cannot take the role the controller gives");
            ControlOutcome::StorageError
        })?;
        self.go_on_moving(&partition, now);
        Ok(Some(RoleChange {
            topic_partition: topic_partition.clone(),
            leader: state.leader_and_isr.leader,
            leader_epoch: requested,
            is_leader: state.leader_and_isr.leader == self.me,
        }))
    }

    /// Notes the newest role of a partition whose log is being loaded.
    fn await_log(
        &self,
        known: Option<Hosted>,
        state: &PartitionAssignmentState,
        topic_id: TopicId,
    ) -> Result<(), ControlOutcome> {
        if let Some(Hosted::Loading(known)) = known
            && state.leader_and_isr.leader_epoch <= known.state.leader_and_isr.leader_epoch
        {
            return Err(ControlOutcome::StaleLeaderEpoch);
        }
        let awaited = AwaitedRole { state: state.clone(), topic_id };
        self.set_hosted(&state.topic_partition, Hosted::Loading(Arc::new(awaited)));
        Ok(())
    }

    pub(super) fn set_hosted(&self, topic_partition: &TopicPartition, hosted: Hosted) {
        let mut all = self.hosted.write();
        let of_topic = all.entry(topic_partition.topic.clone()).or_default();
        of_topic.insert(topic_partition.partition.0, hosted);
    }

    /// Drops a role that is still waiting.
    fn forget_awaited(&self, topic_partition: &TopicPartition) {
        if let Some(Hosted::Loading(_) | Hosted::Uncreated(_)) = self.hosted(topic_partition) {
            self.unhost(topic_partition);
        }
    }

    fn unhost(&self, topic_partition: &TopicPartition) {
        let mut all = self.hosted.write();
        if let Some(of_topic) = all.get_mut(&topic_partition.topic) {
            of_topic.remove(&topic_partition.partition.0);
            if of_topic.is_empty() {
                all.remove(&topic_partition.topic);
            }
        }
    }

    /// Opens or creates the log of a partition that is not hosted yet. `None` = it cannot be created now, and the role
    /// waits.
    fn open(
        &self,
        state: &PartitionAssignmentState,
        topic_id: TopicId,
        now: Timestamp,
    ) -> Result<Option<Arc<Partition>>, ControlOutcome> {
        let topic_partition = &state.topic_partition;
        // A replica that was here before may lie in a directory that is offline: an empty one in its place would be
        // taken for it.
        if !state.is_new
            && self.logs.log(topic_partition).is_none()
            && !self.logs.offline_directories().is_empty()
        {
            self.set_hosted(topic_partition, Hosted::Offline);
            return Err(ControlOutcome::StorageError);
        }
        let settings = self.topic_settings(&topic_partition.topic);
        let opened = self.logs.log_or_create(topic_partition, topic_id, settings.log.clone(), None, now);
        let (hosted, result) = match opened {
            Ok(log) => {
                // It may have been loaded under settings that were changed since.
                log.update_config(settings.log.clone());
                let partition = Arc::new(Partition::new(
                    topic_partition.clone(),
                    topic_id,
                    log,
                    settings,
                    Arc::clone(&self.replication),
                ));
                (Hosted::Online(Arc::clone(&partition)), Ok(Some(partition)))
            }
            Err(error) if error.will_pass() => {
                if !matches!(self.hosted(topic_partition), Some(Hosted::Uncreated(_))) {
                    error!(topic = %topic_partition.topic, partition = topic_partition.partition.0, %error,
                        "cannot create the partition's log; it is tried again until it can be");
                }
                let awaited = AwaitedRole { state: state.clone(), topic_id };
                (Hosted::Uncreated(Arc::new(awaited)), Ok(None))
            }
            // A topic of this name that was deleted while its disk was away: it goes when this one is deleted.
            Err(error @ LogError::InconsistentTopicId { .. }) => {
                error!(topic = %topic_partition.topic, partition = topic_partition.partition.0, %error,
                    "cannot take the partition's log");
                return Err(ControlOutcome::InconsistentTopicId);
            }
            Err(error) => {
                // Of those that failed while they were loaded it was told then.
                if !matches!(error, LogError::Failed { .. }) {
                    error!(topic = %topic_partition.topic, partition = topic_partition.partition.0, %error,
                        "cannot open the partition's log");
                }
                (Hosted::Offline, Err(ControlOutcome::StorageError))
            }
        };
        self.set_hosted(topic_partition, hosted);
        result
    }

    /// Drops partitions, and their logs where the request says so.
    pub fn stop_replicas(
        &self,
        request: &StopReplicaRequest,
        now: Timestamp,
    ) -> Result<Vec<(TopicPartition, ControlOutcome)>, ControlRefusal> {
        let _control = self.control.lock();
        self.admit(&request.sender)?;
        let stopped = request.partitions.iter().map(|stop| {
            let outcome = self.stop(stop).err().unwrap_or(ControlOutcome::Done);
            (stop.topic_partition.clone(), outcome)
        });
        let mut outcomes: Vec<(TopicPartition, ControlOutcome)> = stopped.collect();
        // Together, as each directory is synced once for all.
        let deleted: Vec<TopicPartition> = request
            .partitions
            .iter()
            .zip(&outcomes)
            .filter(|(stop, (_, outcome))| stop.delete && *outcome == ControlOutcome::Done)
            .map(|(stop, _)| stop.topic_partition.clone())
            .collect();
        if let Err(error) = self.logs.delete(&deleted, now) {
            error!(%error, "cannot delete logs");
            for (topic_partition, outcome) in &mut outcomes {
                if deleted.contains(topic_partition) {
                    *outcome = ControlOutcome::StorageError;
                }
            }
        }
        Ok(outcomes)
    }

    /// Lets go of one partition; its log is deleted afterwards.
    fn stop(&self, stop: &StopReplica) -> Result<(), ControlOutcome> {
        let topic_partition = &stop.topic_partition;
        // -2 = the topic is being deleted, which ends every epoch; -1 = an old controller.
        let is_fenced = |current: LeaderEpoch| stop.leader_epoch.0 >= 0 && stop.leader_epoch < current;
        match self.hosted(topic_partition) {
            // It would come back with the directory, when the topic is another one of the same name perhaps.
            None if stop.delete
                && (self.logs.is_offline(topic_partition) || self.logs.may_lie_offline(topic_partition)) =>
            {
                return Err(ControlOutcome::StorageError);
            }
            None => {}
            // What cannot be read can be deleted, where the directory works.
            Some(Hosted::Offline) if stop.delete && self.logs.has_failed(topic_partition) => {
                self.unhost(topic_partition);
            }
            Some(Hosted::Offline) => return Err(ControlOutcome::StorageError),
            Some(Hosted::Loading(awaited) | Hosted::Uncreated(awaited)) => {
                if is_fenced(awaited.state.leader_and_isr.leader_epoch) {
                    return Err(ControlOutcome::StaleLeaderEpoch);
                }
                self.unhost(topic_partition);
            }
            Some(Hosted::Online(partition)) => {
                if is_fenced(partition.role().leader_epoch) {
                    return Err(ControlOutcome::StaleLeaderEpoch);
                }
                // Its directory has just failed, and nobody has come to let go of it yet.
                if stop.delete && partition.log().directory().is_offline() {
                    return Err(ControlOutcome::StorageError);
                }
                if stop.delete {
                    self.unhost(topic_partition);
                    partition.end_move();
                }
                partition.resign();
            }
        }
        Ok(())
    }

    /// Refuses controllers that have been replaced, and requests meant for an earlier life of this broker.
    fn admit(&self, sender: &ControlSender) -> Result<(), ControlRefusal> {
        self.check_broker_epoch(sender)?;
        let mut known = self.controller_epoch.lock();
        if sender.controller_epoch < *known {
            return Err(ControlRefusal::StaleControllerEpoch);
        }
        if sender.controller_epoch > *known {
            info!(
                controller_id = sender.controller_id.0,
                controller_epoch = sender.controller_epoch.0,
                "controller"
            );
        }
        *known = sender.controller_epoch;
        Ok(())
    }

    /// As [`Self::become_leader_or_follower`] does it, for UpdateMetadata.
    pub fn admit_metadata(&self, sender: &ControlSender) -> Result<(), ControlRefusal> {
        self.admit(sender)
    }

    fn check_broker_epoch(&self, sender: &ControlSender) -> Result<(), ControlRefusal> {
        let own = self.broker_epoch();
        if sender.broker_epoch.0 >= 0 && sender.broker_epoch < own {
            return Err(ControlRefusal::StaleBrokerEpoch);
        }
        Ok(())
    }

    fn hosted(&self, topic_partition: &TopicPartition) -> Option<Hosted> {
        let all = self.hosted.read();
        all.get(&topic_partition.topic)?.get(&topic_partition.partition.0).cloned()
    }

    /// Waits until every append is committed, its leadership is lost, or the deadline. One result per append.
    pub async fn committed(watched: &[WatchedOffset], deadline: Instant) -> Vec<Result<(), ReplicaError>> {
        let mut results: Vec<Option<Result<(), ReplicaError>>> = watched.iter().map(look).collect();
        if results.iter().all(Option::is_some) {
            return results.into_iter().flatten().collect();
        }
        let waiter = Waiter::new();
        let _registrations: Vec<_> = watched
            .iter()
            .map(|watched| {
                WatchList::register(watched.partition.watchers(), &waiter, Changes::HIGH_WATERMARK)
            })
            .collect();
        loop {
            for (result, watched) in results.iter_mut().zip(watched) {
                if result.is_none() {
                    *result = look(watched);
                }
            }
            let is_done = results.iter().all(Option::is_some);
            if is_done || tokio::time::timeout_at(deadline, waiter.wait()).await.is_err() {
                return results
                    .into_iter()
                    .map(|result| result.unwrap_or(Err(ReplicaError::TimedOut)))
                    .collect();
            }
        }
    }
}

fn look(watched: &WatchedOffset) -> Option<Result<(), ReplicaError>> {
    match watched.partition.is_committed(watched) {
        Ok(true) => Some(Ok(())),
        Ok(false) => None,
        Err(error) => Some(Err(error)),
    }
}

impl Settings {
    fn of(&self, topic: &TopicName) -> Arc<TopicSettings> {
        Arc::clone(self.of_topic.get(topic).unwrap_or(&self.default))
    }
}
