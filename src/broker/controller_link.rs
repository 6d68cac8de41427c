use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::controller::{AlterPartition, AlterPartitionError, ControllerHandle, WantedIsr};
use crate::coordination::BoxFuture;
use crate::interbroker::{AlterPartitionItem, Peer, PeerError, Peers, RemoteError};
use crate::model::{BrokerId, TopicPartition};
use crate::replica::{IsrAnswer, IsrChannel, IsrProposal, NoAnswer, ReplicaManager};

/// How this broker reaches whoever is the controller: itself by a direct call, another one over the network.
pub(super) struct ControllerLink {
    pub(super) me: BrokerId,
    pub(super) replicas: Arc<ReplicaManager>,
    pub(super) controller: ControllerHandle,
    pub(super) peers: Arc<Peers>,
}

/// A controller of this broker that is slower waits for a store that is out of reach, and would for as long as it is.
const ASK_HERE_MAX: Duration = Duration::from_secs(5);

type Answers = Vec<(TopicPartition, IsrAnswer)>;

impl ControllerLink {
    /// Has this broker's leaderships moved to others, asking a few times. Gives up without an error: what is still led
    /// then fails over as after a crash.
    pub(super) async fn shut_down(&self, attempts: i32, pause: Duration) {
        for attempt in 0..attempts.max(0) {
            if attempt > 0 {
                sleep(pause).await;
            }
            match self.ask_to_shut_down().await {
                Ok(remaining) if remaining.is_empty() => {
                    info!("leaderships are moved");
                    return;
                }
                Ok(remaining) => {
                    info!(partitions = remaining.len(), "some partitions have no other leader yet")
                }
                Err(error) => {
                    info!(%error, "the controller did not move the leaderships");
                    if matches!(error, PeerError::TimedOut) && self.controller.is_active() {
                        break;
                    }
                }
            }
        }
        warn!("stopping without having moved all leaderships");
    }

    async fn ask_to_shut_down(&self) -> Result<Vec<TopicPartition>, PeerError> {
        let broker_epoch = self.replicas.broker_epoch();
        if self.controller.is_active() {
            let asked = self.controller.shut_down(self.me, broker_epoch);
            let Ok(asked) = timeout(ASK_HERE_MAX, asked).await else { return Err(PeerError::TimedOut) };
            if let Ok(moved) = asked {
                let refused = RemoteError::StaleBrokerEpoch;
                return moved.map_err(|_| PeerError::Refused { error: refused });
            }
        }
        self.peers.ask_controller(async |peer| peer.controlled_shutdown(self.me, broker_epoch).await).await
    }

    async fn alter_here(&self, proposals: &[IsrProposal]) -> Result<Answers, NoAnswer> {
        let wanted = proposals.iter().map(|proposal| WantedIsr {
            partition: proposal.topic_partition.clone(),
            leader_epoch: proposal.leader_epoch,
            partition_epoch: proposal.partition_epoch,
            isr: proposal.isr.clone(),
            is_recovering: false,
        });
        let request = AlterPartition {
            broker: self.me,
            broker_epoch: self.replicas.broker_epoch(),
            partitions: wanted.collect(),
        };
        let altered = self.controller.alter_partition(request).await;
        let altered = altered.map_err(|_| no_answer("this broker is not the controller"))?;
        let altered = altered.map_err(no_answer)?;
        let answer = |result| match result {
            Ok(leadership) => IsrAnswer::Altered(leadership),
            Err(AlterPartitionError::IneligibleReplica) => IsrAnswer::Ineligible,
            Err(AlterPartitionError::NotController | AlterPartitionError::NotStored) => IsrAnswer::Again,
            Err(
                AlterPartitionError::UnknownPartition
                | AlterPartitionError::FencedLeaderEpoch
                | AlterPartitionError::InvalidUpdateVersion
                | AlterPartitionError::InvalidRequest,
            ) => IsrAnswer::OutOfDate,
        };
        let altered = altered.into_iter();
        Ok(altered.map(|(of, result)| (of, answer(result.map(|done| done.leader_and_isr)))).collect())
    }

    async fn alter_there(&self, proposals: &[IsrProposal]) -> Result<Answers, NoAnswer> {
        let items: Vec<AlterPartitionItem> = proposals
            .iter()
            .map(|proposal| AlterPartitionItem {
                topic_partition: proposal.topic_partition.clone(),
                topic_id: proposal.topic_id,
                leader_epoch: proposal.leader_epoch,
                partition_epoch: proposal.partition_epoch,
                isr: proposal.isr.clone(),
            })
            .collect();
        let broker_epoch = self.replicas.broker_epoch();
        let ask = async |peer: &Peer| peer.alter_partition(self.me, broker_epoch, &items).await;
        let altered = self.peers.ask_controller(ask).await.map_err(no_answer)?.into_iter();
        Ok(altered.map(|(of, result)| (of, result.map_or_else(remote_answer, IsrAnswer::Altered))).collect())
    }
}

/// An unknown topic id is asked for again: a controller that was just elected looks names up in what its own broker
/// was told, which may come late on a slow disk, and nothing else would make the leader ask.
fn remote_answer(error: RemoteError) -> IsrAnswer {
    match error {
        RemoteError::IneligibleReplica | RemoteError::OperationNotAttempted => IsrAnswer::Ineligible,
        RemoteError::UnknownTopicOrPartition
        | RemoteError::FencedLeaderEpoch
        | RemoteError::InvalidUpdateVersion
        | RemoteError::InvalidRequest
        | RemoteError::NewLeaderElected => IsrAnswer::OutOfDate,
        error => {
            debug!(?error, "an ISR is asked for again");
            IsrAnswer::Again
        }
    }
}

fn no_answer(reason: impl std::fmt::Display) -> NoAnswer {
    NoAnswer { reason: reason.to_string() }
}

impl IsrChannel for ControllerLink {
    fn alter<'a>(&'a self, proposals: &'a [IsrProposal]) -> BoxFuture<'a, Result<Answers, NoAnswer>> {
        Box::pin(async move {
            if self.controller.is_active() {
                self.alter_here(proposals).await
            } else {
                self.alter_there(proposals).await
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the simulation: the proposal came before the new controller's own broker knew of the topic, and the
    /// follower stayed out of sync.
    #[test]
    fn an_isr_is_asked_for_again_where_the_topic_is_not_known_yet() {
        assert!(matches!(remote_answer(RemoteError::UnknownTopicId), IsrAnswer::Again));
        assert!(matches!(remote_answer(RemoteError::FencedLeaderEpoch), IsrAnswer::OutOfDate));
    }
}
