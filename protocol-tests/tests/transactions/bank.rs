//! Money moves between accounts while the broker is killed again and again: no transfer is ever seen by half.
//!
//! `BARNABAS_BANK_KILLS=n` for a longer run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use protocol_tests::{Broker, CallError, Connection, announce, scaled, wait_for};
use wire::Request;

use crate::code;
use crate::producer::{Producer, committed_keys, wait_until_stable};
use crate::start;

const ACCOUNTS: i32 = 3;
const TELLERS: usize = 3;
/// Transfers that are answered between two kills.
const TRANSFERS: usize = 25;

/// What a teller knows of its transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Committed,
    Aborted,
    /// The answer was lost.
    Unknown,
}

type Ledger = Mutex<BTreeMap<String, Fate>>;

/// C055: decisions survive, markers are resumed, and readers of committed records never see half of a transfer.
#[test]
fn money_is_neither_made_nor_lost_while_the_broker_is_killed() {
    let kills =
        std::env::var("BARNABAS_BANK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(scaled(4));
    let mut broker = start(&[]);
    broker.allow_log("aborting a transaction that outlived its timeout");
    broker.allow_log("transaction");
    Connection::open(&broker.address()).create_topic("bank", ACCOUNTS, &[]);
    let ledger = Ledger::default();
    let counter = AtomicUsize::new(0);
    for _ in 0..kills {
        work_until_killed(&mut broker, &ledger, &counter);
        broker.start_again();
    }
    // Each teller comes back and ends what it left open.
    for teller in 0..TELLERS {
        Producer::new(&broker.address(), &format!("teller-{teller}"));
    }
    let mut connection = Connection::open(&broker.address());
    for account in 0..ACCOUNTS {
        wait_until_stable(&mut connection, "bank", account);
    }
    audit(&mut connection, &ledger.into_inner().expect("no teller panicked"));
}

fn work_until_killed(broker: &mut Broker, ledger: &Ledger, counter: &AtomicUsize) {
    let address = broker.address();
    let (done, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for teller in 0..TELLERS {
            let (address, done, is_over) = (&address, &done, &is_over);
            scope.spawn(move || {
                let mut producer = Producer::new(address, &format!("teller-{teller}"));
                while !is_over.load(Ordering::Acquire) {
                    let number = counter.fetch_add(1, Ordering::Relaxed);
                    let name = format!("{teller}-{number}");
                    // Noted before, so that nothing is seen that nobody knows of.
                    ledger.lock().expect("the ledger").insert(name.clone(), Fate::Unknown);
                    let Ok(fate) = transfer(&mut producer, &name, number) else { return };
                    ledger.lock().expect("the ledger").insert(name, fate);
                    done.fetch_add(1, Ordering::Release);
                }
            });
        }
        wait_for("transfers", || (done.load(Ordering::Acquire) >= TRANSFERS).then_some(()));
        broker.kill();
        is_over.store(true, Ordering::Release);
    });
}

/// Takes money from one account and gives it to another. The records of both have the transfer's name as key.
fn transfer(producer: &mut Producer, name: &str, number: usize) -> Result<Fate, CallError> {
    let from = number as i32 % ACCOUNTS;
    let to = (from + 1 + number as i32 / 7 % (ACCOUNTS - 1)) % ACCOUNTS;
    let commits = number % 4 != 3;
    let add = producer.add_request("bank", &[from, to]);
    retry(producer, 3, &add, |response| {
        response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    })?;
    for account in [from, to] {
        let batch = producer.batch("bank", account, name, 1);
        let write = producer.write_request("bank", account, &batch);
        retry(producer, 9, &write, |response| response.responses[0].partition_responses[0].error_code)?;
    }
    let end = producer.end_request(commits);
    retry(producer, 3, &end, |response| response.error_code)?;
    Ok(if commits { Fate::Committed } else { Fate::Aborted })
}

/// Asks until the answer is not "come again".
fn retry<R: Request>(
    producer: &mut Producer,
    version: i16,
    request: &R,
    code_of: impl Fn(&R::Response) -> i16,
) -> Result<(), CallError> {
    loop {
        match code_of(&producer.connection.try_call(version, request)?) {
            code::NONE => return Ok(()),
            code::CONCURRENT_TRANSACTIONS | 14 | 15 | 16 | 19 => thread::yield_now(),
            code => panic!("{} is answered {code}", R::NAME),
        }
    }
}

fn audit(connection: &mut Connection, ledger: &BTreeMap<String, Fate>) {
    let mut seen: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for account in 0..ACCOUNTS {
        for key in committed_keys(connection, "bank", account) {
            let name = key.strip_suffix("-0").unwrap_or_else(|| panic!("{key}")).to_owned();
            assert!(seen.entry(name).or_default().insert(account), "{key} is there twice");
        }
    }
    let mut count = BTreeMap::new();
    for (name, fate) in ledger {
        let halves = seen.remove(name).map_or(0, |accounts| accounts.len());
        let expected: &[usize] = match fate {
            Fate::Committed => &[2],
            Fate::Aborted => &[0],
            Fate::Unknown => &[0, 2],
        };
        assert!(expected.contains(&halves), "{name} is {fate:?} and {halves} halves are seen");
        *count.entry(format!("{fate:?}")).or_insert(0) += 1;
    }
    assert!(seen.is_empty(), "{seen:?} was never sent");
    announce(&format!("bank: {count:?}"));
}
