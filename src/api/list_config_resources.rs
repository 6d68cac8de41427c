//! What has, or could have, a configuration (KIP-1142; before that the subscriptions of client metrics, KIP-714).
//!
//! Behaviour: topics, brokers and their loggers. Client metrics and groups have no configuration here.
//!
//! Versions: 0 client metrics alone, flexible · 1 chosen types, none = all.

use wire::list_config_resources_response::ConfigResource;
use wire::{ListConfigResourcesRequest, ListConfigResourcesResponse, Str};

use super::admin::config_resource::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
use super::{ErrorCode, RequestContext, Services};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let error = |code: ErrorCode| ListConfigResourcesResponse {
        error_code: code.code(),
        ..ListConfigResourcesResponse::default()
    };
    if !services.authorizer.allows(context.principal(), Operation::DescribeConfigs, Resource::Cluster) {
        return error(ErrorCode::ClusterAuthorizationFailed);
    }
    let known = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
    if request.resource_types.iter().any(|resource_type| !known.contains(resource_type)) {
        return error(ErrorCode::UnsupportedVersion);
    }
    let is_wanted = |resource_type: i8| match request.resource_types.as_slice() {
        [] => context.version >= 1,
        types => types.contains(&resource_type),
    };
    let image = services.metadata.image();
    let mut response = ListConfigResourcesResponse::default();
    let mut add = |resource_type: i8, resource_name: Str| {
        response.config_resources.push(ConfigResource { resource_name, resource_type });
    };
    if is_wanted(TOPIC) {
        image.topics_by_name().iter().for_each(|topic| add(TOPIC, topic.name.as_str().into()));
    }
    for resource_type in [BROKER, BROKER_LOGGER].into_iter().filter(|wanted| is_wanted(*wanted)) {
        image.brokers().for_each(|broker| add(resource_type, broker.id.to_string().into()));
    }
    response
}
