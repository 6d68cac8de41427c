//! ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions, ElectLeaders, reassignments, log dirs, ACLs.

use wire::ApiKey;
use wire::Uuid;
use wire::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest,
};
use wire::api_versions_request::ApiVersionsRequest;
use wire::create_acls_request::{AclCreation, CreateAclsRequest};
use wire::delete_acls_request::{DeleteAclsFilter, DeleteAclsRequest};
use wire::describe_acls_request::DescribeAclsRequest;
use wire::describe_cluster_request::DescribeClusterRequest;
use wire::describe_log_dirs_request::{DescribableLogDirTopic, DescribeLogDirsRequest};
use wire::describe_topic_partitions_request::{Cursor, DescribeTopicPartitionsRequest, TopicRequest};
use wire::elect_leaders_request::{ElectLeadersRequest, TopicPartitions};
use wire::list_partition_reassignments_request::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsTopics,
};
use wire::metadata_request::{MetadataRequest, MetadataRequestTopic};

use super::{EMPTY, FILLED, MISSING};
use crate::session::{Case, Session};

pub const CASES: &[Case] = &[
    Case { name: "versions", api: ApiKey::ApiVersions, versions: 0..=4, run: api_versions },
    Case { name: "names", api: ApiKey::Metadata, versions: 0..=13, run: metadata_by_name },
    Case { name: "ids", api: ApiKey::Metadata, versions: 10..=13, run: metadata_by_id },
    Case { name: "auto-creation", api: ApiKey::Metadata, versions: 0..=13, run: metadata_creates },
    Case { name: "all", api: ApiKey::DescribeCluster, versions: 0..=2, run: describe_cluster },
    Case {
        name: "all",
        api: ApiKey::DescribeTopicPartitions,
        versions: 0..=0,
        run: describe_topic_partitions,
    },
    Case { name: "all", api: ApiKey::ElectLeaders, versions: 0..=2, run: elect_leaders },
    Case { name: "all", api: ApiKey::ListPartitionReassignments, versions: 0..=0, run: list_reassignments },
    Case { name: "all", api: ApiKey::DescribeLogDirs, versions: 0..=5, run: describe_log_dirs },
    Case { name: "all", api: ApiKey::AlterReplicaLogDirs, versions: 0..=2, run: alter_log_dirs },
    Case { name: "no authorizer", api: ApiKey::DescribeAcls, versions: 0..=3, run: describe_acls },
    Case { name: "no authorizer", api: ApiKey::CreateAcls, versions: 0..=3, run: create_acls },
    Case { name: "no authorizer", api: ApiKey::DeleteAcls, versions: 0..=3, run: delete_acls },
];

fn api_versions(session: &mut Session, version: i16) {
    let good =
        ApiVersionsRequest { client_software_name: "good".into(), client_software_version: "1.0".into() };
    session.ask_and("good", version, &good, |response| {
        // Which APIs there are is each server's own matter; tests of their own look at that.
        response.api_keys.clear();
        response.supported_features.clear();
        response.finalized_features.clear();
        response.finalized_features_epoch = -1;
    });
    if version >= 3 {
        let bad = ApiVersionsRequest {
            client_software_name: "-bad-".into(),
            client_software_version: "1.0".into(),
        };
        session.ask_and("bad software name", version, &bad, |response| response.api_keys.clear());
        session.ask_and("empty software name", version, &ApiVersionsRequest::default(), |response| {
            response.api_keys.clear();
        });
    }
}

fn named(names: &[&str]) -> MetadataRequest {
    let topic = |name: &&str| MetadataRequestTopic { name: Some((*name).into()), ..Default::default() };
    MetadataRequest { topics: Some(names.iter().map(topic).collect()), ..Default::default() }
}

/// The same without auto-creation, in versions that can say so.
fn asked(names: &[&str], version: i16) -> MetadataRequest {
    MetadataRequest { allow_auto_topic_creation: version < 4, ..named(names) }
}

fn metadata_by_name(session: &mut Session, version: i16) {
    session.ask("one", version, &asked(&[FILLED], version));
    session.ask_and("two", version, &asked(&[EMPTY, FILLED], version), |response| {
        response.topics.sort_by(|left, right| left.name.cmp(&right.name));
        for topic in &mut response.topics {
            topic.partitions.sort_by_key(|partition| partition.partition_index);
        }
    });
    session.ask("the same twice", version, &asked(&[FILLED, FILLED], version));
    for name in ["", ".", "..", "a/b", "a b", &"x".repeat(250)] {
        session.ask(&format!("illegal name {name:?}"), version, &asked(&[name], version));
    }
    if version >= 1 {
        session.ask("none", version, &asked(&[], version));
    }
    if version >= 4 {
        session.ask("missing", version, &asked(&[MISSING], version));
    }
    if version >= 8 {
        let request = MetadataRequest {
            include_topic_authorized_operations: true,
            include_cluster_authorized_operations: version <= 10,
            ..asked(&[FILLED], version)
        };
        session.ask("authorized operations", version, &request);
    }
    if (10..12).contains(&version) {
        let topic = MetadataRequestTopic { name: None, ..Default::default() };
        session.ask(
            "null name",
            version,
            &MetadataRequest { topics: Some(vec![topic]), ..Default::default() },
        );
    }
}

fn metadata_by_id(session: &mut Session, version: i16) {
    let topic_id = session.topic_id(FILLED);
    let by_id = |topic_id: Uuid, name: Option<&str>| {
        let topic = MetadataRequestTopic { topic_id, name: name.map(Into::into) };
        MetadataRequest { topics: Some(vec![topic]), ..Default::default() }
    };
    session.ask("known", version, &by_id(topic_id, None));
    session.ask("known, with another name", version, &by_id(topic_id, Some(MISSING)));
    session.ask("unknown", version, &by_id(Uuid([7; 16]), None));
}

fn metadata_creates(session: &mut Session, version: i16) {
    let name = session.name("new");
    session.ask("first", version, &named(&[&name]));
}

fn describe_cluster(session: &mut Session, version: i16) {
    session.ask("plain", version, &DescribeClusterRequest::default());
    let include_cluster_authorized_operations = true;
    session.ask(
        "operations",
        version,
        &DescribeClusterRequest { include_cluster_authorized_operations, ..Default::default() },
    );
    if version >= 1 {
        for endpoint_type in [2, 3] {
            let request = DescribeClusterRequest { endpoint_type, ..Default::default() };
            session.ask(&format!("endpoint type {endpoint_type}"), version, &request);
        }
    }
}

fn describe_topic_partitions(session: &mut Session, version: i16) {
    let request = |names: &[&str], limit, cursor: Option<(&str, i32)>| DescribeTopicPartitionsRequest {
        topics: names.iter().map(|name| TopicRequest { name: (*name).into() }).collect(),
        response_partition_limit: limit,
        cursor: cursor.map(|(name, index)| Cursor { topic_name: name.into(), partition_index: index }),
    };
    session.ask("two and a missing one", version, &request(&[FILLED, EMPTY, MISSING], 2_000, None));
    session.ask("limited", version, &request(&[EMPTY, FILLED], 3, None));
    session.ask("next", version, &request(&[EMPTY, FILLED], 3, Some((EMPTY, 3))));
    session.ask("limit 0", version, &request(&[EMPTY], 0, None));
    session.ask("negative cursor", version, &request(&[EMPTY], 10, Some((EMPTY, -1))));
    session.ask("cursor beyond", version, &request(&[EMPTY], 10, Some((EMPTY, 9))));
    session.ask("cursor elsewhere", version, &request(&[EMPTY], 10, Some((FILLED, 0))));
    session.ask("illegal name", version, &request(&["a/b"], 10, None));
}

fn elect_leaders(session: &mut Session, version: i16) {
    let request = |partitions: Option<(&str, &[i32])>, election_type| ElectLeadersRequest {
        election_type,
        topic_partitions: partitions.map(|(topic, partitions)| {
            vec![TopicPartitions { topic: topic.into(), partitions: partitions.to_vec() }]
        }),
        timeout_ms: 10_000,
    };
    session.ask("preferred", version, &request(Some((EMPTY, &[0, 1])), 0));
    session.ask("missing topic", version, &request(Some((MISSING, &[0])), 0));
    session.ask("missing partition", version, &request(Some((EMPTY, &[9])), 0));
    session.ask("all", version, &request(None, 0));
    if version >= 1 {
        session.ask("unclean", version, &request(Some((EMPTY, &[0])), 1));
        session.ask("unknown type", version, &request(Some((EMPTY, &[0])), 7));
    }
}

fn list_reassignments(session: &mut Session, version: i16) {
    session.ask("all", version, &ListPartitionReassignmentsRequest::default());
    for (what, name) in [("quiet", EMPTY), ("missing", MISSING)] {
        let topic = ListPartitionReassignmentsTopics { name: name.into(), partition_indexes: vec![0] };
        let request = ListPartitionReassignmentsRequest { topics: Some(vec![topic]), ..Default::default() };
        session.ask(what, version, &request);
    }
}

fn describe_log_dirs(session: &mut Session, version: i16) {
    let request = |topic: &str, partitions: &[i32]| DescribeLogDirsRequest {
        topics: Some(vec![DescribableLogDirTopic { topic: topic.into(), partitions: partitions.to_vec() }]),
    };
    session.ask("filled", version, &request(FILLED, &[0]));
    session.ask("missing partition", version, &request(FILLED, &[0, 7]));
    session.ask("missing topic", version, &request(MISSING, &[0]));
    session.ask("no topics", version, &DescribeLogDirsRequest { topics: Some(Vec::new()) });
    let all = DescribeLogDirsRequest { topics: None };
    session.ask_and("all", version, &all, |response| {
        for dir in &mut response.results {
            dir.topics.retain(|topic| [EMPTY, FILLED].contains(&&*topic.name));
            dir.topics.sort_by(|left, right| left.name.cmp(&right.name));
            for topic in &mut dir.topics {
                topic.partitions.sort_by_key(|partition| partition.partition_index);
            }
        }
    });
}

fn alter_log_dirs(session: &mut Session, version: i16) {
    let dirs = session.quietly(2, &DescribeLogDirsRequest { topics: Some(Vec::new()) });
    let own = dirs.results.first().map(|dir| dir.log_dir.to_string()).unwrap_or_default();
    let long = "x".repeat(240);
    let mut ask = |what: &str, moves: &[(&str, &str, &[i32])]| {
        let dirs = moves.iter().map(|(path, topic, partitions)| {
            let topics =
                vec![AlterReplicaLogDirTopic { name: (*topic).into(), partitions: partitions.to_vec() }];
            AlterReplicaLogDir { path: (*path).into(), topics }
        });
        let request = AlterReplicaLogDirsRequest { dirs: dirs.collect() };
        session.ask_and(what, version, &request, |response| {
            response.results.sort_by(|left, right| left.topic_name.cmp(&right.topic_name));
            for topic in &mut response.results {
                topic.partitions.sort_by_key(|partition| partition.partition_index);
            }
        });
    };
    ask("nothing", &[]);
    ask("where it is", &[(&own, FILLED, &[0])]);
    ask("no such directory", &[("/nowhere", FILLED, &[0])]);
    ask("no path", &[("", FILLED, &[0])]);
    ask("a slash more", &[(&format!("{own}/"), FILLED, &[0])]);
    ask("missing topic", &[(&own, MISSING, &[0])]);
    ask("missing topic and directory", &[("/nowhere", MISSING, &[0])]);
    ask("missing partition", &[(&own, FILLED, &[0, 77, -1])]);
    ask("long name", &[(&own, &long, &[0])]);
    ask("long name and no such directory", &[("/nowhere", &long, &[0])]);
    ask("bad name", &[(&own, "a b", &[0])]);
    ask("no name", &[(&own, "", &[0])]);
    ask("twice", &[(&own, FILLED, &[0]), ("/nowhere", FILLED, &[0]), (&own, EMPTY, &[0])]);
    ask("twice, the other way", &[("/nowhere", FILLED, &[0]), (&own, FILLED, &[0])]);
}

fn describe_acls(session: &mut Session, version: i16) {
    let any = DescribeAclsRequest {
        resource_type_filter: 1,
        operation: 1,
        permission_type: 1,
        ..Default::default()
    };
    session.ask("any", version, &any);
}

fn create_acls(session: &mut Session, version: i16) {
    let acl = AclCreation {
        resource_type: 2,
        resource_name: EMPTY.into(),
        principal: "User:a".into(),
        host: "*".into(),
        operation: 3,
        permission_type: 3,
        ..Default::default()
    };
    session.ask("two", version, &CreateAclsRequest { creations: vec![acl.clone(), acl] });
}

fn delete_acls(session: &mut Session, version: i16) {
    let filter =
        DeleteAclsFilter { resource_type_filter: 1, operation: 1, permission_type: 1, ..Default::default() };
    session.ask("two", version, &DeleteAclsRequest { filters: vec![filter.clone(), filter] });
}
