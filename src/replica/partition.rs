use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use snafu::ensure;
use tokio::task::JoinHandle;

use super::ReplicaError;
use super::error::{
    FencedLeaderEpochSnafu, NotEnoughReplicasSnafu, NotLeaderOrFollowerSnafu, OffsetOutOfRangeSnafu,
    StorageSnafu, UnknownLeaderEpochSnafu,
};
use super::isr::InSync;
use super::leading::Replication;
use super::moving::Moving;
use super::throttle::ThrottledReplicas;
use crate::log::{
    AbortedTransaction, AppendInfo, EpochEndOffset, FlushWanted, Log, LogConfig, LogError, LogRead,
    ProducerRules, VerificationGuard,
};
use crate::metadata::control::LeaderAndIsr;
use crate::model::{
    BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp, TopicId, TopicPartition,
};
use crate::purgatory::{Changes, WatchList};
use crate::records::{ValidatedRecords, ValidationRules};
use crate::runtime::task;

/// A topic's settings, as values: what its logs keep, what may be appended, how many replicas must have it.
#[derive(Clone, Debug)]
pub struct TopicSettings {
    pub log: Arc<LogConfig>,
    pub validation: ValidationRules,
    /// `message.downconversion.enable`.
    pub is_down_converted: bool,
    /// `min.insync.replicas`.
    pub min_insync_replicas: usize,
    /// `leader.replication.throttled.replicas`, as far as this broker's are meant.
    pub throttled_as_leader: ThrottledReplicas,
    /// `follower.replication.throttled.replicas`, likewise.
    pub throttled_as_follower: ThrottledReplicas,
}

/// One replica of a partition on this broker, leader or follower.
///
/// Positions: log_start_offset ≤ last_stable_offset ≤ high_watermark ≤ log_end_offset; all live in the
/// [`Log`]. Only the leader moves the high watermark here: to the least log end offset of the in-sync replicas.
pub struct Partition {
    pub(super) topic_partition: TopicPartition,
    topic_id: RwLock<TopicId>,
    /// Changed only when a copy in another directory takes its place, with the leadership held in write mode.
    pub(super) log: ArcSwap<Log>,
    /// The copy that takes the log's place when it has caught up. Taken after `leadership`.
    pub(super) moving: Mutex<Option<Moving>>,
    pub(super) role: ArcSwap<Role>,
    pub(super) settings: ArcSwap<TopicSettings>,
    pub(super) watchers: Arc<WatchList>,
    /// Empty where this broker follows.
    pub(super) in_sync: Mutex<InSync>,
    pub(super) replication: Arc<Replication>,
    /// Held in read mode while an append or a follower's progress is worked in, and in write mode for a role
    /// change, so that nothing of an old leadership lands after the new one began. Taken before `in_sync`.
    pub(super) leadership: RwLock<()>,
}

/// What this broker is for a partition, and who else has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub is_leader: bool,
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    /// The first epoch of a leader's leadership. The controller gives a new one whenever a replica or the assignment
    /// changes, and the leader stays.
    pub leads_since: LeaderEpoch,
    pub partition_epoch: i32,
    pub isr: Vec<BrokerId>,
    pub replicas: Vec<BrokerId>,
    /// The log end offset when this leadership began.
    pub epoch_start_offset: Offset,
}

impl Role {
    /// Whether this broker has led without a break since it led in `leader_epoch`: its log has nothing but what it
    /// appended itself from then on.
    pub fn has_led_since(&self, leader_epoch: LeaderEpoch) -> bool {
        self.is_leader && (self.leads_since..=self.leader_epoch).contains(&leader_epoch)
    }
}

/// Who appends, and what must hold for it.
#[derive(Clone, Copy, Debug)]
pub struct AppendOptions {
    pub producer: ProducerRules,
    /// The ISR must have `min.insync.replicas` members beforehand: acks=all.
    pub needs_isr: bool,
    /// An epoch of the leadership that the appender believes in; `None` = whatever it is.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What became of an append.
#[derive(Clone, Debug)]
pub struct Appended {
    pub info: AppendInfo,
    /// The append is committed when the high watermark reaches this.
    pub required_offset: Offset,
    /// The leadership under which it was appended.
    pub leader_epoch: LeaderEpoch,
}

/// How far a reader may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Followers and the debug consumer: to the log end offset.
    LogEnd,
    /// `read_uncommitted`: to the high watermark.
    HighWatermark,
    /// `read_committed`: to the last stable offset.
    Committed,
}

/// What a fetch wants of one partition.
#[derive(Clone, Copy, Debug)]
pub struct ReadParameters {
    pub fetch_offset: Offset,
    pub bytes_max: usize,
    /// Give the first batch even if it is larger than `bytes_max`.
    pub at_least_one_batch: bool,
    pub isolation: Isolation,
    /// `-1` skips the check.
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the reader's last record; `-1` skips the divergence check.
    pub last_fetched_epoch: LeaderEpoch,
    /// Only the leader may answer.
    pub needs_leader: bool,
    /// Look at the positions alone, as the reader is throttled.
    pub is_held_back: bool,
    /// Whether the disk may be waited for; otherwise [`LogError::WouldBlock`] says that it would have to be.
    pub may_wait: bool,
}

/// What a fetch gets of one partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionRead {
    pub log_end_offset: Offset,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start_offset: Offset,
    /// Nothing when the reader has diverged or nothing is new.
    pub read: Option<LogRead>,
    /// `Some` for `read_committed`: the aborted transactions that touch what was read, in the order of their ends, as in
    /// Kafka.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// Read from this replica instead (KIP-392).
    pub preferred: Option<BrokerId>,
    /// The reader's log left ours: truncate to the end of this epoch.
    pub diverging: Option<(LeaderEpoch, Offset)>,
}

/// A position that somebody waits for.
#[derive(Clone)]
pub struct WatchedOffset {
    pub partition: Arc<Partition>,
    pub required_offset: Offset,
    /// The leadership under which it was appended.
    pub leader_epoch: LeaderEpoch,
}

impl Partition {
    pub(super) fn new(
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Arc<Log>,
        settings: Arc<TopicSettings>,
        replication: Arc<Replication>,
    ) -> Partition {
        let role = Role {
            is_leader: false,
            leader: BrokerId::NONE,
            leader_epoch: LeaderEpoch::UNKNOWN,
            leads_since: LeaderEpoch::UNKNOWN,
            partition_epoch: -1,
            isr: Vec::new(),
            replicas: Vec::new(),
            epoch_start_offset: Offset::NONE,
        };
        Partition {
            topic_partition,
            topic_id: RwLock::new(topic_id),
            log: ArcSwap::new(log),
            moving: Mutex::default(),
            role: ArcSwap::from_pointee(role),
            settings: ArcSwap::new(settings),
            watchers: Arc::new(WatchList::default()),
            in_sync: Mutex::default(),
            replication,
            leadership: RwLock::new(()),
        }
    }

    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub fn topic_id(&self) -> TopicId {
        *self.topic_id.read()
    }

    pub(super) fn learn_topic_id(&self, topic_id: TopicId) {
        *self.topic_id.write() = topic_id;
    }

    /// The log as it is now: a move to another directory puts another one in its place, and closes this one.
    pub fn log(&self) -> Arc<Log> {
        self.log.load_full()
    }

    /// Does something with the log; again, if it was moved to another directory meanwhile, with the one in its place.
    pub fn with_log<T>(&self, work: impl Fn(&Log) -> Result<T, LogError>) -> Result<T, LogError> {
        let log = self.log();
        match work(&log) {
            Err(error @ (LogError::Closed { .. } | LogError::SegmentDeleted)) => match self.moved_log(&log) {
                Some(moved) => work(&moved),
                None => Err(error),
            },
            done => done,
        }
    }

    /// The log in the place of one that was found closed.
    fn moved_log(&self, closed: &Arc<Log>) -> Option<Arc<Log>> {
        // Whoever puts another one there holds the leadership meanwhile.
        let _shared = self.leadership.read();
        let log = self.log();
        (!Arc::ptr_eq(closed, &log)).then_some(log)
    }

    /// Notes that a batch waits until its transaction is verified, as [`Log::begin_verification`].
    pub fn begin_verification(
        &self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: i32,
        now: Timestamp,
    ) -> Option<VerificationGuard> {
        // In a log that is being replaced it would be lost.
        let _shared = self.leadership.read();
        self.log().begin_verification(producer_id, epoch, sequence, now)
    }

    pub fn role(&self) -> Arc<Role> {
        self.role.load_full()
    }

    pub fn settings(&self) -> Arc<TopicSettings> {
        self.settings.load_full()
    }

    pub fn watchers(&self) -> &Arc<WatchList> {
        &self.watchers
    }

    pub(super) fn change_settings(&self, settings: Arc<TopicSettings>) {
        self.log().update_config(settings.log.clone());
        self.settings.store(settings);
    }

    /// Takes the role that the controller gives. `me` decides whether that is leader or follower. Its leader epoch
    /// is newer than the one before.
    pub(super) fn take_role(
        &self,
        me: BrokerId,
        state: &LeaderAndIsr,
        replicas: &[BrokerId],
        now: Timestamp,
    ) -> Result<(), ReplicaError> {
        let _exclusive = self.leadership.write();
        // A follower writes nothing here that would tell.
        ensure!(!self.log().directory().is_offline(), StorageSnafu);
        let is_leader = state.leader == me;
        let before = self.role.load();
        let epoch_start_offset = if is_leader {
            let log = self.log();
            let end = log.log_end_offset();
            log.assign_epoch(state.leader_epoch, end)?;
            end
        } else {
            before.epoch_start_offset
        };
        let role = Arc::new(Role {
            is_leader,
            leader: state.leader,
            leader_epoch: state.leader_epoch,
            leads_since: if before.is_leader { before.leads_since } else { state.leader_epoch },
            partition_epoch: state.partition_epoch,
            isr: state.isr.clone(),
            replicas: replicas.to_vec(),
            epoch_start_offset,
        });
        {
            let mut in_sync = self.in_sync.lock();
            if is_leader {
                in_sync.take_role(me, state.leader_epoch, &state.isr, replicas, now);
            } else {
                in_sync.clear();
            }
        }
        self.role.store(Arc::clone(&role));
        self.advance_high_watermark(&role, now);
        self.watchers.wake_all();
        Ok(())
    }

    /// This broker holds the partition no more: whoever waits for it is told.
    pub(super) fn resign(&self) {
        let _exclusive = self.leadership.write();
        let mut role = Role::clone(&self.role.load());
        role.is_leader = false;
        role.leader = BrokerId::NONE;
        self.in_sync.lock().clear();
        self.role.store(Arc::new(role));
        self.watchers.wake_all();
    }

    /// Appends as leader.
    pub fn append(
        &self,
        records: ValidatedRecords,
        options: &AppendOptions,
        now: Timestamp,
    ) -> Result<Appended, ReplicaError> {
        let shared = self.leadership.read();
        let role = self.role.load();
        ensure!(role.is_leader, NotLeaderOrFollowerSnafu);
        let is_of_leadership = options.leader_epoch.is_none_or(|epoch| role.has_led_since(epoch));
        ensure!(is_of_leadership, NotLeaderOrFollowerSnafu);
        if options.needs_isr {
            let min_insync_replicas = self.effective_min_insync_replicas(&role);
            let isr = role.isr.len();
            ensure!(isr >= min_insync_replicas, NotEnoughReplicasSnafu { isr, min_insync_replicas });
        }
        let info = self.log().append_as_leader(records, role.leader_epoch, options.producer, now)?;
        let is_visible = self.advance_high_watermark(&role, now);
        drop(shared);
        let visible = if is_visible { Changes::HIGH_WATERMARK } else { Changes::LOG_END };
        self.watchers.wake(Changes::LOG_END.and(visible));
        let required_offset = info.last_offset.plus(1);
        Ok(Appended { info, required_offset, leader_epoch: role.leader_epoch })
    }

    /// Whether an append is committed: `Ok(false)` = not yet. A new epoch of the same leader leaves it as it is.
    pub fn is_committed(&self, watched: &WatchedOffset) -> Result<bool, ReplicaError> {
        let role = self.role.load();
        let log = self.log();
        ensure!(!log.directory().is_offline(), StorageSnafu);
        ensure!(role.has_led_since(watched.leader_epoch), NotLeaderOrFollowerSnafu);
        if log.high_watermark() < watched.required_offset {
            return Ok(false);
        }
        let is_enough = role.replicas.len() <= 1
            || self.in_sync.lock().maximal_count() >= self.effective_min_insync_replicas(&role);
        if is_enough { Ok(true) } else { Err(ReplicaError::NotEnoughReplicasAfterAppend) }
    }

    /// Checks what every request that names a leader epoch is checked for.
    pub fn check_leader_epoch(
        &self,
        requested: LeaderEpoch,
        needs_leader: bool,
    ) -> Result<Arc<Role>, ReplicaError> {
        let role = self.role.load_full();
        if requested != LeaderEpoch::UNKNOWN {
            let current = role.leader_epoch;
            ensure!(requested >= current, FencedLeaderEpochSnafu { requested, current });
            ensure!(requested <= current, UnknownLeaderEpochSnafu { requested, current });
        }
        ensure!(role.is_leader || !needs_leader, NotLeaderOrFollowerSnafu);
        Ok(role)
    }

    /// The first offset that a reader of this isolation may not see.
    pub fn visible_end(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::LogEnd => self.log().log_end_offset(),
            Isolation::HighWatermark => self.log().high_watermark(),
            Isolation::Committed => self.log().last_stable_offset(),
        }
    }

    /// The log's offsets, without records.
    pub fn positions(&self) -> PartitionRead {
        positions(&self.log())
    }

    pub fn read(&self, parameters: &ReadParameters) -> Result<PartitionRead, ReplicaError> {
        let log = self.log();
        match self.read_from(&log, parameters) {
            Err(error @ ReplicaError::Log { source: LogError::Closed { .. } | LogError::SegmentDeleted }) => {
                match self.moved_log(&log) {
                    Some(moved) => self.read_from(&moved, parameters),
                    None => Err(error),
                }
            }
            read => read,
        }
    }

    fn read_from(&self, log: &Log, parameters: &ReadParameters) -> Result<PartitionRead, ReplicaError> {
        self.check_leader_epoch(parameters.current_leader_epoch, parameters.needs_leader)?;
        let positions = positions(log);
        let PartitionRead { log_end_offset, high_watermark, last_stable_offset, log_start_offset, .. } =
            positions;
        if parameters.last_fetched_epoch != LeaderEpoch::UNKNOWN
            && let Some(diverging) = diverging(log, parameters)?
        {
            return Ok(PartitionRead { diverging: Some(diverging), ..positions });
        }
        let offset = parameters.fetch_offset;
        ensure!(
            log_start_offset <= offset && offset <= log_end_offset,
            OffsetOutOfRangeSnafu { offset, log_start_offset, log_end_offset }
        );
        let bound = match parameters.isolation {
            Isolation::LogEnd => log_end_offset,
            Isolation::HighWatermark => high_watermark,
            Isolation::Committed => last_stable_offset,
        };
        let read = if offset < bound && !parameters.is_held_back {
            Some(read_log(log, parameters, bound)?)
        } else {
            None
        };
        let aborted = match (parameters.isolation, &read) {
            (Isolation::Committed, Some(read)) => Some(log.aborted_transactions(offset, read.upper_offset)?),
            (Isolation::Committed, None) => Some(Vec::new()),
            _ => None,
        };
        Ok(PartitionRead { read, aborted, ..positions })
    }

    /// Starts the flush that an append asked for, off this thread. Wait for it when it is
    /// [`FlushWanted::Everything`].
    pub fn start_flush(
        self: &Arc<Self>,
        wanted: FlushWanted,
        now: Timestamp,
    ) -> Option<JoinHandle<Result<(), LogError>>> {
        if wanted == FlushWanted::Nothing {
            return None;
        }
        let (partition, log) = (Arc::clone(self), self.log());
        Some(task::blocking(move || match log.flush(wanted, now) {
            // The copy in its place was durable before it got there.
            Err(LogError::Closed { .. }) if partition.moved_log(&log).is_some() => Ok(()),
            flushed => flushed,
        }))
    }
}

/// The log's offsets, without records.
fn positions(log: &Log) -> PartitionRead {
    // They are read once, in this order, so that the answer never shows a bound below what it gives.
    let log_end_offset = log.log_end_offset();
    let high_watermark = log.high_watermark();
    let last_stable_offset = log.last_stable_offset().min(high_watermark);
    let log_start_offset = log.log_start_offset();
    PartitionRead {
        log_end_offset,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        ..PartitionRead::default()
    }
}

fn read_log(log: &Log, parameters: &ReadParameters, bound: Offset) -> Result<LogRead, LogError> {
    let ReadParameters { fetch_offset, bytes_max, at_least_one_batch, .. } = *parameters;
    if parameters.may_wait {
        log.read(fetch_offset, bytes_max, bound, at_least_one_batch)
    } else {
        log.read_if_cached(fetch_offset, bytes_max, bound, at_least_one_batch)
    }
}

/// The largest epoch and its end up to which the reader's log agrees with this one; `None` while it agrees.
fn diverging(log: &Log, parameters: &ReadParameters) -> Result<Option<(LeaderEpoch, Offset)>, ReplicaError> {
    let EpochEndOffset { epoch, end_offset } = log.end_offset_for_epoch(parameters.last_fetched_epoch);
    ensure!(
        epoch != LeaderEpoch::UNKNOWN,
        OffsetOutOfRangeSnafu {
            offset: parameters.fetch_offset,
            log_start_offset: log.log_start_offset(),
            log_end_offset: log.log_end_offset(),
        }
    );
    let has_diverged = epoch < parameters.last_fetched_epoch || end_offset < parameters.fetch_offset;
    Ok(has_diverged.then_some((epoch, end_offset)))
}
