//! From settings to the option structs of the rooms that use them.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{BrokerConfig, Compression, Endpoint, RecordVersion, TimestampType, TopicConfig};
use crate::interbroker::RequestVersions;
use crate::log::{Cleanup, LogConfig};
use crate::model::BrokerId;
use crate::network::{ConnectionLimits, ListenerLimits, ListenerOptions};
use crate::records::{
    self, AppendOrigin, Codec, MessageFormat, RecordSetFormat, TargetCompression, ValidationRules,
};
use crate::replica::{
    FetcherOptions, LogDirMoverOptions, ThrottleWindows, ThrottledReplicas, Throttles, TopicSettings,
};
use crate::runtime::net::Network;
use crate::txn::TxnOptions;

/// What a topic's settings mean for its logs and for what is appended to them.
pub(super) fn topic_settings(me: BrokerId, config: &TopicConfig) -> TopicSettings {
    TopicSettings {
        log: Arc::new(log_config(config)),
        validation: validation_rules(config),
        is_down_converted: config.message_downconversion_enable,
        min_insync_replicas: usize::try_from(config.min_insync_replicas).unwrap_or(1),
        throttled_as_leader: ThrottledReplicas::of(me, &config.leader_replication_throttled_replicas),
        throttled_as_follower: ThrottledReplicas::of(me, &config.follower_replication_throttled_replicas),
    }
}

/// The windows over which throttled replication is measured.
pub(super) fn throttle_windows(config: &BrokerConfig) -> ThrottleWindows {
    ThrottleWindows {
        count: unsigned(config.replication_quota_window_num()) as usize,
        length_ms: i64::from(config.replication_quota_window_size_seconds()) * 1_000,
    }
}

/// How fast throttled replicas may copy, from now on.
pub(super) fn set_throttles(throttles: &Throttles, config: &BrokerConfig) {
    throttles.leader.change_rate(config.leader_replication_throttled_rate());
    throttles.follower.change_rate(config.follower_replication_throttled_rate());
}

fn log_config(config: &TopicConfig) -> LogConfig {
    LogConfig {
        segment_bytes: unsigned(config.segment_bytes),
        segment_ms: config.segment_ms,
        segment_jitter_ms: config.segment_jitter_ms,
        segment_index_bytes: unsigned(config.segment_index_bytes),
        index_interval_bytes: unsigned(config.index_interval_bytes),
        flush_messages: config.flush_messages,
        flush_ms: config.flush_ms,
        retention_ms: (config.retention_ms >= 0).then_some(config.retention_ms),
        retention_bytes: u64::try_from(config.retention_bytes).ok(),
        cleanup: Cleanup { deletes: config.cleanup_policy.delete, compacts: config.cleanup_policy.compact },
        min_compaction_lag_ms: config.min_compaction_lag_ms,
        max_compaction_lag_ms: config.max_compaction_lag_ms,
        preallocate: config.preallocate,
        min_cleanable_dirty_ratio: config.min_cleanable_dirty_ratio,
        delete_retention_ms: config.delete_retention_ms,
        file_delete_delay_ms: config.file_delete_delay_ms,
    }
}

fn validation_rules(config: &TopicConfig) -> ValidationRules {
    ValidationRules {
        origin: AppendOrigin::Client,
        format: RecordSetFormat::Batch,
        message_format: match config.message_format {
            RecordVersion::V0 => MessageFormat::V0,
            RecordVersion::V1 => MessageFormat::V1,
            RecordVersion::V2 => MessageFormat::V2,
        },
        timestamp_type: match config.message_timestamp_type {
            TimestampType::CreateTime => records::TimestampType::CreateTime,
            TimestampType::LogAppendTime => records::TimestampType::LogAppendTime,
        },
        timestamp_before_max_ms: config.message_timestamp_before_max_ms,
        timestamp_after_max_ms: config.message_timestamp_after_max_ms,
        needs_keys: config.cleanup_policy.compact,
        compression: target_compression(config.compression),
        message_size_max: unsigned(config.max_message_bytes) as usize,
        record_set_size_max: unsigned(config.segment_bytes) as usize,
        inflated_size_max: usize::MAX,
    }
}

pub(super) fn target_compression(compression: Compression) -> TargetCompression {
    // -1 is Kafka's word for the codec's own default.
    let level = |level: i32| (level != -1).then_some(level);
    match compression {
        Compression::Producer => TargetCompression::Producer,
        Compression::Uncompressed => TargetCompression::Fixed(Codec::None, None),
        Compression::Gzip { level: at } => TargetCompression::Fixed(Codec::Gzip, level(at)),
        Compression::Snappy => TargetCompression::Fixed(Codec::Snappy, None),
        Compression::Lz4 { level: at } => TargetCompression::Fixed(Codec::Lz4, level(at)),
        Compression::Zstd { level: at } => TargetCompression::Fixed(Codec::Zstd, Some(at)),
    }
}

pub(super) fn txn_options(config: &BrokerConfig) -> TxnOptions {
    TxnOptions {
        timeout_ms_max: config.transaction_max_timeout_ms(),
        timeout_check_interval_ms: i64::from(config.transaction_abort_interval_ms()),
        id_expiration_ms: i64::from(config.transactional_id_expiration_ms()),
        id_expiration_check_interval_ms: i64::from(config.transaction_remove_expired_interval_ms()),
        two_phase_commit_enabled: config.transaction_two_phase_commit_enable(),
        write_timeout_ms: i64::from(config.request_timeout_ms()),
    }
}

/// How this broker follows others.
pub(super) fn fetcher_options(config: &BrokerConfig, network: Network) -> FetcherOptions {
    FetcherOptions {
        network,
        listener: config.listeners().inter_broker.as_str().to_owned(),
        fetchers_per_leader: unsigned(config.num_replica_fetchers()) as usize,
        wait_max_ms: config.replica_fetch_wait_max_ms(),
        bytes_min: config.replica_fetch_min_bytes(),
        response_bytes_max: config.replica_fetch_response_max_bytes(),
        partition_bytes_max: config.replica_fetch_max_bytes(),
        backoff: Duration::from_millis(u64::from(unsigned(config.replica_fetch_backoff_ms()))),
        request_timeout: Duration::from_millis(u64::from(unsigned(config.replica_socket_timeout_ms()))),
        versions: RequestVersions::of(config.inter_broker_protocol_version()),
    }
}

/// How replicas move between log directories.
pub(super) fn mover_options(config: &BrokerConfig) -> LogDirMoverOptions {
    let threads =
        config.num_replica_alter_log_dirs_threads().and_then(|threads| usize::try_from(threads).ok());
    LogDirMoverOptions {
        threads: threads.unwrap_or(config.log_dirs().len()),
        step_bytes: unsigned(config.replica_fetch_max_bytes()) as usize,
    }
}

/// Bytes a second that replicas move between log directories.
pub(super) fn move_limit(config: &BrokerConfig) -> u64 {
    u64::try_from(config.replica_alter_log_dirs_io_max_bytes_per_second()).unwrap_or(u64::MAX)
}

/// One option struct for each bound endpoint.
pub(super) fn listener_options(config: &BrokerConfig) -> Vec<ListenerOptions> {
    let bound = config.listeners().bound.iter().enumerate();
    let options = bound.map(|(position, endpoint)| ListenerOptions {
        name: endpoint.listener.as_str().into(),
        position,
        host: endpoint.host.clone(),
        port: endpoint.port,
        backlog: config.socket_listen_backlog_size(),
        send_buffer_bytes: config.socket_send_buffer_bytes(),
        receive_buffer_bytes: config.socket_receive_buffer_bytes(),
        request_bytes_max: unsigned(config.socket_request_max_bytes()) as usize,
        idle_max: u64::try_from(config.connections_max_idle_ms()).ok().map(Duration::from_millis),
    });
    options.collect()
}

pub(super) fn connection_limits(config: &BrokerConfig) -> ConnectionLimits {
    let overrides = config.max_connections_per_ip_overrides().iter();
    ConnectionLimits {
        connections_max: unsigned(config.max_connections()) as usize,
        per_ip_max: unsigned(config.max_connections_per_ip()) as usize,
        per_ip_overrides: overrides
            .flat_map(|(host, count)| addresses(host).map(|address| (address, unsigned(*count) as usize)))
            .collect(),
        creation_rate_max: u32::try_from(config.max_connection_creation_rate())
            .ok()
            .filter(|&rate| rate < i32::MAX as u32),
        of_listeners: config
            .listeners()
            .bound
            .iter()
            .map(|endpoint| listener_limits(config, endpoint))
            .collect(),
        protected: (config.listeners().bound.len() > 1)
            .then(|| config.listeners().inter_broker.as_str().into()),
    }
}

fn listener_limits(config: &BrokerConfig, endpoint: &Endpoint) -> (Arc<str>, ListenerLimits) {
    let setting = |name| config.listener_setting(&endpoint.listener, name);
    let limits = ListenerLimits {
        connections_max: setting("max.connections")
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(usize::MAX),
        creation_rate_max: setting("max.connection.creation.rate")
            .and_then(|rate| u32::try_from(rate).ok())
            .filter(|&rate| rate < i32::MAX as u32),
    };
    (endpoint.listener.as_str().into(), limits)
}

/// A host that has no address now has no connections to limit either.
fn addresses(host: &str) -> impl Iterator<Item = std::net::IpAddr> {
    use std::net::ToSocketAddrs;
    let found = (host, 0).to_socket_addrs().into_iter().flatten();
    found.map(|address| address.ip())
}

/// Settings that cannot be negative: the table has checked their bounds.
fn unsigned(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}
