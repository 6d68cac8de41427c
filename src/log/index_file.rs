//! The entries of index files, for tools: bytes in, values out.

use crate::model::{Offset, Timestamp};

use super::index::{Entry, OffsetEntry, TimeEntry};

/// The whole entries of an `.index` file: the last offset of the batches at a position, and the position.
///
/// Zeros that a crash left at the end, or space that a running broker has reserved, are no entries.
pub fn offset_index_entries(bytes: &[u8], base_offset: Offset) -> Vec<(Offset, u32)> {
    let entries = decode::<OffsetEntry>(bytes, |entry| entry.relative_offset);
    let entries = entries.map(|entry| (absolute(base_offset, entry.relative_offset), entry.position));
    entries.collect()
}

/// The whole entries of a `.timeindex` file: a timestamp, and the last offset of the batch that has it.
pub fn time_index_entries(bytes: &[u8], base_offset: Offset) -> Vec<(Timestamp, Offset)> {
    let entries = decode::<TimeEntry>(bytes, |entry| entry.relative_offset);
    let entries = entries.map(|entry| (entry.timestamp, absolute(base_offset, entry.relative_offset)));
    entries.collect()
}

/// Up to the first entry that cannot be one: only the first may be of the base offset itself.
fn decode<E: Entry>(bytes: &[u8], relative_offset: impl Fn(&E) -> u32) -> impl Iterator<Item = E> {
    let entries = bytes.chunks_exact(E::SIZE_BYTES).map(E::decode);
    let entries = entries.enumerate().take_while(move |(at, entry)| *at == 0 || relative_offset(entry) != 0);
    entries.map(|(_, entry)| entry)
}

fn absolute(base_offset: Offset, relative_offset: u32) -> Offset {
    base_offset.plus(i64::from(relative_offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_end_where_reserved_space_begins() {
        let bytes = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
        assert_eq!(offset_index_entries(&bytes, Offset(10)), [(Offset(14), 0), (Offset(19), 256)]);
        let bytes = [[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1], [0; 12]].concat();
        assert_eq!(time_index_entries(&bytes, Offset(10)), [(Timestamp(5), Offset(11))]);
        assert_eq!(time_index_entries(&[], Offset(10)), []);
    }
}
