//! What administrators change while the broker runs reaches the parts that use it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tracing::{error, info, warn};

use super::control_channel::{stored_topic_config, topic_config};
use super::ports::{Ports, SharedRegistration};
use super::settings::{connection_limits, move_limit, set_throttles, topic_settings};
use crate::config::{BrokerConfig, Properties};
use crate::controller::{ConfigChanges, ControllerHandle, StoredConfig};
use crate::coordination::znodes::{self, ConfigEntity};
use crate::coordination::{Store, StoreError};
use crate::model::{BrokerId, TopicName};
use crate::network::ConnectionTable;
use crate::replica::{Fetchers, ReplicaManager};
use crate::runtime::task::{self, Shutdown};

/// The dynamic settings that concern one broker, as the store has them.
#[derive(Default)]
pub(super) struct DynamicSettings {
    cluster_default: Properties,
    per_broker: Properties,
}

impl DynamicSettings {
    pub(super) fn of(me: BrokerId, stored: &[StoredConfig]) -> DynamicSettings {
        let mut settings = DynamicSettings::default();
        for (entity, properties) in stored {
            settings.change(me, entity, properties);
        }
        settings
    }

    /// Whether the change concerns this broker.
    fn change(&mut self, me: BrokerId, entity: &ConfigEntity, properties: &Properties) -> bool {
        match entity {
            ConfigEntity::Broker(None) => self.cluster_default = properties.clone(),
            ConfigEntity::Broker(Some(id)) if *id == me => self.per_broker = properties.clone(),
            _ => return false,
        }
        true
    }

    /// The snapshot with these settings on top of the file's.
    pub(super) fn apply_to(&self, config: &BrokerConfig) -> BrokerConfig {
        let (config, left_out) = config.with_dynamic(&self.cluster_default, &self.per_broker);
        for error in left_out {
            warn!(%error, "a stored setting of the broker is left out");
        }
        config
    }
}

/// Until the store is asked again, when it was away or the session has expired.
const PAUSE: Duration = Duration::from_millis(500);

/// Applies changes one after the other.
pub(super) struct ConfigApplier {
    pub(super) me: BrokerId,
    pub(super) dynamic: DynamicSettings,
    pub(super) config: Arc<ArcSwap<BrokerConfig>>,
    pub(super) store: Arc<dyn Store>,
    pub(super) replicas: Arc<ReplicaManager>,
    pub(super) fetchers: Arc<Fetchers>,
    pub(super) controller: ControllerHandle,
    pub(super) connections: Arc<ConnectionTable>,
    pub(super) ports: Ports,
    pub(super) registration: SharedRegistration,
}

impl ConfigApplier {
    /// Runs until the broker stops, or the store fails. After the end of a session the changes that were notified
    /// meanwhile are found in the next one.
    pub(super) async fn run(mut self, mut changes: ConfigChanges, shutdown: Shutdown) {
        let mut stopping = shutdown.requested();
        loop {
            let next = tokio::select! {
                next = changes.next() => next,
                () = &mut stopping => return,
            };
            let applied = match next {
                // A store that is out of reach may keep a change waiting for as long as it is.
                Ok((entity, properties)) => tokio::select! {
                    applied = self.apply(entity, properties) => applied,
                    () = &mut stopping => return,
                },
                Err(StoreError::SessionExpired) => {
                    tokio::select! {
                        () = tokio::time::sleep(PAUSE) => continue,
                        () = &mut stopping => return,
                    }
                }
                Err(error) => {
                    error!(%error, "changes of configurations are not heard of any more");
                    return;
                }
            };
            if let Err(error) = applied {
                error!(%error, "a change of the configuration is not applied to all topics");
            }
        }
    }

    async fn apply(&mut self, entity: ConfigEntity, properties: Properties) -> Result<(), StoreError> {
        if let ConfigEntity::Topic(topic) = &entity {
            self.change_topic(topic, &properties).await;
        } else if self.dynamic.change(self.me, &entity, &properties) {
            self.change_broker().await?;
        }
        Ok(())
    }

    async fn change_topic(&self, topic: &TopicName, overrides: &Properties) {
        let config = topic_config(topic, overrides, &self.config.load());
        let is_unclean = config.as_ref().is_some_and(|config| config.unclean_leader_election_enable);
        self.replicas
            .change_topic_settings(topic, config.as_ref().map(|config| topic_settings(self.me, config)));
        info!(%topic, "the topic's settings changed");
        if is_unclean && overrides.contains_key("unclean.leader.election.enable") {
            self.controller.unclean_election_enabled(topic.clone()).await;
        }
    }

    async fn change_broker(&mut self) -> Result<(), StoreError> {
        let before = self.config.load_full();
        let config = Arc::new(self.dynamic.apply_to(&before));
        self.config.store(Arc::clone(&config));
        info!("the broker's settings changed");
        set_throttles(self.replicas.throttles(), &config);
        let limited = Arc::clone(&config);
        // Looks host names up.
        match task::blocking(move || connection_limits(&limited)).await {
            Ok(limits) => self.connections.change_limits(limits),
            Err(error) => error!(%error, "the limits of connections stay as they were"),
        }
        if before.listeners() != config.listeners() {
            self.ports.change(&config, &self.registration, &*self.store).await;
        }
        self.replicas.limit_moves(move_limit(&config));
        self.fetchers.change_count(usize::try_from(config.num_replica_fetchers()).unwrap_or(1));
        let (old, new) = (before.topic_defaults(), config.topic_defaults());
        if old.unclean_leader_election_enable != new.unclean_leader_election_enable {
            self.controller.set_unclean_election_by_default(new.unclean_leader_election_enable).await;
        }
        if old == new {
            return Ok(());
        }
        self.replicas.change_default_settings(topic_settings(self.me, new));
        // Nobody else would look at them again.
        while let Err(error) = self.change_topics(&config).await {
            if !error.is_away() {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Topics with settings of their own take the rest from the broker.
    async fn change_topics(&self, config: &BrokerConfig) -> Result<(), StoreError> {
        for name in self.store.children(&format!("{}/topics", znodes::CONFIG)).await? {
            let Ok(topic) = TopicName::new(&name) else { continue };
            if let Some(own) = stored_topic_config(&*self.store, config, &topic).await? {
                self.replicas.change_topic_settings(&topic, Some(topic_settings(self.me, &own)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_broker_takes_its_own_settings_and_the_defaults_of_all() {
        let all = (ConfigEntity::Broker(None), properties(&[("message.max.bytes", "2000")]));
        let mine = (ConfigEntity::Broker(Some(BrokerId(1))), properties(&[("max.connections", "7")]));
        let other = (ConfigEntity::Broker(Some(BrokerId(2))), properties(&[("max.connections", "9")]));
        let dynamic = DynamicSettings::of(BrokerId(1), &[all, mine, other]);
        let file = BrokerConfig::new(properties(&[("broker.id", "1")])).unwrap();
        let config = dynamic.apply_to(&file);
        assert_eq!((config.topic_defaults().max_message_bytes, config.max_connections()), (2000, 7));
    }

    #[test]
    fn settings_that_are_taken_back_are_the_files_again() {
        let mine = ConfigEntity::Broker(Some(BrokerId(1)));
        let stored = (mine.clone(), properties(&[("max.connections", "7")]));
        let mut dynamic = DynamicSettings::of(BrokerId(1), &[stored]);
        let file = BrokerConfig::new(properties(&[("broker.id", "1"), ("max.connections", "5")])).unwrap();
        let config = dynamic.apply_to(&file);
        assert!(dynamic.change(BrokerId(1), &mine, &Properties::new()));
        assert_eq!(dynamic.apply_to(&config).max_connections(), 5);
    }
}
