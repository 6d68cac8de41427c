use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use snafu::ResultExt;
use tracing::warn;

use super::error::*;
use super::zookeeper::{self, milliseconds, request_bytes_max};
use crate::config::BrokerConfig;
use crate::coordination::{
    BoundServer, EmbeddedStore, EmbeddedStoreOptions, Ensemble, FourLetterWords, LastingSessions, Store,
    StoreError, ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer, ZooKeeperServerOptions,
};
use crate::runtime::fs::{Durability, FileSystem};
use crate::runtime::{Clock, Random};

/// Where the broker's sessions come from.
pub(super) struct Backend {
    /// Other processes' way to the embedded store. Ends before the store does.
    _server: Option<ZooKeeperServer>,
    ensemble: Box<dyn Ensemble>,
    /// `embedded`, or the ensemble as `zookeeper.connect` names it.
    pub name: String,
    /// How long the registration of an earlier life of this broker may stand in the way.
    pub registration_patience: Duration,
    /// It lives in this process, and is opened once: when its disk has failed, it is back with the next start. An ensemble
    /// is waited for.
    pub is_embedded: bool,
}

/// Added to the time in which an ensemble ends an earlier session of this broker. The embedded store ends it at once;
/// writing the registration takes a moment all the same.
const REGISTRATION_SLACK: Duration = Duration::from_secs(10);

impl Backend {
    /// `zookeeper.connect` names an ensemble; without it the store lies in the first log folder, and `port` is served.
    pub async fn open(
        config: &BrokerConfig,
        file_system: Arc<dyn FileSystem>,
        paths: &[PathBuf],
        port: Option<BoundServer>,
        clock: &Clock,
        random: &Random,
    ) -> Result<Backend, StartError> {
        match config.zookeeper_connect() {
            None => {
                let lasting_sessions =
                    if port.is_some() { LastingSessions::Kept } else { LastingSessions::Ended };
                let store = open_embedded(file_system, paths, lasting_sessions, clock)?;
                let server = match port {
                    Some(port) => {
                        Some(port.serve(&store, server_options(config)).await.context(StartThreadSnafu)?)
                    }
                    None => None,
                };
                Ok(Backend {
                    _server: server,
                    ensemble: Box::new(store),
                    name: "embedded".to_owned(),
                    registration_patience: REGISTRATION_SLACK,
                    is_embedded: true,
                })
            }
            Some(connect) => {
                let ensemble = open_zookeeper(zookeeper::options(config, connect, random)?).await?;
                Ok(Backend { name: connect.to_owned(), ..Backend::joined(config, Box::new(ensemble)) })
            }
        }
    }

    /// An ensemble that others use as well.
    pub fn joined(config: &BrokerConfig, ensemble: Box<dyn Ensemble>) -> Backend {
        Backend {
            _server: None,
            ensemble,
            name: "ensemble".to_owned(),
            registration_patience: milliseconds(config.zookeeper_session_timeout_ms()) + REGISTRATION_SLACK,
            is_embedded: false,
        }
    }

    pub async fn session(&self) -> Result<Arc<dyn Store>, StoreError> {
        self.ensemble.open_session().await
    }
}

fn open_embedded(
    file_system: Arc<dyn FileSystem>,
    paths: &[PathBuf],
    lasting_sessions: LastingSessions,
    clock: &Clock,
) -> Result<EmbeddedStore, StartError> {
    let dir = paths.first().cloned().unwrap_or_default();
    let options = EmbeddedStoreOptions {
        file_system,
        dir: dir.clone(),
        clock: clock.clone(),
        durability: Durability::Synced,
        lasting_sessions,
    };
    let opened = EmbeddedStore::open(options)?;
    if opened.cut_bytes > 0 {
        warn!(dir = %dir.display(), bytes = opened.cut_bytes, "cut an unfinished write off the store's log");
    }
    Ok(opened.store)
}

/// Takes the port of `barnabas.zookeeper.listener`.
pub(super) fn bind_port(config: &BrokerConfig) -> Result<Option<BoundServer>, StartError> {
    let Some(address) = config.zookeeper_listener() else { return Ok(None) };
    if config.zookeeper_connect().is_some() {
        warn!("barnabas.zookeeper.listener is passed over: the store is the one of zookeeper.connect");
        return Ok(None);
    }
    Ok(Some(BoundServer::bind(address)?))
}

fn server_options(config: &BrokerConfig) -> ZooKeeperServerOptions {
    ZooKeeperServerOptions {
        request_bytes_max: request_bytes_max(config),
        words: FourLetterWords::parse(config.zookeeper_4lw_whitelist()),
        ..ZooKeeperServerOptions::default()
    }
}

async fn open_zookeeper(options: ZooKeeperOptions) -> Result<ZooKeeperEnsemble, StartError> {
    let ensemble = ZooKeeperEnsemble::new(options).context(StartThreadSnafu)?;
    ensemble.create_chroot().await.context(StoreSnafu)?;
    Ok(ensemble)
}
