//! What lies in this broker's log directories, and how much.
//!
//! Behaviour: one entry for each configured directory, whatever was asked for; one that is offline is
//! KAFKA_STORAGE_ERROR. The copies that moves make are future replicas, whose lag is what they lack of their log.
//!
//! Versions: 1 throttle before quota · 2 flexible · 3 top-level error · 4 sizes of volumes (KIP-827) ·
//! 5 cordoned (KIP-1066), always false.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use wire::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use wire::{DescribeLogDirsRequest, DescribeLogDirsResponse, Str};

use super::{ErrorCode, RequestContext, Services};
use crate::log::{DirectoryStatus, Log, LogManager};
use crate::model::{PartitionIndex, TopicName, TopicPartition};
use crate::runtime::task;
use crate::security::{Operation, Resource};

/// In order of index.
type Partitions = BTreeMap<PartitionIndex, DescribeLogDirsPartition>;
type Topics = BTreeMap<TopicName, Partitions>;

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let error = |code: ErrorCode| DescribeLogDirsResponse {
        error_code: code.code(),
        ..DescribeLogDirsResponse::default()
    };
    if !services.authorizer.allows(context.principal(), Operation::Describe, Resource::Cluster) {
        return error(ErrorCode::ClusterAuthorizationFailed);
    }
    let wanted = wanted(&request);
    let logs = Arc::clone(services.replicas.logs());
    // Asks the file systems for their sizes.
    match task::blocking(move || describe(&logs, wanted.as_ref())).await {
        Ok(results) => DescribeLogDirsResponse { results, ..DescribeLogDirsResponse::default() },
        Err(_) => error(ErrorCode::UnknownServerError),
    }
}

/// `None` = all.
fn wanted(request: &DescribeLogDirsRequest) -> Option<HashSet<TopicPartition>> {
    let mut wanted = HashSet::new();
    for topic in request.topics.as_ref()? {
        let Ok(name) = TopicName::new(&topic.topic) else { continue };
        let partitions = topic.partitions.iter().map(|&index| PartitionIndex(index));
        wanted.extend(partitions.map(|index| TopicPartition::new(name.clone(), index)));
    }
    Some(wanted)
}

fn describe(logs: &LogManager, wanted: Option<&HashSet<TopicPartition>>) -> Vec<DescribeLogDirsResult> {
    let mut of_directory: HashMap<PathBuf, Topics> = HashMap::new();
    let mut add = |log: &Log, described: DescribeLogDirsPartition| {
        let of = log.topic_partition();
        if wanted.is_none_or(|wanted| wanted.contains(of)) {
            let topics = of_directory.entry(log.directory().path().to_owned()).or_default();
            topics.entry(of.topic.clone()).or_default().insert(of.partition, described);
        }
    };
    logs.logs().iter().for_each(|log| add(log, describe_log(log)));
    for future in logs.futures() {
        add(&future, describe_future(&future, logs.log(future.topic_partition()).as_deref()));
    }
    let results = logs.directories().into_iter().map(|status| {
        let topics = of_directory.remove(status.directory.path()).unwrap_or_default();
        describe_directory(&status, topics)
    });
    results.collect()
}

fn describe_log(log: &Log) -> DescribeLogDirsPartition {
    // Both move while they are read.
    let (end, high_watermark) = (log.log_end_offset(), log.high_watermark());
    DescribeLogDirsPartition {
        partition_index: log.topic_partition().partition.0,
        partition_size: i64::try_from(log.size_bytes()).unwrap_or(i64::MAX),
        offset_lag: (high_watermark.0 - end.0).max(0),
        is_future_key: false,
    }
}

/// `log` = what it is a copy of.
fn describe_future(future: &Log, log: Option<&Log>) -> DescribeLogDirsPartition {
    let end = future.log_end_offset();
    let offset_lag = log.map_or(-1, |log| log.log_end_offset().since(end));
    DescribeLogDirsPartition { offset_lag, is_future_key: true, ..describe_log(future) }
}

fn describe_directory(status: &DirectoryStatus, topics: Topics) -> DescribeLogDirsResult {
    let log_dir: Str = status.directory.absolute_path().into();
    if status.directory.is_offline() {
        let error_code = ErrorCode::KafkaStorageError.code();
        return DescribeLogDirsResult { error_code, log_dir, ..DescribeLogDirsResult::default() };
    }
    let mut result = DescribeLogDirsResult { log_dir, ..DescribeLogDirsResult::default() };
    if let Some(space) = &status.space {
        result.total_bytes = i64::try_from(space.total_bytes).unwrap_or(i64::MAX);
        result.usable_bytes = i64::try_from(space.usable_bytes).unwrap_or(i64::MAX);
    }
    let topics = topics.into_iter().map(|(name, partitions)| DescribeLogDirsTopic {
        name: name.as_str().into(),
        partitions: partitions.into_values().collect(),
    });
    result.topics = topics.collect();
    result
}
