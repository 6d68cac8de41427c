//! What clients were told, and whether it fits together.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::trace::Trace;

/// Of all clients of a simulation. Cheap to clone.
#[derive(Clone)]
pub struct History {
    told: Arc<Mutex<Told>>,
    trace: Trace,
}

#[derive(Default)]
struct Told {
    partitions: BTreeMap<i32, PartitionHistory>,
    transactions: BTreeMap<String, Transaction>,
    committed_offsets: i64,
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
    /// Where each payload was found.
    places: BTreeMap<String, i64>,
    /// How many payloads were sent at least once.
    pub attempted: usize,
}

impl History {
    pub fn new(trace: Trace) -> History {
        History { told: Arc::default(), trace }
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

    pub fn committed(&self, offsets: i64) {
        self.told.lock().committed_offsets += offsets;
    }

    /// How many offsets were committed.
    pub fn committed_offsets(&self) -> i64 {
        self.told.lock().committed_offsets
    }

    /// The end of what is acknowledged.
    pub fn acknowledged_end(&self, partition: i32) -> i64 {
        let told = self.told.lock();
        let last =
            told.partitions.get(&partition).and_then(|history| history.acknowledged.keys().next_back());
        last.map_or(0, |last| last + 1)
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
        if let Some(known) = known.filter(|known| known != payload) {
            self.violation(format!("{partition}: {reader} reads {payload} at {offset}, where {known} was"));
        }
        self.report(partition, place);
    }

    fn report(&self, partition: i32, place: Result<(), String>) {
        if let Err(twice) = place {
            self.violation(format!("{partition}: {twice}"));
        }
    }
}

impl PartitionHistory {
    /// A payload has one place: it is sent once, by an idempotent producer.
    fn place(&mut self, offset: i64, payload: &str) -> Result<(), String> {
        match self.places.insert(payload.to_owned(), offset) {
            Some(other) if other != offset => Err(format!("{payload} is at {other} and at {offset}")),
            _ => Ok(()),
        }
    }
}
