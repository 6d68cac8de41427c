use std::io::Write;
use std::path::Path;

use snafu::ResultExt;

use super::decoder::Decoder;
use super::records::show_control_record;
use super::{Arguments, Complaints, DumpLogError, RecordsSnafu, SegmentSnafu, base_offset};
use crate::log::{SegmentReadError, SegmentReader};
use crate::model::{Offset, Timestamp};
use crate::records::{Batch, RecordView, TimestampType, TransactionMarker, sequence_plus};
use crate::runtime::fs::FileSystem;

/// Prints the batches of a segment, and their records where that is asked for.
pub(super) fn dump(
    arguments: &Arguments,
    decoder: &Decoder,
    fs: &dyn FileSystem,
    path: &Path,
    output: &mut dyn Write,
    complaints: &mut Complaints,
) -> Result<(), DumpLogError> {
    writeln!(output, "{}", title(path)?)?;
    let mut reader = SegmentReader::open(fs, path).context(SegmentSnafu { path })?;
    let is_deep = arguments.deep_iteration || decoder.prints_contents();
    let limit = u64::try_from(arguments.max_bytes).unwrap_or(0);
    let mut gaps = Gaps::default();
    loop {
        let (position, batch) = match reader.next_batch() {
            Ok(Some(read)) => read,
            Ok(None) | Err(SegmentReadError::Damaged { .. }) => break,
            Err(error) => return Err(error).context(SegmentSnafu { path }),
        };
        if position + batch.bytes.len() as u64 > limit {
            break;
        }
        writeln!(output, "{}", describe_batch(&batch, position))?;
        if !is_deep {
            continue;
        }
        let checksums = match batch.header.magic {
            2 => Vec::new(),
            _ => batch.message_checksums().context(RecordsSnafu { path, position })?,
        };
        for (at, record) in batch.records().context(RecordsSnafu { path, position })?.enumerate() {
            let record = record.context(RecordsSnafu { path, position })?;
            gaps.see(record.offset(&batch.header));
            let checksum = checksums.get(at).copied();
            let metadata =
                (!arguments.skip_record_metadata).then(|| describe_record(&batch, &record, checksum));
            write_record(&batch, &record, metadata, decoder, output)?;
        }
    }
    let trailing = reader.size_bytes().saturating_sub(reader.position());
    if trailing > 0 && arguments.max_bytes == i32::MAX {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        writeln!(output, "Found {trailing} invalid bytes at the end of {name}")?;
    }
    if !gaps.found.is_empty() {
        complaints.gaps.push((path.to_owned(), gaps.found));
    }
    Ok(())
}

/// What the name of a log, or of a snapshot of KRaft's metadata, says.
fn title(path: &Path) -> Result<String, DumpLogError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name == "bootstrap.checkpoint" {
        return Ok("KRaft bootstrap snapshot".to_owned());
    }
    // The offset and the epoch that the snapshot ends with.
    let numbers = name.strip_suffix(".checkpoint").and_then(|name| name.split_once('-'));
    let numbers =
        numbers.and_then(|(end, epoch)| Some((end.parse::<i64>().ok()?, epoch.parse::<i32>().ok()?)));
    Ok(match numbers {
        Some((end_offset, epoch)) => format!("Snapshot end offset: {end_offset}, epoch: {epoch}"),
        None => format!("Log starting offset: {}", base_offset(path)?),
    })
}

#[derive(Default)]
struct Gaps {
    last: Option<Offset>,
    found: Vec<(Offset, Offset)>,
}

impl Gaps {
    fn see(&mut self, offset: Offset) {
        if let Some(last) = self.last
            && offset != last.plus(1)
        {
            self.found.push((last, offset));
        }
        self.last = Some(offset);
    }
}

fn write_record(
    batch: &Batch,
    record: &RecordView,
    metadata: Option<String>,
    decoder: &Decoder,
    output: &mut dyn Write,
) -> Result<(), DumpLogError> {
    write!(output, "| {}", metadata.as_deref().unwrap_or_default())?;
    if decoder.prints_contents() && !batch.header.attributes.is_control() {
        let (key, payload) = decoder.read(record, record.offset(&batch.header))?;
        let separator = if metadata.is_some() { " " } else { "" };
        if let Some(key) = key {
            write!(output, "{separator}key: {key}")?;
        }
        if let Some(payload) = payload {
            write!(output, " payload: {payload}")?;
        }
    }
    Ok(writeln!(output)?)
}

fn describe_batch(batch: &Batch, position: u64) -> String {
    let header = &batch.header;
    let attributes = header.attributes;
    let begin = if header.magic >= 2 {
        let delete_horizon = if attributes.has_delete_horizon() {
            format!("OptionalLong[{}]", header.base_timestamp)
        } else {
            "OptionalLong.empty".to_owned()
        };
        format!(
            "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
             partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {delete_horizon}",
            header.base_offset,
            header.last_offset(),
            header.record_count,
            header.base_sequence,
            header.last_sequence(),
            header.producer_id,
            header.producer_epoch,
            header.leader_epoch,
            attributes.is_transactional(),
            attributes.is_control(),
        )
    } else {
        format!("offset: {}", header.last_offset())
    };
    format!(
        "{begin} position: {position} {}: {} size: {} magic: {} compresscodec: {} crc: {} isvalid: {}",
        timestamp_type(batch),
        header.max_timestamp,
        batch.bytes.len(),
        header.magic,
        attributes.codec().map_or("unknown", |codec| codec.name()),
        header.crc,
        batch.check_crc().is_ok(),
    )
}

fn timestamp_type(batch: &Batch) -> &'static str {
    match (batch.header.magic, batch.header.attributes.timestamp_type()) {
        (0, _) => "NoTimestampType",
        (_, TimestampType::CreateTime) => "CreateTime",
        (_, TimestampType::LogAppendTime) => "LogAppendTime",
    }
}

/// `checksum` is told for messages of v0 and v1.
fn describe_record(batch: &Batch, record: &RecordView, checksum: Option<(u32, bool)>) -> String {
    let header = &batch.header;
    let timestamp = if header.magic == 0 { Timestamp::NONE } else { record.timestamp(header) };
    let mut text = format!(
        "offset: {} {}: {timestamp} keySize: {} valueSize: {}",
        record.offset(header),
        timestamp_type(batch),
        size(record.key.as_deref()),
        size(record.value.as_deref()),
    );
    if header.magic < 2 {
        let (crc, is_valid) = checksum.unwrap_or_default();
        // The brace is Kafka's.
        text += &format!(" isValid: {is_valid} crc: {crc}}}");
        return text;
    }
    let sequence = match header.base_sequence {
        -1 => -1,
        base => sequence_plus(base, record.offset_delta),
    };
    let keys: Vec<_> = record.headers.iter().map(|(key, _)| String::from_utf8_lossy(key)).collect();
    text += &format!(" sequence: {sequence} headerKeys: [{}]", keys.join(","));
    if let Ok(Some(end)) = batch.end_transaction() {
        let marker = match end.marker {
            TransactionMarker::Abort => "ABORT",
            TransactionMarker::Commit => "COMMIT",
        };
        text += &format!(" endTxnMarker: {marker} coordinatorEpoch: {}", end.coordinator_epoch);
    } else if batch.header.attributes.is_control()
        && let (Some(key), Some(value)) = (&record.key, &record.value)
        && let Some(shown) = show_control_record(key, value)
    {
        text += &format!(" {shown}");
    }
    text
}

/// `-1` = null.
fn size(field: Option<&[u8]>) -> i64 {
    field.map_or(-1, |field| field.len() as i64)
}
