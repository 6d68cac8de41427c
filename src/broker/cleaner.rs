//! Drives compaction: picks logs, lets them be cleaned a piece at a time on the blocking pool, and waits where
//! the settings say so.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use std::hash::{BuildHasher, Hasher, RandomState};
use tracing::error;

use crate::config::BrokerConfig;
use crate::log::{CleanerOptions, Cleaning, HashSecret, LogCleaner, LogError, Step, Throttle};
use crate::observe::Metrics;
use crate::runtime::Clock;
use crate::runtime::task::{self, Shutdown};

/// What the cleanings of this broker share.
pub(super) struct Compaction {
    pub(super) cleaner: Arc<LogCleaner>,
    pub(super) config: Arc<ArcSwap<BrokerConfig>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
    pub(super) shutdown: Shutdown,
}

/// Runs until the broker stops; then waits for the pieces that are being worked on.
pub(super) async fn run(compaction: Compaction) {
    if !compaction.config.load().log_cleaner_enable() {
        return;
    }
    let compaction = Arc::new(compaction);
    let throttle = Arc::new(Mutex::new(Throttle::new(f64::MAX)));
    let mut stopping = compaction.shutdown.requested();
    let mut running = FuturesUnordered::new();
    loop {
        let settings = compaction.config.load_full();
        throttle.lock().change(settings.log_cleaner_io_max_bytes_per_second());
        while running.len() < count(i64::from(settings.log_cleaner_threads()))
            && let Some(cleaning) = compaction.pick(&settings).await
        {
            running.push(compaction.clone().clean(cleaning, throttle.clone()));
        }
        let pause = Duration::from_millis(u64::try_from(settings.log_cleaner_backoff_ms()).unwrap_or(0));
        tokio::select! {
            () = &mut stopping => break,
            Some(()) = running.next() => {}
            () = tokio::time::sleep(pause.max(PAUSE_MIN)) => {}
        }
    }
    while running.next().await.is_some() {}
}

/// Looking for dirty logs costs a look at each.
const PAUSE_MIN: Duration = Duration::from_millis(100);

impl Compaction {
    async fn pick(&self, settings: &BrokerConfig) -> Option<Cleaning> {
        let share =
            |bytes: i64| count(bytes) as u64 / count(i64::from(settings.log_cleaner_threads())).max(1) as u64;
        let options = CleanerOptions {
            map_bytes: share(settings.log_cleaner_dedupe_buffer_size()),
            load_factor: settings.log_cleaner_io_buffer_load_factor(),
            io_buffer_bytes: share(i64::from(settings.log_cleaner_io_buffer_size())),
        };
        let (cleaner, now) = (self.cleaner.clone(), self.clock.now());
        let picked = task::blocking(move || cleaner.pick(&options, secret(), now));
        picked.await.unwrap_or_else(|error| {
            error!(%error, "looking for logs to compact panicked");
            None
        })
    }

    async fn clean(self: Arc<Self>, mut cleaning: Cleaning, throttle: Arc<Mutex<Throttle>>) {
        let topic_partition = cleaning.topic_partition().clone();
        loop {
            if self.shutdown.is_requested() {
                // What is half written is removed with it.
                let _ = task::blocking(move || drop(cleaning)).await;
                return;
            }
            let now = self.clock.now();
            let before = *cleaning.report();
            let worked = task::blocking(move || {
                let outcome = cleaning.step(now);
                (cleaning, outcome)
            });
            let Ok((worked, outcome)) = worked.await else {
                self.cleaner.lost(&topic_partition, self.clock.now());
                return;
            };
            let after = *worked.report();
            self.metrics.compaction_read_bytes.add(after.bytes_read - before.bytes_read);
            self.metrics.compaction_written_bytes.add(after.bytes_written - before.bytes_written);
            match outcome {
                Ok(Step::Went { bytes }) => {
                    cleaning = worked;
                    let pause = throttle.lock().took(bytes, self.clock.now());
                    self.wait(pause).await;
                }
                Ok(Step::Done) => return self.finish(worked, Ok(())).await,
                Err(error) => return self.finish(worked, Err(error)).await,
            }
        }
    }

    async fn finish(&self, cleaning: Cleaning, outcome: Result<(), LogError>) {
        if outcome.is_ok() {
            self.metrics.compactions.increment();
        }
        let (cleaner, now) = (self.cleaner.clone(), self.clock.now());
        let finished = task::blocking(move || cleaner.finish(cleaning, outcome, now));
        if let Err(error) = finished.await {
            error!(%error, "ending a compaction panicked");
        }
    }

    async fn wait(&self, pause: Duration) {
        if !pause.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.shutdown.requested() => {}
            }
        }
    }
}

/// Numbers that nobody outside can foresee: the standard library's hashers have keys from the system.
fn secret() -> HashSecret {
    let draw = || RandomState::new().build_hasher().finish();
    HashSecret([draw(), draw()])
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
