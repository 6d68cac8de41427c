//! Real Kafka takes a broker's folder over in the middle of transactions, and hands it back in the middle of others:
//! whatever was decided stays decided, and whatever was open can be ended either way.

use protocol_tests::{Cluster, Connection, Server, announce, command_exists, wait_for};
use wire::add_offsets_to_txn_request::AddOffsetsToTxnRequest;
use wire::describe_transactions_request::DescribeTransactionsRequest;
use wire::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use wire::txn_offset_commit_request::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};

use crate::code;
use crate::producer::{Producer, aborted, committed_keys, init, wait_until_stable};

/// Enough partitions that coordinators differ, and nothing that runs out under the test.
const SETTINGS: &[(&str, &str)] = &[
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    // Nothing here is about sessions that expire.
    ("zookeeper.session.timeout.ms", "6000"),
    ("log.cleaner.enable", "false"),
    ("log.retention.ms", "-1"),
    // The records are of any time.
    ("log.message.timestamp.before.max.ms", "9223372036854775807"),
    ("producer.id.expiration.ms", "2147483647"),
];

const BROKER: i32 = 1;
/// Has replicas of topics that are to take no writes, and is gone.
const ABSENT: i32 = 2;
const SMALLEST_ISR: &str = "min.insync.replicas";
const NOT_ENOUGH_REPLICAS: i16 = 19;

#[test]
fn kafka_takes_a_folder_over_amid_transactions_and_hands_it_back() {
    if !["java", "mvn"].into_iter().all(command_exists) {
        return announce("LEFT OUT: takeover: this machine has no java or mvn");
    }
    let mut cluster = Cluster::new(SETTINGS);
    cluster.add(BROKER, Server::Barnabas);
    cluster.add(ABSENT, Server::Barnabas);
    cluster.wait_for_brokers(2);
    // Ends that are kept from their partitions, by the test's own doing.
    cluster.broker(BROKER).allow_log("the end of a transaction is not known to all its partitions");
    for [free, stuck, stuck_for_long] in ["barnabas", "kafka"].map(topics) {
        cluster.create_topic(&free, &[&[BROKER], &[BROKER]]);
        cluster.create_topic(&stuck, &[&[BROKER, ABSENT]]);
        cluster.create_topic(&stuck_for_long, &[&[BROKER, ABSENT]]);
    }
    cluster.lose(ABSENT);
    let mut begun_here = Unfinished::begin(&mut cluster, "barnabas");

    cluster.hand_over(BROKER, Server::named("kafka-3.9.2"));
    begun_here.check_states(&mut cluster, &begun_here.states());
    begun_here.end_first(&mut cluster);
    let mut begun_there = Unfinished::begin(&mut cluster, "kafka");
    check_kafkas_log(&mut cluster);

    cluster.hand_over(BROKER, Server::Barnabas);
    begun_there.check_states(&mut cluster, &begun_there.states());
    begun_here.check_first_outcomes(&mut cluster);
    begun_there.end_first(&mut cluster);
    begun_here.end_rest(&mut cluster, true);
    begun_there.end_rest(&mut cluster, false);
    let seen = [begun_here.outcomes(&mut cluster), begun_there.outcomes(&mut cluster)];

    cluster.hand_over(BROKER, Server::named("kafka-3.9.2"));
    let again = [begun_here.outcomes(&mut cluster), begun_there.outcomes(&mut cluster)];
    assert_eq!(seen, again, "what Barnabas and Kafka show of the same folder");
    check_kafkas_log(&mut cluster);
}

/// Transactions in every state, named after the server that began them.
struct Unfinished {
    by: &'static str,
    /// Open, with offsets of a group; committed by the next server.
    open: Producer,
    /// Open until the server after that.
    open_for_long: Producer,
}

impl Unfinished {
    #[track_caller]
    fn begin(cluster: &mut Cluster, by: &'static str) -> Unfinished {
        let address = cluster.broker(BROKER).address();
        let mut connection = cluster.connect(BROKER);
        let [free, stuck, stuck_for_long] = topics(by);
        for topic in [&stuck, &stuck_for_long] {
            cluster.wait_for_isr(topic, 0, &[BROKER], 0);
        }
        connection.wait_for_coordinator(&format!("{by}-group"));
        let producer = |role: &str| Producer::new(&address, &format!("{by}-{role}"));

        let mut open = producer("open");
        open.begin(&free, &[0, 1]);
        open.write(&free, 0, "open", 2);
        commit_in_transaction(&mut open, by, &free, 11);
        let mut open_for_long = producer("open-for-long");
        open_for_long.begin(&free, &[0]);
        open_for_long.write(&free, 0, "open-for-long", 1);

        let mut decided = Vec::new();
        for (role, partition, topic) in [
            ("commit", 0, &stuck),
            ("abort", 1, &stuck),
            ("commit-for-long", 1, &stuck_for_long),
            ("abort-for-long", 0, &stuck_for_long),
        ] {
            let mut producer = producer(role);
            producer.begin(&free, &[partition]);
            producer.begin(topic, &[0]);
            producer.write(&free, partition, role, 1);
            producer.write(topic, 0, role, 1);
            decided.push((producer, role.starts_with("commit")));
        }
        for (role, commits) in [("committed", true), ("aborted", false)] {
            let mut producer = producer(role);
            producer.begin(&free, &[0, 1]);
            producer.write(&free, 0, role, 1);
            producer.write(&free, 1, role, 1);
            assert_eq!(producer.end(3, commits), code::NONE);
        }
        drop(producer("empty"));

        // From now on no marker gets into these topics.
        for topic in [&stuck, &stuck_for_long] {
            set_smallest_isr(&mut connection, topic, Some("2"));
            refuse_writes(&mut connection, topic);
        }
        for (mut producer, commits) in decided {
            assert_eq!(producer.end(3, commits), code::NONE, "{}", producer.id);
        }
        let unfinished = Unfinished { by, open, open_for_long };
        unfinished.check_states(cluster, &unfinished.states());
        unfinished
    }

    /// What each id is in, as `begin` leaves it.
    fn states(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("open", "Ongoing"),
            ("open-for-long", "Ongoing"),
            ("commit", "PrepareCommit"),
            ("abort", "PrepareAbort"),
            ("commit-for-long", "PrepareCommit"),
            ("abort-for-long", "PrepareAbort"),
            ("committed", "CompleteCommit"),
            ("aborted", "CompleteAbort"),
            ("empty", "Empty"),
        ]
    }

    #[track_caller]
    fn check_states(&self, cluster: &mut Cluster, expected: &[(&str, &str)]) {
        let mut connection = cluster.connect(BROKER);
        let ids = expected.iter().map(|(role, _)| format!("{}-{role}", self.by).as_str().into());
        let request = DescribeTransactionsRequest { transactional_ids: ids.collect() };
        let mut last = Vec::new();
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(role, state)| (format!("{}-{role}", self.by), (*state).to_owned()))
            .collect();
        let reached = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("the states", || {
                last = connection
                    .call(0, &request)
                    .transaction_states
                    .iter()
                    .map(|state| (state.transactional_id.to_string(), state.transaction_state.to_string()))
                    .collect();
                (last == expected).then_some(())
            });
        }));
        assert!(reached.is_ok(), "{last:?} and not {expected:?}");
    }

    /// On the server after the one that began them.
    #[track_caller]
    fn end_first(&mut self, cluster: &mut Cluster) {
        let mut connection = cluster.connect(BROKER);
        let [free, stuck, _] = topics(self.by);
        // The transaction goes on with another server.
        self.open.reconnect(&cluster.broker(BROKER).address());
        wait_for("the partition's leader", || {
            let batch = self.open.next_batch(&free, 1, "open-still", 1);
            let code = self.open.send(9, &free, 1, &batch);
            (code == code::NONE).then(|| self.open.count(&free, 1, 1))
        });
        assert_eq!(self.open.end(3, true), code::NONE);
        set_smallest_isr(&mut connection, &stuck, None);
        self.check_states(
            cluster,
            &[("open", "CompleteCommit"), ("commit", "CompleteCommit"), ("abort", "CompleteAbort")],
        );
        self.check_first_outcomes(cluster);
    }

    #[track_caller]
    fn check_first_outcomes(&self, cluster: &mut Cluster) {
        let mut connection = cluster.connect(BROKER);
        let [free, stuck, _] = topics(self.by);
        connection.wait_for_leaders(&free, 2);
        wait_until_stable(&mut connection, &stuck, 0);
        assert_eq!(data_keys(&mut connection, &stuck, 0), ["commit-0"]);
        let group = format!("{}-group", self.by);
        wait_for("the group's offset", || (connection.committed(&group, &free, 0) == 11).then_some(()));
        // Open for long: nothing behind its first record is stable, and what is open is not shown.
        let keys = data_keys(&mut connection, &free, 0);
        assert!(!keys.iter().any(|key| key.starts_with("open-for-long")), "{keys:?}");
    }

    /// On the server that began them, after another one had them.
    #[track_caller]
    fn end_rest(&mut self, cluster: &mut Cluster, commits: bool) {
        let mut connection = cluster.connect(BROKER);
        let [free, _, stuck_for_long] = topics(self.by);
        self.open_for_long.reconnect(&cluster.broker(BROKER).address());
        assert_eq!(self.open_for_long.end(3, commits), code::NONE);
        set_smallest_isr(&mut connection, &stuck_for_long, None);
        let end = if commits { "CompleteCommit" } else { "CompleteAbort" };
        self.check_states(
            cluster,
            &[
                ("open-for-long", end),
                ("commit-for-long", "CompleteCommit"),
                ("abort-for-long", "CompleteAbort"),
            ],
        );
        for partition in 0..2 {
            wait_until_stable(&mut connection, &free, partition);
        }
        wait_until_stable(&mut connection, &stuck_for_long, 0);
        let mut expected = vec!["open-0", "open-1", "commit-0", "committed-0"];
        if commits {
            expected.insert(2, "open-for-long-0");
        }
        assert_eq!(data_keys(&mut connection, &free, 0), expected);
        assert_eq!(
            data_keys(&mut connection, &free, 1),
            ["commit-for-long-0", "committed-0", "open-still-0"]
        );
        assert_eq!(data_keys(&mut connection, &stuck_for_long, 0), ["commit-for-long-0"]);
        // The ids go on: each producer is fenced by the next of its id.
        let next = init(&mut connection, 4, &format!("{}-open-for-long", self.by));
        assert_eq!((next.error_code, next.producer_id), (0, self.open_for_long.producer_id));
        assert!(next.producer_epoch > self.open_for_long.epoch);
    }

    /// All that a reader of committed records sees, and which aborted transactions it is told of.
    fn outcomes(&self, cluster: &mut Cluster) -> Vec<Outcome> {
        let mut connection = cluster.connect(BROKER);
        let [free, stuck, stuck_for_long] = topics(self.by);
        let places = [(&free, 0), (&free, 1), (&stuck, 0), (&stuck_for_long, 0)];
        let read = |(topic, partition): (&String, i32)| {
            connection.wait_for_leaders(topic, partition + 1);
            wait_until_stable(&mut connection, topic, partition);
            let keys = committed_keys(&mut connection, topic, partition);
            (keys, aborted(&mut connection, topic, partition))
        };
        places.map(read).into()
    }
}

/// Keys of committed records, and the aborted transactions of a partition.
type Outcome = (Vec<String>, Vec<(i64, i64)>);

fn topics(by: &str) -> [String; 3] {
    [format!("{by}-free"), format!("{by}-stuck"), format!("{by}-stuck-for-long")]
}

/// Committed keys without those of [`refuse_writes`].
fn data_keys(connection: &mut Connection, topic: &str, partition: i32) -> Vec<String> {
    let mut keys = committed_keys(connection, topic, partition);
    keys.retain(|key| !key.starts_with("probe"));
    keys
}

fn commit_in_transaction(producer: &mut Producer, by: &str, topic: &str, committed_offset: i64) {
    let group_id = format!("{by}-group");
    let add = AddOffsetsToTxnRequest {
        transactional_id: producer.id.as_str().into(),
        producer_id: producer.producer_id,
        producer_epoch: producer.epoch,
        group_id: group_id.as_str().into(),
    };
    assert_eq!(producer.connection.call(3, &add).error_code, code::NONE);
    let partition = TxnOffsetCommitRequestPartition {
        committed_offset,
        committed_metadata: Some("".into()),
        ..Default::default()
    };
    let commit = TxnOffsetCommitRequest {
        transactional_id: producer.id.as_str().into(),
        group_id: group_id.as_str().into(),
        producer_id: producer.producer_id,
        producer_epoch: producer.epoch,
        generation_id: -1,
        topics: vec![TxnOffsetCommitRequestTopic { name: topic.into(), partitions: vec![partition] }],
        ..Default::default()
    };
    wait_for("the group's coordinator", || {
        (producer.connection.call(3, &commit).topics[0].partitions[0].error_code == 0).then_some(())
    });
}

/// `None` = as the broker has it.
fn set_smallest_isr(connection: &mut Connection, topic: &str, value: Option<&str>) {
    let config = AlterableConfig {
        name: SMALLEST_ISR.into(),
        config_operation: if value.is_some() { 0 } else { 1 },
        value: value.map(Into::into),
    };
    let resource =
        AlterConfigsResource { resource_type: 2, resource_name: topic.into(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    assert_eq!(connection.call(1, &request).responses[0].error_code, 0);
}

/// Waits until the topic takes no writes for want of replicas.
fn refuse_writes(connection: &mut Connection, topic: &str) {
    let probe = protocol_tests::batch::Batch::of("probe", 1, 1_700_000_000_000);
    wait_for("a topic that takes no writes", || {
        let code = connection.produce(topic, vec![(0, probe.encode())])[0].error_code;
        (code == NOT_ENOUGH_REPLICAS).then_some(())
    });
}

/// Nothing that Kafka found in the folder was wrong.
#[track_caller]
fn check_kafkas_log(cluster: &mut Cluster) {
    let path = cluster.broker(BROKER).dir().join("logs/server.log");
    let log = std::fs::read_to_string(path).expect("read Kafka's log");
    // Markers wait for replicas, and partitions find no other leader, by the test's own doing.
    let wanted = ["Error processing append operation", "failed to change state for partition"];
    let is_wanted = |line: &str| line.contains("-stuck") && wanted.iter().any(|text| line.contains(text));
    let odd = |line: &&str| line.contains(" ERROR ") && !is_wanted(line);
    let lines: Vec<&str> = log.lines().filter(odd).collect();
    assert!(lines.is_empty(), "Kafka says:\n{}", lines.join("\n"));
}
