use crate::model::PartitionIndex;

/// The partition of an internal topic that a group or transactional id belongs to.
///
/// `partitions` is the topic's real partition count, not the setting for new topics (KAFKA-2336); it is at least 1.
pub fn partition_for(key: &str, partitions: i32) -> PartitionIndex {
    // Java's hash of the UTF-16 text. The one value without a positive counterpart counts as 0.
    let hash =
        key.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    PartitionIndex(hash.checked_abs().unwrap_or(0) % partitions.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, partitions: i32, partition: i32) {
        assert_eq!(partition_for(key, partitions), PartitionIndex(partition), "{key:?}");
    }

    #[test]
    fn the_partition_is_javas_hash_of_the_id() {
        check("", 50, 0);
        check("a", 50, 97 % 50);
        // "test".hashCode() = 3556498
        check("test", 50, 3_556_498 % 50);
        // "группа".hashCode() = 1749938458; "😀".hashCode() = 1772899, as its surrogates count as two units.
        check("группа", 50, 1_749_938_458 % 50);
        check("😀", 50, 1_772_899 % 50);
    }

    #[test]
    fn negative_hashes_are_made_positive() {
        // "my-group".hashCode() = -1906497762, "orders".hashCode() = -1008770331.
        check("my-group", 50, 1_906_497_762 % 50);
        check("orders", 10, 1_008_770_331 % 10);
    }

    #[test]
    fn the_smallest_hash_is_partition_zero() {
        // Its Java hash is -2147483648 (C045).
        check("polygenelubricants", 50, 0);
        check("polygenelubricants", 7, 0);
    }
}
