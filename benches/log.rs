//! What the log costs beside the system calls under it: appends of 16 KiB batches beside bare `pwrite`s of
//! the same bytes, reads at the tail and far from it, and 10,000 partitions.
//!
//! `cargo bench --bench log [-- DIRECTORY]`; the directory, by default a temporary one, tells which disk.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use barnabas::log::{FlushWanted, LoadAllOptions, Log, LogConfig, LogDirectories, LogManager};
use barnabas::model::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId, TopicName, TopicPartition};
use barnabas::records::{AppendOrigin, Batch, BatchBuilder, ValidatedBatch, ValidatedRecords};
use barnabas::runtime::fs::DiskFileSystem;
use barnabas::runtime::{Clock, Random};

const BATCH_BYTES: usize = 16 << 10;
const TOTAL_BYTES: usize = 1 << 30;
const PARTITIONS: i32 = 10_000;

fn main() {
    let argument = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let root = argument.map_or(temporary.path().to_owned(), PathBuf::from);
    for _ in 0..2 {
        pwrites(&root);
        appends(&root);
    }
    partitions(&root);
}

fn batch() -> ValidatedBatch {
    let mut builder = BatchBuilder::new();
    while builder.size_bytes() < BATCH_BYTES - 1_100 {
        builder.append(Timestamp(1), None, Some(&[b'x'; 1_000]), &[]);
    }
    let batch = Batch::read(builder.build()).expect("a batch that was just built");
    ValidatedBatch { header: batch.header, bytes: batch.bytes }
}

/// CPU seconds of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

fn measure<T>(what: &str, bytes: usize, run: impl FnOnce() -> T) -> T {
    let (began, cpu_before) = (Instant::now(), cpu());
    let result = run();
    let (took, cpu) = (began.elapsed(), cpu() - cpu_before);
    let per_gb = if bytes == 0 { 0.0 } else { cpu.as_secs_f64() * 1e9 / bytes as f64 };
    println!("{what:<44} {took:>10.3?}  cpu {cpu:>8.3?}  {per_gb:>6.3} CPU-s/GB");
    result
}

fn pwrites(root: &Path) {
    let bytes = batch().bytes;
    let path = root.join("bare");
    let file = std::fs::File::create(&path).expect("a file");
    measure("bare pwrite", TOTAL_BYTES, || {
        for position in (0..TOTAL_BYTES).step_by(bytes.len()) {
            file.write_all_at(&bytes, position as u64).expect("room");
        }
    });
    std::fs::remove_file(path).expect("removable");
}

fn start(root: &Path, now: Timestamp) -> LogManager {
    let directories = LogDirectories::open(Arc::new(DiskFileSystem), &[root.join("data")], 5_000);
    let options = LoadAllOptions {
        config_of: &|_| Arc::new(config()),
        threads_per_directory: 1,
        producer_expiration_ms: i64::MAX,
        now,
    };
    let directories = directories.expect("a usable folder");
    let manager = LogManager::open(directories, Random::from_seed(1), now).expect("sound folders");
    manager.load_all(&options, &mut |_| {}).expect("sound logs");
    manager
}

fn config() -> LogConfig {
    LogConfig { retention_ms: None, ..LogConfig::default() }
}

fn create(manager: &LogManager, partition: i32) -> Arc<Log> {
    let topic = TopicName::new("bench").expect("a legal name");
    let partition = TopicPartition::new(topic, PartitionIndex(partition));
    let now = Timestamp(1);
    let log = manager.log_or_create(&partition, TopicId([1; 16]), config(), None, now);
    let log = log.expect("a log");
    log.assign_epoch(LeaderEpoch(0), Offset(0)).expect("an epoch");
    log
}

fn append(log: &Log, batch: &ValidatedBatch, now: Timestamp) {
    let records = ValidatedRecords { batches: vec![batch.clone()], log_append_time: None };
    log.append_as_leader(records, LeaderEpoch(0), AppendOrigin::Client, now).expect("an append");
    log.advance_high_watermark(log.log_end_offset());
}

fn appends(root: &Path) {
    let now = Clock::system().now();
    let manager = start(root, now);
    let log = create(&manager, 0);
    let batch = batch();
    let count = TOTAL_BYTES / batch.bytes.len();
    measure("append", TOTAL_BYTES, || (0..count).for_each(|_| append(&log, &batch, now)));
    measure("append and read at the tail", TOTAL_BYTES, || {
        for _ in 0..count {
            let from = log.log_end_offset();
            append(&log, &batch, now);
            let read = log.read(from, 1 << 20, log.high_watermark(), true).expect("a read");
            assert_eq!(read.size_bytes, batch.bytes.len());
        }
    });
    let mut reads = 0;
    measure("find all of it, 1 MiB a read", 2 * TOTAL_BYTES, || {
        let mut next = Offset(0);
        while next < log.high_watermark() {
            let read = log.read(next, 1 << 20, log.high_watermark(), true).expect("a read");
            let batches = (read.size_bytes / batch.bytes.len()) as i64;
            next = read.first_offset.plus(batches * i64::from(batch.header.record_count));
            reads += 1;
        }
    });
    println!("  {reads} reads");
    measure("four threads on one partition", TOTAL_BYTES, || {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..count / 4).for_each(|_| append(&log, &batch, now)));
            }
        });
    });
    drop(manager);
    let manager = measure("recover after a kill", 0, || start(root, now));
    drop(manager);
    std::fs::remove_dir_all(root.join("data")).expect("removable");
}

fn partitions(root: &Path) {
    let now = Clock::system().now();
    let manager = start(root, now);
    let resident = resident_kib();
    let logs = measure("create 10,000 partitions", 0, || {
        (0..PARTITIONS).map(|partition| create(&manager, partition)).collect::<Vec<_>>()
    });
    println!("  {} bytes resident a partition", (resident_kib() - resident) * 1024 / PARTITIONS as usize);
    drop((logs, manager));
    let manager = measure("start after a kill, empty", 0, || start(root, now));
    measure("close, empty", 0, || manager.shut_down(now));
    drop(manager);
    let manager = measure("start after a clean end, empty", 0, || start(root, now));
    let batch = batch();
    measure("one batch to each", PARTITIONS as usize * BATCH_BYTES, || {
        (0..PARTITIONS).for_each(|partition| append(&create(&manager, partition), &batch, now));
    });
    measure("retention", 0, || manager.retention_tick(now));
    measure("checkpoint high watermarks", 0, || manager.high_watermark_tick());
    drop(manager);
    let manager = measure("start after a kill, 16 KiB in each", 0, || start(root, now));
    measure("close, 16 KiB in each", 0, || manager.shut_down(now));
    drop(manager);
    let manager = measure("start after a clean end, 16 KiB in each", 0, || start(root, now));
    println!("  {} MiB resident", resident_kib() >> 10);
    let log = create(&manager, 0);
    append(&log, &batch, now);
    measure("flush one", 0, || log.flush(FlushWanted::Everything, now).expect("a flush"));
    let names: Vec<TopicPartition> = manager.logs().iter().map(|log| log.topic_partition().clone()).collect();
    measure("delete 10,000 partitions", 0, || manager.delete(&names, now).expect("a deletion"));
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}
