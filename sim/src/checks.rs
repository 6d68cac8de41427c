//! What must hold at every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use barnabas::broker::Broker;
use barnabas::coordination::znodes;
use barnabas::model::{BrokerId, LeaderEpoch, Offset, PartitionIndex};
use barnabas::runtime::fs::FileSystem;
use tokio::time::{Instant, sleep};

use crate::history::History;
use crate::plan::TOPIC;
use crate::world::{Node, Placed, World};

/// A cluster without faults is whole again after so long.
const HEAL_MAX: Duration = Duration::from_secs(240);

/// What has been seen of the brokers so far.
#[derive(Default)]
pub struct Checks {
    leaders: BTreeMap<(String, LeaderEpoch), BrokerId>,
    /// By life of the leader's process too: one that starts again while nobody is controller leads on in the same epoch,
    /// from the high watermark that it noted last.
    high_watermarks: BTreeMap<(String, LeaderEpoch, usize), Offset>,
}

impl Checks {
    /// Looks at all brokers that run. Those in `tainted` may lack records.
    pub fn look(&mut self, world: &World, history: &History, tainted: &BTreeSet<BrokerId>) {
        for node in &world.nodes {
            let found = node.look(|broker| self.look_at(node, broker)).unwrap_or_default();
            found.into_iter().for_each(|violation| history.violation(violation));
        }
        for (partition, end) in history.acknowledged_ends() {
            let isr = world.isr(TOPIC, partition).unwrap_or_default();
            for node in
                world.nodes.iter().filter(|node| isr.contains(&node.id) && !tainted.contains(&node.id))
            {
                let found = node.look(|broker| log_end(broker, partition)).flatten();
                if let Some(found) = found.filter(|found| *found < end) {
                    history.violation(format!(
                        "{TOPIC}-{partition}: {} is in sync with {found} records, {end} are acknowledged",
                        node.host
                    ));
                }
            }
        }
    }

    fn look_at(&mut self, node: &Node, broker: &Broker) -> Vec<String> {
        let mut violations = Vec::new();
        for partition in broker.services().replicas.partitions() {
            let role = partition.role();
            if !role.is_leader {
                continue;
            }
            // A topic that was deleted and made again begins anew.
            let name = format!("{} {}", partition.topic_partition(), partition.topic_id());
            let key = (name, role.leader_epoch);
            let leader = *self.leaders.entry(key.clone()).or_insert(node.id);
            if leader != node.id {
                violations.push(format!("{key:?} is led by {leader} and by {}", node.id));
            }
            let high_watermark = partition.log().high_watermark();
            let in_life = (key.0.clone(), key.1, node.lives());
            let highest = self.high_watermarks.entry(in_life).or_insert(high_watermark);
            if high_watermark < *highest {
                violations
                    .push(format!("the high watermark of {key:?} went from {highest} to {high_watermark}"));
            }
            *highest = high_watermark.max(*highest);
        }
        violations
    }
}

fn log_end(broker: &Broker, partition: i32) -> Option<Offset> {
    let partition = broker.services().replicas.partition(TOPIC, PartitionIndex(partition)).ok()?;
    Some(partition.log().log_end_offset())
}

/// Waits until every partition is in sync where it belongs, and nothing is being moved or deleted. What is missing when
/// that takes too long.
pub async fn until_whole(world: &World) -> Result<(), String> {
    let deadline = Instant::now() + HEAL_MAX;
    loop {
        if !world.all_run(HEAL_MAX).await {
            return Err("not all brokers start".to_owned());
        }
        let partitions = world.partitions();
        let behind: Vec<&Placed> = partitions.iter().filter(|placed| !placed.is_whole()).collect();
        let deleting = world.children(znodes::DELETE_TOPICS);
        if behind.is_empty() && deleting.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let behind: Vec<String> = behind.iter().map(ToString::to_string).collect();
            return Err(format!("not whole again: {}; {deleting:?} are not deleted", behind.join(", ")));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Nothing is left of topics that were deleted. A replica that was moved away while its broker was down stays there, as in
/// Kafka.
pub fn check_directories(world: &World, history: &History) {
    let topics: BTreeSet<String> = world.partitions().into_iter().map(|placed| placed.topic).collect();
    for node in &world.nodes {
        for log_dir in world.log_dirs() {
            for entry in node.disk.list(&Path::new("/").join(log_dir)).unwrap_or_default() {
                let topic = entry.name.rsplit_once('-').map_or("", |(topic, _)| topic);
                if entry.is_directory && !topics.contains(topic) {
                    history.violation(format!("{} is left in {log_dir} of {}", entry.name, node.host));
                }
            }
        }
    }
}
