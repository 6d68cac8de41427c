//! Elections that an operator asks for.

use std::collections::BTreeMap;

use super::election::Strategy;
use super::event::{ElectionError, ElectionKind, ElectionResult};
use super::{Asked, Core, Work};
use crate::model::{BrokerId, TopicPartition};

#[derive(Debug)]
pub(super) struct RequestedElection {
    /// Of all partitions: those that need no election are not reported.
    is_of_all: bool,
    results: BTreeMap<TopicPartition, Result<BrokerId, ElectionError>>,
}

impl Core {
    pub(super) fn election_requested(
        &mut self,
        token: u64,
        kind: ElectionKind,
        of: Option<Vec<TopicPartition>>,
    ) {
        let is_of_all = of.is_none();
        let partitions = of.unwrap_or_else(|| self.cluster.all_partitions());
        let mut results = BTreeMap::new();
        let mut candidates = Vec::new();
        for partition in partitions {
            let error = if self.cluster.partition(&partition).is_none() {
                ElectionError::UnknownPartition
            } else if self.cluster.is_being_deleted(&partition.topic) {
                ElectionError::TopicIsBeingDeleted
            } else {
                candidates.push(partition.clone());
                kind.failure_of(&partition)
            };
            results.insert(partition, Err(error));
        }
        self.asked = Some((token, Asked::Election(RequestedElection { is_of_all, results })));
        let strategy = match kind {
            ElectionKind::Preferred => Strategy::Preferred,
            ElectionKind::Unclean => Strategy::Unclean,
        };
        self.work.push_back(Work::Decide { partitions: candidates, strategy });
        self.work.push_back(Work::Flush);
    }

    pub(super) fn elected_on_request(
        &mut self,
        partition: &TopicPartition,
        result: Result<BrokerId, ElectionError>,
    ) {
        if let Some((_, Asked::Election(election))) = &mut self.asked {
            election.results.insert(partition.clone(), result);
        }
    }
}

impl RequestedElection {
    pub(super) fn finish(self) -> Vec<ElectionResult> {
        let is_reported = |result: &Result<BrokerId, ElectionError>| {
            !self.is_of_all || *result != Err(ElectionError::NotNeeded)
        };
        self.results.into_iter().filter(|(_, result)| is_reported(result)).collect()
    }
}

impl ElectionKind {
    fn failure_of(self, partition: &TopicPartition) -> ElectionError {
        let partition = partition.clone();
        match self {
            ElectionKind::Preferred => ElectionError::PreferredLeaderNotAvailable { partition },
            ElectionKind::Unclean => ElectionError::EligibleLeadersNotAvailable { partition },
        }
    }
}
