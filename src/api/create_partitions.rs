//! More partitions for topics (KIP-195).
//!
//! Behaviour: each topic is answered alone, when its new partitions have leaders. After `timeout_ms` the answer is
//! REQUEST_TIMED_OUT, and they are there nevertheless. Only the controller creates: NOT_CONTROLLER.
//!
//! Versions: 1 throttle before quota · 2 flexible · 3 quota errors (KIP-599).

use wire::create_partitions_request::CreatePartitionsTopic;
use wire::create_partitions_response::CreatePartitionsTopicResult;
use wire::{CreatePartitionsRequest, CreatePartitionsResponse, Str};

use super::admin::message;
use super::error_code::create_partitions_error;
use super::{ErrorCode, RequestContext, Services};
use crate::controller::admin::{CreatePartitionsError, NewPartitions};
use crate::model::BrokerId;
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let may_alter =
        |name: &str| services.authorizer.allows(context.principal(), Operation::Alter, Resource::Topic(name));
    let wanted = request.topics.iter().map(new_partitions).collect();
    let outcomes =
        services.admin.create_partitions(wanted, request.validate_only, request.timeout_ms, may_alter).await;
    let results = match outcomes {
        Ok(outcomes) => outcomes.into_iter().map(answer).collect(),
        Err(_) => request.topics.into_iter().map(|topic| not_controller(topic.name)).collect(),
    };
    CreatePartitionsResponse { results, ..CreatePartitionsResponse::default() }
}

fn new_partitions(topic: &CreatePartitionsTopic) -> NewPartitions {
    let assignments = topic.assignments.as_ref().map(|assignments| {
        let replicas = assignments.iter().map(|assignment| &assignment.broker_ids);
        replicas.map(|ids| ids.iter().copied().map(BrokerId).collect()).collect()
    });
    NewPartitions { topic: topic.name.to_string(), count: topic.count, assignments }
}

fn answer((name, outcome): (String, Result<(), CreatePartitionsError>)) -> CreatePartitionsTopicResult {
    let (code, error_message) = match outcome {
        Ok(()) => (ErrorCode::None, None),
        Err(error) => {
            let code = create_partitions_error(&error);
            (code, message(code, &error))
        }
    };
    CreatePartitionsTopicResult { name: name.into(), error_code: code.code(), error_message }
}

fn not_controller(name: Str) -> CreatePartitionsTopicResult {
    let error_code = ErrorCode::NotController.code();
    CreatePartitionsTopicResult { name, error_code, error_message: None }
}
