//! Compaction of whole logs: what stays, what readers see, and what a restart finds.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::super::testing::*;
use super::super::{
    AbortedTransaction, CleanerOptions, Cleanup, FlushWanted, HashSecret, Log, LogCleaner, LogConfig,
    LogError, LogManager, Step,
};
use crate::model::{Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::records::{Batch, BatchBuilder, Codec, TransactionMarker};
use crate::runtime::fs::FileSystem;

pub(super) const OPTIONS: CleanerOptions =
    CleanerOptions { map_bytes: 1 << 20, load_factor: 0.9, io_buffer_bytes: 4096 };

/// A broker with one compacted log, whose segments hold a few batches.
pub(super) struct Compacted {
    pub(super) machine: Arc<Machine>,
    pub(super) manager: Arc<LogManager>,
    pub(super) cleaner: LogCleaner,
    pub(super) log: Arc<Log>,
}

pub(super) fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 400,
        index_interval_bytes: 100,
        cleanup: Cleanup::COMPACT,
        min_cleanable_dirty_ratio: 0.0,
        delete_retention_ms: 60_000,
        ..LogConfig::default()
    }
}

impl Compacted {
    pub(super) fn new() -> Compacted {
        Compacted::with(config())
    }

    pub(super) fn with(config: LogConfig) -> Compacted {
        Compacted::start(Arc::new(Machine::new(config)))
    }

    pub(super) fn start(machine: Arc<Machine>) -> Compacted {
        let (manager, log) = machine.start_log();
        log.advance_high_watermark(log.log_end_offset());
        let manager = Arc::new(manager);
        Compacted { machine, cleaner: LogCleaner::new(manager.clone()), manager, log }
    }

    /// As after a kill.
    pub(super) fn restart(self) -> Compacted {
        self.machine.fs.kill();
        Compacted::start(self.machine)
    }

    /// Cleans until no log is due; answers how many cleanings that took.
    pub(super) fn clean_with(&self, options: &CleanerOptions) -> Result<usize, LogError> {
        let mut count = 0;
        while let Some(mut cleaning) = self.cleaner.pick(options, HashSecret([3, 4]), self.machine.now()) {
            while cleaning.step(self.machine.now())? != Step::Done {}
            self.cleaner.finish(cleaning, Ok(()), self.machine.now());
            count += 1;
            assert!(count < 1_000, "cleaning makes no progress");
        }
        Ok(count)
    }

    pub(super) fn clean(&self) {
        self.clean_with(&OPTIONS).unwrap();
        self.machine.check_files(&self.log);
    }

    pub(super) fn append(&self, records: &[(&str, Option<&str>)]) {
        self.log.append_batch(keyed(BatchBuilder::new(), records)).unwrap();
    }

    /// Appends enough of other keys to begin a new segment.
    pub(super) fn roll(&self, filler: &str) {
        let base_offset = self.log.active_segment_base_offset();
        for number in 0.. {
            if self.log.active_segment_base_offset() > base_offset {
                return;
            }
            self.append(&[(&format!("{filler} {number}"), Some("."))]);
        }
    }

    /// The batches of the inactive segments.
    fn batches(&self) -> Vec<Batch> {
        all_batches(&self.log)
            .into_iter()
            .filter(|batch| batch.header.base_offset < self.log.active_segment_base_offset())
            .collect()
    }

    /// The records of some keys as a consumer sees them.
    fn of(&self, keys: &[&str]) -> Vec<(i64, String, Option<String>)> {
        let mut seen = committed(&self.log);
        seen.retain(|(_, key, _)| keys.contains(&key.as_str()));
        seen
    }
}

pub(super) fn keyed(mut builder: BatchBuilder, records: &[(&str, Option<&str>)]) -> Bytes {
    for (key, value) in records {
        builder.append(Timestamp(5_000), Some(key.as_bytes()), value.map(str::as_bytes), &[]);
    }
    builder.build()
}

pub(super) fn producer(producer_id: i64, sequence: i32) -> BatchBuilder {
    BatchBuilder::new().producer(ProducerId(producer_id), ProducerEpoch(0), sequence)
}

pub(super) fn all_batches(log: &Log) -> Vec<Batch> {
    let mut found = Vec::new();
    let mut next = log.log_start_offset();
    while next < log.log_end_offset() {
        let read = log.read(next, 500, log.log_end_offset(), true).unwrap();
        let batches = read_batches(&read);
        let Some(last) = batches.last() else { break };
        next = last.header.next_offset();
        found.extend(batches);
    }
    found
}

/// The data records below the last stable offset that a `read_committed` consumer is given.
pub(super) fn committed(log: &Log) -> Vec<(i64, String, Option<String>)> {
    let bound = log.last_stable_offset();
    let mut aborted: Vec<AbortedTransaction> =
        log.aborted_transactions(log.log_start_offset(), bound).unwrap();
    let mut open: Vec<ProducerId> = Vec::new();
    let mut seen = Vec::new();
    for batch in all_batches(log) {
        batch.check_crc().unwrap();
        let header = &batch.header;
        if header.last_offset() >= bound {
            break;
        }
        aborted.retain(|transaction| {
            let begins = transaction.first_offset <= header.last_offset();
            if begins {
                open.push(transaction.producer_id);
            }
            !begins
        });
        if header.attributes.is_control() {
            if batch.end_transaction().unwrap().is_some_and(|end| end.marker == TransactionMarker::Abort) {
                let at = open.iter().position(|producer_id| *producer_id == header.producer_id);
                at.map(|at| open.remove(at));
            }
            continue;
        }
        if header.attributes.is_transactional() && open.contains(&header.producer_id) {
            continue;
        }
        for record in batch.records().unwrap() {
            let record = record.unwrap();
            let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            let key = record.key.as_ref().map(text).unwrap_or_default();
            seen.push((record.offset(header).0, key, record.value.as_ref().map(text)));
        }
    }
    seen
}

fn entry(offset: i64, key: &str, value: Option<&str>) -> (i64, String, Option<String>) {
    (offset, key.to_owned(), value.map(str::to_owned))
}

#[test]
fn the_last_record_of_each_key_stays_where_it_was() {
    let compacted = Compacted::new();
    compacted.append(&[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]);
    compacted.append(&[("c", Some("1"))]);
    compacted.append(&[("b", Some("2")), ("b", Some("3"))]);
    compacted.roll("x");
    let end = compacted.log.log_end_offset();
    compacted.clean();
    let expected = [entry(2, "a", Some("2")), entry(3, "c", Some("1")), entry(5, "b", Some("3"))];
    assert_eq!(compacted.of(&["a", "b", "c"]), expected);
    assert_eq!(compacted.log.log_end_offset(), end);
    // A batch keeps the offsets it had; what was taken out is passed over.
    let bases: Vec<i64> = compacted.batches().iter().map(|batch| batch.header.base_offset.0).collect();
    assert_eq!(bases[..3], [0, 3, 4]);
    let from_1 = read_batches(&compacted.log.read(Offset(1), 1, end, true).unwrap());
    assert_eq!(from_1[0].header.last_offset(), Offset(2));
    let compacted = compacted.restart();
    assert_eq!(compacted.of(&["a", "b", "c"]), expected);
    assert_eq!(compacted.log.log_end_offset(), end);
}

#[test]
fn the_active_segment_and_what_is_not_replicated_stay_as_they_are() {
    let compacted = Compacted::new();
    compacted.append(&[("a", Some("1")), ("a", Some("2"))]);
    compacted.clean();
    assert_eq!(compacted.of(&["a"]).len(), 2);
    compacted.roll("x");
    compacted.append(&[("a", Some("3"))]);
    compacted.clean();
    assert_eq!(compacted.of(&["a"]), [entry(1, "a", Some("2")), compacted.of(&["a"])[1].clone()]);
}

#[test]
fn compressed_batches_are_rewritten_in_their_codec() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let compacted = Compacted::new();
        let builder = BatchBuilder::new().compression(codec, None);
        compacted.log.append_batch(keyed(builder, &[("a", Some("1")), ("a", Some("2"))])).unwrap();
        compacted.roll("x");
        compacted.clean();
        assert_eq!(compacted.of(&["a"]), [entry(1, "a", Some("2"))]);
        assert_eq!(compacted.batches()[0].header.attributes.codec(), Ok(codec));
    }
}

#[test]
fn cleaned_segments_are_joined_and_old_files_go() {
    let compacted = Compacted::new();
    for number in 0..10 {
        compacted.append(&[("a", Some("1")), ("b", Some("2"))]);
        compacted.roll(&format!("x{}", number % 2));
    }
    let before = compacted.log.count_segments();
    compacted.clean();
    // The next cleaning finds the segments small.
    compacted.roll("y");
    compacted.clean();
    assert!(compacted.log.count_segments() < before, "{before}");
    assert!(!compacted.machine.files(".deleted").is_empty());
    assert!(compacted.machine.files(".cleaned").is_empty() && compacted.machine.files(".swap").is_empty());
    compacted.machine.clock.advance_ms(60_001);
    compacted.manager.removal_tick(compacted.machine.now());
    assert!(compacted.machine.files(".deleted").is_empty());
}

#[test]
fn a_map_that_is_too_small_takes_several_cleanings() {
    let small = CleanerOptions { map_bytes: 4 * 24, load_factor: 0.75, ..OPTIONS };
    let (large_map, small_map) = (Compacted::new(), Compacted::new());
    for compacted in [&large_map, &small_map] {
        for number in 0..40 {
            let keys = [format!("k{}", number % 7), format!("k{}", number % 5)];
            compacted.append(&[(&keys[0], Some("v")), (&keys[1], Some("w"))]);
        }
        compacted.roll("x");
    }
    assert_eq!(large_map.clean_with(&OPTIONS).unwrap(), 1);
    assert!(small_map.clean_with(&small).unwrap() > 3);
    assert_eq!(committed(&small_map.log), committed(&large_map.log));
}

/// C033
#[test]
fn a_tombstone_stays_for_its_retention_and_never_goes_before_what_it_deletes() {
    let compacted = Compacted::new();
    compacted.append(&[("k", Some("v"))]);
    compacted.roll("x");
    compacted.append(&[("k", None)]);
    compacted.roll("y");
    for _ in 0..5 {
        compacted.clean();
        assert!(matches!(&compacted.of(&["k"])[..], [(_, _, None)]), "{:?}", compacted.of(&["k"]));
        compacted.machine.clock.advance_ms(12_000);
        compacted.roll("z");
    }
    // The first cleaning was 60 s ago: the next one may take it.
    compacted.clean();
    assert_eq!(compacted.of(&["k"]), []);
    let compacted = compacted.restart();
    assert_eq!(compacted.of(&["k"]), []);
}

#[test]
fn a_tombstone_counts_its_retention_from_the_first_cleaning_and_keeps_its_time() {
    let compacted = Compacted::new();
    compacted.append(&[("k", None), ("l", Some("v"))]);
    compacted.roll("x");
    compacted.machine.clock.advance_ms(1_000_000);
    compacted.clean();
    let first = &compacted.batches()[0];
    assert!(first.header.attributes.has_delete_horizon());
    assert_eq!(first.header.base_timestamp, compacted.machine.now().plus_ms(60_000));
    let times: Vec<Timestamp> =
        first.records().unwrap().map(|record| record.unwrap().timestamp(&first.header)).collect();
    assert_eq!(times, [Timestamp(5_000); 2]);
}

fn abort(compacted: &Compacted, producer_id: i64) {
    compacted.log.append_batch(marker(producer_id, TransactionMarker::Abort)).unwrap();
}

fn commit(compacted: &Compacted, producer_id: i64) {
    compacted.log.append_batch(marker(producer_id, TransactionMarker::Commit)).unwrap();
}

fn in_transaction(compacted: &Compacted, producer_id: i64, sequence: i32, records: &[(&str, Option<&str>)]) {
    let batch = keyed(producer(producer_id, sequence).transactional(), records);
    compacted.log.append_batch(batch).unwrap();
}

#[test]
fn an_aborted_record_replaces_nothing_and_goes() {
    let compacted = Compacted::new();
    compacted.append(&[("a", Some("good"))]);
    in_transaction(&compacted, 1, 0, &[("a", Some("bad")), ("b", Some("bad"))]);
    abort(&compacted, 1);
    compacted.roll("x");
    compacted.clean();
    assert_eq!(compacted.of(&["a", "b"]), [entry(0, "a", Some("good"))]);
    let data: Vec<i32> = compacted.batches().iter().map(|batch| batch.header.record_count).collect();
    // The aborted batch stays, empty: it is its producer's last.
    assert_eq!(data[..3], [1, 0, 1]);
}

#[test]
fn an_open_transaction_keeps_its_segment_and_later_ones_from_being_cleaned() {
    let compacted = Compacted::new();
    compacted.append(&[("a", Some("1")), ("a", Some("2"))]);
    compacted.roll("x");
    in_transaction(&compacted, 1, 0, &[("a", Some("3"))]);
    compacted.roll("y");
    compacted.append(&[("b", Some("1")), ("b", Some("2"))]);
    compacted.roll("z");
    compacted.clean();
    assert_eq!(compacted.of(&["a"]), [entry(1, "a", Some("2"))]);
    let of_b = |batch: &&Batch| batch.header.record_count == 2;
    assert_eq!(all_batches(&compacted.log).iter().filter(of_b).count(), 1);
    commit(&compacted, 1);
    compacted.roll("w");
    compacted.clean();
    let of_a: Vec<Option<String>> = compacted.of(&["a"]).into_iter().map(|(_, _, value)| value).collect();
    assert_eq!(of_a, [Some("3".to_owned())]);
    assert_eq!(compacted.of(&["b"]).len(), 1);
}

/// KAFKA-14055, C031: keys that are equal to those of control records.
#[test]
fn markers_stay_as_long_as_their_transactions_whatever_keys_say() {
    let compacted = Compacted::with(LogConfig { segment_bytes: 1_000, ..config() });
    let small = CleanerOptions { map_bytes: 5 * 24, ..OPTIONS };
    let keys = ["\0\0\0\0", "\0\0\0\u{1}", "a", "b"];
    let mut expected = BTreeMap::new();
    for number in 0..200 {
        let (producer_id, key) = (number % 3, keys[number as usize % 4]);
        let sequence = (number / 3) as i32;
        let value = number.to_string();
        in_transaction(&compacted, producer_id, sequence, &[(key, Some(&value))]);
        if number % 2 == 0 {
            abort(&compacted, producer_id);
        } else {
            commit(&compacted, producer_id);
            expected.insert(key.to_owned(), Some(value));
        }
        if number % 50 == 49 {
            compacted.clean_with(&small).unwrap();
            let latest: BTreeMap<String, Option<String>> =
                committed(&compacted.log).into_iter().map(|(_, key, value)| (key, value)).collect();
            assert_eq!(latest, expected);
        }
    }
    let log = &compacted.log;
    assert_eq!(log.last_stable_offset(), log.high_watermark());
    // Every abort that still has records is in an index.
    let aborted = log.aborted_transactions(Offset(0), log.log_end_offset()).unwrap();
    for batch in all_batches(log) {
        let header = &batch.header;
        let is_odd = header.record_count > 0 && !header.attributes.is_control();
        let outcome = batch.records().unwrap().next().filter(|_| is_odd).map(|record| record.unwrap().value);
        if let Some(Some(value)) = outcome {
            let number: i64 = std::str::from_utf8(&value).unwrap().parse().unwrap();
            let covers = |transaction: &&AbortedTransaction| {
                transaction.producer_id == header.producer_id
                    && (transaction.first_offset..=transaction.last_offset).contains(&header.base_offset)
            };
            assert_eq!(aborted.iter().any(|aborted| covers(&aborted)), number % 2 == 0, "{number}");
        }
    }
    let before = committed(log);
    let compacted = compacted.restart();
    assert_eq!(committed(&compacted.log), before);
}

#[test]
fn markers_go_when_nothing_of_their_transaction_is_left_and_their_retention_is_over() {
    let compacted = Compacted::new();
    in_transaction(&compacted, 1, 0, &[("a", Some("1"))]);
    abort(&compacted, 1);
    in_transaction(&compacted, 2, 0, &[("a", Some("2"))]);
    commit(&compacted, 2);
    // Later batches of the producers, so that the first ones need not stay for them.
    in_transaction(&compacted, 1, 1, &[("b", Some("1"))]);
    commit(&compacted, 1);
    in_transaction(&compacted, 2, 1, &[("a", Some("3"))]);
    commit(&compacted, 2);
    compacted.roll("x");
    let markers = |compacted: &Compacted| -> Vec<i64> {
        let markers = compacted.batches().into_iter().filter(|batch| batch.header.attributes.is_control());
        markers.map(|batch| batch.header.base_offset.0).collect()
    };
    compacted.clean();
    assert_eq!(markers(&compacted), [1, 3, 5, 7]);
    // The second cleaning sees that nothing is left, and sets the horizon; the index goes at once.
    compacted.roll("y");
    compacted.clean();
    assert_eq!(markers(&compacted), [1, 3, 5, 7]);
    assert_eq!(compacted.log.aborted_transactions(Offset(0), Offset(9)).unwrap(), []);
    compacted.machine.clock.advance_ms(60_000);
    compacted.roll("z");
    compacted.clean();
    assert_eq!(markers(&compacted), [5, 7]);
}

#[test]
fn a_producer_goes_on_after_its_records_were_compacted_away() {
    let compacted = Compacted::new();
    compacted.log.append_batch(keyed(producer(7, 0), &[("a", Some("1")), ("a", Some("2"))])).unwrap();
    compacted.log.append_batch(keyed(producer(7, 2), &[("b", Some("1")), ("a", Some("3"))])).unwrap();
    compacted.append(&[("a", Some("4")), ("b", Some("2"))]);
    compacted.roll("x");
    compacted.clean();
    let first = compacted.batches()[0].header;
    assert_eq!((first.base_offset, first.last_offset(), first.record_count), (Offset(2), Offset(3), 0));
    assert_eq!((first.producer_id, first.base_sequence, first.last_sequence()), (ProducerId(7), 2, 3));
    for name in compacted.machine.files(".snapshot") {
        compacted.machine.fs.remove_file(&compacted.machine.file(&name)).unwrap();
    }
    let compacted = compacted.restart();
    let again = compacted.log.append_batch(keyed(producer(7, 2), &[("b", Some("1")), ("a", Some("3"))]));
    assert!(again.unwrap().is_duplicate);
    assert!(compacted.log.append_batch(keyed(producer(7, 6), &[("a", Some("5"))])).is_err());
    compacted.log.append_batch(keyed(producer(7, 4), &[("a", Some("5"))])).unwrap();
}

/// KAFKA-17076, KAFKA-7385, C032
#[test]
fn the_end_of_the_log_outlives_the_records_there() {
    let compacted = Compacted::new();
    for _ in 0..30 {
        compacted.append(&[("a", Some("1")), ("b", Some("2"))]);
    }
    compacted.roll("a");
    let end = compacted.log.log_end_offset();
    compacted.clean();
    let last = compacted.batches().last().unwrap().header;
    assert_eq!(last.next_offset(), compacted.log.active_segment_base_offset());
    // A consumer that is given a little at a time gets to the end, from wherever it begins.
    for from in 0..end.0 {
        let mut next = Offset(from);
        while next < end {
            let batches = read_batches(&compacted.log.read(next, 100, end, true).unwrap());
            assert!(!batches.is_empty(), "stuck at {next}, from {from}");
            next = batches.last().unwrap().header.next_offset();
        }
        assert_eq!(next, end);
    }
    let compacted = compacted.restart();
    assert_eq!(compacted.log.log_end_offset(), end);
}

#[test]
fn records_without_a_key_go() {
    let compacted = Compacted::new();
    compacted.log.append_values(&["keyless"]).unwrap();
    compacted.append(&[("a", Some("1"))]);
    compacted.roll("x");
    compacted.clean();
    assert_eq!(committed(&compacted.log)[0], entry(1, "a", Some("1")));
}

/// KAFKA-6834, KAFKA-9826, KAFKA-9133, C036
#[test]
fn an_odd_log_keeps_no_other_from_being_cleaned_and_is_tried_again() {
    let machine = Arc::new(Machine::new(config()));
    let manager = Arc::new(machine.start().unwrap());
    let cleaner = LogCleaner::new(manager.clone());
    let open = |name: &str| {
        let id = crate::model::TopicId([1; 16]);
        let log = manager.log_or_create(&named(name), id, config(), None, machine.now()).unwrap();
        Compacted {
            machine: machine.clone(),
            cleaner: LogCleaner::new(manager.clone()),
            manager: manager.clone(),
            log,
        }
    };
    let [healthy, damaged, large, short] = ["healthy", "damaged", "large", "short"].map(open);
    for compacted in [&healthy, &damaged, &large, &short] {
        compacted.append(&[("a", Some("1")), ("a", Some("2"))]);
        compacted.roll("x");
    }
    // A batch far above what the topic now takes, and above the I/O buffer.
    let value = "v".repeat(20_000);
    large.log.update_config(LogConfig { segment_bytes: 1 << 20, ..config() });
    large.append(&[("l", Some(&value)), ("l", Some(&value))]);
    large.log.update_config(config());
    large.roll("y");
    // A log start in the active segment, beyond the checkpoint.
    short.append(&[("b", Some("1"))]);
    short.log.delete_records_before(short.log.log_end_offset()).unwrap();
    let path = std::path::Path::new("/data/damaged-0/00000000000000000000.log");
    let file = machine.fs.open(path, crate::runtime::fs::OpenMode::Write).unwrap();
    file.write_at(&[std::io::IoSlice::new(b"!")], 70).unwrap();

    let run = || {
        let mut failed = 0;
        while let Some(mut cleaning) = cleaner.pick(&OPTIONS, HashSecret([1, 1]), machine.now()) {
            let outcome = loop {
                match cleaning.step(machine.now()) {
                    Ok(Step::Done) => break Ok(()),
                    Ok(Step::Went { .. }) => {}
                    Err(error) => break Err(error),
                }
            };
            failed += usize::from(outcome.is_err());
            cleaner.finish(cleaning, outcome, machine.now());
        }
        failed
    };
    assert_eq!(run(), 1);
    assert_eq!(healthy.of(&["a"]), [entry(1, "a", Some("2"))]);
    assert_eq!(large.of(&["l"]).len(), 1);
    let status = cleaner.status();
    assert_eq!(status.failed.len(), 1, "{status:?}");
    assert_eq!(status.failed[0].topic_partition, named("damaged"));
    assert!(status.failed[0].reason.contains("offset 0"), "{status:?}");
    assert!(!damaged.log.directory().is_offline());

    // Not again at once, but later, or when a setting changes.
    assert_eq!(run(), 0);
    machine.clock.advance_ms(60_000);
    assert_eq!(run(), 1);
    machine.clock.advance_ms(60_000);
    assert_eq!(run(), 0);
    damaged.log.update_config(config());
    assert_eq!(run(), 1);
    assert_eq!(cleaner.status().failed[0].attempts, 3);
    file.write_at(&[std::io::IoSlice::new(&[0])], 70).unwrap();
    manager.delete(&[named("damaged")], machine.now()).unwrap();
    assert_eq!(run(), 0);
    assert_eq!(cleaner.status().failed, []);
}

#[test]
fn the_checkpoint_is_kafkas_and_outlives_a_restart() {
    let compacted = Compacted::new();
    compacted.append(&[("a", Some("1"))]);
    compacted.roll("x");
    let clean_end = compacted.log.active_segment_base_offset();
    compacted.clean();
    let path = std::path::Path::new("/data/cleaner-offset-checkpoint");
    let text = || String::from_utf8(compacted.machine.fs.read(path).unwrap()).unwrap();
    assert_eq!(text(), format!("0\n1\nt 0 {clean_end}\n"));
    compacted.machine.fs.crash();
    let again = Compacted::start(compacted.machine.clone());
    assert!(again.cleaner.pick(&OPTIONS, HashSecret([1, 2]), again.machine.now()).is_none());
    again.log.truncate_to(Offset(1), again.machine.now()).unwrap();
    assert_eq!(text(), "0\n1\nt 0 1\n");
    again.manager.delete(&[partition()], again.machine.now()).unwrap();
    assert_eq!(text(), "0\n0\n");
}

#[test]
fn a_checkpoint_beyond_the_log_begins_anew() {
    let compacted = Compacted::new();
    compacted.append(&[("a", Some("1")), ("a", Some("2"))]);
    compacted.roll("x");
    compacted.log.flush(FlushWanted::Everything, compacted.machine.now()).unwrap();
    compacted.machine.fs.kill();
    let path = std::path::Path::new("/data/cleaner-offset-checkpoint");
    let file = compacted.machine.fs.open(path, crate::runtime::fs::OpenMode::CreateEmpty).unwrap();
    file.write_at(&[std::io::IoSlice::new(b"0\n1\nt 0 99999\n")], 0).unwrap();
    let compacted = Compacted::start(compacted.machine);
    compacted.clean();
    assert_eq!(compacted.of(&["a"]), [entry(1, "a", Some("2"))]);
}

#[test]
fn what_others_change_meanwhile_ends_a_cleaning_without_harm() {
    let prepare = || {
        let compacted = Compacted::with(LogConfig { retention_bytes: Some(300), ..config() });
        for _ in 0..4 {
            compacted.append(&[("a", Some("1")), ("b", Some("2"))]);
            compacted.roll("x");
        }
        let mut cleaning =
            compacted.cleaner.pick(&OPTIONS, HashSecret([1, 2]), compacted.machine.now()).unwrap();
        for _ in 0..3 {
            assert!(matches!(cleaning.step(compacted.machine.now()), Ok(Step::Went { .. })));
        }
        (compacted, cleaning)
    };
    let ends = |compacted: &Compacted, mut cleaning: super::super::Cleaning| {
        let error = loop {
            match cleaning.step(compacted.machine.now()) {
                Ok(Step::Done) => panic!("the cleaning went through"),
                Ok(Step::Went { .. }) => {}
                Err(error) => break error,
            }
        };
        compacted.cleaner.finish(cleaning, Err(error), compacted.machine.now());
        assert!(!compacted.log.directory().is_offline());
        assert_eq!(compacted.cleaner.status().failed, []);
        assert!(compacted.machine.fs.exists(std::path::Path::new("/data/cleaner-offset-checkpoint")).is_ok());
    };
    let (compacted, cleaning) = prepare();
    compacted.log.truncate_to(Offset(3), compacted.machine.now()).unwrap();
    ends(&compacted, cleaning);
    assert!(compacted.machine.files(".cleaned").is_empty());
    assert_eq!(compacted.log.log_end_offset(), Offset(3));

    let (compacted, cleaning) = prepare();
    let deletes = Cleanup { deletes: true, compacts: true };
    compacted.log.update_config(LogConfig { cleanup: deletes, ..(*compacted.log.config()).clone() });
    assert!(compacted.log.apply_retention(compacted.machine.now()).unwrap() > 0);
    ends(&compacted, cleaning);
    assert!(compacted.machine.files(".cleaned").is_empty());

    let (compacted, cleaning) = prepare();
    compacted.manager.delete(&[partition()], compacted.machine.now()).unwrap();
    ends(&compacted, cleaning);
}

/// A follower is told to cut records off the active segment while an older one is rewritten. It reads its directory for
/// the producers' snapshots then, and took what the cleaning wrote for a leftover: the disk was called broken.
#[test]
fn records_cut_off_meanwhile_leave_what_a_cleaning_writes() {
    let compacted = Compacted::new();
    compacted.append(&[("a", Some("1")), ("a", Some("2"))]);
    compacted.roll("x");
    compacted.append(&[("b", Some("1")), ("b", Some("2"))]);
    let now = compacted.machine.now();
    let mut cleaning = compacted.cleaner.pick(&OPTIONS, HashSecret([1, 2]), now).unwrap();
    while compacted.machine.files(".cleaned").is_empty() {
        assert!(matches!(cleaning.step(now), Ok(Step::Went { .. })));
    }
    let end = compacted.log.log_end_offset();
    compacted.log.truncate_to(end.plus(-1), now).unwrap();
    assert!(!compacted.machine.files(".cleaned").is_empty());
    let error = loop {
        match cleaning.step(now) {
            Ok(Step::Done) => panic!("the cleaning went through"),
            Ok(Step::Went { .. }) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LogError::SegmentDeleted), "{error}");
    compacted.cleaner.finish(cleaning, Err(error), now);
    assert!(compacted.machine.files(".cleaned").is_empty());
    assert!(!compacted.log.directory().is_offline());
}

#[test]
fn a_full_disk_delays_a_cleaning() {
    let compacted = Compacted::new();
    compacted.append(&[("a", Some("1")), ("a", Some("2"))]);
    compacted.roll("x");
    compacted.machine.fs.set_capacity_bytes(10);
    let mut cleaning = compacted.cleaner.pick(&OPTIONS, HashSecret([1, 2]), compacted.machine.now()).unwrap();
    let error = loop {
        match cleaning.step(compacted.machine.now()) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LogError::DiskFull { .. }), "{error}");
    compacted.cleaner.finish(cleaning, Err(error), compacted.machine.now());
    assert!(compacted.machine.files(".cleaned").is_empty());
    assert!(!compacted.log.directory().is_offline());
    compacted.machine.fs.set_capacity_bytes(u64::MAX);
    compacted.machine.clock.advance_ms(60_000);
    compacted.clean();
    assert_eq!(compacted.of(&["a"]), [entry(1, "a", Some("2"))]);
}

#[test]
fn retention_deletes_what_compaction_emptied() {
    let deletes = Cleanup { deletes: true, compacts: true };
    let compacted = Compacted::with(LogConfig { cleanup: deletes, retention_ms: Some(10_000), ..config() });
    // Everything in the first segments is replaced later.
    for _ in 0..12 {
        compacted.append(&[("a", Some("1")), ("b", Some("2"))]);
    }
    compacted.clean();
    compacted.machine.clock.advance_ms(60_000_000);
    compacted.roll("x");
    assert!(compacted.log.apply_retention(compacted.machine.now()).unwrap() > 0);
    assert_eq!(compacted.log.count_segments(), 1);
}

#[test]
fn readers_and_writers_go_on_while_segments_are_replaced() {
    let compacted = Compacted::new();
    let log = compacted.log.clone();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    use std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Relaxed) || rounds == 0 {
                let (start, end) = (log.log_start_offset(), log.high_watermark());
                let mut next = start;
                while next < end {
                    let read = log.read(next, 300, end, true).unwrap();
                    let found = read_batches(&read);
                    assert!(found.iter().all(|batch| batch.check_crc().is_ok()));
                    let Some(last) = found.last() else {
                        // All up to there was replaced by records that came since.
                        assert!(log.high_watermark() > end, "nothing at {next} before {end}");
                        break;
                    };
                    next = last.header.next_offset();
                }
                assert!(log.fetch_offset_by_timestamp(Timestamp(5_000)).is_ok());
                // Old clients are told when segments were written, which is asked of their files.
                assert!(log.offsets_before(Timestamp(5_000), 10, Timestamp(6_000)).is_ok());
                assert!(log.aborted_transactions(start, end).is_ok());
                rounds += 1;
            }
        });
        for round in 0..60 {
            for number in 0..5 {
                compacted
                    .append(&[(&format!("k{}", number % 3), Some("v")), (&format!("r{round}"), Some("w"))]);
            }
            compacted.clean_with(&OPTIONS).unwrap();
        }
        is_over.store(true, Relaxed);
        reader.join().unwrap();
    });
    compacted.machine.check_files(&compacted.log);
}
