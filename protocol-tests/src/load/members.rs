//! Members of classic groups.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::sync::Barrier;
use wire::join_group_request::JoinGroupRequestProtocol;
use wire::leave_group_request::MemberIdentity;
use wire::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use wire::offset_fetch_request::OffsetFetchRequestTopic;
use wire::sync_group_request::SyncGroupRequestAssignment;
use wire::{
    FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest,
};

use super::clients::{Clients, Gate, expect_value, open, value};
use super::error::check;
use super::requests::{Patience, fetch_one, produce_one};
use super::{LoadConnection, LoadError};

/// Members of a group, and partitions of its topic: one each.
pub(super) const GROUP_SIZE: usize = 10;
const SESSION_TIMEOUT_MS: i32 = 45_000;
const FETCH_BYTES: i32 = 4096;
const PROTOCOL_TYPE: &str = "load";

/// Kafka's codes that only mean: join (again). The coordinator loads, is not known, has just been moved.
const COORDINATOR_STARTS: [i16; 3] = [14, 15, 16];
const REBALANCE_IN_PROGRESS: i16 = 27;
const MEMBER_ID_REQUIRED: i16 = 79;

/// Joins until the group is complete, then writes to the partition it was given, reads it back and commits.
pub(super) async fn member(
    address: &str,
    clients: &Clients,
    group: usize,
    gate: &Gate,
    together: &Barrier,
) -> Result<(), LoadError> {
    let name = format!("{}-{group}", clients.prefix);
    let connection = open(address, gate).await?;
    gate.all.wait().await;
    let mut member = Member { connection, name, id: String::new(), generation_id: -1 };
    member.find_coordinator().await?;
    let partition = member.join_complete_group().await?;
    let mut next = member.committed(partition).await?.max(0);
    for round in 0..clients.rounds {
        let value = value(&member.id, round);
        let written = produce_one(&mut member.connection, &member.name, partition, value.clone()).await?;
        if written != next {
            return Err(LoadError::Wrong { what: format!("wrote to offset {written}, {next} was free") });
        }
        let read = fetch_one(&mut member.connection, &member.name, partition, next, FETCH_BYTES).await?;
        expect_value(&value, &read)?;
        next += 1;
        member.commit(partition, next).await?;
        member.heartbeat().await?;
    }
    let kept = member.committed(partition).await?;
    if kept != next {
        return Err(LoadError::Wrong { what: format!("committed {next}, found {kept}") });
    }
    // Who leaves earlier makes the others rebalance.
    together.wait().await;
    member.leave().await
}

struct Member {
    connection: LoadConnection,
    /// Of the group and of its topic.
    name: String,
    id: String,
    generation_id: i32,
}

/// What the leader gives each member: its partition, and how many members there are.
struct Assignment {
    partition: i32,
    members: usize,
}

impl Assignment {
    fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_i32(self.partition);
        bytes.put_i32(self.members as i32);
        bytes.freeze()
    }

    fn decode(mut bytes: Bytes) -> Option<Assignment> {
        let (partition, members) = (bytes.try_get_i32().ok()?, bytes.try_get_i32().ok()?);
        Some(Assignment { partition, members: usize::try_from(members).ok()? })
    }
}

impl Member {
    async fn find_coordinator(&mut self) -> Result<(), LoadError> {
        let request = FindCoordinatorRequest { key: self.name.as_str().into(), ..Default::default() };
        let patience = Patience::to_see("the group's coordinator");
        while self.connection.call(2, &request).await?.error_code != 0 {
            patience.pause().await?;
        }
        Ok(())
    }

    /// The partition it owns when all have joined.
    async fn join_complete_group(&mut self) -> Result<i32, LoadError> {
        let patience = Patience::to_see("the group complete");
        loop {
            if let Some(partition) = self.join().await? {
                return Ok(partition);
            }
            patience.pause().await?;
        }
    }

    /// One try to become a member of the complete group: the partition it owns then.
    async fn join(&mut self) -> Result<Option<i32>, LoadError> {
        let Some(joined) = self.join_generation().await? else { return Ok(None) };
        let Some(assignment) = self.sync(&joined).await? else { return Ok(None) };
        if assignment.members == GROUP_SIZE {
            return Ok(Some(assignment.partition));
        }
        // The others are on their way: their arrival is told by the next heartbeats.
        let patience = Patience::to_see("a rebalance of an incomplete group");
        while !self.heartbeat_says_rebalance().await? {
            patience.pause().await?;
        }
        Ok(None)
    }

    async fn join_generation(&mut self) -> Result<Option<JoinGroupResponse>, LoadError> {
        let protocol = JoinGroupRequestProtocol { name: "one-each".into(), ..Default::default() };
        let request = JoinGroupRequest {
            group_id: self.name.as_str().into(),
            session_timeout_ms: SESSION_TIMEOUT_MS,
            rebalance_timeout_ms: SESSION_TIMEOUT_MS,
            member_id: self.id.as_str().into(),
            protocol_type: PROTOCOL_TYPE.into(),
            protocols: vec![protocol],
            ..Default::default()
        };
        let response = self.connection.call(5, &request).await?;
        if response.error_code == MEMBER_ID_REQUIRED {
            self.id = response.member_id.to_string();
            return Ok(None);
        }
        if response.error_code == REBALANCE_IN_PROGRESS || COORDINATOR_STARTS.contains(&response.error_code) {
            return Ok(None);
        }
        check("join a group", response.error_code)?;
        self.id = response.member_id.to_string();
        self.generation_id = response.generation_id;
        Ok(Some(response))
    }

    async fn sync(&mut self, joined: &JoinGroupResponse) -> Result<Option<Assignment>, LoadError> {
        // Only the leader is told who the members are.
        let members = joined.members.len();
        let assignments = (0..).zip(&joined.members).map(|(partition, member)| SyncGroupRequestAssignment {
            member_id: member.member_id.clone(),
            assignment: Assignment { partition, members }.encode(),
        });
        let request = SyncGroupRequest {
            group_id: self.name.as_str().into(),
            generation_id: self.generation_id,
            member_id: self.id.as_str().into(),
            assignments: assignments.collect(),
            ..Default::default()
        };
        let response = self.connection.call(3, &request).await?;
        if response.error_code == REBALANCE_IN_PROGRESS {
            return Ok(None);
        }
        check("sync a group", response.error_code)?;
        let assignment = Assignment::decode(response.assignment);
        assignment.map(Some).ok_or(LoadError::Wrong { what: "an assignment that nobody made".to_owned() })
    }

    async fn heartbeat_says_rebalance(&mut self) -> Result<bool, LoadError> {
        let request = HeartbeatRequest {
            group_id: self.name.as_str().into(),
            generation_id: self.generation_id,
            member_id: self.id.as_str().into(),
            ..Default::default()
        };
        match self.connection.call(3, &request).await?.error_code {
            REBALANCE_IN_PROGRESS => Ok(true),
            code => check("heartbeat", code).map(|()| false),
        }
    }

    async fn heartbeat(&mut self) -> Result<(), LoadError> {
        match self.heartbeat_says_rebalance().await? {
            false => Ok(()),
            true => Err(LoadError::Wrong { what: "a complete group rebalances".to_owned() }),
        }
    }

    async fn commit(&mut self, partition_index: i32, committed_offset: i64) -> Result<(), LoadError> {
        let partition =
            OffsetCommitRequestPartition { partition_index, committed_offset, ..Default::default() };
        let topic = OffsetCommitRequestTopic {
            name: self.name.as_str().into(),
            partitions: vec![partition],
            ..Default::default()
        };
        let request = OffsetCommitRequest {
            group_id: self.name.as_str().into(),
            generation_id_or_member_epoch: self.generation_id,
            member_id: self.id.as_str().into(),
            topics: vec![topic],
            ..Default::default()
        };
        let response = self.connection.call(7, &request).await?;
        let codes = response.topics.iter().flat_map(|topic| &topic.partitions);
        codes.map(|partition| partition.error_code).try_for_each(|code| check("commit an offset", code))
    }

    /// -1 = none.
    async fn committed(&mut self, partition: i32) -> Result<i64, LoadError> {
        let topic =
            OffsetFetchRequestTopic { name: self.name.as_str().into(), partition_indexes: vec![partition] };
        let request = OffsetFetchRequest {
            group_id: self.name.as_str().into(),
            topics: Some(vec![topic]),
            ..Default::default()
        };
        let response = self.connection.call(7, &request).await?;
        check("fetch offsets", response.error_code)?;
        let answer = response.topics.iter().flat_map(|topic| &topic.partitions).next();
        let answer = answer.ok_or(LoadError::Wrong { what: "OffsetFetch answers nothing".to_owned() })?;
        check("fetch an offset", answer.error_code)?;
        Ok(answer.committed_offset)
    }

    async fn leave(&mut self) -> Result<(), LoadError> {
        let member = MemberIdentity { member_id: self.id.as_str().into(), ..Default::default() };
        let request = LeaveGroupRequest {
            group_id: self.name.as_str().into(),
            members: vec![member],
            ..Default::default()
        };
        check("leave a group", self.connection.call(3, &request).await?.error_code)
    }
}
