//! Settings with their sources.
//!
//! Behaviour: topics with their effective values; a broker only about itself, or with an empty name the defaults
//! that are stored for all, and its loggers with their levels. Secrets and settings of unknown names are shown
//! without a value. Client metrics and groups have no settings yet, so the list is empty.
//!
//! Versions: 1 sources and synonyms (KIP-226) · 2 throttle before quota · 3 types and documentation (KIP-569) ·
//! 4 flexible.

use wire::describe_configs_request::DescribeConfigsResource;
use wire::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use wire::{DescribeConfigsRequest, DescribeConfigsResponse, Str};

use super::admin::{config_resource, message};
use super::{ErrorCode, RequestContext, Services, broker_loggers};
use crate::config::Entry;
use crate::coordination::znodes::ConfigEntity;
use crate::model::TopicName;
use crate::security::{Operation, Resource};

/// The code and the message of a resource that cannot be described.
type Refusal = (ErrorCode, Option<Str>);

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let mut response = DescribeConfigsResponse::default();
    // One resource of an unknown type makes the whole request invalid.
    if let Some(unknown) = request.resources.iter().find(|resource| !is_known(resource.resource_type)) {
        let text = format!(
            "Unexpected resource type {} for resource {}",
            unknown.resource_type, &*unknown.resource_name
        );
        let refuse = |resource| failed(resource, (ErrorCode::InvalidRequest, Some(text.clone().into())));
        response.results = request.resources.iter().map(refuse).collect();
        return response;
    }
    let shown = Shown { synonyms: request.include_synonyms, documentation: request.include_documentation };
    for resource in &request.resources {
        response.results.push(match entries(services, context, resource).await {
            Ok(entries) => DescribeConfigsResult {
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
                configs: wanted(resource, entries).map(|entry| shown.result(entry)).collect(),
                ..DescribeConfigsResult::default()
            },
            Err(refusal) => failed(resource, refusal),
        });
    }
    response
}

fn is_known(resource_type: i8) -> bool {
    use config_resource::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
    [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP].contains(&resource_type)
}

fn failed(resource: &DescribeConfigsResource, (code, text): Refusal) -> DescribeConfigsResult {
    DescribeConfigsResult {
        error_code: code.code(),
        error_message: text,
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        ..DescribeConfigsResult::default()
    }
}

async fn entries(
    services: &Services,
    context: &RequestContext,
    resource: &DescribeConfigsResource,
) -> Result<Vec<Entry>, Refusal> {
    let name: &str = &resource.resource_name;
    let allows =
        |of: Resource<'_>| services.authorizer.allows(context.principal(), Operation::DescribeConfigs, of);
    if resource.resource_type == config_resource::TOPIC {
        if !allows(Resource::Topic(name)) {
            return Err((ErrorCode::TopicAuthorizationFailed, Some("Topic authorization failed.".into())));
        }
        return topic_entries(services, name).await;
    }
    if !allows(Resource::Cluster) {
        return Err((ErrorCode::ClusterAuthorizationFailed, Some("Cluster authorization failed.".into())));
    }
    match resource.resource_type {
        config_resource::BROKER => broker_entries(services, name),
        config_resource::BROKER_LOGGER => broker_loggers::entries(services.broker_id, name),
        _ => Ok(Vec::new()),
    }
}

async fn topic_entries(services: &Services, name: &str) -> Result<Vec<Entry>, Refusal> {
    let topic = TopicName::new(name).map_err(|invalid| {
        let code = ErrorCode::InvalidTopicException;
        (code, message(code, &invalid))
    })?;
    if services.metadata.image().topic(name).is_none() {
        return Err((ErrorCode::UnknownTopicOrPartition, Some(Str::EMPTY)));
    }
    let stored = services.admin.stored_config(&ConfigEntity::Topic(topic)).await;
    let overrides = stored.map_err(|error| {
        let code = ErrorCode::UnknownServerError;
        (code, message(code, &error))
    })?;
    services.config.load().describe_topic(&overrides).map_err(|error| {
        let code = ErrorCode::InvalidConfig;
        (code, message(code, &error))
    })
}

fn broker_entries(services: &Services, name: &str) -> Result<Vec<Entry>, Refusal> {
    let config = services.config.load();
    let invalid = |text: String| Err((ErrorCode::InvalidRequest, Some(text.into())));
    let me = services.broker_id;
    match name.parse::<i32>() {
        _ if name.is_empty() => Ok(config.describe_cluster_default()),
        Err(_) => invalid(format!("Broker id must be an integer, but it is: {name}")),
        Ok(id) if id == me.0 => Ok(config.describe()),
        Ok(_) => invalid(format!("Unexpected broker id, expected {me} or empty string, but received {name}")),
    }
}

/// The keys that were asked for; null and empty = all.
fn wanted(resource: &DescribeConfigsResource, entries: Vec<Entry>) -> impl Iterator<Item = Entry> {
    let keys = resource.configuration_keys.as_deref().unwrap_or_default();
    let is_wanted = move |entry: &Entry| keys.is_empty() || keys.iter().any(|key| **key == *entry.name);
    entries.into_iter().filter(is_wanted)
}

/// What is shown of an entry.
struct Shown {
    synonyms: bool,
    documentation: bool,
}

impl Shown {
    fn result(&self, entry: Entry) -> DescribeConfigsResourceResult {
        let kind = entry.kind_code();
        let synonyms = if self.synonyms { entry.synonyms } else { Vec::new() };
        let synonyms = synonyms.into_iter().map(|synonym| DescribeConfigsSynonym {
            name: synonym.name.into(),
            value: synonym.value.map(Str::from),
            source: synonym.source.code(),
        });
        DescribeConfigsResourceResult {
            name: entry.name.into(),
            value: entry.value.map(Str::from),
            read_only: entry.is_read_only,
            // Version 0 has this in place of the source, but Kafka never sets it.
            is_default: false,
            config_source: entry.source.code(),
            is_sensitive: entry.is_sensitive,
            synonyms: synonyms.collect(),
            config_type: kind,
            documentation: entry.documentation.filter(|_| self.documentation).map(Str::from_static),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BrokerConfig, Properties};

    fn entries() -> Vec<Entry> {
        let overrides = Properties::from([("retention.ms".to_owned(), "1000".to_owned())]);
        BrokerConfig::new(Properties::new()).unwrap().describe_topic(&overrides).unwrap()
    }

    fn shown(shown: Shown, name: &str) -> DescribeConfigsResourceResult {
        shown.result(entries().into_iter().find(|entry| entry.name == name).unwrap())
    }

    #[test]
    fn synonyms_and_documentation_come_on_request() {
        let brief = shown(Shown { synonyms: false, documentation: false }, "segment.bytes");
        assert_eq!((brief.synonyms.len(), brief.documentation), (0, None));
        let full = shown(Shown { synonyms: true, documentation: true }, "segment.bytes");
        assert_eq!(&*full.synonyms[0].name, "log.segment.bytes");
        assert!(full.documentation.is_some());
    }

    #[test]
    fn no_keys_mean_all_and_unknown_ones_are_left_out() {
        let of = |keys: Option<Vec<Str>>| {
            let resource =
                DescribeConfigsResource { configuration_keys: keys, ..DescribeConfigsResource::default() };
            wanted(&resource, entries()).map(|entry| entry.name).collect::<Vec<_>>()
        };
        let all = entries().len();
        assert_eq!((of(None).len(), of(Some(Vec::new())).len()), (all, all));
        assert_eq!(of(Some(vec!["retention.ms".into(), "no.such".into()])), ["retention.ms"]);
    }
}
