use super::properties::Properties;

/// A broker's settings by where they come from; a later layer wins over an earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layers {
    /// The properties file and the command line.
    pub fixed: Properties,
    /// Dynamic, for all brokers: `/config/brokers/<default>`.
    pub cluster_default: Properties,
    /// Dynamic, for this broker: `/config/brokers/<id>`.
    pub per_broker: Properties,
}

/// Where a value comes from, in DescribeConfigs' numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Topic,
    DynamicBroker,
    DynamicDefault,
    Static,
    Default,
    /// The level of a logger.
    Logger,
}

impl Source {
    /// `config_source` of DescribeConfigs.
    pub fn code(self) -> i8 {
        match self {
            Source::Topic => 1,
            Source::DynamicBroker => 2,
            Source::DynamicDefault => 3,
            Source::Static => 4,
            Source::Default => 5,
            Source::Logger => 6,
        }
    }
}

impl Layers {
    /// All layers as one. A dynamic value replaces every member of its family: `log.retention.ms` set for the
    /// cluster wins over `log.retention.ms` and `log.retention.hours` of the file.
    pub(super) fn merged(&self) -> Properties {
        let mut merged = self.fixed.clone();
        for layer in [&self.cluster_default, &self.per_broker] {
            for (name, value) in layer {
                for member in family(name) {
                    merged.remove(*member);
                }
                merged.insert(name.clone(), value.clone());
            }
        }
        merged
    }

    /// The layers that hold set values, the winning one first.
    pub(super) fn by_precedence(&self) -> [(Source, &Properties); 3] {
        [
            (Source::DynamicBroker, &self.per_broker),
            (Source::DynamicDefault, &self.cluster_default),
            (Source::Static, &self.fixed),
        ]
    }
}

const FAMILIES: [&[&str]; 3] = [
    &["log.roll.ms", "log.roll.hours"],
    &["log.roll.jitter.ms", "log.roll.jitter.hours"],
    &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
];
const FLUSH_FAMILY: &[&str] = &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"];

/// The keys that say the same as this one, in order of precedence; empty when there is only the key itself.
pub(super) fn family(name: &str) -> &'static [&'static str] {
    if name == FLUSH_FAMILY[0] {
        // The scheduler's interval is the default of the other one, not the other way round.
        return FLUSH_FAMILY;
    }
    FAMILIES.into_iter().find(|family| family.contains(&name)).unwrap_or(&[])
}

/// `num.network.threads` of `listener.name.internal.num.network.threads`.
pub(super) fn listener_base(name: &str) -> Option<&str> {
    let (_, base) = name.strip_prefix("listener.name.")?.split_once('.')?;
    Some(MECHANISM_KEYS.into_iter().find(|key| base.ends_with(key)).unwrap_or(base))
}

/// Keys that may stand behind `listener.name.<listener>.<mechanism>.`.
const MECHANISM_KEYS: [&str; 5] = [
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn the_broker_wins_over_the_cluster_and_the_file() {
        let layers = Layers {
            fixed: properties(&[("a", "1"), ("b", "1"), ("c", "1")]),
            cluster_default: properties(&[("b", "2"), ("c", "2")]),
            per_broker: properties(&[("c", "3")]),
        };
        assert_eq!(layers.merged(), properties(&[("a", "1"), ("b", "2"), ("c", "3")]));
    }

    #[test]
    fn a_dynamic_value_replaces_its_whole_family() {
        let layers = Layers {
            fixed: properties(&[("log.retention.ms", "1"), ("log.retention.hours", "2")]),
            cluster_default: properties(&[("log.retention.ms", "3")]),
            per_broker: properties(&[]),
        };
        assert_eq!(layers.merged(), properties(&[("log.retention.ms", "3")]));
    }

    #[test]
    fn listener_prefixes_are_cut() {
        assert_eq!(listener_base("listener.name.x.num.network.threads"), Some("num.network.threads"));
        assert_eq!(listener_base("listener.name.x.plain.sasl.jaas.config"), Some("sasl.jaas.config"));
        assert_eq!(listener_base("num.network.threads"), None);
    }
}
