//! Starting, stopping and being stopped.

use super::super::testing::*;
use super::super::{FlushWanted, LogError};
use crate::model::Offset;
use crate::runtime::fs::FileSystem;

fn fill(log: &super::super::Log, count: i64) -> Vec<(i64, String)> {
    let first = log.log_end_offset().0;
    let values: Vec<(i64, String)> =
        (first..first + count).map(|offset| (offset, format!("v{offset}"))).collect();
    for (_, value) in &values {
        log.append_values(&[value]).unwrap();
    }
    values
}

#[test]
fn a_killed_process_loses_nothing() {
    let machine = Machine::small_segments(300);
    let (_, log) = machine.start_log();
    let values = fill(&log, 20);
    machine.fs.kill();
    let (_, log) = machine.start_log();
    assert_eq!(log.values(), values);
    assert_eq!(log.topic_id(), TOPIC_ID);
    assert_eq!(log.append_values(&["next"]).unwrap().first_offset, Offset(20));
}

#[test]
fn a_power_loss_loses_only_what_was_not_flushed() {
    let machine = Machine::small_segments(300);
    let (_, log) = machine.start_log();
    let values = fill(&log, 13);
    log.flush(FlushWanted::Everything, machine.now()).unwrap();
    assert_eq!(log.recovery_point(), Offset(13));
    fill(&log, 8);
    machine.fs.crash();
    let (_, log) = machine.start_log();
    assert_eq!(log.values(), values);
}

#[test]
fn a_clean_shutdown_needs_no_recovery() {
    let machine = Machine::small_segments(300);
    let (manager, log) = machine.start_log();
    let values = fill(&log, 20);
    manager.shut_down(machine.now());
    let marker = machine.fs.read(std::path::Path::new("/data/.kafka_cleanshutdown")).unwrap();
    assert_eq!(marker, br#"{"version":0,"brokerEpoch":-1}"#);
    machine.fs.crash();
    let writes = machine.fs.steps();
    let (_, log) = machine.start_log();
    assert_eq!(log.values(), values);
    assert_eq!(machine.fs.steps() - writes, 2, "only the marker is removed, durably");
    assert!(!machine.fs.exists(std::path::Path::new("/data/.kafka_cleanshutdown")).unwrap());
}

/// A KRaft controller compares it with what it knows of the broker.
#[test]
fn the_epoch_in_the_mark_of_a_clean_shutdown_is_handed_back() {
    let machine = Machine::small_segments(300);
    let mark = std::path::Path::new("/data/.kafka_cleanshutdown");
    let written = |epoch: &str| {
        let text = format!(r#"{{"version":0,"brokerEpoch":{epoch}}}"#);
        assert_eq!(String::from_utf8(machine.fs.read(mark).unwrap()).unwrap(), text);
    };
    machine.start().unwrap().shut_down(machine.now());
    written("-1");
    let kafkas = br#"{"version":0,"brokerEpoch":57}"#;
    machine.fs.replace(mark, kafkas, crate::runtime::fs::Durability::Synced).unwrap();
    for _ in 0..2 {
        machine.start().unwrap().shut_down(machine.now());
        written("57");
    }
    // Whoever was not closed has no mark to hand back.
    machine.start().unwrap();
    machine.fs.kill();
    machine.start().unwrap().shut_down(machine.now());
    written("-1");
}

#[test]
fn two_processes_do_not_share_a_directory() {
    let machine = Machine::small_segments(300);
    let running = machine.start().unwrap();
    assert!(matches!(machine.start(), Err(LogError::UnusableDirectory { .. })));
    drop(running);
    assert!(machine.start().is_ok());
}

#[test]
fn a_directory_of_another_topic_is_refused() {
    let machine = Machine::small_segments(300);
    let (manager, _) = machine.start_log();
    let other = crate::model::TopicId([9; 16]);
    let refused = manager.log_or_create(&partition(), other, machine.config.clone(), None, machine.now());
    assert!(matches!(refused, Err(LogError::InconsistentTopicId { .. })));
}

/// C030
#[test]
fn a_stopped_recovery_keeps_what_it_has_done() {
    let machine = Machine::small_segments(300);
    let (manager, log) = machine.start_log();
    let values = fill(&log, 20);
    log.flush(FlushWanted::Everything, machine.now()).unwrap();
    manager.recovery_point_tick();
    fill(&log, 5);
    machine.fs.kill();
    assert!(matches!(machine.start_and_stop(), Err(LogError::Stopped)));
    machine.fs.crash();
    let (_, log) = machine.start_log();
    assert_eq!(log.values(), values, "the recovery point of a log that was not reached is still known");
}
