use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::task::JoinHandle;

use crate::api::{Part, ResponseFrame};
use crate::log::{Conversion, FileSlice};
use crate::replica::next_converted_piece;
use crate::runtime::net::Stream;
use crate::runtime::task;

/// The most buffers one vectored write takes.
const SLICES_MAX: usize = 64;
/// Bytes that one sendfile call may send, so that a large answer does not hold the worker.
const SENDFILE_BYTES_MAX: usize = 1024 * 1024;

/// What a connection has yet to send, in order.
#[derive(Default)]
pub(super) struct Output {
    parts: VecDeque<Pending>,
    size_bytes: u64,
}

enum Pending {
    Memory(Bytes),
    File { slice: FileSlice, cache: CacheState },
    Converted(Converted),
}

/// A conversion, of which one piece at a time is made and sent.
enum Converted {
    Waiting(Box<Conversion>),
    Making(MadePiece),
    /// Between the two.
    Taken,
}

type MadePiece = Pin<Box<dyn Future<Output = io::Result<(Box<Conversion>, Bytes)>> + Send>>;

/// Whether a file range lies in the page cache: sendfile must not wait for a disk on a worker thread.
enum CacheState {
    Unknown,
    Warming(JoinHandle<io::Result<()>>),
    Warm,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Adds one response.
    pub(super) fn push(&mut self, frame: ResponseFrame) {
        self.size_bytes += frame.size_bytes();
        for part in frame.into_parts() {
            self.parts.push_back(match part {
                Part::Memory(bytes) => Pending::Memory(bytes),
                Part::File(slice) => Pending::File { slice, cache: CacheState::Unknown },
                Part::Converted(conversion) => Pending::Converted(Converted::Waiting(conversion)),
            });
        }
    }

    /// Sends until nothing is left (`Ready(Ok)`), the socket is full or a cold file range is being read
    /// (`Pending`), or the connection fails.
    pub(super) fn poll_flush(&mut self, stream: &Stream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.parts.is_empty() {
            match self.parts.front_mut() {
                Some(Pending::File { slice, cache }) => ready!(poll_warm(slice, cache, context))?,
                Some(Pending::Converted(converted)) => {
                    let piece = ready!(poll_piece(converted, context))?;
                    let is_last = matches!(converted, Converted::Taken);
                    if is_last {
                        self.parts.pop_front();
                    }
                    self.parts.push_front(Pending::Memory(piece));
                }
                Some(Pending::Memory(_)) | None => {}
            }
            match self.send_front(stream) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(sent) => self.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(stream.poll_write_ready(context))?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn send_front(&self, stream: &Stream) -> io::Result<usize> {
        match self.parts.front() {
            Some(Pending::File { slice, .. }) => {
                let wanted = (slice.size_bytes as usize).min(SENDFILE_BYTES_MAX);
                stream.try_write_file(&*slice.file, slice.position, wanted)
            }
            Some(Pending::Memory(first))
                if matches!(self.parts.get(1), Some(Pending::File { .. } | Pending::Converted(_))) =>
            {
                // A short header goes out together with the file's bytes.
                stream.try_write_more(first)
            }
            _ => {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let mut count = 0;
                for (slot, part) in slices.iter_mut().zip(&self.parts) {
                    let Pending::Memory(bytes) = part else { break };
                    *slot = IoSlice::new(bytes);
                    count += 1;
                }
                stream.try_write_vectored(slices.get(..count).unwrap_or_default())
            }
        }
    }

    fn advance(&mut self, mut sent: usize) {
        self.size_bytes = self.size_bytes.saturating_sub(sent as u64);
        while sent > 0 {
            match self.parts.front_mut() {
                Some(Pending::Memory(bytes)) if bytes.len() > sent => {
                    bytes.advance(sent);
                    return;
                }
                Some(Pending::Memory(bytes)) => sent -= bytes.len(),
                Some(Pending::File { slice, .. }) if slice.size_bytes as usize > sent => {
                    slice.position += sent as u64;
                    slice.size_bytes -= sent as u32;
                    return;
                }
                Some(Pending::File { slice, .. }) => sent -= slice.size_bytes as usize,
                // Turned into memory before it is sent.
                Some(Pending::Converted(_)) | None => return,
            }
            self.parts.pop_front();
        }
    }
}

/// The next piece of a conversion, which is taken when that was the last.
fn poll_piece(converted: &mut Converted, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    if let Converted::Waiting(_) = converted
        && let Converted::Waiting(conversion) = std::mem::replace(converted, Converted::Taken)
    {
        *converted = Converted::Making(Box::pin(next_converted_piece(conversion)));
    }
    let Converted::Making(making) = converted else { return Poll::Ready(Ok(Bytes::new())) };
    let (conversion, piece) = ready!(making.as_mut().poll(context))?;
    *converted = match conversion.size_bytes() {
        0 => Converted::Taken,
        _ => Converted::Waiting(conversion),
    };
    Poll::Ready(Ok(piece))
}

/// Ready when the range is in the page cache; reads it on the blocking pool when it is not.
fn poll_warm(slice: &FileSlice, cache: &mut CacheState, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        match cache {
            CacheState::Warm => return Poll::Ready(Ok(())),
            CacheState::Unknown if is_cached(slice) => *cache = CacheState::Warm,
            CacheState::Unknown => {
                let cold = slice.clone();
                *cache = CacheState::Warming(task::blocking(move || read_through(&cold)));
            }
            CacheState::Warming(reading) => {
                ready!(Pin::new(reading).poll(context)).map_err(io::Error::other)??;
                *cache = CacheState::Warm;
            }
        }
    }
}

/// Brings a cold range into the page cache.
fn read_through(slice: &FileSlice) -> io::Result<()> {
    let mut buffer = vec![0; (slice.size_bytes as usize).min(256 * 1024)];
    let mut position = slice.position;
    let end = slice.position + u64::from(slice.size_bytes);
    while position < end {
        let wanted = buffer.len().min((end - position) as usize);
        let read = slice.file.read_at(buffer.get_mut(..wanted).unwrap_or_default(), position)?;
        if read == 0 {
            return Ok(());
        }
        position += read as u64;
    }
    Ok(())
}

/// Probes the ends of the range without waiting: what was read ahead or written lately is cached as a whole.
fn is_cached(slice: &FileSlice) -> bool {
    let last = slice.position + u64::from(slice.size_bytes).saturating_sub(1);
    // An error is met, and reported, by the read that follows.
    let probe = |position| !matches!(slice.file.read_cached_at(&mut [0], position), Ok(None));
    probe(last) && (slice.size_bytes <= 4096 || probe(slice.position))
}
