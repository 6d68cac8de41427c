use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::fetch_plan::{FetchPlan, PlannedFetch};
use super::fetchers::{FetcherKey, Parts};
use super::following::Following;
use super::truncation::{self, Truncation};
use super::{Partition, ReplicaError};
use crate::interbroker::{
    ConnectionOptions, FetchedPartition, FollowerFetch, FollowerFetchPartition, Peer, PeerError, RemoteError,
};
use crate::log::LogError;
use crate::model::{LeaderEpoch, Offset, TopicPartition};
use crate::runtime::task;

/// What one fetcher is to fetch. Roles change while it waits for its leader, so it looks here before each step.
#[derive(Default)]
pub(super) struct Assignment {
    assigned: Mutex<Assigned>,
    changed: Notify,
}

#[derive(Default)]
struct Assigned {
    partitions: IndexMap<TopicPartition, Followed>,
    /// Counts changes of what can be fetched.
    generation: u64,
}

/// The partitions that are fetched again and again until the assignment changes. There may be thousands, so that a fetch
/// looks at those alone that the one before brought something for.
struct Round {
    generation: u64,
    /// It is over then, to see what has changed beside the fetches: log starts, for one.
    ends: Instant,
    followed: HashMap<TopicPartition, Followed>,
    answered: Vec<TopicPartition>,
}

#[derive(Clone)]
struct Followed {
    partition: Arc<Partition>,
    following: Following,
    /// The log may hold what the leader's does not, and fetching alone would not show it.
    must_truncate: bool,
    /// Not to be fetched before this, after an error.
    not_before: Option<Instant>,
    /// Not to be fetched until the controller gives the partition another role.
    is_failed: bool,
    /// How far the leader was committed when it last answered; `-1` = it has not.
    leader_high_watermark: Offset,
}

/// What a fetcher has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignmentStatus {
    pub partitions: usize,
    /// Of these, those that are not fetched until their role changes.
    pub failed: usize,
    /// Most committed records that one of them lacks.
    pub lag_max: u64,
}

/// Fetches from one leader and appends what it gets, until the broker stops.
pub(super) struct Fetcher {
    parts: Parts,
    key: FetcherKey,
    assignment: Arc<Assignment>,
    peer: Option<Peer>,
    plan: FetchPlan,
    round: Option<Round>,
    /// Whether the leader answered last time: the log tells when that changes.
    is_reached: bool,
}

/// Far below `replica.fetch.backoff.ms`: producers wait for what is followed.
const SOON: Duration = Duration::from_millis(100);
const ROUND_LENGTH: Duration = Duration::from_secs(3);
/// Rates are taken over seconds.
const THROTTLED_PAUSE: Duration = Duration::from_millis(250);

/// How an answer about one partition was worked in.
enum Step {
    Done,
    /// The leader will know of its leadership in a moment.
    Soon,
    /// Wait before it is asked for again.
    Later,
    /// Give it up until its role changes.
    Failed,
}

impl Followed {
    /// Committed records that the replica lacks; `None` = its leader has not told.
    fn lag(&self) -> Option<u64> {
        let committed = Some(self.leader_high_watermark).filter(|committed| *committed != Offset::NONE)?;
        Some(u64::try_from(committed.0 - self.partition.log().log_end_offset().0).unwrap_or(0))
    }
}

impl Assignment {
    pub(super) fn status(&self) -> AssignmentStatus {
        let all = &self.assigned.lock().partitions;
        AssignmentStatus {
            partitions: all.len(),
            failed: all.values().filter(|followed| followed.is_failed).count(),
            lag_max: all.values().filter_map(Followed::lag).max().unwrap_or(0),
        }
    }

    pub(super) fn add(&self, partition: Arc<Partition>, following: Following) {
        let of = partition.topic_partition().clone();
        let followed = Followed {
            partition,
            following,
            must_truncate: true,
            not_before: None,
            is_failed: false,
            leader_high_watermark: Offset::NONE,
        };
        {
            let mut assigned = self.assigned.lock();
            assigned.partitions.insert(of, followed);
            assigned.generation += 1;
        }
        self.changed.notify_one();
    }

    pub(super) fn remove<'a>(&self, partitions: impl Iterator<Item = &'a TopicPartition>) {
        let mut assigned = self.assigned.lock();
        for of in partitions {
            let is_removed = assigned.partitions.swap_remove(of).is_some();
            assigned.generation += u64::from(is_removed);
        }
    }

    /// Gives everything to others.
    pub(super) fn take(&self) -> Vec<(Arc<Partition>, Following)> {
        let mut assigned = self.assigned.lock();
        assigned.generation += 1;
        let taken = std::mem::take(&mut assigned.partitions);
        taken.into_values().map(|followed| (followed.partition, followed.following)).collect()
    }

    /// Those that can be fetched now, and the generation that they are of; or when the next one can be.
    fn ready(&self, now: Instant) -> Result<(Vec<Followed>, u64), Option<Instant>> {
        let mut assigned = self.assigned.lock();
        let generation = assigned.generation;
        let all = &mut assigned.partitions;
        all.retain(|_, followed| followed.partition.is_following(&followed.following));
        let waiting = all.values().filter(|followed| !followed.is_failed);
        let (ready, later): (Vec<&Followed>, Vec<&Followed>) =
            waiting.partition(|followed| followed.not_before.is_none_or(|at| at <= now));
        if ready.is_empty() {
            return Err(later.iter().filter_map(|followed| followed.not_before).min());
        }
        Ok((ready.into_iter().cloned().collect(), generation))
    }

    fn generation(&self) -> u64 {
        self.assigned.lock().generation
    }

    fn find(&self, of: &TopicPartition) -> Option<Followed> {
        self.assigned.lock().partitions.get(of).cloned()
    }

    /// Changes what is known of a partition, unless it has another role by now.
    fn update(&self, of: &TopicPartition, following: &Following, change: impl FnOnce(&mut Followed)) {
        let mut assigned = self.assigned.lock();
        let known = assigned.partitions.get_mut(of);
        if let Some(followed) = known.filter(|followed| followed.following == *following) {
            change(followed);
        }
    }

    /// As [`Assignment::update`], for what decides whether a partition can be fetched.
    fn hinder(&self, of: &TopicPartition, following: &Following, change: impl FnOnce(&mut Followed)) {
        self.update(of, following, change);
        self.assigned.lock().generation += 1;
    }
}

impl Fetcher {
    pub(super) fn new(parts: Parts, key: FetcherKey, assignment: Arc<Assignment>) -> Fetcher {
        let plan = FetchPlan::default();
        Fetcher { parts, key, assignment, peer: None, plan, round: None, is_reached: true }
    }

    pub(super) async fn run(mut self) {
        let mut stopping = self.parts.shutdown.requested();
        tokio::select! {
            () = self.fetch_for_ever() => {}
            () = &mut stopping => {}
        }
    }

    async fn fetch_for_ever(&mut self) {
        loop {
            if let Some(round) = self.round_to_go_on() {
                self.fetch_again(round).await;
                continue;
            }
            let (ready, generation) = match self.assignment.ready(Instant::now()) {
                Ok(ready) => ready,
                Err(next) => {
                    let assignment = Arc::clone(&self.assignment);
                    tokio::select! {
                        () = assignment.changed.notified() => {}
                        () = wait_until(next) => {}
                    }
                    continue;
                }
            };
            if !self.find_leader() {
                self.leader_known_or_changed().await;
                continue;
            }
            let mut ready = self.truncate_all(ready).await;
            let is_held_back = self.hold_back(&mut ready);
            if !ready.is_empty() {
                self.fetch_all(ready, generation).await;
            } else if is_held_back {
                let assignment = Arc::clone(&self.assignment);
                tokio::select! {
                    () = assignment.changed.notified() => {}
                    () = sleep(THROTTLED_PAUSE) => {}
                }
            }
        }
    }

    /// Leaves out throttled partitions that are not in sync, while more is fetched than may be.
    fn hold_back(&self, ready: &mut Vec<Followed>) -> bool {
        let is_throttled =
            |followed: &Followed| followed.lag() != Some(0) && followed.partition.is_throttled_as_follower();
        let throttle = &self.parts.replicas.throttles().follower;
        if !ready.iter().any(is_throttled) || !throttle.is_exceeded(self.parts.clock.now()) {
            return false;
        }
        ready.retain(|followed| !is_throttled(followed));
        true
    }

    /// Keeps the connection as long as the leader stays where it is.
    fn find_leader(&mut self) -> bool {
        let options = &self.parts.options;
        let image = self.parts.metadata.image();
        let Some(endpoint) = image.endpoint(self.key.leader, &options.listener) else {
            self.peer = None;
            return false;
        };
        if self.peer.as_ref().is_none_or(|peer| peer.endpoint() != endpoint) {
            let client_id = format!("broker-{}-fetcher-{}", self.parts.me, self.key.index);
            let connection = ConnectionOptions {
                network: options.network.clone(),
                client_id: client_id.into(),
                request_timeout: options.request_timeout,
            };
            self.peer = Some(Peer::new(endpoint.clone(), connection, options.versions));
            self.plan = FetchPlan::default();
        }
        true
    }

    /// Waits until somebody has told where the leader listens, or there is something else to fetch.
    async fn leader_known_or_changed(&self) {
        let (leader, listener) = (self.key.leader, self.parts.options.listener.as_str());
        let known = self.parts.metadata.wait_until(|image| image.endpoint(leader, listener).is_some());
        tokio::select! {
            _ = known => {}
            () = self.assignment.changed.notified() => {}
        }
    }

    fn delay_all<'a>(&self, partitions: impl Iterator<Item = &'a Followed>) {
        for followed in partitions {
            self.delay(followed, self.parts.options.backoff);
        }
    }

    fn delay(&self, followed: &Followed, pause: Duration) {
        let not_before = Instant::now() + pause;
        self.assignment.hinder(followed.partition.topic_partition(), &followed.following, |followed| {
            followed.not_before = Some(not_before);
        });
    }

    /// Makes new followers' logs agree with the leader's as far as fetching does not; gives those that can be fetched.
    async fn truncate_all(&self, ready: Vec<Followed>) -> Vec<Followed> {
        let mut agreeing = Vec::with_capacity(ready.len());
        for mut followed in ready {
            if followed.must_truncate {
                match self.truncate(&followed).await {
                    Step::Done => {
                        followed.must_truncate = false;
                        let of = followed.partition.topic_partition();
                        self.assignment.update(of, &followed.following, |followed| {
                            followed.must_truncate = false;
                        });
                    }
                    step => {
                        self.settle(&followed, step);
                        continue;
                    }
                }
            }
            agreeing.push(followed);
        }
        agreeing
    }

    async fn truncate(&self, followed: &Followed) -> Step {
        let log = followed.partition.log();
        let mut epoch = log.latest_epoch();
        if epoch == LeaderEpoch::UNKNOWN {
            // Without epochs nothing above the high watermark can be told to be the leader's.
            let high_watermark = log.high_watermark();
            return match high_watermark >= log.log_end_offset() {
                true => Step::Done,
                false => self.truncate_to(followed, high_watermark).await,
            };
        }
        if self.parts.options.versions.truncates_on_fetch {
            return Step::Done;
        }
        let Some(peer) = &self.peer else { return Step::Later };
        let of = followed.partition.topic_partition();
        loop {
            let current = followed.following.leader_epoch;
            let answer = peer.end_offset_for_epoch(self.parts.me, of, current, epoch).await;
            let leader = match answer {
                Ok(leader) => leader,
                Err(error) => return self.refused(followed, &error),
            };
            let Truncation { to, is_final } = decide(&followed.partition, leader);
            let step = self.truncate_to(followed, to).await;
            if is_final || !matches!(step, Step::Done) {
                return step;
            }
            epoch = log.latest_epoch();
        }
    }

    /// Cuts files, so off the workers.
    async fn truncate_to(&self, followed: &Followed, to: Offset) -> Step {
        let (partition, following) = (Arc::clone(&followed.partition), followed.following);
        let now = self.parts.clock.now();
        let cut = move || partition.truncate_as_follower(&following, to, now);
        self.on_disk(followed, cut).await
    }

    async fn on_disk(
        &self,
        followed: &Followed,
        work: impl FnOnce() -> Result<(), ReplicaError> + Send + 'static,
    ) -> Step {
        match task::blocking(work).await {
            Ok(Ok(())) => Step::Done,
            Ok(Err(error)) => failure(followed, &error),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// The round under way, as long as its partitions are those that can be fetched.
    fn round_to_go_on(&mut self) -> Option<Round> {
        let round = self.round.take()?;
        let is_same = self.plan.is_in_session() && round.generation == self.assignment.generation();
        if !is_same || Instant::now() >= round.ends {
            return None;
        }
        // It may listen elsewhere by now.
        (self.find_leader() && self.plan.is_in_session()).then_some(round)
    }

    async fn fetch_all(&mut self, ready: Vec<Followed>, generation: u64) {
        let wanted = ready.iter().map(|followed| self.wanted(followed)).collect();
        let planned = self.plan.next(wanted, self.parts.options.versions.fetch >= 13);
        // Throttled ones are let in or kept out before each fetch.
        let is_throttled = ready.iter().any(|followed| followed.partition.is_throttled_as_follower());
        let ends = if is_throttled { Instant::now() } else { Instant::now() + ROUND_LENGTH };
        let by_partition =
            ready.into_iter().map(|followed| (followed.partition.topic_partition().clone(), followed));
        let followed = by_partition.collect();
        self.fetch(planned, Round { generation, ends, followed, answered: Vec::new() }).await;
    }

    async fn fetch_again(&mut self, mut round: Round) {
        let answered = std::mem::take(&mut round.answered);
        let followed = answered.iter().filter_map(|of| round.followed.get(of));
        let wanted = followed.map(|followed| self.wanted(followed)).collect();
        let planned = self.plan.next_of(wanted);
        self.fetch(planned, round).await;
    }

    async fn fetch(&mut self, planned: PlannedFetch, mut round: Round) {
        let Some(peer) = self.peer.take() else { return };
        let fetch = self.request(planned);
        let fetched = peer.fetch(fetch, self.plan.names()).await;
        self.peer = Some(peer);
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                self.plan.failed();
                self.not_reached(&error);
                self.delay_all(round.followed.values());
                return;
            }
        };
        self.reached();
        if let Some(error) = fetched.error {
            debug!(broker_id = self.key.leader.0, ?error, "the leader refused the fetch as a whole");
            match error {
                RemoteError::FetchSessionIdNotFound => self.plan.session_lost(),
                RemoteError::InvalidFetchSessionEpoch | RemoteError::FetchSessionTopicIdError => {
                    self.plan.failed();
                }
                _ => {
                    self.plan.failed();
                    self.delay_all(round.followed.values());
                }
            }
            return;
        }
        self.plan.answered(fetched.session_id);
        for answer in fetched.partitions {
            let Some(followed) = round.followed.get(&answer.topic_partition) else { continue };
            round.answered.push(answer.topic_partition.clone());
            self.take_in(followed, answer).await;
        }
        self.round = Some(round);
    }

    async fn take_in(&self, followed: &Followed, answer: FetchedPartition) {
        let of = &answer.topic_partition;
        let Some(fetch_offset) = self.plan.fetch_offset(of) else { return };
        // It has another role by now.
        if self.assignment.find(of).is_none_or(|now| now.following != followed.following) {
            return;
        }
        // The log has changed since it asked: the answer is about another place.
        if followed.partition.log().log_end_offset() != fetch_offset {
            return;
        }
        let step = self.work_in(followed, fetch_offset, answer).await;
        self.settle(followed, step);
    }

    fn wanted(&self, followed: &Followed) -> FollowerFetchPartition {
        let options = &self.parts.options;
        let log = followed.partition.log();
        let tells_epoch = options.versions.truncates_on_fetch;
        FollowerFetchPartition {
            topic_partition: followed.partition.topic_partition().clone(),
            topic_id: followed.partition.topic_id(),
            leader_epoch: followed.following.leader_epoch,
            fetch_offset: log.log_end_offset(),
            last_fetched_epoch: if tells_epoch { log.latest_epoch() } else { LeaderEpoch::UNKNOWN },
            log_start_offset: log.log_start_offset(),
            bytes_max: options.partition_bytes_max,
        }
    }

    fn request(&self, planned: PlannedFetch) -> FollowerFetch {
        let options = &self.parts.options;
        FollowerFetch {
            replica_id: self.parts.me,
            broker_epoch: self.parts.replicas.broker_epoch(),
            wait_max_ms: options.wait_max_ms,
            bytes_min: options.bytes_min,
            bytes_max: options.response_bytes_max,
            session_id: planned.session_id,
            session_epoch: planned.session_epoch,
            uses_topic_ids: planned.uses_topic_ids,
            partitions: planned.partitions,
            forgotten: planned.forgotten,
        }
    }

    async fn work_in(&self, followed: &Followed, fetch_offset: Offset, answer: FetchedPartition) -> Step {
        match answer.error {
            None => {}
            Some(RemoteError::OffsetOutOfRange) => return self.out_of_range(followed).await,
            Some(error) => return refused_by(followed, error),
        }
        if let Some(leader) = answer.diverging {
            return self.diverged(followed, leader).await;
        }
        self.append(followed, fetch_offset, answer)
    }

    async fn diverged(&self, followed: &Followed, leader: truncation::LeaderEnd) -> Step {
        let log = followed.partition.log();
        let before = (log.log_end_offset(), log.latest_epoch());
        let step = self.truncate_to(followed, decide(&followed.partition, leader).to).await;
        // The same fetch would be answered the same way, again and again.
        let is_same = (log.log_end_offset(), log.latest_epoch()) == before;
        if is_same && matches!(step, Step::Done) { Step::Later } else { step }
    }

    /// Writes inline: the records are in memory, and one write of them costs less than a hop to another thread.
    fn append(&self, followed: &Followed, fetch_offset: Offset, answer: FetchedPartition) -> Step {
        let Followed { partition, following, .. } = followed;
        if !answer.records.is_empty() {
            let now = self.parts.clock.now();
            if partition.is_throttled_as_follower() {
                self.parts.replicas.throttles().follower.record(answer.records.len(), now);
            }
            let appended = partition.append_as_follower(following, fetch_offset, answer.records, now);
            let info = match appended {
                Ok(Some(info)) => info,
                Ok(None) => return Step::Done,
                Err(error) => return failure(followed, &error),
            };
            // The flush goes on beside; its failure takes the directory offline, which the next append finds.
            drop(partition.start_flush(info.flush, self.parts.clock.now()));
        }
        self.assignment.update(partition.topic_partition(), following, |followed| {
            followed.leader_high_watermark = answer.high_watermark;
        });
        match partition.follow_offsets(following, answer.high_watermark, answer.log_start_offset) {
            Ok(()) => Step::Done,
            Err(error) => failure(followed, &error),
        }
    }

    /// The leader's log does not have the offset that this one ends at.
    async fn out_of_range(&self, followed: &Followed) -> Step {
        let Some(peer) = &self.peer else { return Step::Later };
        let (of, epoch) = (followed.partition.topic_partition(), followed.following.leader_epoch);
        let own_end = followed.partition.log().log_end_offset();
        let leader_end = match peer.log_end_offset(self.parts.me, of, epoch).await {
            Ok(leader_end) => leader_end,
            Err(error) => return self.refused(followed, &error),
        };
        if leader_end < own_end {
            return self.truncate_to(followed, leader_end).await;
        }
        let leader_start = match peer.log_start_offset(self.parts.me, of, epoch).await {
            Ok(leader_start) => leader_start,
            Err(error) => return self.refused(followed, &error),
        };
        if own_end >= leader_start {
            // It is in range by now.
            return Step::Later;
        }
        let (partition, following) = (Arc::clone(&followed.partition), followed.following);
        let now = self.parts.clock.now();
        let begin = move || partition.start_anew_as_follower(&following, leader_start, now);
        self.on_disk(followed, begin).await
    }

    fn refused(&self, followed: &Followed, error: &PeerError) -> Step {
        match error {
            PeerError::Refused { error } => refused_by(followed, *error),
            error => {
                debug!(broker_id = self.key.leader.0, %error, "the leader did not answer a follower");
                Step::Later
            }
        }
    }

    fn settle(&self, followed: &Followed, step: Step) {
        match step {
            Step::Done => {}
            Step::Soon => self.delay(followed, self.parts.options.backoff.min(SOON)),
            Step::Later => self.delay(followed, self.parts.options.backoff),
            Step::Failed => {
                let of = followed.partition.topic_partition();
                self.assignment.hinder(of, &followed.following, |followed| followed.is_failed = true);
            }
        }
    }

    fn not_reached(&mut self, error: &PeerError) {
        if std::mem::take(&mut self.is_reached) {
            info!(broker_id = self.key.leader.0, fetcher = self.key.index, %error, "cannot fetch from the leader");
        }
    }

    fn reached(&mut self) {
        if !std::mem::replace(&mut self.is_reached, true) {
            info!(broker_id = self.key.leader.0, fetcher = self.key.index, "fetching from the leader again");
        }
    }
}

fn decide(partition: &Partition, leader: truncation::LeaderEnd) -> Truncation {
    let log = partition.log();
    let own = |epoch| {
        let end = log.end_offset_for_epoch(epoch);
        (end.epoch, end.end_offset)
    };
    truncation::decide(leader, own, log.high_watermark(), log.log_end_offset())
}

fn refused_by(followed: &Followed, error: RemoteError) -> Step {
    let TopicPartition { topic, partition } = followed.partition.topic_partition();
    let leader_epoch = followed.following.leader_epoch.0;
    match error {
        RemoteError::FencedLeaderEpoch => {
            info!(%topic, partition = partition.0, leader_epoch, "the partition has a newer leader");
            Step::Failed
        }
        // A broker hears of its leaderships a moment before or after its followers do.
        RemoteError::UnknownLeaderEpoch
        | RemoteError::NotLeaderOrFollower
        | RemoteError::UnknownTopicOrPartition
        | RemoteError::UnknownTopicId
        | RemoteError::InconsistentTopicId => {
            debug!(%topic, partition = partition.0, leader_epoch, ?error, "the leader is not ready");
            Step::Soon
        }
        error => {
            warn!(%topic, partition = partition.0, leader_epoch, ?error, "the leader refuses to be fetched from");
            Step::Later
        }
    }
}

fn failure(followed: &Followed, failed: &ReplicaError) -> Step {
    let TopicPartition { topic, partition } = followed.partition.topic_partition();
    let leader_epoch = followed.following.leader_epoch.0;
    match failed {
        // The role has changed.
        ReplicaError::NotLeaderOrFollower => Step::Done,
        ReplicaError::Log { source: LogError::DiskFull { .. } | LogError::TooManyOpenFiles { .. } } => {
            warn!(%topic, partition = partition.0, leader_epoch, error = %failed, "cannot append");
            Step::Later
        }
        ReplicaError::Records { .. }
        | ReplicaError::Log { source: LogError::Records { .. } | LogError::OffsetsOutOfOrder { .. } } => {
            error!(%topic, partition = partition.0, leader_epoch, error = %failed, "the leader sent damaged records");
            Step::Later
        }
        _ => {
            error!(%topic, partition = partition.0, leader_epoch, error = %failed, "following no more");
            Step::Failed
        }
    }
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
