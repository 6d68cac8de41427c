use std::collections::BTreeMap;

use snafu::{Snafu, ensure};
use tracing::info;

use super::Admin;
use crate::controller::features::{self, FinalizedFeatures, SUPPORTED_FEATURES};
use crate::controller::patience::{self, until_answered};
use crate::controller::service::NotController;
use crate::coordination::znodes::{self, Feature, FeatureStatus};
use crate::coordination::{Create, CreateMode, StoreError};
use crate::model::BrokerId;

/// A level that a feature should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureUpdate {
    pub feature: String,
    /// 0 removes the feature.
    pub level: i16,
    pub direction: FeatureDirection,
}

/// Which way an administrator means to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureDirection {
    Upgrade,
    /// Safe or not: lowering a level here loses nothing.
    Downgrade,
    Unknown,
}

/// Why levels were not changed. Nothing is changed then.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
pub enum UpdateFeaturesError {
    #[snafu(display("Invalid update version {level} for feature {feature}. {reason}"))]
    InvalidUpdateVersion { feature: String, level: i16, reason: InvalidUpdate },
    #[snafu(display("{source}"), context(false))]
    Store { source: StoreError },
}

#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
pub enum InvalidUpdate {
    #[snafu(display("The controller does not support the given upgrade type."))]
    UnknownDirection,
    #[snafu(display("A feature version cannot be less than 0."))]
    Negative,
    #[snafu(display("Local controller {} does not support this feature.", broker_id.0))]
    UnknownFeature { broker_id: BrokerId },
    #[snafu(display("Local controller {} only supports versions {min}-{max}", broker_id.0))]
    UnsupportedLevel { broker_id: BrokerId, min: i16, max: i16 },
    #[snafu(display("Broker {} does not support this feature.", broker_id.0))]
    UnsupportedByBroker { broker_id: BrokerId },
    #[snafu(display(
        "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
    ))]
    UpgradeDownwards,
    #[snafu(display("Can't downgrade to a newer version."))]
    DowngradeUpwards,
}

impl Admin {
    /// Changes the levels of features, all or none. Gives the levels that the cluster then has; with
    /// `validate_only` those that it keeps.
    pub async fn update_features(
        &self,
        updates: &[FeatureUpdate],
        validate_only: bool,
    ) -> Result<Result<FinalizedFeatures, UpdateFeaturesError>, NotController> {
        if !self.controller.is_active() {
            return Err(NotController);
        }
        Ok(self.change_features(updates, validate_only).await)
    }

    async fn change_features(
        &self,
        updates: &[FeatureUpdate],
        validate_only: bool,
    ) -> Result<FinalizedFeatures, UpdateFeaturesError> {
        let store = self.store();
        let known = patience::children(&*store, znodes::BARNABAS_BROKERS).await?;
        let is_known = |broker: BrokerId| broker == self.broker_id || known.contains(&broker.0.to_string());
        let stranger = self.metadata.image().brokers().map(|broker| broker.id).find(|id| !is_known(*id));
        let current = features::read(&*store).await?;
        let mut levels = current.levels.clone();
        for update in updates {
            let FeatureUpdate { feature, level, .. } = update.clone();
            check(update, levels.get(&feature).copied().unwrap_or(0), self.broker_id, stranger)
                .map_err(|reason| UpdateFeaturesError::InvalidUpdateVersion { feature, level, reason })?;
            levels.insert(update.feature.clone(), update.level);
        }
        levels.retain(|_, level| *level > 0);
        if validate_only || levels == current.levels {
            return Ok(current);
        }
        self.write_features(levels).await?;
        Ok(features::read(&*store).await?)
    }

    async fn write_features(&self, levels: BTreeMap<String, i16>) -> Result<(), UpdateFeaturesError> {
        info!(?levels, "the levels of features change");
        let store = self.store();
        let feature = Feature { status: FeatureStatus::Enabled, features: levels };
        let data = feature.encode(2).expect("version 2 is one of the node's");
        let node = |path: &str, data| Create { path: path.to_owned(), data, mode: CreateMode::Persistent };
        let parent = node(znodes::BARNABAS, None);
        let own = node(znodes::BARNABAS_FEATURES, Some(data.clone()));
        loop {
            match until_answered(|| store.set(znodes::BARNABAS_FEATURES, Some(data.clone()), None)).await {
                Ok(_) => return Ok(()),
                Err(StoreError::NoNode { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            match until_answered(|| store.create(own.clone())).await {
                Ok(_) => return Ok(()),
                Err(StoreError::NodeExists { .. }) => {}
                Err(StoreError::NoNode { .. }) => match until_answered(|| store.create(parent.clone())).await
                {
                    Ok(_) | Err(StoreError::NodeExists { .. }) => {}
                    Err(error) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Kafka's checks, in its order.
fn check(
    update: &FeatureUpdate,
    current: i16,
    controller: BrokerId,
    stranger: Option<BrokerId>,
) -> Result<(), InvalidUpdate> {
    ensure!(update.direction != FeatureDirection::Unknown, UnknownDirectionSnafu);
    ensure!(update.level >= 0, NegativeSnafu);
    let supported = SUPPORTED_FEATURES.iter().find(|(name, _)| *name == update.feature);
    let Some((_, levels)) = supported else {
        return UnknownFeatureSnafu { broker_id: controller }.fail();
    };
    let (min, max) = (*levels.start(), *levels.end());
    ensure!(levels.contains(&update.level), UnsupportedLevelSnafu { broker_id: controller, min, max });
    if let Some(broker_id) = stranger.filter(|_| update.level > 0) {
        return UnsupportedByBrokerSnafu { broker_id }.fail();
    }
    let is_upgrade = update.direction == FeatureDirection::Upgrade;
    ensure!(update.level >= current || !is_upgrade, UpgradeDownwardsSnafu);
    ensure!(update.level <= current || is_upgrade, DowngradeUpwardsSnafu);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::features::TRANSACTION_VERSION;

    #[track_caller]
    fn verdict(feature: &str, level: i16, direction: FeatureDirection, current: i16) -> Option<String> {
        let update = FeatureUpdate { feature: feature.to_owned(), level, direction };
        check(&update, current, BrokerId(1), None).err().map(|error| error.to_string())
    }

    #[test]
    fn levels_are_checked_as_kafka_does() {
        use FeatureDirection::*;
        assert_eq!(verdict(TRANSACTION_VERSION, 2, Upgrade, 0), None);
        assert_eq!(verdict(TRANSACTION_VERSION, 2, Upgrade, 2), None);
        assert_eq!(verdict(TRANSACTION_VERSION, 0, Downgrade, 2), None);
        for (feature, level, direction, current, message) in [
            ("foo", 1, Upgrade, 0, "Local controller 1 does not support this feature."),
            (TRANSACTION_VERSION, 3, Upgrade, 0, "Local controller 1 only supports versions 0-2"),
            (TRANSACTION_VERSION, -1, Upgrade, 0, "A feature version cannot be less than 0."),
            (TRANSACTION_VERSION, 2, Downgrade, 1, "Can't downgrade to a newer version."),
            (TRANSACTION_VERSION, 1, Unknown, 0, "The controller does not support the given upgrade type."),
        ] {
            assert_eq!(verdict(feature, level, direction, current).as_deref(), Some(message));
        }
        let upwards = verdict(TRANSACTION_VERSION, 1, Upgrade, 2);
        assert!(upwards.is_some_and(|message| message.starts_with("Can't downgrade the version")));
    }

    #[test]
    fn a_broker_of_another_kind_keeps_the_level_down() {
        let update =
            |level, direction| FeatureUpdate { feature: TRANSACTION_VERSION.to_owned(), level, direction };
        let stranger = Some(BrokerId(7));
        let raised = check(&update(2, FeatureDirection::Upgrade), 0, BrokerId(1), stranger);
        assert_eq!(raised, Err(InvalidUpdate::UnsupportedByBroker { broker_id: BrokerId(7) }));
        assert_eq!(check(&update(0, FeatureDirection::Downgrade), 2, BrokerId(1), stranger), Ok(()));
    }
}
