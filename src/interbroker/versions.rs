use crate::config::ProtocolVersion;

/// The versions of the requests between brokers at one level of `inter.broker.protocol.version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestVersions {
    pub fetch: i16,
    pub list_offsets: i16,
    pub offset_for_leader_epoch: i16,
    pub leader_and_isr: i16,
    pub update_metadata: i16,
    pub stop_replica: i16,
    pub controlled_shutdown: i16,
    pub write_txn_markers: i16,
    /// `None` = Kafka's leaders write their ISRs to the store themselves.
    pub alter_partition: Option<i16>,
    /// `None` = a controller of that level gives no producer ids. Brokers here always take them from the store.
    pub allocate_producer_ids: Option<i16>,
    /// Followers find out where they left the leader's log by fetching.
    pub truncates_on_fetch: bool,
}

/// From which level on a version is spoken, newest first.
type Steps = &'static [(&'static str, i16)];

const FETCH: Steps = &[
    ("3.9-IV0", 17),
    ("3.7-IV4", 16),
    ("3.5-IV1", 15),
    ("3.5-IV0", 14),
    ("3.1-IV0", 13),
    ("2.7-IV1", 12),
    ("2.3-IV1", 11),
    ("2.1-IV2", 10),
    ("2.0-IV1", 8),
    ("1.1-IV0", 7),
    ("0.11.0-IV1", 5),
    ("0.11.0-IV0", 4),
    ("0.10.1-IV1", 3),
    ("0.10.0-IV0", 2),
    ("0.9.0", 1),
];
const LIST_OFFSETS: Steps = &[
    ("3.9-IV0", 9),
    ("3.5-IV0", 8),
    ("3.0-IV1", 7),
    ("2.8-IV0", 6),
    ("2.2-IV1", 5),
    ("2.1-IV1", 4),
    ("2.0-IV1", 3),
    ("0.11.0-IV0", 2),
    ("0.10.1-IV2", 1),
];
const OFFSET_FOR_LEADER_EPOCH: Steps = &[("2.8-IV0", 4), ("2.3-IV1", 3), ("2.1-IV1", 2), ("2.0-IV0", 1)];
const LEADER_AND_ISR: Steps = &[
    ("3.4-IV0", 7),
    ("3.2-IV0", 6),
    ("2.8-IV1", 5),
    ("2.4-IV1", 4),
    ("2.4-IV0", 3),
    ("2.2-IV0", 2),
    ("1.0-IV0", 1),
];
const UPDATE_METADATA: Steps = &[
    ("3.4-IV0", 8),
    ("2.8-IV1", 7),
    ("2.4-IV1", 6),
    ("2.2-IV0", 5),
    ("1.0-IV0", 4),
    ("0.10.2-IV0", 3),
    ("0.10.0-IV1", 2),
    ("0.9.0", 1),
];
const STOP_REPLICA: Steps = &[("3.4-IV0", 4), ("2.6-IV0", 3), ("2.4-IV1", 2), ("2.2-IV0", 1)];
const CONTROLLED_SHUTDOWN: Steps = &[("2.4-IV1", 3), ("2.2-IV0", 2), ("0.9.0", 1)];
const WRITE_TXN_MARKERS: Steps = &[("2.8-IV0", 1)];
const ALTER_PARTITION: Steps = &[("3.5-IV1", 3), ("3.3-IV3", 2), ("3.2-IV0", 1), ("2.7-IV2", 0)];
const ALLOCATE_PRODUCER_IDS: Steps = &[("3.0-IV0", 0)];
const TRUNCATION_ON_FETCH: Steps = &[("2.7-IV1", 1)];

impl RequestVersions {
    pub fn of(level: ProtocolVersion) -> RequestVersions {
        let version = |steps| version_at(level, steps).unwrap_or(0);
        RequestVersions {
            fetch: version(FETCH),
            list_offsets: version(LIST_OFFSETS),
            offset_for_leader_epoch: version(OFFSET_FOR_LEADER_EPOCH),
            leader_and_isr: version(LEADER_AND_ISR),
            update_metadata: version(UPDATE_METADATA),
            stop_replica: version(STOP_REPLICA),
            controlled_shutdown: version(CONTROLLED_SHUTDOWN),
            write_txn_markers: version(WRITE_TXN_MARKERS),
            alter_partition: version_at(level, ALTER_PARTITION),
            allocate_producer_ids: version_at(level, ALLOCATE_PRODUCER_IDS),
            truncates_on_fetch: version_at(level, TRUNCATION_ON_FETCH).is_some(),
        }
    }
}

fn version_at(level: ProtocolVersion, steps: Steps) -> Option<i16> {
    let is_reached = |name: &str| ProtocolVersion::parse(name).is_some_and(|step| level >= step);
    steps.iter().find(|(name, _)| is_reached(name)).map(|&(_, version)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(level: &str) -> RequestVersions {
        RequestVersions::of(ProtocolVersion::parse(level).unwrap())
    }

    #[test]
    fn every_step_is_a_level() {
        let all = [
            FETCH,
            LIST_OFFSETS,
            OFFSET_FOR_LEADER_EPOCH,
            LEADER_AND_ISR,
            UPDATE_METADATA,
            STOP_REPLICA,
            CONTROLLED_SHUTDOWN,
            WRITE_TXN_MARKERS,
            ALTER_PARTITION,
            ALLOCATE_PRODUCER_IDS,
            TRUNCATION_ON_FETCH,
        ];
        for (name, _) in all.into_iter().flatten() {
            assert_eq!(ProtocolVersion::parse(name).map(ProtocolVersion::name), Some(*name));
        }
        for steps in all {
            let levels: Vec<_> = steps.iter().map(|(name, _)| ProtocolVersion::parse(name)).collect();
            assert!(levels.is_sorted_by(|a, b| a > b), "{steps:?}");
        }
    }

    #[test]
    fn versions_are_those_of_the_level() {
        let newest = of("3.9");
        assert_eq!((newest.fetch, newest.leader_and_isr, newest.update_metadata), (17, 7, 8));
        assert_eq!((newest.stop_replica, newest.alter_partition), (4, Some(3)));
        let old = of("2.3");
        assert_eq!((old.fetch, old.leader_and_isr, old.update_metadata, old.stop_replica), (11, 2, 5, 1));
        assert_eq!((old.alter_partition, old.allocate_producer_ids), (None, None));
        assert!(newest.truncates_on_fetch && !old.truncates_on_fetch);
        assert_eq!(of("0.8.2").fetch, 0);
    }
}
