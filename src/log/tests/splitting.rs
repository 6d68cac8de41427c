//! Segments with more offsets than their indexes can express: KAFKA-6264.

use std::path::Path;

use bytes::Bytes;

use super::super::testing::*;
use super::super::{LogError, LogManager};
use crate::model::{Offset, Timestamp};
use crate::runtime::Random;
use crate::runtime::fs::{FileSystem, OpenMode};

const FIRST: &str = "00000000000000000000.log";
/// The last offset that a segment from 0 on can hold.
const REACH: i64 = i32::MAX as i64;

/// Where the records are.
const OFFSETS: [i64; 8] = [0, 1, REACH - 1, REACH, REACH + 1, REACH + 2, 2 * REACH + 7, 2 * REACH + 8];

/// A folder whose only segment holds all of them; with another one behind it where that is asked for.
fn machine(is_followed: bool, is_clean: bool) -> Machine {
    let machine = Machine::small_segments(10_000);
    let (manager, log) = machine.start_log();
    drop(log);
    manager.shut_down(machine.now());
    drop(manager);
    machine.fs.kill();
    let records: Vec<u8> =
        OFFSETS.iter().flat_map(|offset| batch_at(*offset, &format!("v{offset}"))).collect();
    machine.overwrite(FIRST, &records);
    if is_followed {
        let next = 2 * REACH + 9;
        machine.overwrite(&format!("{next:020}.log"), &batch_at(next, "last"));
    }
    if !is_clean {
        machine.fs.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
    }
    machine.fs.sync_volume(Path::new("/data")).unwrap();
    machine
}

#[track_caller]
fn check(machine: &Machine, manager: &LogManager, is_followed: bool, context: &str) {
    let log = machine.open(manager).unwrap();
    let offsets: Vec<i64> = log.values().into_iter().map(|(offset, _)| offset).collect();
    let mut expected = OFFSETS.to_vec();
    expected.extend(is_followed.then_some(2 * REACH + 9));
    assert_eq!(offsets, expected, "{context}");
    let bases: Vec<i64> = machine.files(".log").iter().map(|name| name[..20].parse().unwrap()).collect();
    assert_eq!(bases[..3], [0, REACH + 1, 2 * REACH + 7], "{context}");
    let left = [machine.files(".cleaned"), machine.files(".swap")];
    assert!(left.iter().all(Vec::is_empty), "{context}: {left:?}");
    machine.check_files(&log);
    assert_eq!(log.append_values(&["next"]).unwrap().first_offset, Offset(expected[expected.len() - 1] + 1));
}

#[test]
fn a_segment_beyond_its_reach_is_split() {
    for is_followed in [false, true] {
        for is_clean in [false, true] {
            let machine = machine(is_followed, is_clean);
            let context = format!("followed: {is_followed}, clean: {is_clean}");
            check(&machine, &machine.start().unwrap(), is_followed, &context);
            machine.fs.kill();
            assert_eq!(machine.start_log().1.values().len(), OFFSETS.len() + 1 + usize::from(is_followed));
        }
    }
}

#[test]
fn a_stop_at_any_step_of_a_split_loses_nothing() {
    for tear in [None, Some(1), Some(1_000)] {
        for step in 0.. {
            let machine = machine(true, false);
            machine.fs.stop_at(machine.fs.steps() + step);
            let is_done = machine.start().is_ok_and(|manager| manager.log(&partition()).is_some());
            match tear {
                None => machine.fs.crash(),
                Some(seed) => machine.fs.crash_torn(&Random::from_seed(seed + step)),
            }
            check(&machine, &machine.start().unwrap(), true, &format!("{tear:?} at step {step}"));
            if is_done {
                assert!(step > 20, "a split of {step} steps is none");
                break;
            }
        }
    }
}

#[test]
fn damage_in_a_segment_to_be_split_is_told() {
    let machine = machine(true, true);
    let mut bytes = machine.read(FIRST);
    let length = bytes.len();
    // The length of the last batch.
    bytes[length - batch_at(0, "v4294967302").len() + 8] = 0xff;
    machine.overwrite(FIRST, &bytes);
    let file = machine.fs.open(Path::new("/data/recovery-point-offset-checkpoint"), OpenMode::CreateEmpty);
    let point = format!("0\n1\nt 0 {}\n", 2 * REACH + 10);
    file.unwrap().write_at(&[std::io::IoSlice::new(point.as_bytes())], 0).unwrap();
    let manager = machine.start().unwrap();
    assert!(manager.has_failed(&partition()));
    assert_eq!(machine.read(FIRST), bytes);
}

#[test]
fn what_a_leader_cannot_have_sent_is_refused() {
    let machine = Machine::small_segments(10_000);
    let (_, log) = machine.start_log();
    let records = [batch_at(0, "a"), batch_at(REACH + 1, "b")].concat();
    let refused = log.append_as_follower(Bytes::from(records), Timestamp(1_000_000));
    assert!(matches!(refused, Err(LogError::OffsetsOutOfOrder { .. })), "{refused:?}");
    log.append_as_follower(Bytes::from(batch_at(0, "a")), Timestamp(1_000_000)).unwrap();
    log.append_as_follower(Bytes::from(batch_at(REACH + 1, "b")), Timestamp(1_000_000)).unwrap();
    assert_eq!(log.values().len(), 2);
    assert_eq!(log.count_segments(), 2);
}
