//! Several brokers in one process, on one tree, with real sockets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::Broker;
use super::backend::Backend;
use super::start::{Machine, OPEN_FILES_MAX, bind, start_on};
use crate::config::{BrokerConfig, Properties};
use crate::controller::admin::{CreateTopics, NewTopic};
use crate::coordination::MemoryEnsemble;
use crate::log::LogDirectories;
use crate::metadata::Image;
use crate::model::{BrokerId, PartitionIndex};
use crate::observe::{Metrics, Names};
use crate::replica::Partition;
use crate::runtime::fs::DiskFileSystem;
use crate::runtime::{Clock, Random};

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
        let config = BrokerConfig::new(properties).unwrap();
        let paths: Vec<PathBuf> = vec![folder];
        let machine = Machine {
            listeners: bind(&config).unwrap(),
            directories: LogDirectories::open(Arc::new(DiskFileSystem), &paths, OPEN_FILES_MAX).unwrap(),
            clock: Clock::system(),
            random: Random::from_entropy(),
        };
        let backend = Backend::of(Box::new(self.ensemble.clone()), "memory");
        let metrics = Arc::new(Metrics::new(&Names::default()));
        let started = start_on(config, metrics, machine, backend).await;
        Member { broker: started.unwrap() }
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
