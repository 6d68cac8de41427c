use bytes::Bytes;
use lz4::block::CompressionMode;
use twox_hash::XxHash32;

use crate::records::MessageFormat;
use crate::records::error::RecordFault;

use super::inflate::grow;

const MAGIC: u32 = 0x184d_2204;
/// Version 1 of the format, in the two highest bits of the flags.
const VERSION: u8 = 0x40;
const VERSION_MASK: u8 = 0xc0;
const INDEPENDENT_BLOCKS: u8 = 0x20;
const BLOCK_CHECKSUM: u8 = 0x10;
const CONTENT_SIZE: u8 = 0x08;
const CONTENT_CHECKSUM: u8 = 0x04;
const RESERVED_FLAGS: u8 = 0x03;
/// Set in a block's length: its bytes are stored as they are.
const STORED: u32 = 0x8000_0000;
/// 64 KiB in the block size code of the frame.
const BLOCK_SIZE_CODE: u8 = 4;
const BLOCK_SIZE: usize = 64 * 1024;
/// Kafka's default level, and the one that stands for the fast compressor.
const FAST_LEVEL: i32 = 9;
const LEVEL_MIN: i32 = 1;

/// Reads an LZ4 frame as Kafka's `Lz4BlockInputStream` does: blocks must be independent, block checksums are
/// verified, a content checksum is skipped, and what follows the end mark is not looked at.
///
/// The header's checksum counts from message format v1 on: clients of v0 computed it over the magic as well,
/// and some did not.
pub(super) struct Lz4Reader {
    format: MessageFormat,
    input: Bytes,
    at: usize,
    frame: Option<Frame>,
    is_over: bool,
}

#[derive(Clone, Copy)]
struct Frame {
    block_size_max: usize,
    has_block_checksums: bool,
    has_content_checksum: bool,
}

impl Lz4Reader {
    pub fn new(format: MessageFormat, input: Bytes) -> Lz4Reader {
        Lz4Reader { format, input, at: 0, frame: None, is_over: false }
    }

    /// Inflates the next block into `chunk`, which grows to hold it; returns its length, 0 at the end.
    pub fn inflate(&mut self, chunk: &mut Vec<u8>) -> Result<usize, RecordFault> {
        let frame = match self.frame {
            Some(frame) => frame,
            None => {
                let frame = self.read_frame_header()?;
                self.frame = Some(frame);
                frame
            }
        };
        while !self.is_over {
            let length = self.inflate_block(frame, chunk)?;
            if length > 0 {
                return Ok(length);
            }
        }
        Ok(0)
    }

    fn inflate_block(&mut self, frame: Frame, chunk: &mut Vec<u8>) -> Result<usize, RecordFault> {
        let word = self.read_u32()?;
        let size = (word & !STORED) as usize;
        if size == 0 {
            self.is_over = true;
            if frame.has_content_checksum {
                self.read_u32()?;
            }
            return Ok(0);
        }
        if size > frame.block_size_max {
            return Err(RecordFault::Compression);
        }
        let start = self.at;
        self.take(size)?;
        let checksum = if frame.has_block_checksums { Some(self.read_u32()?) } else { None };
        let block = &self.input[start..start + size];
        if checksum.is_some_and(|checksum| checksum != XxHash32::oneshot(0, block)) {
            return Err(RecordFault::Compression);
        }
        if word & STORED != 0 {
            grow(chunk, size);
            chunk[..size].copy_from_slice(block);
            return Ok(size);
        }
        grow(chunk, frame.block_size_max);
        lz4_flex::block::decompress_into(block, &mut chunk[..frame.block_size_max])
            .map_err(|_| RecordFault::Compression)
    }

    fn read_frame_header(&mut self) -> Result<Frame, RecordFault> {
        if self.read_u32()? != MAGIC {
            return Err(RecordFault::Compression);
        }
        let descriptor_at = self.at;
        let (flags, block_descriptor) = match *self.take(2)? {
            [flags, block_descriptor] => (flags, block_descriptor),
            _ => return Err(RecordFault::Compression),
        };
        let block_size_code = block_descriptor >> 4;
        let is_supported = flags & VERSION_MASK == VERSION
            && flags & INDEPENDENT_BLOCKS != 0
            && flags & RESERVED_FLAGS == 0
            && block_descriptor & 0x8f == 0
            && (4..=7).contains(&block_size_code);
        if !is_supported {
            return Err(RecordFault::Compression);
        }
        if flags & CONTENT_SIZE != 0 {
            self.take(8)?;
        }
        let checksum = header_checksum(&self.input[descriptor_at..self.at]);
        let is_checked = self.format != MessageFormat::V0;
        if self.take(1)? != [checksum] && is_checked {
            return Err(RecordFault::Compression);
        }
        Ok(Frame {
            block_size_max: 1 << (2 * block_size_code + 8),
            has_block_checksums: flags & BLOCK_CHECKSUM != 0,
            has_content_checksum: flags & CONTENT_CHECKSUM != 0,
        })
    }

    fn read_u32(&mut self) -> Result<u32, RecordFault> {
        match *self.take(4)? {
            [a, b, c, d] => Ok(u32::from_le_bytes([a, b, c, d])),
            _ => Err(RecordFault::Compression),
        }
    }

    fn take(&mut self, count: usize) -> Result<&[u8], RecordFault> {
        let taken = self.input[self.at..].get(..count).ok_or(RecordFault::Compression)?;
        self.at += count;
        Ok(taken)
    }
}

/// Writes a frame as Kafka's clients do: independent blocks of 64 KiB, no checksums but the header's, which in
/// message format v0 covers the magic too.
pub(super) struct Lz4Writer {
    into: Vec<u8>,
    block: Vec<u8>,
    compressor: Compressor,
}

#[derive(Clone, Copy)]
enum Compressor {
    Fast,
    /// The level of the high compressor: takes many times as long, and saves more.
    High(i32),
}

impl Compressor {
    /// Kafka's levels are those of the high compressor, but for 9: that was the one before there were levels
    /// (KIP-390), and stays the fast compressor. From 12 on the library's levels are all the same.
    fn of(level: Option<i32>) -> Compressor {
        match level {
            None | Some(FAST_LEVEL) => Compressor::Fast,
            Some(level) => Compressor::High(level.max(LEVEL_MIN)),
        }
    }

    /// Compresses a block into the beginning of `output` and returns its length there.
    fn compress(self, block: &[u8], output: &mut [u8]) -> usize {
        const HAS_ROOM: &str = "the output has room for the longest block";
        match self {
            Compressor::Fast => lz4_flex::block::compress_into(block, output).expect(HAS_ROOM),
            Compressor::High(level) => {
                let mode = CompressionMode::HIGHCOMPRESSION(level);
                lz4::block::compress_to_buffer(block, Some(mode), false, output).expect(HAS_ROOM)
            }
        }
    }
}

impl Lz4Writer {
    /// `level` as in `compression.lz4.level`; `None` = the default, the fast compressor.
    pub fn new(format: MessageFormat, level: Option<i32>, mut into: Vec<u8>) -> Lz4Writer {
        let magic_at = into.len();
        into.extend_from_slice(&MAGIC.to_le_bytes());
        let descriptor_at = into.len();
        into.extend_from_slice(&[VERSION | INDEPENDENT_BLOCKS, BLOCK_SIZE_CODE << 4]);
        let checked_from = if format == MessageFormat::V0 { magic_at } else { descriptor_at };
        into.push(header_checksum(&into[checked_from..]));
        Lz4Writer { into, block: Vec::new(), compressor: Compressor::of(level) }
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
        self.into.extend_from_slice(&0u32.to_le_bytes());
        self.into
    }

    fn write_block(&mut self) {
        let size_at = self.into.len();
        let start = size_at + 4;
        self.into.resize(start + lz4_flex::block::get_maximum_output_size(self.block.len()), 0);
        let compressed = self.compressor.compress(&self.block, &mut self.into[start..]);
        let size = if compressed < self.block.len() {
            self.into.truncate(start + compressed);
            compressed as u32
        } else {
            self.into.truncate(start);
            self.into.extend_from_slice(&self.block);
            self.block.len() as u32 | STORED
        };
        self.into[size_at..start].copy_from_slice(&size.to_le_bytes());
        self.block.clear();
    }
}

fn header_checksum(descriptor: &[u8]) -> u8 {
    (XxHash32::oneshot(0, descriptor) >> 8) as u8
}
