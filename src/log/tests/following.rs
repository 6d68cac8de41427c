//! What a replica that follows does: append what it is sent, truncate, begin anew.

use bytes::Bytes;

use super::super::testing::*;
use super::super::{EpochEndOffset, Log, LogError};
use crate::model::{LeaderEpoch, Offset};
use crate::records::{Batch, DownConversion, MessageFormat, TransactionMarker, down_convert};
use crate::runtime::fs::FileSystem;

/// A batch as a leader of an epoch stored it.
fn stored(offset: i64, epoch: i32, values: &[&str]) -> Vec<u8> {
    let records: Vec<(i64, &str)> = values.iter().map(|value| (5_000, *value)).collect();
    let mut bytes = batch(&records).to_vec();
    bytes[..8].copy_from_slice(&offset.to_be_bytes());
    bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
    bytes
}

fn append(log: &Log, batches: &[Vec<u8>]) -> Result<(), LogError> {
    log.append_as_follower(Bytes::from(batches.concat()), crate::model::Timestamp(1_000_000)).map(|_| ())
}

fn end_of(log: &Log, epoch: i32) -> (i32, i64) {
    let EpochEndOffset { epoch, end_offset } = log.end_offset_for_epoch(LeaderEpoch(epoch));
    (epoch.0, end_offset.0)
}

/// Epoch 0 wrote 0 to 9, epoch 3 wrote 10 to 19.
fn two_epochs() -> (Machine, std::sync::Arc<Log>) {
    let machine = Machine::small_segments(400);
    let (_, log) = machine.start_log();
    for offset in (0..20).step_by(2) {
        append(&log, &[stored(offset, if offset < 10 { 0 } else { 3 }, &["a", "b"])]).unwrap();
    }
    (machine, log)
}

#[test]
fn epochs_follow_from_the_batches_and_survive_a_kill() {
    let (machine, log) = two_epochs();
    let check = |log: &Log| {
        let asked = [0, 1, 2, 3, 7, -1].map(|epoch| end_of(log, epoch));
        assert_eq!(asked, [(0, 10), (0, 10), (0, 10), (3, 20), (-1, -1), (-1, -1)]);
        assert_eq!(log.latest_epoch(), LeaderEpoch(3));
    };
    check(&log);
    assert_eq!(machine.read("leader-epoch-checkpoint"), b"0\n2\n0 0\n3 10\n");
    machine.fs.kill();
    machine.fs.remove_file(&machine.file("leader-epoch-checkpoint")).unwrap();
    check(&machine.start_log().1);
}

/// Nothing is appended between the starts, which would write the file in passing.
#[test]
fn a_file_of_epochs_that_says_nothing_is_written_again() {
    let check = |log: &Log| {
        assert_eq!([0, 1, 3, 7].map(|epoch| end_of(log, epoch)), [(0, 10), (0, 10), (3, 20), (-1, -1)]);
    };
    for (text, is_flushed, is_stopped) in ["", "0\n", "0\n0\n", "0\n1\n0 0"]
        .into_iter()
        .flat_map(|text| [(text, false, false), (text, true, false), (text, false, true)])
    {
        let machine = Machine::small_segments(400);
        let (manager, log) = machine.start_log();
        for offset in (0..20).step_by(2) {
            append(&log, &[stored(offset, if offset < 10 { 0 } else { 3 }, &["a", "b"])]).unwrap();
        }
        if is_flushed {
            log.flush(super::super::FlushWanted::Everything, machine.now()).unwrap();
        }
        if is_stopped {
            manager.shut_down(machine.now());
        }
        drop((manager, log));
        machine.fs.kill();
        machine.overwrite("leader-epoch-checkpoint", text.as_bytes());
        let case = format!("{text:?}, flushed: {is_flushed}, stopped: {is_stopped}");
        for _ in 0..2 {
            let (manager, log) = machine.start_log();
            check(&log);
            manager.shut_down(machine.now());
        }
        assert_eq!(machine.read("leader-epoch-checkpoint"), b"0\n2\n0 0\n3 10\n", "{case}");
    }
}

/// Found by the simulation: consumers were shown what the second transaction had written. Kafka shows it as well.
#[test]
fn a_producers_next_transaction_in_the_same_append_is_not_passed_over() {
    let at = |offset: i64, batch: Bytes| {
        let mut bytes = batch.to_vec();
        bytes[..8].copy_from_slice(&offset.to_be_bytes());
        bytes
    };
    let machine = Machine::small_segments(1_000_000);
    let (_, log) = machine.start_log();
    let first = [at(0, transactional(1, 0, &["a"])), at(1, marker(1, TransactionMarker::Abort))];
    let next = [at(2, transactional(1, 1, &["b"])), at(3, transactional(2, 0, &["c"]))];
    append(&log, &[first, next].concat()).unwrap();
    append(&log, &[at(4, marker(1, TransactionMarker::Abort))]).unwrap();
    let aborted = |from, upper| -> Vec<(i64, i64, i64)> {
        let found = log.aborted_transactions(Offset(from), Offset(upper)).unwrap();
        found.iter().map(|it| (it.first_offset.0, it.last_offset.0, it.last_stable_offset.0)).collect()
    };
    assert_eq!(aborted(0, 2), [(0, 1, 2)]);
    assert_eq!(aborted(2, 3), [(2, 4, 3)]);
}

/// A topic whose format was lowered: whoever asks for an epoch is told that there is none, before a restart and after.
#[test]
fn epochs_before_old_messages_are_forgotten() {
    let (machine, log) = two_epochs();
    let new = Batch::read(stored(20, 3, &["old"]).into()).unwrap();
    let old = down_convert(&new, &DownConversion::new(MessageFormat::V1, Offset(20))).unwrap();
    append(&log, &[old.to_vec()]).unwrap();
    assert_eq!(end_of(&log, 0), (-1, -1));
    for _ in 0..2 {
        machine.fs.kill();
        let (_, log) = machine.start_log();
        assert_eq!((end_of(&log, 0), log.log_end_offset()), ((-1, -1), Offset(21)));
        assert!(machine.files("leader-epoch-checkpoint").is_empty());
    }
}

/// Found by simulation: the checkpoint of log starts lags behind the file of epochs.
#[test]
fn records_that_are_back_after_a_kill_have_their_epochs() {
    for deleted_to in [3, 10, 15, 20] {
        let (machine, log) = two_epochs();
        log.advance_high_watermark(Offset(20));
        log.delete_records_before(Offset(deleted_to)).unwrap();
        machine.fs.kill();
        let (_, log) = machine.start_log();
        assert_eq!(log.log_start_offset(), Offset(0));
        assert_eq!([0, 1, 3].map(|epoch| end_of(&log, epoch)), [(0, 10), (0, 10), (3, 20)]);
        machine.check_files(&log);
    }
}

#[test]
fn batches_that_are_appended_together_have_entries_of_their_own() {
    let machine = Machine::small_segments(100_000);
    let (_, log) = machine.start_log();
    append(&log, &[stored(0, 0, &["a"]), stored(1, 0, &["b"])]).unwrap();
    append(&log, &[stored(2, 0, &["c"]), stored(3, 0, &["d"])]).unwrap();
    log.write_out(super::super::FlushWanted::Everything).unwrap();
    // The third follows more than an interval of 100 bytes.
    let position = 2 * stored(0, 0, &["a"]).len() as u8;
    assert_eq!(machine.read("00000000000000000000.index"), [0, 0, 0, 2, 0, 0, 0, position]);
    for from in 0..4 {
        assert_eq!(log.values_from(Offset(from)).unwrap().len(), 4 - from as usize);
    }
}

#[test]
fn batches_that_do_not_follow_are_refused_whole() {
    let (_, log) = two_epochs();
    let refused = append(&log, &[stored(19, 3, &["x"])]);
    assert!(matches!(refused, Err(LogError::UnexpectedAppendOffset { .. })));
    let refused = append(&log, &[stored(20, 3, &["x"]), stored(20, 3, &["y"])]);
    assert!(matches!(refused, Err(LogError::OffsetsOutOfOrder { .. })));
    let mut damaged = stored(20, 3, &["x"]);
    *damaged.last_mut().unwrap() ^= 1;
    assert!(matches!(append(&log, &[damaged]), Err(LogError::Records { .. })));
    assert_eq!(log.log_end_offset(), Offset(20));
    append(&log, &[stored(25, 3, &["after a gap"])]).unwrap();
    assert_eq!(log.log_end_offset(), Offset(26));
}

#[test]
fn a_truncated_log_ends_there_and_goes_on_there() {
    for is_restarted in [false, true] {
        let (machine, mut log) = two_epochs();
        log.advance_high_watermark(Offset(20));
        log.truncate_to(Offset(8), machine.now()).unwrap();
        if is_restarted {
            machine.fs.kill();
            log = machine.start_log().1;
        }
        assert_eq!(log.log_end_offset(), Offset(8));
        assert!(log.high_watermark() <= Offset(8));
        assert_eq!((end_of(&log, 0), end_of(&log, 3)), ((0, 8), (-1, -1)));
        assert_eq!(log.values().len(), 8);
        append(&log, &[stored(8, 4, &["new"])]).unwrap();
        assert_eq!(log.values()[8], (8, "new".to_owned()));
        machine.check_files(&log);
    }
}

#[test]
fn truncation_at_a_segment_base_keeps_the_segment_empty() {
    let (machine, log) = two_epochs();
    let base: i64 = machine.files(".log")[1][..20].parse().unwrap();
    log.truncate_to(Offset(base), machine.now()).unwrap();
    assert_eq!((log.log_end_offset(), log.active_segment_base_offset()), (Offset(base), Offset(base)));
    append(&log, &[stored(base, 3, &["new"])]).unwrap();
    assert_eq!(log.values().len() as i64, base + 1);
    machine.check_files(&log);
}

#[test]
fn a_cut_batch_goes_as_a_whole_and_the_log_ends_at_the_cut() {
    let (machine, log) = two_epochs();
    log.truncate_to(Offset(7), machine.now()).unwrap();
    assert_eq!(log.log_end_offset(), Offset(7));
    assert_eq!(log.read(Offset(6), 100, Offset(7), true).unwrap().size_bytes, 0);
    append(&log, &[stored(7, 4, &["new"])]).unwrap();
    assert_eq!(log.values_from(Offset(6)).unwrap(), [(7, "new".to_owned())]);
}

/// Of a broker that led without writing and follows again: its leader does not know that epoch, and would find the log
/// diverging at each fetch for ever.
#[test]
fn an_epoch_without_records_goes_where_nothing_else_is_cut() {
    let (machine, log) = two_epochs();
    let end = log.log_end_offset();
    log.assign_epoch(LeaderEpoch(7), end).unwrap();
    assert_eq!(log.latest_epoch(), LeaderEpoch(7));
    log.truncate_to(end, machine.now()).unwrap();
    assert_eq!((log.latest_epoch(), log.log_end_offset()), (LeaderEpoch(3), end));
    machine.check_files(&log);
}

#[test]
fn a_log_can_begin_anew_at_any_offset() {
    for start in [0, 5, 1_000] {
        let (machine, log) = two_epochs();
        log.truncate_fully_and_start_at(Offset(start), machine.now()).unwrap();
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(start), Offset(start)));
        assert_eq!((log.latest_epoch(), log.size_bytes()), (LeaderEpoch::UNKNOWN, 0));
        append(&log, &[stored(start, 5, &["first"])]).unwrap();
        assert_eq!(log.values(), [(start, "first".to_owned())]);
        machine.fs.kill();
        let (_, log) = machine.start_log();
        assert_eq!(log.values(), [(start, "first".to_owned())]);
    }
}

#[test]
fn truncation_forgets_what_producers_did_after_it() {
    let machine = Machine::small_segments(300);
    let (_, log) = machine.start_log();
    for sequence in 0..12 {
        log.append_batch(sequenced(7, sequence, &["a"])).unwrap();
    }
    log.truncate_to(Offset(6), machine.now()).unwrap();
    assert!(log.append_batch(sequenced(7, 12, &["a"])).is_err());
    assert_eq!(log.append_batch(sequenced(7, 6, &["a"])).unwrap().first_offset, Offset(6));
}
