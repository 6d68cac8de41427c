//! New topics.
//!
//! Behaviour: each topic is answered alone, when all its partitions have leaders. After `timeout_ms` the answer is
//! REQUEST_TIMED_OUT, and the topic is there nevertheless. Only the controller creates: NOT_CONTROLLER.
//!
//! Versions: 1 error message, validate only · 2 throttle time · 4 broker defaults for counts (KIP-464) ·
//! 5 what was created (KIP-525), flexible · 6 quota errors (KIP-599) · 7 topic id.

use std::collections::HashMap;

use wire::create_topics_request::CreatableTopic;
use wire::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use wire::{CreateTopicsRequest, CreateTopicsResponse, Str, Uuid};

use super::admin::message;
use super::error_code::create_topic_error;
use super::{ErrorCode, RequestContext, Services};
use crate::config::BrokerConfig;
use crate::controller::NotController;
use crate::controller::admin::{CreateTopicError, CreateTopics, CreatedTopic, NewTopic};
use crate::model::{BrokerId, PartitionIndex};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let names: Vec<Str> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let wanted = CreateTopics {
        topics: request.topics.into_iter().map(new_topic).collect(),
        validate_only: request.validate_only,
        timeout_ms: request.timeout_ms,
    };
    let allows = |operation, resource: Resource<'_>| {
        services.authorizer.allows(context.principal(), operation, resource)
    };
    let may_create = |name: &str| {
        allows(Operation::Create, Resource::Cluster) || allows(Operation::Create, Resource::Topic(name))
    };
    let config = services.config.load_full();
    let topics = match services.admin.create_topics(wanted, &config, may_create).await {
        Err(NotController) => names.into_iter().map(not_controller).collect(),
        Ok(outcomes) => {
            let answer = |(name, outcome): (String, Result<CreatedTopic, CreateTopicError>)| match outcome {
                Err(error) => refused(name, &error),
                Ok(topic) if allows(Operation::DescribeConfigs, Resource::Topic(&name)) => {
                    created(context, name, topic, &config)
                }
                Ok(topic) => without_configs(name, &topic),
            };
            let answers: Vec<CreatableTopicResult> = outcomes.into_iter().map(answer).collect();
            once_per_entry(answers, &names)
        }
    };
    CreateTopicsResponse { topics, ..CreateTopicsResponse::default() }
}

fn new_topic(topic: CreatableTopic) -> NewTopic {
    let assignments = topic.assignments.iter().map(|assignment| {
        let replicas = assignment.broker_ids.iter().copied().map(BrokerId).collect();
        (PartitionIndex(assignment.partition_index), replicas)
    });
    let configs = topic.configs.iter().map(|config| {
        let value = config.value.as_deref().map(str::to_owned);
        (config.name.to_string(), value)
    });
    NewTopic {
        name: topic.name.to_string(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: assignments.collect(),
        configs: configs.collect(),
    }
}

/// A name that the request holds twice is answered twice.
fn once_per_entry(answers: Vec<CreatableTopicResult>, names: &[Str]) -> Vec<CreatableTopicResult> {
    let mut entries: HashMap<&str, usize> = HashMap::new();
    for name in names {
        *entries.entry(name).or_default() += 1;
    }
    let repeated = answers.into_iter().flat_map(|answer| {
        let count = entries.get(&*answer.name).copied().unwrap_or(1);
        vec![answer; count]
    });
    repeated.collect()
}

fn not_controller(name: Str) -> CreatableTopicResult {
    CreatableTopicResult {
        name,
        error_code: ErrorCode::NotController.code(),
        ..CreatableTopicResult::default()
    }
}

fn refused(name: String, error: &CreateTopicError) -> CreatableTopicResult {
    let code = create_topic_error(error);
    CreatableTopicResult {
        name: name.into(),
        error_code: code.code(),
        error_message: message(code, error),
        ..CreatableTopicResult::default()
    }
}

fn created(
    context: &RequestContext,
    name: String,
    topic: CreatedTopic,
    config: &BrokerConfig,
) -> CreatableTopicResult {
    let mut result = CreatableTopicResult {
        name: name.into(),
        topic_id: Uuid(topic.id.0),
        error_message: None,
        num_partitions: topic.partitions,
        replication_factor: topic.replication_factor,
        ..CreatableTopicResult::default()
    };
    if context.version >= 5 {
        // The overrides were checked a moment ago.
        let entries = config.describe_topic(&topic.overrides).unwrap_or_default();
        let configs = entries.into_iter().map(|entry| CreatableTopicConfigs {
            name: entry.name.into(),
            value: entry.value.map(Str::from),
            read_only: entry.is_read_only,
            config_source: entry.source.code(),
            is_sensitive: entry.is_sensitive,
        });
        result.configs = Some(configs.collect());
    }
    result
}

fn without_configs(name: String, topic: &CreatedTopic) -> CreatableTopicResult {
    CreatableTopicResult {
        name: name.into(),
        topic_id: Uuid(topic.id.0),
        error_message: None,
        topic_config_error_code: ErrorCode::TopicAuthorizationFailed.code(),
        ..CreatableTopicResult::default()
    }
}
