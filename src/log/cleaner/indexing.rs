//! The first half of a cleaning: the last offset of each key in the dirty part.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::log::compaction::{CleanedTransactions, KeyMap, Pass, Scratch, pass_batch};
use crate::log::error::LogError;
use crate::log::scan::BatchScan;
use crate::log::segment::Segment;
use crate::model::{Offset, Timestamp};
use crate::records::Batch;

use super::cleaning::{CleaningReport, Target};

pub(super) struct Indexing {
    /// The segments that are not mapped yet, and where each ends.
    segments: VecDeque<(Arc<Segment>, Offset)>,
    /// In the first of them.
    scan: Option<BatchScan>,
    transactions: CleanedTransactions,
    map: KeyMap,
    /// All keys before are in the map.
    mapped_end: Offset,
    scratch: Scratch,
}

impl Indexing {
    pub(super) fn begin(target: &Target) -> Result<Indexing, LogError> {
        let Target { log, first_dirty, first_uncleanable, .. } = target;
        let all = log.segments.load();
        let first = all.partition_point(|segment| segment.base_offset <= *first_dirty).saturating_sub(1);
        let ends = all.iter().skip(1).map(|next| next.base_offset);
        let segments = all.iter().cloned().zip(ends).skip(first);
        let segments = segments.take_while(|(segment, _)| segment.base_offset < *first_uncleanable);
        let mut transactions = CleanedTransactions::default();
        transactions.expect(log.aborted_transactions(*first_dirty, *first_uncleanable)?);
        let keys_max = u64::try_from(first_uncleanable.since(*first_dirty)).unwrap_or(0);
        Ok(Indexing {
            segments: segments.collect(),
            scan: None,
            transactions,
            map: KeyMap::new(&target.budget, keys_max, target.secret),
            mapped_end: *first_dirty,
            scratch: Scratch::default(),
        })
    }

    /// Maps the keys of about one piece; answers whether all are mapped, or as many as the map has room for.
    pub(super) fn step(&mut self, target: &Target, report: &mut CleaningReport) -> Result<bool, LogError> {
        let enough = report.bytes_read + target.piece_bytes;
        while report.bytes_read < enough {
            let Some((segment, end)) = self.segments.front().cloned() else { return Ok(true) };
            let Some(mut scan) = self.scan_of(target, &segment)? else {
                self.end_segment(end);
                continue;
            };
            let Some(batch) = target.next_batch(&segment, &mut scan, self.mapped_end)? else {
                self.end_segment(end);
                continue;
            };
            self.scan = Some(scan);
            report.bytes_read += batch.bytes.len() as u64;
            let is_full = self
                .add(target, &batch)
                .map_err(|source| LogError::Uncleanable { offset: batch.header.base_offset, source })?;
            if is_full {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn scan_of(&mut self, target: &Target, segment: &Segment) -> Result<Option<BatchScan>, LogError> {
        if let Some(scan) = self.scan.take() {
            return Ok(Some(scan));
        }
        let from = target.first_dirty.max(segment.base_offset);
        let position = segment.position_of(&target.log.place, from)?;
        position.map(|position| target.scan(segment, position)).transpose()
    }

    fn end_segment(&mut self, end: Offset) {
        self.segments.pop_front();
        self.mapped_end = self.mapped_end.max(end);
    }

    /// Answers whether the map is full.
    fn add(&mut self, target: &Target, batch: &Batch) -> Result<bool, crate::records::RecordsError> {
        batch.check_crc()?;
        let is_aborted = pass_batch(&mut self.transactions, batch)?;
        if !is_aborted && !batch.header.attributes.is_control() {
            let full_at = self.map.add_batch(batch, target.first_dirty, &mut self.scratch)?;
            if let Some(full_at) = full_at {
                self.mapped_end = self.mapped_end.max(full_at);
                return Ok(true);
            }
        }
        self.mapped_end = self.mapped_end.max(batch.header.next_offset());
        Ok(false)
    }

    /// What the second half needs; no step may follow.
    pub(super) fn take_pass(&mut self, target: &Target, now: Timestamp) -> Pass {
        let empty = KeyMap::new(&target.budget, 0, target.secret);
        target.pass(std::mem::replace(&mut self.map, empty), self.mapped_end, now)
    }
}
