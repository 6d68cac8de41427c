use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use snafu::Snafu;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connect_string::Server;
use super::protocol::{self, Connected};
use super::store::ZooKeeperOptions;
use crate::coordination::jute::Reader;

/// The ensemble as one session sees it: which server is next, and what makes the session go on there.
#[derive(Debug)]
pub(super) struct Peer {
    options: Arc<ZooKeeperOptions>,
    /// In an order of this session's own, so that many clients do not all go to the first.
    servers: Vec<Server>,
    next: usize,
    /// 0 = none yet.
    pub session: i64,
    pub password: Bytes,
    /// What was asked for, then what was negotiated.
    pub session_timeout: Duration,
    /// The last transaction that was heard of: no server that is behind it may be used.
    pub seen_zxid: i64,
}

/// A server with which the session goes on.
#[derive(Debug)]
pub(super) struct Link {
    pub server: String,
    pub stream: TcpStream,
    /// What has arrived and not been read as frames.
    pub input: BytesMut,
}

/// Why a server does not carry the session.
#[derive(Debug, Snafu)]
pub(super) enum LinkError {
    #[snafu(display("{server}: {reason}"))]
    Unreachable { server: String, reason: String },
    #[snafu(display("the session has expired"))]
    Expired,
}

/// The largest answer that is read. Kafka's clients take 4 MiB, which the names of 100,000 topics can exceed.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A server that is just starting sometimes takes a connection and never answers on it.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
const PASSWORD_BYTES: usize = 16;

impl Peer {
    pub fn new(options: Arc<ZooKeeperOptions>) -> Peer {
        let mut servers = options.connect.servers.clone();
        options.random.shuffle(&mut servers);
        Peer {
            servers,
            next: 0,
            session: 0,
            password: Bytes::from_static(&[0; PASSWORD_BYTES]),
            session_timeout: options.session_timeout,
            seen_zxid: 0,
            options,
        }
    }

    pub fn options(&self) -> &Arc<ZooKeeperOptions> {
        &self.options
    }

    /// Tries the next server.
    pub async fn link(&mut self) -> Result<Link, LinkError> {
        let at = self.next % self.servers.len().max(1);
        self.next = self.next.wrapping_add(1);
        let Some(Server { host, port }) = self.servers.get(at) else {
            return Err(LinkError::Unreachable {
                server: "nobody".to_owned(),
                reason: "no servers".to_owned(),
            });
        };
        let server = format!("{host}:{port}");
        // A dead server must leave time to try the others before the session ends, or its opening is given up.
        let whole = if self.session == 0 { self.options.connection_timeout } else { self.session_timeout };
        let share = whole / u32::try_from(self.servers.len()).unwrap_or(u32::MAX).max(1);
        let limit = share.min(ATTEMPT_MAX);
        let hello = self.hello();
        let handshake = handshake(host, *port, hello);
        let unreachable = |reason: String| LinkError::Unreachable { server: server.clone(), reason };
        let (stream, input, connected) = match timeout(limit, handshake).await {
            Ok(shaken) => shaken.map_err(|error| unreachable(error.to_string()))?,
            Err(_) => return Err(unreachable(format!("no answer within {} ms", limit.as_millis()))),
        };
        let Ok(negotiated_ms @ 1..) = u64::try_from(connected.timeout_ms) else {
            return Err(LinkError::Expired);
        };
        self.session = connected.session;
        self.password = connected.password;
        self.session_timeout = Duration::from_millis(negotiated_ms);
        Ok(Link { server, stream, input })
    }

    fn hello(&self) -> Bytes {
        let timeout_ms = i32::try_from(self.options.session_timeout.as_millis()).unwrap_or(i32::MAX);
        protocol::connect(self.seen_zxid, timeout_ms, self.session, &self.password)
    }
}

async fn handshake(host: &str, port: u16, hello: Bytes) -> std::io::Result<(TcpStream, BytesMut, Connected)> {
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&hello).await?;
    let mut input = BytesMut::new();
    loop {
        if let Some(frame) = take_frame(&mut input)? {
            let connected = Connected::decode(frame).map_err(malformed)?;
            return Ok((stream, input, connected));
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Takes a whole frame off the front; `None` = not all of it has arrived.
pub(super) fn take_frame(input: &mut BytesMut) -> std::io::Result<Option<Bytes>> {
    let Some(length) = input.first_chunk::<4>() else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    let length = usize::try_from(length).ok().filter(|&length| length <= FRAME_BYTES_MAX);
    let Some(length) = length else { return Err(malformed("a frame of impossible length")) };
    if input.len() < 4 + length {
        return Ok(None);
    }
    let mut frame = input.split_to(4 + length).freeze();
    Ok(Some(frame.split_off(4)))
}

pub(super) fn malformed(error: impl ToString) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string())
}

/// Reads the header and leaves the rest.
pub(super) fn open_frame(frame: Bytes) -> std::io::Result<(protocol::ReplyHeader, Reader)> {
    let mut reader = Reader::new(frame);
    let header = protocol::ReplyHeader::decode(&mut reader).map_err(malformed)?;
    Ok((header, reader))
}
