//! What a follower does to its log. Each step is done only while the broker follows in the leadership that it is meant
//! for: a fetch that comes back after the role has changed changes nothing.

use bytes::Bytes;
use parking_lot::RwLockReadGuard;
use snafu::ensure;
use tracing::{info, warn};

use super::error::NotLeaderOrFollowerSnafu;
use super::{Partition, ReplicaError};
use crate::log::{AppendInfo, LogError};
use crate::model::{BrokerId, LeaderEpoch, Offset, Timestamp, TopicPartition};
use crate::purgatory::Changes;

/// A leadership that this broker follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Following {
    pub(super) leader: BrokerId,
    pub(super) leader_epoch: LeaderEpoch,
}

impl Partition {
    /// Whether this broker still follows that leader.
    pub(super) fn is_following(&self, following: &Following) -> bool {
        let role = self.role.load();
        !role.is_leader && role.leader == following.leader && role.leader_epoch == following.leader_epoch
    }

    pub(super) fn is_throttled_as_follower(&self) -> bool {
        self.settings.load().throttled_as_follower.contains(self.topic_partition.partition)
    }

    /// Holds the role while the log is changed.
    fn while_following(&self, following: &Following) -> Result<RwLockReadGuard<'_, ()>, ReplicaError> {
        let shared = self.leadership.read();
        ensure!(self.is_following(following), NotLeaderOrFollowerSnafu);
        Ok(shared)
    }

    /// Appends what the leader sent from `fetch_offset` on, unless the log has been changed since the fetch.
    pub(super) fn append_as_follower(
        &self,
        following: &Following,
        fetch_offset: Offset,
        records: Bytes,
        now: Timestamp,
    ) -> Result<Option<AppendInfo>, ReplicaError> {
        let _role = self.while_following(following)?;
        if self.log().log_end_offset() != fetch_offset {
            return Ok(None);
        }
        match self.log().append_as_follower(records.clone(), now) {
            // The leader's log starts in the middle of its first batch, which it sends whole.
            Err(LogError::UnexpectedAppendOffset { first_offset, .. }) if self.is_empty() => {
                self.log().truncate_fully_and_start_at(first_offset, now)?;
                Ok(Some(self.log().append_as_follower(records, now)?))
            }
            // Another fetcher appended in between: a partition goes from one to another while both are at work.
            Err(LogError::UnexpectedAppendOffset { .. }) if self.log().log_end_offset() != fetch_offset => {
                Ok(None)
            }
            // This log ends in the middle of the leader's batch: it was cut off at the leader's start. Kafka follows no more.
            Err(LogError::UnexpectedAppendOffset { first_offset, .. }) => {
                self.log().truncate_to(first_offset, now)?;
                Ok(Some(self.log().append_as_follower(records, now)?))
            }
            appended => Ok(Some(appended?)),
        }
    }

    fn is_empty(&self) -> bool {
        self.log().log_start_offset() == self.log().log_end_offset()
    }

    /// Takes over how far the leader is committed, and where its log starts.
    pub(super) fn follow_offsets(
        &self,
        following: &Following,
        high_watermark: Offset,
        log_start_offset: Offset,
    ) -> Result<(), ReplicaError> {
        let _role = self.while_following(following)?;
        if self.log().advance_high_watermark(high_watermark) {
            self.watchers.wake(Changes::HIGH_WATERMARK);
        }
        if log_start_offset > self.log().log_start_offset() {
            self.log().delete_records_before(log_start_offset.min(self.log().high_watermark()))?;
        }
        Ok(())
    }

    /// Cuts off what the leader does not have.
    pub(super) fn truncate_as_follower(
        &self,
        following: &Following,
        to: Offset,
        now: Timestamp,
    ) -> Result<(), ReplicaError> {
        let _role = self.while_following(following)?;
        let (log_end_offset, high_watermark) = (self.log().log_end_offset(), self.log().high_watermark());
        if to >= log_end_offset {
            return Ok(self.log().truncate_to(to, now)?);
        }
        let TopicPartition { topic, partition } = &self.topic_partition;
        let (partition, leader_epoch) = (partition.0, following.leader_epoch.0);
        if to < high_watermark {
            warn!(%topic, partition, leader_epoch, from = log_end_offset.0, to = to.0,
                high_watermark = high_watermark.0, "cutting off records below the high watermark");
        } else {
            info!(%topic, partition, leader_epoch, from = log_end_offset.0, to = to.0,
                "cutting off records that the leader does not have");
        }
        self.log().truncate_to(to, now)?;
        self.watchers.wake_all();
        Ok(())
    }

    /// Begins the log anew where the leader's starts, as it starts behind the end of this one.
    pub(super) fn start_anew_as_follower(
        &self,
        following: &Following,
        at: Offset,
        now: Timestamp,
    ) -> Result<(), ReplicaError> {
        let _role = self.while_following(following)?;
        let TopicPartition { topic, partition } = &self.topic_partition;
        warn!(%topic, partition = partition.0, log_end_offset = self.log().log_end_offset().0, at = at.0,
            "the leader's log starts later than this one ends: beginning anew");
        self.log().truncate_fully_and_start_at(at, now)?;
        self.watchers.wake_all();
        Ok(())
    }
}
