//! Appends record batches to partitions.
//!
//! Behaviour: each partition of a request succeeds or fails by itself. A partition takes exactly one batch of
//! magic 2; until version 2 any messages, also none, which are stored in the topic's format. With acks=all the answer waits until the batch is committed or the request's timeout passes (the
//! batch then stays); the next produce request of the connection is appended meanwhile. With acks=0 there is no
//! answer: an error closes the connection. A batch that opens a transaction in its partition is held until the
//! transaction's coordinator has confirmed it (KIP-890), so that a late one cannot open a transaction that nobody
//! ends.
//!
//! Versions: 0, 1 throttle time, 2 append time · 3 record batches of magic 2 (KIP-98) · 5 log start offset (KIP-107) · 7 zstd (KIP-110) · 8 record
//! errors (KIP-467) · 9 flexible · 10 leader hints (KIP-951) · 12 transactions V2 (KIP-890) · 13 topic ids
//! (KIP-516).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use wire::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use wire::{ProduceRequest, ProduceResponse, Records, Str, Uuid};

use super::dispatch::respond;
use super::error_code::{produce_error, txn_error};
use super::leader_hints::{LeaderEndpoint, LeaderHints};
use super::transactions::{self, Guards, Writer};
use super::{Answer, ErrorCode, RequestContext, Services};
use crate::log::{FlushWanted, ProducerRules, VerificationGuard};
use crate::metadata::Image;
use crate::model::{
    Offset, PartitionIndex, Timestamp, TopicId, TopicName, TopicPartition, is_internal_topic,
};
use crate::records::{
    self, AppendOrigin, BatchHeader, Codec, RecordSetFormat, RecordsError, ValidatedRecords, ValidationRules,
};
use crate::replica::{AppendOptions, Appended, Partition, ReplicaError, ReplicaManager, WatchedOffset};
use crate::runtime::task;
use crate::security::{Operation, Resource};
use crate::txn::{TransactionalId, TxnError};

/// The client id that may write to internal topics, as in Kafka.
const ADMIN_CLIENT_ID: &str = "__admin_client";

/// What a batch may inflate to in the middle of a worker's round: some milliseconds of work.
const INFLATED_AT_ONCE_BYTES: usize = 8 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Acks {
    None,
    Leader,
    All,
}

/// A topic of the request, named one way or the other, with the outcome of each of its partitions.
struct TopicResult {
    name: Str,
    topic_id: Uuid,
    partitions: Vec<(i32, Outcome)>,
}

enum Outcome {
    Appended(Arc<Partition>, Appended),
    Refused(Refusal),
}

struct Refusal {
    code: ErrorCode,
    message: Option<String>,
    record_errors: Vec<records::RecordError>,
    /// The partition's, if it was its log that refused.
    log_start_offset: Offset,
}

/// Whether it is appended before it first waits. A transaction may have to be confirmed first, and what the same
/// producer sends after that must not get there before.
pub(super) fn is_in_order(request: &ProduceRequest) -> bool {
    request.transactional_id.is_none()
}

pub async fn answer(services: &Services, context: &RequestContext, request: ProduceRequest) -> Answer {
    let acks = match request.acks {
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        -1 => Some(Acks::All),
        _ => None,
    };
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = Instant::now() + timeout;
    let guards = match open_transactions(services, context, &request).await {
        Ok(guards) => guards,
        Err(code) => return refuse_all(context, services, request, code, acks),
    };
    let mut topics = append_all(services, context, request, acks, &guards);
    flush_wanted(services, &mut topics).await;
    if acks == Some(Acks::All) {
        wait_committed(&mut topics, deadline).await;
    }
    if acks == Some(Acks::None) {
        let has_error = topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .any(|(_, outcome)| matches!(outcome, Outcome::Refused(_)));
        return if has_error { Answer::Close } else { Answer::Nothing };
    }
    respond::<ProduceRequest>(context, &response(services, context, topics), Vec::new())
}

/// Has transactions confirmed that are not open in their partitions yet.
///
/// `Err` = the request is refused as a whole. Requests without a transactional id wait for nothing.
async fn open_transactions(
    services: &Services,
    context: &RequestContext,
    request: &ProduceRequest,
) -> Result<Guards, ErrorCode> {
    let id = request.transactional_id.as_deref().and_then(TransactionalId::new);
    let Some(transactional_id) = id.filter(|_| refuse_whole(services, context, request).is_none()) else {
        return Ok(Guards::new());
    };
    let image = services.metadata.image();
    let now = services.clock.now();
    let mut producer = None;
    let mut guards = Vec::new();
    for topic in &request.topic_data {
        let name = resolve(&image, context, &topic.name, topic.topic_id);
        for data in &topic.partition_data {
            let Some(header) = transactional_header(data.records.as_ref()) else { continue };
            let of_batch = (header.producer_id, header.producer_epoch);
            // One producer writes in one transaction.
            if *producer.get_or_insert(of_batch) != of_batch {
                return Err(ErrorCode::InvalidProducerIdMapping);
            }
            let index = PartitionIndex(data.index);
            let Ok(Ok(partition)) = name.as_ref().map(|name| services.replicas.partition(name, index)) else {
                continue;
            };
            let guard = partition.begin_verification(of_batch.0, of_batch.1, header.base_sequence, now);
            guards.extend(guard.map(|guard| (partition.topic_partition().clone(), guard)));
        }
    }
    let (Some((producer_id, producer_epoch)), false) = (producer, guards.is_empty()) else {
        return Ok(Guards::new());
    };
    let adds_partitions = context.version >= 12;
    let writer = Writer { transactional_id, producer_id, producer_epoch, adds_partitions };
    Ok(transactions::verify(services, context, writer, guards).await)
}

fn transactional_header(records: Option<&Records>) -> Option<BatchHeader> {
    let Some(Records::Bytes(bytes)) = records else { return None };
    BatchHeader::read(bytes).ok().filter(|header| header.attributes.is_transactional())
}

/// The answer to a request of which nothing is appended.
fn refuse_all(
    context: &RequestContext,
    services: &Services,
    request: ProduceRequest,
    code: ErrorCode,
    acks: Option<Acks>,
) -> Answer {
    if acks == Some(Acks::None) {
        return Answer::Close;
    }
    let refused = |index| (index, Outcome::Refused(Refusal::of(code)));
    let topics = request.topic_data.into_iter().map(|topic| TopicResult {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic.partition_data.iter().map(|data| refused(data.index)).collect(),
    });
    respond::<ProduceRequest>(context, &response(services, context, topics.collect()), Vec::new())
}

/// What a refused verification is to the producer.
fn verification_code(version: i16, error: TxnError) -> ErrorCode {
    match txn_error(error) {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::TransactionAbortable if version < 11 => ErrorCode::InvalidTxnState,
        // Not all clients ask again after these; after NOT_ENOUGH_REPLICAS they do, without asking for metadata.
        ErrorCode::NetworkException
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator => ErrorCode::NotEnoughReplicas,
        ErrorCode::ConcurrentTransactions if version < 12 => ErrorCode::NotEnoughReplicas,
        code => code,
    }
}

fn append_all(
    services: &Services,
    context: &RequestContext,
    request: ProduceRequest,
    acks: Option<Acks>,
    guards: &Guards,
) -> Vec<TopicResult> {
    let image = services.metadata.image();
    let is_whole_refused = refuse_whole(services, context, &request);
    let appending = acks.map(|acks| Appending { image: &image, acks, guards });
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for topic in request.topic_data {
        let name = resolve(&image, context, &topic.name, topic.topic_id);
        let mut partitions = Vec::with_capacity(topic.partition_data.len());
        for data in topic.partition_data {
            let index = PartitionIndex(data.index);
            let outcome = match (&appending, &is_whole_refused, &name) {
                (None, ..) => Outcome::Refused(Refusal::of(ErrorCode::InvalidRequiredAcks)),
                (_, Some(code), _) => Outcome::Refused(Refusal::of(*code)),
                (_, _, Err(code)) => Outcome::Refused(Refusal::of(*code)),
                (Some(appending), None, Ok(name)) => {
                    append(services, context, appending, name, index, data.records)
                }
            };
            partitions.push((data.index, outcome));
        }
        topics.push(TopicResult { name: topic.name, topic_id: topic.topic_id, partitions });
    }
    topics
}

/// A transactional batch needs a transactional id that the client may write with.
fn refuse_whole(
    services: &Services,
    context: &RequestContext,
    request: &ProduceRequest,
) -> Option<ErrorCode> {
    let partitions = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
    let mut transactional = partitions.map(|data| transactional_header(data.records.as_ref()));
    let has_transactional = transactional.any(|header| header.is_some());
    if !has_transactional {
        return None;
    }
    let is_authorized = request.transactional_id.as_ref().is_some_and(|id| {
        services.authorizer.allows(context.principal(), Operation::Write, Resource::TransactionalId(id))
    });
    (!is_authorized).then_some(ErrorCode::TransactionalIdAuthorizationFailed)
}

/// The topic's name: the request's, or the one behind its id.
fn resolve(image: &Image, context: &RequestContext, name: &Str, topic_id: Uuid) -> Result<Str, ErrorCode> {
    if context.version < 13 {
        return Ok(name.clone());
    }
    image
        .topic_name(TopicId(topic_id.0))
        .map(|name| Str::from(name.as_str()))
        .ok_or(ErrorCode::UnknownTopicId)
}

/// What is the same for all partitions of a request.
struct Appending<'a> {
    image: &'a Image,
    acks: Acks,
    guards: &'a Guards,
}

fn append(
    services: &Services,
    context: &RequestContext,
    appending: &Appending<'_>,
    topic: &str,
    index: PartitionIndex,
    records: Option<Records>,
) -> Outcome {
    if !services.authorizer.allows(context.principal(), Operation::Write, Resource::Topic(topic)) {
        return Outcome::Refused(Refusal::of(ErrorCode::TopicAuthorizationFailed));
    }
    if is_internal_topic(topic) && &*context.client_id != ADMIN_CLIENT_ID {
        let message = format!("Cannot append to internal topic {topic}");
        return Outcome::Refused(Refusal {
            message: Some(message),
            ..Refusal::of(ErrorCode::InvalidTopicException)
        });
    }
    let bytes = match records {
        Some(Records::Bytes(bytes)) => bytes,
        _ => Bytes::new(),
    };
    let guard = match guard_of(appending.guards, topic, index) {
        Ok(guard) => guard,
        Err(error) => return Outcome::Refused(Refusal::of(verification_code(context.version, error))),
    };
    match append_to(services, context, appending, topic, index, bytes, guard) {
        Ok((partition, appended)) => Outcome::Appended(partition, appended),
        Err(error) => {
            let start = if is_refused_by_log(context.version, &error) {
                services.replicas.partition(topic, index).map(|partition| partition.log().log_start_offset())
            } else {
                Ok(Offset::NONE)
            };
            Outcome::Refused(Refusal {
                log_start_offset: start.unwrap_or(Offset::NONE),
                ..Refusal::from_error(context, error)
            })
        }
    }
}

fn guard_of(
    guards: &Guards,
    topic: &str,
    index: PartitionIndex,
) -> Result<Option<VerificationGuard>, TxnError> {
    if guards.is_empty() {
        return Ok(None);
    }
    let of = TopicName::new(topic).map(|topic| TopicPartition::new(topic, index));
    of.ok().and_then(|of| guards.get(&of)).copied().transpose()
}

/// Whether Kafka would find the error while it appends; the answer then tells where the log starts. It does not for
/// what the request alone shows, nor for some errors of the append.
fn is_refused_by_log(version: i16, error: &ReplicaError) -> bool {
    if let ReplicaError::Records { source } = error {
        match source {
            RecordsError::Incomplete { .. }
            | RecordsError::NoBatch
            | RecordsError::MoreThanOneBatch
            | RecordsError::WrongMagic { .. } => return false,
            // Before version 7 the request is looked through for zstd.
            RecordsError::UnknownCodec { .. } if version < 7 => return false,
            _ => {}
        }
    }
    !matches!(
        produce_error(error),
        ErrorCode::UnknownTopicOrPartition
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::KafkaStorageError
            | ErrorCode::CorruptMessage
            | ErrorCode::MessageTooLarge
            | ErrorCode::RecordListTooLarge
            | ErrorCode::UnsupportedCompressionType
    )
}

fn append_to(
    services: &Services,
    context: &RequestContext,
    appending: &Appending<'_>,
    topic: &str,
    index: PartitionIndex,
    bytes: Bytes,
    guard: Option<VerificationGuard>,
) -> Result<(Arc<Partition>, Appended), ReplicaError> {
    // A topic that is being deleted is gone for clients before its replicas are.
    if appending.image.partition(topic, index).is_none() {
        return Err(ReplicaError::UnknownTopicOrPartition);
    }
    let partition = services.replicas.partition(topic, index)?;
    let now = services.clock.now();
    let format = match context.version {
        ..3 => RecordSetFormat::MessageSet,
        3..7 => RecordSetFormat::BatchWithoutZstd,
        7.. => RecordSetFormat::Batch,
    };
    let rules = ValidationRules { format, ..partition.settings().validation.clone() };
    let validated = validate(bytes, &rules, now)?;
    let options = AppendOptions {
        producer: ProducerRules { needs_verification: true, guard, ..AppendOrigin::Client.into() },
        needs_isr: appending.acks == Acks::All,
        leader_epoch: None,
    };
    let size_bytes = validated.size_bytes() as u64;
    let is_empty = validated.batches.is_empty();
    let mut appended = partition.append(validated, &options, now)?;
    if is_empty {
        appended.info.first_offset = Offset::NONE;
        return Ok((partition, appended));
    }
    if !appended.info.is_duplicate {
        let records = appended.info.last_offset.since(appended.info.first_offset) + 1;
        services.metrics.produced_records.add(u64::try_from(records).unwrap_or(0));
        services.metrics.produced_bytes.add(size_bytes);
    }
    Ok((partition, appended))
}

/// Checks a record set, here and now if that is soon done. Batches of one connection are appended in their order, so
/// the rest of the request waits for one that is not.
fn validate(bytes: Bytes, rules: &ValidationRules, now: Timestamp) -> Result<ValidatedRecords, RecordsError> {
    let is_plain = BatchHeader::read(&bytes).is_ok_and(|header| header.attributes.codec() == Ok(Codec::None));
    if is_plain {
        return records::validate(bytes, rules, now);
    }
    let at_once = ValidationRules { inflated_size_max: INFLATED_AT_ONCE_BYTES, ..rules.clone() };
    match records::validate(bytes.clone(), &at_once, now) {
        Err(error) if error.is_inflated_too_large() => {
            task::hand_over_and(|| records::validate(bytes, rules, now))
        }
        checked => checked,
    }
}

/// Flushes what `flush.messages` asks for before it is answered; what a rolled segment asks for, beside.
async fn flush_wanted(services: &Services, topics: &mut [TopicResult]) {
    for (_, outcome) in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        let Outcome::Appended(partition, appended) = outcome else { continue };
        let Some(flush) = partition.start_flush(appended.info.flush, services.clock.now()) else { continue };
        if appended.info.flush == FlushWanted::Everything && !matches!(flush.await, Ok(Ok(()))) {
            *outcome = Outcome::Refused(Refusal::of(ErrorCode::KafkaStorageError));
        }
    }
}

/// Waits until what was appended is committed; what is not becomes a refusal.
async fn wait_committed(topics: &mut [TopicResult], deadline: Instant) {
    let mut watched = Vec::new();
    for (_, outcome) in topics.iter().flat_map(|topic| &topic.partitions) {
        if let Outcome::Appended(partition, appended) = outcome {
            watched.push(WatchedOffset {
                partition: Arc::clone(partition),
                required_offset: appended.required_offset,
                leader_epoch: appended.leader_epoch,
            });
        }
    }
    let mut results = ReplicaManager::committed(&watched, deadline).await.into_iter();
    for (_, outcome) in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        if matches!(outcome, Outcome::Appended(..))
            && let Some(Err(error)) = results.next()
        {
            *outcome = Outcome::Refused(Refusal::of(produce_error(&error)));
        }
    }
}

fn response(services: &Services, context: &RequestContext, topics: Vec<TopicResult>) -> ProduceResponse {
    let image = services.metadata.image();
    let mut response = ProduceResponse::default();
    let mut hints = LeaderHints::default();
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (index, outcome) in topic.partitions {
            let mut partition = partition_response(index, outcome);
            if partition.error_code == ErrorCode::NotLeaderOrFollower.code() && context.version >= 10 {
                let known = match image.topic_by_id(TopicId(topic.topic_id.0)) {
                    Some(known) if context.version >= 13 => Some(known),
                    _ => image.topic(&topic.name),
                };
                let (leader, epoch) = hints.add(&image, context, known, PartitionIndex(index));
                partition.current_leader = LeaderIdAndEpoch { leader_id: leader.0, leader_epoch: epoch.0 };
            }
            partitions.push(partition);
        }
        response.responses.push(TopicProduceResponse {
            name: topic.name,
            topic_id: topic.topic_id,
            partition_responses: partitions,
        });
    }
    response.node_endpoints = hints.into_endpoints().into_iter().map(node_endpoint).collect();
    response
}

fn partition_response(index: i32, outcome: Outcome) -> PartitionProduceResponse {
    match outcome {
        Outcome::Appended(_, appended) => PartitionProduceResponse {
            index,
            error_code: ErrorCode::None.code(),
            base_offset: appended.info.first_offset.0,
            log_append_time_ms: appended.info.log_append_time.0,
            log_start_offset: appended.info.log_start_offset.0,
            ..PartitionProduceResponse::default()
        },
        Outcome::Refused(refusal) => PartitionProduceResponse {
            index,
            error_code: refusal.code.code(),
            base_offset: -1,
            record_errors: refusal
                .record_errors
                .into_iter()
                .map(|error| BatchIndexAndErrorMessage {
                    batch_index: error.batch_index,
                    batch_index_error_message: Some(error.message.into()),
                })
                .collect(),
            error_message: refusal.message.map(Str::from),
            log_start_offset: refusal.log_start_offset.0,
            ..PartitionProduceResponse::default()
        },
    }
}

fn node_endpoint(leader: LeaderEndpoint) -> NodeEndpoint {
    NodeEndpoint {
        node_id: leader.id.0,
        host: leader.host.into(),
        port: i32::from(leader.port),
        rack: leader.rack.map(Str::from),
    }
}

impl Refusal {
    fn of(code: ErrorCode) -> Refusal {
        Refusal { code, message: None, record_errors: Vec::new(), log_start_offset: Offset::NONE }
    }

    fn from_error(context: &RequestContext, error: ReplicaError) -> Refusal {
        let code = produce_error(&error);
        // Messages are for what the client can mend, and came with v8.
        let is_about_records = matches!(code, ErrorCode::InvalidRecord | ErrorCode::InvalidTimestamp);
        match error {
            ReplicaError::Records { source } if is_about_records && context.version >= 8 => Refusal {
                code,
                message: Some(source.to_string()),
                record_errors: source.record_errors().to_vec(),
                log_start_offset: Offset::NONE,
            },
            _ => Refusal::of(code),
        }
    }
}
