use super::messages::{OffsetsAnswer, PendingWrite, RemovalAnswer, reply_to_removal};
use crate::group::classic::{Group, Step};
use crate::group::stored::GroupRecord;
use crate::model::TopicPartition;

/// How many tombstones go into one write: far below any batch limit, so that a huge group can be removed.
const TOMBSTONES_PER_WRITE: usize = 1_000;

/// Writes tombstones for these offsets, and for the whole group if nothing of it would be left.
pub(super) fn remove_offsets(
    group: &mut Group,
    partitions: Vec<TopicPartition>,
    answer: Option<OffsetsAnswer>,
    step: &mut Step<'_>,
) {
    if group.is_idle() && group.offsets.are_all(&partitions) {
        return remove_group(group, partitions, answer.map(RemovalAnswer::OfOffsets), step);
    }
    let mut tombstones = tombstones(group, partitions);
    let last = tombstones.split_off(tombstones.len() - tombstones.len().min(TOMBSTONES_PER_WRITE));
    write_in_parts(tombstones, step);
    step.out.write(last, PendingWrite::Removal { answer });
}

/// Writes the tombstones of a group. The group refuses requests until they are committed.
pub(super) fn remove_group(
    group: &mut Group,
    partitions: Vec<TopicPartition>,
    answer: Option<RemovalAnswer>,
    step: &mut Step<'_>,
) {
    let mut tombstones = tombstones(group, partitions);
    // A group that never had a generation has no record of its own.
    if group.generation_id().0 > 0 {
        tombstones.push(GroupRecord::Group { group_id: group.id.clone(), value: None });
    }
    if tombstones.is_empty() {
        // The log knows nothing of the group.
        group.forget_membership(step.now.timestamp);
        return reply_to_removal(answer, step.out);
    }
    let last = tombstones.split_off(tombstones.len() - tombstones.len().min(TOMBSTONES_PER_WRITE));
    group.bury(step.now.timestamp);
    write_in_parts(tombstones, step);
    step.out.write(last, PendingWrite::GroupRemoval { group_id: group.id.clone(), answer });
}

/// In the order of the partitions, so that a history repeats byte for byte.
fn tombstones(group: &Group, mut partitions: Vec<TopicPartition>) -> Vec<GroupRecord> {
    partitions.sort_unstable();
    let tombstone =
        |topic_partition| GroupRecord::Offset { group_id: group.id.clone(), topic_partition, value: None };
    partitions.into_iter().map(tombstone).collect()
}

fn write_in_parts(mut tombstones: Vec<GroupRecord>, step: &mut Step<'_>) {
    while !tombstones.is_empty() {
        let rest = tombstones.split_off(tombstones.len().min(TOMBSTONES_PER_WRITE));
        step.out.write(tombstones, PendingWrite::Removal { answer: None });
        tombstones = rest;
    }
}
