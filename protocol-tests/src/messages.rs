//! Messages of the formats v0 and v1, written and read by hand, as [`crate::batch`] does v2.

use bytes::Bytes;

use crate::batch::Codec;

/// One message; key and value as text is enough here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// 0 or 1.
    pub magic: i8,
    /// As a consumer sees it.
    pub offset: i64,
    /// -1 in v0.
    pub timestamp: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
}

impl Message {
    /// Messages with keys and values `PREFIX-0…`, one a millisecond from `timestamp` on, at the offsets from 0 on.
    pub fn of(magic: i8, prefix: &str, count: i64, timestamp: i64) -> Vec<Message> {
        let message = |i: i64| {
            let text = Some(Bytes::from(format!("{prefix}-{i}")));
            let timestamp = if magic == 0 { -1 } else { timestamp + i };
            Message { magic, offset: i, timestamp, key: text.clone(), value: text }
        };
        (0..count).map(message).collect()
    }
}

/// The messages one after the other, or in a wrapper where there is a codec.
pub fn encode(messages: &[Message], codec: Codec) -> Bytes {
    let plain: Vec<u8> = messages.iter().flat_map(|message| one(message, 0)).collect();
    match (codec, messages.last()) {
        (Codec::None, _) | (_, None) => plain.into(),
        (codec, Some(last)) => wrap(last, codec, &plain),
    }
}

/// A wrapper around any bytes, with the offset, format and time of `like`.
pub fn wrap(like: &Message, codec: Codec, plain: &[u8]) -> Bytes {
    let value = Some(Bytes::from(codec.compress(plain)));
    one(&Message { key: None, value, ..like.clone() }, codec as u8).into()
}

fn one(message: &Message, attributes: u8) -> Vec<u8> {
    let mut body = vec![message.magic as u8, attributes];
    if message.magic > 0 {
        body.extend_from_slice(&message.timestamp.to_be_bytes());
    }
    for field in [&message.key, &message.value] {
        body.extend_from_slice(&field.as_ref().map_or(-1, |field| field.len() as i32).to_be_bytes());
        body.extend_from_slice(field.as_deref().unwrap_or_default());
    }
    let mut bytes = message.offset.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    bytes.extend_from_slice(&crc32(&body).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Reads whole messages, those in wrappers too; what is cut at the end is left out, as by clients.
///
/// Panics on a wrong checksum, on what is no message, and on a wrapper in a wrapper.
#[track_caller]
pub fn read(bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    for (message, attributes) in entries(bytes) {
        let codec = Codec::ALL[usize::from(attributes & 7)];
        let Some(value) = message.value.as_ref().filter(|_| codec != Codec::None) else {
            messages.push(message);
            continue;
        };
        let inner = entries(&decompress(codec, message.magic, value));
        assert!(inner.iter().all(|(inner, attributes)| attributes & 7 == 0 && inner.magic == message.magic));
        let last = inner.last().map_or(0, |(last, _)| last.offset);
        let base = if message.magic == 0 { 0 } else { message.offset - last };
        messages.extend(inner.into_iter().map(|(inner, _)| Message { offset: base + inner.offset, ..inner }));
    }
    messages
}

/// LZ4 frames of v0 have a checksum that no LZ4 library takes: it covers the magic number as well.
#[track_caller]
fn decompress(codec: Codec, magic: i8, packed: &[u8]) -> Vec<u8> {
    let mut packed = packed.to_vec();
    if codec == Codec::Lz4 && magic == 0 {
        assert_eq!(packed[6], 0x1a, "the legacy checksum of a frame with independent blocks of 64 KiB");
        packed[6] = 0x82;
    }
    codec.decompress(&packed)
}

#[track_caller]
fn entries(mut rest: &[u8]) -> Vec<(Message, u8)> {
    let mut found = Vec::new();
    while rest.len() >= 12 {
        let size = i32::from_be_bytes(array(rest, 8));
        let Some(entry) = usize::try_from(size).ok().and_then(|size| rest.get(..12 + size)) else { break };
        found.push(entry_of(entry));
        rest = &rest[entry.len()..];
    }
    found
}

#[track_caller]
fn entry_of(entry: &[u8]) -> (Message, u8) {
    assert_eq!(u32::from_be_bytes(array(entry, 12)), crc32(&entry[16..]), "the checksum of a message");
    let magic = entry[16] as i8;
    assert!((0..=1).contains(&magic), "a message of format {magic}");
    let (timestamp, mut at) = if magic == 0 { (-1, 18) } else { (i64::from_be_bytes(array(entry, 18)), 26) };
    let mut field = || {
        let length = i32::from_be_bytes(array(entry, at));
        at += 4;
        let length = usize::try_from(length).ok()?;
        at += length;
        Some(Bytes::copy_from_slice(&entry[at - length..at]))
    };
    let (key, value) = (field(), field());
    assert_eq!(at, entry.len(), "nothing follows the value");
    (Message { magic, offset: i64::from_be_bytes(array(entry, 0)), timestamp, key, value }, entry[17])
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the length is N")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back() {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy] {
            for magic in [0, 1] {
                let messages = Message::of(magic, "k", 5, 1_500_000_000_000);
                assert_eq!(read(&encode(&messages, codec)), messages);
            }
        }
    }
}
