//! Ends transactions in partitions that this broker leads: from coordinators and administrators (KIP-98, KIP-664).
//!
//! Behaviour: each partition answers by itself, when its marker is committed and, for offsets of groups, has taken
//! effect. A coordinator of our own says in a tagged field that a marker may be there already; it is not written again then.
//!
//! Versions: 1 flexible · 2 the protocol's generation (KIP-890), in which a marker has an epoch of its own.

use wire::write_txn_markers_request::WritableTxnMarker;
use wire::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use wire::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};

use super::error_code::marker_error;
use super::{ErrorCode, RequestContext, Services};
use crate::model::{LeaderEpoch, PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition};
use crate::security::{Operation, Resource};
use crate::txn::{EndMarkers, TransactionVersion};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse {
    let allows = |operation| services.authorizer.allows(context.principal(), operation, Resource::Cluster);
    // Administrators abort hanging transactions with the right to alter the cluster.
    if !allows(Operation::ClusterAction) && !allows(Operation::Alter) {
        let refused = |_: Option<TopicPartition>| ErrorCode::ClusterAuthorizationFailed;
        return response(&request.markers, |marker| named(marker).into_iter().map(refused).collect());
    }
    let ends: Vec<EndMarkers> = request.markers.iter().map(to_end).collect();
    let written = services.markers.write(services.broker_id, ends).await;
    let mut written = written.unwrap_or_default().into_iter();
    response(&request.markers, |marker| {
        let mut results = written.next().unwrap_or_default().into_iter();
        let code = |name: Option<TopicPartition>| match name.and_then(|_| results.next()) {
            Some(result) => result.map_or_else(marker_error, |()| ErrorCode::None),
            None => ErrorCode::UnknownTopicOrPartition,
        };
        named(marker).into_iter().map(code).collect()
    })
}

/// The partitions in the order of the request; `None` where the name cannot be one.
fn named(marker: &WritableTxnMarker) -> Vec<Option<TopicPartition>> {
    let topics = marker.topics.iter();
    let partitions =
        topics.flat_map(|topic| topic.partition_indexes.iter().map(|&index| (&topic.name, index)));
    let name = |(topic, index): (&wire::Str, i32)| {
        let topic = TopicName::new(topic).ok()?;
        Some(TopicPartition::new(topic, PartitionIndex(index)))
    };
    partitions.map(name).collect()
}

fn to_end(marker: &WritableTxnMarker) -> EndMarkers {
    EndMarkers {
        producer_id: ProducerId(marker.producer_id),
        producer_epoch: ProducerEpoch(marker.producer_epoch),
        is_commit: marker.transaction_result,
        coordinator_epoch: LeaderEpoch(marker.coordinator_epoch),
        version: TransactionVersion::from_level(marker.transaction_version.into()),
        partitions: named(marker).into_iter().flatten().collect(),
        may_repeat: marker.barnabas_may_repeat,
    }
}

fn response(
    markers: &[WritableTxnMarker],
    mut codes: impl FnMut(&WritableTxnMarker) -> Vec<ErrorCode>,
) -> WriteTxnMarkersResponse {
    let mut response = WriteTxnMarkersResponse::default();
    for marker in markers {
        let mut codes = codes(marker).into_iter();
        let mut code = || codes.next().unwrap_or(ErrorCode::UnknownServerError).code();
        let topics = marker.topics.iter().map(|topic| WritableTxnMarkerTopicResult {
            name: topic.name.clone(),
            partitions: topic
                .partition_indexes
                .iter()
                .map(|&partition_index| WritableTxnMarkerPartitionResult {
                    partition_index,
                    error_code: code(),
                })
                .collect(),
        });
        let topics = topics.collect();
        response.markers.push(WritableTxnMarkerResult { producer_id: marker.producer_id, topics });
    }
    response
}
