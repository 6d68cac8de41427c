//! A reader of committed records, and what it may see.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol_tests::Connection;
use protocol_tests::batch;
use protocol_tests::requests::{fetch_request, record_bytes};
use wire::fetch_response::PartitionData;

use crate::client::open;
use crate::history::{Fate, History};

const CONTROL: i16 = 0x20;
const TRANSACTIONAL: i16 = 0x10;
/// Small, so that transactions lie across fetches.
const FETCH_BYTES: i32 = 8 * 1024;

/// All that one reader has read.
pub struct View {
    topic: &'static str,
    partitions: Vec<Partition>,
    /// Keys by the names of their transactions.
    seen: BTreeMap<String, BTreeSet<String>>,
    /// Those of which something was seen and not everything yet.
    partial: BTreeSet<String>,
}

#[derive(Default)]
struct Partition {
    /// The next offset to be read.
    position: i64,
    /// Key and value, in the order of the log.
    records: Vec<(String, String)>,
    /// How many of them [`View::check`] has looked at.
    checked: usize,
}

impl View {
    pub fn new(topic: &'static str, partitions: i32) -> View {
        View {
            topic,
            partitions: (0..partitions).map(|_| Partition::default()).collect(),
            seen: BTreeMap::new(),
            partial: BTreeSet::new(),
        }
    }

    /// Reads once from each partition; over another connection next time where this one fails. Answers whether there
    /// was anything new.
    pub fn read_on(&mut self, connection: &mut Option<Connection>, address: &str) -> bool {
        let mut is_new = false;
        for (index, partition) in (0..).zip(&mut self.partitions) {
            let Some(open) = open(connection, address, Duration::from_secs(5)) else { return is_new };
            let mut request = fetch_request(self.topic, &[(index, partition.position)], FETCH_BYTES);
            request.isolation_level = 1;
            let Ok(mut response) = open.try_call(11, &request) else {
                *connection = None;
                return is_new;
            };
            let data = response.responses.remove(0).partitions.remove(0);
            match data.error_code {
                0 => is_new |= partition.take(&data),
                // No leader yet.
                3 | 5 | 6 => {}
                code => panic!("Fetch is answered {code}"),
            }
        }
        if !is_new {
            // Only keeps the question from eating the processor.
            std::thread::sleep(Duration::from_millis(5));
        }
        is_new
    }

    pub fn read_to_end(&mut self, address: &str) {
        let mut connection = None;
        // A connection that failed has told nothing.
        while self.read_on(&mut connection, address) || connection.is_none() {}
    }

    /// Checks what was read since the last call: nothing undecided, aborted, twice, or by half.
    pub fn check(&mut self, history: &History) {
        for partition in &mut self.partitions {
            for (key, _) in &partition.records[partition.checked..] {
                let (name, _) = key.split_once('#').unwrap_or_else(|| panic!("{key}"));
                let is_new = self.seen.entry(name.to_owned()).or_default().insert(key.clone());
                assert!(is_new, "{key} is read twice");
                self.partial.insert(name.to_owned());
            }
            partition.checked = partition.records.len();
        }
        // After the reading: what was seen was decided before.
        let attempts = history.attempts();
        let mut whole = BTreeSet::new();
        for name in &self.partial {
            let attempt = attempts.get(name).unwrap_or_else(|| panic!("nobody wrote {name}"));
            let is_decided = matches!(attempt.fate, Fate::Asked | Fate::Committed);
            assert!(is_decided, "{name} is read and {attempt:?}");
            let seen = &self.seen[name];
            for (index, (partition, offset)) in attempt.writes.iter().enumerate() {
                let is_passed = self.partitions[*partition as usize].position > *offset;
                let is_seen = seen.contains(&format!("{name}#{index}"));
                assert_eq!(is_passed, is_seen, "{name} is read by half: {seen:?} of {attempt:?}");
            }
            if seen.len() == attempt.writes.len() {
                whole.insert(name.clone());
            }
        }
        self.partial.retain(|name| !whole.contains(name));
    }

    /// The keys of a transaction that were read.
    pub fn seen_of(&self, name: &str) -> BTreeSet<String> {
        self.seen.get(name).cloned().unwrap_or_default()
    }

    /// Whoever read earlier has read the same, and less.
    pub fn assert_is_start_of(&self, other: &View) {
        for (mine, theirs) in self.partitions.iter().zip(&other.partitions) {
            assert!(theirs.records.starts_with(&mine.records), "two readers see two orders");
        }
    }

    /// Keys and values, by partition and in the order of their logs.
    pub fn records(&self) -> impl Iterator<Item = &[(String, String)]> {
        self.partitions.iter().map(|partition| partition.records.as_slice())
    }
}

impl Partition {
    /// Takes the records that a client would show, as it filters them.
    fn take(&mut self, data: &PartitionData) -> bool {
        let mut aborted: Vec<(i64, i64)> = data
            .aborted_transactions
            .iter()
            .flatten()
            .map(|aborted| (aborted.first_offset, aborted.producer_id))
            .collect();
        // They come in the order of their ends, and are met in the order of their starts.
        aborted.sort_unstable_by(|one, other| other.cmp(one));
        let mut open: Vec<i64> = Vec::new();
        let before = self.position;
        for batch in batch::read(&record_bytes(data)) {
            let last_offset = batch.base_offset + i64::from(batch.last_offset_delta.unwrap_or(0));
            while aborted.last().is_some_and(|(first, _)| *first <= last_offset) {
                open.extend(aborted.pop().map(|(_, producer_id)| producer_id));
            }
            if batch.attributes & CONTROL != 0 {
                open.retain(|producer_id| *producer_id != batch.producer_id);
            } else if batch.attributes & TRANSACTIONAL == 0 || !open.contains(&batch.producer_id) {
                let text = |bytes: &Option<bytes::Bytes>| {
                    String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned()
                };
                let offsets = (batch.base_offset..).zip(&batch.records);
                let wanted = offsets.filter(|(offset, _)| *offset >= before);
                self.records.extend(wanted.map(|(_, record)| (text(&record.key), text(&record.value))));
            }
            self.position = self.position.max(last_offset + 1);
        }
        self.position > before
    }
}
