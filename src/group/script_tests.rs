//! Histories of groups as scripts: `testdata/*.txt`, each command followed by `----` and what it brings about.
//!
//! `UPDATE_SCRIPTS=1 cargo test script_tests` writes what happens into the files, to be read before it is kept.
//!
//! Commands (`$X` is the member id that request `X` got; every request has a name):
//! `options key=value…` · `join X member=$A instance=i client=c session=ms rebalance=ms type=t protocols=a:meta,b
//! version=n` · `sync X member=$A generation=n assign=$A:x,$B:y` · `heartbeat X member=$A generation=n` ·
//! `leave X members=$A,$B instance=i` · `commit X offsets=t-0:5 member=$A generation=n retention=ms` ·
//! `commit X producer=p …` · `end X producer=p result=commit` · `fetch X offsets=t-0 stable=yes` ·
//! `remove-offsets X offsets=t-0` · `describe X` · `delete X` · `forget X offsets=t-0` · `advance ms` · `hold` (commits wait) ·
//! `release` · `refuse error` (writes are late) · `lose error` (writes are lost) · `reload` (from what is committed).
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::shard::{GroupCommand, GroupEvent, GroupReply, GroupShard, PendingWrite};
use super::stored::GroupRecord;
use super::*;
use crate::coordinator::{Deadline, Now, Outcome, Replayed, ReplyToken, Shard, WriteError};
use crate::model::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicName, TopicPartition,
};

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
    };
}

scripts! {
    cooperative_members_rejoin_one_by_one
    dynamic_members_learn_their_id_first
    failed_writes_are_undone
    groups_and_offsets_are_removed
    members_leave
    members_share_an_assignment
    offsets_are_committed_by_members
    offsets_expire
    oversized_groups_shrink
    rebalances_wait_for_all
    sessions_expire
    static_members_keep_their_place
    the_first_members_are_waited_for
    transactions_hold_offsets_back
}

#[track_caller]
fn check(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("src/group/testdata/{name}.txt"));
    let expected = std::fs::read_to_string(&path).unwrap();
    let mut script = Script::new();
    let mut actual = String::new();
    let mut is_output = false;
    for line in expected.lines() {
        let is_command = !line.is_empty() && !line.starts_with('#') && !is_output;
        if line == "----" {
            is_output = true;
        } else if is_output && line.is_empty() {
            is_output = false;
        } else if is_command {
            let output = script.run(line);
            writeln!(actual, "{line}\n----\n{output}").unwrap();
        } else if !is_output {
            writeln!(actual, "{line}").unwrap();
        }
    }
    if std::env::var_os("UPDATE_SCRIPTS").is_some() {
        std::fs::write(&path, &actual).unwrap();
        return;
    }
    for (at, (expected, actual)) in expected.lines().zip(actual.lines()).enumerate() {
        assert_eq!(actual, expected, "{}:{}", path.display(), at + 1);
    }
    assert_eq!(actual.lines().count(), expected.lines().count(), "{}", path.display());
}

struct Script {
    options: GroupOptions,
    shard: GroupShard,
    now_ms: i64,
    log: Vec<(GroupRecord, Option<ProducerId>)>,
    in_flight: VecDeque<InFlight>,
    is_holding: bool,
    labels: HashMap<ReplyToken, String>,
    answered: usize,
    /// Ids in the order in which they were given, with the label of the request that got them.
    ids: Vec<(MemberId, String)>,
    output: String,
}

struct InFlight {
    records: Vec<GroupRecord>,
    pending: PendingWrite,
    producer_id: Option<ProducerId>,
}

/// A command's words: its name, then `key=value`s.
struct Words<'a> {
    name: &'a str,
    label: String,
    fields: HashMap<&'a str, String>,
}

impl<'a> Words<'a> {
    fn parse(line: &'a str, ids: &[(MemberId, String)]) -> Words<'a> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let mut parsed = Words { name, label: String::new(), fields: HashMap::new() };
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => {
                    let mut value = value.to_owned();
                    for (id, label) in ids.iter().rev() {
                        value = value.replace(&format!("${label}"), id);
                    }
                    parsed.fields.insert(key, value);
                }
                None => parsed.label = word.to_owned(),
            }
        }
        parsed
    }

    fn text(&self, key: &str) -> &str {
        self.fields.get(key).map(String::as_str).unwrap_or_default()
    }

    fn number(&self, key: &str, default: i64) -> i64 {
        self.fields.get(key).map_or(default, |value| value.parse().expect("a number"))
    }

    fn list(&self, key: &str) -> Vec<&str> {
        self.text(key).split(',').filter(|item| !item.is_empty()).collect()
    }

    fn instance(&self) -> Option<InstanceId> {
        self.fields.get("instance").map(|text| text.as_str().into())
    }

    fn generation(&self) -> GenerationId {
        GenerationId(self.number("generation", -1) as i32)
    }

    fn partitions(&self) -> Vec<TopicPartition> {
        self.list("offsets")
            .into_iter()
            .map(|item| topic_partition(item.split(':').next().unwrap()))
            .collect()
    }

    fn join(&self) -> JoinGroup {
        let version = self.number("version", 3);
        let protocols =
            if self.fields.contains_key("protocols") { self.list("protocols") } else { vec!["range"] };
        JoinGroup {
            group_id: "g".into(),
            member_id: self.text("member").into(),
            group_instance_id: self.instance(),
            client_id: self.fields.get("client").cloned().unwrap_or_else(|| "client".to_owned()),
            client_host: "/host".to_owned(),
            session_timeout_ms: self.number("session", 10_000) as i32,
            rebalance_timeout_ms: self.number("rebalance", 60_000) as i32,
            protocol_type: self.fields.get("type").map_or("consumer", String::as_str).into(),
            protocols: protocols.into_iter().map(protocol).collect(),
            requires_known_member_id: version >= 4 && self.instance().is_none(),
            supports_skipping_assignment: version >= 9,
            reason: None,
        }
    }

    fn sync(&self) -> SyncGroup {
        let assign = |item: &str| {
            let (member_id, assignment) = item.split_once(':').expect("member:assignment");
            (member_id.into(), Bytes::from(assignment.to_owned()))
        };
        SyncGroup {
            group_id: "g".into(),
            member_id: self.text("member").into(),
            group_instance_id: self.instance(),
            generation_id: self.generation(),
            protocol_type: self.fields.get("type").map(|text| text.as_str().into()),
            protocol_name: self.fields.get("protocol").map(|text| text.as_str().into()),
            assignments: self.list("assign").into_iter().map(assign).collect(),
        }
    }

    fn leave(&self) -> LeaveGroup {
        let leaving = |member_id: &str| LeavingMember {
            member_id: member_id.into(),
            group_instance_id: self.instance(),
            reason: None,
        };
        let members = self.list("members");
        let members = if members.is_empty() { vec![""] } else { members };
        LeaveGroup { group_id: "g".into(), members: members.into_iter().map(leaving).collect() }
    }

    fn commit(&self) -> GroupCommand {
        let offset = |item: &str| {
            let mut parts = item.split(':');
            OffsetToCommit {
                topic_partition: topic_partition(parts.next().unwrap()),
                offset: Offset(parts.next().unwrap().parse().unwrap()),
                leader_epoch: LeaderEpoch::UNKNOWN,
                metadata: parts.next().unwrap_or_default().to_owned(),
                commit_timestamp: None,
            }
        };
        let offsets: Vec<_> = self.list("offsets").into_iter().map(offset).collect();
        let (group_id, member_id) = (GroupId::from("g"), MemberId::from(self.text("member")));
        let (group_instance_id, generation_id) = (self.instance(), self.generation());
        if self.fields.contains_key("producer") {
            return GroupCommand::CommitTransactionalOffsets(CommitTransactionalOffsets {
                group_id,
                member_id,
                group_instance_id,
                generation_id,
                producer_id: ProducerId(self.number("producer", 0)),
                producer_epoch: ProducerEpoch(0),
                guard: None,
                offsets,
            });
        }
        GroupCommand::CommitOffsets(CommitOffsets {
            group_id,
            member_id,
            group_instance_id,
            generation_id,
            retention_ms: self.fields.get("retention").map(|value| value.parse().unwrap()),
            offsets,
        })
    }

    /// The request, or `None` if the words name none.
    fn request(&self, random: u8) -> Option<GroupCommand> {
        let (group_id, partitions) = (GroupId::from("g"), self.partitions());
        Some(match self.name {
            "join" => GroupCommand::Join(self.join(), [random; 16]),
            "sync" => GroupCommand::Sync(self.sync()),
            "heartbeat" => GroupCommand::Heartbeat(Heartbeat {
                group_id,
                member_id: self.text("member").into(),
                group_instance_id: self.instance(),
                generation_id: self.generation(),
            }),
            "leave" => GroupCommand::Leave(self.leave()),
            "commit" => self.commit(),
            "end" => GroupCommand::EndTransaction {
                producer_id: ProducerId(self.number("producer", 0)),
                is_commit: self.text("result") == "commit",
            },
            "fetch" => GroupCommand::FetchOffsets(FetchOffsets {
                group_id,
                partitions: self.fields.contains_key("offsets").then_some(partitions),
                require_stable: self.fields.contains_key("stable"),
            }),
            "remove-offsets" => GroupCommand::DeleteOffsets(DeleteOffsets { group_id, partitions }),
            "describe" => GroupCommand::Describe(group_id),
            "delete" => GroupCommand::Delete(group_id),
            "forget" => GroupCommand::ForgetPartitions(Arc::new(partitions.into_iter().collect())),
            _ => return None,
        })
    }
}

fn topic_partition(text: &str) -> TopicPartition {
    let (topic, partition) = text.rsplit_once('-').expect("topic-partition");
    TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(partition.parse().unwrap()))
}

/// `name:topics` where the metadata is a subscription to the topics (`a+b`), or `name` with none.
fn protocol(item: &str) -> Protocol {
    let (name, topics) = item.split_once(':').unwrap_or((item, ""));
    let topics: Vec<_> = topics.split('+').filter(|topic| !topic.is_empty()).collect();
    let mut metadata = vec![0, 0];
    metadata.extend((topics.len() as i32).to_be_bytes());
    for topic in topics {
        metadata.extend((topic.len() as i16).to_be_bytes());
        metadata.extend(topic.as_bytes());
    }
    Protocol { name: name.into(), metadata: metadata.into() }
}

impl Script {
    fn new() -> Script {
        let options = GroupOptions { initial_rebalance_delay_ms: 0, ..GroupOptions::default() };
        let mut script = Script {
            shard: GroupShard::new(Arc::new(options.clone())),
            options,
            now_ms: 0,
            log: Vec::new(),
            in_flight: VecDeque::new(),
            is_holding: false,
            labels: HashMap::new(),
            answered: 0,
            ids: Vec::new(),
            output: String::new(),
        };
        script.reload();
        script.output.clear();
        script
    }

    fn run(&mut self, line: &str) -> String {
        let words = Words::parse(line, &self.ids);
        if let Some(request) = words.request(self.labels.len() as u8 + 1) {
            let token = ReplyToken(self.labels.len() as u64);
            self.labels.insert(token, words.label.clone());
            let outcome = self.shard.handle(request, token, self.now());
            self.absorb(outcome);
        } else {
            self.control(&words);
        }
        self.commit_writes();
        self.tick();
        std::mem::take(&mut self.output)
    }

    fn control(&mut self, words: &Words<'_>) {
        match words.name {
            "options" => self.set_options(words),
            "advance" => self.advance(words.label.parse().expect("milliseconds")),
            "hold" => self.is_holding = true,
            "release" => self.is_holding = false,
            "refuse" => {
                for at in 0..self.in_flight.len() {
                    let now = self.now();
                    let outcome =
                        self.shard.refused(&mut self.in_flight[at].pending, error(&words.label), now);
                    self.absorb(outcome);
                }
            }
            "lose" => {
                for mut write in std::mem::take(&mut self.in_flight) {
                    let now = self.now();
                    let outcome = self.shard.refused(&mut write.pending, error(&words.label), now);
                    self.absorb(outcome);
                    let outcome = self.shard.discarded(write.records, write.pending, now);
                    self.absorb(outcome);
                }
            }
            "reload" => self.reload(),
            unknown => panic!("unknown command {unknown}"),
        }
    }

    fn set_options(&mut self, words: &Words<'_>) {
        let options = &mut self.options;
        options.initial_rebalance_delay_ms = words.number("initial-delay", 0) as i32;
        options.group_size_max = words.number("size", i64::from(i32::MAX)) as usize;
        options.offsets_retention_ms = words.number("retention", options.offsets_retention_ms);
        options.offsets_retention_check_interval_ms =
            words.number("check-interval", options.offsets_retention_check_interval_ms);
        self.reload();
        self.output.clear();
    }

    fn now(&self) -> Now {
        Now { timestamp: Timestamp(1_000_000 + self.now_ms), monotonic: Deadline(self.now_ms) }
    }

    /// Moves the clock, stopping at every moment at which the shard wants to be called.
    fn advance(&mut self, ms: i64) {
        let end = self.now_ms + ms;
        while let Some(next) = self.shard.next_deadline().filter(|next| next.0 <= end) {
            self.now_ms = self.now_ms.max(next.0);
            let length = self.output.len();
            self.commit_writes();
            self.tick();
            if self.output.len() > length {
                self.output.insert_str(length, &format!("at {}:\n", self.now_ms));
            }
        }
        self.now_ms = end;
    }

    fn tick(&mut self) {
        while self.shard.next_deadline().is_some_and(|deadline| deadline.0 <= self.now_ms) {
            let outcome = self.shard.tick(self.now());
            self.absorb(outcome);
            self.commit_writes();
        }
    }

    fn commit_writes(&mut self) {
        while !self.is_holding
            && let Some(write) = self.in_flight.pop_front()
        {
            let first_offset = Offset(self.log.len() as i64);
            self.log.extend(write.records.iter().map(|record| (record.clone(), write.producer_id)));
            let outcome = self.shard.committed(write.records, write.pending, first_offset, self.now());
            self.absorb(outcome);
        }
    }

    fn reload(&mut self) {
        assert!(self.in_flight.is_empty(), "a script that reloads has released its writes");
        self.shard = GroupShard::new(Arc::new(self.options.clone()));
        for (at, (record, producer_id)) in self.log.iter().enumerate() {
            let encoded = GroupShard::encode(record).unwrap();
            self.shard.replay(Replayed {
                offset: Offset(at as i64),
                timestamp: Timestamp(1_000_000),
                producer_id: *producer_id,
                key: Some(encoded.key),
                value: encoded.value,
            });
        }
        let outcome = self.shard.loaded(self.now());
        self.absorb(outcome);
    }

    fn absorb(&mut self, outcome: Outcome<GroupShard>) {
        for event in outcome.events {
            self.print_event(event);
        }
        for (token, reply) in outcome.replies {
            let label = self.labels.get(&token).cloned().expect("a reply has a request");
            self.answered += 1;
            self.print_reply(&label, reply);
        }
        for write in outcome.writes {
            for record in &write.records {
                self.print_record(record);
            }
            let producer_id = write.producer.map(|producer| producer.producer_id);
            self.in_flight.push_back(InFlight {
                records: write.records,
                pending: write.pending,
                producer_id,
            });
        }
    }

    fn print_event(&mut self, event: GroupEvent) {
        let text = match event {
            GroupEvent::RebalanceStarted { reason, .. } => format!("rebalance: {reason}"),
            GroupEvent::GenerationStarted { generation_id, members, .. } => {
                format!("generation {generation_id} of {members}")
            }
            GroupEvent::GroupEmptied { generation_id, .. } => format!("empty in generation {generation_id}"),
            GroupEvent::MemberRemoved { member_id, reason, .. } => {
                format!("removed {}: {reason}", self.alias(&member_id))
            }
            GroupEvent::StaticMemberReplaced { old_id, .. } => format!("replaced {}", self.alias(&old_id)),
            GroupEvent::GroupRemoved { .. } => "group removed".to_owned(),
            GroupEvent::WriteRefused { error, .. } => format!("write refused: {error:?}"),
            GroupEvent::Loaded { groups, skipped_records } => {
                format!("loaded {groups} groups, skipped {skipped_records}")
            }
        };
        self.print(&text);
    }

    fn print_record(&mut self, record: &GroupRecord) {
        let text = match record {
            GroupRecord::Offset { topic_partition, value: Some(value), .. } => {
                let expires = value.expire_timestamp.map(|at| format!(" until {}", at.0 - 1_000_000));
                format!("write {topic_partition}={}{}", value.offset, expires.unwrap_or_default())
            }
            GroupRecord::Offset { topic_partition, value: None, .. } => {
                format!("write {topic_partition} gone")
            }
            GroupRecord::Group { value: Some(group), .. } => {
                let members = group
                    .members
                    .iter()
                    .map(|member| format!("{}:{}", self.alias(&member.member_id), text(&member.assignment)));
                format!(
                    "write generation {} [{}]",
                    group.generation_id,
                    members.collect::<Vec<_>>().join(" ")
                )
            }
            GroupRecord::Group { value: None, .. } => "write group gone".to_owned(),
        };
        self.print(&text);
    }

    fn print_reply(&mut self, label: &str, reply: GroupReply) {
        let text = match reply {
            GroupReply::Join(Ok(joined)) => {
                self.learn(&joined.member_id, label);
                self.joined(&joined)
            }
            GroupReply::Join(Err(refused)) => {
                if refused.error == GroupError::MemberIdRequired {
                    self.learn(&refused.member_id, label);
                }
                format!("{:?} {}", refused.error, self.alias(&refused.member_id))
            }
            GroupReply::Sync(Ok(synced)) => format!("assigned {}", text(&synced.assignment)),
            GroupReply::Sync(Err(error)) => format!("{error:?}"),
            GroupReply::Done(Ok(())) => "ok".to_owned(),
            GroupReply::Done(Err(error)) => format!("{error:?}"),
            GroupReply::Leave(result) | GroupReply::Offsets(result) => results(result),
            GroupReply::FetchOffsets(Ok(mut offsets)) => {
                offsets.sort_by(|one, other| one.topic_partition.cmp(&other.topic_partition));
                offsets.iter().map(fetched).collect::<Vec<_>>().join(" ")
            }
            GroupReply::FetchOffsets(Err(error)) => format!("{error:?}"),
            GroupReply::Describe(group) => {
                let members = group
                    .members
                    .iter()
                    .map(|member| format!("{}:{}", self.alias(&member.member_id), text(&member.assignment)));
                let members = members.collect::<Vec<_>>().join(" ");
                format!("{} {}/{} [{members}]", group.state.as_str(), group.protocol_type, group.protocol)
            }
            GroupReply::List(_) => panic!("scripts do not list"),
        };
        self.print(format!("{label}: {text}").trim_end());
    }

    fn joined(&self, joined: &Joined) -> String {
        let members: Vec<_> = joined.members.iter().map(|member| self.alias(&member.member_id)).collect();
        format!(
            "joined as {} generation={} leader={} protocol={}{}{}",
            self.alias(&joined.member_id),
            joined.generation_id,
            self.alias(&joined.leader_id),
            joined.protocol_name.as_deref().unwrap_or("none"),
            if members.is_empty() { String::new() } else { format!(" members=[{}]", members.join(" ")) },
            if joined.skip_assignment { " skip" } else { "" },
        )
    }

    fn print(&mut self, line: &str) {
        writeln!(self.output, "{line}").unwrap();
    }

    fn learn(&mut self, member_id: &MemberId, label: &str) {
        if self.ids.iter().all(|(known, _)| known != member_id) {
            self.ids.push((member_id.clone(), label.to_owned()));
        }
    }

    fn alias(&self, member_id: &MemberId) -> String {
        if member_id.is_empty() {
            return String::new();
        }
        let known = self.ids.iter().find(|(known, _)| known == member_id);
        known.map_or_else(|| "$?".to_owned(), |(_, label)| format!("${label}"))
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fetched(offset: &FetchedOffset) -> String {
    let value = offset.error.map_or_else(|| offset.offset.to_string(), |error| format!("{error:?}"));
    format!("{}={value}", offset.topic_partition)
}

fn results(result: Result<Vec<Result<(), GroupError>>, GroupError>) -> String {
    let one = |result: Result<(), GroupError>| {
        result.map_or_else(|error| format!("{error:?}"), |()| "ok".to_owned())
    };
    match result {
        Ok(results) => results.into_iter().map(one).collect::<Vec<_>>().join(" "),
        Err(error) => format!("all {error:?}"),
    }
}

fn error(name: &str) -> WriteError {
    match name {
        "timed-out" => WriteError::TimedOut,
        "not-leader" => WriteError::NotLeader,
        "not-enough" => WriteError::NotEnoughReplicas,
        "too-large" => WriteError::TooLarge,
        unknown => panic!("unknown error {unknown}"),
    }
}
