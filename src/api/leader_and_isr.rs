//! The controller says which partitions this broker leads and follows.
//!
//! Behaviour: refused as a whole when the sender is no longer the controller, or means an earlier life of this broker
//! (KIP-380). A partition whose leader epoch is not newer answers STALE_CONTROLLER_EPOCH, which controllers ignore.
//! Answered when logs are open and roles are taken; followers fetch afterwards.
//!
//! Versions: 1 new replicas · 2 broker epoch, partitions by topic · 3 reassignments · 4 flexible · 5 type, topic ids ·
//! 6 recovery state (KIP-704) · 7 KRaft controllers.

use std::collections::HashMap;

use indexmap::IndexMap;
use wire::leader_and_isr_request::LeaderAndIsrPartitionState;
use wire::leader_and_isr_response::{LeaderAndIsrPartitionError, LeaderAndIsrTopicError};
use wire::{LeaderAndIsrRequest, LeaderAndIsrResponse, Str, Uuid};

use super::error_code::{control_outcome, control_refusal};
use super::{ErrorCode, RequestContext, Services};
use crate::controller::{ControlError, ControlRequest, ControlResponse};
use crate::metadata::control::{
    self, BrokerRegistration, ControlOutcome, ControlSender, Endpoint, LeaderAndIsr, PartitionAssignmentState,
};
use crate::model::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition,
};
use crate::security::{Operation, Resource};

pub async fn handle(
    services: &Services,
    context: &RequestContext,
    request: LeaderAndIsrRequest,
) -> LeaderAndIsrResponse {
    if !services.authorizer.allows(context.principal(), Operation::ClusterAction, Resource::Cluster) {
        return refused(ErrorCode::ClusterAuthorizationFailed);
    }
    let request = domain(request);
    let ids: HashMap<TopicName, TopicId> = request.topic_ids.iter().cloned().collect();
    match services.control.send(services.broker_id, ControlRequest::LeaderAndIsr(request)).await {
        Ok(ControlResponse::LeaderAndIsr(outcomes)) => answer(context, &ids, outcomes),
        Err(ControlError::Refused { refusal }) => refused(control_refusal(refusal)),
        Ok(_) | Err(ControlError::Unreachable { .. }) => refused(ErrorCode::UnknownServerError),
    }
}

fn refused(code: ErrorCode) -> LeaderAndIsrResponse {
    LeaderAndIsrResponse { error_code: code.code(), ..LeaderAndIsrResponse::default() }
}

fn answer(
    context: &RequestContext,
    ids: &HashMap<TopicName, TopicId>,
    outcomes: Vec<(TopicPartition, ControlOutcome)>,
) -> LeaderAndIsrResponse {
    let mut response = LeaderAndIsrResponse::default();
    let mut topics: IndexMap<TopicName, Vec<LeaderAndIsrPartitionError>> = IndexMap::new();
    for (of, outcome) in outcomes {
        let error = LeaderAndIsrPartitionError {
            topic_name: of.topic.as_str().into(),
            partition_index: of.partition.0,
            error_code: control_outcome(outcome).code(),
        };
        if context.version < 5 {
            response.partition_errors.push(error);
        } else {
            topics.entry(of.topic).or_default().push(error);
        }
    }
    response.topics = topics
        .into_iter()
        .map(|(name, partition_errors)| LeaderAndIsrTopicError {
            topic_id: Uuid(ids.get(&name).copied().unwrap_or(TopicId::ZERO).0),
            partition_errors: partition_errors
                .into_iter()
                .map(|error| LeaderAndIsrPartitionError { topic_name: Str::EMPTY, ..error })
                .collect(),
        })
        .collect();
    response
}

fn domain(request: LeaderAndIsrRequest) -> control::LeaderAndIsrRequest {
    let mut partitions = Vec::new();
    let mut topic_ids = Vec::new();
    for state in &request.ungrouped_partition_states {
        partitions.extend(partition(&state.topic_name, state));
    }
    for topic in &request.topic_states {
        partitions
            .extend(topic.partition_states.iter().filter_map(|state| partition(&topic.topic_name, state)));
        if let Ok(name) = TopicName::new(&topic.topic_name)
            && !topic.topic_id.is_zero()
        {
            topic_ids.push((name, TopicId(topic.topic_id.0)));
        }
    }
    let leaders = request.live_leaders.iter().map(|leader| BrokerRegistration {
        id: BrokerId(leader.broker_id),
        epoch: BrokerEpoch(-1),
        endpoints: vec![Endpoint {
            listener: String::new(),
            security_protocol: String::new(),
            host: leader.host_name.to_string(),
            port: u16::try_from(leader.port).unwrap_or(0),
        }],
        rack: None,
    });
    control::LeaderAndIsrRequest {
        sender: sender(request.controller_id, request.controller_epoch, request.broker_epoch),
        partitions,
        topic_ids,
        live_leaders: leaders.collect(),
    }
}

/// `None` for a topic that can have no log.
fn partition(topic: &str, state: &LeaderAndIsrPartitionState) -> Option<PartitionAssignmentState> {
    let topic = TopicName::new(topic).ok()?;
    Some(PartitionAssignmentState {
        topic_partition: TopicPartition::new(topic, PartitionIndex(state.partition_index)),
        controller_epoch: ControllerEpoch(state.controller_epoch),
        leader_and_isr: LeaderAndIsr {
            leader: BrokerId(state.leader),
            leader_epoch: LeaderEpoch(state.leader_epoch),
            isr: brokers(&state.isr),
            partition_epoch: state.partition_epoch,
        },
        replicas: brokers(&state.replicas),
        adding_replicas: brokers(&state.adding_replicas),
        removing_replicas: brokers(&state.removing_replicas),
        is_new: state.is_new,
        is_recovering: state.leader_recovery_state == 1,
        offline_replicas: Vec::new(),
    })
}

/// Who says so, in each of the three requests of a controller.
pub(super) fn sender(controller_id: i32, controller_epoch: i32, broker_epoch: i64) -> ControlSender {
    ControlSender {
        controller_id: BrokerId(controller_id),
        controller_epoch: ControllerEpoch(controller_epoch),
        broker_epoch: BrokerEpoch(broker_epoch),
    }
}

pub(super) fn brokers(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}
