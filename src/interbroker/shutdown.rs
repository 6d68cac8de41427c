use wire::ControlledShutdownRequest;

use super::{Peer, PeerError, RemoteError};
use crate::model::{BrokerEpoch, BrokerId, PartitionIndex, TopicName, TopicPartition};

impl Peer {
    /// Asks the controller to move this broker's leaderships elsewhere; gives those that are left.
    pub async fn controlled_shutdown(
        &self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Result<Vec<TopicPartition>, PeerError> {
        let request = ControlledShutdownRequest { broker_id: broker_id.0, broker_epoch: broker_epoch.0 };
        let response = self.call(&request, self.versions.controlled_shutdown).await?;
        RemoteError::check(response.error_code)?;
        let remaining = response.remaining_partitions.into_iter().filter_map(|left| {
            let topic = TopicName::new(&left.topic_name).ok()?;
            Some(TopicPartition::new(topic, PartitionIndex(left.partition_index)))
        });
        Ok(remaining.collect())
    }
}
