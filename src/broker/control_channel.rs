use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::roles::Roles;
use super::settings::topic_settings;
use crate::config::{BrokerConfig, Properties, TopicConfig};
use crate::controller::{ControlChannel, ControlError, ControlRequest, ControlResponse};
use crate::coordination::znodes::{self, EntityConfig};
use crate::coordination::{BoxFuture, NodeData, Store, StoreError};
use crate::group::GroupService;
use crate::metadata::Cache;
use crate::metadata::control::LeaderAndIsrRequest;
use crate::model::{BrokerId, TopicName};
use crate::replica::ReplicaManager;
use crate::runtime::{Clock, task};

/// How long new replicas wait for their topics' settings: a store that elects a leader is away for seconds.
const SETTINGS_PATIENCE: Duration = Duration::from_secs(6);
const READ_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How the controller of this process reaches this broker: by calling it.
pub(super) struct LocalChannel {
    pub(super) me: BrokerId,
    pub(super) config: Arc<ArcSwap<BrokerConfig>>,
    pub(super) store: Arc<dyn Store>,
    pub(super) metadata: Arc<Cache>,
    pub(super) replicas: Arc<ReplicaManager>,
    pub(super) groups: Arc<GroupService>,
    pub(super) roles: Arc<Roles>,
    /// Topics whose settings could not be read; they have those of the broker meanwhile.
    pub(super) unsettled: Mutex<BTreeSet<TopicName>>,
    /// Roles change in the order in which the requests came: one that waits for settings must not make again what the
    /// next one deleted. Requests of one controller come on several connections where it did not wait for an answer.
    pub(super) turn: tokio::sync::Mutex<()>,
    pub(super) clock: Clock,
}

impl ControlChannel for LocalChannel {
    fn send(
        &self,
        to: BrokerId,
        request: ControlRequest,
    ) -> BoxFuture<'_, Result<ControlResponse, ControlError>> {
        Box::pin(async move {
            if to != self.me {
                return Err(ControlError::Unreachable { request: Box::new(request) });
            }
            match request {
                ControlRequest::LeaderAndIsr(request) => self.lead_and_follow(request).await,
                ControlRequest::StopReplica(request) => {
                    let _turn = self.turn.lock().await;
                    let (roles, now) = (Arc::clone(&self.roles), self.clock.now());
                    let stopped = blocking(move || roles.stop(&request, now)).await;
                    let outcomes = stopped.map_err(|refusal| ControlError::Refused { refusal })?;
                    Ok(ControlResponse::StopReplica(outcomes))
                }
                ControlRequest::UpdateMetadata(request) => {
                    let admitted = self.replicas.admit_metadata(&request.sender);
                    admitted.map_err(|refusal| ControlError::Refused { refusal })?;
                    let changes = self.metadata.apply(request);
                    if !changes.deleted.is_empty() {
                        let groups = Arc::clone(&self.groups);
                        task::spawn("forget offsets", async move {
                            groups.forget_partitions(changes.deleted).await;
                        });
                    }
                    Ok(ControlResponse::UpdateMetadata)
                }
            }
        })
    }
}

impl LocalChannel {
    async fn lead_and_follow(&self, request: LeaderAndIsrRequest) -> Result<ControlResponse, ControlError> {
        let _turn = self.turn.lock().await;
        self.learn_settings(&request).await;
        let (roles, now) = (Arc::clone(&self.roles), self.clock.now());
        let applied = blocking(move || roles.lead_and_follow(&request, now)).await;
        let outcomes = applied.map_err(|refusal| ControlError::Refused { refusal })?;
        Ok(ControlResponse::LeaderAndIsr(outcomes))
    }

    /// Logs that are opened must have their topic's settings: those of topics that are new to this broker are
    /// read from the store first, as Kafka does. What cannot be read is read again with the next request.
    async fn learn_settings(&self, request: &LeaderAndIsrRequest) {
        // They stay noted until they are read: a request may be given up at any await.
        let mut topics = self.unsettled.lock().clone();
        let new = request.partitions.iter().map(|partition| &partition.topic_partition);
        let new = new.filter(|new| self.replicas.partition(&new.topic, new.partition).is_err());
        topics.extend(new.map(|topic_partition| topic_partition.topic.clone()));
        let paths: Vec<String> = topics.iter().map(|topic| znodes::topic_config(topic)).collect();
        // All are asked for before the first answer is waited for.
        let reads: Vec<_> = paths.iter().map(|path| self.store.read(path)).collect();
        let patience_ends = Instant::now() + SETTINGS_PATIENCE;
        for ((topic, path), read) in topics.into_iter().zip(&paths).zip(reads) {
            let read = read_patiently(&*self.store, path, read.await, patience_ends).await;
            match decoded_topic_config(read, &self.config.load(), &topic) {
                Ok(config) => {
                    self.replicas
                        .change_topic_settings(&topic, config.map(|config| topic_settings(self.me, &config)));
                    self.unsettled.lock().remove(&topic);
                }
                Err(error) => {
                    warn!(%topic, %error, "cannot read the topic's settings yet, going on without");
                    self.unsettled.lock().insert(topic);
                }
            }
        }
    }

    /// Lets go of the replicas in log directories that failed; answers how many they were.
    pub(super) async fn drop_offline_replicas(&self) -> usize {
        let roles = Arc::clone(&self.roles);
        blocking(move || roles.drop_offline_replicas()).await
    }
}

/// Reads again while the store is away for a moment, until `patience_ends`.
async fn read_patiently(
    store: &dyn Store,
    path: &str,
    first: Result<NodeData, StoreError>,
    patience_ends: Instant,
) -> Result<NodeData, StoreError> {
    let mut read = first;
    while read.as_ref().is_err_and(StoreError::is_away) && Instant::now() < patience_ends {
        tokio::time::sleep(READ_AGAIN_AFTER).await;
        read = store.read(path).await;
    }
    read
}

/// A topic's effective settings as the store has them; `None` = it has no overrides.
pub(super) async fn stored_topic_config(
    store: &dyn Store,
    broker: &BrokerConfig,
    topic: &TopicName,
) -> Result<Option<TopicConfig>, StoreError> {
    decoded_topic_config(store.read(&znodes::topic_config(topic)).await, broker, topic)
}

fn decoded_topic_config(
    read: Result<NodeData, StoreError>,
    broker: &BrokerConfig,
    topic: &TopicName,
) -> Result<Option<TopicConfig>, StoreError> {
    let node = match read {
        Ok(node) => node,
        Err(StoreError::NoNode { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    match EntityConfig::decode(&node) {
        Ok(EntityConfig(entries)) => Ok(topic_config(topic, &entries.into_iter().collect(), broker)),
        Err(error) => {
            warn!(%topic, %error, "the topic's stored settings cannot be read");
            Ok(None)
        }
    }
}

/// A topic's effective settings with these overrides; `None` = there are none.
pub(super) fn topic_config(
    topic: &TopicName,
    overrides: &Properties,
    broker: &BrokerConfig,
) -> Option<TopicConfig> {
    if overrides.is_empty() {
        return None;
    }
    let (config, left_out) = TopicConfig::from_stored(overrides, broker);
    for error in left_out {
        warn!(%topic, %error, "a stored setting of the topic is left out");
    }
    Some(config)
}

/// Runs file work off the workers. A panic in it is a panic here: state may be half changed.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match task::blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::{CurrentSession, MemoryEnsemble};

    #[tokio::test(start_paused = true)]
    async fn settings_are_waited_for_while_the_store_is_away_for_a_moment() {
        let ensemble = MemoryEnsemble::new();
        let expired = Arc::new(ensemble.session());
        ensemble.expire_session(expired.session_id());
        let current = Arc::new(CurrentSession::new(expired));
        let (store, path) = (Arc::clone(&current), "/");
        let read = || async {
            let first = store.read(path).await;
            assert!(matches!(first, Err(StoreError::SessionExpired)));
            read_patiently(&*store, path, first, Instant::now() + SETTINGS_PATIENCE).await
        };
        assert!(matches!(read().await, Err(StoreError::SessionExpired)), "patience has an end");
        tokio::spawn(async move {
            tokio::time::sleep(SETTINGS_PATIENCE / 2).await;
            current.replace(Arc::new(ensemble.session()));
        });
        read().await.unwrap();
    }
}
