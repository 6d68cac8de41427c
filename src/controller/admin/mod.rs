//! What administrators ask for: topics, partitions, configurations, elections.
//!
//! [`Admin`] checks a request as Kafka does, in its order and with its messages, writes what was asked for to
//! the store, where the controller finds it, and waits until this broker's metadata shows it. A request about
//! several things answers each of them alone.

mod auto_creation;
mod configs;
mod consumer_offsets;
mod create_topics;
mod creation_error;
mod delete_topics;
mod elections;
mod features;
mod partitions;
mod producer_ids;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::timeout;

pub use auto_creation::AutoCreation;
pub use configs::{AlterConfigsError, AlterEntry, AlterOperation, ConfigChange, ConfigResource};
pub use create_topics::{CreateTopics, CreatedTopic, NewTopic};
pub use creation_error::CreateTopicError;
pub use delete_topics::{DeleteTopicError, DeleteTopics, DeletedTopic, DeletionPermissions, TopicSelector};
pub use elections::LeaderElectionError;
pub use features::{FeatureDirection, FeatureUpdate, InvalidUpdate, UpdateFeaturesError};
pub use partitions::{CreatePartitionsError, NewPartitions};
pub use producer_ids::{ProducerIds, ProducerIdsError};

use super::placement::Candidate;
use super::service::ControllerHandle;
use crate::coordination::{Store, znodes};
use crate::metadata::{Cache, Image};
use crate::model::BrokerId;
use crate::observe::Pace;
use crate::runtime::Random;

/// Serves administrators. Any broker can create topics for its own clients and change configurations; the rest
/// is refused with [`NotController`](super::NotController) on all but the controller.
pub struct Admin {
    broker_id: BrokerId,
    store: ArcSwap<Arc<dyn Store>>,
    metadata: Arc<Cache>,
    controller: ControllerHandle,
    random: Random,
    options: AdminOptions,
    /// Topics that are being created for a client, so that its repeated questions do not create them again.
    in_creation: Mutex<std::collections::HashSet<String>>,
    /// Clients repeat a question that is refused.
    refusals: Pace,
}

/// Topics that clients may not create are told of so often at most.
const REFUSALS_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminOptions {
    /// `inter.broker.protocol.version` is 2.8 or later: topics get ids.
    pub uses_topic_ids: bool,
    /// `delete.topic.enable`
    pub topic_deletion_enabled: bool,
}

impl Admin {
    pub fn new(
        broker_id: BrokerId,
        store: Arc<dyn Store>,
        metadata: Arc<Cache>,
        controller: ControllerHandle,
        random: Random,
        options: AdminOptions,
    ) -> Admin {
        Admin {
            broker_id,
            store: ArcSwap::from_pointee(store),
            metadata,
            controller,
            random,
            options,
            in_creation: Mutex::default(),
            refusals: Pace::new(REFUSALS_INTERVAL),
        }
    }

    /// Goes on with a new session, after the one before has expired.
    pub fn use_session(&self, store: Arc<dyn Store>) {
        self.store.store(Arc::new(store));
    }

    /// Whether a broker is one of Barnabas, as these say in the store while they live. Unknown = no.
    pub async fn is_of_our_kind(&self, broker: BrokerId) -> bool {
        matches!(self.store().exists(&znodes::barnabas_broker(broker)).await, Ok(Some(_)))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store.load())
    }

    /// The brokers that can hold replicas.
    fn candidates(image: &Image) -> Vec<Candidate> {
        image.brokers().map(|broker| Candidate { id: broker.id, rack: broker.rack.clone() }).collect()
    }

    /// Waits until this broker's metadata is as wanted, for so many milliseconds at most. Gives the last image.
    async fn await_metadata(&self, limit_ms: i32, is_reached: impl FnMut(&Image) -> bool) -> Arc<Image> {
        let limit = Duration::from_millis(u64::try_from(limit_ms).unwrap_or(0));
        match timeout(limit, self.metadata.wait_until(is_reached)).await {
            Ok(image) => image,
            Err(_) => self.metadata.image(),
        }
    }
}
