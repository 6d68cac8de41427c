use bytes::Bytes;
use snafu::ensure;

use crate::model::{Offset, Timestamp};
use crate::records::error::{CrcMismatchSnafu, RecordFault, RecordsError};
use crate::records::{Attributes, MessageFormat};

/// One message, decoded. Key and value are slices of what it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::records) struct Message {
    /// As it stands in the message: see the room's doc for what it counts from inside a wrapper.
    pub offset: Offset,
    pub format: MessageFormat,
    /// Of these only codec and timestamp type exist.
    pub attributes: Attributes,
    /// `-1` in v0.
    pub timestamp: Timestamp,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub crc: u32,
    bytes: Bytes,
}

/// Bytes of offset and size.
pub(super) const OVERHEAD: usize = 12;
/// Where the CRC's part begins: it does not cover itself.
pub(super) const MAGIC_AT: usize = 16;
/// The least a message takes: v0 with null key and value.
pub(super) const SIZE_MIN: usize = OVERHEAD + 14;

impl Message {
    /// Reads the message that is exactly `bytes`. What follows the value is ignored, as Kafka does.
    pub fn read(bytes: &Bytes) -> Result<Message, RecordFault> {
        let mut fields = Fields { rest: bytes };
        let offset = Offset(i64::from_be_bytes(fields.take()?));
        let _size: [u8; 4] = fields.take()?;
        let crc = u32::from_be_bytes(fields.take()?);
        let [magic, attributes] = fields.take()?;
        let format = MessageFormat::from_magic(magic as i8).filter(|format| format.is_legacy());
        let format = format.ok_or(RecordFault::Magic)?;
        let (timestamp, known_bits) = match format {
            MessageFormat::V0 => (Timestamp::NONE, 0x07),
            _ => (Timestamp(i64::from_be_bytes(fields.take()?)), 0x0f),
        };
        let key = fields.nullable()?.map(|field| bytes.slice_ref(field));
        let value = fields.nullable()?.map(|field| bytes.slice_ref(field));
        Ok(Message {
            offset,
            format,
            attributes: Attributes(i16::from(attributes & known_bits)),
            timestamp,
            key,
            value,
            crc,
            bytes: bytes.clone(),
        })
    }

    /// Checks the bytes against the CRC in them.
    pub fn check_crc(&self) -> Result<(), RecordsError> {
        let computed = crc32(self.bytes.get(MAGIC_AT..).unwrap_or_default());
        ensure!(computed == self.crc, CrcMismatchSnafu { stored: self.crc, computed });
        Ok(())
    }
}

/// The CRC of the old formats: CRC-32, not CRC-32C.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordFault> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(RecordFault::Length)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A field with its length in front; a negative length is null.
    fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordFault> {
        let Ok(length) = usize::try_from(i32::from_be_bytes(self.take()?)) else { return Ok(None) };
        let (field, rest) = self.rest.split_at_checked(length).ok_or(RecordFault::Length)?;
        self.rest = rest;
        Ok(Some(field))
    }
}
