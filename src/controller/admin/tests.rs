use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::config::{BrokerConfig, Properties};
use crate::controller::testing::{NOW, Running, dump, start_alone};
use crate::controller::{ConfigChanges, ElectionError, ElectionKind, NotController};
use crate::coordination::znodes::ConfigEntity;
use crate::model::*;
use crate::runtime::Clock;

struct World {
    running: Running,
    admin: Arc<Admin>,
    config: BrokerConfig,
}

fn broker_config() -> BrokerConfig {
    let settings = [("num.partitions", "2"), ("offsets.topic.replication.factor", "1")];
    BrokerConfig::new(settings.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
        .unwrap()
}

async fn world() -> World {
    let running = start_alone().await;
    running.controller.subscribe().wait_for(|status| status.active_epoch.is_some()).await.unwrap();
    running.broker.metadata.wait_until(|image| image.brokers().len() == 1).await;
    let admin = admin(&running, AdminOptions { uses_topic_ids: true, topic_deletion_enabled: true });
    World { running, admin: Arc::new(admin), config: broker_config() }
}

fn admin(running: &Running, options: AdminOptions) -> Admin {
    Admin::new(
        BrokerId(1),
        Arc::clone(&running.store),
        Arc::clone(&running.broker.metadata),
        running.controller.clone(),
        Random::from_seed(5),
        options,
    )
}

fn new_topic(name: &str, partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic { name: name.into(), partitions, replication_factor, ..NewTopic::default() }
}

fn assigned(name: &str, assignments: &[(i32, &[i32])]) -> NewTopic {
    let assignments = assignments
        .iter()
        .map(|&(index, replicas)| (PartitionIndex(index), replicas.iter().copied().map(BrokerId).collect()));
    NewTopic { assignments: assignments.collect(), ..new_topic(name, -1, -1) }
}

fn with_config(topic: NewTopic, key: &str, value: Option<&str>) -> NewTopic {
    NewTopic { configs: vec![(key.into(), value.map(Into::into))], ..topic }
}

impl World {
    async fn create(&self, topics: Vec<NewTopic>, timeout_ms: i32) -> BTreeMap<String, String> {
        let request = CreateTopics { topics, validate_only: false, timeout_ms };
        let answers =
            self.admin.create_topics(request, &self.config, |name| name != "forbidden").await.unwrap();
        answers
            .into_iter()
            .map(|(name, outcome)| {
                let text = match outcome {
                    Ok(topic) => format!("{} x {}", topic.partitions, topic.replication_factor),
                    Err(error) => error.to_string(),
                };
                (name, text)
            })
            .collect()
    }

    async fn create_one(&self, topic: NewTopic) -> String {
        self.create(vec![topic], 30_000).await.into_values().next().unwrap()
    }

    async fn delete(&self, topics: Vec<TopicSelector>, timeout_ms: i32) -> Vec<DeletedTopic> {
        let permissions = DeletionPermissions {
            may_describe: &|name| name != "hidden",
            may_delete: &|name| name != "forbidden",
        };
        self.admin.delete_topics(DeleteTopics { topics, timeout_ms }, permissions).await.unwrap()
    }

    async fn alter(&self, resource: ConfigResource, change: ConfigChange) -> String {
        let answers = self.admin.alter_configs(vec![(resource, change)], false, &self.config).await;
        match answers.into_iter().next().unwrap().1 {
            Ok(()) => "ok".into(),
            Err(error) => error.to_string(),
        }
    }

    async fn stored(&self, topic: &str) -> Vec<(String, String)> {
        let entity = ConfigEntity::Topic(TopicName::new(topic).unwrap());
        self.admin.stored_config(&entity).await.unwrap().into_iter().collect()
    }
}

/// KAFKA-1841
#[tokio::test]
async fn an_offset_of_an_old_consumer_stands_in_its_node() {
    use crate::coordination::StoreError;
    let world = world().await;
    let topic = TopicName::new("orders").unwrap();
    let partition = PartitionIndex(3);
    let read = || world.admin.consumer_offset("billing", &topic, partition);
    assert_eq!(read().await, Ok(None));
    for offset in [Offset(42), Offset(7)] {
        world.admin.store_consumer_offset("billing", &topic, partition, offset).await.unwrap();
        assert_eq!(read().await, Ok(Some(offset)));
    }
    let node = world.running.store.read("/consumers/billing/offsets/orders/3").await.unwrap();
    assert_eq!(node.data.as_deref(), Some(&b"7"[..]));
    let refused = world.admin.store_consumer_offset("", &topic, partition, Offset(1)).await;
    assert!(matches!(refused, Err(StoreError::BadArguments { .. })));
}

fn operation(key: &str, operation: AlterOperation, value: &str) -> ConfigChange {
    ConfigChange::Alter(vec![AlterEntry { key: key.into(), operation, value: Some(value.into()) }])
}

fn topic(name: &str) -> ConfigResource {
    ConfigResource::Topic(name.into())
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

#[tokio::test]
async fn topics_are_created_with_the_brokers_defaults_and_led_when_answered() {
    let world = world().await;
    let topic = with_config(new_topic("orders", -1, -1), "retention.ms", Some("1000"));
    let request = CreateTopics { topics: vec![topic], validate_only: false, timeout_ms: 30_000 };
    let answers = world.admin.create_topics(request, &world.config, |_| true).await.unwrap();
    let (name, created) = &answers[0];
    let created = created.as_ref().unwrap();
    assert_eq!((name.as_str(), created.partitions, created.replication_factor), ("orders", 2, 1));
    assert_eq!(created.overrides, Properties::from([("retention.ms".into(), "1000".into())]));
    let image = world.running.broker.metadata.image();
    assert_eq!(image.topic_id("orders"), created.id);
    assert!(image.topic("orders").unwrap().partitions().iter().all(|partition| partition.has_leader()));
    assert_eq!(world.stored("orders").await, pairs(&[("retention.ms", "1000")]));
    let tree = dump(&*world.running.store).await;
    assert!(!tree.iter().any(|line| line.starts_with("/config/changes/")), "creation does not notify");
}

#[tokio::test]
async fn each_topic_of_a_request_is_answered_alone_in_order() {
    let world = world().await;
    let topics = ["a", "forbidden", "b", "a", "__cluster_metadata", "c"].map(|name| new_topic(name, 1, 1));
    let request = CreateTopics { topics: topics.to_vec(), validate_only: false, timeout_ms: 30_000 };
    let answers =
        world.admin.create_topics(request, &world.config, |name| name != "forbidden").await.unwrap();
    let errors: Vec<(&str, Option<&CreateTopicError>)> =
        answers.iter().map(|(name, outcome)| (name.as_str(), outcome.as_ref().err())).collect();
    let expected = [
        ("a", Some(&CreateTopicError::NamedTwice)),
        ("forbidden", Some(&CreateTopicError::NotAuthorized)),
        ("b", None),
        ("__cluster_metadata", Some(&CreateTopicError::ProhibitedName)),
        ("c", None),
    ];
    assert_eq!(errors, expected);
}

#[tokio::test]
async fn what_kafka_refuses_is_refused_with_its_words() {
    let world = world().await;
    world.create(vec![new_topic("there.is", 1, 1)], 30_000).await;
    let both = NewTopic { partitions: 1, ..assigned("t", &[(0, &[1])]) };
    let long = "x".repeat(250);
    let counts_and_assignments = "Both numPartitions or replicationFactor and replicasAssignments were set. \
        Both cannot be used at the same time.";
    let cases = [
        // The first check that fails counts: an existing topic with an impossible factor exists.
        (new_topic("there.is", 1, 100), "Topic 'there.is' already exists."),
        (new_topic("new", 1, 100), "Replication factor: 100 larger than available brokers: 1."),
        (new_topic("a b", 0, 1), "Number of partitions must be larger than 0."),
        (new_topic("new", -2, 1), "Number of partitions must be larger than 0."),
        (new_topic("new", 1, 0), "Replication factor must be larger than 0."),
        (with_config(new_topic("there.is", 1, 1), "retention.ms", None), "Topic 'there.is' already exists."),
        (
            with_config(new_topic("new", 0, 1), "retention.ms", None),
            "Null value not supported for topic configs: retention.ms",
        ),
        (both, counts_and_assignments),
        (
            new_topic("a b", 1, 1),
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, \
             '.', '_' and '-'",
        ),
        (new_topic("", 1, 1), "Topic name is invalid: the empty string is not allowed"),
        (new_topic("there_is", 1, 1), "Topic 'there_is' collides with existing topics: there.is"),
        (
            assigned("new", &[(0, &[1]), (1, &[1, 2])]),
            "All partitions should have the same number of replicas",
        ),
        (assigned("new", &[(0, &[])]), "Cannot have replication factor of 0 for partition id 0."),
        (assigned("new", &[(0, &[1, 1])]), "Duplicate replica assignment found: Map(0 -> ArrayBuffer(1, 1))"),
        (
            assigned("new", &[(1, &[1]), (2, &[1])]),
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (with_config(new_topic("new", 1, 1), "no.such", Some("1")), "Unknown topic config name: no.such"),
    ];
    for (topic, expected) in cases {
        assert_eq!(world.create_one(topic).await, expected);
    }
    assert!(world.create_one(new_topic(&long, 1, 1)).await.starts_with("Topic name is invalid"));
    assert_eq!(world.running.broker.metadata.image().topic_count(), 1);
}

#[tokio::test]
async fn names_of_one_request_collide_too() {
    let world = world().await;
    let answers = world.create(vec![new_topic("a.b", 1, 1), new_topic("a_b", 1, 1)], 30_000).await;
    assert_eq!(answers["a.b"], "1 x 1");
    assert_eq!(answers["a_b"], "Topic 'a_b' collides with existing topics: a.b");
}

#[tokio::test]
async fn a_validated_topic_is_not_created() {
    let world = world().await;
    let before = dump(&*world.running.store).await;
    let request = CreateTopics { topics: vec![new_topic("t", 3, 1)], validate_only: true, timeout_ms: 0 };
    let answers = world.admin.create_topics(request, &world.config, |_| true).await.unwrap();
    let created = answers[0].1.as_ref().unwrap();
    assert_eq!((created.id, created.partitions), (TopicId::ZERO, 3));
    assert_eq!(dump(&*world.running.store).await, before);
}

#[tokio::test]
async fn without_time_the_topic_is_created_and_timed_out() {
    let world = world().await;
    for timeout_ms in [0, -1] {
        let name = format!("t{timeout_ms}");
        let answers = world.create(vec![new_topic(&name, 1, 1)], timeout_ms).await;
        assert_eq!(answers[&name], CreateTopicError::TimedOut.to_string());
        world.running.broker.metadata.wait_until(|image| image.topic(&name).is_some()).await;
    }
}

/// A topic whose replicas are not there never gets a leader.
#[tokio::test(start_paused = true)]
async fn unknown_brokers_are_accepted_and_waited_for() {
    let world = world().await;
    assert_eq!(world.create_one(assigned("t", &[(0, &[9])])).await, CreateTopicError::TimedOut.to_string());
    assert_eq!(world.create_one(assigned("u", &[(0, &[9, 1])])).await, "1 x 2");
}

#[tokio::test]
async fn of_twenty_parallel_creations_one_succeeds() {
    let world = Arc::new(world().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let world = Arc::clone(&world);
        tasks.spawn(async move { world.create_one(new_topic("t", 1, 1)).await });
    }
    let answers = tasks.join_all().await;
    let created = answers.iter().filter(|answer| *answer == "1 x 1").count();
    let existed = answers.iter().filter(|answer| *answer == "Topic 't' already exists.").count();
    assert_eq!((created, existed), (1, 19));
}

#[tokio::test]
async fn a_configuration_left_over_is_replaced() {
    let world = world().await;
    let entity = ConfigEntity::Topic(TopicName::new("t").unwrap());
    let old = crate::coordination::Create {
        path: entity.path(),
        data: Some(bytes::Bytes::from_static(br#"{"version":1,"config":{"retention.ms":"1"}}"#)),
        mode: crate::coordination::CreateMode::Persistent,
    };
    world.running.store.create(old).await.unwrap();
    assert_eq!(world.create_one(new_topic("t", 1, 1)).await, "1 x 1");
    assert_eq!(world.stored("t").await, pairs(&[]));
}

#[tokio::test]
async fn deleted_topics_are_gone_when_answered_and_can_be_created_again() {
    let world = world().await;
    world.create(["a", "b", "forbidden", "hidden"].map(|name| new_topic(name, 1, 1)).to_vec(), 30_000).await;
    let image = world.running.broker.metadata.image();
    let (a, b, hidden) = (image.topic_id("a"), image.topic_id("b"), image.topic_id("hidden"));
    let unknown = TopicId([9; 16]);
    let name = |name: &str| TopicSelector::Name(name.into());
    let topics = vec![
        name("a"),
        TopicSelector::Id(b),
        name("nothing"),
        TopicSelector::Id(unknown),
        name("forbidden"),
        TopicSelector::Id(hidden),
    ];
    let answers = world.delete(topics, 30_000).await;
    let deleted = |name: Option<&str>, id, outcome| DeletedTopic { name: name.map(Into::into), id, outcome };
    let expected = [
        deleted(Some("a"), a, Ok(())),
        deleted(Some("b"), b, Ok(())),
        deleted(Some("nothing"), TopicId::ZERO, Err(DeleteTopicError::UnknownTopic)),
        deleted(None, unknown, Err(DeleteTopicError::UnknownTopicId)),
        deleted(Some("forbidden"), image.topic_id("forbidden"), Err(DeleteTopicError::NotAuthorized)),
        deleted(None, hidden, Err(DeleteTopicError::NotAuthorized)),
    ];
    assert_eq!(answers, expected);
    while world.running.store.exists("/brokers/topics/a").await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.create_one(new_topic("a", 1, 1)).await, "1 x 1");
    assert_ne!(world.running.broker.metadata.image().topic_id("a"), a);
}

#[tokio::test]
async fn deletion_can_be_disabled_or_not_waited_for() {
    let world = world().await;
    world.create(vec![new_topic("a", 1, 1)], 30_000).await;
    let mut disabled = Arc::into_inner(world.admin).unwrap();
    disabled.options.topic_deletion_enabled = false;
    let world = World { admin: Arc::new(disabled), ..world };
    let answers = world.delete(vec![TopicSelector::Name("a".into())], 0).await;
    assert_eq!(answers[0].outcome, Err(DeleteTopicError::DeletionDisabled));
    let mut enabled = Arc::into_inner(world.admin).unwrap();
    enabled.options.topic_deletion_enabled = true;
    let world = World { admin: Arc::new(enabled), ..world };
    let answers = world.delete(vec![TopicSelector::Name("a".into())], 0).await;
    assert_eq!(answers[0].outcome, Err(DeleteTopicError::TimedOut));
    world.running.broker.metadata.wait_until(|image| image.topic("a").is_none()).await;
}

#[tokio::test]
async fn partitions_are_added_or_refused_with_kafkas_words() {
    let world = world().await;
    world.create(vec![new_topic("t", 2, 1)], 30_000).await;
    let replicas = |ids: &[&[i32]]| {
        Some(ids.iter().map(|ids| ids.iter().copied().map(BrokerId).collect::<Vec<_>>()).collect::<Vec<_>>())
    };
    let cases = [
        ("t", 1, None, "Topic currently has 2 partitions, which is higher than the requested 1."),
        ("t", 2, None, "Topic already has 2 partitions."),
        ("nothing", 3, None, "The topic 'nothing' does not exist."),
        ("forbidden", 3, None, "The topic authorization is failed."),
        ("t", 3, replicas(&[&[8, 9]]), "Unknown broker(s) in replica assignment: 8, 9."),
        (
            "t",
            3,
            replicas(&[&[1], &[1]]),
            "Increasing the number of partitions by 1 but 2 assignments provided.",
        ),
        ("t", 3, replicas(&[&[]]), "Cannot have replication factor of 0 for partition id 2."),
        (
            "t",
            3,
            replicas(&[&[1, 1]]),
            "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 2.",
        ),
        ("t", 4, replicas(&[&[1], &[1]]), "ok"),
        ("t", 5, None, "ok"),
    ];
    for (topic, count, assignments, expected) in cases {
        let request = vec![NewPartitions { topic: topic.into(), count, assignments }];
        let answers =
            world.admin.create_partitions(request, false, 30_000, |name| name != "forbidden").await.unwrap();
        let answer = answers[0].1.as_ref().map_or_else(ToString::to_string, |()| "ok".into());
        assert_eq!(answer, expected);
    }
    assert_eq!(world.running.broker.metadata.image().topic("t").unwrap().partitions().len(), 5);
}

#[tokio::test]
async fn a_topic_named_twice_gets_no_partitions() {
    let world = world().await;
    world.create(vec![new_topic("t", 1, 1)], 30_000).await;
    let twice = |count| NewPartitions { topic: "t".into(), count, assignments: None };
    let answers =
        world.admin.create_partitions(vec![twice(2), twice(3)], false, 30_000, |_| true).await.unwrap();
    assert_eq!(answers, [("t".into(), Err(CreatePartitionsError::NamedTwice))]);
}

#[tokio::test]
async fn configurations_are_altered_operation_by_operation() {
    let world = world().await;
    world.create(vec![new_topic("t", 1, 1)], 30_000).await;
    let policy = "cleanup.policy";
    assert_eq!(world.alter(topic("t"), operation("retention.ms", AlterOperation::Set, "5")).await, "ok");
    assert_eq!(world.alter(topic("t"), operation(policy, AlterOperation::Append, "compact")).await, "ok");
    assert_eq!(world.stored("t").await, pairs(&[(policy, "delete,compact"), ("retention.ms", "5")]));
    assert_eq!(world.alter(topic("t"), operation(policy, AlterOperation::Subtract, "delete")).await, "ok");
    assert_eq!(world.alter(topic("t"), operation("retention.ms", AlterOperation::Delete, "")).await, "ok");
    assert_eq!(world.stored("t").await, pairs(&[(policy, "compact")]));
    let replacement = ConfigChange::Replace(vec![("retention.ms".into(), Some("7".into()))]);
    assert_eq!(world.alter(topic("t"), replacement).await, "ok");
    assert_eq!(world.stored("t").await, pairs(&[("retention.ms", "7")]));
}

#[tokio::test]
async fn bad_configurations_are_refused_and_nothing_is_stored() {
    let world = world().await;
    world.create(vec![new_topic("t", 1, 1)], 30_000).await;
    let tree = dump(&*world.running.store).await;
    let null = ConfigChange::Alter(vec![AlterEntry {
        key: "retention.ms".into(),
        operation: AlterOperation::Set,
        value: None,
    }]);
    let entry = |value: &str| AlterEntry {
        key: "retention.ms".into(),
        operation: AlterOperation::Set,
        value: Some(value.into()),
    };
    let twice = ConfigChange::Alter(vec![entry("1"), entry("2")]);
    let broker = |name: &str| ConfigResource::Broker(name.into());
    let set = || operation("retention.ms", AlterOperation::Set, "1");
    let cases = [
        (topic(""), set(), "Default topic resources are not allowed."),
        (topic("nothing"), set(), "The topic 'nothing' does not exist."),
        (topic("a b"), set(), "The topic 'a b' does not exist."),
        (topic("t"), null, "Null value not supported for : retention.ms"),
        (topic("t"), twice, "Error due to duplicate config keys"),
        (topic("t"), operation("retention.ms", AlterOperation::Unknown(9), "1"), "Unknown operations type 9"),
        (topic("t"), operation("no.such", AlterOperation::Set, "1"), "Unknown topic config name: no.such"),
        (
            topic("t"),
            operation("retention.ms", AlterOperation::Append, "1"),
            "Config value append is not allowed for config key: retention.ms",
        ),
        (broker("x"), set(), "Node id must be an integer, but it is: x"),
        (broker("2"), set(), "Unexpected broker id, expected 1, but received 2"),
    ];
    for (resource, change, expected) in cases {
        assert_eq!(world.alter(resource, change).await, expected);
    }
    let bad_value = world.alter(topic("t"), operation("retention.ms", AlterOperation::Set, "x")).await;
    assert!(
        bad_value.starts_with(
            "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): Invalid value x"
        ),
        "{bad_value}"
    );
    let read_only = world.alter(broker(""), operation("zookeeper.connect", AlterOperation::Set, "x")).await;
    assert!(read_only.starts_with("Cannot update these configs dynamically"), "{read_only}");
    let changes = vec![(topic("t"), set()), (topic("t"), set())];
    let answers = world.admin.alter_configs(changes, false, &world.config).await;
    assert_eq!(answers, [(topic("t"), Err(AlterConfigsError::ResourceTwice))]);
    world.admin.alter_configs(vec![(topic("t"), set())], true, &world.config).await;
    assert_eq!(dump(&*world.running.store).await, tree);
}

#[tokio::test]
async fn changes_are_notified_and_heard() {
    let world = world().await;
    world.create(vec![with_config(new_topic("t", 1, 1), "retention.ms", Some("3"))], 30_000).await;
    let store = Arc::clone(&world.running.store);
    let clock = Clock::manual(NOW);
    let (known, mut changes) = ConfigChanges::subscribe(store, clock.clone()).await.unwrap();
    let entity = ConfigEntity::Topic(TopicName::new("t").unwrap());
    let stored = |value: &str| Properties::from([("retention.ms".to_owned(), value.to_owned())]);
    assert_eq!(known, [(entity.clone(), stored("3"))]);

    assert_eq!(world.alter(topic("t"), operation("retention.ms", AlterOperation::Set, "4")).await, "ok");
    assert_eq!(changes.next().await.unwrap(), (entity.clone(), stored("4")));
    let broker = ConfigResource::Broker(String::new());
    assert_eq!(world.alter(broker, operation("log.cleaner.threads", AlterOperation::Set, "2")).await, "ok");
    let (changed, config) = changes.next().await.unwrap();
    assert_eq!((changed, config["log.cleaner.threads"].as_str()), (ConfigEntity::Broker(None), "2"));

    // Old notifications go, later ones are still heard, and foreign nodes do not disturb.
    clock.advance_ms(NOW.0);
    let stray = crate::coordination::Create {
        path: "/config/changes/stray".into(),
        data: None,
        mode: crate::coordination::CreateMode::Persistent,
    };
    world.running.store.create(stray).await.unwrap();
    assert_eq!(world.alter(topic("t"), operation("retention.ms", AlterOperation::Set, "5")).await, "ok");
    assert_eq!(changes.next().await.unwrap(), (entity, stored("5")));
    let left = world.running.store.children("/config/changes").await.unwrap();
    assert_eq!(left, ["stray"]);
}

#[tokio::test]
async fn clients_get_topics_they_ask_for() {
    let world = world().await;
    let names = ["t", "a b", "__consumer_offsets"].map(str::to_owned);
    let answers = world.admin.auto_create(names, &world.config).await;
    assert_eq!(answers[0], ("t".into(), AutoCreation::Started));
    assert!(matches!(answers[1].1, AutoCreation::Refused(CreateTopicError::InvalidName { .. })));
    assert_eq!(answers[2].1, AutoCreation::Started);
    world.running.broker.metadata.wait_until(|image| image.partition_count() == 52).await;
    let expected =
        [("cleanup.policy", "compact"), ("compression.type", "producer"), ("segment.bytes", "104857600")];
    assert_eq!(world.stored("__consumer_offsets").await, pairs(&expected));
    let again = world.admin.auto_create(["t".to_owned()], &world.config).await;
    assert_eq!(again[0].1, AutoCreation::Started);
    let too_few = world.admin.auto_create(["__transaction_state".to_owned()], &world.config).await;
    assert!(matches!(too_few[0].1, AutoCreation::Refused(CreateTopicError::Placement { .. })));
}

#[tokio::test]
async fn elections_are_answered_for_each_partition() {
    let world = world().await;
    world.create(vec![new_topic("t", 1, 1)], 30_000).await;
    let partition = TopicPartition::new(TopicName::new("t").unwrap(), PartitionIndex(0));
    let answers = world
        .admin
        .elect_leaders(ElectionKind::Preferred, Some(vec![partition.clone()]), 1000)
        .await
        .unwrap();
    let not_needed = LeaderElectionError::Election { source: ElectionError::NotNeeded };
    assert_eq!(answers, [(partition, Err(not_needed))]);
    assert_eq!(world.admin.elect_leaders(ElectionKind::Unclean, None, 1000).await.unwrap(), []);
}

#[tokio::test]
async fn producer_ids_are_given_out_once() {
    let world = world().await;
    let block = |first| (ProducerId(first), ProducerId(first + 999));
    for first in [0, 1000] {
        let given = world.admin.allocate_producer_ids(BrokerId(1)).await.unwrap();
        assert_eq!((given.first, given.last), block(first));
    }
}

#[tokio::test]
async fn a_broker_that_is_not_the_controller_says_so() {
    let world = world().await;
    world.running.store.close().await.unwrap();
    let mut status = world.running.controller.subscribe();
    status.wait_for(|status| status.active_epoch.is_none()).await.unwrap();
    let request = CreateTopics { topics: vec![new_topic("t", 1, 1)], ..CreateTopics::default() };
    assert_eq!(world.admin.create_topics(request, &world.config, |_| true).await, Err(NotController));
    assert_eq!(world.admin.elect_leaders(ElectionKind::Unclean, None, 0).await, Err(NotController));
}

#[tokio::test]
async fn a_brokers_producer_ids_go_on_from_block_to_block() {
    let world = world().await;
    let ids = ProducerIds::new(Arc::clone(&world.admin), BrokerId(1));
    for expected in 0..1500 {
        assert_eq!(ids.next().await.unwrap(), ProducerId(expected));
    }
    let after_a_restart = ProducerIds::new(Arc::clone(&world.admin), BrokerId(1));
    assert_eq!(after_a_restart.next().await.unwrap(), ProducerId(2000));
}
