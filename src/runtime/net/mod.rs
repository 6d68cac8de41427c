//! Connections: the machine's sockets, or ones in memory between the hosts of a simulation.
//!
//! [`Network`] is what a host connects and listens through; what it gives is of one kind or the other. Both are read and
//! written in the same way: a [`Stream`] says when it is ready and never waits by itself.

mod memory;
mod socket;

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

pub use memory::{Delays, MemoryNetwork};

use super::fs::File;
use memory::{MemoryAcceptor, MemoryHost, MemoryPort, MemoryStream};

/// What a host connects and listens through. Cheap to clone.
#[derive(Clone)]
pub struct Network(Source);

#[derive(Clone)]
enum Source {
    System,
    Memory(MemoryHost),
}

/// Where and how to listen.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Empty = all addresses.
    pub host: String,
    /// 0 = any free port.
    pub port: u16,
    /// `-1` = the system's default.
    pub receive_buffer_bytes: i32,
}

/// A port that is taken, on which nobody can connect yet.
pub struct Port(PortKind);

enum PortKind {
    Socket(socket2::Socket),
    Memory(MemoryPort),
}

/// A port that can be connected to.
pub struct Acceptor(AcceptorKind);

enum AcceptorKind {
    Socket(TcpListener),
    Memory(MemoryAcceptor),
}

/// A connection, as both of its ends have it.
pub struct Stream(StreamKind);

enum StreamKind {
    Socket(TcpStream),
    Memory(MemoryStream),
}

/// A full buffer grows by so much.
const READ_BYTES_MIN: usize = 64;

/// The two directions of a connection. Dropping the second ends what the other side reads.
pub type Halves = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

impl Network {
    /// The network of this machine.
    pub fn system() -> Network {
        Network(Source::System)
    }

    pub async fn connect(&self, host: &str, port: u16) -> io::Result<Stream> {
        let stream = match &self.0 {
            Source::System => StreamKind::Socket(TcpStream::connect((host, port)).await?),
            Source::Memory(memory) => StreamKind::Memory(memory.connect(host, port).await?),
        };
        Ok(Stream(stream))
    }

    /// Takes a port; clients are refused until [`Port::open`].
    pub fn bind(&self, options: &ListenOptions) -> io::Result<Port> {
        let port = match &self.0 {
            Source::System => PortKind::Socket(socket::bind(options)?),
            Source::Memory(memory) => PortKind::Memory(memory.bind(options.port)?),
        };
        Ok(Port(port))
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::System => f.write_str("System"),
            Source::Memory(host) => write!(f, "Memory({})", host.name()),
        }
    }
}

impl Port {
    /// The number of the port, also where any was asked for. `None` if the system does not know it.
    pub fn number(&self) -> Option<u16> {
        match &self.0 {
            PortKind::Socket(socket) => Some(socket.local_addr().ok()?.as_socket()?.port()),
            PortKind::Memory(port) => Some(port.number()),
        }
    }

    /// Lets clients connect. Must be called within a tokio runtime.
    pub fn open(self, backlog: i32) -> io::Result<Acceptor> {
        let acceptor = match self.0 {
            PortKind::Socket(socket) => {
                socket.listen(backlog.max(1))?;
                AcceptorKind::Socket(TcpListener::from_std(socket.into())?)
            }
            PortKind::Memory(port) => AcceptorKind::Memory(port.open()),
        };
        Ok(Acceptor(acceptor))
    }
}

impl Acceptor {
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            AcceptorKind::Socket(listener) => listener.local_addr(),
            AcceptorKind::Memory(acceptor) => Ok(acceptor.address()),
        }
    }

    pub async fn accept(&mut self) -> io::Result<(Stream, SocketAddr)> {
        match &mut self.0 {
            AcceptorKind::Socket(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream(StreamKind::Socket(stream)), peer))
            }
            AcceptorKind::Memory(acceptor) => {
                let (stream, peer) = acceptor.accept().await?;
                Ok((Stream(StreamKind::Memory(stream)), peer))
            }
        }
    }
}

impl Stream {
    /// For a connection that a client made: small answers at once, a peer that vanished is found out.
    /// `send_buffer_bytes` of 0 or less leaves the system's default.
    pub fn tune_accepted(&self, send_buffer_bytes: i32) -> io::Result<()> {
        match &self.0 {
            StreamKind::Socket(socket) => socket::tune_accepted(socket, send_buffer_bytes),
            StreamKind::Memory(_) => Ok(()),
        }
    }

    /// Small writes are sent at once.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match &self.0 {
            StreamKind::Socket(socket) => socket.set_nodelay(true),
            StreamKind::Memory(_) => Ok(()),
        }
    }

    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            StreamKind::Socket(socket) => socket.poll_read_ready(context),
            StreamKind::Memory(memory) => memory.incoming.poll_readable(context),
        }
    }

    pub fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.0 {
            StreamKind::Socket(socket) => socket.poll_write_ready(context),
            StreamKind::Memory(memory) => memory.outgoing.poll_writable(context),
        }
    }

    /// Appends what is there, as far as the buffer has room; 0 = the other side has ended it.
    pub fn try_read_buf(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        match &self.0 {
            StreamKind::Socket(socket) => socket.try_read_buf(buffer),
            StreamKind::Memory(memory) => {
                let room = (buffer.capacity() - buffer.len()).max(READ_BYTES_MIN);
                let bytes = memory.incoming.try_read(room)?;
                buffer.extend_from_slice(&bytes);
                Ok(bytes.len())
            }
        }
    }

    pub fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.0 {
            StreamKind::Socket(socket) => socket.try_write_vectored(parts),
            StreamKind::Memory(memory) => memory.outgoing.try_write(parts),
        }
    }

    /// Writes what more will follow at once: it may be held back until then, for one packet instead of two.
    pub fn try_write_more(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            StreamKind::Socket(socket) => socket::try_write_more(socket, bytes),
            StreamKind::Memory(memory) => memory.outgoing.try_write(&[IoSlice::new(bytes)]),
        }
    }

    /// Writes up to `size_bytes_max` bytes of a file, without copying them where both are the machine's.
    pub fn try_write_file(&self, file: &dyn File, position: u64, size_bytes_max: usize) -> io::Result<usize> {
        if let (StreamKind::Socket(socket), Some(descriptor)) = (&self.0, file.as_fd()) {
            return socket::try_send_file(socket, descriptor, position, size_bytes_max);
        }
        let mut buffer = vec![0; size_bytes_max];
        let read = file.read_at(&mut buffer, position)?;
        self.try_write_vectored(&[IoSlice::new(buffer.get(..read).unwrap_or_default())])
    }

    pub fn into_split(self) -> Halves {
        match self.0 {
            StreamKind::Socket(socket) => {
                let (read, write) = socket.into_split();
                (Box::new(read), Box::new(write))
            }
            StreamKind::Memory(memory) => (Box::new(memory.incoming), Box::new(memory.outgoing)),
        }
    }
}
