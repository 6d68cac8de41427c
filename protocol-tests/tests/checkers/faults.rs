//! What befalls the broker and its network, drawn from a seed.

use std::collections::BTreeMap;
use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use protocol_tests::{Broker, Held, Proxy};
use rustix::process::Signal;

use crate::TRANSACTION_TIMEOUT_MS;
use crate::client::Generation;

pub struct Faults {
    random: fastrand::Rng,
    generation: Generation,
    /// How often each befell.
    counts: BTreeMap<&'static str, usize>,
}

impl Faults {
    pub fn new(seed: u64, generation: Generation) -> Faults {
        Faults { random: fastrand::Rng::with_seed(seed), generation, counts: BTreeMap::new() }
    }

    /// Lets one befall, and gets over it.
    pub fn strike(&mut self, broker: &mut Broker, proxy: &Proxy) {
        let some = Duration::from_millis(self.random.u64(50..800));
        let what = match self.random.u8(0..10) {
            0..3 => {
                broker.kill();
                broker.start_again();
                "kill -9"
            }
            3 => {
                pause(broker, some);
                "a short stop"
            }
            4 => {
                pause(broker, Duration::from_millis(TRANSACTION_TIMEOUT_MS as u64 + 1_000));
                "a stop beyond the timeout of transactions"
            }
            5..7 => {
                proxy.cut();
                "cut connections"
            }
            7 => {
                hold(proxy, Held::Answers, some);
                proxy.cut();
                "lost answers"
            }
            8 => {
                hold(proxy, Held::Answers, some);
                "late answers"
            }
            _ => {
                // Requests that come late are for clients of the second generation: see `Client::patience`.
                let held = match self.generation {
                    Generation::Classic => Held::Answers,
                    Generation::EpochBump => Held::Everything,
                };
                hold(proxy, held, some + Duration::from_millis(TRANSACTION_TIMEOUT_MS as u64));
                "a network that stands still"
            }
        };
        proxy.hold(Held::Nothing);
        *self.counts.entry(what).or_default() += 1;
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.counts, f)
    }
}

/// The fault is its length: there is nothing else to wait for.
fn pause(broker: &Broker, time: Duration) {
    broker.signal(Signal::STOP);
    sleep(time);
    broker.signal(Signal::CONT);
}

fn hold(proxy: &Proxy, held: Held, time: Duration) {
    proxy.hold(held);
    sleep(time);
}
