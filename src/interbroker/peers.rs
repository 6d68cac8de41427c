use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

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

    /// The connection to the controller that this broker last heard of.
    pub fn controller(&self) -> Result<Arc<Peer>, PeerError> {
        self.peer(self.metadata.image().controller_id())
    }
}
