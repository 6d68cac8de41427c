//! What every message promises, and a few frames written out by hand.

use bytes::{Buf, Bytes};
use wire::{
    ApiKey, DecodeError, EncodeError, FetchResponse, Message, MetadataRequest, ProduceRequest, Reader,
    RecordKey, RecordValue, Records, Request, RequestHeader, Str, Writer,
};

fn encoded<M: Message>(message: &M, version: i16) -> Bytes {
    let mut w = Writer::new();
    message.encode(&mut w, version).unwrap_or_else(|error| panic!("{} v{version}: {error}", M::NAME));
    w.into_bytes()
}

/// Returns false for defaults that a version cannot carry.
fn default_comes_back<M: Message + PartialEq + std::fmt::Debug>() {
    for version in M::MIN_VERSION..=M::MAX_VERSION {
        let mut w = Writer::new();
        // A message with a null default in a version without null cannot be written.
        let Ok(()) = M::default().encode(&mut w, version) else { continue };
        let bytes = w.into_bytes();
        let mut r = Reader::new(bytes.clone());
        let back = M::decode(&mut r, version).unwrap_or_else(|e| panic!("{} v{version}: {e}", M::NAME));
        assert_eq!(back, M::default(), "{} v{version}", M::NAME);
        assert_eq!(r.remaining(), 0, "{} v{version}", M::NAME);
        for cut in 0..bytes.len() {
            let mut r = Reader::new(bytes.slice(..cut));
            assert!(M::decode(&mut r, version).is_err(), "{} v{version} cut at {cut}", M::NAME);
        }
    }
    for version in [-1, M::MIN_VERSION - 1, M::MAX_VERSION + 1] {
        let decoded = M::decode(&mut Reader::new(Bytes::from_static(&[0; 64])), version);
        assert_eq!(decoded, Err(DecodeError::UnsupportedVersion { message: M::NAME, version }));
    }
}

macro_rules! check_all {
    ($($kind:ident $name:ident;)*) => { $( default_comes_back::<wire::$name>(); )* };
}

#[test]
fn defaults_of_all_messages_come_back() {
    wire::for_every_message!(check_all);
}

#[test]
fn produce_v9_is_written_as_kafka_does_and_records_are_not_copied() {
    let records = Bytes::from_static(b"0123456789");
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![wire::produce_request::TopicProduceData {
            name: "t".into(),
            partition_data: vec![wire::produce_request::PartitionProduceData {
                index: 3,
                records: Some(Records::Bytes(records.clone())),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut w = Writer::new();
    request.encode(&mut w, 9).unwrap();
    assert_eq!(w.size_bytes(), 1 + 2 + 4 + 1 + 2 + 1 + 4 + 1 + 10 + 3);
    let (buffer, splices) = w.into_parts();
    assert_eq!(&buffer[..], b"\x00\xff\xff\x00\x00\x75\x30\x02\x02t\x02\x00\x00\x00\x03\x0b\x00\x00\x00");
    assert_eq!(splices, [wire::Splice { at: 16, content: Records::Bytes(records) }]);
    let mut r = Reader::new(encoded(&request, 9));
    assert_eq!(ProduceRequest::decode(&mut r, 9).unwrap(), request);
}

#[test]
fn external_records_count_in_the_frame_length() {
    let mut response = FetchResponse::default();
    response.responses.push(wire::fetch_response::FetchableTopicResponse {
        partitions: vec![wire::fetch_response::PartitionData {
            records: Some(Records::External { size_bytes: 1000, token: 7 }),
            ..Default::default()
        }],
        ..Default::default()
    });
    let mut w = Writer::new();
    wire::write_response::<wire::FetchRequest>(&mut w, 5, &response, 12).unwrap();
    let size = w.size_bytes();
    let (mut buffer, splices) = w.into_parts();
    assert_eq!(buffer.get_i32() as usize, size - 4);
    assert_eq!(size, buffer.len() + 4 + 1000);
    assert_eq!(splices[0].content, Records::External { size_bytes: 1000, token: 7 });
}

#[test]
fn failed_frame_leaves_the_writer_as_it_was() {
    let mut w = Writer::new();
    let request = MetadataRequest { topics: None, ..Default::default() };
    wire::write_request(&mut w, 1, None, &request, 1).unwrap();
    let size = w.size_bytes();
    let error = wire::write_request(&mut w, 1, None, &request, 0);
    assert_eq!(error, Err(EncodeError::NullNotAllowed { field: "Topics" }));
    assert_eq!(w.size_bytes(), size);
}

#[test]
fn value_that_a_version_would_lose_is_refused() {
    let request = ProduceRequest { transactional_id: Some("x".into()), ..Default::default() };
    let error = request.encode(&mut Writer::new(), 2);
    assert_eq!(error, Err(EncodeError::FieldNotInVersion { field: "TransactionalId", version: 2 }));
    request.encode(&mut Writer::new(), 3).unwrap();
}

#[test]
fn null_is_refused_where_the_version_has_none() {
    let decoded = MetadataRequest::decode(&mut Reader::new(Bytes::from_static(b"\xff\xff\xff\xff")), 0);
    assert_eq!(decoded, Err(DecodeError::UnexpectedNull { field: "Topics" }));
}

#[test]
fn tags_out_of_order_are_refused_and_unknown_ones_skipped() {
    let api_versions = |tail: &[u8]| {
        let body = [b"\x00\x00\x01\x00\x00\x00\x00", tail].concat();
        wire::ApiVersionsResponse::decode(&mut Reader::new(body.into()), 3)
    };
    // Tag 1, the epoch, and an unknown tag 9.
    let epoch = b"\x01\x08\x00\x00\x00\x00\x00\x00\x00\x05";
    let known = api_versions(&[b"\x02", &epoch[..], b"\x09\x02ab"].concat()).unwrap();
    assert_eq!(known.finalized_features_epoch, 5);
    let swapped = api_versions(&[b"\x02\x09\x02ab", &epoch[..]].concat());
    assert_eq!(swapped, Err(DecodeError::TagOrder { tag: 1, after: 9 }));
    let twice = api_versions(&[b"\x02", &epoch[..], &epoch[..]].concat());
    assert_eq!(twice, Err(DecodeError::TagOrder { tag: 1, after: 1 }));
    let short = api_versions(b"\x01\x01\x07\x00\x00\x00\x00\x00\x00\x00\x05");
    assert_eq!(short, Err(DecodeError::TagSize { tag: 1 }));
}

#[test]
fn counts_are_checked_before_memory_is_taken() {
    let body = [b"\x00", &b"\xff\xff\x00\x00\x00\x00"[..], b"\xff\xff\xff\xff\x07"].concat();
    let decoded = ProduceRequest::decode(&mut Reader::new(body.into()), 9);
    assert!(matches!(decoded, Err(DecodeError::CountTooLarge { count: 0x7fff_fffe, .. })), "{decoded:?}");
}

#[test]
fn headers_follow_the_api() {
    let versions =
        |key: ApiKey, version| (key.request_header_version(version), key.response_header_version(version));
    assert_eq!(versions(ApiKey::ControlledShutdown, 0), (0, 0));
    assert_eq!(versions(ApiKey::ControlledShutdown, 1), (1, 0));
    assert_eq!(versions(ApiKey::ApiVersions, 2), (1, 0));
    assert_eq!(versions(ApiKey::ApiVersions, 3), (2, 0));
    assert_eq!(versions(ApiKey::Produce, 8), (1, 0));
    assert_eq!(versions(ApiKey::Produce, 9), (2, 1));
    assert_eq!(versions(ApiKey::SaslHandshake, 1), (1, 0));
    for key in ApiKey::ALL {
        assert_eq!(ApiKey::from_i16(*key as i16), Some(*key));
    }
    assert_eq!(ProduceRequest::header_version(9), 2);
    for version in 0..=2 {
        let client_id = (version > 0).then(|| Str::from("me"));
        let header = RequestHeader { api_key: 3, api_version: 1, correlation_id: 9, client_id };
        let mut w = Writer::new();
        header.encode(&mut w, version).unwrap();
        assert_eq!(RequestHeader::decode(&mut Reader::new(w.into_bytes()), version), Ok(header));
    }
}

#[test]
fn records_of_internal_topics_carry_type_and_version() {
    let key = wire::OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 2 };
    let bytes = key.to_record().unwrap();
    assert_eq!(&bytes[..], b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x02");
    assert_eq!(wire::OffsetCommitKey::from_record(&bytes), Ok(key));
    assert!(wire::GroupMetadataKey::from_record(&bytes).is_err());
    let value = wire::OffsetCommitValue { offset: 7, commit_timestamp: 8, ..Default::default() };
    let bytes = value.to_record(3).unwrap();
    assert_eq!(bytes[..2], [0, 3]);
    assert_eq!(wire::OffsetCommitValue::from_record(&bytes), Ok(value));
}
