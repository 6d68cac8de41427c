//! Histories of transactional ids as scripts: `testdata/*.txt`, each command followed by `----` and what it brings
//! about.
//!
//! `UPDATE_SCRIPTS=1 cargo test script_tests` writes what happens into the files, to be read before it is kept.
//!
//! Commands (`id` is the transactional id, `P:E` a producer id and epoch): `init id timeout=ms expect=P:E` · `add id P:E
//! partitions=t-0,t-1 version=n` · `verify id P:E partitions=…` · `end id P:E commit|abort version=n` · `written id P:E`
//! (markers) · `advance ms` · `hold` (commits wait) · `release` · `refuse` (the oldest write is late) · `lose` (it is
//! lost) · `restart` (from what is committed) · `version n` · `list`.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::messages::{TxnCommand, TxnEvent, TxnReply};
use super::testing::{World, partitions, transactional_id};
use super::transaction::Init;
use super::*;
use crate::coordinator::WriteError;
use crate::model::{ProducerEpoch, ProducerId};

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
    };
}

scripts! {
    a_transaction_from_its_begin_to_its_end
    a_new_producer_fences_the_one_before
    ends_are_resumed_after_a_restart
    epochs_grow_with_each_end
    failed_writes_are_undone
    producers_go_on_after_an_error
    silent_ids_and_open_transactions_time_out
}

#[track_caller]
fn check(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("src/txn/testdata/{name}.txt"));
    let expected = std::fs::read_to_string(&path).unwrap();
    let mut script = Script { world: World::new(TxnOptions::default(), Default::default()), holds: false };
    let mut actual = String::new();
    let mut is_output = false;
    for line in expected.lines() {
        if line == "----" {
            is_output = true;
            continue;
        }
        if line.is_empty() {
            is_output = false;
            actual.push('\n');
        } else if line.starts_with('#') && !is_output {
            writeln!(actual, "{line}").unwrap();
        } else if !is_output {
            writeln!(actual, "{line}\n----\n{}", script.run(line).trim_end()).unwrap();
        }
    }
    if std::env::var_os("UPDATE_SCRIPTS").is_some() {
        return std::fs::write(&path, actual).unwrap();
    }
    assert_eq!(actual, expected, "{}", path.display());
}

struct Script {
    world: World,
    holds: bool,
}

impl Script {
    fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let option = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let has = |flag: &str| words.contains(&flag);
        let number = |text: &str| text.parse::<i64>().unwrap();
        let mut token = None;
        match words[0] {
            "init" => {
                let init = Init {
                    timeout_ms: option("timeout").map_or(60_000, |text| number(text) as i32),
                    expected: option("expect").map(producer),
                    fresh_producer_id: Some(self.world.fresh_producer_id()),
                };
                token = Some(self.world.send(TxnCommand::Init(transactional_id(words[1]), init)));
            }
            "add" => {
                let (producer_id, producer_epoch) = producer(words[2]);
                token = Some(self.world.send(TxnCommand::AddPartitions(AddPartitions {
                    transactional_id: transactional_id(words[1]),
                    producer_id,
                    producer_epoch,
                    partitions: partitions(option("partitions").unwrap()),
                    client_version: version(option("version")),
                    client_host: Some("/127.0.0.1".into()),
                })));
            }
            "verify" => {
                let (producer_id, producer_epoch) = producer(words[2]);
                token = Some(self.world.send(TxnCommand::Verify(VerifyPartitions {
                    transactional_id: transactional_id(words[1]),
                    producer_id,
                    producer_epoch,
                    partitions: partitions(option("partitions").unwrap()).into_iter().collect(),
                })));
            }
            "end" => {
                let (producer_id, producer_epoch) = producer(words[2]);
                let request = EndTransaction {
                    transactional_id: transactional_id(words[1]),
                    producer_id,
                    producer_epoch,
                    is_commit: has("commit"),
                    client_version: version(option("version")),
                };
                let fresh = self.world.fresh_producer_id();
                token = Some(self.world.send(TxnCommand::End(request, Some(fresh))));
            }
            "written" => {
                let (producer_id, producer_epoch) = producer(words[2]);
                let transactional_id = transactional_id(words[1]);
                self.world.send(TxnCommand::MarkersWritten { transactional_id, producer_id, producer_epoch });
            }
            "advance" => self.world.advance(number(words[1])),
            "hold" => self.holds = true,
            "release" => self.holds = false,
            "refuse" => self.world.refuse(WriteError::TimedOut),
            "lose" => self.world.lose(WriteError::NotEnoughReplicas),
            "restart" => self.world.restart(0),
            "version" => {
                self.world.version = TransactionVersion::from_level(number(words[1]) as i16);
                self.world.send(TxnCommand::SetVersion(self.world.version));
            }
            "list" => {}
            other => panic!("no command {other}"),
        }
        if !self.holds {
            self.world.commit_all();
        }
        self.print(token, words[0] == "list")
    }

    fn print(&mut self, token: Option<u64>, lists: bool) -> String {
        let mut out = String::new();
        for (of, reply) in std::mem::take(&mut self.world.replies) {
            let whose = if Some(of) == token { "" } else { "earlier: " };
            match reply {
                TxnReply::Producer(Ok((id, epoch))) => writeln!(out, "{whose}{id}:{epoch}").unwrap(),
                TxnReply::Producer(Err(error)) => writeln!(out, "{whose}{error:?}").unwrap(),
                TxnReply::Done(Err(error)) => writeln!(out, "{whose}{error:?}").unwrap(),
                TxnReply::Done(Ok(())) if Some(of) == token => writeln!(out, "ok").unwrap(),
                TxnReply::Verified(results) => {
                    for result in results {
                        writeln!(out, "{whose}{result:?}").unwrap();
                    }
                }
                TxnReply::Done(Ok(()))
                | TxnReply::NeedsProducerId
                | TxnReply::Describe(_)
                | TxnReply::List(_) => {}
            }
        }
        for event in std::mem::take(&mut self.world.events) {
            match event {
                TxnEvent::WriteMarkers(decided) => {
                    let verdict = if decided.is_commit { "commit" } else { "abort" };
                    let (id, epoch) = (decided.producer_id, decided.producer_epoch);
                    let resumed = if decided.is_resumed { " resumed" } else { "" };
                    writeln!(out, "> markers {verdict} {id}:{epoch} {:?}{resumed}", decided.partitions)
                        .unwrap();
                }
                TxnEvent::TimedOut(overdue) => {
                    writeln!(out, "> timed out {} {} ms", overdue.transactional_id, overdue.age_ms).unwrap();
                }
                TxnEvent::Hanging(overdue) => {
                    writeln!(out, "> hanging {}", overdue.transactional_id).unwrap()
                }
                TxnEvent::Expired { transactional_id } => {
                    writeln!(out, "> expired {transactional_id}").unwrap()
                }
                TxnEvent::NotStored { transactional_id } => {
                    writeln!(out, "> not stored {transactional_id}").unwrap();
                }
                // The state says it.
                TxnEvent::Completed { .. } | TxnEvent::Loaded { .. } => {}
            }
        }
        if lists {
            for (id, transaction) in self.world.stored() {
                let (producer, epoch) = (transaction.producer_id, transaction.producer_epoch);
                let state = transaction.state.as_str();
                writeln!(out, "{id} {producer}:{epoch} {state} {:?}", transaction.partitions).unwrap();
            }
        }
        if out.is_empty() { "-".to_owned() } else { out }
    }
}

fn producer(text: &str) -> (ProducerId, ProducerEpoch) {
    let (id, epoch) = text.split_once(':').unwrap();
    (ProducerId(id.parse().unwrap()), ProducerEpoch(epoch.parse().unwrap()))
}

fn version(text: Option<&str>) -> TransactionVersion {
    TransactionVersion::from_level(text.map_or(0, |text| text.parse().unwrap()))
}
