use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::counters::Counters;
use super::protocol;
use crate::coordination::jute::Writer;
use crate::coordination::store::{StoreEvent, WatchKind};
use crate::coordination::watches::Link;

/// What is on its way to one client, in order. Filled by the store while it gives answers, emptied by the connection.
///
/// What a request may bring is charged before it is carried out, so that a client that does not read cannot have
/// answers pile up: without room its requests are not read. Events are as many as the watches that were set.
#[derive(Debug)]
pub(super) struct Outbox {
    sender: mpsc::UnboundedSender<Message>,
    charged_bytes: AtomicUsize,
    pub counters: Arc<Counters>,
}

#[derive(Debug)]
pub(super) enum Message {
    Frame {
        bytes: Bytes,
        charged_bytes: usize,
    },
    /// Nothing comes after it.
    Close,
}

/// The answer that a request is owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub xid: i32,
    pub since: Instant,
    pub charged_bytes: usize,
}

/// Charged bytes up to which requests are read: far above what clients in good order leave unread.
const CHARGED_BYTES_MAX: usize = 1024 * 1024;
/// Requests under way up to which further ones are read, as ZooKeeper's globalOutstandingLimit.
const OWED_MAX: usize = 1_000;
/// Charged for an answer of no particular size. So many fit that [`OWED_MAX`] is the limit of small ones.
pub(super) const SMALL_ANSWER_BYTES: usize = CHARGED_BYTES_MAX / OWED_MAX;

impl Outbox {
    pub(super) fn new(counters: Arc<Counters>) -> (Arc<Outbox>, mpsc::UnboundedReceiver<Message>) {
        let (sender, messages) = mpsc::unbounded_channel();
        (Arc::new(Outbox { sender, charged_bytes: AtomicUsize::new(0), counters }), messages)
    }

    /// Further requests may be read.
    pub(super) fn has_room(&self) -> bool {
        self.charged_bytes.load(Ordering::Relaxed) < CHARGED_BYTES_MAX
    }

    pub(super) fn charge(&self, bytes: usize) {
        self.charged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn discharge(&self, bytes: usize) {
        self.charged_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What is owed and not given yet.
    pub(super) fn is_empty(&self) -> bool {
        self.charged_bytes.load(Ordering::Relaxed) == 0
    }

    /// Gives an answer. `body` is left out where the code is an error.
    pub(super) fn answer(&self, owed: Owed, zxid: i64, code: i32, body: Writer) {
        self.counters.answered(owed.since.elapsed());
        let bytes = protocol::answer(owed.xid, zxid, code, body);
        self.send(Message::Frame { bytes, charged_bytes: owed.charged_bytes });
    }

    /// Bytes that no request asked for.
    pub(super) fn push(&self, bytes: Bytes) {
        self.send(Message::Frame { bytes, charged_bytes: 0 });
    }

    pub(super) fn close(&self) {
        self.send(Message::Close);
    }

    fn send(&self, message: Message) {
        // A connection that is gone needs nothing any more.
        let _ = self.sender.send(message);
    }
}

impl Link for Outbox {
    fn tell(&self, event: StoreEvent) {
        // An expired session's connection is closed; there is no such event in the protocol.
        if event.kind != WatchKind::SessionExpired {
            self.counters.sent();
            self.push(protocol::event(&event));
        }
    }
}
