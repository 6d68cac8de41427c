use super::super::stored::StoredOffset;
use super::super::{
    FetchOffsets, FetchedOffset, GenerationId, GroupError, GroupOptions, GroupState, InstanceId, MemberId,
};
use super::group::Group;
use crate::coordinator::Now;
use crate::model::{LeaderEpoch, Offset, Timestamp, TopicPartition};

impl Group {
    /// Whether this sender may store offsets now. Its session restarts if it is a member.
    pub fn accept_commit(
        &mut self,
        member_id: &MemberId,
        group_instance_id: Option<&InstanceId>,
        generation_id: GenerationId,
        is_transactional: bool,
        now: Now,
    ) -> Result<(), GroupError> {
        self.check_commit(member_id, group_instance_id, generation_id, is_transactional)?;
        if is_transactional {
            return Ok(());
        }
        match self.state {
            // The member has the newest generation, but not its assignment yet.
            GroupState::CompletingRebalance => Err(GroupError::RebalanceInProgress),
            // Members may store where they are before they rejoin.
            GroupState::Empty | GroupState::PreparingRebalance | GroupState::Stable | GroupState::Dead => {
                self.restart_session(member_id, now);
                Ok(())
            }
        }
    }

    fn check_commit(
        &self,
        member_id: &MemberId,
        group_instance_id: Option<&InstanceId>,
        generation_id: GenerationId,
        is_transactional: bool,
    ) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        // A consumer that only stores offsets, or an administrator who moves those of a stopped group.
        if generation_id.0 < 0 && self.state == GroupState::Empty {
            return Ok(());
        }
        if generation_id.0 >= 0 || !member_id.is_empty() || group_instance_id.is_some() {
            self.check_member(member_id, group_instance_id)?;
            if generation_id != self.generation_id {
                return Err(GroupError::IllegalGeneration);
            }
            return Ok(());
        }
        // Older transactional producers do not name their member.
        if is_transactional { Ok(()) } else { Err(GroupError::UnknownMemberId) }
    }

    pub fn fetch_offsets(&self, request: FetchOffsets) -> Vec<FetchedOffset> {
        let partitions = request.partitions.unwrap_or_else(|| self.committed_partitions());
        partitions.into_iter().map(|partition| self.fetch_offset(partition, request.require_stable)).collect()
    }

    fn committed_partitions(&self) -> Vec<TopicPartition> {
        let mut partitions: Vec<_> =
            self.offsets.all_committed().map(|(partition, _)| partition.clone()).collect();
        partitions.sort_unstable();
        partitions
    }

    fn fetch_offset(&self, topic_partition: TopicPartition, require_stable: bool) -> FetchedOffset {
        if require_stable && self.offsets.is_unstable(&topic_partition) {
            let error = Some(GroupError::UnstableOffsetCommit);
            return FetchedOffset { error, ..FetchedOffset::none(topic_partition) };
        }
        match self.offsets.committed(&topic_partition) {
            Some(stored) if self.state != GroupState::Dead => FetchedOffset {
                topic_partition,
                offset: stored.offset,
                leader_epoch: stored.leader_epoch,
                metadata: stored.metadata.clone(),
                error: None,
            },
            Some(_) | None => FetchedOffset::none(topic_partition),
        }
    }

    /// Splits a removal into what may go and what members still read.
    pub fn check_offset_removal(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        match self.state {
            GroupState::Dead => Err(GroupError::GroupIdNotFound),
            GroupState::Empty => Ok(vec![Ok(()); partitions.len()]),
            GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable => {
                if !self.is_consumer_group() {
                    return Err(GroupError::NonEmptyGroup);
                }
                let check = |partition: &TopicPartition| {
                    let is_read = self.is_subscribed_to(&partition.topic);
                    if is_read { Err(GroupError::GroupSubscribedToTopic) } else { Ok(()) }
                };
                Ok(partitions.iter().map(check).collect())
            }
        }
    }

    /// The offsets that have outlived their retention (KIP-211).
    pub fn expired_offsets(&self, now: Timestamp, options: &GroupOptions) -> Vec<TopicPartition> {
        let since_commit = |stored: &StoredOffset| stored.commit_timestamp;
        let base = |partition: &TopicPartition, stored: &StoredOffset| match &self.protocol_type {
            // Only offsets were ever stored here.
            None => Some(since_commit(stored)),
            // It counts from when the last member left.
            Some(_) if self.state == GroupState::Empty => {
                Some(self.state_timestamp.unwrap_or_else(|| since_commit(stored)))
            }
            // Consumers are at work: what none of them reads any more may go.
            Some(_) if self.is_consumer_group() && self.state == GroupState::Stable => {
                (!self.is_subscribed_to(&partition.topic)).then(|| since_commit(stored))
            }
            Some(_) => None,
        };
        self.offsets.expired(now, options.offsets_retention_ms, base)
    }
}

impl FetchedOffset {
    /// What is answered where no offset is stored.
    pub fn none(topic_partition: TopicPartition) -> FetchedOffset {
        FetchedOffset {
            topic_partition,
            offset: Offset::NONE,
            leader_epoch: LeaderEpoch::UNKNOWN,
            metadata: String::new(),
            error: None,
        }
    }
}
