//! What clients ask a transaction coordinator and what it answers, free of protocol versions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::transaction::{Init, TransactionState, TransactionVersion};
use super::{TransactionalId, TxnError};
use crate::coordinator::ReplyToken;
use crate::model::{ProducerEpoch, ProducerId, Timestamp, TopicPartition};

/// Asks for a transactional id's producer id with a new epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitProducerId {
    pub transactional_id: TransactionalId,
    pub timeout_ms: i32,
    /// What the producer had before, when it goes on after an error (KIP-360).
    pub expected: Option<(ProducerId, ProducerEpoch)>,
    /// The transaction has no timeout (KIP-939).
    pub two_phase_commit: bool,
    /// Go on with a prepared transaction (KIP-939).
    pub keep_prepared: bool,
}

/// Adds partitions to the open transaction, or begins one with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddPartitions {
    pub transactional_id: TransactionalId,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub partitions: BTreeSet<TopicPartition>,
    pub client_version: TransactionVersion,
    /// Whom the log names if the transaction hangs.
    pub client_host: Option<Arc<str>>,
}

/// Asks whether partitions are part of the open transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyPartitions {
    pub transactional_id: TransactionalId,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub partitions: Vec<TopicPartition>,
}

/// Commits or aborts the open transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndTransaction {
    pub transactional_id: TransactionalId,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub is_commit: bool,
    pub client_version: TransactionVersion,
}

/// Which transactions to list; an empty filter matches all.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ListTransactions {
    /// `None` = all; an empty list matches none.
    pub states: Option<Vec<TransactionState>>,
    pub producer_ids: Vec<ProducerId>,
    /// Only those that began longer ago; negative = all.
    pub duration_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTransaction {
    pub transactional_id: TransactionalId,
    pub producer_id: ProducerId,
    pub state: TransactionState,
    /// `-1` = it has begun none.
    pub start_timestamp: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    pub state: TransactionState,
    pub timeout_ms: i32,
    pub start_timestamp: Timestamp,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub partitions: BTreeSet<TopicPartition>,
}

/// The producer id and epoch to go on with.
pub type ProducerResult = Result<(ProducerId, ProducerEpoch), TxnError>;

/// What a shard of transactions is asked.
#[derive(Debug)]
pub(super) enum TxnCommand {
    Init(TransactionalId, Init),
    AddPartitions(AddPartitions),
    Verify(VerifyPartitions),
    End(EndTransaction, Option<ProducerId>),
    /// All partitions know of the end that was decided under this producer id and epoch.
    MarkersWritten {
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
    },
    Describe(TransactionalId),
    List,
    /// The level of the feature `transaction.version`.
    SetVersion(TransactionVersion),
}

#[derive(Debug)]
pub(super) enum TxnReply {
    /// To Init and End.
    Producer(ProducerResult),
    /// To Init and End: come again with a new producer id.
    NeedsProducerId,
    /// To AddPartitions, MarkersWritten and SetVersion.
    Done(Result<(), TxnError>),
    Verified(Vec<Result<(), TxnError>>),
    Describe(Option<TransactionDescription>),
    List(Vec<ListedTransaction>),
}

/// What is to be done when a state is stored.
#[derive(Debug)]
pub(super) struct PendingWrite {
    pub kind: WriteKind,
    /// Who waits, until it is answered.
    pub answer: Option<ReplyToken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    /// A new epoch for a producer.
    Init,
    /// The abort of a transaction whose producer is fenced; who waits has to come again.
    Fence,
    AddPartitions,
    /// The decision of a producer.
    End,
    Complete,
    /// The transactional id is forgotten.
    Expire,
}

/// Something to be done or read outside of the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TxnEvent {
    /// The end is decided: the partitions are to be told.
    WriteMarkers(EndDecided),
    /// A transaction was open for longer than its producer allowed, and is aborted.
    TimedOut(Overdue),
    /// The end of a transaction is decided, but not all partitions have heard of it for a long time.
    Hanging(Overdue),
    /// All partitions know of the end, and the next transaction may begin.
    Completed {
        transactional_id: TransactionalId,
    },
    Expired {
        transactional_id: TransactionalId,
    },
    /// What was decided did not get into the log.
    NotStored {
        transactional_id: TransactionalId,
    },
    Loaded {
        transactions: usize,
        skipped_records: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndDecided {
    pub transactional_id: TransactionalId,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub is_commit: bool,
    pub version: TransactionVersion,
    pub partitions: BTreeSet<TopicPartition>,
    /// The decision was read from the log: some partitions may know of it.
    pub is_resumed: bool,
}

/// A transaction that takes too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overdue {
    pub transactional_id: TransactionalId,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub state: TransactionState,
    pub partitions: BTreeSet<TopicPartition>,
    pub age_ms: i64,
    /// `None` when it was begun before this coordinator was in charge.
    pub client_host: Option<Arc<str>>,
}
