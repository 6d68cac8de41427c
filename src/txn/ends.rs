use std::hash::{BuildHasher, RandomState};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::TransactionalId;

/// Where producers wait until their last end is complete.
///
/// Transactional ids share places: whoever is woken looks again.
#[derive(Debug, Default)]
pub(super) struct Ends {
    hasher: RandomState,
    places: [Notify; PLACES],
}

const PLACES: usize = 32;

impl Ends {
    /// Resolves when an end is complete that may be this id's.
    pub fn completed(&self, transactional_id: &TransactionalId) -> Notified<'_> {
        self.place(transactional_id).notified()
    }

    pub fn complete(&self, transactional_id: &TransactionalId) {
        self.place(transactional_id).notify_waiters();
    }

    fn place(&self, transactional_id: &TransactionalId) -> &Notify {
        let hash = self.hasher.hash_one(transactional_id);
        &self.places[hash as usize % PLACES]
    }
}
