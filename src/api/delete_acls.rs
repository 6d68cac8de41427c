//! Removes the ACLs that match filters.
//!
//! Behaviour: without an authorizer each filter is answered with SECURITY_DISABLED.
//!
//! Versions: 1 pattern types (KIP-290) · 2 flexible · 3 user resources.

use wire::delete_acls_response::DeleteAclsFilterResult;
use wire::{DeleteAclsRequest, DeleteAclsResponse};

use super::acls::NO_AUTHORIZER;
use super::{ErrorCode, RequestContext, Services};

pub async fn handle(
    _services: &Services,
    _context: &RequestContext,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse {
    let refused = request.filters.iter().map(|_| DeleteAclsFilterResult {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some(NO_AUTHORIZER),
        ..DeleteAclsFilterResult::default()
    });
    DeleteAclsResponse { filter_results: refused.collect(), ..DeleteAclsResponse::default() }
}
