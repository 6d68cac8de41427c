use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use snafu::{ResultExt, Snafu, ensure};

use crate::coordination::{
    AclPolicy, ConnectString, EmbeddedStore, EmbeddedStoreOptions, Ensemble, InvalidConnectString,
    LastingSessions, OpenStoreError, Store, StoreError, ZooKeeperEnsemble, ZooKeeperOptions,
};
use crate::log::{LogDirectories, LogError};
use crate::runtime::fs::{DiskFileSystem, Durability};
use crate::runtime::{Clock, Random};

/// A store that a command works on: in a folder, or an ensemble.
#[derive(clap::Args, Debug, Default)]
#[group(required = true, multiple = false)]
pub(super) struct PlaceArguments {
    /// The first folder of log.dirs, where the embedded store lies; its broker must be stopped.
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,

    /// An ensemble, as zookeeper.connect names it.
    #[arg(long, value_name = "HOST:PORT,…/CHROOT")]
    pub zookeeper: Option<String>,
}

#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub(super) enum PlaceError {
    #[snafu(display("{} holds no embedded store", folder.display()))]
    NoStore { folder: PathBuf },
    #[snafu(display("cannot read {}: {source}", path.display()))]
    Read { path: PathBuf, source: std::io::Error },
    #[snafu(transparent)]
    Folder { source: LogError },
    #[snafu(transparent)]
    Open { source: OpenStoreError },
    #[snafu(transparent)]
    ConnectString { source: InvalidConnectString },
    #[snafu(display("cannot start a thread: {source}"))]
    StartThread { source: std::io::Error },
    #[snafu(transparent)]
    Store { source: StoreError },
}

/// An open store, which is closed when it is dropped.
pub(super) struct OpenPlace {
    pub session: Arc<dyn Store>,
    /// Declared after the session, and before the lock of the folder.
    _ensemble: Box<dyn Ensemble>,
    _lock: Option<LogDirectories>,
}

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15);

impl PlaceArguments {
    pub async fn open(&self) -> Result<OpenPlace, PlaceError> {
        match (&self.folder, &self.zookeeper) {
            (Some(folder), _) => open_folder(folder).await,
            (None, Some(connect)) => open_zookeeper(connect).await,
            (None, None) => unreachable!("the parser asks for one of the two"),
        }
    }
}

/// Opens a store that is there already. Refused while a broker uses the folder.
async fn open_folder(folder: &Path) -> Result<OpenPlace, PlaceError> {
    ensure!(has_store(folder)?, NoStoreSnafu { folder });
    begin_folder(folder).await
}

/// Opens a folder's store, or begins one.
pub(super) async fn begin_folder(folder: &Path) -> Result<OpenPlace, PlaceError> {
    let lock = LogDirectories::open(Arc::new(DiskFileSystem), &[folder.to_owned()], 16)?;
    let store = open_or_create(folder)?;
    Ok(OpenPlace { session: store.open_session().await?, _ensemble: Box::new(store), _lock: Some(lock) })
}

pub(super) fn open_or_create(folder: &Path) -> Result<EmbeddedStore, OpenStoreError> {
    let opened = EmbeddedStore::open(EmbeddedStoreOptions {
        file_system: Arc::new(DiskFileSystem),
        dir: folder.to_owned(),
        clock: Clock::system(),
        durability: Durability::Synced,
        lasting_sessions: LastingSessions::Kept,
    })?;
    Ok(opened.store)
}

pub(super) fn has_store(folder: &Path) -> Result<bool, PlaceError> {
    EmbeddedStore::exists(&DiskFileSystem, folder).context(ReadSnafu { path: folder })
}

pub(super) async fn open_zookeeper(connect: &str) -> Result<OpenPlace, PlaceError> {
    let ensemble = ZooKeeperEnsemble::new(ZooKeeperOptions {
        connect: ConnectString::parse(connect)?,
        session_timeout: CONNECTION_TIMEOUT,
        connection_timeout: CONNECTION_TIMEOUT,
        in_flight_max: 100,
        request_bytes_max: 0xf_ffff,
        acl: AclPolicy::Open,
        auth: Vec::new(),
        sasl: None,
        tls: None,
        random: Random::from_entropy(),
    })
    .context(StartThreadSnafu)?;
    ensemble.create_chroot().await?;
    Ok(OpenPlace { session: ensemble.open_session().await?, _ensemble: Box::new(ensemble), _lock: None })
}

/// Runs a command's calls of a store on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, PlaceError>>) -> Result<T, PlaceError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context(StartThreadSnafu)?.block_on(work)
}
