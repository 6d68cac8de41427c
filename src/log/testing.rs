//! What the tests of this room share: a machine whose disk is in memory, batches, a look at files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::model::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicId, TopicName,
    TopicPartition,
};
use crate::records::{
    AppendOrigin, Batch, BatchBuilder, BatchHeader, TransactionMarker, ValidatedBatch, ValidatedRecords,
    batches, end_transaction_marker,
};
use crate::runtime::fs::{
    Fault, FaultOutcome, File, FileSystem, MemoryFileSystem, OpenMode, Operation, read_full_at,
};
use crate::runtime::{Clock, Random};

use super::directories::LogDirectories;
use super::directory::{LogDirectory, Place};
use super::names::FileKind;
use super::open_files::OpenFiles;
use super::{AppendInfo, FlushWanted, LoadAllOptions, Log, LogConfig, LogError, LogManager, LogRead};

/// A partition's directory on a disk in memory.
pub(super) struct Bench {
    pub(super) fs: MemoryFileSystem,
    pub(super) place: Arc<Place>,
}

impl Bench {
    pub(super) fn new() -> Self {
        let fs = MemoryFileSystem::new(Clock::manual(Timestamp(1_000_000)));
        fs.create_dir_all(Path::new("/data/t-0")).unwrap();
        let open_files = Arc::new(OpenFiles::new(100));
        let directory = LogDirectory::new("/data".into(), Arc::new(fs.clone()), open_files, Arc::default());
        Bench { fs, place: Arc::new(Place::new(Arc::new(directory), "t-0")) }
    }

    pub(super) fn read(&self, name: &str) -> Vec<u8> {
        self.fs.read(&self.place.join(name)).unwrap()
    }
}

/// A machine that brokers are started on, one after the other.
pub(super) struct Machine {
    pub(super) fs: MemoryFileSystem,
    pub(super) clock: Clock,
    pub(super) config: LogConfig,
}

pub(super) const TOPIC_ID: TopicId = TopicId([7; 16]);

pub(super) fn partition() -> TopicPartition {
    named("t")
}

pub(super) fn named(topic: &str) -> TopicPartition {
    TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(0))
}

impl Machine {
    pub(super) fn new(config: LogConfig) -> Machine {
        let clock = Clock::manual(Timestamp(1_000_000));
        Machine { fs: MemoryFileSystem::new(clock.clone()), clock, config }
    }

    /// Segments of about `segment_bytes`, and an index entry for every other small batch.
    pub(super) fn small_segments(segment_bytes: u32) -> Machine {
        let config = LogConfig { segment_bytes, index_interval_bytes: 100, ..LogConfig::default() };
        Machine::new(config)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Starts the logs of a broker, as after a start of the process.
    pub(super) fn start(&self) -> Result<LogManager, LogError> {
        self.start_with(&["/data".into()])
    }

    /// Starts and is told to stop before any log is loaded.
    pub(super) fn start_and_stop(&self) -> Result<LogManager, LogError> {
        self.start_until(&["/data".into()], true)
    }

    pub(super) fn start_with(&self, paths: &[PathBuf]) -> Result<LogManager, LogError> {
        self.start_until(paths, false)
    }

    fn start_until(&self, paths: &[PathBuf], is_stopped: bool) -> Result<LogManager, LogError> {
        let manager = self.find_logs(paths)?;
        if is_stopped {
            manager.stop_loading();
        }
        self.load_all(&manager, &|_| {}, &mut |_| {})?;
        Ok(manager)
    }

    /// Starts and loads nothing yet.
    pub(super) fn find_logs(&self, paths: &[PathBuf]) -> Result<LogManager, LogError> {
        let directories = LogDirectories::open(Arc::new(self.fs.clone()), paths, 100)?;
        LogManager::open(directories, Random::from_seed(1), self.now())
    }

    /// Loads what was found; `before` is told of each log that is begun, `ready` of those that are done.
    pub(super) fn load_all(
        &self,
        manager: &LogManager,
        before: &(dyn Fn(&TopicName) + Sync),
        ready: &mut dyn FnMut(&[TopicPartition]),
    ) -> Result<(), LogError> {
        let config_of = |topic: &TopicName| {
            before(topic);
            Arc::new(self.config.clone())
        };
        let options = LoadAllOptions {
            config_of: &config_of,
            threads_per_directory: 2,
            producer_expiration_ms: 86_400_000,
            now: self.now(),
        };
        manager.load_all(&options, ready)
    }

    /// Starts a broker and gives the log of [`partition`], created if it is not there.
    pub(super) fn start_log(&self) -> (LogManager, Arc<Log>) {
        let manager = self.start().unwrap();
        let log = self.open(&manager).unwrap();
        (manager, log)
    }

    pub(super) fn open(&self, manager: &LogManager) -> Result<Arc<Log>, LogError> {
        self.open_named(manager, &partition())
    }

    pub(super) fn open_named(
        &self,
        manager: &LogManager,
        topic_partition: &TopicPartition,
    ) -> Result<Arc<Log>, LogError> {
        manager.log_or_create(topic_partition, TOPIC_ID, self.config.clone(), None, self.now())
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        Path::new("/data/t-0").join(name)
    }

    pub(super) fn read(&self, name: &str) -> Vec<u8> {
        self.fs.read(&self.file(name)).unwrap()
    }

    pub(super) fn overwrite(&self, name: &str, contents: &[u8]) {
        let file = self.fs.open(&self.file(name), OpenMode::CreateEmpty).unwrap();
        file.write_at(&[std::io::IoSlice::new(contents)], 0).unwrap();
    }

    /// The names of live files with this ending, in order.
    pub(super) fn files(&self, ending: &str) -> Vec<String> {
        let entries = self.fs.list(Path::new("/data/t-0")).unwrap();
        let mut names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
        names.retain(|name| name.ends_with(ending));
        names.sort();
        names
    }
}

/// One batch of records `(timestamp, value)`.
pub(super) fn batch(records: &[(i64, &str)]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for (timestamp, value) in records {
        builder.append(Timestamp(*timestamp), None, Some(value.as_bytes()), &[]);
    }
    builder.build()
}

/// A batch as it stands in a log, at this offset.
pub(super) fn batch_at(offset: i64, value: &str) -> Vec<u8> {
    let mut bytes = batch(&[(5_000, value)]).to_vec();
    bytes[..8].copy_from_slice(&offset.to_be_bytes());
    assert_eq!(Batch::read(bytes.clone().into()).unwrap().header.base_offset, Offset(offset));
    bytes
}

/// One batch of an idempotent producer.
pub(super) fn sequenced(producer_id: i64, sequence: i32, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new().producer(ProducerId(producer_id), ProducerEpoch(0), sequence);
    for value in values {
        builder.append(Timestamp(5_000), None, Some(value.as_bytes()), &[]);
    }
    builder.build()
}

/// One batch of a transaction.
pub(super) fn transactional(producer_id: i64, sequence: i32, values: &[&str]) -> Bytes {
    let builder = BatchBuilder::new().producer(ProducerId(producer_id), ProducerEpoch(0), sequence);
    let mut builder = builder.transactional();
    for value in values {
        builder.append(Timestamp(5_000), None, Some(value.as_bytes()), &[]);
    }
    builder.build()
}

pub(super) fn marker(producer_id: i64, marker: TransactionMarker) -> Bytes {
    end_transaction_marker(marker, ProducerId(producer_id), ProducerEpoch(0), 0, Timestamp(6_000))
}

pub(super) fn validated(batch: Bytes) -> ValidatedRecords {
    let batch = Batch::read(batch).unwrap();
    let batch = ValidatedBatch { header: batch.header, bytes: batch.bytes };
    ValidatedRecords { batches: vec![batch], log_append_time: None }
}

impl Log {
    pub(super) fn append_batch(&self, batch: Bytes) -> Result<AppendInfo, LogError> {
        let (epoch, now) = (LeaderEpoch(0), Timestamp(1_000_000));
        let origin = match Batch::read(batch.clone()).unwrap().header.attributes.is_control() {
            true => AppendOrigin::Coordinator,
            false => AppendOrigin::Client,
        };
        let info = self.append_as_leader(validated(batch), epoch, origin, now)?;
        self.advance_high_watermark(self.log_end_offset());
        Ok(info)
    }

    pub(super) fn append_values(&self, values: &[&str]) -> Result<AppendInfo, LogError> {
        let records: Vec<(i64, &str)> = values.iter().map(|value| (5_000, *value)).collect();
        self.append_batch(batch(&records))
    }

    pub(super) fn append_times(&self, count: usize, values: &[&str]) {
        for _ in 0..count {
            self.append_values(values).unwrap();
        }
    }

    /// All data records from `from` on, as a consumer finds them that fetches a little at a time.
    pub(super) fn values_from(&self, from: Offset) -> Result<Vec<(i64, String)>, LogError> {
        let mut values = Vec::new();
        let mut next = from;
        while next < self.log_end_offset() {
            let read = self.read(next, 300, self.log_end_offset(), true)?;
            let batches = read_batches(&read);
            assert!(!batches.is_empty(), "nothing at {next} in a log that ends at {}", self.log_end_offset());
            for batch in batches {
                batch.check_crc().unwrap();
                assert!(
                    batch.header.last_offset() >= next
                        && batch.header.base_offset <= next.max(batch.header.base_offset)
                );
                for record in batch.records().unwrap().filter(|_| !batch.header.attributes.is_control()) {
                    let record = record.unwrap();
                    let value = String::from_utf8(record.value.as_deref().unwrap().to_vec()).unwrap();
                    let offset = record.offset(&batch.header);
                    if offset >= from {
                        values.push((offset.0, value));
                    }
                }
                next = batch.header.next_offset();
            }
        }
        Ok(values)
    }

    pub(super) fn values(&self) -> Vec<(i64, String)> {
        self.values_from(self.log_start_offset()).unwrap()
    }
}

/// The batches that a read points at; they must be whole.
pub(super) fn read_batches(read: &LogRead) -> Vec<Batch> {
    let mut bytes = Vec::new();
    for slice in &read.slices {
        let mut part = vec![0; slice.size_bytes as usize];
        let file: &dyn File = &*slice.file;
        assert_eq!(read_full_at(file, &mut part, slice.position).unwrap(), part.len());
        bytes.extend(part);
    }
    assert_eq!(bytes.len(), read.size_bytes);
    batches(&bytes.into()).collect::<Result<Vec<Batch>, _>>().unwrap()
}

/// Lets every operation of a kind fail from now on.
pub(super) fn fail_all(fs: &MemoryFileSystem, on: Operation) {
    for _ in 0..10_000 {
        fs.inject(Fault { on, after: 0, outcome: FaultOutcome::Error(std::io::ErrorKind::Other) });
    }
}

impl Machine {
    /// Checks the files of a log as Kafka's own tools do: whole batches in order, and indexes that point at
    /// them.
    #[track_caller]
    pub(super) fn check_files(&self, log: &Log) {
        log.write_out(FlushWanted::Everything).unwrap();
        let mut next_offset = 0;
        for name in self.files(".log") {
            let base: i64 = name[..20].parse().unwrap();
            assert!(base >= next_offset, "{name} begins before {next_offset}");
            let bytes = Bytes::from(self.read(&name));
            let all: Vec<Batch> =
                batches(&bytes).collect::<Result<_, _>>().unwrap_or_else(|e| panic!("{name}: {e}"));
            let mut at = Vec::new();
            let mut position = 0u32;
            for batch in &all {
                batch.check_crc().unwrap();
                assert!(batch.header.base_offset.0 >= next_offset.max(base), "{name}: out of order");
                next_offset = batch.header.next_offset().0;
                at.push((position, batch.header));
                position += batch.bytes.len() as u32;
            }
            self.check_indexes(base, &at);
        }
    }

    #[track_caller]
    fn check_indexes(&self, base: i64, batches: &[(u32, BatchHeader)]) {
        let mut before = (0, 0);
        for entry in self.index_entries(&FileKind::OffsetIndex.name(Offset(base)), 8) {
            let (relative, position) = ((entry >> 32) as i64, (entry & 0xffff_ffff) as u32);
            let (_, header) =
                batches.iter().find(|(at, _)| *at == position).expect("an entry points at a batch");
            assert_eq!(header.last_offset().0, base + relative, "an entry has its batch's last offset");
            assert!((relative, position) > before, "entries rise");
            before = (relative, position);
        }
        let mut before = -1;
        for entry in self.index_entries(&FileKind::TimeIndex.name(Offset(base)), 12) {
            let (timestamp, relative) = ((entry >> 32) as i64, (entry & 0xffff_ffff) as i64);
            let holder = batches.iter().find(|(_, header)| header.last_offset().0 == base + relative);
            assert_eq!(holder.expect("an entry names a batch").1.max_timestamp.0, timestamp);
            assert!(timestamp > before, "timestamps rise");
            before = timestamp;
        }
    }

    fn index_entries(&self, name: &str, size: usize) -> Vec<u128> {
        let bytes = self.fs.read(&self.file(name)).unwrap_or_default();
        assert_eq!(bytes.len() % size, 0, "{name}");
        let number = |entry: &[u8]| entry.iter().fold(0u128, |number, byte| number << 8 | u128::from(*byte));
        bytes.chunks(size).map(number).collect()
    }
}
