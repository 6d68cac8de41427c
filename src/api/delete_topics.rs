//! Deletes topics.
//!
//! Behaviour: answered when this broker no longer shows the topics; after `timeout_ms` with REQUEST_TIMED_OUT, and they
//! are deleted nevertheless. Only the controller deletes: NOT_CONTROLLER.
//!
//! Versions: 1 throttle time · 3 TOPIC_DELETION_DISABLED · 4 flexible · 5 error message (never set, as in Kafka) ·
//! 6 by id (KIP-516).

use wire::delete_topics_request::DeleteTopicState;
use wire::delete_topics_response::DeletableTopicResult;
use wire::{DeleteTopicsRequest, DeleteTopicsResponse, Str, Uuid};

use super::error_code::delete_topic_error;
use super::{ErrorCode, RequestContext, Services};
use crate::controller::admin::{DeleteTopicError, DeleteTopics, DeletionPermissions, TopicSelector};
use crate::model::TopicId;
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let named = topics(context, &request);
    // Which of both would be meant is anybody's guess.
    if named.iter().any(|topic| topic.name.is_some() && topic.topic_id != Uuid::default()) {
        return all(&named, ErrorCode::InvalidRequest);
    }
    let allows = |operation, name: &str| {
        services.authorizer.allows(context.principal(), operation, Resource::Topic(name))
    };
    let permissions = DeletionPermissions {
        may_describe: &|name| allows(Operation::Describe, name),
        may_delete: &|name| allows(Operation::Delete, name),
    };
    let wanted =
        DeleteTopics { topics: named.iter().map(selector).collect(), timeout_ms: request.timeout_ms };
    let Ok(deleted) = services.admin.delete_topics(wanted, permissions).await else {
        return all(&named, ErrorCode::NotController);
    };
    // Who names a topic is not told its id.
    let responses = named.iter().zip(deleted).map(|(asked, topic)| DeletableTopicResult {
        name: topic.name.map(Str::from),
        topic_id: asked.topic_id,
        error_code: match topic.outcome.as_ref().err() {
            // Neither name nor id: Kafka asks whether the client may see the topic without a name.
            Some(DeleteTopicError::UnknownTopicId) if asked.topic_id == Uuid::default() => {
                ErrorCode::TopicAuthorizationFailed
            }
            error => code(context.version, error),
        }
        .code(),
        error_message: None,
    });
    DeleteTopicsResponse { responses: responses.collect(), ..DeleteTopicsResponse::default() }
}

fn topics(context: &RequestContext, request: &DeleteTopicsRequest) -> Vec<DeleteTopicState> {
    if context.version >= 6 {
        return request.topics.clone();
    }
    let named = request
        .topic_names
        .iter()
        .map(|name| DeleteTopicState { name: Some(name.clone()), ..DeleteTopicState::default() });
    named.collect()
}

fn selector(topic: &DeleteTopicState) -> TopicSelector {
    match &topic.name {
        Some(name) => TopicSelector::Name(name.to_string()),
        None => TopicSelector::Id(TopicId(topic.topic_id.0)),
    }
}

fn all(topics: &[DeleteTopicState], code: ErrorCode) -> DeleteTopicsResponse {
    let responses = topics.iter().map(|topic| DeletableTopicResult {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        error_code: code.code(),
        error_message: None,
    });
    DeleteTopicsResponse { responses: responses.collect(), ..DeleteTopicsResponse::default() }
}

/// Clients before version 3 do not know TOPIC_DELETION_DISABLED.
fn code(version: i16, error: Option<&DeleteTopicError>) -> ErrorCode {
    match error.map_or(ErrorCode::None, delete_topic_error) {
        ErrorCode::TopicDeletionDisabled if version < 3 => ErrorCode::InvalidRequest,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clients_are_not_told_codes_they_do_not_know() {
        let disabled = Some(&DeleteTopicError::DeletionDisabled);
        assert_eq!(code(2, disabled), ErrorCode::InvalidRequest);
        assert_eq!(code(3, disabled), ErrorCode::TopicDeletionDisabled);
        assert_eq!(code(2, Some(&DeleteTopicError::UnknownTopic)), ErrorCode::UnknownTopicOrPartition);
    }
}
