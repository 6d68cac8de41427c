//! The machine stops at every write, sync, rename and removal of long histories; whatever it had done by then, the
//! folder is whole again after the next start: nothing that a check finds is worth more than a note.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::finding::{Report, Severity};
use super::folder;
use crate::log::{
    CleanerOptions, Cleanup, FlushWanted, HashSecret, LoadAllOptions, Log, LogCleaner, LogConfig,
    LogDirectories, LogError, LogManager, Step,
};
use crate::model::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicId, TopicName,
    TopicPartition,
};
use crate::records::{
    AppendOrigin, Batch, BatchBuilder, TransactionMarker, ValidatedBatch, ValidatedRecords,
    end_transaction_marker,
};
use crate::runtime::fs::{FileSystem, MemoryFileSystem};
use crate::runtime::{Clock, Random};

/// How the machine stops.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stop {
    Kill,
    Crash,
    Torn(u64),
}

struct Machine {
    fs: MemoryFileSystem,
    clock: Clock,
}

/// One start of a broker's logs.
struct Run {
    manager: Arc<LogManager>,
    log: Arc<Log>,
    now: Timestamp,
}

const EPOCH: LeaderEpoch = LeaderEpoch(4);
const TOPIC_ID: TopicId = TopicId([7; 16]);

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 500,
        index_interval_bytes: 100,
        min_cleanable_dirty_ratio: 0.0,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

fn partition() -> TopicPartition {
    TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(0))
}

impl Machine {
    fn new() -> Machine {
        let clock = Clock::manual(Timestamp(1_000_000));
        Machine { fs: MemoryFileSystem::new(clock.clone()), clock }
    }

    fn start(&self, config: &LogConfig) -> Result<Run, LogError> {
        let directories = LogDirectories::open(Arc::new(self.fs.clone()), &[PathBuf::from("/data")], 100)?;
        let now = self.clock.now();
        let manager = LogManager::open(directories, Random::from_seed(1), now)?;
        let options = LoadAllOptions {
            config_of: &|_| Arc::new(config.clone()),
            threads_per_directory: 1,
            producer_expiration_ms: i64::MAX,
            now,
        };
        manager.load_all(&options, &mut |_| {})?;
        let log = manager.log_or_create(&partition(), TOPIC_ID, config.clone(), None, now)?;
        log.advance_high_watermark(log.log_end_offset());
        Ok(Run { manager: Arc::new(manager), log, now })
    }

    #[track_caller]
    fn check(&self, context: &str) {
        let mut report = Report::default();
        folder::check(&self.fs, Path::new("/data"), &mut report, &mut |_| {}).unwrap();
        assert!(report.worst() <= Some(Severity::Note), "{context}:\n{report}");
        assert_eq!(report.partitions, 1, "{context}");
    }
}

impl Run {
    fn append(&self, batch: Bytes) -> Result<(), LogError> {
        let batch = Batch::read(batch).unwrap();
        let is_control = batch.header.attributes.is_control();
        let origin = if is_control { AppendOrigin::Coordinator } else { AppendOrigin::Client };
        let batches = vec![ValidatedBatch { header: batch.header, bytes: batch.bytes }];
        let records = ValidatedRecords { batches, log_append_time: None };
        let epoch = self.log.latest_epoch().max(EPOCH);
        self.log.append_as_leader(records, epoch, origin, self.now)?;
        self.log.advance_high_watermark(self.log.log_end_offset());
        Ok(())
    }

    /// Two records of one of a few keys.
    fn data(&self, producer_id: i64, sequence: i32) -> BatchBuilder {
        let mut builder = BatchBuilder::new().producer(ProducerId(producer_id), ProducerEpoch(0), sequence);
        for at in 0..2 {
            let key = format!("key {}", (sequence / 2 + at) % 3);
            builder.append(Timestamp(5_000 + i64::from(sequence)), Some(key.as_bytes()), Some(b"v"), &[]);
        }
        builder
    }

    fn idempotent(&self, producer_id: i64, sequence: i32) -> Result<(), LogError> {
        self.append(self.data(producer_id, sequence).build())
    }

    fn transactional(&self, producer_id: i64, sequence: i32) -> Result<(), LogError> {
        self.append(self.data(producer_id, sequence).transactional().build())
    }

    fn end(&self, producer_id: i64, marker: TransactionMarker) -> Result<(), LogError> {
        let epoch = ProducerEpoch(0);
        self.append(end_transaction_marker(marker, ProducerId(producer_id), epoch, 0, Timestamp(6_000)))
    }

    fn flush(&self) -> Result<(), LogError> {
        self.log.flush(FlushWanted::Everything, self.now)
    }

    fn checkpoint(&self) -> Result<(), LogError> {
        self.manager.recovery_point_tick();
        self.manager.log_start_offset_tick();
        self.manager.high_watermark_tick();
        self.manager.removal_tick(self.now);
        self.is_online()
    }

    fn is_online(&self) -> Result<(), LogError> {
        match self.manager.offline_directories().is_empty() {
            true => Ok(()),
            false => Err(LogError::NoDirectory),
        }
    }

    /// What a follower is sent: batches of one leader epoch, appended together.
    fn follow(&self, epoch: i32, count: i64) -> Result<(), LogError> {
        let mut next = self.log.log_end_offset();
        let mut fetched = Vec::new();
        for _ in 0..count {
            let mut builder = BatchBuilder::new().base_offset(next).leader_epoch(LeaderEpoch(epoch));
            builder.append(Timestamp(7_000 + next.0), Some(b"key 1"), Some(b"fetched"), &[]);
            fetched.extend_from_slice(&builder.build());
            next = next.plus(1);
        }
        self.log.append_as_follower(fetched.into(), self.now)?;
        self.log.advance_high_watermark(self.log.log_end_offset());
        Ok(())
    }
}

/// Appends, rolls, transactions, flushes, checkpoints.
fn lead(run: &Run) -> Result<(), LogError> {
    for round in 0..3 {
        run.idempotent(1, 4 * round)?;
        run.transactional(2, 2 * round)?;
        run.transactional(3, 2 * round)?;
        run.end(2, TransactionMarker::Abort)?;
        run.idempotent(1, 4 * round + 2)?;
        run.end(3, TransactionMarker::Commit)?;
        run.log.flush(FlushWanted::RolledSegments, run.now)?;
    }
    run.transactional(2, 6)?;
    run.flush()?;
    run.checkpoint()?;
    run.idempotent(1, 12)
}

/// Deletes records and segments, truncates in the middle of a transaction, follows, begins anew.
fn follow(run: &Run) -> Result<(), LogError> {
    lead(run)?;
    run.log.delete_records_before(Offset(9))?;
    run.log.update_config(LogConfig { retention_bytes: Some(800), ..config() });
    run.log.apply_retention(run.now)?;
    run.checkpoint()?;
    let end = run.log.log_end_offset();
    run.log.truncate_to(end.plus(-5), run.now)?;
    run.follow(5, 4)?;
    run.follow(5, 3)?;
    run.flush()?;
    run.log.truncate_to(end.plus(-4), run.now)?;
    run.follow(6, 5)?;
    run.checkpoint()?;
    run.log.truncate_fully_and_start_at(Offset(100), run.now)?;
    run.follow(7, 6)?;
    run.follow(7, 6)
}

/// Compacts what was written, twice.
fn compact(run: &Run) -> Result<(), LogError> {
    lead(run)?;
    run.log.update_config(LogConfig { cleanup: Cleanup::COMPACT, ..config() });
    let cleaner = LogCleaner::new(Arc::clone(&run.manager));
    let options = CleanerOptions { map_bytes: 1 << 16, load_factor: 0.9, io_buffer_bytes: 4096 };
    for round in 7..9 {
        while let Some(mut cleaning) = cleaner.pick(&options, HashSecret([3, 4]), run.now) {
            while cleaning.step(run.now)? != Step::Done {}
            cleaner.finish(cleaning, Ok(()), run.now);
        }
        run.is_online()?;
        run.transactional(2, round * 2 - 6)?;
        run.end(2, TransactionMarker::Abort)?;
        run.idempotent(1, 2 * round)?;
        run.flush()?;
        run.checkpoint()?;
    }
    Ok(())
}

/// Deletes the partition and creates it anew.
fn replace(run: &Run) -> Result<(), LogError> {
    lead(run)?;
    run.manager.delete(&[partition()], run.now)?;
    let log = run.manager.log_or_create(&partition(), TOPIC_ID, config(), None, run.now)?;
    let anew = Run { manager: Arc::clone(&run.manager), log, now: run.now };
    anew.idempotent(1, 0)?;
    anew.checkpoint()
}

fn check_every_step(stop: Stop, config: &LogConfig, history: impl Fn(&Run) -> Result<(), LogError>) {
    for step in 0.. {
        let machine = Machine::new();
        let run = machine.start(config).unwrap();
        machine.fs.sync_volume(Path::new("/data")).unwrap();
        machine.fs.stop_at(machine.fs.steps() + step);
        let outcome = history(&run);
        let context = format!("{stop:?} at step {step}, after {outcome:?}");
        drop(run);
        match stop {
            Stop::Kill => machine.fs.kill(),
            Stop::Crash => machine.fs.crash(),
            Stop::Torn(seed) => machine.fs.crash_torn(&Random::from_seed(seed + step)),
        }
        // Another start must come to the same, and appends go on.
        for _ in 0..2 {
            let run = machine.start(config).unwrap_or_else(|error| panic!("{context}: {error}"));
            run.idempotent(9, 0).unwrap_or_else(|error| panic!("{context}: {error}"));
            run.flush().unwrap();
            machine.check(&format!("{context}, served again"));
            run.manager.shut_down(run.now);
            machine.check(&format!("{context}, closed"));
            drop(run);
            machine.fs.kill();
        }
        if outcome.is_ok() {
            assert!(step > 30, "a history of {step} steps is none");
            return;
        }
    }
}

const STOPS: [Stop; 4] = [Stop::Kill, Stop::Crash, Stop::Torn(1), Stop::Torn(1_000)];

#[test]
fn a_leaders_folder_is_whole_after_a_stop_at_any_step() {
    STOPS.into_iter().for_each(|stop| check_every_step(stop, &config(), lead));
}

#[test]
fn a_followers_folder_is_whole_after_a_stop_at_any_step() {
    STOPS.into_iter().for_each(|stop| check_every_step(stop, &config(), follow));
}

#[test]
fn a_compacted_folder_is_whole_after_a_stop_at_any_step() {
    let compacted = LogConfig { cleanup: Cleanup::COMPACT, ..config() };
    STOPS.into_iter().for_each(|stop| check_every_step(stop, &compacted, compact));
}

#[test]
fn a_folder_with_a_deletion_is_whole_after_a_stop_at_any_step() {
    STOPS.into_iter().for_each(|stop| check_every_step(stop, &config(), replace));
}
