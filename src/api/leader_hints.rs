use std::sync::Arc;

use super::RequestContext;
use crate::metadata::control::Endpoint;
use crate::metadata::{Image, Topic};
use crate::model::{BrokerId, LeaderEpoch, PartitionIndex};

/// Where partitions that have moved are led now, so that clients need not ask for metadata (KIP-951).
///
/// Collects each leader once for the endpoint list of the response.
#[derive(Default)]
pub(super) struct LeaderHints {
    endpoints: Vec<LeaderEndpoint>,
}

pub(super) struct LeaderEndpoint {
    pub(super) id: BrokerId,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) rack: Option<String>,
}

impl LeaderHints {
    /// The leader of a partition and its epoch; -1 and -1 when this broker knows none.
    pub(super) fn add(
        &mut self,
        image: &Image,
        context: &RequestContext,
        topic: Option<&Arc<Topic>>,
        index: PartitionIndex,
    ) -> (BrokerId, LeaderEpoch) {
        let Some(partition) = topic.and_then(|topic| topic.partition(index)) else {
            return (BrokerId::NONE, LeaderEpoch::UNKNOWN);
        };
        let leader = partition.leader;
        let is_listed = self.endpoints.iter().any(|endpoint| endpoint.id == leader);
        let endpoint = image.endpoint(leader, context.listener()).filter(|_| !is_listed);
        if let Some(Endpoint { host, port, .. }) = endpoint {
            let rack = image.broker(leader).and_then(|broker| broker.rack.clone());
            self.endpoints.push(LeaderEndpoint { id: leader, host: host.clone(), port: *port, rack });
        }
        (leader, partition.leader_epoch)
    }

    pub(super) fn into_endpoints(self) -> Vec<LeaderEndpoint> {
        self.endpoints
    }
}
