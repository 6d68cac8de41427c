//! The machine stops at every write, sync, rename and removal of a long history; whatever it had done by
//! then, the log opens again, whole, with all that was promised.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::super::testing::*;
use super::super::{FlushWanted, Log, LogConfig, LogError, LogManager};
use crate::model::Offset;
use crate::runtime::Random;
use crate::runtime::fs::FileSystem;

/// What a history may have left behind.
#[derive(Default)]
struct Promises {
    /// Everything that was ever asked to be written at an offset.
    written: BTreeMap<i64, Vec<String>>,
    /// Records below were acknowledged, so that only a power loss may take them.
    acknowledged_end: i64,
    /// Records below were flushed, so that nothing may take them.
    flushed_end: i64,
    /// The log may begin anywhere up to here: a raised start is kept only by a checkpoint.
    start_max: i64,
    next_sequence: i32,
}

/// How the machine stops.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stop {
    Kill,
    Crash,
    Torn(u64),
}

struct History {
    machine: Arc<Machine>,
    manager: LogManager,
    log: Arc<Log>,
    promises: Promises,
}

impl History {
    fn append(&mut self, count: usize) -> Result<(), LogError> {
        for _ in 0..count {
            let offset = self.log.log_end_offset().0;
            let values: Vec<String> =
                (0..2).map(|at| format!("{}-{}", offset + at, self.promises.next_sequence)).collect();
            for (at, value) in (offset..).zip(&values) {
                self.promises.written.entry(at).or_default().push(value.clone());
            }
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            self.log.append_batch(sequenced(7, self.promises.next_sequence, &values))?;
            self.promises.next_sequence += 2;
            self.promises.acknowledged_end = offset + 2;
        }
        Ok(())
    }

    fn flush(&mut self, wanted: FlushWanted) -> Result<(), LogError> {
        self.log.flush(wanted, self.machine.now())?;
        self.promises.flushed_end = self.log.recovery_point().0;
        Ok(())
    }

    fn delete_records(&mut self, offset: i64) -> Result<(), LogError> {
        self.promises.start_max = self.promises.start_max.max(offset);
        self.log.delete_records_before(Offset(offset)).map(|_| ())
    }

    fn retain(&mut self) -> Result<(), LogError> {
        self.promises.start_max = self.log.log_end_offset().0;
        self.log.apply_retention(self.machine.now())?;
        self.machine.clock.advance_ms(60_001);
        self.manager.removal_tick(self.machine.now());
        self.log.directory().ensure_online()
    }

    fn truncate(&mut self, offset: i64) -> Result<(), LogError> {
        self.promises.acknowledged_end = self.promises.acknowledged_end.min(offset);
        self.promises.flushed_end = self.promises.flushed_end.min(offset);
        self.log.truncate_to(Offset(offset), self.machine.now())?;
        // The producer's last batch is now the one before the cut.
        self.promises.next_sequence = offset as i32;
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), LogError> {
        self.manager.recovery_point_tick();
        self.manager.log_start_offset_tick();
        self.manager.high_watermark_tick();
        self.log.directory().ensure_online()
    }

    fn restart(&mut self) -> Result<(), LogError> {
        self.manager.shut_down(self.machine.now());
        self.log.directory().ensure_online()?;
        self.promises.flushed_end = self.log.log_end_offset().0;
        self.machine.fs.kill();
        self.manager = self.machine.start()?;
        self.log = self.machine.open(&self.manager)?;
        Ok(())
    }

    /// All that a log goes through.
    fn run(&mut self) -> Result<(), LogError> {
        self.append(6)?;
        self.flush(FlushWanted::RolledSegments)?;
        self.append(2)?;
        self.flush(FlushWanted::Everything)?;
        self.checkpoint()?;
        self.append(5)?;
        self.delete_records(7)?;
        self.checkpoint()?;
        self.retain()?;
        self.append(3)?;
        self.truncate(26)?;
        self.append(4)?;
        self.checkpoint()
    }

    fn run_with_restart(&mut self) -> Result<(), LogError> {
        self.append(7)?;
        self.restart()?;
        self.append(3)?;
        self.flush(FlushWanted::Everything)?;
        self.restart()?;
        self.append(1)
    }
}

fn machine() -> Machine {
    let mut machine = Machine::small_segments(400);
    machine.config = LogConfig { retention_bytes: Some(800), ..machine.config };
    machine
}

/// Runs a history up to each of its steps in turn.
fn check_every_step(stop: Stop, run: impl Fn(&mut History) -> Result<(), LogError>) {
    for step in 0.. {
        let machine = Arc::new(machine());
        let (manager, log) = machine.start_log();
        let mut history = History { machine: machine.clone(), manager, log, promises: Promises::default() };
        machine.fs.sync_volume(Path::new("/data")).unwrap();
        machine.fs.stop_at(machine.fs.steps() + step);
        let outcome = run(&mut history);
        let Promises { mut acknowledged_end, flushed_end, .. } = history.promises;
        match stop {
            Stop::Kill => machine.fs.kill(),
            Stop::Crash => machine.fs.crash(),
            Stop::Torn(seed) => machine.fs.crash_torn(&Random::from_seed(seed + step)),
        }
        if stop != Stop::Kill {
            acknowledged_end = flushed_end;
        }
        let context = format!("{stop:?} at step {step}, after {outcome:?}");
        check_reopened(&machine, &history.promises, acknowledged_end, &context);
        let is_stopped = format!("{outcome:?}").contains("stopped") || history.log.directory().is_offline();
        assert!(outcome.is_ok() || is_stopped, "{context}");
        if outcome.is_ok() {
            assert!(step > 30, "a history of {step} steps is none");
            return;
        }
    }
}

fn check_reopened(machine: &Machine, promises: &Promises, end_min: i64, context: &str) {
    let (manager, log) = machine.start_log();
    let end = check_contents(&log, promises, end_min, context);
    machine.check_files(&log);

    // What was recovered is durable, and the log goes on.
    machine.fs.crash();
    drop(manager);
    let (manager, log) = machine.start_log();
    assert_eq!(check_contents(&log, promises, end, context), end, "{context}: recovered twice");
    let info = log.append_values(&["more"]).unwrap();
    assert_eq!(info.first_offset, Offset(end), "{context}");
    machine.check_files(&log);
    manager.shut_down(machine.now());
    machine.fs.crash();
    let (_, log) = machine.start_log();
    assert_eq!(log.log_end_offset(), Offset(end + 1), "{context}: after a clean shutdown");
    machine.check_files(&log);
}

fn check_contents(log: &Log, promises: &Promises, end_min: i64, context: &str) -> i64 {
    let (start, end) = (log.log_start_offset().0, log.log_end_offset().0);
    assert!(end >= end_min, "{context}: the log ends at {end}, {end_min} was promised");
    assert!(start <= promises.start_max, "{context}: the log starts at {start}");
    let values = log.values();
    let offsets: Vec<i64> = values.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, (start..end).collect::<Vec<i64>>(), "{context}");
    for (offset, value) in values {
        let may_be = promises.written.get(&offset).is_some_and(|written| written.contains(&value));
        assert!(may_be, "{context}: {value} at {offset}");
    }
    end
}

#[test]
fn a_kill_at_any_step_loses_nothing_that_was_acknowledged() {
    check_every_step(Stop::Kill, History::run);
    check_every_step(Stop::Kill, History::run_with_restart);
}

#[test]
fn a_power_loss_at_any_step_loses_nothing_that_was_flushed() {
    check_every_step(Stop::Crash, History::run);
    check_every_step(Stop::Crash, History::run_with_restart);
}

#[test]
fn a_power_loss_that_tears_files_at_any_step_loses_nothing_that_was_flushed() {
    for seed in [1, 1_000, 2_000] {
        check_every_step(Stop::Torn(seed), History::run);
        check_every_step(Stop::Torn(seed), History::run_with_restart);
    }
}

/// Deletes a partition and creates it anew, with other records.
fn replace_partition(machine: &Machine, manager: &LogManager) -> Result<(), LogError> {
    manager.delete(&[partition()], machine.now())?;
    let log = machine.open(manager)?;
    for _ in 0..6 {
        log.append_values(&["new", "new"])?;
    }
    machine.clock.advance_ms(60_001);
    manager.removal_tick(machine.now());
    log.directory().ensure_online()
}

#[test]
fn a_deleted_partition_never_mixes_with_the_next_of_its_name() {
    for stop in [Stop::Kill, Stop::Crash, Stop::Torn(5)] {
        for step in 0.. {
            let machine = machine();
            let (manager, log) = machine.start_log();
            for _ in 0..9 {
                log.append_values(&["old"]).unwrap();
            }
            log.delete_records_before(Offset(2)).unwrap();
            log.flush(FlushWanted::Everything, machine.now()).unwrap();
            manager.recovery_point_tick();
            manager.log_start_offset_tick();
            machine.fs.stop_at(machine.fs.steps() + step);
            let outcome = replace_partition(&machine, &manager);
            match stop {
                Stop::Kill => machine.fs.kill(),
                Stop::Crash => machine.fs.crash(),
                Stop::Torn(seed) => machine.fs.crash_torn(&Random::from_seed(seed + step)),
            }
            let (_, log) = machine.start_log();
            let context = format!("{stop:?} at step {step}, after {outcome:?}: {:?}", log.values());
            let values: Vec<String> = log.values().into_iter().map(|(_, value)| value).collect();
            let is_old = values.len() == 7 && values.iter().all(|value| value == "old");
            let is_new = values.iter().all(|value| value == "new") && log.log_start_offset() == Offset(0);
            assert!(is_new || (is_old && outcome.is_err()), "{context}");
            assert!(stop != Stop::Kill || outcome.is_err() || values.len() == 12, "{context}");
            for _ in 0..3 {
                log.append_values(&["next"]).unwrap();
            }
            let before = (log.log_start_offset(), log.values());
            machine.fs.kill();
            let (_, log) = machine.start_log();
            assert_eq!((log.log_start_offset(), log.values()), before, "{context}");
            machine.check_files(&log);
            if outcome.is_ok() {
                break;
            }
        }
    }
}
