//! Which ACLs there are.
//!
//! Behaviour: there are none without an authorizer, and none is built yet: SECURITY_DISABLED.
//!
//! Versions: 1 pattern types (KIP-290) · 2 flexible · 3 user resources.

use wire::{DescribeAclsRequest, DescribeAclsResponse};

use super::acls::NO_AUTHORIZER_ON_BROKER;
use super::{ErrorCode, RequestContext, Services};

pub async fn handle(
    _services: &Services,
    _context: &RequestContext,
    _request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    DescribeAclsResponse {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some(NO_AUTHORIZER_ON_BROKER),
        ..DescribeAclsResponse::default()
    }
}
