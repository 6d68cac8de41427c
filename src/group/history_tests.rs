//! Random histories of one group: whatever clients, clock and log do, the promises hold.
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::shard::{GroupCommand, GroupEvent, GroupReply, GroupShard, PendingWrite};
use super::stored::{GroupRecord, StoredGroup};
use super::*;
use crate::coordinator::{Deadline, Now, Outcome, Replayed, ReplyToken, Shard, WriteError};
use crate::model::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicName, TopicPartition,
};

#[derive(Clone, Debug)]
enum Op {
    /// A client joins, with the member id it last got unless it forgets it.
    Join {
        client: usize,
        forgets: bool,
        version: u8,
        protocols: usize,
    },
    Sync {
        client: usize,
        generation: i32,
    },
    Heartbeat {
        client: usize,
    },
    Leave {
        client: usize,
    },
    Commit {
        client: usize,
        as_member: bool,
        partition: i32,
        retention_ms: i64,
    },
    CommitTransactional {
        producer: i64,
        partition: i32,
    },
    EndTransaction {
        producer: i64,
        is_commit: bool,
    },
    RemoveOffsets {
        partition: i32,
    },
    DeleteGroup,
    Advance {
        ms: i64,
    },
    /// Writes wait from now on.
    Hold,
    /// Writes are committed from now on.
    Release,
    /// The oldest write is committed.
    CommitOne,
    /// Waiting writes are answered as late.
    Refuse,
    /// Waiting writes are lost.
    Lose,
    /// Another broker takes over; writes that wait did or did not reach it.
    FailOver {
        with_waiting: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let client = 0..5usize;
    prop_oneof![
        8 => (client.clone(), prop::bool::weighted(0.3), 3..10u8, 0..3usize)
            .prop_map(|(client, forgets, version, protocols)| Op::Join { client, forgets, version, protocols }),
        8 => (client.clone(), -1..2i32).prop_map(|(client, generation)| Op::Sync { client, generation }),
        3 => client.clone().prop_map(|client| Op::Heartbeat { client }),
        2 => client.clone().prop_map(|client| Op::Leave { client }),
        4 => (client, any::<bool>(), 0..3i32, prop_oneof![Just(-1i64), Just(3_000)]).prop_map(
            |(client, as_member, partition, retention_ms)| Op::Commit { client, as_member, partition, retention_ms }
        ),
        1 => (0..2i64, 0..3i32)
            .prop_map(|(producer, partition)| Op::CommitTransactional { producer, partition }),
        1 => (0..2i64, any::<bool>())
            .prop_map(|(producer, is_commit)| Op::EndTransaction { producer, is_commit }),
        1 => (0..3i32).prop_map(|partition| Op::RemoveOffsets { partition }),
        1 => Just(Op::DeleteGroup),
        5 => prop_oneof![0..200i64, 0..8_000i64, 0..40_000i64].prop_map(|ms| Op::Advance { ms }),
        1 => Just(Op::Hold),
        2 => Just(Op::Release),
        2 => Just(Op::CommitOne),
        1 => Just(Op::Refuse),
        1 => Just(Op::Lose),
        1 => any::<bool>().prop_map(|with_waiting| Op::FailOver { with_waiting }),
    ]
}

/// Clients 3 and 4 are static members.
fn instance(client: usize) -> Option<InstanceId> {
    (client >= 3).then(|| format!("i{client}").into())
}

/// One entry of the log: a record, or the end of a transaction.
#[derive(Clone)]
enum Entry {
    Record(GroupRecord, Option<ProducerId>),
    End(ProducerId, bool),
}

struct Waiting {
    records: Vec<GroupRecord>,
    pending: PendingWrite,
    producer_id: Option<ProducerId>,
}

#[derive(Default, Clone)]
struct Client {
    member_id: MemberId,
    generation_id: GenerationId,
    leads: Vec<MemberId>,
}

struct World {
    options: Arc<GroupOptions>,
    shard: GroupShard,
    now_ms: i64,
    log: Vec<Entry>,
    waiting: VecDeque<Waiting>,
    is_holding: bool,
    next_token: u64,
    /// Requests without an answer, and who sent them.
    open: HashMap<ReplyToken, usize>,
    clients: Vec<Client>,
    /// The generation that began last; `None` when it is not known, such as after a failover.
    generation: Option<GenerationId>,
    /// A static member's new id was lost, of which nobody was told: the log knows it by its old one.
    is_replacement_lost: bool,
    fetched: Vec<FetchedOffset>,
    described: Option<GroupDescription>,
}

impl World {
    fn new(initial_rebalance_delay_ms: i32) -> World {
        let options = Arc::new(GroupOptions {
            initial_rebalance_delay_ms,
            group_size_max: 4,
            offsets_retention_ms: 20_000,
            offsets_retention_check_interval_ms: 5_000,
            ..GroupOptions::default()
        });
        let mut world = World {
            shard: GroupShard::new(Arc::clone(&options)),
            options,
            now_ms: 0,
            log: Vec::new(),
            waiting: VecDeque::new(),
            is_holding: false,
            next_token: 0,
            open: HashMap::new(),
            clients: vec![Client::default(); 5],
            generation: Some(GenerationId(0)),
            is_replacement_lost: false,
            fetched: Vec::new(),
            described: None,
        };
        world.shard = world.replayed();
        world
    }

    fn now(&self) -> Now {
        Now { timestamp: Timestamp(1_000_000 + self.now_ms), monotonic: Deadline(self.now_ms) }
    }

    fn send(&mut self, client: usize, command: GroupCommand) {
        let token = ReplyToken(self.next_token);
        self.next_token += 1;
        self.open.insert(token, client);
        let outcome = self.shard.handle(command, token, self.now());
        self.absorb(outcome);
    }

    fn absorb(&mut self, outcome: Outcome<GroupShard>) {
        for event in outcome.events {
            self.check_event(event);
        }
        for (token, reply) in outcome.replies {
            let client = self.open.remove(&token).expect("a request is answered exactly once");
            self.take_reply(client, reply);
        }
        for write in outcome.writes {
            assert!(!write.records.is_empty(), "an empty write is never committed");
            let producer_id = write.producer.map(|producer| producer.producer_id);
            self.waiting.push_back(Waiting { records: write.records, pending: write.pending, producer_id });
        }
    }

    fn check_event(&mut self, event: GroupEvent) {
        match event {
            GroupEvent::GenerationStarted { generation_id, .. }
            | GroupEvent::GroupEmptied { generation_id, .. } => {
                let last = self.generation.replace(generation_id);
                let expected = last.map(|last| GenerationId(last.0 + 1));
                assert!(
                    expected.is_none_or(|expected| expected == generation_id),
                    "generations count up by one"
                );
            }
            // Its next life begins anew.
            GroupEvent::GroupRemoved { .. } => self.generation = Some(GenerationId(0)),
            _ => {}
        }
    }

    fn take_reply(&mut self, client: usize, reply: GroupReply) {
        match reply {
            GroupReply::Join(Ok(joined)) => {
                if !joined.members.is_empty() {
                    let ids: HashSet<_> = joined.members.iter().map(|member| &member.member_id).collect();
                    assert!(ids.contains(&joined.member_id) && ids.len() == joined.members.len());
                    assert_eq!(joined.leader_id, joined.member_id);
                }
                self.clients[client] = Client {
                    leads: joined.members.iter().map(|member| member.member_id.clone()).collect(),
                    member_id: joined.member_id,
                    generation_id: joined.generation_id,
                };
            }
            GroupReply::Join(Err(refused)) if refused.error == GroupError::MemberIdRequired => {
                self.clients[client] = Client { member_id: refused.member_id, ..Client::default() };
            }
            GroupReply::Join(Err(_)) | GroupReply::Sync(Err(_)) => {}
            GroupReply::Sync(Ok(synced)) => {
                let Client { member_id, generation_id, .. } = &self.clients[client];
                let expected = self.stored_group().filter(|group| group.generation_id == *generation_id);
                let member = expected
                    .as_ref()
                    .and_then(|group| group.members.iter().find(|member| member.member_id == *member_id));
                // A client that was replaced or removed meanwhile is not looked for.
                if let Some(member) = member {
                    assert_eq!(synced.assignment, member.assignment, "what is answered is what is stored");
                }
            }
            GroupReply::FetchOffsets(result) => self.fetched = result.unwrap(),
            GroupReply::Describe(description) => self.described = Some(description),
            _ => {}
        }
    }

    /// The newest group record of the log.
    fn stored_group(&self) -> Option<StoredGroup> {
        let groups = self.log.iter().rev().find_map(|entry| match entry {
            Entry::Record(GroupRecord::Group { value, .. }, _) => Some(value.clone()),
            _ => None,
        });
        groups.flatten()
    }

    /// The offsets of the log, by a plain reading of it.
    fn stored_offsets(&self) -> BTreeMap<TopicPartition, Offset> {
        let mut stored: BTreeMap<TopicPartition, (usize, Offset)> = BTreeMap::new();
        let mut open: HashMap<ProducerId, Vec<(TopicPartition, usize, Offset)>> = HashMap::new();
        for (at, entry) in self.log.iter().enumerate() {
            match entry {
                Entry::Record(GroupRecord::Offset { topic_partition, value, .. }, producer_id) => {
                    match (value, producer_id) {
                        (Some(value), Some(producer_id)) => {
                            let write = (topic_partition.clone(), at, value.offset);
                            open.entry(*producer_id).or_default().push(write);
                        }
                        (Some(value), None) => {
                            stored.insert(topic_partition.clone(), (at, value.offset));
                        }
                        (None, _) => {
                            stored.remove(topic_partition);
                            open.values_mut()
                                .for_each(|writes| writes.retain(|write| write.0 != *topic_partition));
                        }
                    }
                }
                Entry::Record(GroupRecord::Group { .. }, _) => {}
                Entry::End(producer_id, is_commit) => {
                    for (topic_partition, at, offset) in open.remove(producer_id).unwrap_or_default() {
                        if *is_commit && stored.get(&topic_partition).is_none_or(|(newest, _)| *newest < at) {
                            stored.insert(topic_partition, (at, offset));
                        }
                    }
                }
            }
        }
        stored.into_iter().map(|(topic_partition, (_, offset))| (topic_partition, offset)).collect()
    }

    fn commit_oldest(&mut self) {
        let Some(write) = self.waiting.pop_front() else { return };
        let first_offset = Offset(self.log.len() as i64);
        let is_group = |record: &GroupRecord| matches!(record, GroupRecord::Group { .. });
        self.is_replacement_lost &= !write.records.iter().any(is_group);
        self.log.extend(write.records.iter().map(|record| Entry::Record(record.clone(), write.producer_id)));
        let outcome = self.shard.committed(write.records, write.pending, first_offset, self.now());
        self.absorb(outcome);
    }

    fn commit_if_allowed(&mut self) {
        while !self.is_holding && !self.waiting.is_empty() {
            self.commit_oldest();
        }
    }

    fn refuse(&mut self) {
        let now = self.now();
        for at in 0..self.waiting.len() {
            let outcome = self.shard.refused(&mut self.waiting[at].pending, WriteError::TimedOut, now);
            self.absorb(outcome);
        }
    }

    fn lose(&mut self) {
        let now = self.now();
        // What is written in answer to a loss comes later and is not lost with it.
        for mut write in std::mem::take(&mut self.waiting) {
            self.is_replacement_lost |= matches!(write.pending, PendingWrite::StaticMember { .. });
            let outcome = self.shard.refused(&mut write.pending, WriteError::NotEnoughReplicas, now);
            self.absorb(outcome);
            let outcome = self.shard.discarded(write.records, write.pending, now);
            self.absorb(outcome);
        }
    }

    fn advance(&mut self, ms: i64) {
        let end = self.now_ms + ms;
        while let Some(next) = self.shard.next_deadline().filter(|next| next.0 <= end) {
            self.now_ms = self.now_ms.max(next.0);
            let outcome = self.shard.tick(self.now());
            self.absorb(outcome);
            self.commit_if_allowed();
        }
        self.now_ms = end;
    }

    fn replayed(&self) -> GroupShard {
        let mut shard = GroupShard::new(Arc::clone(&self.options));
        for (at, entry) in self.log.iter().enumerate() {
            match entry {
                Entry::Record(record, producer_id) => {
                    let encoded = GroupShard::encode(record).unwrap();
                    shard.replay(Replayed {
                        offset: Offset(at as i64),
                        timestamp: Timestamp(1_000_000),
                        producer_id: *producer_id,
                        key: Some(encoded.key),
                        value: encoded.value,
                    });
                }
                Entry::End(producer_id, is_commit) => shard.replay_transaction_end(*producer_id, *is_commit),
            }
        }
        shard
    }

    fn fail_over(&mut self, with_waiting: bool) {
        if with_waiting {
            for write in std::mem::take(&mut self.waiting) {
                let entry = |record| Entry::Record(record, write.producer_id);
                self.log.extend(write.records.into_iter().map(entry));
            }
        }
        self.waiting.clear();
        self.open.clear();
        self.shard = self.replayed();
        self.generation = None;
        self.is_replacement_lost = false;
        let outcome = self.shard.loaded(self.now());
        self.absorb(outcome);
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Join { client, forgets, version, protocols } => {
                self.send(client, self.join(client, forgets, version, protocols));
            }
            Op::Sync { client, generation } => self.send(client, self.sync(client, generation)),
            Op::Heartbeat { client } => {
                let Client { member_id, generation_id, .. } = self.clients[client].clone();
                let group_instance_id = instance(client);
                let group_id = "g".into();
                let request = Heartbeat { group_id, member_id, group_instance_id, generation_id };
                self.send(client, GroupCommand::Heartbeat(request));
            }
            Op::Leave { client } => {
                let member_id = self.clients[client].member_id.clone();
                let leaving = LeavingMember { member_id, group_instance_id: instance(client), reason: None };
                let request = LeaveGroup { group_id: "g".into(), members: vec![leaving] };
                self.send(client, GroupCommand::Leave(request));
            }
            Op::Commit { client, as_member, partition, retention_ms } => {
                let member = if as_member { self.clients[client].clone() } else { Client::default() };
                let request = CommitOffsets {
                    group_id: "g".into(),
                    member_id: member.member_id,
                    group_instance_id: instance(client).filter(|_| as_member),
                    generation_id: if as_member { member.generation_id } else { GenerationId::NONE },
                    retention_ms: Some(retention_ms),
                    offsets: self.offsets(partition),
                };
                self.send(client, GroupCommand::CommitOffsets(request));
            }
            Op::CommitTransactional { producer, partition } => {
                let request = CommitTransactionalOffsets {
                    group_id: "g".into(),
                    member_id: MemberId::default(),
                    group_instance_id: None,
                    generation_id: GenerationId::NONE,
                    producer_id: ProducerId(producer),
                    producer_epoch: ProducerEpoch(0),
                    guard: None,
                    offsets: self.offsets(partition),
                };
                self.send(0, GroupCommand::CommitTransactionalOffsets(request));
            }
            Op::EndTransaction { producer, is_commit } => {
                self.end_transaction(ProducerId(producer), is_commit)
            }
            Op::RemoveOffsets { partition } => {
                let partitions = vec![topic_partition(partition)];
                self.send(0, GroupCommand::DeleteOffsets(DeleteOffsets { group_id: "g".into(), partitions }));
            }
            Op::DeleteGroup => self.send(0, GroupCommand::Delete("g".into())),
            Op::Advance { ms } => self.advance(ms),
            Op::Hold => self.is_holding = true,
            Op::Release => self.is_holding = false,
            Op::CommitOne => self.commit_oldest(),
            Op::Refuse => self.refuse(),
            Op::Lose => self.lose(),
            Op::FailOver { with_waiting } => self.fail_over(with_waiting),
        }
        self.commit_if_allowed();
        self.advance(0);
    }

    /// A marker stands behind the offsets of its transaction, so these are committed when it is.
    fn end_transaction(&mut self, producer_id: ProducerId, is_commit: bool) {
        while self.waiting.iter().any(|write| write.producer_id == Some(producer_id)) {
            self.commit_oldest();
        }
        self.log.push(Entry::End(producer_id, is_commit));
        self.send(0, GroupCommand::EndTransaction { producer_id, is_commit });
    }

    fn join(&self, client: usize, forgets: bool, version: u8, protocols: usize) -> GroupCommand {
        let member_id = if forgets { MemberId::default() } else { self.clients[client].member_id.clone() };
        let names: &[&str] = [&["range"][..], &["range", "sticky"], &["sticky", "range"]][protocols];
        let subscription = Bytes::from_static(b"\x00\x00\x00\x00\x00\x01\x00\x01t");
        let protocols = names
            .iter()
            .map(|name| Protocol { name: (*name).into(), metadata: subscription.clone() })
            .collect();
        let request = JoinGroup {
            group_id: "g".into(),
            member_id,
            group_instance_id: instance(client),
            client_id: format!("c{client}"),
            client_host: String::new(),
            session_timeout_ms: 6_000 + 2_000 * client as i32,
            rebalance_timeout_ms: 5_000 * client as i32,
            protocol_type: "consumer".into(),
            protocols,
            requires_known_member_id: version >= 4 && instance(client).is_none(),
            supports_skipping_assignment: version >= 9,
            reason: None,
        };
        let mut random = [0; 16];
        random[..8].copy_from_slice(&self.next_token.to_be_bytes());
        GroupCommand::Join(request, random)
    }

    /// Everybody's assignment is new, so that one generation's cannot be taken for another's.
    fn sync(&self, client: usize, generation: i32) -> GroupCommand {
        let Client { member_id, generation_id, leads } = self.clients[client].clone();
        let assignment = Bytes::from(self.next_token.to_string());
        GroupCommand::Sync(SyncGroup {
            group_id: "g".into(),
            member_id,
            group_instance_id: instance(client),
            generation_id: GenerationId(generation_id.0 + if generation < 0 { -1 } else { 0 }),
            protocol_type: None,
            protocol_name: None,
            assignments: leads.into_iter().map(|member_id| (member_id, assignment.clone())).collect(),
        })
    }

    fn offsets(&self, partition: i32) -> Vec<OffsetToCommit> {
        vec![OffsetToCommit {
            topic_partition: topic_partition(partition),
            offset: Offset(self.next_token as i64),
            leader_epoch: LeaderEpoch::UNKNOWN,
            metadata: String::new(),
            commit_timestamp: None,
        }]
    }

    /// What the shard answers is what the log says, and another shard that reads the log answers the same.
    fn check_offsets(&mut self) {
        if !self.waiting.is_empty() {
            return;
        }
        let request = || FetchOffsets { group_id: "g".into(), partitions: None, require_stable: false };
        self.send(0, GroupCommand::FetchOffsets(request()));
        let answered: BTreeMap<_, _> =
            self.fetched.iter().map(|offset| (offset.topic_partition.clone(), offset.offset)).collect();
        assert_eq!(answered, self.stored_offsets());
        let mut next = self.replayed();
        let outcome = next.handle(GroupCommand::FetchOffsets(request()), ReplyToken(0), self.now());
        let Some((_, GroupReply::FetchOffsets(Ok(replayed)))) = outcome.replies.into_iter().next() else {
            panic!("a fetch is answered at once");
        };
        assert_eq!(replayed, self.fetched);
    }

    /// A stable group is read from the log as it is.
    fn check_membership(&mut self) {
        if !self.waiting.is_empty() || self.is_replacement_lost {
            return;
        }
        self.send(0, GroupCommand::Describe("g".into()));
        let described = self.described.take().expect("a description is given at once");
        if described.state == GroupState::Stable {
            let mut next = self.replayed();
            let outcome = next.handle(GroupCommand::Describe("g".into()), ReplyToken(0), self.now());
            let Some((_, GroupReply::Describe(replayed))) = outcome.replies.into_iter().next() else {
                panic!("a description is given at once");
            };
            let sorted = |mut group: GroupDescription| {
                group.members.sort_by(|one, other| one.member_id.cmp(&other.member_id));
                group
            };
            assert_eq!(sorted(replayed), sorted(described));
        }
    }

    /// When everybody has gone silent, every request is answered and nobody is a member for ever.
    fn check_end(&mut self) {
        self.is_holding = false;
        self.commit_if_allowed();
        self.advance(1_000_000);
        assert_eq!(self.open, HashMap::new(), "requests without an answer");
        self.send(0, GroupCommand::Describe("g".into()));
        let described = self.described.take().expect("a description is given at once");
        assert!(matches!(described.state, GroupState::Empty | GroupState::Dead), "{described:?}");
        assert_eq!(described.members, []);
    }
}

fn topic_partition(partition: i32) -> TopicPartition {
    TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(partition))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn promises_hold_in_every_history(
        delay_ms in prop_oneof![Just(0), Just(3_000)],
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new(delay_ms);
        for (at, op) in ops.into_iter().enumerate() {
            world.run(op);
            if at % 5 == 0 {
                world.check_offsets();
                world.check_membership();
            }
        }
        world.check_end();
    }
}
