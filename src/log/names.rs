//! The names of files in a partition's directory, and of partition directories in a log directory.

use std::borrow::Cow;

use crate::model::{Offset, PartitionIndex, TopicName, TopicPartition};

pub(super) const PARTITION_METADATA: &str = "partition.metadata";
pub(super) const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";

/// A file of a log that is written as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SmallFile {
    PartitionMetadata,
    LeaderEpochs,
    ProducerSnapshot(Offset),
}

/// A kind of file that belongs to one offset of a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FileKind {
    Records,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    ProducerSnapshot,
}

impl SmallFile {
    pub(super) fn name(self) -> Cow<'static, str> {
        match self {
            SmallFile::PartitionMetadata => PARTITION_METADATA.into(),
            SmallFile::LeaderEpochs => LEADER_EPOCH_CHECKPOINT.into(),
            SmallFile::ProducerSnapshot(offset) => FileKind::ProducerSnapshot.name(offset).into(),
        }
    }
}

impl FileKind {
    /// The files that make up a segment; a producer snapshot belongs to an offset, not to a segment.
    pub(super) const OF_SEGMENT: [FileKind; 4] =
        [FileKind::Records, FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TransactionIndex];

    fn extension(self) -> &'static str {
        match self {
            FileKind::Records => "log",
            FileKind::OffsetIndex => "index",
            FileKind::TimeIndex => "timeindex",
            FileKind::TransactionIndex => "txnindex",
            FileKind::ProducerSnapshot => "snapshot",
        }
    }

    fn of_extension(extension: &str) -> Option<FileKind> {
        let all = FileKind::OF_SEGMENT.into_iter().chain([FileKind::ProducerSnapshot]);
        all.into_iter().find(|kind| kind.extension() == extension)
    }

    pub fn name(self, offset: Offset) -> String {
        format!("{:020}.{}", offset.0, self.extension())
    }

    /// The name with what its stage puts behind it.
    pub(super) fn name_in(self, stage: Stage, offset: Offset) -> String {
        self.name(offset) + stage.suffix()
    }
}

/// What is behind the name of a segment file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Live,
    /// Waits for its removal.
    Deleted,
    /// The output of a compaction that did not finish.
    Cleaned,
    /// The output of a compaction that only has to be put in place.
    Swap,
}

impl Stage {
    fn suffix(self) -> &'static str {
        match self {
            Stage::Live => "",
            Stage::Deleted => ".deleted",
            Stage::Cleaned => ".cleaned",
            Stage::Swap => ".swap",
        }
    }
}

/// A parsed file name, or `None` for one that is not of this form (`partition.metadata`, …).
pub fn parse_file_name(name: &str) -> Option<(Offset, FileKind, Stage)> {
    let (name, stage) = match name.rsplit_once('.')? {
        (rest, "deleted") => (rest, Stage::Deleted),
        (rest, "cleaned") => (rest, Stage::Cleaned),
        (rest, "swap") => (rest, Stage::Swap),
        _ => (name, Stage::Live),
    };
    let (digits, extension) = name.split_once('.')?;
    let is_offset = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let offset = digits.parse().ok().filter(|_| is_offset)?;
    Some((Offset(offset), FileKind::of_extension(extension)?, stage))
}

/// What a directory inside a log directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DirectoryKind {
    Partition(TopicPartition),
    /// The target of a move between log directories.
    Future(TopicPartition),
    /// Renamed for deletion; only the removal is left.
    Deleted,
    /// Set aside by a Kafka whose controller does not know of it (KRaft, or a migration there): kept, never served.
    Stray,
    /// Not a log of clients: left alone.
    Ignored,
    Foreign,
}

/// The longest name that file systems take.
const NAME_LENGTH_MAX: usize = 255;

/// Tells what a directory is by its name.
pub fn classify_directory(name: &str) -> DirectoryKind {
    if name == "remote-log-index-cache" || name == "__cluster_metadata-0" {
        return DirectoryKind::Ignored;
    }
    if let Some(topic_partition) = parse_partition(name) {
        return DirectoryKind::Partition(topic_partition);
    }
    let Some((unique, suffix)) = name.rsplit_once('-') else { return DirectoryKind::Foreign };
    let Some((partition, id)) = unique.rsplit_once('.') else { return DirectoryKind::Foreign };
    // Nothing is done to these: any id will do, as for Kafka, whatever an operator made of it.
    if suffix == "stray" && !id.is_empty() && parse_partition(partition).is_some() {
        return DirectoryKind::Stray;
    }
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return DirectoryKind::Foreign;
    }
    match (suffix, parse_partition(partition)) {
        ("delete", Some(_)) => DirectoryKind::Deleted,
        ("future", Some(topic_partition)) => DirectoryKind::Future(topic_partition),
        _ => DirectoryKind::Foreign,
    }
}

fn parse_partition(name: &str) -> Option<TopicPartition> {
    let (topic, partition) = name.rsplit_once('-')?;
    let is_number = !partition.is_empty() && partition.bytes().all(|byte| byte.is_ascii_digit());
    let partition = partition.parse().ok().filter(|_| is_number)?;
    Some(TopicPartition::new(TopicName::new(topic).ok()?, PartitionIndex(partition)))
}

/// The name that a partition's directory has until it is removed. `unique` keeps apart deletions of equally
/// named partitions; the topic is cut so that the file system takes the name.
pub(super) fn deleted_directory_name(topic_partition: &TopicPartition, unique: [u8; 16]) -> String {
    let tail = format!("-{}.{:032x}-delete", topic_partition.partition, u128::from_be_bytes(unique));
    let topic: String = topic_partition.topic.chars().take(NAME_LENGTH_MAX - tail.len()).collect();
    topic + &tail
}

/// The name of the directory that a partition is moved into, as long as it is copied; `None` if the file system would
/// not take it. `unique` keeps apart moves of equally named partitions.
pub(super) fn future_directory_name(topic_partition: &TopicPartition, unique: [u8; 16]) -> Option<String> {
    let name = format!("{topic_partition}.{:032x}-future", u128::from_be_bytes(unique));
    (name.len() <= NAME_LENGTH_MAX).then_some(name)
}

/// Whether a partition's name is short enough for a move between log directories (KAFKA-4893).
pub fn can_be_moved(topic_partition: &TopicPartition) -> bool {
    future_directory_name(topic_partition, [0; 16]).is_some()
}

/// Lies in a directory that is about to take the place of another one of the same partition, until the other one is
/// gone: where both are found, this one is the copy.
pub(super) const MOVE_MARK: &str = "moved-from";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_file_names_are_kafkas() {
        assert_eq!(FileKind::Records.name(Offset(42)), "00000000000000000042.log");
        for (name, kind, stage) in [
            ("00000000000000000042.log", FileKind::Records, Stage::Live),
            ("00000000000000000042.timeindex.deleted", FileKind::TimeIndex, Stage::Deleted),
            ("00000000000000000042.index.cleaned", FileKind::OffsetIndex, Stage::Cleaned),
            ("00000000000000000042.txnindex.swap", FileKind::TransactionIndex, Stage::Swap),
            ("00000000000000000042.snapshot", FileKind::ProducerSnapshot, Stage::Live),
        ] {
            assert_eq!(parse_file_name(name), Some((Offset(42), kind, stage)), "{name}");
        }
        for name in ["partition.metadata", "leader-epoch-checkpoint", "x.log", "1.log.bak", "-1.log", ".log"]
        {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }

    #[track_caller]
    fn check(name: &str, kind: DirectoryKind) {
        assert_eq!(classify_directory(name), kind);
    }

    fn partition(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(partition))
    }

    #[test]
    fn directories_are_told_apart_by_name() {
        let id = "0123456789abcdef0123456789abcdef";
        check("a-b.c-12", DirectoryKind::Partition(partition("a-b.c", 12)));
        check("t-delete-0", DirectoryKind::Partition(partition("t-delete", 0)));
        check(&format!("t-0.{id}-delete"), DirectoryKind::Deleted);
        check(&format!("t-0.{id}-future"), DirectoryKind::Future(partition("t", 0)));
        check(&format!("t-0.{id}-stray"), DirectoryKind::Stray);
        check("a-b.c-12.by-hand-stray", DirectoryKind::Stray);
        check("t-stray-0", DirectoryKind::Partition(partition("t-stray", 0)));
        check("__cluster_metadata-0", DirectoryKind::Ignored);
        for foreign in [
            "lost+found",
            "t",
            "t-",
            "t-x",
            "t-+1",
            "t-99999999999",
            "t-0.12-delete",
            "t-0-stray",
            "t-0.-stray",
            "-1",
        ] {
            check(foreign, DirectoryKind::Foreign);
        }
    }

    #[test]
    fn names_that_are_too_long_cannot_be_moved() {
        let name = future_directory_name(&partition(&"x".repeat(212), 7), [0xab; 16]).unwrap();
        check(&name, DirectoryKind::Future(partition(&"x".repeat(212), 7)));
        assert_eq!(
            future_directory_name(&partition(&"x".repeat(213), 7), [0xab; 16]).map(|name| name.len()),
            Some(255)
        );
        assert!(!can_be_moved(&partition(&"x".repeat(213), 77)));
    }

    #[test]
    fn deleted_names_fit_the_file_system() {
        let name = deleted_directory_name(&partition(&"x".repeat(249), 7), [0xab; 16]);
        assert_eq!(name.len(), 255);
        check(&name, DirectoryKind::Deleted);
    }
}
