//! Record sets as producers send them and logs hold them: walked, decompressed, validated.

#![no_main]

use barnabas::model::Timestamp;
use barnabas::records::{
    AppendOrigin, MessageFormat, RecordSetFormat, TargetCompression, TimestampType, ValidationRules, batches, validate,
};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [choice, data @ ..] = data else { return };
    let records = with_crc(data);
    for batch in batches(&records).flatten() {
        // Walks as far as the records are whole.
        let _ = batch.records().map(|records| records.take_while(Result::is_ok).count());
    }
    let _ = validate(records, &rules(*choice), Timestamp(1_700_000_000_000));
});

/// Makes the CRC of a first v2 batch right, or nothing behind that check would ever be reached.
fn with_crc(data: &[u8]) -> Bytes {
    let mut records = data.to_vec();
    if let Some(length) = records.get(8..12).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()) {
        let end = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0).saturating_add(12);
        if records.get(16) == Some(&2) && (21..=records.len()).contains(&end) {
            let crc = crc32c::crc32c(&records[21..end]);
            records[17..21].copy_from_slice(&crc.to_be_bytes());
        }
    }
    records.into()
}

fn rules(choice: u8) -> ValidationRules {
    let formats = [RecordSetFormat::MessageSet, RecordSetFormat::BatchWithoutZstd, RecordSetFormat::Batch];
    ValidationRules {
        origin: AppendOrigin::Client,
        format: formats[usize::from(choice) % 3],
        message_format: if choice & 16 == 0 { MessageFormat::V2 } else { MessageFormat::V1 },
        timestamp_type: if choice & 4 == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        },
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        needs_keys: choice & 8 != 0,
        compression: TargetCompression::Producer,
        message_size_max: 1024 * 1024,
        record_set_size_max: 1024 * 1024,
        inflated_size_max: usize::MAX,
    }
}
