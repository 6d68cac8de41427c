//! What clients were told, and whether it fits together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas::model::Offset;
use parking_lot::Mutex;

use crate::trace::Trace;

/// Of all clients of a simulation. Cheap to clone.
#[derive(Clone)]
pub struct History {
    told: Arc<Mutex<Told>>,
    trace: Trace,
    /// What was acknowledged may be lost.
    is_lossy: bool,
}

#[derive(Default)]
struct Told {
    partitions: BTreeMap<i32, PartitionHistory>,
    transactions: BTreeMap<String, Transaction>,
    /// Payloads that somebody has read who reads what is committed only.
    read_as_committed: BTreeSet<String>,
    committed_offsets: i64,
    groups: BTreeMap<String, Group>,
    violations: Vec<String>,
}

/// What its producer knows of a transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub ending: Ending,
    /// Partition and payload of all that was sent, be it stored or not.
    pub written: Vec<(i32, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Committed,
    Aborted,
    /// A commit was asked for and not answered.
    Unknown,
}

/// What is known of one partition.
#[derive(Clone, Default)]
pub struct PartitionHistory {
    /// Payloads by offset, as acknowledged with acks=all.
    pub acknowledged: BTreeMap<i64, String>,
    /// Payloads that are acknowledged, at whatever offset.
    pub stored: Vec<String>,
    /// Payloads by offset, as read by anybody.
    pub read: BTreeMap<i64, String>,
    /// Up to where somebody asked for records to be deleted.
    pub trimmed_to: i64,
    /// Where each payload was found.
    places: BTreeMap<String, i64>,
    /// How many payloads were sent at least once.
    pub attempted: usize,
}

/// What is known of a group whose members own partitions and commit within generations.
#[derive(Default)]
struct Group {
    /// By generation and partition.
    owners: BTreeMap<(i32, i32), String>,
    /// The highest offset that was acknowledged, by partition and generation.
    acknowledged: BTreeMap<i32, BTreeMap<i32, i64>>,
    /// The highest offset that anybody sent, by partition.
    sent: BTreeMap<i32, i64>,
    commits: usize,
}

impl History {
    pub fn new(trace: Trace, is_lossy: bool) -> History {
        History { told: Arc::default(), trace, is_lossy }
    }

    /// Whether acknowledged records may be lost, and their offsets taken by others.
    pub fn is_lossy(&self) -> bool {
        self.is_lossy
    }

    pub fn violation(&self, what: String) {
        self.trace.note(format_args!("VIOLATION: {what}"));
        self.told.lock().violations.push(what);
    }

    pub fn violations(&self) -> Vec<String> {
        self.told.lock().violations.clone()
    }

    pub fn partitions(&self) -> BTreeMap<i32, PartitionHistory> {
        self.told.lock().partitions.clone()
    }

    pub fn transactions(&self) -> BTreeMap<String, Transaction> {
        self.told.lock().transactions.clone()
    }

    /// A transaction, as it would end now.
    pub fn ended(&self, transaction: &str, ending: Ending) {
        let mut told = self.told.lock();
        let new = || Transaction { ending, written: Vec::new() };
        told.transactions.entry(transaction.to_owned()).or_insert_with(new).ending = ending;
    }

    /// A transaction's record is sent.
    pub fn wrote(&self, transaction: &str, partition: i32, payload: &str) {
        let mut told = self.told.lock();
        if let Some(transaction) = told.transactions.get_mut(transaction) {
            transaction.written.push((partition, payload.to_owned()));
        }
    }

    /// A member is told that it owns a partition.
    pub fn owned(&self, group: &str, generation: i32, partition: i32, member: &str) {
        let mut told = self.told.lock();
        let owners = &mut told.groups.entry(group.to_owned()).or_default().owners;
        let owner = owners.entry((generation, partition)).or_insert_with(|| member.to_owned()).clone();
        drop(told);
        if owner != member {
            self.violation(format!(
                "group {group}: {partition} belongs to {owner} and to {member} in generation {generation}"
            ));
        }
    }

    /// A member sends an offset.
    pub fn commits(&self, group: &str, partition: i32, offset: i64) {
        let mut told = self.told.lock();
        let sent = told.groups.entry(group.to_owned()).or_default().sent.entry(partition).or_default();
        *sent = offset.max(*sent);
    }

    /// It is told that the offset is committed.
    pub fn has_committed(&self, group: &str, generation: i32, partition: i32, offset: i64) {
        let mut told = self.told.lock();
        let group = told.groups.entry(group.to_owned()).or_default();
        group.commits += 1;
        let acknowledged = group.acknowledged.entry(partition).or_default().entry(generation).or_default();
        *acknowledged = offset.max(*acknowledged);
    }

    /// A member finds an offset, or -1, after it has heard of its generation. All commits of earlier ones are stored
    /// by then; a coordinator that is none any more need not know of later ones. Later generations find no less where the
    /// offset is known to be committed: it `stands`.
    pub fn found_committed(&self, group: &str, generation: i32, partition: i32, offset: i64, stands: bool) {
        let mut told = self.told.lock();
        let known = told.groups.entry(group.to_owned()).or_default();
        let sent = known.sent.get(&partition).copied().unwrap_or(-1);
        let acknowledged = known.acknowledged.entry(partition).or_default();
        let least = acknowledged.range(..generation).map(|(_, offset)| *offset).max().unwrap_or(-1);
        if stands {
            let found = acknowledged.entry(generation - 1).or_insert(offset);
            *found = offset.max(*found);
        }
        drop(told);
        if !(least..=sent).contains(&offset) {
            self.violation(format!(
                "group {group}: {least} was committed in {partition} and up to {sent} sent, generation {generation} finds \
                 {offset}"
            ));
        }
    }

    /// How many commits of members were acknowledged.
    pub fn group_commits(&self) -> usize {
        self.told.lock().groups.values().map(|group| group.commits).sum()
    }

    pub fn committed(&self, offsets: i64) {
        self.told.lock().committed_offsets += offsets;
    }

    /// How many offsets were committed.
    pub fn committed_offsets(&self) -> i64 {
        self.told.lock().committed_offsets
    }

    pub fn partition(&self, partition: i32) -> PartitionHistory {
        self.told.lock().partitions.get(&partition).cloned().unwrap_or_default()
    }

    /// The end of what is acknowledged, and kept, in each partition.
    pub fn acknowledged_ends(&self) -> Vec<(i32, Offset)> {
        if self.is_lossy {
            return Vec::new();
        }
        let told = self.told.lock();
        let end = |(index, history): (&i32, &PartitionHistory)| {
            let (last, _) = history.acknowledged.last_key_value()?;
            Some((*index, Offset(last + 1)))
        };
        told.partitions.iter().filter_map(end).collect()
    }

    /// Somebody asks for all below an offset to be deleted.
    pub fn trims(&self, partition: i32, offset: i64) {
        let mut told = self.told.lock();
        let trimmed_to = &mut told.partitions.entry(partition).or_default().trimmed_to;
        *trimmed_to = offset.max(*trimmed_to);
    }

    pub fn attempted(&self, partition: i32, payloads: &[String]) {
        self.told.lock().partitions.entry(partition).or_default().attempted += payloads.len();
    }

    pub fn acknowledged(&self, partition: i32, base_offset: i64, payloads: &[String]) {
        for (offset, payload) in (base_offset..).zip(payloads) {
            let mut told = self.told.lock();
            let history = told.partitions.entry(partition).or_default();
            let other = history.acknowledged.insert(offset, payload.clone());
            let read = history.read.get(&offset).filter(|read| *read != payload).cloned();
            history.stored.push(payload.clone());
            let place = history.place(offset, payload);
            drop(told);
            if self.is_lossy {
                continue;
            }
            if let Some(other) = other.or(read) {
                self.violation(format!(
                    "{partition}: {payload} is acknowledged at {offset}, where {other} is"
                ));
            }
            self.report(partition, place);
        }
    }

    /// The broker knows the batch, but not where it is.
    pub fn acknowledged_somewhere(&self, partition: i32, payloads: &[String]) {
        let mut told = self.told.lock();
        told.partitions.entry(partition).or_default().stored.extend(payloads.iter().cloned());
    }

    pub fn read(&self, reader: &str, partition: i32, offset: i64, payload: &str) {
        let mut told = self.told.lock();
        let history = told.partitions.entry(partition).or_default();
        let known = history.read.insert(offset, payload.to_owned());
        let known = known.or_else(|| history.acknowledged.get(&offset).cloned());
        let place = history.place(offset, payload);
        drop(told);
        if self.is_lossy {
            return;
        }
        if let Some(known) = known.filter(|known| known != payload) {
            self.violation(format!("{partition}: {reader} reads {payload} at {offset}, where {known} was"));
        }
        self.report(partition, place);
    }

    pub fn read_as_committed(&self, payload: &str) {
        self.told.lock().read_as_committed.insert(payload.to_owned());
    }

    pub fn was_read_as_committed(&self, payload: &str) -> bool {
        self.told.lock().read_as_committed.contains(payload)
    }

    fn report(&self, partition: i32, place: Result<(), String>) {
        if let Err(twice) = place {
            self.violation(format!("{partition}: {twice}"));
        }
    }
}

impl PartitionHistory {
    pub fn place_of(&self, payload: &str) -> Option<i64> {
        self.places.get(payload).copied()
    }

    /// A payload has one place: it is sent once, by an idempotent producer.
    fn place(&mut self, offset: i64, payload: &str) -> Result<(), String> {
        match self.places.insert(payload.to_owned(), offset) {
            Some(other) if other != offset => Err(format!("{payload} is at {other} and at {offset}")),
            _ => Ok(()),
        }
    }
}

/// The key of a record: few for each producer, so that later records take the place of earlier ones where a topic is
/// compacted.
pub fn key(payload: &str) -> String {
    let producer = payload.split('-').next().unwrap_or_default();
    let number: u64 = payload.rsplit('-').next().and_then(|last| last.parse().ok()).unwrap_or_default();
    format!("{producer}-{}", number % 5)
}

/// Whether a transactional producer made a payload.
pub fn is_transactional(payload: &str) -> bool {
    payload.starts_with(TRANSACTOR)
}

/// How the names of transactional producers begin.
pub const TRANSACTOR: char = 'x';
