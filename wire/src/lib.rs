//! Kafka's protocol messages.
