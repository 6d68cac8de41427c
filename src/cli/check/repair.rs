//! Puts caches right, from the records alone.

use std::io;
use std::path::Path;

use snafu::ResultExt;

use super::batches::{SegmentFacts, Walk};
use super::finding::{Finding, Repair};
use super::{CheckError, ReadSnafu, SegmentSnafu, WriteSnafu};
use crate::log::checkpoint::format_leader_epochs;
use crate::log::{LogFile, SegmentReader, parse_log_file};
use crate::model::{Offset, Timestamp};
use crate::runtime::fs::{Durability, FileSystem};

/// Bytes between two entries of an index, Kafka's default.
const INDEX_INTERVAL_BYTES: u64 = 4096;

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
    let Some((base, _, _)) = parse_log_file(name) else { return Ok(()) };
    let mut walk = Walk::new(None);
    let facts = walk_segment(fs, &path.with_extension("log"), &mut walk)?;
    let (offsets, times) = index_of(&facts, base);
    for (extension, bytes) in [("index", offsets), ("timeindex", times)] {
        let path = path.with_extension(extension);
        fs.replace(&path, &bytes, Durability::Synced).context(WriteSnafu { path })?;
    }
    Ok(())
}

/// Both indexes, as a recovering broker builds them.
fn index_of(facts: &SegmentFacts, base: Offset) -> (Vec<u8>, Vec<u8>) {
    let relative = |offset: Offset| u32::try_from(offset.since(base)).unwrap_or(u32::MAX).to_be_bytes();
    let (mut offsets, mut times) = (Vec::new(), Vec::new());
    let mut greatest: Option<(Timestamp, Offset)> = None;
    let mut written = Timestamp::NONE;
    let mut since_entry = 0;
    let put_time = |greatest: Option<(Timestamp, Offset)>, times: &mut Vec<u8>, written: &mut Timestamp| {
        if let Some((timestamp, offset)) = greatest.filter(|(timestamp, _)| timestamp > written) {
            times.extend_from_slice(&timestamp.0.to_be_bytes());
            times.extend_from_slice(&relative(offset));
            *written = timestamp;
        }
    };
    for ((position, last, timestamp), size) in facts.batches.iter().zip(&facts.sizes) {
        if greatest.is_none_or(|(known, _)| *timestamp > known) {
            greatest = Some((*timestamp, *last));
        }
        if since_entry > INDEX_INTERVAL_BYTES {
            offsets.extend_from_slice(&relative(*last));
            offsets.extend_from_slice(&u32::try_from(*position).unwrap_or(u32::MAX).to_be_bytes());
            put_time(greatest, &mut times, &mut written);
            since_entry = 0;
        }
        since_entry += size;
    }
    put_time(greatest, &mut times, &mut written);
    (offsets, times)
}

fn rebuild_epochs(fs: &dyn FileSystem, path: &Path) -> Result<(), CheckError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let entries = fs.list(folder).context(ReadSnafu { path: folder })?;
    let mut bases: Vec<Offset> = entries
        .iter()
        .filter_map(|entry| match parse_log_file(&entry.name) {
            Some((offset, LogFile::Records, true)) => Some(offset),
            _ => None,
        })
        .collect();
    bases.sort_unstable();
    let mut walk = Walk::new(None);
    for base in bases {
        walk_segment(fs, &folder.join(LogFile::Records.name(base)), &mut walk)?;
    }
    let text = format_leader_epochs(walk.epochs());
    fs.replace(path, text.as_bytes(), Durability::Synced).context(WriteSnafu { path })
}

/// As far as the batches are whole.
fn walk_segment(fs: &dyn FileSystem, path: &Path, walk: &mut Walk) -> Result<SegmentFacts, CheckError> {
    let mut reader = SegmentReader::open(fs, path).context(SegmentSnafu { path })?;
    let mut facts = SegmentFacts::default();
    while let Ok(Some((position, batch))) = reader.next_batch() {
        walk.take(position, &batch, &mut facts);
    }
    Ok(facts)
}
