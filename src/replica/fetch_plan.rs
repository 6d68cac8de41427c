//! A follower's end of its fetch session with one leader (KIP-227). Pure.

use std::collections::HashMap;

use indexmap::IndexMap;

use crate::interbroker::FollowerFetchPartition;
use crate::model::{Offset, TopicId, TopicName, TopicPartition};

/// What the leader knows of what this follower wants, so that only changes need be said.
#[derive(Debug, Default)]
pub struct FetchPlan {
    /// `0` = none.
    session_id: i32,
    /// `0` = the next fetch says everything.
    epoch: i32,
    uses_topic_ids: bool,
    /// As last said.
    said: IndexMap<TopicPartition, FollowerFetchPartition>,
    names: HashMap<TopicId, TopicName>,
}

/// One fetch of the session.
#[derive(Debug, PartialEq, Eq)]
pub struct PlannedFetch {
    pub session_id: i32,
    pub session_epoch: i32,
    pub uses_topic_ids: bool,
    pub partitions: Vec<FollowerFetchPartition>,
    pub forgotten: Vec<(TopicPartition, TopicId)>,
}

impl FetchPlan {
    /// The fetch that makes the leader serve exactly these partitions. `may_use_topic_ids` says that the protocol
    /// level names topics by ids where all have one.
    pub fn next(&mut self, wanted: Vec<FollowerFetchPartition>, may_use_topic_ids: bool) -> PlannedFetch {
        let uses_topic_ids =
            may_use_topic_ids && wanted.iter().all(|partition| !partition.topic_id.is_zero());
        if uses_topic_ids != self.uses_topic_ids {
            // A session names topics one way for all its life.
            self.epoch = 0;
            self.uses_topic_ids = uses_topic_ids;
        }
        let wanted: IndexMap<TopicPartition, FollowerFetchPartition> =
            wanted.into_iter().map(|partition| (partition.topic_partition.clone(), partition)).collect();
        self.names = wanted
            .values()
            .map(|partition| (partition.topic_id, partition.topic_partition.topic.clone()))
            .collect();
        let is_new = |partition: &&FollowerFetchPartition| {
            self.epoch == 0 || self.said.get(&partition.topic_partition) != Some(partition)
        };
        let partitions = wanted.values().filter(is_new).cloned().collect();
        let mut forgotten = Vec::new();
        if self.epoch != 0 {
            for (of, said) in &self.said {
                // A topic that was created anew is another one to a session that names it by id.
                let is_same = |wanted: &FollowerFetchPartition| wanted.topic_id == said.topic_id;
                let is_wanted = wanted.get(of).is_some_and(|wanted| !uses_topic_ids || is_same(wanted));
                if !is_wanted {
                    forgotten.push((of.clone(), said.topic_id));
                }
            }
        }
        self.said = wanted;
        self.planned(partitions, forgotten)
    }

    /// As [`FetchPlan::next`], where all but these partitions are wanted as they were last said. Only within a session.
    pub fn next_of(&mut self, wanted: Vec<FollowerFetchPartition>) -> PlannedFetch {
        let mut partitions = Vec::new();
        for partition in wanted {
            let Some(said) = self.said.get_mut(&partition.topic_partition) else { continue };
            if *said != partition {
                said.clone_from(&partition);
                partitions.push(partition);
            }
        }
        self.planned(partitions, Vec::new())
    }

    fn planned(
        &self,
        partitions: Vec<FollowerFetchPartition>,
        forgotten: Vec<(TopicPartition, TopicId)>,
    ) -> PlannedFetch {
        PlannedFetch {
            session_id: self.session_id,
            session_epoch: self.epoch,
            uses_topic_ids: self.uses_topic_ids,
            partitions,
            forgotten,
        }
    }

    /// The leader knows what is wanted, and need only be told of changes.
    pub fn is_in_session(&self) -> bool {
        self.epoch != 0
    }

    /// From where on a partition was last asked for.
    pub fn fetch_offset(&self, of: &TopicPartition) -> Option<Offset> {
        self.said.get(of).map(|said| said.fetch_offset)
    }

    pub fn names(&self) -> &HashMap<TopicId, TopicName> {
        &self.names
    }

    /// The leader answered, with this session id.
    pub fn answered(&mut self, session_id: i32) {
        if self.epoch == 0 {
            self.session_id = session_id;
            self.epoch = i32::from(session_id != 0);
        } else {
            self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
        }
    }

    /// The leader does not know the session: the next fetch begins another.
    pub fn session_lost(&mut self) {
        self.session_id = 0;
        self.epoch = 0;
    }

    /// Nobody knows whether the leader has seen the fetch: the next one replaces the session.
    pub fn failed(&mut self) {
        self.epoch = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LeaderEpoch, PartitionIndex};

    fn wanted(topic: &str, id: u8, offset: i64) -> FollowerFetchPartition {
        FollowerFetchPartition {
            topic_partition: TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(0)),
            topic_id: TopicId([id; 16]),
            leader_epoch: LeaderEpoch(0),
            fetch_offset: Offset(offset),
            last_fetched_epoch: LeaderEpoch(0),
            log_start_offset: Offset::ZERO,
            bytes_max: 1,
        }
    }

    fn said(fetch: &PlannedFetch) -> Vec<&str> {
        fetch.partitions.iter().map(|partition| partition.topic_partition.topic.as_str()).collect()
    }

    #[test]
    fn only_changes_are_said_within_a_session() {
        let mut plan = FetchPlan::default();
        let first = plan.next(vec![wanted("a", 1, 0), wanted("b", 2, 0)], true);
        assert_eq!((first.session_id, first.session_epoch, said(&first)), (0, 0, vec!["a", "b"]));
        plan.answered(77);
        let second = plan.next(vec![wanted("a", 1, 5), wanted("b", 2, 0)], true);
        let of = |fetch: &FollowerFetchPartition| fetch.topic_partition.clone();
        assert_eq!(plan.fetch_offset(&of(&wanted("a", 1, 0))), Some(Offset(5)));
        assert_eq!(plan.fetch_offset(&of(&wanted("b", 2, 0))), Some(Offset(0)));
        assert_eq!((second.session_id, second.session_epoch, said(&second)), (77, 1, vec!["a"]));
        plan.answered(77);
        let third = plan.next(vec![wanted("a", 1, 5)], true);
        assert_eq!((third.session_epoch, said(&third).len(), third.forgotten.len()), (2, 0, 1));
    }

    #[test]
    fn a_lost_answer_says_everything_again() {
        let mut plan = FetchPlan::default();
        plan.next(vec![wanted("a", 1, 0)], true);
        plan.answered(77);
        plan.next(vec![wanted("a", 1, 1)], true);
        plan.failed();
        let again = plan.next(vec![wanted("a", 1, 1)], true);
        assert_eq!((again.session_id, again.session_epoch, said(&again)), (77, 0, vec!["a"]));
        plan.session_lost();
        assert_eq!(plan.next(vec![wanted("a", 1, 1)], true).session_id, 0);
    }

    #[test]
    fn a_leader_without_room_for_sessions_is_told_everything_each_time() {
        let mut plan = FetchPlan::default();
        plan.next(vec![wanted("a", 1, 0)], true);
        plan.answered(0);
        let again = plan.next(vec![wanted("a", 1, 0)], true);
        assert_eq!((again.session_epoch, said(&again)), (0, vec!["a"]));
    }

    #[test]
    fn a_topic_without_id_makes_a_session_by_names() {
        let mut plan = FetchPlan::default();
        assert!(plan.next(vec![wanted("a", 1, 0)], true).uses_topic_ids);
        plan.answered(77);
        let fetch = plan.next(vec![wanted("a", 1, 0), wanted("b", 0, 0)], true);
        assert_eq!((fetch.uses_topic_ids, fetch.session_epoch), (false, 0));
    }

    #[test]
    fn a_topic_created_anew_is_forgotten_and_named_again() {
        let mut plan = FetchPlan::default();
        plan.next(vec![wanted("a", 1, 9)], true);
        plan.answered(77);
        let fetch = plan.next(vec![wanted("a", 2, 0)], true);
        assert_eq!((said(&fetch), fetch.forgotten.len()), (vec!["a"], 1));
    }
}
