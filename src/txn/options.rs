/// The settings of the transaction coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnOptions {
    /// `transaction.max.timeout.ms`
    pub timeout_ms_max: i32,
    /// `transaction.abort.timed.out.transaction.cleanup.interval.ms`: time between looks for transactions that
    /// have been open for too long.
    pub timeout_check_interval_ms: i64,
    /// `transactional.id.expiration.ms`: how long a silent transactional id is kept.
    pub id_expiration_ms: i64,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`
    pub id_expiration_check_interval_ms: i64,
    /// `transaction.two.phase.commit.enable`
    pub two_phase_commit_enabled: bool,
    /// How long a write may wait for its replicas. Kafka waits `request.timeout.ms`.
    pub write_timeout_ms: i64,
}

impl Default for TxnOptions {
    /// Kafka's defaults.
    fn default() -> Self {
        TxnOptions {
            timeout_ms_max: 900_000,
            timeout_check_interval_ms: 10_000,
            id_expiration_ms: 7 * 24 * 60 * 60 * 1_000,
            id_expiration_check_interval_ms: 3_600_000,
            two_phase_commit_enabled: false,
            write_timeout_ms: 30_000,
        }
    }
}
