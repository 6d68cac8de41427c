//! Walking records without building them: over bytes that are all there, or that arrive chunk by chunk
//! from a decompressor.

use bytes::BytesMut;

use super::error::RecordFault;

/// Bytes that come in chunks.
pub(super) trait Source {
    /// The chunk at hand.
    fn chunk(&self) -> &[u8];

    /// Replaces the chunk by the next one; `false` = there is none, and the chunk is empty.
    fn refill(&mut self) -> Result<bool, RecordFault>;
}

/// A source of one chunk.
impl Source for &[u8] {
    fn chunk(&self) -> &[u8] {
        self
    }

    fn refill(&mut self) -> Result<bool, RecordFault> {
        *self = &[];
        Ok(false)
    }
}

impl<S: Source + ?Sized> Source for &mut S {
    fn chunk(&self) -> &[u8] {
        (**self).chunk()
    }

    fn refill(&mut self) -> Result<bool, RecordFault> {
        (**self).refill()
    }
}

/// What validation wants to know of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordShape {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub has_key: bool,
}

/// Reads record after record from a source, allocating nothing.
pub(super) struct RecordCursor<S> {
    source: S,
    at: usize,
}

impl<S: Source> RecordCursor<S> {
    pub fn new(source: S) -> Self {
        RecordCursor { source, at: 0 }
    }

    /// The next record, checked for its structure. Call it only as often as records are declared.
    #[inline(always)]
    pub fn next_shape(&mut self) -> Result<RecordShape, RecordFault> {
        let length = self.read_length()?;
        let body = &self.source.chunk()[self.at..];
        if let Some(body) = body.get(..length) {
            self.at += length;
            return shape_of(SliceReader { rest: body });
        }
        shape_of(StraddlingReader { cursor: self, remaining: length })
    }

    /// Appends the next record's bytes, those after its length, to `into`, which grows only as they arrive.
    /// A record of more than `size_max` bytes is [`RecordFault::InflatedTooLarge`].
    pub fn next_body(&mut self, into: &mut BytesMut, size_max: usize) -> Result<(), RecordFault> {
        let mut missing = self.read_length()?;
        if missing > size_max {
            return Err(RecordFault::InflatedTooLarge);
        }
        loop {
            let rest = &self.source.chunk()[self.at..];
            let taken = rest.len().min(missing);
            into.extend_from_slice(&rest[..taken]);
            self.at += taken;
            missing -= taken;
            if missing == 0 {
                return Ok(());
            }
            if !self.refill()? {
                return Err(RecordFault::Cut);
            }
        }
    }

    /// Whether nothing follows.
    pub fn is_at_end(&mut self) -> Result<bool, RecordFault> {
        while self.at == self.source.chunk().len() {
            if !self.refill()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[inline(always)]
    fn read_length(&mut self) -> Result<usize, RecordFault> {
        let mut fast = SliceReader { rest: &self.source.chunk()[self.at..] };
        let before = fast.rest.len();
        let length = if before >= VARINT_MAX {
            let length = read_varint(&mut fast)?;
            self.at += before - fast.rest.len();
            length
        } else {
            read_varint(&mut StraddlingReader { cursor: self, remaining: VARINT_MAX })?
        };
        usize::try_from(length).map_err(|_| RecordFault::NegativeLength)
    }

    fn refill(&mut self) -> Result<bool, RecordFault> {
        self.at = 0;
        self.source.refill()
    }
}

/// Bytes of the longest varint of 32 bits.
const VARINT_MAX: usize = 5;

/// The body of one record, as its fields are read.
trait BodyReader {
    /// The next byte. Errors: [`RecordFault::Length`] past the record's end.
    fn byte(&mut self) -> Result<u8, RecordFault>;
    fn skip(&mut self, count: usize) -> Result<(), RecordFault>;
    fn remaining(&self) -> usize;
}

/// A record that lies in one piece.
pub(super) struct SliceReader<'a> {
    pub rest: &'a [u8],
}

impl<'a> SliceReader<'a> {
    pub fn varint(&mut self) -> Result<i32, RecordFault> {
        read_varint(self)
    }

    pub fn varlong(&mut self) -> Result<i64, RecordFault> {
        read_varlong(self)
    }

    pub fn attributes(&mut self) -> Result<u8, RecordFault> {
        self.byte()
    }

    /// A field with a length before it, `None` for a negative length, which Kafka's readers take as null.
    pub fn field(&mut self) -> Result<Option<&'a [u8]>, RecordFault> {
        let length = self.varint()?;
        let Ok(length) = usize::try_from(length) else {
            return Ok(None);
        };
        let (field, rest) = self.rest.split_at_checked(length).ok_or(RecordFault::Length)?;
        self.rest = rest;
        Ok(Some(field))
    }
}

impl BodyReader for SliceReader<'_> {
    #[inline(always)]
    fn byte(&mut self) -> Result<u8, RecordFault> {
        let (&byte, rest) = self.rest.split_first().ok_or(RecordFault::Length)?;
        self.rest = rest;
        Ok(byte)
    }

    #[inline(always)]
    fn skip(&mut self, count: usize) -> Result<(), RecordFault> {
        self.rest = self.rest.get(count..).ok_or(RecordFault::Length)?;
        Ok(())
    }

    #[inline(always)]
    fn remaining(&self) -> usize {
        self.rest.len()
    }
}

/// A record that spans chunks.
struct StraddlingReader<'a, S> {
    cursor: &'a mut RecordCursor<S>,
    remaining: usize,
}

impl<S: Source> BodyReader for StraddlingReader<'_, S> {
    fn byte(&mut self) -> Result<u8, RecordFault> {
        self.remaining = self.remaining.checked_sub(1).ok_or(RecordFault::Length)?;
        loop {
            if let Some(&byte) = self.cursor.source.chunk().get(self.cursor.at) {
                self.cursor.at += 1;
                return Ok(byte);
            }
            if !self.cursor.refill()? {
                return Err(RecordFault::Cut);
            }
        }
    }

    fn skip(&mut self, count: usize) -> Result<(), RecordFault> {
        self.remaining = self.remaining.checked_sub(count).ok_or(RecordFault::Length)?;
        let mut missing = count;
        loop {
            let taken = missing.min(self.cursor.source.chunk().len() - self.cursor.at);
            self.cursor.at += taken;
            missing -= taken;
            if missing == 0 {
                return Ok(());
            }
            if !self.cursor.refill()? {
                return Err(RecordFault::Cut);
            }
        }
    }

    fn remaining(&self) -> usize {
        self.remaining
    }
}

#[inline(always)]
fn shape_of(mut reader: impl BodyReader) -> Result<RecordShape, RecordFault> {
    reader.byte()?;
    let timestamp_delta = read_varlong(&mut reader)?;
    let offset_delta = read_varint(&mut reader)?;
    let has_key = skip_nullable(&mut reader)?;
    skip_nullable(&mut reader)?;
    let header_count = read_varint(&mut reader)?;
    if header_count != 0 {
        skip_headers(&mut reader, header_count)?;
    }
    if reader.remaining() != 0 {
        return Err(RecordFault::Length);
    }
    Ok(RecordShape { timestamp_delta, offset_delta, has_key })
}

fn skip_headers(reader: &mut impl BodyReader, count: i32) -> Result<(), RecordFault> {
    let count = usize::try_from(count).map_err(|_| RecordFault::HeaderCount)?;
    if count > reader.remaining() {
        return Err(RecordFault::HeaderCount);
    }
    for _ in 0..count {
        if !skip_nullable(reader)? {
            return Err(RecordFault::NegativeLength);
        }
        skip_nullable(reader)?;
    }
    Ok(())
}

/// Whether the field is there; `-1` stands for null.
#[inline(always)]
fn skip_nullable(reader: &mut impl BodyReader) -> Result<bool, RecordFault> {
    match read_varint(reader)? {
        -1 => Ok(false),
        length => {
            reader.skip(usize::try_from(length).map_err(|_| RecordFault::NegativeLength)?)?;
            Ok(true)
        }
    }
}

#[inline(always)]
fn read_varint(reader: &mut impl BodyReader) -> Result<i32, RecordFault> {
    let first = reader.byte()?;
    let mut raw = u32::from(first & 0x7f);
    if first & 0x80 != 0 {
        let mut shift = 7;
        loop {
            let byte = reader.byte()?;
            // The fifth byte has room for four bits. Kafka drops further ones, which makes 0 of a length of 2^31.
            if shift == 28 && byte > 0x0f {
                return Err(RecordFault::Varint);
            }
            raw |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
    }
    Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

#[inline(always)]
fn read_varlong(reader: &mut impl BodyReader) -> Result<i64, RecordFault> {
    let first = reader.byte()?;
    let mut raw = u64::from(first & 0x7f);
    if first & 0x80 != 0 {
        let mut shift = 7;
        loop {
            let byte = reader.byte()?;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return Err(RecordFault::Varint);
            }
            raw |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
    }
    Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

/// Appends `value` as a varint. 32-bit values give the same bytes as Kafka's varint.
pub(super) fn write_varlong(into: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        into.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    into.push(raw as u8);
}
