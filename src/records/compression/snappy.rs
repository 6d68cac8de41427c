use bytes::Bytes;

use crate::records::error::RecordFault;

use super::inflate::grow;

/// The header of the stream that snappy-java (xerial) writes: magic, version, oldest version that can read it.
const STREAM_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const STREAM_HEADER: &[u8; 16] = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";

/// Bytes that one block of the stream holds, before compression.
const BLOCK_SIZE: usize = 32 * 1024;

/// A copy of three bytes gives at most 64: no block inflates further, so a declared size beyond it is a lie.
const EXPANSION_MAX: usize = 22;

/// Reads snappy: the Java clients' stream of blocks, or one raw block as librdkafka and others send it.
pub(super) struct SnappyReader {
    input: Bytes,
    at: usize,
    is_stream: bool,
    size_max: usize,
    decoder: snap::raw::Decoder,
}

impl SnappyReader {
    pub fn new(input: Bytes, size_max: usize) -> SnappyReader {
        let is_stream = input.starts_with(STREAM_MAGIC);
        SnappyReader { input, at: 0, is_stream, size_max, decoder: snap::raw::Decoder::new() }
    }

    /// Inflates the next block into `chunk`, which grows to hold it; returns its length, 0 at the end.
    pub fn inflate(&mut self, chunk: &mut Vec<u8>) -> Result<usize, RecordFault> {
        if !self.is_stream {
            let block = self.at..self.input.len();
            return if block.is_empty() { Ok(0) } else { self.inflate_block(block, chunk) };
        }
        while self.at < self.input.len() {
            if self.input[self.at..].starts_with(STREAM_MAGIC) {
                // Streams may follow one another.
                self.at += STREAM_HEADER.len();
                continue;
            }
            let length = self.input[self.at..].first_chunk::<4>().ok_or(RecordFault::Compression)?;
            let length =
                usize::try_from(i32::from_be_bytes(*length)).map_err(|_| RecordFault::Compression)?;
            let start = self.at + 4;
            let end = start + length;
            if end > self.input.len() {
                return Err(RecordFault::Compression);
            }
            let length = self.inflate_block(start..end, chunk)?;
            if length > 0 {
                return Ok(length);
            }
        }
        if self.at > self.input.len() { Err(RecordFault::Compression) } else { Ok(0) }
    }

    fn inflate_block(
        &mut self,
        block: std::ops::Range<usize>,
        chunk: &mut Vec<u8>,
    ) -> Result<usize, RecordFault> {
        self.at = block.end;
        let compressed = &self.input[block];
        let length = snap::raw::decompress_len(compressed).map_err(|_| RecordFault::Compression)?;
        if length > compressed.len() * EXPANSION_MAX {
            return Err(RecordFault::Compression);
        }
        if length > self.size_max {
            return Err(RecordFault::InflatedTooLarge);
        }
        grow(chunk, length);
        self.decoder.decompress(compressed, &mut chunk[..length]).map_err(|_| RecordFault::Compression)
    }
}

/// Writes the Java clients' stream, which every client reads.
pub(super) struct SnappyWriter {
    into: Vec<u8>,
    block: Vec<u8>,
    encoder: snap::raw::Encoder,
}

impl SnappyWriter {
    pub fn new(mut into: Vec<u8>) -> SnappyWriter {
        into.extend_from_slice(STREAM_HEADER);
        SnappyWriter { into, block: Vec::with_capacity(BLOCK_SIZE), encoder: snap::raw::Encoder::new() }
    }

    pub fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = bytes.len().min(BLOCK_SIZE - self.block.len());
            self.block.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.block.len() == BLOCK_SIZE {
                self.write_block();
            }
        }
    }

    pub fn written(&self) -> usize {
        self.into.len()
    }

    pub fn finish(mut self) -> Vec<u8> {
        if !self.block.is_empty() {
            self.write_block();
        }
        self.into
    }

    fn write_block(&mut self) {
        let length_at = self.into.len();
        let start = length_at + 4;
        self.into.resize(start + snap::raw::max_compress_len(self.block.len()), 0);
        let length = self
            .encoder
            .compress(&self.block, &mut self.into[start..])
            .expect("the output has room for the longest block");
        self.into.truncate(start + length);
        self.into[length_at..start].copy_from_slice(&(length as u32).to_be_bytes());
        self.block.clear();
    }
}
