//! Several brokers in one process, on one tree, with real sockets.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::{Broker, Machine, start};
use crate::config::{BrokerConfig, Properties};
use crate::controller::admin::{CreateTopics, NewTopic};
use crate::controller::{ControlError, ControlRequest};
use crate::coordination::{Create, CreateMode, MemoryEnsemble, Store, znodes};
use crate::metadata::Image;
use crate::metadata::control::{ControlSender, StopReplica, StopReplicaRequest};
use crate::model::{
    BrokerId, ControllerEpoch, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Timestamp,
    TopicName, TopicPartition,
};
use crate::observe::{Metrics, Names};
use crate::records::{self, AppendOrigin, BatchBuilder};
use crate::replica::{AppendOptions, Partition, ReplicaError, ReplicaManager, WatchedOffset};
use crate::txn::{EndMarkers, TransactionVersion};

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

struct Cluster {
    ensemble: MemoryEnsemble,
    dir: TempDir,
    settings: Vec<(String, String)>,
}

struct Member {
    broker: Broker,
}

impl Cluster {
    fn new(settings: &[(&str, &str)]) -> Cluster {
        let settings = settings.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        Cluster { ensemble: MemoryEnsemble::new(), dir: tempfile::tempdir().unwrap(), settings }
    }

    /// Starts a broker, on the folder that one of this id left.
    async fn start(&self, id: i32) -> Member {
        let metrics = Arc::new(Metrics::new(&Names::default()));
        let ensemble = Box::new(self.ensemble.clone());
        let started = Broker::start_on(Machine::system(), ensemble, self.config(id), metrics).await;
        Member { broker: started.unwrap() }
    }

    fn config(&self, id: i32) -> BrokerConfig {
        let folder = self.dir.path().join(id.to_string());
        let mut properties = Properties::new();
        let own = [
            ("broker.id", id.to_string()),
            ("listeners", "PLAINTEXT://127.0.0.1:0".to_owned()),
            ("log.dirs", folder.display().to_string()),
            ("controlled.shutdown.retry.backoff.ms", "100".to_owned()),
        ];
        properties.extend(own.map(|(key, value)| (key.to_owned(), value)));
        properties.extend(self.settings.iter().cloned());
        BrokerConfig::new(properties).unwrap()
    }
}

impl Member {
    async fn create_topic(&self, name: &str, partitions: i32, replication_factor: i16) {
        let topic = NewTopic { name: name.to_owned(), partitions, replication_factor, ..NewTopic::default() };
        let request = CreateTopics { topics: vec![topic], validate_only: false, timeout_ms: 60_000 };
        let services = self.broker.services();
        let config = services.config.load_full();
        let created = services.admin.create_topics(request, &config, |_| true).await.unwrap();
        created
            .into_iter()
            .for_each(|(name, outcome)| drop(outcome.unwrap_or_else(|error| panic!("{name}: {error}"))));
    }

    async fn wait_until(&self, is_reached: impl FnMut(&Image) -> bool) -> Arc<Image> {
        tokio::time::timeout(LIMIT, self.broker.services().metadata.wait_until(is_reached)).await.unwrap()
    }

    fn partition(&self, topic: &str, index: i32) -> Arc<Partition> {
        self.broker.services().replicas.partition(topic, PartitionIndex(index)).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_tells_other_brokers() {
    let cluster = Cluster::new(&[]);
    let first = cluster.start(1).await;
    let second = cluster.start(2).await;
    first.wait_until(|image| image.brokers().len() == 2).await;
    first.create_topic("t", 2, 2).await;
    let image = second.wait_until(|image| image.topic("t").is_some_and(|t| t.partitions().len() == 2)).await;
    assert_eq!(image.controller_id(), BrokerId(1));
    for index in 0..2 {
        let (ours, theirs) = (first.partition("t", index).role(), second.partition("t", index).role());
        assert_eq!((ours.leader, ours.leader_epoch), (theirs.leader, theirs.leader_epoch));
        assert_ne!(ours.is_leader, theirs.is_leader);
    }
}

impl Member {
    /// Appends one record to a partition that this broker leads, and waits until it is committed.
    async fn append(&self, topic: &str, value: &'static str) -> Result<Offset, ReplicaError> {
        let partition = self.partition(topic, 0);
        let now = self.broker.services().clock.now();
        let mut batch = BatchBuilder::new();
        batch.append(now, None, Some(value.as_bytes()), &[]);
        let rules = partition.settings().validation.clone();
        let validated = records::validate(batch.build(), &rules, now)?;
        let options =
            AppendOptions { producer: AppendOrigin::Client.into(), needs_isr: true, leader_epoch: None };
        let appended = partition.append(validated, &options, now)?;
        let watched = WatchedOffset {
            partition,
            required_offset: appended.required_offset,
            leader_epoch: appended.leader_epoch,
        };
        let deadline = tokio::time::Instant::now() + LIMIT;
        ReplicaManager::committed(&[watched], deadline).await.remove(0)?;
        Ok(appended.info.first_offset)
    }

    /// Waits until all of these are in sync with this leader.
    async fn wait_for_isr(&self, topic: &str, members: usize) {
        let index = PartitionIndex(0);
        self.wait_until(|image| image.partition(topic, index).is_some_and(|p| p.isr.len() == members)).await;
    }

    fn leads(&self, topic: &str) -> bool {
        let partition = self.broker.services().replicas.partition(topic, PartitionIndex(0));
        partition.is_ok_and(|partition| partition.role().is_leader)
    }
}

/// Which of the members leads, once all have heard of the same one, which is not `gone`.
async fn leader_of(members: &[Member], topic: &str, gone: BrokerId) -> usize {
    for member in members {
        let known = |image: &Image| {
            let partition = image.partition(topic, PartitionIndex(0));
            partition.is_some_and(|partition| partition.has_leader() && partition.leader != gone)
        };
        member.wait_until(known).await;
    }
    members.iter().position(|member| member.leads(topic)).unwrap()
}

/// The bytes of a partition's first segment.
fn log_bytes(cluster: &Cluster, id: i32, topic: &str) -> Vec<u8> {
    let path = cluster.dir.path().join(format!("{id}/{topic}-0/00000000000000000000.log"));
    std::fs::read(path).unwrap()
}

async fn three(settings: &[(&str, &str)]) -> (Cluster, [Member; 3]) {
    let cluster = Cluster::new(settings);
    let (first, second, third) = (cluster.start(1).await, cluster.start(2).await, cluster.start(3).await);
    first.wait_until(|image| image.brokers().len() == 3).await;
    (cluster, [first, second, third])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_is_on_all_replicas_byte_for_byte() {
    let (cluster, members) = three(&[]).await;
    members[0].create_topic("t", 1, 3).await;
    let leader = &members[leader_of(&members, "t", BrokerId::NONE).await];
    for (offset, value) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(leader.append("t", value).await.unwrap(), Offset(offset as i64));
    }
    let expected = log_bytes(&cluster, leader.broker.id().0, "t");
    assert!(expected.len() > 180);
    for id in 1..=3 {
        assert_eq!(log_bytes(&cluster, id, "t"), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_stops_and_comes_back_costs_nothing() {
    let (cluster, members) = three(&[("min.insync.replicas", "2")]).await;
    members[0].create_topic("t", 1, 3).await;
    let at = leader_of(&members, "t", BrokerId::NONE).await;
    members[at].append("t", "before").await.unwrap();
    let [first, second, third] = members;
    let mut members = vec![first, second, third];
    let stopped = members.remove(at);
    let id = stopped.broker.id();
    stopped.broker.stop().await;
    let leader = &members[leader_of(&members, "t", id).await];
    assert_eq!(leader.append("t", "meanwhile").await.unwrap(), Offset(1));
    let back = cluster.start(id.0).await;
    leader.wait_for_isr("t", 3).await;
    assert_eq!(leader.append("t", "after").await.unwrap(), Offset(2));
    let expected = log_bytes(&cluster, leader.broker.id().0, "t");
    for id in 1..=3 {
        assert_eq!(log_bytes(&cluster, id, "t"), expected);
    }
    drop(back);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_a_replaced_controller_stops_goes_on() {
    let (_cluster, members) = three(&[]).await;
    members[0].create_topic("t", 1, 3).await;
    let at = leader_of(&members, "t", BrokerId::NONE).await;
    members[at].append("t", "before").await.unwrap();
    let services = members[(at + 1) % 3].broker.services();
    let sender = ControlSender {
        controller_id: BrokerId(1),
        controller_epoch: ControllerEpoch(0),
        broker_epoch: services.replicas.broker_epoch(),
    };
    let stop = StopReplica {
        topic_partition: TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(0)),
        leader_epoch: LeaderEpoch::UNKNOWN,
        delete: true,
    };
    let request = ControlRequest::StopReplica(StopReplicaRequest { sender, partitions: vec![stop] });
    let refused = services.control.send(services.broker_id, request).await;
    assert!(matches!(refused, Err(ControlError::Refused { .. })), "{refused:?}");
    members[at].append("t", "after").await.unwrap();
    let image = services.metadata.image();
    assert_eq!(image.partition("t", PartitionIndex(0)).unwrap().isr.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_is_gone_leaves_the_isr_and_too_few_refuse_writes() {
    let (_cluster, [first, second, third]) = three(&[("min.insync.replicas", "3")]).await;
    first.create_topic("t", 1, 3).await;
    first.wait_for_isr("t", 3).await;
    let members = [first, second, third];
    let at = (leader_of(&members, "t", BrokerId::NONE).await + 1) % 3;
    let mut members = Vec::from(members);
    members.remove(at).broker.stop().await;
    let leader = members.iter().find(|member| member.leads("t")).unwrap();
    leader.wait_for_isr("t", 2).await;
    let refused = leader.append("t", "a").await;
    assert!(matches!(refused, Err(ReplicaError::NotEnoughReplicas { .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_marker_is_flushed_before_it_counts_as_written_where_that_is_asked_for() {
    let cluster = Cluster::new(&[("log.flush.interval.messages", "1")]);
    let only = cluster.start(1).await;
    only.create_topic("t", 1, 1).await;
    leader_of(std::slice::from_ref(&only), "t", BrokerId::NONE).await;
    let end = EndMarkers {
        producer_id: ProducerId(7),
        producer_epoch: ProducerEpoch(0),
        is_commit: true,
        coordinator_epoch: LeaderEpoch(0),
        version: TransactionVersion::Classic,
        partitions: vec![TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(0))],
        may_repeat: false,
    };
    for offset in 1..=20 {
        let services = only.broker.services();
        let written = services.markers.write(services.broker_id, vec![end.clone()]).await.unwrap();
        assert_eq!(written, [vec![Ok(())]]);
        assert_eq!(only.partition("t", 0).log().recovery_point(), Offset(offset));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_given_up_leaves_nothing_registered() {
    let cluster = Cluster::new(&[]);
    let other = cluster.ensemble.session();
    // A controller that tells nobody of anything keeps a start waiting.
    let silent = znodes::Controller { broker_id: BrokerId(99), timestamp: Timestamp(1) };
    let node = Create {
        path: znodes::CONTROLLER.to_owned(),
        data: Some(silent.encode()),
        mode: CreateMode::Ephemeral,
    };
    other.create(node).await.unwrap();
    let registration = znodes::broker(BrokerId(1));
    let registered = async {
        let (_, appearance) = other.exists_and_watch(&registration).await.unwrap();
        appearance.await.unwrap();
    };
    let (config, ensemble) = (cluster.config(1), Box::new(cluster.ensemble.clone()));
    let metrics = Arc::new(Metrics::new(&Names::default()));
    let started = start::start(config, metrics, Machine::system(), Some(ensemble), registered).await;
    assert!(started.unwrap().is_none());
    assert_eq!(other.exists(&registration).await, Ok(None));
}
