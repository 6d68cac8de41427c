use std::io::Write;
use std::path::{Path, PathBuf};

use snafu::{ResultExt, ensure};

use super::{
    Arguments, Complaints, CorruptIndexSnafu, DumpLogError, ReadSnafu, RecordsSnafu, SegmentSnafu, absolute,
    base_offset,
};
use crate::log::{SegmentReader, offset_index_entries, time_index_entries};
use crate::model::{Offset, Timestamp};
use crate::records::Batch;
use crate::runtime::fs::FileSystem;

/// What is wrong with time indexes.
#[derive(Debug, Default)]
pub(super) struct TimeComplaints {
    /// The timestamp in the index and the one in the log.
    mismatches: Vec<(PathBuf, Vec<(Timestamp, Timestamp)>)>,
    /// A timestamp and the one before it.
    out_of_order: Vec<(PathBuf, Vec<(Timestamp, Timestamp)>)>,
    /// The offset in the index and the one that was found.
    not_found: Vec<(PathBuf, Vec<(Offset, Offset)>)>,
}

impl TimeComplaints {
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (path, pairs) in &self.mismatches {
            text += &format!("Found timestamp mismatch in :{}\n", absolute(path));
            for (in_index, in_log) in pairs.iter().rev() {
                text += &format!("  Index timestamp: {in_index}, log timestamp: {in_log}\n");
            }
        }
        for (path, pairs) in &self.out_of_order {
            text += &format!("Found out of order timestamp in :{}\n", absolute(path));
            for (in_index, before) in pairs.iter().rev() {
                text += &format!("  Index timestamp: {in_index}, Previously indexed timestamp: {before}\n");
            }
        }
        for (_, pairs) in &self.not_found {
            text += "The following indexed offsets are not found in the log.\n";
            for (in_index, in_log) in pairs.iter().rev() {
                text += &format!("Indexed offset: {in_index}, found log offset: {in_log}\n");
            }
        }
        text
    }
}

pub(super) fn dump_offsets(
    arguments: &Arguments,
    fs: &dyn FileSystem,
    path: &Path,
    output: &mut dyn Write,
    complaints: &mut Complaints,
) -> Result<(), DumpLogError> {
    let base = base_offset(path)?;
    let bytes = fs.read(path).context(ReadSnafu { path })?;
    let entries = offset_index_entries(&bytes, base);
    if entries.is_empty() {
        return Ok(writeln!(output, "{} is empty.", path.display())?);
    }
    if arguments.index_sanity_check {
        ensure_whole(&bytes, 8, path)?;
        let last = entries.last().map_or(base, |(offset, _)| *offset);
        ensure!(last > base, CorruptIndexSnafu { path, what: no_greater(base, last) });
        return Ok(writeln!(output, "{} passed sanity check.", path.display())?);
    }
    let mut log = open_log(fs, path)?;
    let mut mismatches = Vec::new();
    for (offset, position) in entries {
        log.seek(position);
        let in_log = match log.next_batch() {
            Ok(Some((_, batch))) => batch.header.last_offset(),
            Ok(None) | Err(_) => Offset::NONE,
        };
        if in_log != offset {
            mismatches.push((offset, in_log));
        }
        if !arguments.verify_index_only {
            writeln!(output, "offset: {offset} position: {position}")?;
        }
    }
    if !mismatches.is_empty() {
        complaints.index_mismatches.push((path.to_owned(), mismatches));
    }
    Ok(())
}

pub(super) fn dump_times(
    arguments: &Arguments,
    fs: &dyn FileSystem,
    path: &Path,
    output: &mut dyn Write,
    complaints: &mut Complaints,
) -> Result<(), DumpLogError> {
    let base = base_offset(path)?;
    let bytes = fs.read(path).context(ReadSnafu { path })?;
    let entries = time_index_entries(&bytes, base);
    if arguments.index_sanity_check {
        ensure_whole(&bytes, 12, path)?;
        let last = entries.last().map_or(base, |(_, offset)| *offset);
        ensure!(last >= base, CorruptIndexSnafu { path, what: no_greater(base, last) });
        return Ok(writeln!(output, "{} passed sanity check.", path.display())?);
    }
    if entries.is_empty() {
        return Ok(());
    }
    // A missing offset index is an empty one.
    let positions = fs.read(&path.with_extension("index")).unwrap_or_default();
    let positions = offset_index_entries(&positions, base);
    let mut log = open_log(fs, path)?;
    let mut before = Timestamp::NONE;
    let (mut mismatches, mut out_of_order, mut not_found) = (Vec::new(), Vec::new(), Vec::new());
    for (timestamp, offset) in entries {
        let at = positions.partition_point(|(indexed, _)| *indexed <= offset);
        let from = at.checked_sub(1).and_then(|at| positions.get(at)).map_or(0, |(_, position)| *position);
        match find(&mut log, from, offset).context(SegmentSnafu { path })? {
            Some((position, batch)) if batch.header.last_offset() == offset => {
                let greatest = greatest_timestamp(&batch).context(RecordsSnafu { path, position })?;
                if greatest != timestamp {
                    mismatches.push((timestamp, greatest));
                }
                if before >= timestamp {
                    out_of_order.push((timestamp, before));
                }
            }
            found => {
                let found = found.map_or(Offset::NONE, |(_, batch)| batch.header.last_offset());
                not_found.push((offset, found));
            }
        }
        if !arguments.verify_index_only {
            writeln!(output, "timestamp: {timestamp} offset: {offset}")?;
        }
        before = timestamp;
    }
    let time = &mut complaints.time;
    keep(&mut time.mismatches, path, mismatches);
    keep(&mut time.out_of_order, path, out_of_order);
    keep(&mut time.not_found, path, not_found);
    Ok(())
}

fn keep<T>(all: &mut Vec<(PathBuf, Vec<T>)>, path: &Path, found: Vec<T>) {
    if !found.is_empty() {
        all.push((path.to_owned(), found));
    }
}

fn open_log(fs: &dyn FileSystem, path: &Path) -> Result<SegmentReader, DumpLogError> {
    let log = path.with_extension("log");
    SegmentReader::open(fs, &log).context(SegmentSnafu { path: log })
}

/// The first batch from a position on that reaches the offset.
fn find(
    log: &mut SegmentReader,
    from: u32,
    offset: Offset,
) -> Result<Option<(u64, Batch)>, crate::log::SegmentReadError> {
    log.seek(from);
    while let Some((position, batch)) = log.next_batch()? {
        if batch.header.last_offset() >= offset {
            return Ok(Some((position, batch)));
        }
    }
    Ok(None)
}

fn greatest_timestamp(batch: &Batch) -> Result<Timestamp, crate::records::RecordsError> {
    let mut greatest = Timestamp::NONE;
    for record in batch.records()? {
        greatest = greatest.max(record?.timestamp(&batch.header));
    }
    Ok(greatest)
}

fn ensure_whole(bytes: &[u8], entry: usize, path: &Path) -> Result<(), DumpLogError> {
    let what = || format!("has {} bytes, which is no multiple of {entry}", bytes.len());
    ensure!(bytes.len().is_multiple_of(entry), CorruptIndexSnafu { path, what: what() });
    Ok(())
}

fn no_greater(base: Offset, last: Offset) -> String {
    format!("has non-zero size but the last offset is {last} which is no greater than the base offset {base}")
}
