//! Logs that cannot be used yet, or not at all, beside others that can.

use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc;

use super::super::testing::*;
use super::super::{FlushWanted, LogError, LogManager};
use crate::model::{Offset, TopicPartition};
use crate::runtime::fs::FileSystem;

const RECOVERY_POINTS: &str = "/data/recovery-point-offset-checkpoint";

/// A machine that was killed, with logs of these topics: 20 records each, 10 of them durable.
fn killed(topics: &[&str]) -> Machine {
    let machine = Machine::small_segments(300);
    let manager = machine.start().unwrap();
    for topic in topics {
        let log = machine.open_named(&manager, &named(topic)).unwrap();
        log.append_times(10, &["sure"]);
        log.flush(FlushWanted::Everything, machine.now()).unwrap();
        log.append_times(10, &["open"]);
        log.advance_high_watermark(Offset(15));
    }
    manager.recovery_point_tick();
    manager.high_watermark_tick();
    machine.fs.kill();
    machine
}

fn find(machine: &Machine) -> LogManager {
    machine.find_logs(&["/data".into()]).unwrap()
}

fn load(machine: &Machine, manager: &LogManager) {
    machine.load_all(manager, &|_| {}, &mut |_| {}).unwrap();
}

fn checkpoint(machine: &Machine, path: &str) -> String {
    String::from_utf8(machine.fs.read(Path::new(path)).unwrap()).unwrap()
}

fn has_clean_mark(machine: &Machine) -> bool {
    machine.fs.exists(Path::new("/data/.kafka_cleanshutdown")).unwrap()
}

#[test]
fn a_log_is_served_as_soon_as_it_is_loaded() {
    let machine = killed(&["a", "b"]);
    let manager = find(&machine);
    assert!(manager.logs().is_empty() && manager.is_loading(&named("a")));
    let (a_is_ready, wait_for_a) = mpsc::channel();
    let wait_for_a = Mutex::new(wait_for_a);
    let before = |topic: &crate::model::TopicName| {
        if topic.as_str() == "b" {
            wait_for_a.lock().unwrap().recv().unwrap();
            let log = manager.log(&named("a")).unwrap();
            assert_eq!(log.values().len(), 20);
            assert_eq!(log.recovery_point(), Offset(20), "what was recovered is durable");
            log.append_times(1, &["new"]);
            assert!(manager.log(&named("b")).is_none() && manager.is_loading(&named("b")));
            let refused = machine.open_named(&manager, &named("b"));
            assert!(matches!(refused, Err(LogError::Loading { .. })));
            assert_eq!((manager.load_progress().left, manager.load_progress().total), (1, 2));
        }
    };
    let mut ready = Vec::new();
    let mut note = |loaded: &[TopicPartition]| {
        ready.extend_from_slice(loaded);
        if loaded.contains(&named("a")) {
            a_is_ready.send(()).unwrap();
        }
    };
    machine.load_all(&manager, &before, &mut note).unwrap();
    assert_eq!(ready, [named("a"), named("b")]);
    assert_eq!((manager.logs().len(), manager.load_progress().left), (2, 0));
    assert_eq!(manager.load_progress().segments_left, 0);
}

#[test]
fn checkpoints_keep_what_they_say_of_logs_that_are_not_loaded() {
    let machine = killed(&["a", "b"]);
    let marks = "/data/replication-offset-checkpoint";
    let before = [checkpoint(&machine, RECOVERY_POINTS), checkpoint(&machine, marks)];
    assert_eq!(before[0], "0\n2\na 0 10\nb 0 10\n");
    let manager = find(&machine);
    machine.open_named(&manager, &named("c")).unwrap();
    manager.recovery_point_tick();
    manager.high_watermark_tick();
    manager.log_start_offset_tick();
    assert_eq!(checkpoint(&machine, RECOVERY_POINTS), "0\n3\na 0 10\nb 0 10\nc 0 0\n");
    assert!(checkpoint(&machine, marks).contains("a 0 20\nb 0 20\n"), "{before:?}");
    load(&machine, &manager);
    manager.recovery_point_tick();
    assert_eq!(checkpoint(&machine, RECOVERY_POINTS), "0\n3\na 0 20\nb 0 20\nc 0 0\n");
}

#[test]
fn a_stop_before_all_is_loaded_is_no_clean_one() {
    let machine = killed(&["a", "b"]);
    let manager = find(&machine);
    manager.stop_loading();
    assert!(matches!(machine.load_all(&manager, &|_| {}, &mut |_| {}), Err(LogError::Stopped)));
    manager.shut_down(machine.now());
    assert!(!has_clean_mark(&machine));
    assert_eq!(checkpoint(&machine, RECOVERY_POINTS), "0\n2\na 0 10\nb 0 10\n");
    machine.fs.kill();
    let manager = machine.start().unwrap();
    assert_eq!(manager.log(&named("b")).unwrap().values().len(), 20);
    manager.shut_down(machine.now());
    assert!(has_clean_mark(&machine));
}

#[test]
fn a_log_that_waits_can_be_deleted_and_created_anew() {
    let machine = killed(&["a", "b"]);
    let manager = find(&machine);
    manager.delete(&[named("a")], machine.now()).unwrap();
    assert_eq!(checkpoint(&machine, RECOVERY_POINTS), "0\n1\nb 0 10\n");
    let anew = machine.open_named(&manager, &named("a")).unwrap();
    assert_eq!(anew.log_end_offset(), Offset(0));
    load(&machine, &manager);
    assert_eq!(manager.log(&named("a")).unwrap().log_end_offset(), Offset(0));
    assert_eq!(manager.log(&named("b")).unwrap().values().len(), 20);
    machine.clock.advance_ms(60_001);
    manager.removal_tick(machine.now());
    assert!(!manager.directories()[0].directory.is_offline());
}

#[test]
fn a_log_can_be_deleted_while_it_is_being_loaded() {
    let machine = killed(&["a", "b"]);
    let manager = find(&machine);
    let (begun, wait_for_it) = mpsc::channel();
    let before = |topic: &crate::model::TopicName| {
        if topic.as_str() == "a" {
            begun.send(()).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let (machine, manager) = (&machine, &manager);
        let deletion = scope.spawn(move || {
            wait_for_it.recv().unwrap();
            manager.delete(&[named("a")], machine.now()).unwrap();
        });
        machine.load_all(manager, &before, &mut |_| {}).unwrap();
        deletion.join().unwrap();
    });
    assert!(manager.log(&named("a")).is_none() && !manager.is_loading(&named("a")));
    assert!(!machine.fs.exists(Path::new("/data/a-0")).unwrap());
    assert_eq!(manager.log(&named("b")).unwrap().values().len(), 20);
}

#[test]
fn damage_below_the_recovery_point_takes_one_replica_offline() {
    let machine = killed(&["a", "b"]);
    // The last durable batch is among those that are looked at.
    let name = Path::new("/data/a-0").join(last_segment_before(&machine, "/data/a-0", 10));
    let sound = machine.fs.read(&name).unwrap();
    let mut damaged = sound.clone();
    let at = damaged.windows(4).rposition(|four| four == b"sure").unwrap();
    damaged[at] ^= 1;
    write(&machine, &name, &damaged);
    let manager = find(&machine);
    load(&machine, &manager);
    assert!(manager.log(&named("a")).is_none() && manager.has_failed(&named("a")));
    let refused = machine.open_named(&manager, &named("a"));
    assert!(matches!(refused, Err(LogError::Failed { .. })), "{refused:?}");
    let [failed] = &manager.failed_logs()[..] else { panic!() };
    assert!(failed.reason.contains("damaged below the recovery point"), "{failed:?}");
    assert_eq!(machine.fs.read(&name).unwrap(), damaged, "nothing is cut off");
    assert!(manager.offline_directories().is_empty());
    assert_eq!(manager.log(&named("b")).unwrap().values().len(), 20);

    // Not even a clean stop of the others lets it pass for sound.
    manager.shut_down(machine.now());
    assert!(!has_clean_mark(&machine));
    assert_eq!(checkpoint(&machine, RECOVERY_POINTS), "0\n2\na 0 10\nb 0 20\n");
    machine.fs.kill();
    let manager = machine.start().unwrap();
    assert!(manager.has_failed(&named("a")));

    // Put right, it is as it was.
    drop(manager);
    machine.fs.kill();
    write(&machine, &name, &sound);
    assert_eq!(machine.start().unwrap().log(&named("a")).unwrap().values().len(), 20);
}

#[test]
fn a_damaged_log_can_be_deleted() {
    let machine = killed(&["a", "b"]);
    let name = Path::new("/data/a-0").join(last_segment_before(&machine, "/data/a-0", 10));
    let mut damaged = machine.fs.read(&name).unwrap();
    let at = damaged.windows(4).rposition(|four| four == b"sure").unwrap();
    damaged[at] ^= 1;
    write(&machine, &name, &damaged);
    let manager = machine.start().unwrap();
    assert!(manager.has_failed(&named("a")));
    manager.delete(&[named("a")], machine.now()).unwrap();
    assert!(!manager.has_failed(&named("a")));
    assert_eq!(machine.open_named(&manager, &named("a")).unwrap().log_end_offset(), Offset(0));
    manager.shut_down(machine.now());
    assert!(has_clean_mark(&machine));
}

#[test]
fn records_that_cannot_be_read_for_a_lost_index_are_damage() {
    let machine = Machine::small_segments(300);
    let (manager, log) = machine.start_log();
    log.append_times(20, &["value"]);
    manager.shut_down(machine.now());
    drop((manager, log));
    machine.fs.kill();
    let second = machine.files(".log")[1].clone();
    let mut bytes = machine.read(&second);
    let length = bytes.len();
    bytes[length / 2..].fill(0xee);
    machine.overwrite(&second, &bytes);
    machine.fs.remove_file(&machine.file(&second.replace(".log", ".index"))).unwrap();
    let manager = machine.start().unwrap();
    assert!(manager.has_failed(&partition()));
    assert_eq!(machine.read(&second), bytes);
}

/// The segment that holds the record before this offset.
fn last_segment_before(machine: &Machine, folder: &str, offset: i64) -> String {
    let entries = machine.fs.list(Path::new(folder)).unwrap();
    let names = entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(".log"));
    names.filter(|name| name[..20].parse::<i64>().unwrap() < offset).max().unwrap()
}

fn write(machine: &Machine, path: &Path, contents: &[u8]) {
    let file = machine.fs.open(path, crate::runtime::fs::OpenMode::CreateEmpty).unwrap();
    file.write_at(&[std::io::IoSlice::new(contents)], 0).unwrap();
}
