//! ISRs of leaders whose controller may be too old to be asked: below `inter.broker.protocol.version` 2.7-IV2 leaders
//! write them to the store themselves, and tell the controller now and then which they wrote.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use crate::coordination::znodes::{self, IsrChange, PartitionState};
use crate::coordination::{BoxFuture, Create, CreateMode, Store, StoreError};
use crate::metadata::control::LeaderAndIsr;
use crate::model::{Timestamp, TopicPartition};
use crate::replica::{IsrAnswer, IsrChannel, IsrProposal, NoAnswer};
use crate::runtime::Clock;
use crate::runtime::task::Shutdown;

/// Writes ISRs to the store, each only over the state that the leader knows.
pub(super) struct StoredIsrs {
    store: Arc<dyn Store>,
    clock: Clock,
    news: Mutex<News>,
}

/// Kafka's intervals: changes come in bursts, of which the controller is told once.
const ANNOUNCEMENT_CHECK: Duration = Duration::from_millis(2_500);
const QUIET_MS: i64 = 5_000;
const UNTOLD_MS_MAX: i64 = 60_000;

impl StoredIsrs {
    pub(super) fn new(store: Arc<dyn Store>, clock: Clock) -> StoredIsrs {
        let news = News { last_told: clock.now(), ..News::default() };
        StoredIsrs { store, clock, news: Mutex::new(news) }
    }

    async fn alter_one(&self, proposal: &IsrProposal) -> IsrAnswer {
        let of = &proposal.topic_partition;
        let answer = match self.write(proposal).await {
            Ok(answer) => answer,
            Err(StoreError::NoNode { .. }) => IsrAnswer::OutOfDate,
            // Somebody else wrote in between, or it is not known who did: look again.
            Err(error) => {
                debug!(topic = %of.topic, partition = of.partition.0, %error, "an ISR is not stored yet");
                IsrAnswer::Again
            }
        };
        if matches!(answer, IsrAnswer::Altered(_)) {
            self.news.lock().add(of, self.clock.now());
        }
        answer
    }

    async fn write(&self, proposal: &IsrProposal) -> Result<IsrAnswer, StoreError> {
        let TopicPartition { topic, partition } = &proposal.topic_partition;
        let path = znodes::partition_state(topic, *partition);
        let node = self.store.read(&path).await?;
        let stored = match PartitionState::decode(&node) {
            Ok(stored) => stored,
            Err(error) => {
                warn!(path, %error, "the node cannot be read");
                return Ok(IsrAnswer::OutOfDate);
            }
        };
        let wanted = PartitionState { isr: proposal.replicas(), is_recovering: false, ..stored.clone() };
        let is_of_epoch = stored.leader_epoch == proposal.leader_epoch;
        if is_of_epoch && stored == wanted && node.stat.version > proposal.partition_epoch {
            // Written by an earlier attempt, whose answer was lost.
            return Ok(altered(&stored, node.stat.version));
        }
        if !is_of_epoch || node.stat.version != proposal.partition_epoch {
            let is_behind = node.stat.version < proposal.partition_epoch;
            return Ok(if is_behind { IsrAnswer::Again } else { IsrAnswer::OutOfDate });
        }
        let stat = self.store.set(&path, Some(wanted.encode()), Some(proposal.partition_epoch)).await?;
        Ok(altered(&wanted, stat.version))
    }

    /// Tells the controller of what was written, until the broker stops.
    pub(super) async fn announce(self: Arc<Self>, shutdown: Shutdown) {
        let mut stopping = shutdown.requested();
        let mut check = interval(ANNOUNCEMENT_CHECK);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = check.tick() => self.announce_due().await,
                () = &mut stopping => return,
            }
        }
    }

    async fn announce_due(&self) {
        let due = self.news.lock().take_due(self.clock.now());
        if due.is_empty() {
            return;
        }
        let create = Create {
            path: format!("{}/{}", znodes::ISR_CHANGES, znodes::ISR_CHANGE_PREFIX),
            data: Some(IsrChange(due.iter().cloned().collect()).encode()),
            mode: CreateMode::PersistentSequential,
        };
        if let Err(error) = self.store.create(create).await {
            debug!(%error, "changes of ISRs are told later");
            self.news.lock().untold.extend(due);
        }
    }
}

impl IsrChannel for StoredIsrs {
    fn alter<'a>(
        &'a self,
        proposals: &'a [IsrProposal],
    ) -> BoxFuture<'a, Result<Vec<(TopicPartition, IsrAnswer)>, NoAnswer>> {
        Box::pin(async move {
            let alterations = proposals
                .iter()
                .map(|proposal| async { (proposal.topic_partition.clone(), self.alter_one(proposal).await) });
            Ok(join_all(alterations).await)
        })
    }
}

fn altered(state: &PartitionState, version: i32) -> IsrAnswer {
    IsrAnswer::Altered(LeaderAndIsr {
        leader: state.leader,
        leader_epoch: state.leader_epoch,
        isr: state.isr.clone(),
        partition_epoch: version,
    })
}

/// Changes that the controller has not been told of.
#[derive(Debug, Default)]
struct News {
    untold: BTreeSet<TopicPartition>,
    last_change: Timestamp,
    last_told: Timestamp,
}

impl News {
    fn add(&mut self, partition: &TopicPartition, now: Timestamp) {
        self.untold.insert(partition.clone());
        self.last_change = now;
    }

    /// Everything, once no change came for a while, or one has waited for long.
    fn take_due(&mut self, now: Timestamp) -> BTreeSet<TopicPartition> {
        let is_quiet = now.since_ms(self.last_change) > QUIET_MS;
        let is_late = now.since_ms(self.last_told) > UNTOLD_MS_MAX;
        if self.untold.is_empty() || !(is_quiet || is_late) {
            return BTreeSet::new();
        }
        self.last_told = now;
        std::mem::take(&mut self.untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::MemoryEnsemble;
    use crate::model::{BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, TopicId, TopicName};

    fn partition() -> TopicPartition {
        TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(0))
    }

    fn ids(numbers: &[i32]) -> Vec<BrokerId> {
        numbers.iter().copied().map(BrokerId).collect()
    }

    fn proposal(leader_epoch: i32, partition_epoch: i32, isr: &[i32]) -> IsrProposal {
        IsrProposal {
            topic_partition: partition(),
            topic_id: TopicId::ZERO,
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch,
            isr: isr.iter().map(|&id| BrokerId(id).into()).collect(),
        }
    }

    /// A store that holds: leader 1 in epoch 4, ISR 1 and 2, version 0.
    async fn stored() -> (Arc<dyn Store>, StoredIsrs) {
        let store: Arc<dyn Store> = Arc::new(MemoryEnsemble::new().session());
        let of = partition();
        let state = PartitionState {
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(4),
            isr: ids(&[1, 2]),
            controller_epoch: ControllerEpoch(9),
            is_recovering: false,
        };
        let nodes = [
            ("/brokers".to_owned(), None),
            (znodes::TOPICS.to_owned(), None),
            (znodes::topic(&of.topic), None),
            (znodes::partitions(&of.topic), None),
            (znodes::partition(&of.topic, of.partition), None),
            (znodes::partition_state(&of.topic, of.partition), Some(state.encode())),
            (znodes::ISR_CHANGES.to_owned(), None),
        ];
        for (path, data) in nodes {
            store.create(Create { path, data, mode: CreateMode::Persistent }).await.unwrap();
        }
        (Arc::clone(&store), StoredIsrs::new(store, Clock::manual(Timestamp(1_000))))
    }

    async fn ask(isrs: &StoredIsrs, proposal: IsrProposal) -> IsrAnswer {
        isrs.alter(&[proposal]).await.unwrap().remove(0).1
    }

    #[tokio::test]
    async fn an_isr_is_written_over_the_state_that_the_leader_knows() {
        let (store, isrs) = stored().await;
        let IsrAnswer::Altered(state) = ask(&isrs, proposal(4, 0, &[1])).await else {
            panic!("it is altered")
        };
        assert_eq!((state.partition_epoch, state.isr), (1, ids(&[1])));
        let path = znodes::partition_state("t", PartitionIndex(0));
        let written = PartitionState::decode(&store.read(&path).await.unwrap()).unwrap();
        assert_eq!((written.isr, written.controller_epoch), (ids(&[1]), ControllerEpoch(9)));
        // Asked for again, as the answer was lost.
        let IsrAnswer::Altered(state) = ask(&isrs, proposal(4, 0, &[1])).await else { panic!("it stands") };
        assert_eq!(state.partition_epoch, 1);
        assert_eq!(ask(&isrs, proposal(4, 0, &[1, 2])).await, IsrAnswer::OutOfDate);
        assert_eq!(ask(&isrs, proposal(3, 1, &[1, 2])).await, IsrAnswer::OutOfDate);
    }

    #[tokio::test]
    async fn a_read_from_a_server_that_lags_is_repeated() {
        let (_, isrs) = stored().await;
        assert_eq!(ask(&isrs, proposal(4, 7, &[1])).await, IsrAnswer::Again);
    }

    #[tokio::test]
    async fn the_controller_is_told_once_of_a_burst() {
        let (store, isrs) = stored().await;
        ask(&isrs, proposal(4, 0, &[1])).await;
        ask(&isrs, proposal(4, 1, &[1, 2])).await;
        isrs.announce_due().await;
        assert_eq!(store.children(znodes::ISR_CHANGES).await.unwrap(), [""; 0]);
        isrs.clock.advance_ms(QUIET_MS + 1);
        isrs.announce_due().await;
        isrs.announce_due().await;
        assert_eq!(store.children(znodes::ISR_CHANGES).await.unwrap(), ["isr_change_0000000000"]);
    }

    #[test]
    fn changes_that_never_pause_are_told_each_minute() {
        let mut news = News::default();
        let told: Vec<i64> = (1..=130)
            .map(|second| second * 1_000)
            .filter(|&now| {
                news.add(&partition(), Timestamp(now));
                !news.take_due(Timestamp(now)).is_empty()
            })
            .collect();
        assert_eq!(told, [61_000, 122_000]);
    }
}
