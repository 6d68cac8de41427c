//! Settings: the tables of keys, how their values are read, and which of several values counts.
//!
//! A broker's settings come in layers: the properties file with the command line on top, then what the
//! cluster stores for all brokers, then what it stores for this one. [`BrokerConfig`] is a checked snapshot of
//! them; [`TopicConfig`] is what holds for one topic. Names, units, defaults and messages are Kafka 3.9's.

mod broker;
mod describe;
mod error;
mod keys;
mod layers;
mod listeners;
mod properties;
mod reference;
mod settings;
#[cfg(test)]
mod tests;
mod topic;
mod update;
mod value;
mod version;

pub use broker::{BrokerConfig, Warning};
pub use describe::{Entry, Synonym};
pub use error::ConfigError;
pub use keys::{BROKER, Bounds, Key, Kind, Support, TOPIC, Update, broker_key, topic_key};
pub use layers::{Layers, Source};
pub use listeners::{Endpoint, ListenerName, Listeners, SecurityProtocol};
pub use properties::{Properties, parse_override, parse_properties};
pub use reference::configs_reference;
pub use topic::{CleanupPolicy, Compression, TimestampType, TopicConfig};
pub use update::{Operation, Scope, alter_broker, alter_topic};
pub use value::{Secret, Value};
pub use version::{ProtocolVersion, RecordVersion};
