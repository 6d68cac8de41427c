//! Leaders ask for other ISRs (AlterPartition).

use snafu::Snafu;

use super::cluster::{Leadership, Partition};
use super::event::{AlterPartition, AlteredPartitions, BrokerError, Reply, StoreCall, WantedIsr};
use super::{Asked, Core, Pending, Work};
use crate::metadata::control::{IsrMember, LeaderAndIsr};
use crate::model::{BrokerEpoch, BrokerId, TopicPartition};

/// Why a partition's ISR was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
pub enum AlterPartitionError {
    #[snafu(display("the partition does not exist"))]
    UnknownPartition,
    /// The leader has heard of a later controller than this one.
    #[snafu(display("the leader knows more than the controller"))]
    NotController,
    #[snafu(display("the partition has a later leader"))]
    FencedLeaderEpoch,
    /// Somebody else wrote the state.
    #[snafu(display("the leader does not know the partition's last state"))]
    InvalidUpdateVersion,
    /// A recovering leader is alone, who has recovered does not begin again, and who does not lead has no say.
    #[snafu(display("the broker cannot ask for this"))]
    InvalidRequest,
    #[snafu(display(
        "a replica's broker is not live, about to stop, or registered anew since the leader heard of it"
    ))]
    IneligibleReplica,
    /// The store did not take the state: ask again.
    #[snafu(display("the store refused the partition's state"))]
    NotStored,
}

type Outcome = Result<Leadership, AlterPartitionError>;

impl Core {
    pub(super) fn alter_partition(&mut self, token: u64, request: AlterPartition) {
        if let Err(error) = self.check_broker(request.broker, request.broker_epoch) {
            self.effects.replies.push((token, Reply::Altered(Err(error))));
            return;
        }
        let mut outcomes = AlteredPartitions::with_capacity(request.partitions.len());
        for (position, wanted) in request.partitions.into_iter().enumerate() {
            let outcome = match self.judge(request.broker, &wanted) {
                Ok(Judgement::Stands(leadership)) => Ok(leadership),
                Ok(Judgement::Write(leadership)) => {
                    let partition = wanted.partition.clone();
                    let pending = Pending::Isr {
                        position,
                        partition: partition.clone(),
                        leadership: leadership.clone(),
                    };
                    self.call(pending, StoreCall::SetState { partition, leadership });
                    // Stands until the store has answered.
                    Err(AlterPartitionError::InvalidUpdateVersion)
                }
                Err(error) => Err(error),
            };
            outcomes.push((wanted.partition, outcome));
        }
        self.asked = Some((token, Asked::Alteration(outcomes)));
        // What follows from the change must not keep the leader waiting.
        self.work.extend([Work::Flush, Work::Answer, Work::EndCaughtUpReassignments]);
    }

    /// Whether the broker is registered under this epoch.
    pub fn check_broker(&self, broker: BrokerId, epoch: BrokerEpoch) -> Result<(), BrokerError> {
        let known = self.cluster.broker(broker).ok_or(BrokerError::Unknown)?;
        if known.registration.epoch == epoch { Ok(()) } else { Err(BrokerError::StaleEpoch) }
    }

    /// A broker that came back since may have lost what the leader knows it to have (KIP-903).
    fn is_registered_under(&self, member: &IsrMember) -> bool {
        let registered = self.cluster.broker(member.id).map(|broker| broker.registration.epoch);
        member.broker_epoch.is_none() || member.broker_epoch == registered
    }

    fn judge(&self, broker: BrokerId, wanted: &WantedIsr) -> Result<Judgement, AlterPartitionError> {
        let known = self.cluster.partition(&wanted.partition);
        let judgement = compare(known.ok_or(AlterPartitionError::UnknownPartition)?, broker, wanted)?;
        if let Judgement::Write(mut new) = judgement {
            let is_eligible = |member: &IsrMember| {
                self.cluster.is_available(member.id)
                    && !self.is_retiring(&wanted.partition, member.id)
                    && self.is_registered_under(member)
            };
            if !wanted.isr.iter().all(is_eligible) {
                return Err(AlterPartitionError::IneligibleReplica);
            }
            new.controller_epoch = self.controller_epoch;
            return Ok(Judgement::Write(new));
        }
        Ok(judgement)
    }

    pub(super) fn isr_written(
        &mut self,
        position: usize,
        of: &TopicPartition,
        mut leadership: Leadership,
        partition_epoch: i32,
    ) {
        leadership.leader_and_isr.partition_epoch = partition_epoch;
        self.record_outcome(position, Ok(leadership.clone()));
        let Some(partition) = self.cluster.partition_mut(of) else { return };
        partition.leadership = Some(leadership);
        // The leader learns it from the answer; followers need not know.
        self.batch.publish(of);
        self.note_isr_change(of);
    }

    /// The store refused the write and holds what it held.
    pub(super) fn isr_not_stored(&mut self, position: usize) {
        self.record_outcome(position, Err(AlterPartitionError::NotStored));
    }

    /// The outcome of a change at this place of the request.
    fn record_outcome(&mut self, position: usize, outcome: Outcome) {
        if let Some((_, Asked::Alteration(outcomes))) = &mut self.asked
            && let Some((_, known)) = outcomes.get_mut(position)
        {
            *known = outcome;
        }
    }

    /// States that leaders wrote to the store themselves.
    pub(super) fn states_written(&mut self, states: Vec<(TopicPartition, Leadership)>) {
        for (of, leadership) in states {
            let controller_epoch = self.controller_epoch;
            let Some(partition) = self.cluster.partition_mut(&of) else { continue };
            let is_ours = leadership.controller_epoch <= controller_epoch;
            if is_ours && partition.leadership.as_ref() != Some(&leadership) {
                partition.leadership = Some(leadership);
            }
            self.batch.publish(&of);
            self.note_isr_change(&of);
        }
        self.work.extend([Work::Flush, Work::EndCaughtUpReassignments]);
    }
}

enum Judgement {
    /// A repetition, as the answer to an earlier request was lost: that is the state already.
    Stands(Leadership),
    Write(Leadership),
}

/// What the wish makes of the partition's state; the order of the checks is Kafka's.
fn compare(
    partition: &Partition,
    broker: BrokerId,
    wanted: &WantedIsr,
) -> Result<Judgement, AlterPartitionError> {
    let current = partition.leadership.as_ref().ok_or(AlterPartitionError::UnknownPartition)?;
    let state = &current.leader_and_isr;
    if wanted.partition_epoch > state.partition_epoch || wanted.leader_epoch > state.leader_epoch {
        return Err(AlterPartitionError::NotController);
    }
    if wanted.leader_epoch < state.leader_epoch {
        return Err(AlterPartitionError::FencedLeaderEpoch);
    }
    let is_same_isr =
        wanted.isr.len() == state.isr.len() && wanted.isr.iter().all(|member| state.isr.contains(&member.id));
    if is_same_isr && wanted.is_recovering == current.is_recovering && broker == state.leader {
        return Ok(Judgement::Stands(current.clone()));
    }
    if wanted.partition_epoch < state.partition_epoch {
        return Err(AlterPartitionError::InvalidUpdateVersion);
    }
    // Kafka would make any broker the leader that knows the epochs; only the leader can know them.
    let is_leader = broker == state.leader;
    let begins_again = wanted.is_recovering && !current.is_recovering;
    if !is_leader || begins_again || (wanted.is_recovering && wanted.isr.len() > 1) {
        return Err(AlterPartitionError::InvalidRequest);
    }
    Ok(Judgement::Write(Leadership {
        leader_and_isr: LeaderAndIsr {
            isr: wanted.isr.iter().map(|member| member.id).collect(),
            ..state.clone()
        },
        is_recovering: wanted.is_recovering,
        controller_epoch: current.controller_epoch,
    }))
}
