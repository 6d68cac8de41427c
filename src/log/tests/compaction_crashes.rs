//! The machine stops at every write, sync, rename and removal of a cleaning; whatever was done by then, the
//! log opens again with the same contents, and is cleaned to the same end.

use std::path::Path;
use std::sync::Arc;

use super::super::testing::*;
use super::super::{FlushWanted, LogError};
use super::compaction::{Compacted, OPTIONS, all_batches, committed, config, keyed, producer};
use crate::model::Offset;
use crate::records::{Codec, TransactionMarker};
use crate::runtime::Random;
use crate::runtime::fs::FileSystem;

/// How the machine stops.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stop {
    Kill,
    Crash,
    Torn(u64),
}

/// A log with all that a cleaning meets, durable, its dirty part ready.
fn prepared() -> Compacted {
    let compacted = Compacted::with(config());
    let transaction = |sequence, outcome| {
        let records = [("a", Some("in")), ("t", Some("in"))];
        let batch = keyed(producer(7, sequence).transactional(), &records);
        compacted.log.append_batch(batch).unwrap();
        compacted.log.append_batch(marker(7, outcome)).unwrap();
    };
    for round in 0..3 {
        compacted.append(&[("a", Some("1")), ("b", Some("2")), ("c", None)]);
        transaction(4 * round, TransactionMarker::Abort);
        transaction(4 * round + 2, TransactionMarker::Commit);
        let builder = producer(8, 2 * round).compression(Codec::Lz4, None);
        compacted.log.append_batch(keyed(builder, &[("a", Some("3")), ("d", Some("4"))])).unwrap();
        compacted.roll("x");
    }
    compacted.clean_with(&OPTIONS).unwrap();
    for _ in 0..2 {
        compacted.append(&[("a", Some("5")), ("b", None)]);
        compacted.roll("x");
    }
    compacted.log.flush(FlushWanted::Everything, compacted.machine.now()).unwrap();
    compacted.manager.recovery_point_tick();
    compacted.manager.high_watermark_tick();
    compacted.machine.fs.sync_volume(Path::new("/data")).unwrap();
    compacted
}

fn clean(compacted: &Compacted) -> Result<(), LogError> {
    compacted.clean_with(&OPTIONS)?;
    compacted.machine.clock.advance_ms(60_001);
    compacted.manager.removal_tick(compacted.machine.now());
    compacted.log.directory().ensure_online()
}

/// What a consumer makes of the log: the last value of each key.
fn latest(compacted: &Compacted) -> std::collections::BTreeMap<String, Option<String>> {
    committed(&compacted.log).into_iter().map(|(_, key, value)| (key, value)).collect()
}

fn check_every_step(stop: Stop) {
    let model = prepared();
    let (before, end) = (latest(&model), model.log.log_end_offset());
    clean(&model).unwrap();
    let after = committed(&model.log);
    assert!(after.len() < before.len() + 10 && model.log.count_segments() > 1);
    for step in 0.. {
        let compacted = prepared();
        let fs = compacted.machine.fs.clone();
        fs.stop_at(fs.steps() + step);
        let outcome = clean(&compacted);
        match stop {
            Stop::Kill => fs.kill(),
            Stop::Crash => fs.crash(),
            Stop::Torn(seed) => fs.crash_torn(&Random::from_seed(seed + step)),
        }
        let context = format!("{stop:?} at step {step}, after {outcome:?}");
        let compacted = Compacted::start(compacted.machine);
        assert_eq!(compacted.log.log_end_offset(), end, "{context}");
        assert_eq!(latest(&compacted), before, "{context}");
        let left = [compacted.machine.files(".cleaned"), compacted.machine.files(".swap")];
        assert!(left.iter().all(Vec::is_empty), "{context}: {left:?}");
        compacted.machine.check_files(&compacted.log);
        check_goes_on(&compacted, &after, &context);
        if outcome.is_ok() {
            assert!(step > 30, "a cleaning of {step} steps is none");
            return;
        }
    }
}

/// The next cleaning comes to the same end, producers go on, and a restart finds all of that.
fn check_goes_on(compacted: &Compacted, after: &[(i64, String, Option<String>)], context: &str) {
    compacted.clean_with(&OPTIONS).unwrap();
    compacted.machine.check_files(&compacted.log);
    assert_eq!(committed(&compacted.log), after, "{context}");
    let batch = keyed(producer(8, 6), &[("e", Some("6"))]);
    assert!(!compacted.log.append_batch(batch).unwrap().is_duplicate, "{context}");
    let offsets = |compacted: &Compacted| -> Vec<Offset> {
        all_batches(&compacted.log).iter().map(|batch| batch.header.base_offset).collect()
    };
    let before = (committed(&compacted.log), offsets(compacted));
    compacted.manager.shut_down(compacted.machine.now());
    compacted.machine.fs.crash();
    let again = Compacted::start(Arc::clone(&compacted.machine));
    assert_eq!((committed(&again.log), offsets(&again)), before, "{context}: after a clean shutdown");
    again.machine.check_files(&again.log);
}

#[test]
fn a_kill_at_any_step_of_a_cleaning_changes_nothing_that_readers_see() {
    check_every_step(Stop::Kill);
}

#[test]
fn a_power_loss_at_any_step_of_a_cleaning_changes_nothing_that_readers_see() {
    check_every_step(Stop::Crash);
}

#[test]
fn a_power_loss_that_tears_files_at_any_step_of_a_cleaning_changes_nothing_that_readers_see() {
    for seed in [1, 1_000, 2_000] {
        check_every_step(Stop::Torn(seed));
    }
}
