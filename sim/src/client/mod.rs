//! Clients that speak the protocol by hand over the simulated network, and tell the [history](crate::history) what they
//! were answered.

mod committer;
mod connection;
mod producer;
mod reader;
mod transactor;

pub use committer::Committer;
pub use connection::{Client, PORT};
pub use producer::Producer;
pub use reader::Reader;
pub use transactor::Transactor;
