use std::io;
use std::path::{Path, PathBuf};

use snafu::{ResultExt, Snafu};

use super::checkpoint::{
    CheckpointError, MetaProperties, parse_leader_epochs, parse_offsets, parse_partition_metadata,
};
use super::names::{
    DirectoryKind, FileKind, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, Stage, classify_directory,
    parse_file_name,
};
use super::producer_snapshot::decode_snapshot;
use crate::model::{LeaderEpoch, ProducerId, TopicId, TopicPartition};
use crate::runtime::fs::FileSystem;

/// What lies in one folder of `log.dirs`, read without changing anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    pub path: PathBuf,
    /// `None` = no broker has owned the folder yet.
    pub meta: Option<MetaProperties>,
    /// In the order of their names.
    pub partitions: Vec<SurveyedPartition>,
    /// Folders that are no live partition, such as those of deletions that go on.
    pub other_folders: Vec<String>,
    /// The partitions that a cleaner has compacted.
    pub compacted: Vec<TopicPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedPartition {
    pub topic_partition: TopicPartition,
    pub path: PathBuf,
    /// `None` = written before 2.8.
    pub topic_id: Option<TopicId>,
    pub latest_epoch: Option<LeaderEpoch>,
    /// The largest that its producer snapshots name.
    pub producer_id_max: Option<ProducerId>,
}

#[derive(Debug, Snafu)]
pub enum SurveyError {
    #[snafu(display("cannot read {}: {source}", path.display()))]
    ReadFolder { path: PathBuf, source: io::Error },
    #[snafu(display("{}: {source}", path.display()))]
    Damaged { path: PathBuf, source: CheckpointError },
}

impl Survey {
    /// Errors: a file that cannot be read, and a text file that says nothing that can be understood. Damaged
    /// snapshots are passed over: they are caches.
    pub fn take(fs: &dyn FileSystem, path: &Path) -> Result<Survey, SurveyError> {
        let mut entries = fs.list(path).context(ReadFolderSnafu { path })?;
        entries.sort_by(|left, right| left.name.cmp(&right.name));
        let meta =
            read_text(fs, &path.join("meta.properties"), |text| MetaProperties::parse(text.as_bytes()))?;
        let compacted = read_text(fs, &path.join("cleaner-offset-checkpoint"), parse_offsets)?;
        let compacted = compacted.unwrap_or_default().into_iter().map(|(of, _)| of).collect();
        let mut survey = Survey {
            path: path.to_owned(),
            meta,
            partitions: Vec::new(),
            other_folders: Vec::new(),
            compacted,
        };
        for entry in entries.into_iter().filter(|entry| entry.is_directory) {
            match classify_directory(&entry.name) {
                DirectoryKind::Partition(topic_partition) => {
                    survey.partitions.push(survey_partition(fs, topic_partition, path.join(&entry.name))?);
                }
                DirectoryKind::Future(_)
                | DirectoryKind::Deleted
                | DirectoryKind::Stray
                | DirectoryKind::Ignored
                | DirectoryKind::Foreign => survey.other_folders.push(entry.name),
            }
        }
        Ok(survey)
    }
}

fn survey_partition(
    fs: &dyn FileSystem,
    topic_partition: TopicPartition,
    path: PathBuf,
) -> Result<SurveyedPartition, SurveyError> {
    let topic_id = read_text(fs, &path.join(PARTITION_METADATA), parse_partition_metadata)?;
    let epochs = read_text(fs, &path.join(LEADER_EPOCH_CHECKPOINT), parse_leader_epochs)?;
    let latest_epoch = epochs.unwrap_or_default().iter().map(|entry| entry.epoch).max();
    let entries = fs.list(&path).context(ReadFolderSnafu { path: &path })?;
    let snapshots = entries.iter().filter(|entry| {
        matches!(parse_file_name(&entry.name), Some((_, FileKind::ProducerSnapshot, Stage::Live)))
    });
    let mut producer_id_max = None;
    for snapshot in snapshots {
        let path = path.join(&snapshot.name);
        let bytes = fs.read(&path).context(ReadFolderSnafu { path })?;
        let producers = decode_snapshot(&bytes).unwrap_or_default();
        producer_id_max = producer_id_max.max(producers.into_iter().map(|(id, _)| id).max());
    }
    Ok(SurveyedPartition { topic_partition, path, topic_id, latest_epoch, producer_id_max })
}

/// `None` = there is no such file.
fn read_text<T>(
    fs: &dyn FileSystem,
    path: &Path,
    parse: impl Fn(&str) -> Result<T, CheckpointError>,
) -> Result<Option<T>, SurveyError> {
    match fs.read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => {
            let bytes = read.context(ReadFolderSnafu { path })?;
            parse(&String::from_utf8_lossy(&bytes)).map(Some).context(DamagedSnafu { path })
        }
    }
}
