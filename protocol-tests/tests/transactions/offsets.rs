//! Offsets of groups in transactions.

use protocol_tests::{Connection, wait_for};
use wire::add_offsets_to_txn_request::AddOffsetsToTxnRequest;
use wire::join_group_request::{JoinGroupRequest, JoinGroupRequestProtocol};
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestTopic};
use wire::sync_group_request::{SyncGroupRequest, SyncGroupRequestAssignment};
use wire::txn_offset_commit_request::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};

use crate::producer::Producer;
use crate::{code, start};

fn add_offsets(producer: &mut Producer) {
    let request = AddOffsetsToTxnRequest {
        transactional_id: producer.id.as_str().into(),
        producer_id: producer.producer_id,
        producer_epoch: producer.epoch,
        group_id: "g".into(),
    };
    let code = wait_for("the end of the transaction before", || {
        let code = producer.connection.call(3, &request).error_code;
        (code != code::CONCURRENT_TRANSACTIONS).then_some(code)
    });
    assert_eq!(code, code::NONE);
}

fn request(producer: &Producer, committed_offset: i64) -> TxnOffsetCommitRequest {
    let partition = TxnOffsetCommitRequestPartition {
        partition_index: 0,
        committed_offset,
        committed_metadata: Some("".into()),
        ..Default::default()
    };
    TxnOffsetCommitRequest {
        transactional_id: producer.id.as_str().into(),
        group_id: "g".into(),
        producer_id: producer.producer_id,
        producer_epoch: producer.epoch,
        topics: vec![TxnOffsetCommitRequestTopic { name: "t".into(), partitions: vec![partition] }],
        ..Default::default()
    }
}

fn commit(producer: &mut Producer, version: i16, request: &TxnOffsetCommitRequest) -> i16 {
    producer.connection.call(version, request).topics[0].partitions[0].error_code
}

fn fetch(connection: &mut Connection, require_stable: bool) -> (i16, i64) {
    let topic = OffsetFetchRequestTopic { name: "t".into(), partition_indexes: vec![0] };
    let request = OffsetFetchRequest {
        group_id: "g".into(),
        topics: Some(vec![topic]),
        require_stable,
        ..Default::default()
    };
    let response = connection.call(7, &request);
    let partition = &response.topics[0].partitions[0];
    (partition.error_code, partition.committed_offset)
}

/// C056: readers see offsets of decided transactions only.
#[test]
fn offsets_of_a_transaction_show_when_it_commits() {
    let mut broker = start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 1, &[]);
    assert_eq!(connection.commit("g", "t", 0, 5), 0);
    let mut producer = Producer::new(&broker.address(), "offsets");
    for (commits, offset, expected) in [(false, 10, 5), (true, 20, 20)] {
        add_offsets(&mut producer);
        let commit_offset = request(&producer, offset);
        assert_eq!(commit(&mut producer, 2, &commit_offset), code::NONE);
        assert_eq!(fetch(&mut connection, false), (0, 5));
        assert_eq!(fetch(&mut connection, true), (code::UNSTABLE_OFFSET_COMMIT, -1));
        assert_eq!(producer.end(3, commits), code::NONE);
        wait_for("the end", || (fetch(&mut connection, true) == (0, expected)).then_some(()));
    }
    // Pending offsets and their markers are found again in the log.
    add_offsets(&mut producer);
    let pending = request(&producer, 30);
    assert_eq!(commit(&mut producer, 2, &pending), code::NONE);
    broker.kill();
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    wait_for("the pending offset", || {
        (fetch(&mut connection, true) == (code::UNSTABLE_OFFSET_COMMIT, -1)).then_some(())
    });
    producer.reconnect(&broker.address());
    assert_eq!(producer.end(3, true), code::NONE);
    wait_for("the commit", || (fetch(&mut connection, true) == (0, 30)).then_some(()));
}

/// C054 for offsets: a commit that comes after the end of its transaction leaves nothing pending.
#[test]
fn a_late_offset_commit_is_refused() {
    let broker = start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 1, &[]);
    let mut producer = Producer::new(&broker.address(), "late-offsets");
    // The group's partition was not added.
    let early = request(&producer, 10);
    assert_eq!(commit(&mut producer, 3, &early), code::INVALID_TXN_STATE);
    assert_eq!(commit(&mut producer, 4, &early), code::TRANSACTION_ABORTABLE);
    add_offsets(&mut producer);
    assert_eq!(commit(&mut producer, 3, &early), code::NONE);
    assert_eq!(producer.end(3, true), code::NONE);
    wait_for("the commit", || (fetch(&mut connection, true) == (0, 10)).then_some(()));
    let late = request(&producer, 11);
    let refused = wait_for("the end", || {
        // While the end is on its way clients come again.
        Some(commit(&mut producer, 4, &late)).filter(|code| *code != 14)
    });
    assert_eq!(refused, code::TRANSACTION_ABORTABLE);
    assert_eq!(fetch(&mut connection, true), (0, 10));
}

/// C056: KIP-447 fences by the generation of the group.
#[test]
fn members_of_another_generation_are_fenced() {
    let broker = start(&[("group.min.session.timeout.ms", "100")]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic("t", 1, &[]);
    let join = JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        group_instance_id: Some("i".into()),
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata: bytes::Bytes::new() }],
        ..Default::default()
    };
    let joined = connection.call(5, &join);
    assert_eq!(joined.error_code, 0);
    let assignment = SyncGroupRequestAssignment { member_id: joined.member_id.clone(), ..Default::default() };
    let sync = SyncGroupRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        group_instance_id: Some("i".into()),
        assignments: vec![assignment],
        ..Default::default()
    };
    assert_eq!(connection.call(3, &sync).error_code, 0);
    let mut producer = Producer::new(&broker.address(), "member");
    add_offsets(&mut producer);
    let of_member = TxnOffsetCommitRequest {
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        group_instance_id: Some("i".into()),
        ..request(&producer, 7)
    };
    assert_eq!(commit(&mut producer, 3, &of_member), code::NONE);
    let stale = TxnOffsetCommitRequest { generation_id: joined.generation_id - 1, ..of_member.clone() };
    assert_eq!(commit(&mut producer, 3, &stale), code::ILLEGAL_GENERATION);
    let unknown =
        TxnOffsetCommitRequest { member_id: "nobody".into(), group_instance_id: None, ..of_member.clone() };
    assert_eq!(commit(&mut producer, 3, &unknown), code::UNKNOWN_MEMBER_ID);
    let fenced = TxnOffsetCommitRequest { member_id: "nobody".into(), ..of_member.clone() };
    assert_eq!(commit(&mut producer, 3, &fenced), code::FENCED_INSTANCE_ID);
    let nameless = request(&producer, 8);
    assert_eq!(commit(&mut producer, 2, &nameless), code::NONE);
    assert_eq!(producer.end(3, true), code::NONE);
    wait_for("the commit", || (fetch(&mut connection, true) == (0, 8)).then_some(()));
}
