//! Who leads a partition next.

use super::cluster::{Condition, Leadership, Partition};
use crate::coordination::znodes::ReplicaAssignment;
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
    /// Brokers are about to stop: they lead nothing and leave the ISR, where others can do without them.
    Yield,
    /// A reassignment begins or goes on: nothing changes but the epoch, so that all replicas take the new list.
    Renew,
    /// A reassignment ends: the leader has to be one of the target replicas.
    Reassign,
    /// A replica goes for good.
    Remove(BrokerId),
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

/// What an election looks at besides the partition.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub controller_epoch: ControllerEpoch,
    /// The topic's setting; `None` while it has not been read. It is asked for only when the answer matters.
    pub unclean_allowed: Option<bool>,
    /// Leaders that were elected uncleanly are marked until they have recovered
    /// (`inter.broker.protocol.version` 3.2 and later).
    pub marks_recovery: bool,
}

/// Decides on one partition, whose replicas are in these conditions. Each change raises the leader epoch by one.
pub fn decide(
    partition: &Partition,
    strategy: Strategy,
    rules: Rules,
    condition: impl Fn(BrokerId) -> Condition,
) -> Verdict {
    let assignment = &partition.assignment;
    let Some(current) = &partition.leadership else {
        return first_leadership(&assignment.replicas, rules, condition);
    };
    let election = Election { assignment, current, rules, condition };
    match strategy {
        Strategy::Repair => election.repair(),
        Strategy::Preferred => election.preferred(),
        Strategy::Unclean => election.unclean(),
        Strategy::Yield => election.yield_leadership(),
        Strategy::Renew => election.write(current.leader_and_isr.leader, current.leader_and_isr.isr.clone()),
        Strategy::Reassign => election.reassign(),
        Strategy::Remove(replica) => election.remove(replica),
    }
}

struct Election<'a, C> {
    assignment: &'a ReplicaAssignment,
    current: &'a Leadership,
    rules: Rules,
    condition: C,
}

impl<C: Fn(BrokerId) -> Condition> Election<'_, C> {
    fn repair(&self) -> Verdict {
        let state = &self.current.leader_and_isr;
        if self.is_serving(state.leader) {
            let serving: Vec<BrokerId> =
                state.isr.iter().copied().filter(|&id| self.is_serving(id)).collect();
            return if serving.len() == state.isr.len() {
                Verdict::Keep
            } else {
                self.write(state.leader, serving)
            };
        }
        match (self.clean_election(), self.first_online(), self.rules.unclean_allowed) {
            (Some(elected), _, _) => elected,
            (None, Some(leader), Some(true)) => self.write_unclean(leader),
            (None, Some(_), None) => Verdict::AskUnclean,
            _ if state.leader == BrokerId::NONE => Verdict::NoCandidate,
            // Each of the last in-sync replicas has every acknowledged record, so whichever comes back first
            // may lead: the ISR stays as it is.
            _ => self.write(BrokerId::NONE, state.isr.clone()),
        }
    }

    fn preferred(&self) -> Verdict {
        let state = &self.current.leader_and_isr;
        match self.assignment.replicas.first() {
            Some(&first) if first == state.leader => Verdict::Keep,
            Some(&first) if self.is_online(first) && state.isr.contains(&first) => {
                self.write(first, state.isr.clone())
            }
            _ => Verdict::NoCandidate,
        }
    }

    fn unclean(&self) -> Verdict {
        if self.is_online(self.current.leader_and_isr.leader) {
            return Verdict::Keep;
        }
        match (self.clean_election(), self.first_online()) {
            (Some(elected), _) => elected,
            (None, Some(leader)) => self.write_unclean(leader),
            (None, None) => Verdict::NoCandidate,
        }
    }

    fn yield_leadership(&self) -> Verdict {
        let state = &self.current.leader_and_isr;
        let is_leaving = |id| (self.condition)(id) == Condition::ShuttingDown;
        let staying: Vec<BrokerId> = state.isr.iter().copied().filter(|&id| !is_leaving(id)).collect();
        if is_leaving(state.leader) {
            return match self.first_in_sync(&self.assignment.replicas) {
                Some(leader) => self.write(leader, staying),
                None => Verdict::NoCandidate,
            };
        }
        if staying.len() == state.isr.len() || staying.is_empty() {
            return Verdict::Keep;
        }
        self.write(state.leader, staying)
    }

    fn reassign(&self) -> Verdict {
        let state = &self.current.leader_and_isr;
        let target = self.assignment.target();
        if target.contains(&state.leader) && self.is_online(state.leader) {
            return self.write(state.leader, state.isr.clone());
        }
        match self.first_in_sync(&target) {
            Some(leader) => self.write(leader, state.isr.clone()),
            None => Verdict::NoCandidate,
        }
    }

    fn remove(&self, replica: BrokerId) -> Verdict {
        let state = &self.current.leader_and_isr;
        if !state.isr.contains(&replica) {
            return Verdict::Keep;
        }
        let leader = if state.leader == replica { BrokerId::NONE } else { state.leader };
        let isr = match state.isr.as_slice() {
            [only] => vec![*only],
            isr => isr.iter().copied().filter(|&id| id != replica).collect(),
        };
        self.write(leader, isr)
    }

    /// The first replica that is online and in sync; the ISR is what is online of it.
    fn clean_election(&self) -> Option<Verdict> {
        let leader = self.first_in_sync(&self.assignment.replicas)?;
        let isr = self.current.leader_and_isr.isr.iter().copied().filter(|&id| self.is_online(id)).collect();
        Some(self.write(leader, isr))
    }

    fn first_in_sync(&self, replicas: &[BrokerId]) -> Option<BrokerId> {
        let isr = &self.current.leader_and_isr.isr;
        replicas.iter().copied().find(|id| isr.contains(id) && self.is_online(*id))
    }

    fn first_online(&self) -> Option<BrokerId> {
        self.assignment.replicas.iter().copied().find(|&id| self.is_online(id))
    }

    fn is_online(&self, id: BrokerId) -> bool {
        (self.condition)(id) == Condition::Online
    }

    fn is_serving(&self, id: BrokerId) -> bool {
        (self.condition)(id) != Condition::Offline
    }

    fn write(&self, leader: BrokerId, isr: Vec<BrokerId>) -> Verdict {
        self.verdict(leader, isr, self.current.is_recovering)
    }

    fn write_unclean(&self, leader: BrokerId) -> Verdict {
        self.verdict(leader, vec![leader], self.rules.marks_recovery)
    }

    fn verdict(&self, leader: BrokerId, isr: Vec<BrokerId>, is_recovering: bool) -> Verdict {
        let old = &self.current.leader_and_isr;
        let leader_epoch = LeaderEpoch(old.leader_epoch.0 + 1);
        Verdict::Write(Leadership {
            leader_and_isr: LeaderAndIsr { leader, leader_epoch, isr, partition_epoch: old.partition_epoch },
            is_recovering,
            controller_epoch: self.rules.controller_epoch,
        })
    }
}

/// All online replicas are in sync with a log that does not exist yet.
fn first_leadership(
    replicas: &[BrokerId],
    rules: Rules,
    condition: impl Fn(BrokerId) -> Condition,
) -> Verdict {
    let is_online = |id| condition(id) == Condition::Online;
    let isr: Vec<BrokerId> = replicas.iter().copied().filter(|&id| is_online(id)).collect();
    let Some(&leader) = isr.first() else { return Verdict::NoCandidate };
    Verdict::Write(Leadership {
        leader_and_isr: LeaderAndIsr { leader, leader_epoch: LeaderEpoch(0), isr, partition_epoch: 0 },
        is_recovering: false,
        controller_epoch: rules.controller_epoch,
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

    /// `online` names brokers that are up; a negative number one that is about to stop.
    fn run(partition: &Partition, strategy: Strategy, unclean: Option<bool>, online: &[i32]) -> String {
        let rules =
            Rules { controller_epoch: ControllerEpoch(7), unclean_allowed: unclean, marks_recovery: true };
        let condition = |id: BrokerId| match () {
            () if online.contains(&id.0) => Condition::Online,
            () if online.contains(&-id.0) && id.0 > 0 => Condition::ShuttingDown,
            () => Condition::Offline,
        };
        match decide(partition, strategy, rules, condition) {
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
        // Who is about to stop keeps what it has and is elected for nothing.
        check(Repair, (1, &[1, 2]), &[-1, 2], None, "keep");
        check(Repair, (1, &[1, 2, 3]), &[-1, 3], None, "1 epoch 6 [1, 3]");
        check(Repair, (1, &[1, 2]), &[-2], None, "-1 epoch 6 [1, 2]");
    }

    #[test]
    fn who_is_about_to_stop_yields_to_others_in_sync() {
        use Strategy::Yield;
        check(Yield, (1, &[1, 2, 3]), &[-1, 2, 3], None, "2 epoch 6 [2, 3]");
        check(Yield, (1, &[1]), &[-1, 2, 3], None, "none");
        check(Yield, (1, &[1, 2]), &[-1, -2, 3], None, "none");
        check(Yield, (2, &[1, 2, 3]), &[-1, 2, 3], None, "2 epoch 6 [2, 3]");
        check(Yield, (2, &[2, 3]), &[-1, 2, 3], None, "keep");
        check(Yield, (-1, &[1]), &[-1, 2], None, "keep");
    }

    #[test]
    fn a_reassignment_ends_with_a_leader_among_the_targets() {
        use Strategy::{Reassign, Renew};
        // Replica 1 is being removed.
        check(Renew, (1, &[1, 2]), &[1, 2], None, "1 epoch 6 [1, 2]");
        check_removing(Reassign, (1, &[1, 2, 3]), &[1, 2, 3], "2 epoch 6 [1, 2, 3]");
        check_removing(Reassign, (3, &[1, 2, 3]), &[1, 2, 3], "3 epoch 6 [1, 2, 3]");
        check_removing(Reassign, (3, &[1, 2, 3]), &[1, 2], "2 epoch 6 [1, 2, 3]");
        check_removing(Reassign, (1, &[1, 2, 3]), &[1], "none");
    }

    #[track_caller]
    fn check_removing(strategy: Strategy, state: (i32, &[i32]), online: &[i32], expected: &str) {
        let mut partition = partition(state.0, state.1);
        partition.assignment.removing = ids(&[1]);
        assert_eq!(run(&partition, strategy, None, online), expected);
    }

    #[test]
    fn a_replica_that_goes_leaves_the_isr_unless_it_is_the_last() {
        let remove = |id| Strategy::Remove(BrokerId(id));
        check(remove(3), (1, &[1, 2, 3]), &[1, 2, 3], None, "1 epoch 6 [1, 2]");
        check(remove(1), (1, &[1, 2, 3]), &[1, 2, 3], None, "-1 epoch 6 [2, 3]");
        check(remove(1), (1, &[1]), &[1], None, "-1 epoch 6 [1]");
        check(remove(3), (1, &[1, 2]), &[1, 2, 3], None, "keep");
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
