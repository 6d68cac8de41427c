//! What the records of `__transaction_state` say about producer ids.

use wire::{RecordValue, TransactionLogValue};

use crate::model::ProducerId;
use crate::records::Batch;

/// The largest producer id of a batch's records. What cannot be read names none.
pub(super) fn producer_id_max(batch: &Batch) -> Option<ProducerId> {
    let records = batch.records().ok()?;
    let values = records.map_while(Result::ok).filter_map(|record| record.value);
    let ids = values.filter_map(|value| TransactionLogValue::from_record(&value).ok());
    ids.map(|value| ProducerId(value.producer_id)).max()
}
