use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use snafu::Snafu;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connect_string::Server;
use super::protocol::{self, Connected};
use super::sasl::{Exchange, SaslIdentity};
use super::store::ZooKeeperOptions;
use crate::coordination::codes;
use crate::coordination::jute::Reader;
use crate::runtime::net::Halves;

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
pub(super) struct Link {
    pub server: String,
    pub halves: Halves,
    /// What has arrived and not been read as frames.
    pub input: BytesMut,
}

/// Why a server does not carry the session.
#[derive(Debug, Snafu)]
pub(super) enum LinkError {
    #[snafu(display("{server}: {reason}"))]
    Unreachable { server: String, reason: String },
    /// The server, or this client, does not believe the other to be who it says.
    #[snafu(display("{server} and this broker do not authenticate each other: {reason}"))]
    NotAuthenticated { server: String, reason: String },
    #[snafu(display("the session has expired"))]
    Expired,
}

/// The largest answer that is read. Kafka's clients take 4 MiB, which the names of 100,000 topics can exceed.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A server that is just starting sometimes takes a connection and never answers on it.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
const PASSWORD_BYTES: usize = 16;
const NONCE_BYTES: usize = 16;

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
        let Some(to) = self.servers.get(at) else {
            return Err(LinkError::Unreachable {
                server: "nobody".to_owned(),
                reason: "no servers".to_owned(),
            });
        };
        let server = format!("{}:{}", to.host, to.port);
        // A dead server must leave time to try the others before the session ends, or its opening is given up.
        let whole = if self.session == 0 { self.options.connection_timeout } else { self.session_timeout };
        let share = whole / u32::try_from(self.servers.len()).unwrap_or(u32::MAX).max(1);
        let limit = share.min(ATTEMPT_MAX);
        let handshake = handshake(&self.options, to, self.hello());
        let Shaken { halves, input, connected } = match timeout(limit, handshake).await {
            Ok(Ok(shaken)) => shaken,
            Ok(Err(ShakeError::Io { source })) => {
                return Err(LinkError::Unreachable { server, reason: source.to_string() });
            }
            Ok(Err(ShakeError::NotAuthenticated { reason })) => {
                return Err(LinkError::NotAuthenticated { server, reason });
            }
            Err(_) => {
                let reason = format!("no answer within {} ms", limit.as_millis());
                return Err(LinkError::Unreachable { server, reason });
            }
        };
        let Ok(negotiated_ms @ 1..) = u64::try_from(connected.timeout_ms) else {
            return Err(LinkError::Expired);
        };
        self.session = connected.session;
        self.password = connected.password;
        self.session_timeout = Duration::from_millis(negotiated_ms);
        Ok(Link { server, halves, input })
    }

    fn hello(&self) -> Bytes {
        let timeout_ms = i32::try_from(self.options.session_timeout.as_millis()).unwrap_or(i32::MAX);
        protocol::connect(self.seen_zxid, timeout_ms, self.session, &self.password)
    }
}

struct Shaken {
    halves: Halves,
    input: BytesMut,
    connected: Connected,
}

enum ShakeError {
    Io { source: std::io::Error },
    NotAuthenticated { reason: String },
}

impl From<std::io::Error> for ShakeError {
    fn from(source: std::io::Error) -> ShakeError {
        ShakeError::Io { source }
    }
}

async fn handshake(options: &ZooKeeperOptions, to: &Server, hello: Bytes) -> Result<Shaken, ShakeError> {
    let mut halves = connect(options, to).await?;
    let mut input = BytesMut::new();
    write(&mut halves, &hello).await?;
    let connected = Connected::decode(next_frame(&mut halves, &mut input).await?).map_err(malformed)?;
    // Whose session has expired needs no name.
    if let (Some(identity), 1..) = (&options.sasl, connected.timeout_ms) {
        let nonce: String =
            options.random.bytes::<NONCE_BYTES>().iter().map(|byte| format!("{byte:02x}")).collect();
        authenticate(identity, nonce, &mut halves, &mut input).await?;
    }
    Ok(Shaken { halves, input, connected })
}

async fn connect(options: &ZooKeeperOptions, Server { host, port }: &Server) -> Result<Halves, ShakeError> {
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = &options.tls else {
        let (reader, writer) = stream.into_split();
        return Ok((Box::new(reader), Box::new(writer)));
    };
    let stream = tls.connect(host, stream).await.map_err(|error| match error.kind() {
        // What TLS says of a certificate or of an alert, not of a connection.
        std::io::ErrorKind::InvalidData => ShakeError::NotAuthenticated { reason: error.to_string() },
        _ => ShakeError::Io { source: error },
    })?;
    let (reader, writer) = tokio::io::split(stream);
    Ok((Box::new(reader), Box::new(writer)))
}

/// The server asks, the client answers, and the server proves that it knows the password as well.
async fn authenticate(
    identity: &SaslIdentity,
    nonce: String,
    halves: &mut Halves,
    input: &mut BytesMut,
) -> Result<(), ShakeError> {
    let refused = |error: super::sasl::SaslError| ShakeError::NotAuthenticated { reason: error.to_string() };
    let mut exchange = Exchange::new(identity, nonce);
    let challenge = ask(halves, input, &[]).await?;
    let answer = exchange.answer(&challenge).map_err(refused)?;
    let last = ask(halves, input, answer.as_bytes()).await?;
    exchange.finish(&last).map_err(refused)
}

async fn ask(halves: &mut Halves, input: &mut BytesMut, token: &[u8]) -> Result<Bytes, ShakeError> {
    write(halves, &protocol::sasl(token)).await?;
    let (header, mut reader) = open_frame(next_frame(halves, input).await?)?;
    match header.code {
        codes::CODE_OK if header.xid == codes::XID_SASL => {
            Ok(reader.buffer().map_err(malformed)?.unwrap_or_default())
        }
        codes::CODE_AUTH_FAILED | codes::CODE_SASL_REQUIRED => {
            Err(ShakeError::NotAuthenticated { reason: "it does not accept the user".to_owned() })
        }
        code => Err(malformed(format!("code {code} in place of a challenge")).into()),
    }
}

async fn write((_, writer): &mut Halves, frame: &[u8]) -> std::io::Result<()> {
    writer.write_all(frame).await?;
    writer.flush().await
}

async fn next_frame((reader, _): &mut Halves, input: &mut BytesMut) -> std::io::Result<Bytes> {
    loop {
        if let Some(frame) = take_frame(input)? {
            return Ok(frame);
        }
        if reader.read_buf(input).await? == 0 {
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
