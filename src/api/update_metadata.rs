//! The controller says what brokers tell clients about the cluster.
//!
//! Behaviour: live brokers and the controller are replaced, partitions merged; a leader of -2 removes a partition.
//! Refused when the sender is no longer the controller, or means an earlier life of this broker (KIP-380).
//!
//! Versions: 1 several endpoints of a broker · 2 racks · 3 listener names · 4 offline replicas · 5 broker epoch,
//! partitions by topic · 6 flexible · 7 topic ids · 8 KRaft controllers.

use wire::update_metadata_request::{UpdateMetadataBroker, UpdateMetadataPartitionState};
use wire::{UpdateMetadataRequest, UpdateMetadataResponse};

use super::error_code::control_refusal;
use super::leader_and_isr::{brokers, sender};
use super::{ErrorCode, RequestContext, Services};
use crate::config::SecurityProtocol;
use crate::controller::{ControlError, ControlRequest, ControlResponse};
use crate::metadata::control::{self, BrokerRegistration, Endpoint, LeaderAndIsr, PartitionAssignmentState};
use crate::model::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition,
};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: UpdateMetadataRequest,
) -> UpdateMetadataResponse {
    let code = update(services, context, request).await.err().unwrap_or(ErrorCode::None);
    UpdateMetadataResponse { error_code: code.code() }
}

async fn update(
    services: &Services,
    context: &RequestContext,
    request: UpdateMetadataRequest,
) -> Result<(), ErrorCode> {
    if !services.authorizer.allows(context.principal(), Operation::ClusterAction, Resource::Cluster) {
        return Err(ErrorCode::ClusterAuthorizationFailed);
    }
    let request = domain(context.version, request);
    match services.control.send(services.broker_id, ControlRequest::UpdateMetadata(request)).await {
        Ok(ControlResponse::UpdateMetadata) => Ok(()),
        Err(ControlError::Refused { refusal }) => Err(control_refusal(refusal)),
        Ok(_) | Err(ControlError::Unreachable { .. }) => Err(ErrorCode::UnknownServerError),
    }
}

fn domain(version: i16, request: UpdateMetadataRequest) -> control::UpdateMetadataRequest {
    let mut partitions = Vec::new();
    let mut topic_ids = Vec::new();
    for state in &request.ungrouped_partition_states {
        partitions.extend(partition(&state.topic_name, state));
    }
    for topic in &request.topic_states {
        partitions
            .extend(topic.partition_states.iter().filter_map(|state| partition(&topic.topic_name, state)));
        // An all-zero id is said too: it takes away the one that was known.
        if let Ok(name) = TopicName::new(&topic.topic_name)
            && version >= 7
        {
            topic_ids.push((name, TopicId(topic.topic_id.0)));
        }
    }
    control::UpdateMetadataRequest {
        sender: sender(request.controller_id, request.controller_epoch, request.broker_epoch),
        partitions,
        topic_ids,
        live_brokers: request.live_brokers.iter().map(|broker| live_broker(version, broker)).collect(),
    }
}

fn partition(topic: &str, state: &UpdateMetadataPartitionState) -> Option<PartitionAssignmentState> {
    let topic = TopicName::new(topic).ok()?;
    Some(PartitionAssignmentState {
        topic_partition: TopicPartition::new(topic, PartitionIndex(state.partition_index)),
        controller_epoch: ControllerEpoch(state.controller_epoch),
        leader_and_isr: LeaderAndIsr {
            leader: BrokerId(state.leader),
            leader_epoch: LeaderEpoch(state.leader_epoch),
            isr: brokers(&state.isr),
            partition_epoch: state.zk_version,
        },
        replicas: brokers(&state.replicas),
        adding_replicas: Vec::new(),
        removing_replicas: Vec::new(),
        is_new: false,
        is_recovering: false,
        offline_replicas: brokers(&state.offline_replicas),
    })
}

fn live_broker(version: i16, broker: &UpdateMetadataBroker) -> BrokerRegistration {
    let plaintext = SecurityProtocol::Plaintext.name();
    let endpoints = if version == 0 {
        vec![Endpoint {
            listener: plaintext.to_owned(),
            security_protocol: plaintext.to_owned(),
            host: broker.v0_host.to_string(),
            port: u16::try_from(broker.v0_port).unwrap_or(0),
        }]
    } else {
        let endpoint = |endpoint: &wire::update_metadata_request::UpdateMetadataEndpoint| {
            let code = endpoint.security_protocol;
            let known = SecurityProtocol::ALL.into_iter().find(|protocol| protocol.code() == code);
            let protocol = known.map_or(plaintext, SecurityProtocol::name);
            // Before listeners had names they were called as their protocol.
            let listener = if version < 3 { protocol } else { &endpoint.listener };
            Endpoint {
                listener: listener.to_owned(),
                security_protocol: protocol.to_owned(),
                host: endpoint.host.to_string(),
                port: u16::try_from(endpoint.port).unwrap_or(0),
            }
        };
        broker.endpoints.iter().map(endpoint).collect()
    };
    BrokerRegistration {
        id: BrokerId(broker.id),
        epoch: BrokerEpoch(-1),
        endpoints,
        rack: broker.rack.as_deref().map(str::to_owned),
    }
}
