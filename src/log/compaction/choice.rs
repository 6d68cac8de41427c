//! What of a log is to be cleaned, and how much it needs it.

use crate::model::{Offset, Timestamp};

/// What is known of a log that may be cleaned.
#[derive(Clone, PartialEq, Debug)]
pub struct DirtyLog {
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
    /// Not above the high watermark.
    pub last_stable_offset: Offset,
    /// Everything below was cleaned; `None` = never.
    pub checkpoint: Option<Offset>,
    /// Ascending; the last one is active. Never empty.
    pub segments: Vec<SegmentDirt>,
    pub rules: CleaningRules,
}

/// What is known of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentDirt {
    pub base_offset: Offset,
    pub size_bytes: u64,
    pub max_timestamp: Timestamp,
    /// Of the first batch; needed only where there is a maximum lag. `-1` = none, or not looked up.
    pub first_timestamp: Timestamp,
}

/// The topic's settings of these names.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CleaningRules {
    pub min_compaction_lag_ms: i64,
    /// `i64::MAX` = no maximum.
    pub max_compaction_lag_ms: i64,
    pub min_cleanable_dirty_ratio: f64,
}

/// The part of a log that may be cleaned now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cleanable {
    /// Everything below was cleaned.
    pub first_dirty: Offset,
    /// The base of the first segment that must be left alone.
    pub first_uncleanable: Offset,
    pub clean_bytes: u64,
    pub dirty_bytes: u64,
    /// How long records have waited beyond the longest time that they should.
    pub delay_ms: i64,
    /// The checkpoint was outside of the log, so it has to be written anew.
    pub is_checkpoint_reset: bool,
}

impl DirtyLog {
    /// Looks at the log. Left alone are the active segment, those with undecided or not fully replicated
    /// records, and from the first one on that has records younger than the least lag.
    pub fn cleanable(&self, now: Timestamp) -> Cleanable {
        let (first_dirty, is_checkpoint_reset) = self.first_dirty();
        let first_uncleanable = self.first_uncleanable(first_dirty, now);
        let size = |from: Offset, to: Offset| -> u64 {
            self.between(from, to).iter().map(|segment| segment.size_bytes).sum()
        };
        Cleanable {
            first_dirty,
            first_uncleanable,
            clean_bytes: size(Offset(-1), first_dirty),
            dirty_bytes: size(first_dirty.min(first_uncleanable), first_uncleanable),
            delay_ms: self.delay_ms(first_dirty, now),
            is_checkpoint_reset,
        }
    }

    fn first_dirty(&self) -> (Offset, bool) {
        let checkpoint = self.checkpoint.unwrap_or(self.log_start_offset);
        match (self.log_start_offset..=self.log_end_offset).contains(&checkpoint) {
            true => (checkpoint, false),
            false => (self.log_start_offset, true),
        }
    }

    fn first_uncleanable(&self, first_dirty: Offset, now: Timestamp) -> Offset {
        let active = self.active_base();
        let min_lag_ms = self.rules.min_compaction_lag_ms;
        let is_young = |segment: &&SegmentDirt| segment.max_timestamp.0 > now.0.saturating_sub(min_lag_ms);
        let young = match min_lag_ms > 0 {
            true => self.inactive_from(first_dirty).iter().find(is_young).map(|segment| segment.base_offset),
            false => None,
        };
        let bound = self.last_stable_offset.min(active).min(young.unwrap_or(active)).max(first_dirty);
        // The whole segment that holds the bound is left alone.
        self.inactive_from(bound).first().map_or(active, |segment| segment.base_offset)
    }

    /// The longest-waiting dirty record counts by the first batch of its segment.
    fn delay_ms(&self, first_dirty: Offset, now: Timestamp) -> i64 {
        let dirty = self.inactive_from(first_dirty).iter().map(|segment| segment.first_timestamp);
        let earliest = dirty.filter(|timestamp| timestamp.0 > 0).min();
        let latest_allowed = now.0.saturating_sub(self.rules.max_compaction_lag_ms);
        earliest.map_or(0, |earliest| latest_allowed.saturating_sub(earliest.0).max(0))
    }

    fn active_base(&self) -> Offset {
        self.segments.last().map_or(Offset::ZERO, |segment| segment.base_offset)
    }

    /// The inactive segments from the one that holds `offset` on.
    fn inactive_from(&self, offset: Offset) -> &[SegmentDirt] {
        self.between(offset, self.active_base())
    }

    /// The segments from the one that holds `from` on that begin before `to`.
    fn between(&self, from: Offset, to: Offset) -> &[SegmentDirt] {
        let first = self.segments.partition_point(|segment| segment.base_offset <= from).saturating_sub(1);
        let end = self.segments.partition_point(|segment| segment.base_offset < to);
        if from >= to { &[] } else { self.segments.get(first..end).unwrap_or_default() }
    }
}

impl Cleanable {
    /// The dirty part of what would be read.
    pub fn dirty_ratio(&self) -> f64 {
        match self.clean_bytes + self.dirty_bytes {
            0 => 0.0,
            total => self.dirty_bytes as f64 / total as f64,
        }
    }

    /// Whether there is enough to do.
    pub fn is_due(&self, rules: &CleaningRules) -> bool {
        self.dirty_bytes > 0 && (self.delay_ms > 0 || self.dirty_ratio() > rules.min_cleanable_dirty_ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    /// Segments of 100 bytes at 0, 10, 20 and 30, the last one active; that at 10 was written 20 s ago.
    fn log() -> DirtyLog {
        let segment = |base: i64| SegmentDirt {
            base_offset: Offset(base),
            size_bytes: 100,
            max_timestamp: Timestamp(NOW.0 - 30_000 + base * 1_000),
            first_timestamp: Timestamp(NOW.0 - 31_000 + base * 1_000),
        };
        DirtyLog {
            log_start_offset: Offset(0),
            log_end_offset: Offset(35),
            last_stable_offset: Offset(35),
            checkpoint: None,
            segments: [0, 10, 20, 30].map(segment).to_vec(),
            rules: CleaningRules {
                min_compaction_lag_ms: 0,
                max_compaction_lag_ms: i64::MAX,
                min_cleanable_dirty_ratio: 0.5,
            },
        }
    }

    /// (first dirty, first uncleanable, clean bytes, dirty bytes)
    #[track_caller]
    fn check(log: &DirtyLog, expected: (i64, i64, u64, u64)) {
        let found = log.cleanable(NOW);
        let found = (found.first_dirty.0, found.first_uncleanable.0, found.clean_bytes, found.dirty_bytes);
        assert_eq!(found, expected, "{log:?}");
    }

    #[test]
    fn a_new_log_is_dirty_up_to_its_active_segment() {
        check(&log(), (0, 30, 0, 300));
        check(&DirtyLog { checkpoint: Some(Offset(20)), ..log() }, (20, 30, 200, 100));
        check(&DirtyLog { checkpoint: Some(Offset(30)), ..log() }, (30, 30, 300, 0));
    }

    #[test]
    fn a_part_of_a_segment_makes_all_of_it_dirty() {
        check(&DirtyLog { checkpoint: Some(Offset(15)), ..log() }, (15, 30, 200, 200));
    }

    #[test]
    fn a_checkpoint_outside_of_the_log_begins_anew() {
        for (checkpoint, log_start) in [(36, 0), (4, 5)] {
            let log = DirtyLog {
                checkpoint: Some(Offset(checkpoint)),
                log_start_offset: Offset(log_start),
                ..log()
            };
            check(&log, (log_start, 30, if log_start > 0 { 100 } else { 0 }, 300));
            assert!(log.cleanable(NOW).is_checkpoint_reset);
        }
    }

    #[test]
    fn undecided_records_keep_their_whole_segment_from_being_cleaned() {
        check(&DirtyLog { last_stable_offset: Offset(25), ..log() }, (0, 20, 0, 200));
        check(&DirtyLog { last_stable_offset: Offset(20), ..log() }, (0, 20, 0, 200));
        check(&DirtyLog { last_stable_offset: Offset(3), ..log() }, (0, 0, 0, 0));
        check(
            &DirtyLog { last_stable_offset: Offset(3), checkpoint: Some(Offset(15)), ..log() },
            (15, 10, 200, 0),
        );
    }

    #[test]
    fn a_log_that_starts_past_its_active_segment_has_nothing_to_clean() {
        // KAFKA-9826
        let log = DirtyLog { log_start_offset: Offset(33), checkpoint: Some(Offset(5)), ..log() };
        check(&log, (33, 30, 400, 0));
        assert!(!log.cleanable(NOW).is_due(&log.rules));
    }

    #[test]
    fn young_records_are_left_alone() {
        let with_lag = |min_compaction_lag_ms| DirtyLog {
            rules: CleaningRules { min_compaction_lag_ms, ..log().rules },
            ..log()
        };
        check(&with_lag(10_000), (0, 30, 0, 300));
        check(&with_lag(10_001), (0, 20, 0, 200));
        check(&with_lag(30_001), (0, 0, 0, 0));
        check(&with_lag(i64::MAX), (0, 0, 0, 0));
    }

    #[test]
    fn a_log_is_due_by_its_ratio_or_by_the_age_of_its_dirt() {
        let half = DirtyLog { checkpoint: Some(Offset(20)), ..log() };
        assert!(log().cleanable(NOW).is_due(&log().rules));
        assert!(!half.cleanable(NOW).is_due(&half.rules));
        for (max_compaction_lag_ms, is_due) in [(11_000, false), (10_999, true), (0, true)] {
            let half =
                DirtyLog { rules: CleaningRules { max_compaction_lag_ms, ..half.rules }, ..half.clone() };
            assert_eq!(half.cleanable(NOW).is_due(&half.rules), is_due, "{max_compaction_lag_ms}");
        }
        let ratio = CleaningRules { min_cleanable_dirty_ratio: 0.33, ..half.rules };
        assert!(half.cleanable(NOW).is_due(&ratio));
    }
}
