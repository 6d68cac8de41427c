use std::fmt;

use bytes::Bytes;

/// The record data of a produce request or a fetch response.
#[derive(Clone, PartialEq, Eq)]
pub enum Records {
    /// Batches in memory. Decoding always gives these: a slice of the frame.
    Bytes(Bytes),
    /// Batches that whoever sends the frame finds by `token`, such as a range of a file.
    External { size_bytes: u32, token: u32 },
}

impl Records {
    /// Size on the wire, without the length field.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::External { size_bytes, .. } => *size_bytes as usize,
        }
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// Says how much there is, never what: record contents belong in no log.
impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Records({} bytes)", bytes.len()),
            Self::External { size_bytes, token } => write!(f, "Records({size_bytes} bytes, token {token})"),
        }
    }
}
