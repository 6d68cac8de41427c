//! What the batches of a partition must be among themselves: values in, findings out.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use crate::log::{AbortedTransaction, EpochEntry};
use crate::model::{LeaderEpoch, Offset, ProducerId, Timestamp};
use crate::records::{Batch, BatchHeader, RecordsError, TransactionMarker};

/// Walks the batches of one partition in order.
pub(super) struct Walk {
    /// Below this offset each key stands once. `None` = the partition was never compacted.
    cleaned_below: Option<Offset>,
    hasher: RandomState,
    keys: HashSet<(u64, usize)>,
    duplicate_keys: u64,
    next_offset: Option<Offset>,
    epochs: Vec<EpochEntry>,
    transactions: HashMap<ProducerId, Offset>,
    /// The first offset that was seen: what is below may have been removed.
    first_offset: Option<Offset>,
}

/// What one segment's batches say, to compare its other files with.
#[derive(Debug, Default)]
pub(super) struct SegmentFacts {
    /// Position, last offset and greatest timestamp of each batch.
    pub batches: Vec<(u64, Offset, Timestamp)>,
    /// As far as the records of the transactions are still there.
    pub aborted: Vec<(ProducerId, Offset, Offset)>,
    pub records: u64,
}

impl Walk {
    pub fn new(cleaned_below: Option<Offset>) -> Walk {
        Walk {
            cleaned_below,
            hasher: RandomState::new(),
            keys: HashSet::new(),
            duplicate_keys: 0,
            next_offset: None,
            epochs: Vec::new(),
            transactions: HashMap::new(),
            first_offset: None,
        }
    }

    /// The offset after the last batch.
    pub fn log_end_offset(&self) -> Option<Offset> {
        self.next_offset
    }

    pub fn first_offset(&self) -> Option<Offset> {
        self.first_offset
    }

    /// Where each epoch begins, as the batches tell it.
    pub fn epochs(&self) -> &[EpochEntry] {
        &self.epochs
    }

    pub fn duplicate_keys(&self) -> u64 {
        self.duplicate_keys
    }

    /// Takes the next batch. Gives what is wrong with it, in words.
    pub fn take(&mut self, position: u64, batch: &Batch, facts: &mut SegmentFacts) -> Vec<String> {
        let mut wrong = Vec::new();
        let header = &batch.header;
        if let Err(error) = batch.check_crc() {
            wrong.push(error.to_string());
        }
        let mut first = header.base_offset;
        match self.records(batch, facts) {
            Ok(seen) => {
                first = seen.first_offset.unwrap_or(first).min(first);
                wrong.extend(seen.wrong);
            }
            Err(error) => wrong.push(error.to_string()),
        }
        if let Some(next) = self.next_offset.filter(|next| first < *next) {
            wrong.push(format!("it begins at offset {first}, the batch before it ends below {next}"));
        }
        self.first_offset.get_or_insert(first);
        self.next_offset = self.next_offset.max(Some(header.next_offset()));
        wrong.extend(self.epoch(header));
        self.transaction(batch, facts);
        facts.batches.push((position, header.last_offset(), header.max_timestamp));
        wrong
    }

    fn records(&mut self, batch: &Batch, facts: &mut SegmentFacts) -> Result<SeenRecords, RecordsError> {
        let header = &batch.header;
        let is_keyed = !header.attributes.is_control()
            && self.cleaned_below.is_some_and(|offset| header.last_offset() < offset);
        let mut seen = SeenRecords::default();
        let mut last = None;
        let mut greatest = Timestamp::NONE;
        for record in batch.records()? {
            let record = record?;
            facts.records += 1;
            let offset = record.offset(header);
            seen.first_offset.get_or_insert(offset);
            if last.is_some_and(|last| offset <= last) || offset > header.last_offset() {
                seen.wrong.push(format!("the record at offset {offset} is out of order"));
            }
            last = Some(offset);
            greatest = greatest.max(record.timestamp(header));
            if is_keyed && let Some(key) = &record.key {
                let is_new = self.keys.insert((self.hasher.hash_one(&key[..]), key.len()));
                self.duplicate_keys += u64::from(!is_new);
            }
        }
        // Compaction keeps the batch's greatest timestamp only as long as the record is there.
        if header.magic == 2 && greatest > header.max_timestamp {
            seen.wrong
                .push(format!("a record has timestamp {greatest}, the batch says {}", header.max_timestamp));
        }
        Ok(seen)
    }

    fn epoch(&mut self, header: &BatchHeader) -> Option<String> {
        if header.leader_epoch == LeaderEpoch::UNKNOWN {
            return None;
        }
        let latest = self.epochs.last().map(|entry| entry.epoch);
        if latest.is_none_or(|latest| header.leader_epoch > latest) {
            self.epochs.push(EpochEntry { epoch: header.leader_epoch, start_offset: header.base_offset });
            return None;
        }
        let latest = latest.filter(|latest| header.leader_epoch < *latest)?;
        Some(format!("its leader epoch {} is older than {latest} before it", header.leader_epoch))
    }

    fn transaction(&mut self, batch: &Batch, facts: &mut SegmentFacts) {
        let header = &batch.header;
        if !header.attributes.is_transactional() {
            return;
        }
        if !header.attributes.is_control() {
            self.transactions.entry(header.producer_id).or_insert(header.base_offset);
            return;
        }
        let first = self.transactions.remove(&header.producer_id);
        if let (Some(first), Ok(Some(end))) = (first, batch.end_transaction())
            && end.marker == TransactionMarker::Abort
        {
            facts.aborted.push((header.producer_id, first, header.last_offset()));
        }
    }
}

#[derive(Default)]
struct SeenRecords {
    first_offset: Option<Offset>,
    wrong: Vec<String>,
}

/// What a transaction index leaves out, and what it names that is not in the log.
pub(super) fn compare_aborted(
    facts: &SegmentFacts,
    index: &[AbortedTransaction],
    first_offset: Option<Offset>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let known: Vec<(ProducerId, Offset, Offset)> =
        index.iter().map(|entry| (entry.producer_id, entry.first_offset, entry.last_offset)).collect();
    // A first record that compaction removed makes a transaction begin later than its index says.
    let is_same = |one: &(ProducerId, Offset, Offset), other: &(ProducerId, Offset, Offset)| {
        one.0 == other.0 && one.2 == other.2 && one.1 <= other.1
    };
    for seen in facts.aborted.iter().filter(|seen| !known.iter().any(|entry| is_same(entry, seen))) {
        wrong.push(format!(
            "the transaction of producer {} from offset {} to {} was aborted and is not in it",
            seen.0, seen.1, seen.2
        ));
    }
    for entry in &known {
        let is_removed = first_offset.is_none_or(|first| entry.1 < first);
        if !is_removed && entry.1 > entry.2 {
            wrong.push(format!(
                "producer {} aborts at offset {} what begins at {}",
                entry.0, entry.2, entry.1
            ));
        }
    }
    wrong
}

/// Whether the checkpoint of epochs says of each epoch of the batches where it begins.
pub(super) fn compare_epochs(seen: &[EpochEntry], stored: &[EpochEntry], end: Option<Offset>) -> Vec<String> {
    let mut wrong = Vec::new();
    for pair in stored.windows(2) {
        if let [one, other] = pair
            && (other.epoch <= one.epoch || other.start_offset < one.start_offset)
        {
            wrong.push(format!("epoch {} stands before {}", one.epoch, other.epoch));
        }
    }
    // Epochs that ended below the log start are forgotten; the one that reaches over it begins there.
    let first = stored.first().map_or(Offset::ZERO, |entry| entry.start_offset);
    for (index, batch) in seen.iter().enumerate() {
        if seen.get(index + 1).is_some_and(|next| next.start_offset <= first) {
            continue;
        }
        let batch = EpochEntry { start_offset: batch.start_offset.max(first), ..*batch };
        let at = stored.iter().rev().find(|entry| entry.start_offset <= batch.start_offset);
        if at.is_none_or(|entry| entry.epoch != batch.epoch) {
            let found = at.map_or("none".to_owned(), |entry| entry.epoch.to_string());
            wrong.push(format!(
                "the batch at offset {} is of epoch {}, it says {found}",
                batch.start_offset, batch.epoch
            ));
        }
    }
    if let (Some(last), Some(end)) = (stored.last(), end)
        && last.start_offset > end
    {
        wrong.push(format!("epoch {} begins at {}, the log ends at {end}", last.epoch, last.start_offset));
    }
    wrong
}
