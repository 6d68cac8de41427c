//! Sockets: listeners that accept, connections that read frames and write answers.
//!
//! One task serves one connection, reading *and* writing. It takes every complete frame that has arrived,
//! hands it to [`crate::api::dispatch`], and sends the answers in request order: memory with one vectored
//! write, log data with `sendfile`, converted log data piece by piece. Nothing here knows what a request means.
//!
//! Limits: request memory comes out of one [`RequestMemory`] budget before it is read; a connection whose
//! reader is slow is not read from; how many connections there may be stands in [`ConnectionLimits`].

mod connection;
mod limits;
mod listener;
mod memory;
mod output;

pub use limits::{ConnectionLimits, ConnectionPermit, ConnectionTable, ListenerLimits, Refusal};
pub use listener::{BindError, Listener, ListenerOptions, OpenListener};
pub use memory::RequestMemory;
