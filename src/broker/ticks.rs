//! What has to be done from time to time, at Kafka's intervals.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{error, warn};

use super::roles::Roles;
use crate::config::BrokerConfig;
use crate::log::LogManager;
use crate::model::Timestamp;
use crate::observe::Metrics;
use crate::replica::{HangingTransaction, ReplicaManager};
use crate::runtime::Clock;
use crate::runtime::task::{self, Shutdown};

/// Removing files whose delay is over costs nothing when there are none.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(5);

/// Between two looks whether more producers are known than may be.
const PRODUCER_LIMIT_INTERVAL: Duration = Duration::from_secs(1);

/// Between two lines of the log about a transaction that nobody ends.
const HANGING_INTERVAL: Duration = Duration::from_secs(600);

/// A producer that is silent for so long has no retry under way: clients give one up after two minutes.
const PRODUCER_SETTLING_INTERVAL: Duration = Duration::from_secs(600);

/// Looks which followers lag, until the broker stops. Beside the rest, as no disk may keep a dead follower in sync.
pub(super) async fn run_isr(
    replicas: Arc<ReplicaManager>,
    config: Arc<ArcSwap<BrokerConfig>>,
    clock: Clock,
    shutdown: Shutdown,
) {
    let half_lag_ms = u64::try_from(config.load().replica_lag_time_max_ms() / 2).unwrap_or(1).max(1);
    let mut isr = tokio::time::interval(Duration::from_millis(half_lag_ms));
    isr.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopping = shutdown.requested();
    loop {
        tokio::select! {
            _ = isr.tick() => {}
            () = &mut stopping => return,
        }
        let (replicas, now) = (Arc::clone(&replicas), clock.now());
        if let Err(error) = task::blocking(move || replicas.isr_tick(now)).await {
            error!(%error, "the look after lagging followers panicked");
        }
    }
}

struct Ticks {
    logs: Arc<LogManager>,
    roles: Arc<Roles>,
    metrics: Arc<Metrics>,
    clock: Clock,
    config: Arc<ArcSwap<BrokerConfig>>,
}

/// Runs until the broker stops. Intervals are those of the start.
pub(super) async fn run(
    logs: Arc<LogManager>,
    roles: Arc<Roles>,
    metrics: Arc<Metrics>,
    config: Arc<ArcSwap<BrokerConfig>>,
    clock: Clock,
    shutdown: Shutdown,
) {
    let ticks = Arc::new(Ticks { logs, roles, metrics, clock, config: Arc::clone(&config) });
    let config = config.load_full();
    let initial = Duration::from_millis(u64::try_from(config.log_initial_task_delay_ms()).unwrap_or(30_000));
    let every = |ms: i64| {
        // Intervals of years are allowed; tokio's clock is not made for the largest of them.
        let ms = u64::try_from(ms).unwrap_or(1).clamp(1, 365 * 24 * 60 * 60 * 1000);
        let mut interval = tokio::time::interval_at(Instant::now() + initial, Duration::from_millis(ms));
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    };
    let mut retention = every(config.log_retention_check_interval_ms());
    let mut flush = every(config.log_flush_scheduler_interval_ms());
    let mut recovery_points = every(i64::from(config.log_flush_offset_checkpoint_interval_ms()));
    let mut log_starts = every(i64::from(config.log_flush_start_offset_checkpoint_interval_ms()));
    let mut high_watermarks = every(config.replica_high_watermark_checkpoint_interval_ms());
    let mut producers = every(i64::from(config.producer_id_expiration_check_interval_ms()));
    let mut removal = tokio::time::interval(REMOVAL_INTERVAL);
    let mut producer_limit = tokio::time::interval(PRODUCER_LIMIT_INTERVAL);
    producer_limit.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hanging = tokio::time::interval_at(Instant::now() + HANGING_INTERVAL, HANGING_INTERVAL);
    let mut producer_settling = tokio::time::interval(PRODUCER_SETTLING_INTERVAL);
    let mut stopping = shutdown.requested();
    loop {
        let tick: fn(&Ticks, Timestamp) = tokio::select! {
            _ = retention.tick() => |ticks, now| { ticks.logs.retention_tick(now); },
            _ = flush.tick() => |ticks, now| ticks.logs.flush_tick(now),
            _ = recovery_points.tick() => |ticks, _| ticks.logs.recovery_point_tick(),
            _ = log_starts.tick() => |ticks, _| ticks.logs.log_start_offset_tick(),
            _ = high_watermarks.tick() => |ticks, _| ticks.logs.high_watermark_tick(),
            _ = producers.tick() => {
                |ticks, now| {
                    let expiration_ms = i64::from(ticks.config.load().producer_id_expiration_ms());
                    ticks.logs.producer_expiry_tick(expiration_ms, now);
                }
            }
            _ = producer_limit.tick() => |ticks, _| ticks.limit_producers(),
            _ = hanging.tick() => Ticks::report_hanging_transactions,
            _ = producer_settling.tick() => |ticks, _| ticks.logs.producer_settling_tick(),
            _ = removal.tick() => {
                |ticks, now| {
                    ticks.logs.removal_tick(now);
                    ticks.create_logs(now);
                }
            }
            () = &mut stopping => return,
        };
        let ticks = Arc::clone(&ticks);
        let done = task::blocking(move || tick(&ticks, ticks.clock.now()));
        if let Err(error) = done.await {
            error!(%error, "periodic work panicked");
        }
    }
}

impl Ticks {
    /// Of the logs that could not be created, those that can by now.
    fn create_logs(&self, now: Timestamp) {
        let uncreated = self.roles.replicas.uncreated();
        if !uncreated.is_empty() {
            // What fails for good is told where it fails; the controller sees such a replica at its next request.
            self.roles.logs_loaded(&uncreated, now);
        }
    }

    fn report_hanging_transactions(&self, now: Timestamp) {
        let timeout_ms_max = i64::from(self.config.load().transaction_max_timeout_ms());
        for HangingTransaction { topic_partition, transaction } in
            self.roles.replicas.hanging_transactions(timeout_ms_max, now)
        {
            warn!(
                topic = %topic_partition.topic,
                partition = topic_partition.partition.0,
                producer_id = transaction.producer_id.0,
                producer_epoch = transaction.producer_epoch.0,
                first_offset = transaction.first_offset.0,
                age_ms = now.since_ms(transaction.last_timestamp),
                "readers of committed records wait for a transaction that nobody ends: see kafka-transactions abort"
            );
        }
    }

    fn limit_producers(&self) {
        let count_max = usize::try_from(self.config.load().producer_ids_max()).unwrap_or(usize::MAX);
        let forgotten = self.logs.producer_limit_tick(count_max);
        if forgotten > 0 {
            self.metrics.producers_forgotten.add(forgotten as u64);
            warn!(
                forgotten,
                count_max, "more producers than barnabas.producer.ids.max: the oldest are forgotten"
            );
        }
    }
}
