use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::ReplacedSnafu;
use super::{ConnectionOptions, Peer, PeerError, RequestVersions};
use crate::metadata::Cache;
use crate::model::BrokerId;

/// A connection to each broker for one purpose, found by what the controller tells of them.
pub struct Peers {
    metadata: Arc<Cache>,
    /// The listener that brokers use among themselves.
    listener: String,
    options: ConnectionOptions,
    versions: RequestVersions,
    peers: Mutex<HashMap<BrokerId, Arc<Peer>>>,
}

impl Peers {
    pub fn new(
        metadata: Arc<Cache>,
        listener: String,
        options: ConnectionOptions,
        versions: RequestVersions,
    ) -> Peers {
        Peers { metadata, listener, options, versions, peers: Mutex::default() }
    }

    /// The connection to a broker where it listens now. Errors: [`PeerError::NoAddress`].
    pub fn peer(&self, id: BrokerId) -> Result<Arc<Peer>, PeerError> {
        let image = self.metadata.image();
        let endpoint = image.endpoint(id, &self.listener).ok_or(PeerError::NoAddress)?;
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get(&id).filter(|peer| peer.endpoint() == endpoint) {
            return Ok(Arc::clone(peer));
        }
        peers.retain(|id, _| image.broker(*id).is_some());
        let peer = Arc::new(Peer::new(endpoint.clone(), self.options.clone(), self.versions));
        peers.insert(id, Arc::clone(&peer));
        Ok(peer)
    }

    /// Asks the controller that this broker last heard of. Errors: [`PeerError::Replaced`] when there is another one
    /// before it has answered, as one that stands still may keep its connection for long.
    pub async fn ask_controller<T>(
        &self,
        ask: impl AsyncFnOnce(&Peer) -> Result<T, PeerError>,
    ) -> Result<T, PeerError> {
        let id = self.metadata.image().controller_id();
        let peer = self.peer(id)?;
        tokio::select! {
            biased;
            answered = ask(&peer) => answered,
            _ = self.metadata.wait_until(|image| image.controller_id() != id) => ReplacedSnafu.fail(),
        }
    }
}
