//! Records in older formats, as they are sent piece by piece.

use bytes::Bytes;

use super::super::testing::*;
use super::super::{Conversion, ConversionError, FileSlice, Log};
use crate::model::{Offset, Timestamp};
use crate::records::{Batch, BatchBuilder, Codec, DownConversion, MessageFormat, TransactionMarker, batches};

fn all_of(log: &Log) -> FileSlice {
    let read = log.read(Offset(0), usize::MAX, log.log_end_offset(), true).unwrap();
    read.slices.into_iter().next().unwrap()
}

fn begin(log: &Log, format: MessageFormat, from: i64) -> Option<Conversion> {
    Conversion::begin(all_of(log), DownConversion::new(format, Offset(from))).unwrap()
}

/// All that is sent, which must be as much as was announced.
fn sent(mut conversion: Conversion) -> Bytes {
    let announced = conversion.size_bytes() as usize;
    let mut sent = Vec::new();
    while conversion.size_bytes() > 0 {
        let piece = conversion.next_piece().unwrap();
        assert!(!piece.is_empty());
        sent.extend_from_slice(&piece);
    }
    assert_eq!(sent.len(), announced);
    sent.into()
}

/// What a client reads: whole messages, up to one that does not end.
fn offsets(bytes: &Bytes) -> Vec<i64> {
    let whole = batches(bytes).map_while(Result::ok);
    whole.flat_map(|message| read_offsets(&message)).collect()
}

fn read_offsets(message: &Batch) -> Vec<i64> {
    message.check_crc().unwrap();
    message.records().unwrap().map(|record| record.unwrap().offset(&message.header).0).collect()
}

fn compressed(codec: Codec, count: usize) -> Bytes {
    let mut builder = BatchBuilder::new().compression(codec, None);
    for number in 0..count {
        builder.append(Timestamp(5_000), None, Some(format!("value {number}").as_bytes()), &[]);
    }
    builder.build()
}

#[test]
fn what_is_missing_is_filled_and_what_is_too_much_is_cut() {
    let (_manager, log) = Machine::new(Default::default()).start_log();
    // Large batches shrink, for each record loses its headers; small ones grow.
    for values in [&["a"][..], &["x"; 60]] {
        for _ in 0..20 {
            log.append_values(values).unwrap();
        }
    }
    let end = log.log_end_offset().0;
    for format in [MessageFormat::V0, MessageFormat::V1] {
        let found = offsets(&sent(begin(&log, format, 0).unwrap()));
        assert!(found.len() > 20 && found.len() <= end as usize, "{}", found.len());
        assert!((0..).zip(&found).all(|(expected, offset)| expected == *offset));
    }
}

#[test]
fn compressed_batches_are_all_sent_and_the_rest_is_no_message() {
    let (_manager, log) = Machine::new(Default::default()).start_log();
    for codec in [Codec::Gzip, Codec::None, Codec::Snappy] {
        log.append_batch(compressed(codec, 200)).unwrap();
    }
    let headers: &[(&[u8], Option<&[u8]>)] = &[(b"header", Some(&[7; 9_000]))];
    let mut with_header = BatchBuilder::new();
    with_header.append(Timestamp(5_000), None, None, headers);
    log.append_batch(with_header.build()).unwrap();
    for format in [MessageFormat::V0, MessageFormat::V1] {
        let bytes = sent(begin(&log, format, 0).unwrap());
        assert_eq!(offsets(&bytes), (0..=600).collect::<Vec<i64>>());
        let mut conversion = begin(&log, format, 0).unwrap();
        conversion.shed();
        assert_eq!(sent(conversion), bytes, "the first batch is made again");
    }
}

#[test]
fn ends_of_transactions_are_passed_over() {
    let (_manager, log) = Machine::new(Default::default()).start_log();
    log.append_batch(marker(9, TransactionMarker::Commit)).unwrap();
    assert!(begin(&log, MessageFormat::V1, 0).is_none());
    log.append_values(&["a"]).unwrap();
    let conversion = begin(&log, MessageFormat::V1, 0).unwrap();
    assert_eq!(offsets(&sent(conversion)), [1]);
}

#[test]
fn a_batch_that_cannot_be_converted_ends_what_is_sent() {
    let (_manager, log) = Machine::new(Default::default()).start_log();
    log.append_values(&["a"]).unwrap();
    log.append_batch(compressed(Codec::Zstd, 3)).unwrap();
    assert_eq!(offsets(&sent(begin(&log, MessageFormat::V0, 0).unwrap())), [0]);
    let read = log.read(Offset(1), usize::MAX, log.log_end_offset(), true).unwrap();
    let slice = read.slices.into_iter().next().unwrap();
    let error = Conversion::begin(slice, DownConversion::new(MessageFormat::V0, Offset(1))).unwrap_err();
    assert!(matches!(error, ConversionError::Records(_)), "{error:?}");
}

#[test]
fn a_first_batch_that_grows_is_sent_whole() {
    let (_manager, log) = Machine::new(Default::default()).start_log();
    log.append_values(&["x"; 1_000]).unwrap();
    let conversion = begin(&log, MessageFormat::V1, 0).unwrap();
    assert!(conversion.size_bytes() > all_of(&log).size_bytes);
    assert_eq!(offsets(&sent(conversion)).len(), 1_000);
}
