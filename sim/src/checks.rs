//! What must hold at every moment, and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use barnabas::broker::Broker;
use barnabas::log::Log;
use barnabas::model::{BrokerId, LeaderEpoch, Offset, PartitionIndex};
use barnabas::records::{self, TransactionMarker};
use barnabas::runtime::fs;
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::history::{Ending, History, PartitionHistory, Transaction};
use crate::world::{Node, World};

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
    pub fn look(&mut self, world: &World, history: &History, topic: &str, tainted: &BTreeSet<BrokerId>) {
        for node in &world.nodes {
            let found = node.look(|broker| self.look_at(node, broker)).unwrap_or_default();
            found.into_iter().for_each(|violation| history.violation(violation));
        }
        for partition in history.partitions().into_keys() {
            let end = Offset(history.acknowledged_end(partition));
            let isr = world.isr(topic, partition).unwrap_or_default();
            for node in
                world.nodes.iter().filter(|node| isr.contains(&node.id) && !tainted.contains(&node.id))
            {
                let found = node.look(|broker| log_end(broker, topic, partition)).flatten();
                if let Some(found) = found.filter(|found| *found < end) {
                    history.violation(format!(
                        "{topic}-{partition}: {} is in sync with {found} records, {end} are acknowledged",
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
            let name = partition.topic_partition().to_string();
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

fn log_end(broker: &Broker, topic: &str, partition: i32) -> Option<Offset> {
    let partition = broker.services().replicas.partition(topic, PartitionIndex(partition)).ok()?;
    Some(partition.log().log_end_offset())
}

/// Waits until every partition is in sync everywhere. What is missing when it is not in time.
pub async fn until_whole(world: &World) -> Result<(), String> {
    let deadline = Instant::now() + HEAL_MAX;
    loop {
        if !world.all_run(HEAL_MAX).await {
            return Err("not all brokers start".to_owned());
        }
        let behind: Vec<String> = world
            .partitions()
            .into_iter()
            .filter(|(topic, index)| world.isr(topic, *index).is_none_or(|isr| isr.len() < world.nodes.len()))
            .map(|(topic, index)| format!("{topic}-{index} {:?}", world.isr(&topic, index)))
            .collect();
        if behind.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(format!("not in sync again: {}", behind.join(", ")));
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Compares the logs of all brokers with each other and with what clients were told. Nothing is produced any more.
pub fn check_logs(world: &World, history: &History, topic: &str) {
    let mut committed = BTreeSet::new();
    for (partition, told) in history.partitions() {
        let mut first: Option<(String, Vec<u8>)> = None;
        for node in &world.nodes {
            let read = node.look(|broker| {
                let partition = broker.services().replicas.partition(topic, PartitionIndex(partition));
                partition.map_err(|error| error.to_string()).and_then(|partition| read_all(&partition.log()))
            });
            let bytes = match read {
                Some(Ok(bytes)) => bytes,
                Some(Err(error)) => {
                    history
                        .violation(format!("{topic}-{partition} cannot be read at {}: {error}", node.host));
                    continue;
                }
                None => continue,
            };
            let found = Found::read(&bytes);
            let violations = found.violations.iter().cloned().chain(check_log(&found, &told));
            for violation in violations {
                history.violation(format!("{topic}-{partition} at {}: {violation}", node.host));
            }
            match &first {
                None => {
                    committed.extend(found.committed);
                    first = Some((node.host.clone(), bytes));
                }
                Some((host, other)) if *other != bytes => {
                    history
                        .violation(format!("{topic}-{partition} differs between {host} and {}", node.host));
                }
                Some(_) => {}
            }
        }
    }
    check_transactions(history, &committed);
}

/// Up to the high watermark.
fn read_all(log: &Log) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut from = log.log_start_offset();
    let end = log.high_watermark();
    while from < end {
        let found = log.read(from, 1 << 20, end, true).map_err(|error| error.to_string())?;
        let before = bytes.len();
        for slice in &found.slices {
            let start = bytes.len();
            bytes.resize(start + slice.size_bytes as usize, 0);
            fs::read_full_at(&*slice.file, &mut bytes[start..], slice.position)
                .map_err(|error| error.to_string())?;
        }
        let read = Bytes::copy_from_slice(&bytes[before..]);
        let last = records::batches(&read).filter_map(Result::ok).last();
        from = last.map(|batch| batch.header.next_offset()).ok_or_else(|| format!("nothing at {from}"))?;
    }
    Ok(bytes)
}

/// What stands in a log.
#[derive(Default)]
struct Found {
    payloads: BTreeMap<i64, String>,
    places: BTreeMap<String, i64>,
    /// Payloads of transactions that are committed.
    committed: BTreeSet<String>,
    violations: Vec<String>,
}

impl Found {
    fn read(bytes: &[u8]) -> Found {
        let mut found = Found::default();
        let mut open: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        let mut epoch = LeaderEpoch::UNKNOWN;
        let mut next = 0;
        for batch in records::batches(&Bytes::copy_from_slice(bytes)) {
            let Ok(batch) = batch else {
                found.violations.push("a batch is damaged".to_owned());
                break;
            };
            let header = batch.header;
            if header.leader_epoch < epoch {
                found.violations.push(format!("{} follows {epoch}", header.leader_epoch));
            }
            epoch = header.leader_epoch;
            if header.base_offset.0 != next {
                found.violations.push(format!("{} follows {}", header.base_offset, next - 1));
            }
            next = header.next_offset().0;
            if let Ok(Some(end)) = batch.end_transaction() {
                let payloads = open.remove(&header.producer_id.0).unwrap_or_default();
                if end.marker == TransactionMarker::Commit {
                    found.committed.extend(payloads);
                }
                continue;
            }
            for record in batch.records().into_iter().flatten().flatten() {
                let offset = record.offset(&header).0;
                let payload =
                    String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned();
                if let Some(other) = found.places.insert(payload.clone(), offset) {
                    found.violations.push(format!("{payload} is at {other} and at {offset}"));
                }
                if header.attributes.is_transactional() {
                    open.entry(header.producer_id.0).or_default().push(payload.clone());
                }
                found.payloads.insert(offset, payload);
            }
        }
        if !open.is_empty() {
            found.violations.push(format!("transactions are open: {open:?}"));
        }
        found
    }
}

/// A transaction's records are visible all or none, as its producer was told.
fn check_transactions(history: &History, committed: &BTreeSet<String>) {
    for (name, Transaction { ending, written }) in history.transactions() {
        let visible = written.iter().filter(|(_, payload)| committed.contains(payload)).count();
        let is_right = match ending {
            Ending::Committed => visible == written.len(),
            Ending::Aborted => visible == 0,
            Ending::Unknown => visible == 0 || visible == written.len(),
        };
        if !is_right {
            history
                .violation(format!("transaction {name} is {ending:?}: {visible} of {written:?} are visible"));
        }
    }
}

fn check_log(found: &Found, told: &PartitionHistory) -> Vec<String> {
    let mut violations = Vec::new();
    let Found { payloads, places, .. } = found;
    for (offset, payload) in told.acknowledged.iter().chain(&told.read) {
        match payloads.get(offset) {
            Some(found) if found == payload => {}
            Some(found) => violations.push(format!("{payload} was at {offset}, now {found} is")),
            None => violations.push(format!("{payload} was at {offset}, which is gone")),
        }
    }
    for payload in told.stored.iter().filter(|payload| !places.contains_key(*payload)) {
        violations.push(format!("{payload} was acknowledged and is gone"));
    }
    violations
}
