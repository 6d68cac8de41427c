//! The codec beside others: Kafka's own classes, and the crate `kafka-protocol`.

// Everything here is a test.
#![allow(clippy::unwrap_used)]

mod catalog;
mod golden;
mod hostile;
mod sample;
mod second_opinion;
