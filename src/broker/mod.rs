//! One broker: all parts built by hand, joined, started and stopped in order.
//!
//! Only here is known which store, which file system and which clock the parts use.

mod backend;
mod cleaner;
mod cluster_channel;
#[cfg(test)]
mod cluster_tests;
mod cluster_transactions;
mod config_changes;
mod control_channel;
mod controller_link;
mod error;
mod features;
mod loading;
mod log_dirs;
mod markers;
mod membership;
mod ports;
mod ready;
mod roles;
mod settings;
mod shard_log;
mod standing;
mod start;
mod stored_isrs;
mod ticks;
mod zookeeper;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

pub use error::StartError;
pub use ready::Ready;
pub use standing::Standing;
pub use start::Machine;

use backend::Backend;

use controller_link::ControllerLink;
use loading::Loading;

use crate::api::Services;
use crate::config::BrokerConfig;
use crate::coordination::{Ensemble, Store};
use crate::log::{LogCleaner, LogManager};
use crate::metadata::control::Endpoint;
use crate::model::BrokerId;
use crate::network::{ConnectionTable, RequestMemory};
use crate::observe::Metrics;
use crate::replica::Fetchers;
use crate::runtime::Clock;
use crate::runtime::task::{self, ShutdownTrigger};

/// How long connections may take to finish what they are at when the broker stops.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// A stop does not wait for an ensemble that is out of reach.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// A running broker. Dropping it leaves files as a crash would: [`Broker::stop`] ends it well.
pub struct Broker {
    services: Arc<Services>,
    clock: Clock,
    logs: Arc<LogManager>,
    loading: Loading,
    /// Declared before the store it is a session of.
    session: Arc<dyn Store>,
    backend: Arc<Backend>,
    /// Stops clients, then everything behind them.
    clients: ShutdownTrigger,
    parts: ShutdownTrigger,
    controller: JoinHandle<()>,
    ticks: JoinHandle<()>,
    cleaner: Arc<LogCleaner>,
    compaction: JoinHandle<()>,
    config_changes: JoinHandle<()>,
    features: JoinHandle<()>,
    moves: JoinHandle<()>,
    log_dir_failures: JoinHandle<()>,
    all_log_dirs_failed: watch::Receiver<bool>,
    alter_isr: JoinHandle<()>,
    controller_link: Arc<ControllerLink>,
    fetchers: Arc<Fetchers>,
    connections: Arc<ConnectionTable>,
    memory: Arc<RequestMemory>,
    /// With the ports that were bound.
    advertised: Vec<Endpoint>,
    log_dirs: Vec<String>,
}

impl Broker {
    /// Starts a broker and waits until it accepts clients. What takes long to load is served later than the rest.
    ///
    /// A start that cannot succeed changes nothing on disk or in the store, as far as that can be known
    /// beforehand.
    pub async fn start(config: BrokerConfig, metrics: Arc<Metrics>) -> Result<Broker, StartError> {
        let broker = Broker::start_unless(std::future::pending(), config, metrics).await?;
        Ok(broker.expect("nobody stops the start"))
    }

    /// As [`start`](Self::start), given up when `stop` resolves first: `None` then, and nothing of this broker is left in
    /// the store.
    pub async fn start_unless(
        stop: impl Future<Output = ()>,
        config: BrokerConfig,
        metrics: Arc<Metrics>,
    ) -> Result<Option<Broker>, StartError> {
        start::start(config, metrics, Machine::system(), None, stop).await
    }

    /// As [`start`](Self::start), on any machine, in the cluster that `ensemble` stands for.
    pub async fn start_on(
        machine: Machine,
        ensemble: Box<dyn Ensemble>,
        config: BrokerConfig,
        metrics: Arc<Metrics>,
    ) -> Result<Broker, StartError> {
        let never = std::future::pending();
        let broker = start::start(config, metrics, machine, Some(ensemble), never).await?;
        Ok(broker.expect("nobody stops the start"))
    }

    /// The session with the coordination store, whichever it is by now.
    pub fn session(&self) -> &Arc<dyn Store> {
        &self.session
    }

    /// The store lives in this broker, and with it.
    pub fn has_embedded_store(&self) -> bool {
        self.backend.is_embedded
    }

    pub fn id(&self) -> BrokerId {
        self.services.broker_id
    }

    pub fn cluster_id(&self) -> &str {
        &self.services.cluster_id
    }

    pub fn services(&self) -> &Arc<Services> {
        &self.services
    }

    pub fn fetchers(&self) -> &Arc<Fetchers> {
        &self.fetchers
    }

    pub fn standing(&self) -> Standing {
        Standing::new(Arc::downgrade(&self.services))
    }

    pub fn connections(&self) -> &Arc<ConnectionTable> {
        &self.connections
    }

    pub fn cleaner(&self) -> &Arc<LogCleaner> {
        &self.cleaner
    }

    pub fn request_memory(&self) -> &Arc<RequestMemory> {
        &self.memory
    }

    /// Resolves when the last log directory has failed: nothing can be served then.
    pub async fn log_dirs_failed(&self) {
        let mut failed = self.all_log_dirs_failed.clone();
        if failed.wait_for(|&have_failed| have_failed).await.is_err() {
            // The broker stops.
            std::future::pending::<()>().await;
        }
    }

    /// What scripts wait for on standard output.
    pub fn ready(&self) -> Ready<'_> {
        Ready {
            broker_id: self.id(),
            cluster_id: self.cluster_id(),
            listeners: &self.advertised,
            log_dirs: &self.log_dirs,
            store: &self.backend.name,
        }
    }

    /// Stops in order: leaderships (by having them moved), clients, loading, coordinators, the controller, logs, the store.
    pub async fn stop(self) {
        self.move_leaderships().await;
        self.clients.request();
        self.loading.stop().await;
        self.services.groups.stop();
        self.services.transactions.stop();
        self.clients.drained(DRAIN_MAX).await;
        self.parts.request();
        let parts = [
            self.controller,
            self.ticks,
            self.compaction,
            self.config_changes,
            self.alter_isr,
            self.features,
            self.moves,
            self.log_dir_failures,
        ];
        for task in parts {
            if let Err(error) = task.await {
                warn!(%error, "a part did not stop well");
            }
        }
        let (logs, now) = (self.logs, self.clock.now());
        let closed = task::blocking(move || logs.shut_down(now));
        if let Err(error) = closed.await {
            warn!(%error, "the logs were not closed well");
        }
        match tokio::time::timeout(CLOSE_MAX, self.session.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "the store's session was not closed"),
            Err(_) => warn!("the store's session was not closed in time: it ends with its timeout"),
        }
        // The embedded store is closed when nobody holds it any more.
        let backend = self.backend;
        let stopped = task::blocking(move || drop(backend));
        if let Err(error) = stopped.await {
            warn!(%error, "the store was not closed well");
        }
        info!("stopped");
    }

    /// Clients go on with other leaders before this broker goes. Nobody is waited for who cannot be there: alone there
    /// is nobody to lead.
    async fn move_leaderships(&self) {
        let config = self.services.config.load();
        if !config.controlled_shutdown_enable() || self.services.metadata.image().brokers().len() < 2 {
            return;
        }
        let pause_ms = u64::try_from(config.controlled_shutdown_retry_backoff_ms()).unwrap_or(0);
        let attempts = config.controlled_shutdown_max_retries();
        self.controller_link.shut_down(attempts, Duration::from_millis(pause_ms)).await;
    }
}
