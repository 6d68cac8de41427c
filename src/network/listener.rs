use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snafu::{ResultExt, Snafu};
use tracing::{debug, info, warn};

use super::connection::{Connection, ConnectionOptions};
use super::limits::{ConnectionTable, Refusal};
use super::memory::RequestMemory;
use crate::api::{ConnectionContext, Services};
use crate::observe::{Pace, Refused};
use crate::runtime::net::{Acceptor, ListenOptions, Network, Port, Stream};
use crate::runtime::task::{self, Shutdown};

/// Accepting pauses for so long when the process is out of file descriptors.
const OUT_OF_DESCRIPTORS_PAUSE: Duration = Duration::from_millis(100);
/// What is wrong with connections is told of so often at most.
const COMPLAINTS_INTERVAL: Duration = Duration::from_secs(1);
/// How long a full broker waits before it looks for room again.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// One listener's settings.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// The listener's name, such as `PLAINTEXT`.
    pub name: Arc<str>,
    /// Its place among the listeners, for metrics.
    pub position: usize,
    /// Host to bind; empty = all addresses.
    pub host: String,
    /// 0 = any free port.
    pub port: u16,
    /// `socket.listen.backlog.size`.
    pub backlog: i32,
    /// `socket.send.buffer.bytes`, `-1` = the system's default.
    pub send_buffer_bytes: i32,
    /// `socket.receive.buffer.bytes`, `-1` = the system's default.
    pub receive_buffer_bytes: i32,
    /// `socket.request.max.bytes`.
    pub request_bytes_max: usize,
    /// `connections.max.idle.ms`; `None` = never.
    pub idle_max: Option<Duration>,
}

#[derive(Debug, Snafu)]
#[snafu(display("listener {name} cannot bind {host}:{port}: {source}"))]
pub struct BindError {
    name: String,
    host: String,
    port: u16,
    source: io::Error,
}

/// A bound listener: its port is taken, but clients are refused until [`Listener::open`].
pub struct Listener {
    port: Port,
    options: ListenerOptions,
}

/// A listener that clients can connect to.
pub struct OpenListener {
    acceptor: Acceptor,
    options: ListenerOptions,
    /// Of connections that cannot be accepted.
    failures: Pace,
    /// Of connections that send what is no request.
    complaints: Arc<Pace>,
}

impl Listener {
    pub fn bind(options: ListenerOptions, network: &Network) -> Result<Listener, BindError> {
        let listen = ListenOptions {
            host: options.host.clone(),
            port: options.port,
            receive_buffer_bytes: options.receive_buffer_bytes,
        };
        let port = network.bind(&listen).context(BindSnafu {
            name: options.name.to_string(),
            host: options.host.clone(),
            port: options.port,
        })?;
        Ok(Listener { port, options })
    }

    pub fn name(&self) -> &Arc<str> {
        &self.options.name
    }

    /// The bound port, also where the settings say 0.
    pub fn port(&self) -> u16 {
        self.port.number().unwrap_or(self.options.port)
    }

    /// Lets clients connect. Must be called within a tokio runtime.
    pub fn open(self) -> Result<OpenListener, BindError> {
        let Listener { port, options } = self;
        let acceptor = port.open(options.backlog).context(BindSnafu {
            name: options.name.to_string(),
            host: options.host.clone(),
            port: options.port,
        })?;
        let pace = || Pace::new(COMPLAINTS_INTERVAL);
        Ok(OpenListener { acceptor, options, failures: pace(), complaints: Arc::new(pace()) })
    }
}

impl OpenListener {
    /// Accepts until shutdown; each connection is a task of its own.
    pub async fn serve(
        mut self,
        services: Arc<Services>,
        connections: Arc<ConnectionTable>,
        memory: Arc<RequestMemory>,
        shutdown: Shutdown,
    ) {
        info!(listener = %self.options.name, address = ?self.acceptor.local_addr().ok(), "listening");
        loop {
            let accepted = tokio::select! {
                accepted = self.accept_paced(&services, &connections) => accepted,
                () = shutdown.requested() => return,
            };
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer, &services, &connections, &memory, &shutdown),
                Err(error) => {
                    // EMFILE and the like: the connection stays in the backlog, trying again at once would spin.
                    if let Some(held_back) = self.failures.admit(Instant::now()) {
                        warn!(listener = %self.options.name, %error, held_back, "cannot accept connections, pausing");
                    }
                    tokio::time::sleep(OUT_OF_DESCRIPTORS_PAUSE).await;
                }
            }
        }
    }

    /// Accepts when the creation rate and the connection count allow.
    async fn accept_paced(
        &mut self,
        services: &Services,
        connections: &ConnectionTable,
    ) -> io::Result<(Stream, SocketAddr)> {
        while connections.is_full(&self.options.name) {
            tokio::time::sleep(FULL_PAUSE).await;
        }
        let accepted = self.acceptor.accept().await?;
        while let Err(Refusal::TooFast { wait_ms }) =
            connections.pace(&self.options.name, services.clock.now())
        {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
        Ok(accepted)
    }

    fn admit(
        &self,
        stream: Stream,
        peer: SocketAddr,
        services: &Arc<Services>,
        connections: &Arc<ConnectionTable>,
        memory: &Arc<RequestMemory>,
        shutdown: &Shutdown,
    ) {
        let address = peer.ip().to_canonical();
        let permit = match connections.admit(&self.options.name, address) {
            Ok(permit) => permit,
            Err(reason) => {
                services.metrics.connections_refused.at(refused(reason)).increment();
                debug!(listener = %self.options.name, client = %peer, ?reason, "connection refused");
                return;
            }
        };
        if let Err(error) = stream.tune_accepted(self.options.send_buffer_bytes) {
            debug!(listener = %self.options.name, client = %peer, %error, "connection lost while accepted");
            return;
        }
        services.metrics.connections_accepted.at(self.options.position.into()).increment();
        let context = Arc::new(ConnectionContext::new(Arc::clone(&self.options.name), peer));
        let options = ConnectionOptions {
            request_bytes_max: self.options.request_bytes_max,
            idle_max: self.options.idle_max,
            complaints: Arc::clone(&self.complaints),
        };
        let connection =
            Connection::new(stream, context, Arc::clone(services), options, memory, shutdown, permit);
        task::spawn("connection", connection.run());
    }
}

fn refused(refusal: Refusal) -> Refused {
    match refusal {
        Refusal::TooManyFromAddress => Refused::MaxConnectionsPerIp,
        Refusal::TooMany => Refused::MaxConnections,
        Refusal::TooFast { .. } => Refused::CreationRate,
    }
}
