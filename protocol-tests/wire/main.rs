//! The codec beside others: Kafka's own classes, and the crate `kafka-protocol`.

mod catalog;
mod golden;
