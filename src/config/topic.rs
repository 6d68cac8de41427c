use super::broker::{BrokerConfig, Reader};
use super::error::{
    CompactionLagsSnafu, ConfigError, TieredStorageDisabledSnafu, TieringNeedsKraftSnafu,
    UnknownTopicKeySnafu,
};
use super::keys::{Key, Kind, TOPIC, topic_key};
use super::properties::Properties;
use super::value::Value;
use super::version::{ProtocolVersion, RecordVersion};

/// The effective settings of one topic: its overrides on the broker's defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicConfig {
    pub cleanup_policy: CleanupPolicy,
    pub compression: Compression,
    pub delete_retention_ms: i64,
    pub file_delete_delay_ms: i64,
    pub flush_messages: i64,
    pub flush_ms: i64,
    pub follower_replication_throttled_replicas: Vec<String>,
    pub index_interval_bytes: i32,
    pub leader_replication_throttled_replicas: Vec<String>,
    pub max_compaction_lag_ms: i64,
    pub max_message_bytes: i32,
    pub message_downconversion_enable: bool,
    /// What records are stored in: `message.format.version`, where the cluster's level still heeds it.
    pub message_format: RecordVersion,
    /// How far a create time may lie after the broker's clock, the older single bound already applied.
    pub message_timestamp_after_max_ms: i64,
    /// How far a create time may lie before the broker's clock, the older single bound already applied.
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_type: TimestampType,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub min_insync_replicas: i32,
    pub preallocate: bool,
    /// Negative = no bound.
    pub retention_bytes: i64,
    /// -1 = no bound.
    pub retention_ms: i64,
    pub segment_bytes: i32,
    pub segment_index_bytes: i32,
    pub segment_jitter_ms: i64,
    pub segment_ms: i64,
    pub unclean_leader_election_enable: bool,
}

/// `cleanup.policy`; neither of both keeps everything forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub compact: bool,
    pub delete: bool,
}

/// `compression.type` and the level that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Batches stay as the producer compressed them.
    Producer,
    Uncompressed,
    /// -1 = the codec's default level.
    Gzip {
        level: i32,
    },
    Snappy,
    Lz4 {
        level: i32,
    },
    Zstd {
        level: i32,
    },
}

/// `message.timestamp.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

impl TopicConfig {
    /// Checks overrides that a client wants to set, as CreateTopics and AlterConfigs do.
    ///
    /// `overrides` is all that the topic would have afterwards.
    pub fn validate(overrides: &Properties, broker: &BrokerConfig) -> Result<(), ConfigError> {
        if let Some(name) = overrides.keys().find(|name| topic_key(name).is_none()) {
            return UnknownTopicKeySnafu { name }.fail();
        }
        let values = effective_values(overrides, broker.values())?;
        let read = TopicReader { values: &values };
        let (min_ms, max_ms) = (read.long("min.compaction.lag.ms"), read.long("max.compaction.lag.ms"));
        if min_ms > max_ms {
            return CompactionLagsSnafu { min_ms, max_ms }.fail();
        }
        if read.boolean("remote.storage.enable") {
            return TieredStorageDisabledSnafu.fail();
        }
        if read.boolean("remote.log.copy.disable") || read.boolean("remote.log.delete.on.disable") {
            return TieringNeedsKraftSnafu.fail();
        }
        Ok(())
    }

    /// The effective settings for overrides as the store has them, with what had to be left out: another
    /// broker or tool may have stored what this one cannot read, and that must not take the topic offline.
    pub fn from_stored(overrides: &Properties, broker: &BrokerConfig) -> (TopicConfig, Vec<ConfigError>) {
        let mut usable = Properties::new();
        let mut left_out = Vec::new();
        for (name, text) in overrides {
            match topic_key(name) {
                None => left_out.push(UnknownTopicKeySnafu { name }.build()),
                Some((_, key)) => match key.parse(text) {
                    Ok(_) => drop(usable.insert(name.clone(), text.clone())),
                    Err(error) => left_out.push(error),
                },
            }
        }
        match effective_values(&usable, broker.values()) {
            Ok(values) => {
                (TopicReader { values: &values }.config(heeds_message_format(broker.values())), left_out)
            }
            Err(error) => {
                left_out.push(error);
                (broker.topic_defaults().as_ref().clone(), left_out)
            }
        }
    }

    /// Takes the broker's values in the order of its table.
    pub(super) fn defaults(broker: &[Option<Value>]) -> TopicConfig {
        let values = default_values(broker);
        TopicReader { values: &values }.config(heeds_message_format(broker))
    }
}

/// The values of a topic in the order of the table. Fails when an override cannot be read.
pub(super) fn effective_values(
    overrides: &Properties,
    broker: &[Option<Value>],
) -> Result<Vec<Value>, ConfigError> {
    let mut values = default_values(broker);
    for (value, key) in values.iter_mut().zip(TOPIC) {
        if let Some(text) = overrides.get(key.name) {
            *value = key.parse(text)?;
        }
    }
    Ok(values)
}

fn default_values(broker: &[Option<Value>]) -> Vec<Value> {
    TOPIC.iter().map(|key| default_value(key, &Reader { values: broker })).collect()
}

/// The first of the broker's synonyms that is set, in the topic key's unit; without one, the built-in default.
fn default_value(key: &Key, broker: &Reader<'_>) -> Value {
    let built_in = || {
        let text = key.default.unwrap_or_default();
        key.parse(text).unwrap_or_else(|error| panic!("a topic key has a valid default: {error}"))
    };
    if key.name == "message.format.version" && !heeds_message_format(broker.values) {
        return built_in();
    }
    let set = key.synonyms.iter().find_map(|name| broker.value(name).map(|value| (*name, value)));
    let Some((synonym, value)) = set else { return built_in() };
    match (key.kind, value.as_long()) {
        (Kind::Long, Some(number)) => {
            let number = number.saturating_mul(unit_ms(synonym));
            let is_unlimited = key.name == "retention.ms" && number < 0;
            Value::Long(if is_unlimited { -1 } else { number })
        }
        _ => value.clone(),
    }
}

/// Whether the cluster may have brokers and consumers that know no newer format than the topics'.
fn heeds_message_format(broker: &[Option<Value>]) -> bool {
    let level = Reader { values: broker }.text("inter.broker.protocol.version");
    level.and_then(ProtocolVersion::parse).is_some_and(|level| !level.ignores_message_format())
}

fn unit_ms(name: &str) -> i64 {
    if name.ends_with(".hours") {
        3_600_000
    } else if name.ends_with(".minutes") {
        60_000
    } else {
        1
    }
}

/// Reads values of the topic table by name.
struct TopicReader<'a> {
    values: &'a [Value],
}

impl TopicReader<'_> {
    fn config(&self, heeds_message_format: bool) -> TopicConfig {
        TopicConfig {
            cleanup_policy: CleanupPolicy {
                compact: self.list("cleanup.policy").iter().any(|policy| policy == "compact"),
                delete: self.list("cleanup.policy").iter().any(|policy| policy == "delete"),
            },
            compression: self.compression(),
            delete_retention_ms: self.long("delete.retention.ms"),
            file_delete_delay_ms: self.long("file.delete.delay.ms"),
            flush_messages: self.long("flush.messages"),
            flush_ms: self.long("flush.ms"),
            follower_replication_throttled_replicas: self
                .list("follower.replication.throttled.replicas")
                .to_vec(),
            index_interval_bytes: self.int("index.interval.bytes"),
            leader_replication_throttled_replicas: self
                .list("leader.replication.throttled.replicas")
                .to_vec(),
            max_compaction_lag_ms: self.long("max.compaction.lag.ms"),
            max_message_bytes: self.int("max.message.bytes"),
            message_downconversion_enable: self.boolean("message.downconversion.enable"),
            message_format: self.message_format(heeds_message_format),
            message_timestamp_after_max_ms: self.timestamp_bound("message.timestamp.after.max.ms"),
            message_timestamp_before_max_ms: self.timestamp_bound("message.timestamp.before.max.ms"),
            message_timestamp_type: match self.text("message.timestamp.type") {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            min_cleanable_dirty_ratio: self.double("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms: self.long("min.compaction.lag.ms"),
            min_insync_replicas: self.int("min.insync.replicas"),
            preallocate: self.boolean("preallocate"),
            retention_bytes: self.long("retention.bytes"),
            retention_ms: self.long("retention.ms"),
            segment_bytes: self.int("segment.bytes"),
            segment_index_bytes: self.int("segment.index.bytes"),
            segment_jitter_ms: self.long("segment.jitter.ms"),
            segment_ms: self.long("segment.ms"),
            unclean_leader_election_enable: self.boolean("unclean.leader.election.enable"),
        }
    }

    fn message_format(&self, is_heeded: bool) -> RecordVersion {
        let level = ProtocolVersion::parse(self.text("message.format.version"));
        level.filter(|_| is_heeded).map_or(RecordVersion::V2, ProtocolVersion::record_version)
    }

    fn compression(&self) -> Compression {
        match self.text("compression.type") {
            "uncompressed" => Compression::Uncompressed,
            "gzip" => Compression::Gzip { level: self.int("compression.gzip.level") },
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4 { level: self.int("compression.lz4.level") },
            "zstd" => Compression::Zstd { level: self.int("compression.zstd.level") },
            _ => Compression::Producer,
        }
    }

    /// The deprecated single bound counts where the newer one keeps its default.
    fn timestamp_bound(&self, name: &str) -> i64 {
        match self.long(name) {
            i64::MAX => self.long("message.timestamp.difference.max.ms"),
            bound_ms => bound_ms,
        }
    }

    fn value(&self, name: &str) -> &Value {
        let found = topic_key(name).and_then(|(at, _)| self.values.get(at));
        found.unwrap_or_else(|| panic!("{name} is a topic key"))
    }

    fn long(&self, name: &str) -> i64 {
        self.value(name).as_long().unwrap_or_else(|| panic!("{name} is a number"))
    }

    fn int(&self, name: &str) -> i32 {
        i32::try_from(self.long(name)).unwrap_or_else(|_| panic!("{name} is an int"))
    }

    fn double(&self, name: &str) -> f64 {
        match self.value(name) {
            Value::Double(number) => *number,
            other => panic!("{name} is a double, not {other:?}"),
        }
    }

    fn boolean(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Boolean(value) => *value,
            other => panic!("{name} is a boolean, not {other:?}"),
        }
    }

    fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Text(text) => text,
            other => panic!("{name} is a string, not {other:?}"),
        }
    }

    fn list(&self, name: &str) -> &[String] {
        match self.value(name) {
            Value::List(items) => items,
            other => panic!("{name} is a list, not {other:?}"),
        }
    }
}
