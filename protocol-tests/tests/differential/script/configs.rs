//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

use protocol_tests::wait_for;
use wire::alter_configs_request::{self, AlterConfigsRequest};
use wire::describe_configs_request::{DescribeConfigsRequest, DescribeConfigsResource};
use wire::describe_configs_response::DescribeConfigsResponse;
use wire::incremental_alter_configs_request::{self, IncrementalAlterConfigsRequest};
use wire::{ApiKey, Str};

use super::{EMPTY, MISSING};
use crate::session::{Case, Session};

pub const CASES: &[Case] = &[
    Case { name: "topic", api: ApiKey::DescribeConfigs, versions: 0..=4, run: describe_topic },
    Case { name: "broker", api: ApiKey::DescribeConfigs, versions: 0..=4, run: describe_broker },
    Case { name: "bad", api: ApiKey::DescribeConfigs, versions: 0..=4, run: describe_bad },
    Case { name: "all", api: ApiKey::AlterConfigs, versions: 0..=2, run: alter },
    Case { name: "all", api: ApiKey::IncrementalAlterConfigs, versions: 0..=1, run: incremental },
];

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;

/// Settings whose values and synonyms every server has.
const BROKER_KEYS: &[&str] = &[
    "log.retention.ms",
    "log.retention.hours",
    "log.segment.bytes",
    "num.partitions",
    "broker.id",
    "auto.create.topics.enable",
    "compression.type",
    "message.max.bytes",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "offsets.retention.minutes",
    "default.replication.factor",
    "log.cleaner.threads",
    "ssl.keystore.password",
];

fn describe(resource_type: i8, name: &str, keys: Option<&[&str]>, synonyms: bool) -> DescribeConfigsRequest {
    let configuration_keys = keys.map(|keys| keys.iter().map(|key| Str::from(*key)).collect());
    let resource = DescribeConfigsResource { resource_type, resource_name: name.into(), configuration_keys };
    DescribeConfigsRequest { resources: vec![resource], include_synonyms: synonyms, ..Default::default() }
}

fn sort(response: &mut DescribeConfigsResponse) {
    for result in &mut response.results {
        result.configs.sort_by(|left, right| left.name.cmp(&right.name));
    }
}

fn describe_topic(session: &mut Session, version: i16) {
    let name = session.name("described");
    session.topic(&name, 1, &[("retention.ms", "12345"), ("cleanup.policy", "compact,delete")]);
    let synonyms = version >= 1;
    session.ask_and("all", version, &describe(TOPIC, &name, None, synonyms), sort);
    session.ask_and(
        "two keys",
        version,
        &describe(TOPIC, &name, Some(&["retention.ms", "segment.bytes"]), synonyms),
        sort,
    );
    session.ask_and(
        "unknown key",
        version,
        &describe(TOPIC, &name, Some(&["retention.ms", "nope"]), false),
        sort,
    );
    session.ask_and("no keys", version, &describe(TOPIC, &name, Some(&[]), false), |response| {
        // None or all, that is what is asked.
        for result in &mut response.results {
            result.configs.retain(|config| &*config.name == "retention.ms");
        }
    });
    session.ask_and(
        "internal topic",
        version,
        &describe(TOPIC, "__consumer_offsets", Some(&["cleanup.policy"]), false),
        sort,
    );
}

fn describe_broker(session: &mut Session, version: i16) {
    session.ask_and("static", version, &describe(BROKER, "1", Some(BROKER_KEYS), version >= 1), sort);
    session.ask_and("cluster default", version, &describe(BROKER, "", None, version >= 1), sort);
}

fn describe_bad(session: &mut Session, version: i16) {
    session.ask("missing topic", version, &describe(TOPIC, MISSING, None, false));
    session.ask("illegal topic", version, &describe(TOPIC, "a/b", None, false));
    session.ask("empty topic", version, &describe(TOPIC, "", None, false));
    session.ask("other broker", version, &describe(BROKER, "99", None, false));
    session.ask("no number", version, &describe(BROKER, "x", None, false));
    session.ask("unknown type", version, &describe(77, "x", None, false));
    for (what, name) in [("no broker", ""), ("other broker", "99"), ("no number", "x")] {
        session.ask(&format!("loggers of {what}"), version, &describe(BROKER_LOGGER, name, None, false));
    }
}

/// Resource type, name, keys with values.
type Alteration<'a> = (i8, &'a str, &'a [(&'a str, Option<&'a str>)]);

fn alter(session: &mut Session, version: i16) {
    let name = session.name("altered");
    session.topic(&name, 1, &[("retention.ms", "12345")]);
    let ask = |session: &mut Session, what: &str, resources: &[Alteration<'_>], validate_only| {
        let resource = |(resource_type, name, configs): &Alteration<'_>| {
            let config = |(name, value): &(&str, Option<&str>)| alter_configs_request::AlterableConfig {
                name: (*name).into(),
                value: value.map(Into::into),
            };
            alter_configs_request::AlterConfigsResource {
                resource_type: *resource_type,
                resource_name: (*name).into(),
                configs: configs.iter().map(config).collect(),
            }
        };
        let request =
            AlterConfigsRequest { resources: resources.iter().map(resource).collect(), validate_only };
        session.ask_and(what, version, &request, |response| {
            response.responses.sort_by(|left, right| left.resource_name.cmp(&right.resource_name));
        });
    };
    ask(session, "only checked", &[(TOPIC, &name, &[("segment.bytes", Some("2000000"))])], true);
    ask(session, "replaces", &[(TOPIC, &name, &[("segment.bytes", Some("2000000"))])], false);
    let keys = Some(&["retention.ms", "segment.bytes"][..]);
    session.ask_and("the result", 1, &describe(TOPIC, &name, keys, false), sort);
    ask(session, "bad value", &[(TOPIC, &name, &[("segment.bytes", Some("x"))])], false);
    ask(session, "unknown key", &[(TOPIC, &name, &[("nope", Some("x"))])], false);
    ask(session, "null value", &[(TOPIC, &name, &[("segment.bytes", None)])], false);
    ask(session, "good beside bad", &[(TOPIC, &name, &[]), (TOPIC, MISSING, &[])], false);
    if version == 0 {
        // 4.3.1 never answers this one.
        session.briefly(|session| ask(session, "twice", &[(TOPIC, &name, &[]), (TOPIC, &name, &[])], false));
    }
    ask(session, "illegal topic", &[(TOPIC, "a/b", &[])], false);
    ask(session, "other broker", &[(BROKER, "99", &[("log.cleaner.threads", Some("2"))])], false);
    ask(session, "broker's fixed key", &[(BROKER, "1", &[("broker.id", Some("2"))])], false);
    ask(session, "unknown type", &[(77, "x", &[])], false);
}

fn incremental(session: &mut Session, version: i16) {
    let name = session.name("altered");
    session.topic(&name, 1, &[("retention.ms", "12345")]);
    // SET 0, DELETE 1, APPEND 2, SUBTRACT 3.
    type Config<'a> = (&'a str, i8, Option<&'a str>);
    let ask = |session: &mut Session, what: &str, resources: &[(i8, &str, &[Config<'_>])]| {
        let resource = |(resource_type, name, configs): &(i8, &str, &[Config<'_>])| {
            let config =
                |(name, operation, value): &Config<'_>| incremental_alter_configs_request::AlterableConfig {
                    name: (*name).into(),
                    config_operation: *operation,
                    value: value.map(Into::into),
                };
            incremental_alter_configs_request::AlterConfigsResource {
                resource_type: *resource_type,
                resource_name: (*name).into(),
                configs: configs.iter().map(config).collect(),
            }
        };
        let resources = resources.iter().map(resource).collect();
        session.ask_and(
            what,
            version,
            &IncrementalAlterConfigsRequest { resources, validate_only: false },
            |response| {
                response.responses.sort_by(|left, right| left.resource_name.cmp(&right.resource_name));
            },
        );
    };
    let see = |session: &mut Session, what: &str| {
        let keys =
            ["retention.ms", "segment.bytes", "cleanup.policy", "leader.replication.throttled.replicas"];
        session.ask_and(what, 1, &describe(TOPIC, &name, Some(&keys), true), sort);
    };
    ask(session, "set", &[(TOPIC, &name, &[("segment.bytes", 0, Some("2000000"))])]);
    see(session, "after set");
    ask(session, "append", &[(TOPIC, &name, &[("cleanup.policy", 2, Some("compact"))])]);
    see(session, "after append");
    ask(session, "append again", &[(TOPIC, &name, &[("cleanup.policy", 2, Some("compact"))])]);
    ask(session, "subtract", &[(TOPIC, &name, &[("cleanup.policy", 3, Some("delete"))])]);
    see(session, "after subtract");
    ask(session, "subtract what is not there", &[(TOPIC, &name, &[("cleanup.policy", 3, Some("delete"))])]);
    ask(
        session,
        "append to an unset list",
        &[(TOPIC, &name, &[("leader.replication.throttled.replicas", 2, Some("0:1"))])],
    );
    ask(session, "delete", &[(TOPIC, &name, &[("segment.bytes", 1, None)])]);
    ask(session, "delete what is not set", &[(TOPIC, &name, &[("flush.ms", 1, None)])]);
    see(session, "after delete");
    for (what, config) in [
        ("append to a number", ("retention.ms", 2, Some("5"))),
        ("set null", ("retention.ms", 0, None)),
        ("unknown operation", ("retention.ms", 9, Some("5"))),
        ("bad value", ("retention.ms", 0, Some("-2"))),
        ("unknown key", ("nope", 0, Some("1"))),
        ("bad list value", ("cleanup.policy", 2, Some("burn"))),
        ("bad compression", ("compression.type", 0, Some("foo"))),
        ("segment.ms 0", ("segment.ms", 0, Some("0"))),
        ("no replicas", ("min.insync.replicas", 0, Some("0"))),
    ] {
        ask(session, what, &[(TOPIC, &name, &[config])]);
    }
    ask(
        session,
        "key twice",
        &[(TOPIC, &name, &[("retention.ms", 0, Some("1")), ("retention.ms", 0, Some("2"))])],
    );
    ask(session, "missing topic", &[(TOPIC, MISSING, &[("retention.ms", 0, Some("1"))])]);
    ask(session, "empty topic", &[(TOPIC, "", &[("retention.ms", 0, Some("1"))])]);
    ask(session, "good beside bad", &[(TOPIC, &name, &[("flush.ms", 0, Some("9"))]), (TOPIC, MISSING, &[])]);
    ask(session, "twice", &[(TOPIC, EMPTY, &[]), (TOPIC, EMPTY, &[])]);
    ask(session, "broker default", &[(BROKER, "", &[("log.cleaner.threads", 0, Some("2"))])]);
    let described = describe(BROKER, "1", Some(&["log.cleaner.threads"]), true);
    // Kafka tells itself of the change, and takes its time.
    wait_for("the broker to know its new default", || {
        let answer = session.quietly(1, &described);
        let config = answer.results.first()?.configs.first()?;
        (config.config_source == 3).then_some(())
    });
    session.ask_and("after broker default", 1, &described, sort);
    ask(session, "broker default back", &[(BROKER, "", &[("log.cleaner.threads", 1, None)])]);
    ask(session, "broker's fixed key", &[(BROKER, "1", &[("broker.id", 0, Some("2"))])]);
    see(session, "at the end");
    let root = describe(BROKER_LOGGER, "1", Some(&["root"]), true);
    for level in ["FATAL", "WARN", "INFO"] {
        ask(session, &format!("root logger {level}"), &[(BROKER_LOGGER, "1", &[("root", 0, Some(level))])]);
        session.ask_and(&format!("after root logger {level}"), 1, &root, sort);
    }
    for (what, name, config) in [
        ("unknown logger", "1", ("no.such.logger", 0, Some("INFO"))),
        ("unknown logger deleted", "1", ("no.such.logger", 1, None)),
        ("unknown level", "1", ("root", 0, Some("LOUD"))),
        ("level in small letters", "1", ("root", 0, Some("info"))),
        ("null level", "1", ("root", 0, None)),
        ("root logger deleted", "1", ("root", 1, None)),
        ("level appended", "1", ("root", 2, Some("INFO"))),
        ("level subtracted", "1", ("root", 3, Some("INFO"))),
        ("unknown operation on a level", "1", ("root", 9, Some("INFO"))),
        ("loggers of another broker", "99", ("root", 0, Some("INFO"))),
        ("loggers of no broker", "", ("root", 0, Some("INFO"))),
        ("loggers of no number", "x", ("root", 0, Some("INFO"))),
    ] {
        ask(session, what, &[(BROKER_LOGGER, name, &[config])]);
    }
    let level = [("root", 0, Some("INFO"))];
    ask(session, "loggers twice", &[(BROKER_LOGGER, "1", &level), (BROKER_LOGGER, "1", &level)]);
}
