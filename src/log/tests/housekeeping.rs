//! Retention, deletion, checkpoints, flushes.

use std::path::Path;

use super::super::testing::*;
use super::super::{FlushWanted, LogConfig, LogError};
use crate::model::{LeaderEpoch, Offset, Timestamp};
use crate::records::{AppendOrigin, Batch, MessageFormat, ValidationRules, validate};
use crate::runtime::fs::FileSystem;

#[test]
fn retention_deletes_whole_segments_and_raises_the_log_start() {
    let mut machine = Machine::small_segments(300);
    machine.config.retention_ms = Some(10_000);
    let (manager, log) = machine.start_log();
    for number in 0..20 {
        log.append_batch(batch(&[(1_000 * number, "a")])).unwrap();
    }
    assert_eq!(log.apply_retention(Timestamp(10_000)).unwrap(), 0);
    let bases: Vec<i64> = machine.files(".log").iter().map(|name| name[..20].parse().unwrap()).collect();
    let deleted = log.apply_retention(Timestamp(20_000)).unwrap();
    let kept = *bases.iter().rfind(|base| **base <= 10).unwrap();
    assert_eq!(log.log_start_offset(), Offset(kept));
    assert_eq!(deleted, bases.iter().position(|base| *base == kept).unwrap());
    assert!(!machine.files(".deleted").is_empty());
    machine.clock.advance_ms(60_001);
    manager.removal_tick(machine.now());
    assert!(machine.files(".deleted").is_empty());
    assert_eq!(log.values().len() as i64, 20 - kept);
}

/// Found by simulation.
#[test]
fn what_is_deleted_goes_though_the_clock_was_set_back() {
    let mut machine = Machine::small_segments(300);
    machine.config.retention_ms = Some(0);
    let (manager, log) = machine.start_log();
    log.append_times(10, &["a"]);
    log.apply_retention(machine.now()).unwrap();
    machine.clock.advance_ms(-900_000);
    manager.removal_tick(machine.now());
    assert!(!machine.files(".deleted").is_empty(), "readers have their time");
    machine.clock.advance_ms(60_000);
    manager.removal_tick(machine.now());
    assert_eq!(machine.files(".deleted"), [""; 0]);
}

#[test]
fn a_log_that_expires_whole_keeps_an_empty_segment() {
    let mut machine = Machine::small_segments(300);
    machine.config.retention_ms = Some(0);
    let (_, log) = machine.start_log();
    log.append_times(10, &["a"]);
    log.apply_retention(machine.now()).unwrap();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(10), Offset(10)));
    assert_eq!((log.count_segments(), log.size_bytes()), (1, 0));
    assert_eq!(log.apply_retention(machine.now()).unwrap(), 0);
    machine.fs.kill();
    let (_, log) = machine.start_log();
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(10), Offset(10)));
}

#[test]
fn nothing_above_the_high_watermark_expires() {
    let mut machine = Machine::small_segments(300);
    machine.config.retention_ms = Some(0);
    let (_, log) = machine.start_log();
    for _ in 0..20 {
        let records = validated(batch(&[(0, "a")]));
        let (epoch, origin) = (crate::model::LeaderEpoch(0), crate::records::AppendOrigin::Client);
        log.append_as_leader(records, epoch, origin, machine.now()).unwrap();
    }
    log.advance_high_watermark(Offset(9));
    log.apply_retention(machine.now()).unwrap();
    assert!(log.log_start_offset() <= Offset(9) && log.log_start_offset() > Offset(0));
}

#[test]
fn deleted_records_stay_deleted_once_the_start_is_checkpointed() {
    let machine = Machine::small_segments(10_000);
    let (manager, log) = machine.start_log();
    log.append_times(5, &["a", "b"]);
    assert_eq!(log.delete_records_before(Offset(5)).unwrap(), Offset(5));
    assert_eq!(log.delete_records_before(Offset(3)).unwrap(), Offset(5));
    assert!(matches!(log.delete_records_before(Offset(11)), Err(LogError::OffsetOutOfRange { .. })));
    let read = log.read(Offset(5), 100, Offset(10), true).unwrap();
    assert_eq!(read_batches(&read)[0].header.base_offset, Offset(4));
    manager.log_start_offset_tick();
    machine.fs.kill();
    let (_, log) = machine.start_log();
    assert_eq!(log.log_start_offset(), Offset(5));
    let checkpoint = machine.fs.read(Path::new("/data/log-start-offset-checkpoint")).unwrap();
    assert_eq!(checkpoint, b"0\n1\nt 0 5\n");
}

#[test]
fn the_high_watermark_comes_back_from_its_checkpoint() {
    let machine = Machine::small_segments(10_000);
    let (manager, log) = machine.start_log();
    log.append_values(&["a", "b", "c"]).unwrap();
    manager.high_watermark_tick();
    assert_eq!(machine.fs.read(Path::new("/data/replication-offset-checkpoint")).unwrap(), b"0\n1\nt 0 3\n");
    machine.fs.kill();
    let (_, log) = machine.start_log();
    assert_eq!(log.high_watermark(), Offset(3));
    assert!(!log.advance_high_watermark(Offset(100)), "never above the log end");
}

/// Kafka warns of one.
#[test]
fn beside_old_messages_there_is_no_file_of_epochs() {
    let machine = Machine::small_segments(10_000);
    let (_, log) = machine.start_log();
    log.assign_epoch(LeaderEpoch(3), Offset(0)).unwrap();
    let append = |message_format| {
        let rules = ValidationRules { message_format, ..ValidationRules::default() };
        let records = validate(batch(&[(5_000, "a")]), &rules, machine.now()).unwrap();
        log.append_as_leader(records, LeaderEpoch(3), AppendOrigin::Client, machine.now()).unwrap();
        machine.files("leader-epoch-checkpoint").pop().map(|name| machine.read(&name))
    };
    assert_eq!(append(MessageFormat::V1), None);
    assert_eq!(append(MessageFormat::V2).as_deref(), Some(&b"0\n1\n3 1\n"[..]));
    assert_eq!(append(MessageFormat::V0), None);
}

#[test]
fn a_deleted_partition_is_renamed_removed_and_may_come_back_empty() {
    let machine = Machine::small_segments(300);
    let (manager, log) = machine.start_log();
    log.append_times(9, &["a"]);
    log.flush(FlushWanted::Everything, machine.now()).unwrap();
    manager.recovery_point_tick();
    manager.delete(&[partition()], machine.now()).unwrap();
    assert!(manager.log(&partition()).is_none());
    assert!(matches!(log.append_values(&["a"]), Err(LogError::Closed { .. })));
    assert!(matches!(log.read(Offset(0), 1, Offset(9), true), Err(LogError::Closed { .. })));
    let entries =
        || machine.fs.list(Path::new("/data")).unwrap().into_iter().filter(|entry| entry.is_directory);
    assert!(entries().all(|entry| entry.name.starts_with("t-0.") && entry.name.ends_with("-delete")));
    let fresh = machine.open(&manager).unwrap();
    fresh.append_values(&["new"]).unwrap();
    machine.fs.kill();
    let (manager, log) = machine.start_log();
    assert_eq!(log.values(), [(0, "new".to_owned())]);
    manager.removal_tick(machine.now());
    assert_eq!(entries().count(), 1);
}

#[test]
fn flushes_are_asked_for_by_count_age_and_roll() {
    let mut machine = Machine::small_segments(300);
    machine.config = LogConfig { flush_messages: 5, flush_ms: 100, ..machine.config };
    let (manager, log) = machine.start_log();
    let wanted: Vec<FlushWanted> = (0..5).map(|_| log.append_values(&["a"]).unwrap().flush).collect();
    let (nothing, rolled) = (FlushWanted::Nothing, FlushWanted::RolledSegments);
    assert_eq!(wanted, [nothing, nothing, nothing, nothing, FlushWanted::Everything]);
    log.flush(FlushWanted::Everything, machine.now()).unwrap();
    assert_eq!(log.recovery_point(), Offset(5));
    machine.config.flush_messages = 1_000;
    log.update_config(machine.config.clone());
    let wanted: Vec<FlushWanted> = (0..5).map(|_| log.append_values(&["a"]).unwrap().flush).collect();
    assert_eq!(wanted.iter().filter(|&&wanted| wanted == rolled).count(), 1, "{wanted:?}");
    log.flush(rolled, machine.now()).unwrap();
    assert_eq!(log.recovery_point(), log.active_segment_base_offset());
    manager.flush_tick(machine.now());
    assert!(log.recovery_point() < log.log_end_offset());
    machine.clock.advance_ms(100);
    manager.flush_tick(machine.now());
    assert_eq!(log.recovery_point(), log.log_end_offset());
}

#[test]
fn foreign_folders_are_named_before_anything_is_touched() {
    let machine = Machine::small_segments(300);
    machine.fs.create_dir_all(Path::new("/data/lost+found")).unwrap();
    let refused = machine.start();
    assert!(matches!(refused, Err(LogError::UnusableDirectory { path, .. }) if path.ends_with("lost+found")));
}

#[test]
fn a_stray_log_is_kept_as_it_is_and_a_new_one_begun_beside_it() {
    let machine = Machine::small_segments(300);
    let (_, log) = machine.start_log();
    log.append_times(20, &["old"]);
    log.flush(FlushWanted::Everything, machine.now()).unwrap();
    machine.fs.kill();
    let stray = Path::new("/data/t-0.0123456789abcdef0123456789abcdef-stray");
    machine.fs.rename(Path::new("/data/t-0"), stray).unwrap();
    let contents = || -> Vec<(String, Vec<u8>)> {
        let names = machine.fs.list(stray).unwrap().into_iter().map(|entry| entry.name);
        names.map(|name| (name.clone(), machine.fs.read(&stray.join(name)).unwrap())).collect()
    };
    let before = contents();
    assert!(before.len() > 2);
    let (manager, log) = machine.start_log();
    assert_eq!(log.append_values(&["new"]).unwrap().first_offset, Offset(0));
    manager.delete(&[partition()], machine.now()).unwrap();
    machine.clock.advance_ms(600_000);
    manager.removal_tick(machine.now());
    machine.fs.kill();
    assert!(machine.start().unwrap().logs().is_empty());
    assert_eq!(contents(), before);
}

#[test]
fn a_partition_in_two_directories_is_refused() {
    let machine = Machine::small_segments(300);
    machine.fs.create_dir_all(Path::new("/data/t-0")).unwrap();
    machine.fs.create_dir_all(Path::new("/more/t-0")).unwrap();
    let refused = machine.start_with(&["/data".into(), "/more".into()]);
    assert!(matches!(refused, Err(LogError::UnusableDirectory { .. })));
}

#[test]
fn appends_from_many_threads_are_all_there_once() {
    let machine = Machine::small_segments(5_000);
    let (_, log) = machine.start_log();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..200 {
                    let value = format!("{thread} {number}");
                    let info = log.append_values(&[&value]).unwrap();
                    let read = log.read(info.first_offset, 1, info.last_offset.plus(1), true).unwrap();
                    let batch: &Batch = &read_batches(&read)[0];
                    assert_eq!(batch.header.base_offset, info.first_offset);
                    let record = batch.records().unwrap().next().unwrap().unwrap();
                    assert_eq!(record.value.as_deref(), Some(value.as_bytes()));
                }
            });
        }
    });
    let mut values: Vec<String> = log.values().into_iter().map(|(_, value)| value).collect();
    for thread in 0..4 {
        let of_thread: Vec<&String> =
            values.iter().filter(|v| v.starts_with(&format!("{thread} "))).collect();
        let in_order: Vec<String> = (0..200).map(|number| format!("{thread} {number}")).collect();
        assert_eq!(of_thread, in_order.iter().collect::<Vec<_>>());
    }
    values.dedup();
    assert_eq!(values.len(), 800);
    machine.check_files(&log);
}
