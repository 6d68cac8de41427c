//! Compaction against a naive model: random histories of producers, transactions, cleanings with small and
//! large maps, and restarts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::testing::*;
use super::super::{CleanerOptions, LogConfig};
use super::compaction::{Compacted, OPTIONS, committed, config, keyed, producer};
use crate::model::Offset;
use crate::records::{BatchBuilder, Codec, TransactionMarker};
use crate::runtime::fs::FileSystem;

#[derive(Clone, Debug)]
enum Op {
    Append {
        records: Vec<Record>,
        codec: Codec,
    },
    Idempotent {
        producer_id: i64,
        records: Vec<Record>,
    },
    Transactional {
        producer_id: i64,
        records: Vec<Record>,
    },
    End {
        producer_id: i64,
        is_commit: bool,
    },
    /// With room for so many keys.
    Clean {
        keys: u64,
    },
    /// As after a kill; without snapshots the state of producers comes from the batches.
    Restart {
        keeps_snapshots: bool,
    },
    Advance {
        ms: i64,
    },
}

/// A key, and a value or a tombstone.
type Record = (u8, Option<u8>);

fn records() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec((0u8..7, prop::option::weighted(0.8, any::<u8>())), 1..5)
}

fn op() -> impl Strategy<Value = Op> {
    let codec = prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd), Just(Codec::Gzip)];
    prop_oneof![
        6 => (records(), codec).prop_map(|(records, codec)| Op::Append { records, codec }),
        4 => (0i64..2, records()).prop_map(|(producer_id, records)| Op::Idempotent { producer_id, records }),
        5 => (2i64..5, records()).prop_map(|(producer_id, records)| Op::Transactional { producer_id, records }),
        5 => (2i64..5, any::<bool>()).prop_map(|(producer_id, is_commit)| Op::End { producer_id, is_commit }),
        3 => (1u64..9).prop_map(|keys| Op::Clean { keys }),
        1 => Just(Op::Clean { keys: 10_000 }),
        1 => any::<bool>().prop_map(|keeps_snapshots| Op::Restart { keeps_snapshots }),
        1 => (0i64..100_000).prop_map(|ms| Op::Advance { ms }),
    ]
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Committed,
    Open(i64),
    Aborted,
}

struct Entry {
    offset: i64,
    key: String,
    value: Option<String>,
    state: State,
}

struct History {
    compacted: Compacted,
    entries: Vec<Entry>,
    sequences: BTreeMap<i64, i32>,
    open: BTreeSet<i64>,
}

impl History {
    fn run(mut self, ops: &[Op]) {
        for op in ops {
            self = self.apply(op);
        }
        for producer_id in self.open.clone() {
            self.end(producer_id, true);
        }
        self.compacted.roll("filler");
        self = self.apply(&Op::Clean { keys: 3 });
        self.apply(&Op::Restart { keeps_snapshots: true });
    }

    fn apply(mut self, op: &Op) -> History {
        match op {
            Op::Append { records, codec } => {
                self.append(BatchBuilder::new().compression(*codec, None), records, State::Committed);
            }
            Op::Idempotent { producer_id, records } => {
                let builder = producer(*producer_id, self.next_sequence(*producer_id, records.len()));
                self.append(builder, records, State::Committed);
            }
            Op::Transactional { producer_id, records } => {
                let builder = producer(*producer_id, self.next_sequence(*producer_id, records.len()));
                self.open.insert(*producer_id);
                self.append(builder.transactional(), records, State::Open(*producer_id));
            }
            Op::End { producer_id, is_commit } => self.end(*producer_id, *is_commit),
            Op::Clean { keys } => {
                let options = CleanerOptions { map_bytes: (keys + 1) * 24, load_factor: 1.0, ..OPTIONS };
                self.compacted.clean_with(&options).unwrap();
                self.compacted.machine.check_files(&self.compacted.log);
                self.check_cleaned();
            }
            Op::Restart { keeps_snapshots } => {
                self.compacted.machine.fs.kill();
                for name in self.compacted.machine.files(".snapshot").iter().filter(|_| !keeps_snapshots) {
                    self.compacted.machine.fs.remove_file(&self.compacted.machine.file(name)).unwrap();
                }
                self.compacted = Compacted::start(self.compacted.machine);
            }
            Op::Advance { ms } => self.compacted.machine.clock.advance_ms(*ms),
        }
        self.check_latest();
        self
    }

    fn append(&mut self, builder: BatchBuilder, records: &[Record], state: State) {
        let named = |(key, value): &Record| (format!("k{key}"), value.map(|value| format!("v{value}")));
        let texts: Vec<(String, Option<String>)> = records.iter().map(named).collect();
        let borrowed: Vec<(&str, Option<&str>)> =
            texts.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        let info = self.compacted.log.append_batch(keyed(builder, &borrowed)).unwrap();
        assert!(!info.is_duplicate);
        for (offset, (key, value)) in (info.first_offset.0..).zip(texts) {
            self.entries.push(Entry { offset, key, value, state });
        }
    }

    fn next_sequence(&mut self, producer_id: i64, count: usize) -> i32 {
        let next = self.sequences.entry(producer_id).or_default();
        let sequence = *next;
        *next += count as i32;
        sequence
    }

    fn end(&mut self, producer_id: i64, is_commit: bool) {
        if self.open.remove(&producer_id) {
            let (outcome, state) = match is_commit {
                true => (TransactionMarker::Commit, State::Committed),
                false => (TransactionMarker::Abort, State::Aborted),
            };
            self.compacted.log.append_batch(marker(producer_id, outcome)).unwrap();
            let open = self.entries.iter_mut().filter(|entry| entry.state == State::Open(producer_id));
            open.for_each(|entry| entry.state = state);
        }
    }

    /// What a reader makes of the stable part is what was committed there.
    fn check_latest(&self) {
        let bound = self.compacted.log.last_stable_offset().0;
        let below = self.entries.iter().filter(|entry| entry.offset < bound);
        let below = below.filter(|entry| entry.state == State::Committed);
        let expected = latest(below.map(|entry| (entry.key.clone(), entry.value.clone())));
        let filler = |(_, key, _): &(i64, String, Option<String>)| key.starts_with("filler");
        let seen = committed(&self.compacted.log).into_iter().filter(|seen| !filler(seen));
        assert_eq!(latest(seen.map(|(_, key, value)| (key, value))), expected);
    }

    /// Below the checkpoint there is one record of each key, the last; above it, everything.
    fn check_cleaned(&self) {
        let log = &self.compacted.log;
        let Some(Offset(clean_end)) = log.directory().cleaner_offset(&partition()) else { return };
        let bound = log.last_stable_offset().0;
        let mut last = BTreeMap::new();
        let stable =
            self.entries.iter().filter(|entry| entry.state == State::Committed && entry.offset < bound);
        for entry in stable.clone().filter(|entry| entry.offset < clean_end) {
            last.insert(&entry.key, entry.offset);
        }
        let kept = stable.filter(|entry| entry.offset >= clean_end || last[&entry.key] == entry.offset);
        let expected: Vec<_> =
            kept.map(|entry| (entry.offset, entry.key.clone(), entry.value.clone())).collect();
        let seen = committed(log);
        let seen: Vec<_> = seen.into_iter().filter(|(_, key, _)| !key.starts_with("filler")).collect();
        let values = |records: &[(i64, String, Option<String>)]| -> Vec<_> {
            records.iter().filter(|(_, _, value)| value.is_some()).cloned().collect()
        };
        assert_eq!(values(&seen), values(&expected), "clean up to {clean_end}");
        // A tombstone may have gone, but no other than these is there.
        assert!(seen.iter().all(|record| expected.contains(record)), "{seen:?} {expected:?}");
    }
}

/// The last value of each key; a tombstone takes it away.
fn latest(records: impl Iterator<Item = (String, Option<String>)>) -> BTreeMap<String, String> {
    let mut latest = BTreeMap::new();
    for (key, value) in records {
        match value {
            Some(value) => latest.insert(key, value),
            None => latest.remove(&key),
        };
    }
    latest
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn compaction_keeps_the_last_committed_record_of_each_key(ops in prop::collection::vec(op(), 1..80)) {
        let config = LogConfig { segment_bytes: 500, ..config() };
        let history = History {
            compacted: Compacted::with(config),
            entries: Vec::new(),
            sequences: BTreeMap::new(),
            open: BTreeSet::new(),
        };
        history.run(&ops);
    }
}
