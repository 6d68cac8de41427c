//! What a client needs to find partitions: brokers, topics, leaders.
//!
//! Behaviour: answered from this broker's image of the cluster, without waiting. A topic that is missing is created if
//! `auto.create.topics.enable` and the request allow it: LEADER_NOT_AVAILABLE at first, UNKNOWN_TOPIC_OR_PARTITION while
//! another request creates it. With a topic id in the request (v12) names are ignored.
//!
//! Versions: 1 null = all topics, controller, racks · 2 cluster id · 4 auto-creation flag · 5 offline replicas ·
//! 7 leader epoch · 8 authorized operations (KIP-430) · 9 flexible · 10 topic ids · 11 no cluster operations ·
//! 12 topics by id (KIP-516) · 13 top-level error (KIP-1102).

use std::collections::HashSet;

use wire::metadata_request::MetadataRequestTopic;
use wire::metadata_response::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use wire::{MetadataRequest, MetadataResponse, Str, Uuid};

use super::error_code::create_topic_error;
use super::{ErrorCode, RequestContext, Services};
use crate::controller::admin::AutoCreation;
use crate::metadata::{Image, LeaderUnavailable, Partition, Topic};
use crate::model::{BrokerId, TopicId, TopicName, is_internal_topic};
use crate::security::{Operation, Resource};

/// What a topic entry of the request asks for.
enum Wanted {
    All,
    Names(Vec<Str>),
    Ids(Vec<TopicId>),
}

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: MetadataRequest,
) -> MetadataResponse {
    let asked = request.topics.as_deref().unwrap_or_default();
    // Ids came with v10 but were not answered before v12; asking for one then is a mistake of the client.
    if (10..12).contains(&context.version) && asked.iter().any(|topic| has_id(topic) || topic.name.is_none())
    {
        return refuse(asked);
    }
    let image = services.metadata.image();
    let mut response = MetadataResponse {
        brokers: brokers(&image, context.listener()),
        cluster_id: Some(services.cluster_id.as_str().into()),
        controller_id: controller_id(&image, context.listener()).0,
        ..MetadataResponse::default()
    };
    response.topics = match wanted(context, &request) {
        Wanted::All => all_topics(services, context, &request, &image),
        Wanted::Ids(ids) => {
            ids.iter().map(|id| topic_by_id(services, context, &request, &image, *id)).collect()
        }
        Wanted::Names(names) => topics_by_name(services, context, &request, &image, names).await,
    };
    if (8..=10).contains(&context.version) && request.include_cluster_authorized_operations {
        response.cluster_authorized_operations =
            services.authorizer.authorized_operations(context.principal(), Resource::Cluster);
    }
    response
}

fn has_id(topic: &MetadataRequestTopic) -> bool {
    topic.topic_id != Uuid::default()
}

/// As Kafka's, without brokers, cluster id and controller.
fn refuse(asked: &[MetadataRequestTopic]) -> MetadataResponse {
    MetadataResponse { topics: asked.iter().map(invalid).collect(), ..MetadataResponse::default() }
}

fn invalid(topic: &MetadataRequestTopic) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: ErrorCode::InvalidRequest.code(),
        name: Some(topic.name.clone().unwrap_or(Str::EMPTY)),
        topic_id: topic.topic_id,
        ..MetadataResponseTopic::default()
    }
}

fn wanted(context: &RequestContext, request: &MetadataRequest) -> Wanted {
    match &request.topics {
        None => Wanted::All,
        Some(topics) if topics.is_empty() && context.version == 0 => Wanted::All,
        Some(topics) if topics.iter().any(has_id) => {
            let mut seen = HashSet::new();
            let ids = topics.iter().map(|topic| TopicId(topic.topic_id.0));
            Wanted::Ids(ids.filter(|id| !id.is_zero() && seen.insert(*id)).collect())
        }
        Some(topics) => {
            let mut seen = HashSet::new();
            let names = topics.iter().filter_map(|topic| topic.name.clone());
            Wanted::Names(names.filter(|name| seen.insert(name.clone())).collect())
        }
    }
}

fn brokers(image: &Image, listener: &str) -> Vec<MetadataResponseBroker> {
    let reachable = image.brokers_on(listener).map(|(broker, endpoint)| MetadataResponseBroker {
        node_id: broker.id.0,
        host: endpoint.host.as_str().into(),
        port: i32::from(endpoint.port),
        rack: broker.rack.as_deref().map(Str::from),
    });
    reachable.collect()
}

/// The controller, as long as the client can reach it.
pub(super) fn controller_id(image: &Image, listener: &str) -> BrokerId {
    let controller = image.controller_id();
    if image.endpoint(controller, listener).is_some() { controller } else { BrokerId::NONE }
}

fn all_topics(
    services: &Services,
    context: &RequestContext,
    request: &MetadataRequest,
    image: &Image,
) -> Vec<MetadataResponseTopic> {
    let topics = image.topics_by_name().into_iter();
    let visible = topics.filter(|topic| may_describe(services, context, &topic.name));
    visible.map(|topic| describe(services, context, request, image, topic)).collect()
}

fn may_describe(services: &Services, context: &RequestContext, topic: &str) -> bool {
    services.authorizer.allows(context.principal(), Operation::Describe, Resource::Topic(topic))
}

fn topic_by_id(
    services: &Services,
    context: &RequestContext,
    request: &MetadataRequest,
    image: &Image,
    id: TopicId,
) -> MetadataResponseTopic {
    let error = |code: ErrorCode| MetadataResponseTopic {
        error_code: code.code(),
        name: None,
        topic_id: Uuid(id.0),
        ..MetadataResponseTopic::default()
    };
    match image.topic_by_id(id) {
        None => error(ErrorCode::UnknownTopicId),
        Some(topic) if !may_describe(services, context, &topic.name) => {
            error(ErrorCode::TopicAuthorizationFailed)
        }
        Some(topic) => describe(services, context, request, image, topic),
    }
}

/// Topics that are missing come last, as in Kafka.
async fn topics_by_name(
    services: &Services,
    context: &RequestContext,
    request: &MetadataRequest,
    image: &Image,
    names: Vec<Str>,
) -> Vec<MetadataResponseTopic> {
    let mut found = Vec::with_capacity(names.len());
    let mut missing = Vec::new();
    let mut forbidden = Vec::new();
    for name in names {
        if !may_describe(services, context, &name) {
            forbidden.push(named_error(&name, ErrorCode::TopicAuthorizationFailed));
        } else if let Some(topic) = image.topic(&name) {
            found.push(describe(services, context, request, image, topic));
        } else {
            missing.push(name);
        }
    }
    if request.allow_auto_topic_creation && services.config.load().auto_create_topics_enable() {
        found.extend(create_missing(services, context, missing).await);
    } else {
        found.extend(missing.iter().map(|name| answer_missing(name)));
    }
    found.extend(forbidden);
    found
}

/// Starts to create the topics that the client may create.
async fn create_missing(
    services: &Services,
    context: &RequestContext,
    missing: Vec<Str>,
) -> Vec<MetadataResponseTopic> {
    let allows = |of: Resource<'_>| services.authorizer.allows(context.principal(), Operation::Create, of);
    let may_create = |name: &Str| allows(Resource::Cluster) || allows(Resource::Topic(name));
    let (creatable, forbidden): (Vec<Str>, Vec<Str>) = missing.into_iter().partition(may_create);
    let names = creatable.iter().map(|name| name.to_string());
    let answers = services.admin.auto_create(names, &services.config.load_full()).await;
    let created = answers.into_iter().map(|(name, answer)| {
        let code = match answer {
            AutoCreation::Started => ErrorCode::LeaderNotAvailable,
            AutoCreation::InFlight => ErrorCode::UnknownTopicOrPartition,
            AutoCreation::Refused(error) => create_topic_error(&error),
        };
        named_error(&name, code)
    });
    let mut topics: Vec<MetadataResponseTopic> = created.collect();
    let forbidden = forbidden.iter();
    topics.extend(forbidden.map(|name| named_error(name, ErrorCode::TopicAuthorizationFailed)));
    topics
}

fn answer_missing(name: &str) -> MetadataResponseTopic {
    match TopicName::new(name) {
        Err(_) => named_error(name, ErrorCode::InvalidTopicException),
        Ok(_) => named_error(name, ErrorCode::UnknownTopicOrPartition),
    }
}

fn named_error(name: &str, code: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: code.code(),
        name: Some(name.into()),
        is_internal: is_internal_topic(name),
        ..MetadataResponseTopic::default()
    }
}

fn describe(
    services: &Services,
    context: &RequestContext,
    request: &MetadataRequest,
    image: &Image,
    topic: &Topic,
) -> MetadataResponseTopic {
    let partitions = topic.partitions().iter();
    let mut response = MetadataResponseTopic {
        name: Some(topic.name.as_str().into()),
        topic_id: Uuid(topic.id.0),
        is_internal: is_internal_topic(&topic.name),
        partitions: partitions.map(|partition| describe_partition(context, image, partition)).collect(),
        ..MetadataResponseTopic::default()
    };
    if context.version >= 8 && request.include_topic_authorized_operations {
        response.topic_authorized_operations =
            services.authorizer.authorized_operations(context.principal(), Resource::Topic(&topic.name));
    }
    response
}

fn describe_partition(
    context: &RequestContext,
    image: &Image,
    partition: &Partition,
) -> MetadataResponsePartition {
    let mut response = MetadataResponsePartition {
        partition_index: partition.index.0,
        leader_id: partition.leader.0,
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: ids(&partition.replicas),
        isr_nodes: ids(&partition.isr),
        offline_replicas: ids(&partition.offline_replicas),
        ..MetadataResponsePartition::default()
    };
    let unavailable = image.leader(partition, context.listener()).err();
    if let Some(reason) = unavailable {
        response.leader_id = BrokerId::NONE.0;
        response.error_code = match reason {
            LeaderUnavailable::ListenerNotFound if context.version >= 6 => ErrorCode::ListenerNotFound,
            _ => ErrorCode::LeaderNotAvailable,
        }
        .code();
    }
    if context.version == 0 {
        only_alive(image, &mut response);
    }
    response
}

/// Version 0 lists live replicas only, and says when one is missing.
fn only_alive(image: &Image, response: &mut MetadataResponsePartition) {
    let is_alive = |id: &i32| image.broker(BrokerId(*id)).is_some();
    let before = response.replica_nodes.len() + response.isr_nodes.len();
    response.replica_nodes.retain(is_alive);
    response.isr_nodes.retain(is_alive);
    let is_missing = response.replica_nodes.len() + response.isr_nodes.len() < before;
    if is_missing && response.error_code == ErrorCode::None.code() {
        response.error_code = ErrorCode::ReplicaNotAvailable.code();
    }
}

pub(super) fn ids(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|broker| broker.0).collect()
}
