use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use wire::{ApiKey, Str};

use crate::config::BrokerConfig;
use crate::controller::admin::{Admin, ProducerIds};
use crate::controller::features::FinalizedFeatures;
use crate::controller::{ControlChannel, ControllerHandle};
use crate::group::GroupService;
use crate::interbroker::Peers;
use crate::metadata::Cache;
use crate::model::BrokerId;
use crate::observe::Metrics;
use crate::quota::Quotas;
use crate::replica::{FetchSessions, ReplicaManager};
use crate::runtime::task::Shutdown;
use crate::runtime::{Clock, Random};
use crate::security::{Authorizer, Principal};
use crate::txn::{MarkerChannel, TransactionVerifier, TxnService};

/// Everything a handler may ask: the parts of one broker, built by `broker/`.
pub struct Services {
    pub broker_id: BrokerId,
    pub cluster_id: String,
    pub clock: Clock,
    pub random: Random,
    /// The settings as they are now; a handler reads them once.
    pub config: Arc<ArcSwap<BrokerConfig>>,
    pub metadata: Arc<Cache>,
    pub replicas: Arc<ReplicaManager>,
    pub fetch_sessions: FetchSessions,
    pub groups: Arc<GroupService>,
    pub transactions: Arc<TxnService>,
    /// Asks the coordinator of a transaction, wherever it is.
    pub verifier: Arc<dyn TransactionVerifier>,
    /// Ends transactions in partitions.
    pub markers: Arc<dyn MarkerChannel>,
    pub controller: ControllerHandle,
    /// What controllers ask of this broker goes here.
    pub control: Arc<dyn ControlChannel>,
    pub admin: Arc<Admin>,
    /// For requests that others have to answer.
    pub peers: Arc<Peers>,
    pub producer_ids: ProducerIds,
    /// The levels of features that this broker works at.
    pub features: watch::Receiver<Arc<FinalizedFeatures>>,
    pub gate: Gate,
    pub authorizer: Authorizer,
    pub quotas: Quotas,
    pub metrics: Arc<Metrics>,
    pub shutdown: Shutdown,
}

/// Holds clients back until the broker has heard of the cluster: one that connects earlier would find its topics
/// missing, and create them. The controller is let through.
#[derive(Debug, Default)]
pub struct Gate {
    is_open: AtomicBool,
    opened: Notify,
}

impl Gate {
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub fn open(&self) {
        self.is_open.store(true, Ordering::Release);
        self.opened.notify_waiters();
    }

    /// Resolves when it is open.
    pub async fn opened(&self) {
        loop {
            let opened = self.opened.notified();
            if self.is_open() {
                return;
            }
            opened.await;
        }
    }
}

/// What is known of a connection.
#[derive(Debug)]
pub struct ConnectionContext {
    /// The listener's name.
    pub listener: Arc<str>,
    pub peer: SocketAddr,
    pub principal: Principal,
}

impl ConnectionContext {
    pub fn new(listener: Arc<str>, peer: SocketAddr) -> ConnectionContext {
        ConnectionContext { listener, peer, principal: Principal::anonymous() }
    }
}

/// One request, as far as it does not depend on the API.
#[derive(Clone, Debug)]
pub struct RequestContext {
    pub connection: Arc<ConnectionContext>,
    pub api: ApiKey,
    pub version: i16,
    pub correlation_id: i32,
    /// Empty where the client sent null.
    pub client_id: Str,
}

impl RequestContext {
    pub fn listener(&self) -> &str {
        &self.connection.listener
    }

    pub fn principal(&self) -> &Principal {
        &self.connection.principal
    }
}
