use std::collections::{BTreeMap, HashMap, HashSet};

use crate::log::AbortedTransaction;
use crate::model::{Offset, ProducerId};
use crate::records::{BatchHeader, EndTransaction, TransactionMarker};

/// Which transactions are open at a place in a log that is walked from its start, how they will end, and
/// whether anything of them is left.
///
/// A marker may go once a walk meets no batch of its transaction any more. Until then aborted transactions
/// stay in the transaction index of their marker's segment, which this collects anew.
#[derive(Debug, Default)]
pub struct CleanedTransactions {
    // Clients choose producer ids, so these keep the standard hasher.
    /// Producers with records in a transaction that is not aborted, and not ended here.
    committed: HashSet<ProducerId>,
    aborted: HashMap<ProducerId, OpenAbort>,
    /// Aborted transactions that begin further on.
    upcoming: BTreeMap<(Offset, ProducerId), AbortedTransaction>,
    index: Vec<AbortedTransaction>,
}

#[derive(Debug)]
struct OpenAbort {
    transaction: AbortedTransaction,
    has_records: bool,
}

/// What a control batch holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlContent {
    /// An earlier compaction has emptied it.
    Nothing,
    End(EndTransaction),
    /// A control record that has nothing to do with transactions.
    Other,
}

impl CleanedTransactions {
    /// Tells of aborted transactions with records in the part that is walked next. Those told before may be
    /// among them.
    pub fn expect(&mut self, aborted: impl IntoIterator<Item = AbortedTransaction>) {
        let keyed = aborted.into_iter().map(|aborted| ((aborted.first_offset, aborted.producer_id), aborted));
        self.upcoming.extend(keyed);
    }

    /// Walks over a data batch; answers whether its transaction was aborted.
    pub fn pass_data(&mut self, batch: &BatchHeader) -> bool {
        self.begin_until(batch.last_offset());
        if !batch.attributes.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&batch.producer_id) {
            Some(open) => {
                open.has_records = true;
                true
            }
            None => {
                self.committed.insert(batch.producer_id);
                false
            }
        }
    }

    /// Walks over a control batch; answers whether it is needed no longer, because nothing of its transaction
    /// is left.
    pub fn pass_control(&mut self, batch: &BatchHeader, content: ControlContent) -> bool {
        self.begin_until(batch.last_offset());
        match content {
            ControlContent::Nothing => true,
            ControlContent::Other => false,
            ControlContent::End(EndTransaction { marker: TransactionMarker::Commit, .. }) => {
                !self.committed.remove(&batch.producer_id)
            }
            ControlContent::End(EndTransaction { marker: TransactionMarker::Abort, .. }) => {
                let ended = self.aborted.remove(&batch.producer_id).filter(|open| open.has_records);
                self.index.extend(ended.as_ref().map(|open| open.transaction));
                ended.is_none()
            }
        }
    }

    /// The transaction index of the markers since the last call.
    pub fn take_index(&mut self) -> Vec<AbortedTransaction> {
        std::mem::take(&mut self.index)
    }

    fn begin_until(&mut self, offset: Offset) {
        while let Some(first) = self.upcoming.first_entry().filter(|first| first.key().0 <= offset) {
            let transaction = first.remove();
            // One that is open already was told twice.
            self.aborted
                .entry(transaction.producer_id)
                .or_insert(OpenAbort { transaction, has_records: false });
        }
    }
}
