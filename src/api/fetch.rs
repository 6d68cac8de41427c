//! Reads record batches from partitions.
//!
//! Behaviour: batches go out as they lie in the log, as file ranges. The first partition that has data gives at
//! least one batch, however large. The answer waits up to `max_wait_ms` for `min_bytes`, unless something else
//! is to be told: an error, a divergence, a moved leader. Sessions (KIP-227) answer what has changed.
//!
//! Until version 3 records are converted to older messages while they are sent (KIP-283), unless the topic's are
//! that old. What has no messages, such as the ends of transactions, is passed over: Kafka answers with the
//! beginning of a message there, which clients take for one that is too large. Until version 2 limits are hard: a
//! partition whose first batch is larger gives nothing, or, where nothing is converted, the batch's beginning,
//! by which clients know that they have to ask for more.
//!
//! Versions: 1 throttle time · 2 messages of v1 · 3 limit for all partitions (KIP-74) · 4 read_committed (KIP-98) · 5 log start offset · 7 sessions (KIP-227) · 9 leader epochs (KIP-320) ·
//! 10 zstd (KIP-110) · 11 rack (KIP-392) · 12 flexible, diverging epochs (KIP-595) · 13 topic ids (KIP-516) ·
//! 15 replica state (KIP-903) · 16 leader endpoints (KIP-951) · 17, 18 fields of KRaft followers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use wire::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use wire::{FetchRequest, FetchResponse, Records, Str, Uuid};

use super::dispatch::respond;
use super::error_code::fetch_error;
use super::leader_hints::{LeaderEndpoint, LeaderHints};
use super::{Answer, ErrorCode, Part, RequestContext, Services};
use crate::log::{Conversion, ConversionError, LogError};
use crate::metadata::Image;
use crate::model::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicName};
use crate::purgatory::{Changes, Waiter, WatchList};
use crate::records::{Codec, DownConversion, MessageFormat, RecordsError, TargetCompression};
use crate::replica::{
    FetchContext, FetchKind, FetchPartition, FetchSessionError, FollowerProgress, Isolation, Partition,
    PartitionChange, PartitionKey, PartitionRead, ReadParameters, ReplicaError, Session, TopicRef,
    begin_conversion,
};
use crate::runtime::task;
use crate::security::{Operation, Resource};

/// The replica id of a replica that moves between log directories of its broker.
const FUTURE_REPLICA: i32 = -3;

/// What the whole request asks for.
struct Wanted {
    replica_id: i32,
    /// The registration under which a follower asks (KIP-903); `None` = it does not tell.
    broker_epoch: Option<BrokerEpoch>,
    needs_leader: bool,
    /// Where the consumer is; empty = it does not say.
    rack: Str,
    isolation: Isolation,
    bytes_max: usize,
    bytes_min: usize,
    deadline: Instant,
}

/// One partition of the answer to be.
struct Read {
    key: PartitionKey,
    fetch_offset: Offset,
    partition: Option<Arc<Partition>>,
    result: Result<PartitionRead, ErrorCode>,
    /// What is sent in place of what was read.
    conversion: Option<Conversion>,
}

/// A follower that waits here does not ask for what it was told to follow meanwhile. It is answered so long after this broker
/// began to lead something; by then it has heard of it too.
const FOLLOWERS_LEARN: Duration = Duration::from_millis(25);

/// What the first converted batches of an answer may take, together; those beyond are converted again.
const CONVERTED_BYTES_MAX: usize = 1024 * 1024;

pub async fn answer(services: &Services, context: &RequestContext, mut request: FetchRequest) -> Answer {
    let wanted = wanted(services, context, &request);
    let uses_topic_ids = context.version >= 13;
    let (partitions, forgotten) = take_partitions(&mut request, uses_topic_ids);
    let begun = services.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        uses_topic_ids,
        wanted.replica_id >= 0,
        partitions,
        &forgotten,
        services.clock.now(),
    );
    let fetch = match begun {
        Ok(fetch) => fetch,
        Err(error) => {
            let response = FetchResponse { error_code: session_error(error).code(), ..Default::default() };
            return respond::<FetchRequest>(context, &response, Vec::new());
        }
    };
    let reads = read_until_enough(services, context, &wanted, &fetch).await;
    count_throttled(services, &wanted, &reads);
    let mut external = Vec::new();
    let response = response(services, context, &wanted, &fetch, reads, &mut external);
    respond::<FetchRequest>(context, &response, external)
}

fn wanted(services: &Services, context: &RequestContext, request: &FetchRequest) -> Wanted {
    let replica_id =
        if context.version >= 15 { request.replica_state.replica_id } else { request.replica_id };
    let is_consumer = replica_id < 0 && replica_id != FUTURE_REPLICA;
    let isolation = match request.isolation_level {
        _ if !is_consumer => Isolation::LogEnd,
        1 => Isolation::Committed,
        _ => Isolation::HighWatermark,
    };
    let limit = services.config.load().fetch_max_bytes();
    // Followers ask for what they are configured to.
    let bytes_max = if replica_id >= 0 { request.max_bytes } else { request.max_bytes.min(limit) };
    let max_wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    // Consumers that can be sent to a follower (KIP-392) may read from one.
    let needs_leader = replica_id >= 0 || (is_consumer && context.version < 11);
    Wanted {
        replica_id,
        broker_epoch: BrokerEpoch::told(request.replica_state.replica_epoch),
        needs_leader,
        rack: request.rack_id.clone(),
        isolation,
        bytes_max: usize::try_from(bytes_max).unwrap_or(0),
        // More than it may hold is not waited for.
        bytes_min: usize::try_from(request.min_bytes.min(bytes_max)).unwrap_or(0),
        deadline: Instant::now() + max_wait,
    }
}

type Partitions = Vec<(PartitionKey, FetchPartition)>;

fn take_partitions(request: &mut FetchRequest, uses_topic_ids: bool) -> (Partitions, Vec<PartitionKey>) {
    let topic_ref = |name: &str, id: Uuid| {
        if uses_topic_ids {
            TopicRef::Id(TopicId(id.0))
        } else {
            TopicName::new(name).map_or_else(|_| TopicRef::IllegalName(name.to_owned()), TopicRef::Name)
        }
    };
    let mut partitions = Vec::new();
    for topic in &request.topics {
        let topic_ref = topic_ref(&topic.topic, topic.topic_id);
        for partition in &topic.partitions {
            let key =
                PartitionKey { topic: topic_ref.clone(), partition: PartitionIndex(partition.partition) };
            let wanted = FetchPartition {
                fetch_offset: Offset(partition.fetch_offset),
                bytes_max: partition.partition_max_bytes,
                current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
                last_fetched_epoch: LeaderEpoch(partition.last_fetched_epoch),
                log_start_offset: Offset(partition.log_start_offset),
            };
            partitions.push((key, wanted));
        }
    }
    let mut forgotten = Vec::new();
    for topic in &request.forgotten_topics_data {
        let topic_ref = topic_ref(&topic.topic, topic.topic_id);
        forgotten.extend(topic.partitions.iter().map(|&partition| PartitionKey {
            topic: topic_ref.clone(),
            partition: PartitionIndex(partition),
        }));
    }
    (partitions, forgotten)
}

fn session_error(error: FetchSessionError) -> ErrorCode {
    match error {
        FetchSessionError::IdNotFound => ErrorCode::FetchSessionIdNotFound,
        FetchSessionError::InvalidEpoch => ErrorCode::InvalidFetchSessionEpoch,
        FetchSessionError::TopicIdUse => ErrorCode::FetchSessionTopicIdError,
    }
}

/// Reads, and reads again when something changed, until there is enough to answer or the time is up.
async fn read_until_enough(
    services: &Services,
    context: &RequestContext,
    wanted: &Wanted,
    fetch: &FetchContext,
) -> Vec<Read> {
    if let FetchKind::Incremental(session) = &fetch.kind {
        let waiter = session.lock().waiter();
        if let Some(waiter) = waiter {
            return read_watched(services, context, wanted, fetch, session, &waiter).await;
        }
    }
    let mut reads = read_all(services, context, wanted, &fetch.partitions, None).await;
    record_follower(services, wanted, &fetch.partitions, &reads);
    if is_enough(wanted, &reads, reads.len()) || Instant::now() >= wanted.deadline {
        return reads;
    }
    let waiter = Waiter::new();
    let wants = match wanted.isolation {
        Isolation::LogEnd => Changes::LOG_END,
        Isolation::HighWatermark | Isolation::Committed => Changes::HIGH_WATERMARK,
    };
    let partitions = reads.iter().filter_map(|read| read.partition.as_ref());
    let _registrations: Vec<_> =
        partitions.map(|partition| WatchList::register(partition.watchers(), &waiter, wants)).collect();
    let mut stopping = services.shutdown.requested();
    loop {
        reads = read_all(services, context, wanted, &fetch.partitions, None).await;
        if is_enough(wanted, &reads, reads.len()) {
            return reads;
        }
        tokio::select! {
            waited = tokio::time::timeout_at(wanted.deadline, waiter.wait()) => {
                if waited.is_err() {
                    return reads;
                }
            }
            () = &mut stopping => return reads,
        }
    }
}

/// As [`read_until_enough`], of a session that watches its partitions: looks at those alone that changed.
async fn read_watched(
    services: &Services,
    context: &RequestContext,
    wanted: &Wanted,
    fetch: &FetchContext,
    session: &Mutex<Session>,
    waiter: &Waiter,
) -> Vec<Read> {
    let count = session.lock().len();
    let mut leaderships = services.replicas.leaderships();
    let has_led_anew = async {
        // Fails only when the replicas are gone.
        let _ = leaderships.changed().await;
        tokio::time::sleep(FOLLOWERS_LEARN).await;
    };
    tokio::pin!(has_led_anew);
    let mut reads = read_all(services, context, wanted, &fetch.partitions, Some(session)).await;
    record_follower(services, wanted, &fetch.partitions, &reads);
    let mut stopping = services.shutdown.requested();
    while !is_enough(wanted, &reads, count) && Instant::now() < wanted.deadline {
        tokio::select! {
            waited = tokio::time::timeout_at(wanted.deadline, waiter.wait()) => {
                if waited.is_err() {
                    break;
                }
            }
            () = &mut has_led_anew => break,
            () = &mut stopping => break,
        }
        let noted = session.lock().take_noted();
        let again: HashSet<&PartitionKey> = noted.iter().map(|(key, _)| key).collect();
        reads.retain(|read| !again.contains(&read.key));
        reads.extend(read_all(services, context, wanted, &noted, Some(session)).await);
    }
    reads
}

/// `count` = of the partitions that the client fetches, of which some may not have been looked at.
fn is_enough(wanted: &Wanted, reads: &[Read], count: usize) -> bool {
    let (mut size_bytes, mut refused) = (0, 0);
    for read in reads {
        match &read.result {
            // One topic that is gone is no reason to ask for the others without a pause.
            Err(code) if is_refused_before(*code) => refused += 1,
            Err(_) => return true,
            Ok(read) if read.diverging.is_some() || read.preferred.is_some() => return true,
            Ok(read) => size_bytes += read.read.as_ref().map_or(0, |read| read.size_bytes),
        }
    }
    count == refused || size_bytes >= wanted.bytes_min
}

/// Whether Kafka refuses a partition for this before it looks into its log.
fn is_refused_before(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::TopicAuthorizationFailed
            | ErrorCode::UnsupportedCompressionType
    )
}

async fn read_all(
    services: &Services,
    context: &RequestContext,
    wanted: &Wanted,
    partitions: &[(PartitionKey, FetchPartition)],
    watching: Option<&Mutex<Session>>,
) -> Vec<Read> {
    let image = services.metadata.image();
    let mut bytes_left = wanted.bytes_max;
    let mut has_data = false;
    let mut converted_bytes = 0;
    let mut reads = Vec::with_capacity(partitions.len());
    for (key, partition) in partitions {
        let parameters = ReadParameters {
            fetch_offset: partition.fetch_offset,
            bytes_max: usize::try_from(partition.bytes_max).unwrap_or(0).min(bytes_left),
            at_least_one_batch: !has_data && context.version >= 3,
            isolation: wanted.isolation,
            current_leader_epoch: partition.current_leader_epoch,
            last_fetched_epoch: partition.last_fetched_epoch,
            needs_leader: wanted.needs_leader,
            is_held_back: false,
            may_wait: false,
        };
        let found = find(services, &image, context, wanted, key);
        if let (Some(session), Ok(found)) = (watching, &found) {
            // Before it is looked at: what changes later is noted.
            session.lock().watch(key, found.watchers());
        }
        let mut conversion = None;
        let result = match &found {
            Ok(found) => match conversion_format(context, found, wanted) {
                Ok(None) => {
                    let read = match context.version {
                        ..3 => read_cut(services, wanted, found, parameters).await,
                        3.. => read_for(services, wanted, found, parameters).await,
                    };
                    read.map_err(|error| error_for(context, &error))
                }
                Ok(Some(format)) => read_converted(context, found, parameters, format, &mut conversion).await,
                Err(code) => Err(code),
            },
            Err(code) => Err(*code),
        };
        if let Some(conversion) = &mut conversion {
            converted_bytes += conversion.size_bytes() as usize;
            if converted_bytes > CONVERTED_BYTES_MAX {
                conversion.shed();
            }
        }
        if let Ok(PartitionRead { read: Some(read), .. }) = &result {
            has_data = has_data || read.size_bytes > 0;
            bytes_left = bytes_left.saturating_sub(read.size_bytes);
        }
        let (key, fetch_offset) = (key.clone(), partition.fetch_offset);
        reads.push(Read { key, fetch_offset, partition: found.ok(), result, conversion });
    }
    reads
}

/// Notes how far a follower is: what it asks for it does not have yet, all else it has.
fn record_follower(
    services: &Services,
    wanted: &Wanted,
    partitions: &[(PartitionKey, FetchPartition)],
    reads: &[Read],
) {
    if wanted.replica_id < 0 {
        return;
    }
    let now = services.clock.now();
    for (read, (_, asked)) in reads.iter().zip(partitions) {
        if let (Some(partition), Ok(result)) = (&read.partition, &read.result)
            && result.diverging.is_none()
        {
            let progress = FollowerProgress {
                replica: BrokerId(wanted.replica_id),
                broker_epoch: wanted.broker_epoch,
                fetch_offset: asked.fetch_offset,
                log_start_offset: asked.log_start_offset,
                leader_end: result.log_end_offset,
            };
            partition.record_follower(&progress, now);
        }
    }
}

/// What throttled replicas get counts against their rate, whether they are in sync or not.
fn count_throttled(services: &Services, wanted: &Wanted, reads: &[Read]) {
    if wanted.replica_id < 0 {
        return;
    }
    let size = |read: &Read| {
        let partition = read.partition.as_ref().filter(|partition| partition.is_throttled_as_leader())?;
        let read = read.result.as_ref().ok()?.read.as_ref()?;
        (partition.role().is_leader).then_some(read.size_bytes)
    };
    let size_bytes: usize = reads.iter().filter_map(size).sum();
    if size_bytes > 0 {
        services.replicas.throttles().leader.record(size_bytes, services.clock.now());
    }
}

/// Sends consumers to the replica nearest to them, and refuses followers that are none.
async fn read_for(
    services: &Services,
    wanted: &Wanted,
    partition: &Arc<Partition>,
    mut parameters: ReadParameters,
) -> Result<PartitionRead, ReplicaError> {
    if wanted.replica_id >= 0 {
        let follower = BrokerId(wanted.replica_id);
        partition.check_follower(follower, parameters.current_leader_epoch)?;
        parameters.is_held_back = partition.is_held_back(follower, services.clock.now());
    } else if !wanted.rack.is_empty() && services.config.load().selects_replicas_by_rack() {
        let nearest = partition.preferred_read_replica(&wanted.rack, parameters.fetch_offset);
        if let Some(preferred) = nearest {
            partition.check_leader_epoch(parameters.current_leader_epoch, parameters.needs_leader)?;
            return Ok(PartitionRead { preferred: Some(preferred), ..partition.positions() });
        }
    }
    read_one(partition, parameters).await
}

/// For clients that are given the beginning of a batch that is larger than their limit.
async fn read_cut(
    services: &Services,
    wanted: &Wanted,
    partition: &Arc<Partition>,
    parameters: ReadParameters,
) -> Result<PartitionRead, ReplicaError> {
    let limit = parameters.bytes_max;
    let whole = ReadParameters { at_least_one_batch: true, ..parameters };
    let mut result = read_for(services, wanted, partition, whole).await?;
    if let Some(read) = result.read.as_mut().filter(|read| read.size_bytes > limit) {
        read.size_bytes = limit;
        read.slices.retain(|_| limit > 0);
        let cut = u32::try_from(limit).unwrap_or(u32::MAX);
        read.slices.iter_mut().for_each(|slice| slice.size_bytes = slice.size_bytes.min(cut));
    }
    Ok(result)
}

/// Reads here as long as nothing has to come from the disk, else on the blocking pool.
async fn read_one(
    partition: &Arc<Partition>,
    parameters: ReadParameters,
) -> Result<PartitionRead, ReplicaError> {
    match partition.read(&parameters) {
        Err(ReplicaError::Log { source: LogError::WouldBlock }) => {}
        read => return read,
    }
    let partition = Arc::clone(partition);
    let read = move || partition.read(&ReadParameters { may_wait: true, ..parameters });
    task::blocking(read).await.unwrap_or(Err(ReplicaError::StorageError))
}

/// The older format that the request's version asks for; `None` = as the records lie in the log.
fn conversion_format(
    context: &RequestContext,
    partition: &Partition,
    wanted: &Wanted,
) -> Result<Option<MessageFormat>, ErrorCode> {
    let readable = match context.version {
        ..2 => MessageFormat::V0,
        2..4 => MessageFormat::V1,
        4.. => return Ok(None),
    };
    let settings = partition.settings();
    if settings.validation.message_format <= readable {
        return Ok(None);
    }
    let is_follower = wanted.replica_id >= 0;
    if settings.is_down_converted || is_follower {
        Ok(Some(readable))
    } else {
        Err(ErrorCode::UnsupportedVersion)
    }
}

/// Reads records that can be shown in an older format: goes on behind those that have nothing to show.
async fn read_converted(
    context: &RequestContext,
    partition: &Arc<Partition>,
    mut parameters: ReadParameters,
    format: MessageFormat,
    conversion: &mut Option<Conversion>,
) -> Result<PartitionRead, ErrorCode> {
    let message_size_max = partition.settings().validation.message_size_max;
    let wanted = DownConversion::new(format, parameters.fetch_offset).with_batches_up_to(message_size_max);
    loop {
        let mut result = read_one(partition, parameters).await.map_err(|error| error_for(context, &error))?;
        let Some(read) = &mut result.read else { return Ok(result) };
        let Some(slice) = read.slices.pop() else { return Ok(result) };
        match begin_conversion(slice, wanted).await {
            Ok(Some(begun)) => {
                read.size_bytes = begun.size_bytes() as usize;
                *conversion = Some(begun);
                return Ok(result);
            }
            Ok(None) if read.upper_offset > parameters.fetch_offset => {
                parameters.fetch_offset = read.upper_offset;
            }
            Ok(None) => {
                result.read = None;
                return Ok(result);
            }
            Err(error) => return Err(conversion_error(context, &error)),
        }
    }
}

fn conversion_error(context: &RequestContext, error: &ConversionError) -> ErrorCode {
    match error {
        ConversionError::Records(RecordsError::UnsupportedCodec { .. }) => {
            ErrorCode::UnsupportedCompressionType
        }
        ConversionError::Records(_) => ErrorCode::CorruptMessage,
        ConversionError::Io(_) => error_for(context, &ReplicaError::StorageError),
    }
}

fn find(
    services: &Services,
    image: &Image,
    context: &RequestContext,
    wanted: &Wanted,
    key: &PartitionKey,
) -> Result<Arc<Partition>, ErrorCode> {
    let name: &str = match &key.topic {
        TopicRef::Name(name) => name,
        TopicRef::IllegalName(_) => return Err(ErrorCode::UnknownTopicOrPartition),
        TopicRef::Id(id) => image.topic_name(*id).ok_or(ErrorCode::UnknownTopicId)?,
    };
    let is_allowed = if wanted.replica_id >= 0 {
        services.authorizer.allows(context.principal(), Operation::ClusterAction, Resource::Cluster)
    } else {
        services.authorizer.allows(context.principal(), Operation::Read, Resource::Topic(name))
    };
    if !is_allowed {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    // A topic that is being deleted is gone for clients before its replicas are.
    if image.partition(name, key.partition).is_none() {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    let partition =
        services.replicas.partition(name, key.partition).map_err(|error| error_for(context, &error))?;
    if let TopicRef::Id(id) = key.topic
        && partition.topic_id() != id
    {
        return Err(ErrorCode::InconsistentTopicId);
    }
    let compression = partition.settings().validation.compression;
    if matches!(compression, TargetCompression::Fixed(Codec::Zstd, _)) && context.version < 10 {
        return Err(ErrorCode::UnsupportedCompressionType);
    }
    Ok(partition)
}

/// Clients of v5 and older do not know KAFKA_STORAGE_ERROR.
fn error_for(context: &RequestContext, error: &ReplicaError) -> ErrorCode {
    match fetch_error(error) {
        ErrorCode::KafkaStorageError if context.version <= 5 => ErrorCode::NotLeaderOrFollower,
        code => code,
    }
}

fn response(
    services: &Services,
    context: &RequestContext,
    wanted: &Wanted,
    fetch: &FetchContext,
    reads: Vec<Read>,
    external: &mut Vec<Part>,
) -> FetchResponse {
    let changes: Vec<PartitionChange> = reads.iter().map(|read| change(wanted, read)).collect();
    let mut response = FetchResponse::default();
    let mut hints = LeaderHints::default();
    let mut is_told = vec![true; reads.len()];
    match &fetch.kind {
        FetchKind::Sessionless => {}
        FetchKind::Full => {
            let now = services.clock.now();
            let random = || u32::from_be_bytes(services.random.bytes());
            response.session_id = services.fetch_sessions.finish_full(fetch, &changes, now, random);
        }
        FetchKind::Incremental(session) => {
            let mut session = session.lock();
            response.session_id = session.id();
            is_told = session.respond(reads.iter().map(|read| &read.key).zip(&changes));
        }
    }
    let mut latest: Option<TopicRef> = None;
    for (read, is_told) in reads.into_iter().zip(is_told) {
        if !is_told {
            continue;
        }
        let topic = read.key.topic.clone();
        let partition = partition_data(services, context, read, external, &mut hints);
        if latest.as_ref() != Some(&topic) {
            response.responses.push(topic_response(&topic));
            latest = Some(topic);
        }
        if let Some(topic) = response.responses.last_mut() {
            topic.partitions.push(partition);
        }
    }
    if context.version >= 16 {
        response.node_endpoints = hints.into_endpoints().into_iter().map(node_endpoint).collect();
    }
    response
}

fn topic_response(topic: &TopicRef) -> FetchableTopicResponse {
    let mut response = FetchableTopicResponse::default();
    match topic {
        TopicRef::Name(name) => response.topic = name.as_str().into(),
        TopicRef::IllegalName(name) => response.topic = name.as_str().into(),
        TopicRef::Id(id) => response.topic_id = Uuid(id.0),
    }
    response
}

fn change(wanted: &Wanted, read: &Read) -> PartitionChange {
    let has_more = read.result.as_ref().is_ok_and(|found| read.fetch_offset < found.log_end_offset);
    let follower = BrokerId(wanted.replica_id);
    let is_out_of_sync =
        |partition: &Arc<Partition>| wanted.replica_id >= 0 && !partition.role().isr.contains(&follower);
    let is_behind = has_more || read.partition.as_ref().is_some_and(is_out_of_sync);
    match &read.result {
        Ok(read) => PartitionChange {
            has_records: read.read.as_ref().is_some_and(|read| read.size_bytes > 0),
            has_error: false,
            has_news: read.diverging.is_some() || read.preferred.is_some(),
            is_behind,
            high_watermark: read.high_watermark,
            log_start_offset: read.log_start_offset,
        },
        Err(_) => PartitionChange {
            has_records: false,
            has_error: true,
            has_news: false,
            is_behind: false,
            high_watermark: Offset::NONE,
            log_start_offset: Offset::NONE,
        },
    }
}

fn partition_data(
    services: &Services,
    context: &RequestContext,
    read: Read,
    external: &mut Vec<Part>,
    hints: &mut LeaderHints,
) -> PartitionData {
    let mut data = PartitionData { partition_index: read.key.partition.0, ..PartitionData::default() };
    match read.result {
        Ok(result) => {
            data.high_watermark = result.high_watermark.0;
            data.last_stable_offset = result.last_stable_offset.0;
            data.log_start_offset = result.log_start_offset.0;
            data.aborted_transactions = result.aborted.map(|aborted| {
                let transaction = |aborted: crate::log::AbortedTransaction| AbortedTransaction {
                    producer_id: aborted.producer_id.0,
                    first_offset: aborted.first_offset.0,
                };
                aborted.into_iter().map(transaction).collect()
            });
            data.preferred_read_replica = result.preferred.unwrap_or(BrokerId::NONE).0;
            if let Some((epoch, end_offset)) = result.diverging {
                data.diverging_epoch = EpochEndOffset { epoch: epoch.0, end_offset: end_offset.0 };
            }
            services.metrics.fetched_bytes.add(result.read.as_ref().map_or(0, |read| read.size_bytes as u64));
            // A read ends with its segment, so there is one file range at the most.
            let slice = result.read.and_then(|read| read.slices.into_iter().next());
            let converted = read.conversion.map(|conversion| Part::Converted(Box::new(conversion)));
            data.records = Some(records(converted.or(slice.map(Part::File)), external));
        }
        Err(code) => {
            data.error_code = code.code();
            data.high_watermark = -1;
            data.log_start_offset = -1;
            // As in Kafka: empty when the checks before the log refuse, null when the partition does.
            data.aborted_transactions = is_refused_before(code).then(Vec::new);
            data.records = Some(Records::Bytes(bytes::Bytes::new()));
            let is_about_leader =
                matches!(code, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
            if is_about_leader && context.version >= 12 {
                let image = services.metadata.image();
                let topic = match &read.key.topic {
                    TopicRef::Name(name) => image.topic(name),
                    TopicRef::IllegalName(_) => None,
                    TopicRef::Id(id) => image.topic_by_id(*id),
                };
                let (leader, epoch) = hints.add(&image, context, topic, read.key.partition);
                data.current_leader = LeaderIdAndEpoch { leader_id: leader.0, leader_epoch: epoch.0 };
            }
        }
    }
    data
}

/// The records of a partition, which stay where they are until they are sent.
fn records(part: Option<Part>, external: &mut Vec<Part>) -> Records {
    let token = external.len() as u32;
    match part {
        None => Records::Bytes(bytes::Bytes::new()),
        Some(part) => {
            let size_bytes = u32::try_from(part.size_bytes()).unwrap_or(u32::MAX);
            external.push(part);
            Records::External { size_bytes, token }
        }
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
