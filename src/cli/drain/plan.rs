//! What has to move so that a broker can be stopped. Pure.

use std::collections::{BTreeMap, HashMap};

use crate::interbroker::{ClusterView, PartitionView};
use crate::model::{BrokerId, TopicName, TopicPartition};

/// What is moved away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    Leadership,
    /// And the replicas, so that the broker has nothing left.
    Replicas,
}

/// What has to be done, and what cannot be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// New replicas, the leader to be first.
    pub assignments: Vec<(TopicPartition, Vec<BrokerId>)>,
    /// Whose first replica is to lead, and could.
    pub elections: Vec<TopicPartition>,
    pub impossible: Vec<Impossible>,
}

/// Why a partition stays where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// Nobody else is in sync who could lead.
    NoOtherInSync(TopicPartition),
    /// Every live broker has a replica already.
    NoOtherBroker(TopicPartition),
}

/// Decides what is to be done next. A broker that is drained already needs nothing.
pub fn plan(view: &ClusterView, broker: BrokerId, drain: Drain) -> Plan {
    let mut plan = Plan::default();
    let mut loads = Loads::of(view);
    for partition in &view.partitions {
        if !partition.replicas.contains(&broker) {
            continue;
        }
        match drain {
            Drain::Leadership => plan_leader(&mut plan, &mut loads, partition, broker),
            Drain::Replicas => plan_replica(&mut plan, &mut loads, view, partition, broker),
        }
    }
    plan
}

/// Another in-sync replica leads: it stands first, and the broker last, so that balancing does not bring the leadership
/// back.
fn plan_leader(plan: &mut Plan, loads: &mut Loads, partition: &PartitionView, broker: BrokerId) {
    let is_preferred = partition.replicas.first() == Some(&broker);
    if partition.leader != broker && !is_preferred {
        return;
    }
    let of = partition.topic_partition.clone();
    let others = partition.replicas.iter().filter(|id| **id != broker && partition.isr.contains(id));
    let Some(leader) = others.copied().min_by_key(|id| (loads.leaders(*id), *id)) else {
        plan.impossible.push(Impossible::NoOtherInSync(of));
        return;
    };
    let first = partition.replicas.first().filter(|first| **first != broker && partition.isr.contains(first));
    let leader = *first.unwrap_or(&leader);
    loads.add_leader(leader);
    let rest = partition.replicas.iter().filter(|id| **id != leader && **id != broker);
    let replicas: Vec<BrokerId> = [leader].into_iter().chain(rest.copied()).chain([broker]).collect();
    if replicas != partition.replicas {
        plan.assignments.push((of.clone(), replicas));
    }
    if partition.leader == broker {
        plan.elections.push(of);
    }
}

/// Another broker takes the place of the one that goes.
fn plan_replica(
    plan: &mut Plan,
    loads: &mut Loads,
    view: &ClusterView,
    partition: &PartitionView,
    broker: BrokerId,
) {
    let racks: Vec<Option<&str>> = view
        .brokers
        .iter()
        .filter(|other| other.id != broker && partition.replicas.contains(&other.id))
        .map(|other| other.rack.as_deref())
        .collect();
    let free =
        view.brokers.iter().filter(|other| other.id != broker && !partition.replicas.contains(&other.id));
    let is_near = |rack: Option<&str>| rack.is_some() && racks.contains(&rack);
    let chosen =
        free.min_by_key(|other| (is_near(other.rack.as_deref()), loads.replicas(other.id), other.id));
    let of = partition.topic_partition.clone();
    let Some(chosen) = chosen else {
        plan.impossible.push(Impossible::NoOtherBroker(of));
        return;
    };
    loads.add_replica(chosen.id);
    let replaced = partition.replicas.iter().map(|id| if *id == broker { chosen.id } else { *id });
    plan.assignments.push((of, replaced.collect()));
}

/// Partitions that would have no leader, or fewer replicas in sync than must acknowledge, without the broker.
pub fn needing(
    view: &ClusterView,
    broker: BrokerId,
    isr_min: &HashMap<TopicName, usize>,
) -> Vec<TopicPartition> {
    let is_needed = |partition: &&PartitionView| {
        let others = partition.isr.iter().filter(|id| **id != broker).count();
        let wanted = isr_min.get(&partition.topic_partition.topic).copied().unwrap_or(1);
        let needed = wanted.min(partition.replicas.len()).max(1);
        partition.isr.contains(&broker) && others < needed
    };
    view.partitions.iter().filter(is_needed).map(|partition| partition.topic_partition.clone()).collect()
}

/// How many partitions the broker leads, and has replicas of.
pub fn left(view: &ClusterView, broker: BrokerId) -> (usize, usize) {
    let led = view.partitions.iter().filter(|partition| partition.leader == broker).count();
    let held = view.partitions.iter().filter(|partition| partition.replicas.contains(&broker)).count();
    (led, held)
}

/// What each broker has, with what is planned for it.
struct Loads {
    leaders: BTreeMap<BrokerId, usize>,
    replicas: BTreeMap<BrokerId, usize>,
}

impl Loads {
    fn of(view: &ClusterView) -> Loads {
        let mut loads = Loads { leaders: BTreeMap::new(), replicas: BTreeMap::new() };
        for partition in &view.partitions {
            loads.add_leader(partition.leader);
            partition.replicas.iter().for_each(|id| loads.add_replica(*id));
        }
        loads
    }

    fn leaders(&self, id: BrokerId) -> usize {
        self.leaders.get(&id).copied().unwrap_or(0)
    }

    fn replicas(&self, id: BrokerId) -> usize {
        self.replicas.get(&id).copied().unwrap_or(0)
    }

    fn add_leader(&mut self, id: BrokerId) {
        *self.leaders.entry(id).or_default() += 1;
    }

    fn add_replica(&mut self, id: BrokerId) {
        *self.replicas.entry(id).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interbroker::BrokerView;
    use crate::model::PartitionIndex;

    fn ids(numbers: &[i32]) -> Vec<BrokerId> {
        numbers.iter().copied().map(BrokerId).collect()
    }

    fn of(index: i32) -> TopicPartition {
        TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(index))
    }

    /// Brokers with their racks; partitions with leader, replicas, ISR.
    fn view(brokers: &[(i32, &str)], partitions: &[(i32, &[i32], &[i32])]) -> ClusterView {
        let broker = |&(id, rack): &(i32, &str)| BrokerView {
            id: BrokerId(id),
            host: String::new(),
            port: 0,
            rack: (!rack.is_empty()).then(|| rack.to_owned()),
        };
        let partition = |(index, (leader, replicas, isr)): (usize, &(i32, &[i32], &[i32]))| PartitionView {
            topic_partition: of(i32::try_from(index).unwrap()),
            leader: BrokerId(*leader),
            replicas: ids(replicas),
            isr: ids(isr),
        };
        ClusterView {
            controller: BrokerId(1),
            brokers: brokers.iter().map(broker).collect(),
            partitions: partitions.iter().enumerate().map(partition).collect(),
        }
    }

    const THREE: &[(i32, &str)] = &[(1, ""), (2, ""), (3, "")];

    #[test]
    fn leaderships_go_to_others_in_turn() {
        let view =
            view(THREE, &[(1, &[1, 2, 3], &[1, 2, 3]), (1, &[1, 2, 3], &[1, 2, 3]), (2, &[2, 1], &[2, 1])]);
        let plan = plan(&view, BrokerId(1), Drain::Leadership);
        assert_eq!(plan.assignments, [(of(0), ids(&[3, 2, 1])), (of(1), ids(&[2, 3, 1]))]);
        assert_eq!(plan.elections, [of(0), of(1)]);
        assert!(plan.impossible.is_empty());
    }

    #[test]
    fn a_broker_that_leads_out_of_turn_only_needs_an_election() {
        let view = view(THREE, &[(1, &[2, 1], &[1, 2])]);
        let plan = plan(&view, BrokerId(1), Drain::Leadership);
        assert_eq!((plan.assignments, plan.elections), (vec![], vec![of(0)]));
    }

    #[test]
    fn who_is_not_in_sync_does_not_lead() {
        let view = view(THREE, &[(1, &[1, 2, 3], &[1, 3]), (1, &[1, 2], &[1])]);
        let plan = plan(&view, BrokerId(1), Drain::Leadership);
        assert_eq!(plan.assignments, [(of(0), ids(&[3, 2, 1]))]);
        assert_eq!(plan.impossible, [Impossible::NoOtherInSync(of(1))]);
    }

    #[test]
    fn replicas_go_where_fewest_are_and_to_another_rack() {
        let brokers = &[(1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "c")];
        let view = view(brokers, &[(1, &[1, 2], &[1, 2]), (1, &[1, 2], &[1, 2]), (4, &[4, 2], &[4, 2])]);
        let plan = plan(&view, BrokerId(1), Drain::Replicas);
        assert_eq!(plan.assignments, [(of(0), ids(&[5, 2])), (of(1), ids(&[4, 2]))]);
    }

    #[test]
    fn replicas_stay_where_every_broker_has_one() {
        let view = view(THREE, &[(1, &[1, 2, 3], &[1, 2, 3])]);
        let plan = plan(&view, BrokerId(1), Drain::Replicas);
        assert_eq!(plan.impossible, [Impossible::NoOtherBroker(of(0))]);
    }

    #[test]
    fn a_broker_is_needed_where_too_few_others_are_in_sync() {
        let view = view(THREE, &[(2, &[2, 1, 3], &[2, 1]), (2, &[2, 1, 3], &[1, 2, 3]), (2, &[2, 1], &[2])]);
        let isr_min = HashMap::from([(TopicName::new("t").unwrap(), 2)]);
        assert_eq!(needing(&view, BrokerId(1), &isr_min), [of(0)]);
        assert_eq!(left(&view, BrokerId(1)), (0, 3));
    }
}
