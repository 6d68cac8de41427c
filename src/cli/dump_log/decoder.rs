use bytes::Bytes;

use super::records::{read_group_record, read_metadata_record, read_share_record, read_transaction_record};
use super::{Arguments, DumpLogError, NoKeySnafu, UnknownDecoderSnafu};
use crate::model::Offset;
use crate::records::RecordView;

/// How the contents of records are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoder {
    /// Not at all.
    Hidden,
    Plain {
        key: Plain,
        value: Plain,
    },
    Offsets,
    Transactions,
    ShareGroups,
    ClusterMetadata,
}

/// The classes of Kafka that read single fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Text,
    Integer,
    Long,
}

/// Key and value of a record, or what is printed instead of them.
type Parse = fn(&Bytes, Option<&Bytes>) -> Result<(String, Option<String>), String>;

/// What Kafka's parsers show where a value is removed.
const DELETE: &str = "<DELETE>";

impl Decoder {
    pub fn of(arguments: &Arguments) -> Result<Decoder, DumpLogError> {
        if arguments.offsets_decoder {
            return Ok(Decoder::Offsets);
        }
        if arguments.transaction_log_decoder {
            return Ok(Decoder::Transactions);
        }
        if arguments.share_group_state_decoder {
            return Ok(Decoder::ShareGroups);
        }
        if arguments.cluster_metadata_decoder {
            return Ok(Decoder::ClusterMetadata);
        }
        let key = Plain::named(&arguments.key_decoder_class)?;
        let value = Plain::named(&arguments.value_decoder_class)?;
        Ok(if arguments.print_data_log { Decoder::Plain { key, value } } else { Decoder::Hidden })
    }

    pub fn prints_contents(&self) -> bool {
        *self != Decoder::Hidden
    }

    /// Key and value as they are printed; `None` = nothing is.
    pub fn read(
        &self,
        record: &RecordView,
        offset: Offset,
    ) -> Result<(Option<String>, Option<String>), DumpLogError> {
        let parse: Parse = match self {
            Decoder::Hidden => return Ok((None, None)),
            Decoder::Plain { key, value } => {
                let key = record.key.as_ref().map(|bytes| key.show(bytes));
                return Ok((key, record.value.as_ref().map(|bytes| value.show(bytes))));
            }
            Decoder::ClusterMetadata => {
                let value = record.value.as_ref().map(read_metadata_record);
                return Ok((None, value.map(|text| text.replace("{offset}", &offset.to_string()))));
            }
            Decoder::Offsets => read_group_record,
            Decoder::Transactions => read_transaction_record,
            Decoder::ShareGroups => read_share_record,
        };
        let Some(key) = &record.key else { return NoKeySnafu { offset }.fail() };
        match parse(key, record.value.as_ref()) {
            Ok((key, value)) => Ok((Some(key), value.or_else(|| Some(DELETE.to_owned())))),
            Err(what) => Ok((Some(what.replace("{offset}", &offset.to_string())), None)),
        }
    }
}

impl Plain {
    fn named(name: &str) -> Result<Plain, DumpLogError> {
        match name.rsplit('.').next() {
            Some("StringDecoder" | "DefaultDecoder") => Ok(Plain::Text),
            Some("IntegerDecoder") => Ok(Plain::Integer),
            Some("LongDecoder") => Ok(Plain::Long),
            _ => UnknownDecoderSnafu { name }.fail(),
        }
    }

    fn show(self, bytes: &Bytes) -> String {
        let number = match self {
            Plain::Text => None,
            Plain::Integer => bytes.first_chunk().map(|number| i64::from(i32::from_be_bytes(*number))),
            Plain::Long => bytes.first_chunk().map(|number| i64::from_be_bytes(*number)),
        };
        number.map_or_else(|| String::from_utf8_lossy(bytes).into_owned(), |number| number.to_string())
    }
}
