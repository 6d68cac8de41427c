//! The second half of a cleaning: the segments up to the end of the map are written anew.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::log::compaction::{
    CleanedTransactions, Filter, Filtered, GroupLimits, LastRecord, Pass, Scratch, SegmentExtent,
    group_segments,
};
use crate::log::error::LogError;
use crate::log::index::{Entry, OffsetEntry, TimeEntry};
use crate::log::partition_log::Log;
use crate::log::scan::BatchScan;
use crate::log::segment::Segment;
use crate::model::{Offset, ProducerId, Timestamp};
use crate::records::{Batch, BatchHeader};

use super::cleaning::{CleaningReport, Target};
use super::output::{Output, discard};

pub(super) struct Rewriting {
    pass: Pass,
    /// The groups that are not begun yet.
    groups: VecDeque<Vec<Arc<Segment>>>,
    group: Option<Group>,
    transactions: CleanedTransactions,
    /// Segments that were last written at or before this time lose tombstones of the old formats.
    legacy_horizon: Timestamp,
    scratch: Scratch,
}

/// Segments that become one.
struct Group {
    sources: Vec<Arc<Segment>>,
    /// The source that is being read, and where it is read.
    at: usize,
    reading: Option<Reading>,
    output: Output,
    last_records: HashMap<ProducerId, LastRecord>,
    /// When the newest source so far was last written.
    modified: Timestamp,
    bytes_written: u64,
}

struct Reading {
    scan: BatchScan,
    next_offset: Offset,
}

impl Rewriting {
    pub(super) fn begin(target: &Target, pass: Pass) -> Result<Rewriting, LogError> {
        let segments = target.log.segments.load_full();
        let is_clean = |segment: &&Arc<Segment>| segment.base_offset < target.first_dirty;
        let legacy_horizon = match segments.iter().take_while(is_clean).last() {
            Some(last) => target.log.modified(last)?.plus_ms(-target.config.delete_retention_ms),
            None => Timestamp(0),
        };
        let count = segments.partition_point(|segment| segment.base_offset < pass.mapped_end);
        let mut sources = segments.get(..count).unwrap_or_default();
        let extents: Vec<SegmentExtent> = sources.iter().map(|segment| extent(segment)).collect();
        let limits = GroupLimits {
            size_bytes_max: u64::from(target.config.segment_bytes),
            index_bytes_max: u64::from(target.config.segment_index_bytes),
            end_offset: target.first_uncleanable,
        };
        let mut groups = VecDeque::new();
        for count in group_segments(&extents, &limits) {
            let (group, others) = sources.split_at(count.min(sources.len()));
            groups.push_back(group.to_vec());
            sources = others;
        }
        Ok(Rewriting {
            pass,
            groups,
            group: None,
            transactions: CleanedTransactions::default(),
            legacy_horizon,
            scratch: Scratch::default(),
        })
    }

    pub(super) fn pass(&self) -> &Pass {
        &self.pass
    }

    /// Rewrites about one piece, or puts a group in place; answers whether all is done.
    pub(super) fn step(
        &mut self,
        target: &Target,
        report: &mut CleaningReport,
        now: Timestamp,
    ) -> Result<bool, LogError> {
        let Some(group) = &mut self.group else {
            let Some(sources) = self.groups.pop_front() else { return Ok(true) };
            self.group = Some(Group::begin(target, sources)?);
            return Ok(false);
        };
        let enough = report.bytes_read + target.piece_bytes;
        while report.bytes_read < enough {
            let Some(source) = group.sources.get(group.at).cloned() else {
                return self.end_group(target, report, now).map(|()| false);
            };
            let reading = match &mut group.reading {
                Some(reading) => reading,
                None => {
                    let upper = group.sources.get(group.at + 1).map(|next| next.base_offset);
                    let upper = upper.or_else(|| next_base(&target.log, &source));
                    let upper = upper.unwrap_or(target.first_uncleanable);
                    let aborted = target.log.aborted_transactions(source.base_offset, upper)?;
                    self.transactions.expect(aborted);
                    group.modified = target.log.modified(&source)?;
                    let scan = target.scan(&source, 0)?;
                    group.reading.insert(Reading { scan, next_offset: source.base_offset })
                }
            };
            let Some(batch) = target.next_batch(&source, &mut reading.scan, reading.next_offset)? else {
                group.at += 1;
                group.reading = None;
                continue;
            };
            reading.next_offset = batch.header.next_offset();
            report.bytes_read += batch.bytes.len() as u64;
            let mut filter = Filter {
                pass: &self.pass,
                transactions: &mut self.transactions,
                last_records: &group.last_records,
                keeps_legacy_tombstones: group.modified > self.legacy_horizon,
                scratch: &mut self.scratch,
            };
            let offset = batch.header.base_offset;
            let filtered =
                filter.filter(&batch).map_err(|source| LogError::Uncleanable { offset, source })?;
            report.bytes_written += group.take(target, batch, filtered)?;
        }
        Ok(false)
    }

    fn end_group(
        &mut self,
        target: &Target,
        report: &mut CleaningReport,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let Some(Group { sources, output, modified, bytes_written, .. }) = self.group.take() else {
            return Ok(());
        };
        let base_offset = output.base_offset();
        let aborted = self.transactions.take_index();
        let replaced = output.finish(&target.log.place, &aborted, modified).and_then(|cleaned| {
            report.bytes_written += u64::from(cleaned.size_bytes) - bytes_written;
            target.log.replace_segments(&sources, &cleaned, target.truncations, now)?;
            Ok(cleaned)
        });
        let cleaned = replaced.inspect_err(|_| discard_quietly(target, base_offset))?;
        report.segments_before += sources.len();
        report.segments_after += 1;
        report.bytes_before += sources.iter().map(|source| u64::from(source.size_bytes())).sum::<u64>();
        report.bytes_after += u64::from(cleaned.size_bytes);
        Ok(())
    }

    /// Removes what is half written.
    pub(super) fn discard(&mut self, target: &Target) {
        if let Some(group) = self.group.take() {
            discard_quietly(target, group.output.base_offset());
        }
    }
}

/// The next start removes what cannot be removed now.
fn discard_quietly(target: &Target, base_offset: Offset) {
    if target.log.ensure_open().is_ok() {
        let _ = discard(&target.log.place, base_offset);
    }
}

impl Group {
    fn begin(target: &Target, sources: Vec<Arc<Segment>>) -> Result<Group, LogError> {
        let base_offset = sources.first().map_or(Offset::ZERO, |first| first.base_offset);
        let interval_bytes = target.config.index_interval_bytes;
        let output = Output::create(&target.log.place, base_offset, interval_bytes)?;
        Ok(Group {
            sources,
            at: 0,
            reading: None,
            output,
            last_records: target.log.last_records(),
            modified: Timestamp::NONE,
            bytes_written: 0,
        })
    }

    /// Answers how many bytes were written to the file.
    fn take(&mut self, target: &Target, batch: Batch, filtered: Filtered) -> Result<u64, LogError> {
        let (header, bytes) = match filtered {
            Filtered::Removed => return Ok(0),
            Filtered::Unchanged => (batch.header, batch.bytes),
            Filtered::Replaced(bytes) => (BatchHeader::read(&bytes)?, bytes),
        };
        let written = self.output.append(&target.log.place, &header, bytes)?;
        self.bytes_written += written;
        Ok(written)
    }
}

impl Log {
    /// The last batch of each producer that is known.
    fn last_records(&self) -> HashMap<ProducerId, LastRecord> {
        let writer = self.writer.lock();
        let last_record = |(producer_id, entry): (ProducerId, &crate::log::ProducerEntry)| {
            let last_data_offset = entry.last_batch().map(|batch| batch.last_offset);
            let last_data_offset = last_data_offset.filter(|offset| *offset >= Offset::ZERO);
            (producer_id, LastRecord { last_data_offset, epoch: entry.epoch })
        };
        writer.producers.producers().map(last_record).collect()
    }
}

fn next_base(log: &Log, segment: &Segment) -> Option<Offset> {
    let segments = log.segments.load();
    let next = segments.partition_point(|other| other.base_offset <= segment.base_offset);
    segments.get(next).map(|next| next.base_offset)
}

fn extent(segment: &Segment) -> SegmentExtent {
    SegmentExtent {
        base_offset: segment.base_offset,
        size_bytes: u64::from(segment.size_bytes()),
        offset_index_bytes: (segment.offset_index.len() * OffsetEntry::SIZE_BYTES) as u64,
        time_index_bytes: (segment.time_index.len() * TimeEntry::SIZE_BYTES) as u64,
    }
}
