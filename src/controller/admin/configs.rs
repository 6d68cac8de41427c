use std::collections::BTreeSet;

use indexmap::IndexMap;
use snafu::{Snafu, ensure};
use tracing::{info, warn};

use super::Admin;
use crate::config::{
    BrokerConfig, ConfigError, Operation as ListOperation, Properties, Scope, TopicConfig, alter_broker,
    alter_topic,
};
use crate::controller::patience::{self, RETRY_PAUSE, is_unknown};
use crate::coordination::znodes::{self, ConfigEntity, EntityConfig, ZnodeError};
use crate::coordination::{Create, CreateMode, NodeData, Operation, Store, StoreError};
use crate::model::{BrokerId, TopicName};

/// Whose configuration a client means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConfigResource {
    Topic(String),
    /// A broker's id as text; empty = the default of all.
    Broker(String),
}

/// What a client wants of one resource's configuration. A value of `None` is refused unless it deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// These settings instead of all that are stored.
    Replace(Vec<(String, Option<String>)>),
    /// Setting by setting.
    Alter(Vec<AlterEntry>),
}

impl ConfigChange {
    /// What no resource allows.
    pub fn check(&self) -> Result<(), AlterConfigsError> {
        let (keys, nulls): (Vec<&String>, Vec<&String>) = match self {
            ConfigChange::Replace(entries) => (
                entries.iter().map(|(key, _)| key).collect(),
                entries.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key).collect(),
            ),
            ConfigChange::Alter(entries) => (
                entries.iter().map(|entry| &entry.key).collect(),
                entries
                    .iter()
                    .filter(|entry| entry.value.is_none() && entry.operation != AlterOperation::Delete)
                    .map(|entry| &entry.key)
                    .collect(),
            ),
        };
        ensure!(keys.iter().collect::<BTreeSet<_>>().len() == keys.len(), KeyTwiceSnafu);
        ensure!(nulls.is_empty(), NullValueSnafu { keys: nulls.into_iter().cloned().collect::<Vec<_>>() });
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterEntry {
    pub key: String,
    pub operation: AlterOperation,
    pub value: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlterOperation {
    Set,
    Delete,
    /// Adds to a list.
    Append,
    /// Takes out of a list.
    Subtract,
    /// No operation of the protocol has this number.
    Unknown(i8),
}

/// Why a configuration was not changed, in the words of Kafka.
#[derive(Debug, PartialEq, Eq, Snafu)]
pub enum AlterConfigsError {
    /// INVALID_REQUEST
    #[snafu(display("Each resource must appear at most once."))]
    ResourceTwice,
    /// INVALID_REQUEST
    #[snafu(display("Error due to duplicate config keys"))]
    KeyTwice,
    /// INVALID_REQUEST
    #[snafu(display("Null value not supported for : {}", keys.join(",")))]
    NullValue { keys: Vec<String> },
    /// INVALID_REQUEST
    #[snafu(display("Unknown operations type {operation}"))]
    UnknownOperation { operation: i8 },
    /// INVALID_REQUEST
    #[snafu(display("Default topic resources are not allowed."))]
    DefaultTopic,
    /// UNKNOWN_TOPIC_OR_PARTITION
    #[snafu(display("The topic '{topic}' does not exist."))]
    UnknownTopic { topic: String },
    /// INVALID_REQUEST
    #[snafu(display("Node id must be an integer, but it is: {name}"))]
    BrokerIdNotNumeric { name: String },
    /// INVALID_REQUEST
    #[snafu(display("Unexpected broker id, expected {expected}, but received {name}"))]
    OtherBroker { expected: BrokerId, name: String },
    /// INVALID_CONFIG
    #[snafu(display("{}{source}", prefix(topic, source)))]
    InvalidTopicConfig { topic: String, source: ConfigError },
    /// INVALID_REQUEST
    #[snafu(display("{source}"))]
    InvalidBrokerConfig { source: ConfigError },
    /// INVALID_CONFIG: an operation that the key does not allow.
    #[snafu(display("{source}"))]
    InvalidOperation { source: ConfigError },
    /// UNKNOWN_SERVER_ERROR
    #[snafu(display("the stored configuration cannot be read: {source}"), context(false))]
    Unreadable { source: ZnodeError },
    /// UNKNOWN_SERVER_ERROR: configurations belong to the KRaft controller that a migration has put in charge.
    #[snafu(display("a KRaft controller is in charge of configurations"))]
    KraftInCharge,
    /// UNKNOWN_SERVER_ERROR
    #[snafu(display("{source}"), context(false))]
    Store { source: StoreError },
}

/// Kafka names the resource only where a value does not parse.
fn prefix(topic: &str, error: &ConfigError) -> String {
    match error {
        ConfigError::InvalidValue { .. } => {
            format!("Invalid config value for resource ConfigResource(type=TOPIC, name='{topic}'): ")
        }
        _ => String::new(),
    }
}

impl Admin {
    /// What is stored for an entity, unchecked; empty where nothing is.
    pub async fn stored_config(&self, entity: &ConfigEntity) -> Result<Properties, AlterConfigsError> {
        match patience::read(&*self.store(), &entity.path()).await? {
            Some(node) => Ok(EntityConfig::decode(&node)?.0.into_iter().collect()),
            None => Ok(Properties::new()),
        }
    }

    /// Changes configurations and notifies all brokers, without waiting for them. Each resource has an answer,
    /// in the order of the request; one that is named twice has one.
    pub async fn alter_configs(
        &self,
        changes: Vec<(ConfigResource, ConfigChange)>,
        validate_only: bool,
        config: &BrokerConfig,
    ) -> Vec<(ConfigResource, Result<(), AlterConfigsError>)> {
        let mut resources: IndexMap<ConfigResource, Vec<ConfigChange>> = IndexMap::new();
        for (resource, change) in changes {
            resources.entry(resource).or_default().push(change);
        }
        let mut answers = Vec::new();
        for (resource, changes) in resources {
            let outcome = match changes.as_slice() {
                [change] => self.alter_one(&resource, change, validate_only, config).await,
                _ => Err(AlterConfigsError::ResourceTwice),
            };
            answers.push((resource, outcome));
        }
        answers
    }

    async fn alter_one(
        &self,
        resource: &ConfigResource,
        change: &ConfigChange,
        validate_only: bool,
        config: &BrokerConfig,
    ) -> Result<(), AlterConfigsError> {
        change.check()?;
        let entity = self.entity(resource)?;
        let store = self.store();
        loop {
            let node = patience::read(&*store, &entity.path()).await?;
            let stored = match &node {
                Some(node) => EntityConfig::decode(node)?.0.into_iter().collect(),
                None => Properties::new(),
            };
            let altered = alter(resource, &stored, change)?;
            validate(resource, &altered, config)?;
            if validate_only {
                return Ok(());
            }
            if write(&*store, &entity, node.as_ref(), altered).await? {
                info!(entity = entity.entity_path(), "configuration changed");
                return notify(&*store, &entity).await;
            }
        }
    }

    fn entity(&self, resource: &ConfigResource) -> Result<ConfigEntity, AlterConfigsError> {
        match resource {
            ConfigResource::Topic(name) => {
                ensure!(!name.is_empty(), DefaultTopicSnafu);
                let known =
                    TopicName::new(name).ok().filter(|name| self.metadata.image().topic(name).is_some());
                known
                    .map(ConfigEntity::Topic)
                    .ok_or_else(|| AlterConfigsError::UnknownTopic { topic: name.clone() })
            }
            ConfigResource::Broker(name) if name.is_empty() => Ok(ConfigEntity::Broker(None)),
            ConfigResource::Broker(name) => {
                self.check_broker(name)?;
                Ok(ConfigEntity::Broker(Some(self.broker_id)))
            }
        }
    }

    /// The name has to be the id of this broker.
    pub fn check_broker(&self, name: &str) -> Result<(), AlterConfigsError> {
        let Ok(id) = name.parse().map(BrokerId) else {
            return BrokerIdNotNumericSnafu { name }.fail();
        };
        ensure!(id == self.broker_id, OtherBrokerSnafu { expected: self.broker_id, name });
        Ok(())
    }
}

/// The configuration as it would be.
fn alter(
    resource: &ConfigResource,
    stored: &Properties,
    change: &ConfigChange,
) -> Result<Properties, AlterConfigsError> {
    let entries = match change {
        ConfigChange::Replace(entries) => {
            return Ok(entries.iter().cloned().filter_map(|(key, value)| Some((key, value?))).collect());
        }
        ConfigChange::Alter(entries) => entries,
    };
    let mut operations = Vec::new();
    for AlterEntry { key, operation, value } in entries {
        let value = value.clone().unwrap_or_default();
        let operation = match *operation {
            AlterOperation::Set => ListOperation::Set(value),
            AlterOperation::Delete => ListOperation::Delete,
            AlterOperation::Append => ListOperation::Append(value),
            AlterOperation::Subtract => ListOperation::Subtract(value),
            AlterOperation::Unknown(operation) => return UnknownOperationSnafu { operation }.fail(),
        };
        operations.push((key.clone(), operation));
    }
    let altered = match resource {
        ConfigResource::Topic(_) => alter_topic(stored, &operations),
        ConfigResource::Broker(_) => alter_broker(stored, &operations),
    };
    altered.map_err(|source| AlterConfigsError::InvalidOperation { source })
}

fn validate(
    resource: &ConfigResource,
    altered: &Properties,
    config: &BrokerConfig,
) -> Result<(), AlterConfigsError> {
    match resource {
        ConfigResource::Topic(topic) => TopicConfig::validate(altered, config)
            .map_err(|source| AlterConfigsError::InvalidTopicConfig { topic: topic.clone(), source }),
        ConfigResource::Broker(name) => {
            let scope = if name.is_empty() { Scope::ClusterDefault } else { Scope::Broker };
            config
                .check_update(scope, altered)
                .map_err(|source| AlterConfigsError::InvalidBrokerConfig { source })
        }
    }
}

/// Stores the configuration where it still stands as it was read; `false` = read it again.
///
/// The write also checks `/controller`, as Kafka's does: once a migration has put a KRaft controller in
/// charge, brokers must not write configurations.
async fn write(
    store: &dyn Store,
    entity: &ConfigEntity,
    read: Option<&NodeData>,
    config: Properties,
) -> Result<bool, AlterConfigsError> {
    let mut operations = Vec::new();
    if let Some(controller) = patience::read(store, znodes::CONTROLLER).await? {
        let kraft = znodes::decode_kraft_controller_epoch(&controller).unwrap_or_default();
        ensure!(kraft.is_none(), KraftInChargeSnafu);
        let version = controller.stat.version;
        operations.push(Operation::Check { path: znodes::CONTROLLER.to_owned(), version });
    }
    let data = Some(EntityConfig(config.into_iter().collect()).encode());
    let path = entity.path();
    operations.push(match read {
        Some(node) => Operation::Set { path, data, version: Some(node.stat.version) },
        None => Operation::Create(Create { path, data, mode: CreateMode::Persistent }),
    });
    match store.multi(operations).await {
        Ok(_) => Ok(true),
        Err((
            _,
            StoreError::BadVersion { .. } | StoreError::NodeExists { .. } | StoreError::NoNode { .. },
        )) => Ok(false),
        Err((_, error)) if is_unknown(&error) => {
            // What was written perhaps is written again, which changes nothing.
            tokio::time::sleep(RETRY_PAUSE).await;
            Ok(false)
        }
        Err((_, error)) => Err(error.into()),
    }
}

/// Tells all brokers. Once more after a lost answer: reading a configuration twice does no harm.
async fn notify(store: &dyn Store, entity: &ConfigEntity) -> Result<(), AlterConfigsError> {
    let notification = Create {
        path: format!("{}/{}", znodes::CONFIG_CHANGES, znodes::CONFIG_CHANGE_PREFIX),
        data: Some(znodes::ConfigChange(entity.clone()).encode()),
        mode: CreateMode::PersistentSequential,
    };
    match patience::until_answered(|| store.create(notification.clone())).await {
        Ok(_) => Ok(()),
        Err(error) => {
            warn!(entity = entity.entity_path(), %error, "brokers were not told of a changed configuration");
            Err(error.into())
        }
    }
}
