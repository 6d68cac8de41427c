use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::{Instant, timeout_at};

use super::ends::Ends;
use super::markers::{MarkerChannel, MarkerSender};
use super::messages::{Overdue, TxnCommand, TxnEvent, TxnReply};
use super::shard::TxnShard;
use super::transaction::Init;
use super::{
    AddPartitions, EndTransaction, InitProducerId, ListTransactions, ListedTransaction, ProducerResult,
    TransactionDescription, TransactionVersion, TransactionalId, TxnError, TxnOptions, VerifyPartitions,
};
use crate::coordination::BoxFuture;
use crate::coordinator::{EventSink, Runtime, RuntimeParts, ShardLog, partition_for};
use crate::metadata::Cache;
use crate::model::{LeaderEpoch, PartitionIndex, ProducerId, TopicName};
use crate::runtime::Clock;
use crate::runtime::task::Shutdown;

/// The topic that holds the states of transactional ids.
pub const TRANSACTION_STATE_TOPIC: &str = "__transaction_state";

/// How long a producer that begins its next transaction waits here for the end of the one before. Kafka's clients pause for
/// as long when they are told to come again.
const END_WAIT_MAX: Duration = Duration::from_millis(20);

/// The transaction coordinator of this broker.
///
/// Answers for the transactional ids of the partitions of `__transaction_state` that the broker leads. Dropping
/// the future of a call abandons its answer, not the call.
pub struct TxnService {
    runtime: Runtime<TxnShard>,
    markers: Arc<MarkerSender>,
    ends: Arc<Ends>,
    metadata: Arc<Cache>,
    default_partition_count: i32,
    options: Arc<TxnOptions>,
    version: Arc<RwLock<TransactionVersion>>,
    clock: Clock,
}

/// What a transaction coordinator is made of.
pub struct TxnServiceParts {
    pub options: TxnOptions,
    /// The level of the feature `transaction.version`.
    pub version: TransactionVersion,
    pub log: Arc<dyn ShardLog>,
    pub markers: Arc<dyn MarkerChannel>,
    /// Knows how many partitions `__transaction_state` has, and who leads the partitions of transactions.
    pub metadata: Arc<Cache>,
    /// `transaction.state.log.num.partitions`, which counts only while the topic does not exist.
    pub default_partition_count: i32,
    pub clock: Clock,
    pub shutdown: Shutdown,
}

/// Answers whether writes belong to open transactions: the coordinator here or on another broker.
pub trait TransactionVerifier: Send + Sync + 'static {
    /// One result for each partition, in the order of the request.
    fn verify(&self, request: VerifyPartitions) -> BoxFuture<'_, Vec<Result<(), TxnError>>>;

    /// Adds the partitions that are being written to (KIP-890).
    fn add(&self, request: AddPartitions) -> BoxFuture<'_, Result<(), TxnError>>;
}

impl TxnService {
    pub fn new(parts: TxnServiceParts) -> TxnService {
        let options = Arc::new(parts.options);
        let version = Arc::new(RwLock::new(parts.version));
        let topic = TopicName::new(TRANSACTION_STATE_TOPIC).expect("the transaction topic has a legal name");
        let markers = Arc::new(MarkerSender::new(parts.markers, Arc::clone(&parts.metadata), parts.shutdown));
        let ends = Arc::<Ends>::default();
        let (of_shard, version_now) = (Arc::clone(&options), Arc::clone(&version));
        let runtime = Runtime::new(RuntimeParts {
            topic,
            write_timeout_ms: options.write_timeout_ms,
            log: parts.log,
            clock: parts.clock.clone(),
            new_shard: Box::new(move |_| TxnShard::new(Arc::clone(&of_shard), *version_now.read())),
            events: Box::new(Events { markers: Arc::clone(&markers), ends: Arc::clone(&ends) }),
        });
        markers.report_to(runtime.clone());
        TxnService {
            runtime,
            markers,
            ends,
            metadata: parts.metadata,
            default_partition_count: parts.default_partition_count,
            options,
            version,
            clock: parts.clock,
        }
    }

    /// The partition of `__transaction_state` whose leader coordinates this transactional id.
    pub fn partition_for(&self, transactional_id: &str) -> PartitionIndex {
        let image = self.metadata.image();
        let topic = image.topic(TRANSACTION_STATE_TOPIC);
        let count = topic.and_then(|topic| i32::try_from(topic.partitions().len()).ok());
        let count = count.filter(|count| *count > 0).unwrap_or(self.default_partition_count);
        partition_for(transactional_id, count)
    }

    /// This broker leads the partition from this epoch on. Must be called within a tokio runtime.
    pub fn on_elected(&self, partition: PartitionIndex, leader_epoch: LeaderEpoch) {
        tracing::info!(%partition, %leader_epoch, "elected as transaction coordinator");
        self.markers.elected(partition, leader_epoch);
        self.runtime.on_elected(partition, leader_epoch);
    }

    /// Another broker leads the partition since this epoch; `None` = the partition is gone.
    pub fn on_resigned(&self, partition: PartitionIndex, leader_epoch: Option<LeaderEpoch>) {
        tracing::info!(%partition, ?leader_epoch, "resigned as transaction coordinator");
        self.markers.resigned(partition);
        self.runtime.on_resigned(partition, leader_epoch);
    }

    /// Refuses everything from now on.
    pub fn stop(&self) {
        self.markers.stop();
        self.runtime.stop();
    }

    /// The level of the feature `transaction.version`, as this coordinator has it.
    pub fn version(&self) -> TransactionVersion {
        *self.version.read()
    }

    pub async fn set_version(&self, version: TransactionVersion) {
        *self.version.write() = version;
        self.runtime.call_all(|| TxnCommand::SetVersion(version)).await;
    }

    /// Gives a producer an epoch with which it fences all earlier ones of its transactional id.
    ///
    /// `fresh_producer_id` is asked only when one is needed.
    pub async fn init_producer_id<F>(
        &self,
        request: InitProducerId,
        fresh_producer_id: impl FnOnce() -> F,
    ) -> ProducerResult
    where
        F: Future<Output = Result<ProducerId, TxnError>>,
    {
        if request.two_phase_commit && !self.options.two_phase_commit_enabled {
            return Err(TxnError::TransactionalIdAuthorizationFailed);
        }
        if request.keep_prepared {
            return Err(TxnError::UnsupportedVersion);
        }
        let is_allowed = (1..=self.options.timeout_ms_max).contains(&request.timeout_ms);
        if !request.two_phase_commit && !is_allowed {
            return Err(TxnError::InvalidTransactionTimeout);
        }
        let timeout_ms = if request.two_phase_commit { i32::MAX } else { request.timeout_ms };
        let init = Init { timeout_ms, expected: request.expected, fresh_producer_id: None };
        let id = request.transactional_id;
        match self.call(&id, TxnCommand::Init(id.clone(), init)).await? {
            TxnReply::NeedsProducerId => {}
            TxnReply::Producer(result) => return result,
            other => mismatch(&other),
        }
        let init = Init { fresh_producer_id: Some(fresh_producer_id().await?), ..init };
        match self.call(&id, TxnCommand::Init(id.clone(), init)).await? {
            TxnReply::Producer(result) => result,
            other => mismatch(&other),
        }
    }

    /// As [`add_partitions`](Self::add_partitions), for a producer that comes before the end of its last transaction is
    /// complete: that is waited for a little.
    pub async fn add_partitions_in_turn(&self, request: AddPartitions) -> Result<(), TxnError> {
        let deadline = Instant::now() + END_WAIT_MAX;
        loop {
            let mut completed = std::pin::pin!(self.ends.completed(&request.transactional_id));
            // From here on none is missed.
            completed.as_mut().enable();
            let result = self.add_partitions(request.clone()).await;
            let comes_too_soon = result == Err(TxnError::ConcurrentTransactions);
            if !comes_too_soon || timeout_at(deadline, completed).await.is_err() {
                return result;
            }
        }
    }

    /// Begins a transaction, or adds to the one that is open. At once: where the end before is not complete, the producer
    /// has to come again ([`TxnError::ConcurrentTransactions`]).
    pub async fn add_partitions(&self, request: AddPartitions) -> Result<(), TxnError> {
        let id = request.transactional_id.clone();
        match self.call(&id, TxnCommand::AddPartitions(request)).await? {
            TxnReply::Done(result) => result,
            other => mismatch(&other),
        }
    }

    /// Commits or aborts. Answers when the decision is stored; the partitions hear of it afterwards. Gives the
    /// producer id and epoch to go on with.
    pub async fn end_transaction<F>(
        &self,
        request: EndTransaction,
        fresh_producer_id: impl FnOnce() -> F,
    ) -> ProducerResult
    where
        F: Future<Output = Result<ProducerId, TxnError>>,
    {
        let id = request.transactional_id.clone();
        match self.call(&id, TxnCommand::End(request.clone(), None)).await? {
            TxnReply::NeedsProducerId => {}
            TxnReply::Producer(result) => return result,
            other => mismatch(&other),
        }
        let fresh = fresh_producer_id().await?;
        match self.call(&id, TxnCommand::End(request, Some(fresh))).await? {
            TxnReply::Producer(result) => result,
            other => mismatch(&other),
        }
    }

    pub async fn describe(&self, id: &TransactionalId) -> Result<TransactionDescription, TxnError> {
        match self.call(id, TxnCommand::Describe(id.clone())).await? {
            TxnReply::Describe(description) => description.ok_or(TxnError::TransactionalIdNotFound),
            other => mismatch(&other),
        }
    }

    /// The transactional ids of all partitions that this broker leads, in their order.
    pub async fn list(&self, filter: &ListTransactions) -> Result<Vec<ListedTransaction>, TxnError> {
        if self.runtime.is_stopped() {
            return Err(TxnError::CoordinatorNotAvailable);
        }
        let (replies, is_any_loading) = self.runtime.call_all(|| TxnCommand::List).await;
        if is_any_loading {
            return Err(TxnError::CoordinatorLoadInProgress);
        }
        let now = self.clock.now();
        let listed = replies.into_iter().flat_map(|reply| match reply {
            TxnReply::List(listed) => listed,
            other => mismatch(&other),
        });
        let mut listed: Vec<ListedTransaction> =
            listed.filter(|transaction| filter.matches(transaction, now)).collect();
        listed.sort_unstable_by(|one, other| one.transactional_id.cmp(&other.transactional_id));
        Ok(listed)
    }

    /// Ends that are decided and not known to all partitions.
    pub fn open_ends(&self) -> usize {
        self.markers.open_ends()
    }

    async fn call(&self, id: &TransactionalId, command: TxnCommand) -> Result<TxnReply, TxnError> {
        Ok(self.runtime.call(self.partition_for(id), command).await?)
    }
}

impl TransactionVerifier for TxnService {
    fn verify(&self, request: VerifyPartitions) -> BoxFuture<'_, Vec<Result<(), TxnError>>> {
        Box::pin(async move {
            let (id, count) = (request.transactional_id.clone(), request.partitions.len());
            match self.call(&id, TxnCommand::Verify(request)).await {
                Ok(TxnReply::Verified(results)) => results,
                Ok(other) => mismatch(&other),
                Err(error) => vec![Err(error); count],
            }
        })
    }

    fn add(&self, request: AddPartitions) -> BoxFuture<'_, Result<(), TxnError>> {
        Box::pin(self.add_partitions_in_turn(request))
    }
}

impl ListTransactions {
    fn matches(&self, transaction: &ListedTransaction, now: crate::model::Timestamp) -> bool {
        let has_state = self.states.as_ref().is_none_or(|states| states.contains(&transaction.state));
        let has_producer =
            self.producer_ids.is_empty() || self.producer_ids.contains(&transaction.producer_id);
        let is_older = self.duration_ms < 0 || now.since_ms(transaction.start_timestamp) > self.duration_ms;
        has_state && has_producer && is_older
    }
}

/// Each command has one kind of reply, which its handler in the shard gives.
fn mismatch(reply: &TxnReply) -> ! {
    unreachable!("a request is answered by the reply to another kind of request: {reply:?}")
}

/// Has markers sent, wakes who waits for ends, and writes what a person should know to the log.
struct Events {
    markers: Arc<MarkerSender>,
    ends: Arc<Ends>,
}

impl EventSink<TxnEvent> for Events {
    fn emit(&self, partition: PartitionIndex, event: TxnEvent) {
        match event {
            TxnEvent::WriteMarkers(decided) => self.markers.begin(partition, decided),
            TxnEvent::TimedOut(overdue) => {
                warn_of(&overdue, "aborting a transaction that outlived its timeout");
            }
            TxnEvent::Hanging(overdue) => {
                warn_of(&overdue, "the end of a transaction is not known to all its partitions");
            }
            TxnEvent::Completed { transactional_id } => self.ends.complete(&transactional_id),
            TxnEvent::Expired { transactional_id } => {
                tracing::info!(%transactional_id, "a silent transactional id is forgotten");
            }
            TxnEvent::NotStored { transactional_id } => {
                tracing::warn!(%transactional_id, "a transaction's state was not stored");
            }
            TxnEvent::Loaded { transactions, skipped_records: 0 } => {
                tracing::info!(%partition, transactions, "transaction coordinator loaded");
            }
            TxnEvent::Loaded { transactions, skipped_records } => {
                tracing::warn!(%partition, transactions, skipped_records,
                    "transaction coordinator loaded without some records");
            }
        }
    }
}

fn warn_of(overdue: &Overdue, what: &'static str) {
    let partitions: Vec<String> = overdue.partitions.iter().map(ToString::to_string).collect();
    tracing::warn!(
        transactional_id = %overdue.transactional_id,
        producer_id = overdue.producer_id.0,
        producer_epoch = overdue.producer_epoch.0,
        state = overdue.state.as_str(),
        partitions = partitions.join(","),
        age_ms = overdue.age_ms,
        client = overdue.client_host.as_deref().unwrap_or("unknown"),
        "{what}"
    );
}
