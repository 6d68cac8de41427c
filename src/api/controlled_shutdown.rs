//! A broker that is about to stop has its leaderships moved first.
//!
//! Behaviour: only the controller answers; one that is not says STALE_CONTROLLER_EPOCH, as Kafka does. The answer lists
//! what the broker still leads because no other replica is in sync; partitions with a single replica are not listed.
//!
//! Versions: 0 without client id in the header · 2 broker epoch (KIP-380) · 3 flexible.

use wire::controlled_shutdown_response::RemainingPartition;
use wire::{ControlledShutdownRequest, ControlledShutdownResponse};

use super::{ErrorCode, RequestContext, Services};
use crate::controller::BrokerError;
use crate::model::{BrokerEpoch, BrokerId, TopicPartition};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: ControlledShutdownRequest,
) -> ControlledShutdownResponse {
    match shut_down(services, context, request).await {
        Ok(remaining) => ControlledShutdownResponse {
            error_code: ErrorCode::None.code(),
            remaining_partitions: remaining
                .into_iter()
                .map(|of| RemainingPartition {
                    topic_name: of.topic.as_str().into(),
                    partition_index: of.partition.0,
                })
                .collect(),
        },
        Err(code) => {
            ControlledShutdownResponse { error_code: code.code(), ..ControlledShutdownResponse::default() }
        }
    }
}

async fn shut_down(
    services: &Services,
    context: &RequestContext,
    request: ControlledShutdownRequest,
) -> Result<Vec<TopicPartition>, ErrorCode> {
    if !services.authorizer.allows(context.principal(), Operation::ClusterAction, Resource::Cluster) {
        return Err(ErrorCode::ClusterAuthorizationFailed);
    }
    let (broker, epoch) = (BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch));
    let moved = services.controller.shut_down(broker, epoch).await;
    moved.map_err(|_| ErrorCode::StaleControllerEpoch)?.map_err(|error| match error {
        BrokerError::Unknown => ErrorCode::BrokerNotAvailable,
        BrokerError::StaleEpoch => ErrorCode::StaleBrokerEpoch,
    })
}
