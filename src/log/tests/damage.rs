//! Files that a hard stop or a bad disk left damaged: C026, C027 and C028 of the cases.

use std::io::IoSlice;

use super::super::testing::*;
use super::super::{FlushWanted, Log};
use crate::model::{Offset, ProducerId};
use crate::records::TransactionMarker;
use crate::runtime::fs::{FileSystem, OpenMode};

const ACTIVE: &str = "00000000000000000000.log";

fn fill(log: &Log, count: usize) -> Vec<(i64, String)> {
    for number in 0..count {
        log.append_values(&[&format!("value {number}")]).unwrap();
    }
    log.values()
}

fn append_raw(machine: &Machine, name: &str, bytes: &[u8]) {
    let path = machine.file(name);
    let file = machine.fs.open(&path, OpenMode::Write).unwrap();
    file.write_at(&[IoSlice::new(bytes)], file.size_bytes().unwrap()).unwrap();
}

#[track_caller]
fn check_cut(tail: &[u8]) {
    let machine = Machine::small_segments(10_000);
    let (_, log) = machine.start_log();
    let values = fill(&log, 10);
    let sound = machine.read(ACTIVE);
    machine.fs.kill();
    append_raw(&machine, ACTIVE, tail);
    let (_, log) = machine.start_log();
    assert_eq!(log.values(), values);
    assert_eq!(machine.read(ACTIVE), sound);
    assert_eq!(log.append_values(&["next"]).unwrap().first_offset, Offset(10));
    machine.check_files(&log);
}

#[test]
fn a_torn_tail_is_cut_at_the_last_whole_batch() {
    check_cut(&[0xa5; 37]);
    check_cut(&[0; 10_000_000]);
    check_cut(&batch(&[(0, "torn")])[..40]);
}

#[test]
fn a_batch_whose_offset_goes_back_is_cut_off() {
    check_cut(&batch(&[(0, "offset 0 again")]));
}

#[test]
fn a_batch_with_a_wrong_crc_is_cut_off() {
    let mut next = batch(&[(0, "damaged")]).to_vec();
    next[7] = 10;
    let last = next.len() - 2;
    next[last] ^= 1;
    check_cut(&next);
}

#[test]
fn segments_after_a_damaged_one_are_removed() {
    let machine = Machine::small_segments(300);
    let (_, log) = machine.start_log();
    let values = fill(&log, 20);
    assert!(log.count_segments() > 3);
    machine.fs.kill();
    let second = machine.files(".log")[1].clone();
    let mut bytes = machine.read(&second);
    bytes[70] ^= 1;
    machine.overwrite(&second, &bytes);
    let (manager, log) = machine.start_log();
    let base: i64 = second[..20].parse().unwrap();
    assert_eq!(log.values(), values[..base as usize]);
    assert_eq!(log.append_values(&["next"]).unwrap().first_offset, Offset(base));
    machine.check_files(&log);
    machine.clock.advance_ms(60_001);
    manager.removal_tick(machine.now());
    assert!(machine.files(".deleted").is_empty());
}

#[test]
fn what_lies_below_the_recovery_point_is_neither_read_nor_cut() {
    let machine = Machine::small_segments(100_000);
    let (manager, log) = machine.start_log();
    let values = fill(&log, 20);
    log.flush(FlushWanted::Everything, machine.now()).unwrap();
    manager.recovery_point_tick();
    fill(&log, 5);
    machine.fs.kill();
    // Damage that recovery would find if it looked.
    let mut bytes = machine.read(ACTIVE);
    bytes[80] ^= 1;
    machine.overwrite(ACTIVE, &bytes);
    let (_, log) = machine.start_log();
    assert_eq!(log.log_end_offset(), Offset(25));
    bytes[80] ^= 1;
    machine.overwrite(ACTIVE, &bytes);
    assert_eq!(log.values()[..20], values);
    machine.check_files(&log);
}

/// Damages index files of a log that was closed, and expects them to be as they were after the next start.
#[track_caller]
fn check_rebuilt(value_count: usize, damage: impl Fn(&Machine)) {
    let machine = Machine::small_segments(100_000);
    let (manager, log) = machine.start_log();
    let values = fill(&log, value_count);
    manager.shut_down(machine.now());
    let names = ["00000000000000000000.index", "00000000000000000000.timeindex"];
    let before = names.map(|name| machine.read(name));
    drop((manager, log));
    machine.fs.kill();
    damage(&machine);
    let (_, log) = machine.start_log();
    assert_eq!(log.values(), values);
    assert_eq!(names.map(|name| machine.read(name)), before);
}

#[test]
fn damaged_indexes_are_rebuilt_as_they_were() {
    const INDEX: &str = "00000000000000000000.index";
    const TIME_INDEX: &str = "00000000000000000000.timeindex";
    check_rebuilt(0, |machine| machine.fs.remove_file(&machine.file(INDEX)).unwrap());
    for count in [1, 30] {
        check_rebuilt(count, |machine| machine.fs.remove_file(&machine.file(INDEX)).unwrap());
        check_rebuilt(count, |machine| machine.fs.remove_file(&machine.file(TIME_INDEX)).unwrap());
        check_rebuilt(count, |machine| machine.overwrite(INDEX, &[0; 5]));
        check_rebuilt(count, |machine| machine.overwrite(TIME_INDEX, &[0; 12]));
        check_rebuilt(count, |machine| machine.overwrite(TIME_INDEX, &[0; 120]));
        check_rebuilt(count, |machine| machine.overwrite(INDEX, &[0; 800]));
        check_rebuilt(count, |machine| machine.overwrite(INDEX, &[0xff; 16]));
    }
}

#[test]
fn indexes_that_kafka_sized_in_advance_are_recovered() {
    let machine = Machine::small_segments(100_000);
    let (_, log) = machine.start_log();
    let values = fill(&log, 30);
    log.write_out(FlushWanted::Everything).unwrap();
    machine.fs.kill();
    for name in ["00000000000000000000.index", "00000000000000000000.timeindex"] {
        append_raw(&machine, name, &[0; 1200]);
    }
    let (_, log) = machine.start_log();
    assert_eq!(log.values(), values);
    machine.check_files(&log);
}

#[test]
fn producers_are_known_again_whatever_becomes_of_their_snapshots() {
    for damage in [Some(&b""[..]), Some(&[0; 28]), Some(&[0xee; 56]), None] {
        for is_clean in [false, true] {
            let machine = Machine::small_segments(300);
            let (manager, log) = machine.start_log();
            for sequence in 0..10 {
                log.append_batch(sequenced(7, sequence, &["a"])).unwrap();
            }
            log.append_batch(transactional(8, 0, &["open"])).unwrap();
            if is_clean {
                manager.shut_down(machine.now());
            }
            drop((manager, log));
            machine.fs.kill();
            if let (Some(damage), Some(newest)) = (damage, machine.files(".snapshot").last()) {
                machine.overwrite(newest, damage);
            }
            let (_, log) = machine.start_log();
            log.advance_high_watermark(log.log_end_offset());
            let again = log.append_batch(sequenced(7, 9, &["a"])).unwrap();
            assert_eq!((again.is_duplicate, again.first_offset), (true, Offset(9)));
            assert!(log.append_batch(sequenced(7, 11, &["gap"])).is_err());
            assert_eq!(log.last_stable_offset(), Offset(10));
            log.append_batch(marker(8, TransactionMarker::Commit)).unwrap();
            assert_eq!((log.last_stable_offset(), log.high_watermark()), (Offset(12), Offset(12)));
        }
    }
}

#[test]
fn aborted_transactions_are_known_again_after_recovery() {
    let machine = Machine::small_segments(100_000);
    let (_, log) = machine.start_log();
    log.append_batch(transactional(7, 0, &["a", "b"])).unwrap();
    log.append_batch(transactional(8, 0, &["c"])).unwrap();
    log.append_batch(marker(7, TransactionMarker::Abort)).unwrap();
    assert_eq!(log.last_stable_offset(), Offset(2));
    let check = |log: &Log| {
        let aborted = log.aborted_transactions(Offset(0), Offset(4)).unwrap();
        let found: Vec<_> =
            aborted.iter().map(|aborted| (aborted.producer_id, aborted.first_offset)).collect();
        assert_eq!(found, [(ProducerId(7), Offset(0))]);
        assert!(log.aborted_transactions(Offset(4), Offset(5)).unwrap().is_empty());
    };
    check(&log);
    let index = machine.read("00000000000000000000.txnindex");
    machine.fs.kill();
    for damaged in [&b""[..], &[9; 50]] {
        machine.overwrite("00000000000000000000.txnindex", damaged);
        let (_, log) = machine.start_log();
        check(&log);
        assert_eq!(machine.read("00000000000000000000.txnindex"), index);
        machine.fs.kill();
    }
}

#[test]
fn unfinished_compactions_are_finished_or_dropped() {
    let machine = Machine::small_segments(300);
    let (manager, log) = machine.start_log();
    fill(&log, 8);
    manager.shut_down(machine.now());
    drop((manager, log));
    machine.fs.kill();
    let bases: Vec<String> = machine.files(".log");
    let cleaned = batch_at(0, "kept by compaction");
    machine.overwrite("00000000000000000000.log.swap", &cleaned);
    machine.overwrite("00000000000000000000.index.swap", &[]);
    machine.overwrite("00000000000000000000.timeindex.swap", &machine.read("00000000000000000000.timeindex"));
    machine.overwrite(&format!("{}.cleaned", bases[1]), &cleaned);
    let (_, log) = machine.start_log();
    assert_eq!(log.values()[0], (0, "kept by compaction".to_owned()));
    assert!(machine.files(".swap").is_empty() && machine.files(".cleaned").is_empty());
    assert_eq!(machine.files(".log")[1..], bases[1..]);
}

#[test]
fn damaged_checkpoints_are_as_if_they_were_not_there() {
    for damage in [&b""[..], b"odd", b"0\n2\nt 0 5\n", &[0xee; 20]] {
        let machine = Machine::small_segments(300);
        let (manager, log) = machine.start_log();
        let values = fill(&log, 10);
        manager.shut_down(machine.now());
        drop((manager, log));
        machine.fs.kill();
        for name in ["recovery-point-offset", "replication-offset", "log-start-offset", "cleaner-offset"] {
            machine.overwrite(&format!("/data/{name}-checkpoint"), damage);
        }
        machine.overwrite("leader-epoch-checkpoint", damage);
        let (_, log) = machine.start_log();
        assert_eq!(log.values(), values);
        assert_eq!(log.append_values(&["next"]).unwrap().first_offset, Offset(10));
        machine.check_files(&log);
    }
}
