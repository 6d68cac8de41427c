//! Which APIs and versions this broker serves.
//!
//! Behaviour: allowed at any time. An unknown version is answered in the layout of version 0 with the versions of
//! this API (KIP-511). A broker on Kafka's ZooKeeper tree supports no features and sends an empty list; the
//! epoch of the finalized ones is the version of `/feature`.
//!
//! Versions: 1 throttle time · 3 flexible, client software (KIP-511), features (KIP-584) · 4 features whose
//! minimum is 0 (KAFKA-17011).

use std::sync::atomic::Ordering;

use wire::api_versions_response::ApiVersion;
use wire::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use super::table::{APIS, Api};
use super::{ErrorCode, RequestContext, Services};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: ApiVersionsRequest,
) -> ApiVersionsResponse {
    if context.version >= 3 {
        let has_name = is_software_text(&request.client_software_name);
        if !has_name || !is_software_text(&request.client_software_version) {
            return ApiVersionsResponse {
                error_code: ErrorCode::InvalidRequest.code(),
                ..ApiVersionsResponse::default()
            };
        }
    }
    ApiVersionsResponse {
        api_keys: APIS.iter().filter_map(row).collect(),
        finalized_features_epoch: services.finalized_features_epoch.load(Ordering::Relaxed),
        ..ApiVersionsResponse::default()
    }
}

/// The answer to a version that this broker does not know.
pub(super) fn unsupported_version(_services: &Services) -> ApiVersionsResponse {
    let own = APIS.iter().filter(|api| api.key == ApiKey::ApiVersions);
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: own.filter_map(row).collect(),
        ..ApiVersionsResponse::default()
    }
}

fn row(api: &Api) -> Option<ApiVersion> {
    let advertised = api.advertised.as_ref()?;
    Some(ApiVersion {
        api_key: api.key as i16,
        min_version: *advertised.start(),
        max_version: *advertised.end(),
    })
}

/// `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?`, as KIP-511 wants it.
fn is_software_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_software_is_checked_as_in_kip_511() {
        for good in ["a", "apache-kafka-java", "3.9.2", "a.-b"] {
            assert!(is_software_text(good), "{good}");
        }
        for bad in ["", "-a", "a-", ".a", "a b", "ä", "a_b"] {
            assert!(!is_software_text(bad), "{bad}");
        }
    }
}
