//! Changes while the broker runs: list operations, checks of a proposed change, what the store holds.

use super::broker::{BrokerConfig, Reader};
use super::error::{
    ConfigError, InvalidValueSnafu, ListOperationSnafu, NeedsBrokerIdSnafu, NeedsListenerPrefixSnafu,
    NoPasswordEncoderSnafu, NotDynamicSnafu, UnknownKeySnafu, inconsistent,
};
use super::keys::{Key, Kind, Update, broker_key, topic_key};
use super::layers::{Layers, listener_base};
use super::properties::Properties;

/// One operation of IncrementalAlterConfigs on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Set(String),
    Delete,
    /// Adds the items that a list does not have yet.
    Append(String),
    /// Removes items from a list; missing ones do not matter.
    Subtract(String),
}

/// Whose settings change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    ClusterDefault,
    Broker,
}

/// Applies operations to the stored overrides of a topic. The result is still to be validated.
pub fn alter_topic(
    stored: &Properties,
    operations: &[(String, Operation)],
) -> Result<Properties, ConfigError> {
    alter(stored, operations, |name| topic_key(name).map(|(_, key)| key))
}

/// Applies operations to the stored dynamic settings of a broker or of all. The result is still to be validated.
pub fn alter_broker(
    stored: &Properties,
    operations: &[(String, Operation)],
) -> Result<Properties, ConfigError> {
    alter(stored, operations, |name| broker_key(name).map(|(_, key)| key))
}

fn alter(
    stored: &Properties,
    operations: &[(String, Operation)],
    row: impl Fn(&str) -> Option<&'static Key>,
) -> Result<Properties, ConfigError> {
    let mut altered = stored.clone();
    for (name, operation) in operations {
        match operation {
            Operation::Set(value) => drop(altered.insert(name.clone(), value.clone())),
            Operation::Delete => drop(altered.remove(name)),
            Operation::Append(items) => {
                let mut list = current_list(&altered, name, row(name), "append")?;
                for item in split(items) {
                    if !list.contains(&item) {
                        list.push(item);
                    }
                }
                altered.insert(name.clone(), list.join(","));
            }
            Operation::Subtract(items) => {
                let mut list = current_list(&altered, name, row(name), "subtract")?;
                list.retain(|item| !split(items).contains(item));
                altered.insert(name.clone(), list.join(","));
            }
        }
    }
    Ok(altered)
}

/// The stored list, or the key's built-in default where nothing is stored.
fn current_list(
    stored: &Properties,
    name: &str,
    key: Option<&Key>,
    operation: &'static str,
) -> Result<Vec<String>, ConfigError> {
    let Some(key) = key else { return UnknownKeySnafu { name }.fail() };
    if key.kind != Kind::List {
        return ListOperationSnafu { operation, name }.fail();
    }
    Ok(split(stored.get(name).map(String::as_str).or(key.default).unwrap_or_default()))
}

fn split(items: &str) -> Vec<String> {
    items.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

impl BrokerConfig {
    /// Checks dynamic settings that a client wants to store; `proposed` is all that the entity would have.
    pub fn check_update(&self, scope: Scope, proposed: &Properties) -> Result<(), ConfigError> {
        check_names(scope, proposed)?;
        check_types(proposed)?;
        let mut layers = self.layers().clone();
        match scope {
            Scope::ClusterDefault => layers.cluster_default = proposed.clone(),
            Scope::Broker => layers.per_broker = proposed.clone(),
        }
        let updated = BrokerConfig::from_layers(layers)?;
        updated.check_local_retention()?;
        self.check_listeners(&updated)?;
        self.check_thread_pools(&updated)
    }

    /// The snapshot under the dynamic settings that the store holds, with what had to be left out.
    ///
    /// What cannot be used is never fatal: it may have been stored by another version, or be refused by a
    /// check that only this broker's file fails.
    pub fn with_dynamic(
        &self,
        cluster_default: &Properties,
        per_broker: &Properties,
    ) -> (BrokerConfig, Vec<ConfigError>) {
        let mut left_out = Vec::new();
        let empty = Layers { fixed: self.layers().fixed.clone(), ..Layers::default() };
        let mut layers = Layers {
            cluster_default: usable(Scope::ClusterDefault, cluster_default, &mut left_out),
            per_broker: usable(Scope::Broker, per_broker, &mut left_out),
            ..empty.clone()
        };
        let id = self.broker_id();
        loop {
            match BrokerConfig::from_layers(layers.clone()) {
                Ok(config) => {
                    let config = match id {
                        Some(id) => config.with_broker_id(id),
                        None => config,
                    };
                    return (config, left_out);
                }
                Err(error) => left_out.push(error),
            }
            if layers.per_broker.is_empty() && layers.cluster_default.is_empty() {
                return (self.clone(), left_out);
            } else if layers.per_broker.is_empty() {
                layers.cluster_default.clear();
            } else {
                layers.per_broker.clear();
            }
        }
    }

    /// Kafka checks this for changes only, not at the start.
    fn check_local_retention(&self) -> Result<(), ConfigError> {
        let read = Reader { values: self.values() };
        let topics = self.topic_defaults();
        for (name, whole_name, whole) in [
            ("log.local.retention.ms", "log.retention.ms", topics.retention_ms),
            ("log.local.retention.bytes", "log.retention.bytes", topics.retention_bytes),
        ] {
            let local = read.long(name);
            let follows_the_whole = local == -2;
            if whole < 0 || follows_the_whole {
                continue;
            }
            let reason = if local == -1 {
                format!("Value must not be -1 as {whole_name} value is set as {whole}.")
            } else if local > whole {
                format!("Value must not be more than {whole_name} property value: {whole}")
            } else {
                continue;
            };
            return InvalidValueSnafu { name, value: local.to_string(), reason }.fail();
        }
        Ok(())
    }

    /// A listener that stays keeps its security protocol: connections have been accepted under it.
    fn check_listeners(&self, updated: &BrokerConfig) -> Result<(), ConfigError> {
        for new in &updated.listeners().bound {
            let old = self.listeners().bound.iter().find(|old| old.listener == new.listener);
            if old.is_some_and(|old| old.security_protocol != new.security_protocol) {
                return inconsistent(format!(
                    "Security protocol cannot be updated for existing listener {}",
                    new.listener
                ));
            }
        }
        Ok(())
    }

    fn check_thread_pools(&self, updated: &BrokerConfig) -> Result<(), ConfigError> {
        for name in THREAD_POOLS {
            let Some((at, _)) = broker_key(name) else { continue };
            let threads = |config: &BrokerConfig| config.values().get(at)?.as_ref()?.as_long();
            let (Some(old), Some(new)) = (threads(self), threads(updated)) else { continue };
            let failed =
                format!("Dynamic thread count update validation failed for {name}={new}, value should");
            if new == old {
                continue;
            } else if new <= 0 {
                return inconsistent(format!("{failed} be at least 1"));
            } else if new < old / 2 {
                return inconsistent(format!("{failed} be at least half the current value {old}"));
            } else if new > old.saturating_mul(2) {
                return inconsistent(format!("{failed} not be greater than double the current value {old}"));
            }
        }
        Ok(())
    }
}

const THREAD_POOLS: [&str; 5] = [
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "num.network.threads",
];

/// Listener settings that may be set for all brokers.
const CLUSTER_LEVEL_LISTENER_KEYS: [&str; 3] =
    ["max.connections", "max.connection.creation.rate", "num.network.threads"];

fn check_names(scope: Scope, proposed: &Properties) -> Result<(), ConfigError> {
    let pick = |is_wrong: fn(&str) -> bool| -> Vec<String> {
        proposed.keys().filter(|name| is_wrong(name)).cloned().collect()
    };
    let names = pick(is_read_only);
    if !names.is_empty() {
        return NotDynamicSnafu { names }.fail();
    }
    let names = pick(needs_listener_prefix);
    if !names.is_empty() {
        return NeedsListenerPrefixSnafu { names }.fail();
    }
    let names = pick(needs_broker_id);
    if scope == Scope::ClusterDefault && !names.is_empty() {
        return NeedsBrokerIdSnafu { names }.fail();
    }
    Ok(())
}

fn is_read_only(name: &str) -> bool {
    broker_key(name).is_some_and(|(_, key)| key.update == Update::ReadOnly)
}

fn needs_listener_prefix(name: &str) -> bool {
    name.starts_with("ssl.") && broker_key(name).is_some_and(|(_, key)| key.update == Update::PerBroker)
}

fn needs_broker_id(name: &str) -> bool {
    match listener_base(name) {
        Some(base) => !CLUSTER_LEVEL_LISTENER_KEYS.contains(&base),
        None => broker_key(name).is_some_and(|(_, key)| key.update == Update::PerBroker),
    }
}

fn check_types(proposed: &Properties) -> Result<(), ConfigError> {
    for (name, text) in proposed {
        let row = broker_key(name).or_else(|| broker_key(listener_base(name)?));
        let Some((_, key)) = row else { continue };
        if key.kind == Kind::Password {
            return NoPasswordEncoderSnafu.fail();
        }
        key.parse(text)?;
    }
    Ok(())
}

fn usable(scope: Scope, stored: &Properties, left_out: &mut Vec<ConfigError>) -> Properties {
    let mut usable = Properties::new();
    for (name, value) in stored {
        let one = Properties::from([(name.clone(), value.clone())]);
        match check_names(scope, &one).and_then(|()| check_types(&one)) {
            Ok(()) => usable.extend(one),
            Err(error) => left_out.push(error),
        }
    }
    usable
}
