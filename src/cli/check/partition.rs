use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use snafu::ResultExt;

use super::batches::{SegmentFacts, Walk, compare_aborted, compare_epochs};
use super::finding::{Repair, Report};
use super::producers::Producers;
use super::{CheckError, ReadSnafu, SegmentSnafu};
use crate::log::checkpoint::{parse_leader_epochs, parse_partition_metadata};
use crate::log::{
    FileKind, SegmentReadError, SegmentReader, Stage, decode_index, offset_index_entries, parse_file_name,
    time_index_entries,
};
use crate::model::Offset;
use crate::records::BatchHeader;
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
    let mut producers = Producers::read(fs, path, &files.snapshots, expected.cleaned_below, report)?;
    let bases: Vec<Offset> = files.segments.keys().copied().collect();
    for (at, (&base, kinds)) in files.segments.iter().enumerate() {
        let next = bases.get(at + 1).copied();
        let mut segment = Segment { fs, path, base, kinds, facts: SegmentFacts::default() };
        segment.read_batches(next, expected, &mut walk, &mut producers, report)?;
        segment.check_indexes(&walk, report)?;
    }
    let end = walk.log_end_offset().or(bases.last().copied());
    producers.finish(end, report);
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
    segments: BTreeMap<Offset, BTreeSet<FileKind>>,
    snapshots: BTreeSet<Offset>,
}

impl Files {
    fn list(fs: &dyn FileSystem, path: &Path, report: &mut Report) -> Result<Files, CheckError> {
        let mut files = Files::default();
        let mut entries = fs.list(path).context(ReadSnafu { path })?;
        entries.sort_by(|left, right| left.name.cmp(&right.name));
        for entry in entries {
            let at = path.join(&entry.name);
            match parse_file_name(&entry.name) {
                Some((offset, FileKind::ProducerSnapshot, Stage::Live)) => {
                    files.snapshots.insert(offset);
                }
                Some((offset, kind, Stage::Live)) => {
                    files.segments.entry(offset).or_default().insert(kind);
                }
                Some((_, _, Stage::Deleted | Stage::Cleaned | Stage::Swap)) => {
                    report.note(&at, "a deletion or compaction that goes on at the next start")
                }
                None if TEXT_FILES.contains(&entry.name.as_str()) => {}
                None => report.note(&at, "a stray file"),
            }
        }
        let orphans: Vec<Offset> = files
            .segments
            .iter()
            .filter(|(_, kinds)| !kinds.contains(&FileKind::Records))
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

/// One segment: its records first, then what is said of them elsewhere.
struct Segment<'a> {
    fs: &'a dyn FileSystem,
    path: &'a Path,
    base: Offset,
    kinds: &'a BTreeSet<FileKind>,
    facts: SegmentFacts,
}

impl Segment<'_> {
    fn file(&self, kind: FileKind) -> PathBuf {
        self.path.join(kind.name(self.base))
    }

    fn read_batches(
        &mut self,
        next: Option<Offset>,
        expected: Expectations,
        walk: &mut Walk,
        producers: &mut Producers,
        report: &mut Report,
    ) -> Result<(), CheckError> {
        report.segments += 1;
        let log = self.file(FileKind::Records);
        let mut reader = SegmentReader::open(self.fs, &log).context(SegmentSnafu { path: &log })?;
        report.bytes += reader.size_bytes();
        loop {
            match reader.next_batch() {
                Ok(Some((position, batch))) => {
                    report.batches += 1;
                    producers.take(&batch, report);
                    let mut wrong = walk.take(position, &batch, &mut self.facts);
                    wrong.extend(self.out_of_reach(&batch.header, next));
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
        report.records += self.facts.records;
        Ok(())
    }

    /// What is wrong with a batch in this segment, before the one at `next`.
    fn out_of_reach(&self, header: &BatchHeader, next: Option<Offset>) -> Option<String> {
        let last = header.last_offset();
        if last < self.base {
            return Some(format!("it ends at offset {last}"));
        }
        if let Some(next) = next.filter(|next| last >= *next) {
            return Some(format!("it reaches into the segment of {next}"));
        }
        let is_far = last.since(self.base) > i64::from(i32::MAX);
        is_far.then(|| {
            format!("offset {last} lies more than 2^31 behind the segment's base: a broker splits it")
        })
    }

    fn check_indexes(&self, walk: &Walk, report: &mut Report) -> Result<(), CheckError> {
        self.check_index(FileKind::OffsetIndex, 8, |bytes| self.wrong_offset(bytes), report)?;
        self.check_index(FileKind::TimeIndex, 12, |bytes| self.wrong_timestamp(bytes), report)?;
        self.check_transactions(walk, report)
    }

    fn check_index(
        &self,
        kind: FileKind,
        entry_bytes: usize,
        find_wrong: impl FnOnce(&[u8]) -> Option<String>,
        report: &mut Report,
    ) -> Result<(), CheckError> {
        let at = self.file(kind);
        if !self.kinds.contains(&kind) {
            report.note(&at, "missing: it is built at the next start");
            return Ok(());
        }
        let bytes = self.fs.read(&at).context(ReadSnafu { path: &at })?;
        let wrong = match bytes.len().is_multiple_of(entry_bytes) {
            true => find_wrong(&bytes),
            false => Some(format!("{} bytes are no whole entries", bytes.len())),
        };
        if let Some(what) = wrong {
            report.warn(&at, what, Some(Repair::RebuildIndexes));
        }
        Ok(())
    }

    /// An entry names the place of a batch and the offset of its last record; of a Kafka before 3.9.2 the place of the
    /// first of the batches that were appended together, and the last offset of all of them.
    fn wrong_offset(&self, index: &[u8]) -> Option<String> {
        let batches = &self.facts.batches;
        let mut before = None;
        for (offset, position) in offset_index_entries(index, self.base) {
            let first = batches.binary_search_by_key(&u64::from(position), |(position, _, _)| *position);
            let last = batches.partition_point(|(_, last, _)| *last < offset);
            let ends_there = batches.get(last).is_some_and(|(_, last, _)| *last == offset);
            let is_right = ends_there && first.is_ok_and(|first| first <= last);
            if !is_right || before.is_some_and(|before| offset <= before) {
                return Some(format!("offset {offset} is not at position {position}"));
            }
            before = Some(offset);
        }
        None
    }

    fn wrong_timestamp(&self, index: &[u8]) -> Option<String> {
        let batches = &self.facts.batches;
        let mut before = None;
        for (timestamp, offset) in time_index_entries(index, self.base) {
            let batch = batches.get(batches.partition_point(|(_, last, _)| *last < offset));
            if batch.is_none_or(|(_, _, greatest)| *greatest != timestamp) {
                return Some(format!("the batch of offset {offset} has another timestamp than {timestamp}"));
            }
            if before.is_some_and(|before| timestamp <= before) {
                return Some(format!("timestamp {timestamp} is out of order"));
            }
            before = Some(timestamp);
        }
        None
    }

    fn check_transactions(&self, walk: &Walk, report: &mut Report) -> Result<(), CheckError> {
        let at = self.file(FileKind::TransactionIndex);
        let bytes = match self.kinds.contains(&FileKind::TransactionIndex) {
            true => self.fs.read(&at).context(ReadSnafu { path: &at })?,
            false => Vec::new(),
        };
        let mut entries = Vec::new();
        for entry in decode_index(&bytes) {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(invalid) => {
                    report.error(&at, format!("no whole entry at position {}", invalid.position));
                }
            }
        }
        for what in compare_aborted(&self.facts, &entries, walk.first_offset()) {
            report.error(&at, what);
        }
        Ok(())
    }
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
    // After a crash it may tell of records that were not durable yet, or were cut off since it was written.
    let is_high_watermark_old = !expected.is_clean;
    let named = [
        ("the recovery point", expected.recovery_point, false),
        ("the high watermark", expected.high_watermark, is_high_watermark_old),
        ("the log start", expected.log_start, false),
    ];
    for (name, offset, is_expected) in named {
        let Some(offset) = offset.filter(|offset| *offset > end) else { continue };
        let what = format!("{name} is {offset}, the log ends at {end}");
        if is_expected { report.note(path, what) } else { report.warn(path, what, None) }
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
