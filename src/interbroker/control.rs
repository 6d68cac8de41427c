//! What a controller tells brokers, as it goes over the wire.

use std::collections::HashMap;

use indexmap::IndexMap;
use wire::leader_and_isr_request::{
    LeaderAndIsrLiveLeader, LeaderAndIsrPartitionState, LeaderAndIsrTopicState,
};
use wire::leader_and_isr_response::LeaderAndIsrPartitionError;
use wire::stop_replica_request::{
    StopReplicaPartitionState, StopReplicaPartitionV0, StopReplicaTopicState, StopReplicaTopicV1,
};
use wire::update_metadata_request::{
    UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataPartitionState, UpdateMetadataTopicState,
};
use wire::{LeaderAndIsrRequest, StopReplicaRequest, Str, UpdateMetadataRequest, Uuid};

use super::{Peer, PeerError, RemoteError};
use crate::config::SecurityProtocol;
use crate::metadata::control::{
    self, BrokerRegistration, ControlOutcome, PartitionAssignmentState, StopReplica,
};
use crate::model::{BrokerId, PartitionIndex, TopicId, TopicName, TopicPartition};

type Outcomes = Vec<(TopicPartition, ControlOutcome)>;

impl Peer {
    /// Makes the broker lead and follow. `listener` is the one that brokers use among themselves.
    pub async fn leader_and_isr(
        &self,
        request: &control::LeaderAndIsrRequest,
        listener: &str,
    ) -> Result<Outcomes, PeerError> {
        let version = self.versions.leader_and_isr;
        let names: HashMap<TopicId, TopicName> =
            request.topic_ids.iter().map(|(name, id)| (*id, name.clone())).collect();
        let response = self.call(&leader_and_isr(request, version, listener), version).await?;
        RemoteError::check(response.error_code)?;
        if version < 5 {
            return Ok(outcomes_by_name(response.partition_errors));
        }
        let mut outcomes = Outcomes::new();
        for topic in response.topics {
            let Some(name) = names.get(&TopicId(topic.topic_id.0)) else { continue };
            let errors = topic.partition_errors.into_iter();
            outcomes.extend(errors.map(|error| {
                let of = TopicPartition::new(name.clone(), PartitionIndex(error.partition_index));
                (of, outcome(error.error_code))
            }));
        }
        Ok(outcomes)
    }

    pub async fn update_metadata(&self, request: &control::UpdateMetadataRequest) -> Result<(), PeerError> {
        let version = self.versions.update_metadata;
        let response = self.call(&update_metadata(request, version), version).await?;
        RemoteError::check(response.error_code)
    }

    /// Makes the broker drop replicas. Before version 3 a request either deletes or keeps all its logs, so that it
    /// may take two.
    pub async fn stop_replica(&self, request: &control::StopReplicaRequest) -> Result<Outcomes, PeerError> {
        let version = self.versions.stop_replica;
        let (deleted, kept): (Vec<_>, Vec<_>) =
            request.partitions.iter().cloned().partition(|partition| partition.delete);
        let parts = if version >= 3 { vec![request.partitions.clone()] } else { vec![deleted, kept] };
        let mut outcomes = Outcomes::new();
        for partitions in parts.into_iter().filter(|partitions| !partitions.is_empty()) {
            let request = control::StopReplicaRequest { sender: request.sender, partitions };
            let response = self.call(&stop_replica(&request, version), version).await?;
            RemoteError::check(response.error_code)?;
            let errors = response.partition_errors.iter();
            outcomes.extend(errors.filter_map(|error| {
                named_outcome(&error.topic_name, error.partition_index, error.error_code)
            }));
        }
        Ok(outcomes)
    }
}

fn outcomes_by_name(errors: Vec<LeaderAndIsrPartitionError>) -> Outcomes {
    let outcomes = errors
        .iter()
        .filter_map(|error| named_outcome(&error.topic_name, error.partition_index, error.error_code));
    outcomes.collect()
}

/// `None` for a name that no topic can have.
fn named_outcome(topic: &str, partition: i32, code: i16) -> Option<(TopicPartition, ControlOutcome)> {
    Some((TopicPartition::new(TopicName::new(topic).ok()?, PartitionIndex(partition)), outcome(code)))
}

fn outcome(code: i16) -> ControlOutcome {
    match RemoteError::of_code(code) {
        None => ControlOutcome::Done,
        Some(RemoteError::StaleControllerEpoch | RemoteError::FencedLeaderEpoch) => {
            ControlOutcome::StaleLeaderEpoch
        }
        Some(RemoteError::InconsistentTopicId) => ControlOutcome::InconsistentTopicId,
        Some(RemoteError::KafkaStorageError) => ControlOutcome::StorageError,
        Some(_) => ControlOutcome::UnknownPartition,
    }
}

fn leader_and_isr(
    request: &control::LeaderAndIsrRequest,
    version: i16,
    listener: &str,
) -> LeaderAndIsrRequest {
    let mut wire = LeaderAndIsrRequest {
        controller_id: request.sender.controller_id.0,
        controller_epoch: request.sender.controller_epoch.0,
        broker_epoch: request.sender.broker_epoch.0,
        live_leaders: request
            .live_leaders
            .iter()
            .filter_map(|broker| live_leader(broker, listener))
            .collect(),
        ..LeaderAndIsrRequest::default()
    };
    if version < 2 {
        wire.ungrouped_partition_states = request.partitions.iter().map(partition_state).collect();
        return wire;
    }
    for (topic_name, topic_id, states) in by_topic(&request.partitions, &request.topic_ids) {
        wire.topic_states.push(LeaderAndIsrTopicState {
            topic_name,
            topic_id,
            partition_states: states.into_iter().map(partition_state).collect(),
        });
    }
    wire
}

fn live_leader(broker: &BrokerRegistration, listener: &str) -> Option<LeaderAndIsrLiveLeader> {
    let endpoint = broker.endpoint(listener)?;
    Some(LeaderAndIsrLiveLeader {
        broker_id: broker.id.0,
        host_name: endpoint.host.as_str().into(),
        port: i32::from(endpoint.port),
    })
}

fn partition_state(state: &PartitionAssignmentState) -> LeaderAndIsrPartitionState {
    LeaderAndIsrPartitionState {
        topic_name: text(&state.topic_partition.topic),
        partition_index: state.topic_partition.partition.0,
        controller_epoch: state.controller_epoch.0,
        leader: state.leader_and_isr.leader.0,
        leader_epoch: state.leader_and_isr.leader_epoch.0,
        isr: ids(&state.leader_and_isr.isr),
        partition_epoch: state.leader_and_isr.partition_epoch,
        replicas: ids(&state.replicas),
        adding_replicas: ids(&state.adding_replicas),
        removing_replicas: ids(&state.removing_replicas),
        is_new: state.is_new,
        leader_recovery_state: i8::from(state.is_recovering),
    }
}

fn update_metadata(request: &control::UpdateMetadataRequest, version: i16) -> UpdateMetadataRequest {
    let mut wire = UpdateMetadataRequest {
        controller_id: request.sender.controller_id.0,
        controller_epoch: request.sender.controller_epoch.0,
        broker_epoch: request.sender.broker_epoch.0,
        live_brokers: request.live_brokers.iter().map(|broker| live_broker(broker, version)).collect(),
        ..UpdateMetadataRequest::default()
    };
    if version < 5 {
        wire.ungrouped_partition_states = request.partitions.iter().map(metadata_state).collect();
        return wire;
    }
    for (topic_name, topic_id, states) in by_topic(&request.partitions, &request.topic_ids) {
        wire.topic_states.push(UpdateMetadataTopicState {
            topic_name,
            topic_id,
            partition_states: states.into_iter().map(metadata_state).collect(),
        });
    }
    wire
}

fn metadata_state(state: &PartitionAssignmentState) -> UpdateMetadataPartitionState {
    UpdateMetadataPartitionState {
        topic_name: text(&state.topic_partition.topic),
        partition_index: state.topic_partition.partition.0,
        controller_epoch: state.controller_epoch.0,
        leader: state.leader_and_isr.leader.0,
        leader_epoch: state.leader_and_isr.leader_epoch.0,
        isr: ids(&state.leader_and_isr.isr),
        zk_version: state.leader_and_isr.partition_epoch,
        replicas: ids(&state.replicas),
        offline_replicas: ids(&state.offline_replicas),
    }
}

fn live_broker(broker: &BrokerRegistration, version: i16) -> UpdateMetadataBroker {
    let mut wire = UpdateMetadataBroker {
        id: broker.id.0,
        rack: broker.rack.as_deref().map(Str::from),
        ..UpdateMetadataBroker::default()
    };
    if version == 0 {
        // Brokers of that time had one endpoint.
        if let Some(endpoint) = broker.endpoints.first() {
            wire.v0_host = endpoint.host.as_str().into();
            wire.v0_port = i32::from(endpoint.port);
        }
        return wire;
    }
    let endpoints = broker.endpoints.iter().map(|endpoint| UpdateMetadataEndpoint {
        port: i32::from(endpoint.port),
        host: endpoint.host.as_str().into(),
        listener: endpoint.listener.as_str().into(),
        security_protocol: security_protocol_code(&endpoint.security_protocol),
    });
    wire.endpoints = endpoints.collect();
    wire
}

fn security_protocol_code(name: &str) -> i16 {
    let known = SecurityProtocol::ALL.into_iter().find(|protocol| protocol.name() == name);
    known.unwrap_or(SecurityProtocol::Plaintext).code()
}

fn stop_replica(request: &control::StopReplicaRequest, version: i16) -> StopReplicaRequest {
    let mut wire = StopReplicaRequest {
        controller_id: request.sender.controller_id.0,
        controller_epoch: request.sender.controller_epoch.0,
        broker_epoch: request.sender.broker_epoch.0,
        ..StopReplicaRequest::default()
    };
    let partitions = &request.partitions;
    if version < 3 {
        wire.delete_partitions = partitions.iter().all(|partition| partition.delete);
    }
    if version == 0 {
        let ungrouped = partitions.iter().map(|stop| StopReplicaPartitionV0 {
            topic_name: text(&stop.topic_partition.topic),
            partition_index: stop.topic_partition.partition.0,
        });
        wire.ungrouped_partitions = ungrouped.collect();
        return wire;
    }
    let mut topics: IndexMap<&TopicName, Vec<&StopReplica>> = IndexMap::new();
    for stop in partitions {
        topics.entry(&stop.topic_partition.topic).or_default().push(stop);
    }
    for (name, stops) in topics {
        if version < 3 {
            let partition_indexes = stops.iter().map(|stop| stop.topic_partition.partition.0).collect();
            wire.topics.push(StopReplicaTopicV1 { name: text(name), partition_indexes });
            continue;
        }
        let states = stops.into_iter().map(|stop| StopReplicaPartitionState {
            partition_index: stop.topic_partition.partition.0,
            leader_epoch: stop.leader_epoch.0,
            delete_partition: stop.delete,
        });
        wire.topic_states
            .push(StopReplicaTopicState { topic_name: text(name), partition_states: states.collect() });
    }
    wire
}

/// Name, id (zero = it has none) and partitions of each topic, in the order in which topics come first.
fn by_topic<'a>(
    states: &'a [PartitionAssignmentState],
    ids: &'a [(TopicName, TopicId)],
) -> impl Iterator<Item = (Str, Uuid, Vec<&'a PartitionAssignmentState>)> {
    let ids: HashMap<&TopicName, TopicId> = ids.iter().map(|(name, id)| (name, *id)).collect();
    let mut topics: IndexMap<&TopicName, Vec<&PartitionAssignmentState>> = IndexMap::new();
    for state in states {
        topics.entry(&state.topic_partition.topic).or_default().push(state);
    }
    topics.into_iter().map(move |(name, states)| {
        (text(name), Uuid(ids.get(name).copied().unwrap_or(TopicId::ZERO).0), states)
    })
}

fn ids(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|broker| broker.0).collect()
}

fn text(name: &TopicName) -> Str {
    name.as_str().into()
}
