//! Appending: admission, one write for all that wait, publication.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use snafu::ensure;

use crate::model::{LeaderEpoch, Offset, ProducerId, Timestamp};
use crate::records::{
    AppendOrigin, Batch, BatchHeader, EndTransaction, RecordsError, ValidatedBatch, ValidatedRecords, batches,
};

use super::config::LogConfig;
use super::error::*;
use super::partition_log::{Log, Writer};
use super::producer_state::{Checked, ProducerAppend, ProducerRules};
use super::room::Claim;
use super::segment::Segment;

/// What an append did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendInfo {
    /// The offset of the first record. Of a duplicate: the one it got when it was first appended.
    pub first_offset: Offset,
    pub last_offset: Offset,
    /// The time that the records read as; `-1` if they keep their producer's.
    pub log_append_time: Timestamp,
    pub log_start_offset: Offset,
    /// The producer had sent the same batch before, or the marker's transaction has ended: nothing was written.
    pub is_duplicate: bool,
    /// What the caller must have flushed: it may take long, so it is not done under the append lock.
    pub flush: FlushWanted,
}

/// What is to be flushed after an append, by [`Log::flush`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FlushWanted {
    Nothing,
    /// A segment is complete: flush soon, nobody waits for it.
    RolledSegments,
    /// `flush.messages` is reached: flush before the append is answered.
    Everything,
}

/// An append that found the lock taken.
pub(super) struct WaitingAppend {
    request: Mutex<Option<Request>>,
    outcome: Mutex<Option<Result<AppendInfo, LogError>>>,
}

/// Records to append together, in one segment.
pub(super) struct Request {
    batches: Vec<ValidatedBatch>,
    size_bytes: u64,
    rules: ProducerRules,
    numbering: Numbering,
    log_append_time: Timestamp,
    now: Timestamp,
}

/// Who gives the offsets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbering {
    /// This log, as leader of the epoch.
    Leader(LeaderEpoch),
    /// The records bring them along.
    AsIs,
}

/// Requests that were admitted and will be written by one system call.
#[derive(Default)]
pub(super) struct Group {
    admitted: Vec<Admitted>,
    prefixes: Vec<[u8; BatchHeader::PREFIX]>,
    size_bytes: u64,
    /// What becomes of the producers' state once the group is written.
    producers: ProducerAppend,
    producer_ids: Vec<ProducerId>,
}

struct Admitted {
    /// Index of the request, to answer it.
    request: usize,
    /// The batches with their final offsets and epochs.
    headers: Vec<BatchHeader>,
}

/// What a request's batches are to the log.
enum Numbered {
    New(Vec<BatchHeader>),
    /// One of them is there already: nothing of the request is written.
    Repeated(AppendInfo),
}

impl Log {
    /// Appends checked records as leader of `leader_epoch`, which gives them the next offsets. Writes inline,
    /// but never waits for the disk to sync: see [`AppendInfo::flush`].
    ///
    /// Errors: [`LogError::Producer`], [`LogError::RecordListTooLarge`], [`LogError::StaleLeaderEpoch`],
    /// [`LogError::DiskFull`], [`LogError::Storage`]; nothing was appended then.
    pub fn append_as_leader(
        &self,
        records: ValidatedRecords,
        leader_epoch: LeaderEpoch,
        rules: impl Into<ProducerRules>,
        now: Timestamp,
    ) -> Result<AppendInfo, LogError> {
        let log_append_time = records.log_append_time.unwrap_or(Timestamp::NONE);
        let size_bytes = records.size_bytes() as u64;
        self.append(Request {
            batches: records.batches,
            size_bytes,
            rules: rules.into(),
            numbering: Numbering::Leader(leader_epoch),
            log_append_time,
            now,
        })
    }

    /// Appends batches as a leader sent them: offsets and epochs stay. A last batch that is not whole is left
    /// out. The caller brings them in the order in which they are to stand.
    ///
    /// Errors: [`LogError::Records`] for damaged batches, [`LogError::OffsetsOutOfOrder`],
    /// [`LogError::UnexpectedAppendOffset`], and those of storage.
    pub fn append_as_follower(&self, records: Bytes, now: Timestamp) -> Result<AppendInfo, LogError> {
        let mut taken: Vec<ValidatedBatch> = Vec::new();
        let mut next_offset = Offset::ZERO;
        let mut size_bytes = 0;
        for batch in batches(&records) {
            let batch = match batch {
                Err(RecordsError::Incomplete { .. }) => break,
                batch => batch?,
            };
            batch.check_crc()?;
            ensure!(is_in_order(&batch.header, next_offset), OffsetsOutOfOrderSnafu { offset: next_offset });
            next_offset = batch.header.next_offset();
            size_bytes += batch.bytes.len() as u64;
            taken.push(ValidatedBatch { header: batch.header, bytes: batch.bytes });
        }
        self.append(Request {
            batches: taken,
            size_bytes,
            rules: AppendOrigin::Replication.into(),
            numbering: Numbering::AsIs,
            log_append_time: Timestamp::NONE,
            now,
        })
    }

    fn append(&self, request: Request) -> Result<AppendInfo, LogError> {
        if let Some(mut writer) = self.writer.try_lock() {
            return self.append_now(&mut writer, request);
        }
        let waiting =
            Arc::new(WaitingAppend { request: Mutex::new(Some(request)), outcome: Mutex::new(None) });
        self.waiting.lock().push(waiting.clone());
        let mut writer = self.writer.lock();
        if waiting.outcome.lock().is_none() {
            self.append_waiting(&mut writer);
        }
        drop(writer);
        let outcome = waiting.outcome.lock().take();
        outcome.expect("whoever takes a request from the queue answers it before it lets go of the lock")
    }

    fn append_now(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        request: Request,
    ) -> Result<AppendInfo, LogError> {
        let mut outcome = None;
        self.append_all(writer, &[request], &mut |_, result| outcome = Some(result));
        outcome.expect("append_all answers each request")
    }

    fn append_waiting(&self, writer: &mut MutexGuard<'_, Writer>) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let requests: Vec<Request> =
            waiting.iter().filter_map(|waiting| waiting.request.lock().take()).collect();
        self.append_all(writer, &requests, &mut |at, result| {
            if let Some(waiting) = waiting.get(at) {
                *waiting.outcome.lock() = Some(result);
            }
        });
    }

    /// Appends the requests in order, those that follow one another in a segment with one write; answers each.
    fn append_all(
        &self,
        writer: &mut Writer,
        requests: &[Request],
        answer: &mut dyn FnMut(usize, Result<AppendInfo, LogError>),
    ) {
        let config = self.config_now();
        for (at, request) in requests.iter().enumerate() {
            if self.must_stand_apart(writer, request, &config) {
                self.write_group(writer, requests, &config, answer);
            }
            let admitted = self
                .take_room(request)
                .and_then(|()| self.roll_if_due(writer, request, &config))
                .and_then(|()| self.admit(writer, at, request, answer));
            if let Err(error) = admitted {
                answer(at, Err(error));
            }
        }
        self.write_group(writer, requests, &config, answer);
    }

    /// Leaves on the volume what is kept back for the work that makes room. What coordinators write may take a part
    /// of it: without their offsets and decisions readers would not get on either.
    fn take_room(&self, request: &Request) -> Result<(), LogError> {
        let claim = match request.rules.origin {
            AppendOrigin::Client | AppendOrigin::Replication => Claim::Records,
            AppendOrigin::Coordinator => Claim::State,
        };
        self.place.directory.take_room(request.size_bytes, claim)
    }

    /// Whether a request cannot join the group: it needs a new segment, or its producer's state depends on it.
    fn must_stand_apart(&self, writer: &Writer, request: &Request, config: &LogConfig) -> bool {
        let group = &writer.group;
        if group.admitted.is_empty() {
            return false;
        }
        let shares_producer = request.batches.iter().any(|batch| {
            batch.header.has_producer_id() && group.producer_ids.contains(&batch.header.producer_id)
        });
        shares_producer || self.is_roll_due(writer, &self.active(), request, config).unwrap_or(true)
    }

    fn next_offset(&self, writer: &Writer) -> Offset {
        let in_group = writer.group.admitted.last().and_then(|admitted| admitted.headers.last());
        in_group.map_or_else(|| self.log_end_offset(), BatchHeader::next_offset)
    }

    /// Kafka's rules for beginning a new segment.
    fn is_roll_due(
        &self,
        writer: &Writer,
        active: &Segment,
        request: &Request,
        config: &LogConfig,
    ) -> Result<bool, LogError> {
        let Some(last) = request.batches.last() else { return Ok(false) };
        let size_bytes = u64::from(active.size_bytes()) + writer.group.size_bytes;
        if size_bytes == 0 {
            return Ok(match request.numbering {
                Numbering::Leader(_) => false,
                Numbering::AsIs => !active.can_hold(last.header.last_offset()),
            });
        }
        let batches = writer.group.prefixes.len() + request.batches.len();
        let bytes = writer.group.size_bytes + request.size_bytes;
        // What is appended together gets an entry for each batch, but between two of them lies an interval.
        let news = batches.min(1 + (bytes / (u64::from(config.index_interval_bytes) + 1)) as usize);
        let is_full = |entries: usize, entry_bytes: u32| {
            entries + news > (config.segment_index_bytes / entry_bytes) as usize
        };
        let last_offset = match request.numbering {
            Numbering::Leader(_) => self.next_offset(writer).plus(count_offsets(&request.batches)),
            Numbering::AsIs => last.header.last_offset(),
        };
        if size_bytes + request.size_bytes > u64::from(config.segment_bytes)
            || is_full(active.offset_index.len(), 8)
            || is_full(active.time_index.len() + 1, 12)
            || !active.can_hold(last_offset)
        {
            return Ok(true);
        }
        let max_timestamp = request.batches.iter().map(|batch| batch.header.max_timestamp).max();
        let first_in_group = writer.group.admitted.first().and_then(|admitted| admitted.headers.first());
        let first_timestamp = match first_in_group.filter(|_| active.size_bytes() == 0) {
            Some(header) => header.max_timestamp,
            None => active.first_timestamp(&self.place)?,
        };
        let age_ms = match max_timestamp {
            Some(max_timestamp) if first_timestamp > Timestamp::NONE => {
                max_timestamp.since_ms(first_timestamp)
            }
            _ => request.now.since_ms(active.opened),
        };
        Ok(age_ms > config.segment_ms_max() - writer.roll_jitter_ms)
    }

    fn roll_if_due(
        &self,
        writer: &mut Writer,
        request: &Request,
        config: &LogConfig,
    ) -> Result<(), LogError> {
        if writer.group.admitted.is_empty() {
            let active = self.active();
            if self.is_roll_due(writer, &active, request, config)? {
                let first = match (request.numbering, request.batches.as_slice()) {
                    (Numbering::AsIs, [first, ..]) if first.header.magic >= 2 => first.header.base_offset,
                    // Where an old message begins is not told: the segment begins as early as it may.
                    (Numbering::AsIs, [.., last]) => last.header.last_offset().plus(-i64::from(i32::MAX)),
                    _ => self.log_end_offset(),
                };
                self.roll(writer, first.max(self.log_end_offset()), request.now)?;
            }
        }
        Ok(())
    }

    /// Checks a request against the state of the log and gives it its offsets. A duplicate is answered.
    fn admit(
        &self,
        writer: &mut Writer,
        at: usize,
        request: &Request,
        answer: &mut dyn FnMut(usize, Result<AppendInfo, LogError>),
    ) -> Result<(), LogError> {
        self.ensure_open()?;
        let next_offset = self.next_offset(writer);
        if request.batches.is_empty() {
            answer(at, Ok(self.info(request, next_offset, next_offset.plus(-1))));
            return Ok(());
        }
        self.ensure_fits(request, next_offset)?;
        let before = writer.group.producers.mark();
        let headers = match self.number(writer, request, next_offset) {
            Ok(Numbered::New(headers)) => headers,
            Ok(Numbered::Repeated(info)) => {
                writer.group.producers.rewind(before);
                answer(at, Ok(info));
                return Ok(());
            }
            // What was noted of the batches before the one that is refused is not to be written either.
            Err(error) => {
                writer.group.producers.rewind(before);
                return Err(error);
            }
        };
        let group = &mut writer.group;
        group.size_bytes += request.size_bytes;
        for (header, batch) in headers.iter().zip(&request.batches) {
            group.prefixes.push(match request.numbering {
                Numbering::Leader(leader_epoch) => batch.prefix(header.base_offset, leader_epoch),
                Numbering::AsIs => first_bytes(&batch.bytes),
            });
            group.producer_ids.extend(batch.header.has_producer_id().then_some(header.producer_id));
        }
        group.admitted.push(Admitted { request: at, headers });
        Ok(())
    }

    /// The headers of a request's batches as they will stand in the log, noted with their producers.
    fn number(
        &self,
        writer: &mut Writer,
        request: &Request,
        mut next_offset: Offset,
    ) -> Result<Numbered, LogError> {
        let mut headers = Vec::with_capacity(request.batches.len());
        for batch in &request.batches {
            let header = match request.numbering {
                // Old messages have no place for an epoch.
                Numbering::Leader(_) if batch.header.magic < 2 => {
                    BatchHeader { base_offset: next_offset, ..batch.header }
                }
                Numbering::Leader(leader_epoch) => {
                    BatchHeader { base_offset: next_offset, leader_epoch, ..batch.header }
                }
                Numbering::AsIs => batch.header,
            };
            let end = end_of_transaction(&header, &batch.bytes)?;
            let info =
                match writer.producers.check(&mut writer.group.producers, &header, end, &request.rules)? {
                    Checked::Accepted => {
                        next_offset = header.next_offset();
                        headers.push(header);
                        continue;
                    }
                    Checked::Duplicate(earlier) => {
                        self.info(request, earlier.first_offset(), earlier.last_offset)
                    }
                    Checked::AlreadyEnded => self.info(request, next_offset, next_offset.plus(-1)),
                };
            return Ok(Numbered::Repeated(AppendInfo { is_duplicate: true, ..info }));
        }
        Ok(Numbered::New(headers))
    }

    fn ensure_fits(&self, request: &Request, next_offset: Offset) -> Result<(), LogError> {
        match (request.numbering, request.batches.first()) {
            (Numbering::Leader(leader_epoch), _) => {
                let size_max = u64::from(self.config_now().segment_bytes);
                let size_bytes = request.size_bytes;
                ensure!(size_bytes <= size_max, RecordListTooLargeSnafu { size_bytes, size_max });
                let latest = self.latest_epoch();
                ensure!(leader_epoch >= latest, StaleLeaderEpochSnafu { leader_epoch, latest });
            }
            (Numbering::AsIs, Some(first)) => {
                let first_offset = first.header.base_offset;
                ensure!(
                    is_in_order(&first.header, next_offset),
                    UnexpectedAppendOffsetSnafu { first_offset, log_end_offset: next_offset }
                );
                let last_offset =
                    request.batches.last().map_or(first_offset, |last| last.header.last_offset());
                // No segment of a sound leader reaches so far.
                let is_within_reach = self.active().can_hold(last_offset);
                ensure!(is_within_reach, OffsetsOutOfOrderSnafu { offset: last_offset });
            }
            (Numbering::AsIs, None) => {}
        }
        Ok(())
    }

    /// Writes what was admitted, publishes it and answers; all or nothing.
    fn write_group(
        &self,
        writer: &mut Writer,
        requests: &[Request],
        config: &LogConfig,
        answer: &mut dyn FnMut(usize, Result<AppendInfo, LogError>),
    ) {
        if writer.group.admitted.is_empty() {
            return;
        }
        let mut group = std::mem::take(&mut writer.group);
        let active = self.active();
        let headers = group.admitted.iter().flat_map(|admitted| &admitted.headers);
        let outcome = self
            .note_epochs(headers)
            .and_then(|()| self.note_aborted(writer, &active, &group.producers))
            .and_then(|noted| {
                self.write_records(&active, &group, requests)
                    .inspect_err(|_| self.withdraw_aborted(&active, noted))
            });
        if outcome.is_ok() {
            self.apply_producers(writer, std::mem::take(&mut group.producers));
        }
        for admitted in group.admitted.drain(..) {
            let Some(request) = requests.get(admitted.request) else { continue };
            let result = match &outcome {
                Ok(()) => Ok(self.publish(&active, &admitted, request, config)),
                Err(error) => Err(error.for_another()),
            };
            answer(admitted.request, result);
        }
        group.clear();
        writer.group = group;
    }

    fn write_records(&self, active: &Segment, group: &Group, requests: &[Request]) -> Result<(), LogError> {
        let batches = group
            .admitted
            .iter()
            .filter_map(|admitted| requests.get(admitted.request))
            .flat_map(|request| &request.batches);
        let mut parts = Vec::with_capacity(2 * group.prefixes.len());
        for (prefix, batch) in group.prefixes.iter().zip(batches) {
            parts.push(IoSlice::new(prefix));
            parts.push(IoSlice::new(batch.bytes.get(BatchHeader::PREFIX..).unwrap_or_default()));
        }
        active.write(&self.place, &parts)
    }

    /// Makes written records part of the log. Cannot fail: those of later requests stand behind them.
    fn publish(
        &self,
        active: &Segment,
        admitted: &Admitted,
        request: &Request,
        config: &LogConfig,
    ) -> AppendInfo {
        let (Some(first), Some(last)) = (admitted.headers.first(), admitted.headers.last()) else {
            return self.info(request, self.log_end_offset(), self.log_end_offset().plus(-1));
        };
        active.note(&admitted.headers, config.index_interval_bytes);
        self.log_end_offset.store(last.next_offset().0, Ordering::Release);
        let info = self.info(request, first.base_offset, last.last_offset());
        AppendInfo { flush: self.flush_wanted(active, last.next_offset(), config), ..info }
    }

    fn flush_wanted(&self, active: &Segment, log_end_offset: Offset, config: &LogConfig) -> FlushWanted {
        let recovery_point = self.recovery_point();
        if log_end_offset.since(recovery_point) >= config.flush_messages {
            return FlushWanted::Everything;
        }
        let is_rolled = active.base_offset > recovery_point;
        if is_rolled && !self.is_flush_asked.swap(true, Ordering::AcqRel) {
            return FlushWanted::RolledSegments;
        }
        FlushWanted::Nothing
    }

    /// Done before the records are written: a failure then leaves an epoch without records, which is harmless.
    fn note_epochs<'a>(
        &self,
        headers: impl Iterator<Item = &'a BatchHeader> + Clone,
    ) -> Result<(), LogError> {
        if headers.clone().any(|header| header.magic < 2) {
            return self.forget_epochs();
        }
        if self.is_epochs_file_stale.load(Ordering::Acquire) {
            self.write_epochs()?;
        }
        let latest = self.latest_epoch();
        let mut news = headers.filter(|header| header.leader_epoch > latest).peekable();
        if news.peek().is_none() {
            return Ok(());
        }
        self.assign_epochs(news.map(|header| (header.leader_epoch, header.base_offset)))
    }

    fn info(&self, request: &Request, first_offset: Offset, last_offset: Offset) -> AppendInfo {
        AppendInfo {
            first_offset,
            last_offset,
            log_append_time: request.log_append_time,
            log_start_offset: self.log_start_offset(),
            is_duplicate: false,
            flush: FlushWanted::Nothing,
        }
    }
}

impl Group {
    fn clear(&mut self) {
        self.admitted.clear();
        self.prefixes.clear();
        self.producers = ProducerAppend::default();
        self.producer_ids.clear();
        self.size_bytes = 0;
    }
}

/// Whether a batch may follow a log that ends at `next_offset`. Of old compressed messages only the last
/// offset is known.
pub(super) fn is_in_order(header: &BatchHeader, next_offset: Offset) -> bool {
    header.base_offset >= next_offset && header.last_offset_delta >= 0
}

/// What a batch that another broker or a coordinator wrote says of a transaction. Data batches are not looked at.
pub(super) fn end_of_transaction(
    header: &BatchHeader,
    bytes: &Bytes,
) -> Result<Option<EndTransaction>, RecordsError> {
    if header.attributes.is_control() {
        Batch { header: *header, bytes: bytes.clone() }.end_transaction()
    } else {
        Ok(None)
    }
}

fn count_offsets(batches: &[ValidatedBatch]) -> i64 {
    batches.iter().map(|batch| i64::from(batch.header.last_offset_delta) + 1).sum()
}

fn first_bytes(batch: &Bytes) -> [u8; BatchHeader::PREFIX] {
    batch.first_chunk().copied().expect("a batch that was read whole is longer than this")
}
