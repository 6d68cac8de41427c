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
    /// The one that brokers tell each other in LeaderAndIsr.
    inter_broker_listener: String,
    known: KnownBrokers,
}

/// Connections to brokers, where they listen as far as is known.
///
/// Requests to different brokers overtake each other: one that is sent again may be older than what another broker was
/// told. So a request tells of the broker it goes to and of no other, and a broker that is gone stays known.
struct KnownBrokers {
    /// Of the brokers' listeners, the one for these requests.
    listener: String,
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
            inter_broker_listener,
            known: KnownBrokers {
                listener,
                options: ConnectionOptions {
                    network,
                    client_id: me.to_string().into(),
                    request_timeout: Duration::from_millis(timeout_ms),
                },
                versions: RequestVersions::of(config.inter_broker_protocol_version()),
                peers: Mutex::default(),
            },
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

impl KnownBrokers {
    /// The connection to a broker; `None` while nobody has said where it listens.
    fn peer(&self, to: BrokerId, request: &ControlRequest) -> Option<Arc<Peer>> {
        let mut peers = self.peers.lock();
        if let ControlRequest::UpdateMetadata(request) = request {
            self.learn(&mut peers, to, &request.live_brokers);
        }
        peers.get(&to).cloned()
    }

    fn learn(&self, peers: &mut HashMap<BrokerId, Arc<Peer>>, to: BrokerId, live: &[BrokerRegistration]) {
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
            let Some(peer) = self.known.peer(to, &request) else {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ProtocolVersion;
    use crate::metadata::control::Endpoint;
    use crate::model::BrokerEpoch;

    fn broker(id: i32) -> BrokerRegistration {
        let endpoint = Endpoint {
            listener: "PLAINTEXT".to_owned(),
            security_protocol: "PLAINTEXT".to_owned(),
            host: format!("b{id}"),
            port: 9092,
        };
        BrokerRegistration { id: BrokerId(id), epoch: BrokerEpoch(1), endpoints: vec![endpoint], rack: None }
    }

    /// Found by the simulation: broker 1 joined while a request from before was still on its way to broker 2, and the
    /// controller never found it again.
    #[test]
    fn an_older_request_to_one_broker_does_not_make_another_unknown() {
        let known = KnownBrokers {
            listener: "PLAINTEXT".to_owned(),
            options: ConnectionOptions {
                network: Network::system(),
                client_id: "3".into(),
                request_timeout: Duration::from_secs(1),
            },
            versions: RequestVersions::of(ProtocolVersion::parse("3.9").unwrap()),
            peers: Mutex::default(),
        };
        known.learn(&mut known.peers.lock(), BrokerId(1), &[broker(1), broker(2)]);
        known.learn(&mut known.peers.lock(), BrokerId(2), &[broker(2)]);
        assert!(known.peers.lock().contains_key(&BrokerId(1)));
    }
}
