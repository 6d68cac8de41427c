//! The producers that a partition knows (KIP-664).
//!
//! Behaviour: any replica answers from its own log; clients ask the leader.
//!
//! Versions: only 0.

use wire::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use wire::{DescribeProducersRequest, DescribeProducersResponse};

use super::error_code::replica_error;
use super::{ErrorCode, RequestContext, Services};
use crate::model::PartitionIndex;
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let mut response = DescribeProducersResponse::default();
    for topic in request.topics {
        let partitions = topic.partition_indexes.iter().map(|&partition_index| {
            match describe(services, context, &topic.name, PartitionIndex(partition_index)) {
                Ok(active_producers) => {
                    PartitionResponse { partition_index, active_producers, ..PartitionResponse::default() }
                }
                Err(code) => PartitionResponse {
                    partition_index,
                    error_code: code.code(),
                    ..PartitionResponse::default()
                },
            }
        });
        let partitions = partitions.collect();
        response.topics.push(TopicResponse { name: topic.name, partitions });
    }
    response
}

fn describe(
    services: &Services,
    context: &RequestContext,
    topic: &str,
    index: PartitionIndex,
) -> Result<Vec<ProducerState>, ErrorCode> {
    if !services.authorizer.allows(context.principal(), Operation::Read, Resource::Topic(topic)) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let partition = services.replicas.partition(topic, index).map_err(|error| replica_error(&error))?;
    let state = |(producer_id, entry): (crate::model::ProducerId, crate::log::ProducerEntry)| ProducerState {
        producer_id: producer_id.0,
        producer_epoch: i32::from(entry.epoch.0),
        last_sequence: entry.last_sequence(),
        last_timestamp: entry.last_timestamp.0,
        coordinator_epoch: entry.coordinator_epoch,
        current_txn_start_offset: entry.transaction_first_offset().0,
    };
    Ok(partition.log().producers().into_iter().map(state).collect())
}
