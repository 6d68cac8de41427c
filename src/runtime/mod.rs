//! The seams to the machine: time, randomness, files.
//!
//! Everything below the shells receives these as values, so that a test can stop the clock, repeat a
//! random sequence and pull the plug of a disk.

mod clock;
pub mod fs;
mod random;
pub mod task;

pub use clock::Clock;
pub use random::Random;
