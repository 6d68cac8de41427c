use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use snafu::Snafu;
use tokio::time::sleep;
use tracing::{debug, info};

use super::leading::IsrProposal;
use super::{Partition, ReplicaManager};
use crate::coordination::BoxFuture;
use crate::metadata::control::LeaderAndIsr;
use crate::model::TopicPartition;
use crate::runtime::Clock;
use crate::runtime::task::Shutdown;

/// Who stores the ISRs that leaders propose: the controller, or the store itself where the protocol level is old.
pub trait IsrChannel: Send + Sync + 'static {
    /// One answer for each proposal, in any order.
    fn alter<'a>(
        &'a self,
        proposals: &'a [IsrProposal],
    ) -> BoxFuture<'a, Result<Vec<(TopicPartition, IsrAnswer)>, NoAnswer>>;
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsrAnswer {
    /// This is what stands now.
    Altered(LeaderAndIsr),
    /// Not now: a proposed member is not live. The ISR stays, and may be proposed again.
    Ineligible,
    /// The leader's state is out of date: it will hear of a newer one, and waits for that.
    OutOfDate,
    /// Ask again.
    Again,
}

/// Nobody answered: the controller is not known, not reachable, or not the controller any more.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("the controller did not answer: {reason}"))]
pub struct NoAnswer {
    pub reason: String,
}

/// Asks for the ISRs that this broker's leaders propose: one request at a time, with all that is proposed.
pub struct AlterIsr {
    replicas: Arc<ReplicaManager>,
    channel: Arc<dyn IsrChannel>,
    clock: Clock,
}

/// As Kafka pauses before it asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

impl AlterIsr {
    pub fn new(replicas: Arc<ReplicaManager>, channel: Arc<dyn IsrChannel>, clock: Clock) -> AlterIsr {
        AlterIsr { replicas, channel, clock }
    }

    /// Runs until the broker stops.
    pub async fn run(self, shutdown: Shutdown) {
        let mut stopping = shutdown.requested();
        tokio::select! {
            () = self.ask_for_ever() => {}
            () = &mut stopping => {}
        }
    }

    async fn ask_for_ever(&self) {
        loop {
            let proposing = self.replicas.replication().proposals.take().await;
            let partitions =
                proposing.iter().filter_map(|of| self.replicas.partition(&of.topic, of.partition).ok());
            let proposals: Vec<IsrProposal> =
                partitions.filter_map(|partition| partition.proposal()).collect();
            if proposals.is_empty() {
                continue;
            }
            if !self.ask(&proposals).await {
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// `false` when something has to be asked again.
    async fn ask(&self, proposals: &[IsrProposal]) -> bool {
        let answers = match self.channel.alter(proposals).await {
            Ok(answers) => answers.into_iter().collect::<HashMap<_, _>>(),
            Err(error) => {
                debug!(%error, "ISRs are not changed yet");
                proposals.iter().for_each(|proposal| self.propose_again(&proposal.topic_partition));
                return false;
            }
        };
        let mut is_done = true;
        for proposal in proposals {
            let of = &proposal.topic_partition;
            let Ok(partition) = self.replicas.partition(&of.topic, of.partition) else { continue };
            is_done &= self.apply(&partition, proposal, answers.get(of).unwrap_or(&IsrAnswer::Again));
        }
        is_done
    }

    fn apply(&self, partition: &Partition, proposal: &IsrProposal, answer: &IsrAnswer) -> bool {
        let TopicPartition { topic, partition: index } = &proposal.topic_partition;
        match answer {
            IsrAnswer::Altered(state) => partition.isr_altered(state, self.clock.now()),
            IsrAnswer::Ineligible => {
                info!(%topic, partition = index.0, isr = ?proposal.replicas(), "the controller does not take the ISR");
                partition.isr_refused(proposal.leader_epoch);
            }
            IsrAnswer::OutOfDate => {
                info!(%topic, partition = index.0, leader_epoch = proposal.leader_epoch.0,
                    "the controller knows a newer state of the partition");
            }
            IsrAnswer::Again => {
                self.propose_again(&proposal.topic_partition);
                return false;
            }
        }
        true
    }

    fn propose_again(&self, partition: &TopicPartition) {
        self.replicas.replication().proposals.add(partition);
    }
}
