use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;
use tracing::{debug, info};

use super::counters::Counters;
use super::handler::{Handler, Next};
use super::listener::{ConnectionInfo, Server, new_password};
use super::outbox::{Message, Outbox};
use super::protocol::{self, ConnectRequest};
use super::sessions::ConnectionId;
use super::words;
use crate::coordination::access::identity_of_address;
use crate::coordination::tree::SessionTerms;
use crate::runtime::task::Shutdown;

/// Whoever has not said by then who they are is sent away, as by ZooKeeper.
const GREETING_MAX: Duration = Duration::from_secs(10);
/// A greeting takes 45 bytes with the password that the server gave.
const GREETING_BYTES_MAX: usize = 1024;
/// A frame that is larger needs one of the server's places for large ones before more of it is read.
pub(super) const SMALL_FRAME_BYTES: usize = 16 * 1024;
/// Bytes that wait for the socket before further answers are taken.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
const PASSWORD_BYTES: usize = 16;

/// Serves one connection to its end.
pub(super) async fn serve(
    server: Arc<Server>,
    id: ConnectionId,
    stream: TcpStream,
    peer: SocketAddr,
    shutdown: Shutdown,
) {
    let served = async {
        let mut connection =
            Connection { server: Arc::clone(&server), id, peer, stream, input: BytesMut::new() };
        match timeout(GREETING_MAX, connection.greeting()).await {
            Ok(Ok(Greeting::Word(word))) => connection.say(&word).await,
            Ok(Ok(Greeting::Connect(request))) => connection.connect(request).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    };
    let ended = tokio::select! {
        ended = served => ended,
        () = shutdown.requested() => Ok(()),
    };
    if let Err(error) = ended {
        debug!(client = %peer, %error, "a ZooKeeper client's connection has ended");
    }
    server.forget_connection(id);
}

/// What a connection begins with.
enum Greeting {
    Word(String),
    Connect(ConnectRequest),
}

struct Connection {
    server: Arc<Server>,
    id: ConnectionId,
    peer: SocketAddr,
    stream: TcpStream,
    input: BytesMut,
}

/// What belongs to a session that a connection holds.
struct Held {
    handler: Handler,
    messages: mpsc::UnboundedReceiver<Message>,
    counters: Arc<Counters>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.handler.store.remove_link(self.handler.link);
    }
}

impl Connection {
    async fn greeting(&mut self) -> io::Result<Greeting> {
        loop {
            if let Some(word) = self.input.first_chunk::<4>().and_then(words::named) {
                return Ok(Greeting::Word(word.to_owned()));
            }
            if let Some(frame) = take_frame(&mut self.input, GREETING_BYTES_MAX)? {
                self.server.counters.received();
                return ConnectRequest::decode(frame).map(Greeting::Connect).map_err(malformed);
            }
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn say(&mut self, word: &str) -> io::Result<()> {
        let text = self.server.say(word);
        self.stream.write_all(text.as_bytes()).await?;
        self.stream.shutdown().await
    }

    async fn connect(mut self, request: ConnectRequest) -> io::Result<()> {
        if request.seen_zxid > self.server.store.last_zxid() {
            return Err(malformed("the client has seen a later transaction than this server"));
        }
        let timeout_ms = self.server.negotiate(request.timeout_ms);
        let opened = match request.session {
            0 => self.open_session(timeout_ms).await?,
            session => self.resume(session, &request.password, timeout_ms),
        };
        let Some((session, password)) = opened else {
            debug!(client = %self.peer, session = format_args!("{:#x}", request.session), "no such session");
            self.stream.write_all(&protocol::connected(&request, 0, 0, &[0; PASSWORD_BYTES])).await?;
            return self.stream.shutdown().await;
        };
        let held = self.hold(session, timeout_ms);
        held.handler.outbox.push(protocol::connected(&request, timeout_ms, session, &password));
        let server = Arc::clone(&self.server);
        let id = self.id;
        let ended = self.converse(held).await;
        server.sessions.lock().release(session, id);
        ended
    }

    async fn open_session(&self, timeout_ms: i32) -> io::Result<Option<(i64, Vec<u8>)>> {
        let terms = SessionTerms { timeout_ms, password: new_password() };
        let (reply, opened) = oneshot::channel();
        let (server, id) = (Arc::clone(&self.server), self.id);
        self.server.store.open_session(terms, move |opened| {
            // Here, so that a session that is in the store has an end whatever becomes of the connection.
            if let Ok(session) = opened {
                server.sessions.lock().add(session, terms, Some(id), server.now());
            }
            let _ = reply.send(opened);
        });
        match opened.await {
            Ok(Ok(session)) => {
                info!(client = %self.peer, session = format_args!("{session:#x}"), timeout_ms, "a ZooKeeper session begins");
                Ok(Some((session, terms.password.to_vec())))
            }
            Ok(Err(error)) => Err(malformed(error)),
            Err(_) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    fn resume(&self, session: i64, password: &[u8], timeout_ms: i32) -> Option<(i64, Vec<u8>)> {
        let now = self.server.now();
        let resumed = self.server.sessions.lock().resume(session, password, timeout_ms, self.id, now);
        if let Some(held_by) = resumed.ok()? {
            self.server.close_connection(held_by);
        }
        info!(client = %self.peer, session = format_args!("{session:#x}"), timeout_ms, "a ZooKeeper session goes on");
        Some((session, password.to_vec()))
    }

    fn hold(&self, session: i64, timeout_ms: i32) -> Held {
        let counters = Arc::new(Counters::new(Some(Arc::clone(&self.server.counters))));
        let (outbox, messages) = Outbox::new(Arc::clone(&counters));
        let link = self.server.store.add_link(outbox.clone());
        self.server.remember_connection(
            self.id,
            ConnectionInfo {
                peer: self.peer,
                session,
                timeout_ms,
                outbox: Arc::clone(&outbox),
                counters: Arc::clone(&counters),
            },
        );
        let identities = [identity_of_address(self.peer.ip().to_canonical())].into();
        let store = self.server.store.clone();
        Held { handler: Handler { store, session, link, outbox, identities }, messages, counters }
    }

    /// Reads requests and writes answers until either side ends it.
    async fn converse(self, mut held: Held) -> io::Result<()> {
        let Connection { server, id, stream, mut input, .. } = self;
        let (mut reader, mut writer) = stream.into_split();
        let mut output = BytesMut::new();
        let mut place: Option<OwnedSemaphorePermit> = None;
        let mut is_closing = false;
        loop {
            while !is_closing && held.handler.outbox.has_room() {
                let Some(frame) = take_frame(&mut input, server.options.request_bytes_max)? else { break };
                place = None;
                is_closing = !handle(&server, id, &mut held, frame)?;
            }
            let reads = !is_closing && held.handler.outbox.has_room();
            let needs_place = reads && place.is_none() && input.len() >= SMALL_FRAME_BYTES;
            tokio::select! {
                read = reader.read_buf(&mut input), if reads && !needs_place => {
                    if read? == 0 {
                        return Ok(());
                    }
                }
                granted = Arc::clone(&server.large_frames).acquire_owned(), if needs_place => place = granted.ok(),
                message = held.messages.recv(), if output.len() < OUTPUT_BYTES_MAX => match message {
                    Some(Message::Frame { bytes, charged_bytes }) => {
                        output.extend_from_slice(&bytes);
                        held.handler.outbox.discharge(charged_bytes);
                    }
                    Some(Message::Close) | None => {
                        writer.write_all(&output).await?;
                        return writer.shutdown().await;
                    }
                },
                written = writer.write_buf(&mut output), if !output.is_empty() => {
                    written?;
                }
            }
        }
    }
}

/// Carries a request out. False where none may follow.
fn handle(server: &Server, id: ConnectionId, held: &mut Held, frame: Bytes) -> io::Result<bool> {
    held.counters.received();
    let session = held.handler.session;
    let is_held = server.sessions.lock().touch(session, id, server.now());
    if !is_held {
        // It has expired, or another connection has taken it over.
        return Err(malformed("the session is not this connection's any more"));
    }
    let (xid, request) = protocol::decode(frame).map_err(malformed)?;
    match held.handler.handle(xid, request) {
        Next::Request => Ok(true),
        Next::Closed => {
            server.sessions.lock().close(session);
            Ok(false)
        }
    }
}

/// Takes a whole frame off the front; `None` = not all of it has arrived.
fn take_frame(input: &mut BytesMut, bytes_max: usize) -> io::Result<Option<Bytes>> {
    let Some(length) = input.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(i32::from_be_bytes(*length)).ok().filter(|&length| length <= bytes_max);
    let Some(length) = length else { return Err(malformed("a frame of impossible length")) };
    if input.len() < 4 + length {
        return Ok(None);
    }
    let mut frame = input.split_to(4 + length).freeze();
    Ok(Some(frame.split_off(4)))
}

fn malformed(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
