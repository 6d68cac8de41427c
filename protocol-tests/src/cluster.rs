use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use wire::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use wire::create_topics_request::{CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest};
use wire::elect_leaders_request::{ElectLeadersRequest, TopicPartitions};
use wire::metadata_response::MetadataResponsePartition;

use crate::requests::LATEST;
use crate::{Broker, Connection, Network, Server, ZooKeeper, wait_for};

/// Brokers on one real ZooKeeper, of the same kind or of several. Dropping it stops all.
pub struct Cluster {
    /// By broker id; stopped before their ZooKeeper.
    brokers: BTreeMap<i32, Broker>,
    zookeeper: ZooKeeper,
    settings: Vec<(String, String)>,
    /// Where each broker, all of Barnabas, has a network of its own. Goes after the brokers.
    network: Option<Network>,
}

/// Sessions of 1.5 s, which a test can wait for; replicas that lag leave the ISR soon.
const SETTINGS: &[(&str, &str)] = &[
    ("zookeeper.session.timeout.ms", "1500"),
    ("zookeeper.connection.timeout.ms", "60000"),
    ("replica.lag.time.max.ms", "4000"),
    ("controlled.shutdown.retry.backoff.ms", "200"),
    ("offsets.topic.replication.factor", "3"),
    ("offsets.topic.num.partitions", "3"),
    ("transaction.state.log.replication.factor", "3"),
    ("transaction.state.log.num.partitions", "3"),
    ("group.initial.rebalance.delay.ms", "0"),
];

impl Cluster {
    /// Sessions that a busy machine does not end, for tests that expect everybody to stay.
    pub const LONG_SESSIONS: (&'static str, &'static str) = ("zookeeper.session.timeout.ms", "6000");

    /// A ZooKeeper for brokers with these settings on top of the harness' own.
    #[track_caller]
    pub fn new(settings: &[(&str, &str)]) -> Cluster {
        Cluster::on(ZooKeeper::start(&["tickTime=500"]), settings)
    }

    /// As [`Cluster::new`], with this ZooKeeper.
    pub fn on(zookeeper: ZooKeeper, settings: &[(&str, &str)]) -> Cluster {
        let mut all: BTreeMap<&str, &str> = SETTINGS.iter().copied().collect();
        all.extend(settings.iter().copied());
        let settings = all.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Cluster { brokers: BTreeMap::new(), zookeeper, settings, network: None }
    }

    /// Three brokers of Barnabas, each in a network of its own, which reaches the others' and this machine's.
    #[track_caller]
    pub fn of_three_in(network: Network, settings: &[(&str, &str)]) -> Cluster {
        let zookeeper = ZooKeeper::start(&["tickTime=500", "clientPortAddress=0.0.0.0"]);
        let mut cluster = Cluster::on(zookeeper, settings);
        cluster.network = Some(network);
        (1..=3).for_each(|id| cluster.add(id, Server::Barnabas));
        cluster.wait_for_brokers(3);
        cluster
    }

    /// # Panics
    /// Where the brokers share this machine's network.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("the brokers have networks of their own")
    }

    /// Three brokers of Barnabas with the ids 1, 2 and 3.
    #[track_caller]
    pub fn of_three(settings: &[(&str, &str)]) -> Cluster {
        Cluster::new(settings).with_three()
    }

    /// Starts brokers of Barnabas with the ids 1, 2 and 3.
    #[track_caller]
    pub fn with_three(self) -> Cluster {
        let mut cluster = self;
        (1..=3).for_each(|id| cluster.add(id, Server::Barnabas));
        cluster.wait_for_brokers(3);
        cluster
    }

    /// Starts one more broker.
    #[track_caller]
    pub fn add(&mut self, id: i32, server: Server) {
        self.add_with(id, server, &[]);
    }

    /// Starts one more broker, with settings that the others do not have.
    #[track_caller]
    pub fn add_with(&mut self, id: i32, server: Server, own: &[(&str, &str)]) {
        let is_own = |key: &str| own.iter().any(|(known, _)| *known == key);
        let common = self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut settings: Vec<(&str, &str)> =
            common.filter(|(key, _)| !is_own(key)).chain(own.iter().copied()).collect();
        if !server.is_barnabas() {
            settings.retain(|(key, _)| *key != "zookeeper.session.timeout.ms");
            settings.push(("zookeeper.session.timeout.ms", Broker::KAFKAS_SESSION_MS));
        }
        let joined = match &self.network {
            Some(network) => {
                let place = (network.namespace(id), network.host(id));
                let zookeeper = format!("{}:{}", network.zookeeper(), self.zookeeper.port());
                Broker::join_in(place, id, &zookeeper, &settings)
            }
            None => Broker::join(server, id, &self.zookeeper.address(), &settings),
        };
        let mut broker = joined;
        // What a machine under load makes brokers say of an ensemble with short sessions.
        for text in ["lost the connection to ZooKeeper", "has expired", "joining the cluster again"] {
            broker.allow_log(text);
        }
        broker.allow_log("the store's session was not closed");
        // A coordinator that loses its partition while it writes, or hears of that from a partition that its successor
        // has told of the end; the client asks the next one.
        let lost = [
            "a transaction's state was not stored",
            "a group's state was not stored",
            "a later coordinator has ended the transaction",
        ];
        // A client asks for a coordinator while too few brokers are registered for the topic of coordinators.
        let few = "a topic was not created for a client";
        for text in ["the broker's id is taken", "moved all leaderships", few].into_iter().chain(lost) {
            broker.allow_log(text);
        }
        self.brokers.insert(id, broker);
    }

    /// Stops a broker; another program serves its folder from then on, under the same id.
    #[track_caller]
    pub fn hand_over(&mut self, id: i32, server: Server) {
        let zookeeper = self.zookeeper.address();
        let broker = self.broker(id);
        broker.stop();
        broker.hand_over_within(server, id, &zookeeper);
        broker.start_again();
        let running = self.brokers.values().filter(|broker| broker.is_running()).count();
        let mut connection = self.connect(id);
        wait_for("all brokers", || (connection.metadata(None).brokers.len() == running).then_some(()));
    }

    /// Starts one more Barnabas, with the log directories `data` and `more`.
    #[track_caller]
    pub fn add_with_two_folders(&mut self, id: i32) {
        self.add(id, Server::Barnabas);
        let broker = self.broker(id);
        broker.stop();
        let folders = format!("{},{}", broker.data_dir().display(), broker.dir().join("more").display());
        broker.set("log.dirs", &folders);
        broker.start_again();
    }

    /// Moves a broker's folder to another place, on another volume.
    #[track_caller]
    pub fn move_folder(&mut self, id: i32, to: &Path) {
        let broker = self.broker(id);
        broker.stop();
        let (from, to) = (broker.data_dir(), to.join("data"));
        let status = Command::new("mv").args([&from, &to]).status().expect("run mv");
        assert!(status.success(), "mv {} {}: {status}", from.display(), to.display());
        std::os::unix::fs::symlink(&to, &from).expect("leave a link");
        broker.start_again();
        let running = self.brokers.len();
        self.wait_for_brokers(running);
    }

    pub fn broker(&mut self, id: i32) -> &mut Broker {
        self.brokers.get_mut(&id).expect("the cluster has this broker")
    }

    pub fn zookeeper(&self) -> &ZooKeeper {
        &self.zookeeper
    }

    /// Of all brokers that were started, as clients take it.
    pub fn bootstrap(&self) -> String {
        self.addresses().join(",")
    }

    /// `host:port` of each broker, in the order of their ids.
    pub fn addresses(&self) -> Vec<String> {
        self.brokers.values().map(Broker::address).collect()
    }

    /// `host:port` of one broker.
    pub fn address(&self, id: i32) -> String {
        self.brokers.get(&id).expect("the cluster has this broker").address()
    }

    pub fn connect(&self, id: i32) -> Connection {
        Connection::open(&self.address(id))
    }

    /// A connection to any broker that runs but this one.
    pub fn connect_to_other(&self, than: i32) -> Connection {
        let mut running = self.brokers.iter().filter(|(_, broker)| broker.is_running());
        let (id, _) = running.find(|(id, _)| **id != than).expect("another broker of the cluster runs");
        self.connect(*id)
    }

    #[track_caller]
    pub fn wait_for_brokers(&self, count: usize) {
        for id in self.brokers.keys() {
            let mut connection = self.connect(*id);
            wait_for("all brokers", || (connection.metadata(None).brokers.len() == count).then_some(()));
        }
    }

    /// Kills a broker, and waits until the others have heard of it.
    #[track_caller]
    pub fn lose(&mut self, id: i32) {
        self.broker(id).kill();
        self.wait_until_gone(id);
    }

    /// Waits until the others have heard that a broker which was killed is gone: before that, a Kafka that is started
    /// again finds its own registration and gives up.
    #[track_caller]
    pub fn wait_until_gone(&self, id: i32) {
        wait_for("the end of a killed broker's session", || {
            let brokers = self.connect_to_other(id).metadata(None).brokers;
            brokers.iter().all(|broker| broker.node_id != id).then_some(())
        });
    }

    /// Creates a topic with its partitions on these brokers, the preferred leader first.
    #[track_caller]
    pub fn create_topic(&self, name: &str, partitions: &[&[i32]]) {
        let assignments = partitions.iter().enumerate().map(|(index, brokers)| CreatableReplicaAssignment {
            partition_index: i32::try_from(index).expect("few partitions"),
            broker_ids: brokers.to_vec(),
        });
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: assignments.collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
        wait_for(&format!("topic {name}"), || {
            let controller = self.connect_to_other(0).metadata(None).controller_id;
            self.brokers.get(&controller)?;
            let code = self.connect(controller).call(5, &request).topics[0].error_code;
            // The first attempt may have been carried out without an answer.
            (code == 0 || code == 36).then_some(())
        });
        for (index, brokers) in (0..).zip(partitions) {
            self.wait_for_isr(name, index, brokers, 0);
            self.wait_until_led(name, index);
        }
    }

    /// Waits until the partition's leader says itself that it leads: others may have heard of it before.
    #[track_caller]
    pub fn wait_until_led(&self, topic: &str, index: i32) {
        wait_for(&format!("the word of the leader of {topic}-{index}"), || {
            let leader = self.partition(topic, index, 0)?.leader_id;
            let broker = self.brokers.get(&leader).filter(|broker| broker.is_running())?;
            let mut connection = Connection::try_open(&broker.address())?;
            connection.offset_at(topic, index, LATEST).ok()?;
            let told = connection.try_metadata(Some(topic))?.topics.into_iter().next()?.partitions;
            let own = told.into_iter().find(|partition| partition.partition_index == index)?;
            (own.leader_id == leader).then_some(())
        });
    }

    /// The controller, as another broker than `than` knows it.
    #[track_caller]
    pub fn controller(&self, than: i32) -> i32 {
        wait_for("a controller", || {
            let id = self.connect_to_other(than).metadata(None).controller_id;
            (id > 0 && id != than).then_some(id)
        })
    }

    /// A partition as another broker than `than` knows it.
    pub fn partition(&self, topic: &str, index: i32, than: i32) -> Option<MetadataResponsePartition> {
        let metadata = self.connect_to_other(than).metadata(Some(topic));
        let partitions = metadata.topics.into_iter().flat_map(|topic| topic.partitions);
        partitions.into_iter().find(|partition| partition.partition_index == index)
    }

    /// Waits for a leader other than `than`, and gives it.
    #[track_caller]
    pub fn leader(&self, topic: &str, index: i32, than: i32) -> i32 {
        wait_for(&format!("a leader of {topic}-{index}"), || {
            let leader = self.partition(topic, index, than)?.leader_id;
            (leader > 0 && leader != than).then_some(leader)
        })
    }

    /// Waits until no more than so many are known.
    #[track_caller]
    pub fn wait_for_brokers_gone(&self, count: usize) {
        wait_for("fewer brokers", || {
            (self.connect_to_other(0).metadata(None).brokers.len() <= count).then_some(())
        });
    }

    /// Takes a broker that has stopped for good out of the list of those to connect to.
    pub fn forget(&mut self, id: i32) {
        self.brokers.remove(&id);
    }

    /// Waits until exactly these are in sync, as another broker than `than` knows it.
    #[track_caller]
    pub fn wait_for_isr(&self, topic: &str, index: i32, members: &[i32], than: i32) {
        let mut wanted = members.to_vec();
        wanted.sort_unstable();
        wait_for(&format!("{members:?} in sync with {topic}-{index}"), || {
            let mut isr = self.partition(topic, index, than)?.isr_nodes;
            isr.sort_unstable();
            (isr == wanted).then_some(())
        });
    }

    /// Asks the controller for other replicas, and waits until they are all there are.
    #[track_caller]
    pub fn reassign(&self, topic: &str, index: i32, replicas: &[i32]) {
        let partition = ReassignablePartition { partition_index: index, replicas: Some(replicas.to_vec()) };
        let topics = vec![ReassignableTopic { name: topic.into(), partitions: vec![partition] }];
        let request = AlterPartitionReassignmentsRequest { timeout_ms: 30_000, topics, ..Default::default() };
        wait_for("the controller to move replicas", || {
            let answer = self.connect(self.controller(0)).try_call(0, &request).ok()?;
            let code = answer.responses.first()?.partitions.first()?.error_code;
            (answer.error_code == 0 && code == 0).then_some(())
        });
        wait_for(&format!("{topic}-{index} on {replicas:?}"), || {
            let partition = self.partition(topic, index, 0)?;
            (partition.replica_nodes == replicas && partition.isr_nodes.len() == replicas.len()).then_some(())
        });
    }

    /// Makes this replica the preferred leader, and the leader.
    #[track_caller]
    pub fn lead(&self, topic: &str, index: i32, leader: i32) {
        let mut replicas = self.partition(topic, index, 0).expect("the partition").replica_nodes;
        replicas.sort_by_key(|id| *id != leader);
        self.reassign(topic, index, &replicas);
        let partitions = TopicPartitions { topic: topic.into(), partitions: vec![index] };
        let request = ElectLeadersRequest {
            election_type: 0,
            topic_partitions: Some(vec![partitions]),
            timeout_ms: 30_000,
        };
        wait_for(&format!("{leader} to lead {topic}-{index}"), || {
            // That it leads already is an error too.
            let _ = self.connect(self.controller(0)).try_call(1, &request);
            (self.partition(topic, index, 0)?.leader_id == leader).then_some(())
        });
        self.wait_until_led(topic, index);
    }

    /// The bytes of a partition's first segment on a broker.
    pub fn segment(&self, id: i32, topic: &str, index: i32) -> Vec<u8> {
        let broker = self.brokers.get(&id).expect("the cluster has this broker");
        let path = broker.data_dir().join(format!("{topic}-{index}/00000000000000000000.log"));
        std::fs::read(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
    }

    /// All replicas hold the same bytes, once followers have what there is.
    #[track_caller]
    pub fn check_logs(&self, topic: &str, index: i32, brokers: &[i32]) {
        wait_for(&format!("equal logs of {topic}-{index}"), || {
            let logs: Vec<Vec<u8>> = brokers.iter().map(|id| self.segment(*id, topic, index)).collect();
            logs.windows(2).all(|pair| pair[0] == pair[1]).then_some(())
        });
    }
}
