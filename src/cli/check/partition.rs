use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use snafu::ResultExt;

use super::batches::{SegmentFacts, Walk, compare_aborted, compare_epochs};
use super::finding::{Repair, Report};
use super::{CheckError, ReadSnafu, SegmentSnafu};
use crate::log::checkpoint::{parse_leader_epochs, parse_partition_metadata};
use crate::log::{
    LogFile, SegmentReadError, SegmentReader, decode_index, decode_snapshot, offset_index_entries,
    parse_log_file, time_index_entries,
};
use crate::model::Offset;
use crate::runtime::fs::FileSystem;

/// What the folder around a partition says of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expectations {
    /// The broker stopped in order: nothing is unfinished.
    pub is_clean: bool,
    pub cleaned_below: Option<Offset>,
    pub recovery_point: Option<Offset>,
    pub high_watermark: Option<Offset>,
    pub log_start: Option<Offset>,
}

/// Files of a partition that belong to no offset.
const TEXT_FILES: [&str; 2] = ["partition.metadata", "leader-epoch-checkpoint"];

pub(super) fn check(
    fs: &dyn FileSystem,
    path: &Path,
    expected: Expectations,
    report: &mut Report,
) -> Result<(), CheckError> {
    report.partitions += 1;
    let files = Files::list(fs, path, report)?;
    let mut walk = Walk::new(expected.cleaned_below);
    let bases: Vec<Offset> = files.segments.keys().copied().collect();
    for (at, base) in bases.iter().enumerate() {
        let next = bases.get(at + 1).copied();
        let kinds = files.segments.get(base).cloned().unwrap_or_default();
        check_segment(fs, path, (*base, next), &kinds, expected, &mut walk, report)?;
    }
    let end = walk.log_end_offset().or(bases.last().copied());
    for offset in &files.snapshots {
        check_snapshot(fs, &path.join(LogFile::Snapshot.name(*offset)), *offset, end, report)?;
    }
    check_texts(fs, path, &walk, end, report)?;
    if walk.duplicate_keys() > 0 {
        let below = expected.cleaned_below.unwrap_or(Offset::ZERO);
        let what = format!(
            "{} records below {below}, where it was compacted, are of keys seen before",
            walk.duplicate_keys()
        );
        report.warn(path, what, None);
    }
    check_offsets(path, &bases, end, expected, report);
    Ok(())
}

#[derive(Default)]
struct Files {
    /// Base offset → the kinds that are there.
    segments: BTreeMap<Offset, BTreeSet<LogFile>>,
    snapshots: BTreeSet<Offset>,
}

impl Files {
    fn list(fs: &dyn FileSystem, path: &Path, report: &mut Report) -> Result<Files, CheckError> {
        let mut files = Files::default();
        let mut entries = fs.list(path).context(ReadSnafu { path })?;
        entries.sort_by(|left, right| left.name.cmp(&right.name));
        for entry in entries {
            let at = path.join(&entry.name);
            match parse_log_file(&entry.name) {
                Some((offset, LogFile::Snapshot, true)) => drop(files.snapshots.insert(offset)),
                Some((offset, kind, true)) => {
                    files.segments.entry(offset).or_default().insert(kind);
                }
                Some((_, _, false)) => {
                    report.note(&at, "a deletion or compaction that goes on at the next start")
                }
                None if TEXT_FILES.contains(&entry.name.as_str()) => {}
                None => report.note(&at, "a stray file"),
            }
        }
        let orphans: Vec<Offset> = files
            .segments
            .iter()
            .filter(|(_, kinds)| !kinds.contains(&LogFile::Records))
            .map(|(offset, _)| *offset)
            .collect();
        for offset in orphans {
            for kind in files.segments.remove(&offset).unwrap_or_default() {
                let at = path.join(kind.name(offset));
                report.warn(&at, "an index without records", Some(Repair::RemoveFile));
            }
        }
        Ok(files)
    }
}

fn check_segment(
    fs: &dyn FileSystem,
    path: &Path,
    (base, next): (Offset, Option<Offset>),
    kinds: &BTreeSet<LogFile>,
    expected: Expectations,
    walk: &mut Walk,
    report: &mut Report,
) -> Result<(), CheckError> {
    report.segments += 1;
    let log = path.join(LogFile::Records.name(base));
    let mut reader = SegmentReader::open(fs, &log).context(SegmentSnafu { path: &log })?;
    report.bytes += reader.size_bytes();
    let mut facts = SegmentFacts::default();
    loop {
        match reader.next_batch() {
            Ok(Some((position, batch))) => {
                report.batches += 1;
                let mut wrong = walk.take(position, &batch, &mut facts);
                if batch.header.last_offset() < base {
                    wrong.push(format!("it ends at offset {}", batch.header.last_offset()));
                }
                if let Some(next) = next.filter(|next| batch.header.last_offset() >= *next) {
                    wrong.push(format!("it reaches into the segment of {next}"));
                }
                for what in wrong {
                    report.error(&log, format!("the batch at position {position}: {what}"));
                }
            }
            Ok(None) => break,
            Err(SegmentReadError::Damaged { position, source }) => {
                let rest = reader.size_bytes().saturating_sub(position);
                let what = format!("{rest} bytes from position {position} on are no batch: {source}");
                // A crash leaves half a write at the end, which was never acknowledged.
                match next.is_none() && !expected.is_clean {
                    true => report.note(&log, what),
                    false => report.error(&log, what),
                }
                break;
            }
            Err(error) => return Err(error).context(SegmentSnafu { path: log }),
        }
    }
    report.records += facts.records;
    check_offset_index(fs, path, base, kinds, &facts, report)?;
    check_time_index(fs, path, base, kinds, &facts, report)?;
    check_transaction_index(fs, path, base, kinds, &facts, walk, report)
}

fn check_offset_index(
    fs: &dyn FileSystem,
    path: &Path,
    base: Offset,
    kinds: &BTreeSet<LogFile>,
    facts: &SegmentFacts,
    report: &mut Report,
) -> Result<(), CheckError> {
    let at = path.join(LogFile::OffsetIndex.name(base));
    if !kinds.contains(&LogFile::OffsetIndex) {
        report.note(&at, "missing: it is built at the next start");
        return Ok(());
    }
    let bytes = fs.read(&at).context(ReadSnafu { path: &at })?;
    let mut wrong = not_whole(bytes.len(), 8);
    let mut before = None;
    for (offset, position) in offset_index_entries(&bytes, base) {
        let batch = facts.batches.binary_search_by_key(&u64::from(position), |(position, _, _)| *position);
        let found = batch.ok().and_then(|at| facts.batches.get(at)).map(|(_, offset, _)| *offset);
        if found != Some(offset) || before.is_some_and(|before| offset <= before) {
            wrong.get_or_insert(format!("offset {offset} is not at position {position}"));
        }
        before = Some(offset);
    }
    if let Some(what) = wrong {
        report.warn(&at, what, Some(Repair::RebuildIndexes));
    }
    Ok(())
}

fn check_time_index(
    fs: &dyn FileSystem,
    path: &Path,
    base: Offset,
    kinds: &BTreeSet<LogFile>,
    facts: &SegmentFacts,
    report: &mut Report,
) -> Result<(), CheckError> {
    let at = path.join(LogFile::TimeIndex.name(base));
    if !kinds.contains(&LogFile::TimeIndex) {
        report.note(&at, "missing: it is built at the next start");
        return Ok(());
    }
    let bytes = fs.read(&at).context(ReadSnafu { path: &at })?;
    let mut wrong = not_whole(bytes.len(), 12);
    let mut before = None;
    for (timestamp, offset) in time_index_entries(&bytes, base) {
        let batch = facts.batches.get(facts.batches.partition_point(|(_, last, _)| *last < offset));
        if batch.is_none_or(|(_, _, greatest)| *greatest != timestamp) {
            wrong.get_or_insert(format!(
                "the batch of offset {offset} has another timestamp than {timestamp}"
            ));
        }
        if before.is_some_and(|before| timestamp <= before) {
            wrong.get_or_insert(format!("timestamp {timestamp} is out of order"));
        }
        before = Some(timestamp);
    }
    if let Some(what) = wrong {
        report.warn(&at, what, Some(Repair::RebuildIndexes));
    }
    Ok(())
}

fn not_whole(length: usize, entry: usize) -> Option<String> {
    (!length.is_multiple_of(entry)).then(|| format!("{length} bytes are no whole entries"))
}

fn check_transaction_index(
    fs: &dyn FileSystem,
    path: &Path,
    base: Offset,
    kinds: &BTreeSet<LogFile>,
    facts: &SegmentFacts,
    walk: &Walk,
    report: &mut Report,
) -> Result<(), CheckError> {
    let at = path.join(LogFile::TransactionIndex.name(base));
    let bytes = match kinds.contains(&LogFile::TransactionIndex) {
        true => fs.read(&at).context(ReadSnafu { path: &at })?,
        false => Vec::new(),
    };
    let mut entries = Vec::new();
    for entry in decode_index(&bytes) {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(invalid) => report.error(&at, format!("no whole entry at position {}", invalid.position)),
        }
    }
    for what in compare_aborted(facts, &entries, walk.first_offset()) {
        report.error(&at, what);
    }
    Ok(())
}

fn check_snapshot(
    fs: &dyn FileSystem,
    path: &Path,
    offset: Offset,
    end: Option<Offset>,
    report: &mut Report,
) -> Result<(), CheckError> {
    let bytes = fs.read(path).context(ReadSnafu { path })?;
    if let Err(error) = decode_snapshot(&bytes) {
        report.warn(path, error.to_string(), Some(Repair::RemoveFile));
    } else if let Some(end) = end.filter(|end| offset > *end) {
        report.warn(path, format!("beyond the end of the log, {end}"), Some(Repair::RemoveFile));
    }
    Ok(())
}

fn check_texts(
    fs: &dyn FileSystem,
    path: &Path,
    walk: &Walk,
    end: Option<Offset>,
    report: &mut Report,
) -> Result<(), CheckError> {
    let at = path.join("partition.metadata");
    match read_text(fs, &at)? {
        None => report.note(&at, "missing: no topic id is known"),
        Some(text) => {
            if let Err(error) = parse_partition_metadata(&text) {
                report.error(&at, error.to_string());
            }
        }
    }
    let at = path.join("leader-epoch-checkpoint");
    let text = read_text(fs, &at)?;
    let wrong = match text.as_deref().map(parse_leader_epochs) {
        None if walk.epochs().is_empty() => None,
        None => Some("missing".to_owned()),
        Some(Err(error)) => Some(error.to_string()),
        Some(Ok(stored)) => compare_epochs(walk.epochs(), &stored, end).into_iter().next(),
    };
    if let Some(what) = wrong {
        report.warn(&at, what, Some(Repair::RebuildEpochs));
    }
    Ok(())
}

/// `None` = there is no such file.
pub(super) fn read_text(fs: &dyn FileSystem, path: &Path) -> Result<Option<String>, CheckError> {
    match fs.read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => Ok(Some(String::from_utf8_lossy(&read.context(ReadSnafu { path })?).into_owned())),
    }
}

fn check_offsets(
    path: &Path,
    bases: &[Offset],
    end: Option<Offset>,
    expected: Expectations,
    report: &mut Report,
) {
    let Some(end) = end else { return };
    let first = bases.first().copied().unwrap_or(Offset::ZERO);
    let named = [
        ("the recovery point", expected.recovery_point),
        ("the high watermark", expected.high_watermark),
        ("the log start", expected.log_start),
    ];
    for (name, offset) in named {
        if let Some(offset) = offset.filter(|offset| *offset > end) {
            report.warn(path, format!("{name} is {offset}, the log ends at {end}"), None);
        }
    }
    if let Some(start) = expected.log_start.filter(|start| *start < first) {
        report.note(path, format!("the log start is {start}, the first segment begins at {first}"));
    }
    if let Some(point) = expected.recovery_point.filter(|point| expected.is_clean && *point < end) {
        report.warn(
            path,
            format!("stopped in order, yet the recovery point is {point} and the end {end}"),
            None,
        );
    }
}
