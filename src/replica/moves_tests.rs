//! Replicas that move between log directories, on a disk in memory: copies, cuts, crashes at every step.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::following::Following;
use super::moving::MoveStep;
use super::{
    AlterLogDirError, AppendOptions, Isolation, Partition, ReadParameters, ReplicaError, ReplicaManager,
    ReplicationOptions, ThrottleWindows, ThrottledReplicas, TopicSettings, WatchedOffset,
};
use crate::log::{
    CleanerOptions, Cleanup, FlushWanted, HashSecret, LoadAllOptions, LogCleaner, LogConfig, LogDirectories,
    LogError, LogManager,
};
use crate::metadata::Cache;
use crate::metadata::control::{
    ControlOutcome, ControlSender, LeaderAndIsrRequest, PartitionAssignmentState, StopReplica,
    StopReplicaRequest,
};
use crate::model::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId,
    Timestamp, TopicId, TopicName, TopicPartition,
};
use crate::records::{
    AppendOrigin, Batch, BatchBuilder, ValidatedBatch, ValidatedRecords, ValidationRules, batches,
};
use crate::runtime::fs::{Fault, FaultOutcome, FileSystem, MemoryFileSystem, Operation, read_full_at};
use crate::runtime::{Clock, Random};

const ME: BrokerId = BrokerId(1);
const TOPIC_ID: TopicId = TopicId([7; 16]);
/// A batch or two.
const STEP_BYTES: usize = 200;

/// A broker's replicas, and the machine they are on.
struct Machine {
    fs: MemoryFileSystem,
    clock: Clock,
    config: LogConfig,
}

struct Running {
    machine: Arc<Machine>,
    logs: Arc<LogManager>,
    replicas: ReplicaManager,
}

fn of() -> TopicPartition {
    named("t")
}

fn named(topic: &str) -> TopicPartition {
    TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(0))
}

impl Machine {
    fn new() -> Arc<Machine> {
        Machine::with(LogConfig { segment_bytes: 600, index_interval_bytes: 100, ..LogConfig::default() })
    }

    fn with(config: LogConfig) -> Arc<Machine> {
        let clock = Clock::manual(Timestamp(1_000_000));
        Arc::new(Machine { fs: MemoryFileSystem::new(clock.clone()), clock, config })
    }

    /// A new process.
    fn try_start(self: &Arc<Machine>) -> Result<Running, LogError> {
        let paths: [PathBuf; 2] = ["/a".into(), "/b".into()];
        let directories = LogDirectories::open(Arc::new(self.fs.clone()), &paths, 100)?;
        let options = LoadAllOptions {
            config_of: &|_| Arc::new(self.config.clone()),
            threads_per_directory: 1,
            producer_expiration_ms: 86_400_000,
            now: self.clock.now(),
        };
        let logs = LogManager::open(directories, Random::from_seed(1), self.clock.now())?;
        logs.load_all(&options, &mut |_| {})?;
        let logs = Arc::new(logs);
        let settings = TopicSettings {
            log: Arc::new(self.config.clone()),
            validation: rules(),
            is_down_converted: true,
            min_insync_replicas: 1,
            throttled_as_leader: ThrottledReplicas::None,
            throttled_as_follower: ThrottledReplicas::None,
        };
        let metadata = Arc::new(Cache::default());
        let throttle_windows = ThrottleWindows { count: 11, length_ms: 1_000 };
        let options = ReplicationOptions { lag_max_ms: 30_000, throttle_windows };
        let replicas = ReplicaManager::new(ME, Arc::clone(&logs), metadata, settings, options);
        Ok(Running { machine: Arc::clone(self), logs, replicas })
    }

    fn start(self: &Arc<Machine>) -> Running {
        self.try_start().unwrap()
    }

    fn folders(&self, directory: &str) -> Vec<String> {
        let entries = self.fs.list(Path::new(directory)).unwrap().into_iter();
        entries.filter(|entry| entry.is_directory).map(|entry| entry.name).collect()
    }
}

fn rules() -> ValidationRules {
    ValidationRules { timestamp_after_max_ms: i64::MAX, ..ValidationRules::default() }
}

impl Running {
    fn now(&self) -> Timestamp {
        self.machine.clock.now()
    }

    fn tell(&self, of: &TopicPartition, leader: i32, epoch: i32, is_new: bool) -> ControlOutcome {
        let leader = BrokerId(leader);
        let replicas = if leader == ME { vec![ME] } else { vec![ME, leader] };
        let mut state = PartitionAssignmentState::at_first(of.clone(), replicas, vec![leader]);
        state.leader_and_isr.leader_epoch = LeaderEpoch(epoch);
        state.is_new = is_new;
        let request = LeaderAndIsrRequest {
            sender: sender(),
            partitions: vec![state],
            topic_ids: vec![(of.topic.clone(), TOPIC_ID)],
            live_leaders: Vec::new(),
        };
        self.replicas.become_leader_or_follower(&request, self.now()).unwrap().outcomes[0].1
    }

    /// Leads the partition under a new epoch.
    fn lead(&self) -> Arc<Partition> {
        let epoch = self.logs.log(&of()).map_or(0, |log| log.latest_epoch().0 + 1);
        assert_eq!(self.tell(&of(), ME.0, epoch, true), ControlOutcome::Done);
        self.partition()
    }

    fn partition(&self) -> Arc<Partition> {
        self.replicas.partition("t", PartitionIndex(0)).unwrap()
    }

    fn move_to(&self, directory: &str) -> Result<(), AlterLogDirError> {
        self.replicas.alter_log_dir(&of(), directory, self.now())
    }

    fn step(&self, partition: &Partition) -> Result<MoveStep, ReplicaError> {
        match partition.copy_some(STEP_BYTES, self.now())? {
            MoveStep::CaughtUp => partition.finish_move(&self.logs, STEP_BYTES, self.now()),
            step => Ok(step),
        }
    }

    fn finish(&self, partition: &Partition) -> Result<(), ReplicaError> {
        for _ in 0..1_000 {
            if matches!(self.step(partition)?, MoveStep::Done | MoveStep::Over) {
                return Ok(());
            }
        }
        panic!("the move does not come to an end");
    }
}

fn sender() -> ControlSender {
    ControlSender { controller_id: ME, controller_epoch: ControllerEpoch(1), broker_epoch: BrokerEpoch(-1) }
}

fn batch(sequence: i32, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new().producer(ProducerId(7), ProducerEpoch(0), sequence);
    for value in values {
        builder.append(Timestamp(5_000), Some(b"k"), Some(value.as_bytes()), &[]);
    }
    builder.build()
}

fn append(partition: &Partition, sequence: i32, value: &str) -> Result<bool, ReplicaError> {
    append_in(partition, None, sequence, value)
}

/// Appends if this broker has led since the epoch.
fn append_in(
    partition: &Partition,
    leader_epoch: Option<LeaderEpoch>,
    sequence: i32,
    value: &str,
) -> Result<bool, ReplicaError> {
    let batch = Batch::read(batch(sequence, &[value])).unwrap();
    let batch = ValidatedBatch { header: batch.header, bytes: batch.bytes };
    let records = ValidatedRecords { batches: vec![batch], log_append_time: None };
    let options = AppendOptions { producer: AppendOrigin::Client.into(), needs_isr: false, leader_epoch };
    Ok(partition.append(records, &options, Timestamp(1_000_000))?.info.is_duplicate)
}

/// Every record's value, as a consumer finds it.
fn values(partition: &Partition) -> Vec<String> {
    let mut values = Vec::new();
    let mut next = partition.log().log_start_offset();
    while next < partition.log().log_end_offset() {
        let parameters = ReadParameters {
            fetch_offset: next,
            bytes_max: 300,
            at_least_one_batch: true,
            isolation: Isolation::LogEnd,
            current_leader_epoch: LeaderEpoch::UNKNOWN,
            last_fetched_epoch: LeaderEpoch::UNKNOWN,
            needs_leader: false,
            may_wait: true,
            is_held_back: false,
        };
        let read = partition.read(&parameters).unwrap().read.unwrap();
        let mut bytes = Vec::new();
        for slice in &read.slices {
            let mut part = vec![0; slice.size_bytes as usize];
            assert_eq!(read_full_at(&*slice.file, &mut part, slice.position).unwrap(), part.len());
            bytes.extend(part);
        }
        for batch in batches(&bytes.into()) {
            let batch = batch.unwrap();
            batch.check_crc().unwrap();
            for record in batch.records().unwrap() {
                let record = record.unwrap();
                if record.offset(&batch.header) >= next {
                    values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
                }
            }
            next = batch.header.next_offset();
        }
    }
    values
}

fn numbers(range: std::ops::Range<i32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

fn directory_of(partition: &Partition) -> String {
    partition.log().directory().absolute_path()
}

/// A partition in `/a` with these numbers as records, one in a batch.
fn running_with(machine: &Arc<Machine>, count: i32) -> (Running, Arc<Partition>) {
    let running = machine.start();
    running.logs.prefer(&of(), &running.logs.directory_at("/a").unwrap());
    let partition = running.lead();
    for number in 0..count {
        append(&partition, number, &number.to_string()).unwrap();
    }
    (running, partition)
}

#[test]
fn a_moved_replica_has_all_records_and_goes_on() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 30);
    running.move_to("/b").unwrap();
    assert_eq!(running.step(&partition).unwrap(), MoveStep::Copied { bytes: 140 });
    let future = partition.future().unwrap();
    assert_eq!((future.log_end_offset(), future.directory().absolute_path()), (Offset(2), "/b".to_owned()));
    for number in 30..40 {
        append(&partition, number, &number.to_string()).unwrap();
    }
    running.finish(&partition).unwrap();
    assert_eq!(directory_of(&partition), "/b");
    assert_eq!(values(&partition), numbers(0..40));
    assert_eq!(partition.log().high_watermark(), Offset(40));
    assert!(partition.future().is_none() && running.logs.futures().is_empty());
    // Retries of what was written before the move are known after it.
    assert!((35..40).all(|number| append(&partition, number, &number.to_string()).unwrap()));
    assert!(!append(&partition, 40, "40").unwrap());
    assert_eq!(machine.folders("/b"), ["t-0"]);
    assert!(
        machine.folders("/a").iter().all(|name| name.ends_with("-delete")),
        "{:?}",
        machine.folders("/a")
    );
    machine.clock.advance_ms(60_001);
    running.logs.removal_tick(running.now());
    assert_eq!(machine.folders("/a"), [""; 0]);
}

#[test]
fn readers_and_flushes_that_hold_the_old_log_find_the_new_one() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 10);
    let old = partition.log();
    running.move_to("/b").unwrap();
    running.finish(&partition).unwrap();
    assert!(matches!(old.read(Offset(0), 1, Offset(10), true), Err(LogError::Closed { .. })));
    assert!(matches!(old.flush(FlushWanted::Everything, running.now()), Err(LogError::Closed { .. })));
    let found = partition.with_log(|log| log.fetch_offset_by_timestamp(Timestamp(0)));
    assert_eq!(found.unwrap().map(|found| found.offset), Some(Offset(0)));
    assert_eq!(partition.log().recovery_point(), Offset(10));
}

#[test]
fn a_copy_starts_where_its_log_does_also_in_the_middle_of_a_batch() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 20);
    let three = batch(20, &["20", "21", "22"]);
    let read = Batch::read(three).unwrap();
    let read = ValidatedBatch { header: read.header, bytes: read.bytes };
    let records = ValidatedRecords { batches: vec![read], log_append_time: None };
    let options =
        AppendOptions { producer: AppendOrigin::Client.into(), needs_isr: false, leader_epoch: None };
    partition.append(records, &options, running.now()).unwrap();
    partition.log().delete_records_before(Offset(21)).unwrap();
    running.move_to("/b").unwrap();
    running.finish(&partition).unwrap();
    assert_eq!(partition.log().log_start_offset(), Offset(21));
    assert_eq!(values(&partition), numbers(21..23));
    assert_eq!(partition.log().end_offset_for_epoch(LeaderEpoch(0)).end_offset, Offset(23));
}

#[test]
fn retention_on_the_way_is_followed() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 30);
    running.move_to("/b").unwrap();
    for _ in 0..3 {
        running.step(&partition).unwrap();
    }
    partition.log().delete_records_before(Offset(25)).unwrap();
    running.logs.retention_tick(running.now());
    running.finish(&partition).unwrap();
    assert_eq!((directory_of(&partition), values(&partition)), ("/b".to_owned(), numbers(25..30)));
}

/// The controller gives a leader a new epoch whenever a replica goes or the assignment changes.
#[test]
fn a_leadership_lasts_over_its_epochs_until_another_broker_leads() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 1);
    let epoch = partition.role().leader_epoch;
    let watched =
        WatchedOffset { partition: Arc::clone(&partition), required_offset: Offset(2), leader_epoch: epoch };
    assert_eq!(running.tell(&of(), ME.0, epoch.0 + 1, false), ControlOutcome::Done);
    assert!(!partition.is_committed(&watched).unwrap());
    assert!(!append_in(&partition, Some(epoch), 1, "1").unwrap());
    assert!(partition.is_committed(&watched).unwrap());
    assert_eq!(partition.log().latest_epoch(), LeaderEpoch(epoch.0 + 1));
    for (leader, later) in [(2, 2), (ME.0, 3)] {
        assert_eq!(running.tell(&of(), leader, epoch.0 + later, false), ControlOutcome::Done);
        assert!(matches!(partition.is_committed(&watched), Err(ReplicaError::NotLeaderOrFollower)));
        let appended = append_in(&partition, Some(epoch), 2, "2");
        assert!(matches!(appended, Err(ReplicaError::NotLeaderOrFollower)));
    }
}

/// Found by simulation: records were deleted up to the middle of the leader's batch, a follower was cut off there, and
/// refused the batch, which is sent whole.
#[test]
fn a_follower_that_ends_in_the_middle_of_a_batch_takes_it_whole() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 22);
    assert_eq!(running.tell(&of(), 2, 5, false), ControlOutcome::Done);
    let following = Following { leader: BrokerId(2), leader_epoch: LeaderEpoch(5) };
    let three = Batch::read(batch(20, &["20", "21", "22"])).unwrap();
    let three = ValidatedBatch { header: three.header, bytes: three.bytes };
    let mut bytes = three.prefix(Offset(20), LeaderEpoch(5)).to_vec();
    bytes.extend_from_slice(&three.bytes[bytes.len()..]);
    partition.append_as_follower(&following, Offset(22), bytes.into(), running.now()).unwrap();
    assert_eq!(values(&partition), numbers(0..23));
    assert_eq!(partition.log().latest_epoch(), LeaderEpoch(5));
}

#[test]
fn what_is_cut_off_the_log_is_cut_off_its_copy() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 30);
    running.move_to("/b").unwrap();
    while partition.future().unwrap().log_end_offset() < Offset(30) {
        partition.copy_some(STEP_BYTES, running.now()).unwrap();
    }
    // Another leader has other records from 20 on.
    assert_eq!(running.tell(&of(), 2, 5, false), ControlOutcome::Done);
    let following = Following { leader: BrokerId(2), leader_epoch: LeaderEpoch(5) };
    partition.truncate_as_follower(&following, Offset(20), running.now()).unwrap();
    let mut builder = BatchBuilder::new().producer(ProducerId(8), ProducerEpoch(0), 0);
    builder.append(Timestamp(5_000), None, Some(b"other"), &[]);
    let built = Batch::read(builder.build()).unwrap();
    let built = ValidatedBatch { header: built.header, bytes: built.bytes };
    let mut bytes = built.prefix(Offset(20), LeaderEpoch(5)).to_vec();
    bytes.extend_from_slice(&built.bytes[bytes.len()..]);
    partition.append_as_follower(&following, Offset(20), bytes.into(), running.now()).unwrap();
    running.finish(&partition).unwrap();
    let mut expected = numbers(0..20);
    expected.push("other".to_owned());
    assert_eq!((directory_of(&partition), values(&partition)), ("/b".to_owned(), expected));
    assert_eq!(partition.log().latest_epoch(), LeaderEpoch(5));
}

#[test]
fn a_move_is_given_up_by_moving_back_or_elsewhere() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 10);
    running.move_to("/b").unwrap();
    running.step(&partition).unwrap();
    running.move_to("/a").unwrap();
    assert!(partition.future().is_none() && running.logs.futures().is_empty());
    assert!(machine.folders("/b").iter().all(|name| name.ends_with("-delete")));
    assert_eq!(running.step(&partition).unwrap(), MoveStep::Over);
    running.move_to("/b").unwrap();
    running.move_to("/b").unwrap();
    running.finish(&partition).unwrap();
    assert_eq!((directory_of(&partition), values(&partition)), ("/b".to_owned(), numbers(0..10)));
    running.move_to("/a").unwrap();
    running.finish(&partition).unwrap();
    assert_eq!((directory_of(&partition), values(&partition)), ("/a".to_owned(), numbers(0..10)));
}

#[test]
fn a_deleted_partition_leaves_no_copy() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 10);
    running.move_to("/b").unwrap();
    running.step(&partition).unwrap();
    let stop = StopReplica { topic_partition: of(), leader_epoch: LeaderEpoch(-2), delete: true };
    let request = StopReplicaRequest { sender: sender(), partitions: vec![stop] };
    let stopped = running.replicas.stop_replicas(&request, running.now()).unwrap();
    assert_eq!(stopped[0].1, ControlOutcome::Done);
    assert_eq!(running.step(&partition).unwrap(), MoveStep::Over);
    for directory in ["/a", "/b"] {
        assert!(machine.folders(directory).iter().all(|name| name.ends_with("-delete")));
    }
    drop(running);
    machine.fs.crash();
    let running = machine.start();
    assert!(running.logs.logs().is_empty() && running.logs.futures().is_empty());
}

#[test]
fn a_move_that_cannot_begin_leaves_no_folder() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 10);
    machine.fs.set_capacity_bytes(machine.fs.used_bytes());
    assert!(running.move_to("/b").is_err());
    assert!(partition.future().is_none() && running.logs.futures().is_empty());
    assert!(machine.folders("/b").is_empty());
    machine.fs.set_capacity_bytes(u64::MAX);
    running.move_to("/b").unwrap();
    running.finish(&partition).unwrap();
    assert_eq!((directory_of(&partition), values(&partition)), ("/b".to_owned(), numbers(0..10)));
}

#[test]
fn requests_that_cannot_be_met_say_why() {
    let machine = Machine::new();
    let (running, _) = running_with(&machine, 1);
    let ask = |topic: &str, directory: &str| {
        running.replicas.alter_log_dir(&named(topic), directory, running.now()).unwrap_err()
    };
    assert!(matches!(ask(&"x".repeat(240), "/nowhere"), AlterLogDirError::NameTooLong));
    assert!(matches!(ask("t", "/nowhere"), AlterLogDirError::LogDirNotFound));
    assert!(matches!(ask("t", "/b/"), AlterLogDirError::LogDirNotFound));
    assert!(matches!(ask("unknown", "/b"), AlterLogDirError::UnknownTopicOrPartition));
    fail_directory(&running, "/b");
    assert!(matches!(ask("t", "/b"), AlterLogDirError::DirectoryOffline));
}

#[test]
fn a_replica_that_is_not_here_yet_is_created_where_it_was_wanted() {
    let machine = Machine::new();
    let running = machine.start();
    for (topic, directory) in [("one", "/b"), ("two", "/b"), ("three", "/a")] {
        assert!(running.replicas.alter_log_dir(&named(topic), directory, running.now()).is_err());
        assert_eq!(running.tell(&named(topic), ME.0, 0, true), ControlOutcome::Done);
        let partition = running.replicas.partition(topic, PartitionIndex(0)).unwrap();
        assert_eq!(directory_of(&partition), directory);
    }
}

#[test]
fn compaction_rests_while_a_log_is_copied() {
    let config = LogConfig {
        segment_bytes: 600,
        index_interval_bytes: 100,
        cleanup: Cleanup::COMPACT,
        min_cleanable_dirty_ratio: 0.0,
        ..LogConfig::default()
    };
    let machine = Machine::with(config);
    let (running, partition) = running_with(&machine, 30);
    let cleaner = LogCleaner::new(Arc::clone(&running.logs));
    let options = CleanerOptions { map_bytes: 1 << 20, load_factor: 0.9, io_buffer_bytes: 4096 };
    let pick = || cleaner.pick(&options, HashSecret([1, 2]), running.now());
    let mut cleaning = pick().unwrap();
    running.move_to("/b").unwrap();
    let outcome = (0..100).find_map(|_| cleaning.step(running.now()).err());
    assert!(matches!(outcome, Some(LogError::SegmentDeleted)), "{outcome:?}");
    cleaner.finish(cleaning, Err(LogError::SegmentDeleted), running.now());
    assert!(pick().is_none());
    running.finish(&partition).unwrap();
    let mut cleaning = pick().unwrap();
    while cleaning.step(running.now()).unwrap() != crate::log::Step::Done {}
    cleaner.finish(cleaning, Ok(()), running.now());
    // The active segment keeps what it has.
    assert!(values(&partition).len() < 15 && values(&partition).ends_with(&numbers(29..30)));
}

/// Lets a write in the directory fail.
fn fail_directory(running: &Running, directory: &str) {
    let topic = named("victim");
    running.logs.prefer(&topic, &running.logs.directory_at(directory).unwrap());
    let fault = FaultOutcome::Error(std::io::ErrorKind::Other);
    running.machine.fs.inject(Fault { on: Operation::Create, after: 0, outcome: fault });
    assert_eq!(running.tell(&topic, ME.0, 0, true), ControlOutcome::StorageError);
    assert!(running.logs.directory_at(directory).unwrap().is_offline());
}

#[test]
fn a_directory_that_fails_ends_the_moves_to_it_only() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 10);
    running.move_to("/b").unwrap();
    running.step(&partition).unwrap();
    fail_directory(&running, "/b");
    assert!(running.step(&partition).is_err());
    assert_eq!(running.replicas.drop_offline_replicas(), []);
    assert_eq!(running.step(&partition).unwrap(), MoveStep::Over);
    append(&partition, 10, "10").unwrap();
    assert_eq!(values(&partition), numbers(0..11));
    assert!(matches!(running.move_to("/b"), Err(AlterLogDirError::DirectoryOffline)));
}

#[test]
fn replicas_in_a_directory_that_failed_are_offline_until_a_restart() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 10);
    running.logs.prefer(&named("b"), &running.logs.directory_at("/b").unwrap());
    assert_eq!(running.tell(&named("b"), ME.0, 0, true), ControlOutcome::Done);
    fail_directory(&running, "/a");
    // Nobody has looked yet: neither role can be taken.
    assert_eq!(running.tell(&of(), 2, 7, false), ControlOutcome::StorageError);
    let dropped = running.replicas.drop_offline_replicas();
    assert_eq!(dropped.iter().map(|change| &change.topic_partition).collect::<Vec<_>>(), [&of()]);
    assert!(append(&partition, 10, "10").is_err());
    let refused = running.replicas.partition("t", PartitionIndex(0)).map(|_| ());
    assert!(matches!(refused, Err(ReplicaError::StorageError)));
    for leader in [ME.0, 2] {
        assert_eq!(running.tell(&of(), leader, 8, false), ControlOutcome::StorageError);
    }
    // What may lie in the failed directory is not begun anew in another one; what is new is.
    assert_eq!(running.tell(&named("seen"), ME.0, 3, false), ControlOutcome::StorageError);
    assert_eq!(running.tell(&named("new"), ME.0, 0, true), ControlOutcome::Done);
    let b = running.replicas.partition("b", PartitionIndex(0)).unwrap();
    append(&b, 0, "0").unwrap();
    machine.fs.kill();
    let running = machine.start();
    assert_eq!(values(&running.lead()), numbers(0..10));
}

/// Found by simulation: the deletion was called done, and the folder came back when there was a new topic of the name.
#[test]
fn what_lies_in_a_directory_that_failed_is_not_called_deleted() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 10);
    let directory = directory_of(&partition);
    let stop = StopReplica { topic_partition: of(), leader_epoch: LeaderEpoch(-2), delete: true };
    let request = StopReplicaRequest { sender: sender(), partitions: vec![stop] };
    let stop = |running: &Running| running.replicas.stop_replicas(&request, running.now()).unwrap()[0].1;
    // The partition has not been let go of yet.
    fail_directory(&running, &directory);
    assert_eq!(stop(&running), ControlOutcome::StorageError);
    machine.fs.kill();
    drop((running, partition));
    // The controller has not told yet what this broker hosts.
    let running = machine.start();
    fail_directory(&running, &directory);
    assert_eq!(stop(&running), ControlOutcome::StorageError);
    // Nor when it was away already when the broker started, which then knows nothing of what lies there.
    machine.fs.fail_volume(directory.trim_start_matches('/'));
    machine.fs.kill();
    let running = machine.start();
    assert_eq!(stop(&running), ControlOutcome::StorageError);
    machine.fs.mend_volume(directory.trim_start_matches('/'));
    machine.fs.kill();
    let running = machine.start();
    assert!(running.logs.log(&of()).is_some());
    assert_eq!(stop(&running), ControlOutcome::Done);
    assert!(running.logs.log(&of()).is_none());
}

/// Found by simulation: the folder came back with its disk, and the deletion of the topic that has its name waited for ever.
#[test]
fn a_log_of_an_earlier_topic_of_its_name_is_refused_and_goes_with_the_topic() {
    let machine = Machine::new();
    drop(running_with(&machine, 1));
    machine.fs.kill();
    let running = machine.start();
    let mut state = PartitionAssignmentState::at_first(of(), vec![ME], vec![ME]);
    state.is_new = true;
    let request = LeaderAndIsrRequest {
        sender: sender(),
        partitions: vec![state],
        topic_ids: vec![(of().topic, TopicId([8; 16]))],
        live_leaders: Vec::new(),
    };
    let told = running.replicas.become_leader_or_follower(&request, running.now()).unwrap();
    assert_eq!(told.outcomes[0].1, ControlOutcome::InconsistentTopicId);
    let stop = StopReplica { topic_partition: of(), leader_epoch: LeaderEpoch(-2), delete: true };
    let request = StopReplicaRequest { sender: sender(), partitions: vec![stop] };
    let stopped = running.replicas.stop_replicas(&request, running.now()).unwrap();
    assert_eq!(stopped[0].1, ControlOutcome::Done);
    assert!(running.logs.log(&of()).is_none());
}

#[test]
fn a_full_disk_keeps_a_move_waiting_and_the_log_working() {
    let machine = Machine::new();
    let (running, partition) = running_with(&machine, 10);
    running.move_to("/b").unwrap();
    let used = u64::MAX - machine.fs.space(Path::new("/")).unwrap().usable_bytes;
    for room in (0..2_000).step_by(97) {
        machine.fs.set_capacity_bytes(used + room);
        let outcome = running.finish(&partition);
        if outcome.is_ok() {
            break;
        }
        let is_full = matches!(outcome, Err(ReplicaError::Log { source: LogError::DiskFull { .. } }));
        assert!(is_full && running.logs.offline_directories().is_empty(), "{outcome:?} with {room} bytes");
        assert_eq!((directory_of(&partition), values(&partition)), ("/a".to_owned(), numbers(0..10)));
    }
    machine.fs.set_capacity_bytes(u64::MAX);
    running.finish(&partition).unwrap();
    assert_eq!((directory_of(&partition), values(&partition)), ("/b".to_owned(), numbers(0..10)));
}

#[test]
fn folders_of_one_partition_in_two_directories_are_refused_unless_one_is_marked() {
    let machine = Machine::new();
    let (running, _) = running_with(&machine, 3);
    drop(running);
    machine.fs.create_dir(Path::new("/b/t-0")).unwrap();
    machine.fs.kill();
    let refused = machine.try_start().map(|_| ()).unwrap_err();
    assert!(matches!(refused, LogError::UnusableDirectory { .. }), "{refused}");
    machine
        .fs
        .replace(Path::new("/b/t-0/moved-from"), b"/a/t-0", crate::runtime::fs::Durability::Synced)
        .unwrap();
    machine.fs.kill();
    let running = machine.start();
    let partition = running.lead();
    assert_eq!(directory_of(&partition), "/a");
    running.finish(&partition).unwrap();
    assert_eq!((directory_of(&partition), values(&partition)), ("/b".to_owned(), numbers(0..3)));
}

/// How the machine stops.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stop {
    Kill,
    Crash,
    Torn(u64),
}

/// What a move among appends has come to.
struct History {
    /// Appended, so that only a power loss may take it.
    acknowledged: i32,
    /// Made durable, so that nothing may take it.
    durable: i32,
    outcome: Result<(), String>,
}

/// Moves a replica to `/b` while records come, and lets some come afterwards.
fn run(running: &Running, partition: &Partition, history: &mut History) -> Result<(), String> {
    let text = |error: ReplicaError| error.to_string();
    let mut next = history.acknowledged;
    let mut append_some = |count: i32, history: &mut History| -> Result<(), String> {
        for _ in 0..count {
            append(partition, next, &next.to_string()).map_err(text)?;
            next += 1;
            history.acknowledged = next;
        }
        Ok(())
    };
    running.move_to("/b").map_err(|error| error.to_string())?;
    for _ in 0..4 {
        running.step(partition).map_err(text)?;
    }
    append_some(2, history)?;
    loop {
        let before = history.acknowledged;
        match running.step(partition).map_err(text)? {
            MoveStep::Done => {
                // The copy was durable before it took the log's place, for good if its directory still works.
                if running.logs.offline_directories().is_empty() {
                    history.durable = before;
                }
                break;
            }
            MoveStep::Over => return Err("the move is over".to_owned()),
            MoveStep::Copied { .. } | MoveStep::CaughtUp => {}
        }
    }
    append_some(3, history)?;
    partition.log().flush(FlushWanted::Everything, running.now()).map_err(|error| error.to_string())?;
    history.durable = history.acknowledged;
    running.machine.clock.advance_ms(60_001);
    running.logs.removal_tick(running.now());
    match running.logs.offline_directories().is_empty() {
        true => Ok(()),
        false => Err("a directory is offline".to_owned()),
    }
}

fn check_every_step(stop: Stop) {
    for step in 0.. {
        let machine = Machine::new();
        let (running, partition) = running_with(&machine, 12);
        partition.log().delete_records_before(Offset(3)).unwrap();
        partition.log().flush(FlushWanted::Everything, running.now()).unwrap();
        running.logs.recovery_point_tick();
        running.logs.log_start_offset_tick();
        machine.fs.stop_at(machine.fs.steps() + step);
        let mut history = History { acknowledged: 12, durable: 12, outcome: Ok(()) };
        history.outcome = run(&running, &partition, &mut history);
        match stop {
            Stop::Kill => machine.fs.kill(),
            Stop::Crash => machine.fs.crash(),
            Stop::Torn(seed) => machine.fs.crash_torn(&Random::from_seed(seed + step)),
        }
        check_after(
            &machine,
            &history,
            stop,
            &format!("{stop:?} at step {step}, after {:?}", history.outcome),
        );
        if history.outcome.is_ok() {
            assert!(step > 60, "a move of {step} steps is none");
            return;
        }
    }
}

/// Nothing is lost, and the move comes to its end.
fn check_after(machine: &Arc<Machine>, history: &History, stop: Stop, context: &str) {
    let running = machine.try_start().unwrap_or_else(|error| panic!("{context}: {error}"));
    let partition = running.lead();
    let found = values(&partition);
    let promised = if stop == Stop::Kill { history.acknowledged } else { history.durable };
    let last: i32 = found.last().map_or(-1, |last| last.parse().unwrap());
    assert!(last + 1 >= promised, "{context}: {found:?}, {promised} were promised");
    let first: i32 = found.first().map_or(last, |first| first.parse().unwrap());
    assert!(first <= 3 && found == numbers(first..last + 1), "{context}: {found:?}");
    if directory_of(&partition) != "/b" && partition.future().is_none() {
        running.move_to("/b").unwrap();
    }
    running.finish(&partition).unwrap();
    assert_eq!((directory_of(&partition), values(&partition)), ("/b".to_owned(), found.clone()), "{context}");
    // Its producer goes on after the restart too.
    assert!(!append(&partition, last + 1, &(last + 1).to_string()).unwrap(), "{context}");
    running.logs.shut_down(running.now());
    machine.fs.crash();
    let running = machine.start();
    let again = running.lead();
    assert_eq!(values(&again), numbers(first..last + 2), "{context}: after a clean shutdown");
    assert!(again.future().is_none() && machine.folders("/b").contains(&"t-0".to_owned()), "{context}");
}

#[test]
fn a_kill_at_any_step_of_a_move_loses_nothing_that_was_acknowledged() {
    check_every_step(Stop::Kill);
}

#[test]
fn a_power_loss_at_any_step_of_a_move_loses_nothing_that_was_flushed() {
    check_every_step(Stop::Crash);
}

#[test]
fn a_power_loss_that_tears_files_at_any_step_of_a_move_loses_nothing_that_was_flushed() {
    for seed in [1, 1_000, 2_000] {
        check_every_step(Stop::Torn(seed));
    }
}
