//! Replaces the dynamic settings of topics and brokers.
//!
//! Behaviour: all that was set for the resource and is not in the request is removed. Answered once it is stored;
//! brokers apply it a moment later. Settings of loggers, client metrics and groups are refused: INVALID_REQUEST.
//!
//! Versions: 1 throttle before quota · 2 flexible.

use std::collections::HashMap;

use wire::alter_configs_response::AlterConfigsResourceResponse;
use wire::{AlterConfigsRequest, AlterConfigsResponse, Str};

use super::admin::{config_resource, message};
use super::error_code::alter_configs_error;
use super::{ErrorCode, RequestContext, Services};
use crate::controller::admin::{ConfigChange, ConfigResource};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let changes = request.resources.into_iter().map(|resource| {
        let entries = resource.configs.iter();
        let entries =
            entries.map(|entry| (entry.name.to_string(), entry.value.as_deref().map(str::to_owned)));
        WantedChange {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            change: ConfigChange::Replace(entries.collect()),
        }
    });
    let altered = alter(services, context, changes.collect(), request.validate_only).await;
    let responses = altered.into_iter().map(|altered| AlterConfigsResourceResponse {
        error_code: altered.code.code(),
        error_message: altered.error_message,
        resource_type: altered.resource_type,
        resource_name: altered.resource_name,
    });
    AlterConfigsResponse { responses: responses.collect(), ..AlterConfigsResponse::default() }
}

/// What a client wants to change of one resource, by either of both APIs.
pub(super) struct WantedChange {
    pub resource_type: i8,
    pub resource_name: Str,
    pub change: ConfigChange,
}

/// The answer about one resource.
pub(super) struct Altered {
    pub code: ErrorCode,
    pub error_message: Option<Str>,
    pub resource_type: i8,
    pub resource_name: Str,
}

/// Makes the changes and gives one answer for each, in the order of the request.
pub(super) async fn alter(
    services: &Services,
    context: &RequestContext,
    changes: Vec<WantedChange>,
    validate_only: bool,
) -> Vec<Altered> {
    let mut answers: Vec<Altered> = Vec::with_capacity(changes.len());
    let mut accepted = Vec::new();
    let mut places: Vec<(usize, ConfigResource)> = Vec::new();
    for WantedChange { resource_type, resource_name, change } in changes {
        let (code, error_message) = match resource(services, context, resource_type, &resource_name) {
            Err(refusal) => refusal,
            Ok(resource) => {
                places.push((answers.len(), resource.clone()));
                accepted.push((resource, change));
                (ErrorCode::None, None)
            }
        };
        answers.push(Altered { code, error_message, resource_type, resource_name });
    }
    let outcomes = services.admin.alter_configs(accepted, validate_only, &services.config.load_full()).await;
    let refused = outcomes.into_iter().filter_map(|(resource, outcome)| Some((resource, outcome.err()?)));
    let refused: HashMap<ConfigResource, _> = refused.collect();
    for (at, resource) in places {
        if let (Some(answer), Some(error)) = (answers.get_mut(at), refused.get(&resource)) {
            answer.code = alter_configs_error(error);
            answer.error_message = message(answer.code, error);
        }
    }
    answers
}

fn resource(
    services: &Services,
    context: &RequestContext,
    resource_type: i8,
    name: &str,
) -> Result<ConfigResource, (ErrorCode, Option<Str>)> {
    let allows =
        |of: Resource<'_>| services.authorizer.allows(context.principal(), Operation::AlterConfigs, of);
    match resource_type {
        config_resource::TOPIC if allows(Resource::Topic(name)) => Ok(ConfigResource::Topic(name.to_owned())),
        config_resource::TOPIC => Err((ErrorCode::TopicAuthorizationFailed, None)),
        config_resource::BROKER if allows(Resource::Cluster) => Ok(ConfigResource::Broker(name.to_owned())),
        config_resource::BROKER => Err((ErrorCode::ClusterAuthorizationFailed, None)),
        unknown => {
            let text = format!("Unknown resource type {unknown}");
            Err((ErrorCode::InvalidRequest, Some(text.into())))
        }
    }
}
