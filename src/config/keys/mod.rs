//! THE tables of settings: one row a key, for brokers ([`BROKER`]) and for topics ([`TOPIC`]).
//!
//! A row is data: the parser, DescribeConfigs, the warnings at start-up and the reference page all read it.

mod broker;
mod topic;

use std::collections::HashMap;
use std::sync::LazyLock;

pub use broker::BROKER;
pub use topic::TOPIC;

/// One setting.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// The built-in default as text; `None` = null, which each key explains in its documentation.
    pub default: Option<&'static str>,
    pub bounds: Bounds,
    /// How a broker key may be changed while the broker runs. Topic keys are all [`Update::ClusterWide`].
    pub update: Update,
    pub support: Support,
    /// For a topic key: the broker keys that give its default, in order; the first one that is set wins.
    pub synonyms: &'static [&'static str],
    /// Kafka keeps it out of DescribeConfigs unless it is set.
    pub is_internal: bool,
    pub documentation: &'static str,
}

/// Kafka's types of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    Text,
    Int,
    Short,
    Long,
    Double,
    List,
    Class,
    Password,
}

/// What a value must satisfy beyond its kind.
#[derive(Debug, Clone, Copy)]
pub enum Bounds {
    Any,
    AtLeast(i64),
    Between(i64, i64),
    /// 0 to this.
    Fraction(f64),
    OneOf(&'static [&'static str]),
    OneOfIgnoringCase(&'static [&'static str]),
    NonEmpty,
    /// 1 to 9, or -1.
    GzipLevel,
    /// A name of [`super::ProtocolVersion`].
    ProtocolVersion,
    /// `*`, or `partition:broker` pairs.
    ThrottledReplicas,
}

/// How a broker key may be changed while the broker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// Only by a restart.
    ReadOnly,
    /// For one broker, never as the cluster's default.
    PerBroker,
    /// For one broker or as the cluster's default.
    ClusterWide,
    /// As `ClusterWide`, and never from the file; DescribeConfigs shows it only when set, as read-only.
    OnlyDynamic,
}

/// What Barnabas does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    Honoured,
    /// Accepted quietly: it could not change anything here, for this reason.
    NoEffect(&'static str),
    /// Accepted with one warning when set to another value than the default: the named part is not built yet.
    NotYet(&'static str),
}

impl Kind {
    /// The name that Kafka puts in its messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Boolean => "BOOLEAN",
            Kind::Text => "STRING",
            Kind::Int => "INT",
            Kind::Short => "SHORT",
            Kind::Long => "LONG",
            Kind::Double => "DOUBLE",
            Kind::List => "LIST",
            Kind::Class => "CLASS",
            Kind::Password => "PASSWORD",
        }
    }

    /// `config_type` of DescribeConfigs; 0 stands for an unknown key.
    pub fn code(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::Text => 2,
            Kind::Int => 3,
            Kind::Short => 4,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
            Kind::Class => 8,
            Kind::Password => 9,
        }
    }
}

impl Key {
    /// Whether a running broker takes a new value, as DescribeConfigs tells it.
    pub fn is_dynamic(&self) -> bool {
        matches!(self.update, Update::PerBroker | Update::ClusterWide)
    }
}

/// The row of a broker key and its position in [`BROKER`].
pub fn broker_key(name: &str) -> Option<(usize, &'static Key)> {
    static INDEX: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| index(BROKER));
    INDEX.get(name).map(|&at| (at, &BROKER[at]))
}

/// The row of a topic key and its position in [`TOPIC`].
pub fn topic_key(name: &str) -> Option<(usize, &'static Key)> {
    static INDEX: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| index(TOPIC));
    INDEX.get(name).map(|&at| (at, &TOPIC[at]))
}

fn index(table: &'static [Key]) -> HashMap<&'static str, usize> {
    table.iter().enumerate().map(|(at, key)| (key.name, at)).collect()
}

/// `null` or a text, as the rows write defaults.
macro_rules! default_text {
    (null) => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}

macro_rules! is_internal {
    () => {
        false
    };
    (internal) => {
        true
    };
}

use {default_text, is_internal};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_key_has_one_row_and_every_default_is_valid() {
        for table in [BROKER, TOPIC] {
            let mut seen = HashSet::new();
            for key in table {
                assert!(seen.insert(key.name), "{} has two rows", key.name);
                assert!(key.documentation.ends_with('.'), "{}", key.name);
                if let Some(default) = key.default {
                    let value = key.parse(default).unwrap_or_else(|error| panic!("{error}"));
                    assert_eq!(value.to_text().as_deref(), Some(default), "{}", key.name);
                }
            }
        }
    }

    const KAFKA_3_9: &str = include_str!("../testdata/broker-3.9.2.tsv");
    const KAFKA_4_3: &str = include_str!("../testdata/broker-4.3.1.tsv");

    fn described(data: &str) -> impl Iterator<Item = Vec<&str>> {
        data.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
    }

    #[track_caller]
    fn row(name: &str) -> &'static Key {
        broker_key(name).unwrap_or_else(|| panic!("{name} has no row")).1
    }

    #[track_caller]
    fn check_row(fields: &[&str]) {
        let key = row(fields[0]);
        let default = fields[6].split(';').find_map(|synonym| {
            synonym.strip_prefix("DEFAULT_CONFIG:")?.strip_prefix(key.name)?.strip_prefix('=')
        });
        assert_eq!(default, key.default, "{}", key.name);
        assert_eq!(fields[3] == "rw", key.is_dynamic(), "{}", key.name);
        assert_eq!(fields[4] == "sens", key.kind == Kind::Password, "{}", key.name);
        assert_eq!(fields[5], key.kind.name(), "{}", key.name);
    }

    #[test]
    fn every_key_of_kafka_3_9_2_is_a_row_with_its_type_default_and_dynamic_mode() {
        described(KAFKA_3_9).for_each(|fields| check_row(&fields));
    }

    #[test]
    fn every_key_of_kafka_4_3_1_is_a_row_and_those_that_are_new_have_its_type_and_default() {
        let in_3_9: HashSet<&str> = described(KAFKA_3_9).map(|fields| fields[0]).collect();
        for fields in described(KAFKA_4_3) {
            // Keys that 3.9 has but hides keep 3.9's values here.
            if in_3_9.contains(fields[0]) || row(fields[0]).is_internal {
                continue;
            }
            check_row(&fields);
        }
    }

    #[test]
    fn synonyms_are_broker_keys() {
        for key in TOPIC {
            for synonym in key.synonyms {
                assert!(broker_key(synonym).is_some(), "{synonym}");
            }
        }
    }
}
