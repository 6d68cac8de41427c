use bytes::Bytes;

use super::Admin;
use crate::coordination::{Create, CreateMode, StoreError, znodes};
use crate::model::{Offset, PartitionIndex, TopicName};

impl Admin {
    /// Stores the offset of a consumer of 0.8 where its group looks for it: in the store, not in Kafka.
    ///
    /// Errors: [`StoreError::BadArguments`] for a group that no path can have, and those of the store.
    pub async fn store_consumer_offset(
        &self,
        group: &str,
        topic: &TopicName,
        partition: PartitionIndex,
        offset: Offset,
    ) -> Result<(), StoreError> {
        let store = self.store();
        let path = znodes::consumer_offset(group, topic, partition);
        let data = Some(Bytes::from(offset.0.to_string()));
        match store.set(&path, data.clone(), None).await {
            Err(StoreError::NoNode { .. }) => {}
            outcome => return outcome.map(|_| ()),
        }
        let ends = path.match_indices('/').skip(1).map(|(at, _)| at);
        for parent in ends.filter_map(|end| path.get(..end)) {
            let node = Create { path: parent.to_owned(), data: None, mode: CreateMode::Persistent };
            match store.create(node).await {
                Ok(_) | Err(StoreError::NodeExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let node = Create { path: path.clone(), data: data.clone(), mode: CreateMode::Persistent };
        match store.create(node).await {
            Err(StoreError::NodeExists { .. }) => store.set(&path, data, None).await.map(|_| ()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// The offset that [`store_consumer_offset`](Self::store_consumer_offset), or an old consumer itself, stored.
    pub async fn consumer_offset(
        &self,
        group: &str,
        topic: &TopicName,
        partition: PartitionIndex,
    ) -> Result<Option<Offset>, StoreError> {
        let path = znodes::consumer_offset(group, topic, partition);
        let node = match self.store().read(&path).await {
            Err(StoreError::NoNode { .. }) => return Ok(None),
            node => node?,
        };
        let text = node.data.as_deref().and_then(|data| std::str::from_utf8(data).ok());
        Ok(text.and_then(|text| text.parse().ok()).map(Offset))
    }
}
