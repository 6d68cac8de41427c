use std::fmt;
use std::sync::Arc;

use super::error::{ConfigError, inconsistent};
use super::keys::{BROKER, Support, Update, broker_key};
use super::layers::{Layers, listener_base};
use super::listeners::{ListenerName, ListenerSettings, Listeners};
use super::properties::Properties;
use super::settings::Settings;
use super::topic::{Compression, TopicConfig};
use super::value::Value;
use super::version::ProtocolVersion;
use crate::model::BrokerId;

/// All settings of one broker at one moment: parsed, checked against each other, immutable.
///
/// A change makes a new snapshot, so that whoever holds one sees settings that go together. Each key that the
/// broker reads has an accessor of its name, which costs a load.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    layers: Layers,
    /// Effective values in the order of the table; `None` = null.
    values: Vec<Option<Value>>,
    settings: Settings,
    broker_id: BrokerId,
    log_dirs: Vec<String>,
    listeners: Listeners,
    connection_overrides: Vec<(String, i32)>,
    inter_broker_protocol_version: ProtocolVersion,
    topic_defaults: Arc<TopicConfig>,
}

/// What an operator should know about a file that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// No row has this name.
    UnknownKey { name: String },
    /// The key is set to another value than its default, and what it governs is not built yet.
    NotYet { name: String, missing: &'static str },
    /// A file of a KRaft node: only its broker part is run.
    BrokerPartOnly,
}

impl BrokerConfig {
    /// Reads a properties file, with command line overrides already in it.
    pub fn new(fixed: Properties) -> Result<BrokerConfig, ConfigError> {
        Self::from_layers(Layers { fixed, ..Layers::default() })
    }

    pub(super) fn from_layers(mut layers: Layers) -> Result<BrokerConfig, ConfigError> {
        mirror_broker_id(&mut layers.fixed)?;
        let merged = layers.merged();
        let values = parse_values(&merged)?;
        let read = Reader { values: &values };
        let config = BrokerConfig {
            settings: Settings::new(&values),
            broker_id: BrokerId(read.int("broker.id")),
            log_dirs: read.log_dirs(),
            listeners: read.listeners(&merged)?,
            connection_overrides: read.connection_overrides()?,
            inter_broker_protocol_version: read.inter_broker_protocol_version()?,
            topic_defaults: Arc::new(TopicConfig::defaults(&values)),
            values,
            layers,
        };
        config.check()?;
        Ok(config)
    }

    /// This broker's id; `None` until one is generated.
    pub fn broker_id(&self) -> Option<BrokerId> {
        (self.broker_id != BrokerId::NONE).then_some(self.broker_id)
    }

    /// The same settings under the id that the cluster or `meta.properties` gave this broker.
    pub fn with_broker_id(mut self, id: BrokerId) -> BrokerConfig {
        self.broker_id = id;
        self
    }

    /// The folders for partitions, in the order of the file.
    pub fn log_dirs(&self) -> &[String] {
        &self.log_dirs
    }

    pub fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// A number that is set for one listener, as `listener.name.<listener>.<name>`.
    pub fn listener_setting(&self, listener: &ListenerName, name: &str) -> Option<i64> {
        let full_name = format!("listener.name.{}.{name}", listener.as_str().to_lowercase());
        let layers = self.layers.by_precedence();
        let (_, text) = layers.iter().find_map(|(source, layer)| Some((source, layer.get(&full_name)?)))?;
        let (_, key) = broker_key(name)?;
        key.parse(text).ok()?.as_long()
    }

    /// `max.connections.per.ip.overrides`: a host name or address, and how many connections it may have.
    pub fn max_connections_per_ip_overrides(&self) -> &[(String, i32)] {
        &self.connection_overrides
    }

    pub fn inter_broker_protocol_version(&self) -> ProtocolVersion {
        self.inter_broker_protocol_version
    }

    /// Whether `inter.broker.protocol.version` is this level, as `2.8-IV1`, or a later one.
    pub fn speaks(&self, level: &str) -> bool {
        ProtocolVersion::parse(level).is_some_and(|level| self.inter_broker_protocol_version >= level)
    }

    /// Bytes of requests that may be held in memory: `queued.max.request.bytes`, or our own bound.
    pub fn request_memory_max_bytes(&self) -> i64 {
        let read = Reader { values: &self.values };
        match read.long("queued.max.request.bytes") {
            bytes if bytes > 0 => bytes,
            _ => read.long("barnabas.request.memory.max.bytes"),
        }
    }

    /// `replica.selector.class` names Kafka's only built-in selector.
    pub fn selects_replicas_by_rack(&self) -> bool {
        self.replica_selector_class().is_some_and(|class| class.ends_with("RackAwareReplicaSelector"))
    }

    /// `barnabas.worker.threads`; `None` = by the number of cores.
    pub fn worker_threads(&self) -> Option<usize> {
        let threads = Reader { values: &self.values }.int("barnabas.worker.threads");
        usize::try_from(threads).ok().filter(|&threads| threads > 0)
    }

    /// `offsets.topic.compression.codec`, with the broker's level for that codec.
    pub fn offsets_topic_compression(&self) -> Compression {
        let read = Reader { values: &self.values };
        match read.int("offsets.topic.compression.codec") {
            1 => Compression::Gzip { level: read.int("compression.gzip.level") },
            2 => Compression::Snappy,
            3 => Compression::Lz4 { level: read.int("compression.lz4.level") },
            4 => Compression::Zstd { level: read.int("compression.zstd.level") },
            _ => Compression::Uncompressed,
        }
    }

    /// The settings of a topic without overrides.
    pub fn topic_defaults(&self) -> &Arc<TopicConfig> {
        &self.topic_defaults
    }

    /// What to log at the start, one line each.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.layers.fixed.contains_key("process.roles") {
            warnings.push(Warning::BrokerPartOnly);
        }
        for (name, text) in &self.layers.fixed {
            let known = broker_key(name).or_else(|| broker_key(listener_base(name)?));
            match known {
                None => warnings.push(Warning::UnknownKey { name: name.clone() }),
                Some((_, key)) if key.update == Update::OnlyDynamic => {
                    warnings.push(Warning::UnknownKey { name: name.clone() });
                }
                Some((_, key)) => {
                    if let Support::NotYet(missing) = key.support
                        && Some(text.trim()) != key.default
                    {
                        warnings.push(Warning::NotYet { name: name.clone(), missing });
                    }
                }
            }
        }
        warnings
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn layers(&self) -> &Layers {
        &self.layers
    }

    pub(super) fn values(&self) -> &[Option<Value>] {
        &self.values
    }

    /// The checks that Kafka makes at its start and again for each dynamic change.
    fn check(&self) -> Result<(), ConfigError> {
        self.check_identity()?;
        self.check_logs()?;
        self.check_network()?;
        self.check_replication()?;
        Ok(())
    }

    fn check_identity(&self) -> Result<(), ConfigError> {
        let id = self.broker_id.0;
        if self.broker_id_generation_enable() {
            if !(-1..=self.reserved_broker_max_id()).contains(&id) {
                return inconsistent(
                    "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
                );
            }
        } else if id < 0 {
            return inconsistent("broker.id must be greater than or equal to 0");
        }
        let read = Reader { values: &self.values };
        let roles = read.list("process.roles");
        if roles.iter().any(|role| role == "controller") && !roles.iter().any(|role| role == "broker") {
            return inconsistent("process.roles names no broker, and Barnabas has no KRaft controller");
        }
        if roles.is_empty()
            && let Some(names) = read.text("controller.listener.names")
            && !names.is_empty()
        {
            return inconsistent(format!(
                "controller.listener.names must be empty when not running in KRaft mode: [{names}]"
            ));
        }
        Ok(())
    }

    /// Brokers of the cluster's level must be able to read what is stored.
    fn check_message_format(&self, read: &Reader<'_>) -> Result<(), ConfigError> {
        let level = self.inter_broker_protocol_version;
        let text = read.text("log.message.format.version").unwrap_or_default();
        let Some(format) = ProtocolVersion::parse(text) else { return Ok(()) };
        if level.ignores_message_format() || format.record_version() <= level.record_version() {
            return Ok(());
        }
        inconsistent(format!(
            "log.message.format.version {text} can only be used when inter.broker.protocol.version is set to \
             version {} or higher",
            format.first_of_record_version().name()
        ))
    }

    fn check_logs(&self) -> Result<(), ConfigError> {
        let read = Reader { values: &self.values };
        self.check_message_format(&read)?;
        let topics = &self.topic_defaults;
        if topics.segment_ms < 1 {
            return inconsistent("log.roll.ms must be greater than or equal to 1");
        }
        if topics.segment_jitter_ms < 0 {
            return inconsistent("log.roll.jitter.ms must be greater than or equal to 0");
        }
        if topics.retention_ms == 0 {
            return inconsistent("log.retention.ms must be unlimited (-1) or, greater than or equal to 1");
        }
        if self.log_dirs.is_empty() {
            return inconsistent("At least one log directory must be defined via log.dirs or log.dir.");
        }
        let cleaners = read.long("log.cleaner.threads");
        if cleaners < 1 {
            return inconsistent("Log cleaner threads should be at least 1");
        }
        if read.long("log.cleaner.dedupe.buffer.size") / cleaners <= 1024 * 1024 {
            return inconsistent("log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.");
        }
        Ok(())
    }

    fn check_network(&self) -> Result<(), ConfigError> {
        let read = Reader { values: &self.values };
        let queued = read.long("queued.max.request.bytes");
        if queued > 0 && queued < i64::from(self.socket_request_max_bytes()) {
            return inconsistent(
                "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
            );
        }
        for (name, text) in &self.layers.fixed {
            if let Some((_, key)) = listener_base(name).and_then(broker_key)
                && PER_LISTENER.contains(&key.name)
            {
                key.parse(text)?;
            }
        }
        self.check_control_plane(&read)?;
        if self.max_connections_per_ip() == 0 && self.connection_overrides.is_empty() {
            return inconsistent(
                "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
            );
        }
        let delay_ms = i64::from(read.int("connection.failed.authentication.delay.ms"));
        let idle_ms = self.connections_max_idle_ms();
        if idle_ms > 0 && delay_ms >= idle_ms {
            return inconsistent(format!(
                "connection.failed.authentication.delay.ms={delay_ms} should always be less than \
                 connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out"
            ));
        }
        Ok(())
    }

    fn check_control_plane(&self, read: &Reader<'_>) -> Result<(), ConfigError> {
        let Some(name) = read.text("control.plane.listener.name") else { return Ok(()) };
        let name = ListenerName::new(name);
        if name == self.listeners.inter_broker {
            return inconsistent(
                "control.plane.listener.name, when defined, should have a different value from the inter broker \
                 listener name",
            );
        }
        if self.listeners.advertised_endpoint(&name).is_none() {
            return inconsistent(format!(
                "control.plane.listener.name must be a listener name defined in advertised.listeners. The valid \
                 options based on currently configured listeners are {}",
                self.listeners.advertised_names()
            ));
        }
        Ok(())
    }

    fn check_replication(&self) -> Result<(), ConfigError> {
        let read = Reader { values: &self.values };
        let wait_ms = self.replica_fetch_wait_max_ms();
        if wait_ms > self.replica_socket_timeout_ms() {
            return inconsistent(
                "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent \
                 unnecessary socket timeouts",
            );
        }
        if i64::from(wait_ms) > self.replica_lag_time_max_ms() {
            return inconsistent(
                "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to \
                 prevent frequent changes in ISR",
            );
        }
        let acks = read.short("offsets.commit.required.acks");
        if !(-1..=self.offsets_topic_replication_factor()).contains(&acks) {
            return inconsistent(
                "offsets.commit.required.acks must be greater or equal to -1 and less or equal to \
                 offsets.topic.replication.factor",
            );
        }
        let codec = read.int("offsets.topic.compression.codec");
        if !(0..=4).contains(&codec) {
            return inconsistent(format!("Unknown compression type id: {codec}"));
        }
        if !read.list("group.coordinator.rebalance.protocols").iter().any(|name| name == "classic") {
            return inconsistent("Disabling the 'classic' protocol is not supported.");
        }
        Ok(())
    }
}

/// Settings that a listener may have for itself.
const PER_LISTENER: [&str; 2] = ["max.connections", "max.connection.creation.rate"];

impl Warning {
    /// The setting it is about; `None` when it is about the file as a whole.
    pub fn name(&self) -> Option<&str> {
        match self {
            Warning::UnknownKey { name } | Warning::NotYet { name, .. } => Some(name),
            Warning::BrokerPartOnly => None,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::UnknownKey { name } => write!(f, "{name} is not a known setting"),
            Warning::NotYet { name, missing } => {
                write!(f, "{name} has no effect: {missing} is not built yet")
            }
            Warning::BrokerPartOnly => {
                f.write_str("process.roles is set: only the broker part is run, without a KRaft controller")
            }
        }
    }
}

/// `broker.id` and `node.id` are two names of one setting.
fn mirror_broker_id(fixed: &mut Properties) -> Result<(), ConfigError> {
    match (fixed.get("broker.id").cloned(), fixed.get("node.id").cloned()) {
        (Some(id), None) => {
            fixed.insert("node.id".to_owned(), id);
        }
        (None, Some(id)) => {
            fixed.insert("broker.id".to_owned(), id);
        }
        (Some(broker), Some(node)) if broker.trim() != node.trim() => {
            return inconsistent("You must set `node.id` to the same value as `broker.id`.");
        }
        _ => {}
    }
    Ok(())
}

fn parse_values(merged: &Properties) -> Result<Vec<Option<Value>>, ConfigError> {
    let parse = |key: &super::keys::Key| match merged.get(key.name).map(String::as_str).or(key.default) {
        Some(text) => key.parse(text).map(Some),
        None => Ok(None),
    };
    BROKER.iter().map(parse).collect()
}

/// Reads values by name while a config is built; hot paths use the accessors.
pub(super) struct Reader<'a> {
    pub(super) values: &'a [Option<Value>],
}

impl<'a> Reader<'a> {
    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        let (at, _) = broker_key(name)?;
        self.values.get(at)?.as_ref()
    }

    pub(super) fn long(&self, name: &str) -> i64 {
        let number = self.value(name).and_then(Value::as_long);
        number.unwrap_or_else(|| panic!("{name} is a number with a default"))
    }

    fn int(&self, name: &str) -> i32 {
        i32::try_from(self.long(name)).unwrap_or_else(|_| panic!("{name} is an int"))
    }

    fn short(&self, name: &str) -> i16 {
        i16::try_from(self.long(name)).unwrap_or_else(|_| panic!("{name} is a short"))
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn list(&self, name: &str) -> &'a [String] {
        match self.value(name) {
            Some(Value::List(items)) => items,
            _ => &[],
        }
    }

    fn log_dirs(&self) -> Vec<String> {
        let text = self.text("log.dirs").or_else(|| self.text("log.dir")).unwrap_or_default();
        text.split(',').map(str::trim).filter(|dir| !dir.is_empty()).map(str::to_owned).collect()
    }

    fn listeners(&self, merged: &Properties) -> Result<Listeners, ConfigError> {
        let is_kraft = !self.list("process.roles").is_empty();
        let controllers = if is_kraft { self.text("controller.listener.names") } else { None };
        let controller_listener_names: Vec<String> = controllers
            .unwrap_or_default()
            .split(',')
            .map(|name| name.trim().to_uppercase())
            .filter(|name| !name.is_empty())
            .collect();
        Listeners::new(&ListenerSettings {
            listeners: self.text("listeners").unwrap_or_default(),
            advertised_listeners: self.text("advertised.listeners"),
            security_protocol_map: self.text("listener.security.protocol.map").unwrap_or_default(),
            inter_broker_listener_name: self.text("inter.broker.listener.name"),
            security_inter_broker_protocol: merged
                .contains_key("security.inter.broker.protocol")
                .then(|| self.text("security.inter.broker.protocol"))
                .flatten(),
            controller_listener_names: &controller_listener_names,
        })
    }

    fn connection_overrides(&self) -> Result<Vec<(String, i32)>, ConfigError> {
        let text = self.text("max.connections.per.ip.overrides").unwrap_or_default();
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let parse = |pair: &str| {
            let (host, count) = pair.rsplit_once(':')?;
            Some((host.trim().to_owned(), count.trim().parse().ok()?))
        };
        let parse = |pair| match parse(pair) {
            Some(parsed) => Ok(parsed),
            None => inconsistent(format!(
                "Error parsing configuration property 'max.connections.per.ip.overrides': '{pair}' is not of the \
                 form host:count"
            )),
        };
        pairs.map(parse).collect()
    }

    fn inter_broker_protocol_version(&self) -> Result<ProtocolVersion, ConfigError> {
        let text = self.text("inter.broker.protocol.version").unwrap_or_default();
        match ProtocolVersion::parse(text) {
            Some(version) => Ok(version),
            None => inconsistent(format!("Version {text} is not a valid version")),
        }
    }
}
