//! Money moves between accounts by orders: each is consumed, carried out and marked as done in one transaction.

use protocol_tests::Connection;
use protocol_tests::batch::Batch;

use crate::client::{Client, Generation, GivenUp};
use crate::history::{Fate, History};
use crate::{Run, Stage, Worker};

const ACCOUNTS: i32 = 3;
const TELLERS: i32 = 3;
const ORDERS: &str = "orders";
const GROUP: &str = "tellers";
/// Of orders in each partition; a teller begins anew with the first when it has carried out all.
const ORDERS_EACH: i64 = 1_000;

/// C055: decisions survive, markers are resumed, orders are carried out once, and readers of committed records never see
/// half of a transfer.
#[test]
fn money_is_neither_made_nor_lost() {
    play(Run::new(1, Generation::Classic));
}

#[test]
fn money_is_neither_made_nor_lost_where_epochs_grow() {
    play(Run::new(2, Generation::EpochBump));
}

fn play(run: Run) {
    let mut stage = Stage::new(run, "bank", ACCOUNTS);
    let mut connection = Connection::open(&stage.broker.address());
    connection.create_topic(ORDERS, TELLERS, &[]);
    for teller in 0..TELLERS {
        let offset =
            connection.append(ORDERS, teller, &Batch::of("order", ORDERS_EACH as i32, 1_700_000_000_000));
        assert_eq!(offset, 0);
    }
    let tellers = (0..TELLERS).map(|number| Teller::new(&stage.proxy.address(), number, run));
    stage.play(tellers.collect());
    check_orders(&stage.history, &mut connection_of(&stage));
}

fn connection_of(stage: &Stage) -> Connection {
    Connection::open(&stage.broker.address())
}

/// Every order that the group is past was carried out, each once, and no other.
fn check_orders(history: &History, connection: &mut Connection) {
    let committed = history.committed();
    for teller in 0..TELLERS {
        let of_teller = committed.iter().filter(|name| name.starts_with(&format!("{teller}/")));
        let mut orders: Vec<i64> =
            of_teller.filter_map(|name| name.split('/').nth(1)?.parse().ok()).collect();
        orders.sort_unstable();
        let position = connection.committed(GROUP, ORDERS, teller).max(0);
        let lap = orders.len() as i64 / ORDERS_EACH * ORDERS_EACH;
        let expected: Vec<i64> = (0..orders.len() as i64).collect();
        assert_eq!(orders, expected, "the orders of teller {teller}");
        assert_eq!(position, (orders.len() as i64 - lap) % ORDERS_EACH, "where teller {teller} goes on");
    }
}

struct Teller {
    client: Client,
    number: i32,
    random: fastrand::Rng,
    /// The next order to be carried out, laps included.
    order: i64,
    tries: usize,
}

impl Teller {
    fn new(address: &str, number: i32, run: Run) -> Teller {
        let id = format!("teller-{number}");
        Teller {
            client: Client::new(address, &id, run.generation),
            number,
            random: fastrand::Rng::with_seed(run.seed * 100 + number as u64),
            order: 0,
            tries: 0,
        }
    }

    /// Consumes an order, moves the money, and says where to go on.
    fn carry_out(&mut self, history: &History, name: &str) -> Result<(), GivenUp> {
        let from = self.random.i32(0..ACCOUNTS);
        let to = (from + self.random.i32(1..ACCOUNTS)) % ACCOUNTS;
        let amount = self.random.i64(1..1_000);
        self.client.begin("bank", &[from, to])?;
        for (index, (account, change)) in [(from, -amount), (to, amount)].into_iter().enumerate() {
            let record = (format!("{name}#{index}"), change.to_string());
            let offset = self.client.append("bank", account, &[record])?;
            history.wrote(name, account, offset);
        }
        let next = (self.order + 1) % ORDERS_EACH;
        self.client.commit_position(GROUP, ORDERS, self.number, next)?;
        let commits = self.random.u8(0..5) > 0;
        if commits {
            history.set_fate(name, Fate::Asked);
        }
        self.client.end(commits)?;
        history.set_fate(name, if commits { Fate::Committed } else { Fate::Aborted });
        self.order += i64::from(commits);
        Ok(())
    }
}

impl Worker for Teller {
    fn work(&mut self, history: &History) {
        if !self.client.is_ready() {
            self.client.init();
            // As a consumer that comes back: what it remembers itself must be the same.
            let position = self.client.position(GROUP, ORDERS, self.number);
            assert_eq!(position, self.order % ORDERS_EACH, "where teller {} goes on", self.number);
        }
        let name = format!("{}/{:06}/{}", self.number, self.order, self.tries);
        self.tries += 1;
        history.begin(&name);
        if self.carry_out(history, &name).is_err() {
            history.set_fate(&name, Fate::Aborted);
            self.client.give_up();
        }
    }
}
