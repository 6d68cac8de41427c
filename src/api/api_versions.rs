//! Which APIs and versions this broker serves.
//!
//! Behaviour: allowed at any time. An unknown version is answered in the layout of version 0 with the versions of
//! this API (KIP-511). Features that can be absent are told only to clients that understand a level 0.
//!
//! Below `inter.broker.protocol.version` 2.8 topics have no ids. A client that finds zeros there uses Fetch by name; some of
//! those that know the APIs of Kafka 4 use these by id, and find no topic: there the versions by id are not on offer.
//!
//! Versions: 1 throttle time · 3 flexible, client software (KIP-511), features (KIP-584) · 4 features whose
//! minimum is 0 (KAFKA-17011).

use wire::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use wire::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use super::table::{APIS, Api};
use super::{ErrorCode, RequestContext, Services};
use crate::controller::features::SUPPORTED_FEATURES;

/// The newest versions that name topics by name, of APIs that later name them by id.
const NEWEST_BY_NAME: [(ApiKey, i16); 3] =
    [(ApiKey::Produce, 12), (ApiKey::OffsetCommit, 9), (ApiKey::OffsetFetch, 9)];
/// From here on brokers tell each other of topic ids.
const FIRST_WITH_TOPIC_IDS: &str = "2.8-IV1";

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
    let features = services.features.borrow().clone();
    let has_ids = services.config.load().speaks(FIRST_WITH_TOPIC_IDS);
    let rows = APIS.iter().filter_map(row);
    ApiVersionsResponse {
        api_keys: if has_ids { rows.collect() } else { rows.map(by_name).collect() },
        supported_features: supported_features(context.version),
        finalized_features_epoch: features.epoch,
        finalized_features: features.levels.iter().map(finalized).collect(),
        ..ApiVersionsResponse::default()
    }
}

fn supported_features(version: i16) -> Vec<SupportedFeatureKey> {
    let told = SUPPORTED_FEATURES.iter().filter(|(_, levels)| *levels.start() > 0 || version >= 4);
    let key = |(name, levels): &(&str, std::ops::RangeInclusive<i16>)| SupportedFeatureKey {
        name: (*name).into(),
        min_version: *levels.start(),
        max_version: *levels.end(),
    };
    told.map(key).collect()
}

fn finalized((name, &level): (&String, &i16)) -> FinalizedFeatureKey {
    FinalizedFeatureKey { name: name.as_str().into(), max_version_level: level, min_version_level: level }
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

fn by_name(row: ApiVersion) -> ApiVersion {
    let newest = NEWEST_BY_NAME.iter().find(|(api, _)| *api as i16 == row.api_key);
    ApiVersion {
        max_version: newest.map_or(row.max_version, |(_, newest)| row.max_version.min(*newest)),
        ..row
    }
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
