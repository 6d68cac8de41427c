use bytes::{Buf, Bytes};

use crate::{DecodeError, Records, Str, Struct, Uuid};

/// Reads fields from a frame and trusts nothing in it.
///
/// - Strings, bytes and records are slices of the frame.
/// - An array is allocated only when the bytes that are left can hold its elements, each at its smallest,
///   and while all arrays of the frame together stay below [`Reader::memory_limit`].
/// - In flexible versions (`flexible`) lengths are unsigned varints, one more than the length, and 0 is
///   null; in the others they are signed numbers and -1 is null.
#[derive(Debug)]
pub struct Reader {
    bytes: Bytes,
    memory_left: usize,
}

impl Reader {
    /// Reads `bytes`: a frame without its length field, or a record of an internal topic.
    pub fn new(bytes: Bytes) -> Self {
        let memory_left = Self::memory_limit(bytes.len());
        Self { bytes, memory_left }
    }

    /// Bytes that the arrays of a message of `size_bytes` may take, together.
    ///
    /// What decodes to far more than its size is an array of elements that are almost empty: a topic with
    /// a name of one letter takes 3 bytes on the wire and 48 here, and there are only so many of those.
    /// The constant part lets small frames of such elements pass.
    pub fn memory_limit(size_bytes: usize) -> usize {
        size_bytes.saturating_mul(16).saturating_add(128 * 1024)
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes)
    }

    fn need(&self, needed: usize) -> Result<(), DecodeError> {
        let remaining = self.bytes.len();
        if needed > remaining { Err(DecodeError::UnexpectedEnd { needed, remaining }) } else { Ok(()) }
    }

    /// One byte; every value but 0 is true.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    /// A signed byte.
    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.bytes.try_get_i8().map_err(short)
    }

    /// Two bytes, most significant first, as all numbers of fixed length.
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.bytes.try_get_i16().map_err(short)
    }

    /// Two bytes without sign.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.bytes.try_get_u16().map_err(short)
    }

    /// Four bytes.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.bytes.try_get_i32().map_err(short)
    }

    /// Four bytes without sign.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.bytes.try_get_u32().map_err(short)
    }

    /// Eight bytes.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.bytes.try_get_i64().map_err(short)
    }

    /// Eight bytes, IEEE 754.
    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.bytes.try_get_f64().map_err(short)
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        Ok(Uuid(self.bytes.try_get_u128().map_err(short)?.to_be_bytes()))
    }

    /// An unsigned number of one to five bytes, seven bits each, least significant first.
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = u32::from(self.bytes.try_get_u8().map_err(short)?);
            // The fifth byte has room for four bits only.
            if shift == 28 && byte > 0x0f {
                return Err(DecodeError::VarintTooLong);
            }
            value |= (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Ok(value)
    }

    fn slice(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        self.need(len)?;
        Ok(self.bytes.split_to(len))
    }

    /// The length of a byte field or the count of an array; `None` is null.
    fn length(&mut self, flexible: bool) -> Result<Option<usize>, DecodeError> {
        if flexible {
            return Ok((self.uvarint()? as usize).checked_sub(1));
        }
        match self.i32()? {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| DecodeError::NegativeLength { length }),
        }
    }

    /// A string or null.
    pub fn string(&mut self, flexible: bool) -> Result<Option<Str>, DecodeError> {
        let length = if flexible {
            self.length(true)?
        } else {
            match self.i16()? {
                -1 => None,
                length => Some(
                    usize::try_from(length)
                        .map_err(|_| DecodeError::NegativeLength { length: i32::from(length) })?,
                ),
            }
        };
        match length {
            None => Ok(None),
            Some(length) => Str::from_utf8(self.slice(length)?).map(Some),
        }
    }

    /// Bytes or null.
    pub fn bytes(&mut self, flexible: bool) -> Result<Option<Bytes>, DecodeError> {
        match self.length(flexible)? {
            None => Ok(None),
            Some(length) => self.slice(length).map(Some),
        }
    }

    /// Record data or null.
    pub fn records(&mut self, flexible: bool) -> Result<Option<Records>, DecodeError> {
        Ok(self.bytes(flexible)?.map(Records::Bytes))
    }

    /// The count of an array, or `None` for null: checked against the bytes left and the memory that its
    /// elements take.
    fn count(
        &mut self,
        flexible: bool,
        element_min: usize,
        element_size: usize,
    ) -> Result<Option<usize>, DecodeError> {
        let Some(count) = self.length(flexible)? else { return Ok(None) };
        let remaining = self.bytes.len();
        if count > remaining / element_min.max(1) {
            return Err(DecodeError::CountTooLarge { count, remaining });
        }
        let memory = count.saturating_mul(element_size);
        self.memory_left = self.memory_left.checked_sub(memory).ok_or(DecodeError::TooMuchMemory)?;
        Ok(Some(count))
    }

    pub(crate) fn structs<T: Struct>(
        &mut self,
        flexible: bool,
        version: i16,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.count(flexible, T::SIZE_BYTES_MIN, size_of::<T>())? else { return Ok(None) };
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::read(self, version)?);
        }
        Ok(Some(elements))
    }

    fn elements<T>(
        &mut self,
        flexible: bool,
        min: usize,
        read: fn(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.count(flexible, min, size_of::<T>())? else { return Ok(None) };
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(read(self)?);
        }
        Ok(Some(elements))
    }

    pub(crate) fn i8s(&mut self, flexible: bool) -> Result<Option<Vec<i8>>, DecodeError> {
        self.elements(flexible, 1, Self::i8)
    }

    pub(crate) fn i16s(&mut self, flexible: bool) -> Result<Option<Vec<i16>>, DecodeError> {
        self.elements(flexible, 2, Self::i16)
    }

    pub(crate) fn i32s(&mut self, flexible: bool) -> Result<Option<Vec<i32>>, DecodeError> {
        self.elements(flexible, 4, Self::i32)
    }

    pub(crate) fn i64s(&mut self, flexible: bool) -> Result<Option<Vec<i64>>, DecodeError> {
        self.elements(flexible, 8, Self::i64)
    }

    pub(crate) fn uuids(&mut self, flexible: bool) -> Result<Option<Vec<Uuid>>, DecodeError> {
        self.elements(flexible, 16, Self::uuid)
    }

    pub(crate) fn strings(&mut self, flexible: bool) -> Result<Option<Vec<Str>>, DecodeError> {
        const NULL: DecodeError = DecodeError::UnexpectedNull { field: "an element" };
        if flexible {
            self.elements(true, 1, |r| r.string(true)?.ok_or(NULL))
        } else {
            self.elements(false, 2, |r| r.string(false)?.ok_or(NULL))
        }
    }

    /// True if a nullable struct follows the byte that is read here.
    pub(crate) fn present(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? >= 0)
    }

    /// The same in a tagged field, where the byte is an unsigned number and 0 is null.
    pub(crate) fn tagged_present(&mut self) -> Result<bool, DecodeError> {
        Ok(self.uvarint()? > 0)
    }

    /// Begins a tagged section.
    pub(crate) fn tags(&mut self) -> Result<Tags, DecodeError> {
        Ok(Tags { left: self.uvarint()?, last: None, end: usize::MAX })
    }

    /// Reads over a tagged section of which no tag is known.
    pub fn skip_tags(&mut self) -> Result<(), DecodeError> {
        let mut tags = self.tags()?;
        while tags.next(self)?.is_some() {
            tags.skip(self)?;
        }
        Ok(())
    }
}

/// A tagged section while it is read: for each tag of [`Tags::next`] the field is read and then
/// [`Tags::close`] called, or [`Tags::skip`].
pub(crate) struct Tags {
    left: u32,
    last: Option<u32>,
    /// How many bytes are left where the current field ends.
    end: usize,
}

impl Tags {
    pub(crate) fn next(&mut self, r: &mut Reader) -> Result<Option<u32>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let tag = r.uvarint()?;
        if let Some(after) = self.last.filter(|&last| last >= tag) {
            return Err(DecodeError::TagOrder { tag, after });
        }
        self.last = Some(tag);
        let size = r.uvarint()? as usize;
        r.need(size)?;
        self.end = r.remaining() - size;
        Ok(Some(tag))
    }

    pub(crate) fn skip(&self, r: &mut Reader) -> Result<(), DecodeError> {
        r.slice(r.remaining() - self.end).map(drop)
    }

    /// Checks that the field took as many bytes as it said.
    pub(crate) fn close(&self, r: &Reader) -> Result<(), DecodeError> {
        if r.remaining() == self.end {
            return Ok(());
        }
        Err(DecodeError::TagSize { tag: self.last.unwrap_or(0) })
    }
}

fn short(error: bytes::TryGetError) -> DecodeError {
    DecodeError::UnexpectedEnd { needed: error.requested, remaining: error.available }
}

/// Refuses null in the versions that do not know it.
pub(crate) fn nullable<T>(
    value: Option<T>,
    allowed: bool,
    field: &'static str,
) -> Result<Option<T>, DecodeError> {
    if value.is_none() && !allowed { Err(DecodeError::UnexpectedNull { field }) } else { Ok(value) }
}

/// Takes a value that no version allows to be null.
pub(crate) fn required<T>(value: Option<T>, field: &'static str) -> Result<T, DecodeError> {
    value.ok_or(DecodeError::UnexpectedNull { field })
}
