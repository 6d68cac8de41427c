use std::time::Duration;

use tokio::time::sleep;
use wire::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use wire::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
use wire::{AlterPartitionReassignmentsRequest, AlterReplicaLogDirsRequest, ElectLeadersRequest};

use super::Client;
use crate::chance::{any, one_in};
use crate::plan::REPLICATION_FACTOR;
use crate::switch::Switch;

/// Moves partitions between brokers and between the log directories of one, takes moves back, and gives leaders back to
/// the preferred replicas.
pub struct Mover {
    pub client: Client,
    pub topics: Vec<(&'static str, i32)>,
    pub brokers: Vec<i32>,
    pub hosts: Vec<String>,
    /// Of each broker.
    pub log_dirs: &'static [&'static str],
    pub is_over: Switch,
}

impl Mover {
    /// What is answered does not matter: what comes of it is seen in the tree.
    pub async fn run(mut self) {
        loop {
            let pause = self.client.random().number(300..6_000);
            sleep(Duration::from_millis(pause)).await;
            if self.is_over.is_set() {
                return;
            }
            if self.log_dirs.len() > 1 && one_in(self.client.random(), 3) {
                self.move_to_log_dir().await;
                continue;
            }
            let Some(controller) = self.client.controller().await else { continue };
            match self.client.random().number(0..6) {
                0 => self.elect(&controller).await,
                1 => self.reassign(&controller, None).await,
                _ => {
                    let replicas = self.some_brokers();
                    self.reassign(&controller, Some(replicas)).await;
                }
            }
        }
    }

    fn some_brokers(&self) -> Vec<i32> {
        let mut brokers = self.brokers.clone();
        self.client.random().shuffle(&mut brokers);
        // Fewer than a topic's smallest number of replicas in sync would let nobody write.
        let count = if one_in(self.client.random(), 3) { 2 } else { REPLICATION_FACTOR as usize };
        brokers.truncate(count);
        brokers
    }

    fn any_partition(&self) -> (&'static str, i32) {
        let (topic, partitions) = *any(self.client.random(), &self.topics);
        (topic, self.client.random().number(0..partitions as u64) as i32)
    }

    /// The directory may be where the partition is already, and the broker need not have it.
    async fn move_to_log_dir(&mut self) {
        let (topic, partition) = self.any_partition();
        let host = any(self.client.random(), &self.hosts).clone();
        let path = format!("/{}", any(self.client.random(), self.log_dirs));
        let topics = vec![AlterReplicaLogDirTopic { name: topic.into(), partitions: vec![partition] }];
        let dirs = vec![AlterReplicaLogDir { path: path.into(), topics }];
        let _ = self.client.call(&host, 1, &AlterReplicaLogDirsRequest { dirs }).await;
    }

    /// `None` takes back a move that is under way.
    async fn reassign(&mut self, controller: &str, replicas: Option<Vec<i32>>) {
        let (topic, partition_index) = self.any_partition();
        let partitions = vec![ReassignablePartition { partition_index, replicas }];
        let topics = vec![ReassignableTopic { name: topic.into(), partitions }];
        let request = AlterPartitionReassignmentsRequest { timeout_ms: 5_000, topics, ..Default::default() };
        let _ = self.client.call(controller, 0, &request).await;
    }

    async fn elect(&mut self, controller: &str) {
        let request = ElectLeadersRequest { topic_partitions: None, timeout_ms: 5_000, ..Default::default() };
        let _ = self.client.call(controller, 1, &request).await;
    }
}
