use bytes::Bytes;
use snafu::Snafu;

use crate::coordination::BoxFuture;
use crate::log::VerificationGuard;
use crate::model::{LeaderEpoch, Offset, TopicPartition};

/// The partition logs under the coordinators' shards.
///
/// Implemented by the replicas of this broker; tests use one in memory.
pub trait ShardLog: Send + Sync + 'static {
    /// Appends one batch, written in the order of the calls.
    ///
    /// On `Ok` the batch stands in the leader's log and takes its place before every later append; whether it
    /// lasts is told by [`Appended::committed`]. On `Err` nothing was appended. A broker that has not led without a
    /// break since `leader_epoch` gets [`WriteError::NotLeader`], so that a shard which lost its partition cannot
    /// write behind the back of its successor. A transaction's batch needs the guard it was verified with, or
    /// an open transaction: otherwise it is [`WriteError::NotInTransaction`].
    fn append(
        &self,
        topic_partition: &TopicPartition,
        leader_epoch: LeaderEpoch,
        batch: Bytes,
        guard: Option<VerificationGuard>,
    ) -> Result<Appended, WriteError>;

    /// Reads the whole log, from its start to its end at the time of the call, as slices of whole batches in
    /// offset order.
    fn read_all<'a>(
        &'a self,
        topic_partition: &'a TopicPartition,
        leader_epoch: LeaderEpoch,
        visit: &'a mut (dyn FnMut(Bytes) + Send),
    ) -> BoxFuture<'a, Result<(), ReadError>>;
}

/// A batch in the leader's log.
pub struct Appended {
    /// The offset of the batch's first record.
    pub first_offset: Offset,
    /// Resolves `Ok` when the high watermark has passed the batch. Batches commit in the order of their
    /// appends. [`WriteError::NotEnoughReplicasAfterAppend`] means that it has passed but fewer replicas than
    /// `min.insync.replicas` hold the batch: it stays in the log. Takes as long as it takes: the runtime looks
    /// after the time, and wants to know also of a late batch how it ended. A newer epoch of the same leader does
    /// not end it.
    pub committed: BoxFuture<'static, Result<(), WriteError>>,
}

/// Why records of a coordinator were not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
pub enum WriteError {
    #[snafu(display("the partition does not exist"))]
    UnknownTopicOrPartition,
    #[snafu(display("fewer replicas are in sync than min.insync.replicas"))]
    NotEnoughReplicas,
    #[snafu(display("fewer replicas were in sync than min.insync.replicas after the append"))]
    NotEnoughReplicasAfterAppend,
    #[snafu(display("this broker does not lead the partition in this epoch"))]
    NotLeader,
    #[snafu(display("the log directory is offline or full"))]
    Storage,
    #[snafu(display("the batch is larger than max.message.bytes or a segment"))]
    TooLarge,
    #[snafu(display("the transaction's producer has an older epoch than the partition knows"))]
    ProducerFenced,
    #[snafu(display("the transaction has ended"))]
    NotInTransaction,
    /// The replicas did not have the batch in time. It may still become committed.
    #[snafu(display("the replicas did not answer in time"))]
    TimedOut,
}

/// Why a shard could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
pub enum ReadError {
    #[snafu(display("this broker does not lead the partition in this epoch"))]
    NotLeaderOfShard,
    #[snafu(display("reading the log: {reason}"))]
    Unreadable { reason: String },
}
