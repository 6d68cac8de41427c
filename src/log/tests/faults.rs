//! Disks that are full or fail.

use std::io;

use super::super::testing::*;
use super::super::{FlushWanted, Log, LogError};
use crate::model::{LeaderEpoch, Offset};
use crate::records::{AppendOrigin, TransactionMarker};
use crate::runtime::fs::{Fault, FaultOutcome, FileSystem, Operation};

fn fail(machine: &Machine, on: Operation, kind: io::ErrorKind) {
    machine.fs.inject(Fault { on, after: 0, outcome: FaultOutcome::Error(kind) });
}

#[test]
fn a_full_disk_refuses_appends_until_there_is_room() {
    let machine = Machine::small_segments(300);
    let (manager, log) = machine.start_log();
    for sequence in 0..10 {
        log.append_batch(sequenced(7, sequence, &["a"])).unwrap();
    }
    let values = log.values();
    let used = u64::MAX - machine.fs.space(std::path::Path::new("/")).unwrap().usable_bytes;
    for room in 0..200 {
        machine.fs.set_capacity_bytes(used + room);
        let refused = log.append_batch(sequenced(
            7,
            10,
            &["does not fit in what is left of the disk ".repeat(5).as_str()],
        ));
        assert!(matches!(refused, Err(LogError::DiskFull { .. })), "{refused:?} with {room} bytes");
    }
    assert!(!log.directory().is_offline());
    assert_eq!(log.values(), values);
    machine.fs.set_capacity_bytes(u64::MAX);
    assert_eq!(log.append_batch(sequenced(7, 10, &["a"])).unwrap().first_offset, Offset(10));
    machine.check_files(&log);
    drop(manager);
    machine.fs.kill();
    assert_eq!(machine.start_log().1.values().len(), 11);
}

/// Found by simulation (seed 50225): the marker fitted and its entry in the transaction index did not, and the whole
/// directory went offline.
#[test]
fn an_abort_is_refused_while_its_transaction_index_finds_no_room() {
    let machine = Machine::small_segments(100_000);
    let (manager, log) = machine.start_log();
    for producer in [7, 8] {
        log.append_batch(transactional(producer, 0, &["a"])).unwrap();
    }
    log.append_batch(marker(7, TransactionMarker::Abort)).unwrap();
    let index = machine.read("00000000000000000000.txnindex");
    let used = u64::MAX - machine.fs.space(std::path::Path::new("/")).unwrap().usable_bytes;
    let aborted = |log: &Log| log.aborted_transactions(Offset(0), log.log_end_offset()).unwrap().len();
    let needed = (0..200).find(|room| {
        machine.fs.set_capacity_bytes(used + room);
        let refused = match log.append_batch(marker(8, TransactionMarker::Abort)) {
            Ok(_) => return true,
            Err(refused) => refused,
        };
        assert!(matches!(refused, LogError::DiskFull { .. }), "{refused:?} with {room} bytes");
        assert_eq!(machine.read("00000000000000000000.txnindex"), index, "with {room} bytes");
        assert_eq!((aborted(&log), log.last_stable_offset()), (1, Offset(1)));
        false
    });
    assert!(needed.is_some_and(|room| room > 80) && !log.directory().is_offline(), "{needed:?}");
    assert_eq!((aborted(&log), log.last_stable_offset()), (2, Offset(4)));
    machine.fs.set_capacity_bytes(u64::MAX);
    drop(manager);
    machine.fs.kill();
    assert_eq!(aborted(&machine.start_log().1), 2);
}

/// Found by simulation (seeds 10828 and 11103): index entries that were still in memory found no room, and the directory
/// went offline with a log that was cut in half.
#[test]
fn a_log_is_not_cut_before_its_index_has_room() {
    let machine = Machine::small_segments(100_000);
    let (manager, log) = machine.start_log();
    for sequence in 0..20 {
        log.append_batch(sequenced(7, sequence, &["long enough for an entry ".repeat(20).as_str()])).unwrap();
    }
    let values = log.values();
    let used = u64::MAX - machine.fs.space(std::path::Path::new("/")).unwrap().usable_bytes;
    let mut refusals = 0;
    for room in 0..2_000 {
        machine.fs.set_capacity_bytes(used + room);
        let Err(refused) = log.truncate_to(Offset(15), machine.now()) else { break };
        assert!(matches!(refused, LogError::DiskFull { .. }), "{refused:?} with {room} bytes");
        assert_eq!(log.values(), values, "with {room} bytes");
        refusals += 1;
    }
    assert!(refusals > 0 && !log.directory().is_offline(), "{refusals}");
    assert_eq!(log.values(), values[..15]);
    machine.fs.set_capacity_bytes(u64::MAX);
    machine.check_files(&log);
    drop(manager);
    machine.fs.kill();
    assert_eq!(machine.start_log().1.values(), values[..15]);
}

/// A broker that starts on a full disk leads, so that its records can be read.
#[test]
fn a_leader_begins_its_epoch_on_a_full_disk() {
    let machine = Machine::small_segments(10_000);
    let (_, log) = machine.start_log();
    log.append_times(3, &["a"]);
    let used = u64::MAX - machine.fs.space(std::path::Path::new("/")).unwrap().usable_bytes;
    machine.fs.set_capacity_bytes(used);
    let epoch = LeaderEpoch(5);
    log.assign_epoch(epoch, log.log_end_offset()).unwrap();
    let append = || {
        let records = validated(batch(&[(5_000, "b")]));
        log.append_as_leader(records, epoch, AppendOrigin::Client, machine.now())
    };
    assert!(matches!(append(), Err(LogError::DiskFull { .. })));
    assert_eq!((log.latest_epoch(), log.values().len()), (epoch, 3));
    machine.fs.set_capacity_bytes(u64::MAX);
    append().unwrap();
    assert_eq!(machine.read("leader-epoch-checkpoint"), b"0\n2\n0 0\n5 3\n");
    assert!(!log.directory().is_offline());
}

#[test]
fn retention_makes_room_on_a_full_disk() {
    let mut machine = Machine::small_segments(300);
    machine.config.retention_bytes = Some(300);
    let (manager, log) = machine.start_log();
    for _ in 0..20 {
        log.append_values(&["a"]).unwrap();
    }
    machine.fs.set_capacity_bytes(0);
    assert!(log.append_values(&["b"]).is_err());
    assert!(manager.retention_tick(machine.now()) > 0);
    machine.config.retention_bytes = Some(0);
    log.update_config(machine.config.clone());
    assert!(manager.retention_tick(machine.now()) > 0);
    machine.clock.advance_ms(60_001);
    manager.removal_tick(machine.now());
    assert!(!log.directory().is_offline());
}

/// Found by simulation: the controller was told of a failure, and waited with the deletion until the broker was started
/// again.
#[test]
fn a_log_is_deleted_on_a_full_disk_and_none_of_its_name_is_taken_for_it() {
    let machine = Machine::small_segments(300);
    let (manager, log) = machine.start_log();
    log.append_values(&["a"]).unwrap();
    log.advance_high_watermark(Offset(1));
    log.delete_records_before(Offset(1)).unwrap();
    manager.high_watermark_tick();
    manager.log_start_offset_tick();
    machine.fs.set_capacity_bytes(0);
    manager.delete(&[partition()], machine.now()).unwrap();
    assert!(matches!(machine.open(&manager), Err(LogError::DiskFull { .. })));
    machine.fs.set_capacity_bytes(u64::MAX);
    let fresh = machine.open(&manager).unwrap();
    fresh.append_values(&["b"]).unwrap();
    machine.fs.kill();
    let (_, fresh) = machine.start_log();
    assert_eq!((fresh.high_watermark(), fresh.log_start_offset()), (Offset(0), Offset(0)));
}

#[test]
fn records_leave_room_for_the_work_that_makes_room() {
    let mut machine = Machine::small_segments(300);
    machine.config.retention_bytes = Some(900);
    let (manager, log) = machine.start_log();
    machine.fs.set_capacity_bytes(20_000);
    log.directory().keep_free(1 << 30);
    let usable = || machine.fs.space(std::path::Path::new("/")).unwrap().usable_bytes;
    let value = "x".repeat(100);
    let refused = loop {
        match log.append_values(&[&value]) {
            Ok(_) => assert!(log.log_end_offset() < Offset(200)),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, LogError::DiskFull { .. }) && log.directory().is_short_of_room());
    // A twentieth of the volume.
    assert!((900..1_300).contains(&usable()), "{}", usable());
    assert_eq!(log.values().len() as i64, log.log_end_offset().0);
    // Coordinators may take half of it.
    let state = || {
        let batch = batch(&[(5_000, value.as_str())]);
        log.append_as_leader(validated(batch), LeaderEpoch(0), AppendOrigin::Coordinator, machine.now())
    };
    assert!(state().is_ok());
    while state().is_ok() {}
    assert!((300..700).contains(&usable()), "{}", usable());
    assert!(!log.directory().is_offline());
    // Nothing is waited for: neither the next look at retention, nor the delay of a removal.
    log.advance_high_watermark(log.log_end_offset());
    manager.removal_tick(machine.now());
    assert!(!log.directory().is_short_of_room() && usable() > 15_000, "{}", usable());
    log.append_values(&[&value]).unwrap();
    machine.check_files(&log);
}

#[test]
fn a_disk_that_others_fill_is_noticed() {
    let machine = Machine::small_segments(10_000);
    let (manager, log) = machine.start_log();
    log.directory().keep_free(1_000);
    machine.fs.set_capacity_bytes(1 << 20);
    log.append_values(&["a"]).unwrap();
    machine.fs.set_capacity_bytes(10);
    manager.removal_tick(machine.now());
    assert!(log.directory().is_short_of_room());
    machine.fs.set_capacity_bytes(1 << 20);
    manager.removal_tick(machine.now());
    assert!(!log.directory().is_short_of_room());
}

#[test]
fn a_record_set_that_is_refused_leaves_nothing_with_its_producer() {
    let machine = Machine::small_segments(10_000);
    let (_, log) = machine.start_log();
    let mut records = validated(sequenced(7, 0, &["a"]));
    records.batches.extend(validated(sequenced(7, 5, &["b"])).batches);
    let refused = log.append_as_leader(records, LeaderEpoch(0), AppendOrigin::Client, machine.now());
    assert!(matches!(refused, Err(LogError::Producer { .. })), "{refused:?}");
    let info = log.append_batch(sequenced(7, 0, &["a"])).unwrap();
    assert!(!info.is_duplicate && info.first_offset == Offset(0));
    assert_eq!(log.values().len(), 1);
}

#[test]
fn a_failed_write_takes_the_directory_offline() {
    let machine = Machine::small_segments(300);
    let (manager, log) = machine.start_log();
    log.append_values(&["a"]).unwrap();
    fail(&machine, Operation::Write, io::ErrorKind::Other);
    assert!(matches!(log.append_values(&["b"]), Err(LogError::Storage { .. })));
    assert!(matches!(log.append_values(&["b"]), Err(LogError::DirectoryOffline { .. })));
    assert!(matches!(log.read(Offset(0), 1, Offset(1), true), Err(LogError::DirectoryOffline { .. })));
    assert!(manager.log(&partition()).is_none() && manager.is_offline(&partition()));
    assert_eq!(manager.offline_directories().len(), 1);
    assert!(machine.open(&manager).is_err());
}

#[test]
fn a_failed_sync_is_never_tried_again() {
    let machine = Machine::small_segments(300);
    let (_, log) = machine.start_log();
    log.append_values(&["a"]).unwrap();
    fail(&machine, Operation::Sync, io::ErrorKind::Other);
    assert!(log.flush(FlushWanted::Everything, machine.now()).is_err());
    assert!(log.flush(FlushWanted::Everything, machine.now()).is_err());
    assert_eq!(log.recovery_point(), Offset(0));
}

#[test]
fn a_write_that_stops_early_is_finished() {
    let machine = Machine::small_segments(10_000);
    let (_, log) = machine.start_log();
    for short in [0, 1, 16, 17, 60] {
        let outcome = FaultOutcome::Short(short);
        machine.fs.inject(Fault { on: Operation::Write, after: 0, outcome });
        log.append_values(&["a"]).unwrap();
    }
    assert_eq!(log.values().len(), 5);
    machine.check_files(&log);
}

#[test]
fn one_bad_directory_does_not_take_the_others_along() {
    let machine = Machine::small_segments(300);
    let paths = ["/data".into(), "/more".into()];
    let start = || machine.start_with(&paths);
    let manager = start().unwrap();
    let names = ["a", "b", "c", "d"].map(named);
    for name in &names {
        let id = TOPIC_ID;
        manager.log_or_create(name, id, machine.config.clone(), None, machine.now()).unwrap();
    }
    let in_data = names.iter().filter(|name| manager.log(name).unwrap().directory().path() == paths[0]);
    assert_eq!(in_data.count(), 2);
    fail(&machine, Operation::Write, io::ErrorKind::Other);
    assert!(manager.log(&names[0]).unwrap().append_values(&["a"]).is_err());
    assert_eq!(manager.logs().len(), 2);
    let survivor = names.iter().find_map(|name| manager.log(name)).unwrap();
    survivor.append_values(&["a"]).unwrap();
    let created =
        manager.log_or_create(&named("e"), TOPIC_ID, machine.config.clone(), Some(&paths[0]), machine.now());
    assert!(Some(created.unwrap().directory().path()) != Some(&paths[0]));
}

#[test]
fn a_broker_starts_on_a_full_disk_and_makes_room() {
    let mut machine = Machine::small_segments(300);
    machine.config.retention_bytes = Some(300);
    let (_, log) = machine.start_log();
    for sequence in 0..20 {
        log.append_batch(sequenced(7, sequence, &["a"])).unwrap();
    }
    let values = log.values();
    machine.fs.kill();
    machine.fs.set_capacity_bytes(0);
    let (manager, log) = machine.start_log();
    assert_eq!(log.values(), values);
    log.advance_high_watermark(log.log_end_offset());
    assert!(manager.retention_tick(machine.now()) > 0);
    machine.clock.advance_ms(60_001);
    manager.removal_tick(machine.now());
    assert!(log.append_values(&["b"]).is_err());
    machine.fs.set_capacity_bytes(u64::MAX);
    log.append_values(&["b"]).unwrap();
    machine.check_files(&log);
}

fn run_out_of_files(machine: &Machine, times: u64) {
    for _ in 0..times {
        machine.fs.inject(Fault { on: Operation::Open, after: 0, outcome: FaultOutcome::OutOfFiles });
    }
}

#[test]
fn files_that_nobody_uses_are_closed_to_open_another() {
    let machine = Machine::small_segments(300);
    let (_, log) = machine.start_log();
    log.append_times(10, &["a"]);
    run_out_of_files(&machine, 1);
    // It must begin a segment, which opens files.
    log.append_times(10, &["b"]);
    assert_eq!(log.values().len(), 20);
    machine.check_files(&log);
}

#[test]
fn too_many_open_files_are_no_failed_disk() {
    let machine = Machine::small_segments(300);
    let (manager, log) = machine.start_log();
    let mut appended = 0;
    for _ in 0..40 {
        // One that has to open a file, as for a new segment, is refused.
        run_out_of_files(&machine, 2);
        match log.append_values(&["a"]) {
            Ok(_) => appended += 1,
            Err(LogError::TooManyOpenFiles { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        machine.fs.heal();
        log.append_values(&["a"]).unwrap();
        appended += 1;
    }
    run_out_of_files(&machine, 2);
    let refusal = machine.open_named(&manager, &named("u")).unwrap_err();
    assert!(matches!(refusal, LogError::TooManyOpenFiles { .. }), "{refusal}");
    machine.fs.heal();
    machine.open_named(&manager, &named("u")).unwrap();
    assert!(!log.directory().is_offline());
    assert_eq!(log.values().len(), appended);
    machine.check_files(&log);
    drop(manager);
    machine.fs.kill();
    assert_eq!(machine.start_log().1.values().len(), appended);
}
