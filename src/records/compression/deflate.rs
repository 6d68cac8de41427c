use std::fmt;
use std::io::Write;

use flate2::write::GzEncoder;

use crate::records::{Codec, MessageFormat};

use super::lz4::Lz4Writer;
use super::snappy::SnappyWriter;

/// Compresses what is written to it, behind bytes that are already there.
pub(in crate::records) struct Deflater(Encoder);

enum Encoder {
    None(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Snappy(Box<SnappyWriter>),
    Lz4(Lz4Writer),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

/// Why nothing here fails: the output is memory, and the levels are within the codec's range.
const INTO_MEMORY: &str = "compressing into memory does not fail";

impl Deflater {
    /// Appends to `into`. `level` `None` = the codec's default; out of range, the nearest one. Snappy has
    /// one level only.
    pub fn new(codec: Codec, format: MessageFormat, level: Option<i32>, into: Vec<u8>) -> Deflater {
        Deflater(match codec {
            Codec::None => Encoder::None(into),
            Codec::Gzip => {
                let level = match level {
                    None | Some(-1) => flate2::Compression::default(),
                    Some(level) => flate2::Compression::new(level.clamp(0, 9) as u32),
                };
                Encoder::Gzip(GzEncoder::new(into, level))
            }
            Codec::Snappy => Encoder::Snappy(Box::new(SnappyWriter::new(into))),
            Codec::Lz4 => Encoder::Lz4(Lz4Writer::new(format, level, into)),
            Codec::Zstd => {
                let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
                Encoder::Zstd(zstd::stream::write::Encoder::new(into, level).expect(INTO_MEMORY))
            }
        })
    }

    pub fn write(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Encoder::None(into) => into.extend_from_slice(bytes),
            Encoder::Gzip(encoder) => encoder.write_all(bytes).expect(INTO_MEMORY),
            Encoder::Snappy(writer) => writer.write(bytes),
            Encoder::Lz4(writer) => writer.write(bytes),
            Encoder::Zstd(encoder) => encoder.write_all(bytes).expect(INTO_MEMORY),
        }
    }

    /// The bytes of the output so far, with those that were there before; some may still be held back.
    pub fn written(&self) -> usize {
        match &self.0 {
            Encoder::None(into) => into.len(),
            Encoder::Gzip(encoder) => encoder.get_ref().len(),
            Encoder::Snappy(writer) => writer.written(),
            Encoder::Lz4(writer) => writer.written(),
            Encoder::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    pub fn finish(self) -> Vec<u8> {
        match self.0 {
            Encoder::None(into) => into,
            Encoder::Gzip(encoder) => encoder.finish().expect(INTO_MEMORY),
            Encoder::Snappy(writer) => writer.finish(),
            Encoder::Lz4(writer) => writer.finish(),
            Encoder::Zstd(encoder) => encoder.finish().expect(INTO_MEMORY),
        }
    }
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater").field("written", &self.written()).finish_non_exhaustive()
    }
}
