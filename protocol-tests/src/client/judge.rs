use std::collections::{BTreeMap, BTreeSet};

use super::{Client, Event, Read};

const PARTITIONS: i32 = 4;
const RECORDS_PER_PHASE: usize = 40;

/// All that one program saw on its walk.
pub struct Walk {
    client: Client,
    pub events: Vec<Event>,
}

/// Where a record was stored, by its key.
type Places = BTreeMap<String, (i32, i64)>;

impl Walk {
    pub fn new(client: Client) -> Walk {
        Walk { client, events: Vec::new() }
    }

    /// Panics with the first thing that is not as Kafka has to do it.
    #[track_caller]
    pub fn judge(&self) {
        let places = self.places();
        for read in self.reads() {
            self.check_content(read, &places);
        }
        self.check_reads_by_assignment(&places);
        if self.client.groups {
            self.check_group();
            self.check_members_read_everything();
            self.check_commits(&places);
        }
    }

    fn phases(&self) -> Vec<&'static str> {
        let mut phases = self.client.codecs.to_vec();
        if self.client.groups {
            phases.extend(["together", "alone"]);
        }
        phases.push("after");
        phases
    }

    fn reads(&self) -> impl Iterator<Item = &Read> {
        self.events.iter().filter_map(|event| if let Event::Read(read) = event { Some(read) } else { None })
    }

    /// What the producer was told; every record of every phase once, and no gap between the offsets.
    #[track_caller]
    fn places(&self) -> Places {
        let mut places = Places::new();
        let mut offsets: BTreeMap<i32, BTreeSet<i64>> = BTreeMap::new();
        for event in &self.events {
            let Event::Produced { key, partition, offset } = event else { continue };
            let previous = places.insert(key.clone(), (*partition, *offset));
            assert_eq!(previous, None, "{key} was acknowledged twice");
            assert!(
                offsets.entry(*partition).or_default().insert(*offset),
                "offset {offset} of {partition} twice"
            );
        }
        let expected: BTreeSet<String> = self.phases().into_iter().flat_map(keys).collect();
        let acknowledged: BTreeSet<String> = places.keys().cloned().collect();
        assert_eq!(acknowledged, expected, "the acknowledged records");
        for (partition, offsets) in offsets {
            let contiguous: BTreeSet<i64> = (0..offsets.len() as i64).collect();
            assert_eq!(offsets, contiguous, "the offsets of partition {partition}");
        }
        places
    }

    #[track_caller]
    fn check_content(&self, read: &Read, places: &Places) {
        let (phase, number) = read.key.rsplit_once('-').expect("keys are PHASE-NUMBER");
        assert_eq!(
            read.value,
            format!("{}:{}", read.key, "0123456789".repeat(20)),
            "the value of {}",
            read.key
        );
        if read.headers != "-" {
            assert_eq!(read.headers, format!("phase={phase},number={number}"), "the headers of {}", read.key);
        }
        assert_eq!(
            Some(&(read.partition, read.offset)),
            places.get(&read.key),
            "where {} was read",
            read.key
        );
    }

    /// By assignment everything is read exactly once, and each partition in the order of its offsets.
    #[track_caller]
    fn check_reads_by_assignment(&self, places: &Places) {
        let mut phases = self.client.codecs.to_vec();
        if !self.client.groups {
            phases.push("after");
        }
        let mut next = [0_i64; PARTITIONS as usize];
        let mut keys_read = BTreeSet::new();
        for read in self.reads().filter(|read| read.by == "assignment") {
            let next = &mut next[read.partition as usize];
            assert_eq!(read.offset, *next, "the next offset of partition {} by assignment", read.partition);
            *next += 1;
            keys_read.insert(read.key.clone());
        }
        let expected: BTreeSet<String> = phases.into_iter().flat_map(keys).collect();
        assert_eq!(keys_read, expected, "the records read by assignment, of {} in all", places.len());
    }

    /// Two members share the partitions in halves; when one leaves, the other has them all.
    #[track_caller]
    fn check_group(&self) {
        let mut owned: BTreeMap<&str, &[i32]> = BTreeMap::new();
        let mut shared_in_halves = false;
        let mut all_belong_to_b = false;
        for event in &self.events {
            let Event::Assigned { member, partitions } = event else { continue };
            owned.insert(member, partitions);
            let all: BTreeSet<i32> = owned.values().flat_map(|list| list.iter().copied()).collect();
            shared_in_halves |= owned.len() == 2
                && owned.values().all(|list| list.len() == 2)
                && all.len() == PARTITIONS as usize;
            all_belong_to_b |= shared_in_halves && owned["b"].len() == PARTITIONS as usize;
        }
        assert!(shared_in_halves, "two members never owned two different partitions each");
        assert!(all_belong_to_b, "the member that stayed never owned all partitions");
    }

    /// Groups promise each record at least once: a rebalance, which a slow machine may bring at any moment, gives
    /// again what was read since the last commit.
    #[track_caller]
    fn check_members_read_everything(&self) {
        let read_by = |members: &[&str]| -> Vec<&Read> {
            self.reads().filter(|read| members.contains(&read.by.as_str())).collect()
        };
        let anybody: BTreeSet<&str> = read_by(&["a", "b"]).iter().map(|read| read.key.as_str()).collect();
        for phase in self.client.codecs {
            for key in keys(phase) {
                assert!(anybody.contains(key.as_str()), "{key} was read by no member");
            }
        }
        for (phase, members) in [("together", &["a", "b"][..]), ("alone", &["b"]), ("after", &["b"])] {
            let mut found: Vec<&str> = read_by(members).iter().map(|read| read.key.as_str()).collect();
            found.retain(|key| key.rsplit_once('-').is_some_and(|(of, _)| of == phase));
            found.sort_unstable();
            found.dedup();
            let mut expected: Vec<String> = keys(phase).collect();
            expected.sort_unstable();
            assert_eq!(found, expected, "the records of phase {phase}, by {members:?}");
        }
    }

    /// The commit before the restart stands at the end of each partition.
    #[track_caller]
    fn check_commits(&self, places: &Places) {
        let mut ends = BTreeMap::new();
        for (key, (partition, offset)) in places {
            if !key.starts_with("after-") {
                let end = ends.entry(*partition).or_insert(0);
                *end = (offset + 1).max(*end);
            }
        }
        let committed: BTreeMap<i32, i64> = self
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Committed { partition, offset } => Some((*partition, *offset)),
                _ => None,
            })
            .collect();
        assert_eq!(committed, ends, "the committed offsets");
    }
}

fn keys(phase: &str) -> impl Iterator<Item = String> {
    (0..RECORDS_PER_PHASE).map(move |i| format!("{phase}-{i}"))
}
