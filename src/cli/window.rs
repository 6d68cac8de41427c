//! The HTTP pages of a serving process, and what of its broker they show.

use std::sync::{Arc, Weak};
use std::time::Duration;

use snafu::ResultExt;
use tracing::{info, warn};

use super::serve::{HttpListenerSnafu, Options, ServeError};
use crate::api::{ERROR_CODES, Services, table};
use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::coordination::{SessionState, Store};
use crate::log::{FailedLog, LoadProgress, LogCleaner, LogManager};
use crate::model::TopicPartition;
use crate::network::{ConnectionTable, RequestMemory};
use crate::observe::http::{self, Pages};
use crate::observe::{Metrics, Names, Readiness, Sampled, Samples};
use crate::replica::Fetchers;
use crate::runtime::task::{self, ShutdownTrigger};
use crate::txn::ListTransactions;

/// What an operator sees of the process: open before the broker starts, so that a probe is told what it waits for.
pub(super) struct Window {
    pages: Pages,
    /// Ends the pages when it is dropped.
    _pages_end: ShutdownTrigger,
}

impl Window {
    /// Must be called on the runtime that is to serve the pages.
    pub(super) async fn open(options: &Options) -> Result<Window, ServeError> {
        let pages = Pages {
            metrics: Arc::new(Metrics::new(&names(&options.config))),
            readiness: Arc::new(Readiness::starting()),
            safety: Arc::new(Readiness::starting()),
        };
        let (trigger, shutdown) = ShutdownTrigger::new();
        if let Some(address) = options.config.http_listener() {
            match http::bind(address).await {
                Ok(listener) => drop(task::spawn("http", http::serve(listener, pages.clone(), shutdown))),
                // A second broker on a developer's machine does not fail for pages nobody asked for.
                Err(error) if !options.is_http_listener_asked_for => {
                    warn!(address, %error, "metrics are not served");
                }
                Err(error) => return Err(error).context(HttpListenerSnafu { address }),
            }
        }
        Ok(Window { pages, _pages_end: trigger })
    }

    /// What the broker counts while it works.
    pub(super) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.pages.metrics)
    }

    /// The broker accepts clients.
    pub(super) fn show(&self, broker: &Broker) {
        // The pages may outlive the broker by a moment and must not keep its parts from ending.
        let services = Arc::downgrade(broker.services());
        let connections = Arc::clone(broker.connections());
        let memory = Arc::clone(broker.request_memory());
        let cleaner = Arc::downgrade(broker.cleaner());
        let session = Arc::downgrade(broker.session());
        let fetchers = Arc::downgrade(broker.fetchers());
        self.pages.metrics.add_sampler(move |mut samples| {
            sample_network(&connections, &memory, &mut samples);
            sample_compaction(&cleaner, &mut samples);
            sample_store(&session, &mut samples);
            sample_fetchers(&fetchers, &mut samples);
            sample_services(Weak::clone(&services), samples)
        });
        if broker.has_embedded_store() {
            let session = Arc::downgrade(broker.session());
            self.pages
                .readiness
                .add_check("store", move || session.upgrade().and_then(|it| has_failed(&*it)));
        }
        let standing = Arc::new(broker.standing());
        let asked = Arc::clone(&standing);
        self.pages.readiness.add_check("replication", move || asked.catching_up());
        self.pages.safety.add_check("replication", move || standing.needed_for());
        let logs = Arc::downgrade(broker.services().replicas.logs());
        self.pages.readiness.add_check("log", move || logs.upgrade().and_then(|logs| not_loaded(&logs)));
        self.pages.readiness.allow("broker");
        self.pages.safety.allow("broker");
        info!("ready");
    }

    pub(super) fn stopping(&self) {
        self.pages.readiness.refuse("broker", "stopping");
        self.pages.safety.refuse("broker", "stopping");
    }
}

fn names(config: &BrokerConfig) -> Names {
    let api = |key: i16| table::find(key).map_or(String::new(), |api| format!("{:?}", api.key));
    Names {
        apis: (0..128).map(api).collect(),
        errors: ERROR_CODES.iter().map(|(_, name)| (*name).to_owned()).collect(),
        listeners: config.listeners().bound.iter().map(|endpoint| endpoint.listener.to_string()).collect(),
    }
}

/// What `/readyz` says of an embedded store whose disk has failed, which is when its sessions end.
fn has_failed(store: &dyn Store) -> Option<String> {
    let is_over = store.session_state() == SessionState::Expired;
    is_over.then(|| "failed; what needs no store is served on".to_owned())
}

/// What `/readyz` says while logs are loaded.
fn not_loaded(logs: &LogManager) -> Option<String> {
    let LoadProgress { total, left, segments_left } = logs.load_progress();
    (left > 0).then(|| format!("loading {left} of {total} partitions, {segments_left} segments to recover"))
}

fn sample_logs(logs: &LogManager, samples: &mut Samples) {
    let LoadProgress { left, segments_left, .. } = logs.load_progress();
    samples.push(Sampled::LogsToLoad, &[], left);
    samples.push(Sampled::SegmentsToRecover, &[], segments_left);
    for FailedLog { topic_partition: TopicPartition { topic, partition }, reason } in logs.failed_logs() {
        samples.push(Sampled::FailedLogs, &[&*topic, &partition.to_string(), &reason], 1);
    }
    for directory in logs.directories() {
        let path = directory.directory.path().to_string_lossy();
        samples.push(Sampled::LogDirOnline, &[&path], u8::from(directory.space.is_some()));
        let is_full = u8::from(directory.directory.is_short_of_room());
        samples.push(Sampled::LogDirFull, &[&path], is_full);
        samples.push(Sampled::LogFlushes, &[&path], directory.directory.flushes());
        if let Some(space) = &directory.space {
            samples.push(Sampled::LogDirTotalBytes, &[&path], space.total_bytes);
            samples.push(Sampled::LogDirUsableBytes, &[&path], space.usable_bytes);
        }
    }
}

fn sample_network(connections: &ConnectionTable, memory: &RequestMemory, samples: &mut Samples) {
    samples.push(Sampled::Connections, &[], connections.len());
    samples.push(Sampled::MemoryBytes, &["requests"], memory.used_bytes());
    samples.push(Sampled::MemoryLimitBytes, &["requests"], memory.limit_bytes());
}

async fn sample_services(services: Weak<Services>, mut samples: Samples) -> Samples {
    let Some(services) = services.upgrade() else { return samples };
    samples.push(Sampled::FetchSessions, &[], services.fetch_sessions.len());
    samples.push(Sampled::MemoryBytes, &["fetch_sessions"], services.fetch_sessions.memory_bytes());
    samples.push(Sampled::MemoryBytes, &["metadata"], services.metadata.image().memory_bytes());
    sample_partitions(&services, &mut samples);
    sample_replication(&services, &mut samples);
    samples.push(Sampled::ActiveController, &[], u8::from(services.controller.is_active()));
    let mut samples = sample_controller(&services, samples).await;
    samples.push(Sampled::LogDirMoves, &[], services.replicas.logs().futures().len());
    sample_logs(services.replicas.logs(), &mut samples);
    let samples = sample_groups(&services, samples).await;
    sample_transactions(&services, samples).await
}

fn sample_store(session: &Weak<dyn Store>, samples: &mut Samples) {
    let Some(session) = session.upgrade() else { return };
    let is_connected = session.session_state() == SessionState::Connected;
    samples.push(Sampled::StoreConnected, &[], u8::from(is_connected));
    let state = match session.session_state() {
        SessionState::Connected => "connected",
        SessionState::Disconnected => "disconnected",
        SessionState::Expired => "expired",
    };
    samples.push(Sampled::StoreSession, &[state], 1);
}

fn sample_fetchers(fetchers: &Weak<Fetchers>, samples: &mut Samples) {
    let Some(fetchers) = fetchers.upgrade() else { return };
    let (mut lag_max, mut failed) = (0, 0);
    for fetcher in fetchers.status() {
        let labels = [&*fetcher.leader.to_string(), &*fetcher.index.to_string()];
        samples.push(Sampled::FetcherLagMax, &labels, fetcher.assignment.lag_max);
        samples.push(Sampled::FetcherPartitions, &labels, fetcher.assignment.partitions);
        lag_max = lag_max.max(fetcher.assignment.lag_max);
        failed += fetcher.assignment.failed;
    }
    samples.push(Sampled::FollowerLagMax, &[], lag_max);
    samples.push(Sampled::FailedFetchPartitions, &[], failed);
}

fn sample_replication(services: &Services, samples: &mut Samples) {
    let (replicas, now) = (&services.replicas, services.clock.now());
    samples.push(Sampled::IsrShrinks, &[], replicas.isr_changes().shrinks());
    samples.push(Sampled::IsrExpands, &[], replicas.isr_changes().expands());
    samples.push(Sampled::OfflineReplicas, &[], replicas.offline_count());
    let throttles = replicas.throttles();
    samples.push(Sampled::ReplicationThrottleRate, &["leader"], throttles.leader.rate(now));
    samples.push(Sampled::ReplicationThrottleRate, &["follower"], throttles.follower.rate(now));
}

/// The controller and coordinators are busy when they are most looked at: a page does not wait for them.
const COUNTS_MAX: Duration = Duration::from_secs(1);

async fn sample_controller(services: &Services, mut samples: Samples) -> Samples {
    let controller = &services.controller;
    samples.push(Sampled::ControllerState, &[controller.activity()], 1);
    samples.push(Sampled::ControllerQueue, &[], controller.queued());
    if controller.is_active()
        && let Ok(Ok(counts)) = tokio::time::timeout(COUNTS_MAX, controller.counts()).await
    {
        samples.push(Sampled::OfflinePartitions, &[], counts.offline_partitions);
        samples.push(Sampled::ReassigningPartitions, &[], counts.reassigning_partitions);
        samples.push(Sampled::PreferredReplicaImbalance, &[], counts.preferred_replica_imbalance);
    }
    samples
}

fn sample_compaction(cleaner: &Weak<LogCleaner>, samples: &mut Samples) {
    let Some(cleaner) = cleaner.upgrade() else { return };
    let status = cleaner.status();
    for failed in &status.failed {
        let TopicPartition { topic, partition } = &failed.topic_partition;
        let labels = [&**topic, &partition.to_string(), &failed.reason];
        samples.push(Sampled::CompactionFailures, &labels, failed.attempts);
    }
    samples.push(Sampled::CompactionDirtyRatio, &[], status.dirty_ratio_max);
    samples.push(Sampled::CompactionDelaySeconds, &[], status.delay_ms_max / 1_000);
}

fn sample_partitions(services: &Services, samples: &mut Samples) {
    let (mut leading, mut under_replicated, mut under_min_isr, mut at_min_isr) = (0, 0, 0, 0);
    let (mut log_bytes, mut producer_bytes, mut producers) = (0, 0, 0);
    let timeout_ms_max = i64::from(services.config.load().transaction_max_timeout_ms());
    let hanging = services.replicas.hanging_transactions(timeout_ms_max, services.clock.now());
    let partitions = services.replicas.partitions();
    for partition in &partitions {
        let role = partition.role();
        if role.is_leader {
            leading += 1;
            under_replicated += u64::from(role.isr.len() < role.replicas.len());
        }
        let margin = partition.isr_margin();
        under_min_isr += u64::from(margin.is_some_and(|margin| margin < 0));
        at_min_isr += u64::from(margin == Some(0));
        let name = partition.topic_partition();
        let labels = [&*name.topic, &name.partition.to_string()];
        let log = partition.log();
        log_bytes += log.memory_bytes();
        producer_bytes += log.producer_memory_bytes();
        producers += log.producer_count();
        samples.push(Sampled::LogSizeBytes, &labels, log.size_bytes());
        samples.push(Sampled::LogStartOffset, &labels, log.log_start_offset());
        samples.push(Sampled::LogEndOffset, &labels, log.log_end_offset());
    }
    samples.push(Sampled::MemoryBytes, &["logs"], log_bytes);
    samples.push(Sampled::MemoryBytes, &["producers"], producer_bytes);
    samples.push(Sampled::Producers, &[], producers);
    samples.push(Sampled::Partitions, &[], partitions.len());
    samples.push(Sampled::LeaderPartitions, &[], leading);
    samples.push(Sampled::UnderReplicatedPartitions, &[], under_replicated);
    samples.push(Sampled::UnderMinIsrPartitions, &[], under_min_isr);
    samples.push(Sampled::AtMinIsrPartitions, &[], at_min_isr);
    samples.push(Sampled::HangingTransactions, &[], hanging.len());
}

async fn sample_transactions(services: &Services, mut samples: Samples) -> Samples {
    samples.push(Sampled::OpenTransactionEnds, &[], services.transactions.open_ends());
    let all = ListTransactions { duration_ms: -1, ..ListTransactions::default() };
    // While a coordinator is loaded the numbers are not known.
    let listed = tokio::time::timeout(COUNTS_MAX, services.transactions.list(&all));
    let Ok(Ok(listed)) = listed.await else { return samples };
    let mut by_state = std::collections::BTreeMap::<&str, u64>::new();
    for transaction in &listed {
        *by_state.entry(transaction.state.as_str()).or_default() += 1;
    }
    for (state, transactions) in by_state {
        samples.push(Sampled::Transactions, &[state], transactions);
    }
    samples
}

async fn sample_groups(services: &Services, mut samples: Samples) -> Samples {
    samples.push(Sampled::GroupRebalances, &[], services.groups.rebalances());
    let all = Default::default();
    let listing = tokio::time::timeout(COUNTS_MAX, services.groups.list(&all));
    let Ok(listing) = listing.await else { return samples };
    let mut by_state = std::collections::BTreeMap::<&str, u64>::new();
    for group in &listing.groups {
        *by_state.entry(group.state.as_str()).or_default() += 1;
    }
    for (state, groups) in by_state {
        samples.push(Sampled::Groups, &[state], groups);
    }
    samples
}
