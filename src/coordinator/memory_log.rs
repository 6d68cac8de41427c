//! A log in memory, with faults, for tests of coordinators.
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Appended, ReadError, ShardLog, WriteError};
use crate::coordination::BoxFuture;
use crate::log::VerificationGuard;
use crate::model::{LeaderEpoch, Offset, PartitionIndex, TopicPartition};
use crate::records::{Batch, batches};

/// Partitions in memory. Batches commit at once unless commits are held back. Clones are the same log.
#[derive(Clone, Default)]
pub(crate) struct MemoryLog(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    partitions: HashMap<PartitionIndex, Partition>,
    is_holding: bool,
    waiting: VecDeque<oneshot::Sender<Result<(), WriteError>>>,
    /// What the next appends fail with.
    faults: VecDeque<WriteError>,
    is_unreadable: bool,
    reads_wait_for: Option<Arc<tokio::sync::Notify>>,
    batch_size_bytes_max: Option<usize>,
}

#[derive(Default)]
struct Partition {
    leader_epoch: Option<LeaderEpoch>,
    batches: Vec<Bytes>,
    next_offset: i64,
}

impl MemoryLog {
    /// From now on batches wait for [`release`](Self::release).
    pub fn hold_commits(&self) {
        self.0.lock().is_holding = true;
    }

    /// Ends the wait of all batches, in their order, and of later ones.
    pub fn release(&self, result: Result<(), WriteError>) {
        let waiting = {
            let mut state = self.0.lock();
            state.is_holding = false;
            std::mem::take(&mut state.waiting)
        };
        for batch in waiting {
            let _ = batch.send(result);
        }
    }

    pub fn fail_next_append(&self, error: WriteError) {
        self.0.lock().faults.push_back(error);
    }

    pub fn set_unreadable(&self, is_unreadable: bool) {
        self.0.lock().is_unreadable = is_unreadable;
    }

    /// Reads wait until the notification.
    pub fn hold_reads(&self) -> Arc<tokio::sync::Notify> {
        let notify = Arc::new(tokio::sync::Notify::new());
        self.0.lock().reads_wait_for = Some(Arc::clone(&notify));
        notify
    }

    pub fn limit_batches(&self, size_bytes: usize) {
        self.0.lock().batch_size_bytes_max = Some(size_bytes);
    }

    /// Appends behind the coordinator's back, such as a transaction's marker. Only from `leader_epoch` on does
    /// the partition accept appends.
    pub fn append_raw(&self, partition: PartitionIndex, batch: &Bytes) {
        self.0.lock().partitions.entry(partition).or_default().append(batch);
    }

    pub fn set_leader_epoch(&self, partition: PartitionIndex, leader_epoch: LeaderEpoch) {
        self.0.lock().partitions.entry(partition).or_default().leader_epoch = Some(leader_epoch);
    }

    pub fn batches(&self, partition: PartitionIndex) -> Vec<Batch> {
        let state = self.0.lock();
        let stored = state.partitions.get(&partition).into_iter().flat_map(|log| &log.batches);
        stored.flat_map(batches).map(|batch| batch.expect("a stored batch is whole")).collect()
    }
}

impl Partition {
    fn append(&mut self, batch: &Bytes) -> Offset {
        let first_offset = Offset(self.next_offset);
        let header = Batch::read(batch.clone()).expect("a coordinator writes whole batches").header;
        self.next_offset += i64::from(header.record_count);
        let mut bytes = BytesMut::from(&batch[..]);
        bytes[..8].copy_from_slice(&first_offset.0.to_be_bytes());
        self.batches.push(bytes.freeze());
        first_offset
    }
}

impl ShardLog for MemoryLog {
    fn append(
        &self,
        topic_partition: &TopicPartition,
        leader_epoch: LeaderEpoch,
        batch: Bytes,
        _guard: Option<VerificationGuard>,
    ) -> Result<Appended, WriteError> {
        let mut state = self.0.lock();
        if let Some(error) = state.faults.pop_front() {
            return Err(error);
        }
        if state.batch_size_bytes_max.is_some_and(|max| batch.len() > max) {
            return Err(WriteError::TooLarge);
        }
        let partition = state.partitions.entry(topic_partition.partition).or_default();
        if partition.leader_epoch.is_some_and(|current| current != leader_epoch) {
            return Err(WriteError::NotLeader);
        }
        let first_offset = partition.append(&batch);
        if !state.is_holding {
            return Ok(Appended { first_offset, committed: Box::pin(async { Ok(()) }) });
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.push_back(sender);
        let committed = Box::pin(async { receiver.await.unwrap_or(Err(WriteError::NotLeader)) });
        Ok(Appended { first_offset, committed })
    }

    fn read_all<'a>(
        &'a self,
        topic_partition: &'a TopicPartition,
        _leader_epoch: LeaderEpoch,
        visit: &'a mut (dyn FnMut(Bytes) + Send),
    ) -> BoxFuture<'a, Result<(), ReadError>> {
        Box::pin(async move {
            let wait = self.0.lock().reads_wait_for.take();
            if let Some(notify) = wait {
                notify.notified().await;
            }
            if self.0.lock().is_unreadable {
                return Err(ReadError::Unreadable { reason: "a fault of the test".to_owned() });
            }
            for batch in self.batches(topic_partition.partition) {
                visit(batch.bytes);
            }
            Ok(())
        })
    }
}
