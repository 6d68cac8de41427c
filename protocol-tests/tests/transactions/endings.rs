//! How transactions end: once, on all partitions, and none stays open.

use protocol_tests::{Connection, scaled, wait_for};
use wire::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest};

use crate::producer::{Producer, committed_keys, markers, positions, wait_until_stable};
use crate::{code, set_version, start};

/// C054: a write outside of a transaction opens none.
#[test]
fn a_write_that_belongs_to_no_transaction_is_refused() {
    let broker = start(&[]);
    let mut reader = Connection::open(&broker.address());
    reader.create_topic("t", 2, &[]);
    let mut producer = Producer::new(&broker.address(), "late");
    // The partition was not added.
    for (version, expected) in
        [(9, code::INVALID_TXN_STATE), (10, code::INVALID_TXN_STATE), (11, code::TRANSACTION_ABORTABLE)]
    {
        let batch = producer.batch("t", 0, "early", 1);
        assert_eq!(producer.send(version, "t", 0, &batch), expected, "v{version}");
    }
    assert_eq!(positions(&mut reader, "t", 0), (0, 0));
    let mut producer = Producer::new(&broker.address(), "late-2");
    producer.begin("t", &[0]);
    producer.write("t", 0, "in", 1);
    let delayed = producer.batch("t", 0, "delayed", 1);
    assert_eq!(producer.end(3, true), code::NONE);
    wait_until_stable(&mut reader, "t", 0);
    let refused = wait_for("the end of the transaction", || {
        let code = producer.send(11, "t", 0, &delayed);
        // While the end is on its way clients come again.
        (code != 19).then_some(code)
    });
    assert_eq!(refused, code::TRANSACTION_ABORTABLE);
    wait_until_stable(&mut reader, "t", 0);
    assert_eq!(committed_keys(&mut reader, "t", 0), ["in-0"]);
}

/// C054: a transaction that is left alone is aborted.
#[test]
fn an_abandoned_transaction_is_aborted_after_its_timeout() {
    let mut broker = start(&[]);
    broker.allow_log("aborting a transaction that outlived its timeout");
    let mut reader = Connection::open(&broker.address());
    reader.create_topic("t", 1, &[]);
    // Longer than a slow machine takes from its begin to the look at it.
    let mut producer = Producer::with_timeout(&broker.address(), "abandoned", 10_000);
    producer.begin("t", &[0]);
    producer.write("t", 0, "x", 2);
    assert_eq!(positions(&mut reader, "t", 0), (0, 2));
    wait_until_stable(&mut reader, "t", 0);
    assert_eq!(committed_keys(&mut reader, "t", 0), Vec::<String>::new());
    assert_eq!(markers(&mut reader, "t", 0), [(producer.producer_id, producer.epoch + 1, false)]);
    assert_eq!(producer.end(3, true), code::PRODUCER_FENCED);
    assert!(broker.log().contains("client=\"/127.0.0.1\""), "the log names the client");
}

/// C055: a coordinator that dies between the decision and its markers.
#[test]
fn a_kill_between_decision_and_markers_leaves_one_marker_a_transaction() {
    for level in [0, 2] {
        let mut broker = start(&[]);
        let mut connection = Connection::open(&broker.address());
        connection.create_topic("t", 3, &[]);
        if level > 0 {
            set_version(&mut connection, level);
        }
        let rounds = scaled(6);
        let mut expected: Vec<bool> = Vec::new();
        let mut keys: Vec<Vec<String>> = vec![Vec::new(); 3];
        for round in 0..rounds {
            let commits = round % 3 != 1;
            let mut producer = Producer::new(&broker.address(), "killed");
            producer.begin("t", &[0, 1, 2]);
            for partition in 0..3 {
                producer.write("t", partition, &format!("r{round}"), 1);
                if commits {
                    keys[partition as usize].push(format!("r{round}-0"));
                }
            }
            expected.push(commits);
            let version = if level == 2 { 5 } else { 3 };
            assert_eq!(producer.end(version, commits), code::NONE);
            broker.kill();
            broker.start_again();
            Connection::open(&broker.address()).wait_for_leaders("t", 3);
        }
        let mut connection = Connection::open(&broker.address());
        // Nothing is open, and the next transaction of the id works.
        let mut producer = Producer::new(&broker.address(), "killed");
        producer.begin("t", &[0]);
        assert_eq!(producer.end(3, true), code::NONE);
        for partition in 0..3 {
            wait_until_stable(&mut connection, "t", partition);
            assert_eq!(
                committed_keys(&mut connection, "t", partition),
                keys[partition as usize],
                "level {level}"
            );
        }
        let verdicts = |connection: &mut Connection, partition| {
            markers(connection, "t", partition)
                .into_iter()
                .map(|(.., is_commit)| is_commit)
                .collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&mut connection, 1), expected, "level {level}");
        assert_eq!(verdicts(&mut connection, 2), expected, "level {level}");
    }
}

/// C028: what is open when the broker dies can be committed afterwards.
#[test]
fn a_transaction_that_is_open_over_a_kill_can_be_committed() {
    let mut broker = start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 1, &[]);
    let mut producer = Producer::new(&broker.address(), "open");
    producer.begin("t", &[0]);
    producer.write("t", 0, "before", 2);
    broker.kill();
    broker.start_again();
    producer.reconnect(&broker.address());
    let mut connection = Connection::open(&broker.address());
    connection.wait_for_leaders("t", 1);
    producer.write("t", 0, "after", 1);
    assert_eq!(committed_keys(&mut connection, "t", 0), Vec::<String>::new());
    assert_eq!(producer.end(3, true), code::NONE);
    wait_until_stable(&mut connection, "t", 0);
    assert_eq!(committed_keys(&mut connection, "t", 0), ["before-0", "before-1", "after-0"]);
}

/// C052: a producer that was silent for longer than its state is kept goes on.
#[test]
fn a_producer_that_expired_goes_on_with_its_sequence() {
    let broker = start(&[
        ("producer.id.expiration.ms", "500"),
        ("producer.id.expiration.check.interval.ms", "100"),
        ("log.initial.task.delay.ms", "0"),
    ]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 1, &[]);
    let mut producer = Producer::new(&broker.address(), "silent");
    producer.begin("t", &[0]);
    producer.write("t", 0, "x", 7);
    assert_eq!(producer.end(3, true), code::NONE);
    wait_for("the expiry", || {
        use wire::describe_producers_request::{DescribeProducersRequest, TopicRequest};
        let topics = vec![TopicRequest { name: "t".into(), partition_indexes: vec![0] }];
        let response = connection.call(0, &DescribeProducersRequest { topics });
        response.topics[0].partitions[0].active_producers.is_empty().then_some(())
    });
    producer.begin("t", &[0]);
    producer.write("t", 0, "y", 1);
    assert_eq!(producer.end(3, true), code::NONE);
    wait_until_stable(&mut connection, "t", 0);
    assert_eq!(committed_keys(&mut connection, "t", 0).len(), 8);
}

/// `kafka-transactions abort`: an administrator's marker ends what hangs, and an older coordinator's does not.
#[test]
fn an_administrator_ends_a_transaction_in_one_partition() {
    let broker = start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 1, &[]);
    let mut producer = Producer::new(&broker.address(), "hanging");
    producer.begin("t", &[0]);
    producer.write("t", 0, "x", 1);
    let mut write = |epoch, partitions: Vec<i32>| {
        let topics = vec![WritableTxnMarkerTopic { name: "t".into(), partition_indexes: partitions }];
        let marker = WritableTxnMarker {
            producer_id: producer.producer_id,
            producer_epoch: epoch,
            transaction_result: false,
            topics,
            coordinator_epoch: 0,
            ..Default::default()
        };
        let response = connection.call(1, &WriteTxnMarkersRequest { markers: vec![marker] });
        response.markers[0].topics[0]
            .partitions
            .iter()
            .map(|partition| partition.error_code)
            .collect::<Vec<_>>()
    };
    assert_eq!(write(producer.epoch - 1, vec![0]), [code::INVALID_PRODUCER_EPOCH]);
    assert_eq!(write(producer.epoch, vec![0, 5]), [0, 3]);
    wait_until_stable(&mut connection, "t", 0);
    assert_eq!(committed_keys(&mut connection, "t", 0), Vec::<String>::new());
}

/// An end may be asked for again, from any connection; the other verdict is refused.
#[test]
fn an_end_is_repeatable_and_the_other_verdict_is_refused() {
    for (level, version) in [(0, 3), (2, 5)] {
        let broker = start(&[]);
        let mut connection = Connection::open(&broker.address());
        connection.create_topic("t", 1, &[]);
        if level > 0 {
            set_version(&mut connection, level);
        }
        let mut producer = Producer::new(&broker.address(), "again");
        producer.begin("t", &[0]);
        producer.write("t", 0, "x", 1);
        let epoch = producer.epoch;
        assert_eq!(producer.end(version, true), code::NONE);
        let after = producer.epoch;
        assert_eq!(after - epoch, i16::from(level == 2));
        wait_until_stable(&mut connection, "t", 0);
        producer.connection = Connection::open(&broker.address());
        producer.epoch = epoch;
        let again = wait_for("the end", || {
            Some(producer.end(version, true)).filter(|code| *code != code::CONCURRENT_TRANSACTIONS)
        });
        assert_eq!((again, producer.epoch), (code::NONE, after));
        producer.epoch = epoch;
        assert_eq!(producer.end(version, false), code::INVALID_TXN_STATE);
        let other = producer.producer_id;
        producer.producer_id = 123_456;
        assert_eq!(producer.end(version, true), code::INVALID_PRODUCER_ID_MAPPING);
        producer.producer_id = other;
    }
}
