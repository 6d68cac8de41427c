//! Raises and lowers the levels of features (KIP-584).
//!
//! Behaviour: all or none. Only the controller does it, and only when all live brokers are Barnabas; answered when this
//! broker works at the new levels.
//!
//! Versions: 1 directions, validate only (KIP-778) · 2 no results per feature.

use std::time::Duration;

use wire::update_features_request::FeatureUpdateKey;
use wire::update_features_response::UpdatableFeatureResult;
use wire::{UpdateFeaturesRequest, UpdateFeaturesResponse};

use super::{ErrorCode, RequestContext, Services};
use crate::controller::admin::{FeatureDirection, FeatureUpdate, UpdateFeaturesError};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse {
    let failed = |code: ErrorCode, message: Option<String>| UpdateFeaturesResponse {
        error_code: code.code(),
        error_message: message.map(Into::into),
        ..UpdateFeaturesResponse::default()
    };
    if !services.authorizer.allows(context.principal(), Operation::Alter, Resource::Cluster) {
        return failed(ErrorCode::ClusterAuthorizationFailed, None);
    }
    let updates: Vec<FeatureUpdate> =
        request.feature_updates.iter().map(|update| to_update(context.version, update)).collect();
    let changed = match services.admin.update_features(&updates, request.validate_only).await {
        Err(_) => return failed(ErrorCode::NotController, None),
        Ok(Err(error)) => {
            let text = format!(
                "The update failed for all features since the following feature had an error: {error}"
            );
            return failed(code(&error), Some(text));
        }
        Ok(Ok(changed)) => changed,
    };
    let limit = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let mut features = services.features.clone();
    let is_applied = features.wait_for(|features| features.epoch >= changed.epoch);
    if tokio::time::timeout(limit, is_applied).await.is_err() {
        return failed(ErrorCode::RequestTimedOut, None);
    }
    let results = request.feature_updates.into_iter().map(|update| UpdatableFeatureResult {
        feature: update.feature,
        ..UpdatableFeatureResult::default()
    });
    UpdateFeaturesResponse { results: results.collect(), ..UpdateFeaturesResponse::default() }
}

fn to_update(version: i16, update: &FeatureUpdateKey) -> FeatureUpdate {
    let direction = match (version, update.upgrade_type) {
        (0, _) if update.allow_downgrade => FeatureDirection::Downgrade,
        (0, _) | (_, 1) => FeatureDirection::Upgrade,
        (_, 2 | 3) => FeatureDirection::Downgrade,
        _ => FeatureDirection::Unknown,
    };
    FeatureUpdate { feature: update.feature.as_str().to_owned(), level: update.max_version_level, direction }
}

fn code(error: &UpdateFeaturesError) -> ErrorCode {
    match error {
        UpdateFeaturesError::InvalidUpdateVersion { .. } => ErrorCode::InvalidUpdateVersion,
        UpdateFeaturesError::Store { .. } => ErrorCode::UnknownServerError,
    }
}
