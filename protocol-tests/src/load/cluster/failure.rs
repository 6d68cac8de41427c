use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use wire::metadata_response::MetadataResponseTopic;

use super::takeover::await_controller;
use super::{Ensemble, Members, ReplicatedTopics};
use crate::load::LoadError;
use crate::load::requests::{PRODUCE_VERSION, Patience, one_record, produce_request};

/// A broker to kill.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub broker: i32,
    pub pid: u32,
}

/// What became of the partitions that the broker led. But for the first, times are counted from the end of its session,
/// when the cluster can know.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    pub was_controller: bool,
    /// Partitions that it led.
    pub led: usize,
    /// From its death to the end of its session.
    pub session: Duration,
    /// There is a controller; at once where it was another broker.
    pub controller: Duration,
    /// All others know another leader of each, or that there is none where it had the only replica.
    pub leaders: Duration,
    /// Each has taken a record with acks=all; `None` = it had the only replicas.
    pub written: Option<Duration>,
}

/// Partitions that one Produce request writes to.
const PARTITIONS_PER_REQUEST: usize = 500;

/// By topic.
type Partitions = BTreeMap<String, Vec<i32>>;

/// Kills a broker with -9 and watches the others.
pub async fn fail(
    members: &mut Members,
    ensemble: &mut Ensemble,
    topics: &ReplicatedTopics,
    failure: Failure,
) -> Result<Failed, LoadError> {
    let dead = failure.broker;
    let was_controller = ensemble.controller().await? == Some(dead);
    let led = led_by(members, topics, dead).await?;
    let pid = i32::try_from(failure.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| LoadError::Wrong { what: format!("{} is no process", failure.pid) })?;
    kill_process(pid, Signal::KILL).map_err(|error| LoadError::io("kill the broker")(error.into()))?;
    let died = Instant::now();
    members.forget(dead);
    let patience = Patience::to_see("the end of the broker's session");
    while ensemble.read(&format!("/brokers/ids/{dead}")).await?.is_some() {
        patience.short_pause().await?;
    }
    let ended = Instant::now();
    await_controller(ensemble).await?;
    let controller = ended.elapsed();
    let is_replicated = topics.replicas > 1;
    for name in led.keys() {
        for id in members.ids() {
            let have_left = |topic: &MetadataResponseTopic| {
                let mut leaders = topic.partitions.iter().map(|partition| partition.leader_id);
                leaders.all(|leader| leader != dead && (leader >= 0 || !is_replicated))
            };
            members.await_topic(id, name, "leaders in place of the broker", have_left).await?;
        }
    }
    let leaders = ended.elapsed();
    let count = led.values().map(Vec::len).sum();
    let written = if is_replicated {
        write_to_each(members, led).await?;
        Some(ended.elapsed())
    } else {
        None
    };
    Ok(Failed { was_controller, led: count, session: ended - died, controller, leaders, written })
}

/// The partitions that a broker leads, as it says itself.
async fn led_by(
    members: &mut Members,
    topics: &ReplicatedTopics,
    leader: i32,
) -> Result<Partitions, LoadError> {
    let mut led = Partitions::new();
    for name in topics.names() {
        let topic = members.topic(leader, &name).await?;
        let own = topic.partitions.iter().filter(|partition| partition.leader_id == leader);
        led.insert(name, own.map(|partition| partition.partition_index).collect());
    }
    led.retain(|_, partitions| !partitions.is_empty());
    Ok(led)
}

/// Writes one record to each, again where the leader refuses.
async fn write_to_each(members: &mut Members, mut left: Partitions) -> Result<(), LoadError> {
    let batch = one_record(Bytes::from_static(b"one record for every partition"));
    let patience = Patience::to_see("all partitions take a record");
    loop {
        for (name, partitions) in &mut left {
            let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
            let first = members.ids().first().copied().unwrap_or(-1);
            for partition in members.topic(first, name).await?.partitions {
                if partitions.contains(&partition.partition_index) {
                    by_leader.entry(partition.leader_id).or_default().push(partition.partition_index);
                }
            }
            for (leader, led) in by_leader {
                for some in led.chunks(PARTITIONS_PER_REQUEST) {
                    let request = produce_request(name, some.iter().map(|&index| (index, batch.clone())), -1);
                    let response = members.call(leader, PRODUCE_VERSION, &request).await?;
                    let answers = response.responses.iter().flat_map(|topic| &topic.partition_responses);
                    let written: Vec<i32> =
                        answers.filter(|answer| answer.error_code == 0).map(|answer| answer.index).collect();
                    partitions.retain(|partition| !written.contains(partition));
                }
            }
        }
        left.retain(|_, partitions| !partitions.is_empty());
        if left.is_empty() {
            return Ok(());
        }
        patience.pause().await?;
    }
}
