//! What a seed decides before its cluster starts.

use std::time::Duration;

use barnabas::runtime::Random;

use crate::chance::one_in;
use crate::faults::{self, Fault};

/// The topic that producers write to.
pub const TOPIC: &str = "t";
/// How many brokers have each partition, unless it was moved.
pub const REPLICATION_FACTOR: i16 = 3;
/// Where a broker has its logs: directories of the root, each on a disk of its own.
pub const LOG_DIRS: &[&str] = &["data0", "data1"];
/// Retention by size leaves at least so much.
pub const RETAINED_BYTES: i64 = 6_000;

#[derive(Debug)]
pub struct Plan {
    pub brokers: i32,
    pub partitions: i32,
    pub log_dirs: usize,
    pub producers: u64,
    pub transactors: u64,
    pub has_committer: bool,
    pub group_members: u64,
    pub cleanup: Cleanup,
    pub min_insync_replicas: i32,
    /// A replica that is not in sync may be elected: what was acknowledged may be lost, and little is promised.
    pub is_unclean: bool,
    /// Partitions move between brokers.
    pub has_moves: bool,
    /// Other topics come, grow and go.
    pub has_churn: bool,
    pub faults: Vec<Fault>,
    pub disturbed: Duration,
}

/// What becomes of old records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cleanup {
    #[default]
    Nothing,
    /// The oldest segments go when there is enough in later ones.
    Retention,
    /// Somebody deletes what is below an offset.
    Trimming,
    Compaction,
}

impl Cleanup {
    /// Whether the log begins later and later.
    pub fn moves_start(self) -> bool {
        matches!(self, Cleanup::Retention | Cleanup::Trimming)
    }
}

impl Plan {
    pub fn of(random: &Random) -> Plan {
        let one_in = |count| one_in(random, count);
        let is_unclean = one_in(12);
        Plan {
            brokers: if one_in(2) { 3 } else { random.number(3..=5) as i32 },
            partitions: random.number(1..=2) as i32,
            log_dirs: random.number(1..=LOG_DIRS.len() as u64) as usize,
            producers: random.number(1..=3),
            // A marker that is lost with an unclean election leaves a transaction that nobody ends, as in Kafka.
            transactors: if is_unclean { 0 } else { random.number(0..=3).saturating_sub(1) },
            has_committer: one_in(2),
            group_members: if one_in(2) { random.number(1..=3) } else { 0 },
            cleanup: match random.number(0..6) {
                0 => Cleanup::Retention,
                1 => Cleanup::Trimming,
                2 => Cleanup::Compaction,
                _ => Cleanup::Nothing,
            },
            min_insync_replicas: if one_in(4) { 1 } else { 2 },
            is_unclean,
            has_moves: one_in(3),
            has_churn: one_in(3),
            faults: faults::some(random),
            disturbed: Duration::from_secs(random.number(10..=40)),
        }
    }

    /// Of [`TOPIC`].
    pub fn topic_settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("min.insync.replicas", self.min_insync_replicas.to_string()),
            ("unclean.leader.election.enable", self.is_unclean.to_string()),
            ("file.delete.delay.ms", "1000".to_owned()),
        ];
        if self.cleanup != Cleanup::Nothing {
            settings.push(("segment.bytes", "2000".to_owned()));
        }
        match self.cleanup {
            Cleanup::Nothing | Cleanup::Trimming => {}
            Cleanup::Retention => settings.push(("retention.bytes", RETAINED_BYTES.to_string())),
            Cleanup::Compaction => settings.extend([
                ("cleanup.policy", "compact".to_owned()),
                ("min.cleanable.dirty.ratio", "0.05".to_owned()),
                ("delete.retention.ms", "1000".to_owned()),
            ]),
        }
        settings
    }
}

/// Of all brokers. Small numbers, so that what takes long in Kafka happens within a minute.
pub fn broker_settings(random: &Random) -> Vec<(String, String)> {
    let either = |one: &'static str, other: &'static str| if one_in(random, 2) { one } else { other };
    let settings = [
        ("min.insync.replicas", "2"),
        ("auto.create.topics.enable", "false"),
        ("auto.leader.rebalance.enable", either("true", "false")),
        ("leader.imbalance.check.interval.seconds", "5"),
        ("replica.lag.time.max.ms", "3000"),
        ("replica.socket.timeout.ms", "3000"),
        ("replica.fetch.backoff.ms", "200"),
        ("request.timeout.ms", "5000"),
        ("controller.socket.timeout.ms", "5000"),
        ("controlled.shutdown.retry.backoff.ms", "500"),
        ("replica.high.watermark.checkpoint.interval.ms", either("5000", "500")),
        ("log.flush.offset.checkpoint.interval.ms", either("60000", "3000")),
        ("log.flush.start.offset.checkpoint.interval.ms", either("10000", "2000")),
        ("log.initial.task.delay.ms", "1000"),
        ("log.retention.check.interval.ms", "1000"),
        ("log.segment.delete.delay.ms", "1000"),
        ("log.index.size.max.bytes", "4096"),
        ("log.index.interval.bytes", either("4096", "200")),
        ("log.segment.bytes", either("1048576", "2000")),
        ("log.cleaner.enable", "true"),
        ("log.cleaner.backoff.ms", either("500", "5000")),
        ("log.cleaner.dedupe.buffer.size", "2097152"),
        ("log.cleaner.threads", "1"),
        ("offsets.topic.num.partitions", "1"),
        ("offsets.topic.replication.factor", "3"),
        ("offsets.topic.segment.bytes", either("104857600", "2000")),
        ("group.initial.rebalance.delay.ms", "500"),
        ("transaction.state.log.num.partitions", "1"),
        ("transaction.state.log.segment.bytes", either("104857600", "2000")),
        ("num.replica.fetchers", either("1", "2")),
    ];
    settings.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec()
}
