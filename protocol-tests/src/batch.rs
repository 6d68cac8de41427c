//! Record batches, written and read by hand: independent of the code under test, and able to write what is wrong.

use std::io::{Read, Write};

use bytes::{BufMut, Bytes, BytesMut};

/// Where the checksummed part of a batch begins.
const CRC_START: usize = 21;
/// A batch without records.
const HEADER_SIZE: usize = 61;

/// A batch of format v2. Counts and deltas follow from the records unless they are set.
#[derive(Clone, Debug)]
pub struct Batch {
    pub base_offset: i64,
    pub leader_epoch: i32,
    pub magic: i8,
    pub codec: Codec,
    /// Bits beside the codec: 8 log append time, 16 transactional, 32 control.
    pub attributes: i16,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records: Vec<Record>,
    pub record_count: Option<i32>,
    pub last_offset_delta: Option<i32>,
    pub length: Option<i32>,
    /// Added to the right checksum.
    pub crc_error: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Record {
    pub offset_delta: i32,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Option<Bytes>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None = 0,
    Gzip = 1,
    /// In the stream framing of Kafka's Java client.
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Codec {
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    pub fn named(name: &str) -> Codec {
        match name {
            "gzip" => Codec::Gzip,
            "snappy" => Codec::Snappy,
            "lz4" => Codec::Lz4,
            "zstd" => Codec::Zstd,
            _ => Codec::None,
        }
    }

    pub fn compress(self, plain: &[u8]) -> Vec<u8> {
        match self {
            Codec::None => plain.to_vec(),
            Codec::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(plain).expect("write to memory");
                encoder.finish().expect("write to memory")
            }
            Codec::Snappy => snappy_java(plain),
            Codec::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(plain).expect("write to memory");
                encoder.finish().expect("write to memory")
            }
            Codec::Zstd => zstd::stream::encode_all(plain, 3).expect("write to memory"),
        }
    }

    pub(crate) fn decompress(self, packed: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let read = match self {
            Codec::None => return packed.to_vec(),
            Codec::Snappy => return from_snappy(packed),
            Codec::Gzip => flate2::read::GzDecoder::new(packed).read_to_end(&mut plain),
            Codec::Lz4 => lz4_flex::frame::FrameDecoder::new(packed).read_to_end(&mut plain),
            Codec::Zstd => zstd::stream::copy_decode(packed, &mut plain).map(|()| plain.len()),
        };
        read.unwrap_or_else(|error| panic!("{self:?} cannot be read: {error}"));
        plain
    }
}

fn raw_snappy(plain: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(plain).expect("compress in memory")
}

/// Magic, version, compatible version; then blocks with their length.
fn snappy_java(plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
    for chunk in plain.chunks(32 * 1024) {
        let block = raw_snappy(chunk);
        out.extend_from_slice(&(block.len() as u32).to_be_bytes());
        out.extend_from_slice(&block);
    }
    out
}

fn from_snappy(packed: &[u8]) -> Vec<u8> {
    let raw = |block: &[u8]| snap::raw::Decoder::new().decompress_vec(block).expect("good snappy");
    if !packed.starts_with(&[0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0]) {
        return raw(packed);
    }
    let (mut rest, mut plain) = (&packed[16..], Vec::new());
    while let Some((length, blocks)) = rest.split_first_chunk::<4>() {
        let (block, next) = blocks.split_at(u32::from_be_bytes(*length) as usize);
        plain.extend(raw(block));
        rest = next;
    }
    plain
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            base_offset: 0,
            leader_epoch: -1,
            magic: 2,
            codec: Codec::None,
            attributes: 0,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records: Vec::new(),
            record_count: None,
            last_offset_delta: None,
            length: None,
            crc_error: 0,
        }
    }
}

impl Record {
    pub fn new(offset_delta: i32, timestamp: i64, key: &str, value: &str) -> Record {
        let bytes = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
        Record { offset_delta, timestamp, key: bytes(key), value: bytes(value), headers: Vec::new() }
    }

    fn encode(&self, base_timestamp: i64) -> Vec<u8> {
        let mut body = vec![0];
        varint(&mut body, self.timestamp - base_timestamp);
        varint(&mut body, i64::from(self.offset_delta));
        nullable(&mut body, self.key.as_deref());
        nullable(&mut body, self.value.as_deref());
        varint(&mut body, self.headers.len() as i64);
        for (name, value) in &self.headers {
            nullable(&mut body, Some(name.as_bytes()));
            nullable(&mut body, value.as_deref());
        }
        let mut record = Vec::with_capacity(body.len() + 5);
        varint(&mut record, body.len() as i64);
        record.extend(body);
        record
    }
}

impl Batch {
    /// Records with keys `PREFIX-0…` and the same values, one a millisecond from `timestamp` on.
    pub fn of(prefix: &str, count: i32, timestamp: i64) -> Batch {
        let record = |i: i32| {
            Record::new(i, timestamp + i64::from(i), &format!("{prefix}-{i}"), &format!("{prefix}-{i}"))
        };
        Batch { records: (0..count).map(record).collect(), ..Batch::default() }
    }

    pub fn with_codec(self, codec: Codec) -> Batch {
        Batch { codec, ..self }
    }

    /// The records as they stand in the batch, not compressed.
    pub fn plain_records(&self) -> Vec<u8> {
        let base = self.base_timestamp();
        self.records.iter().flat_map(|record| record.encode(base)).collect()
    }

    pub fn encode(&self) -> Bytes {
        self.encode_with(&self.codec.compress(&self.plain_records()))
    }

    /// The batch with `payload` in the place of its records.
    pub fn encode_with(&self, payload: &[u8]) -> Bytes {
        let count = self.records.len() as i32;
        let mut out = BytesMut::with_capacity(HEADER_SIZE + payload.len());
        out.put_i64(self.base_offset);
        out.put_i32(self.length.unwrap_or((HEADER_SIZE - 12 + payload.len()) as i32));
        out.put_i32(self.leader_epoch);
        out.put_i8(self.magic);
        out.put_u32(0);
        out.put_i16(self.attributes | self.codec as i16);
        out.put_i32(self.last_offset_delta.unwrap_or(count - 1));
        out.put_i64(self.base_timestamp());
        out.put_i64(self.records.iter().map(|record| record.timestamp).max().unwrap_or(-1));
        out.put_i64(self.producer_id);
        out.put_i16(self.producer_epoch);
        out.put_i32(self.base_sequence);
        out.put_i32(self.record_count.unwrap_or(count));
        out.put_slice(payload);
        let crc = crc32c::crc32c(&out[CRC_START..]).wrapping_add(self.crc_error);
        out[17..CRC_START].copy_from_slice(&crc.to_be_bytes());
        out.freeze()
    }

    fn base_timestamp(&self) -> i64 {
        self.records.first().map_or(-1, |record| record.timestamp)
    }
}

/// Reads the whole batches at the start of `bytes`; a cut one at the end is left out, as clients do.
///
/// Panics on a wrong checksum and on anything that is not a v2 batch.
#[track_caller]
pub fn read(bytes: &[u8]) -> Vec<Batch> {
    let (mut rest, mut batches) = (bytes, Vec::new());
    while rest.len() >= HEADER_SIZE {
        let size = 12 + i32::from_be_bytes(array(rest, 8)) as usize;
        let Some(batch) = rest.get(..size) else { break };
        batches.push(read_one(batch));
        rest = &rest[size..];
    }
    batches
}

#[track_caller]
fn read_one(bytes: &[u8]) -> Batch {
    assert_eq!(bytes[16], 2, "the format of the batch");
    let crc = u32::from_be_bytes(array(bytes, 17));
    assert_eq!(crc, crc32c::crc32c(&bytes[CRC_START..]), "the checksum of the batch");
    let attributes = i16::from_be_bytes(array(bytes, 21));
    let codec = Codec::ALL[usize::try_from(attributes & 7).expect("three bits")];
    let base_timestamp = i64::from_be_bytes(array(bytes, 27));
    let plain = codec.decompress(&bytes[HEADER_SIZE..]);
    let count = i32::from_be_bytes(array(bytes, 57));
    let (mut rest, mut records) = (&plain[..], Vec::new());
    for _ in 0..count {
        records.push(read_record(&mut rest, base_timestamp));
    }
    assert!(rest.is_empty(), "{} bytes follow the records", rest.len());
    Batch {
        base_offset: i64::from_be_bytes(array(bytes, 0)),
        leader_epoch: i32::from_be_bytes(array(bytes, 12)),
        magic: 2,
        codec,
        attributes: attributes & !7,
        producer_id: i64::from_be_bytes(array(bytes, 43)),
        producer_epoch: i16::from_be_bytes(array(bytes, 51)),
        base_sequence: i32::from_be_bytes(array(bytes, 53)),
        records,
        record_count: Some(count),
        last_offset_delta: Some(i32::from_be_bytes(array(bytes, 23))),
        length: Some(bytes.len() as i32 - 12),
        crc_error: 0,
    }
}

#[track_caller]
fn read_record(rest: &mut &[u8], base_timestamp: i64) -> Record {
    let length = read_varint(rest) as usize;
    let (mut body, next) = rest.split_at(length);
    *rest = next;
    let body = &mut body;
    *body = &body[1..];
    let timestamp = base_timestamp + read_varint(body);
    let offset_delta = read_varint(body) as i32;
    let (key, value) = (read_nullable(body), read_nullable(body));
    let headers = (0..read_varint(body))
        .map(|_| {
            let name = read_nullable(body).unwrap_or_default();
            (String::from_utf8_lossy(&name).into_owned(), read_nullable(body))
        })
        .collect();
    assert!(body.is_empty(), "{} bytes follow the record's fields", body.len());
    Record { offset_delta, timestamp, key, value, headers }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the length is N")
}

/// A signed variable-length number, zigzag.
pub fn varint(out: &mut Vec<u8>, value: i64) {
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

fn nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => varint(out, -1),
        Some(bytes) => {
            varint(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

#[track_caller]
fn read_varint(rest: &mut &[u8]) -> i64 {
    let (mut value, mut shift) = (0_u64, 0);
    loop {
        let (byte, next) = rest.split_first().expect("a number ends before its record");
        *rest = next;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return (value >> 1) as i64 ^ -((value & 1) as i64);
        }
    }
}

#[track_caller]
fn read_nullable(rest: &mut &[u8]) -> Option<Bytes> {
    let length = usize::try_from(read_varint(rest)).ok()?;
    let (bytes, next) = rest.split_at(length);
    *rest = next;
    Some(Bytes::copy_from_slice(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_every_codec_reads_back() {
        for codec in Codec::ALL {
            let mut batch = Batch::of("k", 7, 1_500_000_000_000).with_codec(codec);
            batch.records[3].headers =
                vec![("h".to_owned(), None), ("h".to_owned(), Some(Bytes::from_static(b"v")))];
            batch.records[4].key = None;
            let found = read(&batch.encode());
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].records, batch.records, "{codec:?}");
        }
    }
}
