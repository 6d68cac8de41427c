use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// `transactional.id`: the lasting name under which a producer's transactions go on after a restart. Never empty.
///
/// Owns its text and is cheap to clone; compares and hashes as its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionalId(Arc<str>);

impl TransactionalId {
    /// `None` for the empty text, which names no transaction.
    pub fn new(text: &str) -> Option<TransactionalId> {
        (!text.is_empty()).then(|| TransactionalId(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for TransactionalId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for TransactionalId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TransactionalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TransactionalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
