//! The records of `__transaction_state`, byte for byte as Kafka writes them.
//!
//! The one key type is 0, a transactional id. Values are written in version 0, or in version 1, which has tagged
//! fields, once the feature `transaction.version` is at level 1 or the client's protocol needs them. Both are read.

use std::collections::BTreeSet;

use bytes::Bytes;
use wire::transaction_log_value::PartitionsSchema;
use wire::{DecodeError, Message, Reader, RecordKey, RecordValue, TransactionLogKey, TransactionLogValue};

use super::TransactionalId;
use super::transaction::{Transaction, TransactionState, TransactionVersion};
use crate::coordinator::EncodedRecord;
use crate::model::{PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicName, TopicPartition};

/// A record as a value; no transaction = the transactional id is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TxnRecord {
    pub transactional_id: TransactionalId,
    pub transaction: Option<Transaction>,
    /// Of the server, when the record was written.
    pub version: TransactionVersion,
}

/// What a record of the topic turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Transaction(TransactionalId, Option<Transaction>),
    /// A kind of record that newer coordinators write.
    UnknownType(i16),
    Damaged,
}

/// `None` = a text is longer than the format allows.
pub(super) fn encode(record: &TxnRecord) -> Option<EncodedRecord> {
    let key = TransactionLogKey { transactional_id: record.transactional_id.as_str().into() };
    let value = match &record.transaction {
        None => None,
        Some(transaction) => Some(encode_value(transaction, record.version)?),
    };
    Some(EncodedRecord { key: key.to_record().ok()?, value })
}

fn encode_value(transaction: &Transaction, version: TransactionVersion) -> Option<Bytes> {
    let mut value = TransactionLogValue {
        producer_id: transaction.producer_id.0,
        producer_epoch: transaction.producer_epoch.0,
        transaction_timeout_ms: transaction.timeout_ms,
        transaction_status: status_of(transaction.state),
        transaction_partitions: (transaction.state != TransactionState::Empty)
            .then(|| by_topic(&transaction.partitions)),
        transaction_last_update_timestamp_ms: transaction.last_update_timestamp.0,
        transaction_start_timestamp_ms: transaction.start_timestamp.0,
        ..TransactionLogValue::default()
    };
    // What follows from epochs that grow must not be lost, though the level was lowered meanwhile.
    if version == TransactionVersion::Classic && !transaction.client_version.bumps_epochs() {
        return value.to_record(0).ok();
    }
    value.previous_producer_id = transaction.previous_producer_id.0;
    value.next_producer_id = transaction.next_producer_id.0;
    value.client_transaction_version = transaction.client_version.level();
    value.to_record(1).ok()
}

fn by_topic(partitions: &BTreeSet<TopicPartition>) -> Vec<PartitionsSchema> {
    let mut topics: Vec<PartitionsSchema> = Vec::new();
    for partition in partitions {
        match topics.last_mut().filter(|topic| *topic.topic == *partition.topic.as_str()) {
            Some(topic) => topic.partition_ids.push(partition.partition.0),
            None => topics.push(PartitionsSchema {
                topic: partition.topic.as_str().into(),
                partition_ids: vec![partition.partition.0],
            }),
        }
    }
    topics
}

/// Reads a record of any writer.
pub(super) fn decode(key: Option<&Bytes>, value: Option<&Bytes>) -> Decoded {
    let Some(key) = key else { return Decoded::Damaged };
    decode_known(key, value).unwrap_or(Decoded::Damaged)
}

fn decode_known(key: &Bytes, value: Option<&Bytes>) -> Result<Decoded, DecodeError> {
    let mut reader = Reader::new(key.clone());
    let kind = reader.i16()?;
    if kind != TransactionLogKey::RECORD_TYPE {
        return Ok(Decoded::UnknownType(kind));
    }
    let key = TransactionLogKey::decode(&mut reader, 0)?;
    let Some(transactional_id) = TransactionalId::new(&key.transactional_id) else {
        return Ok(Decoded::Damaged);
    };
    let Some(value) = value else { return Ok(Decoded::Transaction(transactional_id, None)) };
    Ok(match decode_value(TransactionLogValue::from_record(value)?) {
        Some(transaction) => Decoded::Transaction(transactional_id, Some(transaction)),
        None => Decoded::Damaged,
    })
}

fn decode_value(value: TransactionLogValue) -> Option<Transaction> {
    let mut partitions = BTreeSet::new();
    for topic in value.transaction_partitions.unwrap_or_default() {
        let name = TopicName::new(&topic.topic).ok()?;
        let indexes = topic.partition_ids.into_iter().map(PartitionIndex);
        partitions.extend(indexes.map(|index| TopicPartition::new(name.clone(), index)));
    }
    Some(Transaction {
        producer_id: ProducerId(value.producer_id),
        producer_epoch: ProducerEpoch(value.producer_epoch),
        previous_producer_id: ProducerId(value.previous_producer_id),
        next_producer_id: ProducerId(value.next_producer_id),
        last_producer_epoch: ProducerEpoch::NONE,
        timeout_ms: value.transaction_timeout_ms,
        state: state_of(value.transaction_status)?,
        partitions,
        start_timestamp: Timestamp(value.transaction_start_timestamp_ms),
        last_update_timestamp: Timestamp(value.transaction_last_update_timestamp_ms),
        client_version: TransactionVersion::from_level(value.client_transaction_version),
    })
}

pub(super) fn status_of(state: TransactionState) -> i8 {
    match state {
        TransactionState::Empty => 0,
        TransactionState::Ongoing => 1,
        TransactionState::PrepareCommit => 2,
        TransactionState::PrepareAbort => 3,
        TransactionState::CompleteCommit => 4,
        TransactionState::CompleteAbort => 5,
    }
}

/// 6 (dead) and 7 (fencing) are never stored.
fn state_of(status: i8) -> Option<TransactionState> {
    TransactionState::ALL.into_iter().find(|state| status_of(*state) == status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{batches, kafka_folder};

    fn transaction(state: TransactionState) -> Transaction {
        let partition =
            |topic, index| TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(index));
        Transaction {
            producer_id: ProducerId(7),
            producer_epoch: ProducerEpoch(3),
            previous_producer_id: ProducerId(6),
            next_producer_id: ProducerId(8),
            last_producer_epoch: ProducerEpoch::NONE,
            timeout_ms: 60_000,
            state,
            partitions: match state {
                TransactionState::Empty => BTreeSet::new(),
                _ => BTreeSet::from([partition("a", 1), partition("a", 0), partition("b", 2)]),
            },
            start_timestamp: Timestamp(100),
            last_update_timestamp: Timestamp(200),
            client_version: TransactionVersion::EpochBump,
        }
    }

    #[track_caller]
    fn read_back(transaction: &Transaction, version: TransactionVersion) -> Transaction {
        let transactional_id = TransactionalId::new("t").unwrap();
        let record = TxnRecord {
            transactional_id: transactional_id.clone(),
            transaction: Some(transaction.clone()),
            version,
        };
        let encoded = encode(&record).unwrap();
        match decode(Some(&encoded.key), encoded.value.as_ref()) {
            Decoded::Transaction(id, Some(transaction)) if id == transactional_id => transaction,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flexible_records_read_as_they_were_written() {
        for state in TransactionState::ALL {
            let transaction = transaction(state);
            assert_eq!(read_back(&transaction, TransactionVersion::EpochBump), transaction);
        }
    }

    #[test]
    fn classic_records_lack_what_came_with_tagged_fields() {
        let classic = Transaction {
            client_version: TransactionVersion::Classic,
            ..transaction(TransactionState::Ongoing)
        };
        let read = read_back(&classic, TransactionVersion::Classic);
        let expected = Transaction {
            previous_producer_id: ProducerId::NONE,
            next_producer_id: ProducerId::NONE,
            ..classic
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn what_cannot_be_read_is_told_apart() {
        assert_eq!(decode(None, None), Decoded::Damaged);
        assert_eq!(decode(Some(&Bytes::from_static(&[0, 9, 1])), None), Decoded::UnknownType(9));
        assert_eq!(decode(Some(&Bytes::from_static(&[0, 0, 0, 0])), None), Decoded::Damaged);
        let record = TxnRecord {
            transactional_id: TransactionalId::new("t").unwrap(),
            transaction: Some(transaction(TransactionState::Ongoing)),
            version: TransactionVersion::Classic,
        };
        let encoded = encode(&record).unwrap();
        let value = encoded.value.unwrap();
        for cut in 0..value.len() {
            assert_eq!(decode(Some(&encoded.key), Some(&value.slice(..cut))), Decoded::Damaged, "{cut}");
        }
    }

    #[test]
    fn what_kafka_wrote_is_written_back_equal() {
        let mut records = 0;
        for (path, log) in kafka_folder::files_ending(".log") {
            if !path.starts_with("__transaction_state") {
                continue;
            }
            for batch in batches(&Bytes::copy_from_slice(log)) {
                for record in batch.unwrap().records().unwrap() {
                    let record = record.unwrap();
                    let decoded = decode(record.key.as_ref(), record.value.as_ref());
                    let Decoded::Transaction(transactional_id, transaction) = decoded else {
                        panic!("{path}: {decoded:?}")
                    };
                    let version = TransactionVersion::Classic;
                    let encoded = encode(&TxnRecord { transactional_id, transaction, version }).unwrap();
                    assert_eq!((Some(encoded.key), encoded.value), (record.key, record.value), "{path}");
                    records += 1;
                }
            }
        }
        assert!(records >= 10, "{records}");
    }
}
