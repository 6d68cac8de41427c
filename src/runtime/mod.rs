//! The seams to the machine: time, randomness, files, connections, TLS, tasks.
//!
//! Everything below the shells receives these as values, so that a test can stop the clock, repeat a
//! random sequence, cut a connection and pull the plug of a disk.

mod clock;
pub mod fs;
pub mod net;
mod process;
mod random;
pub mod task;
pub mod tls;

pub use clock::Clock;
pub use process::Process;
pub use random::Random;
