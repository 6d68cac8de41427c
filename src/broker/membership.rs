//! The broker's part in the cluster from one session to the next: registered, and standing for controller.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{error, info, warn};

use super::backend::Backend;
use super::ports::SharedRegistration;
use crate::controller::registration::{self, RegistrationError};
use crate::controller::{ControlChannel, Controller, ControllerEnd};
use crate::coordination::{CurrentSession, SessionState, Store, StoreError};
use crate::replica::ReplicaManager;
use crate::runtime::task::Shutdown;

/// Owns the controller, and brings the broker back when its session has expired.
pub(super) struct Membership {
    pub backend: Arc<Backend>,
    /// The session that everybody else uses, whichever it is.
    pub current: Arc<CurrentSession>,
    pub cluster_id: String,
    pub registration: SharedRegistration,
    pub replicas: Arc<ReplicaManager>,
    pub controller: Controller,
    pub channel: Arc<dyn ControlChannel>,
}

/// Before a session is opened again, as Kafka.
const PAUSE: Duration = Duration::from_secs(1);

impl Membership {
    /// Runs until the broker stops. `session` is one in which the broker is registered.
    pub async fn run(mut self, mut session: Arc<dyn Store>, shutdown: Shutdown) {
        loop {
            let channel = Arc::clone(&self.channel);
            let ended = self.controller.run(Arc::clone(&session), channel, shutdown.requested()).await;
            // A start that is given up closes its session, and the end of that may be heard of first.
            let ended = if shutdown.is_requested() { ControllerEnd::Stopped } else { ended };
            match ended {
                ControllerEnd::Stopped => {
                    info!("the controller stopped");
                    return;
                }
                ControllerEnd::SessionExpired => warn!("the session expired: joining the cluster again"),
                ControllerEnd::StoreFailed(error) => error!(%error, "the controller cannot use the store"),
            }
            if session.session_state() != SessionState::Expired {
                sleep(PAUSE).await;
                continue;
            }
            let joined = tokio::select! {
                joined = self.join_again() => joined,
                () = shutdown.requested() => return,
            };
            match joined {
                Some(joined) => session = joined,
                None => return shutdown.requested().await,
            }
        }
    }

    /// `None` when the embedded store has failed. What is led is led on, as while an ensemble is out of reach: records and
    /// offsets in the log directories that work need no store.
    async fn join_again(&self) -> Option<Arc<dyn Store>> {
        loop {
            match self.backend.session().await {
                Ok(session) => match self.register(&*session).await {
                    Ok(()) => {
                        self.current.replace(Arc::clone(&session));
                        return Some(session);
                    }
                    Err(error) => {
                        match error {
                            // The session says so itself, and the next one is on its way.
                            RegistrationError::Store { source: StoreError::SessionExpired } => {
                                info!("the session expired before the broker was registered in it");
                            }
                            error => error!(%error, "the broker is not registered"),
                        }
                        // Its ephemeral nodes must not stay behind; when this fails they expire.
                        let _ = session.close().await;
                    }
                },
                Err(error @ StoreError::Failed { .. }) if self.backend.is_embedded => {
                    error!(%error, "serving on without the store: it is opened again with the next start");
                    return None;
                }
                Err(error) => warn!(%error, "no session, trying again"),
            }
            sleep(PAUSE).await;
        }
    }

    async fn register(&self, session: &dyn Store) -> Result<(), RegistrationError> {
        let patience = self.backend.registration_patience;
        let registration = self.registration.lock().clone();
        let registered =
            registration::register_again(session, &registration, &self.cluster_id, patience).await?;
        self.replicas.registered(registered);
        Ok(())
    }
}
