use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use wire::join_group_request::JoinGroupRequestProtocol;
use wire::leave_group_request::MemberIdentity;
use wire::offset_commit_request::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestTopic};
use wire::sync_group_request::SyncGroupRequestAssignment;
use wire::{HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest};

use super::Client;
use super::code::{MEMBER_ID_REQUIRED, NONE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID};
use crate::history::History;
use crate::switch::Switch;
use crate::world::{Coordinating, World};

/// A member of a classic consumer group: joins, is assigned partitions, goes on from their committed offsets, commits,
/// leaves or stays away, and joins again.
pub struct Member {
    pub client: Client,
    pub group: &'static str,
    pub topic: &'static str,
    pub partitions: i32,
    pub history: History,
    /// Tells whether what is found is committed.
    pub world: Arc<World>,
    pub is_over: Switch,
}

/// What a member has within one generation.
struct Joined {
    coordinator: String,
    member_id: String,
    generation: i32,
    /// The partitions it owns, and where it is in them.
    positions: BTreeMap<i32, i64>,
}

/// Why a member does not go on in its generation.
enum Left {
    /// It joins again as who it is.
    Rebalance(String),
    /// It is nobody, or does not know.
    Lost,
}

const SESSION_TIMEOUT_MS: i32 = 6_000;
/// Shorter than a client waits for an answer.
const REBALANCE_TIMEOUT_MS: i32 = 4_000;

impl Member {
    pub async fn run(mut self) {
        let mut member_id = String::new();
        while !self.is_over.is_set() {
            let Some(joined) = self.join(&member_id).await else {
                member_id.clear();
                sleep(Duration::from_millis(200)).await;
                continue;
            };
            member_id = match self.consume(joined).await {
                Left::Rebalance(member_id) => member_id,
                Left::Lost => String::new(),
            };
        }
    }

    async fn join(&mut self, member_id: &str) -> Option<Joined> {
        let coordinator = self.client.coordinator(self.group, 0).await?;
        let mut joined = self.ask_to_join(&coordinator, member_id).await?;
        if joined.error_code == MEMBER_ID_REQUIRED {
            let member_id = joined.member_id.to_string();
            joined = self.ask_to_join(&coordinator, &member_id).await?;
        }
        if joined.error_code != NONE {
            return None;
        }
        let request = SyncGroupRequest {
            group_id: self.group.into(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            assignments: self.assign(&joined),
            ..Default::default()
        };
        let synced = self.client.call(&coordinator, 3, &request).await?;
        if synced.error_code != NONE {
            return None;
        }
        let owned = String::from_utf8_lossy(&synced.assignment).into_owned();
        let owned = owned.split(',').filter_map(|partition| partition.parse().ok());
        let mut joined = Joined {
            coordinator,
            member_id: joined.member_id.to_string(),
            generation: joined.generation_id,
            positions: owned.map(|partition| (partition, 0)).collect(),
        };
        for partition in joined.positions.keys() {
            self.history.owned(self.group, joined.generation, *partition, &joined.member_id);
        }
        self.find_positions(&mut joined).await?;
        Some(joined)
    }

    async fn ask_to_join(&mut self, coordinator: &str, member_id: &str) -> Option<JoinGroupResponse> {
        let protocol = JoinGroupRequestProtocol { name: "turns".into(), ..Default::default() };
        let request = JoinGroupRequest {
            group_id: self.group.into(),
            session_timeout_ms: SESSION_TIMEOUT_MS,
            rebalance_timeout_ms: REBALANCE_TIMEOUT_MS,
            member_id: member_id.into(),
            protocol_type: "simulation".into(),
            protocols: vec![protocol],
            ..Default::default()
        };
        self.client.call(coordinator, 5, &request).await
    }

    /// Members take turns. Only the leader is told of the others, and asked.
    fn assign(&self, joined: &JoinGroupResponse) -> Vec<SyncGroupRequestAssignment> {
        let count = joined.members.len();
        let assignment = |(at, member_id): (usize, wire::Str)| {
            let owned: Vec<String> = (0..self.partitions)
                .filter(|partition| *partition as usize % count == at)
                .map(|partition| partition.to_string())
                .collect();
            SyncGroupRequestAssignment { member_id, assignment: Bytes::from(owned.join(",")) }
        };
        joined.members.iter().map(|member| member.member_id.clone()).enumerate().map(assignment).collect()
    }

    async fn find_positions(&mut self, joined: &mut Joined) -> Option<()> {
        let partition_indexes = joined.positions.keys().copied().collect();
        let topic = OffsetFetchRequestTopic { name: self.topic.into(), partition_indexes };
        let request = OffsetFetchRequest {
            group_id: self.group.into(),
            topics: Some(vec![topic]),
            ..Default::default()
        };
        let before = self.world.coordinates(&joined.coordinator);
        let response = self.client.call(&joined.coordinator, 5, &request).await?;
        if response.error_code != NONE {
            return None;
        }
        let after = self.world.coordinates(&joined.coordinator);
        let stands = Coordinating::stands(before.as_ref(), after.as_ref());
        for found in response.topics.iter().flat_map(|topic| &topic.partitions) {
            if found.error_code != NONE {
                return None;
            }
            let (partition, offset) = (found.partition_index, found.committed_offset);
            self.history.found_committed(self.group, joined.generation, partition, offset, stands);
            // -1 = nothing was committed.
            joined.positions.insert(partition, offset.max(0));
        }
        Some(())
    }

    async fn consume(&mut self, mut joined: Joined) -> Left {
        while !self.is_over.is_set() {
            let pause = self.client.random().number(50..1_500);
            sleep(Duration::from_millis(pause)).await;
            let code = match self.client.random().number(0..12) {
                0 => {
                    self.leave(&joined).await;
                    return Left::Lost;
                }
                // Stays away for longer than its session.
                1 => {
                    let silence = self.client.random().number(0..10_000);
                    sleep(Duration::from_millis(silence)).await;
                    continue;
                }
                2..=6 => self.heartbeat(&joined).await,
                _ => self.commit(&mut joined).await,
            };
            match code {
                Some(NONE) => {}
                Some(REBALANCE_IN_PROGRESS) => return Left::Rebalance(joined.member_id),
                Some(UNKNOWN_MEMBER_ID) => return Left::Lost,
                // The coordinator is elsewhere, or the generation is over.
                _ => return Left::Rebalance(joined.member_id),
            }
        }
        self.leave(&joined).await;
        Left::Lost
    }

    async fn heartbeat(&mut self, joined: &Joined) -> Option<i16> {
        let request = HeartbeatRequest {
            group_id: self.group.into(),
            generation_id: joined.generation,
            member_id: joined.member_id.as_str().into(),
            ..Default::default()
        };
        Some(self.client.call(&joined.coordinator, 3, &request).await?.error_code)
    }

    async fn leave(&mut self, joined: &Joined) {
        let member = MemberIdentity { member_id: joined.member_id.as_str().into(), ..Default::default() };
        let request =
            LeaveGroupRequest { group_id: self.group.into(), members: vec![member], ..Default::default() };
        // Whether anybody has heard of it shows in the next generation.
        let _ = self.client.call(&joined.coordinator, 3, &request).await;
    }

    /// Goes on in all partitions, and commits. An error of one of them, or of the whole.
    async fn commit(&mut self, joined: &mut Joined) -> Option<i16> {
        let mut partitions = Vec::new();
        for (partition, position) in &mut joined.positions {
            *position += self.client.random().number(1..5) as i64;
            self.history.commits(self.group, *partition, *position);
            partitions.push(OffsetCommitRequestPartition {
                partition_index: *partition,
                committed_offset: *position,
                ..Default::default()
            });
        }
        if partitions.is_empty() {
            return self.heartbeat(joined).await;
        }
        let topic = OffsetCommitRequestTopic { name: self.topic.into(), partitions, ..Default::default() };
        let request = OffsetCommitRequest {
            group_id: self.group.into(),
            generation_id_or_member_epoch: joined.generation,
            member_id: joined.member_id.as_str().into(),
            topics: vec![topic],
            ..Default::default()
        };
        let response = self.client.call(&joined.coordinator, 7, &request).await?;
        let mut worst = NONE;
        for answered in response.topics.iter().flat_map(|topic| &topic.partitions) {
            if answered.error_code != NONE {
                worst = answered.error_code;
            } else if let Some(position) = joined.positions.get(&answered.partition_index) {
                let partition = answered.partition_index;
                self.history.has_committed(self.group, joined.generation, partition, *position);
            }
        }
        Some(worst)
    }
}
