//! Histories of all that can be done to a log, beside a list of records that does the same.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::testing::*;
use super::super::{FlushWanted, Log, LogManager};
use crate::model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::records::{AppendOrigin, BatchBuilder, Codec, MessageFormat, ValidationRules, validate};

#[derive(Clone, Debug)]
enum Step {
    /// Record sizes, and how far the timestamps of the batch lie after the base time.
    Append {
        sizes: Vec<usize>,
        timestamps: Vec<i64>,
    },
    /// As a topic stores records that is in an old format.
    AppendOld {
        format: MessageFormat,
        codec: Codec,
        sizes: Vec<usize>,
        timestamps: Vec<i64>,
    },
    /// The producer's last batch once more.
    Retry,
    Flush,
    DeleteRecords {
        share: f64,
    },
    Retain {
        retention_bytes: u64,
    },
    Truncate {
        share: f64,
    },
    CloseAndStart,
    KillAndStart,
}

fn step() -> impl Strategy<Value = Step> {
    let records = || {
        (1..6usize).prop_flat_map(|count| {
            (prop::collection::vec(0..120usize, count), prop::collection::vec(0..10_000i64, count))
        })
    };
    let append = records().prop_map(|(sizes, timestamps)| Step::Append { sizes, timestamps });
    let format = prop::sample::select(&[MessageFormat::V0, MessageFormat::V1][..]);
    let codec = prop::sample::select(&[Codec::None, Codec::Gzip][..]);
    let append_old = (format, codec, records()).prop_map(|(format, codec, (sizes, timestamps))| {
        Step::AppendOld { format, codec, sizes, timestamps }
    });
    prop_oneof![
        12 => append,
        6 => append_old,
        2 => Just(Step::Retry),
        1 => Just(Step::Flush),
        1 => (0.0..1.0).prop_map(|share| Step::DeleteRecords { share }),
        1 => (0..4_000u64).prop_map(|retention_bytes| Step::Retain { retention_bytes }),
        1 => (0.0..1.0).prop_map(|share| Step::Truncate { share }),
        1 => Just(Step::CloseAndStart),
        1 => Just(Step::KillAndStart),
    ]
}

fn rules() -> ValidationRules {
    ValidationRules { timestamp_after_max_ms: i64::MAX, ..ValidationRules::default() }
}

#[derive(Clone, Debug, PartialEq)]
struct Record {
    offset: i64,
    timestamp: i64,
    value: String,
}

/// The naive log.
#[derive(Default)]
struct Model {
    records: Vec<Record>,
    /// Where batches begin.
    batch_starts: Vec<i64>,
    start: i64,
    end: i64,
    /// First and last offset of the producer's batches, whose records it counts.
    sequenced: Vec<(i64, i64)>,
}

impl Model {
    fn next_sequence(&self) -> i32 {
        self.sequenced.iter().map(|(first, last)| (last - first + 1) as i32).sum()
    }
}

struct Run {
    machine: Machine,
    manager: LogManager,
    log: Arc<Log>,
    model: Model,
}

impl Run {
    fn new() -> Run {
        let mut machine = Machine::small_segments(1_000);
        machine.config.retention_ms = None;
        let (manager, log) = machine.start_log();
        Run { machine, manager, log, model: Model::default() }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Append { sizes, timestamps } => self.append(sizes, timestamps),
            Step::AppendOld { format, codec, sizes, timestamps } => {
                self.append_old(*format, *codec, sizes, timestamps);
            }
            Step::Retry => self.retry(),
            Step::Flush => self.log.flush(FlushWanted::Everything, self.machine.now()).unwrap(),
            Step::DeleteRecords { share } => self.delete_records(*share),
            Step::Retain { retention_bytes } => self.retain(*retention_bytes),
            Step::Truncate { share } => self.truncate(*share),
            Step::CloseAndStart => {
                self.manager.shut_down(self.machine.now());
                self.start();
            }
            Step::KillAndStart => {
                // A raised log start outlives the process in its checkpoint.
                self.manager.log_start_offset_tick();
                self.start();
            }
        }
    }

    fn start(&mut self) {
        self.machine.fs.kill();
        (self.manager, self.log) = self.machine.start_log();
        self.log.advance_high_watermark(self.log.log_end_offset());
    }

    fn batch(&self, records: &[Record], sequence: i32) -> bytes::Bytes {
        let mut builder = BatchBuilder::new().producer(ProducerId(7), ProducerEpoch(0), sequence);
        for record in records {
            builder.append(Timestamp(record.timestamp), None, Some(record.value.as_bytes()), &[]);
        }
        builder.build()
    }

    fn records(&self, sizes: &[usize], timestamps: &[i64]) -> Vec<Record> {
        (self.model.end..)
            .zip(sizes.iter().zip(timestamps))
            .map(|(offset, (&size, &timestamp))| {
                let value = format!("{offset} {}", "x".repeat(size));
                Record { offset, timestamp, value }
            })
            .collect()
    }

    fn append_old(&mut self, format: MessageFormat, codec: Codec, sizes: &[usize], timestamps: &[i64]) {
        let mut records = self.records(sizes, timestamps);
        let mut builder = BatchBuilder::new().compression(codec, None);
        for record in &records {
            builder.append(Timestamp(record.timestamp), None, Some(record.value.as_bytes()), &[]);
        }
        let rules = ValidationRules { message_format: format, ..rules() };
        let validated = validate(builder.build(), &rules, self.machine.now()).unwrap();
        let batch_sizes: Vec<i64> =
            validated.batches.iter().map(|batch| i64::from(batch.header.last_offset_delta) + 1).collect();
        let (epoch, now) = (LeaderEpoch(0), self.machine.now());
        let info = self.log.append_as_leader(validated, epoch, AppendOrigin::Client, now).unwrap();
        self.log.advance_high_watermark(self.log.log_end_offset());
        assert_eq!(info.first_offset, Offset(self.model.end));
        for size in batch_sizes {
            self.model.batch_starts.push(self.model.end);
            self.model.end += size;
        }
        if format == MessageFormat::V0 {
            records.iter_mut().for_each(|record| record.timestamp = -1);
        }
        self.model.records.extend(records);
    }

    fn append(&mut self, sizes: &[usize], timestamps: &[i64]) {
        let records = self.records(sizes, timestamps);
        let batch = self.batch(&records, self.model.next_sequence());
        let info = self.log.append_batch(batch).unwrap();
        assert_eq!(info.first_offset, Offset(self.model.end));
        assert!(!info.is_duplicate);
        self.model.sequenced.push((info.first_offset.0, info.last_offset.0));
        self.model.batch_starts.push(self.model.end);
        self.model.end += records.len() as i64;
        self.model.records.extend(records);
    }

    fn retry(&mut self) {
        let Some(&(first, last)) = self.model.sequenced.last() else { return };
        let count = (last - first + 1) as i32;
        let records: Vec<Record> =
            (first..=last).map(|offset| Record { offset, timestamp: 0, value: "again".to_owned() }).collect();
        let batch = validated(self.batch(&records, self.model.next_sequence() - count));
        let (epoch, now) = (LeaderEpoch(0), self.machine.now());
        let info = self.log.append_as_leader(batch, epoch, AppendOrigin::Client, now).unwrap();
        assert_eq!((info.is_duplicate, info.first_offset.0, info.last_offset.0), (true, first, last));
    }

    fn offset_at(&self, share: f64) -> i64 {
        self.model.start + ((self.model.end - self.model.start) as f64 * share) as i64
    }

    fn delete_records(&mut self, share: f64) {
        let offset = self.offset_at(share);
        self.log.delete_records_before(Offset(offset)).unwrap();
        self.model.start = self.model.start.max(offset);
    }

    fn retain(&mut self, retention_bytes: u64) {
        let mut config = self.machine.config.clone();
        config.retention_bytes = Some(retention_bytes);
        self.log.update_config(config);
        let size_before = self.log.size_bytes();
        self.log.apply_retention(self.machine.now()).unwrap();
        let start = self.log.log_start_offset().0;
        assert!(start >= self.model.start);
        assert!(self.log.size_bytes() >= retention_bytes.min(size_before) || start == self.model.start);
        self.model.start = start;
    }

    fn truncate(&mut self, share: f64) {
        let offset = self.offset_at(share);
        let Some(&start) = self.model.batch_starts.iter().rfind(|start| **start <= offset) else { return };
        if start < self.model.start {
            return;
        }
        self.log.truncate_to(Offset(start), self.machine.now()).unwrap();
        self.log.advance_high_watermark(Offset(start));
        self.model.sequenced.retain(|(first, _)| *first < start);
        self.model.records.retain(|record| record.offset < start);
        self.model.batch_starts.retain(|batch_start| *batch_start < start);
        self.model.end = start;
    }

    fn check(&self) {
        assert_eq!(self.log.log_start_offset(), Offset(self.model.start));
        assert_eq!(self.log.log_end_offset(), Offset(self.model.end));
        for from in [self.model.start, (self.model.start + self.model.end) / 2] {
            let expected: Vec<(i64, String)> = self.visible(from);
            assert_eq!(self.log.values_from(Offset(from)).unwrap(), expected);
        }
        for timestamp in [0, 1, 3_000, 5_000, 9_000, 9_999, 10_000] {
            let found = self.log.fetch_offset_by_timestamp(Timestamp(timestamp)).unwrap();
            let mut visible = self.model.records.iter().filter(|record| record.offset >= self.model.start);
            let expected = visible.find(|record| record.timestamp >= timestamp).map(|record| record.offset);
            assert_eq!(found.map(|found| found.offset.0), expected, "at {timestamp}");
        }
        if self.model.start == 0 {
            let found = self.log.fetch_offset_of_max_timestamp().unwrap();
            let max = self.model.records.iter().map(|record| record.timestamp).max().filter(|max| *max >= 0);
            let is_max = |record: &&Record| Some(record.timestamp) == max;
            let expected = self.model.records.iter().find(is_max).map(|record| record.offset);
            assert_eq!(found.map(|found| found.offset.0), expected, "the greatest timestamp");
        }
    }

    fn visible(&self, from: i64) -> Vec<(i64, String)> {
        let visible = self.model.records.iter().filter(|record| record.offset >= from);
        visible.map(|record| (record.offset, record.value.clone())).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_log_does_what_a_list_of_records_does(steps in prop::collection::vec(step(), 1..40)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
            run.check();
        }
        run.machine.check_files(&run.log);
    }
}
