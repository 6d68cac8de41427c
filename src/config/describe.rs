//! What DescribeConfigs shows of the settings: values, sources, synonyms.

use super::broker::BrokerConfig;
use super::error::ConfigError;
use super::keys::{BROKER, Key, Kind, TOPIC, Update, broker_key};
use super::layers::{Source, family, listener_base};
use super::properties::Properties;
use super::topic::effective_values;
use super::value::Value;

/// One setting as DescribeConfigs answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// `None` = null or secret.
    pub value: Option<String>,
    pub source: Source,
    pub is_read_only: bool,
    pub is_sensitive: bool,
    /// `None` for a key that no table knows; its values are treated as secrets.
    pub kind: Option<Kind>,
    /// All places where a value is set, the winning one first.
    pub synonyms: Vec<Synonym>,
    pub documentation: Option<&'static str>,
}

/// A place where a value is set, under the name it has there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synonym {
    pub name: String,
    pub value: Option<String>,
    pub source: Source,
}

impl Entry {
    /// `config_type` of DescribeConfigs; 0 = unknown.
    pub fn kind_code(&self) -> i8 {
        self.kind.map_or(0, Kind::code)
    }
}

impl BrokerConfig {
    /// All settings of this broker, also unknown ones that are set, in order of name.
    pub fn describe(&self) -> Vec<Entry> {
        let merged = self.layers().merged();
        let rows = BROKER.iter().zip(self.values());
        let shown = rows.filter(|(key, _)| {
            let is_hidden = key.is_internal || key.update == Update::OnlyDynamic;
            !is_hidden || merged.contains_key(key.name)
        });
        let mut entries: Vec<Entry> =
            shown.map(|(key, value)| self.entry(key.name, value.as_ref().and_then(Value::to_text))).collect();
        for (name, text) in &merged {
            if broker_key(name).is_none() {
                entries.push(self.entry(name, Some(text.clone())));
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries
    }

    /// Only what is set as a default for all brokers, in order of name.
    pub fn describe_cluster_default(&self) -> Vec<Entry> {
        let set = &self.layers().cluster_default;
        let entry = |(name, text): (&String, &String)| {
            let mut entry = self.entry(name, Some(text.clone()));
            entry.synonyms.retain(|synonym| synonym.source == Source::DynamicDefault);
            entry.source = Source::DynamicDefault;
            entry
        };
        set.iter().map(entry).collect()
    }

    /// All settings of a topic with these overrides, in order of name.
    ///
    /// Fails when an override cannot be read, as it may be when something else stored it.
    pub fn describe_topic(&self, overrides: &Properties) -> Result<Vec<Entry>, ConfigError> {
        let values = effective_values(overrides, self.values())?;
        Ok(TOPIC.iter().zip(values).map(|(key, value)| self.topic_entry(key, &value, overrides)).collect())
    }

    fn topic_entry(&self, key: &'static Key, value: &Value, overrides: &Properties) -> Entry {
        let mut synonyms = Vec::new();
        let text = value.to_text();
        if overrides.contains_key(key.name) {
            synonyms.push(Synonym { name: key.name.to_owned(), value: text.clone(), source: Source::Topic });
        }
        if let Some(first) = key.synonyms.first() {
            synonyms.extend(self.synonyms(first, false));
        }
        Entry {
            name: key.name.to_owned(),
            value: text,
            source: synonyms.first().map_or(Source::Default, |synonym| synonym.source),
            is_read_only: false,
            is_sensitive: false,
            kind: Some(key.kind),
            synonyms,
            documentation: Some(key.documentation),
        }
    }

    fn entry(&self, name: &str, value: Option<String>) -> Entry {
        let exact = broker_key(name).map(|(_, key)| key);
        let key = exact.or_else(|| broker_key(listener_base(name)?).map(|(_, key)| key));
        let is_sensitive = key.is_none_or(|key| key.kind == Kind::Password);
        let synonyms = self.synonyms(name, is_sensitive);
        Entry {
            name: name.to_owned(),
            value: value.filter(|_| !is_sensitive),
            source: synonyms.first().map_or(Source::Default, |synonym| synonym.source),
            is_read_only: !exact.is_some_and(Key::is_dynamic),
            is_sensitive,
            kind: key.map(|key| key.kind),
            synonyms,
            documentation: exact.filter(|key| key.update != Update::OnlyDynamic).map(|key| key.documentation),
        }
    }

    /// Where a key and its family are set. Kafka drops what stands before the key's own first place, and so
    /// shows a static `log.retention.hours` of a topic's `retention.ms` only behind a dynamic `log.retention.ms`.
    fn synonyms(&self, name: &str, is_sensitive: bool) -> Vec<Synonym> {
        let names: Vec<&str> = match (family(name), listener_base(name)) {
            ([], Some(base)) => vec![name, base],
            ([], None) => vec![name],
            (family, _) => family.to_vec(),
        };
        let mut synonyms = Vec::new();
        let mut add = |name: &str, value: &str, source| {
            let value = (!is_sensitive).then(|| value.to_owned());
            synonyms.push(Synonym { name: name.to_owned(), value, source });
        };
        for (source, layer) in self.layers().by_precedence() {
            for name in &names {
                if let Some(value) = layer.get(*name) {
                    add(name, value, source);
                }
            }
        }
        for name in &names {
            let key = broker_key(name).map(|(_, key)| key).filter(|key| key.update != Update::OnlyDynamic);
            if let Some(default) = key.and_then(|key| key.default) {
                add(name, default, Source::Default);
            }
        }
        let own = synonyms.iter().position(|synonym| synonym.name == name).unwrap_or(synonyms.len());
        synonyms.split_off(own)
    }
}
