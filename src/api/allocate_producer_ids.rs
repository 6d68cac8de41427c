//! The controller gives brokers blocks of producer ids (KIP-730).
//!
//! Behaviour: only the controller answers; NOT_CONTROLLER else. The broker must be registered under the epoch that it
//! names. No id is given out twice; what a broker does not use is lost.
//!
//! Versions: 0.

use tracing::{debug, error};
use wire::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};

use super::{ErrorCode, RequestContext, Services};
use crate::controller::BrokerError;
use crate::coordination::znodes::ProducerIdBlock;
use crate::model::{BrokerEpoch, BrokerId};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: AllocateProducerIdsRequest,
) -> AllocateProducerIdsResponse {
    match allocate(services, context, &request).await {
        Ok(block) => AllocateProducerIdsResponse {
            producer_id_start: block.first.0,
            producer_id_len: i32::try_from(block.last.0 - block.first.0 + 1).unwrap_or(0),
            ..AllocateProducerIdsResponse::default()
        },
        Err(code) => {
            AllocateProducerIdsResponse { error_code: code.code(), ..AllocateProducerIdsResponse::default() }
        }
    }
}

async fn allocate(
    services: &Services,
    context: &RequestContext,
    request: &AllocateProducerIdsRequest,
) -> Result<ProducerIdBlock, ErrorCode> {
    if !services.authorizer.allows(context.principal(), Operation::ClusterAction, Resource::Cluster) {
        return Err(ErrorCode::ClusterAuthorizationFailed);
    }
    let (broker, epoch) = (BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch));
    let known = services.controller.check_broker(broker, epoch).await;
    known.map_err(|_| ErrorCode::NotController)?.map_err(|error| match error {
        BrokerError::Unknown => ErrorCode::BrokerIdNotRegistered,
        BrokerError::StaleEpoch => ErrorCode::StaleBrokerEpoch,
    })?;
    services.admin.allocate_producer_ids(broker).await.map_err(|error| {
        if error.will_pass() {
            debug!(broker_id = broker.0, %error, "a broker got no producer ids");
        } else {
            error!(broker_id = broker.0, %error, "a broker got no producer ids");
        }
        ErrorCode::UnknownServerError
    })
}
