//! The loading of logs, which goes on while the broker serves what is loaded.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{error, warn};

use super::control_channel::blocking;
use super::roles::Roles;
use crate::coordination::znodes::{self, LogDirEvent};
use crate::coordination::{Create, CreateMode, Store};
use crate::log::{LoadAllOptions, LogError, LogManager};
use crate::model::{BrokerId, TopicName, TopicPartition};
use crate::replica::ReplicaManager;
use crate::runtime::{Clock, task};

/// Loads all logs; dropping it ends that early, as threads that read would keep the process alive.
pub(super) struct Loading {
    logs: Arc<LogManager>,
    task: JoinHandle<()>,
    is_over: watch::Receiver<bool>,
}

/// What is needed to load logs and to let their partitions be used.
pub(super) struct LoadingParts {
    pub(super) me: BrokerId,
    pub(super) replicas: Arc<ReplicaManager>,
    pub(super) roles: Arc<Roles>,
    pub(super) store: Arc<dyn Store>,
    pub(super) producer_expiration_ms: i64,
    /// By the machine, not by a setting that few people tune: loading is bound by cores and the disk.
    pub(super) parallelism: usize,
    pub(super) clock: Clock,
}

impl Loading {
    pub(super) fn start(parts: LoadingParts) -> Loading {
        let logs = Arc::clone(parts.replicas.logs());
        let (over, is_over) = watch::channel(false);
        let task = task::spawn_owner("loading of logs", async move {
            run(parts).await;
            over.send_replace(true);
        });
        Loading { logs, task, is_over }
    }

    /// Waits until all is loaded, but not longer than this.
    pub(super) async fn over_within(&self, limit: Duration) {
        let mut is_over = self.is_over.clone();
        // An error says that the task is gone, which ends the process where it did not end well.
        let _ = tokio::time::timeout(limit, is_over.wait_for(|is_over| *is_over)).await;
    }

    /// Ends it, and waits until nothing touches the logs any more.
    pub(super) async fn stop(mut self) {
        self.logs.stop_loading();
        if let Err(error) = (&mut self.task).await {
            warn!(%error, "loading did not stop well");
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.logs.stop_loading();
    }
}

async fn run(parts: LoadingParts) {
    // Its length is bounded by the number of logs. The loader must not wait for roles: whoever gives them may be
    // waiting for the end of a load.
    let (sender, mut ready) = mpsc::unbounded_channel::<Vec<TopicPartition>>();
    let parts = Arc::new(parts);
    let load = {
        let parts = Arc::clone(&parts);
        task::blocking(move || {
            parts.load(&mut |loaded| drop(sender.send(loaded.to_vec())));
        })
    };
    while let Some(mut loaded) = ready.recv().await {
        while let Ok(more) = ready.try_recv() {
            loaded.extend(more);
        }
        let (roles, now) = (Arc::clone(&parts.roles), parts.clock.now());
        let failed = blocking(move || roles.logs_loaded(&loaded, now)).await;
        if !failed.is_empty() {
            parts.tell_controller().await;
        }
    }
    if let Err(error) = load.await {
        std::panic::resume_unwind(error.into_panic());
    }
}

impl LoadingParts {
    fn load(&self, ready: &mut dyn FnMut(&[TopicPartition])) {
        let config_of = |topic: &TopicName| self.replicas.topic_settings(topic).log.clone();
        let options = LoadAllOptions {
            config_of: &config_of,
            threads_per_directory: self.parallelism,
            producer_expiration_ms: self.producer_expiration_ms,
            now: self.clock.now(),
        };
        match self.replicas.logs().load_all(&options, ready) {
            Ok(()) | Err(LogError::Stopped) => {}
            Err(error) => error!(%error, "the logs were not loaded"),
        }
    }

    /// The controller believes that this broker serves replicas that it cannot serve: it asks for the state of all,
    /// as after the failure of a log directory.
    async fn tell_controller(&self) {
        let event = Create {
            path: format!("{}/{}", znodes::LOG_DIR_EVENTS, znodes::LOG_DIR_EVENT_PREFIX),
            data: Some(LogDirEvent { broker_id: self.me }.encode()),
            mode: CreateMode::PersistentSequential,
        };
        if let Err(error) = self.store.create(event).await {
            warn!(%error, "the controller was not told of replicas that are offline");
        }
    }
}
