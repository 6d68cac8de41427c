//! The same input gives what Kafka 3.9.2's own classes make of it (`protocol-tests/java/MessageSets.java`).

use std::io::Read;

use bytes::Bytes;

use crate::model::{LeaderEpoch, Offset, Timestamp};
use crate::records::{
    Batch, BatchHeader, Codec, DownConversion, MessageFormat, RecordSetFormat, Refusal, TargetCompression,
    TimestampType, ValidatedRecords, ValidationRules, batches, down_convert, validate,
};

const NOW: Timestamp = Timestamp(1_700_000_000_000);

struct Case {
    kind: String,
    target: MessageFormat,
    codec_or_offset: String,
    timestamp_type: String,
    input: Bytes,
    /// Kafka's bytes, or the name of its exception.
    output: Result<Bytes, String>,
}

fn cases(kind: &str) -> Vec<Case> {
    let archive = &include_bytes!("../../../protocol-tests/peers/data/message-sets-3.9.2.tsv.gz")[..];
    let mut text = String::new();
    flate2::read::GzDecoder::new(archive).read_to_string(&mut text).unwrap();
    let case = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        Case {
            kind: fields[0].to_owned(),
            target: MessageFormat::from_magic(fields[1].parse().unwrap()).unwrap(),
            codec_or_offset: fields[2].to_owned(),
            timestamp_type: fields[3].to_owned(),
            input: hex(fields[4]),
            output: match fields[5].strip_prefix('!') {
                Some(exception) => Err(exception.to_owned()),
                None => Ok(hex(fields[5])),
            },
        }
    };
    text.lines().map(case).filter(|case| case.kind == kind).collect()
}

fn hex(text: &str) -> Bytes {
    let digits = text.trim_matches('-').as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn refusal(exception: &str) -> Refusal {
    match exception {
        "CorruptRecordException" => Refusal::CorruptMessage,
        "InvalidRecordException" => Refusal::InvalidRecord,
        "InvalidTimestampException" => Refusal::InvalidTimestamp,
        "UnsupportedForMessageFormatException" => Refusal::UnsupportedForMessageFormat,
        "UnsupportedCompressionTypeException" => Refusal::UnsupportedCompressionType,
        // Headers and zstd for a format without them, which Kafka has no error of its own for.
        "IllegalArgumentException" => Refusal::UnsupportedForMessageFormat,
        other => panic!("{other}"),
    }
}

fn stored(records: ValidatedRecords) -> Bytes {
    let mut next = Offset(100);
    let mut log = Vec::new();
    for batch in records.batches {
        log.extend_from_slice(&batch.prefix(next, LeaderEpoch(5)));
        log.extend_from_slice(&batch.bytes[BatchHeader::PREFIX..]);
        next = next.plus(i64::from(batch.header.last_offset_delta) + 1);
    }
    log.into()
}

/// Everything of a log but what a codec's library decides.
fn contents(log: &Bytes) -> Vec<String> {
    let mut lines = Vec::new();
    for batch in batches(log).map(Result::unwrap) {
        batch.check_crc().unwrap();
        let mut header = batch.header;
        (header.batch_length, header.crc) = (0, 0);
        lines.push(format!("{header:?}"));
        lines.extend(records(&batch));
    }
    lines
}

fn records(batch: &Batch) -> Vec<String> {
    let line = |record: crate::records::RecordView| {
        let (offset, timestamp) = (record.offset(&batch.header), record.timestamp(&batch.header));
        format!("{offset} {timestamp} {:?} {:?} {:?}", record.key, record.value, record.headers)
    };
    batch.records().unwrap().map(|record| line(record.unwrap())).collect()
}

#[track_caller]
fn check(what: &str, ours: &Bytes, kafkas: &Bytes) {
    assert_eq!(contents(ours), contents(kafkas), "{what}");
    let is_plain = batches(kafkas).all(|batch| batch.unwrap().header.attributes.codec() == Ok(Codec::None));
    if is_plain {
        assert_eq!(ours, kafkas, "{what}");
    }
}

#[test]
fn what_is_produced_is_stored_as_by_kafka() {
    let mut stored_count = 0;
    for (line, case) in (1..).zip(cases("store")) {
        let rules = ValidationRules {
            format: RecordSetFormat::MessageSet,
            message_format: case.target,
            timestamp_type: match case.timestamp_type.as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_before_max_ms: 3_600_000,
            compression: match case.codec_or_offset.as_str() {
                "producer" => TargetCompression::Producer,
                "gzip" => TargetCompression::Fixed(Codec::Gzip, None),
                _ => TargetCompression::Fixed(Codec::None, None),
            },
            ..ValidationRules::default()
        };
        let what = format!("case {line}: {} to {:?}", case.codec_or_offset, case.target);
        let ours = validate(case.input, &rules, NOW);
        match (ours, case.output) {
            (Ok(ours), Ok(kafkas)) if case.target == MessageFormat::V0 => {
                // Kafka compresses here, and this broker does not: the records are the same.
                let of =
                    |log: &Bytes| batches(log).flat_map(|batch| records(&batch.unwrap())).collect::<Vec<_>>();
                assert_eq!(of(&stored(ours)), of(&kafkas), "{what}");
                stored_count += 1;
            }
            (Ok(ours), Ok(kafkas)) => {
                check(&what, &stored(ours), &kafkas);
                stored_count += 1;
            }
            (Err(ours), Err(kafkas)) => assert_eq!(ours.refusal(), refusal(&kafkas), "{what}: {ours}"),
            (ours, kafkas) => panic!("{what}: {ours:?}, but {kafkas:?}"),
        }
    }
    assert!(stored_count > 250, "{stored_count}");
}

#[test]
fn old_consumers_get_what_kafka_gives_them() {
    let mut count = 0;
    for (line, case) in (1..).zip(cases("down")) {
        let from = Offset(case.codec_or_offset.parse().unwrap());
        let what = format!("case {line}: from {from} to {:?}", case.target);
        let mut converted = Ok(Vec::new());
        for batch in batches(&case.input) {
            let one = down_convert(&batch.unwrap(), &DownConversion::new(case.target, from));
            converted = converted.and_then(|all| one.map(|one| [all, one.to_vec()].concat()));
        }
        match (converted, case.output) {
            (Ok(ours), Ok(kafkas)) => check(&what, &ours.into(), &kafkas),
            (Err(ours), Err(kafkas)) => assert_eq!(ours.refusal(), refusal(&kafkas), "{what}: {ours}"),
            (ours, kafkas) => panic!("{what}: {ours:?}, but {kafkas:?}"),
        }
        count += 1;
    }
    assert!(count > 80, "{count}");
}
