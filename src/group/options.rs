/// The settings of classic groups and of stored offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// `group.min.session.timeout.ms`
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`
    pub session_timeout_ms_max: i32,
    /// `group.max.size`, in members.
    pub group_size_max: usize,
    /// `group.initial.rebalance.delay.ms`: how long an empty group waits for more members.
    pub initial_rebalance_delay_ms: i32,
    /// `offset.metadata.max.bytes`, counted in UTF-16 units as Kafka does.
    pub offset_metadata_size_max: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`
    pub offsets_retention_check_interval_ms: i64,
    /// `offsets.commit.timeout.ms`: how long a write may wait for its replicas.
    pub offset_commit_timeout_ms: i64,
}

impl Default for GroupOptions {
    /// Kafka's defaults.
    fn default() -> Self {
        GroupOptions {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            group_size_max: i32::MAX as usize,
            initial_rebalance_delay_ms: 3_000,
            offset_metadata_size_max: 4_096,
            offsets_retention_ms: 7 * 24 * 60 * 60 * 1_000,
            offsets_retention_check_interval_ms: 600_000,
            offset_commit_timeout_ms: 5_000,
        }
    }
}
