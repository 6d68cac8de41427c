//! Replaces the dynamic settings of topics and brokers.
//!
//! Behaviour: all that was set for the resource and is not in the request is removed. Answered once it is stored;
//! brokers apply it a moment later. Settings of loggers, client metrics and groups are refused: INVALID_REQUEST.
//!
//! Versions: 1 throttle before quota · 2 flexible.

use std::collections::{HashMap, HashSet};

use wire::alter_configs_response::AlterConfigsResourceResponse;
use wire::{AlterConfigsRequest, AlterConfigsResponse, Str};

use super::admin::{config_resource, message};
use super::error_code::alter_configs_error;
use super::{ErrorCode, RequestContext, Services, broker_loggers};
use crate::controller::admin::{AlterConfigsError, ConfigChange, ConfigResource};
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
    let loggers_twice = loggers_twice(&changes);
    for WantedChange { resource_type, resource_name, change } in changes {
        let is_of_loggers = resource_type == config_resource::BROKER_LOGGER;
        let outcome = match &change {
            ConfigChange::Alter(_) if is_of_loggers && loggers_twice.contains(&*resource_name) => {
                Err(refusal(&AlterConfigsError::ResourceTwice))
            }
            ConfigChange::Alter(levels) if is_of_loggers => {
                change.check().map_err(|error| refusal(&error)).and_then(|()| {
                    broker_loggers::alter(services, context, &resource_name, levels, validate_only)
                })
            }
            _ => resource(services, context, resource_type, &resource_name).map(|resource| {
                places.push((answers.len(), resource.clone()));
                accepted.push((resource, change));
            }),
        };
        let (code, error_message) = outcome.err().unwrap_or((ErrorCode::None, None));
        answers.push(Altered { code, error_message, resource_type, resource_name });
    }
    let outcomes = services.admin.alter_configs(accepted, validate_only, &services.config.load_full()).await;
    let refused = outcomes.into_iter().filter_map(|(resource, outcome)| Some((resource, outcome.err()?)));
    let refused: HashMap<ConfigResource, _> = refused.collect();
    for (at, resource) in places {
        if let (Some(answer), Some(error)) = (answers.get_mut(at), refused.get(&resource)) {
            (answer.code, answer.error_message) = refusal(error);
        }
    }
    answers
}

pub(super) fn refusal(error: &AlterConfigsError) -> (ErrorCode, Option<Str>) {
    let code = alter_configs_error(error);
    (code, message(code, error))
}

/// Names of loggers' resources that stand there more than once; the other kinds are looked through with their changes.
fn loggers_twice(changes: &[WantedChange]) -> HashSet<Str> {
    let loggers = changes.iter().filter(|change| change.resource_type == config_resource::BROKER_LOGGER);
    let mut seen = HashSet::new();
    loggers.map(|change| change.resource_name.clone()).filter(|name| !seen.insert(name.clone())).collect()
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
