//! Which neighbouring segments become one when they are cleaned.

use crate::model::Offset;

/// What a segment takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentExtent {
    pub base_offset: Offset,
    pub size_bytes: u64,
    pub offset_index_bytes: u64,
    pub time_index_bytes: u64,
}

/// What the segments of a group may take together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// `segment.bytes`
    pub size_bytes_max: u64,
    /// `segment.index.bytes`, for each of the two indexes.
    pub index_bytes_max: u64,
    /// Where the last segment ends at the latest.
    pub end_offset: Offset,
}

/// How many segments each group takes, in their order.
///
/// A group is at least one segment, however large. It would fit its limits even if nothing were removed, and
/// the indexes can express all of its offsets.
pub fn group_segments(segments: &[SegmentExtent], limits: &GroupLimits) -> Vec<usize> {
    let ends = segments.iter().skip(1).map(|next| next.base_offset).chain([limits.end_offset]);
    let mut groups = Vec::new();
    let mut open: Option<(SegmentExtent, usize)> = None;
    for (segment, end_offset) in segments.iter().zip(ends) {
        open = match open {
            Some((sum, count)) if fits(&sum, segment, end_offset, limits) => {
                Some((sum.with(segment), count + 1))
            }
            before => {
                groups.extend(before.map(|(_, count)| count));
                Some((*segment, 1))
            }
        };
    }
    groups.extend(open.map(|(_, count)| count));
    groups
}

/// Whether the next segment, which ends before `end_offset`, may join a group.
fn fits(group: &SegmentExtent, next: &SegmentExtent, end_offset: Offset, limits: &GroupLimits) -> bool {
    let sum = group.with(next);
    // Nothing has to be expressed of a segment without records, however far away it is.
    let is_expressible =
        next.size_bytes == 0 || end_offset.plus(-1).since(group.base_offset) <= i64::from(i32::MAX);
    sum.size_bytes <= limits.size_bytes_max
        && sum.offset_index_bytes <= limits.index_bytes_max
        && sum.time_index_bytes <= limits.index_bytes_max
        && is_expressible
}

impl SegmentExtent {
    fn with(&self, next: &SegmentExtent) -> SegmentExtent {
        SegmentExtent {
            base_offset: self.base_offset,
            size_bytes: self.size_bytes + next.size_bytes,
            offset_index_bytes: self.offset_index_bytes + next.offset_index_bytes,
            time_index_bytes: self.time_index_bytes + next.time_index_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: GroupLimits =
        GroupLimits { size_bytes_max: 100, index_bytes_max: 50, end_offset: Offset(1 << 40) };

    /// (base offset, size, offset index, time index)
    #[track_caller]
    fn check(segments: &[(i64, u64, u64, u64)], groups: &[usize]) {
        let extent = |&(base, size_bytes, offset_index_bytes, time_index_bytes): &(i64, u64, u64, u64)| {
            SegmentExtent { base_offset: Offset(base), size_bytes, offset_index_bytes, time_index_bytes }
        };
        let segments: Vec<SegmentExtent> = segments.iter().map(extent).collect();
        assert_eq!(group_segments(&segments, &GroupLimits { end_offset: Offset(1_000), ..LIMITS }), groups);
    }

    #[test]
    fn segments_are_grouped_up_to_a_segments_size() {
        check(&[], &[]);
        check(&[(0, 500, 0, 0)], &[1]);
        check(&[(0, 60, 0, 0), (10, 40, 0, 0), (20, 1, 0, 0)], &[2, 1]);
        check(&[(0, 101, 0, 0), (10, 1, 0, 0), (20, 1, 0, 0)], &[1, 2]);
    }

    #[test]
    fn segments_are_grouped_up_to_an_indexs_size() {
        check(&[(0, 1, 30, 0), (10, 1, 20, 0), (20, 1, 1, 0)], &[2, 1]);
        check(&[(0, 1, 0, 30), (10, 1, 0, 21), (20, 1, 0, 1)], &[1, 2]);
    }

    #[test]
    fn a_group_spans_no_more_offsets_than_an_index_can_express() {
        let far = i64::from(i32::MAX);
        let base = |base_offset: i64, size_bytes| SegmentExtent {
            base_offset: Offset(base_offset),
            size_bytes,
            offset_index_bytes: 0,
            time_index_bytes: 0,
        };
        let limits = |end| GroupLimits { end_offset: Offset(end), ..LIMITS };
        let two = [base(0, 1), base(10, 1)];
        assert_eq!(group_segments(&two, &limits(far + 1)), [2]);
        assert_eq!(group_segments(&two, &limits(far + 2)), [1, 1]);
        // KAFKA-13310: of an empty segment no offset is expressed.
        assert_eq!(group_segments(&[base(0, 1), base(10, 0)], &limits(far + 2)), [2]);
        assert_eq!(group_segments(&[base(0, 1), base(10, 1), base(far + 2, 1)], &limits(far + 9)), [1, 2]);
    }
}
