//! Replicas and the log directories they lie in: moves that are asked for, and directories that fail.

use std::sync::Arc;

use snafu::Snafu;
use tracing::{info, warn};

use super::manager::Hosted;
use super::mover::Moves;
use super::{Partition, ReplicaError, ReplicaManager, RoleChange};
use crate::log::{LogError, can_be_moved};
use crate::model::{BrokerId, Timestamp, TopicPartition};

/// Why a replica is not moved to another log directory.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum AlterLogDirError {
    /// The name of the folder that is copied into would be too long.
    #[snafu(display("the topic's name is too long for a move"))]
    NameTooLong,
    #[snafu(display("the directory is not one of log.dirs"))]
    LogDirNotFound,
    /// The directory, the one of the replica, or another one that may hold a copy is offline.
    #[snafu(display("a log directory is offline"))]
    DirectoryOffline,
    /// There is no such replica here yet. If it comes, it is created in the directory.
    #[snafu(display("this broker has no such replica"))]
    NoReplica,
    #[snafu(display("this broker knows no such topic or partition"))]
    UnknownTopicOrPartition,
    #[snafu(transparent)]
    Storage { source: LogError },
}

impl ReplicaManager {
    /// Moves a replica to the directory with this absolute path; where it lies there already, ends the move to another
    /// one. Of a replica that is not here the directory is remembered. Creates a folder, so it may block.
    pub fn alter_log_dir(
        &self,
        topic_partition: &TopicPartition,
        absolute_path: &str,
        now: Timestamp,
    ) -> Result<(), AlterLogDirError> {
        // Not between a controller's request and its effects.
        let _control = self.control.lock();
        let outcome = self.move_replica(topic_partition, absolute_path, now);
        if let Err(error) = &outcome {
            let TopicPartition { topic, partition } = topic_partition;
            info!(%topic, partition = partition.0, directory = absolute_path, %error, "a replica is not moved");
        }
        outcome
    }

    fn move_replica(
        &self,
        of: &TopicPartition,
        absolute_path: &str,
        now: Timestamp,
    ) -> Result<(), AlterLogDirError> {
        if !can_be_moved(of) {
            return NameTooLongSnafu.fail();
        }
        let Some(directory) = self.logs().directory_at(absolute_path) else {
            return LogDirNotFoundSnafu.fail();
        };
        if directory.is_offline() {
            return DirectoryOfflineSnafu.fail();
        }
        let partition = match self.partition(&of.topic, of.partition) {
            Ok(partition) => partition,
            Err(ReplicaError::StorageError) => return DirectoryOfflineSnafu.fail(),
            Err(error) => {
                self.logs().prefer(of, &directory);
                return match error {
                    ReplicaError::UnknownTopicOrPartition => UnknownTopicOrPartitionSnafu.fail(),
                    _ => NoReplicaSnafu.fail(),
                };
            }
        };
        let is_elsewhere = |future: Arc<crate::log::Log>| !Arc::ptr_eq(future.directory(), &directory);
        if partition.future().is_some_and(is_elsewhere) {
            partition.end_move();
            self.logs().drop_future(of, now)?;
        }
        let log = partition.log();
        if log.directory().is_offline() {
            return DirectoryOfflineSnafu.fail();
        }
        if Arc::ptr_eq(log.directory(), &directory) {
            return Ok(());
        }
        if partition.future().is_some() {
            // It may rest after an error.
            self.moves().add(of);
            return Ok(());
        }
        let future = match self.logs().create_future(&log, &directory, now) {
            Err(LogError::NoDirectory) => return DirectoryOfflineSnafu.fail(),
            created => created?,
        };
        partition.begin_move(future);
        self.moves().add(of);
        Ok(())
    }

    /// A partition that is opened, or gets another role, goes on with the move that it was in.
    pub(super) fn go_on_moving(&self, partition: &Partition, now: Timestamp) {
        let of = partition.topic_partition();
        if partition.future().is_some() {
            self.moves().add(of);
            return;
        }
        let Some(future) = self.logs().future(of) else { return };
        let log = partition.log();
        let is_of_other_topic = !future.topic_id().is_zero() && future.topic_id() != log.topic_id();
        if is_of_other_topic || Arc::ptr_eq(future.directory(), log.directory()) {
            let TopicPartition { topic, partition } = of;
            warn!(%topic, partition = partition.0, "dropping the copy of another log");
            if let Err(error) = self.logs().drop_future(of, now) {
                warn!(%topic, partition = partition.0, %error, "a copy stays behind");
            }
            return;
        }
        partition.begin_move(future);
        self.moves().add(of);
    }

    /// Bounds how fast logs are copied between directories, all together.
    pub fn limit_moves(&self, bytes_per_second: u64) {
        self.moves().limit(bytes_per_second);
    }

    pub(super) fn moves(&self) -> &Moves {
        &self.moves
    }

    /// Lets go of the replicas in directories that are offline; answers which they were, as roles that are over.
    pub fn drop_offline_replicas(&self) -> Vec<RoleChange> {
        let _control = self.control.lock();
        for of in self.logs().forget_failed_futures() {
            warn!(topic = %of.topic, partition = of.partition.0, "a move ends: the directory it goes to is offline");
            if let Ok(partition) = self.partition(&of.topic, of.partition) {
                partition.end_move();
            }
        }
        let lost = self.partitions().into_iter().filter(|partition| partition.log().directory().is_offline());
        let dropped = lost.map(|partition| {
            let of = partition.topic_partition();
            self.set_hosted(of, Hosted::Offline);
            partition.end_move();
            partition.resign();
            RoleChange {
                topic_partition: of.clone(),
                leader: BrokerId::NONE,
                leader_epoch: partition.role().leader_epoch,
                is_leader: false,
            }
        });
        dropped.collect()
    }
}
