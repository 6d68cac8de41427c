//! Which of a log's oldest segments are to go. Pure.

use crate::model::{Offset, Timestamp};

use super::config::LogConfig;

/// What retention looks at in one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentFacts {
    pub(super) size_bytes: u64,
    /// The next segment's base, or the log end offset.
    pub(super) end_offset: Offset,
    /// The greatest timestamp of its records, or when its file was last written if they have none.
    pub(super) max_timestamp: Timestamp,
}

/// How many segments, from the oldest on, are to be deleted.
///
/// Only segments that end at or below the high watermark are: what is not yet everywhere is nobody's past.
/// The last segment goes only when it has records.
pub(super) fn count_deletable(
    segments: &[SegmentFacts],
    config: &LogConfig,
    log_start_offset: Offset,
    high_watermark: Offset,
    now: Timestamp,
) -> usize {
    // Compaction may empty older segments; an empty last one is where the next records go.
    let is_free = |(at, segment): (usize, &SegmentFacts)| {
        segment.end_offset <= high_watermark && (segment.size_bytes > 0 || at + 1 < segments.len())
    };
    let below_start = segments.split_last().map_or(0, |(_, older)| {
        older.iter().take_while(|segment| segment.end_offset <= log_start_offset).count()
    });
    if !config.cleanup.deletes {
        return below_start;
    }
    let expired = config.retention_ms.map_or(0, |retention_ms| {
        let is_expired = |&(at, segment): &(usize, &SegmentFacts)| {
            is_free((at, segment)) && now.since_ms(segment.max_timestamp) > retention_ms
        };
        segments.iter().enumerate().take_while(is_expired).count()
    });
    let beyond_size = config.retention_bytes.map_or(0, |retention_bytes| {
        let total: u64 = segments.iter().map(|segment| segment.size_bytes).sum();
        let mut excess = total.saturating_sub(retention_bytes);
        let fits_excess = |&(at, segment): &(usize, &SegmentFacts)| {
            let fits = is_free((at, segment)) && excess >= segment.size_bytes;
            excess = excess.saturating_sub(segment.size_bytes);
            fits
        };
        segments.iter().enumerate().take_while(fits_excess).count()
    });
    expired.max(beyond_size).max(below_start)
}

#[cfg(test)]
mod tests {
    use super::super::config::Cleanup;
    use super::*;

    const MB: u64 = 1_000_000;

    /// Ten segments of 1 MB and ten offsets each, written at 1,000, 2,000, …
    fn ten_segments() -> Vec<SegmentFacts> {
        (1..=10)
            .map(|number| SegmentFacts {
                size_bytes: MB,
                end_offset: Offset(number * 10),
                max_timestamp: Timestamp(number * 1_000),
            })
            .collect()
    }

    fn config(retention_ms: Option<i64>, retention_bytes: Option<u64>) -> LogConfig {
        LogConfig { retention_ms, retention_bytes, ..LogConfig::default() }
    }

    #[track_caller]
    fn check(config: LogConfig, log_start_offset: i64, high_watermark: i64, now: i64, deleted: usize) {
        let count = count_deletable(
            &ten_segments(),
            &config,
            Offset(log_start_offset),
            Offset(high_watermark),
            Timestamp(now),
        );
        assert_eq!(count, deleted);
    }

    #[test]
    fn age_counts_from_the_newest_record_of_a_segment() {
        check(config(Some(500), None), 0, 100, 3_500, 2);
        check(config(Some(500), None), 0, 100, 3_501, 3);
        check(config(Some(500), None), 0, 100, 1_000_000, 10);
        check(config(None, None), 0, 100, i64::MAX, 0);
    }

    #[test]
    fn size_retention_never_goes_below_the_limit() {
        check(config(None, Some(5_500_000)), 0, 100, 0, 4);
        check(config(None, Some(5 * MB)), 0, 100, 0, 5);
        check(config(None, Some(0)), 0, 100, 0, 10);
        check(config(None, Some(10 * MB)), 0, 100, 0, 0);
    }

    #[test]
    fn nothing_above_the_high_watermark_goes() {
        check(config(Some(0), None), 0, 39, 1_000_000, 3);
        check(config(None, Some(0)), 0, 40, 0, 4);
    }

    #[test]
    fn segments_below_the_log_start_go_whatever_the_policy_is() {
        check(LogConfig { cleanup: Cleanup::COMPACT, ..config(Some(0), None) }, 35, 100, 1_000_000, 3);
        check(config(None, None), 100, 100, 0, 9);
    }

    #[test]
    fn an_empty_segment_stays() {
        let empty = SegmentFacts { size_bytes: 0, end_offset: Offset(0), max_timestamp: Timestamp(0) };
        let count =
            count_deletable(&[empty], &config(Some(0), None), Offset(0), Offset(0), Timestamp(i64::MAX));
        assert_eq!(count, 0);
    }
}
