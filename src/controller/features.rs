//! Features whose level an administrator can raise, and the levels that the cluster has agreed on.
//!
//! The levels are kept in a node of ours, so that `/feature` stays empty: an Apache Kafka 3.9 broker exits when it
//! finds a feature there that it does not know.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::nodes::readable;
use super::patience::{self, until_answered};
use crate::coordination::znodes;
use crate::coordination::{Create, CreateMode, Store, StoreError, Watcher};
use crate::model::BrokerId;

/// The generation of the transaction protocol (KIP-890).
pub const TRANSACTION_VERSION: &str = "transaction.version";

/// The levels that this broker can work at. Level 0 is the absence of the feature.
pub const SUPPORTED_FEATURES: &[(&str, RangeInclusive<i16>)] = &[(TRANSACTION_VERSION, 0..=2)];

/// The levels that the cluster has agreed on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FinalizedFeatures {
    /// Grows with each change; `-1` = the cluster has no features.
    pub epoch: i64,
    /// Above 0 only.
    pub levels: BTreeMap<String, i16>,
}

impl FinalizedFeatures {
    /// The epoch before the levels were read for the first time.
    pub const NOT_READ: i64 = -2;

    pub fn level(&self, feature: &str) -> i16 {
        self.levels.get(feature).copied().unwrap_or(0)
    }
}

/// Tells of the levels as they change.
pub struct FeatureChanges {
    store: Arc<dyn Store>,
    broker_id: BrokerId,
}

impl FeatureChanges {
    pub fn new(store: Arc<dyn Store>, broker_id: BrokerId) -> FeatureChanges {
        FeatureChanges { store, broker_id }
    }

    /// The levels as they are now, and when to ask again. Also says that this broker knows of features, until its
    /// session ends.
    pub async fn read(&self) -> Result<(FinalizedFeatures, Watcher), StoreError> {
        self.introduce().await?;
        let (_, watcher) = until_answered(|| self.store.exists_and_watch(znodes::BARNABAS_FEATURES)).await?;
        Ok((read(&*self.store).await?, watcher))
    }

    async fn introduce(&self) -> Result<(), StoreError> {
        let own = znodes::barnabas_broker(self.broker_id);
        for (path, mode) in [
            (znodes::BARNABAS, CreateMode::Persistent),
            (znodes::BARNABAS_BROKERS, CreateMode::Persistent),
            (&own, CreateMode::Ephemeral),
        ] {
            let node = Create { path: path.to_owned(), data: None, mode };
            match until_answered(|| self.store.create(node.clone())).await {
                Ok(_) | Err(StoreError::NodeExists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The levels in the store.
pub(super) async fn read(store: &dyn Store) -> Result<FinalizedFeatures, StoreError> {
    let kafkas = until_answered(|| store.exists(znodes::FEATURE)).await?;
    let epoch = kafkas.map_or(-1, |stat| i64::from(stat.version));
    let Some(node) = patience::read(store, znodes::BARNABAS_FEATURES).await? else {
        return Ok(FinalizedFeatures { epoch, levels: BTreeMap::new() });
    };
    let decoded = readable(znodes::BARNABAS_FEATURES, znodes::Feature::decode(&node));
    let mut levels = decoded.map(|feature| feature.features).unwrap_or_default();
    levels.retain(|_, level| *level > 0);
    // Clients take over levels only with a greater epoch: those of the node that is not there come first.
    Ok(FinalizedFeatures { epoch: epoch.max(0) + 1 + i64::from(node.stat.version), levels })
}
