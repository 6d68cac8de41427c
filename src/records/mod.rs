//! Record batches: reading, checking and writing what producers send and logs hold.
//!
//! Pure: bytes in, values out. [`batches`] walks the batches of a log or a request, [`validate`] does
//! everything of Kafka's `LogValidator` that needs no log, [`BatchBuilder`] writes batches of our own,
//! [`down_convert`] shows a batch to clients that only know the messages of v0 and v1. A message reads as a
//! batch of its own.
//! Record bytes are never copied to be looked at: every view is a slice of the batch.
//!
//! Anything here may come from a hostile peer: no length is trusted before it is checked against the
//! bytes that are there.

mod batch;
mod builder;
mod codec;
mod compression;
mod control;
mod cursor;
mod down_convert;
mod error;
mod format;
mod header;
#[cfg(test)]
pub(crate) mod kafka_folder;
mod legacy;
mod record;
mod rewrite;
mod validate;

pub use batch::{Batch, Batches, batches};
pub use builder::{BatchBuilder, end_transaction_marker};
pub use codec::Codec;
pub use control::{EndTransaction, TransactionMarker};
pub use down_convert::{DownConversion, down_convert};
pub use error::{RecordError, RecordFault, RecordsError, Refusal};
pub use format::MessageFormat;
pub use header::{Attributes, BatchHeader, TimestampType, sequence_plus};
pub use record::{RecordView, Records};
pub use rewrite::StoredRecord;
pub use validate::{
    AppendOrigin, RecordSetFormat, TargetCompression, ValidatedBatch, ValidatedRecords, ValidationRules,
    validate,
};
