use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use snafu::ResultExt;

use super::finding::{Repair, Report};
use super::partition::{self, Expectations, read_text};
use super::{CheckError, ReadSnafu};
use crate::log::checkpoint::{ClusterMode, MetaProperties, parse_offsets};
use crate::log::{DirectoryKind, FileKind, Stage, classify_directory, parse_file_name};
use crate::model::{Offset, TopicPartition};
use crate::runtime::fs::FileSystem;

/// Files of a log folder, besides those of the embedded store.
const KNOWN_FILES: [&str; 4] = [".lock", ".kafka_cleanshutdown", "meta.properties", "bootstrap.checkpoint"];
const CHECKPOINTS: [&str; 4] = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
];

/// Whether the folder is one partition's, by what lies in it.
pub(super) fn is_partition(fs: &dyn FileSystem, path: &Path) -> bool {
    let is_segment = |name: &str| matches!(parse_file_name(name), Some((_, FileKind::Records, Stage::Live)));
    fs.list(path).is_ok_and(|entries| entries.iter().any(|entry| is_segment(&entry.name)))
}

/// Checks a folder of `log.dirs`, or of one partition.
pub(super) fn check(
    fs: &dyn FileSystem,
    path: &Path,
    report: &mut Report,
    progress: &mut dyn FnMut(&Report),
) -> Result<(), CheckError> {
    if is_partition(fs, path) {
        return partition::check(fs, path, Expectations::default(), report);
    }
    let mut entries = fs.list(path).context(ReadSnafu { path })?;
    entries.sort_by(|left, right| left.name.cmp(&right.name));
    let is_clean = entries.iter().any(|entry| entry.name == ".kafka_cleanshutdown");
    let checkpoints = Checkpoints::read(fs, path, report)?;
    check_meta(fs, path, report)?;
    let mut present = BTreeSet::new();
    for entry in entries {
        let at = path.join(&entry.name);
        if !entry.is_directory {
            let is_known = KNOWN_FILES.contains(&entry.name.as_str())
                || CHECKPOINTS.contains(&entry.name.as_str())
                || entry.name.starts_with("barnabas-store.");
            if !is_known {
                report.note(&at, "a stray file");
            }
            continue;
        }
        match classify_directory(&entry.name) {
            DirectoryKind::Partition(topic_partition) => {
                let expected = checkpoints.of(&topic_partition, is_clean);
                partition::check(fs, &at, expected, report)?;
                present.insert(topic_partition);
                progress(report);
            }
            DirectoryKind::Future(_) | DirectoryKind::Deleted => {
                report.note(&at, "a deletion or a move that goes on at the next start")
            }
            DirectoryKind::Stray => {
                report.note(&at, "a log that was set aside as stray: brokers keep it and do not serve it")
            }
            DirectoryKind::Ignored => report.note(&at, "set aside: brokers pass over it"),
            DirectoryKind::Foreign => {
                report.error(&at, "no partition's folder: Kafka refuses to start on it")
            }
        }
    }
    for gone in checkpoints.all_partitions().difference(&present) {
        report.note(path, format!("the checkpoints name {gone}, which has no folder"));
    }
    Ok(())
}

fn check_meta(fs: &dyn FileSystem, path: &Path, report: &mut Report) -> Result<(), CheckError> {
    let at = path.join("meta.properties");
    match read_text(fs, &at)? {
        None => report.note(&at, "missing: the folder belongs to no broker yet"),
        Some(text) => match MetaProperties::parse(text.as_bytes()) {
            Ok(MetaProperties { mode: ClusterMode::ZooKeeper, .. }) => {}
            Ok(MetaProperties { mode: ClusterMode::KRaft, .. }) => {
                report.note(&at, "a folder of a KRaft broker, which no broker of a ZooKeeper cluster opens");
            }
            Err(error) => report.error(&at, error.to_string()),
        },
    }
    Ok(())
}

type Offsets = BTreeMap<TopicPartition, Offset>;

/// The four files of offsets by partition.
#[derive(Default)]
struct Checkpoints {
    recovery_points: Offsets,
    high_watermarks: Offsets,
    log_starts: Offsets,
    cleaned: Offsets,
}

impl Checkpoints {
    fn read(fs: &dyn FileSystem, path: &Path, report: &mut Report) -> Result<Checkpoints, CheckError> {
        let mut read = |name: &str| -> Result<Offsets, CheckError> {
            let at = path.join(name);
            let Some(text) = read_text(fs, &at)? else { return Ok(Offsets::new()) };
            match parse_offsets(&text) {
                Ok(offsets) => Ok(offsets.into_iter().collect()),
                Err(error) => {
                    report.warn(&at, error.to_string(), Some(Repair::RemoveFile));
                    Ok(Offsets::new())
                }
            }
        };
        let [recovery_points, high_watermarks, log_starts, cleaned] = CHECKPOINTS;
        Ok(Checkpoints {
            recovery_points: read(recovery_points)?,
            high_watermarks: read(high_watermarks)?,
            log_starts: read(log_starts)?,
            cleaned: read(cleaned)?,
        })
    }

    fn of(&self, partition: &TopicPartition, is_clean: bool) -> Expectations {
        Expectations {
            is_clean,
            cleaned_below: self.cleaned.get(partition).copied(),
            recovery_point: self.recovery_points.get(partition).copied(),
            high_watermark: self.high_watermarks.get(partition).copied(),
            log_start: self.log_starts.get(partition).copied(),
        }
    }

    fn all_partitions(&self) -> BTreeSet<TopicPartition> {
        let all = [&self.recovery_points, &self.high_watermarks, &self.log_starts, &self.cleaned];
        all.into_iter().flat_map(|offsets| offsets.keys().cloned()).collect()
    }
}
