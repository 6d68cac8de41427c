//! Appending and reading by offset and by time.

use super::super::testing::*;
use super::super::{FoundOffset, LogConfig, LogError, LogRead};
use crate::model::{LeaderEpoch, Offset, Timestamp};
use crate::runtime::fs::Operation;

/// Ten batches of ten records each, in segments of about three batches.
fn filled(machine: &Machine) -> std::sync::Arc<super::super::Log> {
    let (_, log) = machine.start_log();
    for number in 0..10 {
        let values: Vec<String> = (0..10).map(|at| format!("v{}", number * 10 + at)).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let info = log.append_values(&values).unwrap();
        assert_eq!((info.first_offset, info.last_offset), (Offset(number * 10), Offset(number * 10 + 9)));
    }
    log
}

fn offsets(read: &LogRead) -> Vec<i64> {
    read_batches(read).iter().map(|batch| batch.header.base_offset.0).collect()
}

#[track_caller]
fn check(log: &super::super::Log, from: i64, max_bytes: usize, bound: i64, base_offsets: &[i64]) {
    let read = log.read(Offset(from), max_bytes, Offset(bound), true).unwrap();
    assert_eq!(offsets(&read), base_offsets);
    let again = log.read_if_cached(Offset(from), max_bytes, Offset(bound), true).unwrap();
    assert_eq!(offsets(&again), base_offsets);
    let below_upper = |batch: &crate::records::Batch| batch.header.last_offset() < read.upper_offset;
    assert!(read_batches(&read).iter().all(below_upper));
}

#[test]
fn a_read_begins_with_the_batch_that_holds_the_offset_and_ends_with_a_whole_one() {
    let machine = Machine::small_segments(600);
    for is_restarted in [false, true] {
        let log = match is_restarted {
            false => filled(&machine),
            true => {
                machine.fs.kill();
                machine.start_log().1
            }
        };
        assert_eq!(log.count_segments(), 4);
        let size = log.read(Offset(10), 1, Offset(100), true).unwrap().size_bytes;
        check(&log, 0, 10_000, 100, &[0, 10, 20]);
        check(&log, 5, 10_000, 100, &[0, 10, 20]);
        check(&log, 9, 1, 100, &[0]);
        check(&log, 10, 1, 100, &[10]);
        check(&log, 10, 2 * size, 100, &[10, 20]);
        check(&log, 10, 2 * size - 1, 100, &[10]);
        check(&log, 30, 10_000, 100, &[30, 40, 50]);
        check(&log, 99, 10_000, 100, &[90]);
        check(&log, 100, 10_000, 100, &[]);
    }
}

#[test]
fn batches_that_reach_the_bound_are_left_out() {
    let log = filled(&Machine::small_segments(10_000));
    check(&log, 0, 10_000, 30, &[0, 10, 20]);
    check(&log, 0, 10_000, 29, &[0, 10]);
    check(&log, 25, 10_000, 30, &[20]);
    check(&log, 25, 10_000, 29, &[]);
    check(&log, 30, 10_000, 30, &[]);
    check(&log, 50, 10_000, 30, &[]);
}

#[test]
fn a_batch_too_large_is_read_only_where_that_is_asked_for() {
    let log = filled(&Machine::small_segments(10_000));
    let read = log.read(Offset(0), 1, Offset(100), false).unwrap();
    assert_eq!((read.size_bytes, read.slices.len()), (0, 0));
    check(&log, 0, 0, 100, &[0]);
}

#[test]
fn offsets_outside_of_the_log_are_refused() {
    let log = filled(&Machine::small_segments(600));
    log.delete_records_before(Offset(15)).unwrap();
    for offset in [-1, 14, 101] {
        let read = log.read(Offset(offset), 10, Offset(100), true);
        assert!(matches!(read, Err(LogError::OffsetOutOfRange { .. })), "{offset}");
    }
    check(&log, 15, 1, 100, &[10]);
}

#[test]
fn a_consumer_at_the_tail_needs_no_index_and_no_header() {
    let machine = Machine::small_segments(1 << 20);
    let log = filled(&machine);
    fail_all(&machine.fs, Operation::Read);
    for from in (0..100).step_by(10) {
        assert!(log.read(Offset(from), 10_000, Offset(100), true).unwrap().size_bytes > 0);
        assert!(log.read(Offset(from), 200, Offset(100), false).unwrap().size_bytes > 0);
    }
    machine.fs.heal();
}

#[test]
fn timestamps_find_the_first_record_that_is_not_earlier() {
    let machine = Machine::small_segments(300);
    let (_, log) = machine.start_log();
    for number in 0..20 {
        let at = number * 100;
        log.append_batch(batch(&[(at, "a"), (at + 50, "b"), (at + 20, "c")])).unwrap();
    }
    let found = |timestamp| log.fetch_offset_by_timestamp(Timestamp(timestamp)).unwrap();
    let at = |offset, timestamp| {
        Some(FoundOffset {
            offset: Offset(offset),
            timestamp: Timestamp(timestamp),
            leader_epoch: LeaderEpoch(0),
        })
    };
    assert_eq!(found(0), at(0, 0));
    assert_eq!(found(1), at(1, 50));
    assert_eq!(found(50), at(1, 50));
    assert_eq!(found(51), at(3, 100));
    assert_eq!(found(1_925), at(58, 1_950));
    assert_eq!(found(1_951), None);
    assert_eq!(log.fetch_offset_of_max_timestamp().unwrap(), at(58, 1_950));
    log.delete_records_before(Offset(5)).unwrap();
    assert_eq!(found(0), at(5, 120));
}

#[test]
fn a_log_rolls_by_size_age_and_index() {
    let config = LogConfig { segment_bytes: 1_000, ..LogConfig::default() };
    let rolls = |config: LogConfig, timestamps: &[i64]| {
        let (_, log) = Machine::new(config).start_log();
        for &timestamp in timestamps {
            log.append_batch(batch(&[(timestamp, &"x".repeat(300))])).unwrap();
        }
        log.count_segments()
    };
    assert_eq!(rolls(config.clone(), &[0, 0]), 1);
    assert_eq!(rolls(config.clone(), &[0, 0, 0]), 2);
    let aged = LogConfig { segment_ms: 100, ..LogConfig::default() };
    assert_eq!(rolls(aged.clone(), &[0, 100, 50]), 1);
    assert_eq!(rolls(aged, &[0, 101, 150, 202]), 3);
    let indexed = LogConfig { index_interval_bytes: 0, segment_index_bytes: 36, ..LogConfig::default() };
    assert_eq!(rolls(indexed, &[1, 2, 3, 4]), 2);
}

#[test]
fn records_larger_than_a_segment_are_refused() {
    let (_, log) = Machine::small_segments(200).start_log();
    let refused = log.append_values(&[&"x".repeat(200)]);
    assert!(matches!(refused, Err(LogError::RecordListTooLarge { size_max: 200, .. })));
    assert_eq!(log.log_end_offset(), Offset(0));
}
