use bytes::Bytes;

use crate::model::{Offset, Timestamp};
use crate::records::compression::Deflater;
use crate::records::{Attributes, Codec, MessageFormat, TimestampType};

use super::message::{MAGIC_AT, OVERHEAD, crc32};

/// Writes messages of v0 or v1: one after the other, or compressed in a wrapper.
pub(in crate::records) struct MessageSetBuilder {
    format: MessageFormat,
    attributes: Attributes,
    append_time: Timestamp,
    /// The first message's offset, from which a v1 wrapper counts.
    base_offset: Option<Offset>,
    last_offset: Offset,
    max_timestamp: Timestamp,
    output: Deflater,
    message: Vec<u8>,
}

impl MessageSetBuilder {
    /// With append times, every message has `append_time`. v0 has no timestamps.
    pub fn new(
        format: MessageFormat,
        (codec, level): (Codec, Option<i32>),
        timestamp_type: TimestampType,
        append_time: Timestamp,
    ) -> MessageSetBuilder {
        debug_assert!(format.is_legacy(), "v2 has no messages");
        let type_bits = match format {
            MessageFormat::V0 => TimestampType::CreateTime,
            _ => timestamp_type,
        };
        let room = if codec == Codec::None { 0 } else { wrapper_header_size(format) };
        MessageSetBuilder {
            format,
            attributes: Attributes::default().with_codec(codec).with_timestamp_type(type_bits),
            append_time,
            base_offset: None,
            last_offset: Offset::NONE,
            max_timestamp: Timestamp::NONE,
            output: Deflater::new(codec, format, level, vec![0; room]),
            message: Vec::new(),
        }
    }

    /// Adds a message with its absolute offset.
    pub fn append(&mut self, offset: Offset, timestamp: Timestamp, key: Option<&[u8]>, value: Option<&[u8]>) {
        let base_offset = *self.base_offset.get_or_insert(offset);
        let is_wrapped = self.is_wrapped();
        let written_offset = match self.format {
            MessageFormat::V1 if is_wrapped => Offset(offset.since(base_offset)),
            _ => offset,
        };
        let timestamp = match self.attributes.timestamp_type() {
            TimestampType::LogAppendTime if !is_wrapped => self.append_time,
            _ => timestamp,
        };
        self.last_offset = offset;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.message.clear();
        let attributes = self.attributes.with_codec(Codec::None);
        begin(&mut self.message, self.format, written_offset, attributes, timestamp);
        for field in [key, value] {
            let length = field.map_or(-1, |field| field.len() as i32);
            self.message.extend_from_slice(&length.to_be_bytes());
            self.message.extend_from_slice(field.unwrap_or_default());
        }
        seal(&mut self.message);
        self.output.write(&self.message);
    }

    /// Bytes of the output so far; some may still be held back by the codec.
    pub fn written(&self) -> usize {
        self.output.written()
    }

    /// The messages; empty if there are none.
    pub fn finish(self) -> Bytes {
        if self.base_offset.is_none() {
            return Bytes::new();
        }
        let is_wrapped = self.is_wrapped();
        let mut bytes = self.output.finish();
        if is_wrapped {
            let timestamp = match self.attributes.timestamp_type() {
                TimestampType::LogAppendTime => self.append_time,
                TimestampType::CreateTime => self.max_timestamp,
            };
            let room = wrapper_header_size(self.format);
            let value_length = (bytes.len() - room) as i32;
            let mut header = Vec::with_capacity(room);
            begin(&mut header, self.format, self.last_offset, self.attributes, timestamp);
            header.extend_from_slice(&(-1i32).to_be_bytes());
            header.extend_from_slice(&value_length.to_be_bytes());
            bytes[..room].copy_from_slice(&header);
            seal(&mut bytes);
        }
        bytes.into()
    }

    fn is_wrapped(&self) -> bool {
        self.attributes.codec().is_ok_and(|codec| codec != Codec::None)
    }
}

/// Bytes before the value of a wrapper, whose key is null.
fn wrapper_header_size(format: MessageFormat) -> usize {
    let timestamp = if format == MessageFormat::V0 { 0 } else { 8 };
    MAGIC_AT + 2 + timestamp + 4 + 4
}

/// The fields before the key; size and CRC come when the message is [sealed](seal).
fn begin(
    into: &mut Vec<u8>,
    format: MessageFormat,
    offset: Offset,
    attributes: Attributes,
    timestamp: Timestamp,
) {
    into.extend_from_slice(&offset.0.to_be_bytes());
    into.extend_from_slice(&[0; 8]);
    into.extend_from_slice(&[format.magic() as u8, attributes.0 as u8]);
    if format != MessageFormat::V0 {
        into.extend_from_slice(&timestamp.0.to_be_bytes());
    }
}

/// Fills size and CRC in.
fn seal(message: &mut [u8]) {
    let size = (message.len() - OVERHEAD) as i32;
    let crc = crc32(&message[MAGIC_AT..]);
    message[8..12].copy_from_slice(&size.to_be_bytes());
    message[12..16].copy_from_slice(&crc.to_be_bytes());
}
