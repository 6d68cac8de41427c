use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{debug, error, warn};

use super::moving::MoveStep;
use super::{Partition, ReplicaError, ReplicaManager};
use crate::log::LogError;
use crate::model::{Timestamp, TopicPartition};
use crate::runtime::Clock;
use crate::runtime::task::{self, Shutdown};

/// Copies logs that move between log directories, several at a time, no faster than
/// `replica.alter.log.dirs.io.max.bytes.per.second` together.
pub struct LogDirMover {
    replicas: Arc<ReplicaManager>,
    clock: Clock,
    options: LogDirMoverOptions,
    throttle: Mutex<MoveThrottle>,
}

#[derive(Clone, Copy, Debug)]
pub struct LogDirMoverOptions {
    /// `num.replica.alter.log.dirs.threads`: so many logs are copied at once.
    pub threads: usize,
    /// `replica.fetch.max.bytes`: so much is copied in one step.
    pub step_bytes: usize,
}

/// The moves that are to be worked on. Each partition stands in it once, so that it is bounded by the partitions.
#[derive(Debug)]
pub(super) struct Moves {
    waiting: Mutex<VecDeque<TopicPartition>>,
    added: Notify,
    bytes_per_second: AtomicU64,
}

/// What was copied and is not paid for by time yet.
#[derive(Debug)]
struct MoveThrottle {
    debt_bytes: f64,
    since: Timestamp,
}

/// After a step that could not be done, as when the other disk is full.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// When somebody changes the log at this moment.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
/// A higher limit is soon felt.
const WAIT_MAX_MS: f64 = 250.0;

impl Default for Moves {
    fn default() -> Self {
        Moves { waiting: Mutex::default(), added: Notify::new(), bytes_per_second: AtomicU64::new(u64::MAX) }
    }
}

impl Moves {
    pub(super) fn add(&self, topic_partition: &TopicPartition) {
        let mut waiting = self.waiting.lock();
        if !waiting.contains(topic_partition) {
            waiting.push_back(topic_partition.clone());
            self.added.notify_one();
        }
    }

    pub(super) fn limit(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    /// The next one that is not in work.
    fn next(&self, in_work: &HashSet<TopicPartition>) -> Option<TopicPartition> {
        let mut waiting = self.waiting.lock();
        let at = waiting.iter().position(|topic_partition| !in_work.contains(topic_partition))?;
        waiting.remove(at)
    }
}

impl LogDirMover {
    pub fn new(replicas: Arc<ReplicaManager>, clock: Clock, options: LogDirMoverOptions) -> LogDirMover {
        let throttle = MoveThrottle { debt_bytes: 0.0, since: clock.now() };
        LogDirMover { replicas, clock, options, throttle: Mutex::new(throttle) }
    }

    /// Runs until the broker stops; then waits for the steps that are being done.
    pub async fn run(self, shutdown: Shutdown) {
        let mut stopping = shutdown.requested();
        let mut running = FuturesUnordered::new();
        let mut in_work = HashSet::new();
        loop {
            while running.len() < self.options.threads.max(1)
                && let Some(topic_partition) = self.replicas.moves().next(&in_work)
            {
                in_work.insert(topic_partition.clone());
                running.push(self.work_on(topic_partition, &shutdown));
            }
            tokio::select! {
                () = &mut stopping => break,
                Some(done) = running.next() => { in_work.remove(&done); }
                () = self.replicas.moves().added.notified() => {}
            }
        }
        while running.next().await.is_some() {}
    }

    async fn work_on(&self, topic_partition: TopicPartition, shutdown: &Shutdown) -> TopicPartition {
        let TopicPartition { topic, partition } = &topic_partition;
        if let Ok(replica) = self.replicas.partition(topic, *partition) {
            tokio::select! {
                () = self.move_log(&replica, shutdown) => {}
                () = shutdown.requested() => {}
            }
        }
        topic_partition
    }

    async fn move_log(&self, partition: &Arc<Partition>, shutdown: &Shutdown) {
        let mut is_told = false;
        while !shutdown.is_requested() {
            self.wait_for_turn().await;
            match self.step(partition).await {
                Ok(MoveStep::Copied { bytes: 0 }) | Ok(MoveStep::CaughtUp) => sleep(SHORT_PAUSE).await,
                Ok(MoveStep::Copied { bytes }) => self.throttle.lock().took(bytes),
                Ok(MoveStep::Done | MoveStep::Over) => return,
                Err(error) => match consequence(&error) {
                    Consequence::Again => {
                        if !std::mem::replace(&mut is_told, true) {
                            let TopicPartition { topic, partition } = partition.topic_partition();
                            warn!(%topic, partition = partition.0, %error, "a move between log directories waits");
                        }
                        sleep(RETRY_PAUSE).await;
                    }
                    Consequence::Over => {
                        let TopicPartition { topic, partition } = partition.topic_partition();
                        debug!(%topic, partition = partition.0, %error, "a move between log directories is over");
                        return;
                    }
                    Consequence::Failed => {
                        let TopicPartition { topic, partition } = partition.topic_partition();
                        error!(%topic, partition = partition.0, %error,
                            "a move between log directories cannot go on: it rests until the partition's role changes");
                        return;
                    }
                },
            }
        }
    }

    /// One step, and the last one if it was the last but that.
    async fn step(&self, partition: &Arc<Partition>) -> Result<MoveStep, ReplicaError> {
        let limit = self.replicas.moves().bytes_per_second.load(Ordering::Relaxed);
        let bytes_max = self.options.step_bytes.min(usize::try_from(limit).unwrap_or(usize::MAX)).max(1);
        let (partition, logs) = (Arc::clone(partition), Arc::clone(self.replicas.logs()));
        let now = self.clock.now();
        let work = move || match partition.copy_some(bytes_max, now)? {
            MoveStep::CaughtUp => partition.finish_move(&logs, bytes_max, now),
            step => Ok(step),
        };
        match task::blocking(work).await {
            Ok(step) => step,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    async fn wait_for_turn(&self) {
        loop {
            let limit = self.replicas.moves().bytes_per_second.load(Ordering::Relaxed);
            let wait = self.throttle.lock().wait(limit, self.clock.now());
            if wait.is_zero() {
                return;
            }
            sleep(wait).await;
        }
    }
}

impl MoveThrottle {
    fn took(&mut self, bytes: u64) {
        self.debt_bytes += bytes as f64;
    }

    /// How long until there may be a next step; less if that is long.
    fn wait(&mut self, bytes_per_second: u64, now: Timestamp) -> Duration {
        let rate = bytes_per_second.max(1) as f64;
        let passed_ms = now.since_ms(self.since).max(0) as f64;
        self.since = now;
        self.debt_bytes = (self.debt_bytes - rate * passed_ms / 1_000.0).max(0.0);
        let wait_ms = (self.debt_bytes * 1_000.0 / rate).min(WAIT_MAX_MS);
        // Below a timer's grain it adds up until it is worth a wait.
        if wait_ms < 1.0 { Duration::ZERO } else { Duration::from_secs_f64(wait_ms / 1_000.0) }
    }
}

/// What is to be done after a step has failed.
enum Consequence {
    Again,
    /// The partition or one of the directories is gone, which whoever took it away has told.
    Over,
    Failed,
}

fn consequence(error: &ReplicaError) -> Consequence {
    match error {
        ReplicaError::Log { source } => match source {
            LogError::DiskFull { .. } | LogError::TooManyOpenFiles { .. } | LogError::SegmentDeleted => {
                Consequence::Again
            }
            LogError::Closed { .. } | LogError::DirectoryOffline { .. } | LogError::Storage { .. } => {
                Consequence::Over
            }
            _ => Consequence::Failed,
        },
        ReplicaError::StorageError => Consequence::Over,
        _ => Consequence::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_held_to_the_limit_and_a_higher_one_is_soon_felt() {
        let mut now = Timestamp(1_000);
        let mut throttle = MoveThrottle { debt_bytes: 0.0, since: now };
        let begun = now;
        for _ in 0..100 {
            throttle.took(50_000);
            loop {
                let wait = throttle.wait(1_000_000, now);
                if wait.is_zero() {
                    break;
                }
                assert!(wait <= Duration::from_millis(250));
                now = now.plus_ms(wait.as_millis() as i64);
            }
        }
        assert!((4_900..=5_100).contains(&now.since_ms(begun)), "{now}");
        throttle.took(1_000_000_000);
        assert_eq!(throttle.wait(1_000, now), Duration::from_millis(250));
        assert_eq!(throttle.wait(u64::MAX, now.plus_ms(1)), Duration::ZERO);
    }

    #[test]
    fn a_partition_waits_once_and_not_while_it_is_in_work() {
        let of = |topic: &str| {
            let topic = crate::model::TopicName::new(topic).unwrap();
            TopicPartition::new(topic, crate::model::PartitionIndex(0))
        };
        let moves = Moves::default();
        for topic in ["a", "b", "a"] {
            moves.add(&of(topic));
        }
        let in_work = HashSet::from([of("a")]);
        assert_eq!(moves.next(&in_work), Some(of("b")));
        assert_eq!(moves.next(&in_work), None);
        assert_eq!(moves.next(&HashSet::new()), Some(of("a")));
        assert_eq!(moves.next(&HashSet::new()), None);
    }
}
