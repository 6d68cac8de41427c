//! How much a client may ask for. Pure.
//!
//! Every request passes [`Quotas::admit`] before it starts. A broker without quotas admits everything at once, as
//! Kafka does.

use std::time::Duration;

use crate::security::Principal;

/// The quotas of this broker.
#[derive(Clone, Debug)]
pub enum Quotas {
    /// No quota is configured.
    Unlimited,
}

impl Quotas {
    /// Counts a request of `size_bytes` and says how long its connection is to be muted after it; zero = not at
    /// all. The request itself is answered without delay (KIP-219).
    pub fn admit(&self, _principal: &Principal, _client_id: &str, _size_bytes: usize) -> Duration {
        match self {
            Quotas::Unlimited => Duration::ZERO,
        }
    }
}
