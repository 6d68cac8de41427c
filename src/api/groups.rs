//! What the handlers of group APIs share.

use bytes::Bytes;

use super::RequestContext;

/// Bytes that outlive the request must not keep its whole frame in memory.
pub(super) fn owned(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// The client's address as Java prints it, which Kafka stores and shows: `/127.0.0.1`.
pub(super) fn client_host(context: &RequestContext) -> String {
    format!("/{}", context.connection.peer.ip().to_canonical())
}
