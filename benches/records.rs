//! How fast batches are validated, beside the bare CRC of the same bytes. Prints, asserts nothing.
//!
//! `cargo bench --bench records`

use std::hint::black_box;
use std::time::{Duration, Instant};

use barnabas::model::Timestamp;
use barnabas::records::{BatchBuilder, Codec, TargetCompression, ValidationRules, validate};
use bytes::Bytes;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const BATCH_SIZE: usize = 16 * 1024;

fn rules(compression: TargetCompression) -> ValidationRules {
    ValidationRules { compression, ..ValidationRules::default() }
}

/// A batch of about 16 KiB before compression, of values that look like JSON.
fn batch(codec: Codec, value_size: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(1);
    let mut builder = BatchBuilder::new().compression(codec, None);
    while builder.size_bytes() + value_size < BATCH_SIZE {
        let mut value = String::new();
        while value.len() < value_size {
            value.push_str(&format!("{{\"id\":{},\"name\":\"customer\"}},", random.u32(..)));
        }
        builder.append(NOW, Some(b"key"), Some(&value.as_bytes()[..value_size]), &[]);
    }
    builder.build()
}

/// Time of one call, the best of many short rounds: a busy machine disturbs most of them, not all.
fn time(mut call: impl FnMut()) -> Duration {
    const CALLS: u32 = 16;
    let mut round = || {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed() / CALLS
    };
    (0..1500).map(|_| round()).min().unwrap_or_default()
}

fn gigabytes_per_second(size: usize, time: Duration) -> f64 {
    size as f64 / time.as_secs_f64() / 1e9
}

fn validated(name: &str, input: &Bytes, plain_size: usize, target: TargetCompression) {
    let rules = rules(target);
    let crc = time(|| {
        black_box(crc32c::crc32c(black_box(&input[21..])));
    });
    let full = time(|| {
        black_box(validate(black_box(input.clone()), &rules, NOW)).expect("the batch is valid");
    });
    println!(
        "{name:<26} {:>7} B  crc {:>8.0} ns ({:>5.1} GB/s)  validate {:>8.0} ns ({:>5.2} GB/s of plain records)",
        input.len(),
        crc.as_nanos(),
        gigabytes_per_second(input.len(), crc),
        full.as_nanos(),
        gigabytes_per_second(plain_size, full),
    );
}

fn main() {
    for value_size in [100, 1000] {
        let plain = batch(Codec::None, value_size).len();
        for codec in [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd, Codec::Gzip] {
            let name = format!("{value_size} B records, {}", codec.name());
            validated(&name, &batch(codec, value_size), plain, TargetCompression::Producer);
        }
        let lz4 = TargetCompression::Fixed(Codec::Lz4, None);
        validated(&format!("{value_size} B, zstd to lz4"), &batch(Codec::Zstd, value_size), plain, lz4);
    }
}
