//! Which brokers hold the replicas of new partitions: Kafka's default placement.

use std::collections::BTreeMap;

use snafu::{Snafu, ensure};

use crate::model::BrokerId;

/// A broker that can hold replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub id: BrokerId,
    pub rack: Option<String>,
}

/// Where a placement starts. Random for a new topic, so that the first partitions of many small topics do not
/// all land on the same broker; fixed for partitions added to a topic, so that they continue its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The place, in the list of brokers, of the leader of partition 0. Any number: it is taken modulo the
    /// number of brokers.
    pub first: usize,
    /// How far the first follower stands from its leader, less one.
    pub shift: usize,
    /// The number of the first partition to be placed.
    pub partition: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
pub enum PlacementError {
    #[snafu(display("Number of partitions must be larger than 0."))]
    PartitionsNotPositive,
    #[snafu(display("Number of partitions is larger than a topic can be stored with."))]
    TooManyPartitions,
    #[snafu(display("Replication factor must be larger than 0."))]
    ReplicationFactorNotPositive,
    #[snafu(display("Replication factor: {factor} larger than available brokers: {brokers}."))]
    ReplicationFactorTooLarge { factor: i32, brokers: usize },
    #[snafu(display("Not all brokers have rack information for replica rack aware assignment."))]
    RacksIncomplete,
}

/// No topic has more: its node has at least eight bytes for each partition, and ZooKeeper stores one mebibyte.
const PARTITIONS_MAX: i32 = 1 << 17;

/// The replicas of `partitions` new partitions, the preferred leader first.
///
/// Leaders go round robin over the brokers; followers stand at a distance that grows each time the round is
/// complete, so that the followers of one broker's partitions are spread. When all brokers have a rack, the
/// round alternates racks and a partition's replicas take unused racks first.
pub fn place(
    brokers: &[Candidate],
    partitions: i32,
    replication_factor: i32,
    start: Start,
) -> Result<Vec<Vec<BrokerId>>, PlacementError> {
    ensure!(partitions > 0, PartitionsNotPositiveSnafu);
    ensure!(partitions <= PARTITIONS_MAX, TooManyPartitionsSnafu);
    ensure!(replication_factor > 0, ReplicationFactorNotPositiveSnafu);
    let (partitions, factor) = (partitions as usize, replication_factor as usize);
    ensure!(
        factor <= brokers.len(),
        ReplicationFactorTooLargeSnafu { factor: replication_factor, brokers: brokers.len() }
    );

    let with_rack = brokers.iter().filter(|broker| broker.rack.is_some()).count();
    ensure!(with_rack == 0 || with_rack == brokers.len(), RacksIncompleteSnafu);
    let round = if with_rack == 0 {
        Round { brokers: brokers.iter().map(|broker| (broker.id, "")).collect(), racks: 1, rack_aware: false }
    } else {
        Round::alternating_racks(brokers)
    };

    let mut shift = start.shift;
    let numbers = start.partition..start.partition + partitions;
    Ok(numbers
        .map(|number| {
            if number > 0 && number % brokers.len() == 0 {
                shift += 1;
            }
            round.replicas(number + start.first, shift, factor)
        })
        .collect())
}

/// The brokers in the order in which they become leaders.
struct Round<'a> {
    brokers: Vec<(BrokerId, &'a str)>,
    racks: usize,
    rack_aware: bool,
}

impl<'a> Round<'a> {
    /// The first broker of each rack, racks by name, then the second of each, and so on.
    fn alternating_racks(brokers: &'a [Candidate]) -> Round<'a> {
        let mut by_rack: BTreeMap<&str, Vec<BrokerId>> = BTreeMap::new();
        for broker in brokers {
            by_rack.entry(broker.rack.as_deref().unwrap_or_default()).or_default().push(broker.id);
        }
        for ids in by_rack.values_mut() {
            ids.sort_unstable();
        }
        let longest = by_rack.values().map(Vec::len).max().unwrap_or(0);
        let nth_of_each =
            |nth| by_rack.iter().filter_map(move |(&rack, ids)| ids.get(nth).map(|&id| (id, rack)));
        Round {
            brokers: (0..longest).flat_map(nth_of_each).collect(),
            racks: by_rack.len(),
            rack_aware: true,
        }
    }

    fn replicas(&self, first: usize, shift: usize, factor: usize) -> Vec<BrokerId> {
        let count = self.brokers.len();
        let leader = self.brokers[first % count];
        let mut chosen = vec![leader];
        // A shift by whole rounds of racks keeps the first follower in the rack after the leader's.
        let shift = if self.rack_aware { shift * self.racks } else { shift };
        let mut step = 0;
        while chosen.len() < factor {
            let distance = 1 + (shift + step) % (count - 1);
            let follower = self.brokers[(first % count + distance) % count];
            step += 1;
            if !self.rack_aware || self.is_acceptable(&chosen, follower) {
                chosen.push(follower);
            }
        }
        chosen.into_iter().map(|(id, _)| id).collect()
    }

    /// A broker is taken once, and a rack again only when every rack has a replica.
    fn is_acceptable(&self, chosen: &[(BrokerId, &str)], broker: (BrokerId, &str)) -> bool {
        let mut racks: Vec<&str> = chosen.iter().map(|(_, rack)| *rack).collect();
        racks.sort_unstable();
        racks.dedup();
        let rack_is_free = !racks.contains(&broker.1) || racks.len() == self.racks;
        rack_is_free && !chosen.contains(&broker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brokers(racks: &[(i32, &str)]) -> Vec<Candidate> {
        let rack = |rack: &str| (!rack.is_empty()).then(|| rack.to_owned());
        racks.iter().map(|&(id, name)| Candidate { id: BrokerId(id), rack: rack(name) }).collect()
    }

    fn start(first: usize, shift: usize, partition: usize) -> Start {
        Start { first, shift, partition }
    }

    #[track_caller]
    fn check(racks: &[(i32, &str)], partitions: i32, factor: i32, start: Start, expected: &[&[i32]]) {
        let placed = place(&brokers(racks), partitions, factor, start).unwrap();
        let plain: Vec<Vec<i32>> = placed.iter().map(|ids| ids.iter().map(|id| id.0).collect()).collect();
        assert_eq!(plain, expected);
    }

    const FIVE: [(i32, &str); 5] = [(0, ""), (1, ""), (2, ""), (3, ""), (4, "")];
    const SIX_IN_THREE_RACKS: [(i32, &str); 6] =
        [(0, "rack1"), (1, "rack3"), (2, "rack3"), (3, "rack2"), (4, "rack2"), (5, "rack1")];

    /// The table that Kafka's documentation of the algorithm shows.
    #[test]
    fn without_racks_followers_shift_with_each_round() {
        let expected: [&[i32]; 10] = [
            &[0, 1, 2],
            &[1, 2, 3],
            &[2, 3, 4],
            &[3, 4, 0],
            &[4, 0, 1],
            &[0, 2, 3],
            &[1, 3, 4],
            &[2, 4, 0],
            &[3, 0, 1],
            &[4, 1, 2],
        ];
        check(&FIVE, 10, 3, start(0, 0, 0), &expected);
    }

    #[test]
    fn a_random_start_turns_the_pattern() {
        check(&FIVE, 2, 3, start(3, 2, 0), &[&[3, 1, 2], &[4, 2, 3]]);
    }

    #[test]
    fn added_partitions_continue_the_pattern() {
        check(&FIVE, 2, 2, start(0, 0, 5), &[&[0, 2], &[1, 3]]);
    }

    #[test]
    fn one_broker_takes_everything() {
        check(&[(7, "")], 3, 1, start(4, 9, 0), &[&[7], &[7], &[7]]);
    }

    /// Kafka's documented example: the list is 0 (rack1), 3 (rack2), 1 (rack3), 5, 4, 2.
    #[test]
    fn racks_alternate_and_each_partition_uses_all_of_them() {
        let expected: [&[i32]; 7] =
            [&[0, 3, 1], &[3, 1, 5], &[1, 5, 4], &[5, 4, 2], &[4, 2, 0], &[2, 0, 3], &[0, 4, 2]];
        check(&SIX_IN_THREE_RACKS, 7, 3, start(0, 0, 0), &expected);
    }

    #[test]
    fn more_replicas_than_racks_use_a_rack_twice() {
        let placed = place(&brokers(&SIX_IN_THREE_RACKS), 12, 5, start(1, 1, 0)).unwrap();
        for mut ids in placed {
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 5);
        }
    }

    #[test]
    fn impossible_requests_are_refused() {
        let place = |racks: &[(i32, &str)], partitions, factor| {
            place(&brokers(racks), partitions, factor, start(0, 0, 0)).unwrap_err()
        };
        assert_eq!(place(&FIVE, 0, 1), PlacementError::PartitionsNotPositive);
        assert_eq!(place(&FIVE, 1, 0), PlacementError::ReplicationFactorNotPositive);
        assert_eq!(place(&FIVE, 1, 6).to_string(), "Replication factor: 6 larger than available brokers: 5.");
        assert_eq!(place(&[(0, "a"), (1, "")], 1, 1), PlacementError::RacksIncomplete);
        assert_eq!(place(&[], 1, 1), PlacementError::ReplicationFactorTooLarge { factor: 1, brokers: 0 });
    }
}
