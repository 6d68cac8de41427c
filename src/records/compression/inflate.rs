use std::cell::RefCell;

use bytes::Bytes;

use crate::records::cursor::Source;
use crate::records::error::RecordFault;
use crate::records::{Codec, MessageFormat};

use super::gzip::GzipReader;
use super::lz4::Lz4Reader;
use super::snappy::SnappyReader;
use super::zstd::ZstdReader;

/// How much a compressed batch may inflate to.
#[derive(Clone, Copy, Debug)]
pub(in crate::records) struct InflateLimits {
    pub size_max: usize,
    /// The limit for zstd frames whose window is larger than [`zstd::LARGE_WINDOW`](super::zstd): the
    /// decompressor holds the whole window.
    pub large_window_size_max: usize,
    /// The largest record that is held in memory as a whole.
    pub record_size_max: usize,
}

/// The decompressed records of one batch, chunk by chunk.
pub(in crate::records) struct Inflater {
    decoder: Decoder,
    buffer: Vec<u8>,
    /// How much of the buffer the current chunk takes.
    length: usize,
    /// How many bytes may still come.
    allowance: usize,
}

enum Decoder {
    Gzip(GzipReader),
    Snappy(SnappyReader),
    Lz4(Lz4Reader),
    Zstd(ZstdReader),
}

impl Inflater {
    /// `None` for [`Codec::None`]. Damage is found while inflating.
    pub fn new(codec: Codec, format: MessageFormat, input: Bytes, limits: InflateLimits) -> Option<Inflater> {
        let decoder = match codec {
            Codec::None => return None,
            Codec::Gzip => Decoder::Gzip(GzipReader::new(input)),
            Codec::Snappy => Decoder::Snappy(SnappyReader::new(input, limits.size_max)),
            Codec::Lz4 => Decoder::Lz4(Lz4Reader::new(format, input)),
            Codec::Zstd => Decoder::Zstd(ZstdReader::new(input, limits.large_window_size_max)),
        };
        Some(Inflater { decoder, buffer: buffer_pool::take(), length: 0, allowance: limits.size_max })
    }
}

impl Source for Inflater {
    fn chunk(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    fn refill(&mut self) -> Result<bool, RecordFault> {
        self.length = 0;
        let length = match &mut self.decoder {
            Decoder::Gzip(reader) => reader.inflate(&mut self.buffer),
            Decoder::Snappy(reader) => reader.inflate(&mut self.buffer),
            Decoder::Lz4(reader) => reader.inflate(&mut self.buffer),
            Decoder::Zstd(reader) => reader.inflate(&mut self.buffer),
        }?;
        self.allowance = self.allowance.checked_sub(length).ok_or(RecordFault::InflatedTooLarge)?;
        self.length = length;
        Ok(length > 0)
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        buffer_pool::give(std::mem::take(&mut self.buffer));
    }
}

/// Makes `buffer` at least `length` long.
pub(super) fn grow(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
}

/// One buffer per thread, kept while it is small.
mod buffer_pool {
    use super::RefCell;

    const CHUNK: usize = 64 * 1024;
    const KEPT_MAX: usize = 256 * 1024;

    thread_local! {
        static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    pub fn take() -> Vec<u8> {
        let mut buffer = SPARE.with_borrow_mut(std::mem::take);
        super::grow(&mut buffer, CHUNK);
        buffer
    }

    pub fn give(buffer: Vec<u8>) {
        if buffer.capacity() <= KEPT_MAX {
            // Not there while the thread ends, when the buffer is simply freed.
            let _ = SPARE.try_with(|spare| spare.replace(buffer));
        }
    }
}
