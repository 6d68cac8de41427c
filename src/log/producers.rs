//! The log's side of producer state: snapshots in files, replay of batches, the transaction index.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tracing::warn;

use crate::model::{Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::records::{AppendOrigin, Batch};
use crate::runtime::fs::{Durability, OpenMode, write_all_at};

use super::append::end_of_transaction;
use super::directory::Place;
use super::error::{DamagedSnafu, LogError};
use super::index::Waiting;
use super::listing::{remove, snapshots};
use super::names::{FileKind, SmallFile};
use super::partition_log::{Log, Writer};
use super::producer_entry::{LastSign, ProducerEntry};
use super::producer_snapshot::{decode_snapshot, encode_snapshot};
use super::producer_state::{
    CompletedTransaction, OpenTransaction, ProducerAppend, ProducerRules, ProducerState, VerificationGuard,
};
use super::scan::BatchScan;
use super::segment::Segment;
use super::transaction_index::{AbortedTransaction, decode_index};

impl Log {
    /// Writes the state of all producers up to `offset` to a file, from which a restart continues.
    ///
    /// It is not synced at once: a snapshot that a power loss damages is recognised and the one before it used.
    pub(super) fn write_snapshot(&self, writer: &mut Writer, offset: Offset) -> Result<(), LogError> {
        if writer.last_snapshot.is_some_and(|last| last >= offset) || offset <= self.log_start_offset() {
            return Ok(());
        }
        self.write_small(SmallFile::ProducerSnapshot(offset), &encode_snapshot(&writer.producers))?;
        writer.last_snapshot = Some(offset);
        Ok(())
    }

    /// Takes over the state after batches that are written.
    pub(super) fn apply_producers(&self, writer: &mut Writer, append: ProducerAppend) {
        writer.producers.apply(append);
        self.publish_producers(writer);
    }

    /// Notes in the transaction index what batches will abort once they are written, which they are next: with their
    /// markers readers would be shown what was aborted if the disk had no room for the index.
    pub(super) fn note_aborted(
        &self,
        writer: &Writer,
        active: &Segment,
        append: &ProducerAppend,
    ) -> Result<NotedAborts, LogError> {
        note_aborted(&self.place, active, &writer.producers.aborted_by(append))
    }

    /// Takes back what was noted of batches that were not written.
    pub(super) fn withdraw_aborted(&self, active: &Segment, noted: NotedAborts) {
        let Some(size_bytes) = noted.size_bytes_before else { return };
        let path = self.place.join(&FileKind::TransactionIndex.name(active.base_offset));
        let cut = self.place.fs().open(&path, OpenMode::Write).and_then(|file| file.truncate(size_bytes));
        if self.place.check(cut, "truncating", &path).is_err() {
            self.place.directory.take_offline();
        }
    }

    /// Forgets producers that have been silent for `expiration_ms` and have no transaction open.
    pub fn expire_producers(&self, expiration_ms: i64, now: Timestamp) {
        let mut writer = self.writer.lock();
        writer.producers.remove_expired(now, expiration_ms);
        self.publish_producers(&mut writer);
    }

    /// Gives back what producers hold that wrote nothing since the last call.
    pub fn settle_producers(&self) {
        if self.producer_count() > 0 {
            self.writer.lock().producers.settle();
        }
    }

    /// Of the producers that [`forget_producers`](Log::forget_producers) may forget.
    pub(super) fn last_signs_of_producers(&self, into: &mut Vec<LastSign>) {
        if self.producer_count() > 0 {
            into.extend(self.writer.lock().producers.last_signs());
        }
    }

    /// Forgets producers that gave no sign after `until` and have no transaction open; returns how many.
    pub(super) fn forget_producers(&self, until: LastSign) -> usize {
        if self.producer_count() == 0 {
            return 0;
        }
        let mut writer = self.writer.lock();
        let forgotten = writer.producers.forget(until);
        self.publish_producers(&mut writer);
        forgotten
    }

    /// Notes that a batch waits until its transaction is verified; it is to be appended with this guard. `None`:
    /// the transaction is open here, so that no proof is needed.
    pub fn begin_verification(
        &self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: i32,
        now: Timestamp,
    ) -> Option<VerificationGuard> {
        self.writer.lock().producers.begin_verification(producer_id, epoch, sequence, now)
    }

    /// `None` = none is open.
    pub fn oldest_transaction(&self) -> Option<OpenTransaction> {
        // Most logs have none, and know it without the lock.
        if self.last_stable_offset() >= self.high_watermark() {
            return None;
        }
        self.writer.lock().producers.oldest_transaction()
    }

    /// What is known of the producers that wrote to this log, by their ids.
    pub fn producers(&self) -> Vec<(ProducerId, ProducerEntry)> {
        let writer = self.writer.lock();
        writer.producers.producers().map(|(producer_id, entry)| (producer_id, entry.clone())).collect()
    }

    /// How many producers that wrote to this log are known.
    pub fn producer_count(&self) -> usize {
        self.producer_count.load(Ordering::Relaxed)
    }

    /// What is held of producers that wrote to this log, as if all were idle.
    pub fn producer_memory_bytes(&self) -> usize {
        self.producer_count() * ProducerEntry::IDLE_BYTES
    }

    /// Computes the state anew after the log was cut at `offset`.
    pub(super) fn reload_producers(
        &self,
        writer: &mut Writer,
        offset: Offset,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let mut snapshots = snapshots(&self.place)?;
        for beyond in snapshots.split_off(&offset.plus(1)) {
            remove(&self.place, &FileKind::ProducerSnapshot.name(beyond))?;
            self.is_directory_changed.store(true, Ordering::Release);
        }
        let segments = self.segments.load_full();
        let start = ReplayStart {
            snapshots: &snapshots,
            until: offset,
            is_clean: false,
            needs_all: false,
            now,
            expiration_ms: i64::MAX,
        };
        let replay = Replay::begin(&self.place, &segments, &start)?;
        writer.last_snapshot = replay.last_snapshot;
        writer.producers = replay.into_producers();
        self.publish_producers(writer);
        Ok(())
    }

    /// The log is empty and begins at `offset`.
    pub(super) fn forget_all_snapshots(&self, writer: &mut Writer, offset: Offset) -> Result<(), LogError> {
        for snapshot in snapshots(&self.place)? {
            remove(&self.place, &FileKind::ProducerSnapshot.name(snapshot))?;
        }
        writer.producers.reset(offset);
        writer.last_snapshot = None;
        Ok(())
    }
}

/// How the transaction index was before entries were added; `None` = none were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NotedAborts {
    size_bytes_before: Option<u64>,
}

/// Adds the aborted ones of the transactions that ended to the transaction index of their segment: all of them, or none.
fn note_aborted(
    place: &Place,
    segment: &Segment,
    completed: &[CompletedTransaction],
) -> Result<NotedAborts, LogError> {
    let aborted = completed.iter().filter(|transaction| transaction.is_aborted);
    let entries: Vec<u8> = aborted.flat_map(|transaction| entry(transaction).encode()).collect();
    if entries.is_empty() {
        return Ok(NotedAborts::default());
    }
    let path = place.join(&FileKind::TransactionIndex.name(segment.base_offset));
    let opened = place.fs().open(&path, OpenMode::Create).and_then(|file| Ok((file.size_bytes()?, file)));
    let (end, file) = place.check(opened, "opening", &path)?;
    segment.note_transaction_index();
    let written = write_all_at(&*file, &[IoSlice::new(&entries)], end);
    if written.is_err() && file.truncate(end).is_err() {
        // Readers could not tell the rest of an entry from damage.
        place.directory.take_offline();
    }
    place.check(written, "writing", &path)?;
    Ok(NotedAborts { size_bytes_before: Some(end) })
}

fn entry(transaction: &CompletedTransaction) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: transaction.producer_id,
        first_offset: transaction.first_offset,
        last_offset: transaction.last_offset,
        last_stable_offset: transaction.last_stable_offset,
    }
}

/// The state of producers while a log is loaded.
pub(super) struct Replay {
    producers: ProducerState,
    /// After the last batch that was looked at.
    next_offset: Offset,
    last_snapshot: Option<Offset>,
}

/// Where a replay begins and ends.
pub(super) struct ReplayStart<'a> {
    pub(super) snapshots: &'a BTreeSet<Offset>,
    /// Snapshots above are not looked at; `i64::MAX` = to the end of the segments.
    pub(super) until: Offset,
    /// The log was closed.
    pub(super) is_clean: bool,
    /// A batch that cannot be read is told as damage; else what is after it in its segment is passed over.
    pub(super) needs_all: bool,
    pub(super) now: Timestamp,
    pub(super) expiration_ms: i64,
}

impl Replay {
    /// State at the end of the segments: from the newest sound snapshot, and the batches after it.
    ///
    /// A log that was closed cleanly without any snapshot has no producers, as one that an old Kafka wrote.
    pub(super) fn begin(
        place: &Place,
        segments: &[Arc<Segment>],
        start: &ReplayStart<'_>,
    ) -> Result<Replay, LogError> {
        let mut replay =
            Replay { producers: ProducerState::default(), next_offset: Offset::ZERO, last_snapshot: None };
        for &offset in start.snapshots.range(..=start.until).rev() {
            let name = FileKind::ProducerSnapshot.name(offset);
            match decode_snapshot(&place.read(&name)?.unwrap_or_default()) {
                Ok(entries) => {
                    replay.producers = ProducerState::load(entries, offset, start.now, start.expiration_ms);
                    replay.next_offset = offset;
                    replay.last_snapshot = Some(offset);
                    break;
                }
                Err(error) => {
                    let file = place.join(&name);
                    warn!(file = %file.display(), %error, "removing a producer snapshot that is damaged");
                    remove(place, &name)?;
                }
            }
        }
        if !(start.is_clean && start.snapshots.is_empty()) {
            replay.walk(place, segments, start.needs_all)?;
        }
        Ok(replay)
    }

    /// Looks at all batches of the segments from `next_offset` on.
    fn walk(&mut self, place: &Place, segments: &[Arc<Segment>], needs_all: bool) -> Result<(), LogError> {
        let first =
            segments.partition_point(|segment| segment.base_offset <= self.next_offset).saturating_sub(1);
        for segment in segments.iter().skip(first) {
            let from = self.next_offset.max(segment.base_offset);
            let Some(position) = segment.position_of(place, from)? else { continue };
            let mut scan = segment.scan(place, position, segment.size_bytes(), Waiting::Allowed)?;
            while let Some((position, header)) = segment.step_to_damage(place, &mut scan)? {
                let is_control = header.attributes.is_control();
                let bytes = if is_control { read_batch(place, segment, position)? } else { Bytes::new() };
                self.add_batch(place, segment, &Batch { header, bytes }, false)?;
            }
            let position = scan.position();
            if needs_all && position < u64::from(segment.size_bytes()) {
                let path = place.join(&FileKind::Records.name(segment.base_offset));
                let damage = format!("what stands at position {position} is no batch");
                return DamagedSnafu { path, damage }.fail();
            }
        }
        Ok(())
    }

    pub(super) fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// Takes a batch that was found sound; what it says of transactions goes to the index.
    pub(super) fn add(&mut self, place: &Place, segment: &Segment, batch: &Batch) -> Result<(), LogError> {
        self.add_batch(place, segment, batch, true)
    }

    fn add_batch(
        &mut self,
        place: &Place,
        segment: &Segment,
        batch: &Batch,
        is_recovered: bool,
    ) -> Result<(), LogError> {
        self.next_offset = batch.header.next_offset();
        let rules = ProducerRules::from(AppendOrigin::Replication);
        let mut append = ProducerAppend::default();
        let end = end_of_transaction(&batch.header, &batch.bytes)?;
        if let Err(error) = self.producers.check(&mut append, &batch.header, end, &rules) {
            // It is in the log: whoever took it saw more than is known here.
            let path = place.path();
            warn!(directory = %path.display(), %error, offset = %batch.header.base_offset, "a batch does not fit its producer's state");
        }
        let completed = self.producers.apply(append);
        if is_recovered {
            note_aborted(place, segment, &completed)?;
        }
        Ok(())
    }

    /// Sees to it that the snapshot at `offset`, up to where all batches were taken, is of this state: it may not have
    /// been durable, or be one of records that are gone.
    pub(super) fn correct_snapshot(&self, place: &Place, offset: Offset) -> Result<(), LogError> {
        let name = FileKind::ProducerSnapshot.name(offset);
        let right = encode_snapshot(&self.producers);
        if place.read(&name)?.is_some_and(|found| found == right) {
            return Ok(());
        }
        match place.replace(&name, &right, Durability::Cached) {
            Err(LogError::DiskFull { .. }) => remove(place, &name),
            written => written,
        }
    }

    /// Removes snapshots that serve no longer, and writes one for a log that was recovered, so that the next
    /// recovery is short.
    pub(super) fn finish(
        &mut self,
        place: &Place,
        snapshots: &BTreeSet<Offset>,
        segments: &[Arc<Segment>],
        log_end_offset: Offset,
        is_recovered: bool,
        unsynced: &mut Vec<SmallFile>,
    ) -> Result<Option<Offset>, LogError> {
        let is_base = |offset: Offset| segments.iter().any(|segment| segment.base_offset == offset);
        for &offset in snapshots {
            let is_newest = self.last_snapshot == Some(offset);
            if offset > log_end_offset || !(is_newest || is_base(offset)) {
                remove(place, &FileKind::ProducerSnapshot.name(offset))?;
            }
        }
        if is_recovered && self.last_snapshot.is_none_or(|last| last < log_end_offset) {
            let name = FileKind::ProducerSnapshot.name(log_end_offset);
            match place.replace(&name, &encode_snapshot(&self.producers), Durability::Cached) {
                Err(LogError::DiskFull { .. }) => return Ok(self.last_snapshot),
                written => written?,
            }
            let snapshot = SmallFile::ProducerSnapshot(log_end_offset);
            if !unsynced.contains(&snapshot) {
                unsynced.push(snapshot);
            }
            self.last_snapshot = Some(log_end_offset);
        }
        Ok(self.last_snapshot)
    }

    /// The log is empty and begins at `offset`.
    pub(super) fn clear(&mut self, offset: Offset) {
        self.producers.reset(offset);
    }

    pub(super) fn into_producers(self) -> ProducerState {
        self.producers
    }
}

fn read_batch(place: &Place, segment: &Segment, position: u32) -> Result<Bytes, LogError> {
    let mut scan = BatchScan::new(segment.file(place)?, position, segment.size_bytes());
    Ok(segment.step_batch(place, &mut scan)?.map(|batch| batch.bytes).unwrap_or_default())
}

/// Removes what the transaction index says of transactions that ended at `offset` or later.
pub(super) fn shorten_transaction_index(
    place: &Place,
    base_offset: Offset,
    offset: Offset,
) -> Result<(), LogError> {
    let name = FileKind::TransactionIndex.name(base_offset);
    let index = place.read(&name)?.unwrap_or_default();
    let kept = decode_index(&index).map_while(Result::ok).take_while(|aborted| aborted.last_offset < offset);
    let kept_bytes = (kept.count() * AbortedTransaction::SIZE) as u64;
    let path = place.join(&name);
    let cut = place.fs().open(&path, OpenMode::Write).and_then(|file| file.truncate(kept_bytes));
    place.check(cut, "truncating", &path)
}
