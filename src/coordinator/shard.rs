use bytes::Bytes;

use super::WriteError;
use crate::log::VerificationGuard;
use crate::model::{Offset, ProducerEpoch, ProducerId, Timestamp};

/// The state of one partition of an internal topic: a pure state machine.
///
/// A shard changes nothing outside itself. Each call returns an [`Outcome`]: replies to give, records to write,
/// events to report. What must survive is written first and applied when it is committed: the runtime hands each
/// [`Write`] back through [`Shard::committed`], or through [`Shard::discarded`] when it was not stored.
///
/// Order: writes are handed back in the order in which they were returned. A write that answers late, or was
/// stored on too few replicas, is first refused ([`Shard::refused`]) and later still committed or discarded,
/// because what stands in the log decides.
pub trait Shard: Sized + Send + 'static {
    type Command: Send;
    type Reply: Send;
    /// A record of the internal topic as a domain value.
    type Record: Send;
    /// What the shard wants to remember about a write until it is committed.
    type Pending: Send;
    /// Something worth telling the world: logged, or acted upon, outside.
    type Event: Send;

    /// Handles a request. Its reply may come from this or from any later outcome, exactly once.
    fn handle(&mut self, command: Self::Command, token: ReplyToken, now: Now) -> Outcome<Self>;

    /// Called at [`Shard::next_deadline`] or later.
    fn tick(&mut self, now: Now) -> Outcome<Self>;

    /// When the shard wants [`Shard::tick`], or `None` while it waits for nothing.
    fn next_deadline(&self) -> Option<Deadline>;

    /// The records are stored; the first has this offset, the others follow it.
    fn committed(
        &mut self,
        records: Vec<Self::Record>,
        pending: Self::Pending,
        first_offset: Offset,
        now: Now,
    ) -> Outcome<Self>;

    /// The write must be answered with an error, though its records may still be committed.
    fn refused(&mut self, pending: &mut Self::Pending, error: WriteError, now: Now) -> Outcome<Self>;

    /// The records of a refused write are not in the log.
    fn discarded(&mut self, records: Vec<Self::Record>, pending: Self::Pending, now: Now) -> Outcome<Self>;

    /// Takes in one record of the log while the shard is loaded, in offset order.
    fn replay(&mut self, record: Replayed);

    /// Takes in the end of a transaction while the shard is loaded.
    fn replay_transaction_end(&mut self, producer_id: ProducerId, is_commit: bool);

    /// The whole log was replayed.
    fn loaded(&mut self, now: Now) -> Outcome<Self>;

    /// The bytes of a record. `None` = a text in it is longer than the format allows.
    fn encode(record: &Self::Record) -> Option<EncodedRecord>;
}

/// Names one waiting request of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyToken(pub u64);

/// The present moment on both clocks.
///
/// What is stored carries `timestamp`; what is waited for uses `monotonic`, so that a step of the wall clock
/// expires nobody's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub timestamp: Timestamp,
    pub monotonic: Deadline,
}

impl Now {
    pub fn plus_ms(self, ms: i64) -> Deadline {
        Deadline(self.monotonic.0.saturating_add(ms.max(0)))
    }
}

/// A moment of the monotonic clock, in milliseconds since the runtime started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Deadline(pub i64);

/// What should happen now.
pub struct Outcome<S: Shard> {
    pub replies: Vec<(ReplyToken, S::Reply)>,
    pub writes: Vec<Write<S>>,
    pub events: Vec<S::Event>,
}

/// Records that must be stored together.
pub struct Write<S: Shard> {
    pub records: Vec<S::Record>,
    pub pending: S::Pending,
    /// The producer whose transaction the records belong to; `None` = they count at once.
    pub producer: Option<TransactionalWriter>,
}

/// The producer of a transaction's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionalWriter {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// Needed when the records open the transaction in their partition.
    pub guard: Option<VerificationGuard>,
}

/// A record as it stands in the log. A value of `None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRecord {
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// A record read back from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    pub offset: Offset,
    pub timestamp: Timestamp,
    /// Set for a record of a transaction.
    pub producer_id: Option<ProducerId>,
    pub key: Option<Bytes>,
    /// `None` = a tombstone.
    pub value: Option<Bytes>,
}

impl<S: Shard> Outcome<S> {
    pub fn new() -> Self {
        Outcome { replies: Vec::new(), writes: Vec::new(), events: Vec::new() }
    }

    pub fn reply(&mut self, token: ReplyToken, reply: S::Reply) {
        self.replies.push((token, reply));
    }

    pub fn write(&mut self, records: Vec<S::Record>, pending: S::Pending) {
        self.writes.push(Write { records, pending, producer: None });
    }
}

impl<S: Shard> Default for Outcome<S> {
    fn default() -> Self {
        Outcome::new()
    }
}
