//! The room as a whole, against what Kafka 3.9.2 answers (`testdata`).

use super::settings::Settings;
use super::*;

fn properties(pairs: &[(&str, &str)]) -> Properties {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn broker(pairs: &[(&str, &str)]) -> BrokerConfig {
    BrokerConfig::new(properties(pairs)).unwrap()
}

fn entry<'a>(entries: &'a [Entry], name: &str) -> &'a Entry {
    entries.iter().find(|entry| entry.name == name).unwrap()
}

fn shown(entry: &Entry) -> String {
    let synonyms: Vec<String> = entry.synonyms.iter().map(shown_synonym).collect();
    let value = entry.value.as_deref().unwrap_or("\\N");
    let mode = if entry.is_read_only { "ro" } else { "rw" };
    let sensitive = if entry.is_sensitive { "sens" } else { "-" };
    let kind = entry.kind.map_or("UNKNOWN", Kind::name);
    let source = source(entry.source);
    let documented = if entry.documentation.is_some() { "doc" } else { "nodoc" };
    format!(
        "{}\t{value}\t{source}\t{mode}\t{sensitive}\t{kind}\t{}\t{documented}",
        entry.name,
        synonyms.join(";")
    )
}

fn shown_synonym(synonym: &Synonym) -> String {
    let value = synonym.value.as_deref().unwrap_or("null");
    format!("{}:{}={value}", source(synonym.source), synonym.name)
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Topic => "DYNAMIC_TOPIC_CONFIG",
        Source::DynamicBroker => "DYNAMIC_BROKER_CONFIG",
        Source::DynamicDefault => "DYNAMIC_DEFAULT_BROKER_CONFIG",
        Source::Static => "STATIC_BROKER_CONFIG",
        Source::Default => "DEFAULT_CONFIG",
        Source::Logger => "DYNAMIC_BROKER_LOGGER_CONFIG",
    }
}

#[test]
fn a_broker_is_described_as_kafka_3_9_2_describes_one() {
    let config = broker(&[
        ("broker.id", "1"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092"),
        ("log.dirs", "/data"),
        ("offsets.topic.replication.factor", "1"),
        ("transaction.state.log.min.isr", "1"),
        ("transaction.state.log.replication.factor", "1"),
    ]);
    let ours = config.describe();
    for line in include_str!("testdata/broker-3.9.2.tsv").lines().filter(|line| !line.starts_with('#')) {
        let name = line.split('\t').next().unwrap();
        // Barnabas runs on its own store here, the described broker on ZooKeeper.
        if name != "zookeeper.connect" {
            assert_eq!(shown(entry(&ours, name)), line);
        }
    }
}

#[test]
fn a_topic_is_described_as_kafka_3_9_2_describes_one() {
    let ours = broker(&[]).describe_topic(&Properties::new()).unwrap();
    let lines: Vec<String> = ours.iter().map(shown).collect();
    let theirs: Vec<&str> =
        include_str!("testdata/topic-3.9.2.tsv").lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, theirs);
}

#[test]
fn sources_and_synonyms_follow_the_layers() {
    let (config, left_out) = broker(&[("log.retention.hours", "100")]).with_dynamic(
        &properties(&[("log.segment.bytes", "20000000"), ("foo.bar", "1")]),
        &properties(&[("log.retention.ms", "600000"), ("listener.name.plaintext.num.network.threads", "2")]),
    );
    assert_eq!(left_out, []);
    let topic = config.describe_topic(&properties(&[("cleanup.policy", "")])).unwrap();
    let check = |entries: &[Entry], expected: &str| {
        let name = expected.split('\t').next().unwrap();
        assert_eq!(shown(entry(entries, name)), expected);
    };
    check(
        &topic,
        "retention.ms\t600000\tDYNAMIC_BROKER_CONFIG\trw\t-\tLONG\tDYNAMIC_BROKER_CONFIG:log.retention.ms=600000;\
         STATIC_BROKER_CONFIG:log.retention.hours=100;DEFAULT_CONFIG:log.retention.hours=168\tdoc",
    );
    check(
        &topic,
        "segment.bytes\t20000000\tDYNAMIC_DEFAULT_BROKER_CONFIG\trw\t-\tINT\t\
         DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=20000000;\
         DEFAULT_CONFIG:log.segment.bytes=1073741824\tdoc",
    );
    check(
        &topic,
        "cleanup.policy\t\tDYNAMIC_TOPIC_CONFIG\trw\t-\tLIST\tDYNAMIC_TOPIC_CONFIG:cleanup.policy=;\
         DEFAULT_CONFIG:log.cleanup.policy=delete\tdoc",
    );
    let broker = config.describe();
    check(
        &broker,
        "listener.name.plaintext.num.network.threads\t2\tDYNAMIC_BROKER_CONFIG\tro\t-\tINT\t\
         DYNAMIC_BROKER_CONFIG:listener.name.plaintext.num.network.threads=2;\
         DEFAULT_CONFIG:num.network.threads=3\tnodoc",
    );
    check(
        &config.describe_cluster_default(),
        "foo.bar\t\\N\tDYNAMIC_DEFAULT_BROKER_CONFIG\tro\tsens\tUNKNOWN\t\
         DYNAMIC_DEFAULT_BROKER_CONFIG:foo.bar=null\tnodoc",
    );
}

#[test]
fn a_static_synonym_without_its_primary_key_is_hidden_as_in_kafka() {
    let config = broker(&[
        ("log.retention.minutes", "60"),
        ("log.roll.hours", "5"),
        ("log.flush.scheduler.interval.ms", "77"),
    ]);
    let topic = config.describe_topic(&Properties::new()).unwrap();
    assert_eq!(
        shown(entry(&topic, "retention.ms")),
        "retention.ms\t3600000\tDEFAULT_CONFIG\trw\t-\tLONG\t\tdoc"
    );
    assert_eq!(
        shown(entry(&topic, "segment.ms")),
        "segment.ms\t18000000\tDEFAULT_CONFIG\trw\t-\tLONG\t\tdoc"
    );
    assert_eq!(shown(entry(&topic, "flush.ms")), "flush.ms\t77\tDEFAULT_CONFIG\trw\t-\tLONG\t\tdoc");
}

#[test]
fn every_honoured_key_is_read() {
    let also_read = [
        "advertised.listeners",
        "barnabas.request.memory.max.bytes",
        "barnabas.worker.threads",
        "broker.id",
        "inter.broker.listener.name",
        "inter.broker.protocol.version",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "max.connections.per.ip.overrides",
        "node.id",
        "offsets.topic.compression.codec",
        "queued.max.request.bytes",
        "security.inter.broker.protocol",
    ];
    for key in BROKER.iter().filter(|key| key.support == Support::Honoured) {
        let is_read = Settings::KEYS.contains(&key.name)
            || also_read.contains(&key.name)
            || TOPIC.iter().any(|topic| topic.synonyms.contains(&key.name));
        assert!(is_read, "{} is honoured but nothing reads it", key.name);
    }
}

#[test]
fn topics_take_the_brokers_values_in_their_unit() {
    let retention = |pairs| broker(pairs).topic_defaults().retention_ms;
    assert_eq!(retention(&[]), 604_800_000);
    assert_eq!(retention(&[("log.retention.hours", "1")]), 3_600_000);
    assert_eq!(retention(&[("log.retention.minutes", "1"), ("log.retention.hours", "1")]), 60_000);
    assert_eq!(retention(&[("log.retention.ms", "1"), ("log.retention.minutes", "1")]), 1);
    assert_eq!(retention(&[("log.retention.hours", "-7")]), -1);
    assert_eq!(broker(&[("log.roll.jitter.hours", "2")]).topic_defaults().segment_jitter_ms, 7_200_000);
    assert_eq!(broker(&[("log.flush.scheduler.interval.ms", "5")]).topic_defaults().flush_ms, 5);
}

#[test]
fn the_older_timestamp_bound_counts_where_the_newer_ones_keep_their_default() {
    let overrides =
        properties(&[("message.timestamp.difference.max.ms", "5"), ("message.timestamp.after.max.ms", "7")]);
    let (topic, _) = TopicConfig::from_stored(&overrides, &broker(&[]));
    assert_eq!((topic.message_timestamp_before_max_ms, topic.message_timestamp_after_max_ms), (5, 7));
}

#[test]
fn bad_topic_overrides_are_refused_in_kafkas_words() {
    #[track_caller]
    fn check(pairs: &[(&str, &str)], expected: &str) {
        let refused = TopicConfig::validate(&properties(pairs), &broker(&[])).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
    check(&[("foo", "1")], "Unknown topic config name: foo");
    check(
        &[("min.insync.replicas", "0")],
        "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
    );
    check(
        &[("max.compaction.lag.ms", "5"), ("min.compaction.lag.ms", "10")],
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
    );
    check(
        &[("remote.storage.enable", "true")],
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    );
    check(
        &[("remote.log.copy.disable", "true")],
        "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode.",
    );
    assert_eq!(TopicConfig::validate(&properties(&[("cleanup.policy", "")]), &broker(&[])), Ok(()));
}

#[test]
fn unreadable_stored_overrides_are_left_out() {
    let stored = properties(&[("retention.ms", "x"), ("segment.bytes", "1024"), ("foo", "1")]);
    let (topic, left_out) = TopicConfig::from_stored(&stored, &broker(&[]));
    assert_eq!((topic.retention_ms, topic.segment_bytes), (604_800_000, 1024));
    assert_eq!(left_out.len(), 2);
}

#[test]
fn list_operations_start_from_the_stored_value_or_the_built_in_default() {
    #[track_caller]
    fn check(stored: Option<&str>, operation: Operation, expected: &str) {
        let stored =
            stored.map(|value| ("cleanup.policy".to_owned(), value.to_owned())).into_iter().collect();
        let altered = alter_topic(&stored, &[("cleanup.policy".to_owned(), operation)]).unwrap();
        assert_eq!(altered["cleanup.policy"], expected);
    }
    check(None, Operation::Append("compact".into()), "delete,compact");
    check(Some("compact"), Operation::Append("compact".into()), "compact");
    check(Some(""), Operation::Append("delete".into()), "delete");
    check(Some("delete,compact"), Operation::Subtract("nope".into()), "delete,compact");
    check(Some("delete,compact"), Operation::Subtract("compact".into()), "delete");
    check(None, Operation::Subtract("delete".into()), "");
}

#[test]
fn list_operations_on_other_keys_are_refused() {
    let alter = |name: &str, operation| {
        alter_topic(&Properties::new(), &[(name.to_owned(), operation)]).unwrap_err().to_string()
    };
    assert_eq!(
        alter("retention.ms", Operation::Append("5".into())),
        "Config value append is not allowed for config key: retention.ms"
    );
    assert_eq!(
        alter("retention.ms", Operation::Subtract("5".into())),
        "Config value subtract is not allowed for config key: retention.ms"
    );
    assert_eq!(alter("foo", Operation::Append("5".into())), "Unknown config name: foo");
    let deleted = alter_topic(&Properties::new(), &[("foo".to_owned(), Operation::Delete)]);
    assert_eq!(deleted, Ok(Properties::new()));
}

#[test]
fn bad_dynamic_settings_are_refused_in_kafkas_words() {
    #[track_caller]
    fn check(scope: Scope, name: &str, value: &str, expected: &str) {
        let refused = broker(&[]).check_update(scope, &properties(&[(name, value)])).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
    use Scope::{Broker, ClusterDefault};
    check(Broker, "num.partitions", "2", "Cannot update these configs dynamically: Set(num.partitions)");
    check(
        Broker,
        "log.retention.hours",
        "7",
        "Cannot update these configs dynamically: Set(log.retention.hours)",
    );
    check(
        Broker,
        "ssl.keystore.location",
        "a",
        "These security configs can be dynamically updated only per-listener using the listener prefix: \
         Set(ssl.keystore.location)",
    );
    check(
        ClusterDefault,
        "advertised.listeners",
        "PLAINTEXT://x:1",
        "Cannot update these configs at default cluster level, broker id must be specified: Set(advertised.listeners)",
    );
    check(
        ClusterDefault,
        "listener.name.plaintext.ssl.keystore.location",
        "a",
        "Cannot update these configs at default cluster level, broker id must be specified: \
         Set(listener.name.plaintext.ssl.keystore.location)",
    );
    check(
        Broker,
        "listener.name.plaintext.ssl.keystore.password",
        "a",
        "Password encoder secret not configured",
    );
    check(
        Broker,
        "log.cleanup.policy",
        "foo",
        "Invalid value foo for configuration log.cleanup.policy: String must be one of: compact, delete",
    );
    check(
        Broker,
        "log.retention.ms",
        "0",
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    );
    check(
        Broker,
        "log.local.retention.ms",
        "604800001",
        "Invalid value 604800001 for configuration log.local.retention.ms: Value must not be more than \
         log.retention.ms property value: 604800000",
    );
    check(Broker, "log.cleaner.threads", "0", "Log cleaner threads should be at least 1");
    check(
        Broker,
        "leader.replication.throttled.rate",
        "-1",
        "Invalid value -1 for configuration leader.replication.throttled.rate: Value must be at least 0",
    );
    check(
        Broker,
        "num.io.threads",
        "100",
        "Dynamic thread count update validation failed for num.io.threads=100, value should not be greater than \
         double the current value 8",
    );
    check(
        Broker,
        "num.io.threads",
        "1",
        "Dynamic thread count update validation failed for num.io.threads=1, value should be at least half the \
         current value 8",
    );
}

#[test]
fn good_dynamic_settings_are_accepted() {
    let check = |scope, name, value| {
        assert_eq!(broker(&[]).check_update(scope, &properties(&[(name, value)])), Ok(()), "{name}");
    };
    check(Scope::Broker, "log.retention.ms", "600000");
    check(Scope::Broker, "listener.name.plaintext.num.network.threads", "2");
    check(Scope::Broker, "my.thing", "-1");
    check(Scope::ClusterDefault, "listener.name.plaintext.num.network.threads", "3");
    check(Scope::ClusterDefault, "max.connections", "500");
    check(Scope::Broker, "leader.replication.throttled.rate", "5");
}

#[test]
fn unusable_stored_dynamic_settings_are_left_out() {
    let fixed = broker(&[("broker.id", "7")]);
    let (config, left_out) = fixed.with_dynamic(
        &properties(&[("log.segment.bytes", "1024"), ("advertised.listeners", "PLAINTEXT://x:1")]),
        &properties(&[("num.partitions", "9"), ("log.retention.ms", "x"), ("message.max.bytes", "5")]),
    );
    assert_eq!(left_out.len(), 3);
    assert_eq!(config.num_partitions(), 1);
    assert_eq!((config.topic_defaults().segment_bytes, config.topic_defaults().max_message_bytes), (1024, 5));
    let (config, left_out) =
        fixed.with_dynamic(&properties(&[("max.connections", "9")]), &properties(&[("log.roll.ms", "0")]));
    assert_eq!((left_out.len(), config.max_connections()), (1, 9));
}

#[test]
fn files_that_cannot_work_are_refused_in_kafkas_words() {
    #[track_caller]
    fn check(pairs: &[(&str, &str)], expected: &str) {
        assert_eq!(BrokerConfig::new(properties(pairs)).unwrap_err().to_string(), expected);
    }
    let id_bounds =
        "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id";
    check(&[("broker.id", "1001")], id_bounds);
    check(&[("broker.id", "-2")], id_bounds);
    check(
        &[("broker.id", "5"), ("node.id", "6")],
        "You must set `node.id` to the same value as `broker.id`.",
    );
    check(&[("log.dirs", "")], "At least one log directory must be defined via log.dirs or log.dir.");
    check(
        &[("log.retention.hours", "0")],
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    );
    check(&[("log.roll.ms", "0")], "log.roll.ms must be greater than or equal to 1");
    check(
        &[("queued.max.request.bytes", "5")],
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    );
    check(
        &[("max.connections.per.ip", "0")],
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    );
    check(
        &[("max.connections.per.ip.overrides", "x")],
        "Error parsing configuration property 'max.connections.per.ip.overrides': 'x' is not of the form \
         host:count",
    );
    check(
        &[("connection.failed.authentication.delay.ms", "700000")],
        "connection.failed.authentication.delay.ms=700000 should always be less than \
         connections.max.idle.ms=600000 to prevent failed authentication responses from timing out",
    );
    check(
        &[("log.cleaner.dedupe.buffer.size", "1048576")],
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    );
    check(
        &[("replica.fetch.wait.max.ms", "40000")],
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary \
         socket timeouts",
    );
    check(
        &[("controller.listener.names", "X")],
        "controller.listener.names must be empty when not running in KRaft mode: [X]",
    );
    check(
        &[("process.roles", "controller")],
        "process.roles names no broker, and Barnabas has no KRaft controller",
    );
    check(&[("offsets.topic.compression.codec", "9")], "Unknown compression type id: 9");
}

#[test]
fn broker_and_node_id_are_one_setting() {
    assert_eq!(broker(&[("node.id", "3")]).broker_id(), Some(crate::model::BrokerId(3)));
    assert_eq!(broker(&[]).broker_id(), None);
    assert_eq!(
        broker(&[("broker.id", "2000"), ("broker.id.generation.enable", "false")]).broker_id(),
        Some(crate::model::BrokerId(2000))
    );
}

#[test]
fn unknown_and_unbuilt_settings_are_warned_about() {
    let config = broker(&[
        ("my.unknown", "7"),
        ("num.partitions", "3"),
        ("num.io.threads", "5"),
        ("telemetry.max.bytes", "5"),
        ("log.cleaner.enable", "true"),
    ]);
    let warnings: Vec<String> = config.warnings().iter().map(Warning::to_string).collect();
    assert_eq!(
        warnings,
        [
            "my.unknown is not a known setting",
            "telemetry.max.bytes has no effect: client telemetry is not built yet"
        ]
    );
}
