//! What the handlers of ACLs share.

use wire::Str;

/// Kafka's words for SECURITY_DISABLED.
pub(super) const NO_AUTHORIZER: Str = Str::from_static("No Authorizer is configured.");
