//! Log directories that fail while the broker runs.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::control_channel::LocalChannel;
use crate::coordination::{Create, CreateMode, StoreError, znodes};
use crate::runtime::task::Shutdown;

/// Lets go of the replicas in directories that failed, and tells the controller, which gives their partitions other
/// leaders.
pub(super) struct LogDirFailures {
    pub(super) local: Arc<LocalChannel>,
    /// Becomes true when no directory is left.
    pub(super) all_failed: watch::Sender<bool>,
}

/// Until the controller is told again, when the store could not be reached.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl LogDirFailures {
    /// Runs until the broker stops, or its last directory has failed.
    pub(super) async fn run(self, shutdown: Shutdown) {
        let logs = Arc::clone(self.local.replicas.logs());
        // Those that failed before the start are told of in the answers to the controller's first requests.
        let mut known: HashSet<PathBuf> = paths(&logs.offline_directories());
        let mut stopping = shutdown.requested();
        let mut is_told = true;
        loop {
            let offline = logs.offline_directories();
            let failed = paths(&offline);
            if offline.len() == logs.directories().len() {
                let all: Vec<String> = failed.iter().map(|path| path.display().to_string()).collect();
                error!(directories = all.join(", "), "all log directories have failed: the broker ends");
                self.all_failed.send_replace(true);
                return;
            }
            if failed.len() > known.len() {
                known = failed;
                let lost = self.local.drop_offline_replicas().await;
                warn!(replicas = lost, "a log directory has failed: its replicas are offline");
                is_told = false;
            }
            // More of them may fail before the controller can be told.
            tokio::select! {
                () = self.tell_until_heard(), if !is_told => is_told = true,
                () = logs.directory_failed() => {}
                () = &mut stopping => return,
            }
        }
    }

    async fn tell_until_heard(&self) {
        loop {
            match self.tell_controller().await {
                Ok(()) => return info!("the controller is told of the failed log directory"),
                Err(error @ StoreError::Failed { .. }) => {
                    return warn!(%error, "the controller is not told of the failed log directory");
                }
                Err(error) => {
                    warn!(%error, "the controller is not told of the failed log directory, trying again");
                }
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn tell_controller(&self) -> Result<(), StoreError> {
        let path = format!("{}/{}", znodes::LOG_DIR_EVENTS, znodes::LOG_DIR_EVENT_PREFIX);
        let data = Some(znodes::LogDirEvent { broker_id: self.local.me }.encode());
        let create = Create { path, data, mode: CreateMode::PersistentSequential };
        self.local.store.create(create).await.map(|_| ())
    }
}

fn paths(directories: &[Arc<crate::log::LogDirectory>]) -> HashSet<PathBuf> {
    directories.iter().map(|directory| directory.path().to_owned()).collect()
}
