use super::batch::Batch;
use super::error::{MalformedRecordSnafu, RecordFault, RecordsError};

/// How a transaction ended, as the type in the key of its control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionMarker {
    Abort,
    Commit,
}

/// What the control batch at the end of a transaction says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransaction {
    pub marker: TransactionMarker,
    /// The leader epoch of the transaction coordinator's partition, which fences earlier coordinators.
    pub coordinator_epoch: i32,
}

impl TransactionMarker {
    /// The type in a control record's key.
    pub fn id(self) -> i16 {
        match self {
            TransactionMarker::Abort => 0,
            TransactionMarker::Commit => 1,
        }
    }
}

impl Batch {
    /// The end of a transaction that this control batch marks. `None` for data, for a batch that compaction
    /// emptied, and for control records of other types.
    ///
    /// Errors: as [`records`](Batch::records), and [`RecordFault::ControlRecord`] for one that is cut short.
    pub fn end_transaction(&self) -> Result<Option<EndTransaction>, RecordsError> {
        if !self.header.attributes.is_control() {
            return Ok(None);
        }
        let Some(record) = self.records()?.next().transpose()? else {
            return Ok(None);
        };
        let malformed = || MalformedRecordSnafu { batch_index: 0, fault: RecordFault::ControlRecord }.build();
        // Both begin with a version of two bytes; later versions may only append fields.
        let &[_, _, high, low] = record.key.as_deref().and_then(<[u8]>::first_chunk).ok_or_else(malformed)?;
        let marker = match i16::from_be_bytes([high, low]) {
            0 => TransactionMarker::Abort,
            1 => TransactionMarker::Commit,
            _ => return Ok(None),
        };
        let &[_, _, epoch @ ..] =
            record.value.as_deref().and_then(<[u8]>::first_chunk::<6>).ok_or_else(malformed)?;
        Ok(Some(EndTransaction { marker, coordinator_epoch: i32::from_be_bytes(epoch) }))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::model::{ProducerEpoch, ProducerId, Timestamp};
    use crate::records::{BatchBuilder, end_transaction_marker};

    use super::*;

    fn read(batch: Bytes) -> Result<Option<EndTransaction>, RecordsError> {
        Batch::read(batch).unwrap().end_transaction()
    }

    fn control(key: &[u8], value: &[u8]) -> Bytes {
        let mut builder = BatchBuilder::new().transactional().control();
        builder.append(Timestamp(1), Some(key), Some(value), &[]);
        builder.build()
    }

    #[test]
    fn markers_read_as_they_were_written() {
        for marker in [TransactionMarker::Abort, TransactionMarker::Commit] {
            let batch = end_transaction_marker(marker, ProducerId(7), ProducerEpoch(2), 11, Timestamp(5));
            assert_eq!(read(batch), Ok(Some(EndTransaction { marker, coordinator_epoch: 11 })));
        }
    }

    #[test]
    fn data_and_other_control_records_end_no_transaction() {
        let mut data = BatchBuilder::new().transactional();
        data.append(Timestamp(1), Some(&[0, 0, 0, 0]), None, &[]);
        assert_eq!(read(data.build()), Ok(None));
        assert_eq!(read(control(&[0, 0, 0, 2], &[0; 6])), Ok(None));
        assert_eq!(read(BatchBuilder::new().control().build()), Ok(None));
    }

    #[test]
    fn later_versions_may_be_longer_but_not_shorter() {
        let expected = EndTransaction { marker: TransactionMarker::Commit, coordinator_epoch: 3 };
        assert_eq!(read(control(&[0, 1, 0, 1, 9], &[0, 1, 0, 0, 0, 3, 9])), Ok(Some(expected)));
        assert!(read(control(&[0, 1, 0], &[0; 6])).is_err());
        assert!(read(control(&[0, 0, 0, 1], &[0; 5])).is_err());
    }
}
