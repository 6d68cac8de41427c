//! New ACLs.
//!
//! Behaviour: without an authorizer each of them is answered with SECURITY_DISABLED.
//!
//! Versions: 1 pattern types (KIP-290) · 2 flexible · 3 user resources.

use wire::create_acls_response::AclCreationResult;
use wire::{CreateAclsRequest, CreateAclsResponse};

use super::acls::NO_AUTHORIZER;
use super::{ErrorCode, RequestContext, Services};

pub async fn handle(
    _services: &Services,
    _context: &RequestContext,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let refused = request.creations.iter().map(|_| AclCreationResult {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some(NO_AUTHORIZER),
    });
    CreateAclsResponse { results: refused.collect(), ..CreateAclsResponse::default() }
}
