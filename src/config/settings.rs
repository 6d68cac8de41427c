use super::keys::broker_key;
use super::value::{Secret, Value};

/// A Rust type that a setting is read as, and the view of it that an accessor gives.
pub trait Setting: Sized {
    type View<'a>
    where
        Self: 'a;

    /// `None` when the value is of another kind, which a test rules out for every row.
    fn read(value: Option<&Value>) -> Option<Self>;
    fn view(&self) -> Self::View<'_>;
}

macro_rules! copied {
    ($($variant:ident($type:ty))*) => {$(
        impl Setting for $type {
            type View<'a> = $type;

            fn read(value: Option<&Value>) -> Option<Self> {
                match value {
                    Some(Value::$variant(value)) => Some(*value),
                    _ => None,
                }
            }

            fn view(&self) -> $type {
                *self
            }
        }
    )*};
}

copied! { Boolean(bool) Short(i16) Int(i32) Long(i64) Double(f64) }

impl Setting for String {
    type View<'a> = &'a str;

    fn read(value: Option<&Value>) -> Option<Self> {
        match value {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn view(&self) -> &str {
        self
    }
}

impl Setting for Secret {
    type View<'a> = &'a str;

    fn read(value: Option<&Value>) -> Option<Self> {
        match value {
            Some(Value::Password(secret)) => Some(secret.clone()),
            _ => None,
        }
    }

    fn view(&self) -> &str {
        self.reveal()
    }
}

impl Setting for Vec<String> {
    type View<'a> = &'a [String];

    fn read(value: Option<&Value>) -> Option<Self> {
        match value {
            Some(Value::List(texts)) => Some(texts.clone()),
            _ => None,
        }
    }

    fn view(&self) -> &[String] {
        self
    }
}

impl<T: Setting + 'static> Setting for Option<T> {
    type View<'a> = Option<T::View<'a>>;

    fn read(value: Option<&Value>) -> Option<Self> {
        match value {
            Some(_) => T::read(value).map(Some),
            None => Some(None),
        }
    }

    fn view(&self) -> Option<T::View<'_>> {
        self.as_ref().map(T::view)
    }
}

macro_rules! settings {
    ($($name:ident: $type:ty = $key:literal;)*) => {
        /// The parsed settings that the broker reads, one field a key, so that a read costs a load.
        #[derive(Debug, Clone)]
        pub(super) struct Settings {
            $($name: $type,)*
        }

        impl Settings {
            /// Takes the values in the order of the broker table.
            pub(super) fn new(values: &[Option<Value>]) -> Settings {
                Settings { $($name: read(values, $key),)* }
            }

            #[cfg(test)]
            pub(super) const KEYS: &'static [&'static str] = &[$($key,)*];
        }

        impl super::broker::BrokerConfig {
            $(
                #[doc = concat!("`", $key, "`.")]
                pub fn $name(&self) -> <$type as Setting>::View<'_> {
                    self.settings().$name.view()
                }
            )*
        }
    };
}

fn read<T: Setting>(values: &[Option<Value>], name: &str) -> T {
    let value = broker_key(name).and_then(|(at, _)| values.get(at)).and_then(Option::as_ref);
    T::read(value).unwrap_or_else(|| panic!("{name} is read as another type than its row gives it"))
}

settings! {
    auto_create_topics_enable: bool = "auto.create.topics.enable";
    auto_leader_rebalance_enable: bool = "auto.leader.rebalance.enable";
    broker_id_generation_enable: bool = "broker.id.generation.enable";
    broker_rack: Option<String> = "broker.rack";
    connections_max_idle_ms: i64 = "connections.max.idle.ms";
    control_plane_listener_name: Option<String> = "control.plane.listener.name";
    controlled_shutdown_enable: bool = "controlled.shutdown.enable";
    controlled_shutdown_max_retries: i32 = "controlled.shutdown.max.retries";
    controlled_shutdown_retry_backoff_ms: i64 = "controlled.shutdown.retry.backoff.ms";
    controller_socket_timeout_ms: i32 = "controller.socket.timeout.ms";
    default_replication_factor: i32 = "default.replication.factor";
    delete_topic_enable: bool = "delete.topic.enable";
    fetch_max_bytes: i32 = "fetch.max.bytes";
    group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms";
    group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms";
    group_max_size: i32 = "group.max.size";
    group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms";
    leader_imbalance_check_interval_seconds: i64 = "leader.imbalance.check.interval.seconds";
    leader_imbalance_per_broker_percentage: i32 = "leader.imbalance.per.broker.percentage";
    log_cleaner_backoff_ms: i64 = "log.cleaner.backoff.ms";
    log_cleaner_dedupe_buffer_size: i64 = "log.cleaner.dedupe.buffer.size";
    log_cleaner_enable: bool = "log.cleaner.enable";
    log_cleaner_io_buffer_load_factor: f64 = "log.cleaner.io.buffer.load.factor";
    log_cleaner_io_buffer_size: i32 = "log.cleaner.io.buffer.size";
    log_cleaner_io_max_bytes_per_second: f64 = "log.cleaner.io.max.bytes.per.second";
    log_cleaner_threads: i32 = "log.cleaner.threads";
    log_flush_offset_checkpoint_interval_ms: i32 = "log.flush.offset.checkpoint.interval.ms";
    log_flush_scheduler_interval_ms: i64 = "log.flush.scheduler.interval.ms";
    log_flush_start_offset_checkpoint_interval_ms: i32 = "log.flush.start.offset.checkpoint.interval.ms";
    log_initial_task_delay_ms: i64 = "log.initial.task.delay.ms";
    log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms";
    max_connection_creation_rate: i32 = "max.connection.creation.rate";
    max_connections: i32 = "max.connections";
    max_connections_per_ip: i32 = "max.connections.per.ip";
    max_incremental_fetch_session_cache_slots: i32 = "max.incremental.fetch.session.cache.slots";
    max_request_partition_size_limit: i32 = "max.request.partition.size.limit";
    num_partitions: i32 = "num.partitions";
    num_replica_alter_log_dirs_threads: Option<i32> = "num.replica.alter.log.dirs.threads";
    num_replica_fetchers: i32 = "num.replica.fetchers";
    offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes";
    offsets_commit_timeout_ms: i32 = "offsets.commit.timeout.ms";
    offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms";
    offsets_retention_minutes: i32 = "offsets.retention.minutes";
    offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions";
    offsets_topic_replication_factor: i16 = "offsets.topic.replication.factor";
    offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes";
    producer_id_expiration_check_interval_ms: i32 = "producer.id.expiration.check.interval.ms";
    producer_id_expiration_ms: i32 = "producer.id.expiration.ms";
    follower_replication_throttled_rate: i64 = "follower.replication.throttled.rate";
    leader_replication_throttled_rate: i64 = "leader.replication.throttled.rate";
    replica_alter_log_dirs_io_max_bytes_per_second: i64 = "replica.alter.log.dirs.io.max.bytes.per.second";
    replica_fetch_backoff_ms: i32 = "replica.fetch.backoff.ms";
    replica_fetch_max_bytes: i32 = "replica.fetch.max.bytes";
    replica_fetch_min_bytes: i32 = "replica.fetch.min.bytes";
    replica_fetch_response_max_bytes: i32 = "replica.fetch.response.max.bytes";
    replica_fetch_wait_max_ms: i32 = "replica.fetch.wait.max.ms";
    replica_high_watermark_checkpoint_interval_ms: i64 = "replica.high.watermark.checkpoint.interval.ms";
    replica_lag_time_max_ms: i64 = "replica.lag.time.max.ms";
    replica_selector_class: Option<String> = "replica.selector.class";
    replica_socket_receive_buffer_bytes: i32 = "replica.socket.receive.buffer.bytes";
    replica_socket_timeout_ms: i32 = "replica.socket.timeout.ms";
    replication_quota_window_num: i32 = "replication.quota.window.num";
    replication_quota_window_size_seconds: i32 = "replication.quota.window.size.seconds";
    request_timeout_ms: i32 = "request.timeout.ms";
    reserved_broker_max_id: i32 = "reserved.broker.max.id";
    socket_listen_backlog_size: i32 = "socket.listen.backlog.size";
    socket_receive_buffer_bytes: i32 = "socket.receive.buffer.bytes";
    socket_request_max_bytes: i32 = "socket.request.max.bytes";
    socket_send_buffer_bytes: i32 = "socket.send.buffer.bytes";
    transaction_abort_interval_ms: i32 = "transaction.abort.timed.out.transaction.cleanup.interval.ms";
    transaction_max_timeout_ms: i32 = "transaction.max.timeout.ms";
    transaction_partition_verification_enable: bool = "transaction.partition.verification.enable";
    transaction_remove_expired_interval_ms: i32 = "transaction.remove.expired.transaction.cleanup.interval.ms";
    transaction_state_log_min_isr: i32 = "transaction.state.log.min.isr";
    transaction_state_log_num_partitions: i32 = "transaction.state.log.num.partitions";
    transaction_state_log_replication_factor: i16 = "transaction.state.log.replication.factor";
    transaction_state_log_segment_bytes: i32 = "transaction.state.log.segment.bytes";
    transaction_two_phase_commit_enable: bool = "transaction.two.phase.commit.enable";
    transactional_id_expiration_ms: i32 = "transactional.id.expiration.ms";
    add_partitions_retry_backoff_max_ms: i32 = "add.partitions.to.txn.retry.backoff.max.ms";
    add_partitions_retry_backoff_ms: i32 = "add.partitions.to.txn.retry.backoff.ms";
    zookeeper_connect: Option<String> = "zookeeper.connect";
    zookeeper_connection_timeout_ms: Option<i32> = "zookeeper.connection.timeout.ms";
    zookeeper_max_in_flight_requests: i32 = "zookeeper.max.in.flight.requests";
    zookeeper_session_timeout_ms: i32 = "zookeeper.session.timeout.ms";
    zookeeper_set_acl: bool = "zookeeper.set.acl";
    zookeeper_ssl_cipher_suites: Option<Vec<String>> = "zookeeper.ssl.cipher.suites";
    zookeeper_ssl_client_enable: bool = "zookeeper.ssl.client.enable";
    zookeeper_ssl_enabled_protocols: Option<Vec<String>> = "zookeeper.ssl.enabled.protocols";
    zookeeper_ssl_endpoint_identification_algorithm: String = "zookeeper.ssl.endpoint.identification.algorithm";
    zookeeper_ssl_keystore_location: Option<String> = "zookeeper.ssl.keystore.location";
    zookeeper_ssl_protocol: String = "zookeeper.ssl.protocol";
    zookeeper_ssl_truststore_location: Option<String> = "zookeeper.ssl.truststore.location";
    zookeeper_4lw_whitelist: String = "barnabas.zookeeper.4lw.commands.whitelist";
    zookeeper_digest: Option<Secret> = "barnabas.zookeeper.digest";
    zookeeper_jaas_file: Option<String> = "barnabas.zookeeper.jaas.file";
    zookeeper_jaas_section: String = "barnabas.zookeeper.jaas.section";
    zookeeper_jute_maxbuffer: i32 = "barnabas.zookeeper.jute.maxbuffer";
    zookeeper_listener: Option<String> = "barnabas.zookeeper.listener";
    http_listener: Option<String> = "barnabas.http.listener";
    log_dirs_reserved_bytes: i64 = "barnabas.log.dirs.reserved.bytes";
    log_level: String = "barnabas.log.level";
    producer_ids_max: i32 = "barnabas.producer.ids.max";
}
