//! Values are appended to lists, several lists in one transaction, in the manner of Elle: each value is there once and for
//! ever, at one place of its list.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::{Client, Generation, GivenUp};
use crate::history::{Fate, History};
use crate::view::View;
use crate::{Run, Stage, Worker};

const PARTITIONS: i32 = 3;
const LISTS: i32 = 7;
const WRITERS: i32 = 4;

#[test]
fn no_append_is_lost_doubled_torn_or_seen_before_its_time() {
    play(Run::new(3, Generation::Classic));
}

#[test]
fn no_append_is_lost_doubled_torn_or_seen_before_its_time_where_epochs_grow() {
    play(Run::new(4, Generation::EpochBump));
}

fn play(run: Run) {
    let mut stage = Stage::new(run, "lists", PARTITIONS);
    let writers = (0..WRITERS).map(|number| Writer::new(&stage.proxy.address(), number, run));
    stage.play(writers.collect());
    let mut view = View::new("lists", PARTITIONS);
    view.read_to_end(&stage.broker.address());
    check_lists(&view);
}

/// A list holds the values of a writer in the order in which it wrote them, and a value is in one list only.
fn check_lists(view: &View) {
    let mut lists: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for records in view.records() {
        for (value, list) in records {
            lists.entry(list).or_default().push(value);
        }
    }
    let mut all = BTreeSet::new();
    for (list, values) in lists {
        for writer in 0..WRITERS {
            let of_writer = values.iter().filter(|value| value.starts_with(&format!("{writer}/")));
            let of_writer: Vec<&&str> = of_writer.collect();
            assert!(
                of_writer.is_sorted(),
                "{list} has values of writer {writer} in another order: {of_writer:?}"
            );
        }
        for value in values {
            assert!(all.insert(value), "{value} is in two lists, one of them {list}");
        }
    }
}

struct Writer {
    client: Client,
    number: i32,
    random: fastrand::Rng,
    tries: usize,
}

impl Writer {
    fn new(address: &str, number: i32, run: Run) -> Writer {
        let id = format!("writer-{number}");
        Writer {
            client: Client::new(address, &id, run.generation),
            number,
            random: fastrand::Rng::with_seed(run.seed * 100 + 50 + number as u64),
            tries: 0,
        }
    }

    fn append_some(&mut self, history: &History, name: &str) -> Result<(), GivenUp> {
        let lists: Vec<i32> = (0..self.random.usize(1..6)).map(|_| self.random.i32(0..LISTS)).collect();
        let partitions: BTreeSet<i32> = lists.iter().map(|list| list % PARTITIONS).collect();
        self.client.begin("lists", &partitions.into_iter().collect::<Vec<_>>())?;
        let mut index = 0;
        for list in lists {
            // Several records in one batch are seen together or not at all, too.
            let partition = list % PARTITIONS;
            let records: Vec<(String, String)> = (0..self.random.usize(1..3))
                .map(|_| {
                    index += 1;
                    (format!("{name}#{}", index - 1), format!("list-{list}"))
                })
                .collect();
            let offset = self.client.append("lists", partition, &records)?;
            (offset..).zip(&records).for_each(|(offset, _)| history.wrote(name, partition, offset));
        }
        let commits = self.random.u8(0..4) > 0;
        if commits {
            history.set_fate(name, Fate::Asked);
        }
        self.client.end(commits)?;
        history.set_fate(name, if commits { Fate::Committed } else { Fate::Aborted });
        Ok(())
    }
}

impl Worker for Writer {
    fn work(&mut self, history: &History) {
        if !self.client.is_ready() {
            self.client.init();
        }
        let name = format!("{}/{:06}", self.number, self.tries);
        self.tries += 1;
        history.begin(&name);
        if self.append_some(history, &name).is_err() {
            history.set_fate(&name, Fate::Aborted);
            self.client.give_up();
        }
    }
}
