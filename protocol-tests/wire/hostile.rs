//! No bytes make a decoder panic, abort, or take memory that the bytes do not justify.
//!
//! The decoders run in a child process with little address space, because running out of memory aborts. The
//! child is this test again, told so by an environment variable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use peak_alloc::PeakAlloc;

use crate::catalog::{self, Entry};
use crate::sample;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const FRAMES_PER_VERSION: usize = 3000;
const CHILD: &str = "WIRE_HOSTILE_CHILD";
const ADDRESS_SPACE_BYTES: usize = 512 * 1024 * 1024;

#[test]
fn hostile_frames_cost_an_error_and_little_memory() {
    if std::env::var_os(CHILD).is_some() {
        return attack_all();
    }
    let output = Command::new("prlimit")
        .arg(format!("--as={ADDRESS_SPACE_BYTES}"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "hostile::hostile_frames_cost_an_error_and_little_memory", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let last: Vec<&str> = said.lines().rev().take(3).collect();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {last:?}\n{error}", output.status);
    assert!(said.contains("every decoder survived"), "{said}");
}

fn attack_all() {
    let entries = catalog::by_name();
    let mut rng = Rng::with_seed(3);
    attack_headers(&mut rng);
    for schema in sample::schemas() {
        let entry = &entries[schema.name.as_str()];
        for version in schema.versions.first..=schema.versions.last {
            println!("{} v{version}", entry.name);
            let seeds: Vec<Bytes> = (0..16).map(|_| sample::frame(&schema, version, &mut rng)).collect();
            for round in 0..FRAMES_PER_VERSION {
                let seed = &seeds[round % seeds.len()];
                attack(entry, version, hostile(seed, round, &mut rng));
            }
        }
    }
    println!("every decoder survived");
}

fn attack_headers(rng: &mut Rng) {
    for round in 0..FRAMES_PER_VERSION {
        let seed = Bytes::from_static(b"\x00\x03\x00\x0c\x00\x00\x00\x01\x00\x04kcat\x01\x00\x02ab");
        let frame = hostile(&seed, round, rng);
        for version in 0..=2 {
            let _ = wire::RequestHeader::decode(&mut wire::Reader::new(frame.clone()), version);
            let _ = wire::ResponseHeader::decode(&mut wire::Reader::new(frame.clone()), version.min(1));
        }
    }
}

fn attack(entry: &Entry, version: i16, frame: Bytes) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let outcome = catch_unwind(AssertUnwindSafe(|| (entry.decode)(frame.clone(), version).is_ok()));
    let taken = MEMORY.peak_usage().saturating_sub(before);
    let (name, length) = (entry.name, frame.len());
    assert!(outcome.is_ok(), "{name} v{version} panics on {frame:?}");
    assert!(taken <= memory_allowed(length), "{name} v{version} takes {taken} bytes for {length}: {frame:?}");
}

/// A topic of 100 bytes in memory can have three bytes on the wire; the reader's own limit cuts that off
/// where it begins to matter.
fn memory_allowed(length: usize) -> usize {
    let overhead = 256;
    (48 * length).min(wire::Reader::memory_limit(length)) + overhead
}

fn hostile(seed: &Bytes, round: usize, rng: &mut Rng) -> Bytes {
    match round % 50 {
        0 => padded(seed, rng),
        1..10 => short(rng),
        10..20 => seed.slice(..rng.usize(..=seed.len())),
        20..35 => mutated(seed, rng),
        _ => inflated(seed, rng),
    }
}

fn short(rng: &mut Rng) -> Bytes {
    (0..rng.usize(..64)).map(|_| rng.u8(..)).collect()
}

fn mutated(seed: &Bytes, rng: &mut Rng) -> Bytes {
    let mut frame = BytesMut::from(&seed[..]);
    for _ in 0..rng.usize(1..8) {
        if !frame.is_empty() {
            let at = rng.usize(..frame.len());
            frame[at] = if rng.bool() { rng.u8(..) } else { frame[at] ^ (1 << rng.u8(..8)) };
        }
    }
    frame.freeze()
}

/// A count or length somewhere becomes huge, or negative.
fn inflated(seed: &Bytes, rng: &mut Rng) -> Bytes {
    const COUNTS: [&[u8]; 10] = [
        b"\x7f\xff\xff\xff",
        b"\x80\x00\x00\x00",
        b"\xff\xff\xff\xfe",
        b"\x00\x0f\xff\xff",
        b"\x7f\xff",
        b"\x80\x00",
        b"\xff\xff\xff\xff\x07",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\xff",
        b"\xff\x7f",
    ];
    let count = COUNTS[rng.usize(..COUNTS.len())];
    let at = rng.usize(..=seed.len());
    let end = if rng.bool() { (at + count.len()).min(seed.len()) } else { at };
    [&seed[..at], count, &seed[end..]].concat().into()
}

/// A count somewhere becomes as large as what follows allows, and what follows are the smallest elements.
fn padded(seed: &Bytes, rng: &mut Rng) -> Bytes {
    let padding = vec![rng.u8(..2); 16 * 1024];
    let count = rng.u32(100..10_000);
    let at = rng.usize(..=seed.len());
    let count = if rng.bool() {
        count.to_be_bytes().to_vec()
    } else {
        vec![count as u8 | 0x80, (count >> 7) as u8 & 0x7f]
    };
    [&seed[..at], &count, &padding].concat().into()
}
