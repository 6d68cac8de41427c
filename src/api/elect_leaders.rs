//! Leaders on request: the preferred ones, or any that lives (KIP-183, KIP-460).
//!
//! Behaviour: answered when this broker knows the new leaders. When all partitions were asked for, those that need no
//! election are left out. Only the controller elects: NOT_CONTROLLER.
//!
//! Versions: 0 preferred only · 1 unclean, top-level error · 2 flexible.

use std::collections::BTreeMap;

use wire::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use wire::{ElectLeadersRequest, ElectLeadersResponse, Str};

use super::admin::message;
use super::error_code::election_error;
use super::{ErrorCode, RequestContext, Services};
use crate::controller::admin::LeaderElectionError;
use crate::controller::{ElectionError, ElectionKind};
use crate::model::{PartitionIndex, TopicName, TopicPartition};
use crate::security::{Operation, Resource};

/// By topic.
type Results = BTreeMap<Str, Vec<PartitionResult>>;

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    if !services.authorizer.allows(context.principal(), Operation::Alter, Resource::Cluster) {
        return failed(context, &request, ErrorCode::ClusterAuthorizationFailed, None);
    }
    let kind = match request.election_type {
        0 => ElectionKind::Preferred,
        1 => ElectionKind::Unclean,
        unknown => {
            let text = format!("Value {unknown} must be one of the supported election types: 0, 1");
            return failed(context, &request, ErrorCode::InvalidRequest, Some(text.into()));
        }
    };
    let mut results = Results::new();
    let partitions = request.topic_partitions.is_some().then(|| partitions(&request, &mut results));
    let elected = services.admin.elect_leaders(kind, partitions, request.timeout_ms).await;
    let Ok(elected) = elected else {
        return ElectLeadersResponse {
            replica_election_results: into_wire(each(&request, ErrorCode::NotController, None)),
            ..ElectLeadersResponse::default()
        };
    };
    for (of, outcome) in elected {
        let result = partition_result(of.partition.0, outcome.as_ref().err());
        results.entry(of.topic.as_str().into()).or_default().push(result);
    }
    ElectLeadersResponse { replica_election_results: into_wire(results), ..ElectLeadersResponse::default() }
}

/// The partitions that may exist; the others are answered at once.
fn partitions(request: &ElectLeadersRequest, results: &mut Results) -> Vec<TopicPartition> {
    let mut partitions = Vec::new();
    for topic in request.topic_partitions.iter().flatten() {
        let name = TopicName::new(&topic.topic).ok();
        for &index in &topic.partitions {
            match &name {
                Some(name) => partitions.push(TopicPartition::new(name.clone(), PartitionIndex(index))),
                None => {
                    let unknown = LeaderElectionError::Election { source: ElectionError::UnknownPartition };
                    let result = partition_result(index, Some(&unknown));
                    results.entry(topic.topic.clone()).or_default().push(result);
                }
            }
        }
    }
    partitions
}

fn partition_result(partition_id: i32, error: Option<&LeaderElectionError>) -> PartitionResult {
    let code = error.map_or(ErrorCode::None, election_error);
    let error_message = error.and_then(|error| message(code, error));
    PartitionResult { partition_id, error_code: code.code(), error_message }
}

/// The answer when nothing was tried: the error at the top, where the version has it, and for each partition.
fn failed(
    context: &RequestContext,
    request: &ElectLeadersRequest,
    code: ErrorCode,
    text: Option<Str>,
) -> ElectLeadersResponse {
    ElectLeadersResponse {
        error_code: if context.version >= 1 { code.code() } else { ErrorCode::None.code() },
        replica_election_results: into_wire(each(request, code, text)),
        ..ElectLeadersResponse::default()
    }
}

fn each(request: &ElectLeadersRequest, code: ErrorCode, text: Option<Str>) -> Results {
    let mut results = Results::new();
    for topic in request.topic_partitions.iter().flatten() {
        let partitions = topic.partitions.iter().map(|&partition_id| PartitionResult {
            partition_id,
            error_code: code.code(),
            error_message: text.clone(),
        });
        results.entry(topic.topic.clone()).or_default().extend(partitions);
    }
    results
}

fn into_wire(results: Results) -> Vec<ReplicaElectionResult> {
    let topics = results.into_iter();
    topics.map(|(topic, partition_result)| ReplicaElectionResult { topic, partition_result }).collect()
}

#[cfg(test)]
mod tests {
    use wire::elect_leaders_request::TopicPartitions;

    use super::*;

    #[test]
    fn names_that_no_topic_can_have_are_answered_at_once() {
        let asked = |topic: &str| TopicPartitions { topic: topic.into(), partitions: vec![0, 1] };
        let request = ElectLeadersRequest {
            topic_partitions: Some(vec![asked("a b"), asked("orders")]),
            ..ElectLeadersRequest::default()
        };
        let mut results = Results::new();
        let elected = partitions(&request, &mut results);
        assert_eq!(elected.iter().map(ToString::to_string).collect::<Vec<_>>(), ["orders-0", "orders-1"]);
        let codes: Vec<i16> = results["a b"].iter().map(|result| result.error_code).collect();
        assert_eq!(codes, [ErrorCode::UnknownTopicOrPartition.code(); 2]);
    }
}
