//! Every message: what decodes can be encoded, and decodes to the same again.

#![no_main]

use std::sync::LazyLock;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use wire::{Message, Reader, Writer};

struct Target {
    name: &'static str,
    versions: (i16, i16),
    check: fn(Bytes, i16),
}

macro_rules! targets {
    ($($kind:ident $name:ident;)*) => {
        vec![$(Target {
            name: stringify!($name),
            versions: (wire::$name::MIN_VERSION, wire::$name::MAX_VERSION),
            check: check::<wire::$name>,
        }),*]
    };
}

/// All messages, or the one that `WIRE_MESSAGE` names.
static TARGETS: LazyLock<Vec<Target>> = LazyLock::new(|| {
    let mut targets: Vec<Target> = wire::for_every_message!(targets);
    if let Ok(wanted) = std::env::var("WIRE_MESSAGE") {
        targets.retain(|target| target.name == wanted);
        assert!(!targets.is_empty(), "no message {wanted}");
    }
    targets
});

fn check<M: Message>(bytes: Bytes, version: i16) {
    let Ok(message) = M::decode(&mut Reader::new(bytes), version) else { return };
    let encoded = encode(&message, version);
    let again = M::decode(&mut Reader::new(encoded.clone()), version).expect("what was encoded decodes");
    assert_eq!(encode(&again, version), encoded);
}

fn encode<M: Message>(message: &M, version: i16) -> Bytes {
    let mut w = Writer::new();
    message.encode(&mut w, version).expect("what was decoded can be encoded");
    w.into_bytes()
}

fuzz_target!(|data: &[u8]| {
    let (target, data) = match (&TARGETS[..], data) {
        ([only], data) => (only, data),
        (all, [choice, data @ ..]) => (&all[usize::from(*choice) % all.len()], data),
        _ => return,
    };
    let [version, data @ ..] = data else { return };
    let (first, last) = target.versions;
    let version = first + i16::from(*version) % (last - first + 1);
    (target.check)(Bytes::copy_from_slice(data), version);
});
