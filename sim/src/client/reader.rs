use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use barnabas::records::{self, Batch};
use tokio::time::sleep;
use wire::fetch_response::PartitionData;

use super::code::OFFSET_OUT_OF_RANGE;
use super::{Client, Leadership};
use crate::history::History;
use crate::plan::Cleanup;
use crate::switch::Switch;

/// Reads one partition from its start, again and again from where it is, as a consumer does: it tells each leader the
/// newest epoch that it has heard of, so that one who was deposed and does not know it, whose log may end before the
/// reader's position, does not answer (KIP-320).
pub struct Reader {
    pub client: Client,
    pub name: String,
    pub topic: &'static str,
    pub partition: i32,
    pub isolation: Isolation,
    pub cleanup: Cleanup,
    pub history: History,
    pub is_over: Switch,
}

/// Which records of transactions a reader sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
}

/// Stands for the start of the log in a request for offsets.
const EARLIEST: i64 = -2;

impl Reader {
    pub async fn run(mut self) {
        let mut position = 0;
        let (mut leader, mut newest_epoch) = (None, -1);
        while !self.is_over.is_set() && self.history.violations().is_empty() {
            let found = match leader.take() {
                Some(known) => Some(known),
                None => self.client.leadership(self.topic, self.partition).await,
            };
            let Some(found) = found.filter(|found| found.epoch >= newest_epoch) else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            newest_epoch = found.epoch;
            match self.fetch(&found, position).await {
                Some(next) => {
                    position = next;
                    leader = Some(found);
                }
                None => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Where to go on; `None` where the broker has no answer for this partition.
    async fn fetch(&mut self, leader: &Leadership, position: i64) -> Option<i64> {
        let of = (self.topic, self.partition);
        let host = leader.host.as_str();
        let mut found = self.client.fetch(leader, of, position, self.isolation).await?;
        match found.error_code {
            0 => {}
            OFFSET_OUT_OF_RANGE => return self.start_over(host, position).await,
            _ => return None,
        }
        let Some(wire::Records::Bytes(bytes)) = found.records.take() else { return Some(position) };
        let mut aborted = Aborted::of(&found);
        let mut next = position;
        for batch in records::batches(&bytes) {
            let Ok(batch) = batch else { break };
            if batch.check_crc().is_err() {
                self.violation(format!("{host} sent a batch with a wrong checksum at {next}"));
                return None;
            }
            let is_aborted = self.isolation == Isolation::ReadCommitted && aborted.has(&batch);
            next = self.take(&batch, next, is_aborted)?;
        }
        Some(next)
    }

    /// Takes a batch's records from `next` on; where the one after it begins.
    fn take(&self, batch: &Batch, mut next: i64, is_aborted: bool) -> Option<i64> {
        for record in batch.records().ok()?.flatten() {
            let offset = record.offset(&batch.header).0;
            if offset < next {
                continue;
            }
            if offset != next && self.cleanup != Cleanup::Compaction {
                self.violation(format!("{} finds {offset} after {}", self.name, next - 1));
            }
            next = offset + 1;
            if batch.header.attributes.is_control() || is_aborted {
                continue;
            }
            let value: &[u8] = record.value.as_deref().unwrap_or_default();
            let payload = String::from_utf8_lossy(value);
            self.history.read(&self.name, self.partition, offset, &payload);
            if self.isolation == Isolation::ReadCommitted {
                self.history.read_as_committed(&payload);
            }
        }
        // Compaction may have taken the last ones.
        Some(next.max(batch.header.next_offset().0))
    }

    /// The start of the log has moved beyond the position, or what was read was not kept.
    async fn start_over(&mut self, host: &str, position: i64) -> Option<i64> {
        let earliest = self.client.offset(host, self.topic, self.partition, EARLIEST).await?;
        let is_right = self.history.is_lossy() || (self.cleanup.moves_start() && earliest > position);
        if !is_right {
            self.violation(format!(
                "{} has read up to {position}, which is out of range at {host}, whose log begins at {earliest}",
                self.name
            ));
            return None;
        }
        Some(earliest)
    }

    fn violation(&self, what: String) {
        self.history.violation(format!("{}-{}: {what}", self.topic, self.partition));
    }
}

/// The aborted transactions that a fetch told of, as consumers keep account of them.
struct Aborted {
    /// First offset and producer of those that are still to come.
    coming: VecDeque<(i64, i64)>,
    producers: BTreeSet<i64>,
}

impl Aborted {
    fn of(fetched: &PartitionData) -> Aborted {
        let told = fetched.aborted_transactions.iter().flatten();
        let mut coming: Vec<(i64, i64)> = told.map(|told| (told.first_offset, told.producer_id)).collect();
        coming.sort_unstable();
        Aborted { coming: coming.into(), producers: BTreeSet::new() }
    }

    /// Whether a batch, each in its turn, belongs to one of them.
    fn has(&mut self, batch: &Batch) -> bool {
        let producer = batch.header.producer_id.0;
        let next = batch.header.next_offset().0;
        while let Some((_, begun)) = self.coming.front().copied().filter(|(first, _)| *first < next) {
            self.coming.pop_front();
            self.producers.insert(begun);
        }
        if batch.header.attributes.is_control() {
            self.producers.remove(&producer);
            return false;
        }
        batch.header.attributes.is_transactional() && self.producers.contains(&producer)
    }
}
