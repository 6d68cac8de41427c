use bytes::Bytes;

use crate::log::{Conversion, FileSlice};

/// A response as the network sends it: parts of memory and of files, in order, the frame's length in front.
#[derive(Default)]
pub struct ResponseFrame {
    parts: Vec<Part>,
    size_bytes: u64,
    errors: Vec<(i16, u32)>,
}

/// A stretch of a response.
pub enum Part {
    Memory(Bytes),
    /// Goes from the page cache to the socket without passing through this process.
    File(FileSlice),
    /// Records of a file, converted while they are sent.
    Converted(Box<Conversion>),
}

impl Part {
    pub fn size_bytes(&self) -> u64 {
        match self {
            Part::Memory(bytes) => bytes.len() as u64,
            Part::File(slice) => u64::from(slice.size_bytes),
            Part::Converted(conversion) => u64::from(conversion.size_bytes()),
        }
    }
}

impl ResponseFrame {
    /// One whose message has these error codes, each so many times.
    pub(super) fn with_errors(errors: Vec<(i16, u32)>) -> ResponseFrame {
        ResponseFrame { errors, ..ResponseFrame::default() }
    }

    /// The error codes in it, each with how often.
    pub fn errors(&self) -> &[(i16, u32)] {
        &self.errors
    }

    pub fn push(&mut self, part: Part) {
        let size_bytes = part.size_bytes();
        if size_bytes > 0 {
            self.size_bytes += size_bytes;
            self.parts.push(part);
        }
    }

    /// All parts together.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn into_parts(self) -> Vec<Part> {
        self.parts
    }
}

/// What a request comes to.
pub enum Answer {
    Response(ResponseFrame),
    /// Produce with acks=0.
    Nothing,
    /// Kafka closes the connection instead of answering.
    Close,
}
