use crate::model::{LeaderEpoch, Offset};

/// Where the records of each leader epoch begin in a log.
///
/// Epochs and start offsets both rise from entry to entry. Pure: whoever changes it writes the entries to
/// `leader-epoch-checkpoint` when a method says that they changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochCache {
    entries: Vec<EpochEntry>,
}

/// The first offset that a leader epoch wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    pub epoch: LeaderEpoch,
    pub start_offset: Offset,
}

/// Where an epoch ends: the answer to OffsetForLeaderEpoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEndOffset {
    /// The greatest known epoch that is not above the one asked for; `-1` = unknown.
    pub epoch: LeaderEpoch,
    /// The offset after its last record; `-1` = unknown.
    pub end_offset: Offset,
}

impl EpochEndOffset {
    pub const UNKNOWN: EpochEndOffset =
        EpochEndOffset { epoch: LeaderEpoch::UNKNOWN, end_offset: Offset::NONE };
}

impl LeaderEpochCache {
    /// Takes entries as a checkpoint holds them; later entries win over conflicting earlier ones.
    pub fn new(entries: impl IntoIterator<Item = EpochEntry>) -> LeaderEpochCache {
        let mut cache = LeaderEpochCache::default();
        for entry in entries {
            cache.assign(entry.epoch, entry.start_offset);
        }
        cache
    }

    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.latest().map(|entry| entry.epoch)
    }

    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    /// Notes that `epoch` wrote at `start_offset`; returns whether that was new.
    ///
    /// Entries that contradict it go: what the new leader wrote is what the log now holds. Negative epochs
    /// and offsets, which only batches without an epoch carry, change nothing.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        if epoch < LeaderEpoch(0) || start_offset < Offset::ZERO {
            return false;
        }
        let is_known =
            self.latest().is_some_and(|latest| latest.epoch == epoch && start_offset >= latest.start_offset);
        if is_known {
            return false;
        }
        while self.latest().is_some_and(|latest| latest.epoch >= epoch || latest.start_offset >= start_offset)
        {
            self.entries.pop();
        }
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    /// Where `epoch` ends in a log that ends at `log_end_offset`.
    ///
    /// An epoch between two known ones ends where the lower one does; one above the latest is unknown.
    pub fn end_offset_for(&self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEndOffset {
        if epoch < LeaderEpoch(0) {
            return EpochEndOffset::UNKNOWN;
        }
        if self.latest_epoch() == Some(epoch) {
            return EpochEndOffset { epoch, end_offset: log_end_offset };
        }
        let higher = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let Some(next) = self.entries.get(higher) else {
            return EpochEndOffset::UNKNOWN;
        };
        // Below the first entry the records were deleted: the asked epoch ends where the log begins.
        let floor = higher.checked_sub(1).map_or(epoch, |floor| self.entries[floor].epoch);
        EpochEndOffset { epoch: floor, end_offset: next.start_offset }
    }

    /// The epoch that wrote the record at `offset`. `None` below the first entry.
    pub fn epoch_for_offset(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start_offset <= offset);
        after.checked_sub(1).map(|at| self.entries[at].epoch)
    }

    /// Drops what begins at or after the new end of the log; returns whether anything did.
    pub fn truncate_from_end(&mut self, end_offset: Offset) -> bool {
        let kept = self.entries.partition_point(|entry| entry.start_offset < end_offset);
        let is_changed = kept < self.entries.len();
        self.entries.truncate(kept);
        is_changed
    }

    /// Drops what ends before the new start of the log; the epoch that holds the start then begins there.
    /// Returns whether anything changed.
    pub fn truncate_from_start(&mut self, start_offset: Offset) -> bool {
        let below = self.entries.partition_point(|entry| entry.start_offset <= start_offset);
        let Some(last_below) = below.checked_sub(1) else {
            return false;
        };
        let is_changed = last_below > 0 || self.entries[last_below].start_offset != start_offset;
        self.entries.drain(..last_below);
        self.entries[0].start_offset = start_offset;
        is_changed
    }

    /// Forgets everything: the log starts anew.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cache(entries: &[(i32, i64)]) -> LeaderEpochCache {
        LeaderEpochCache::new(
            entries
                .iter()
                .map(|&(epoch, start)| EpochEntry { epoch: LeaderEpoch(epoch), start_offset: Offset(start) }),
        )
    }

    fn shown(cache: &LeaderEpochCache) -> Vec<(i32, i64)> {
        cache.entries().iter().map(|entry| (entry.epoch.0, entry.start_offset.0)).collect()
    }

    fn end_of(cache: &LeaderEpochCache, epoch: i32, log_end: i64) -> (i32, i64) {
        let end = cache.end_offset_for(LeaderEpoch(epoch), Offset(log_end));
        (end.epoch.0, end.end_offset.0)
    }

    /// C014
    #[test]
    fn the_end_of_an_epoch_follows_kip_279() {
        let cache = cache(&[(0, 0), (3, 10)]);
        for (epoch, expected) in
            [(0, (0, 10)), (1, (0, 10)), (2, (0, 10)), (3, (3, 20)), (7, (-1, -1)), (-1, (-1, -1))]
        {
            assert_eq!(end_of(&cache, epoch, 20), expected, "epoch {epoch}");
        }
        assert_eq!(end_of(&LeaderEpochCache::default(), 0, 20), (-1, -1));
    }

    #[test]
    fn an_epoch_below_the_first_ends_where_the_log_begins() {
        assert_eq!(end_of(&cache(&[(5, 30), (6, 40)]), 2, 50), (2, 30));
    }

    #[test]
    fn conflicting_entries_give_way_to_the_new_one() {
        assert_eq!(shown(&cache(&[(0, 0), (2, 10), (2, 12)])), [(0, 0), (2, 10)]);
        assert_eq!(shown(&cache(&[(0, 0), (2, 10), (3, 10)])), [(0, 0), (3, 10)]);
        assert_eq!(shown(&cache(&[(0, 0), (2, 10), (1, 20)])), [(0, 0), (1, 20)]);
        assert_eq!(shown(&cache(&[(0, 0), (2, 10), (2, 5)])), [(0, 0), (2, 5)]);
        assert_eq!(shown(&cache(&[(4, 9), (5, 0)])), [(5, 0)]);
        let mut unchanged = cache(&[(4, 9)]);
        assert!(!unchanged.assign(LeaderEpoch(-1), Offset(20)));
        assert_eq!(shown(&unchanged), [(4, 9)]);
    }

    #[test]
    fn truncation_keeps_what_the_log_keeps() {
        let full = cache(&[(2, 6), (3, 8), (4, 11)]);
        let from_end = |end| {
            let mut cache = full.clone();
            (cache.truncate_from_end(Offset(end)), shown(&cache))
        };
        assert_eq!(from_end(12), (false, vec![(2, 6), (3, 8), (4, 11)]));
        assert_eq!(from_end(11), (true, vec![(2, 6), (3, 8)]));
        assert_eq!(from_end(7), (true, vec![(2, 6)]));
        assert_eq!(from_end(0), (true, vec![]));
        let from_start = |start| {
            let mut cache = full.clone();
            (cache.truncate_from_start(Offset(start)), shown(&cache))
        };
        assert_eq!(from_start(5), (false, vec![(2, 6), (3, 8), (4, 11)]));
        assert_eq!(from_start(6), (false, vec![(2, 6), (3, 8), (4, 11)]));
        assert_eq!(from_start(7), (true, vec![(2, 7), (3, 8), (4, 11)]));
        assert_eq!(from_start(8), (true, vec![(3, 8), (4, 11)]));
        assert_eq!(from_start(100), (true, vec![(4, 100)]));
    }

    /// Every record's epoch, kept one by one: what the cache stands for.
    #[derive(Default)]
    struct Naive {
        start: i64,
        epochs: Vec<i32>,
    }

    impl Naive {
        fn end(&self) -> i64 {
            self.start + self.epochs.len() as i64
        }

        /// Of the greatest epoch not above the asked one that has records, the offset after its last.
        fn end_of(&self, epoch: i32) -> Option<(i32, i64)> {
            let at = self.epochs.iter().rposition(|&known| known <= epoch)?;
            let is_above_all = epoch > *self.epochs.last()?;
            (!is_above_all).then_some((self.epochs[at], self.start + at as i64 + 1))
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append { new_epoch: bool, count: usize },
        TruncateEnd(prop::sample::Index),
        TruncateStart(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (any::<bool>(), 1..5usize).prop_map(|(new_epoch, count)| Step::Append { new_epoch, count }),
            1 => any::<prop::sample::Index>().prop_map(Step::TruncateEnd),
            1 => any::<prop::sample::Index>().prop_map(Step::TruncateStart),
        ]
    }

    proptest! {
        #[test]
        fn answers_equal_those_of_a_list_of_records(steps in proptest::collection::vec(step(), 1..40)) {
            let (mut cache, mut naive, mut epoch) = (LeaderEpochCache::default(), Naive::default(), 0);
            for step in steps {
                match step {
                    Step::Append { new_epoch, count } => {
                        epoch += i32::from(new_epoch) * 2;
                        cache.assign(LeaderEpoch(epoch), Offset(naive.end()));
                        naive.epochs.extend(std::iter::repeat_n(epoch, count));
                    }
                    Step::TruncateEnd(to) => {
                        let kept = to.index(naive.epochs.len() + 1);
                        naive.epochs.truncate(kept);
                        cache.truncate_from_end(Offset(naive.end()));
                    }
                    Step::TruncateStart(to) => {
                        // A log keeps its last epoch even when all its records go; the list cannot.
                        if naive.epochs.is_empty() { continue; }
                        let removed = to.index(naive.epochs.len());
                        naive.start += removed as i64;
                        naive.epochs.drain(..removed);
                        cache.truncate_from_start(Offset(naive.start));
                    }
                }
                for (at, &known) in naive.epochs.iter().enumerate() {
                    let offset = Offset(naive.start + at as i64);
                    prop_assert_eq!(cache.epoch_for_offset(offset), Some(LeaderEpoch(known)));
                }
                for asked in 0..=epoch + 1 {
                    if let Some(expected) = naive.end_of(asked) {
                        prop_assert_eq!(end_of(&cache, asked, naive.end()), expected, "epoch {}", asked);
                    }
                }
            }
        }
    }
}
