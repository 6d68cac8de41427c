use bytes::{BufMut, Bytes, BytesMut};

use crate::{EncodeError, Records, Str, Struct, Uuid};

/// Collects encoded frames. Record data is not copied into the buffer but kept as [`Splice`]s, so that
/// whoever sends the frame can write buffer and record data in turn.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: BytesMut,
    splices: Vec<Splice>,
    spliced_bytes: usize,
    errors: Vec<(i16, u32)>,
}

/// Record data that belongs between two bytes of a [`Writer`]'s buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    /// The data comes before the buffer's byte at this position.
    pub at: usize,
    /// The data.
    pub content: Records,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty writer with room for `size_bytes` besides record data.
    pub fn with_capacity(size_bytes: usize) -> Self {
        Self { buffer: BytesMut::with_capacity(size_bytes), ..Self::default() }
    }

    /// A writer that appends to what `buffer` already holds.
    pub fn from_buffer(buffer: BytesMut) -> Self {
        Self { buffer, ..Self::default() }
    }

    /// Size on the wire of everything written, record data included.
    pub fn size_bytes(&self) -> usize {
        self.buffer.len() + self.spliced_bytes
    }

    /// The error codes other than 0 that messages had, each with how often.
    pub fn take_errors(&mut self) -> Vec<(i16, u32)> {
        std::mem::take(&mut self.errors)
    }

    /// The buffer and the record data that belongs into it, in order of position.
    pub fn into_parts(self) -> (BytesMut, Vec<Splice>) {
        (self.buffer, self.splices)
    }

    /// Everything in one piece, record data copied in.
    ///
    /// # Panics
    ///
    /// If there is record data outside memory ([`Records::External`]).
    pub fn into_bytes(self) -> Bytes {
        if self.splices.is_empty() {
            return self.buffer.freeze();
        }
        let mut whole = BytesMut::with_capacity(self.size_bytes());
        let mut rest = self.buffer;
        let mut taken = 0;
        for splice in self.splices {
            whole.put(rest.split_to(splice.at - taken));
            taken = splice.at;
            let Records::Bytes(bytes) = splice.content else { panic!("external records cannot be copied") };
            whole.put(bytes);
        }
        whole.put(rest);
        whole.freeze()
    }

    /// Writes a frame: four bytes of length, then what `body` writes. After an error the writer is as it
    /// was before.
    pub fn frame(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let (start, splices, spliced_bytes) = (self.buffer.len(), self.splices.len(), self.spliced_bytes);
        self.i32(0);
        let written = body(self).and_then(|()| {
            let length = self.buffer.len() - start - 4 + self.spliced_bytes - spliced_bytes;
            i32::try_from(length).map_err(|_| EncodeError::TooLong { length })
        });
        match written {
            Ok(length) => {
                self.buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
                Ok(())
            }
            Err(error) => {
                self.buffer.truncate(start);
                self.splices.truncate(splices);
                self.spliced_bytes = spliced_bytes;
                Err(error)
            }
        }
    }

    /// One byte, 1 or 0.
    pub fn bool(&mut self, value: bool) {
        self.buffer.put_u8(u8::from(value));
    }

    /// A signed byte.
    pub fn i8(&mut self, value: i8) {
        self.buffer.put_i8(value);
    }

    /// Two bytes, most significant first, as all numbers of fixed length.
    pub fn i16(&mut self, value: i16) {
        self.buffer.put_i16(value);
    }

    /// What became of something that was asked for; 0 = it was done.
    pub fn error_code(&mut self, code: i16) {
        if code != 0 {
            // A response has few different ones.
            match self.errors.iter_mut().find(|(known, _)| *known == code) {
                Some((_, count)) => *count += 1,
                None => self.errors.push((code, 1)),
            }
        }
        self.i16(code);
    }

    /// Two bytes without sign.
    pub fn u16(&mut self, value: u16) {
        self.buffer.put_u16(value);
    }

    /// Four bytes.
    pub fn i32(&mut self, value: i32) {
        self.buffer.put_i32(value);
    }

    /// Four bytes without sign.
    pub fn u32(&mut self, value: u32) {
        self.buffer.put_u32(value);
    }

    /// Eight bytes.
    pub fn i64(&mut self, value: i64) {
        self.buffer.put_i64(value);
    }

    /// Eight bytes, IEEE 754.
    pub fn f64(&mut self, value: f64) {
        self.buffer.put_f64(value);
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self, value: Uuid) {
        self.buffer.put_slice(&value.0);
    }

    /// An unsigned number of one to five bytes, seven bits each, least significant first.
    pub fn uvarint(&mut self, value: u32) {
        let (bytes, len) = uvarint(value);
        self.buffer.put_slice(&bytes[..len]);
    }

    /// The length of a byte field or the count of an array.
    fn length(&mut self, length: Option<usize>, flexible: bool) -> Result<(), EncodeError> {
        // Kafka reads the varint as a signed 32-bit number.
        let signed = length.map_or(Ok(-1), i32::try_from);
        let (Ok(signed), Some(plus_one)) = (signed, signed.ok().and_then(|n| n.checked_add(1))) else {
            return Err(EncodeError::TooLong { length: length.unwrap_or(0) });
        };
        if flexible {
            self.uvarint(plus_one.unsigned_abs());
        } else {
            self.i32(signed);
        }
        Ok(())
    }

    /// A string.
    pub fn string(&mut self, value: &Str, flexible: bool) -> Result<(), EncodeError> {
        if flexible {
            self.length(Some(value.len()), true)?;
        } else {
            let length = i16::try_from(value.len());
            self.i16(length.map_err(|_| EncodeError::TooLong { length: value.len() })?);
        }
        self.buffer.put_slice(value.as_bytes());
        Ok(())
    }

    /// A string or null.
    pub fn nullable_string(&mut self, value: Option<&Str>, flexible: bool) -> Result<(), EncodeError> {
        match value {
            Some(value) => return self.string(value, flexible),
            None if flexible => self.uvarint(0),
            None => self.i16(-1),
        }
        Ok(())
    }

    /// Bytes.
    pub fn bytes(&mut self, value: &Bytes, flexible: bool) -> Result<(), EncodeError> {
        self.length(Some(value.len()), flexible)?;
        self.buffer.put_slice(value);
        Ok(())
    }

    /// Bytes or null.
    pub fn nullable_bytes(&mut self, value: Option<&Bytes>, flexible: bool) -> Result<(), EncodeError> {
        match value {
            Some(value) => self.bytes(value, flexible),
            None => self.length(None, flexible),
        }
    }

    /// Record data or null. The data is kept apart as a [`Splice`].
    pub fn records(&mut self, value: Option<&Records>, flexible: bool) -> Result<(), EncodeError> {
        self.length(value.map(Records::size_bytes), flexible)?;
        if let Some(content) = value.filter(|records| records.size_bytes() > 0) {
            self.spliced_bytes += content.size_bytes();
            self.splices.push(Splice { at: self.buffer.len(), content: content.clone() });
        }
        Ok(())
    }

    pub(crate) fn structs<T: Struct>(
        &mut self,
        value: Option<&[T]>,
        flexible: bool,
        version: i16,
    ) -> Result<(), EncodeError> {
        self.length(value.map(<[T]>::len), flexible)?;
        for element in value.unwrap_or_default() {
            element.write(self, version)?;
        }
        Ok(())
    }

    pub(crate) fn i8s(&mut self, value: Option<&[i8]>, flexible: bool) -> Result<(), EncodeError> {
        self.length(value.map(<[i8]>::len), flexible)?;
        value.unwrap_or_default().iter().for_each(|&element| self.i8(element));
        Ok(())
    }

    pub(crate) fn i16s(&mut self, value: Option<&[i16]>, flexible: bool) -> Result<(), EncodeError> {
        self.length(value.map(<[i16]>::len), flexible)?;
        value.unwrap_or_default().iter().for_each(|&element| self.i16(element));
        Ok(())
    }

    pub(crate) fn i32s(&mut self, value: Option<&[i32]>, flexible: bool) -> Result<(), EncodeError> {
        self.length(value.map(<[i32]>::len), flexible)?;
        value.unwrap_or_default().iter().for_each(|&element| self.i32(element));
        Ok(())
    }

    pub(crate) fn i64s(&mut self, value: Option<&[i64]>, flexible: bool) -> Result<(), EncodeError> {
        self.length(value.map(<[i64]>::len), flexible)?;
        value.unwrap_or_default().iter().for_each(|&element| self.i64(element));
        Ok(())
    }

    pub(crate) fn uuids(&mut self, value: Option<&[Uuid]>, flexible: bool) -> Result<(), EncodeError> {
        self.length(value.map(<[Uuid]>::len), flexible)?;
        value.unwrap_or_default().iter().for_each(|&element| self.uuid(element));
        Ok(())
    }

    pub(crate) fn strings(&mut self, value: Option<&[Str]>, flexible: bool) -> Result<(), EncodeError> {
        self.length(value.map(<[Str]>::len), flexible)?;
        value.unwrap_or_default().iter().try_for_each(|element| self.string(element, flexible))
    }

    /// Begins a tagged field; returns what [`Writer::close_tag`] wants.
    pub(crate) fn open_tag(&mut self, tag: u32) -> usize {
        self.uvarint(tag);
        self.buffer.len()
    }

    /// Ends the tagged field that began at `start`: only now its size is known, so its bytes move to make
    /// room. Tagged fields are short, and none holds record data.
    pub(crate) fn close_tag(&mut self, start: usize) {
        debug_assert!(
            self.splices.last().is_none_or(|splice| splice.at <= start),
            "records in a tagged field"
        );
        let end = self.buffer.len();
        let (size, len) = uvarint((end - start) as u32);
        self.buffer.put_slice(&size[..len]);
        self.buffer.copy_within(start..end, start + len);
        self.buffer[start..start + len].copy_from_slice(&size[..len]);
    }
}

fn uvarint(mut value: u32) -> ([u8; 5], usize) {
    let mut bytes = [0; 5];
    let mut len = 0;
    while value >= 0x80 {
        bytes[len] = (value & 0x7f) as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    (bytes, len + 1)
}

/// Says what an absent value would lose.
pub(crate) fn ignore(is_default: bool, field: &'static str, version: i16) -> Result<(), EncodeError> {
    if is_default { Ok(()) } else { Err(EncodeError::FieldNotInVersion { field, version }) }
}

/// Refuses null in the versions that do not know it.
pub(crate) fn not_null(is_null: bool, field: &'static str) -> Result<(), EncodeError> {
    if is_null { Err(EncodeError::NullNotAllowed { field }) } else { Ok(()) }
}
