//! What each version is told.

use protocol_tests::{Connection, wait_for};
use wire::add_offsets_to_txn_request::AddOffsetsToTxnRequest;
use wire::describe_producers_request::{DescribeProducersRequest, TopicRequest};
use wire::describe_transactions_request::DescribeTransactionsRequest;
use wire::init_producer_id_request::InitProducerIdRequest;
use wire::list_transactions_request::ListTransactionsRequest;

use crate::producer::{Producer, committed_keys, init, wait_for_txn_coordinator};
use crate::{code, start};

/// C050: codes that came later are not sent to versions that do not know them.
#[test]
fn a_fenced_producer_is_told_so_in_the_words_of_its_version() {
    let broker = start(&[]);
    let mut reader = Connection::open(&broker.address());
    reader.create_topic("t", 2, &[]);
    let mut old = Producer::new(&broker.address(), "fenced");
    old.begin("t", &[0]);
    old.write("t", 0, "old", 2);
    let mut new = Producer::new(&broker.address(), "fenced");
    assert_eq!(new.producer_id, old.producer_id);
    assert!(new.epoch > old.epoch);
    for version in [3, 7, 9, 10, 11, 12] {
        let batch = old.batch("t", 0, "late", 1);
        assert_eq!(old.send(version, "t", 0, &batch), code::INVALID_PRODUCER_EPOCH, "Produce v{version}");
    }
    let add_offsets = |producer: &mut Producer, version| {
        let request = AddOffsetsToTxnRequest {
            transactional_id: "fenced".into(),
            producer_id: producer.producer_id,
            producer_epoch: producer.epoch,
            group_id: "g".into(),
        };
        producer.connection.call(version, &request).error_code
    };
    for (version, expected) in [(1, code::INVALID_PRODUCER_EPOCH), (2, code::PRODUCER_FENCED)] {
        assert_eq!(old.end(version, true), expected, "EndTxn v{version}");
        assert_eq!(old.add(version, "t", &[1]), expected, "AddPartitionsToTxn v{version}");
        assert_eq!(add_offsets(&mut old, version), expected, "AddOffsetsToTxn v{version}");
    }
    for (version, expected) in [(3, code::INVALID_PRODUCER_EPOCH), (4, code::PRODUCER_FENCED)] {
        let request = InitProducerIdRequest {
            transactional_id: Some("fenced".into()),
            transaction_timeout_ms: 60_000,
            producer_id: old.producer_id,
            producer_epoch: old.epoch,
            ..Default::default()
        };
        assert_eq!(old.connection.call(version, &request).error_code, expected, "InitProducerId v{version}");
    }
    new.begin("t", &[0]);
    new.write("t", 0, "new", 2);
    assert_eq!(new.end(3, true), code::NONE);
    wait_for("the commit", || (committed_keys(&mut reader, "t", 0) == ["new-0", "new-1"]).then_some(()));
}

/// KAFKA-5171, redpanda commit 6a2ac42e44: what a producer may ask for.
#[test]
fn producer_ids_are_refused_for_timeouts_and_ids_that_cannot_be() {
    let broker = start(&[]);
    let mut connection = Connection::open(&broker.address());
    wait_for_txn_coordinator(&mut connection, "t");
    wait_for("a loaded coordinator", || (init(&mut connection, 4, "t").error_code == 0).then_some(()));
    let mut check = |request: InitProducerIdRequest, expected| {
        for version in [1, 4, 5] {
            let response = connection.call(version, &request);
            assert_eq!((response.error_code, response.producer_id), (expected, -1), "v{version} {request:?}");
        }
    };
    let with = |id: &str, transaction_timeout_ms| InitProducerIdRequest {
        transactional_id: Some(id.into()),
        transaction_timeout_ms,
        ..Default::default()
    };
    check(with("t", 0), code::INVALID_TRANSACTION_TIMEOUT);
    check(with("t", -1), code::INVALID_TRANSACTION_TIMEOUT);
    check(with("t", 900_001), code::INVALID_TRANSACTION_TIMEOUT);
    check(with("", 60_000), code::INVALID_REQUEST);
    let half = InitProducerIdRequest { producer_id: 5, ..with("t", 60_000) };
    assert_eq!(connection.call(3, &half).error_code, code::INVALID_REQUEST);
    let without = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    let first = connection.call(4, &without);
    let second = connection.call(4, &without);
    assert_eq!((first.error_code, first.producer_epoch), (0, 0));
    assert_ne!(first.producer_id, second.producer_id);
}

/// redpanda#11947, redpanda#11949: administrators see what there is.
#[test]
fn administrators_see_transactions_and_producers() {
    let broker = start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 1, &[]);
    let list = ListTransactionsRequest { duration_filter: -1, ..Default::default() };
    assert!(connection.call(1, &list).transaction_states.is_empty());
    wait_for_txn_coordinator(&mut connection, "t");
    wait_for("a loaded coordinator", || {
        let request = DescribeTransactionsRequest { transactional_ids: vec!["nope".into()] };
        let code = connection.call(0, &request).transaction_states[0].error_code;
        (code == code::TRANSACTIONAL_ID_NOT_FOUND).then_some(())
    });
    let mut producer = Producer::new(&broker.address(), "seen");
    producer.begin("t", &[0]);
    producer.write("t", 0, "x", 3);
    let describe = DescribeTransactionsRequest { transactional_ids: vec!["seen".into(), "".into()] };
    let described = connection.call(0, &describe).transaction_states;
    assert_eq!(
        (&*described[0].transaction_state, described[0].producer_id),
        ("Ongoing", producer.producer_id)
    );
    assert_eq!(
        (&*described[0].topics[0].topic, described[0].topics[0].partitions.as_slice()),
        ("t", &[0][..])
    );
    assert_eq!(described[1].error_code, code::INVALID_REQUEST);
    let topics = vec![TopicRequest { name: "t".into(), partition_indexes: vec![0, 7] }];
    let producers = connection.call(0, &DescribeProducersRequest { topics }).topics.remove(0).partitions;
    let active = &producers[0].active_producers[0];
    assert_eq!(
        (active.producer_id, active.last_sequence, active.current_txn_start_offset),
        (producer.producer_id, 2, 0)
    );
    assert!(active.last_timestamp > 0);
    assert_ne!(producers[1].error_code, 0);
    let mut listed = |request: &ListTransactionsRequest| {
        let response = connection.call(2, request);
        let ids: Vec<String> =
            response.transaction_states.iter().map(|state| state.transactional_id.to_string()).collect();
        (response.error_code, ids, response.unknown_state_filters.len())
    };
    let seen = || vec!["seen".to_owned()];
    assert_eq!(listed(&list), (0, seen(), 0));
    let states = |names: &[&str]| ListTransactionsRequest {
        state_filters: names.iter().map(|name| (*name).into()).collect(),
        ..list.clone()
    };
    assert_eq!(listed(&states(&["Ongoing", "Foo"])), (0, seen(), 1));
    assert_eq!(listed(&states(&["Empty"])), (0, vec![], 0));
    assert_eq!(
        listed(&ListTransactionsRequest { duration_filter: 3_600_000, ..list.clone() }),
        (0, vec![], 0)
    );
    let of_producer = |id| ListTransactionsRequest { producer_id_filters: vec![id], ..list.clone() };
    assert_eq!(listed(&of_producer(producer.producer_id)), (0, seen(), 0));
    assert_eq!(listed(&of_producer(9_999)), (0, vec![], 0));
    let pattern =
        |text: &str| ListTransactionsRequest { transactional_id_pattern: Some(text.into()), ..list.clone() };
    assert_eq!(listed(&pattern("se+n")), (0, seen(), 0));
    assert_eq!(listed(&pattern("se")), (0, vec![], 0));
    assert_eq!(listed(&pattern("(")).0, 128);
}
