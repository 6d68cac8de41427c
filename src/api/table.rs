//! THE list of APIs: which versions are accepted, which are advertised, what answers them.

use std::ops::RangeInclusive;
use std::sync::Arc;

use wire::{ApiKey, DecodeError, Reader};

use super::dispatch::{Begun, begin, respond};
use super::{RequestContext, Services};

type Begin = fn(Arc<Services>, RequestContext, Reader) -> Result<Begun, DecodeError>;

/// One API.
pub struct Api {
    pub key: ApiKey,
    /// Requests of other versions close the connection.
    pub accepted: RangeInclusive<i16>,
    /// What ApiVersions says; `None` = not mentioned.
    pub advertised: Option<RangeInclusive<i16>>,
    /// Whether it is answered before the broker knows the cluster: that is where it learns it from.
    pub is_served_early: bool,
    /// Whether requests of one connection may wait for replication side by side.
    pub is_pipelined: bool,
    /// Whether another broker may ask for a client that came to it.
    pub is_forwardable: bool,
    begin: Begin,
}

impl Api {
    pub fn accepts(&self, version: i16) -> bool {
        self.accepted.contains(&version)
    }

    pub(super) fn begin(
        &self,
        services: Arc<Services>,
        context: RequestContext,
        reader: Reader,
    ) -> Result<Begun, DecodeError> {
        (self.begin)(services, context, reader)
    }
}

/// The row of an API key.
pub fn find(api_key: i16) -> Option<&'static Api> {
    APIS.iter().find(|api| api.key as i16 == api_key)
}

/// What decodes a request and begins its handler.
macro_rules! handler {
    ($request:ty, $is_in_order:expr, |$services:ident, $context:ident, $decoded:ident| $answer:expr) => {
        |services, context, reader| {
            begin(
                services,
                context,
                reader,
                $is_in_order,
                |$services, $context, $decoded: $request| async move { $answer },
            )
        }
    };
}

/// A handler that gives a response without file ranges.
macro_rules! plain {
    ($module:ident, $request:ty) => {
        handler!($request, |_| true, |services, context, request| {
            let response = super::$module::handle(&services, &context, request).await;
            respond::<$request>(&context, &response, Vec::new())
        })
    };
}

/// A handler of what the controller alone serves: another broker has it answered there.
macro_rules! forwarded {
    ($module:ident, $request:ty) => {
        handler!($request, |_| true, |services, context, request| {
            let response = match super::forward::to_controller(&services, &context, &request).await {
                Some(response) => response,
                None => super::$module::handle(&services, &context, request).await,
            };
            respond::<$request>(&context, &response, Vec::new())
        })
    };
}

/// A handler that makes its answer itself.
macro_rules! special {
    ($module:ident, $request:ty) => {
        special!($module, $request, |_| true)
    };
    ($module:ident, $request:ty, $is_in_order:expr) => {
        handler!($request, $is_in_order, |services, context, request| {
            super::$module::answer(&services, &context, request).await
        })
    };
}

macro_rules! api {
    ($key:ident, $accepted:expr, $advertised:expr, $begin:expr) => {
        Api {
            key: ApiKey::$key,
            accepted: $accepted,
            advertised: $advertised,
            is_served_early: matches!(
                ApiKey::$key,
                ApiKey::LeaderAndIsr
                    | ApiKey::StopReplica
                    | ApiKey::UpdateMetadata
                    | ApiKey::ControlledShutdown
                    | ApiKey::AlterPartition
                    | ApiKey::AllocateProducerIds
                    | ApiKey::ApiVersions
            ),
            is_pipelined: matches!(ApiKey::$key, ApiKey::Produce),
            is_forwardable: matches!(
                ApiKey::$key,
                ApiKey::CreateTopics
                    | ApiKey::DeleteTopics
                    | ApiKey::CreatePartitions
                    | ApiKey::ElectLeaders
                    | ApiKey::AlterPartitionReassignments
                    | ApiKey::ListPartitionReassignments
                    | ApiKey::UpdateFeatures
            ),
            begin: $begin,
        }
    };
}

/// Every API this broker serves, by key.
pub static APIS: &[Api] = &[
    api!(Produce, 0..=13, Some(0..=13), special!(produce, wire::ProduceRequest, super::produce::is_in_order)),
    api!(Fetch, 0..=18, Some(0..=18), special!(fetch, wire::FetchRequest)),
    api!(ListOffsets, 0..=11, Some(0..=11), plain!(list_offsets, wire::ListOffsetsRequest)),
    api!(Metadata, 0..=13, Some(0..=13), plain!(metadata, wire::MetadataRequest)),
    api!(LeaderAndIsr, 0..=7, Some(0..=7), plain!(leader_and_isr, wire::LeaderAndIsrRequest)),
    api!(StopReplica, 0..=4, Some(0..=4), plain!(stop_replica, wire::StopReplicaRequest)),
    api!(UpdateMetadata, 0..=8, Some(0..=8), plain!(update_metadata, wire::UpdateMetadataRequest)),
    api!(
        ControlledShutdown,
        0..=3,
        Some(0..=3),
        plain!(controlled_shutdown, wire::ControlledShutdownRequest)
    ),
    api!(OffsetCommit, 0..=10, Some(0..=10), plain!(offset_commit, wire::OffsetCommitRequest)),
    api!(OffsetFetch, 0..=10, Some(0..=10), plain!(offset_fetch, wire::OffsetFetchRequest)),
    api!(FindCoordinator, 0..=6, Some(0..=6), plain!(find_coordinator, wire::FindCoordinatorRequest)),
    api!(JoinGroup, 0..=9, Some(0..=9), plain!(join_group, wire::JoinGroupRequest)),
    api!(Heartbeat, 0..=4, Some(0..=4), plain!(heartbeat, wire::HeartbeatRequest)),
    api!(LeaveGroup, 0..=5, Some(0..=5), plain!(leave_group, wire::LeaveGroupRequest)),
    api!(SyncGroup, 0..=5, Some(0..=5), plain!(sync_group, wire::SyncGroupRequest)),
    api!(DescribeGroups, 0..=6, Some(0..=6), plain!(describe_groups, wire::DescribeGroupsRequest)),
    api!(ListGroups, 0..=5, Some(0..=5), plain!(list_groups, wire::ListGroupsRequest)),
    api!(ApiVersions, 0..=4, Some(0..=4), plain!(api_versions, wire::ApiVersionsRequest)),
    api!(CreateTopics, 0..=7, Some(0..=7), forwarded!(create_topics, wire::CreateTopicsRequest)),
    api!(DeleteTopics, 0..=6, Some(0..=6), forwarded!(delete_topics, wire::DeleteTopicsRequest)),
    api!(DeleteRecords, 0..=2, Some(0..=2), plain!(delete_records, wire::DeleteRecordsRequest)),
    api!(InitProducerId, 0..=6, Some(0..=5), plain!(init_producer_id, wire::InitProducerIdRequest)),
    api!(
        OffsetForLeaderEpoch,
        0..=4,
        Some(0..=4),
        plain!(offset_for_leader_epoch, wire::OffsetForLeaderEpochRequest)
    ),
    api!(
        AddPartitionsToTxn,
        0..=5,
        Some(0..=5),
        plain!(add_partitions_to_txn, wire::AddPartitionsToTxnRequest)
    ),
    api!(AddOffsetsToTxn, 0..=4, Some(0..=4), plain!(add_offsets_to_txn, wire::AddOffsetsToTxnRequest)),
    api!(EndTxn, 0..=5, Some(0..=5), plain!(end_txn, wire::EndTxnRequest)),
    api!(WriteTxnMarkers, 0..=2, Some(0..=2), plain!(write_txn_markers, wire::WriteTxnMarkersRequest)),
    api!(TxnOffsetCommit, 0..=5, Some(0..=5), plain!(txn_offset_commit, wire::TxnOffsetCommitRequest)),
    api!(DescribeAcls, 0..=3, Some(0..=3), plain!(describe_acls, wire::DescribeAclsRequest)),
    api!(CreateAcls, 0..=3, Some(0..=3), plain!(create_acls, wire::CreateAclsRequest)),
    api!(DeleteAcls, 0..=3, Some(0..=3), plain!(delete_acls, wire::DeleteAclsRequest)),
    api!(DescribeConfigs, 0..=4, Some(0..=4), plain!(describe_configs, wire::DescribeConfigsRequest)),
    api!(AlterConfigs, 0..=2, Some(0..=2), plain!(alter_configs, wire::AlterConfigsRequest)),
    api!(
        AlterReplicaLogDirs,
        0..=2,
        Some(0..=2),
        plain!(alter_replica_log_dirs, wire::AlterReplicaLogDirsRequest)
    ),
    api!(DescribeLogDirs, 0..=5, Some(0..=5), plain!(describe_log_dirs, wire::DescribeLogDirsRequest)),
    api!(CreatePartitions, 0..=3, Some(0..=3), forwarded!(create_partitions, wire::CreatePartitionsRequest)),
    api!(DeleteGroups, 0..=2, Some(0..=2), plain!(delete_groups, wire::DeleteGroupsRequest)),
    api!(ElectLeaders, 0..=2, Some(0..=2), forwarded!(elect_leaders, wire::ElectLeadersRequest)),
    api!(
        IncrementalAlterConfigs,
        0..=1,
        Some(0..=1),
        plain!(incremental_alter_configs, wire::IncrementalAlterConfigsRequest)
    ),
    api!(
        AlterPartitionReassignments,
        0..=1,
        Some(0..=1),
        forwarded!(alter_partition_reassignments, wire::AlterPartitionReassignmentsRequest)
    ),
    api!(
        ListPartitionReassignments,
        0..=0,
        Some(0..=0),
        forwarded!(list_partition_reassignments, wire::ListPartitionReassignmentsRequest)
    ),
    api!(OffsetDelete, 0..=0, Some(0..=0), plain!(offset_delete, wire::OffsetDeleteRequest)),
    api!(AlterPartition, 0..=3, Some(0..=3), plain!(alter_partition, wire::AlterPartitionRequest)),
    api!(UpdateFeatures, 0..=2, Some(0..=2), forwarded!(update_features, wire::UpdateFeaturesRequest)),
    api!(Envelope, 0..=0, Some(0..=0), special!(envelope, wire::EnvelopeRequest)),
    api!(DescribeCluster, 0..=2, Some(0..=2), plain!(describe_cluster, wire::DescribeClusterRequest)),
    api!(DescribeProducers, 0..=0, Some(0..=0), plain!(describe_producers, wire::DescribeProducersRequest)),
    api!(
        DescribeTransactions,
        0..=0,
        Some(0..=0),
        plain!(describe_transactions, wire::DescribeTransactionsRequest)
    ),
    api!(ListTransactions, 0..=2, Some(0..=2), plain!(list_transactions, wire::ListTransactionsRequest)),
    api!(
        AllocateProducerIds,
        0..=0,
        Some(0..=0),
        plain!(allocate_producer_ids, wire::AllocateProducerIdsRequest)
    ),
    api!(
        ListConfigResources,
        0..=1,
        Some(0..=1),
        plain!(list_config_resources, wire::ListConfigResourcesRequest)
    ),
    api!(
        DescribeTopicPartitions,
        0..=0,
        Some(0..=0),
        plain!(describe_topic_partitions, wire::DescribeTopicPartitionsRequest)
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_within_what_the_codec_knows() {
        assert!(APIS.windows(2).all(|pair| (pair[0].key as i16) < (pair[1].key as i16)));
        for api in APIS {
            let known = api.key.versions();
            let (accepted, name) = (&api.accepted, api.key.name());
            assert!(known.start() <= accepted.start() && accepted.end() <= known.end(), "{name}");
        }
    }
}
