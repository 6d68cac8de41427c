use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::{debug, warn};

use super::control_channel::LocalChannel;
use crate::config::BrokerConfig;
use crate::controller::{ControlChannel, ControlError, ControlRequest, ControlResponse};
use crate::coordination::BoxFuture;
use crate::interbroker::{ConnectionOptions, Peer, PeerError, RemoteError, RequestVersions};
use crate::metadata::control::{BrokerRegistration, ControlRefusal};
use crate::model::BrokerId;
use crate::runtime::net::Network;

/// How the controller of this process reaches all brokers: this one by a direct call, the others over the network.
///
/// Where a broker listens is learned from the UpdateMetadata that is sent to it: a broker's first request is always
/// one.
pub(super) struct ClusterChannel {
    local: Arc<LocalChannel>,
    me: BrokerId,
    /// Of the brokers' listeners, the one for these requests.
    listener: String,
    /// The one that brokers tell each other in LeaderAndIsr.
    inter_broker_listener: String,
    options: ConnectionOptions,
    versions: RequestVersions,
    peers: Mutex<HashMap<BrokerId, Arc<Peer>>>,
}

impl ClusterChannel {
    pub(super) fn new(
        config: &BrokerConfig,
        network: Network,
        me: BrokerId,
        local: Arc<LocalChannel>,
    ) -> ClusterChannel {
        let inter_broker_listener = config.listeners().inter_broker.as_str().to_owned();
        let listener = config.control_plane_listener_name().map_or_else(
            || inter_broker_listener.clone(),
            |name| crate::config::ListenerName::new(name).as_str().to_owned(),
        );
        let timeout_ms = u64::try_from(config.controller_socket_timeout_ms()).unwrap_or(0);
        ClusterChannel {
            local,
            me,
            listener,
            inter_broker_listener,
            options: ConnectionOptions {
                network,
                client_id: me.to_string().into(),
                request_timeout: Duration::from_millis(timeout_ms),
            },
            versions: RequestVersions::of(config.inter_broker_protocol_version()),
            peers: Mutex::default(),
        }
    }

    /// The connection to a broker; `None` while nobody has said where it listens.
    fn peer(&self, to: BrokerId, request: &ControlRequest) -> Option<Arc<Peer>> {
        let mut peers = self.peers.lock();
        if let ControlRequest::UpdateMetadata(request) = request {
            self.learn(&mut peers, to, &request.live_brokers);
        }
        peers.get(&to).cloned()
    }

    fn learn(&self, peers: &mut HashMap<BrokerId, Arc<Peer>>, to: BrokerId, live: &[BrokerRegistration]) {
        peers.retain(|id, _| live.iter().any(|broker| broker.id == *id));
        let Some(broker) = live.iter().find(|broker| broker.id == to) else { return };
        let Some(endpoint) = broker.endpoint(&self.listener) else {
            warn!(broker_id = to.0, listener = self.listener, "the broker has no such listener");
            return;
        };
        if peers.get(&to).is_none_or(|peer| peer.endpoint() != endpoint) {
            let peer = Peer::new(endpoint.clone(), self.options.clone(), self.versions);
            peers.insert(to, Arc::new(peer));
        }
    }

    async fn send_remote(&self, peer: &Peer, request: &ControlRequest) -> Result<ControlResponse, PeerError> {
        match request {
            ControlRequest::LeaderAndIsr(request) => {
                let outcomes = peer.leader_and_isr(request, &self.inter_broker_listener).await?;
                Ok(ControlResponse::LeaderAndIsr(outcomes))
            }
            ControlRequest::StopReplica(request) => {
                Ok(ControlResponse::StopReplica(peer.stop_replica(request).await?))
            }
            ControlRequest::UpdateMetadata(request) => {
                peer.update_metadata(request).await?;
                Ok(ControlResponse::UpdateMetadata)
            }
        }
    }
}

impl ControlChannel for ClusterChannel {
    fn send(
        &self,
        to: BrokerId,
        request: ControlRequest,
    ) -> BoxFuture<'_, Result<ControlResponse, ControlError>> {
        if to == self.me {
            return self.local.send(to, request);
        }
        Box::pin(async move {
            let Some(peer) = self.peer(to, &request) else {
                return Err(ControlError::Unreachable { request: Box::new(request) });
            };
            let error = match self.send_remote(&peer, &request).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            match error {
                PeerError::Refused { error: RemoteError::StaleControllerEpoch } => {
                    Err(ControlError::Refused { refusal: ControlRefusal::StaleControllerEpoch })
                }
                PeerError::Refused { error: RemoteError::StaleBrokerEpoch } => {
                    Err(ControlError::Refused { refusal: ControlRefusal::StaleBrokerEpoch })
                }
                error => {
                    debug!(broker_id = to.0, %error, "a control request was not answered");
                    Err(ControlError::Unreachable { request: Box::new(request) })
                }
            }
        })
    }
}
