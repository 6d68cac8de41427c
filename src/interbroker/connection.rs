use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use snafu::ResultExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wire::{Reader, Request, ResponseHeader, Str, Writer};

use super::PeerError;
use super::error::{ConnectSnafu, DecodeSnafu, EncodeSnafu};
use crate::runtime::net::Network;
use crate::runtime::task;

/// How a broker connects to its peers.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    pub network: Network,
    /// What the peer's logs and quotas show.
    pub client_id: Str,
    /// For a connection to stand, and for each answer.
    pub request_timeout: Duration,
}

/// A connection over which any number of requests wait for their answers at once.
///
/// Answers come in the order of the requests. One that does not come in time ends the connection: what follows it
/// could not be told from it otherwise.
pub(super) struct Connection {
    options: ConnectionOptions,
    /// `None` once writing failed or was given up half-way.
    writer: tokio::sync::Mutex<Option<WriteHalf>>,
    waiting: Arc<Mutex<Waiting>>,
    reader: JoinHandle<()>,
}

type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

#[derive(Default)]
struct Waiting {
    /// By correlation id.
    answers: HashMap<i32, oneshot::Sender<Bytes>>,
    next_correlation_id: i32,
    is_over: bool,
}

/// A frame up to this size is given its memory at once. Peers are brokers that this one has chosen to connect to, and
/// their answers are bounded by what they were asked for; a stray peer costs no more than this.
const RESERVED_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Connection {
    pub async fn open(host: &str, port: u16, options: ConnectionOptions) -> Result<Connection, PeerError> {
        let connecting = timeout(options.request_timeout, options.network.connect(host, port));
        let connected = connecting.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = connected.context(ConnectSnafu { host, port })?;
        // Small requests must not wait for one another's acknowledgements.
        stream.set_nodelay().context(ConnectSnafu { host, port })?;
        let (read, write) = stream.into_split();
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let reader = task::spawn("peer connection", {
            let waiting = Arc::clone(&waiting);
            async move {
                // However it ended, those who wait hear of it by their senders' end.
                let _ = read_answers(read, &waiting).await;
                let mut waiting = waiting.lock();
                waiting.is_over = true;
                waiting.answers.clear();
            }
        });
        Ok(Connection { options, writer: tokio::sync::Mutex::new(Some(write)), waiting, reader })
    }

    pub fn is_over(&self) -> bool {
        self.waiting.lock().is_over
    }

    /// Sends a request and waits for its answer.
    pub async fn call<R: Request>(
        &self,
        request: &R,
        version: i16,
        patience: Duration,
    ) -> Result<R::Response, PeerError> {
        let limit = self.options.request_timeout + patience;
        let answered = timeout(limit, self.exchange(request, version)).await;
        let frame = match answered {
            Ok(frame) => frame?,
            Err(_) => {
                self.waiting.lock().is_over = true;
                return Err(PeerError::TimedOut);
            }
        };
        let mut reader = Reader::new(frame);
        ResponseHeader::decode(&mut reader, R::response_header_version(version)).context(DecodeSnafu)?;
        wire::Message::decode(&mut reader, version).context(DecodeSnafu)
    }

    async fn exchange<R: Request>(&self, request: &R, version: i16) -> Result<Bytes, PeerError> {
        let mut writer = self.writer.lock().await;
        let (correlation_id, answer) = self.expect_answer()?;
        let mut frame = Writer::with_capacity(256);
        let client_id = Some(self.options.client_id.clone());
        wire::write_request(&mut frame, correlation_id, client_id, request, version).context(EncodeSnafu)?;
        // Out of the lock's hands while it writes: a write that is given up half-way leaves no writer behind.
        let Some(mut stream) = writer.take() else { return Err(PeerError::Disconnected) };
        let written = stream.write_all(&frame.into_bytes()).await;
        if written.is_err() {
            return Err(PeerError::Disconnected);
        }
        *writer = Some(stream);
        drop(writer);
        answer.await.map_err(|_| PeerError::Disconnected)
    }

    fn expect_answer(&self) -> Result<(i32, oneshot::Receiver<Bytes>), PeerError> {
        let mut waiting = self.waiting.lock();
        if waiting.is_over {
            return Err(PeerError::Disconnected);
        }
        let correlation_id = waiting.next_correlation_id;
        waiting.next_correlation_id = correlation_id.wrapping_add(1) & i32::MAX;
        let (sender, receiver) = oneshot::channel();
        waiting.answers.insert(correlation_id, sender);
        Ok((correlation_id, receiver))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Hands each answer to the one who waits for it. Ends with an error, or when an answer is nobody's.
async fn read_answers(mut read: ReadHalf, waiting: &Mutex<Waiting>) -> io::Result<()> {
    let mut buffer = BytesMut::with_capacity(64 * 1024);
    loop {
        let frame = read_frame(&mut read, &mut buffer).await?;
        let Some(correlation_id) = frame.first_chunk().map(|bytes| i32::from_be_bytes(*bytes)) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let answer = waiting.lock().answers.remove(&correlation_id);
        match answer {
            // Who waited may have given up.
            Some(answer) => drop(answer.send(frame)),
            None => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

async fn read_frame(read: &mut ReadHalf, buffer: &mut BytesMut) -> io::Result<Bytes> {
    fill(read, buffer, 4).await?;
    let prefix = buffer.split_to(4);
    let size = prefix.first_chunk().map_or(-1, |bytes| i32::from_be_bytes(*bytes));
    let size = usize::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    buffer.reserve(size.saturating_sub(buffer.len()).min(RESERVED_BYTES_MAX));
    fill(read, buffer, size).await?;
    Ok(buffer.split_to(size).freeze())
}

async fn fill(read: &mut ReadHalf, buffer: &mut BytesMut, size: usize) -> io::Result<()> {
    while buffer.len() < size {
        if read.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}
