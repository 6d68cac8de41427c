//! Changes single dynamic settings of topics and brokers (KIP-339).
//!
//! Behaviour: as AlterConfigs, but what is not in the request stays. Lists can be appended to and subtracted from.
//! The levels of this broker's loggers can be changed as well, until it stops.
//!
//! Versions: 1 flexible.

use wire::incremental_alter_configs_request::AlterableConfig;
use wire::incremental_alter_configs_response::AlterConfigsResourceResponse;
use wire::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::alter_configs::{WantedChange, alter};
use super::{RequestContext, Services};
use crate::controller::admin::{AlterEntry, AlterOperation, ConfigChange};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let changes = request.resources.into_iter().map(|resource| WantedChange {
        resource_type: resource.resource_type,
        resource_name: resource.resource_name,
        change: ConfigChange::Alter(resource.configs.iter().map(entry).collect()),
    });
    let altered = alter(services, context, changes.collect(), request.validate_only).await;
    let responses = altered.into_iter().map(|altered| AlterConfigsResourceResponse {
        error_code: altered.code.code(),
        error_message: altered.error_message,
        resource_type: altered.resource_type,
        resource_name: altered.resource_name,
    });
    IncrementalAlterConfigsResponse {
        responses: responses.collect(),
        ..IncrementalAlterConfigsResponse::default()
    }
}

fn entry(config: &AlterableConfig) -> AlterEntry {
    AlterEntry {
        key: config.name.to_string(),
        operation: match config.config_operation {
            0 => AlterOperation::Set,
            1 => AlterOperation::Delete,
            2 => AlterOperation::Append,
            3 => AlterOperation::Subtract,
            unknown => AlterOperation::Unknown(unknown),
        },
        value: config.value.as_deref().map(str::to_owned),
    }
}
