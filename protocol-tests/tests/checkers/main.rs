//! Transactions under faults, checked by what readers of committed records see at every moment and at the end.
//!
//! The broker is killed, stopped for shorter and for longer than a transaction may last, and cut off from its clients.
//! `bank`: money moves between accounts, by orders that are consumed and transformed. `lists`: values are appended to
//! lists, in the manner of Elle.
//!
//! Short and with a fixed seed as they stand; `scripts/soak-transactions MINUTES SEED` runs them for long.

mod bank;
mod client;
mod faults;
mod history;
mod lists;
mod view;

use std::time::{Duration, Instant};

use protocol_tests::{Broker, Connection, Proxy, announce};

use client::Generation;
use faults::Faults;
use history::History;
use view::View;

/// How long a transaction may last. A stop of the broker can be longer.
const TRANSACTION_TIMEOUT_MS: i32 = 2_000;

const SETTINGS: &[(&str, &str)] = &[
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("transaction.state.log.num.partitions", "3"),
    ("offsets.topic.num.partitions", "3"),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200"),
];

/// How long a run goes on, and from which seed.
#[derive(Clone, Copy, Debug)]
struct Run {
    seed: u64,
    /// Faults at least, and time.
    faults: usize,
    time: Duration,
    generation: Generation,
}

impl Run {
    /// Of the test with this seed, or as the environment says: `BARNABAS_CHECKER_MINUTES`, `BARNABAS_CHECKER_SEED`.
    fn new(seed: u64, generation: Generation) -> Run {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let minutes = number("BARNABAS_CHECKER_MINUTES").unwrap_or(0);
        let seed = number("BARNABAS_CHECKER_SEED").unwrap_or(0).wrapping_mul(1_000) + seed;
        Run { seed, faults: 7, time: Duration::from_secs(60 * minutes), generation }
    }
}

/// A broker behind a network that fails, and what is done to it.
struct Stage {
    run: Run,
    broker: Broker,
    proxy: Proxy,
    history: History,
    topic: &'static str,
    partitions: i32,
}

impl Stage {
    fn new(run: Run, topic: &'static str, partitions: i32) -> Stage {
        let mut broker = Broker::start_as(protocol_tests::Server::Barnabas, SETTINGS);
        broker.allow_log("aborting a transaction that outlived its timeout");
        let mut connection = Connection::open(&broker.address());
        connection.wait_for_coordinator("any");
        connection.create_topic(topic, partitions, &[]);
        client::set_generation(&mut connection, run.generation);
        let proxy = Proxy::to(&broker.address());
        Stage { run, broker, proxy, history: History::default(), topic, partitions }
    }

    /// Lets workers work and readers read while faults befall the broker. `work` does one transaction for the worker of
    /// this number, and tells whether there is anything left to do.
    fn play<W: Worker>(&mut self, mut workers: Vec<W>) {
        let Stage { run, broker, proxy, history, .. } = self;
        let mut faults = Faults::new(run.seed, run.generation);
        let over = &history.is_over;
        let address = &proxy.address();
        let (topic, partitions, direct) = (self.topic, self.partitions, broker.address());
        let history: &History = history;
        let views: Vec<View> = std::thread::scope(|scope| {
            for worker in &mut workers {
                scope.spawn(move || {
                    let _alarm = history.alarm();
                    while !over.is_set() {
                        worker.work(history);
                    }
                });
            }
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(move || {
                        let _alarm = history.alarm();
                        let mut view = View::new(topic, partitions);
                        let mut connection = None;
                        while !over.is_set() {
                            view.read_on(&mut connection, address);
                            view.check(history);
                        }
                        view
                    })
                })
                .collect();
            let started = Instant::now();
            let mut count = 0;
            while (count < run.faults || started.elapsed() < run.time) && !over.is_set() {
                history.await_progress();
                faults.strike(broker, proxy);
                count += 1;
            }
            over.set();
            announce(&format!("{topic}: {run:?}, faults: {faults}"));
            readers.into_iter().map(|reader| reader.join().expect("a reader saw nothing wrong")).collect()
        });
        drop(workers);
        self.audit(&direct, views);
    }

    /// When all is quiet: what is seen is what was decided, and what was seen meanwhile is how that begins.
    fn audit(&self, address: &str, views: Vec<View>) {
        let mut connection = Connection::open(address);
        client::wait_until_stable(&mut connection, self.topic, self.partitions);
        let mut last = View::new(self.topic, self.partitions);
        last.read_to_end(address);
        last.check(&self.history);
        self.history.audit(&last);
        views.iter().for_each(|view| view.assert_is_start_of(&last));
        announce(&format!("{}: {}", self.topic, self.history.summary()));
    }
}

/// Does transactions, one after the other.
trait Worker: Send {
    fn work(&mut self, history: &History);
}
