use std::collections::HashMap;
use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};

use crate::model::{Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::records::{Batch, BatchHeader, RecordsError};

use super::key_map::{Full, KeyHash, KeyMap};
use super::transactions::{CleanedTransactions, ControlContent};

/// What one cleaning of a log knows after it has looked at the dirty part.
#[derive(Debug)]
pub struct Pass {
    /// The last offset of each key in the dirty part, up to `mapped_end`.
    pub map: KeyMap,
    /// Records from here on are kept: the map says nothing of them.
    pub mapped_end: Offset,
    /// Where the part ends that may be cleaned; nothing from here on is shown to a filter.
    pub upper_bound: Offset,
    pub now: Timestamp,
    /// `delete.retention.ms`
    pub delete_retention_ms: i64,
}

/// The last batch of a producer that the log still knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastRecord {
    /// The last offset of its last data batch; `None` when only a marker is known.
    pub last_data_offset: Option<Offset>,
    pub epoch: ProducerEpoch,
}

/// What is left of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filtered {
    Unchanged,
    Removed,
    Replaced(Bytes),
}

/// Says of the batches of some segments, in order, what compaction leaves of them.
///
/// A record stays if it is the last of its key. A tombstone, and the marker of a transaction of which nothing
/// is left, get a delete horizon when that is first seen, and go once it has passed. A batch that has lost all
/// of its records stays, empty, while it is the last of its producer, whose sequence would else be forgotten,
/// or the last of all that is cleaned, whose offset would.
#[derive(Debug)]
pub struct Filter<'a> {
    pub pass: &'a Pass,
    pub transactions: &'a mut CleanedTransactions,
    pub last_records: &'a HashMap<ProducerId, LastRecord>,
    /// The segment is too young for tombstones of the old formats to go.
    pub keeps_legacy_tombstones: bool,
    /// Room that batches share.
    pub scratch: &'a mut Scratch,
}

#[derive(Debug, Default)]
pub struct Scratch {
    body: BytesMut,
    kept: Vec<bool>,
    /// Of the records of a batch, in order, that have a key and may be in the map.
    keys: Vec<(Offset, KeyHash)>,
    /// Of all records of a batch, in order.
    looks: Vec<Look>,
}

/// What decides of a record.
#[derive(Clone, Copy, Debug)]
struct Look {
    offset: Offset,
    /// `None` = it has no key.
    key: Option<KeyHash>,
    is_tombstone: bool,
}

/// The records of a batch that stay.
#[derive(Default)]
struct Selection {
    /// How many there are.
    count: usize,
    is_all: bool,
    has_tombstones: bool,
}

impl KeyMap {
    /// Notes the keys of a data batch from `first_dirty` on. When the map is full, the offset of the first
    /// record that it has no room for.
    pub fn add_batch(
        &mut self,
        batch: &Batch,
        first_dirty: Offset,
        scratch: &mut Scratch,
    ) -> Result<Option<Offset>, RecordsError> {
        let Scratch { body, keys, .. } = scratch;
        keys.clear();
        batch.visit_stored(body, |record| {
            let offset = batch.header.base_offset.plus(record.offset_delta);
            let key = record.key.filter(|_| offset >= first_dirty);
            keys.extend(key.map(|key| (offset, self.hash(key))));
            ControlFlow::Continue(())
        })?;
        self.fetch(keys.iter().map(|(_, hash)| *hash));
        let refused = keys.iter().find(|(offset, hash)| self.put(*hash, *offset) == Err(Full));
        Ok(refused.map(|(offset, _)| *offset))
    }
}

impl Filter<'_> {
    /// Errors: those of a batch that cannot be read. It is checked against its CRC, so that damage is never
    /// sealed with a new one.
    pub fn filter(&mut self, batch: &Batch) -> Result<Filtered, RecordsError> {
        batch.check_crc()?;
        let header = &batch.header;
        let is_discardable = pass_batch(self.transactions, batch)?;
        let horizon = header.attributes.has_delete_horizon().then_some(header.base_timestamp);
        let is_control = header.attributes.is_control();
        let is_passed = horizon.is_some_and(|horizon| horizon <= self.pass.now);
        let loses_all = is_discardable && (!is_control || is_passed);
        let selection = if loses_all { Selection::default() } else { self.select(batch)? };
        if selection.count == 0 {
            return Ok(self.without_records(batch));
        }
        let is_emptied_marker = is_discardable && is_control;
        let needs_horizon =
            header.magic >= 2 && horizon.is_none() && (selection.has_tombstones || is_emptied_marker);
        if selection.is_all && !needs_horizon {
            return Ok(Filtered::Unchanged);
        }
        let horizon = match needs_horizon {
            true => Some(self.pass.now.plus_ms(self.pass.delete_retention_ms)),
            false => horizon,
        };
        let Scratch { body, kept, .. } = self.scratch;
        let is_kept = |position: usize| kept.get(position).copied().unwrap_or(false);
        batch.with_records(body, is_kept, horizon).map(Filtered::Replaced)
    }

    fn without_records(&self, batch: &Batch) -> Filtered {
        let header = &batch.header;
        let is_last_of_all = header.next_offset() == self.pass.upper_bound;
        // The old formats know no empty batch.
        if header.magic < 2 || !(is_last_of_all || self.is_last_of_its_producer(header)) {
            return Filtered::Removed;
        }
        if header.record_count == 0 { Filtered::Unchanged } else { Filtered::Replaced(batch.emptied()) }
    }

    fn is_last_of_its_producer(&self, header: &BatchHeader) -> bool {
        let Some(last) = self.last_records.get(&header.producer_id).filter(|_| header.has_producer_id())
        else {
            return false;
        };
        match last.last_data_offset {
            Some(offset) => header.last_offset() == offset,
            None => header.attributes.is_control() && header.producer_epoch == last.epoch,
        }
    }

    fn select(&mut self, batch: &Batch) -> Result<Selection, RecordsError> {
        let Scratch { body, kept, looks, .. } = &mut *self.scratch;
        let map = &self.pass.map;
        looks.clear();
        batch.visit_stored(body, |record| {
            looks.push(Look {
                offset: batch.header.base_offset.plus(record.offset_delta),
                key: record.key.map(|key| map.hash(key)),
                is_tombstone: record.value.is_none(),
            });
            ControlFlow::Continue(())
        })?;
        map.fetch(looks.iter().filter_map(|look| look.key));
        let rules = RecordRules {
            pass: self.pass,
            header: &batch.header,
            keeps_tombstones: keeps_tombstones(&batch.header, self.pass.now, self.keeps_legacy_tombstones),
        };
        kept.clear();
        let mut selection = Selection { is_all: true, ..Selection::default() };
        for look in looks {
            let is_kept = rules.is_kept(look);
            kept.push(is_kept);
            selection.count += usize::from(is_kept);
            selection.is_all &= is_kept;
            selection.has_tombstones |= is_kept && look.is_tombstone;
        }
        Ok(selection)
    }
}

/// Walks over a batch; answers whether it may be discarded as a whole: data that was aborted, or the marker
/// of a transaction of which nothing is left.
pub fn pass_batch(transactions: &mut CleanedTransactions, batch: &Batch) -> Result<bool, RecordsError> {
    if !batch.header.attributes.is_control() {
        return Ok(transactions.pass_data(&batch.header));
    }
    let content = match batch.end_transaction()? {
        Some(end) => ControlContent::End(end),
        None if batch.header.record_count == 0 => ControlContent::Nothing,
        None => ControlContent::Other,
    };
    Ok(transactions.pass_control(&batch.header, content))
}

fn keeps_tombstones(header: &BatchHeader, now: Timestamp, keeps_legacy_tombstones: bool) -> bool {
    match header.magic {
        2 => !header.attributes.has_delete_horizon() || now < header.base_timestamp,
        _ => keeps_legacy_tombstones,
    }
}

/// What decides of the records of one batch.
struct RecordRules<'a> {
    pass: &'a Pass,
    header: &'a BatchHeader,
    keeps_tombstones: bool,
}

impl RecordRules<'_> {
    fn is_kept(&self, look: &Look) -> bool {
        if self.header.attributes.is_control() || look.offset >= self.pass.mapped_end {
            return true;
        }
        // A log that was not compacted before may hold records without a key: nothing will ever replace them.
        let Some(key) = look.key else { return false };
        let is_last = self.pass.map.last_offset(key).is_none_or(|last| look.offset >= last);
        is_last && (!look.is_tombstone || self.keeps_tombstones)
    }
}
