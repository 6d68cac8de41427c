//! `kafka-protocol` reads what `wire` writes, and the other way round, wherever both know a version.
//!
//! Each frame is decoded and encoded by both crates; all must agree on every byte. The other crate aborts on
//! hostile input, so it only ever sees whole frames.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use kafka_protocol::messages;
use kafka_protocol::protocol::{Decodable, Encodable, Message};

use crate::{catalog, sample};

const FRAMES_PER_VERSION: usize = 40;

struct Theirs {
    min_version: i16,
    max_version: i16,
    again: fn(&Bytes, i16) -> Result<Bytes, String>,
}

macro_rules! theirs {
    ($($name:ident,)*) => {
        BTreeMap::from([$((stringify!($name), Theirs {
            min_version: <messages::$name as Message>::VERSIONS.min,
            max_version: <messages::$name as Message>::VERSIONS.max,
            again: again::<messages::$name>,
        })),*])
    };
}

fn again<M: Decodable + Encodable>(bytes: &Bytes, version: i16) -> Result<Bytes, String> {
    let mut rest = bytes.clone();
    let message = M::decode(&mut rest, version).map_err(|error| format!("decode: {error}"))?;
    if !rest.is_empty() {
        return Err(format!("decode leaves {} bytes", rest.len()));
    }
    let mut out = BytesMut::new();
    message.encode(&mut out, version).map_err(|error| format!("encode: {error}"))?;
    Ok(out.freeze())
}

#[test]
fn wire_and_kafka_protocol_read_each_other() {
    let (ours, theirs) = (catalog::by_name(), theirs());
    let mut rng = Rng::with_seed(1);
    let (mut wrong, mut versions) = (Vec::new(), 0);
    for schema in sample::schemas() {
        let name = schema.name.as_str();
        let Some(theirs) = theirs.get(name) else { continue };
        let (first, last) =
            (ours[name].min_version.max(theirs.min_version), ours[name].max_version.min(theirs.max_version));
        for version in first..=last {
            versions += 1;
            for _ in 0..FRAMES_PER_VERSION {
                let frame = sample::frame(&schema, version, &mut rng);
                let who = [("wire", ours[name].again), ("kafka-protocol", theirs.again)];
                let bad = who.iter().find_map(|(who, again)| match again(&frame, version) {
                    Ok(bytes) if bytes == frame => None,
                    Ok(_) => Some(format!("{who} writes other bytes")),
                    Err(error) => Some(format!("{who}: {error}")),
                });
                if let Some(bad) = bad {
                    wrong.push(format!("{name} v{version}: {bad}"));
                    break;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {versions} versions:\n{}", wrong.len(), wrong.join("\n"));
    assert!(versions > 500, "only {versions} versions");
}

/// What `kafka-protocol` 0.18 has of our messages.
fn theirs() -> BTreeMap<&'static str, Theirs> {
    theirs! {
        AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse, AddRaftVoterRequest, AddRaftVoterResponse, AllocateProducerIdsRequest,
        AllocateProducerIdsResponse, AlterClientQuotasRequest, AlterClientQuotasResponse,
        AlterConfigsRequest, AlterConfigsResponse, AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse, AlterPartitionRequest, AlterPartitionResponse,
        AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
        ApiVersionsRequest, ApiVersionsResponse, AssignReplicasToDirsRequest, AssignReplicasToDirsResponse,
        BeginQuorumEpochRequest, BeginQuorumEpochResponse, BrokerHeartbeatRequest, BrokerHeartbeatResponse,
        BrokerRegistrationRequest, BrokerRegistrationResponse, ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
        ConsumerProtocolAssignment, ConsumerProtocolSubscription, ControllerRegistrationRequest,
        ControllerRegistrationResponse, CreateAclsRequest, CreateAclsResponse, CreateDelegationTokenRequest,
        CreateDelegationTokenResponse, CreatePartitionsRequest, CreatePartitionsResponse,
        CreateTopicsRequest, CreateTopicsResponse, DefaultPrincipalData, DeleteAclsRequest,
        DeleteAclsResponse, DeleteGroupsRequest, DeleteGroupsResponse, DeleteRecordsRequest,
        DeleteRecordsResponse, DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse,
        DeleteShareGroupStateRequest, DeleteShareGroupStateResponse, DeleteTopicsRequest,
        DeleteTopicsResponse, DescribeAclsRequest, DescribeAclsResponse, DescribeClientQuotasRequest,
        DescribeClientQuotasResponse, DescribeClusterRequest, DescribeClusterResponse,
        DescribeConfigsRequest, DescribeConfigsResponse, DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse, DescribeGroupsRequest, DescribeGroupsResponse,
        DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeProducersRequest,
        DescribeProducersResponse, DescribeQuorumRequest, DescribeQuorumResponse,
        DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse, DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse, DescribeTransactionsRequest, DescribeTransactionsResponse,
        DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, ElectLeadersRequest,
        ElectLeadersResponse, EndQuorumEpochRequest, EndQuorumEpochResponse, EndTxnMarker, EndTxnRequest,
        EndTxnResponse, EnvelopeRequest, EnvelopeResponse, ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse, FetchRequest, FetchResponse, FetchSnapshotRequest,
        FetchSnapshotResponse, FindCoordinatorRequest, FindCoordinatorResponse,
        GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse, HeartbeatRequest,
        HeartbeatResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
        InitProducerIdRequest, InitProducerIdResponse, InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
        LeaveGroupResponse, ListConfigResourcesRequest, ListConfigResourcesResponse, ListGroupsRequest,
        ListGroupsResponse, ListOffsetsRequest, ListOffsetsResponse, ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse, ListTransactionsRequest, ListTransactionsResponse,
        MetadataRequest, MetadataResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest,
        OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse, OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse, ProduceRequest, ProduceResponse, PushTelemetryRequest,
        PushTelemetryResponse, ReadShareGroupStateRequest, ReadShareGroupStateResponse,
        ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse, RemoveRaftVoterRequest,
        RemoveRaftVoterResponse, RenewDelegationTokenRequest, RenewDelegationTokenResponse,
        SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
        ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse,
        ShareGroupDescribeRequest, ShareGroupDescribeResponse, ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse, SyncGroupRequest, SyncGroupResponse, TxnOffsetCommitRequest,
        TxnOffsetCommitResponse, UnregisterBrokerRequest, UnregisterBrokerResponse, UpdateFeaturesRequest,
        UpdateFeaturesResponse, UpdateRaftVoterRequest, UpdateRaftVoterResponse, VoteRequest, VoteResponse,
        WriteShareGroupStateRequest, WriteShareGroupStateResponse, WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    }
}
