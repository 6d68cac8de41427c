use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use wire::{ApiKey, Str};

use crate::config::BrokerConfig;
use crate::controller::ControllerHandle;
use crate::controller::admin::{Admin, ProducerIds};
use crate::group::GroupService;
use crate::metadata::Cache;
use crate::model::BrokerId;
use crate::observe::Metrics;
use crate::quota::Quotas;
use crate::replica::{FetchSessions, ReplicaManager};
use crate::runtime::task::Shutdown;
use crate::runtime::{Clock, Random};
use crate::security::{Authorizer, Principal};

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
    pub controller: ControllerHandle,
    pub admin: Arc<Admin>,
    pub producer_ids: ProducerIds,
    /// The version of `/feature`.
    pub finalized_features_epoch: i64,
    pub authorizer: Authorizer,
    pub quotas: Quotas,
    pub metrics: Arc<Metrics>,
    pub shutdown: Shutdown,
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
