use std::fmt::Write;

use bytes::Bytes;
use indexmap::IndexMap;
use serde_json::{Map, Value, json};
use snafu::OptionExt;

use super::json::{Object, UnexpectedSnafu, ZnodeError, encode, parse};
use super::paths;
use crate::coordination::NodeData;
use crate::model::{BrokerId, TopicName};

/// What can be configured, each with a node of its own below `/config`. `None` = the default of all that have
/// no entry of their own, `<default>` in paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigEntity {
    Topic(TopicName),
    Broker(Option<BrokerId>),
    User(Option<String>),
    Client(Option<String>),
    UserClient { user: Option<String>, client: Option<String> },
    Ip(Option<String>),
}

const DEFAULT: &str = "<default>";

impl ConfigEntity {
    /// The node's path.
    pub fn path(&self) -> String {
        format!("{}/{}", paths::CONFIG, self.entity_path())
    }

    /// The path below `/config`, as change notifications carry it: `topics/t`, `users/alice/clients/<default>`.
    ///
    /// Names of users and clients are written so that any text fits into a path and none is taken for the
    /// default; topics, brokers and addresses fit as they are.
    pub fn entity_path(&self) -> String {
        match self {
            ConfigEntity::Topic(topic) => format!("topics/{topic}"),
            ConfigEntity::Broker(Some(id)) => format!("brokers/{id}"),
            ConfigEntity::Broker(None) => format!("brokers/{DEFAULT}"),
            ConfigEntity::User(user) => format!("users/{}", sanitize(user)),
            ConfigEntity::Client(client) => format!("clients/{}", sanitize(client)),
            ConfigEntity::UserClient { user, client } => {
                format!("users/{}/clients/{}", sanitize(user), sanitize(client))
            }
            ConfigEntity::Ip(address) => format!("ips/{}", address.as_deref().unwrap_or(DEFAULT)),
        }
    }

    /// Reads what [`entity_path`](ConfigEntity::entity_path) writes; `None` for anything else.
    pub fn from_entity_path(path: &str) -> Option<ConfigEntity> {
        let mut parts = path.split('/');
        let (kind, name) = (parts.next()?, parts.next()?);
        let rest: Vec<&str> = parts.collect();
        Some(match (kind, rest.as_slice()) {
            ("topics", []) => ConfigEntity::Topic(TopicName::new(name).ok()?),
            ("brokers", []) if name == DEFAULT => ConfigEntity::Broker(None),
            ("brokers", []) => ConfigEntity::Broker(Some(BrokerId(name.parse().ok()?))),
            ("users", []) => ConfigEntity::User(desanitize(name)?),
            ("users", ["clients", client]) => {
                ConfigEntity::UserClient { user: desanitize(name)?, client: desanitize(client)? }
            }
            ("clients", []) => ConfigEntity::Client(desanitize(name)?),
            ("ips", []) => ConfigEntity::Ip(Some(name.to_owned()).filter(|name| name != DEFAULT)),
            _ => return None,
        })
    }
}

/// The name as a part of a path: what Java's form encoding gives, with `%2A` for `*` and `%20` for a blank.
fn sanitize(name: &Option<String>) -> String {
    let Some(name) = name else { return DEFAULT.to_owned() };
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' => text.push(char::from(byte)),
            _ => write!(text, "%{byte:02X}").expect("a string takes any text"),
        }
    }
    text
}

/// `Some(None)` for the default, `None` for what is not a sanitized name.
fn desanitize(text: &str) -> Option<Option<String>> {
    if text == DEFAULT {
        return Some(None);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().map(Some)
}

/// The configuration of one entity, in the order in which it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityConfig(pub IndexMap<String, String>);

impl EntityConfig {
    /// Empty where the node has no data, as the parent of others.
    pub fn decode(node: &NodeData) -> Result<EntityConfig, ZnodeError> {
        if node.data.as_ref().is_none_or(Bytes::is_empty) {
            return Ok(EntityConfig::default());
        }
        let map = parse(node)?;
        let object = Object::new(&map);
        object.version(1..=1)?;
        let entries = object.entries("config")?.map(|(key, value)| {
            let value = value.as_str().context(UnexpectedSnafu { key: "config" })?;
            Ok((key.clone(), value.to_owned()))
        });
        entries.collect::<Result<_, _>>().map(EntityConfig)
    }

    pub fn encode(&self) -> Bytes {
        let config: Map<String, Value> =
            self.0.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        encode(&json!({ "version": 1, "config": config }))
    }
}

/// A notification that an entity's configuration has changed, `/config/changes/config_change_<number>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange(pub ConfigEntity);

impl ConfigChange {
    /// Reads versions 1 and 2.
    pub fn decode(node: &NodeData) -> Result<ConfigChange, ZnodeError> {
        let map = parse(node)?;
        let object = Object::new(&map);
        let (path, key) = match object.version(1..=2)? {
            1 => (format!("{}/{}", object.text("entity_type")?, object.text("entity_name")?), "entity_type"),
            _ => (object.text("entity_path")?.to_owned(), "entity_path"),
        };
        ConfigEntity::from_entity_path(&path).map(ConfigChange).context(UnexpectedSnafu { key })
    }

    pub fn encode(&self) -> Bytes {
        encode(&json!({ "version": 2, "entity_path": self.0.entity_path() }))
    }
}
