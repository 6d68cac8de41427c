use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use snafu::{ResultExt, Snafu};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{debug, info, warn};

use super::connection;
use super::counters::Counters;
use super::outbox::Outbox;
use super::sessions::{ConnectionId, Moment, Sessions};
use super::words::{self, FourLetterWords};
use crate::coordination::embedded::{EmbeddedStore, RemoteStore};
use crate::coordination::store::{Create, CreateMode, Store, StoreError};
use crate::runtime::task::{self, Aside, Shutdown, ShutdownTrigger};

/// How the port behaves; the defaults are ZooKeeper's.
#[derive(Clone, Debug)]
pub struct ZooKeeperServerOptions {
    /// Sessions end at multiples of it, and ask for at least two and at most twenty.
    pub tick: Duration,
    /// `jute.maxbuffer`: the largest request that is read.
    pub request_bytes_max: usize,
    pub words: FourLetterWords,
}

impl Default for ZooKeeperServerOptions {
    fn default() -> ZooKeeperServerOptions {
        ZooKeeperServerOptions {
            tick: Duration::from_secs(2),
            request_bytes_max: 0xf_ffff,
            words: FourLetterWords::default(),
        }
    }
}

/// The port is taken, and nobody is served yet.
#[derive(Debug)]
pub struct BoundServer {
    listener: StdListener,
    address: SocketAddr,
}

/// A running port. Dropping it closes the connections; sessions stay in the store.
pub struct ZooKeeperServer {
    address: SocketAddr,
    shutdown: ShutdownTrigger,
    /// Busy workers must not let sessions expire.
    _aside: Aside,
}

#[derive(Debug, Snafu)]
#[snafu(display("barnabas.zookeeper.listener={address} cannot be bound: {source}"))]
pub struct BindServerError {
    address: String,
    source: io::Error,
}

/// All that the connections share.
#[derive(Debug)]
pub(super) struct Server {
    pub options: ZooKeeperServerOptions,
    pub address: SocketAddr,
    pub store: RemoteStore,
    /// Never held while the store is called: the store gives answers under its own lock.
    pub sessions: Mutex<Sessions>,
    pub counters: Arc<Counters>,
    pub large_frames: Arc<Semaphore>,
    connections: Mutex<BTreeMap<ConnectionId, ConnectionInfo>>,
    last_connection: AtomicU64,
    started: Instant,
}

/// A connection that holds a session.
#[derive(Clone, Debug)]
pub(super) struct ConnectionInfo {
    pub peer: SocketAddr,
    pub session: i64,
    pub timeout_ms: i32,
    pub outbox: Arc<Outbox>,
    pub counters: Arc<Counters>,
}

/// Connections beyond it wait. With [`connection::SMALL_FRAME_BYTES`] for each it bounds what strangers can have held.
const CONNECTIONS_MAX: usize = 4_096;
/// Large requests that are read at the same time.
const LARGE_FRAMES_MAX: usize = 64;
/// Accepting pauses for so long when the process is out of file descriptors.
const OUT_OF_DESCRIPTORS_PAUSE: Duration = Duration::from_millis(100);

impl BoundServer {
    /// `host:port`; without a host all addresses.
    pub fn bind(address: &str) -> Result<BoundServer, BindServerError> {
        let bind = || {
            let listener = match address.strip_prefix(':') {
                Some(port) => StdListener::bind(format!("[::]:{port}"))
                    .or_else(|_| StdListener::bind(format!("0.0.0.0:{port}"))),
                None => StdListener::bind(address),
            }?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(BoundServer { listener, address })
        };
        bind().context(BindServerSnafu { address })
    }

    /// Serves the store until the server is dropped.
    ///
    /// Fails when no thread can be started, or the store is not to be written.
    pub async fn serve(
        self,
        store: &EmbeddedStore,
        options: ZooKeeperServerOptions,
    ) -> io::Result<ZooKeeperServer> {
        create_own_nodes(store).await.map_err(io::Error::other)?;
        let BoundServer { listener, address } = self;
        let server = Arc::new(Server::new(store.remote(), address, options));
        let aside = Aside::start("zookeeper-port")?;
        let (shutdown, stopping) = ShutdownTrigger::new();
        aside.spawn_owner("zookeeper sessions", expire_sessions(Arc::clone(&server), stopping.clone()));
        aside.spawn_owner("zookeeper listener", accept(server, listener, stopping));
        Ok(ZooKeeperServer { address, shutdown, _aside: aside })
    }
}

impl ZooKeeperServer {
    /// With the port that was bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ZooKeeperServer {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

/// What every ZooKeeper has.
async fn create_own_nodes(store: &EmbeddedStore) -> Result<(), StoreError> {
    let session = store.session()?;
    for path in ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"] {
        let node =
            Create { path: path.to_owned(), data: Some(Default::default()), mode: CreateMode::Persistent };
        match session.create(node).await {
            Ok(_) | Err(StoreError::NodeExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    session.close().await
}

/// A new session's password. Nobody may guess it, so it is made of keyed hashes whose keys are the system's randomness.
pub(super) fn new_password() -> [u8; 16] {
    let mut password = [0; 16];
    for half in password.as_chunks_mut::<8>().0 {
        *half = RandomState::new().hash_one("session").to_be_bytes();
    }
    password
}

async fn accept(server: Arc<Server>, listener: StdListener, shutdown: Shutdown) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return warn!(%error, "the ZooKeeper port cannot be served"),
    };
    info!(address = %server.address, "listening for ZooKeeper clients");
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let accept_all = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        debug!(client = %peer, %error, "connection lost while accepted");
                        continue;
                    }
                    let id = server.next_connection();
                    let serve = connection::serve(Arc::clone(&server), id, stream, peer, shutdown.clone());
                    task::spawn("zookeeper connection", async move {
                        serve.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept ZooKeeper clients, pausing");
                    sleep(OUT_OF_DESCRIPTORS_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept_all => {}
        () = shutdown.requested() => {}
    }
}

async fn expire_sessions(server: Arc<Server>, shutdown: Shutdown) {
    let mut ticks = interval(server.options.tick / 4);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let expire_all = async {
        loop {
            ticks.tick().await;
            let expired = server.sessions.lock().expire(server.now());
            for (session, held_by) in expired {
                info!(session = format_args!("{session:#x}"), "a ZooKeeper session has expired");
                server.store.end_session(session, |_| {});
                if let Some(connection) = held_by {
                    server.close_connection(connection);
                }
            }
        }
    };
    tokio::select! {
        () = expire_all => {}
        () = shutdown.requested() => {}
    }
}

impl Server {
    fn new(store: RemoteStore, address: SocketAddr, options: ZooKeeperServerOptions) -> Server {
        let tick_ms = u64::try_from(options.tick.as_millis()).unwrap_or(u64::MAX);
        let mut sessions = Sessions::new(tick_ms);
        // Their clients have a whole timeout to come back.
        for (session, terms) in store.sessions() {
            sessions.add(session, terms, None, Moment(0));
        }
        Server {
            options,
            address,
            store,
            sessions: Mutex::new(sessions),
            counters: Arc::new(Counters::new(None)),
            large_frames: Arc::new(Semaphore::new(LARGE_FRAMES_MAX)),
            connections: Mutex::default(),
            last_connection: AtomicU64::new(0),
            started: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> Moment {
        Moment(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The session timeout for one that was asked for.
    pub(super) fn negotiate(&self, timeout_ms: i32) -> i32 {
        timeout_ms.clamp(self.session_timeout_ms(2), self.session_timeout_ms(20))
    }

    pub(super) fn session_timeout_ms(&self, ticks: u32) -> i32 {
        i32::try_from((self.options.tick * ticks).as_millis()).unwrap_or(i32::MAX)
    }

    pub(super) fn say(&self, word: &str) -> String {
        words::say(self, word)
    }

    pub(super) fn connections(&self) -> Vec<ConnectionInfo> {
        self.connections.lock().values().cloned().collect()
    }

    pub(super) fn remember_connection(&self, id: ConnectionId, info: ConnectionInfo) {
        self.connections.lock().insert(id, info);
    }

    pub(super) fn forget_connection(&self, id: ConnectionId) {
        self.connections.lock().remove(&id);
    }

    pub(super) fn close_connection(&self, id: ConnectionId) {
        if let Some(info) = self.connections.lock().get(&id) {
            info.outbox.close();
        }
    }

    fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.last_connection.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
