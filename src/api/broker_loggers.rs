//! The levels of this broker's loggers as DescribeConfigs and IncrementalAlterConfigs show and change them (KIP-412).

use wire::Str;

use super::admin::message;
use super::alter_configs::refusal;
use super::{ErrorCode, RequestContext, Services};
use crate::config::{Entry, Source};
use crate::controller::admin::{AlterEntry, AlterOperation};
use crate::model::BrokerId;
use crate::observe::{LevelChange, LoggerError, logging};
use crate::security::{Operation, Resource};

/// The code and the message of a resource that is refused.
type Refusal = (ErrorCode, Option<Str>);

/// Every logger with its level; `name` has to be this broker's id.
pub(super) fn entries(me: BrokerId, name: &str) -> Result<Vec<Entry>, Refusal> {
    match name.parse::<i32>() {
        _ if name.is_empty() => return Err(invalid("Broker id must not be empty".to_owned())),
        Err(_) => return Err(invalid(format!("Broker id must be an integer, but it is: {name}"))),
        Ok(id) if id != me.0 => {
            return Err(invalid(format!("Unexpected broker id, expected {me} but received {name}")));
        }
        Ok(_) => {}
    }
    let loggers = logging::loggers().map(|loggers| loggers.list()).unwrap_or_default();
    let entry = |(name, level)| Entry {
        name,
        value: Some(level),
        source: Source::Logger,
        is_read_only: false,
        is_sensitive: false,
        kind: None,
        synonyms: Vec::new(),
        documentation: None,
    };
    Ok(loggers.into_iter().map(entry).collect())
}

/// Changes levels, all that are asked for or none.
pub(super) fn alter(
    services: &Services,
    context: &RequestContext,
    name: &str,
    wanted: &[AlterEntry],
    validate_only: bool,
) -> Result<(), Refusal> {
    if !services.authorizer.allows(context.principal(), Operation::AlterConfigs, Resource::Cluster) {
        return Err((ErrorCode::ClusterAuthorizationFailed, None));
    }
    services.admin.check_broker(name).map_err(|error| refusal(&error))?;
    let changes = wanted.iter().map(change).collect::<Result<Vec<_>, _>>()?;
    let Some(loggers) = logging::loggers() else {
        return Err((ErrorCode::InvalidConfig, Some("This process has no loggers.".into())));
    };
    let outcome = if validate_only { loggers.check(&changes) } else { loggers.change(&changes) };
    outcome.map_err(|error| {
        let code = match error {
            LoggerError::UnknownLogger { .. } | LoggerError::UnknownLevel { .. } => ErrorCode::InvalidConfig,
            LoggerError::NoRootLevel => ErrorCode::InvalidRequest,
        };
        (code, message(code, &error))
    })
}

fn change(wanted: &AlterEntry) -> Result<(String, LevelChange), Refusal> {
    let of_loggers = "operation is not allowed for the BROKER_LOGGER resource";
    match wanted.operation {
        AlterOperation::Set => {
            Ok((wanted.key.clone(), LevelChange::Set(wanted.value.clone().unwrap_or_default())))
        }
        AlterOperation::Delete => Ok((wanted.key.clone(), LevelChange::Inherit)),
        AlterOperation::Append => Err(invalid(format!("APPEND {of_loggers}"))),
        AlterOperation::Subtract => Err(invalid(format!("SUBTRACT {of_loggers}"))),
        AlterOperation::Unknown(unknown) => Err(invalid(format!(
            "Unknown operation type {unknown} is not allowed for the BROKER_LOGGER resource"
        ))),
    }
}

fn invalid(text: String) -> Refusal {
    (ErrorCode::InvalidRequest, Some(text.into()))
}
