//! Moves replicas of this broker between its log directories (KIP-113).
//!
//! Behaviour: answered when the copies are begun; DescribeLogDirs shows how far they are. A replica that is named twice
//! goes to the directory that is named last. One that is not here is REPLICA_NOT_AVAILABLE, and is created in the
//! directory when it comes.
//!
//! Versions: 1 throttle before quota · 2 flexible.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use wire::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use wire::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, Str};

use super::error_code::alter_log_dir_error;
use super::{ErrorCode, RequestContext, Services};
use crate::model::{PartitionIndex, TopicName, TopicPartition};
use crate::replica::{AlterLogDirError, ReplicaManager};
use crate::runtime::task;
use crate::security::{Operation, Resource};

/// The path that each partition is to be moved to.
type Wanted = IndexMap<(Str, i32), Str>;

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    let wanted = wanted(request);
    if !services.authorizer.allows(context.principal(), Operation::Alter, Resource::Cluster) {
        let refused = wanted.into_keys().map(|of| (of, ErrorCode::ClusterAuthorizationFailed));
        return response(refused);
    }
    let replicas = Arc::clone(&services.replicas);
    let now = services.clock.now();
    // Creates folders.
    let work = move || -> Vec<((Str, i32), ErrorCode)> {
        let moved = wanted.into_iter().map(|((topic, index), path)| {
            let outcome = alter(&replicas, &topic, index, &path, now);
            let code = outcome.map_or_else(|error| alter_log_dir_error(&error), |()| ErrorCode::None);
            ((topic, index), code)
        });
        moved.collect()
    };
    match task::blocking(work).await {
        Ok(results) => response(results.into_iter()),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn wanted(request: AlterReplicaLogDirsRequest) -> Wanted {
    let mut wanted = Wanted::new();
    for dir in request.dirs {
        for topic in dir.topics {
            wanted.extend(
                topic.partitions.iter().map(|&index| ((topic.name.clone(), index), dir.path.clone())),
            );
        }
    }
    wanted
}

fn alter(
    replicas: &ReplicaManager,
    topic: &str,
    index: i32,
    path: &str,
    now: crate::model::Timestamp,
) -> Result<(), AlterLogDirError> {
    match TopicName::new(topic) {
        Ok(topic) => replicas.alter_log_dir(&TopicPartition::new(topic, PartitionIndex(index)), path, now),
        // There is none of such a name; the directory is looked at first.
        Err(_) => Err(match replicas.logs().directory_at(path) {
            None => AlterLogDirError::LogDirNotFound,
            Some(directory) if directory.is_offline() => AlterLogDirError::DirectoryOffline,
            Some(_) => AlterLogDirError::UnknownTopicOrPartition,
        }),
    }
}

fn response(results: impl Iterator<Item = ((Str, i32), ErrorCode)>) -> AlterReplicaLogDirsResponse {
    let mut topics: BTreeMap<Str, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for ((topic, partition_index), code) in results {
        let result = AlterReplicaLogDirPartitionResult { partition_index, error_code: code.code() };
        topics.entry(topic).or_default().push(result);
    }
    let results = topics
        .into_iter()
        .map(|(topic_name, partitions)| AlterReplicaLogDirTopicResult { topic_name, partitions });
    AlterReplicaLogDirsResponse { results: results.collect(), ..AlterReplicaLogDirsResponse::default() }
}
