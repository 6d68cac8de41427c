use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use snafu::{OptionExt, ensure};

use super::json::{Object, UnexpectedSnafu, UnknownVersionSnafu, ZnodeError, encode, parse};
use crate::coordination::NodeData;
use crate::model::Timestamp;

/// A broker's registration, `/brokers/ids/<id>`. Its epoch is the node's czxid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// In the order of `advertised.listeners`.
    pub endpoints: Vec<BrokerEndpoint>,
    pub rack: Option<String>,
    /// `-1` = none.
    pub jmx_port: i32,
    /// When it registered. `-1` where it is not told.
    pub timestamp: Timestamp,
    /// The features the broker supports. A broker of a ZooKeeper cluster registers none.
    pub features: BTreeMap<String, SupportedVersions>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerEndpoint {
    pub listener: String,
    /// `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
    pub security_protocol: String,
    /// Without the brackets of an IPv6 address; may be empty.
    pub host: String,
    pub port: u16,
}

/// The levels of one feature that a broker can work at, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedVersions {
    pub min_version: i16,
    pub max_version: i16,
}

/// The form of a registration, which follows from `inter.broker.protocol.version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerVersion {
    /// Below 0.10.0-IV1: without rack and listener names.
    V2,
    /// Below 2.7-IV0: without features.
    V4,
    V5,
}

const PLAINTEXT: &str = "PLAINTEXT";

impl Broker {
    /// Reads versions 1 to 5, and later ones as 5.
    pub fn decode(node: &NodeData) -> Result<Broker, ZnodeError> {
        let map = parse(node)?;
        let object = Object::new(&map);
        let version = object.number("version")?;
        ensure!(version >= 1, UnknownVersionSnafu { version });
        Ok(Broker {
            endpoints: if version == 1 { vec![only_endpoint(&object)?] } else { endpoints(&object)? },
            rack: object.optional_text("rack")?.map(str::to_owned),
            jmx_port: object.number("jmx_port")?,
            timestamp: object.text_number("timestamp").map_or(Timestamp::NONE, Timestamp),
            features: features(&object)?,
        })
    }

    pub fn encode(&self, version: BrokerVersion) -> Bytes {
        let mut map = Map::new();
        if version == BrokerVersion::V5 {
            let features = self.features.iter();
            map.insert(
                "features".to_owned(),
                features.map(|(name, levels)| (name, levels.encode())).collect(),
            );
        }
        if version != BrokerVersion::V2 {
            let protocols = self
                .endpoints
                .iter()
                .map(|endpoint| (&endpoint.listener, endpoint.security_protocol.as_str()));
            map.insert("listener_security_protocol_map".to_owned(), protocols.collect());
        }
        let endpoints = self.endpoints.iter().map(|endpoint| endpoint.encode(version));
        map.insert("endpoints".to_owned(), endpoints.collect());
        if let Some(rack) = self.rack.as_deref().filter(|_| version != BrokerVersion::V2) {
            map.insert("rack".to_owned(), rack.into());
        }
        let plaintext = self.endpoints.iter().find(|endpoint| endpoint.security_protocol == PLAINTEXT);
        map.insert("jmx_port".to_owned(), self.jmx_port.into());
        map.insert("port".to_owned(), plaintext.map_or(-1, |endpoint| i32::from(endpoint.port)).into());
        map.insert("host".to_owned(), plaintext.map(|endpoint| endpoint.host.as_str()).into());
        map.insert("version".to_owned(), version.number().into());
        map.insert("timestamp".to_owned(), self.timestamp.to_string().into());
        encode(&Value::Object(map))
    }
}

impl BrokerVersion {
    fn number(self) -> i32 {
        match self {
            BrokerVersion::V2 => 2,
            BrokerVersion::V4 => 4,
            BrokerVersion::V5 => 5,
        }
    }
}

impl BrokerEndpoint {
    fn encode(&self, version: BrokerVersion) -> String {
        // Readers of version 2 know no listener names.
        let name = if version == BrokerVersion::V2 { &self.security_protocol } else { &self.listener };
        let BrokerEndpoint { host, port, .. } = self;
        if host.contains(':') {
            format!("{name}://[{host}]:{port}")
        } else {
            format!("{name}://{host}:{port}")
        }
    }

    /// `LISTENER://host:port`; the listener's protocol is in `protocols`, or it is the listener's name.
    fn decode(text: &str, protocols: Option<&BTreeMap<&str, &str>>) -> Option<BrokerEndpoint> {
        let (listener, address) = text.split_once("://")?;
        let (host, port) = address.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let security_protocol = match protocols {
            Some(protocols) => protocols.get(listener)?,
            None => listener,
        };
        Some(BrokerEndpoint {
            listener: listener.to_owned(),
            security_protocol: security_protocol.to_owned(),
            host: host.to_owned(),
            port: port.parse().ok()?,
        })
    }
}

impl SupportedVersions {
    fn encode(self) -> Value {
        json!({ "min_version": self.min_version, "max_version": self.max_version })
    }
}

fn only_endpoint(object: &Object<'_>) -> Result<BrokerEndpoint, ZnodeError> {
    Ok(BrokerEndpoint {
        listener: PLAINTEXT.to_owned(),
        security_protocol: PLAINTEXT.to_owned(),
        host: object.text("host")?.to_owned(),
        port: u16::try_from(object.number("port")?).ok().context(UnexpectedSnafu { key: "port" })?,
    })
}

fn endpoints(object: &Object<'_>) -> Result<Vec<BrokerEndpoint>, ZnodeError> {
    let mut protocols = BTreeMap::new();
    for (listener, protocol) in object.entries("listener_security_protocol_map")? {
        let key = "listener_security_protocol_map";
        protocols.insert(listener.as_str(), protocol.as_str().context(UnexpectedSnafu { key })?);
    }
    let protocols = Some(&protocols).filter(|protocols| !protocols.is_empty());
    let texts = object.list("endpoints")?.iter();
    texts
        .map(|text| text.as_str().and_then(|text| BrokerEndpoint::decode(text, protocols)))
        .map(|endpoint| endpoint.context(UnexpectedSnafu { key: "endpoints" }))
        .collect()
}

fn features(object: &Object<'_>) -> Result<BTreeMap<String, SupportedVersions>, ZnodeError> {
    let level =
        |levels: &Object<'_>, key| i16::try_from(levels.number(key)?).ok().context(UnexpectedSnafu { key });
    let mut features = BTreeMap::new();
    for (name, levels) in object.entries("features")? {
        let levels = Object::of(levels, "features")?;
        let min_version = level(&levels, "min_version")?;
        let max_version = level(&levels, "max_version")?;
        features.insert(name.clone(), SupportedVersions { min_version, max_version });
    }
    Ok(features)
}
