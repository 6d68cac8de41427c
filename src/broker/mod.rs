//! One broker: all parts built by hand, joined, started and stopped in order.
//!
//! [`Broker::start`] is the only place that knows which store, which file system and which clock the parts use.

mod cluster_channel;
#[cfg(test)]
mod cluster_tests;
mod config_changes;
mod control_channel;
mod error;
mod ready;
mod settings;
mod shard_log;
mod start;
mod ticks;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::{info, warn};

pub use error::StartError;
pub use ready::Ready;

use crate::api::Services;
use crate::config::BrokerConfig;
use crate::coordination::{EmbeddedStore, Store};
use crate::log::LogManager;
use crate::metadata::control::Endpoint;
use crate::model::BrokerId;
use crate::network::{ConnectionTable, RequestMemory};
use crate::observe::Metrics;
use crate::runtime::Clock;
use crate::runtime::task::ShutdownTrigger;

/// How long connections may take to finish what they are at when the broker stops.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// A running broker. Dropping it leaves files as a crash would: [`Broker::stop`] ends it well.
pub struct Broker {
    services: Arc<Services>,
    clock: Clock,
    logs: Arc<LogManager>,
    /// Declared before the store it is a session of.
    session: Arc<dyn Store>,
    /// `None` where another process keeps it.
    store: Option<EmbeddedStore>,
    /// Stops clients, then everything behind them.
    clients: ShutdownTrigger,
    parts: ShutdownTrigger,
    controller: JoinHandle<()>,
    ticks: JoinHandle<()>,
    config_changes: JoinHandle<()>,
    connections: Arc<ConnectionTable>,
    memory: Arc<RequestMemory>,
    /// With the ports that were bound.
    advertised: Vec<Endpoint>,
    log_dirs: Vec<String>,
}

impl Broker {
    /// Starts a broker and waits until it leads what is its to lead and accepts clients.
    ///
    /// A start that cannot succeed changes nothing on disk or in the store, as far as that can be known
    /// beforehand.
    pub async fn start(config: BrokerConfig, metrics: Arc<Metrics>) -> Result<Broker, StartError> {
        start::start(config, metrics).await
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

    pub fn connections(&self) -> &Arc<ConnectionTable> {
        &self.connections
    }

    pub fn request_memory(&self) -> &Arc<RequestMemory> {
        &self.memory
    }

    /// What scripts wait for on standard output.
    pub fn ready(&self) -> Ready<'_> {
        Ready {
            broker_id: self.id(),
            cluster_id: self.cluster_id(),
            listeners: &self.advertised,
            log_dirs: &self.log_dirs,
            store: "embedded",
        }
    }

    /// Stops in order: clients, coordinators, the controller, logs, the store.
    pub async fn stop(self) {
        self.clients.request();
        self.services.groups.stop();
        self.clients.drained(DRAIN_MAX).await;
        self.parts.request();
        for task in [self.controller, self.ticks, self.config_changes] {
            if let Err(error) = task.await {
                warn!(%error, "a part did not stop well");
            }
        }
        let broker_epoch = self.services.replicas.broker_epoch();
        let (logs, now) = (self.logs, self.clock.now());
        let closed = tokio::task::spawn_blocking(move || logs.shut_down(Some(broker_epoch), now));
        if let Err(error) = closed.await {
            warn!(%error, "the logs were not closed well");
        }
        if let Err(error) = self.session.close().await {
            warn!(%error, "the store's session was not closed");
        }
        if let Some(store) = self.store {
            let stopped = tokio::task::spawn_blocking(move || store.stop());
            if let Err(error) = stopped.await {
                warn!(%error, "the store was not closed well");
            }
        }
        info!("stopped");
    }
}
