//! What the handlers of ACLs share.

use wire::Str;

/// Kafka's words for SECURITY_DISABLED, where ACLs are to be changed.
pub(super) const NO_AUTHORIZER: Str = Str::from_static("No Authorizer is configured.");
/// Kafka's words for SECURITY_DISABLED, where ACLs are to be described.
pub(super) const NO_AUTHORIZER_ON_BROKER: Str = Str::from_static("No Authorizer is configured on the broker");
