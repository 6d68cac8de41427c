use std::io::Write;

use bytes::Bytes;

use crate::records::cursor::Source;
use crate::records::error::RecordFault;
use crate::records::{Codec, MessageFormat};

use super::*;

const UNLIMITED: InflateLimits =
    InflateLimits { size_max: usize::MAX, large_window_size_max: usize::MAX, record_size_max: usize::MAX };

fn inflate_within(codec: Codec, input: &[u8], limits: InflateLimits) -> Result<Vec<u8>, RecordFault> {
    let mut inflater =
        Inflater::new(codec, MessageFormat::V2, Bytes::copy_from_slice(input), limits).unwrap();
    let mut inflated = Vec::new();
    while inflater.refill()? {
        inflated.extend_from_slice(inflater.chunk());
    }
    Ok(inflated)
}

fn inflate(codec: Codec, input: &[u8]) -> Result<Vec<u8>, RecordFault> {
    inflate_within(codec, input, UNLIMITED)
}

fn deflate(codec: Codec, input: &[u8]) -> Vec<u8> {
    deflate_at(None, codec, input)
}

fn deflate_at(level: Option<i32>, codec: Codec, input: &[u8]) -> Vec<u8> {
    let mut deflater = Deflater::new(codec, MessageFormat::V2, level, Vec::new());
    input.chunks(10_000).for_each(|part| deflater.write(part));
    deflater.finish()
}

/// Text that compresses somewhat, of several blocks.
fn text() -> Vec<u8> {
    (0..40_000).flat_map(|index: u32| format!("line {} ", index * index).into_bytes()).collect()
}

fn noise(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..length).map(|_| random.u8(..)).collect()
}

const COMPRESSED: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

#[test]
fn what_is_written_reads_back() {
    for codec in COMPRESSED {
        for plain in [Vec::new(), vec![1], text(), noise(200_000)] {
            assert_eq!(inflate(codec, &deflate(codec, &plain)).as_ref(), Ok(&plain), "{codec:?}");
        }
    }
}

#[test]
fn every_level_of_lz4_reads_back() {
    for level in (1..=17).map(Some).chain([None, Some(0), Some(18)]) {
        for plain in [Vec::new(), vec![1], text(), noise(200_000)] {
            let compressed = deflate_at(level, Codec::Lz4, &plain);
            assert_eq!(inflate(Codec::Lz4, &compressed).as_ref(), Ok(&plain), "{level:?}");
        }
    }
}

/// KIP-390: 9 has always been the default, and stands for the fast compressor.
#[test]
fn higher_levels_of_lz4_take_less_room_but_for_the_default() {
    let size = |level| deflate_at(level, Codec::Lz4, &text()).len();
    let sizes: Vec<usize> = [9, 1, 3, 6, 8, 10, 12].into_iter().map(|level| size(Some(level))).collect();
    assert!(sizes.is_sorted_by(|left, right| left > right), "{sizes:?}");
    assert_eq!(size(Some(9)), size(None));
    // The library has no more levels than these.
    assert_eq!(size(Some(17)), size(Some(12)));
}

#[test]
fn output_is_capped() {
    let plain = text();
    for codec in COMPRESSED {
        let limits = |size_max| InflateLimits { size_max, ..UNLIMITED };
        let compressed = deflate(codec, &plain);
        assert!(inflate_within(codec, &compressed, limits(plain.len())).is_ok());
        let error = inflate_within(codec, &compressed, limits(plain.len() - 1)).unwrap_err();
        assert_eq!(error, RecordFault::InflatedTooLarge, "{codec:?}");
    }
}

#[test]
fn a_cut_stream_is_damaged() {
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let compressed = deflate(codec, &text());
        for cut in [1, 5, 11, compressed.len() / 2, compressed.len() - 1] {
            assert_eq!(inflate(codec, &compressed[..cut]), Err(RecordFault::Compression), "{codec:?} {cut}");
        }
    }
}

#[test]
fn gzip_of_two_members_is_one_stream() {
    let two = [deflate(Codec::Gzip, b"one "), deflate(Codec::Gzip, b"two")].concat();
    assert_eq!(inflate(Codec::Gzip, &two), Ok(b"one two".to_vec()));
}

#[test]
fn gzip_with_every_optional_field_is_read() {
    let mut stream = vec![0x1f, 0x8b, 8, 0x1e, 0, 0, 0, 0, 0, 255];
    stream.extend_from_slice(&[2, 0, b'e', b'x']);
    stream.extend_from_slice(b"name\0comment\0");
    stream.extend_from_slice(&[0, 0]);
    stream.extend_from_slice(&deflate(Codec::Gzip, b"content")[10..]);
    assert_eq!(inflate(Codec::Gzip, &stream), Ok(b"content".to_vec()));
}

#[test]
fn gzip_checksum_and_size_are_verified() {
    for at_end in 1..=8 {
        let mut stream = deflate(Codec::Gzip, b"content");
        let at = stream.len() - at_end;
        stream[at] ^= 1;
        assert_eq!(inflate(Codec::Gzip, &stream), Err(RecordFault::Compression));
    }
}

#[test]
fn raw_snappy_is_read_as_well_as_the_java_stream() {
    let plain = text();
    let raw = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
    assert_eq!(inflate(Codec::Snappy, &raw), Ok(plain.clone()));
    let stream = deflate(Codec::Snappy, &plain);
    assert_eq!(&stream[..16], b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
    assert_eq!(inflate(Codec::Snappy, &[&stream[..], &stream[..]].concat()).unwrap().len(), 2 * plain.len());
}

#[test]
fn snappy_blocks_that_lie_are_refused_before_memory_is_taken() {
    let stream = |block_length: i32, block: &[u8]| {
        [&b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"[..], &block_length.to_be_bytes(), block].concat()
    };
    // A varint of 4 GiB - 1 as the block's own size, then one literal.
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, b'x'];
    for (name, input) in [
        ("raw block of 4 GiB", huge.to_vec()),
        ("block of 4 GiB", stream(7, &huge)),
        ("negative length", stream(-5, &huge)),
        ("length past the end", stream(i32::MAX, &huge)),
        ("length cut", stream(1, &[])[..18].to_vec()),
        ("header cut", b"\x82SNAPPY\0\0\0".to_vec()),
        ("empty block", stream(0, &[])),
    ] {
        assert_eq!(inflate(Codec::Snappy, &input), Err(RecordFault::Compression), "{name}");
    }
}

/// A frame with these flags and one stored block.
fn lz4_frame(flags: u8, after_block: &[u8]) -> Vec<u8> {
    let mut frame = 0x184d_2204u32.to_le_bytes().to_vec();
    let mut descriptor = vec![flags, 0x40];
    if flags & 0x08 != 0 {
        descriptor.extend_from_slice(&3u64.to_le_bytes());
    }
    frame.extend_from_slice(&descriptor);
    frame.push((twox_hash::XxHash32::oneshot(0, &descriptor) >> 8) as u8);
    frame.extend_from_slice(&(3u32 | 0x8000_0000).to_le_bytes());
    frame.extend_from_slice(b"abc");
    frame.extend_from_slice(after_block);
    frame
}

#[test]
fn lz4_frames_are_read_as_kafka_reads_them() {
    let end = 0u32.to_le_bytes();
    let block_checksum = twox_hash::XxHash32::oneshot(0, b"abc").to_le_bytes();
    let good = Ok(b"abc".to_vec());
    assert_eq!(inflate(Codec::Lz4, &lz4_frame(0x60, &end)), good);
    assert_eq!(inflate(Codec::Lz4, &lz4_frame(0x68, &end)), good);
    assert_eq!(inflate(Codec::Lz4, &lz4_frame(0x70, &[block_checksum, end].concat())), good);
    // A content checksum is skipped, not verified.
    assert_eq!(inflate(Codec::Lz4, &lz4_frame(0x64, &[end, [9; 4]].concat())), good);
}

#[test]
fn lz4_frames_that_kafka_cannot_read_are_refused() {
    let end = 0u32.to_le_bytes();
    let mut wrong_checksum = lz4_frame(0x60, &end);
    wrong_checksum[6] ^= 1;
    let mut long_block = lz4_frame(0x60, &end);
    long_block[7..11].copy_from_slice(&(70_000u32 | 0x8000_0000).to_le_bytes());
    for (name, frame) in [
        ("linked blocks", lz4_frame(0x40, &end)),
        ("dictionary", lz4_frame(0x61, &end)),
        ("version 2", lz4_frame(0xa0, &end)),
        ("block checksum", lz4_frame(0x70, &[[9; 4], end].concat())),
        ("header checksum", wrong_checksum),
        ("block longer than the frame's blocks", long_block),
        ("no end mark", lz4_frame(0x60, &[])),
        ("no frame", b"abcdefghijkl".to_vec()),
    ] {
        assert_eq!(inflate(Codec::Lz4, &frame), Err(RecordFault::Compression), "{name}");
    }
}

fn zstd_with_window(window_log: u32, plain: &[u8]) -> Vec<u8> {
    let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(window_log).unwrap();
    plain.chunks(100_000).for_each(|part| encoder.write_all(part).unwrap());
    encoder.finish().unwrap()
}

#[test]
fn zstd_windows_are_bounded() {
    let plain = text();
    let limits =
        InflateLimits { size_max: usize::MAX, large_window_size_max: 100_000, record_size_max: usize::MAX };
    assert_eq!(inflate_within(Codec::Zstd, &zstd_with_window(23, &plain), limits), Ok(plain.clone()));
    // The windows of the highest levels are read, but not much out of them.
    for window_log in [24, 27] {
        let frame = zstd_with_window(window_log, &plain);
        assert_eq!(inflate_within(Codec::Zstd, &frame, limits), Err(RecordFault::InflatedTooLarge));
        assert_eq!(inflate(Codec::Zstd, &frame), Ok(plain.clone()));
    }
    assert_eq!(inflate(Codec::Zstd, &zstd_with_window(28, &plain)), Err(RecordFault::Compression));
}

#[test]
fn a_zstd_window_of_two_gigabytes_is_refused() {
    for window in [0xa8, 0xff] {
        let frame = [&0xfd2f_b528u32.to_le_bytes()[..], &[0, window, 1, 0, 0]].concat();
        assert_eq!(inflate(Codec::Zstd, &frame), Err(RecordFault::Compression));
    }
}

#[test]
fn zstd_frames_follow_one_another_and_dictionaries_are_refused() {
    let two = [deflate(Codec::Zstd, b"one "), deflate(Codec::Zstd, b"two")].concat();
    assert_eq!(inflate(Codec::Zstd, &two), Ok(b"one two".to_vec()));
    // Dictionary id 7 in the frame header.
    let frame = [&0xfd2f_b528u32.to_le_bytes()[..], &[0x01, 0x58, 7, 1, 0, 0]].concat();
    assert_eq!(inflate(Codec::Zstd, &frame), Err(RecordFault::Compression));
}

#[test]
fn a_damaged_stream_does_not_spoil_the_next_one() {
    let plain = text();
    for codec in COMPRESSED {
        let compressed = deflate(codec, &plain);
        for _ in 0..3 {
            let _ = inflate(codec, &compressed[..compressed.len() / 3]);
            assert_eq!(inflate(codec, &compressed).as_ref(), Ok(&plain), "{codec:?}");
        }
    }
}
