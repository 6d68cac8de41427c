use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
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

/// A frame is given so much of its memory at once. Peers are brokers that this one has chosen to connect to, and
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
async fn read_answers(read: ReadHalf, waiting: &Mutex<Waiting>) -> io::Result<()> {
    let mut frames = Frames::new(read);
    loop {
        let frame = frames.next().await?;
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

/// What a peer sends, frame by frame.
///
/// A follower is done with a frame before it asks for the next one, so that the memory of one large frame serves for all:
/// it is asked for only when the next has begun to arrive, and nothing behind a large frame is read along with it.
struct Frames {
    read: ReadHalf,
    /// What was read before the size of its frame was known.
    ahead: [u8; AHEAD_BYTES],
    /// The part of it that is not taken yet.
    unread: Range<usize>,
    /// Of frames that are larger than that.
    large: BytesMut,
}

/// Room for the answers that bring no records.
const AHEAD_BYTES: usize = 512;

impl Frames {
    fn new(read: ReadHalf) -> Frames {
        Frames { read, ahead: [0; AHEAD_BYTES], unread: 0..0, large: BytesMut::new() }
    }

    async fn next(&mut self) -> io::Result<Bytes> {
        self.read_ahead(4).await?;
        let size = self.take_ahead(4).first_chunk().map_or(-1, |bytes| i32::from_be_bytes(*bytes));
        let size = usize::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if size <= AHEAD_BYTES {
            // A connection that has become idle keeps nothing.
            self.large = BytesMut::new();
            self.read_ahead(size).await?;
            return Ok(Bytes::copy_from_slice(self.take_ahead(size)));
        }
        self.large.reserve(size.min(RESERVED_BYTES_MAX));
        let begun = self.unread.len().min(size);
        let mut large = std::mem::take(&mut self.large);
        large.extend_from_slice(self.take_ahead(begun));
        self.large = large;
        while self.large.len() < size {
            let missing = size - self.large.len();
            ensure_some(self.read.read_buf(&mut (&mut self.large).limit(missing)).await?)?;
        }
        Ok(self.large.split().freeze())
    }

    /// Reads until so much is there, and what has come with it.
    async fn read_ahead(&mut self, size: usize) -> io::Result<()> {
        if self.unread.len() < size {
            self.ahead.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        while self.unread.len() < size {
            let room = self.ahead.get_mut(self.unread.end..).unwrap_or_default();
            self.unread.end += ensure_some(self.read.read(room).await?)?;
        }
        Ok(())
    }

    /// No more than is there.
    fn take_ahead(&mut self, size: usize) -> &[u8] {
        let taken = self.unread.start..self.unread.start + size;
        self.unread.start = taken.end;
        self.ahead.get(taken).unwrap_or_default()
    }
}

fn ensure_some(read: usize) -> io::Result<usize> {
    if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: Vec<u8>, piece: usize) -> Frames {
        let (mut write, read) = tokio::io::duplex(piece);
        tokio::spawn(async move { write.write_all(&bytes).await });
        Frames::new(Box::new(read))
    }

    fn frame(size: usize) -> Vec<u8> {
        let body = (0..size).map(|at| at as u8);
        (size as i32).to_be_bytes().into_iter().chain(body).collect()
    }

    #[tokio::test]
    async fn frames_are_told_apart_however_they_arrive() {
        let sizes = [4, 0, 507, 508, 509, 511, 512, 513, 4, 100_000, 5, 6, 1_000_000, 516, 4];
        for piece in [1_000_000, 700, 517, 16, 3] {
            let mut frames = frames(sizes.into_iter().flat_map(frame).collect(), piece);
            for size in sizes {
                let read = frames.next().await.unwrap();
                assert_eq!(read, frame(size).split_off(4), "{size} bytes in pieces of {piece}");
            }
            assert!(frames.next().await.is_err());
        }
    }

    #[tokio::test]
    async fn the_memory_of_a_large_frame_serves_for_the_next() {
        let mut frames = frames([frame(100_000), frame(100_000), frame(4)].concat(), 4_096);
        let first = frames.next().await.unwrap();
        let place = first.as_ptr();
        drop(first);
        assert_eq!(frames.next().await.unwrap().as_ptr(), place);
        frames.next().await.unwrap();
        assert_eq!(frames.large.capacity(), 0);
    }

    #[tokio::test]
    async fn a_frame_that_is_kept_stays_as_it_is() {
        let mut frames = frames([frame(100_000), frame(90_000)].concat(), 4_096);
        let first = frames.next().await.unwrap();
        let second = frames.next().await.unwrap();
        assert_eq!((first, second), (frame(100_000).split_off(4).into(), frame(90_000).split_off(4).into()));
    }

    #[tokio::test]
    async fn a_negative_size_is_no_frame() {
        assert!(frames(vec![0xff; 8], 64).next().await.is_err());
    }
}
