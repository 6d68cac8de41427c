//! What the handlers of administration share.

use std::fmt::Display;

use wire::Str;

use super::ErrorCode;

/// `resource_type` of a configuration in requests and answers.
pub(super) mod config_resource {
    pub const TOPIC: i8 = 2;
    pub const BROKER: i8 = 4;
    pub const BROKER_LOGGER: i8 = 8;
    pub const CLIENT_METRICS: i8 = 16;
    pub const GROUP: i8 = 32;
}

/// What an answer says in words besides the code. A time limit that passed needs none: nothing was refused.
pub(super) fn message(code: ErrorCode, error: &impl Display) -> Option<Str> {
    (code != ErrorCode::RequestTimedOut).then(|| error.to_string().into())
}
