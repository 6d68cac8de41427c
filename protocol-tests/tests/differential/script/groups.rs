//! FindCoordinator and everything of classic groups.

use bytes::Bytes;
use wire::delete_groups_request::DeleteGroupsRequest;
use wire::describe_groups_request::DescribeGroupsRequest;
use wire::find_coordinator_request::FindCoordinatorRequest;
use wire::heartbeat_request::HeartbeatRequest;
use wire::join_group_request::{JoinGroupRequest, JoinGroupRequestProtocol};
use wire::join_group_response::JoinGroupResponse;
use wire::leave_group_request::{LeaveGroupRequest, MemberIdentity};
use wire::list_groups_request::ListGroupsRequest;
use wire::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use wire::offset_delete_request::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use wire::offset_fetch_request::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use wire::sync_group_request::{SyncGroupRequest, SyncGroupRequestAssignment};
use wire::{ApiKey, Str, Uuid};

use super::{EMPTY, FILLED, MISSING};
use crate::session::{Case, Session};

pub const CASES: &[Case] = &[
    Case { name: "all", api: ApiKey::FindCoordinator, versions: 0..=6, run: find_coordinator },
    Case { name: "one member", api: ApiKey::JoinGroup, versions: 0..=9, run: join },
    Case { name: "bad", api: ApiKey::JoinGroup, versions: 0..=9, run: join_bad },
    Case { name: "static", api: ApiKey::JoinGroup, versions: 5..=9, run: join_static },
    Case { name: "all", api: ApiKey::SyncGroup, versions: 0..=5, run: sync },
    Case { name: "all", api: ApiKey::Heartbeat, versions: 0..=4, run: heartbeat },
    Case { name: "all", api: ApiKey::LeaveGroup, versions: 0..=5, run: leave },
    Case { name: "simple consumer", api: ApiKey::OffsetCommit, versions: 1..=10, run: commit_simple },
    Case { name: "member", api: ApiKey::OffsetCommit, versions: 1..=10, run: commit_member },
    Case { name: "all", api: ApiKey::OffsetFetch, versions: 1..=10, run: offset_fetch },
    Case { name: "all", api: ApiKey::OffsetDelete, versions: 0..=0, run: offset_delete },
    Case { name: "all", api: ApiKey::DescribeGroups, versions: 0..=6, run: describe },
    Case { name: "all", api: ApiKey::ListGroups, versions: 0..=5, run: list },
    Case { name: "all", api: ApiKey::DeleteGroups, versions: 0..=2, run: delete },
];

fn find_coordinator(session: &mut Session, version: i16) {
    let request = |key: &str, key_type| FindCoordinatorRequest {
        key: if version < 4 { key.into() } else { Str::default() },
        coordinator_keys: if version < 4 { Vec::new() } else { vec![key.into(), "another".into()] },
        key_type,
    };
    session.ask("group", version, &request("some-group", 0));
    session.ask("empty group", version, &request("", 0));
    if version >= 1 {
        session.ask("unknown type", version, &request("some-group", 9));
    }
}

/// What a consumer subscribed to the topic "empty" sends. Kafka 3.9.2 never answers a member whose subscription it
/// cannot read.
const SUBSCRIPTION: &[u8] = b"\0\0\0\0\0\x01\0\x05empty\0\0\0\0";

fn protocol(name: &str) -> JoinGroupRequestProtocol {
    JoinGroupRequestProtocol { name: name.into(), metadata: Bytes::from_static(SUBSCRIPTION) }
}

fn join_request(group: &str, member_id: &str, version: i16) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: if version >= 1 { 30_000 } else { -1 },
        member_id: member_id.into(),
        protocol_type: "consumer".into(),
        protocols: vec![protocol("range"), protocol("roundrobin")],
        ..Default::default()
    }
}

/// One member joins, with a version that needs no second request, and syncs: the group is stable.
fn stable_group(session: &mut Session, group: &str) -> JoinGroupResponse {
    let joined = session.quietly(3, &join_request(group, "", 3));
    assert_eq!(joined.error_code, 0, "join {group}");
    let assignment = SyncGroupRequestAssignment {
        member_id: joined.member_id.clone(),
        assignment: Bytes::from_static(b"assignment"),
    };
    let request = SyncGroupRequest { assignments: vec![assignment], ..sync_request(group, &joined) };
    assert_eq!(session.quietly(2, &request).error_code, 0, "sync {group}");
    joined
}

fn sync_request(group: &str, joined: &JoinGroupResponse) -> SyncGroupRequest {
    SyncGroupRequest {
        group_id: group.into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    }
}

fn join(session: &mut Session, version: i16) {
    let group = session.name("g");
    let Some(mut joined) = session.ask("without an id", version, &join_request(&group, "", version)) else {
        return;
    };
    if version >= 4 {
        joined = session
            .ask("with the id", version, &join_request(&group, &joined.member_id, version))
            .expect("an answer");
    }
    let id = joined.member_id;
    session.ask("the leader again", version, &join_request(&group, &id, version));
    let other =
        JoinGroupRequest { protocols: vec![protocol("roundrobin")], ..join_request(&group, &id, version) };
    session.ask("with other protocols", version, &other);
    let stranger = join_request(&group, "stranger-01234567-89ab-cdef-0123-456789abcdef", version);
    session.ask("an unknown member", version, &stranger);
    let unlike =
        JoinGroupRequest { protocols: vec![protocol("unlike")], ..join_request(&group, "", version) };
    session.ask("no protocol in common", version, &unlike);
    let connect = JoinGroupRequest { protocol_type: "connect".into(), ..join_request(&group, "", version) };
    session.ask("other protocol type", version, &connect);
}

fn join_bad(session: &mut Session, version: i16) {
    let group = session.name("g");
    let good = || join_request(&group, "", version);
    session.ask("empty group", version, &join_request("", "", version));
    session.ask("session too short", version, &JoinGroupRequest { session_timeout_ms: 10, ..good() });
    session.ask("session too long", version, &JoinGroupRequest { session_timeout_ms: i32::MAX, ..good() });
    session.ask("no protocols", version, &JoinGroupRequest { protocols: Vec::new(), ..good() });
    session.ask("no protocol type", version, &JoinGroupRequest { protocol_type: "".into(), ..good() });
    session.ask("unknown group, unknown member", version, &join_request(&group, "somebody", version));
}

fn join_static(session: &mut Session, version: i16) {
    let group = session.name("g");
    let with = |member_id: &str| JoinGroupRequest {
        group_instance_id: Some("instance".into()),
        ..join_request(&group, member_id, version)
    };
    let Some(first) = session.ask("first", version, &with("")) else { return };
    let assignment = SyncGroupRequestAssignment {
        member_id: first.member_id.clone(),
        assignment: Bytes::from_static(b"assignment"),
    };
    let request = SyncGroupRequest { assignments: vec![assignment], ..sync_request(&group, &first) };
    session.quietly(2, &request);
    let Some(second) = session.ask("replaces the first", version, &with("")) else { return };
    session.ask("the first is fenced", version, &with(&first.member_id));
    let beat = |member_id: &Str| HeartbeatRequest {
        group_id: group.as_str().into(),
        generation_id: second.generation_id,
        member_id: member_id.clone(),
        group_instance_id: Some("instance".into()),
    };
    session.ask("the first's heartbeat", 3, &beat(&first.member_id));
    session.ask("the second's heartbeat", 3, &beat(&second.member_id));
    let member = MemberIdentity { group_instance_id: Some("instance".into()), ..Default::default() };
    let leave =
        LeaveGroupRequest { group_id: group.as_str().into(), members: vec![member], ..Default::default() };
    session.ask("leaves by instance id", 3, &leave);
}

fn sync(session: &mut Session, version: i16) {
    let group = session.name("g");
    let joined = session.quietly(3, &join_request(&group, "", 3));
    let typed = |request: SyncGroupRequest| SyncGroupRequest {
        protocol_type: (version >= 5).then(|| "consumer".into()),
        protocol_name: (version >= 5).then(|| "range".into()),
        ..request
    };
    let good = || typed(sync_request(&group, &joined));
    session.ask("wrong generation", version, &SyncGroupRequest { generation_id: 99, ..good() });
    session.ask("unknown member", version, &SyncGroupRequest { member_id: "nobody".into(), ..good() });
    session.ask("unknown group", version, &SyncGroupRequest { group_id: "no-such-group".into(), ..good() });
    session.ask("empty group", version, &SyncGroupRequest { group_id: "".into(), ..good() });
    if version >= 5 {
        session.ask(
            "other protocol",
            version,
            &SyncGroupRequest { protocol_name: Some("unlike".into()), ..good() },
        );
    }
    let assignment = SyncGroupRequestAssignment {
        member_id: joined.member_id.clone(),
        assignment: Bytes::from_static(b"assignment"),
    };
    session.ask("the leader's", version, &SyncGroupRequest { assignments: vec![assignment], ..good() });
    session.ask("again, without assignments", version, &good());
}

fn heartbeat(session: &mut Session, version: i16) {
    let group = session.name("g");
    let joined = stable_group(session, &group);
    let good = || HeartbeatRequest {
        group_id: group.as_str().into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    session.ask("good", version, &good());
    session.ask("wrong generation", version, &HeartbeatRequest { generation_id: 99, ..good() });
    session.ask("unknown member", version, &HeartbeatRequest { member_id: "nobody".into(), ..good() });
    session.ask("unknown group", version, &HeartbeatRequest { group_id: "no-such-group".into(), ..good() });
    session.ask("empty group", version, &HeartbeatRequest { group_id: "".into(), ..good() });
}

fn leave(session: &mut Session, version: i16) {
    let group = session.name("g");
    let joined = stable_group(session, &group);
    let request = |group: &str, member: &str| LeaveGroupRequest {
        group_id: group.into(),
        member_id: if version < 3 { member.into() } else { Str::default() },
        members: if version < 3 {
            Vec::new()
        } else {
            vec![MemberIdentity { member_id: member.into(), ..Default::default() }]
        },
    };
    session.ask("unknown member", version, &request(&group, "nobody"));
    session.ask("unknown group", version, &request("no-such-group", "nobody"));
    session.ask("empty group", version, &request("", "nobody"));
    session.ask("good", version, &request(&group, &joined.member_id));
    session.ask("again", version, &request(&group, &joined.member_id));
}

/// Partition, offset, metadata.
type Commit<'a> = (i32, i64, Option<&'a str>);

/// Commits for topics by name; from version 10 on by id.
fn commit_request(
    session: &mut Session,
    version: i16,
    group: &str,
    topics: &[(&str, &[Commit<'_>])],
) -> OffsetCommitRequest {
    let mut list = Vec::new();
    for (name, partitions) in topics {
        let topic_id = match version {
            ..10 => Uuid::default(),
            _ if *name == MISSING => Uuid([7; 16]),
            _ => session.topic_id(name),
        };
        let partition =
            |(partition_index, committed_offset, metadata): &Commit<'_>| OffsetCommitRequestPartition {
                partition_index: *partition_index,
                committed_offset: *committed_offset,
                committed_metadata: metadata.map(Into::into),
                ..Default::default()
            };
        let partitions = partitions.iter().map(partition).collect();
        list.push(OffsetCommitRequestTopic { name: (*name).into(), topic_id, partitions });
    }
    OffsetCommitRequest { group_id: group.into(), topics: list, ..Default::default() }
}

/// What version 5 of OffsetFetch tells of a group.
fn see(session: &mut Session, what: &str, group: &str) {
    let request = OffsetFetchRequest { group_id: group.into(), topics: None, ..Default::default() };
    session.ask_and(what, 5, &request, |response| {
        response.topics.sort_by(|left, right| left.name.cmp(&right.name));
        for topic in &mut response.topics {
            topic.partitions.sort_by_key(|partition| partition.partition_index);
        }
    });
}

fn commit(session: &mut Session, what: &str, version: i16, request: &OffsetCommitRequest) {
    session.ask_and(what, version, request, |response| {
        // By the size of the topic, since newer versions name it by an id that differs from run to run.
        response.topics.sort_by_key(|topic| topic.partitions.len());
        for topic in &mut response.topics {
            topic.partitions.sort_by_key(|partition| partition.partition_index);
        }
    });
}

fn commit_simple(session: &mut Session, version: i16) {
    let group = session.name("g");
    let good = commit_request(
        session,
        version,
        &group,
        &[(EMPTY, &[(0, 5, Some("note")), (1, 6, None)]), (FILLED, &[(0, 7, Some(""))])],
    );
    commit(session, "good", version, &good);
    see(session, "after good", &group);
    let lower = commit_request(session, version, &group, &[(EMPTY, &[(0, 2, None)])]);
    commit(session, "lower", version, &lower);
    see(session, "after lower", &group);
    let missing = commit_request(
        session,
        version,
        &group,
        &[(MISSING, &[(0, 1, None)]), (EMPTY, &[(2, 1, None), (9, 1, None)])],
    );
    commit(session, "missing topic and partition", version, &missing);
    let long = "m".repeat(5_000);
    let metadata = commit_request(session, version, &group, &[(EMPTY, &[(3, 1, Some(&long)), (2, 8, None)])]);
    commit(session, "metadata too long", version, &metadata);
    let negative = commit_request(session, version, &group, &[(EMPTY, &[(3, -1, None)])]);
    commit(session, "negative offset", version, &negative);
    let nothing = commit_request(session, version, &group, &[]);
    commit(session, "nothing", version, &nothing);
    let generation = OffsetCommitRequest { generation_id_or_member_epoch: 3, ..good.clone() };
    commit(
        session,
        "a generation without a group",
        version,
        &OffsetCommitRequest { group_id: "no-such".into(), ..generation },
    );
    commit(session, "empty group id", version, &OffsetCommitRequest { group_id: "".into(), ..good });
    see(session, "at the end", &group);
}

fn commit_member(session: &mut Session, version: i16) {
    let group = session.name("g");
    let joined = stable_group(session, &group);
    let plain = commit_request(session, version, &group, &[(EMPTY, &[(0, 5, None)])]);
    let good = OffsetCommitRequest {
        generation_id_or_member_epoch: joined.generation_id,
        member_id: joined.member_id,
        ..plain.clone()
    };
    commit(session, "good", version, &good);
    commit(session, "not a member", version, &plain);
    commit(
        session,
        "wrong generation",
        version,
        &OffsetCommitRequest { generation_id_or_member_epoch: 99, ..good.clone() },
    );
    commit(session, "unknown member", version, &OffsetCommitRequest { member_id: "nobody".into(), ..good });
    see(session, "at the end", &group);
}

fn offset_fetch(session: &mut Session, version: i16) {
    let group = session.name("g");
    let commit =
        commit_request(session, 5, &group, &[(EMPTY, &[(0, 5, Some("note"))]), (FILLED, &[(0, 7, None)])]);
    session.quietly(5, &commit);
    let request = |session: &mut Session, groups: &[&str], topics: Option<&[(&str, &[i32])]>| {
        let by_name = topics.map(|topics| {
            let topic = |(name, partitions): &(&str, &[i32])| OffsetFetchRequestTopic {
                name: (*name).into(),
                partition_indexes: partitions.to_vec(),
            };
            topics.iter().map(topic).collect::<Vec<_>>()
        });
        if version < 8 {
            return OffsetFetchRequest { group_id: groups[0].into(), topics: by_name, ..Default::default() };
        }
        let topics = by_name.map(|topics| {
            let topic = |topic: OffsetFetchRequestTopic| OffsetFetchRequestTopics {
                topic_id: match version {
                    ..10 => Uuid::default(),
                    _ if &*topic.name == MISSING => Uuid([7; 16]),
                    _ => session.topic_id(&topic.name),
                },
                name: topic.name,
                partition_indexes: topic.partition_indexes,
            };
            topics.into_iter().map(topic).collect::<Vec<_>>()
        });
        let group = |group: &&str| OffsetFetchRequestGroup {
            group_id: (*group).into(),
            topics: topics.clone(),
            ..Default::default()
        };
        OffsetFetchRequest { groups: groups.iter().map(group).collect(), ..Default::default() }
    };
    let mut ask = |what: &str, groups: &[&str], topics: Option<&[(&str, &[i32])]>| {
        let request = request(session, groups, topics);
        session.ask_and(what, version, &request, |response| {
            response.topics.sort_by(|left, right| left.name.cmp(&right.name));
            for group in &mut response.groups {
                group.topics.sort_by_key(|topic| {
                    topic.partitions.first().map(|partition| partition.committed_offset)
                });
            }
        });
    };
    ask("committed", &[&group], Some(&[(EMPTY, &[0]), (FILLED, &[0])]));
    ask("not committed", &[&group], Some(&[(EMPTY, &[1])]));
    ask("missing partition", &[&group], Some(&[(FILLED, &[9])]));
    ask("missing topic", &[&group], Some(&[(MISSING, &[0])]));
    ask("no topics", &[&group], Some(&[]));
    ask("unknown group", &["no-such-group"], Some(&[(EMPTY, &[0])]));
    ask("empty group", &[""], Some(&[(EMPTY, &[0])]));
    if version >= 2 {
        ask("all topics", &[&group], None);
        ask("all topics of an unknown group", &["no-such-group"], None);
    }
    if version >= 8 {
        ask("two groups", &[&group, "no-such-group"], Some(&[(EMPTY, &[0])]));
    }
    if version >= 7 {
        let stable = OffsetFetchRequest {
            require_stable: true,
            ..request(session, &[&group], Some(&[(EMPTY, &[0])]))
        };
        session.ask("stable", version, &stable);
    }
}

fn offset_delete(session: &mut Session, version: i16) {
    let group = session.name("g");
    let commit = commit_request(session, 5, &group, &[(EMPTY, &[(0, 5, None), (1, 6, None)])]);
    session.quietly(5, &commit);
    let request = |group: &str, topic: &str, partitions: &[i32]| {
        let partitions =
            partitions.iter().map(|index| OffsetDeleteRequestPartition { partition_index: *index }).collect();
        let topics = vec![OffsetDeleteRequestTopic { name: topic.into(), partitions }];
        OffsetDeleteRequest { group_id: group.into(), topics }
    };
    session.ask("good", version, &request(&group, EMPTY, &[0]));
    see(session, "after good", &group);
    session.ask("not committed", version, &request(&group, EMPTY, &[2]));
    session.ask("missing topic", version, &request(&group, MISSING, &[0]));
    session.ask("missing partition", version, &request(&group, EMPTY, &[9]));
    session.ask("unknown group", version, &request("no-such-group", EMPTY, &[0]));
    session.ask("empty group", version, &request("", EMPTY, &[0]));
    let live = session.name("live");
    stable_group(session, &live);
    session.ask("live group", version, &request(&live, EMPTY, &[0]));
}

fn describe(session: &mut Session, version: i16) {
    let group = session.name("g");
    let joined = stable_group(session, &group);
    let simple = session.name("simple");
    let commit = commit_request(session, 5, &simple, &[(EMPTY, &[(0, 5, None)])]);
    session.quietly(5, &commit);
    let request = |groups: &[&str]| DescribeGroupsRequest {
        groups: groups.iter().map(|group| Str::from(*group)).collect(),
        ..Default::default()
    };
    session.ask("stable", version, &request(&[&group]));
    session.ask("simple", version, &request(&[&simple]));
    session.ask("unknown", version, &request(&["no-such-group"]));
    session.ask("empty id", version, &request(&[""]));
    session.ask_and("two", version, &request(&[&group, "no-such-group"]), |response| {
        response.groups.sort_by(|left, right| left.group_id.cmp(&right.group_id));
    });
    session.ask("none", version, &request(&[]));
    if version >= 3 {
        let include_authorized_operations = true;
        session.ask(
            "operations",
            version,
            &DescribeGroupsRequest { include_authorized_operations, ..request(&[&group]) },
        );
    }
    let member_id = joined.member_id;
    session
        .quietly(1, &LeaveGroupRequest { group_id: group.as_str().into(), member_id, ..Default::default() });
    session.ask("empty", version, &request(&[&group]));
}

fn list(session: &mut Session, version: i16) {
    let (group, simple) = (session.name("g"), session.name("simple"));
    stable_group(session, &group);
    let commit = commit_request(session, 5, &simple, &[(EMPTY, &[(0, 5, None)])]);
    session.quietly(5, &commit);
    let mut ask = |what: &str, states: &[&str], types: &[&str]| {
        let strings = |list: &[&str]| list.iter().map(|text| Str::from(*text)).collect();
        let request = ListGroupsRequest { states_filter: strings(states), types_filter: strings(types) };
        session.ask_and(what, version, &request, |response| {
            // The other groups are those of other cases.
            response.groups.retain(|listed| [&group, &simple].contains(&&listed.group_id.to_string()));
            response.groups.sort_by(|left, right| left.group_id.cmp(&right.group_id));
        });
    };
    ask("all", &[], &[]);
    if version >= 4 {
        ask("stable", &["Stable"], &[]);
        ask("in small letters", &["stable", "empty"], &[]);
        ask("unknown state", &["Nope"], &[]);
    }
    if version >= 5 {
        ask("classic", &[], &["classic"]);
        ask("consumer", &[], &["consumer"]);
        ask("unknown type", &[], &["nope"]);
    }
}

fn delete(session: &mut Session, version: i16) {
    let (group, simple) = (session.name("g"), session.name("simple"));
    stable_group(session, &group);
    let commit = commit_request(session, 5, &simple, &[(EMPTY, &[(0, 5, None)])]);
    session.quietly(5, &commit);
    let names = |groups: &[&str]| groups.iter().map(|group| Str::from(*group)).collect();
    let mut ask = |what: &str, groups: &[&str]| {
        session.ask_and(what, version, &DeleteGroupsRequest { groups_names: names(groups) }, |response| {
            response.results.sort_by(|left, right| left.group_id.cmp(&right.group_id));
        });
    };
    ask("live", &[&group]);
    ask("simple and unknown", &[&simple, "no-such-group"]);
    ask("again", &[&simple]);
    ask("empty id", &[""]);
    ask("none", &[]);
    see(session, "its offsets are gone", &simple);
}
