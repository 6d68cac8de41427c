//! What stands in the logs in the end, compared with each other and with what clients were told.

use std::collections::{BTreeMap, BTreeSet};

use barnabas::log::Log;
use barnabas::model::{LeaderEpoch, Offset, PartitionIndex};
use barnabas::records::{self, Batch, TransactionMarker};
use barnabas::runtime::fs;
use bytes::Bytes;

use crate::history::{self, Ending, History, PartitionHistory, Transaction};
use crate::plan::{Cleanup, Plan, RETAINED_BYTES, TOPIC};
use crate::world::World;

/// Retention counts what is not committed yet, and may be lost with its leader.
const UNCOMMITTED_BYTES_MAX: i64 = 2_000;

/// Looks at all logs of the topic that clients write to. Nothing is produced any more.
pub fn check(world: &World, history: &History, plan: &Plan) {
    // An unclean leader takes newer values of keys from replicas that have compacted the older ones away.
    let are_alike = !(plan.is_unclean && matches!(plan.cleanup, Cleanup::Compaction));
    let mut all = BTreeMap::new();
    for placed in world.partitions().into_iter().filter(|placed| placed.topic == TOPIC) {
        let told = history.partition(placed.partition);
        let mut first: Option<(&str, Found)> = None;
        for id in &placed.assignment.replicas {
            let node = world.node(*id);
            let read = node.look(|broker| -> Result<Found, String> {
                let partition = broker.services().replicas.partition(TOPIC, PartitionIndex(placed.partition));
                let log = partition.map_err(|error| error.to_string())?.log();
                let (start, bytes) = read_all(&log)?;
                let mut found = Found::read(start, &bytes, plan.cleanup);
                found.check_epochs(&log);
                Ok(found)
            });
            let found = read
                .unwrap_or_else(|| Err("the broker does not run".to_owned()))
                .unwrap_or_else(Found::unreadable);
            let mut violations = found.violations.clone();
            if !plan.is_unclean {
                violations.extend(check_log(&found, &told));
            }
            if let Some((other_host, other)) = &first
                && are_alike
            {
                let differs = found.differs_from(other);
                violations.extend(differs.map(|how| format!("differs from {other_host}: {how}")));
            }
            for violation in violations {
                history.violation(format!("{TOPIC}-{} at {}: {violation}", placed.partition, node.host));
            }
            if first.is_none() {
                first = Some((node.host.as_str(), found));
            }
        }
        if let Some((_, found)) = first {
            all.insert(placed.partition, found);
        }
    }
    check_transactions(history, &all);
}

/// Its first offset, and its batches from there to the high watermark.
fn read_all(log: &Log) -> Result<(i64, Vec<u8>), String> {
    let mut bytes = Vec::new();
    let start = log.log_start_offset();
    let mut from = start;
    let end = log.high_watermark();
    while from < end {
        let found = log.read(from, 1 << 20, end, true).map_err(|error| error.to_string())?;
        let before = bytes.len();
        for slice in &found.slices {
            let start = bytes.len();
            bytes.resize(start + slice.size_bytes as usize, 0);
            fs::read_full_at(&*slice.file, &mut bytes[start..], slice.position)
                .map_err(|error| error.to_string())?;
        }
        let read = Bytes::copy_from_slice(&bytes[before..]);
        let last = records::batches(&read).filter_map(Result::ok).last();
        from = last.map(|batch| batch.header.next_offset()).ok_or_else(|| format!("nothing at {from}"))?;
    }
    Ok((start.0, bytes))
}

/// What stands in a log.
#[derive(Default)]
struct Found {
    cleanup: Cleanup,
    start: i64,
    size_bytes: i64,
    /// Where each leader's first batch is.
    epochs: BTreeMap<LeaderEpoch, Offset>,
    /// By first offset, as it is stored.
    batches: BTreeMap<i64, Bytes>,
    payloads: BTreeMap<i64, String>,
    places: BTreeMap<String, i64>,
    /// The newest offset of each key, of what is visible to who reads what is committed.
    newest: BTreeMap<String, i64>,
    /// Payloads of transactions that are committed.
    committed: BTreeSet<String>,
    violations: Vec<String>,
}

impl Found {
    fn unreadable(why: String) -> Found {
        Found { violations: vec![format!("cannot be read: {why}")], ..Found::default() }
    }

    fn read(start: i64, bytes: &[u8], cleanup: Cleanup) -> Found {
        let mut found = Found { cleanup, start, size_bytes: bytes.len() as i64, ..Found::default() };
        let mut open: BTreeMap<i64, Vec<(i64, String)>> = BTreeMap::new();
        let mut epoch = LeaderEpoch::UNKNOWN;
        let mut next = start;
        for batch in records::batches(&Bytes::copy_from_slice(bytes)) {
            let Ok(batch) = batch else {
                found.violations.push("a batch is damaged".to_owned());
                break;
            };
            let header = batch.header;
            if header.leader_epoch < epoch {
                found.violations.push(format!("{} follows {epoch}", header.leader_epoch));
            }
            epoch = header.leader_epoch;
            found.epochs.entry(epoch).or_insert(header.base_offset);
            // Compaction leaves gaps. The first batch may begin before the start of the log.
            let is_first = found.batches.is_empty();
            let base = header.base_offset.0;
            let fits = match cleanup {
                Cleanup::Nothing => base == next,
                Cleanup::Retention | Cleanup::Trimming => base == next || (is_first && base <= start),
                Cleanup::Compaction => base >= next,
            };
            if !fits {
                found.violations.push(format!("{} follows {}", header.base_offset, next - 1));
            }
            next = header.next_offset().0;
            found.batches.insert(base, batch.bytes.clone());
            found.add(&batch, &mut open);
        }
        // Retention may have taken the beginning of a transaction, never its end alone.
        if !open.is_empty() {
            found.violations.push(format!("transactions are open: {open:?}"));
        }
        found
    }

    fn add(&mut self, batch: &Batch, open: &mut BTreeMap<i64, Vec<(i64, String)>>) {
        let header = batch.header;
        if let Ok(Some(end)) = batch.end_transaction() {
            let records = open.remove(&header.producer_id.0).unwrap_or_default();
            if end.marker == TransactionMarker::Commit {
                for (offset, payload) in records {
                    self.show(offset, &payload);
                    self.committed.insert(payload);
                }
            }
            return;
        }
        for record in batch.records().into_iter().flatten().flatten() {
            let offset = record.offset(&header).0;
            let payload = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned();
            if let Some(other) = self.places.insert(payload.clone(), offset) {
                self.violations.push(format!("{payload} is at {other} and at {offset}"));
            }
            if header.attributes.is_transactional() {
                open.entry(header.producer_id.0).or_default().push((offset, payload.clone()));
            } else {
                self.show(offset, &payload);
            }
            self.payloads.insert(offset, payload);
        }
    }

    /// What the log answers to followers who ask where an epoch ends.
    fn check_epochs(&mut self, log: &Log) {
        // Compaction may have taken the first batch of an epoch.
        if self.cleanup == Cleanup::Compaction {
            return;
        }
        for ((epoch, _), (_, end)) in self.epochs.iter().zip(self.epochs.iter().skip(1)) {
            let told = log.end_offset_for_epoch(*epoch).end_offset;
            if told != *end {
                self.violations.push(format!("{epoch} ends at {end}, and at {told} for who asks"));
            }
        }
    }

    fn show(&mut self, offset: i64, payload: &str) {
        let newest = self.newest.entry(history::key(payload)).or_insert(offset);
        *newest = offset.max(*newest);
    }

    /// How two replicas differ where they must not.
    fn differs_from(&self, other: &Found) -> Option<String> {
        let start = self.start.max(other.start);
        match self.cleanup {
            // Each replica is compacted at its own time.
            Cleanup::Compaction => {
                let mut both = self.payloads.iter().filter(|(offset, _)| other.payloads.contains_key(offset));
                let differing = both.find(|(offset, payload)| other.payloads.get(offset) != Some(*payload));
                let newest = (self.newest != other.newest)
                    .then(|| format!("the newest are {:?}, there {:?}", self.newest, other.newest));
                differing.map(|(offset, payload)| format!("{payload} at {offset}")).or(newest)
            }
            Cleanup::Nothing | Cleanup::Retention | Cleanup::Trimming => {
                let mut mine = self.batches.range(start..);
                let mut theirs = other.batches.range(start..);
                loop {
                    match (mine.next(), theirs.next()) {
                        (None, None) => return None,
                        (Some(mine), Some(theirs)) if mine == theirs => {}
                        (mine, theirs) => {
                            let offset = |batch: Option<(&i64, &Bytes)>| batch.map(|(offset, _)| *offset);
                            return Some(format!("{:?} here, {:?} there", offset(mine), offset(theirs)));
                        }
                    }
                }
            }
        }
    }

    /// Whether a record that was committed may be gone by now, wherever it was.
    fn may_lack(&self, payload: &str) -> bool {
        match self.cleanup {
            Cleanup::Nothing => false,
            Cleanup::Retention | Cleanup::Trimming => self.start > 0,
            Cleanup::Compaction => self.newest.contains_key(&history::key(payload)),
        }
    }

    /// Whether a later record of the same key makes one at this offset unnecessary.
    fn has_newer(&self, offset: i64, payload: &str) -> bool {
        self.newest.get(&history::key(payload)).is_some_and(|newest| *newest > offset)
    }
}

fn check_log(found: &Found, told: &PartitionHistory) -> Vec<String> {
    let cleanup = found.cleanup;
    let mut violations = Vec::new();
    let may_be_gone = |offset: i64, payload: &str| match cleanup {
        Cleanup::Nothing => false,
        Cleanup::Retention | Cleanup::Trimming => offset < found.start,
        // What was aborted goes; what was committed is looked at with its transaction.
        Cleanup::Compaction => found.has_newer(offset, payload) || history::is_transactional(payload),
    };
    for (offset, payload) in told.acknowledged.iter().chain(&told.read) {
        match found.payloads.get(offset) {
            Some(found) if found == payload => {}
            Some(found) => violations.push(format!("{payload} was at {offset}, now {found} is")),
            None if may_be_gone(*offset, payload) => {}
            None => violations.push(format!("{payload} was at {offset}, which is gone")),
        }
    }
    for payload in told.stored.iter().filter(|payload| !found.places.contains_key(*payload)) {
        let is_excused = match told.place_of(payload) {
            Some(offset) => may_be_gone(offset, payload),
            None => cleanup != Cleanup::Nothing,
        };
        if !is_excused {
            violations.push(format!("{payload} was acknowledged and is gone"));
        }
    }
    if cleanup == Cleanup::Retention
        && found.start > 0
        && found.size_bytes < RETAINED_BYTES - UNCOMMITTED_BYTES_MAX
    {
        violations.push(format!("{} bytes are left from {} on", found.size_bytes, found.start));
    }
    if cleanup == Cleanup::Trimming && found.start > told.trimmed_to {
        violations
            .push(format!("it begins at {}, deletion was asked for up to {}", found.start, told.trimmed_to));
    }
    violations
}

/// A transaction's records are visible all or none, as its producer was told.
fn check_transactions(history: &History, found: &BTreeMap<i32, Found>) {
    for (name, Transaction { ending, written }) in history.transactions() {
        let is_visible = |(partition, payload): &&(i32, String)| {
            found.get(partition).is_some_and(|found| found.committed.contains(payload))
        };
        // Gone by retention or compaction, whatever it was.
        let may_be_gone = |(partition, payload): &&(i32, String)| {
            found.get(partition).is_some_and(|found| found.may_lack(payload))
        };
        let visible = written.iter().filter(is_visible).count();
        let gone = written.iter().filter(|record| !is_visible(record)).filter(may_be_gone).count();
        let was_read = written.iter().any(|(_, payload)| history.was_read_as_committed(payload));
        let is_committed = visible + gone == written.len();
        let is_right = match ending {
            Ending::Committed => is_committed,
            Ending::Aborted => visible == 0 && !was_read,
            Ending::Unknown => is_committed || (visible == 0 && !was_read),
        };
        if !is_right {
            history.violation(format!(
                "transaction {name} is {ending:?}: {visible} of {written:?} are visible, read: {was_read}"
            ));
        }
    }
}
