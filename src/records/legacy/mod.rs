//! Messages of the formats v0 and v1: what producers before 0.11 send, and what logs from then hold.
//!
//! A message stands alone, or many stand compressed in the value of one, their wrapper. Offsets inside a v0
//! wrapper are absolute. Those inside a v1 wrapper count from its first message, and the wrapper has the
//! offset of its last; some clients leave the wrapper's at 0, which means that they count from 0.

mod message;
mod walk;
mod write;

pub(super) use message::Message;
pub(super) use walk::Messages;
pub(super) use write::MessageSetBuilder;

#[cfg(test)]
mod kafka_tests;
#[cfg(test)]
mod tests;
