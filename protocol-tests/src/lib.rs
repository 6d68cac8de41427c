//! The harness that starts brokers and peers.
