//! Classic groups, their coordinator, and what it stores.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol_tests::batch::Codec;
use protocol_tests::client::{left_out, programs};
use protocol_tests::requests::commit_request;
use protocol_tests::{Broker, Connection, Process, command_exists, kafka_tool, scaled, wait_for};
use wire::delete_groups_request::DeleteGroupsRequest;
use wire::describe_groups_request::DescribeGroupsRequest;
use wire::describe_groups_response::DescribedGroup;
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::group_metadata_value::GroupMetadataValue;
use wire::heartbeat_request::HeartbeatRequest;
use wire::join_group_request::{JoinGroupRequest, JoinGroupRequestProtocol};
use wire::join_group_response::JoinGroupResponse;
use wire::leave_group_request::{LeaveGroupRequest, MemberIdentity};
use wire::list_groups_request::ListGroupsRequest;
use wire::offset_commit_request::OffsetCommitRequest;
use wire::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use wire::sync_group_request::{SyncGroupRequest, SyncGroupRequestAssignment};
use wire::sync_group_response::SyncGroupResponse;
use wire::{Message, OffsetCommitValue, Reader, Str};

use crate::code;

const TOPIC: &str = "cases";
const OFFSETS: &str = "__consumer_offsets";
/// Sessions as short as a test likes, and one partition to look into.
const SETTINGS: &[(&str, &str)] = &[
    ("group.min.session.timeout.ms", "100"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "1"),
];
/// A session that does not end while a test runs.
const LONG_MS: i32 = 300_000;
/// The versions that a dynamic member joins with directly, and a static one at all.
const DYNAMIC: i16 = 3;
const STATIC: i16 = 5;

fn start(settings: &[(&str, &str)]) -> Broker {
    let mut all = SETTINGS.to_vec();
    all.retain(|(key, _)| !settings.iter().any(|(changed, _)| changed == key));
    all.extend_from_slice(settings);
    let broker = Broker::start(&all);
    Connection::open(&broker.address()).wait_for_coordinator("any");
    broker
}

/// Somebody who is or wants to be a member.
struct Member {
    connection: Connection,
    group: String,
    instance: Option<&'static str>,
    session_timeout_ms: i32,
    rebalance_timeout_ms: i32,
    member_id: Str,
    generation_id: i32,
    leader: Str,
}

impl Member {
    fn new(address: &str, group: &str) -> Member {
        Member {
            connection: Connection::open(address),
            group: group.to_owned(),
            instance: None,
            session_timeout_ms: LONG_MS,
            rebalance_timeout_ms: LONG_MS,
            member_id: Str::default(),
            generation_id: -1,
            leader: Str::default(),
        }
    }

    fn join_version(&self) -> i16 {
        if self.instance.is_some() { STATIC } else { DYNAMIC }
    }

    fn request(&self) -> JoinGroupRequest {
        let protocol = JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: Bytes::from_static(b"\0\0\0\0\0\0\0\0\0\0"),
        };
        JoinGroupRequest {
            group_id: self.group.as_str().into(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance.map(Into::into),
            protocol_type: "consumer".into(),
            protocols: vec![protocol],
            ..Default::default()
        }
    }

    /// Asks to join; the answer comes when the round is complete.
    #[track_caller]
    fn begin_join(&mut self) -> i32 {
        let (version, request) = (self.join_version(), self.request());
        self.connection.send(version, &request)
    }

    #[track_caller]
    fn end_join(&mut self, asked: i32) -> JoinGroupResponse {
        let answer =
            self.connection.receive::<JoinGroupRequest>(self.join_version(), asked).expect("an answer");
        if answer.error_code == 0 {
            self.member_id = answer.member_id.clone();
            self.generation_id = answer.generation_id;
            self.leader = answer.leader.clone();
        }
        answer
    }

    #[track_caller]
    fn join(&mut self) -> JoinGroupResponse {
        let asked = self.begin_join();
        self.end_join(asked)
    }

    fn is_leader(&self) -> bool {
        self.leader == self.member_id
    }

    /// The leader gives each member its own id as its assignment.
    fn sync_request(&self, members: &[Str]) -> SyncGroupRequest {
        let assignment = |member_id: &Str| SyncGroupRequestAssignment {
            member_id: member_id.clone(),
            assignment: Bytes::copy_from_slice(member_id.as_bytes()),
        };
        SyncGroupRequest {
            group_id: self.group.as_str().into(),
            generation_id: self.generation_id,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance.map(Into::into),
            assignments: members.iter().map(assignment).collect(),
            ..Default::default()
        }
    }

    #[track_caller]
    fn begin_sync(&mut self, members: &[Str]) -> i32 {
        let request = self.sync_request(members);
        self.connection.send(3, &request)
    }

    #[track_caller]
    fn end_sync(&mut self, asked: i32) -> SyncGroupResponse {
        self.connection.receive::<SyncGroupRequest>(3, asked).expect("an answer")
    }

    #[track_caller]
    fn sync(&mut self, members: &[Str]) -> SyncGroupResponse {
        let asked = self.begin_sync(members);
        self.end_sync(asked)
    }

    #[track_caller]
    fn heartbeat(&mut self) -> i16 {
        let request = HeartbeatRequest {
            group_id: self.group.as_str().into(),
            generation_id: self.generation_id,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance.map(Into::into),
        };
        self.connection.call(3, &request).error_code
    }

    #[track_caller]
    fn commit(&mut self, offset: i64) -> i16 {
        let request = OffsetCommitRequest {
            generation_id_or_member_epoch: self.generation_id,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance.map(Into::into),
            ..commit_request(&self.group, TOPIC, 0, offset)
        };
        self.connection.call(7, &request).topics[0].partitions[0].error_code
    }

    #[track_caller]
    fn leave(&mut self) {
        let identity = MemberIdentity { member_id: self.member_id.clone(), ..Default::default() };
        leave(&mut self.connection, &self.group, identity);
        self.member_id = Str::default();
    }
}

#[track_caller]
fn leave(connection: &mut Connection, group: &str, identity: MemberIdentity) {
    let request = LeaveGroupRequest { group_id: group.into(), members: vec![identity], ..Default::default() };
    let answer = connection.call(3, &request);
    assert_eq!((answer.error_code, answer.members[0].error_code), (0, 0), "LeaveGroup");
}

#[track_caller]
fn describe(connection: &mut Connection, group: &str) -> DescribedGroup {
    let request = DescribeGroupsRequest { groups: vec![group.into()], ..Default::default() };
    connection.call(4, &request).groups.remove(0)
}

/// A member of a stable group of one.
#[track_caller]
fn alone(address: &str, group: &str) -> Member {
    let mut member = Member::new(address, group);
    assert_eq!(member.join().error_code, code::NONE);
    assert_eq!(member.sync(&[member.member_id.clone()]).error_code, code::NONE);
    member
}

/// Joins the group and does not come back with the id it is given.
fn ghost(address: &str, group: &str, session_timeout_ms: i32) -> Str {
    let mut ghost = Member { session_timeout_ms, ..Member::new(address, group) };
    let answer = ghost.connection.call(4, &ghost.request());
    assert_eq!(answer.error_code, code::MEMBER_ID_REQUIRED);
    assert!(!answer.member_id.is_empty());
    answer.member_id
}

/// C037
#[test]
fn a_ghost_that_took_an_id_holds_a_group_up_no_longer_than_its_session() {
    let broker = start(&[]);
    let mut member = alone(&broker.address(), "haunted");
    ghost(&broker.address(), "haunted", 300);
    let joined = member.join();
    assert_eq!((joined.error_code, joined.generation_id, joined.members.len()), (code::NONE, 2, 1));
}

/// C037
#[test]
fn a_ghost_that_leaves_holds_a_group_up_no_longer() {
    let broker = start(&[]);
    let address = broker.address();
    let mut member = alone(&address, "haunted");
    let member_id = ghost(&address, "haunted", LONG_MS);
    let asked = member.begin_join();
    wait_for("the member to wait for the ghost", || {
        let state = describe(&mut Connection::open(&address), "haunted").group_state;
        (&*state == "PreparingRebalance").then_some(())
    });
    leave(&mut Connection::open(&address), "haunted", MemberIdentity { member_id, ..Default::default() });
    assert_eq!(member.end_join(asked).members.len(), 1);
}

/// C037
#[test]
fn a_member_that_is_lost_amid_a_rebalance_is_removed_after_its_session() {
    let broker = start(&[]);
    let address = broker.address();
    let mut stays = alone(&address, "lossy");
    let mut lost = Member { session_timeout_ms: 300, ..Member::new(&address, "lossy") };
    lost.begin_join();
    wait_for("the rebalance", || (stays.heartbeat() == code::REBALANCE_IN_PROGRESS).then_some(()));
    drop(lost);
    assert_eq!(stays.join().error_code, code::NONE);
    // The round may have been complete before the lost one was missed: then there is another one.
    wait_for("the lost one to be gone", || {
        let (me, state) = (stays.member_id.clone(), describe(&mut Connection::open(&address), "lossy"));
        match stays.sync(&[me]).error_code {
            code::NONE if state.members.len() == 1 => Some(()),
            code::NONE | code::REBALANCE_IN_PROGRESS => {
                if stays.heartbeat() == code::REBALANCE_IN_PROGRESS {
                    assert_eq!(stays.join().error_code, code::NONE);
                }
                None
            }
            other => panic!("SyncGroup: {other}"),
        }
    });
    assert_eq!(stays.heartbeat(), code::NONE);
}

/// Three members of one round. The delay of a first round, which begins anew with each, gathers them.
const TOGETHER: (&str, &str) = ("group.initial.rebalance.delay.ms", "3000");

#[track_caller]
fn join_together(members: &mut [Member]) -> Vec<JoinGroupResponse> {
    let asked: Vec<i32> = members.iter_mut().map(Member::begin_join).collect();
    members.iter_mut().zip(asked).map(|(member, asked)| member.end_join(asked)).collect()
}

/// C039
#[test]
fn each_member_gets_exactly_its_bytes_from_the_leader() {
    let broker = start(&[TOGETHER]);
    let mut members: Vec<Member> = (0..3).map(|_| Member::new(&broker.address(), "shared")).collect();
    for round in 1..=2 {
        let joined = if round == 1 { join_together(&mut members) } else { next_round(&mut members) };
        assert!(
            joined.iter().all(|joined| (joined.error_code, joined.generation_id) == (0, round)),
            "{joined:?}"
        );
        let leader = members.iter().position(Member::is_leader).expect("a leader");
        assert_eq!(joined[leader].members.len(), 3);
        let listed = |joined: &JoinGroupResponse| joined.members.len();
        assert!(joined.iter().enumerate().all(|(at, joined)| at == leader || listed(joined) == 0));
        // In the second round the leader leaves one out.
        let mut ids: Vec<Str> = members.iter().map(|member| member.member_id.clone()).collect();
        let left_out = (leader + 1) % 3;
        if round == 2 {
            ids.remove(left_out);
        }
        let followers: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
        let asked: Vec<i32> = followers.iter().map(|at| members[*at].begin_sync(&[])).collect();
        // Nobody is told anything before the leader has spoken.
        let state = describe(&mut Connection::open(&broker.address()), "shared").group_state;
        assert_eq!(&*state, "CompletingRebalance");
        let own = members[leader].sync(&ids);
        assert_eq!((own.error_code, &own.assignment[..]), (0, members[leader].member_id.as_bytes()));
        for (at, asked) in followers.into_iter().zip(asked) {
            let answer = members[at].end_sync(asked);
            let expected = if round == 2 && at == left_out { b"" } else { members[at].member_id.as_bytes() };
            assert_eq!((answer.error_code, &answer.assignment[..]), (0, expected), "round {round}");
        }
    }
}

/// The leader asks for another round, and all join it.
#[track_caller]
fn next_round(members: &mut [Member]) -> Vec<JoinGroupResponse> {
    let leader = members.iter().position(Member::is_leader).expect("a leader");
    let first = members[leader].begin_join();
    let mut asked = Vec::new();
    for (at, member) in members.iter_mut().enumerate() {
        if at == leader {
            asked.push(first);
            continue;
        }
        wait_for("the next round", || (member.heartbeat() == code::REBALANCE_IN_PROGRESS).then_some(()));
        asked.push(member.begin_join());
    }
    members.iter_mut().zip(asked).map(|(member, asked)| member.end_join(asked)).collect()
}

/// C039
#[test]
fn a_leader_that_never_syncs_is_not_waited_for_for_ever() {
    let broker = start(&[TOGETHER]);
    let mut members: Vec<Member> = (0..3)
        .map(|_| Member { rebalance_timeout_ms: 5_000, ..Member::new(&broker.address(), "headless") })
        .collect();
    join_together(&mut members);
    let leader = members.iter().position(Member::is_leader).expect("a leader");
    let leader_id = members.remove(leader).member_id;
    let asked: Vec<i32> = members.iter_mut().map(|member| member.begin_sync(&[])).collect();
    for (member, asked) in members.iter_mut().zip(asked) {
        assert_eq!(member.end_sync(asked).error_code, code::REBALANCE_IN_PROGRESS);
    }
    let joined = join_together(&mut members);
    assert!(joined.iter().all(|joined| (joined.error_code, joined.generation_id) == (0, 2)), "{joined:?}");
    assert!(
        joined.iter().all(|joined| joined.leader != leader_id && joined.members.len() != 3),
        "{joined:?}"
    );
}

/// C040
#[test]
fn a_second_process_with_the_same_instance_id_fences_the_first() {
    let broker = start(&[]);
    let member = || Member { instance: Some("one"), ..Member::new(&broker.address(), "static") };
    let mut first = member();
    assert_eq!(first.join().error_code, code::NONE);
    assert_eq!(first.sync(&[first.member_id.clone()]).error_code, code::NONE);
    let mut second = member();
    assert_eq!(second.join().error_code, code::NONE);
    assert_ne!(second.member_id, first.member_id);
    assert_eq!(first.heartbeat(), code::FENCED_INSTANCE_ID);
    first.connection.create_topic(TOPIC, 1, &[]);
    assert_eq!(first.commit(1), code::FENCED_INSTANCE_ID);
    assert_eq!(second.heartbeat(), code::NONE);
    assert_eq!(second.commit(1), code::NONE);
}

/// C040
#[test]
fn a_static_member_that_comes_back_disturbs_nobody() {
    let broker = start(&[TOGETHER]);
    let member = |instance| Member { instance: Some(instance), ..Member::new(&broker.address(), "static") };
    let mut members = vec![member("a"), member("b")];
    join_together(&mut members);
    let ids: Vec<Str> = members.iter().map(|member| member.member_id.clone()).collect();
    let leader = members.iter().position(Member::is_leader).expect("a leader");
    assert_eq!(members[leader].sync(&ids).error_code, code::NONE);
    let follower = 1 - leader;
    assert_eq!(members[follower].sync(&[]).error_code, code::NONE);
    let instance = members[follower].instance;
    let mut returned =
        Member { instance, rebalance_timeout_ms: 77_000, ..Member::new(&broker.address(), "static") };
    let joined = returned.join();
    assert_eq!((joined.error_code, joined.generation_id), (code::NONE, 1));
    let synced = returned.sync(&[]);
    assert_eq!((synced.error_code, &synced.assignment[..]), (code::NONE, ids[follower].as_bytes()));
    assert_eq!(members[leader].heartbeat(), code::NONE);
    assert_eq!(describe(&mut members[leader].connection, "static").members.len(), 2);
    let stored = stored(&mut Connection::open(&broker.address()));
    let group = stored.iter().rev().find_map(StoredRecord::group).expect("the group's record");
    let timeouts: BTreeSet<i32> = group.members.iter().map(|member| member.rebalance_timeout).collect();
    assert_eq!(timeouts, BTreeSet::from([LONG_MS, 77_000]), "the timeout of the one who came back counts");
}

/// C041. Loading coordinators are those of `group::service_tests`.
#[test]
fn a_broker_that_is_no_coordinator_says_so_for_each_partition() {
    let broker = Broker::start(SETTINGS);
    let mut connection = Connection::open(&broker.address());
    let asked = || OffsetFetchRequestTopic { name: TOPIC.into(), partition_indexes: vec![0, 1] };
    let request =
        OffsetFetchRequest { group_id: "g".into(), topics: Some(vec![asked()]), ..Default::default() };
    for version in 1..=7 {
        let answer = connection.call(version, &request);
        if version >= 2 {
            assert_eq!(answer.error_code, code::NOT_COORDINATOR, "v{version}");
            continue;
        }
        let found: Vec<(i16, i64)> = answer.topics[0]
            .partitions
            .iter()
            .map(|partition| (partition.error_code, partition.committed_offset))
            .collect();
        assert_eq!(found, [(code::NOT_COORDINATOR, -1); 2]);
    }
    for version in 8..=9 {
        let topic = OffsetFetchRequestTopics {
            name: TOPIC.into(),
            partition_indexes: vec![0, 1],
            ..Default::default()
        };
        let group =
            OffsetFetchRequestGroup { group_id: "g".into(), topics: Some(vec![topic]), ..Default::default() };
        let answer =
            connection.call(version, &OffsetFetchRequest { groups: vec![group], ..Default::default() });
        assert_eq!(answer.groups[0].error_code, code::NOT_COORDINATOR, "v{version}");
    }
}

fn commit_for(connection: &mut Connection, group: &str, retention_time_ms: i64) {
    let request = OffsetCommitRequest { retention_time_ms, ..commit_request(group, TOPIC, 0, 7) };
    assert_eq!(connection.call(2, &request).topics[0].partitions[0].error_code, code::NONE);
}

/// C044. What depends on minutes is in `group::script_tests`.
#[test]
fn an_offset_expires_when_its_commit_says_so_and_minus_one_is_the_brokers_retention() {
    let mut broker = start(&[("offsets.retention.check.interval.ms", "100")]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    commit_for(&mut connection, "default", -1);
    commit_for(&mut connection, "short", 5_000);
    commit_for(&mut connection, "long", 3_600_000);
    let mut member = alone(&broker.address(), "alive");
    assert_eq!(member.commit(7), code::NONE);
    assert_eq!(connection.committed("short", TOPIC, 0), 7);
    wait_for("the short retention", || (connection.committed("short", TOPIC, 0) == -1).then_some(()));
    let kept = ["default", "long", "alive"];
    for group in kept {
        assert_eq!(connection.committed(group, TOPIC, 0), 7, "{group}");
    }
    broker.restart();
    let mut connection = Connection::open(&broker.address());
    connection.wait_for_coordinator("short");
    // A commit that expires shows that the offsets have been looked through since.
    commit_for(&mut connection, "short", 1);
    wait_for("a look at the offsets", || (connection.committed("short", TOPIC, 0) == -1).then_some(()));
    for group in kept {
        assert_eq!(connection.committed(group, TOPIC, 0), 7, "{group}");
    }
}

/// C045
#[test]
fn the_offsets_topic_keeps_its_partitions_whatever_the_setting_says_later() {
    let mut broker = start(&[("offsets.topic.num.partitions", "10")]);
    // The hash of the last one is the smallest number there is.
    let mut groups: Vec<String> = (0..30).map(|number| format!("group-{number}")).collect();
    groups.extend(["группа-1", "группа-2", "polygenelubricants"].map(str::to_owned));
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    for (group, offset) in groups.iter().zip(1..) {
        connection.wait_for_coordinator(group);
        assert_eq!(connection.commit(group, TOPIC, 0, offset), code::NONE, "{group}");
    }
    broker.set("offsets.topic.num.partitions", "50");
    broker.restart();
    let mut connection = Connection::open(&broker.address());
    assert_eq!(connection.metadata(Some(OFFSETS)).topics[0].partitions.len(), 10);
    for (group, offset) in groups.iter().zip(1..) {
        connection.wait_for_coordinator(group);
        assert_eq!(connection.committed(group, TOPIC, 0), offset, "{group}");
    }
    // "polygenelubricants" and its like are in the first partition, as Kafka has them.
    let keys = stored_in(&mut connection, 0);
    assert!(keys.iter().any(|record| record.group_id == "polygenelubricants"));
}

#[test]
fn the_offsets_topic_is_compressed_with_the_codec_of_its_setting() {
    let mut broker = start(&[("offsets.topic.compression.codec", "3")]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    connection.wait_for_coordinator("packed");
    assert_eq!(connection.commit("packed", TOPIC, 0, 7), code::NONE);
    let codecs: Vec<Codec> = connection.fetch_all(OFFSETS, 0, 0).iter().map(|batch| batch.codec).collect();
    assert!(!codecs.is_empty() && codecs.iter().all(|codec| *codec == Codec::Lz4), "{codecs:?}");
    // Without the setting what is there is still read.
    broker.set("offsets.topic.compression.codec", "0");
    broker.restart();
    let mut connection = Connection::open(&broker.address());
    connection.wait_for_coordinator("packed");
    assert_eq!(connection.committed("packed", TOPIC, 0), 7);
}

/// A record of the offsets topic, as far as tools look at it.
struct StoredRecord {
    key_type: i16,
    group_id: String,
    value: Option<Bytes>,
}

impl StoredRecord {
    fn value_version(&self) -> Option<i16> {
        let value = self.value.as_ref()?;
        Some(i16::from_be_bytes([value[0], value[1]]))
    }

    fn group(&self) -> Option<GroupMetadataValue> {
        let value = self.value.clone().filter(|_| self.key_type == 2)?;
        let mut reader = Reader::new(value.slice(2..));
        GroupMetadataValue::decode(&mut reader, self.value_version()?).ok()
    }
}

fn stored(connection: &mut Connection) -> Vec<StoredRecord> {
    stored_in(connection, 0)
}

fn stored_in(connection: &mut Connection, partition: i32) -> Vec<StoredRecord> {
    let batches = connection.fetch_all(OFFSETS, partition, 0);
    let records = batches.into_iter().flat_map(|batch| batch.records);
    records
        .map(|record| {
            let mut key = Reader::new(record.key.expect("every record has a key"));
            let key_type = key.i16().expect("the type of the key");
            let length = key.i16().expect("the length of the group's name");
            let bytes = (0..length).map(|_| key.i8().expect("the group's name") as u8).collect();
            let group_id = String::from_utf8(bytes).expect("the group's name is UTF-8");
            StoredRecord { key_type, group_id, value: record.value }
        })
        .collect()
}

/// C046
#[test]
fn what_is_stored_of_groups_is_what_tools_expect() {
    let broker = start(&[("offsets.retention.check.interval.ms", "100")]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    let mut member = alone(&broker.address(), "members");
    assert_eq!(member.commit(5), code::NONE);
    commit_for(&mut connection, "explicit", 1);
    wait_for("the expiry", || (connection.committed("explicit", TOPIC, 0) == -1).then_some(()));
    assert_eq!(connection.commit("deleted", TOPIC, 0, 9), code::NONE);
    let request = DeleteGroupsRequest { groups_names: vec!["deleted".into()] };
    assert_eq!(connection.call(2, &request).results[0].error_code, code::NONE);
    let stored = stored(&mut connection);
    let of = |group: &str| -> Vec<(i16, Option<i16>)> {
        let records = stored.iter().filter(|record| record.group_id == group);
        records.map(|record| (record.key_type, record.value_version())).collect()
    };
    assert_eq!(of("members"), [(2, Some(3)), (1, Some(3))]);
    assert_eq!(of("explicit"), [(1, Some(1)), (1, None)]);
    assert_eq!(of("deleted"), [(1, Some(3)), (1, None)]);
    let group = stored.iter().find_map(StoredRecord::group).expect("a group");
    assert_eq!((&*group.protocol_type, group.generation, group.members.len()), ("consumer", 1, 1));
    let record = stored.iter().find(|record| record.key_type == 1 && record.group_id == "members");
    let value = record.and_then(|record| record.value.clone()).expect("an offset");
    let value =
        OffsetCommitValue::decode(&mut Reader::new(value.slice(2..)), 3).expect("an offset of version 3");
    assert_eq!((value.offset, value.leader_epoch, &*value.metadata), (5, -1, ""));
}

/// A member with an offset, and an offset that expired; gives how many records that left.
#[track_caller]
fn store_some_of_each(broker: &Broker) -> usize {
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 1, &[]);
    let mut member = Member::new(&broker.address(), "members");
    member.join();
    // Unlike the others this one is what a consumer takes for an assignment: of nothing.
    let mut request = member.sync_request(&[member.member_id.clone()]);
    request.assignments[0].assignment = Bytes::from_static(&[0; 10]);
    assert_eq!(member.connection.call(3, &request).error_code, code::NONE);
    assert_eq!(member.commit(5), code::NONE);
    commit_for(&mut connection, "explicit", 1);
    wait_for("the expiry", || (connection.committed("explicit", TOPIC, 0) == -1).then_some(()));
    stored(&mut connection).len()
}

/// C046: Kafka's own tool prints all of it.
#[test]
fn kafkas_decoder_reads_what_is_stored_of_groups() {
    if !["java", "mvn"].into_iter().all(command_exists) {
        return left_out("kafka-dump-log", "this machine has no java or no mvn");
    }
    let mut broker = start(&[("offsets.retention.check.interval.ms", "100")]);
    let records = store_some_of_each(&broker);
    broker.stop();
    let segment = broker.data_dir().join(format!("{OFFSETS}-0/00000000000000000000.log"));
    let output = kafka_tool("3.9.2", "kafka-dump-log")
        .args(["--offsets-decoder", "--files", &segment.display().to_string()])
        .output()
        .expect("run peers/kafka-tool");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let printed: Vec<&str> = text.lines().filter(|line| line.starts_with("| offset:")).collect();
    assert_eq!(printed.len(), records, "{text}");
    let key = r#"key: {"type":"1","data":{"group":"explicit","topic":"cases","partition":0}}"#;
    let of = |version: &str| format!(r#"{key} payload: {{"version":"{version}","data":{{"offset":7,"#);
    assert!(printed.iter().any(|line| line.contains(&of("1"))), "{text}");
    assert!(printed.iter().any(|line| line.ends_with(&format!("{key} payload: <DELETE>"))), "{text}");
    let group = r#"key: {"type":"2","data":{"group":"members"}} payload: {"version":"3","data":{"protocolType":"consumer","generation":1,"protocol":"range""#;
    assert!(printed.iter().any(|line| line.contains(group)), "{text}");
}

/// C046: kminion reads the topic through franz-go, with the types of its kmsg.
#[test]
fn a_monitor_of_the_offsets_topic_reads_what_is_stored_of_groups() {
    let mut command = match programs::go("offsetstopic") {
        Ok(command) => command,
        Err(reason) => return left_out("franz-go on the offsets topic", &reason),
    };
    let broker = start(&[("offsets.retention.check.interval.ms", "100")]);
    let records = store_some_of_each(&broker);
    command.arg(broker.address());
    let finished = Process::start("offsetstopic", command, None).finish(Duration::from_secs(180));
    let text = finished.expect_success("offsetstopic").stdout;
    let printed: Vec<&str> = text.lines().collect();
    assert_eq!(printed.len(), records, "{text}");
    for line in [
        "group 2 members: 3 consumer 1 range",
        r#"offset 1 members cases 0: 3 5 -1 "" false"#,
        // Without an epoch, which kmsg gives as 0.
        r#"offset 1 explicit cases 0: 1 7 0 "" true"#,
        "offset 1 explicit cases 0: deleted",
    ] {
        assert!(printed.iter().any(|printed| printed.starts_with(line)), "{line}\n{text}");
    }
}

/// C048
#[test]
fn a_coordinator_that_cannot_be_made_is_not_available_each_time() {
    let mut broker = Broker::start(&[("offsets.topic.replication.factor", "3")]);
    broker.allow_log("a topic was not created for a client");
    let mut connection = Connection::open(&broker.address());
    let began = Instant::now();
    for version in 0..=4 {
        let request = FindCoordinatorRequest {
            key: if version < 4 { "g".into() } else { Str::default() },
            coordinator_keys: if version < 4 { Vec::new() } else { vec!["g".into()] },
            ..Default::default()
        };
        for _ in 0..20 {
            let answer = connection.call(version, &request);
            let found = match answer.coordinators.first() {
                Some(found) => (found.error_code, found.node_id, found.host.to_string()),
                None => (answer.error_code, answer.node_id, answer.host.to_string()),
            };
            assert_eq!(found, (code::COORDINATOR_NOT_AVAILABLE, -1, String::new()), "v{version}");
        }
    }
    // A client asks ten times a second, and one line a second tells of it.
    let told = broker.log().lines().filter(|line| line.contains("WARN")).count();
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("few seconds");
    assert!((1..=seconds + 1).contains(&told), "{told} warnings for 100 questions in {seconds} s");
}

/// C048
#[test]
fn a_fresh_broker_soon_has_a_coordinator() {
    let broker = Broker::start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.wait_for_coordinator("g");
    let request = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
    let answer = connection.call(3, &request);
    assert_eq!((answer.node_id, answer.port), (1, i32::from(broker.port())));
}

/// C085
#[test]
fn a_group_without_members_is_still_there() {
    let broker = start(&[]);
    let mut connection = Connection::open(&broker.address());
    connection.create_topic(TOPIC, 2, &[]);
    let mut member = alone(&broker.address(), "left");
    assert_eq!(member.commit(5), code::NONE);
    member.leave();
    assert_eq!(connection.commit("simple", TOPIC, 1, 6), code::NONE);
    let listed: BTreeMap<String, (String, String)> = connection
        .call(4, &ListGroupsRequest::default())
        .groups
        .into_iter()
        .map(|group| {
            (group.group_id.to_string(), (group.protocol_type.to_string(), group.group_state.to_string()))
        })
        .collect();
    let of = |protocol: &str| (protocol.to_owned(), "Empty".to_owned());
    assert_eq!(listed, BTreeMap::from([("left".to_owned(), of("consumer")), ("simple".to_owned(), of(""))]));
    for version in 0..=5 {
        let request =
            DescribeGroupsRequest { groups: vec!["left".into(), "unknown".into()], ..Default::default() };
        let found: Vec<(i16, String)> = connection
            .call(version, &request)
            .groups
            .iter()
            .map(|group| (group.error_code, group.group_state.to_string()))
            .collect();
        assert_eq!(found, [(0, "Empty".to_owned()), (0, "Dead".to_owned())], "v{version}");
    }
    for version in 2..=7 {
        let request = OffsetFetchRequest { group_id: "left".into(), topics: None, ..Default::default() };
        let answer = connection.call(version, &request);
        let offsets: Vec<i64> = answer
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|partition| partition.committed_offset)
            .collect();
        assert_eq!(offsets, [5], "v{version}");
    }
}

/// KAFKA-6005
#[test]
fn a_member_without_protocols_is_refused() {
    let broker = start(&[]);
    let mut member = Member::new(&broker.address(), "empty");
    let request = JoinGroupRequest { protocols: Vec::new(), ..member.request() };
    for version in 0..=9 {
        let answer = member.connection.call(version, &request);
        assert_eq!(answer.error_code, code::INCONSISTENT_GROUP_PROTOCOL, "v{version}");
    }
}

/// KAFKA-6042
#[test]
fn groups_that_churn_on_one_partition_all_become_stable() {
    const MEMBERS: usize = 3;
    let groups = scaled(12);
    let broker = start(&[]);
    let address = broker.address();
    let (is_over, settled) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..groups * MEMBERS {
            let member = Member::new(&address, &format!("churn-{}", number / MEMBERS));
            scope.spawn(|| churn(member, &is_over, &settled));
        }
        let mut connection = Connection::open(&address);
        wait_for("all members to have come and gone", || {
            (settled.load(Ordering::Relaxed) == groups * MEMBERS).then_some(())
        });
        for group in 0..groups {
            wait_for("a stable group of all", || {
                let group = describe(&mut connection, &format!("churn-{group}"));
                (&*group.group_state == "Stable" && group.members.len() == MEMBERS).then_some(())
            });
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Comes and goes a few times, then stays until all is over.
fn churn(mut member: Member, is_over: &AtomicBool, settled: &AtomicUsize) {
    for round in 0..5 {
        become_stable(&mut member);
        if round < 4 {
            member.leave();
        }
    }
    settled.fetch_add(1, Ordering::Relaxed);
    while !is_over.load(Ordering::Relaxed) {
        match member.heartbeat() {
            code::NONE => thread::sleep(Duration::from_millis(20)),
            _ => become_stable(&mut member),
        }
    }
}

fn become_stable(member: &mut Member) {
    loop {
        let joined = member.join();
        if joined.error_code == code::UNKNOWN_MEMBER_ID {
            member.member_id = Str::default();
            continue;
        }
        assert_eq!(joined.error_code, code::NONE, "JoinGroup");
        let ids: Vec<Str> = joined.members.iter().map(|member| member.member_id.clone()).collect();
        match member.sync(&ids).error_code {
            code::NONE => return,
            code::REBALANCE_IN_PROGRESS | code::ILLEGAL_GENERATION => {}
            code::UNKNOWN_MEMBER_ID => member.member_id = Str::default(),
            other => panic!("SyncGroup: {other}"),
        }
    }
}
