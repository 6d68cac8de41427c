//! Every message of `wire`, for tests that treat them all alike.

use std::collections::BTreeMap;

use bytes::Bytes;
use wire::{DecodeError, Message, Reader, Writer};

/// One message.
pub struct Entry {
    pub name: &'static str,
    pub min_version: i16,
    pub max_version: i16,
    /// Encodes the default.
    pub default: fn(i16) -> Result<Bytes, String>,
    /// Decodes what may be anything.
    pub decode: fn(Bytes, i16) -> Result<(), DecodeError>,
    /// Decodes a whole message and encodes it again.
    pub again: fn(&Bytes, i16) -> Result<Bytes, String>,
}

macro_rules! entries {
    ($($kind:ident $name:ident;)*) => {
        vec![$(Entry {
            name: stringify!($name),
            min_version: <wire::$name as Message>::MIN_VERSION,
            max_version: <wire::$name as Message>::MAX_VERSION,
            default: |version| encode(&wire::$name::default(), version),
            decode: |bytes, version| wire::$name::decode(&mut Reader::new(bytes), version).map(drop),
            again: again::<wire::$name>,
        }),*]
    };
}

/// All messages under their names.
pub fn by_name() -> BTreeMap<&'static str, Entry> {
    all().into_iter().map(|entry| (entry.name, entry)).collect()
}

/// All messages, in order of name.
pub fn all() -> Vec<Entry> {
    wire::for_every_message!(entries)
}

fn again<M: Message>(bytes: &Bytes, version: i16) -> Result<Bytes, String> {
    let mut r = Reader::new(bytes.clone());
    let message = M::decode(&mut r, version).map_err(|error| format!("decode: {error}"))?;
    if r.remaining() > 0 {
        return Err(format!("decode leaves {} bytes", r.remaining()));
    }
    encode(&message, version)
}

fn encode<M: Message>(message: &M, version: i16) -> Result<Bytes, String> {
    let mut w = Writer::new();
    message.encode(&mut w, version).map_err(|error| format!("encode: {error}"))?;
    Ok(w.into_bytes())
}
