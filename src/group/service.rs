use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::shard::{GroupCommand, GroupEvent, GroupReply, GroupShard};
use super::{
    CommitOffsets, CommitTransactionalOffsets, DeleteOffsets, FetchOffsets, FetchOffsetsResult,
    GroupDescription, GroupError, GroupId, GroupListing, GroupOptions, Heartbeat, JoinGroup, JoinRefused,
    JoinResult, LeaveGroup, LeaveResult, ListGroups, ListedGroup, OffsetsResult, SyncGroup, SyncResult,
};
use crate::coordinator::{CallError, EventSink, Runtime, RuntimeParts, ShardLog, partition_for};
use crate::metadata::Cache;
use crate::model::{LeaderEpoch, PartitionIndex, ProducerId, TopicName, TopicPartition};
use crate::runtime::{Clock, Random, task};

/// The topic that holds groups and their offsets.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// The group coordinator of this broker.
///
/// Answers for the groups of the partitions of `__consumer_offsets` that the broker leads. Dropping the future
/// of a call abandons its answer, not the call.
pub struct GroupService {
    runtime: Runtime<GroupShard>,
    metadata: Arc<Cache>,
    default_partition_count: i32,
    random: Random,
    rebalances: Arc<AtomicU64>,
}

/// What a group coordinator is made of.
pub struct GroupServiceParts {
    pub options: GroupOptions,
    pub log: Arc<dyn ShardLog>,
    /// Knows how many partitions `__consumer_offsets` has.
    pub metadata: Arc<Cache>,
    /// `offsets.topic.num.partitions`, which counts only while the topic does not exist.
    pub default_partition_count: i32,
    pub clock: Clock,
    pub random: Random,
}

impl GroupService {
    pub fn new(parts: GroupServiceParts) -> GroupService {
        let options = Arc::new(parts.options);
        let topic = TopicName::new(OFFSETS_TOPIC).expect("the offsets topic has a legal name");
        let events = EventLog::default();
        let rebalances = Arc::clone(&events.rebalances);
        let runtime = Runtime::new(RuntimeParts {
            topic,
            write_timeout_ms: options.offset_commit_timeout_ms,
            log: parts.log,
            clock: parts.clock,
            new_shard: Box::new(move |_| GroupShard::new(Arc::clone(&options))),
            events: Box::new(events),
        });
        GroupService {
            runtime,
            metadata: parts.metadata,
            default_partition_count: parts.default_partition_count,
            random: parts.random,
            rebalances,
        }
    }

    /// Generations that groups have begun with this coordinator.
    pub fn rebalances(&self) -> u64 {
        self.rebalances.load(Ordering::Relaxed)
    }

    /// The partition of `__consumer_offsets` whose leader coordinates this group.
    pub fn partition_for(&self, group_id: &str) -> PartitionIndex {
        let image = self.metadata.image();
        let count = image.topic(OFFSETS_TOPIC).and_then(|topic| i32::try_from(topic.partitions().len()).ok());
        partition_for(group_id, count.filter(|count| *count > 0).unwrap_or(self.default_partition_count))
    }

    /// This broker leads the partition from this epoch on. Must be called within a tokio runtime.
    pub fn on_elected(&self, partition: PartitionIndex, leader_epoch: LeaderEpoch) {
        tracing::debug!(partition = %partition, %leader_epoch, "elected as group coordinator");
        self.runtime.on_elected(partition, leader_epoch);
    }

    /// Another broker leads the partition since this epoch; `None` = the partition is gone.
    pub fn on_resigned(&self, partition: PartitionIndex, leader_epoch: Option<LeaderEpoch>) {
        tracing::debug!(partition = %partition, ?leader_epoch, "resigned as group coordinator");
        self.runtime.on_resigned(partition, leader_epoch);
    }

    /// Refuses everything from now on.
    pub fn stop(&self) {
        self.runtime.stop();
    }

    /// Waits for the next generation, at most about the longest rebalance timeout of the group.
    pub async fn join_group(&self, request: JoinGroup) -> JoinResult {
        let member_id = request.member_id.clone();
        let refuse = |error| JoinRefused { error, member_id };
        let group_id = request.group_id.clone();
        let command = GroupCommand::Join(request, self.random.bytes());
        match self.call_named(&group_id, command).await {
            Ok(GroupReply::Join(result)) => result,
            Ok(other) => mismatch(&other),
            Err(error) => Err(refuse(error)),
        }
    }

    /// Waits for the leader's assignment, at most about the longest rebalance timeout of the group.
    pub async fn sync_group(&self, request: SyncGroup) -> SyncResult {
        let group_id = request.group_id.clone();
        match self.call_named(&group_id, GroupCommand::Sync(request)).await {
            Ok(GroupReply::Sync(result)) => result,
            Ok(other) => mismatch(&other),
            // The rebalance is lost with the old coordinator, and older clients do not expect "loading" here.
            Err(GroupError::CoordinatorLoadInProgress) => Err(GroupError::RebalanceInProgress),
            Err(error) => Err(error),
        }
    }

    pub async fn heartbeat(&self, request: Heartbeat) -> Result<(), GroupError> {
        let group_id = request.group_id.clone();
        match self.call_named(&group_id, GroupCommand::Heartbeat(request)).await {
            Ok(GroupReply::Done(result)) => result,
            Ok(other) => mismatch(&other),
            // Sessions begin anew once the group is loaded.
            Err(GroupError::CoordinatorLoadInProgress) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// One result for each member, in the order of the request.
    pub async fn leave_group(&self, request: LeaveGroup) -> LeaveResult {
        let group_id = request.group_id.clone();
        match self.call_named(&group_id, GroupCommand::Leave(request)).await? {
            GroupReply::Leave(result) => result,
            other => mismatch(&other),
        }
    }

    /// One result for each offset, in the order of the request, once they are committed in the log.
    ///
    /// That the topics exist is the caller's to check.
    pub async fn commit_offsets(&self, request: CommitOffsets) -> OffsetsResult {
        let group_id = request.group_id.clone();
        match self.call(&group_id, GroupCommand::CommitOffsets(request)).await? {
            GroupReply::Offsets(result) => result,
            other => mismatch(&other),
        }
    }

    /// As [`commit_offsets`](Self::commit_offsets); the offsets show when their transaction commits.
    pub async fn commit_transactional_offsets(&self, request: CommitTransactionalOffsets) -> OffsetsResult {
        let group_id = request.group_id.clone();
        match self.call_named(&group_id, GroupCommand::CommitTransactionalOffsets(request)).await? {
            GroupReply::Offsets(result) => result,
            other => mismatch(&other),
        }
    }

    /// A transaction's marker is committed in this partition: its offsets count, or are forgotten.
    pub async fn end_transaction(
        &self,
        partition: PartitionIndex,
        producer_id: ProducerId,
        is_commit: bool,
    ) -> Result<(), GroupError> {
        let command = GroupCommand::EndTransaction { producer_id, is_commit };
        match self.runtime.call(partition, command).await.map_err(refusal)? {
            GroupReply::Done(result) => result,
            other => mismatch(&other),
        }
    }

    /// The committed offsets, never one that is on its way.
    pub async fn fetch_offsets(&self, request: FetchOffsets) -> FetchOffsetsResult {
        let group_id = request.group_id.clone();
        match self.call(&group_id, GroupCommand::FetchOffsets(request)).await? {
            GroupReply::FetchOffsets(result) => result,
            other => mismatch(&other),
        }
    }

    /// One result for each partition, in the order of the request.
    pub async fn delete_offsets(&self, request: DeleteOffsets) -> OffsetsResult {
        let group_id = request.group_id.clone();
        match self.call_named(&group_id, GroupCommand::DeleteOffsets(request)).await? {
            GroupReply::Offsets(result) => result,
            other => mismatch(&other),
        }
    }

    /// An unknown group is Dead, without members.
    pub async fn describe(&self, group_id: &GroupId) -> Result<GroupDescription, GroupError> {
        match self.call(group_id, GroupCommand::Describe(group_id.clone())).await? {
            GroupReply::Describe(description) => Ok(description),
            other => mismatch(&other),
        }
    }

    /// The groups of all partitions that this broker leads, in the order of their names.
    pub async fn list(&self, filter: &ListGroups) -> GroupListing {
        if self.runtime.is_stopped() {
            let error = Some(GroupError::CoordinatorNotAvailable);
            return GroupListing { groups: Vec::new(), error };
        }
        let (replies, is_any_loading) = self.runtime.call_all(|| GroupCommand::List).await;
        let listed = replies.into_iter().flat_map(|reply| match reply {
            GroupReply::List(groups) => groups,
            other => mismatch(&other),
        });
        let mut groups: Vec<ListedGroup> = listed.filter(|group| filter.matches(group)).collect();
        groups.sort_unstable_by(|one, other| one.group_id.cmp(&other.group_id));
        GroupListing { groups, error: is_any_loading.then_some(GroupError::CoordinatorLoadInProgress) }
    }

    /// Removes empty groups with their offsets. One result for each group, in the order given.
    pub async fn delete_groups(&self, group_ids: &[GroupId]) -> Vec<Result<(), GroupError>> {
        let mut results = Vec::with_capacity(group_ids.len());
        for group_id in group_ids {
            results.push(match self.call(group_id, GroupCommand::Delete(group_id.clone())).await {
                Ok(GroupReply::Done(result)) => result,
                Ok(other) => mismatch(&other),
                Err(error) => Err(error),
            });
        }
        results
    }

    /// These partitions were deleted: their offsets go from all groups.
    pub async fn forget_partitions(&self, partitions: impl IntoIterator<Item = TopicPartition>) {
        let partitions: Arc<HashSet<TopicPartition>> = Arc::new(partitions.into_iter().collect());
        if !partitions.is_empty() {
            self.runtime.call_all(|| GroupCommand::ForgetPartitions(Arc::clone(&partitions))).await;
        }
    }

    /// For requests that make sense only with a named group.
    async fn call_named(&self, group_id: &GroupId, command: GroupCommand) -> Result<GroupReply, GroupError> {
        if group_id.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        self.call(group_id, command).await
    }

    async fn call(&self, group_id: &GroupId, command: GroupCommand) -> Result<GroupReply, GroupError> {
        self.runtime.call(self.partition_for(group_id), command).await.map_err(refusal)
    }
}

impl ListGroups {
    fn matches(&self, group: &ListedGroup) -> bool {
        let is_in = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        is_in(&self.states, group.state.as_str()) && is_in(&self.types, group.group_type)
    }
}

fn refusal(error: CallError) -> GroupError {
    match error {
        CallError::NotHere => GroupError::NotCoordinator,
        CallError::Loading => GroupError::CoordinatorLoadInProgress,
        CallError::Stopped => GroupError::CoordinatorNotAvailable,
    }
}

/// Each command has one kind of reply, which its handler in the shard gives.
fn mismatch(reply: &GroupReply) -> ! {
    unreachable!("a request is answered by the reply to another kind of request: {reply:?}")
}

/// Counts what groups report, and writes it to the log.
#[derive(Default)]
struct EventLog {
    loaded: Arc<Mutex<LoadedShards>>,
    rebalances: Arc<AtomicU64>,
}

/// Partitions that were loaded and are not told of yet.
#[derive(Default)]
struct LoadedShards {
    partitions: usize,
    groups: usize,
}

/// A broker becomes coordinator of dozens of partitions at once: they are told of together.
const LOADED_INTERVAL: Duration = Duration::from_secs(1);

impl EventLog {
    fn loaded(&self, groups: usize) {
        let mut loaded = self.loaded.lock();
        loaded.partitions += 1;
        loaded.groups += groups;
        if loaded.partitions > 1 {
            return;
        }
        let loaded = Arc::clone(&self.loaded);
        task::spawn("loaded coordinators", async move {
            tokio::time::sleep(LOADED_INTERVAL).await;
            let LoadedShards { partitions, groups } = std::mem::take(&mut *loaded.lock());
            tracing::info!(partitions, groups, "group coordinator loaded");
        });
    }
}

impl EventSink<GroupEvent> for EventLog {
    fn emit(&self, partition: PartitionIndex, event: GroupEvent) {
        match event {
            GroupEvent::RebalanceStarted { group_id, generation_id, reason } => {
                tracing::info!(%group_id, %generation_id, reason, "preparing to rebalance");
            }
            GroupEvent::GenerationStarted { group_id, generation_id, members } => {
                self.rebalances.fetch_add(1, Ordering::Relaxed);
                tracing::info!(%group_id, %generation_id, members, "a generation begins");
            }
            GroupEvent::GroupEmptied { group_id, generation_id } => {
                tracing::info!(%group_id, %generation_id, "the group is empty");
            }
            GroupEvent::MemberRemoved { group_id, member_id, reason } => {
                tracing::info!(%group_id, %member_id, reason, "a member is removed");
            }
            GroupEvent::StaticMemberReplaced { group_id, instance_id, old_id, new_id } => {
                tracing::info!(%group_id, %instance_id, %old_id, member_id = %new_id, "a static member is replaced");
            }
            GroupEvent::GroupRemoved { group_id } => tracing::info!(%group_id, "the group is removed"),
            GroupEvent::WriteRefused { group_id, error } => {
                tracing::warn!(%group_id, %error, "a group's state was not stored");
            }
            GroupEvent::Loaded { groups, skipped_records: 0 } => self.loaded(groups),
            GroupEvent::Loaded { groups, skipped_records } => {
                tracing::warn!(%partition, groups, skipped_records, "group coordinator loaded without some records");
                self.loaded(groups);
            }
        }
    }
}
