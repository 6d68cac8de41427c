use bytes::Bytes;
use serde_json::{Map, Value};
use snafu::{OptionExt, Snafu, ensure};

use crate::coordination::NodeData;
use crate::model::{BrokerId, TopicName};

/// Why a node's data cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum ZnodeError {
    #[snafu(display("the node has no data"))]
    NoData,
    #[snafu(display("the data is not a JSON object"))]
    NotJson,
    #[snafu(display("`{key}` is missing or of another type"))]
    Unexpected { key: &'static str },
    #[snafu(display("version {version} is not known"))]
    UnknownVersion { version: i32 },
}

/// A JSON object whose keys are asked for one by one; what is not asked for is ignored.
#[derive(Debug)]
pub(super) struct Object<'a>(&'a Map<String, Value>);

/// Nesting beyond 128 levels is refused by the parser, so a hostile node cannot overflow the stack.
pub(super) fn parse(node: &NodeData) -> Result<Map<String, Value>, ZnodeError> {
    let data = node.data.as_ref().filter(|data| !data.is_empty()).context(NoDataSnafu)?;
    match serde_json::from_slice(data) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) | Err(_) => Err(ZnodeError::NotJson),
    }
}

/// The text of an object, keys in the order in which `serde_json::json!` names them.
pub(super) fn encode(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

impl<'a> Object<'a> {
    pub(super) fn new(map: &'a Map<String, Value>) -> Object<'a> {
        Object(map)
    }

    pub(super) fn of(value: &'a Value, key: &'static str) -> Result<Object<'a>, ZnodeError> {
        value.as_object().map(Object).context(UnexpectedSnafu { key })
    }

    pub(super) fn number(&self, key: &'static str) -> Result<i32, ZnodeError> {
        self.0.get(key).and_then(as_i32).context(UnexpectedSnafu { key })
    }

    /// `None` where the key is absent or null.
    pub(super) fn optional_number(&self, key: &'static str) -> Result<Option<i32>, ZnodeError> {
        self.value(key).map(|value| as_i32(value).context(UnexpectedSnafu { key })).transpose()
    }

    pub(super) fn text(&self, key: &'static str) -> Result<&'a str, ZnodeError> {
        self.0.get(key).and_then(Value::as_str).context(UnexpectedSnafu { key })
    }

    /// `None` where the key is absent or null.
    pub(super) fn optional_text(&self, key: &'static str) -> Result<Option<&'a str>, ZnodeError> {
        self.value(key).map(|value| value.as_str().context(UnexpectedSnafu { key })).transpose()
    }

    /// A number written as text, as timestamps and blocks of producer ids are.
    pub(super) fn text_number(&self, key: &'static str) -> Result<i64, ZnodeError> {
        self.text(key)?.parse().ok().context(UnexpectedSnafu { key })
    }

    /// A topic's name, which must be legal.
    pub(super) fn topic(&self, key: &'static str) -> Result<TopicName, ZnodeError> {
        TopicName::new(self.text(key)?).ok().context(UnexpectedSnafu { key })
    }

    /// The entries of an object; none where the key is absent or null.
    pub(super) fn entries(
        &self,
        key: &'static str,
    ) -> Result<impl Iterator<Item = (&'a String, &'a Value)>, ZnodeError> {
        let object = self.value(key).map(|value| value.as_object().context(UnexpectedSnafu { key }));
        Ok(object.transpose()?.into_iter().flatten())
    }

    pub(super) fn list(&self, key: &'static str) -> Result<&'a [Value], ZnodeError> {
        let list = self.0.get(key).and_then(Value::as_array);
        list.map(Vec::as_slice).context(UnexpectedSnafu { key })
    }

    pub(super) fn brokers(&self, key: &'static str) -> Result<Vec<BrokerId>, ZnodeError> {
        brokers(self.0.get(key).unwrap_or(&Value::Null), key)
    }

    pub(super) fn version(&self, known: std::ops::RangeInclusive<i32>) -> Result<i32, ZnodeError> {
        let version = self.number("version")?;
        ensure!(known.contains(&version), UnknownVersionSnafu { version });
        Ok(version)
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }
}

/// A list of broker ids.
pub(super) fn brokers(value: &Value, key: &'static str) -> Result<Vec<BrokerId>, ZnodeError> {
    let list = value.as_array().context(UnexpectedSnafu { key })?;
    list.iter().map(|id| as_i32(id).map(BrokerId).context(UnexpectedSnafu { key })).collect()
}

pub(super) fn broker_list(ids: &[BrokerId]) -> Value {
    ids.iter().map(|id| id.0).collect()
}

fn as_i32(value: &Value) -> Option<i32> {
    i32::try_from(value.as_i64()?).ok()
}
