//! Random histories: what was answered is what the log says, and fences hold.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::messages::{TxnCommand, TxnEvent, TxnReply};
use super::testing::{World, partitions, transactional_id};
use super::transaction::{Init, TransactionState, TransactionVersion};
use super::*;
use crate::coordinator::WriteError;
use crate::model::{ProducerEpoch, ProducerId};

const IDS: [&str; 2] = ["a", "b"];
const PARTITIONS: [&str; 4] = ["t-0", "t-1", "u-0", "t-0,u-0"];

#[derive(Clone, Debug)]
enum Step {
    /// A producer starts; `with` its last id and epoch, or as a new one.
    Init {
        id: usize,
        producer: usize,
        goes_on: bool,
    },
    Add {
        producer: usize,
        partitions: usize,
    },
    End {
        producer: usize,
        is_commit: bool,
    },
    /// All markers that are to be sent are written.
    WriteMarkers,
    Commit,
    Refuse,
    Lose,
    Advance {
        ms: i64,
    },
    Restart {
        kept: usize,
    },
    SetVersion {
        level: i16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..IDS.len(), 0..4usize, any::<bool>())
            .prop_map(|(id, producer, goes_on)| Step::Init { id, producer, goes_on }),
        6 => (0..4usize, 0..PARTITIONS.len()).prop_map(|(producer, partitions)| Step::Add { producer, partitions }),
        5 => (0..4usize, any::<bool>()).prop_map(|(producer, is_commit)| Step::End { producer, is_commit }),
        5 => Just(Step::WriteMarkers),
        12 => Just(Step::Commit),
        1 => Just(Step::Refuse),
        1 => Just(Step::Lose),
        2 => prop_oneof![Just(1), Just(200), Just(30_000), Just(100_000)].prop_map(|ms| Step::Advance { ms }),
        1 => (0..3usize).prop_map(|kept| Step::Restart { kept }),
        1 => (0..=2i16).prop_map(|level| Step::SetVersion { level }),
    ]
}

/// What a client was told, naively.
#[derive(Clone, Copy, Debug)]
struct Client {
    id: usize,
    producer: (ProducerId, ProducerEpoch),
    version: TransactionVersion,
}

#[derive(Debug)]
enum Asked {
    Init { id: usize, client: usize },
    Add { client: Client },
    End { client: Client, slot: usize, is_commit: bool },
}

struct History {
    world: World,
    clients: [Option<Client>; 4],
    asked: BTreeMap<u64, Asked>,
    /// The newest producer that each id was told of.
    newest: BTreeMap<usize, (ProducerId, ProducerEpoch)>,
    /// All (producer id, epoch) pairs that a client was told, each of which belongs to one transactional id.
    told: BTreeMap<(ProducerId, ProducerEpoch), usize>,
    markers: Vec<TxnEvent>,
    /// Decisions by producer: never both.
    decisions: BTreeMap<(TransactionalId, ProducerId, ProducerEpoch), BTreeSet<bool>>,
}

impl History {
    fn new(level: i16) -> History {
        let options = TxnOptions { id_expiration_ms: 600_000, ..TxnOptions::default() };
        History {
            world: World::new(options, TransactionVersion::from_level(level)),
            clients: [None; 4],
            asked: BTreeMap::new(),
            newest: BTreeMap::new(),
            told: BTreeMap::new(),
            markers: Vec::new(),
            decisions: BTreeMap::new(),
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Init { id, producer, goes_on } => {
                let expected = self.clients[producer].filter(|client| goes_on && client.id == id);
                let init = Init {
                    timeout_ms: 60_000,
                    expected: expected.map(|client| client.producer),
                    fresh_producer_id: Some(self.world.fresh_producer_id()),
                };
                let token = self.world.send(TxnCommand::Init(transactional_id(IDS[id]), init));
                self.asked.insert(token, Asked::Init { id, client: producer });
            }
            Step::Add { producer, partitions: at } => {
                let Some(client) = self.clients[producer] else { return };
                let token = self.world.send(TxnCommand::AddPartitions(AddPartitions {
                    transactional_id: transactional_id(IDS[client.id]),
                    producer_id: client.producer.0,
                    producer_epoch: client.producer.1,
                    partitions: partitions(PARTITIONS[at]),
                    client_version: client.version,
                    client_host: None,
                }));
                self.asked.insert(token, Asked::Add { client });
            }
            Step::End { producer, is_commit } => {
                let Some(client) = self.clients[producer] else { return };
                let request = EndTransaction {
                    transactional_id: transactional_id(IDS[client.id]),
                    producer_id: client.producer.0,
                    producer_epoch: client.producer.1,
                    is_commit,
                    client_version: client.version,
                };
                let fresh = Some(self.world.fresh_producer_id());
                let token = self.world.send(TxnCommand::End(request, fresh));
                self.asked.insert(token, Asked::End { client, slot: producer, is_commit });
            }
            Step::WriteMarkers => {
                for event in std::mem::take(&mut self.markers) {
                    let TxnEvent::WriteMarkers(decided) = event else { continue };
                    self.world.send(TxnCommand::MarkersWritten {
                        transactional_id: decided.transactional_id,
                        producer_id: decided.producer_id,
                        producer_epoch: decided.producer_epoch,
                    });
                }
            }
            Step::Commit => {
                self.world.commit();
            }
            Step::Refuse => self.world.refuse(WriteError::TimedOut),
            Step::Lose => self.world.lose(WriteError::NotEnoughReplicas),
            Step::Advance { ms } => self.world.advance(ms),
            Step::Restart { kept } => {
                self.markers.clear();
                self.asked.clear();
                self.world.restart(kept);
            }
            Step::SetVersion { level } => {
                self.world.version = TransactionVersion::from_level(level);
                self.world.send(TxnCommand::SetVersion(self.world.version));
            }
        }
        self.take_events();
        self.take_replies();
        assert_eq!(self.world.replayed().stored(), self.world.stored(), "the log says something else");
    }

    fn take_events(&mut self) {
        for event in std::mem::take(&mut self.world.events) {
            if let TxnEvent::WriteMarkers(decided) = &event {
                let state = self.world.stored()[&decided.transactional_id].clone();
                assert!(state.state.is_prepared(), "markers of {state:?}");
                assert!(!decided.partitions.is_empty());
                // With one epoch for each end an epoch is decided once; else once for each transaction.
                if decided.version == TransactionVersion::EpochBump {
                    let key = (decided.transactional_id.clone(), decided.producer_id, decided.producer_epoch);
                    let decisions = self.decisions.entry(key).or_default();
                    decisions.insert(decided.is_commit);
                    assert_eq!(decisions.len(), 1, "{decided:?} was decided otherwise before");
                }
                self.markers.push(event);
            }
        }
    }

    fn take_replies(&mut self) {
        for (token, reply) in std::mem::take(&mut self.world.replies) {
            let Some(asked) = self.asked.remove(&token) else { continue };
            match (asked, reply) {
                (Asked::Init { id, client }, TxnReply::Producer(Ok(producer))) => {
                    self.tell(id, producer);
                    let version = self.world.version;
                    self.clients[client] = Some(Client { id, producer, version });
                }
                (Asked::Add { client }, TxnReply::Done(Ok(()))) => {
                    self.assert_newest(&client, "added partitions");
                }
                (Asked::End { client, slot, is_commit }, TxnReply::Producer(Ok(producer))) => {
                    let stored = &self.world.stored()[&transactional_id(IDS[client.id])];
                    let is_as_asked = match stored.state {
                        TransactionState::PrepareCommit | TransactionState::CompleteCommit => is_commit,
                        TransactionState::PrepareAbort | TransactionState::CompleteAbort => !is_commit,
                        // A late answer: the next transaction has begun.
                        TransactionState::Empty | TransactionState::Ongoing => true,
                    };
                    assert!(is_as_asked, "{client:?} was told that {is_commit} is done: {stored:?}");
                    if client.version == TransactionVersion::EpochBump {
                        self.tell(client.id, producer);
                        self.clients[slot] = Some(Client { producer, ..client });
                    }
                }
                _ => {}
            }
        }
    }

    /// No two transactional ids share a producer, and what is told never goes back.
    fn tell(&mut self, id: usize, producer: (ProducerId, ProducerEpoch)) {
        let of = self.told.entry(producer).or_insert(id);
        assert_eq!(*of, id, "{producer:?} was given to two transactional ids");
        let newest = self.newest.entry(id).or_insert(producer);
        let is_newer = producer.0 != newest.0 || producer.1 >= newest.1;
        assert!(is_newer, "{producer:?} is older than {newest:?}");
        *newest = producer;
    }

    fn assert_newest(&self, client: &Client, what: &str) {
        let newest = self.newest[&client.id];
        let is_older = client.producer.0 == newest.0 && client.producer.1 < newest.1;
        assert!(!is_older, "{client:?} {what} behind {newest:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_was_answered_is_what_the_log_says(level in 0..=2i16, steps in prop::collection::vec(step(), 1..120)) {
        let mut history = History::new(level);
        for step in steps {
            history.run(step);
        }
    }

    #[test]
    fn every_transaction_comes_to_an_end(level in 0..=2i16, steps in prop::collection::vec(step(), 1..80)) {
        let mut history = History::new(level);
        for step in steps {
            history.run(step);
        }
        history.run(Step::Restart { kept: 1 });
        // Nobody comes back: the timer aborts, and the markers are resumed.
        for _ in 0..3 {
            history.run(Step::Advance { ms: 100_000 });
            history.world.commit_all();
            history.take_events();
            history.run(Step::WriteMarkers);
            history.world.commit_all();
            history.take_events();
        }
        for (id, transaction) in history.world.stored() {
            let is_over = matches!(
                transaction.state,
                TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort
            );
            prop_assert!(is_over && transaction.partitions.is_empty(), "{id}: {transaction:?}");
        }
    }
}

/// A producer that uses up all epochs of its id gets another id, without a client seeing an epoch twice.
#[test]
fn epochs_that_are_used_up_are_followed_by_a_new_producer_id() {
    for version in [TransactionVersion::Classic, TransactionVersion::EpochBump] {
        let mut history = History::new(version.level());
        history.run(Step::Init { id: 0, producer: 0, goes_on: false });
        history.run(Step::Commit);
        let first = history.clients[0].unwrap().producer.0;
        let mut ids = BTreeSet::from([first]);
        for _ in 0..32_800 {
            match version {
                TransactionVersion::EpochBump => {
                    history.world.log.clear();
                    history.end_quickly();
                }
                _ => {
                    history.world.log.clear();
                    history.init_quickly();
                }
            }
            ids.insert(history.clients[0].unwrap().producer.0);
        }
        assert_eq!(ids.len(), 2, "{version:?}");
    }
}

impl History {
    fn init_quickly(&mut self) {
        let init = Init {
            timeout_ms: 60_000,
            expected: None,
            fresh_producer_id: Some(self.world.fresh_producer_id()),
        };
        let token = self.world.send(TxnCommand::Init(transactional_id(IDS[0]), init));
        self.world.commit_all();
        match self.world.replies.remove(&token) {
            Some(TxnReply::Producer(Ok(producer))) => self.client_goes_on(producer),
            other => panic!("{other:?}"),
        }
    }

    fn end_quickly(&mut self) {
        let client = self.clients[0].unwrap();
        let request = EndTransaction {
            transactional_id: transactional_id(IDS[0]),
            producer_id: client.producer.0,
            producer_epoch: client.producer.1,
            is_commit: false,
            client_version: TransactionVersion::EpochBump,
        };
        let fresh = Some(self.world.fresh_producer_id());
        let token = self.world.send(TxnCommand::End(request, fresh));
        self.world.commit_all();
        match self.world.replies.remove(&token) {
            Some(TxnReply::Producer(Ok(producer))) => self.client_goes_on(producer),
            other => panic!("{other:?}"),
        }
    }

    fn client_goes_on(&mut self, producer: (ProducerId, ProducerEpoch)) {
        let before = self.clients[0].unwrap();
        let grows = producer.0 == before.producer.0 && producer.1.0 == before.producer.1.0 + 1;
        let is_new = producer.0 != before.producer.0 && producer.1 == ProducerEpoch(0);
        assert!(grows || is_new, "{producer:?} after {before:?}");
        assert!(producer.1.0 < i16::MAX, "the last epoch is for fencing");
        self.clients[0] = Some(Client { producer, ..before });
    }
}
