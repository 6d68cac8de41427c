//! The records of `__consumer_offsets`, byte for byte as Kafka 3.9 writes them.
//!
//! Key types: 0 and 1 an offset (0 only read), 2 a group. Values written: offsets in version 3, or 1 where the
//! client named a retention; groups in version 3. Every version up to 4 is read.

use bytes::Bytes;
use wire::group_metadata_value::MemberMetadata;
use wire::{
    DecodeError, GroupMetadataKey, GroupMetadataValue, Message, OffsetCommitKey, OffsetCommitValue, Reader,
    RecordKey, RecordValue, Str,
};

use super::stored::{GroupRecord, StoredGroup, StoredMember, StoredOffset};
use super::{GenerationId, GroupId};
use crate::coordinator::EncodedRecord;
use crate::model::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicName, TopicPartition};

const OFFSET_VERSION: i16 = 3;
/// The one version with an expire timestamp.
const EXPIRING_OFFSET_VERSION: i16 = 1;
const GROUP_VERSION: i16 = 3;

/// What a record of the topic turned out to be.
#[derive(Debug, PartialEq)]
pub(super) enum Decoded {
    Record(GroupRecord),
    /// A kind of record that newer coordinators write.
    UnknownType(i16),
    Damaged,
}

/// `None` = a text is longer than the format allows.
pub(super) fn encode(record: &GroupRecord) -> Option<EncodedRecord> {
    match record {
        GroupRecord::Offset { group_id, topic_partition, value } => {
            let key = OffsetCommitKey {
                group: group_id.as_str().into(),
                topic: topic_partition.topic.as_str().into(),
                partition: topic_partition.partition.0,
            };
            let value = value.as_ref().map(encode_offset);
            Some(EncodedRecord { key: key.to_record().ok()?, value: transposed(value)? })
        }
        GroupRecord::Group { group_id, value } => {
            let key = GroupMetadataKey { group: group_id.as_str().into() };
            let value = value.as_ref().map(encode_group);
            Some(EncodedRecord { key: key.to_record().ok()?, value: transposed(value)? })
        }
    }
}

/// A missing value is a tombstone, a value that cannot be written is none at all.
fn transposed(value: Option<Option<Bytes>>) -> Option<Option<Bytes>> {
    match value {
        None => Some(None),
        Some(encoded) => encoded.map(Some),
    }
}

fn encode_offset(value: &StoredOffset) -> Option<Bytes> {
    let version = if value.expire_timestamp.is_some() { EXPIRING_OFFSET_VERSION } else { OFFSET_VERSION };
    let record = OffsetCommitValue {
        offset: value.offset.0,
        leader_epoch: value.leader_epoch.0,
        metadata: value.metadata.as_str().into(),
        commit_timestamp: value.commit_timestamp.0,
        expire_timestamp: value.expire_timestamp.unwrap_or(Timestamp::NONE).0,
        ..OffsetCommitValue::default()
    };
    record.to_record(version).ok()
}

fn encode_group(value: &StoredGroup) -> Option<Bytes> {
    let encode_member = |member: &StoredMember| MemberMetadata {
        member_id: member.member_id.as_str().into(),
        group_instance_id: member.group_instance_id.as_ref().map(|id| id.as_str().into()),
        client_id: member.client_id.as_str().into(),
        client_host: member.client_host.as_str().into(),
        rebalance_timeout: member.rebalance_timeout_ms,
        session_timeout: member.session_timeout_ms,
        subscription: member.subscription.clone(),
        assignment: member.assignment.clone(),
    };
    let record = GroupMetadataValue {
        protocol_type: value.protocol_type.as_deref().unwrap_or_default().into(),
        generation: value.generation_id.0,
        protocol: value.protocol_name.as_ref().map(|name| name.as_str().into()),
        leader: value.leader_id.as_ref().map(|id| id.as_str().into()),
        current_state_timestamp: value.state_timestamp.unwrap_or(Timestamp::NONE).0,
        members: value.members.iter().map(encode_member).collect(),
    };
    record.to_record(GROUP_VERSION).ok()
}

/// Reads a record of any writer.
pub(super) fn decode(key: Option<&Bytes>, value: Option<&Bytes>) -> Decoded {
    let Some(key) = key else { return Decoded::Damaged };
    match decode_known(key, value) {
        Ok(decoded) => decoded,
        Err(_) => Decoded::Damaged,
    }
}

fn decode_known(key: &Bytes, value: Option<&Bytes>) -> Result<Decoded, DecodeError> {
    let mut reader = Reader::new(key.clone());
    Ok(match reader.i16()? {
        0 | 1 => {
            let key = OffsetCommitKey::decode(&mut reader, 0)?;
            let Ok(topic) = TopicName::new(&key.topic) else { return Ok(Decoded::Damaged) };
            Decoded::Record(GroupRecord::Offset {
                group_id: GroupId::from(key.group.as_str()),
                topic_partition: TopicPartition::new(topic, PartitionIndex(key.partition)),
                value: value.map(decode_offset).transpose()?,
            })
        }
        2 => {
            let key = GroupMetadataKey::decode(&mut reader, 0)?;
            Decoded::Record(GroupRecord::Group {
                group_id: GroupId::from(key.group.as_str()),
                value: value.map(decode_group).transpose()?,
            })
        }
        unknown => Decoded::UnknownType(unknown),
    })
}

fn decode_offset(value: &Bytes) -> Result<StoredOffset, DecodeError> {
    let record = OffsetCommitValue::from_record(value)?;
    Ok(StoredOffset {
        offset: Offset(record.offset),
        leader_epoch: LeaderEpoch(record.leader_epoch),
        metadata: record.metadata.as_str().to_owned(),
        commit_timestamp: Timestamp(record.commit_timestamp),
        expire_timestamp: some_timestamp(record.expire_timestamp),
    })
}

fn decode_group(value: &Bytes) -> Result<StoredGroup, DecodeError> {
    let record = GroupMetadataValue::from_record(value)?;
    let decode_member = |member: MemberMetadata| StoredMember {
        member_id: member.member_id.as_str().into(),
        group_instance_id: member.group_instance_id.as_ref().map(|id| id.as_str().into()),
        client_id: member.client_id.as_str().to_owned(),
        client_host: member.client_host.as_str().to_owned(),
        // Version 0 has none: the session timeout counts for both.
        rebalance_timeout_ms: match member.rebalance_timeout {
            -1 => member.session_timeout,
            rebalance_timeout => rebalance_timeout,
        },
        session_timeout_ms: member.session_timeout,
        subscription: member.subscription,
        assignment: member.assignment,
    };
    let text = |text: &Str| text.as_str().into();
    Ok(StoredGroup {
        protocol_type: (!record.protocol_type.is_empty()).then(|| text(&record.protocol_type)),
        generation_id: GenerationId(record.generation),
        protocol_name: record.protocol.as_ref().map(text),
        leader_id: record.leader.as_ref().map(|leader| leader.as_str().into()),
        state_timestamp: some_timestamp(record.current_state_timestamp),
        members: record.members.into_iter().map(decode_member).collect(),
    })
}

fn some_timestamp(timestamp: i64) -> Option<Timestamp> {
    (timestamp != Timestamp::NONE.0).then_some(Timestamp(timestamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset_record(value: Option<StoredOffset>) -> GroupRecord {
        let topic = TopicName::new("t").unwrap();
        let topic_partition = TopicPartition::new(topic, PartitionIndex(7));
        GroupRecord::Offset { group_id: "g".into(), topic_partition, value }
    }

    fn stored_offset(expire_timestamp: Option<Timestamp>) -> StoredOffset {
        StoredOffset {
            offset: Offset(5),
            leader_epoch: if expire_timestamp.is_some() { LeaderEpoch::UNKNOWN } else { LeaderEpoch(2) },
            metadata: "m".to_owned(),
            commit_timestamp: Timestamp(1),
            expire_timestamp,
        }
    }

    fn group_record() -> GroupRecord {
        let member = StoredMember {
            member_id: "c-1".into(),
            group_instance_id: Some("i".into()),
            client_id: "c".to_owned(),
            client_host: "/h".to_owned(),
            rebalance_timeout_ms: 9,
            session_timeout_ms: 6,
            subscription: Bytes::from_static(b"s"),
            assignment: Bytes::from_static(b"a"),
        };
        let value = StoredGroup {
            protocol_type: Some("consumer".into()),
            generation_id: GenerationId(3),
            protocol_name: Some("range".into()),
            leader_id: Some("c-1".into()),
            state_timestamp: Some(Timestamp(8)),
            members: vec![member],
        };
        GroupRecord::Group { group_id: "g".into(), value: Some(value) }
    }

    #[track_caller]
    fn check(record: &GroupRecord, key: &[u8], value: Option<&[u8]>) {
        let encoded = encode(record).unwrap();
        assert_eq!(&encoded.key[..], key);
        assert_eq!(encoded.value.as_deref(), value);
        assert_eq!(decode(Some(&encoded.key), encoded.value.as_ref()), Decoded::Record(record.clone()));
    }

    const OFFSET_KEY: &[u8] = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x07";

    #[test]
    fn offsets_are_written_in_version_3() {
        let value = b"\x00\x03\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x02\x00\x01m\x00\x00\x00\x00\x00\x00\x00\x01";
        check(&offset_record(Some(stored_offset(None))), OFFSET_KEY, Some(value));
    }

    #[test]
    fn offsets_with_their_own_retention_are_written_in_version_1() {
        let value = b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x01m\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x09";
        check(&offset_record(Some(stored_offset(Some(Timestamp(9))))), OFFSET_KEY, Some(value));
    }

    #[test]
    fn groups_are_written_in_version_3() {
        let value = b"\x00\x03\x00\x08consumer\x00\x00\x00\x03\x00\x05range\x00\x03c-1\
            \x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x01\
            \x00\x03c-1\x00\x01i\x00\x01c\x00\x02/h\x00\x00\x00\x09\x00\x00\x00\x06\
            \x00\x00\x00\x01s\x00\x00\x00\x01a";
        check(&group_record(), b"\x00\x02\x00\x01g", Some(value));
    }

    #[test]
    fn removals_are_tombstones() {
        check(&offset_record(None), OFFSET_KEY, None);
        check(&GroupRecord::Group { group_id: "g".into(), value: None }, b"\x00\x02\x00\x01g", None);
    }

    #[test]
    fn old_keys_and_values_are_read() {
        let key = Bytes::from_static(b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x07");
        let value = Bytes::from_static(
            b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x01m\x00\x00\x00\x00\x00\x00\x00\x01",
        );
        let expected = StoredOffset { leader_epoch: LeaderEpoch::UNKNOWN, ..stored_offset(None) };
        assert_eq!(decode(Some(&key), Some(&value)), Decoded::Record(offset_record(Some(expected))));
        let key = Bytes::from_static(b"\x00\x02\x00\x01g");
        let value = Bytes::from_static(
            b"\x00\x00\x00\x08consumer\x00\x00\x00\x03\xff\xff\xff\xff\x00\x00\x00\x01\
            \x00\x01m\x00\x01c\x00\x02/h\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00\x00",
        );
        let Decoded::Record(GroupRecord::Group { value: Some(group), .. }) = decode(Some(&key), Some(&value))
        else {
            panic!("no group");
        };
        assert_eq!(group.members[0].rebalance_timeout_ms, 6);
        assert_eq!((group.state_timestamp, group.leader_id), (None, None));
    }

    #[test]
    fn newer_kinds_and_damage_are_told_apart() {
        let check = |key: &'static [u8], expected| {
            let key = Bytes::from_static(key);
            assert_eq!(decode(Some(&key), None), expected);
        };
        check(b"\x00\x03\x00\x01g", Decoded::UnknownType(3));
        check(b"\x00\x01\x00\x09g", Decoded::Damaged);
        check(b"", Decoded::Damaged);
        assert_eq!(decode(None, None), Decoded::Damaged);
    }

    #[test]
    fn a_text_that_the_format_cannot_hold_is_refused() {
        let group_id = GroupId::from("x".repeat(40_000));
        assert_eq!(encode(&GroupRecord::Group { group_id, value: None }), None);
    }
}
