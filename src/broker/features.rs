use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::controller::features::{FeatureChanges, FinalizedFeatures, TRANSACTION_VERSION};
use crate::coordination::StoreError;
use crate::runtime::task::Shutdown;
use crate::txn::{TransactionVersion, TxnService};

/// Until the next look for a session, after one has expired.
const PAUSE: Duration = Duration::from_millis(500);

/// Brings the levels of features that the cluster agrees on to the parts that work by them.
pub(super) struct FeatureApplier {
    pub(super) changes: FeatureChanges,
    pub(super) transactions: Arc<TxnService>,
    pub(super) applied: watch::Sender<Arc<FinalizedFeatures>>,
}

impl FeatureApplier {
    /// Runs until the broker stops, or the store fails.
    pub(super) async fn run(self, shutdown: Shutdown) {
        let mut stopping = shutdown.requested();
        loop {
            let pause = match self.changes.read().await {
                Ok((features, watcher)) => {
                    self.apply(features).await;
                    tokio::select! {
                        // An error means that the session is over, which the next read tells.
                        _ = watcher => continue,
                        () = &mut stopping => return,
                    }
                }
                Err(StoreError::SessionExpired) => tokio::time::sleep(PAUSE),
                Err(error @ StoreError::Failed { .. }) => {
                    error!(%error, "changes of features are not heard of any more");
                    return;
                }
                Err(error) => {
                    warn!(%error, "the levels of features cannot be read");
                    tokio::time::sleep(PAUSE)
                }
            };
            tokio::select! {
                () = pause => {}
                () = &mut stopping => return,
            }
        }
    }

    async fn apply(&self, features: FinalizedFeatures) {
        if **self.applied.borrow() == features {
            return;
        }
        let version = TransactionVersion::from_level(features.level(TRANSACTION_VERSION));
        if self.transactions.version() != version {
            info!(level = version.level(), "transaction.version");
            self.transactions.set_version(version).await;
        }
        self.applied.send_replace(Arc::new(features));
    }
}
