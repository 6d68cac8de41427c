//! Compressed batches that inflate to gigabytes, or that no codec can read.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol_tests::batch::{Batch, Codec, varint};
use protocol_tests::requests::{fetch_request, produce_request};
use protocol_tests::{Broker, Connection};
use wire::metadata_request::MetadataRequest;
use wire::produce_request::ProduceRequest;

const TOPIC: &str = "bombs";
const T0: i64 = 1_700_000_000_000;
/// Beyond the frames themselves, of which the broker holds one at a time.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// What is not answered within this time is never answered. Unoptimised builds inflate slowly.
const LIMIT: Duration = Duration::from_secs(240);
/// Nor does anybody else wait so long: inflating holds up no worker that others need.
const OTHERS_LIMIT: Duration = Duration::from_secs(60);

const CORRUPT_MESSAGE: i16 = 2;
const MESSAGE_TOO_LARGE: i16 = 10;
const UNSUPPORTED_COMPRESSION_TYPE: i16 = 76;
const INVALID_RECORD: i16 = 87;

/// A batch of one record, whose payload is what the codec makes of it.
fn bomb(codec: Codec, count: i32, payload: &[u8]) -> Bytes {
    Batch { record_count: Some(count), last_offset_delta: Some(count - 1), ..Batch::of("k", 1, T0) }
        .with_codec(codec)
        .encode_with(payload)
}

/// The beginning of a record with a value of so many bytes, which zeros go on to fill.
fn record_start(value_bytes: i64) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1];
    varint(&mut body, value_bytes);
    let mut record = Vec::new();
    varint(&mut record, body.len() as i64 + value_bytes + 1);
    record.extend(body);
    record
}

const BLOCK: usize = 4 << 20;

/// Streams may follow one another in gzip and zstd: one of zeros is compressed once and repeated.
fn repeated(codec: Codec, start: &[u8], blocks: usize) -> Vec<u8> {
    let mut first = start.to_vec();
    first.resize(BLOCK, 0);
    let mut packed = codec.compress(&first);
    packed.extend(codec.compress(&vec![0; BLOCK]).repeat(blocks - 1));
    packed
}

/// One LZ4 frame of blocks of 4 MiB, with or without zeros to its end.
fn lz4(start: &[u8], blocks: usize) -> Vec<u8> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let info = FrameInfo::new().block_size(BlockSize::Max4MB).block_mode(BlockMode::Independent);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    let mut first = start.to_vec();
    first.resize(BLOCK, 0);
    encoder.write_all(&first).expect("write to memory");
    let zeros = vec![0; BLOCK];
    for _ in 1..blocks {
        encoder.write_all(&zeros).expect("write to memory");
    }
    encoder.finish().expect("write to memory")
}

/// A zstd frame header that asks for a window of 2 GiB.
const ZSTD_WINDOW: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0, 21 << 3, 1, 0, 0];

fn bombs() -> Vec<(&'static str, Bytes)> {
    let one = record_start((1 << 31) - 100);
    // Each of four zeros is a record of two fields; the fields do not fit, so that the second one is refused at the latest.
    let many = [6, 0, 0, 0, 1, 1, 0];
    vec![
        ("gzip, one record", bomb(Codec::Gzip, 1, &repeated(Codec::Gzip, &one, 256))),
        ("gzip, many records", bomb(Codec::Gzip, 100_000_000, &repeated(Codec::Gzip, &many, 256))),
        ("zstd, one record", bomb(Codec::Zstd, 1, &repeated(Codec::Zstd, &one, 512))),
        ("zstd, many records", bomb(Codec::Zstd, 100_000_000, &repeated(Codec::Zstd, &many, 512))),
        ("lz4, one record", bomb(Codec::Lz4, 1, &lz4(&record_start(256 << 20), 40))),
        ("zstd, a window of 2 GiB", bomb(Codec::Zstd, 1, ZSTD_WINDOW)),
    ]
}

#[track_caller]
fn check_growth(broker: &Broker, before: u64, frames: u64, what: &str) {
    if broker.server().is_barnabas() {
        let growth = broker.memory_bytes("VmHWM:").saturating_sub(before);
        assert!(growth < GROWTH_BYTES_MAX + frames, "{what}: the broker grew by {growth} bytes");
    }
}

/// R14
#[test]
fn what_inflates_to_gigabytes_is_refused_or_stored_in_little_memory() {
    let broker = Broker::start(&[]);
    let address = broker.address();
    let mut connection = Connection::open(&address);
    connection.set_limit(LIMIT);
    connection.create_topic(TOPIC, 1, &[("max.message.bytes", "10000000")]);
    let bombs = bombs();
    assert!(bombs.iter().all(|(_, bytes)| bytes.len() < 9_000_000));
    let before = broker.memory_bytes("VmRSS:");
    for (what, bytes) in bombs {
        let size = bytes.len() as u64;
        let asked = connection.send(7, &produce_request(TOPIC, -1, vec![(0, bytes)]));
        // Others are served meanwhile.
        let other = thread::spawn({
            let address = address.clone();
            move || {
                let started = Instant::now();
                let none = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
                Connection::open(&address).call(1, &none);
                started.elapsed()
            }
        });
        let started = Instant::now();
        let answer = connection.receive::<ProduceRequest>(7, asked).expect("an answer");
        let code = answer.responses[0].partition_responses[0].error_code;
        assert!([0, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD].contains(&code), "{what}: {code}");
        assert!(started.elapsed() < LIMIT, "{what}: {:?}", started.elapsed());
        let waited = other.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        assert!(waited < OTHERS_LIMIT, "{what}: another client waited {waited:?}");
        check_growth(&broker, before, 2 * size, what);
    }
    // What was stored is not taken apart for an old consumer within more memory either.
    for offset in 0..connection.log_end(TOPIC, 0) {
        let answer = connection.call(2, &fetch_request(TOPIC, &[(0, offset)], 10 << 20));
        let code = answer.responses[0].partitions[0].error_code;
        assert!([0, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE].contains(&code), "at {offset}: {code}");
    }
    check_growth(&broker, before, 20 << 20, "Fetch v2");
    connection.append(TOPIC, 0, &Batch::of("after", 1, T0));
}

fn broken() -> Vec<(&'static str, Bytes)> {
    let good = Batch::of("k", 3, T0);
    let plain = good.plain_records();
    let with = |codec: Codec, payload: &[u8]| good.clone().with_codec(codec).encode_with(payload);
    let codec_bits = |bits: i16| Batch { attributes: bits, ..good.clone() }.encode();
    // Magic, version, compatible version, then a block's length.
    let snappy = |length: i32| {
        let mut bytes = vec![0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&[0; 20]);
        bytes
    };
    let changed = |codec: Codec, at: usize| {
        let mut bytes = codec.compress(&plain);
        let at = at.min(bytes.len() - 1);
        bytes[at] ^= 0x55;
        bytes
    };
    let gzip = Codec::Gzip.compress(&plain);
    // A frame header that names a dictionary.
    let dictionary = [&[0x28, 0xb5, 0x2f, 0xfd, 0x21, 7, 5][..], &[0; 8]].concat();
    let lz4 = Codec::Lz4.compress(&plain);
    vec![
        ("snappy block of -1 bytes", with(Codec::Snappy, &snappy(-1))),
        ("snappy block of 2^31 - 1 bytes", with(Codec::Snappy, &snappy(i32::MAX))),
        ("snappy block of garbage", with(Codec::Snappy, &snappy(20))),
        ("snappy that claims 4 GiB", with(Codec::Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0])),
        ("lz4 with a bad header", with(Codec::Lz4, &changed(Codec::Lz4, 6))),
        ("lz4 with a bad block", with(Codec::Lz4, &changed(Codec::Lz4, 9))),
        ("lz4 that is cut", with(Codec::Lz4, &lz4[..lz4.len() / 2])),
        ("gzip without its end", with(Codec::Gzip, &gzip[..gzip.len() - 8])),
        ("gzip with a wrong checksum", with(Codec::Gzip, &changed(Codec::Gzip, gzip.len() - 6))),
        ("gzip of another method", with(Codec::Gzip, &changed(Codec::Gzip, 2))),
        ("zstd with a dictionary", with(Codec::Zstd, &dictionary)),
        ("zstd that is cut", with(Codec::Zstd, &Codec::Zstd.compress(&plain)[..10])),
        ("codec 5", codec_bits(5)),
        ("codec 6", codec_bits(6)),
        ("codec 7", codec_bits(7)),
        ("nothing in gzip", with(Codec::Gzip, &[])),
        ("nothing in zstd", with(Codec::Zstd, &[])),
    ]
}

/// R15
#[test]
fn what_no_codec_can_read_is_refused() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 2, &[]);
    let good = Batch::of("good", 1, T0).encode();
    for (number, (what, bytes)) in (1..).zip(broken()) {
        let answers = connection.produce(TOPIC, vec![(0, bytes), (1, good.clone())]);
        let is_refused = [CORRUPT_MESSAGE, INVALID_RECORD].contains(&answers[0].error_code);
        assert!(is_refused, "{what}: {:?}", answers[0]);
        assert_eq!(answers[1].error_code, 0, "{what}: the other partition");
        assert_eq!(connection.log_end(TOPIC, 0), 0, "{what}");
        assert_eq!(connection.log_end(TOPIC, 1), number, "{what}");
    }
}

/// One message of format v1: its checksum, then magic, attributes, timestamp, null key and a value.
fn message_v1(attributes: u8, value: &[u8]) -> Vec<u8> {
    let mut body = vec![1, attributes];
    body.extend_from_slice(&T0.to_be_bytes());
    body.extend_from_slice(&(-1_i32).to_be_bytes());
    body.extend_from_slice(&(value.len() as i32).to_be_bytes());
    body.extend_from_slice(value);
    let mut crc = flate2::Crc::new();
    crc.update(&body);
    let mut message = 0_i64.to_be_bytes().to_vec();
    message.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    message.extend_from_slice(&crc.sum().to_be_bytes());
    message.extend(body);
    message
}

/// R17
#[test]
fn a_wrapper_in_a_wrapper_is_refused() {
    const GZIP: u8 = 1;
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    let mut nested = message_v1(0, b"in the middle");
    for depth in 1..=1_000 {
        nested = message_v1(GZIP, &Codec::Gzip.compress(&nested));
        if [2, 3, 1_000].contains(&depth) {
            for version in [2, 7] {
                let request = produce_request(TOPIC, -1, vec![(0, Bytes::from(nested.clone()))]);
                let answer = &connection.call(version, &request).responses[0].partition_responses[0];
                let refusals = [CORRUPT_MESSAGE, INVALID_RECORD];
                assert!(refusals.contains(&answer.error_code), "v{version}, {depth} deep: {answer:?}");
                assert_eq!(connection.log_end(TOPIC, 0), 0);
            }
        }
    }
}
