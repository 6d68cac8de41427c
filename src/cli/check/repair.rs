//! Puts caches right, from the records alone.

use std::io;
use std::path::Path;

use snafu::ResultExt;

use super::batches::{SegmentFacts, Walk};
use super::finding::{Finding, Repair};
use super::{CheckError, ReadSnafu, SegmentSnafu, WriteSnafu};
use crate::log::checkpoint::format_leader_epochs;
use crate::log::{FileKind, IndexFiles, SegmentReader, SparseIndexes, Stage, parse_file_name};
use crate::model::Offset;
use crate::runtime::fs::{Durability, FileSystem};

/// Bytes between two entries of an index, Kafka's default.
const INDEX_INTERVAL_BYTES: u32 = 4096;

pub(super) fn repair(fs: &dyn FileSystem, finding: &Finding) -> Result<(), CheckError> {
    let path = &finding.path;
    match finding.repair {
        None => Ok(()),
        Some(Repair::RemoveFile) => match fs.remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.context(WriteSnafu { path }),
        },
        Some(Repair::RebuildIndexes) => rebuild_indexes(fs, path),
        Some(Repair::RebuildEpochs) => rebuild_epochs(fs, path),
    }
}

fn rebuild_indexes(fs: &dyn FileSystem, path: &Path) -> Result<(), CheckError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((base, _, _)) = parse_file_name(name) else { return Ok(()) };
    let log = path.with_extension("log");
    let mut reader = SegmentReader::open(fs, &log).context(SegmentSnafu { path: log })?;
    let mut indexes = SparseIndexes::new(base, INDEX_INTERVAL_BYTES);
    while let Ok(Some((position, batch))) = reader.next_batch() {
        indexes.note(&batch.header, position);
    }
    let IndexFiles { offsets, times } = indexes.finish();
    for (extension, bytes) in [("index", offsets), ("timeindex", times)] {
        let path = path.with_extension(extension);
        fs.replace(&path, &bytes, Durability::Synced).context(WriteSnafu { path })?;
    }
    Ok(())
}

fn rebuild_epochs(fs: &dyn FileSystem, path: &Path) -> Result<(), CheckError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let entries = fs.list(folder).context(ReadSnafu { path: folder })?;
    let mut bases: Vec<Offset> = entries
        .iter()
        .filter_map(|entry| match parse_file_name(&entry.name) {
            Some((offset, FileKind::Records, Stage::Live)) => Some(offset),
            _ => None,
        })
        .collect();
    bases.sort_unstable();
    let mut walk = Walk::new(None);
    for base in bases {
        walk_segment(fs, &folder.join(FileKind::Records.name(base)), &mut walk)?;
    }
    let text = format_leader_epochs(walk.epochs());
    fs.replace(path, text.as_bytes(), Durability::Synced).context(WriteSnafu { path })
}

/// As far as the batches are whole.
fn walk_segment(fs: &dyn FileSystem, path: &Path, walk: &mut Walk) -> Result<(), CheckError> {
    let mut reader = SegmentReader::open(fs, path).context(SegmentSnafu { path })?;
    let mut facts = SegmentFacts::default();
    while let Ok(Some((position, batch))) = reader.next_batch() {
        walk.take(position, &batch, &mut facts);
    }
    Ok(())
}
