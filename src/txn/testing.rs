//! A shard of transactions with a log that a test moves by hand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::messages::{PendingWrite, TxnCommand, TxnEvent, TxnReply};
use super::records::TxnRecord;
use super::shard::TxnShard;
use super::transaction::Transaction;
use super::{TransactionVersion, TransactionalId, TxnOptions};
use crate::coordinator::{
    Deadline, EncodedRecord, Now, Outcome, Replayed, ReplyToken, Shard, Write, WriteError,
};
use crate::model::{Offset, PartitionIndex, ProducerId, Timestamp, TopicName, TopicPartition};

pub(super) struct World {
    pub options: Arc<TxnOptions>,
    pub version: TransactionVersion,
    pub shard: TxnShard,
    /// What is committed.
    pub log: Vec<EncodedRecord>,
    /// What is appended and not committed, with whether it was refused.
    pub in_flight: VecDeque<(Vec<TxnRecord>, PendingWrite, bool)>,
    pub now_ms: i64,
    pub replies: BTreeMap<u64, TxnReply>,
    pub events: Vec<TxnEvent>,
    next_token: u64,
    next_producer_id: i64,
}

impl World {
    pub fn new(options: TxnOptions, version: TransactionVersion) -> World {
        let options = Arc::new(options);
        let mut world = World {
            shard: TxnShard::new(Arc::clone(&options), version),
            options,
            version,
            log: Vec::new(),
            in_flight: VecDeque::new(),
            now_ms: 1_000_000,
            replies: BTreeMap::new(),
            events: Vec::new(),
            next_token: 0,
            next_producer_id: 1_000,
        };
        let outcome = world.shard.loaded(world.now());
        world.absorb(outcome);
        world
    }

    pub fn now(&self) -> Now {
        Now { timestamp: Timestamp(self.now_ms), monotonic: Deadline(self.now_ms) }
    }

    pub fn fresh_producer_id(&mut self) -> ProducerId {
        self.next_producer_id += 1;
        ProducerId(self.next_producer_id)
    }

    /// Gives the command to the shard; the answer is in `replies` once it is there.
    pub fn send(&mut self, command: TxnCommand) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        let now = self.now();
        let outcome = self.shard.handle(command, ReplyToken(token), now);
        self.absorb(outcome);
        token
    }

    fn absorb(&mut self, outcome: Outcome<TxnShard>) {
        for (token, reply) in outcome.replies {
            let earlier = self.replies.insert(token.0, reply);
            assert!(earlier.is_none(), "request {} is answered twice", token.0);
        }
        self.events.extend(outcome.events);
        for Write { records, pending, producer } in outcome.writes {
            assert!(producer.is_none(), "the coordinator's records belong to no transaction");
            self.in_flight.push_back((records, pending, false));
        }
    }

    /// The oldest write is committed.
    pub fn commit(&mut self) -> bool {
        let Some((records, pending, _)) = self.in_flight.pop_front() else { return false };
        self.log.extend(records.iter().map(|record| TxnShard::encode(record).expect("short names")));
        let now = self.now();
        let outcome = self.shard.committed(records, pending, Offset(self.log.len() as i64), now);
        self.absorb(outcome);
        true
    }

    pub fn commit_all(&mut self) {
        while self.commit() {}
    }

    /// The oldest write is late: it may still be committed or lost.
    pub fn refuse(&mut self, error: WriteError) {
        let now = self.now();
        let Some((_, pending, is_refused)) = self.in_flight.front_mut() else { return };
        if !std::mem::replace(is_refused, true) {
            let outcome = self.shard.refused(pending, error, now);
            self.absorb(outcome);
        }
    }

    /// The oldest write is not in the log.
    pub fn lose(&mut self, error: WriteError) {
        self.refuse(error);
        let Some((records, pending, _)) = self.in_flight.pop_front() else { return };
        let now = self.now();
        let outcome = self.shard.discarded(records, pending, now);
        self.absorb(outcome);
    }

    pub fn advance(&mut self, ms: i64) {
        let end = self.now_ms + ms;
        while let Some(next) = self.shard.next_deadline().filter(|next| next.0 <= end) {
            self.now_ms = self.now_ms.max(next.0);
            let now = self.now();
            let outcome = self.shard.tick(now);
            self.absorb(outcome);
        }
        self.now_ms = end;
    }

    /// The coordinator is killed; the first `kept` of the writes that were not committed are in the log.
    pub fn restart(&mut self, kept: usize) {
        let in_flight = std::mem::take(&mut self.in_flight);
        for (records, ..) in in_flight.iter().take(kept) {
            self.log.extend(records.iter().map(|record| TxnShard::encode(record).expect("short names")));
        }
        self.shard = self.replayed();
        let now = self.now();
        let outcome = self.shard.loaded(now);
        self.absorb(outcome);
    }

    /// A shard that was made from the log.
    pub fn replayed(&self) -> TxnShard {
        let mut shard = TxnShard::new(Arc::clone(&self.options), self.version);
        for (at, record) in self.log.iter().enumerate() {
            shard.replay(Replayed {
                offset: Offset(at as i64),
                timestamp: Timestamp(0),
                producer_id: None,
                key: Some(record.key.clone()),
                value: record.value.clone(),
            });
        }
        shard
    }

    pub fn stored(&self) -> BTreeMap<TransactionalId, Transaction> {
        self.shard.stored()
    }
}

pub(super) fn transactional_id(text: &str) -> TransactionalId {
    TransactionalId::new(text).expect("a name")
}

/// `t-0,t-1`
pub(super) fn partitions(text: &str) -> BTreeSet<TopicPartition> {
    let partition = |text: &str| {
        let (topic, index) = text.rsplit_once('-').expect("topic-partition");
        let topic = TopicName::new(topic).expect("a legal topic");
        TopicPartition::new(topic, PartitionIndex(index.parse().expect("a number")))
    };
    text.split(',').filter(|text| !text.is_empty()).map(partition).collect()
}
