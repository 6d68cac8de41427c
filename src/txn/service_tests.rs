//! The service over a log in memory: what only the runtime can show.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, advance};

use super::*;
use crate::coordination::BoxFuture;
use crate::coordinator::memory_log::MemoryLog;
use crate::metadata::Cache;
use crate::metadata::control::{ControlSender, PartitionAssignmentState, UpdateMetadataRequest};
use crate::model::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, ProducerEpoch, ProducerId,
    Timestamp, TopicName, TopicPartition,
};
use crate::runtime::Clock;
use crate::runtime::task::ShutdownTrigger;

/// Writes markers when the test lets it.
#[derive(Default)]
struct Gate(Notify);

impl MarkerChannel for Gate {
    fn write(
        &self,
        _to: BrokerId,
        ends: Vec<EndMarkers>,
    ) -> BoxFuture<'_, Result<Vec<MarkerResults>, BrokerUnreachable>> {
        Box::pin(async move {
            self.0.notified().await;
            Ok(ends.iter().map(|end| vec![Ok(()); end.partitions.len()]).collect())
        })
    }
}

struct Broker {
    service: Arc<TxnService>,
    gate: Arc<Gate>,
    producer: (ProducerId, ProducerEpoch),
    _running: ShutdownTrigger,
}

fn id() -> TransactionalId {
    TransactionalId::new("id").expect("it is not empty")
}

fn written() -> TopicPartition {
    TopicPartition::new(TopicName::new("t").expect("a legal name"), PartitionIndex(0))
}

/// Knows who leads the partition that transactions write to.
fn metadata() -> Arc<Cache> {
    let one = vec![BrokerId(1)];
    let partition = PartitionAssignmentState::at_first(written(), one.clone(), one);
    let cache = Cache::default();
    cache.apply(UpdateMetadataRequest {
        sender: ControlSender {
            controller_id: BrokerId(1),
            controller_epoch: ControllerEpoch(1),
            broker_epoch: BrokerEpoch(1),
        },
        partitions: vec![partition],
        topic_ids: vec![],
        live_brokers: vec![],
    });
    Arc::new(cache)
}

/// A coordinator with one transactional id, whose first transaction is committed and waits for its markers.
async fn with_an_end_on_its_way() -> Broker {
    let (running, shutdown) = ShutdownTrigger::new();
    let (log, gate) = (MemoryLog::default(), Arc::<Gate>::default());
    log.set_leader_epoch(PartitionIndex(0), LeaderEpoch(0));
    let service = TxnService::new(TxnServiceParts {
        options: TxnOptions::default(),
        version: TransactionVersion::Classic,
        log: Arc::new(log),
        markers: Arc::<Gate>::clone(&gate),
        metadata: metadata(),
        default_partition_count: 1,
        clock: Clock::manual(Timestamp(1_000_000)),
        shutdown,
    });
    service.on_elected(PartitionIndex(0), LeaderEpoch(0));
    while service.describe(&id()).await == Err(TxnError::CoordinatorLoadInProgress) {
        yield_now().await;
    }
    let init = InitProducerId {
        transactional_id: id(),
        timeout_ms: 60_000,
        expected: None,
        two_phase_commit: false,
        keep_prepared: false,
    };
    let fresh = || async { Ok(ProducerId(7)) };
    let producer = service.init_producer_id(init, fresh).await.expect("an epoch");
    let broker = Broker { service: Arc::new(service), gate, producer, _running: running };
    assert_eq!(broker.service.add_partitions(broker.add()).await, Ok(()));
    let end = EndTransaction {
        transactional_id: id(),
        producer_id: producer.0,
        producer_epoch: producer.1,
        is_commit: true,
        client_version: TransactionVersion::Classic,
    };
    assert_eq!(broker.service.end_transaction(end, fresh).await, Ok(producer));
    broker
}

impl Broker {
    fn add(&self) -> AddPartitions {
        AddPartitions {
            transactional_id: id(),
            producer_id: self.producer.0,
            producer_epoch: self.producer.1,
            partitions: [written()].into(),
            client_version: TransactionVersion::Classic,
            client_host: None,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_transaction_begins_when_the_end_before_is_complete() {
    let broker = with_an_end_on_its_way().await;
    assert_eq!(broker.service.add_partitions(broker.add()).await, Err(TxnError::ConcurrentTransactions));
    let (service, next) = (Arc::clone(&broker.service), broker.add());
    let began = Instant::now();
    let waiting = tokio::spawn(async move { service.add_partitions_in_turn(next).await });
    advance(Duration::from_millis(5)).await;
    assert!(!waiting.is_finished());
    broker.gate.0.notify_one();
    assert_eq!(waiting.await.expect("the call ends"), Ok(()));
    assert_eq!(began.elapsed(), Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn an_end_that_takes_long_is_not_waited_for() {
    let broker = with_an_end_on_its_way().await;
    let began = Instant::now();
    let refused = broker.service.add_partitions_in_turn(broker.add()).await;
    assert_eq!(refused, Err(TxnError::ConcurrentTransactions));
    assert!(began.elapsed() < Duration::from_millis(50));
}
