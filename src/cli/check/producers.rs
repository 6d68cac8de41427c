//! Producer snapshots, beside the state that the batches before them lead to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use snafu::ResultExt;

use super::finding::{Repair, Report};
use super::{CheckError, ReadSnafu};
use crate::log::{
    FileKind, ProducerAppend, ProducerEntry, ProducerRules, ProducerState, SequencedBatch, decode_snapshot,
};
use crate::model::{Offset, ProducerId};
use crate::records::{AppendOrigin, Batch};
use crate::runtime::fs::FileSystem;

/// What the batches so far say of their producers, and the snapshots that are not compared yet.
pub(super) struct Producers {
    state: ProducerState,
    snapshots: BTreeMap<Offset, Snapshot>,
    /// Of the log as it is now: what producers did before may have been removed.
    first_offset: Option<Offset>,
    next_offset: Option<Offset>,
    /// Compaction removes batches that snapshots tell of.
    is_compacted: bool,
}

struct Snapshot {
    path: PathBuf,
    entries: Vec<(ProducerId, ProducerEntry)>,
}

impl Producers {
    pub(super) fn read(
        fs: &dyn FileSystem,
        path: &Path,
        offsets: &BTreeSet<Offset>,
        cleaned_below: Option<Offset>,
        report: &mut Report,
    ) -> Result<Producers, CheckError> {
        let mut snapshots = BTreeMap::new();
        for &offset in offsets {
            let path = path.join(FileKind::ProducerSnapshot.name(offset));
            let bytes = fs.read(&path).context(ReadSnafu { path: &path })?;
            match decode_snapshot(&bytes) {
                Ok(entries) => drop(snapshots.insert(offset, Snapshot { path, entries })),
                Err(error) => report.warn(&path, error.to_string(), Some(Repair::RemoveFile)),
            }
        }
        Ok(Producers {
            state: ProducerState::default(),
            snapshots,
            first_offset: None,
            next_offset: None,
            is_compacted: cleaned_below.is_some(),
        })
    }

    /// Takes the next batch, after the snapshots that stand before it.
    pub(super) fn take(&mut self, batch: &Batch, report: &mut Report) {
        let header = &batch.header;
        // Of a folder that is looked at alone nobody says whether it was compacted.
        self.is_compacted |= self.next_offset.is_some_and(|next_offset| header.base_offset > next_offset);
        self.next_offset = Some(header.next_offset());
        self.compare_until(header.base_offset, report);
        self.first_offset.get_or_insert(header.base_offset);
        let end = match header.attributes.is_control() {
            true => batch.end_transaction().unwrap_or_default(),
            false => None,
        };
        let mut append = ProducerAppend::default();
        let rules = ProducerRules::from(AppendOrigin::Replication);
        // What a leader took without a word stands in the log, whatever is thought of it here.
        let _ = self.state.check(&mut append, header, end, &rules);
        self.state.apply(append);
    }

    /// All batches were taken.
    pub(super) fn finish(mut self, end: Option<Offset>, report: &mut Report) {
        let Some(end) = end else { return };
        self.compare_until(end, report);
        for snapshot in self.snapshots.values() {
            let what = format!("beyond the end of the log, {end}");
            report.warn(&snapshot.path, what, Some(Repair::RemoveFile));
        }
    }

    fn compare_until(&mut self, offset: Offset, report: &mut Report) {
        while let Some(first) = self.snapshots.first_entry().filter(|first| *first.key() <= offset) {
            let snapshot = first.remove();
            if self.is_compacted {
                continue;
            }
            if let Some(what) = self.difference(&snapshot.entries) {
                report.warn(&snapshot.path, what, Some(Repair::RemoveFile));
            }
        }
    }

    fn difference(&self, entries: &[(ProducerId, ProducerEntry)]) -> Option<String> {
        let stored: BTreeMap<ProducerId, &ProducerEntry> =
            entries.iter().map(|(producer_id, entry)| (*producer_id, entry)).collect();
        let wrong = stored.iter().find_map(|(&producer_id, stored)| {
            let what = match self.state.producer(producer_id) {
                Some(seen) => self.entry_difference(stored, seen)?,
                None if self.is_whole() => "has written nothing".to_owned(),
                None => return None,
            };
            Some(format!("producer {producer_id} {what}"))
        });
        // Those that were silent for long are forgotten, but for their open transactions.
        let forgotten = || {
            let open = self.state.producers().filter(|(_, entry)| entry.has_transaction());
            let mut missing = open.filter(|(producer_id, _)| !stored.contains_key(producer_id));
            missing.next().map(|(producer_id, entry)| {
                let first = entry.transaction_first_offset();
                format!("producer {producer_id} has a transaction open since offset {first} and is missing")
            })
        };
        wrong.or_else(forgotten)
    }

    fn entry_difference(&self, stored: &ProducerEntry, seen: &ProducerEntry) -> Option<String> {
        if stored.epoch != seen.epoch {
            return Some(format!("has epoch {}, the snapshot says {}", seen.epoch, stored.epoch));
        }
        let last = |entry: &ProducerEntry| {
            let batch = entry.last_batch();
            batch.map(|SequencedBatch { last_sequence, last_offset, .. }| (last_sequence, last_offset))
        };
        let is_removed = |offset: Offset| self.first_offset.is_none_or(|first| offset < first);
        match (last(stored), last(seen)) {
            (stored, seen) if stored == seen => {}
            (Some((_, offset)), None) if is_removed(offset) => {}
            (stored, seen) => {
                return Some(format!("wrote last (sequence, offset) {seen:?}, the snapshot says {stored:?}"));
            }
        }
        let (stored_first, seen_first) = (stored.transaction_first_offset(), seen.transaction_first_offset());
        let began_before = stored.has_transaction() && is_removed(stored_first);
        if stored_first != seen_first && !began_before {
            return Some(format!(
                "has a transaction open since offset {seen_first}, the snapshot says {stored_first}"
            ));
        }
        None
    }

    /// Everything that was ever written is still there.
    fn is_whole(&self) -> bool {
        self.first_offset == Some(Offset::ZERO)
    }
}
