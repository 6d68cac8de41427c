use bytes::Bytes;
use serde_json::json;

use super::admin::{decode_partitions, encode_partitions};
use super::json::{Object, ZnodeError, encode, parse};
use crate::coordination::NodeData;
use crate::model::{BrokerId, TopicPartition};

/// The number that the store gave to a sequential node; `None` for a name that does not begin like that.
///
/// Counts as a 32-bit number, so it may be negative after two thousand million nodes.
pub fn sequence_number(name: &str, prefix: &str) -> Option<i32> {
    name.strip_prefix(prefix)?.parse().ok()
}

/// Partitions whose ISR their leaders changed, `/isr_change_notification/isr_change_<number>`: written where
/// `inter.broker.protocol.version` is below 2.7-IV2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IsrChange(pub Vec<TopicPartition>);

impl IsrChange {
    pub fn decode(node: &NodeData) -> Result<IsrChange, ZnodeError> {
        decode_partitions(node).map(IsrChange)
    }

    pub fn encode(&self) -> Bytes {
        encode_partitions(&self.0)
    }
}

/// A broker lost a log directory, `/log_dir_event_notification/log_dir_event_<number>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogDirEvent {
    pub broker_id: BrokerId,
}

/// The only event there is: a log directory failed.
const LOG_DIR_FAILURE: i32 = 1;

impl LogDirEvent {
    pub fn decode(node: &NodeData) -> Result<LogDirEvent, ZnodeError> {
        let map = parse(node)?;
        Ok(LogDirEvent { broker_id: BrokerId(Object::new(&map).number("broker")?) })
    }

    pub fn encode(&self) -> Bytes {
        encode(&json!({ "version": 1, "broker": self.broker_id.0, "event": LOG_DIR_FAILURE }))
    }
}
