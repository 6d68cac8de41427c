//! The listeners of a running broker, opened and closed as its settings change.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tracing::{error, info};

use super::settings::listener_options;
use super::start::advertised;
use crate::api::Services;
use crate::config::{BrokerConfig, Endpoint as ConfiguredEndpoint};
use crate::controller::registration::{self, Registration};
use crate::coordination::Store;
use crate::network::{BindError, ConnectionTable, Listener, RequestMemory};
use crate::runtime::net::Network;
use crate::runtime::task::{self, Shutdown, ShutdownTrigger};

/// Every open listener. Only one caller changes them.
pub(super) struct Ports {
    pub(super) services: Arc<Services>,
    pub(super) connections: Arc<ConnectionTable>,
    pub(super) memory: Arc<RequestMemory>,
    pub(super) network: Network,
    /// Ends all of them.
    pub(super) shutdown: Shutdown,
    pub(super) open: Vec<OpenPort>,
}

/// What the cluster is told of this broker, for each session anew.
pub(super) type SharedRegistration = Arc<Mutex<Registration>>;

pub(super) struct OpenPort {
    endpoint: ConfiguredEndpoint,
    /// Also where the settings say 0.
    port: u16,
    trigger: ShutdownTrigger,
    accepting: JoinHandle<()>,
}

impl Ports {
    /// Opens a bound listener.
    pub(super) fn open(&mut self, listener: Listener, endpoint: ConfiguredEndpoint) -> Result<(), BindError> {
        let port = listener.port();
        let (trigger, shutdown) = self.shutdown.child();
        let serve = listener.open()?.serve(
            Arc::clone(&self.services),
            Arc::clone(&self.connections),
            Arc::clone(&self.memory),
            shutdown,
        );
        let accepting = task::spawn("listener", serve);
        self.open.push(OpenPort { endpoint, port, trigger, accepting });
        Ok(())
    }

    /// Opens what is new in the settings, tells the cluster, then closes what is gone, so that clients find the new
    /// addresses while the old ones still answer. A port that cannot be bound is left out,
    /// with an ERROR, until the listeners are changed again.
    pub(super) async fn change(
        &mut self,
        config: &BrokerConfig,
        registration: &SharedRegistration,
        store: &dyn Store,
    ) {
        let wanted = &config.listeners().bound;
        let (kept, closing): (Vec<OpenPort>, Vec<OpenPort>) =
            std::mem::take(&mut self.open).into_iter().partition(|open| wanted.contains(&open.endpoint));
        self.open = kept;
        // A port is bound again only after it was let go.
        let (first, later): (Vec<OpenPort>, Vec<OpenPort>) = closing
            .into_iter()
            .partition(|open| wanted.iter().any(|endpoint| endpoint.port == open.port && endpoint.port != 0));
        close_all(first).await;
        for (options, endpoint) in listener_options(config).into_iter().zip(wanted) {
            if self.open.iter().any(|open| open.endpoint == *endpoint) {
                continue;
            }
            match Listener::bind(options, &self.network)
                .and_then(|listener| self.open(listener, endpoint.clone()))
            {
                Ok(()) => info!(listener = %endpoint.listener, %endpoint, "a listener was added"),
                Err(error) => error!(listener = %endpoint.listener, %error, "a listener is not opened"),
            }
        }
        self.register(config, registration, store).await;
        close_all(later).await;
    }

    async fn register(&self, config: &BrokerConfig, registration: &SharedRegistration, store: &dyn Store) {
        let bound = |name: &str| {
            let open = self.open.iter().find(|open| open.endpoint.listener.as_str() == name);
            open.map(|open| open.port)
        };
        let changed = {
            let mut registration = registration.lock();
            let mut endpoints = advertised(config, bound);
            // Nobody is sent to a port that could not be bound.
            endpoints.retain(|endpoint| bound(&endpoint.listener).is_some());
            if registration.endpoints == endpoints {
                return;
            }
            registration.endpoints = endpoints;
            registration.clone()
        };
        // Without a session the next one is registered with them.
        if let Err(error) = registration::update(store, &changed).await {
            error!(%error, "the changed addresses are not registered in this session");
        }
    }
}

/// Their connections end when they have answered what they are at.
async fn close_all(ports: Vec<OpenPort>) {
    for port in ports {
        port.trigger.request();
        info!(listener = %port.endpoint.listener, endpoint = %port.endpoint, "a listener was removed");
        // The port is free when the task is gone.
        let _ = port.accepting.await;
    }
}
