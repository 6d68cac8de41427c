use proptest::prelude::*;

use crate::model::{ProducerEpoch, ProducerId};
use crate::records::{Attributes, BatchBuilder, RecordView, Refusal};

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn rules() -> ValidationRules {
    ValidationRules { timestamp_after_max_ms: i64::MAX, ..ValidationRules::default() }
}

fn filled(mut builder: BatchBuilder, count: i64) -> Bytes {
    for index in 0..count {
        let value = format!("value {index} ").repeat(20);
        let headers: &[(&[u8], Option<&[u8]>)] = &[(b"h", Some(b"x")), (b"h", None)];
        builder.append(NOW.plus_ms(-index), Some(b"key"), Some(value.as_bytes()), headers);
    }
    builder.build()
}

fn compressed(codec: Codec, count: i64) -> Bytes {
    filled(BatchBuilder::new().compression(codec, None), count)
}

/// A batch whose header and records lie, with a CRC that fits.
fn altered(batch: &Bytes, alter: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut bytes = batch.to_vec();
    let mut header = BatchHeader::read(&bytes).unwrap();
    alter(&mut header);
    seal_in_place(header, &mut bytes);
    bytes.into()
}

/// A batch of this header and these bytes where the records belong.
fn with_payload(codec: Codec, count: i32, payload: &[u8]) -> Bytes {
    let empty = BatchBuilder::new().compression(Codec::None, None).build();
    let mut header = BatchHeader::read(&empty).unwrap();
    header.attributes = header.attributes.with_codec(codec);
    header.record_count = count;
    header.last_offset_delta = count - 1;
    header.base_timestamp = NOW;
    seal(header, [&[0; BatchHeader::SIZE][..], payload].concat()).1
}

fn records(batch: &ValidatedBatch) -> Vec<RecordView> {
    Batch::read(batch.bytes.clone()).unwrap().records().unwrap().map(Result::unwrap).collect()
}

#[track_caller]
fn accepted(input: Bytes, rules: &ValidationRules) -> ValidatedBatch {
    let mut validated = validate(input, rules, NOW).unwrap();
    let batch = validated.batches.pop().unwrap();
    let stored = [&batch.prefix(Offset(42), LeaderEpoch(7)), &batch.bytes[BatchHeader::PREFIX..]].concat();
    let stored = Batch::read(stored.into()).unwrap();
    stored.check_crc().unwrap();
    let expected = BatchHeader { base_offset: Offset(42), leader_epoch: LeaderEpoch(7), ..batch.header };
    assert_eq!(stored.header, expected);
    batch
}

#[track_caller]
fn refused(input: Bytes, rules: &ValidationRules) -> Refusal {
    validate(input, rules, NOW).unwrap_err().refusal()
}

#[test]
fn a_batch_that_follows_the_rules_is_kept_as_it_is() {
    for codec in CODECS {
        let input = compressed(codec, 10);
        let batch = accepted(input.clone(), &rules());
        assert_eq!(batch.bytes.as_ptr(), input.as_ptr(), "{codec:?}");
        assert_eq!(batch.header.max_timestamp, NOW);
    }
}

#[test]
fn lies_in_the_header_are_refused() {
    use Refusal::*;
    let batch = compressed(Codec::None, 3);
    type Lie = fn(&mut BatchHeader);
    let cases: [(&str, Refusal, Lie); 14] = [
        ("count above the records", InvalidRecord, |h| (h.record_count, h.last_offset_delta) = (5, 4)),
        ("count below the records", InvalidRecord, |h| (h.record_count, h.last_offset_delta) = (2, 1)),
        ("count of all numbers", InvalidRecord, |h| {
            (h.record_count, h.last_offset_delta) = (i32::MAX, i32::MAX - 1)
        }),
        ("last offset delta", InvalidRecord, |h| h.last_offset_delta = 3),
        ("last offset delta overflows", InvalidRecord, |h| h.last_offset_delta = i32::MAX),
        ("negative count", InvalidRecord, |h| h.record_count = -3),
        ("negative count and delta", InvalidRecord, |h| (h.record_count, h.last_offset_delta) = (-3, -4)),
        ("no record", InvalidRecord, |h| (h.record_count, h.last_offset_delta) = (0, -1)),
        ("base offset", InvalidRecord, |h| h.base_offset = Offset(1)),
        ("negative base offset", InvalidRecord, |h| h.base_offset = Offset(i64::MIN)),
        ("control bit", InvalidRecord, |h| h.attributes = h.attributes.with_control(true)),
        ("producer without a sequence", InvalidRecord, |h| h.producer_id = ProducerId(0)),
        ("codec 7", InvalidRecord, |h| h.attributes = Attributes(7)),
        ("timestamp overflow", InvalidRecord, |h| h.base_timestamp = Timestamp(i64::MIN)),
    ];
    for (name, refusal, alter) in cases {
        assert_eq!(refused(altered(&batch, alter), &rules()), refusal, "{name}");
    }
}

#[test]
fn damaged_batches_are_corrupt() {
    let batch = compressed(Codec::None, 3);
    let mut flipped = batch.to_vec();
    flipped[70] ^= 1;
    assert_eq!(refused(flipped.into(), &rules()), Refusal::CorruptMessage);
    for magic in [3, 127, -1i8] {
        let mut bytes = batch.to_vec();
        bytes[16] = magic as u8;
        assert_eq!(refused(bytes.into(), &rules()), Refusal::CorruptMessage);
    }
    for length in [0, 48, -1, i32::MIN] {
        let mut bytes = batch.to_vec();
        bytes[8..12].copy_from_slice(&i32::to_be_bytes(length));
        assert_eq!(refused(bytes.into(), &rules()), Refusal::CorruptMessage);
    }
}

#[test]
fn a_request_holds_one_whole_v2_batch() {
    let batch = compressed(Codec::None, 3);
    let message_set = ValidationRules { format: RecordSetFormat::MessageSet, ..rules() };
    assert_eq!(refused(Bytes::new(), &rules()), Refusal::InvalidRecord);
    assert_eq!(refused(batch.slice(..batch.len() - 1), &rules()), Refusal::InvalidRecord);
    assert_eq!(refused([&batch[..], &batch[..]].concat().into(), &rules()), Refusal::InvalidRecord);
    assert!(validate(Bytes::new(), &message_set, NOW).unwrap().batches.is_empty());
    // A torn batch behind a whole one is left out.
    let torn = [&batch[..], &batch[..20]].concat();
    assert_eq!(accepted(torn.into(), &rules()).bytes, batch);
}

#[test]
fn zstd_needs_produce_version_7() {
    let old = ValidationRules { format: RecordSetFormat::BatchWithoutZstd, ..rules() };
    assert_eq!(refused(compressed(Codec::Zstd, 1), &old), Refusal::UnsupportedCompressionType);
    accepted(compressed(Codec::Lz4, 1), &old);
}

#[test]
fn coordinators_may_write_control_batches() {
    let marker = crate::records::end_transaction_marker(
        crate::records::TransactionMarker::Commit,
        ProducerId(5),
        ProducerEpoch(1),
        3,
        NOW,
    );
    let coordinator = ValidationRules {
        origin: AppendOrigin::Coordinator,
        compression: TargetCompression::Fixed(Codec::Gzip, None),
        ..rules()
    };
    assert_eq!(marker.len(), 78);
    assert_eq!(refused(marker.clone(), &rules()), Refusal::InvalidRecord);
    assert_eq!(accepted(marker.clone(), &coordinator).bytes, marker);
}

#[test]
fn sizes_are_limited_as_received_and_as_stored() {
    let large = compressed(Codec::None, 50);
    let size = large.len();
    let limited = |message_size_max| ValidationRules { message_size_max, ..rules() };
    accepted(large.clone(), &limited(size));
    assert_eq!(refused(large.clone(), &limited(size - 1)), Refusal::MessageTooLarge);
    let segment = ValidationRules { record_set_size_max: size - 1, ..rules() };
    assert_eq!(refused(large, &segment), Refusal::RecordListTooLarge);
    // Small enough compressed, too large as it would be stored.
    let plain =
        ValidationRules { compression: TargetCompression::Fixed(Codec::None, None), ..limited(size - 1) };
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        assert_eq!(refused(compressed(codec, 50), &plain), Refusal::MessageTooLarge, "{codec:?}");
    }
}

#[test]
fn every_codec_becomes_every_other() {
    let expected = records(&accepted(compressed(Codec::None, 1000), &rules()));
    for source in CODECS {
        for target in CODECS {
            let to_target =
                ValidationRules { compression: TargetCompression::Fixed(target, None), ..rules() };
            let batch = accepted(compressed(source, 1000), &to_target);
            assert_eq!(batch.header.attributes.codec(), Ok(target));
            assert_eq!(records(&batch), expected, "{source:?} to {target:?}");
        }
    }
}

#[test]
fn levels_are_taken_and_bounded() {
    for (codec, levels) in [(Codec::Gzip, [-1, 1, 9, 99]), (Codec::Zstd, [-131_072, -5, 3, 22])] {
        for level in levels {
            let rules =
                ValidationRules { compression: TargetCompression::Fixed(codec, Some(level)), ..rules() };
            assert_eq!(records(&accepted(compressed(Codec::None, 5), &rules)).len(), 5);
        }
    }
}

#[test]
fn append_time_replaces_the_timestamps() {
    let append_time = ValidationRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
    for codec in CODECS {
        let builder = BatchBuilder::new().compression(codec, None);
        let batch = accepted(altered(&filled(builder, 3), |h| h.max_timestamp = Timestamp(0)), &append_time);
        assert_eq!(batch.header.max_timestamp, NOW);
        assert_eq!(batch.header.attributes.timestamp_type(), TimestampType::LogAppendTime);
        assert!(records(&batch).iter().all(|record| record.timestamp(&batch.header) == NOW));
    }
    assert_eq!(validate(compressed(Codec::None, 1), &append_time, NOW).unwrap().log_append_time, Some(NOW));
    // The producer may not claim to be the log.
    let claimed = filled(BatchBuilder::new().log_append_time(NOW), 1);
    assert_eq!(refused(claimed, &append_time), Refusal::InvalidTimestamp);
}

#[test]
fn a_wrong_maximum_timestamp_is_corrected() {
    for codec in CODECS {
        for wrong in [-1, 0, i64::MAX] {
            let batch =
                accepted(altered(&compressed(codec, 3), |h| h.max_timestamp = Timestamp(wrong)), &rules());
            assert_eq!(batch.header.max_timestamp, NOW);
        }
    }
    let none = altered(&compressed(Codec::None, 1), |h| h.base_timestamp = Timestamp::NONE);
    assert_eq!(accepted(none, &rules()).header.max_timestamp, Timestamp::NONE);
}

#[test]
fn timestamps_out_of_range_are_named_one_by_one() {
    let strict = ValidationRules { timestamp_before_max_ms: 1, timestamp_after_max_ms: 1, ..rules() };
    // Times now, now - 1, now - 2, now - 3.
    let error = validate(compressed(Codec::Gzip, 4), &strict, NOW).unwrap_err();
    assert_eq!(error.refusal(), Refusal::InvalidTimestamp);
    let bad: Vec<i32> = error.record_errors().iter().map(|error| error.batch_index).collect();
    assert_eq!(bad, [2, 3]);
    let future = altered(&compressed(Codec::None, 1), |h| h.base_timestamp = NOW.plus_ms(2));
    assert_eq!(refused(future, &strict), Refusal::InvalidTimestamp);
    let untimed = altered(&compressed(Codec::None, 1), |h| h.base_timestamp = Timestamp::NONE);
    accepted(untimed, &strict);
}

#[test]
fn compacted_topics_want_keys() {
    let compacted = ValidationRules { needs_keys: true, ..rules() };
    let mut builder = BatchBuilder::new();
    builder.append(NOW, Some(b""), None, &[]).append(NOW, None, Some(b"v"), &[]);
    let batch = builder.build();
    let error = validate(batch.clone(), &compacted, NOW).unwrap_err();
    assert_eq!(error.refusal(), Refusal::InvalidRecord);
    assert_eq!(error.record_errors().len(), 1);
    assert_eq!(error.record_errors()[0].batch_index, 1);
    accepted(batch, &rules());
}

#[test]
fn millions_of_bad_records_are_counted_not_listed() {
    let compacted = ValidationRules { needs_keys: true, ..rules() };
    let mut builder = BatchBuilder::new().compression(Codec::Zstd, None);
    for _ in 0..100_000 {
        builder.append(NOW, None, None, &[]);
    }
    let Err(RecordsError::RejectedRecords { count, errors, .. }) = validate(builder.build(), &compacted, NOW)
    else {
        panic!("keyless records were taken");
    };
    assert_eq!((count, errors.len()), (100_000, 1000));
}

/// Varints of records, by hand.
fn record(fields: &[i64], tail: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    for &field in fields {
        crate::records::cursor::write_varlong(&mut body, field);
    }
    body.extend_from_slice(tail);
    let mut record = Vec::new();
    crate::records::cursor::write_varlong(&mut record, body.len() as i64);
    record.extend_from_slice(&body);
    record
}

#[test]
fn lies_in_records_are_refused() {
    // Fields: timestamp delta, offset delta, key length, value length, header count, headers.
    let cases: [(&str, Vec<u8>); 14] = [
        ("no byte", vec![]),
        ("length past the batch", vec![0x10, 0]),
        ("negative length", vec![0x01]),
        ("length of six bytes", vec![0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("greatest length", vec![0xfe, 0xff, 0xff, 0xff, 0x0f]),
        ("timestamp of eleven bytes", record(&[], &[0xff; 11])),
        ("key of length -5", record(&[0, 0, -5, -1, 0], &[])),
        ("key past the record", record(&[0, 0, 100, -1, 0], &[])),
        ("value of length -2", record(&[0, 0, -1, -2, 0], &[])),
        ("2^31 - 1 headers", record(&[0, 0, -1, -1, i64::from(i32::MAX)], &[])),
        ("-1 headers", record(&[0, 0, -1, -1, -1], &[])),
        ("header without a key", record(&[0, 0, -1, -1, 1, -1, -1], &[])),
        ("bytes left in the record", record(&[0, 0, -1, -1, 0], &[0])),
        ("offset delta 1", record(&[0, 1, -1, -1, 0], &[])),
    ];
    for (name, payload) in &cases {
        assert_eq!(
            refused(with_payload(Codec::None, 1, payload), &rules()),
            Refusal::InvalidRecord,
            "{name}"
        );
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let mut deflater = Deflater::new(codec, MessageFormat::V2, None, Vec::new());
            deflater.write(payload);
            let batch = with_payload(codec, 1, &deflater.finish());
            assert_eq!(refused(batch, &rules()), Refusal::InvalidRecord, "{name} in {codec:?}");
        }
    }
    accepted(with_payload(Codec::None, 1, &record(&[0, 0, -1, -1, 0], &[])), &rules());
    let two = [record(&[0, 0, -1, -1, 0], &[]), record(&[0, 0, -1, -1, 0], &[])].concat();
    assert_eq!(refused(with_payload(Codec::None, 2, &two), &rules()), Refusal::InvalidRecord);
    assert_eq!(refused(with_payload(Codec::None, 1, &two), &rules()), Refusal::InvalidRecord);
}

#[test]
fn a_batch_that_takes_long_is_told_early_where_that_is_asked_for() {
    let large = compressed(Codec::Zstd, 1_000);
    let early = ValidationRules { inflated_size_max: 1_000, ..rules() };
    let error = validate(large.clone(), &early, NOW).unwrap_err();
    assert!(error.is_inflated_too_large(), "{error}");
    assert!(validate(large, &rules(), NOW).is_ok());
}

#[test]
fn a_batch_that_inflates_without_end_is_refused() {
    // One record of 400 MB, in less than 1 MB.
    let value_length = 400_000_000;
    let mut deflater = Deflater::new(Codec::Zstd, MessageFormat::V2, Some(1), Vec::new());
    let mut head = Vec::new();
    crate::records::cursor::write_varlong(&mut head, value_length + 10);
    head.extend_from_slice(&[0, 0, 0, 1]);
    crate::records::cursor::write_varlong(&mut head, value_length);
    deflater.write(&head);
    for _ in 0..value_length / 1_000_000 {
        deflater.write(&vec![0; 1_000_000]);
    }
    let bomb = with_payload(Codec::Zstd, 1, &deflater.finish());
    assert!(bomb.len() < 1 << 20);
    assert_eq!(refused(bomb.clone(), &rules()), Refusal::MessageTooLarge);
    let recompressed =
        ValidationRules { compression: TargetCompression::Fixed(Codec::None, None), ..rules() };
    assert_eq!(refused(bomb, &recompressed), Refusal::MessageTooLarge);
}

/// What a slow and simple reader says: the greatest timestamp, or that the batch is bad.
fn naive(batch: &Bytes, count: i32) -> Option<i64> {
    fn varint(bytes: &mut &[u8], bits: u32) -> Option<i64> {
        let mut raw = 0u128;
        for place in 0..bits.div_ceil(7) {
            let (&byte, rest) = bytes.split_first()?;
            *bytes = rest;
            raw |= u128::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                let raw = u64::try_from(raw).ok().filter(|raw| bits == 64 || *raw <= u64::from(u32::MAX))?;
                return Some((raw >> 1) as i64 ^ -((raw & 1) as i64));
            }
        }
        None
    }
    fn field(bytes: &mut &[u8]) -> Option<bool> {
        let length = varint(bytes, 32)?;
        if length == -1 {
            return Some(false);
        }
        *bytes = bytes.get(usize::try_from(length).ok()?..)?;
        Some(true)
    }
    let mut rest = &batch[BatchHeader::SIZE..];
    let mut greatest = -1;
    for index in 0..count {
        let length = usize::try_from(varint(&mut rest, 32)?).ok()?;
        let mut body = rest.get(..length)?;
        rest = &rest[length..];
        body = body.get(1..)?;
        greatest = greatest.max(NOW.0.checked_add(varint(&mut body, 64)?)?);
        if varint(&mut body, 32)? != i64::from(index) {
            return None;
        }
        field(&mut body)?;
        field(&mut body)?;
        let headers = varint(&mut body, 32)?;
        if headers < 0 || headers as usize > body.len() {
            return None;
        }
        for _ in 0..headers {
            if !field(&mut body)? {
                return None;
            }
            field(&mut body)?;
        }
        if !body.is_empty() {
            return None;
        }
    }
    rest.is_empty().then_some(greatest)
}

/// The payload in the codec, cut into chunks of the codec's choosing.
fn in_codec(codec: Codec, plain: &Bytes) -> Bytes {
    let mut deflater = Deflater::new(codec, MessageFormat::V2, None, Vec::new());
    deflater.write(&plain[BatchHeader::SIZE..]);
    let header = BatchHeader::read(plain).unwrap();
    with_payload(codec, header.record_count, &deflater.finish())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn altered_records_are_judged_as_by_a_naive_reader(
        count in 1..6i64,
        large in proptest::option::of(30_000..140_000usize),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut builder = BatchBuilder::new();
        for index in 0..count {
            let value = vec![b'v'; if index == 0 { large.unwrap_or(3) } else { 3 }];
            builder.append(NOW.plus_ms(index), Some(b"k"), Some(&value), &[(b"h", None)]);
        }
        let mut bytes = builder.build().to_vec();
        for (at, byte) in edits {
            let at = BatchHeader::SIZE + at.index((bytes.len() - BatchHeader::SIZE).min(200));
            bytes[at] = byte;
        }
        let plain: Bytes = altered(&bytes.into(), |h| h.max_timestamp = Timestamp(0));
        let expected = naive(&plain, count as i32);
        for codec in CODECS {
            let batch = if codec == Codec::None { plain.clone() } else { in_codec(codec, &plain) };
            let found = validate(batch, &rules(), NOW).ok().map(|valid| valid.batches[0].header.max_timestamp.0);
            prop_assert_eq!(found, expected, "{:?}", codec);
        }
    }

    #[test]
    fn no_bytes_make_a_codec_panic(
        codec in prop::sample::select(&CODECS[1..]),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let batch = compressed(codec, 20);
        let mut payload = batch[BatchHeader::SIZE..].to_vec();
        for (at, byte) in edits {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        payload.truncate(cut.index(payload.len() * 2).max(1));
        let _ = validate(with_payload(codec, 20, &payload), &rules(), NOW);
        let stored = Batch::read(with_payload(codec, 20, &payload)).unwrap();
        let _ = stored.records().unwrap().count();
    }
}
