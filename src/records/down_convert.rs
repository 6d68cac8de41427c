//! Records in an older format, for consumers that read no newer one.

use bytes::Bytes;
use snafu::ensure;

use crate::model::{Offset, Timestamp};

use super::batch::Batch;
use super::compression::InflateLimits;
use super::error::{RecordsError, UnsupportedForFormatSnafu};
use super::header::TimestampType;
use super::legacy::MessageSetBuilder;
use super::record::Records;
use super::{Codec, MessageFormat};

/// What is asked of a conversion to an older format.
#[derive(Clone, Copy, Debug)]
pub struct DownConversion {
    /// v0 or v1.
    pub format: MessageFormat,
    /// Messages before this are not wanted.
    pub from: Offset,
    /// The largest record that is taken out of a compressed batch, in bytes. The records pass through one by one, so
    /// that only the largest of them is held in memory.
    pub record_size_max: usize,
}

/// The largest record that is converted whatever the topic's batches may have.
const RECORD_SIZE_MAX: usize = 32 << 20;

impl DownConversion {
    pub fn new(format: MessageFormat, from: Offset) -> DownConversion {
        DownConversion { format, from, record_size_max: RECORD_SIZE_MAX }
    }

    /// The same for a topic whose batches may be that large: what an uncompressed batch can hold is converted
    /// out of a compressed one too.
    pub fn with_batches_up_to(self, message_size_max: usize) -> DownConversion {
        DownConversion { record_size_max: self.record_size_max.max(message_size_max), ..self }
    }

    fn limits(&self) -> InflateLimits {
        InflateLimits {
            size_max: 1 << 30,
            large_window_size_max: 128 << 20,
            record_size_max: self.record_size_max,
        }
    }
}

/// The records of `batch` as messages of the wanted format; empty when nothing of it can be shown there. A batch
/// that is no newer than the format stays as it is.
///
/// Headers are left out, and so are control batches. What is compressed becomes one wrapper with the same
/// codec; of what is not, messages before the wanted offset are left out: clients that old do not skip them.
///
/// Errors: [`RecordsError::UnsupportedCodec`] for zstd, which those clients cannot read;
/// [`RecordsError::UnsupportedForFormat`] if `format` is v2; and those of reading the records.
pub fn down_convert(batch: &Batch, wanted: &DownConversion) -> Result<Bytes, RecordsError> {
    let DownConversion { format, from, .. } = *wanted;
    let header = &batch.header;
    ensure!(format.is_legacy(), UnsupportedForFormatSnafu { what: "Down-conversion", magic: format.magic() });
    if header.attributes.is_control() {
        return Ok(Bytes::new());
    }
    let codec = header.attributes.codec()?;
    ensure!(codec != Codec::Zstd, super::error::UnsupportedCodecSnafu { codec });
    if header.magic <= format.magic() {
        return Ok(batch.bytes.clone());
    }
    let timestamp_type = header.attributes.timestamp_type();
    let append_time = match timestamp_type {
        TimestampType::LogAppendTime => header.max_timestamp,
        TimestampType::CreateTime => Timestamp::NONE,
    };
    let mut builder = MessageSetBuilder::new(format, (codec, None), timestamp_type, append_time);
    for record in Records::of(batch, wanted.limits())? {
        let record = record?;
        let offset = record.offset(header);
        if codec != Codec::None || offset >= from {
            builder.append(offset, record.timestamp(header), record.key.as_deref(), record.value.as_deref());
        }
    }
    Ok(builder.finish())
}
