use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use snafu::{OptionExt, ensure};

use super::json::{Object, UnexpectedSnafu, UnknownVersionSnafu, ZnodeError, encode, parse};
use crate::coordination::NodeData;
use crate::model::{BrokerId, ProducerId};

/// The cluster's name for life, `/cluster/id`: 22 characters of URL-safe base64, as brokers generate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterId(pub String);

impl ClusterId {
    pub fn decode(node: &NodeData) -> Result<ClusterId, ZnodeError> {
        let map = parse(node)?;
        Ok(ClusterId(Object::new(&map).text("id")?.to_owned()))
    }

    pub fn encode(&self) -> Bytes {
        // The version is a text here, and only here.
        encode(&json!({ "version": "1", "id": self.0 }))
    }
}

/// The producer ids that were given to a broker last, `/latest_producer_id_block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    pub broker_id: BrokerId,
    pub first: ProducerId,
    /// Belongs to the block.
    pub last: ProducerId,
}

impl ProducerIdBlock {
    pub const SIZE: i64 = 1000;

    /// The block after this one; `None` when there are no ids left.
    pub fn next(&self, broker_id: BrokerId) -> Option<ProducerIdBlock> {
        ProducerIdBlock::starting_at(self.last.0.checked_add(1)?, broker_id)
    }

    /// The first block of a cluster.
    pub fn initial(broker_id: BrokerId) -> ProducerIdBlock {
        ProducerIdBlock { broker_id, first: ProducerId(0), last: ProducerId(Self::SIZE - 1) }
    }

    fn starting_at(first: i64, broker_id: BrokerId) -> Option<ProducerIdBlock> {
        let last = first.checked_add(Self::SIZE - 1)?;
        Some(ProducerIdBlock { broker_id, first: ProducerId(first), last: ProducerId(last) })
    }

    /// `None` where the node is empty, as it is until the first block is given out.
    pub fn decode(node: &NodeData) -> Result<Option<ProducerIdBlock>, ZnodeError> {
        if node.data.as_ref().is_none_or(Bytes::is_empty) {
            return Ok(None);
        }
        let map = parse(node)?;
        let object = Object::new(&map);
        Ok(Some(ProducerIdBlock {
            broker_id: BrokerId(object.number("broker")?),
            first: ProducerId(object.text_number("block_start")?),
            last: ProducerId(object.text_number("block_end")?),
        }))
    }

    pub fn encode(&self) -> Bytes {
        encode(&json!({
            "version": 1,
            "broker": self.broker_id.0,
            "block_start": self.first.to_string(),
            "block_end": self.last.to_string(),
        }))
    }
}

/// The features that all brokers have agreed on, `/feature`. The node's version is their epoch.
///
/// A broker of Apache Kafka 3.9 exits when it finds one here that it does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    pub status: FeatureStatus,
    /// The level of each feature.
    pub features: BTreeMap<String, i16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureStatus {
    /// `inter.broker.protocol.version` is below 2.7-IV0.
    Disabled,
    Enabled,
}

impl Feature {
    /// Reads versions 1 and 2.
    pub fn decode(node: &NodeData) -> Result<Feature, ZnodeError> {
        let map = parse(node)?;
        let object = Object::new(&map);
        object.version(1..=2)?;
        let status = match object.number("status")? {
            0 => FeatureStatus::Disabled,
            1 => FeatureStatus::Enabled,
            _ => return UnexpectedSnafu { key: "status" }.fail(),
        };
        let key = "max_version_level";
        let mut features = BTreeMap::new();
        for (name, levels) in object.entries("features")? {
            let level = Object::of(levels, "features")?.number(key)?;
            features.insert(name.clone(), i16::try_from(level).ok().context(UnexpectedSnafu { key })?);
        }
        Ok(Feature { status, features })
    }

    /// Writes version 2, or version 1 where `inter.broker.protocol.version` is below 3.3-IV0.
    pub fn encode(&self, version: i32) -> Result<Bytes, ZnodeError> {
        ensure!((1..=2).contains(&version), UnknownVersionSnafu { version });
        let entries = self.features.iter().map(|(name, &level)| {
            let mut levels = Map::new();
            if version == 1 {
                levels.insert("min_version_level".to_owned(), 1.into());
            }
            levels.insert("max_version_level".to_owned(), level.into());
            (name.clone(), Value::Object(levels))
        });
        let features: Value = entries.collect();
        let status = match self.status {
            FeatureStatus::Disabled => 0,
            FeatureStatus::Enabled => 1,
        };
        Ok(encode(&json!({ "features": features, "version": version, "status": status })))
    }
}
