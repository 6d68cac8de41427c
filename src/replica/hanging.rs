use super::ReplicaManager;
use crate::log::OpenTransaction;
use crate::model::{Timestamp, TopicPartition};

/// A transaction that holds back the readers of committed records of a partition, though its coordinator should have
/// ended it long ago: the coordinator does not know of it, or cannot reach the partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HangingTransaction {
    pub topic_partition: TopicPartition,
    pub transaction: OpenTransaction,
}

/// What a marker may take beyond the longest timeout.
const GRACE_MS: i64 = 5 * 60 * 1_000;

impl ReplicaManager {
    /// The oldest transaction of each led partition whose producer has been silent for longer than any transaction may
    /// last (`timeout_ms_max`), as `kafka-transactions find-hanging` reckons.
    pub fn hanging_transactions(&self, timeout_ms_max: i64, now: Timestamp) -> Vec<HangingTransaction> {
        let silent_since = now.plus_ms(-timeout_ms_max - GRACE_MS);
        let partitions = self.partitions();
        let hanging = partitions.iter().filter_map(|partition| {
            let transaction = partition.log().oldest_transaction()?;
            let hangs = transaction.last_timestamp < silent_since && partition.role().is_leader;
            let topic_partition = partition.topic_partition().clone();
            hangs.then_some(HangingTransaction { topic_partition, transaction })
        });
        hanging.collect()
    }
}
