//! How much of the network replicas may take that are not in sync, while an administrator moves partitions. Pure.
//!
//! The bytes of all throttled replicas count against the rate, but only those that are not in sync are held back: an
//! ISR must not shrink for a throttle.

use std::collections::{BTreeSet, VecDeque};

use parking_lot::Mutex;

use crate::model::{BrokerId, PartitionIndex, Timestamp};

/// Which partitions of a topic are throttled on one broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ThrottledReplicas {
    #[default]
    None,
    All,
    Some(BTreeSet<i32>),
}

impl ThrottledReplicas {
    /// From `*`, or entries as `partition:broker`. Entries that are neither are left out: they were checked when they
    /// were stored, or stored by somebody who did not.
    pub fn of(broker: BrokerId, entries: &[String]) -> ThrottledReplicas {
        if entries.iter().any(|entry| entry.trim() == "*") {
            return ThrottledReplicas::All;
        }
        let partition_of = |entry: &String| {
            let (partition, on) = entry.split_once(':')?;
            let is_ours = on.trim().parse() == Ok(broker.0);
            partition.trim().parse().ok().filter(|_| is_ours)
        };
        let partitions: BTreeSet<i32> = entries.iter().filter_map(partition_of).collect();
        if partitions.is_empty() { ThrottledReplicas::None } else { ThrottledReplicas::Some(partitions) }
    }

    pub fn contains(&self, partition: PartitionIndex) -> bool {
        match self {
            ThrottledReplicas::None => false,
            ThrottledReplicas::All => true,
            ThrottledReplicas::Some(partitions) => partitions.contains(&partition.0),
        }
    }
}

/// The two directions of a broker's replication.
#[derive(Debug)]
pub struct Throttles {
    /// What followers fetch from this broker.
    pub leader: Throttle,
    /// What this broker fetches from leaders.
    pub follower: Throttle,
}

/// The windows over which a rate is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleWindows {
    /// `replication.quota.window.num`.
    pub count: usize,
    /// `replication.quota.window.size.seconds`, in milliseconds.
    pub length_ms: i64,
}

impl Throttles {
    pub fn new(windows: ThrottleWindows) -> Throttles {
        Throttles { leader: Throttle::new(windows), follower: Throttle::new(windows) }
    }
}

/// A rate, and what was taken of it. Nothing is delayed here: whoever is told that it is exceeded sends nothing.
#[derive(Debug)]
pub struct Throttle {
    windows: ThrottleWindows,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Bytes a second; [`i64::MAX`] = no limit.
    rate_max: i64,
    /// Start and bytes of each window, the oldest first.
    taken: VecDeque<(Timestamp, u64)>,
}

impl Throttle {
    fn new(windows: ThrottleWindows) -> Throttle {
        Throttle { windows, state: Mutex::new(State { rate_max: i64::MAX, taken: VecDeque::new() }) }
    }

    /// `bytes_per_second` [`i64::MAX`] = no limit.
    pub fn change_rate(&self, bytes_per_second: i64) {
        self.state.lock().rate_max = bytes_per_second;
    }

    pub fn record(&self, size_bytes: usize, now: Timestamp) {
        let mut state = self.state.lock();
        self.forget_old(&mut state, now);
        let size_bytes = u64::try_from(size_bytes).unwrap_or(u64::MAX);
        match state.taken.back_mut().filter(|(start, _)| now.since_ms(*start) < self.windows.length_ms) {
            Some((_, bytes)) => *bytes = bytes.saturating_add(size_bytes),
            None => state.taken.push_back((now, size_bytes)),
        }
    }

    pub fn is_exceeded(&self, now: Timestamp) -> bool {
        let mut state = self.state.lock();
        if state.rate_max == i64::MAX {
            return false;
        }
        self.rate_of(&mut state, now) > state.rate_max as f64
    }

    /// Bytes a second over the windows.
    pub fn rate(&self, now: Timestamp) -> f64 {
        self.rate_of(&mut self.state.lock(), now)
    }

    /// As Kafka reckons: from the start of the oldest window until now, but over one whole window at the least.
    fn rate_of(&self, state: &mut State, now: Timestamp) -> f64 {
        self.forget_old(state, now);
        let Some((oldest, _)) = state.taken.front() else { return 0.0 };
        let elapsed_ms = now.since_ms(*oldest).max(self.windows.length_ms).max(1);
        let bytes: u64 = state.taken.iter().map(|(_, bytes)| bytes).sum();
        bytes as f64 * 1_000.0 / elapsed_ms as f64
    }

    fn forget_old(&self, state: &mut State, now: Timestamp) {
        let span_ms =
            i64::try_from(self.windows.count).unwrap_or(i64::MAX).saturating_mul(self.windows.length_ms);
        // A clock that was set back makes windows of the future, which would never grow old.
        let is_current = |start: Timestamp| (0..span_ms).contains(&now.since_ms(start));
        state.taken.retain(|(start, _)| is_current(*start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle() -> Throttle {
        let throttle = Throttle::new(ThrottleWindows { count: 11, length_ms: 1_000 });
        throttle.change_rate(1_000);
        throttle
    }

    #[track_caller]
    fn check(entries: &[&str], partition: i32, is_throttled: bool) {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        let replicas = ThrottledReplicas::of(BrokerId(2), &entries);
        assert_eq!(replicas.contains(PartitionIndex(partition)), is_throttled, "{entries:?} {partition}");
    }

    #[test]
    fn replicas_are_named_by_partition_and_broker() {
        check(&[], 0, false);
        check(&["*"], 7, true);
        check(&["0:1", "1:2"], 0, false);
        check(&["0:1", "1:2"], 1, true);
        check(&["none"], 0, false);
    }

    #[test]
    fn a_rate_is_exceeded_until_time_has_made_up_for_it() {
        let throttle = throttle();
        assert!(!throttle.is_exceeded(Timestamp(50_000)));
        throttle.record(5_000, Timestamp(50_000));
        assert!(throttle.is_exceeded(Timestamp(50_000)));
        assert!(throttle.is_exceeded(Timestamp(54_999)));
        assert!(!throttle.is_exceeded(Timestamp(55_000)));
    }

    #[test]
    fn old_windows_do_not_count() {
        let throttle = throttle();
        throttle.record(1_000_000, Timestamp(50_000));
        assert!(throttle.is_exceeded(Timestamp(60_999)));
        assert!(!throttle.is_exceeded(Timestamp(61_000)));
    }

    #[test]
    fn without_a_rate_nothing_is_exceeded() {
        let throttle = throttle();
        throttle.record(1_000_000, Timestamp(50_000));
        throttle.change_rate(i64::MAX);
        assert!(!throttle.is_exceeded(Timestamp(50_000)));
    }

    #[test]
    fn a_clock_that_was_set_back_holds_nobody_back_for_ever() {
        let throttle = throttle();
        throttle.record(1_000_000, Timestamp(50_000));
        assert!(!throttle.is_exceeded(Timestamp(40_000)));
    }
}
