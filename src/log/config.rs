/// How one partition's log is kept: Kafka's topic settings of the same names, resolved.
#[derive(Clone, PartialEq, Debug)]
pub struct LogConfig {
    /// A segment is rolled before it grows beyond this. At most 2^31 - 1.
    pub segment_bytes: u32,
    /// A segment is rolled when its records span more than this.
    pub segment_ms: i64,
    /// Each segment is rolled earlier by a random part of this, so that logs do not all roll at once.
    pub segment_jitter_ms: i64,
    /// A segment is rolled when one of its indexes would grow beyond this.
    pub segment_index_bytes: u32,
    /// How many bytes of records lie between two index entries, at least.
    pub index_interval_bytes: u32,
    /// Records appended before a flush is asked for; `i64::MAX` = never.
    pub flush_messages: i64,
    /// How long records may stay unflushed; `i64::MAX` = for ever.
    pub flush_ms: i64,
    /// `None` = unlimited.
    pub retention_ms: Option<i64>,
    /// `None` = unlimited.
    pub retention_bytes: Option<u64>,
    pub cleanup: Cleanup,
    /// Records are not compacted before they are this old.
    pub min_compaction_lag_ms: i64,
    /// Records are compacted when they are this old, however few they are; bounds `segment_ms` for compacted
    /// logs. `i64::MAX` = no bound.
    pub max_compaction_lag_ms: i64,
    /// Whether a segment takes its space on the disk when it begins.
    pub preallocate: bool,
    /// A log is compacted when more than this part of it is not, from 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// How long compaction keeps tombstones.
    pub delete_retention_ms: i64,
    /// How long files stay under their `.deleted` name.
    pub file_delete_delay_ms: i64,
}

/// `cleanup.policy`. Neither = the log grows without end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cleanup {
    pub deletes: bool,
    pub compacts: bool,
}

impl Cleanup {
    pub const DELETE: Cleanup = Cleanup { deletes: true, compacts: false };
    pub const COMPACT: Cleanup = Cleanup { deletes: false, compacts: true };
}

impl Default for LogConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        const WEEK_MS: i64 = 7 * 24 * 60 * 60 * 1000;
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: WEEK_MS,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            retention_ms: Some(WEEK_MS),
            retention_bytes: None,
            cleanup: Cleanup::DELETE,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            preallocate: false,
            min_cleanable_dirty_ratio: 0.5,
            delete_retention_ms: 24 * 60 * 60 * 1000,
            file_delete_delay_ms: 60_000,
        }
    }
}

impl LogConfig {
    /// The age at which a segment is rolled, before jitter.
    pub(super) fn segment_ms_max(&self) -> i64 {
        if self.cleanup.compacts && self.max_compaction_lag_ms > 0 {
            self.segment_ms.min(self.max_compaction_lag_ms)
        } else {
            self.segment_ms
        }
    }
}
