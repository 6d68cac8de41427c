use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::stored::StoredOffset;
use crate::model::{Offset, ProducerId, Timestamp, TopicPartition};

/// The offsets of one group: what is committed, what is on its way, what waits for a transaction.
///
/// A commit that stands later in the log wins, whichever way it came: a transaction that commits late does not
/// bring an older offset back. Only committed offsets are ever answered.
#[derive(Debug, Default)]
pub(super) struct GroupOffsets {
    committed: HashMap<TopicPartition, OffsetAt>,
    /// Writes in flight for each partition.
    in_flight: HashMap<TopicPartition, usize>,
    transactions: HashMap<ProducerId, HashMap<TopicPartition, OffsetAt>>,
    transactions_in_flight: HashMap<ProducerId, HashMap<TopicPartition, usize>>,
}

#[derive(Clone, Debug)]
struct OffsetAt {
    value: StoredOffset,
    /// The offset of its record in the log.
    at: Offset,
}

impl GroupOffsets {
    pub fn committed(&self, topic_partition: &TopicPartition) -> Option<&StoredOffset> {
        self.committed.get(topic_partition).map(|stored| &stored.value)
    }

    pub fn all_committed(&self) -> impl Iterator<Item = (&TopicPartition, &StoredOffset)> {
        self.committed.iter().map(|(topic_partition, stored)| (topic_partition, &stored.value))
    }

    /// Nothing is stored, nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.committed.is_empty()
            && self.in_flight.is_empty()
            && self.transactions.is_empty()
            && self.transactions_in_flight.is_empty()
    }

    /// A commit of this partition is in flight or waits for the end of its transaction.
    pub fn is_unstable(&self, topic_partition: &TopicPartition) -> bool {
        self.in_flight.contains_key(topic_partition)
            || self.transactions.values().any(|offsets| offsets.contains_key(topic_partition))
            || self.transactions_in_flight.values().any(|offsets| offsets.contains_key(topic_partition))
    }

    /// A record for this partition was given to the log.
    pub fn begin(&mut self, topic_partition: &TopicPartition, producer: Option<ProducerId>) {
        let writes = match producer {
            None => &mut self.in_flight,
            Some(producer_id) => self.transactions_in_flight.entry(producer_id).or_default(),
        };
        *writes.entry(topic_partition.clone()).or_default() += 1;
    }

    /// A record that was given to the log is committed or lost.
    pub fn end(&mut self, topic_partition: &TopicPartition, producer: Option<ProducerId>) {
        let Some(producer_id) = producer else {
            return count_down(&mut self.in_flight, topic_partition);
        };
        if let Some(writes) = self.transactions_in_flight.get_mut(&producer_id) {
            count_down(writes, topic_partition);
            if writes.is_empty() {
                self.transactions_in_flight.remove(&producer_id);
            }
        }
    }

    /// Takes in a committed record of the log; `value` `None` = a tombstone.
    pub fn apply(
        &mut self,
        topic_partition: TopicPartition,
        value: Option<StoredOffset>,
        at: Offset,
        producer: Option<ProducerId>,
    ) {
        match (value, producer) {
            (Some(value), None) => put_newer(&mut self.committed, topic_partition, OffsetAt { value, at }),
            (Some(value), Some(producer_id)) => put_newer(
                self.transactions.entry(producer_id).or_default(),
                topic_partition,
                OffsetAt { value, at },
            ),
            (None, None) => {
                remove_older(&mut self.committed, &topic_partition, at);
                for offsets in self.transactions.values_mut() {
                    remove_older(offsets, &topic_partition, at);
                }
                self.transactions.retain(|_, offsets| !offsets.is_empty());
            }
            (None, Some(producer_id)) => {
                if let Some(offsets) = self.transactions.get_mut(&producer_id) {
                    remove_older(offsets, &topic_partition, at);
                }
            }
        }
    }

    pub fn end_transaction(&mut self, producer_id: ProducerId, is_commit: bool) {
        let Some(offsets) = self.transactions.remove(&producer_id) else { return };
        if is_commit {
            for (topic_partition, stored) in offsets {
                put_newer(&mut self.committed, topic_partition, stored);
            }
        }
    }

    /// The partitions whose offset has outlived its retention. One with a commit in flight never has.
    ///
    /// `base` tells from when the broker's retention counts; an offset with its own end keeps that.
    pub fn expired(
        &self,
        now: Timestamp,
        retention_ms: i64,
        base: impl Fn(&TopicPartition, &StoredOffset) -> Option<Timestamp>,
    ) -> Vec<TopicPartition> {
        let has_expired = |topic_partition: &TopicPartition, value: &StoredOffset| {
            let Some(base) = base(topic_partition, value) else { return false };
            match value.expire_timestamp {
                Some(expire_timestamp) => now >= expire_timestamp,
                None => now.since_ms(base) >= retention_ms,
            }
        };
        self.all_committed()
            .filter(|(topic_partition, value)| {
                !self.in_flight.contains_key(*topic_partition) && has_expired(topic_partition, value)
            })
            .map(|(topic_partition, _)| topic_partition.clone())
            .collect()
    }

    /// Every partition that a removal of the group must write a tombstone for, those of open transactions
    /// included: their end must not bring the offset back.
    pub fn all_partitions(&self) -> Vec<TopicPartition> {
        let transactions = self.transactions.values().flat_map(HashMap::keys);
        let in_flight = self.transactions_in_flight.values().flat_map(HashMap::keys);
        let all = self.committed.keys().chain(self.in_flight.keys()).chain(transactions).chain(in_flight);
        all.cloned().collect::<HashSet<_>>().into_iter().collect()
    }

    /// Whether an offset of this partition is stored or on its way.
    pub fn contains(&self, topic_partition: &TopicPartition) -> bool {
        self.committed.contains_key(topic_partition) || self.is_unstable(topic_partition)
    }

    /// Nothing would be left if these committed offsets were gone.
    pub fn are_all(&self, removed: &[TopicPartition]) -> bool {
        self.in_flight.is_empty()
            && self.transactions.is_empty()
            && self.transactions_in_flight.is_empty()
            && self.committed.len() <= removed.len()
            && {
                let removed: HashSet<_> = removed.iter().collect();
                self.committed.keys().all(|key| removed.contains(key))
            }
    }
}

fn count_down(writes: &mut HashMap<TopicPartition, usize>, topic_partition: &TopicPartition) {
    if let Some(count) = writes.get_mut(topic_partition) {
        *count -= 1;
        if *count == 0 {
            writes.remove(topic_partition);
        }
    }
}

fn put_newer(
    offsets: &mut HashMap<TopicPartition, OffsetAt>,
    topic_partition: TopicPartition,
    stored: OffsetAt,
) {
    match offsets.entry(topic_partition) {
        Entry::Vacant(entry) => {
            entry.insert(stored);
        }
        Entry::Occupied(mut entry) if entry.get().at < stored.at => {
            entry.insert(stored);
        }
        Entry::Occupied(_) => {}
    }
}

fn remove_older(
    offsets: &mut HashMap<TopicPartition, OffsetAt>,
    topic_partition: &TopicPartition,
    at: Offset,
) {
    if offsets.get(topic_partition).is_some_and(|stored| stored.at < at) {
        offsets.remove(topic_partition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LeaderEpoch, PartitionIndex, TopicName};

    fn partition(index: i32) -> TopicPartition {
        TopicPartition::new(TopicName::new("orders").unwrap(), PartitionIndex(index))
    }

    fn stored(offset: i64) -> StoredOffset {
        StoredOffset {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch::UNKNOWN,
            metadata: String::new(),
            commit_timestamp: Timestamp(0),
            expire_timestamp: None,
        }
    }

    #[track_caller]
    fn check(offsets: &GroupOffsets, expected: Option<i64>) {
        assert_eq!(offsets.committed(&partition(0)).map(|value| value.offset.0), expected);
    }

    #[test]
    fn a_transactions_offsets_show_when_it_commits() {
        let mut offsets = GroupOffsets::default();
        offsets.apply(partition(0), Some(stored(5)), Offset(1), Some(ProducerId(9)));
        check(&offsets, None);
        assert!(offsets.is_unstable(&partition(0)) && !offsets.is_unstable(&partition(1)));
        offsets.end_transaction(ProducerId(9), true);
        check(&offsets, Some(5));
        assert!(!offsets.is_unstable(&partition(0)));
    }

    #[test]
    fn an_aborted_transaction_leaves_the_old_offset() {
        let mut offsets = GroupOffsets::default();
        offsets.apply(partition(0), Some(stored(3)), Offset(0), None);
        offsets.apply(partition(0), Some(stored(5)), Offset(1), Some(ProducerId(9)));
        offsets.end_transaction(ProducerId(9), false);
        check(&offsets, Some(3));
    }

    #[test]
    fn the_later_record_wins_over_a_transaction_that_commits_after_it() {
        let mut offsets = GroupOffsets::default();
        offsets.apply(partition(0), Some(stored(5)), Offset(1), Some(ProducerId(9)));
        offsets.apply(partition(0), Some(stored(7)), Offset(2), None);
        offsets.end_transaction(ProducerId(9), true);
        check(&offsets, Some(7));
    }

    #[test]
    fn a_tombstone_removes_only_what_is_older() {
        let mut offsets = GroupOffsets::default();
        offsets.apply(partition(0), Some(stored(5)), Offset(4), None);
        offsets.apply(partition(0), None, Offset(3), None);
        check(&offsets, Some(5));
        offsets.apply(partition(0), None, Offset(5), None);
        check(&offsets, None);
        assert!(offsets.is_empty());
    }

    #[test]
    fn an_offset_with_a_commit_in_flight_does_not_expire() {
        let mut offsets = GroupOffsets::default();
        offsets.apply(partition(0), Some(stored(5)), Offset(0), None);
        let expired = |offsets: &GroupOffsets| {
            offsets.expired(Timestamp(100), 100, |_, value| Some(value.commit_timestamp))
        };
        offsets.begin(&partition(0), None);
        assert_eq!(expired(&offsets), []);
        offsets.end(&partition(0), None);
        assert_eq!(expired(&offsets), [partition(0)]);
    }

    #[test]
    fn an_explicit_end_replaces_the_brokers_retention() {
        let mut offsets = GroupOffsets::default();
        let value = StoredOffset { expire_timestamp: Some(Timestamp(5_000)), ..stored(5) };
        offsets.apply(partition(0), Some(value), Offset(0), None);
        let expired = |now| offsets.expired(Timestamp(now), 100, |_, value| Some(value.commit_timestamp));
        assert_eq!(expired(4_999), []);
        assert_eq!(expired(5_000), [partition(0)]);
    }
}
