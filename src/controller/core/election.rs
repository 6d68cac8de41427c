//! Who leads a partition next.

use super::cluster::{Leadership, Partition};
use crate::metadata::control::LeaderAndIsr;
use crate::model::{BrokerId, ControllerEpoch, LeaderEpoch};

/// Why a partition's leadership is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// Replicas appeared or went: give the partition a leader if it lacks one, and take what is offline out of
    /// the ISR.
    Repair,
    /// Move leadership to the first replica of the assignment.
    Preferred,
    /// Elect a replica outside the ISR if it must be, at the operator's word.
    Unclean,
}

/// What should become of a partition's leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stands as it should.
    Keep,
    Write(Leadership),
    /// No in-sync replica is online: it depends on the topic's `unclean.leader.election.enable`.
    AskUnclean,
    /// There is no replica to elect.
    NoCandidate,
}

/// Decides on one partition, of which the replicas with `is_online` can lead.
///
/// `unclean_allowed` is `None` while the topic's setting has not been read; it is asked for only when the
/// answer matters. A new leader and each loss of ISR members raise the leader epoch by one.
pub fn decide(
    partition: &Partition,
    strategy: Strategy,
    controller_epoch: ControllerEpoch,
    unclean_allowed: Option<bool>,
    is_online: impl Fn(BrokerId) -> bool,
) -> Verdict {
    let replicas = &partition.assignment.replicas;
    let Some(current) = &partition.leadership else {
        return first_leadership(replicas, controller_epoch, is_online);
    };
    let old = &current.leader_and_isr;
    let in_sync: Vec<BrokerId> = old.isr.iter().copied().filter(|&id| is_online(id)).collect();
    let leader_is_online = is_online(old.leader);
    let write = |leader, isr, is_recovering| {
        Verdict::Write(Leadership {
            leader_and_isr: LeaderAndIsr {
                leader,
                leader_epoch: LeaderEpoch(old.leader_epoch.0 + 1),
                isr,
                partition_epoch: old.partition_epoch,
            },
            is_recovering,
            controller_epoch,
        })
    };

    match strategy {
        Strategy::Preferred => match replicas.first() {
            Some(&first) if first == old.leader => Verdict::Keep,
            Some(&first) if in_sync.contains(&first) => write(first, old.isr.clone(), current.is_recovering),
            _ => Verdict::NoCandidate,
        },
        Strategy::Unclean | Strategy::Repair if leader_is_online => {
            if strategy == Strategy::Unclean || in_sync.len() == old.isr.len() {
                Verdict::Keep
            } else {
                write(old.leader, in_sync, current.is_recovering)
            }
        }
        Strategy::Unclean | Strategy::Repair => {
            if let Some(&leader) = replicas.iter().find(|id| in_sync.contains(id)) {
                return write(leader, in_sync, current.is_recovering);
            }
            let online = replicas.iter().copied().find(|&id| is_online(id));
            match (online, strategy, unclean_allowed) {
                (Some(leader), Strategy::Unclean, _) | (Some(leader), _, Some(true)) => {
                    write(leader, vec![leader], true)
                }
                (Some(_), _, None) => Verdict::AskUnclean,
                (None, Strategy::Unclean, _) => Verdict::NoCandidate,
                _ if old.leader == BrokerId::NONE => Verdict::NoCandidate,
                // Each of the last in-sync replicas has every acknowledged record, so whichever comes back
                // first may lead: the ISR stays as it is.
                _ => write(BrokerId::NONE, old.isr.clone(), current.is_recovering),
            }
        }
    }
}

/// All online replicas are in sync with a log that does not exist yet.
fn first_leadership(
    replicas: &[BrokerId],
    controller_epoch: ControllerEpoch,
    is_online: impl Fn(BrokerId) -> bool,
) -> Verdict {
    let isr: Vec<BrokerId> = replicas.iter().copied().filter(|&id| is_online(id)).collect();
    let Some(&leader) = isr.first() else { return Verdict::NoCandidate };
    Verdict::Write(Leadership {
        leader_and_isr: LeaderAndIsr { leader, leader_epoch: LeaderEpoch(0), isr, partition_epoch: 0 },
        is_recovering: false,
        controller_epoch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::znodes::ReplicaAssignment;

    fn ids(numbers: &[i32]) -> Vec<BrokerId> {
        numbers.iter().copied().map(BrokerId).collect()
    }

    fn partition(leader: i32, isr: &[i32]) -> Partition {
        let leadership = Leadership {
            leader_and_isr: LeaderAndIsr {
                leader: BrokerId(leader),
                leader_epoch: LeaderEpoch(5),
                isr: ids(isr),
                partition_epoch: 9,
            },
            is_recovering: false,
            controller_epoch: ControllerEpoch(1),
        };
        Partition {
            assignment: ReplicaAssignment { replicas: ids(&[1, 2, 3]), ..Default::default() },
            leadership: Some(leadership),
        }
    }

    fn run(partition: &Partition, strategy: Strategy, unclean: Option<bool>, online: &[i32]) -> String {
        let verdict =
            decide(partition, strategy, ControllerEpoch(7), unclean, |id: BrokerId| online.contains(&id.0));
        match verdict {
            Verdict::Keep => "keep".into(),
            Verdict::AskUnclean => "ask".into(),
            Verdict::NoCandidate => "none".into(),
            Verdict::Write(new) => {
                let state = new.leader_and_isr;
                assert_eq!(new.controller_epoch, ControllerEpoch(7));
                let isr: Vec<i32> = state.isr.iter().map(|id| id.0).collect();
                let recovering = if new.is_recovering { " recovering" } else { "" };
                format!("{} epoch {} {isr:?}{recovering}", state.leader, state.leader_epoch)
            }
        }
    }

    #[track_caller]
    fn check(
        strategy: Strategy,
        state: (i32, &[i32]),
        online: &[i32],
        unclean: Option<bool>,
        expected: &str,
    ) {
        assert_eq!(run(&partition(state.0, state.1), strategy, unclean, online), expected);
    }

    #[test]
    fn the_first_leader_is_the_first_replica_online() {
        let new = Partition {
            assignment: ReplicaAssignment { replicas: ids(&[1, 2, 3]), ..Default::default() },
            leadership: None,
        };
        assert_eq!(run(&new, Strategy::Repair, None, &[2, 3]), "2 epoch 0 [2, 3]");
        assert_eq!(run(&new, Strategy::Repair, None, &[9]), "none");
    }

    #[test]
    fn repair_elects_shrinks_or_keeps() {
        use Strategy::Repair;
        //    strategy leader, isr       online      unclean      verdict
        check(Repair, (1, &[1, 2, 3]), &[1, 2, 3], None, "keep");
        check(Repair, (1, &[1, 2]), &[1, 2], None, "keep");
        check(Repair, (1, &[1, 2, 3]), &[1, 3], None, "1 epoch 6 [1, 3]");
        check(Repair, (1, &[1, 2, 3]), &[2, 3], None, "2 epoch 6 [2, 3]");
        check(Repair, (1, &[3, 1]), &[2, 3], None, "3 epoch 6 [3]");
        check(Repair, (-1, &[3]), &[3], None, "3 epoch 6 [3]");
        check(Repair, (1, &[1]), &[], None, "-1 epoch 6 [1]");
        check(Repair, (2, &[1, 2]), &[], None, "-1 epoch 6 [1, 2]");
        check(Repair, (-1, &[1]), &[], None, "none");
        check(Repair, (1, &[1]), &[2, 3], None, "ask");
        check(Repair, (1, &[1]), &[2, 3], Some(false), "-1 epoch 6 [1]");
        check(Repair, (-1, &[1]), &[2, 3], Some(false), "none");
        check(Repair, (1, &[1]), &[2, 3], Some(true), "2 epoch 6 [2] recovering");
    }

    #[test]
    fn preferred_elects_only_the_first_replica() {
        use Strategy::Preferred;
        check(Preferred, (1, &[1, 2]), &[1, 2], None, "keep");
        check(Preferred, (2, &[1, 2]), &[1, 2], None, "1 epoch 6 [1, 2]");
        check(Preferred, (2, &[1, 2]), &[2], None, "none");
        check(Preferred, (2, &[2, 3]), &[1, 2, 3], None, "none");
    }

    #[test]
    fn unclean_elects_whoever_is_online() {
        use Strategy::Unclean;
        check(Unclean, (1, &[1]), &[1, 2], None, "keep");
        check(Unclean, (1, &[1, 3]), &[2, 3], None, "3 epoch 6 [3]");
        check(Unclean, (1, &[1]), &[2, 3], None, "2 epoch 6 [2] recovering");
        check(Unclean, (1, &[1]), &[], None, "none");
    }
}
