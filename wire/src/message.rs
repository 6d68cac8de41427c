use bytes::Bytes;

use crate::{ApiKey, DecodeError, EncodeError, Reader, Show, Writer};

/// A message with a schema: a request or response body, a record of an internal topic, or other data.
pub trait Message: Sized + Default {
    /// Kafka's name of the message.
    const NAME: &'static str;
    /// The oldest version there is.
    const MIN_VERSION: i16;
    /// The newest version there is.
    const MAX_VERSION: i16;

    /// Reads the message from where `r` stands. Bytes that follow are left alone, as Kafka does.
    ///
    /// Fields that `version` lacks keep their default, unknown tagged fields are skipped.
    fn decode(r: &mut Reader, version: i16) -> Result<Self, DecodeError>;

    /// Appends the message to `w`.
    ///
    /// A field that `version` lacks is left out; if its value is not the default and the schema does not
    /// mark it as ignorable, that is [`EncodeError::FieldNotInVersion`]. After an error `w` holds a part
    /// of the message and is of no use.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError>;
}

/// A request body.
pub trait Request: Message {
    /// The API it belongs to.
    const KEY: ApiKey;
    /// What answers it.
    type Response: Message;

    /// Version of the request header in front of this body.
    fn header_version(version: i16) -> i16 {
        Self::KEY.request_header_version(version)
    }

    /// Version of the response header in front of the answer.
    fn response_header_version(version: i16) -> i16 {
        Self::KEY.response_header_version(version)
    }
}

/// The key of a record in an internal topic: a type number, then the fields.
pub trait RecordKey: Message + Show {
    /// Which type of record this is, among those of its topic.
    const RECORD_TYPE: i16;

    /// The whole record key, with its type in front.
    fn to_record(&self) -> Result<Bytes, EncodeError> {
        versioned(self, Self::RECORD_TYPE, Self::MAX_VERSION)
    }

    /// Reads a whole record key. The type in front must be [`Self::RECORD_TYPE`]; whoever reads a topic
    /// looks at it first, with `Reader::i16`, to choose the key to decode.
    fn from_record(key: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(key.clone());
        let found = r.i16()?;
        if found != Self::RECORD_TYPE {
            let (message, expected) = (Self::NAME, Self::RECORD_TYPE);
            return Err(DecodeError::WrongRecordType { message, expected, found });
        }
        Self::decode(&mut r, Self::MAX_VERSION)
    }
}

/// The value of a record in an internal topic: its version, then the fields.
pub trait RecordValue: Message + Show {
    /// The type of the key it belongs to.
    const RECORD_TYPE: i16;

    /// The whole record value, with its version in front.
    fn to_record(&self, version: i16) -> Result<Bytes, EncodeError> {
        versioned(self, version, version)
    }

    /// Reads a whole record value of any version there is.
    fn from_record(value: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(value.clone());
        let version = r.i16()?;
        Self::decode(&mut r, version)
    }
}

fn versioned<M: Message>(message: &M, prefix: i16, version: i16) -> Result<Bytes, EncodeError> {
    let mut w = Writer::new();
    w.i16(prefix);
    message.encode(&mut w, version)?;
    Ok(w.into_bytes())
}

/// A struct inside a message.
pub(crate) trait Struct: Sized {
    /// The fewest bytes it takes in any version.
    const SIZE_BYTES_MIN: usize;

    fn read(r: &mut Reader, version: i16) -> Result<Self, DecodeError>;
    fn write(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError>;
}
