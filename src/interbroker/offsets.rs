use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use wire::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use wire::{ListOffsetsRequest, OffsetForLeaderEpochRequest};

use super::{Peer, PeerError, RemoteError};
use crate::model::{BrokerId, LeaderEpoch, Offset, TopicPartition};

/// How ListOffsets names the ends of a log.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

impl Peer {
    /// Where the leader's log begins, as a follower asks for it.
    pub async fn log_start_offset(
        &self,
        replica_id: BrokerId,
        of: &TopicPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Offset, PeerError> {
        self.list_offset(replica_id, of, leader_epoch, EARLIEST).await
    }

    /// Where the leader's log ends, as a follower asks for it.
    pub async fn log_end_offset(
        &self,
        replica_id: BrokerId,
        of: &TopicPartition,
        leader_epoch: LeaderEpoch,
    ) -> Result<Offset, PeerError> {
        self.list_offset(replica_id, of, leader_epoch, LATEST).await
    }

    async fn list_offset(
        &self,
        replica_id: BrokerId,
        of: &TopicPartition,
        leader_epoch: LeaderEpoch,
        timestamp: i64,
    ) -> Result<Offset, PeerError> {
        let version = self.versions.list_offsets;
        let partition = ListOffsetsPartition {
            partition_index: of.partition.0,
            current_leader_epoch: leader_epoch.0,
            timestamp,
            ..ListOffsetsPartition::default()
        };
        let topic = ListOffsetsTopic { name: of.topic.as_str().into(), partitions: vec![partition] };
        let request = ListOffsetsRequest {
            replica_id: replica_id.0,
            topics: vec![topic],
            ..ListOffsetsRequest::default()
        };
        let response = self.call(&request, version).await?;
        let answer = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
        let Some(answer) = answer else { return Err(PeerError::Disconnected) };
        RemoteError::check(answer.error_code)?;
        let offset = match version {
            0 => answer.old_style_offsets.first().copied().unwrap_or(-1),
            _ => answer.offset,
        };
        Ok(Offset(offset))
    }

    /// Where the leader's records up to an epoch end: the epoch found and its end; `-1` where it knows none.
    pub async fn end_offset_for_epoch(
        &self,
        replica_id: BrokerId,
        of: &TopicPartition,
        current_leader_epoch: LeaderEpoch,
        wanted: LeaderEpoch,
    ) -> Result<(LeaderEpoch, Offset), PeerError> {
        let version = self.versions.offset_for_leader_epoch;
        let partition = OffsetForLeaderPartition {
            partition: of.partition.0,
            current_leader_epoch: current_leader_epoch.0,
            leader_epoch: wanted.0,
        };
        let topic = OffsetForLeaderTopic { topic: of.topic.as_str().into(), partitions: vec![partition] };
        let request = OffsetForLeaderEpochRequest { replica_id: replica_id.0, topics: vec![topic] };
        let response = self.call(&request, version).await?;
        let answer = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
        let Some(answer) = answer else { return Err(PeerError::Disconnected) };
        RemoteError::check(answer.error_code)?;
        // Version 0 does not say which epoch it found: the one that was asked for is as good as it gets.
        let epoch = if version == 0 { wanted } else { LeaderEpoch(answer.leader_epoch) };
        Ok((epoch, Offset(answer.end_offset)))
    }
}
