//! Transactions that span brokers: their markers, and the questions of their partitions' leaders.

use std::sync::Arc;

use super::markers::LocalMarkers;
use crate::coordination::BoxFuture;
use crate::interbroker::{MarkersToWrite, PartitionsOfTransaction, Peers, RemoteError};
use crate::metadata::{Cache, Image};
use crate::model::{BrokerId, TopicPartition};
use crate::txn::{
    AddPartitions, BrokerUnreachable, EndMarkers, MarkerChannel, MarkerError, MarkerResults,
    TRANSACTION_STATE_TOPIC, TransactionVerifier, TxnError, TxnService, VerifyPartitions,
};

/// Writes markers to partitions of all brokers: of this one by a direct call, of the others over the network.
pub(super) struct ClusterMarkers {
    pub(super) me: BrokerId,
    pub(super) local: LocalMarkers,
    pub(super) peers: Arc<Peers>,
}

impl MarkerChannel for ClusterMarkers {
    fn write(
        &self,
        to: BrokerId,
        ends: Vec<EndMarkers>,
    ) -> BoxFuture<'_, Result<Vec<MarkerResults>, BrokerUnreachable>> {
        if to == self.me {
            return Box::pin(async move { Ok(self.local.write_all(&ends).await) });
        }
        Box::pin(async move {
            let written = async {
                let ends: Vec<MarkersToWrite> = ends.into_iter().map(to_write).collect();
                self.peers.peer(to)?.write_txn_markers(&ends).await
            };
            let written = written.await.map_err(|error| BrokerUnreachable { reason: error.to_string() })?;
            let results = |end: Vec<Result<(), RemoteError>>| {
                end.into_iter().map(|result| result.map_err(marker_error)).collect()
            };
            Ok(written.into_iter().map(results).collect())
        })
    }
}

fn to_write(end: EndMarkers) -> MarkersToWrite {
    MarkersToWrite {
        producer_id: end.producer_id,
        producer_epoch: end.producer_epoch,
        is_commit: end.is_commit,
        coordinator_epoch: end.coordinator_epoch,
        has_own_epoch: end.version.bumps_epochs(),
        partitions: end.partitions,
        may_repeat: end.may_repeat,
    }
}

fn marker_error(error: RemoteError) -> MarkerError {
    match error {
        RemoteError::UnknownTopicOrPartition => MarkerError::UnknownTopicOrPartition,
        RemoteError::NotLeaderOrFollower => MarkerError::NotLeader,
        RemoteError::NotEnoughReplicas => MarkerError::NotEnoughReplicas,
        RemoteError::NotEnoughReplicasAfterAppend => MarkerError::NotEnoughReplicasAfterAppend,
        RemoteError::RequestTimedOut => MarkerError::TimedOut,
        RemoteError::KafkaStorageError => MarkerError::Storage,
        RemoteError::InvalidProducerEpoch => MarkerError::InvalidProducerEpoch,
        RemoteError::TransactionCoordinatorFenced => MarkerError::CoordinatorFenced,
        RemoteError::UnsupportedForMessageFormat => MarkerError::UnsupportedForMessageFormat,
        _ => MarkerError::Unexpected,
    }
}

/// Asks the coordinator of a transaction, wherever it is.
pub(super) struct ClusterVerifier {
    pub(super) me: BrokerId,
    pub(super) local: Arc<TxnService>,
    pub(super) metadata: Arc<Cache>,
    pub(super) peers: Arc<Peers>,
}

impl ClusterVerifier {
    /// `None` while nobody coordinates.
    fn coordinator(&self, image: &Image, transactional_id: &str) -> Option<BrokerId> {
        let partition = self.local.partition_for(transactional_id);
        let leader = image.partition(TRANSACTION_STATE_TOPIC, partition)?.leader;
        (leader != BrokerId::NONE).then_some(leader)
    }

    async fn ask(
        &self,
        coordinator: BrokerId,
        transaction: PartitionsOfTransaction,
    ) -> Vec<Result<(), TxnError>> {
        let asked = async { self.peers.peer(coordinator)?.add_partitions_to_txn(&transaction).await };
        let id = &transaction.transactional_id;
        let is_replaced = |image: &Image| self.coordinator(image, id) != Some(coordinator);
        // One that stands still may keep its connection for longer than producers wait.
        let answered = tokio::select! {
            biased;
            answered = asked => answered.ok(),
            _ = self.metadata.wait_until(is_replaced) => {
                return refused(&transaction.partitions, TxnError::NotCoordinator);
            }
        };
        match answered {
            Some(results) => results.into_iter().map(|result| result.map_err(txn_error)).collect(),
            None => refused(&transaction.partitions, TxnError::NetworkException),
        }
    }
}

fn refused(partitions: &[TopicPartition], error: TxnError) -> Vec<Result<(), TxnError>> {
    vec![Err(error); partitions.len()]
}

impl TransactionVerifier for ClusterVerifier {
    fn verify(&self, request: VerifyPartitions) -> BoxFuture<'_, Vec<Result<(), TxnError>>> {
        let Some(coordinator) = self.coordinator(&self.metadata.image(), &request.transactional_id) else {
            let refused = refused(&request.partitions, TxnError::CoordinatorNotAvailable);
            return Box::pin(std::future::ready(refused));
        };
        if coordinator == self.me {
            return TransactionVerifier::verify(&*self.local, request);
        }
        let transaction = PartitionsOfTransaction {
            transactional_id: request.transactional_id.to_string(),
            producer_id: request.producer_id,
            producer_epoch: request.producer_epoch,
            partitions: request.partitions,
            verify_only: true,
        };
        Box::pin(self.ask(coordinator, transaction))
    }

    fn add(&self, request: AddPartitions) -> BoxFuture<'_, Result<(), TxnError>> {
        let Some(coordinator) = self.coordinator(&self.metadata.image(), &request.transactional_id) else {
            return Box::pin(std::future::ready(Err(TxnError::CoordinatorNotAvailable)));
        };
        if coordinator == self.me {
            return TransactionVerifier::add(&*self.local, request);
        }
        let transaction = PartitionsOfTransaction {
            transactional_id: request.transactional_id.to_string(),
            producer_id: request.producer_id,
            producer_epoch: request.producer_epoch,
            partitions: request.partitions.into_iter().collect(),
            verify_only: false,
        };
        // All or nothing: the first error tells why nothing was added.
        Box::pin(async move { self.ask(coordinator, transaction).await.into_iter().collect() })
    }
}

fn txn_error(error: RemoteError) -> TxnError {
    match error {
        RemoteError::InvalidProducerIdMapping => TxnError::InvalidProducerIdMapping,
        RemoteError::InvalidProducerEpoch | RemoteError::ProducerFenced => TxnError::ProducerFenced,
        RemoteError::ConcurrentTransactions => TxnError::ConcurrentTransactions,
        RemoteError::InvalidTxnState => TxnError::InvalidTxnState,
        RemoteError::TransactionAbortable => TxnError::TransactionAbortable,
        RemoteError::CoordinatorNotAvailable => TxnError::CoordinatorNotAvailable,
        RemoteError::CoordinatorLoadInProgress => TxnError::CoordinatorLoadInProgress,
        RemoteError::NotCoordinator => TxnError::NotCoordinator,
        _ => TxnError::UnknownServerError,
    }
}
