use bytes::Bytes;
use proptest::prelude::*;

use crate::model::{LeaderEpoch, Offset, Timestamp};
use crate::records::compression::InflateLimits;
use crate::records::{
    Batch, BatchBuilder, BatchHeader, Codec, DownConversion, MessageFormat, RecordFault, RecordSetFormat,
    RecordView, RecordsError, Refusal, TargetCompression, TimestampType, ValidatedBatch, ValidationRules,
    batches, down_convert, validate,
};

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const OLD_CODECS: [Codec; 4] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4];
const LIMITS: InflateLimits =
    InflateLimits { size_max: 1 << 20, large_window_size_max: 1 << 20, record_size_max: 1 << 20 };

/// What every format can hold of a record.
type Plain = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

fn rules() -> ValidationRules {
    ValidationRules {
        format: RecordSetFormat::MessageSet,
        timestamp_after_max_ms: i64::MAX,
        ..ValidationRules::default()
    }
}

fn set(format: MessageFormat, codec: Codec, records: &[Plain]) -> Bytes {
    typed_set(format, codec, TimestampType::CreateTime, records)
}

fn typed_set(format: MessageFormat, codec: Codec, kind: TimestampType, records: &[Plain]) -> Bytes {
    let mut builder = MessageSetBuilder::new(format, (codec, None), kind, NOW);
    for (offset, timestamp, key, value) in records {
        builder.append(Offset(*offset), Timestamp(*timestamp), key.as_deref(), value.as_deref());
    }
    builder.finish()
}

fn three(first: i64) -> Vec<Plain> {
    vec![
        (first, 1_000, Some(b"a".to_vec()), Some(b"one".to_vec())),
        (first + 1, 3_000, None, Some(Vec::new())),
        (first + 2, 2_000, Some(Vec::new()), None),
    ]
}

/// The records of a log in any format, as a consumer sees them.
fn read(log: &Bytes) -> Vec<Plain> {
    let mut found = Vec::new();
    for batch in batches(log) {
        let batch = batch.unwrap();
        batch.check_crc().unwrap();
        for record in batch.records().unwrap() {
            let record: RecordView = record.unwrap();
            let (key, value) = (record.key.clone(), record.value.clone());
            found.push((
                record.offset(&batch.header).0,
                record.timestamp(&batch.header).0,
                key.map(|key| key.to_vec()),
                value.map(|value| value.to_vec()),
            ));
        }
    }
    found
}

/// As the log stores it at `first`.
fn stored(batches: &[ValidatedBatch], first: i64) -> Bytes {
    let mut next = Offset(first);
    let mut log = Vec::new();
    for batch in batches {
        log.extend_from_slice(&batch.prefix(next, LeaderEpoch(5)));
        log.extend_from_slice(&batch.bytes[BatchHeader::PREFIX..]);
        next = next.plus(i64::from(batch.header.last_offset_delta) + 1);
    }
    log.into()
}

fn without_times(records: Vec<Plain>) -> Vec<Plain> {
    records.into_iter().map(|(offset, _, key, value)| (offset, -1, key, value)).collect()
}

fn as_seen_in(format: MessageFormat, records: Vec<Plain>) -> Vec<Plain> {
    if format == MessageFormat::V0 { without_times(records) } else { records }
}

#[track_caller]
fn refused(input: Bytes) -> RecordsError {
    validate(input, &rules(), NOW).unwrap_err()
}

#[test]
fn messages_have_the_bytes_of_the_protocol_guide() {
    let plain = [(7, 1_000, Some(b"k".to_vec()), Some(b"v".to_vec()))];
    let v1 = set(MessageFormat::V1, Codec::None, &plain);
    let expected = [
        &[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 24][..],
        &v1[12..16],
        &[1, 0, 0, 0, 0, 0, 0, 0, 3, 232, 0, 0, 0, 1, b'k', 0, 0, 0, 1, b'v'],
    ];
    assert_eq!(v1, expected.concat());
    let v0 = set(MessageFormat::V0, Codec::None, &plain);
    let expected = [
        &[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 16][..],
        &v0[12..16],
        &[0, 0, 0, 0, 0, 1, b'k', 0, 0, 0, 1, b'v'],
    ];
    assert_eq!(v0, expected.concat());
}

#[test]
fn what_is_written_reads_back() {
    for format in [MessageFormat::V0, MessageFormat::V1] {
        for codec in CODECS {
            let written = set(format, codec, &three(41));
            assert_eq!(read(&written), as_seen_in(format, three(41)), "{format:?} {codec:?}");
            let last = batches(&written).last().unwrap().unwrap();
            assert_eq!(last.header.last_offset(), Offset(43));
            assert_eq!(batches(&written).count(), if codec == Codec::None { 3 } else { 1 });
        }
    }
}

#[test]
fn append_time_is_the_wrappers() {
    for codec in OLD_CODECS {
        let written = typed_set(MessageFormat::V1, codec, TimestampType::LogAppendTime, &three(0));
        assert!(read(&written).iter().all(|record| record.1 == NOW.0), "{codec:?}");
    }
}

#[test]
fn every_old_set_is_stored_as_one_batch() {
    for format in [MessageFormat::V0, MessageFormat::V1] {
        for codec in CODECS {
            let validated = validate(set(format, codec, &three(0)), &rules(), NOW).unwrap();
            let [batch] = &validated.batches[..] else { panic!("{format:?} {codec:?}") };
            assert_eq!(batch.header.attributes.codec(), Ok(codec));
            let expected = as_seen_in(format, three(100));
            assert_eq!(read(&stored(&validated.batches, 100)), expected, "{format:?} {codec:?}");
            let max = if format == MessageFormat::V0 { -1 } else { 3_000 };
            assert_eq!(batch.header.max_timestamp, Timestamp(max));
        }
    }
}

#[test]
fn the_topics_codec_and_append_time_win() {
    for codec in CODECS {
        let rules = ValidationRules {
            compression: TargetCompression::Fixed(codec, None),
            timestamp_type: TimestampType::LogAppendTime,
            ..rules()
        };
        for source in OLD_CODECS {
            let validated = validate(set(MessageFormat::V1, source, &three(0)), &rules, NOW).unwrap();
            assert_eq!(validated.log_append_time, Some(NOW));
            assert_eq!(validated.batches[0].header.attributes.codec(), Ok(codec));
            assert!(read(&stored(&validated.batches, 0)).iter().all(|record| record.1 == NOW.0));
        }
    }
}

#[test]
fn a_topic_in_an_old_format_stores_every_set_in_it() {
    for format in [MessageFormat::V0, MessageFormat::V1] {
        let rules = ValidationRules { message_format: format, ..rules() };
        for source in [MessageFormat::V0, MessageFormat::V1, MessageFormat::V2] {
            for codec in OLD_CODECS {
                let input = match source {
                    MessageFormat::V2 => v2(codec, &three(0)),
                    _ => set(source, codec, &three(0)),
                };
                let validated = validate(input, &rules, NOW).unwrap();
                let log = stored(&validated.batches, 100);
                let expected = as_seen_in(format, as_seen_in(source, three(100)));
                assert_eq!(read(&log), expected, "{source:?} {codec:?} as {format:?}");
                assert!(batches(&log).all(|batch| batch.unwrap().header.magic == format.magic()));
            }
        }
    }
}

fn v2(codec: Codec, records: &[Plain]) -> Bytes {
    let mut builder = BatchBuilder::new().base_offset(Offset(records[0].0)).compression(codec, None);
    for (_, timestamp, key, value) in records {
        builder.append(Timestamp(*timestamp), key.as_deref(), value.as_deref(), &[]);
    }
    builder.build()
}

#[test]
fn what_an_old_format_cannot_hold_is_refused_for_it() {
    let rules = ValidationRules { message_format: MessageFormat::V1, ..rules() };
    let mut with_header = BatchBuilder::new();
    with_header.append(NOW, None, None, &[(b"h", None)]);
    let mut idempotent =
        BatchBuilder::new().producer(crate::model::ProducerId(1), crate::model::ProducerEpoch(0), 0);
    idempotent.append(NOW, None, None, &[]);
    for batch in [with_header.build(), idempotent.build()] {
        let error = validate(batch, &rules, NOW).unwrap_err();
        assert_eq!(error.refusal(), Refusal::UnsupportedForMessageFormat);
    }
}

/// A wrapper whose inner messages have these offsets, and its own.
fn wrapper_with_offsets(inner: &[i64], own: i64) -> Bytes {
    let mut plain = Vec::new();
    for offset in inner {
        let mut message = set(MessageFormat::V1, Codec::None, &[(*offset, 1_000, None, None)]).to_vec();
        message[..8].copy_from_slice(&offset.to_be_bytes());
        plain.extend_from_slice(&message);
    }
    wrapper(MessageFormat::V1, own, &plain)
}

/// A gzip wrapper around any bytes.
fn wrapper(format: MessageFormat, own: i64, plain: &[u8]) -> Bytes {
    use crate::records::compression::Deflater;
    let mut deflater = Deflater::new(Codec::Gzip, format, None, Vec::new());
    deflater.write(plain);
    let one = [(own, 1_000, None, Some(deflater.finish()))];
    let mut bytes = set(format, Codec::None, &one).to_vec();
    bytes[17] = Codec::Gzip.id();
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.sum().to_be_bytes());
    bytes.into()
}

#[test]
fn offsets_inside_a_wrapper_count_from_its_first_message() {
    let offsets = |inner: &[i64], own| -> Result<Vec<i64>, RecordFault> {
        let batch = Batch::read(wrapper_with_offsets(inner, own)).unwrap();
        let fault = |error| match error {
            RecordsError::MalformedRecord { fault, .. } => fault,
            error => panic!("{error}"),
        };
        let messages = Messages::of(&batch, LIMITS).map_err(fault)?;
        messages.map(|message| message.map(|message| message.offset.0).map_err(fault)).collect()
    };
    assert_eq!(offsets(&[0, 1, 2], 42), Ok(vec![40, 41, 42]));
    // A compacted wrapper has gaps, and keeps what its last message counts.
    assert_eq!(offsets(&[1, 4], 104), Ok(vec![101, 104]));
    // Absolute offsets fit the wrapper's.
    assert_eq!(offsets(&[40, 41, 42], 42), Ok(vec![40, 41, 42]));
    // Old librdkafka leaves the wrapper's offset out.
    assert_eq!(offsets(&[0, 1, 2], 0), Ok(vec![0, 1, 2]));
    assert_eq!(offsets(&[0, 1, 2], 1), Err(RecordFault::WrapperOffset));
    assert_eq!(offsets(&[], 1), Err(RecordFault::EmptyWrapper));
}

#[test]
fn sets_of_clients_that_number_wrongly_are_numbered_anew() {
    for (inner, own) in [([0, 0, 0], 0), ([5, 6, 7], 7), ([0, 1, 2], 2), ([0, 1, 2], 0)] {
        let validated = validate(wrapper_with_offsets(&inner, own), &rules(), NOW).unwrap();
        let offsets: Vec<i64> = read(&stored(&validated.batches, 10)).iter().map(|record| record.0).collect();
        assert_eq!(offsets, [10, 11, 12], "{inner:?} {own}");
    }
}

/// R17 of the cases of other brokers: however deep it is, only the first level is looked at.
#[test]
fn a_wrapper_inside_a_wrapper_is_refused() {
    for format in [MessageFormat::V0, MessageFormat::V1] {
        let mut bytes = set(format, Codec::None, &three(0));
        for _ in 0..20 {
            bytes = wrapper(format, 0, &bytes);
        }
        assert_eq!(refused(bytes.clone()).refusal(), Refusal::InvalidRecord);
        let stored = Batch::read(bytes).unwrap();
        let error = stored.records().unwrap().next().unwrap().unwrap_err();
        assert!(matches!(error, RecordsError::MalformedRecord { fault: RecordFault::NestedWrapper, .. }));
    }
}

/// R16: of the outer message and of one inside.
#[test]
fn a_wrong_crc_is_found_outside_and_inside() {
    for format in [MessageFormat::V0, MessageFormat::V1] {
        for codec in OLD_CODECS {
            let mut bytes = set(format, codec, &three(0)).to_vec();
            *bytes.last_mut().unwrap() ^= 1;
            assert_eq!(refused(bytes.into()).refusal(), Refusal::CorruptMessage, "{format:?} {codec:?}");
        }
        let mut inner = set(format, Codec::None, &three(0)).to_vec();
        *inner.last_mut().unwrap() ^= 1;
        assert_eq!(refused(wrapper(format, 2, &inner)).refusal(), Refusal::CorruptMessage);
    }
}

#[test]
fn damaged_wrappers_are_refused() {
    let one = set(MessageFormat::V1, Codec::None, &three(0));
    let v0 = set(MessageFormat::V0, Codec::None, &three(0));
    let lying = |size: i32| {
        let mut bytes = one.to_vec();
        bytes[8..12].copy_from_slice(&size.to_be_bytes());
        bytes
    };
    for (inner, what) in [
        (Vec::new(), "nothing in it"),
        (v0.to_vec(), "another format inside"),
        (lying(-1), "a negative size"),
        (lying(13), "a size below the least"),
        (lying(i32::MAX), "a size beyond its end"),
    ] {
        let error = refused(wrapper(MessageFormat::V1, 2, &inner));
        assert_eq!(error.refusal(), Refusal::InvalidRecord, "{what}: {error}");
    }
    // A last message that is cut is left out, as by Kafka.
    let cut = wrapper(MessageFormat::V1, 1, &one[..one.len() - 1]);
    assert_eq!(read(&stored(&validate(cut, &rules(), NOW).unwrap().batches, 0)).len(), 2);
}

#[test]
fn a_set_has_one_format_and_one_wrapper() {
    let v0 = set(MessageFormat::V0, Codec::None, &three(0));
    let v1 = set(MessageFormat::V1, Codec::None, &three(0));
    let gzip = set(MessageFormat::V1, Codec::Gzip, &three(0));
    let v2 = v2(Codec::None, &three(0));
    for parts in [[&v0, &v1], [&v1, &v2], [&gzip, &gzip], [&v1, &gzip]] {
        let error = refused([&parts[0][..], &parts[1][..]].concat().into());
        assert_eq!(error.refusal(), Refusal::InvalidRecord, "{error}");
    }
    let torn = [&v1[..], &v1[..20]].concat();
    assert_eq!(validate(torn.into(), &rules(), NOW).unwrap().batches[0].header.record_count, 3);
}

#[test]
fn a_producer_sets_no_append_time() {
    for codec in OLD_CODECS {
        let input = typed_set(MessageFormat::V1, codec, TimestampType::LogAppendTime, &three(0));
        assert!(validate(input.clone(), &rules(), NOW).is_ok(), "a create time in range is looked at first");
        let append_time = ValidationRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
        let error = validate(input, &append_time, NOW).unwrap_err();
        assert_eq!(error.refusal(), Refusal::InvalidTimestamp);
    }
}

#[test]
fn compacted_topics_want_keys() {
    let rules = ValidationRules { needs_keys: true, ..rules() };
    for codec in OLD_CODECS {
        let error = validate(set(MessageFormat::V0, codec, &three(0)), &rules, NOW).unwrap_err();
        assert_eq!(error.refusal(), Refusal::InvalidRecord);
    }
}

/// R14: what is inflated does not pile up.
#[test]
fn a_wrapper_that_inflates_without_end_is_refused() {
    let large = set(MessageFormat::V1, Codec::None, &[(0, 1_000, None, Some(vec![0; 33 << 20]))]);
    let large = wrapper(MessageFormat::V1, 0, &large);
    assert!(large.len() < 1 << 20);
    let error = refused(large);
    assert_eq!(error.refusal(), Refusal::MessageTooLarge, "{error}");
}

#[test]
fn a_batch_becomes_messages_with_the_same_codec() {
    for format in [MessageFormat::V0, MessageFormat::V1] {
        for codec in OLD_CODECS {
            let batch = Batch::read(v2(codec, &three(50))).unwrap();
            let converted = down_convert(&batch, &DownConversion::new(format, Offset(0))).unwrap();
            assert_eq!(read(&converted), as_seen_in(format, three(50)), "{format:?} {codec:?}");
            assert!(batches(&converted).all(|message| {
                let header = message.unwrap().header;
                header.magic == format.magic() && header.attributes.codec() == Ok(codec)
            }));
            // Only what is not compressed can begin in the middle.
            let converted = down_convert(&batch, &DownConversion::new(format, Offset(51))).unwrap();
            assert_eq!(read(&converted).len(), if codec == Codec::None { 2 } else { 3 });
        }
    }
}

#[test]
fn what_old_consumers_cannot_read_is_left_out_or_refused() {
    let zstd = Batch::read(v2(Codec::Zstd, &three(0))).unwrap();
    let error = down_convert(&zstd, &DownConversion::new(MessageFormat::V1, Offset(0))).unwrap_err();
    assert_eq!(error, RecordsError::UnsupportedCodec { codec: Codec::Zstd });
    let marker = crate::records::end_transaction_marker(
        crate::records::TransactionMarker::Commit,
        crate::model::ProducerId(1),
        crate::model::ProducerEpoch(0),
        0,
        NOW,
    );
    let marker = Batch::read(marker).unwrap();
    assert!(down_convert(&marker, &DownConversion::new(MessageFormat::V0, Offset(0))).unwrap().is_empty());
    let mut with_headers = BatchBuilder::new();
    with_headers.append(NOW, Some(b"k"), Some(b"v"), &[(b"h", Some(b"1")), (b"h", None)]);
    let with_headers = Batch::read(with_headers.build()).unwrap();
    let converted = down_convert(&with_headers, &DownConversion::new(MessageFormat::V1, Offset(0))).unwrap();
    assert_eq!(read(&converted), [(0, NOW.0, Some(b"k".to_vec()), Some(b"v".to_vec()))]);
}

#[test]
fn a_message_that_is_old_enough_stays_as_it_is() {
    let v0 = Batch::read(set(MessageFormat::V0, Codec::Gzip, &three(0))).unwrap();
    let converted = down_convert(&v0, &DownConversion::new(MessageFormat::V1, Offset(0))).unwrap();
    assert_eq!(converted.as_ptr(), v0.bytes.as_ptr());
    let v1 = Batch::read(set(MessageFormat::V1, Codec::Gzip, &three(7))).unwrap();
    let converted = down_convert(&v1, &DownConversion::new(MessageFormat::V0, Offset(0))).unwrap();
    assert_eq!(read(&converted), without_times(three(7)));
}

#[test]
fn times_are_found_inside_wrappers() {
    let batch = Batch::read(set(MessageFormat::V1, Codec::Gzip, &three(40))).unwrap();
    let find = |timestamp, from| batch.first_record_at_or_after(Timestamp(timestamp), Offset(from)).unwrap();
    assert_eq!(find(1_500, 0), Some((Offset(41), Timestamp(3_000))));
    assert_eq!(find(0, 42), Some((Offset(42), Timestamp(2_000))));
    assert_eq!(find(3_001, 0), None);
    assert_eq!(batch.record_with_max_timestamp().unwrap(), Some((Offset(41), Timestamp(3_000))));
}

#[test]
fn a_record_that_inflates_to_more_than_its_topic_may_hold_is_not_converted() {
    let value = vec![0; 33 << 20];
    let batch = validate(v2(Codec::Gzip, &[(0, 1_000, None, Some(value.clone()))]), &rules(), NOW);
    let batch = Batch::read(stored(&[batch.unwrap().batches.remove(0)], 0)).unwrap();
    let wanted = DownConversion::new(MessageFormat::V1, Offset(0));
    assert!(down_convert(&batch, &wanted).is_err());
    let converted = down_convert(&batch, &wanted.with_batches_up_to(40 << 20)).unwrap();
    let record = Batch::read(converted).unwrap().records().unwrap().next().unwrap().unwrap();
    assert_eq!(record.value.as_deref(), Some(&value[..]));
}

fn any_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40))
}

proptest! {
    /// Whatever way a record takes through the formats, key, value, order and offset stay, and the time as far as
    /// the formats on the way have one.
    #[test]
    fn conversions_keep_records(
        records in proptest::collection::vec((0..1i64 << 50, any_bytes(), any_bytes()), 1..30),
        codec in prop::sample::select(&OLD_CODECS[..]),
        way in proptest::collection::vec(prop::sample::select(&[MessageFormat::V0, MessageFormat::V1][..]), 1..4),
        base in 0..1i64 << 60,
    ) {
        let plain: Vec<Plain> =
            (0..).zip(records).map(|(offset, (timestamp, key, value))| (offset, timestamp, key, value)).collect();
        let mut sent = v2(codec, &plain);
        let mut expected: Vec<Plain> = plain;
        for format in way {
            let batch = validate(sent, &rules(), NOW).unwrap().batches.remove(0);
            let log = stored(&[batch], base);
            let converted = down_convert(&Batch::read(log).unwrap(), &DownConversion::new(format, Offset(0))).unwrap();
            expected = as_seen_in(format, expected);
            let at_base: Vec<Plain> =
                expected.iter().cloned().map(|(offset, t, k, v)| (offset + base, t, k, v)).collect();
            prop_assert_eq!(read(&converted), at_base);
            sent = set(format, codec, &expected);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        format in prop::sample::select(&[MessageFormat::V0, MessageFormat::V1][..]),
        codec in prop::sample::select(&CODECS[..]),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut inner = set(format, Codec::None, &three(0)).to_vec();
        let mut outer = set(format, codec, &three(0)).to_vec();
        for bytes in [&mut inner, &mut outer] {
            for (at, byte) in &edits {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            bytes.truncate(cut.index(bytes.len() * 2).max(1));
        }
        for input in [Bytes::from(outer), wrapper(format, 2, &inner)] {
            let _ = validate(input.clone(), &rules(), NOW);
            if let Ok(batch) = Batch::read(input) {
                let _ = batch.records().map(|records| records.count());
                let _ = down_convert(&batch, &DownConversion::new(MessageFormat::V0, Offset(0)));
            }
        }
    }
}
