//! A transactional producer by hand, and what a read_committed consumer sees.

use std::collections::HashMap;

use protocol_tests::batch::{self, Batch};
use protocol_tests::requests::{fetch_request, produce_request, record_bytes};
use protocol_tests::{Connection, wait_for};
use wire::add_partitions_to_txn_request::{AddPartitionsToTxnRequest, AddPartitionsToTxnTopic};
use wire::describe_transactions_request::DescribeTransactionsRequest;
use wire::end_txn_request::EndTxnRequest;
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::init_producer_id_request::InitProducerIdRequest;
use wire::init_producer_id_response::InitProducerIdResponse;
use wire::produce_request::ProduceRequest;

use crate::code;

const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
/// Create times of records: 2023-11-14.
const T0: i64 = 1_700_000_000_000;
/// The longest that brokers allow by default: a transaction that a slow machine leaves open for a while is not aborted.
const TIMEOUT_MS: i32 = 900_000;

pub struct Producer {
    pub connection: Connection,
    pub id: String,
    pub producer_id: i64,
    pub epoch: i16,
    sequences: HashMap<(String, i32), i32>,
}

pub fn wait_for_txn_coordinator(connection: &mut Connection, id: &str) {
    wait_for("the transaction coordinator", || {
        let request = FindCoordinatorRequest { key: id.into(), key_type: 1, ..Default::default() };
        (connection.call(3, &request).error_code == 0).then_some(())
    });
}

pub fn init(connection: &mut Connection, version: i16, id: &str) -> InitProducerIdResponse {
    let request = InitProducerIdRequest {
        transactional_id: Some(id.into()),
        transaction_timeout_ms: TIMEOUT_MS,
        ..Default::default()
    };
    connection.call(version, &request)
}

impl Producer {
    /// A producer that may begin a transaction.
    pub fn new(address: &str, id: &str) -> Producer {
        Producer::with_timeout(address, id, TIMEOUT_MS)
    }

    pub fn with_timeout(address: &str, id: &str, transaction_timeout_ms: i32) -> Producer {
        let mut connection = Connection::open(address);
        wait_for_txn_coordinator(&mut connection, id);
        let request = InitProducerIdRequest {
            transactional_id: Some(id.into()),
            transaction_timeout_ms,
            ..Default::default()
        };
        // Loading, or the end of the transaction before.
        let response = wait_for("a producer id", || {
            let response = connection.call(4, &request);
            (response.error_code == code::NONE).then_some(response)
        });
        Producer {
            connection,
            id: id.to_owned(),
            producer_id: response.producer_id,
            epoch: response.producer_epoch,
            sequences: HashMap::new(),
        }
    }

    /// Goes on with a broker that has started again, once its coordinator has loaded this id.
    pub fn reconnect(&mut self, address: &str) {
        self.connection = Connection::open(address);
        let request = DescribeTransactionsRequest { transactional_ids: vec![self.id.as_str().into()] };
        wait_for("the coordinator", || {
            let response = self.connection.call(0, &request);
            (response.transaction_states[0].error_code == code::NONE).then_some(())
        });
    }

    pub fn add_request(&self, topic: &str, partitions: &[i32]) -> AddPartitionsToTxnRequest {
        let topics = vec![AddPartitionsToTxnTopic { name: topic.into(), partitions: partitions.to_vec() }];
        AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.id.as_str().into(),
            v3_and_below_producer_id: self.producer_id,
            v3_and_below_producer_epoch: self.epoch,
            v3_and_below_topics: topics,
            ..Default::default()
        }
    }

    pub fn add(&mut self, version: i16, topic: &str, partitions: &[i32]) -> i16 {
        let request = self.add_request(topic, partitions);
        let response = self.connection.call(version, &request);
        response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    }

    /// Adds partitions, and waits for the end of the transaction before.
    pub fn begin(&mut self, topic: &str, partitions: &[i32]) {
        let added = wait_for("the end of the transaction before", || {
            Some(self.add(3, topic, partitions)).filter(|code| *code != code::CONCURRENT_TRANSACTIONS)
        });
        assert_eq!(added, code::NONE);
    }

    /// The batch that this producer sends next.
    pub fn batch(&mut self, topic: &str, partition: i32, prefix: &str, count: i32) -> Batch {
        let batch = self.next_batch(topic, partition, prefix, count);
        self.count(topic, partition, count);
        batch
    }

    /// As [`Producer::batch`], for one that may have to be sent again: [`Producer::count`] tells that it is taken.
    pub fn next_batch(&self, topic: &str, partition: i32, prefix: &str, count: i32) -> Batch {
        let base_sequence = self.sequences.get(&(topic.to_owned(), partition)).copied().unwrap_or(0);
        Batch {
            attributes: TRANSACTIONAL,
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            base_sequence,
            ..Batch::of(prefix, count, T0)
        }
    }

    pub fn count(&mut self, topic: &str, partition: i32, records: i32) {
        *self.sequences.entry((topic.to_owned(), partition)).or_insert(0) += records;
    }

    pub fn write_request(&self, topic: &str, partition: i32, batch: &Batch) -> ProduceRequest {
        let mut request = produce_request(topic, -1, vec![(partition, batch.encode())]);
        request.transactional_id = Some(self.id.as_str().into());
        request
    }

    pub fn send(&mut self, version: i16, topic: &str, partition: i32, batch: &Batch) -> i16 {
        let request = self.write_request(topic, partition, batch);
        let response = self.connection.call(version, &request);
        response.responses[0].partition_responses[0].error_code
    }

    pub fn write(&mut self, topic: &str, partition: i32, prefix: &str, count: i32) {
        let batch = self.batch(topic, partition, prefix, count);
        assert_eq!(self.send(9, topic, partition, &batch), code::NONE, "write {prefix}");
    }

    pub fn end_request(&self, committed: bool) -> EndTxnRequest {
        EndTxnRequest {
            transactional_id: self.id.as_str().into(),
            producer_id: self.producer_id,
            producer_epoch: self.epoch,
            committed,
        }
    }

    pub fn end(&mut self, version: i16, committed: bool) -> i16 {
        let request = self.end_request(committed);
        let response = self.connection.call(version, &request);
        if version >= 5 && response.error_code == code::NONE {
            if (response.producer_id, response.producer_epoch) != (self.producer_id, self.epoch) {
                self.sequences.clear();
            }
            (self.producer_id, self.epoch) = (response.producer_id, response.producer_epoch);
        }
        response.error_code
    }
}

/// Keys that read_committed shows, as clients filter them. The partition's leader must be known.
pub fn committed_keys(connection: &mut Connection, topic: &str, partition: i32) -> Vec<String> {
    let (mut keys, mut next) = (Vec::new(), 0);
    loop {
        let mut request = fetch_request(topic, &[(partition, next)], 1 << 20);
        request.isolation_level = 1;
        let mut answer = connection.call(11, &request);
        let data = answer.responses.remove(0).partitions.remove(0);
        assert_eq!(data.error_code, 0, "{topic}-{partition}");
        let mut aborted: Vec<(i64, i64)> = data
            .aborted_transactions
            .iter()
            .flatten()
            .map(|aborted| (aborted.first_offset, aborted.producer_id))
            .collect();
        // They come in the order of their ends, and are met in the order of their starts.
        aborted.sort_unstable();
        let batches = batch::read(&record_bytes(&data));
        let Some(last) = batches.last() else { return keys };
        let end = last.base_offset + i64::from(last.last_offset_delta.unwrap_or(0)) + 1;
        let mut open: Vec<i64> = Vec::new();
        for batch in &batches {
            let last_offset = batch.base_offset + i64::from(batch.last_offset_delta.unwrap_or(0));
            while let Some((first, producer)) =
                aborted.first().copied().filter(|(first, _)| *first <= last_offset)
            {
                let _ = first;
                open.push(producer);
                aborted.remove(0);
            }
            if batch.attributes & CONTROL != 0 {
                open.retain(|producer| *producer != batch.producer_id);
            } else if batch.attributes & TRANSACTIONAL == 0 || !open.contains(&batch.producer_id) {
                let key = |key: &Option<bytes::Bytes>| {
                    String::from_utf8_lossy(key.as_deref().unwrap_or_default()).into_owned()
                };
                let offsets = batch.records.iter().zip(0..);
                let of_interest = offsets.filter(|(_, delta)| batch.base_offset + delta >= next);
                keys.extend(of_interest.map(|(record, _)| key(&record.key)));
            }
        }
        next = end;
    }
}

/// First offsets and producer ids of the aborted transactions that a partition's readers are told of, as they come.
pub fn aborted(connection: &mut Connection, topic: &str, partition: i32) -> Vec<(i64, i64)> {
    let mut request = fetch_request(topic, &[(partition, 0)], 1 << 20);
    request.isolation_level = 1;
    let mut answer = connection.call(11, &request);
    let data = answer.responses.remove(0).partitions.remove(0);
    assert_eq!(data.error_code, 0, "{topic}-{partition}");
    let aborted = data.aborted_transactions.iter().flatten();
    aborted.map(|aborted| (aborted.first_offset, aborted.producer_id)).collect()
}

/// (last stable offset, high watermark)
pub fn positions(connection: &mut Connection, topic: &str, partition: i32) -> (i64, i64) {
    let data = connection.fetch_partition(topic, partition, 0);
    (data.last_stable_offset, data.high_watermark)
}

pub fn wait_until_stable(connection: &mut Connection, topic: &str, partition: i32) {
    wait_for("the last stable offset", || {
        // A broker that starts may not know the topic yet.
        let data = connection.fetch_partition(topic, partition, 0);
        (data.error_code == 0 && data.last_stable_offset == data.high_watermark).then_some(())
    });
}

/// The markers in a partition: producer id, epoch, commit.
pub fn markers(connection: &mut Connection, topic: &str, partition: i32) -> Vec<(i64, i16, bool)> {
    let batches = connection.fetch_all(topic, partition, 0);
    let control = batches.iter().filter(|batch| batch.attributes & CONTROL != 0);
    let verdict = |batch: &Batch| batch.records[0].key.as_deref().is_some_and(|key| key[3] == 1);
    control.map(|batch| (batch.producer_id, batch.producer_epoch, verdict(batch))).collect()
}
