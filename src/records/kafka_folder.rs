//! A folder that Apache Kafka 3.9.2 wrote, with what its own consumer reads from it, for tests.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

use bytes::Bytes;

/// Every file of the folder by its path inside it, as `segments-0/00000000000000000000.log`.
pub(crate) static FILES: LazyLock<BTreeMap<String, Bytes>> = LazyLock::new(|| {
    let archive = &include_bytes!("../../protocol-tests/peers/data/log-dirs-3.9.2.tar.gz")[..];
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(archive).read_to_end(&mut tar).expect("the archive is whole");
    untar(&tar)
});

/// What a consumer reads: see the `about` of the file.
pub(crate) static MANIFEST: LazyLock<serde_json::Value> = LazyLock::new(|| {
    let text = include_str!("../../protocol-tests/peers/data/log-dirs-3.9.2.json");
    serde_json::from_str(text).expect("the manifest is JSON")
});

/// The files of the folder whose path ends so.
pub(crate) fn files_ending(suffix: &str) -> impl Iterator<Item = (&'static str, &'static Bytes)> {
    FILES.iter().filter(move |(path, _)| path.ends_with(suffix)).map(|(path, bytes)| (path.as_str(), bytes))
}

fn untar(tar: &[u8]) -> BTreeMap<String, Bytes> {
    let text = |field: &[u8]| {
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        String::from_utf8(field[..end].to_vec()).expect("names are UTF-8")
    };
    let mut files = BTreeMap::new();
    let mut at = 0;
    while tar[at] != 0 {
        let header = &tar[at..at + 512];
        let size = usize::from_str_radix(text(&header[124..136]).trim(), 8).expect("sizes are octal");
        let name = text(&header[..100]);
        at += 512;
        if header[156] == b'0' {
            let (_, inside) = name.split_once('/').expect("all lies in one folder");
            files.insert(inside.to_owned(), Bytes::copy_from_slice(&tar[at..at + size]));
        }
        at += size.next_multiple_of(512);
    }
    files
}

mod tests {
    use crate::model::Offset;
    use crate::records::{Batch, BatchHeader, RecordView, batches};

    use super::*;

    fn shown(bytes: &Option<Bytes>) -> serde_json::Value {
        match bytes {
            None => serde_json::Value::Null,
            Some(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if !text.chars().any(char::is_control) => text.into(),
                _ => format!("hex:{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
                    .into(),
            },
        }
    }

    fn expected(directory: &str) -> Option<&'static serde_json::Value> {
        let (topic, partition) = directory.rsplit_once('-')?;
        MANIFEST["topics"][topic]["partitions"].get(partition)
    }

    fn check_record(header: &BatchHeader, record: &RecordView, expected: &serde_json::Value) {
        assert_eq!(expected["timestamp"], record.timestamp(header).0);
        assert_eq!(expected["key"], shown(&record.key));
        assert_eq!(expected["value"], shown(&record.value));
        let headers: Vec<serde_json::Value> = record
            .headers
            .iter()
            .map(|(key, value)| serde_json::json!([shown(&Some(key.clone())), shown(value)]))
            .collect();
        assert_eq!(expected["headers"], serde_json::Value::from(headers));
    }

    #[test]
    fn every_record_that_kafka_wrote_reads_as_its_consumer_reads_it() {
        let mut checked = 0;
        for (path, log) in files_ending(".log") {
            let (directory, _) = path.split_once('/').unwrap();
            let Some(partition) = expected(directory) else { continue };
            let records = partition["records"].as_array().unwrap();
            for batch in batches(log) {
                let batch = batch.unwrap();
                batch.check_crc().unwrap();
                if batch.header.attributes.is_control() {
                    continue;
                }
                for record in batch.records().unwrap() {
                    let record = record.unwrap();
                    let offset = record.offset(&batch.header);
                    if offset.0 < partition["log_start_offset"].as_i64().unwrap() {
                        continue;
                    }
                    let expected = records.iter().find(|known| known["offset"] == offset.0);
                    check_record(&batch.header, &record, expected.unwrap());
                    checked += 1;
                }
            }
        }
        assert!(checked > 150, "{checked}");
    }

    #[test]
    fn every_batch_that_kafka_wrote_is_whole_and_ends_at_the_next() {
        for (path, log) in files_ending(".log") {
            let mut next = None;
            for batch in batches(log) {
                let batch: Batch = batch.unwrap();
                batch.check_crc().unwrap_or_else(|error| panic!("{path}: {error}"));
                assert!(next.is_none_or(|next: Offset| batch.header.last_offset() >= next), "{path}");
                next = Some(batch.header.next_offset());
            }
        }
    }

    #[test]
    fn the_greatest_timestamp_of_a_batch_is_found_where_the_header_says() {
        for (_, log) in files_ending(".log") {
            for batch in batches(log).map(Result::unwrap) {
                let found = batch.record_with_max_timestamp().unwrap();
                let (offset, timestamp) =
                    found.unwrap_or((batch.header.last_offset(), batch.header.max_timestamp));
                assert_eq!(timestamp, batch.header.max_timestamp);
                let first = batch.first_record_at_or_after(timestamp, Offset::ZERO).unwrap();
                assert!(first.is_none_or(|first| first.0 == offset));
            }
        }
    }
}
