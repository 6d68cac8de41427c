//! The records of `__consumer_offsets`, `__share_group_state`, `__transaction_state` and `__cluster_metadata`, as Kafka's tools
//! print them.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use wire::consumer_protocol_assignment::ConsumerProtocolAssignment;
use wire::consumer_protocol_subscription::ConsumerProtocolSubscription;
use wire::group_metadata_value::{GroupMetadataValue, MemberMetadata};
use wire::{
    DecodeError, Message, Reader, RecordKey, RecordValue, Shown, TransactionLogKey, TransactionLogValue,
};

/// Key and value of a record as they are printed; no value = it was removed. An error is what is printed in the place of
/// both, with `{offset}` to be filled in.
type Printed = Result<(String, Option<String>), String>;

/// A record of `__consumer_offsets`.
pub(super) fn read_group_record(key: &Bytes, value: Option<&Bytes>) -> Printed {
    use wire::*;
    match kind_of(key)? {
        // Keys of version 0 are those of 1.
        0 | 1 => print::<OffsetCommitKey, OffsetCommitValue>(key, value),
        2 => print_with::<GroupMetadataKey>(key, value, |value, version| {
            Ok(group_metadata(GroupMetadataValue::from_record(value)?, version))
        }),
        3 => print::<ConsumerGroupMetadataKey, ConsumerGroupMetadataValue>(key, value),
        4 => print::<ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue>(key, value),
        5 => print::<ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue>(key, value),
        6 => print::<ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue>(
            key, value,
        ),
        7 => print::<ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue>(
            key, value,
        ),
        8 => print::<ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue>(
            key, value,
        ),
        9 => print::<ShareGroupPartitionMetadataKey, ShareGroupPartitionMetadataValue>(key, value),
        10 => print::<ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue>(key, value),
        11 => print::<ShareGroupMetadataKey, ShareGroupMetadataValue>(key, value),
        12 => print::<ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue>(
            key, value,
        ),
        13 => print::<ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue>(key, value),
        14 => {
            print::<ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue>(key, value)
        }
        15 => print::<ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue>(key, value),
        16 => print::<ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue>(key, value),
        17 => print::<StreamsGroupMetadataKey, StreamsGroupMetadataValue>(key, value),
        19 => print::<StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue>(key, value),
        20 => print::<StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue>(
            key, value,
        ),
        21 => print::<StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue>(
            key, value,
        ),
        22 => print::<StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue>(
            key, value,
        ),
        23 => print::<StreamsGroupTopologyKey, StreamsGroupTopologyValue>(key, value),
        unknown => Err(unknown_type(unknown)),
    }
}

/// A record of `__share_group_state`.
pub(super) fn read_share_record(key: &Bytes, value: Option<&Bytes>) -> Printed {
    use wire::*;
    match kind_of(key)? {
        0 => print::<ShareSnapshotKey, ShareSnapshotValue>(key, value),
        1 => print::<ShareUpdateKey, ShareUpdateValue>(key, value),
        unknown => Err(unknown_type(unknown)),
    }
}

/// A record of KRaft's metadata, which has no key.
pub(super) fn read_metadata_record(value: &Bytes) -> String {
    const FRAME_VERSION: u32 = 1;
    let read = || {
        let mut reader = Reader::new(value.clone());
        let frame_version = reader.uvarint().map_err(told)?;
        if frame_version != FRAME_VERSION {
            return Err(format!(
                "Could not deserialize metadata record due to unknown frame version {frame_version}(only frame version {FRAME_VERSION} is supported)"
            ));
        }
        let kind = reader.uvarint().map_err(told)?;
        let version = reader.uvarint().map_err(told)?;
        let read_as = i16::try_from(version).unwrap_or(i16::MAX);
        let shown = wire::show_metadata_record(kind, read_as, &mut reader).map_err(told)?;
        let (name, data) = shown.ok_or_else(|| format!("Unknown metadata id {kind}"))?;
        Ok(json!({ "type": constant_name(name), "version": version, "data": json_of(data) }).to_string())
    };
    read().unwrap_or_else(|error| format!("Error at {{offset}}, skipping. {error}"))
}

fn told(error: DecodeError) -> String {
    error.to_string()
}

/// `NoOpRecord` as `NO_OP_RECORD`.
fn constant_name(name: &str) -> String {
    let mut constant = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !constant.is_empty() {
            constant.push('_');
        }
        constant.push(letter.to_ascii_uppercase());
    }
    constant
}

/// What a control record of KRaft's log says; `None` for others.
pub(super) fn show_control_record(key: &Bytes, value: &Bytes) -> Option<String> {
    let mut reader = Reader::new(key.clone());
    let (_, kind) = (reader.i16().ok()?, reader.i16().ok()?);
    let title = match kind {
        2 => "LeaderChange:",
        3 => "SnapshotHeader",
        4 => "SnapshotFooter",
        5 => "KRaftVersion",
        6 => "KRaftVoters",
        _ => return None,
    };
    // Each begins with its version, which is a field of it.
    let version = Reader::new(value.clone()).i16().ok()?;
    let kind = u32::try_from(kind).ok()?;
    let (_, data) = wire::show_control_record(kind, version, &mut Reader::new(value.clone())).ok()??;
    Some(format!("{title} {}", json_of(data)))
}

fn unknown_type(kind: i16) -> String {
    format!("Unknown record type {kind} at offset {{offset}}, skipping.")
}

fn damaged(error: DecodeError) -> String {
    format!("Error at offset {{offset}}, skipping. {error}")
}

/// The type in front of a key.
fn kind_of(key: &Bytes) -> Result<i16, String> {
    Reader::new(key.clone()).i16().map_err(damaged)
}

fn print<K: RecordKey, V: RecordValue>(key: &Bytes, value: Option<&Bytes>) -> Printed {
    print_with::<K>(key, value, |value, version| Ok(json_of(V::from_record(value)?.show(version))))
}

fn print_with<K: RecordKey>(
    key: &Bytes,
    value: Option<&Bytes>,
    read_value: impl Fn(&Bytes, i16) -> Result<Value, DecodeError>,
) -> Printed {
    let kind = kind_of(key)?;
    let data = K::decode(&mut Reader::new(key.slice(2..)), 0).map_err(damaged)?;
    let key = json!({ "type": kind.to_string(), "data": json_of(data.show(0)) }).to_string();
    let Some(value) = value else { return Ok((key, None)) };
    let version = Reader::new(value.clone()).i16().map_err(damaged)?;
    let data = read_value(value, version).map_err(damaged)?;
    Ok((key, Some(json!({ "version": version.to_string(), "data": data }).to_string())))
}

fn json_of(shown: Shown) -> Value {
    match shown {
        Shown::Null => Value::Null,
        Shown::Bool(value) => value.into(),
        Shown::Number(number) => number.into(),
        Shown::Float(number) => number.into(),
        Shown::Text(text) => text.as_str().into(),
        Shown::Bytes(bytes) => base64(&bytes).into(),
        Shown::Uuid(id) => id.to_string().into(),
        Shown::List(elements) => elements.into_iter().map(json_of).collect(),
        Shown::Fields(fields) => fields.into_iter().map(|(name, value)| (name, json_of(value))).collect(),
    }
}

fn group_metadata(value: GroupMetadataValue, version: i16) -> Value {
    let is_consumer = value.protocol_type.as_str() == "consumer";
    let mut data = Map::new();
    data.insert("protocolType".into(), value.protocol_type.as_str().into());
    data.insert("generation".into(), value.generation.into());
    data.insert("protocol".into(), value.protocol.as_deref().into());
    data.insert("leader".into(), value.leader.as_deref().into());
    if version >= 2 {
        data.insert("currentStateTimestamp".into(), value.current_state_timestamp.into());
    }
    let members = value.members.into_iter().map(|member| group_member(member, version, is_consumer));
    data.insert("members".into(), members.collect());
    Value::Object(data)
}

fn group_member(member: MemberMetadata, version: i16, is_consumer: bool) -> Value {
    let mut data = Map::new();
    data.insert("memberId".into(), member.member_id.as_str().into());
    if version >= 3 {
        data.insert("groupInstanceId".into(), member.group_instance_id.as_deref().into());
    }
    data.insert("clientId".into(), member.client_id.as_str().into());
    data.insert("clientHost".into(), member.client_host.as_str().into());
    if version >= 1 {
        data.insert("rebalanceTimeout".into(), member.rebalance_timeout.into());
    }
    data.insert("sessionTimeout".into(), member.session_timeout.into());
    let read = |bytes: &Bytes, read: fn(&Bytes) -> Option<Value>| {
        let known = if is_consumer { read(bytes) } else { None };
        known.unwrap_or_else(|| base64(bytes).into())
    };
    data.insert("subscription".into(), read(&member.subscription, subscription));
    data.insert("assignment".into(), read(&member.assignment, assignment));
    Value::Object(data)
}

/// `None` where the bytes are something else.
fn subscription(bytes: &Bytes) -> Option<Value> {
    let mut reader = Reader::new(bytes.clone());
    let version = reader.i16().ok()?.min(ConsumerProtocolSubscription::MAX_VERSION);
    let value = ConsumerProtocolSubscription::decode(&mut reader, version).ok()?;
    let mut data = Map::new();
    data.insert("topics".into(), value.topics.iter().map(|topic| topic.as_str()).collect());
    data.insert("userData".into(), value.user_data.as_ref().map(|bytes| base64(bytes)).into());
    if version >= 1 {
        let owned = value.owned_partitions.iter();
        let owned = owned.map(|of| json!({ "topic": of.topic.as_str(), "partitions": of.partitions }));
        data.insert("ownedPartitions".into(), owned.collect());
    }
    if version >= 2 {
        data.insert("generationId".into(), value.generation_id.into());
    }
    if version >= 3 {
        data.insert("rackId".into(), value.rack_id.as_deref().into());
    }
    Some(Value::Object(data))
}

fn assignment(bytes: &Bytes) -> Option<Value> {
    let mut reader = Reader::new(bytes.clone());
    let version = reader.i16().ok()?.min(ConsumerProtocolAssignment::MAX_VERSION);
    let value = ConsumerProtocolAssignment::decode(&mut reader, version).ok()?;
    let assigned = value.assigned_partitions.iter();
    let assigned: Value =
        assigned.map(|of| json!({ "topic": of.topic.as_str(), "partitions": of.partitions })).collect();
    let user_data = value.user_data.as_ref().map(|bytes| base64(bytes));
    Some(json!({ "assignedPartitions": assigned, "userData": user_data }))
}

/// A record of `__transaction_state`.
pub(super) fn read_transaction_record(key: &Bytes, value: Option<&Bytes>) -> Printed {
    let mut reader = Reader::new(key.clone());
    let kind = reader.i16().map_err(damaged)?;
    if kind != 0 {
        return Ok((format!("unknown::version={kind}"), Some(String::new())));
    }
    let key = TransactionLogKey::decode(&mut reader, 0).map_err(damaged)?;
    let key = format!("transaction_metadata::transactionalId={}", key.transactional_id.as_str());
    let Some(value) = value else { return Ok((key, None)) };
    let value = TransactionLogValue::from_record(value).map_err(damaged)?;
    let topics = value.transaction_partitions.unwrap_or_default();
    let partitions = topics
        .iter()
        .flat_map(|topic| topic.partition_ids.iter().map(|partition| (topic.topic.as_str(), *partition)));
    let partitions: Vec<String> = in_order_of_a_scala_set(partitions.collect())
        .into_iter()
        .map(|(topic, partition)| format!("{topic}-{partition}"))
        .collect();
    let payload = format!(
        "producerId:{},producerEpoch:{},state={},partitions=[{}],txnLastUpdateTimestamp={},txnTimeoutMs={}",
        value.producer_id,
        value.producer_epoch,
        state_name(value.transaction_status),
        partitions.join(","),
        value.transaction_last_update_timestamp_ms,
        value.transaction_timeout_ms,
    );
    Ok((key, Some(payload)))
}

/// Kafka's tool prints the partitions as its hash set walks them: by bucket, and within one by hash.
fn in_order_of_a_scala_set(mut partitions: Vec<(&str, i32)>) -> Vec<(&str, i32)> {
    const BUCKETS_MIN: usize = 16;
    let mut buckets = BUCKETS_MIN;
    while partitions.len() >= buckets / 4 * 3 {
        buckets *= 2;
    }
    partitions.sort_by_key(|(topic, partition)| {
        let hash = java_hash(topic, *partition);
        (hash as usize & (buckets - 1), hash as i32)
    });
    partitions
}

/// `TopicPartition.hashCode`, as Scala's sets mix it.
fn java_hash(topic: &str, partition: i32) -> u32 {
    let text = topic.encode_utf16().fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
    let hash = 31u32.wrapping_add(partition as u32).wrapping_mul(31).wrapping_add(text);
    hash ^ (hash >> 16)
}

fn state_name(status: i8) -> String {
    const NAMES: [&str; 8] = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ];
    let name = usize::try_from(status).ok().and_then(|status| NAMES.get(status));
    name.map_or_else(|| format!("{status}"), |name| (*name).to_owned())
}

/// The standard alphabet, padded: how JSON holds bytes in Kafka's tools.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let index = (group >> (18 - 6 * at) & 0x3f) as usize;
            text.push(if at > chunk.len() { '=' } else { char::from(ALPHABET[index]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_padded_base64() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn other_kinds_of_records_are_passed_over() {
        let read = read_group_record(&Bytes::from_static(b"\0\x63\0\x01g"), None);
        assert_eq!(read, Err("Unknown record type 99 at offset {offset}, skipping.".to_owned()));
        let read = read_share_record(&Bytes::from_static(b"\0\x02\0\x01g"), None);
        assert_eq!(read, Err("Unknown record type 2 at offset {offset}, skipping.".to_owned()));
    }
}
