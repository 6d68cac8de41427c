use std::collections::HashMap;

use indexmap::IndexMap;
use wire::add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
use wire::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use wire::{AddPartitionsToTxnRequest, WriteTxnMarkersRequest};

use super::{Peer, PeerError, RemoteError};
use crate::model::{LeaderEpoch, PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition};

/// The end of a transaction, for partitions that one broker leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkersToWrite {
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub is_commit: bool,
    pub coordinator_epoch: LeaderEpoch,
    /// Markers have epochs of their own (KIP-890).
    pub has_own_epoch: bool,
    pub partitions: Vec<TopicPartition>,
    /// They may have been written before. In a tagged field of our own, which Apache Kafka's brokers skip.
    pub may_repeat: bool,
}

/// Partitions that a producer writes to, and its coordinator has to know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionsOfTransaction {
    pub transactional_id: String,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    pub partitions: Vec<TopicPartition>,
    /// Only ask whether the coordinator knows of them.
    pub verify_only: bool,
}

/// One result for each partition, in the order of the request.
pub type PartitionResults = Vec<Result<(), RemoteError>>;

/// Of AddPartitionsToTxn, the first version for brokers.
const ADD_VERSION: i16 = 4;
/// Of WriteTxnMarkers, the one of KIP-890.
const OWN_EPOCHS_VERSION: i16 = 2;

impl Peer {
    /// Has the ends of transactions written into partitions that the broker leads.
    pub async fn write_txn_markers(
        &self,
        ends: &[MarkersToWrite],
    ) -> Result<Vec<PartitionResults>, PeerError> {
        let has_own_epochs = ends.iter().any(|end| end.has_own_epoch);
        let version = if has_own_epochs { OWN_EPOCHS_VERSION } else { self.versions.write_txn_markers };
        let request = WriteTxnMarkersRequest { markers: ends.iter().map(marker).collect() };
        let response = self.call(&request, version).await?;
        // Answers come by producer: a producer has one transaction that ends.
        let mut codes: HashMap<(i64, TopicPartition), i16> = HashMap::new();
        for marker in response.markers {
            for topic in marker.topics {
                let Ok(name) = TopicName::new(&topic.name) else { continue };
                for partition in topic.partitions {
                    let of = TopicPartition::new(name.clone(), PartitionIndex(partition.partition_index));
                    codes.insert((marker.producer_id, of), partition.error_code);
                }
            }
        }
        let results = ends.iter().map(|end| {
            let of = |partition: &TopicPartition| (end.producer_id.0, partition.clone());
            end.partitions.iter().map(|partition| result(codes.get(&of(partition)))).collect()
        });
        Ok(results.collect())
    }

    /// Asks a coordinator about the partitions of a transaction, or tells it of them.
    pub async fn add_partitions_to_txn(
        &self,
        transaction: &PartitionsOfTransaction,
    ) -> Result<PartitionResults, PeerError> {
        let topics = by_topic(&transaction.partitions);
        let topic = |(name, partitions): (&TopicName, Vec<i32>)| AddPartitionsToTxnTopic {
            name: name.as_str().into(),
            partitions,
        };
        let request = AddPartitionsToTxnRequest {
            transactions: vec![AddPartitionsToTxnTransaction {
                transactional_id: transaction.transactional_id.as_str().into(),
                producer_id: transaction.producer_id.0,
                producer_epoch: transaction.producer_epoch.0,
                verify_only: transaction.verify_only,
                topics: topics.into_iter().map(topic).collect(),
            }],
            ..AddPartitionsToTxnRequest::default()
        };
        let response = self.call(&request, ADD_VERSION).await?;
        RemoteError::check(response.error_code)?;
        let mut codes: HashMap<TopicPartition, i16> = HashMap::new();
        for topic in response.results_by_transaction.into_iter().flat_map(|result| result.topic_results) {
            let Ok(name) = TopicName::new(&topic.name) else { continue };
            for partition in topic.results_by_partition {
                let of = TopicPartition::new(name.clone(), PartitionIndex(partition.partition_index));
                codes.insert(of, partition.partition_error_code);
            }
        }
        Ok(transaction.partitions.iter().map(|partition| result(codes.get(partition))).collect())
    }
}

/// A partition without an answer is none that the broker knows.
fn result(code: Option<&i16>) -> Result<(), RemoteError> {
    let code = code.ok_or(RemoteError::UnknownTopicOrPartition)?;
    RemoteError::of_code(*code).map_or(Ok(()), Err)
}

fn marker(end: &MarkersToWrite) -> WritableTxnMarker {
    let topic = |(name, partition_indexes): (&TopicName, Vec<i32>)| WritableTxnMarkerTopic {
        name: name.as_str().into(),
        partition_indexes,
    };
    WritableTxnMarker {
        producer_id: end.producer_id.0,
        producer_epoch: end.producer_epoch.0,
        transaction_result: end.is_commit,
        coordinator_epoch: end.coordinator_epoch.0,
        transaction_version: if end.has_own_epoch { 2 } else { 0 },
        topics: by_topic(&end.partitions).into_iter().map(topic).collect(),
        barnabas_may_repeat: end.may_repeat,
    }
}

fn by_topic(partitions: &[TopicPartition]) -> IndexMap<&TopicName, Vec<i32>> {
    let mut topics: IndexMap<&TopicName, Vec<i32>> = IndexMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition.0);
    }
    topics
}
