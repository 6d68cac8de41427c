//! What the handlers of transactional APIs share.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, error};

use super::error_code::txn_error;
use super::groups::client_host;
use super::{ErrorCode, RequestContext, Services};
use crate::log::VerificationGuard;
use crate::model::{ProducerEpoch, ProducerId, TopicPartition};
use crate::txn::{AddPartitions, TransactionVersion, TransactionalId, TxnError, VerifyPartitions};

/// Who writes in a transaction.
pub(super) struct Writer {
    pub transactional_id: TransactionalId,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// The partitions are added to the transaction by being written to (KIP-890), not by a request before.
    pub adds_partitions: bool,
}

/// Proof that partitions belong to the writer's transaction, or why they do not.
pub(super) type Guards = HashMap<TopicPartition, Result<VerificationGuard, TxnError>>;

/// Has the coordinator confirm the guards, or add the partitions.
pub(super) async fn verify(
    services: &Services,
    context: &RequestContext,
    writer: Writer,
    guards: Vec<(TopicPartition, VerificationGuard)>,
) -> Guards {
    let partitions: Vec<TopicPartition> = guards.iter().map(|(partition, _)| partition.clone()).collect();
    let results = if writer.adds_partitions {
        let added = add(services, context, writer, partitions.iter().cloned().collect()).await;
        vec![added; partitions.len()]
    } else if services.config.load().transaction_partition_verification_enable() {
        let Writer { transactional_id, producer_id, producer_epoch, .. } = writer;
        let request = VerifyPartitions { transactional_id, producer_id, producer_epoch, partitions };
        services.verifier.verify(request).await
    } else {
        vec![Ok(()); partitions.len()]
    };
    let proven = guards.into_iter().zip(results);
    proven.map(|((partition, guard), result)| (partition, result.map(|()| guard))).collect()
}

/// Adds partitions; the end of the transaction before may still be on its way, which is waited for a little.
async fn add(
    services: &Services,
    context: &RequestContext,
    writer: Writer,
    partitions: BTreeSet<TopicPartition>,
) -> Result<(), TxnError> {
    let config = services.config.load_full();
    let ms = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let deadline = Instant::now() + ms(config.add_partitions_retry_backoff_max_ms());
    let request = AddPartitions {
        transactional_id: writer.transactional_id,
        producer_id: writer.producer_id,
        producer_epoch: writer.producer_epoch,
        partitions,
        client_version: TransactionVersion::EpochBump,
        client_host: Some(host(context)),
    };
    loop {
        let result = services.verifier.add(request.clone()).await;
        if result != Err(TxnError::ConcurrentTransactions) || Instant::now() >= deadline {
            return result;
        }
        tokio::time::sleep(ms(config.add_partitions_retry_backoff_ms())).await;
    }
}

pub(super) fn host(context: &RequestContext) -> Arc<str> {
    client_host(context).into()
}

/// A producer id that nobody has.
pub(super) async fn fresh_producer_id(
    services: &Services,
    context: &RequestContext,
) -> Result<ProducerId, TxnError> {
    let producer_id = services.producer_ids.next().await.map_err(|error| {
        if error.will_pass() {
            debug!(%error, "a producer got no id");
        } else {
            error!(%error, "a producer got no id");
        }
        TxnError::CoordinatorNotAvailable
    })?;
    services.metrics.producer_ids_given.increment(&context.principal().to_string());
    Ok(producer_id)
}

/// Clients of these versions know PRODUCER_FENCED only as INVALID_PRODUCER_EPOCH.
pub(super) fn code_before(error: TxnError, context: &RequestContext, first_that_knows: i16) -> ErrorCode {
    match txn_error(error) {
        ErrorCode::ProducerFenced if context.version < first_that_knows => ErrorCode::InvalidProducerEpoch,
        code => code,
    }
}
