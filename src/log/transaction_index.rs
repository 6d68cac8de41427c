use crate::model::{Offset, ProducerId};

/// One entry of a segment's `.txnindex`: a transaction that was aborted and has records in the log.
///
/// Entries stand in the order of their last offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: ProducerId,
    /// Of its first record.
    pub first_offset: Offset,
    /// Of its marker.
    pub last_offset: Offset,
    /// The last stable offset just after the marker: every transaction below it is in this index or an
    /// earlier one.
    pub last_stable_offset: Offset,
}

/// An entry with a version that is not known, or bytes that are not a whole entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidIndexEntry {
    /// Where it begins, in bytes from the start of the index.
    pub position: usize,
}

impl AbortedTransaction {
    /// Bytes of an entry.
    pub const SIZE: usize = 34;
    const VERSION: i16 = 0;

    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut entry = [0; Self::SIZE];
        entry[..2].copy_from_slice(&Self::VERSION.to_be_bytes());
        entry[2..10].copy_from_slice(&self.producer_id.0.to_be_bytes());
        entry[10..18].copy_from_slice(&self.first_offset.0.to_be_bytes());
        entry[18..26].copy_from_slice(&self.last_offset.0.to_be_bytes());
        entry[26..].copy_from_slice(&self.last_stable_offset.0.to_be_bytes());
        entry
    }

    fn decode(entry: &[u8]) -> Option<AbortedTransaction> {
        let (version, fields) = entry.split_first_chunk::<2>()?;
        if i16::from_be_bytes(*version) > Self::VERSION {
            return None;
        }
        let (fields, rest) = fields.as_chunks::<8>();
        let &[producer_id, first, last, stable] = fields else { return None };
        rest.is_empty().then_some(AbortedTransaction {
            producer_id: ProducerId(i64::from_be_bytes(producer_id)),
            first_offset: Offset(i64::from_be_bytes(first)),
            last_offset: Offset(i64::from_be_bytes(last)),
            last_stable_offset: Offset(i64::from_be_bytes(stable)),
        })
    }
}

/// The entries of an index file. After an error, which a torn tail is too, it ends.
pub fn decode_index(
    index: &[u8],
) -> impl Iterator<Item = Result<AbortedTransaction, InvalidIndexEntry>> + '_ {
    let mut position = 0;
    std::iter::from_fn(move || {
        let rest = index.get(position..)?;
        if rest.is_empty() {
            return None;
        }
        let entry = rest.get(..AbortedTransaction::SIZE).and_then(AbortedTransaction::decode);
        let at = position;
        position = if entry.is_some() { at + AbortedTransaction::SIZE } else { index.len() };
        Some(entry.ok_or(InvalidIndexEntry { position: at }))
    })
}

/// Aborted transactions that a fetch has to know about, from one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedAborts {
    pub transactions: Vec<AbortedTransaction>,
    /// No index of a later segment can add one: the search is over.
    pub is_complete: bool,
}

/// The transactions with records in `[from, upper_bound)`.
///
/// `entries` are those of one segment, in order. Go on with the next segment's until it is complete.
pub fn collect_aborted(
    entries: impl IntoIterator<Item = AbortedTransaction>,
    from: Offset,
    upper_bound: Offset,
) -> CollectedAborts {
    let mut transactions = Vec::new();
    for entry in entries {
        if entry.last_offset >= from && entry.first_offset < upper_bound {
            transactions.push(entry);
        }
        // Kafka's followers note a later one where a producer's next transaction came in the same append.
        if entry.last_stable_offset.min(entry.last_offset.plus(1)) >= upper_bound {
            return CollectedAborts { transactions, is_complete: true };
        }
    }
    CollectedAborts { transactions, is_complete: false }
}

#[cfg(test)]
mod tests {
    use crate::records::kafka_folder;

    use super::*;

    fn aborted(producer_id: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(producer_id),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    #[test]
    fn indexes_that_kafka_wrote_read_and_write_back_equal() {
        let mut count = 0;
        for (path, index) in kafka_folder::files_ending(".txnindex") {
            let entries: Vec<AbortedTransaction> = decode_index(index).map(Result::unwrap).collect();
            let written: Vec<u8> = entries.iter().flat_map(AbortedTransaction::encode).collect();
            assert_eq!(written, index[..], "{path}");
            assert!(entries.iter().all(|entry| entry.first_offset < entry.last_offset));
            count += entries.len();
        }
        assert_eq!(count, 3);
    }

    #[test]
    fn a_torn_or_unknown_entry_ends_the_walk() {
        let mut index = [aborted(1, 2, 3, 4).encode(), aborted(2, 5, 6, 7).encode()].concat();
        let torn: Vec<_> = decode_index(&index[..67]).collect();
        assert_eq!(torn, [Ok(aborted(1, 2, 3, 4)), Err(InvalidIndexEntry { position: 34 })]);
        index[1] = 1;
        assert_eq!(decode_index(&index).collect::<Vec<_>>(), [Err(InvalidIndexEntry { position: 0 })]);
    }

    #[test]
    fn a_fetch_sees_the_aborts_that_overlap_it() {
        // Producer 1 aborts [0, 10], producer 2 aborts [5, 15] while producer 3 is still open at 12.
        let index = [aborted(1, 0, 10, 5), aborted(2, 5, 15, 12), aborted(3, 12, 20, 21)];
        let producers = |from, upper| {
            let collected = collect_aborted(index, Offset(from), Offset(upper));
            let ids: Vec<i64> = collected.transactions.iter().map(|entry| entry.producer_id.0).collect();
            (ids, collected.is_complete)
        };
        assert_eq!(producers(0, 5), (vec![1], true));
        assert_eq!(producers(0, 6), (vec![1, 2], true));
        assert_eq!(producers(11, 12), (vec![2], true));
        assert_eq!(producers(11, 13), (vec![2, 3], true));
        assert_eq!(producers(16, 22), (vec![3], false));
        assert_eq!(producers(21, 30), (vec![], false));
    }

    #[test]
    fn a_stable_offset_beyond_the_marker_does_not_end_the_search() {
        let index = [aborted(1, 0, 1, 3), aborted(1, 2, 4, 3)];
        let collected = collect_aborted(index, Offset(2), Offset(3));
        assert_eq!(collected.transactions, [index[1]]);
    }
}
