//! Sequences of producers that wrap from 2^31-1 to 0, between batches and within one.

use std::sync::Arc;

use bytes::Bytes;

use super::super::testing::*;
use super::super::{Log, LogManager};
use super::compaction::{Compacted, keyed};
use crate::model::{Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::records::{BatchBuilder, sequence_plus};
use crate::runtime::fs::FileSystem;

type Batches = [(i32, &'static [&'static str])];

const BETWEEN: &Batches = &[(i32::MAX - 1, &["a", "b"]), (0, &["c"]), (1, &["d"])];
const WITHIN: &Batches = &[(i32::MAX - 2, &["a", "b"]), (i32::MAX, &["c", "d", "e"]), (2, &["f"])];

/// The batch that was appended last is known when it comes again, and only the one after it is next.
#[track_caller]
fn check_goes_on(log: &Log, (sequence, values): (i32, &[&str])) {
    let again = log.append_batch(sequenced(7, sequence, values)).unwrap();
    let end = log.log_end_offset();
    assert!(again.is_duplicate && again.last_offset == end.plus(-1), "{again:?}");
    let next = sequence_plus(sequence, values.len() as i32);
    for gap in [sequence_plus(next, 1), sequence_plus(next, 5)] {
        assert!(log.append_batch(sequenced(7, gap, &["gap"])).is_err(), "{gap} after {sequence}");
    }
    assert_eq!(log.log_end_offset(), end);
}

#[track_caller]
fn check_restarts(batches: &Batches, end: fn(&Machine, &LogManager)) {
    let machine = Machine::small_segments(300);
    let (mut manager, mut log) = machine.start_log();
    for &(sequence, values) in batches {
        log.append_batch(sequenced(7, sequence, values)).unwrap();
        check_goes_on(&log, (sequence, values));
        end(&machine, &manager);
        drop((manager, log));
        machine.fs.kill();
        (manager, log) = machine.start_log();
        check_goes_on(&log, (sequence, values));
    }
    machine.check_files(&log);
}

fn roll(machine: &Machine, log: &Arc<Log>) {
    while machine.files(".log").len() < 2 {
        log.append_values(&["something else"]).unwrap();
    }
}

#[test]
fn sequences_wrap_over_clean_restarts() {
    for batches in [BETWEEN, WITHIN] {
        check_restarts(batches, |machine, manager| manager.shut_down(machine.now()));
    }
}

#[test]
fn sequences_wrap_over_kills() {
    for batches in [BETWEEN, WITHIN] {
        check_restarts(batches, |_, _| {});
    }
}

#[test]
fn sequences_wrap_over_a_snapshot_of_a_segment_and_without_one() {
    for batches in [BETWEEN, WITHIN] {
        let machine = Machine::small_segments(300);
        let (_, log) = machine.start_log();
        let (last, before) = batches.split_last().unwrap();
        for &(sequence, values) in before {
            log.append_batch(sequenced(7, sequence, values)).unwrap();
        }
        roll(&machine, &log);
        machine.fs.kill();
        assert!(!machine.files(".snapshot").is_empty());
        let (_, log) = machine.start_log();
        assert_eq!(
            log.append_batch(sequenced(7, last.0, last.1)).unwrap().last_offset,
            log.log_end_offset().plus(-1)
        );
        machine.fs.kill();
        for name in machine.files(".snapshot") {
            machine.fs.remove_file(&machine.file(&name)).unwrap();
        }
        check_goes_on(&machine.start_log().1, *last);
    }
}

#[test]
fn a_follower_that_takes_over_knows_where_sequences_wrapped() {
    for batches in [BETWEEN, WITHIN] {
        let (leader, follower) = (Machine::small_segments(300), Machine::small_segments(300));
        let (_, from) = leader.start_log();
        let (_, to) = follower.start_log();
        for &(sequence, values) in batches {
            from.append_batch(sequenced(7, sequence, values)).unwrap();
            let read = from.read(to.log_end_offset(), 10_000, from.log_end_offset(), true).unwrap();
            let bytes: Vec<u8> = read_batches(&read).iter().flat_map(|batch| batch.bytes.to_vec()).collect();
            to.append_as_follower(Bytes::from(bytes), Timestamp(1_000_000)).unwrap();
            check_goes_on(&to, (sequence, values));
        }
    }
}

#[test]
fn compaction_keeps_where_a_sequence_wrapped() {
    let compacted = Compacted::new();
    let producer = |sequence| BatchBuilder::new().producer(ProducerId(7), ProducerEpoch(0), sequence);
    let keys = [("a", Some("1")), ("b", Some("1")), ("c", Some("1"))];
    compacted.log.append_batch(keyed(producer(i32::MAX - 1), &keys)).unwrap();
    for _ in 0..10 {
        compacted.append(&keys);
    }
    compacted.clean();
    for name in compacted.machine.files(".snapshot") {
        compacted.machine.fs.remove_file(&compacted.machine.file(&name)).unwrap();
    }
    let compacted = compacted.restart();
    assert!(compacted.log.values_from(Offset(0)).unwrap().iter().all(|(offset, _)| *offset > 2));
    assert!(compacted.log.append_batch(keyed(producer(2), &keys)).is_err());
    let again = compacted.log.append_batch(keyed(producer(i32::MAX - 1), &keys)).unwrap();
    assert!(again.is_duplicate && again.first_offset == Offset(0), "{again:?}");
    assert!(!compacted.log.append_batch(keyed(producer(1), &keys)).unwrap().is_duplicate);
}
