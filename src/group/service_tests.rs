//! The service over a log in memory: what only the runtime can show.
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, advance};

use super::*;
use crate::coordinator::memory_log::MemoryLog;
use crate::coordinator::{EncodedRecord, WriteError};
use crate::metadata::Cache;
use crate::model::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicName, TopicPartition,
};
use crate::records::{TransactionMarker, end_transaction_marker};
use crate::runtime::{Clock, Random};

struct Broker {
    log: MemoryLog,
    service: Arc<GroupService>,
}

/// A broker that has not been elected for any partition. All groups live in partition 0.
fn broker_on(log: &MemoryLog, options: GroupOptions) -> Broker {
    let service = GroupService::new(GroupServiceParts {
        options,
        log: Arc::new(log.clone()),
        metadata: Arc::new(Cache::default()),
        default_partition_count: 1,
        clock: Clock::manual(Timestamp(1_000_000)),
        random: Random::from_seed(1),
    });
    Broker { log: log.clone(), service: Arc::new(service) }
}

/// A broker that coordinates all groups.
async fn coordinator_on(log: &MemoryLog) -> Broker {
    let options = GroupOptions { initial_rebalance_delay_ms: 0, ..GroupOptions::default() };
    let broker = broker_on(log, options);
    broker.elect(0);
    broker.until_loaded().await;
    broker
}

async fn coordinator() -> Broker {
    coordinator_on(&MemoryLog::default()).await
}

impl Broker {
    fn elect(&self, leader_epoch: i32) {
        self.log.set_leader_epoch(PartitionIndex(0), LeaderEpoch(leader_epoch));
        self.service.on_elected(PartitionIndex(0), LeaderEpoch(leader_epoch));
    }

    async fn until_loaded(&self) {
        while self.service.describe(&"g".into()).await == Err(GroupError::CoordinatorLoadInProgress) {
            yield_now().await;
        }
    }

    fn spawn<F, R>(&self, call: impl FnOnce(Arc<GroupService>) -> F) -> JoinHandle<R>
    where
        F: Future<Output = R> + Send + 'static,
        R: Send + 'static,
    {
        tokio::spawn(call(Arc::clone(&self.service)))
    }

    fn spawn_commit(&self, partition: i32, offset: i64) -> JoinHandle<OffsetsResult> {
        self.spawn(move |service| async move { service.commit_offsets(commit("g", partition, offset)).await })
    }

    async fn commit(&self, partition: i32, offset: i64) -> OffsetsResult {
        self.service.commit_offsets(commit("g", partition, offset)).await
    }

    async fn fetch(&self, partition: i32) -> Result<i64, GroupError> {
        self.fetch_of("g", partition).await
    }

    async fn fetch_of(&self, group_id: &str, partition: i32) -> Result<i64, GroupError> {
        let partitions = Some(vec![topic_partition(partition)]);
        let request = FetchOffsets { group_id: group_id.into(), partitions, require_stable: false };
        Ok(self.service.fetch_offsets(request).await?.remove(0).offset.0)
    }

    async fn join(&self) -> Joined {
        self.service.join_group(join("g")).await.expect("the member joins")
    }

    async fn sync(&self, joined: &Joined) -> SyncResult {
        self.service.sync_group(sync(joined)).await
    }

    async fn state(&self) -> GroupState {
        self.service.describe(&"g".into()).await.expect("the coordinator is here").state
    }
}

fn topic_partition(partition: i32) -> TopicPartition {
    TopicPartition::new(TopicName::new("orders").unwrap(), PartitionIndex(partition))
}

fn commit(group_id: &str, partition: i32, offset: i64) -> CommitOffsets {
    let offset = OffsetToCommit {
        topic_partition: topic_partition(partition),
        offset: Offset(offset),
        leader_epoch: LeaderEpoch::UNKNOWN,
        metadata: String::new(),
        commit_timestamp: None,
    };
    CommitOffsets {
        group_id: group_id.into(),
        member_id: MemberId::default(),
        group_instance_id: None,
        generation_id: GenerationId::NONE,
        retention_ms: None,
        offsets: vec![offset],
    }
}

fn join(group_id: &str) -> JoinGroup {
    JoinGroup {
        group_id: group_id.into(),
        member_id: MemberId::default(),
        group_instance_id: None,
        client_id: "c".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![Protocol { name: "range".into(), metadata: Bytes::from_static(b"meta") }],
        requires_known_member_id: false,
        supports_skipping_assignment: false,
        reason: None,
    }
}

fn sync(joined: &Joined) -> SyncGroup {
    let assigned =
        joined.members.iter().map(|member| (member.member_id.clone(), Bytes::from_static(b"part")));
    SyncGroup {
        group_id: "g".into(),
        member_id: joined.member_id.clone(),
        group_instance_id: None,
        generation_id: joined.generation_id,
        protocol_type: None,
        protocol_name: None,
        assignments: assigned.collect(),
    }
}

/// Lets every task run until all of them wait.
async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn commits_are_answered_when_they_are_committed_and_not_before() {
    let broker = coordinator().await;
    assert_eq!(broker.commit(0, 5).await, Ok(vec![Ok(())]));
    broker.log.hold_commits();
    let waiting = broker.spawn_commit(0, 6);
    settle().await;
    assert!(!waiting.is_finished());
    assert_eq!(broker.fetch(0).await, Ok(5));
    broker.log.release(Ok(()));
    assert_eq!(waiting.await.unwrap(), Ok(vec![Ok(())]));
    assert_eq!(broker.fetch(0).await, Ok(6));
}

#[tokio::test(start_paused = true)]
async fn waiting_commits_do_not_hold_up_later_ones() {
    let broker = coordinator().await;
    broker.log.hold_commits();
    let first = broker.spawn_commit(0, 1);
    settle().await;
    let second = broker.spawn_commit(0, 2);
    settle().await;
    assert_eq!(broker.log.batches(PartitionIndex(0)).len(), 2);
    broker.log.release(Ok(()));
    assert_eq!(first.await.unwrap(), Ok(vec![Ok(())]));
    assert_eq!(second.await.unwrap(), Ok(vec![Ok(())]));
    assert_eq!(broker.fetch(0).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn commits_that_arrive_together_share_a_batch() {
    let broker = coordinator().await;
    let commits: Vec<_> = (0..100).map(|partition| broker.spawn_commit(partition, 7)).collect();
    for commit in commits {
        assert_eq!(commit.await.unwrap(), Ok(vec![Ok(())]));
    }
    let batches = broker.log.batches(PartitionIndex(0));
    assert!(batches.len() < 10, "{} batches", batches.len());
    assert_eq!(batches.iter().map(|batch| batch.header.record_count).sum::<i32>(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_too_large_alone_fails_alone() {
    let broker = coordinator().await;
    broker.log.limit_batches(400);
    let mut large = commit("g", 0, 1);
    large.offsets[0].metadata = "x".repeat(500);
    let large = broker.spawn(|service| async move { service.commit_offsets(large).await });
    let small = broker.spawn_commit(1, 2);
    assert_eq!(large.await.unwrap(), Ok(vec![Err(GroupError::InvalidCommitOffsetSize)]));
    assert_eq!(small.await.unwrap(), Ok(vec![Ok(())]));
}

#[tokio::test(start_paused = true)]
async fn failed_appends_change_nothing_and_are_answered_as_kafka_does() {
    for (fault, answer) in [
        (WriteError::UnknownTopicOrPartition, GroupError::CoordinatorNotAvailable),
        (WriteError::NotEnoughReplicas, GroupError::CoordinatorNotAvailable),
        (WriteError::NotLeader, GroupError::NotCoordinator),
        (WriteError::Storage, GroupError::NotCoordinator),
        (WriteError::TooLarge, GroupError::InvalidCommitOffsetSize),
    ] {
        let broker = coordinator().await;
        broker.commit(0, 5).await.unwrap();
        broker.log.fail_next_append(fault);
        assert_eq!(broker.commit(0, 6).await, Ok(vec![Err(answer)]), "{fault:?}");
        assert_eq!(broker.fetch(0).await, Ok(5));
        assert_eq!(broker.commit(0, 7).await, Ok(vec![Ok(())]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_commit_times_out_but_counts_once_it_is_committed() {
    let broker = coordinator().await;
    broker.log.hold_commits();
    let started = Instant::now();
    let commit = broker.spawn_commit(0, 5);
    assert_eq!(commit.await.unwrap(), Ok(vec![Err(GroupError::RequestTimedOut)]));
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    assert_eq!(broker.fetch(0).await, Ok(-1));
    broker.log.release(Ok(()));
    settle().await;
    assert_eq!(broker.fetch(0).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn too_few_replicas_after_the_append_refuse_what_stays_in_the_log() {
    let broker = coordinator().await;
    broker.log.hold_commits();
    let commit = broker.spawn_commit(0, 5);
    settle().await;
    broker.log.release(Err(WriteError::NotEnoughReplicasAfterAppend));
    assert_eq!(commit.await.unwrap(), Ok(vec![Err(GroupError::CoordinatorNotAvailable)]));
    assert_eq!(broker.fetch(0).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn a_lost_write_is_forgotten() {
    let broker = coordinator().await;
    broker.log.hold_commits();
    let commit = broker.spawn_commit(0, 5);
    settle().await;
    broker.log.release(Err(WriteError::NotLeader));
    assert_eq!(commit.await.unwrap(), Ok(vec![Err(GroupError::NotCoordinator)]));
    assert_eq!(broker.fetch(0).await, Ok(-1));
}

/// C041
#[tokio::test(start_paused = true)]
async fn while_loading_requests_are_put_off() {
    let log = MemoryLog::default();
    let go = log.hold_reads();
    let broker = broker_on(&log, GroupOptions::default());
    assert_eq!(broker.fetch(0).await, Err(GroupError::NotCoordinator));
    broker.elect(0);
    let loading = GroupError::CoordinatorLoadInProgress;
    assert_eq!(broker.fetch(0).await, Err(loading));
    assert_eq!(broker.commit(0, 1).await, Err(loading));
    assert_eq!(broker.service.list(&ListGroups::default()).await.error, Some(loading));
    let refused = JoinRefused { error: loading, member_id: MemberId::default() };
    assert_eq!(broker.service.join_group(join("g")).await, Err(refused));
    let beat = Heartbeat {
        group_id: "g".into(),
        member_id: "m".into(),
        group_instance_id: None,
        generation_id: GenerationId(1),
    };
    assert_eq!(broker.service.heartbeat(beat.clone()).await, Ok(()));
    let request = SyncGroup {
        group_id: "g".into(),
        member_id: "m".into(),
        group_instance_id: None,
        generation_id: GenerationId(1),
        protocol_type: None,
        protocol_name: None,
        assignments: Vec::new(),
    };
    assert_eq!(broker.service.sync_group(request).await, Err(GroupError::RebalanceInProgress));
    go.notify_one();
    broker.until_loaded().await;
    assert_eq!(broker.service.heartbeat(beat).await, Err(GroupError::UnknownMemberId));
    assert_eq!(broker.service.list(&ListGroups::default()).await, GroupListing::default());
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_log_is_read_again() {
    let log = MemoryLog::default();
    coordinator_on(&log).await.commit(0, 5).await.unwrap();
    log.set_unreadable(true);
    let broker = broker_on(&log, GroupOptions::default());
    broker.elect(1);
    settle().await;
    assert_eq!(broker.fetch(0).await, Err(GroupError::CoordinatorLoadInProgress));
    log.set_unreadable(false);
    advance(Duration::from_secs(1)).await;
    broker.until_loaded().await;
    assert_eq!(broker.fetch(0).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn stale_news_of_leadership_are_ignored() {
    let broker = coordinator().await;
    broker.elect(5);
    broker.until_loaded().await;
    broker.service.on_elected(PartitionIndex(0), LeaderEpoch(4));
    broker.service.on_resigned(PartitionIndex(0), Some(LeaderEpoch(4)));
    assert_eq!(broker.fetch(0).await, Ok(-1));
    broker.service.on_resigned(PartitionIndex(0), Some(LeaderEpoch(6)));
    assert_eq!(broker.fetch(0).await, Err(GroupError::NotCoordinator));
    broker.service.on_elected(PartitionIndex(0), LeaderEpoch(5));
    assert_eq!(broker.fetch(0).await, Err(GroupError::NotCoordinator));
    broker.elect(7);
    broker.until_loaded().await;
    assert_eq!(broker.fetch(0).await, Ok(-1));
    broker.service.on_resigned(PartitionIndex(0), None);
    assert_eq!(broker.fetch(0).await, Err(GroupError::NotCoordinator));
}

/// The controller gives a leader a new epoch whenever a replica goes. Found by simulation: the groups were loaded again,
/// those who waited were refused, and an offset showed that no replica but this one had.
#[tokio::test(start_paused = true)]
async fn a_new_epoch_of_the_same_leader_leaves_groups_as_they_are() {
    let broker = coordinator().await;
    broker.join().await;
    let waiting_join = broker.spawn(|service| async move { service.join_group(join("g")).await });
    broker.service.commit_offsets(commit("h", 0, 1)).await.unwrap();
    broker.log.hold_commits();
    let waiting_commit =
        broker.spawn(|service| async move { service.commit_offsets(commit("h", 0, 2)).await });
    settle().await;
    broker.service.on_elected(PartitionIndex(0), LeaderEpoch(1));
    assert_eq!(broker.fetch_of("h", 0).await, Ok(1));
    assert_eq!(broker.state().await, GroupState::PreparingRebalance);
    assert!(!waiting_join.is_finished());
    broker.log.release(Ok(()));
    assert_eq!(waiting_commit.await.unwrap(), Ok(vec![Ok(())]));
    assert_eq!(broker.fetch_of("h", 0).await, Ok(2));
    broker.service.on_resigned(PartitionIndex(0), Some(LeaderEpoch(0)));
    assert_eq!(broker.fetch_of("h", 0).await, Ok(2));
    broker.service.on_resigned(PartitionIndex(0), Some(LeaderEpoch(2)));
    assert_eq!(broker.fetch_of("h", 0).await, Err(GroupError::NotCoordinator));
    assert!(waiting_join.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn losing_the_partition_answers_all_who_wait() {
    let broker = coordinator().await;
    let leader = broker.join().await;
    let waiting_join = broker.spawn(|service| async move { service.join_group(join("g")).await });
    broker.log.hold_commits();
    let waiting_commit =
        broker.spawn(|service| async move { service.commit_offsets(commit("h", 0, 1)).await });
    settle().await;
    assert_eq!(broker.state().await, GroupState::PreparingRebalance);
    broker.service.on_resigned(PartitionIndex(0), Some(LeaderEpoch(1)));
    let refused = JoinRefused { error: GroupError::NotCoordinator, member_id: MemberId::default() };
    assert_eq!(waiting_join.await.unwrap(), Err(refused));
    assert_eq!(waiting_commit.await.unwrap(), Err(GroupError::NotCoordinator));
    assert_eq!(broker.sync(&leader).await, Err(GroupError::NotCoordinator));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_coordinator_is_not_available() {
    let broker = coordinator().await;
    broker.service.stop();
    assert_eq!(broker.fetch(0).await, Err(GroupError::CoordinatorNotAvailable));
    broker.elect(3);
    let listing = broker.service.list(&ListGroups::default()).await;
    assert_eq!(listing.error, Some(GroupError::CoordinatorNotAvailable));
}

#[tokio::test(start_paused = true)]
async fn the_next_coordinator_knows_members_and_offsets() {
    let log = MemoryLog::default();
    let broker = coordinator_on(&log).await;
    let joined = broker.join().await;
    assert_eq!(joined.generation_id, GenerationId(1));
    let synced = broker.sync(&joined).await.unwrap();
    broker.service.commit_offsets(commit("simple", 3, 9)).await.unwrap();

    let next = coordinator_on(&log).await;
    assert_eq!(next.state().await, GroupState::Stable);
    assert_eq!(next.sync(&joined).await, Ok(synced));
    let request = FetchOffsets { group_id: "simple".into(), partitions: None, require_stable: true };
    let fetched = next.service.fetch_offsets(request).await.unwrap();
    assert_eq!((&fetched[0].topic_partition, fetched[0].offset), (&topic_partition(3), Offset(9)));
    // The members' sessions begin anew: who does not come back is removed.
    advance(Duration::from_secs(9)).await;
    assert_eq!(next.state().await, GroupState::Stable);
    advance(Duration::from_secs(2)).await;
    settle().await;
    assert_eq!(next.state().await, GroupState::Empty);
}

#[tokio::test(start_paused = true)]
async fn a_deposed_coordinator_cannot_write() {
    let log = MemoryLog::default();
    let old = coordinator_on(&log).await;
    log.set_leader_epoch(PartitionIndex(0), LeaderEpoch(1));
    assert_eq!(old.commit(0, 1).await, Ok(vec![Err(GroupError::NotCoordinator)]));
}

#[tokio::test(start_paused = true)]
async fn a_transactions_offsets_wait_for_its_marker_also_across_a_reload() {
    let log = MemoryLog::default();
    let broker = coordinator_on(&log).await;
    broker.commit(0, 1).await.unwrap();
    let request = |producer, partition, offset| CommitTransactionalOffsets {
        group_id: "g".into(),
        member_id: MemberId::default(),
        group_instance_id: None,
        generation_id: GenerationId::NONE,
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(0),
        guard: None,
        offsets: commit("g", partition, offset).offsets,
    };
    for (producer, partition, offset) in [(7, 0, 5), (8, 1, 6), (9, 2, 7)] {
        let result = broker.service.commit_transactional_offsets(request(producer, partition, offset)).await;
        assert_eq!(result, Ok(vec![Ok(())]));
    }
    assert_eq!(broker.fetch(0).await, Ok(1));
    let end = |producer, marker| {
        let epoch = ProducerEpoch(0);
        let batch = end_transaction_marker(marker, ProducerId(producer), epoch, 0, Timestamp(0));
        log.append_raw(PartitionIndex(0), &batch);
    };
    end(7, TransactionMarker::Commit);
    end(8, TransactionMarker::Abort);
    broker.service.end_transaction(PartitionIndex(0), ProducerId(7), true).await.unwrap();
    broker.service.end_transaction(PartitionIndex(0), ProducerId(8), false).await.unwrap();
    for coordinator in [&broker, &coordinator_on(&log).await] {
        let offsets = (coordinator.fetch(0).await, coordinator.fetch(1).await, coordinator.fetch(2).await);
        assert_eq!(offsets, (Ok(5), Ok(-1), Ok(-1)));
        let partitions = Some(vec![topic_partition(2)]);
        let request = FetchOffsets { group_id: "g".into(), partitions, require_stable: true };
        let fetched = coordinator.service.fetch_offsets(request).await.unwrap();
        assert_eq!(fetched[0].error, Some(GroupError::UnstableOffsetCommit));
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_ends_early_waits_for_its_offsets() {
    let broker = coordinator().await;
    broker.log.hold_commits();
    let request = CommitTransactionalOffsets {
        group_id: "g".into(),
        member_id: MemberId::default(),
        group_instance_id: None,
        generation_id: GenerationId::NONE,
        producer_id: ProducerId(7),
        producer_epoch: ProducerEpoch(0),
        guard: None,
        offsets: commit("g", 0, 5).offsets,
    };
    let waiting = broker.spawn(|service| async move { service.commit_transactional_offsets(request).await });
    settle().await;
    let ended = broker.spawn(|service| async move {
        service.end_transaction(PartitionIndex(0), ProducerId(7), true).await
    });
    settle().await;
    assert!(!ended.is_finished());
    broker.log.release(Ok(()));
    assert_eq!(waiting.await.unwrap(), Ok(vec![Ok(())]));
    assert_eq!(ended.await.unwrap(), Ok(()));
    assert_eq!(broker.fetch(0).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn records_of_newer_coordinators_and_damage_do_not_stop_loading() {
    let log = MemoryLog::default();
    coordinator_on(&log).await.commit(0, 5).await.unwrap();
    let mut odd = crate::records::BatchBuilder::new();
    let newer = EncodedRecord { key: Bytes::from_static(b"\x00\x03\x00\x01g"), value: None };
    odd.append(Timestamp(0), Some(&newer.key), Some(b"\x00\x00?"), &[]);
    odd.append(Timestamp(0), None, Some(b"no key"), &[]);
    odd.append(Timestamp(0), Some(b"\x00\x01"), None, &[]);
    log.append_raw(PartitionIndex(0), &odd.build());
    assert_eq!(coordinator_on(&log).await.fetch(0).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn the_initial_delay_is_waited_for() {
    let broker = broker_on(&MemoryLog::default(), GroupOptions::default());
    broker.elect(0);
    broker.until_loaded().await;
    let started = Instant::now();
    broker.join().await;
    assert_eq!(started.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn groups_are_listed_by_state_and_type() {
    let broker = coordinator().await;
    broker.service.commit_offsets(commit("simple", 0, 1)).await.unwrap();
    broker.join().await;
    let list = |states: &[&str], types: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let filter = ListGroups { states: owned(states), types: owned(types) };
        let service = Arc::clone(&broker.service);
        async move {
            let mut names: Vec<_> = service
                .list(&filter)
                .await
                .groups
                .into_iter()
                .map(|group| group.group_id.to_string())
                .collect();
            names.sort();
            names
        }
    };
    assert_eq!(list(&[], &[]).await, ["g", "simple"]);
    assert_eq!(list(&["empty"], &["CLASSIC"]).await, ["simple"]);
    assert_eq!(list(&["Stable", "CompletingRebalance"], &[]).await, ["g"]);
    assert_eq!(list(&[], &["consumer"]).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn unnamed_groups_only_store_offsets() {
    let broker = coordinator().await;
    let unnamed = || GroupId::default();
    let refused = JoinRefused { error: GroupError::InvalidGroupId, member_id: MemberId::default() };
    assert_eq!(broker.service.join_group(join("")).await, Err(refused));
    let leave = LeaveGroup { group_id: unnamed(), members: Vec::new() };
    assert_eq!(broker.service.leave_group(leave).await, Err(GroupError::InvalidGroupId));
    let delete = DeleteOffsets { group_id: unnamed(), partitions: Vec::new() };
    assert_eq!(broker.service.delete_offsets(delete).await, Err(GroupError::InvalidGroupId));
    assert_eq!(broker.service.commit_offsets(commit("", 0, 1)).await, Ok(vec![Ok(())]));
    assert_eq!(broker.service.describe(&unnamed()).await.unwrap().state, GroupState::Empty);
    assert_eq!(
        broker.service.delete_groups(&[unnamed(), "x".into()]).await,
        [Ok(()), Err(GroupError::GroupIdNotFound)]
    );
}
