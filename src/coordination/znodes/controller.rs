use bytes::Bytes;
use serde_json::json;
use snafu::OptionExt;

use super::json::{NoDataSnafu, Object, UnexpectedSnafu, ZnodeError, encode, parse};
use crate::coordination::NodeData;
use crate::model::{BrokerId, ControllerEpoch, Timestamp};

/// The elected controller, `/controller`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    pub broker_id: BrokerId,
    /// When it was elected. `-1` where it is not told.
    pub timestamp: Timestamp,
}

impl Controller {
    /// Reads any version.
    pub fn decode(node: &NodeData) -> Result<Controller, ZnodeError> {
        let map = parse(node)?;
        let object = Object::new(&map);
        Ok(Controller {
            broker_id: BrokerId(object.number("brokerid")?),
            timestamp: object.text_number("timestamp").map_or(Timestamp::NONE, Timestamp),
        })
    }

    pub fn encode(&self) -> Bytes {
        encode(&json!({
            "version": 2,
            "brokerid": self.broker_id.0,
            "timestamp": self.timestamp.to_string(),
            "kraftControllerEpoch": -1,
        }))
    }
}

/// The epoch of a KRaft controller that holds `/controller` during a migration, when brokers must not write
/// configurations; `None` for a broker.
pub fn decode_kraft_controller_epoch(node: &NodeData) -> Result<Option<i32>, ZnodeError> {
    let epoch = Object::new(&parse(node)?).optional_number("kraftControllerEpoch")?;
    Ok(epoch.filter(|&epoch| epoch > 0))
}

/// `/controller_epoch`: a decimal number, no JSON.
pub fn decode_controller_epoch(node: &NodeData) -> Result<ControllerEpoch, ZnodeError> {
    let data = node.data.as_deref().context(NoDataSnafu)?;
    let number = std::str::from_utf8(data).ok().and_then(|text| text.parse().ok());
    number.map(ControllerEpoch).context(UnexpectedSnafu { key: "controller_epoch" })
}

pub fn encode_controller_epoch(epoch: ControllerEpoch) -> Bytes {
    Bytes::from(epoch.to_string())
}
