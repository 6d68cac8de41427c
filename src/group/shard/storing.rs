use super::messages::{GroupReply, OffsetsAnswer, PendingWrite};
use crate::coordinator::{Now, ReplyToken, TransactionalWriter, Write};
use crate::group::classic::{Group, Step};
use crate::group::stored::{GroupRecord, StoredOffset};
use crate::group::{GroupError, GroupId, OffsetToCommit};
use crate::model::Timestamp;

/// How offsets of one request are stored.
pub(super) struct OffsetStorage {
    pub group_id: GroupId,
    pub expire_timestamp: Option<Timestamp>,
    pub producer: Option<TransactionalWriter>,
}

impl OffsetStorage {
    /// Writes what fits the limits; the answer comes when it is committed.
    pub fn store(
        self,
        group: &mut Group,
        offsets: Vec<OffsetToCommit>,
        token: ReplyToken,
        step: &mut Step<'_>,
    ) {
        let producer_id = self.producer.map(|producer| producer.producer_id);
        let mut results = Vec::with_capacity(offsets.len());
        let mut records = Vec::with_capacity(offsets.len());
        for offset in offsets {
            if is_longer_than(&offset.metadata, step.options.offset_metadata_size_max) {
                results.push(Err(GroupError::OffsetMetadataTooLarge));
                continue;
            }
            group.offsets.begin(&offset.topic_partition, producer_id);
            records.push(self.to_record(offset, step.now));
            results.push(Ok(()));
        }
        if records.is_empty() {
            return step.out.reply(token, GroupReply::Offsets(Ok(results)));
        }
        let answer = Some(OffsetsAnswer { token, results });
        let pending = PendingWrite::Offsets { answer, producer_id };
        step.out.writes.push(Write { records, pending, producer: self.producer });
    }

    fn to_record(&self, offset: OffsetToCommit, now: Now) -> GroupRecord {
        let value = StoredOffset {
            offset: offset.offset,
            leader_epoch: offset.leader_epoch,
            metadata: offset.metadata,
            commit_timestamp: offset.commit_timestamp.unwrap_or(now.timestamp),
            expire_timestamp: self.expire_timestamp,
        };
        GroupRecord::Offset {
            group_id: self.group_id.clone(),
            topic_partition: offset.topic_partition,
            value: Some(value),
        }
    }
}

/// Kafka counts UTF-16 units, of which a text never has more than bytes.
fn is_longer_than(metadata: &str, max: usize) -> bool {
    metadata.len() > max && metadata.encode_utf16().count() > max
}
