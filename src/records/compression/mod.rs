//! The codecs of record batches, with the framings that Kafka's clients write.
//!
//! [`Inflater`] gives a batch's records chunk by chunk, at most as many bytes as it is allowed, so that a
//! bomb costs neither memory nor time. [`Deflater`] compresses what is written to it. Buffers and
//! decompressors are kept by thread: most batches are small, and setting these up would cost more than
//! the batch.

mod deflate;
mod gzip;
mod inflate;
mod lz4;
mod snappy;
mod zstd;

pub(super) use deflate::Deflater;
pub(super) use inflate::{InflateLimits, Inflater};

#[cfg(test)]
mod tests;
