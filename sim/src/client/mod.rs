//! Clients that speak the protocol by hand over the simulated network, and tell the [history](crate::history) what they
//! were answered.

mod churner;
mod code;
mod committer;
mod connection;
mod member;
mod mover;
mod producer;
mod reader;
mod transactor;
mod trimmer;

pub use churner::Churner;
pub use committer::Committer;
pub use connection::{Client, Leadership, PORT};
pub use member::Member;
pub use mover::Mover;
pub use producer::Producer;
pub use reader::{Isolation, Reader};
pub use transactor::Transactor;
pub use trimmer::Trimmer;
