//! The entries of index files, for tools: bytes in, values out.

use crate::model::{Offset, Timestamp};

const OFFSET_ENTRY_BYTES: usize = 8;
const TIME_ENTRY_BYTES: usize = 12;

/// The whole entries of an `.index` file: the last offset of a batch, and its position.
///
/// Zeros that a crash left at the end, or space that a running broker has reserved, are no entries.
pub fn offset_index_entries(bytes: &[u8], base_offset: Offset) -> Vec<(Offset, u32)> {
    let (entries, _) = bytes.as_chunks::<OFFSET_ENTRY_BYTES>();
    let entries = entries.iter().map(|entry| {
        let [a, b, c, d, e, f, g, h] = *entry;
        (relative(base_offset, [a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
    });
    until_zeros(entries, |(offset, _)| *offset == base_offset)
}

/// The whole entries of a `.timeindex` file: a timestamp, and the last offset of the batch that has it.
pub fn time_index_entries(bytes: &[u8], base_offset: Offset) -> Vec<(Timestamp, Offset)> {
    let (entries, _) = bytes.as_chunks::<TIME_ENTRY_BYTES>();
    let entries = entries.iter().map(|entry| {
        let [a, b, c, d, e, f, g, h, offset @ ..] = *entry;
        (Timestamp(i64::from_be_bytes([a, b, c, d, e, f, g, h])), relative(base_offset, offset))
    });
    until_zeros(entries, |(_, offset)| *offset == base_offset)
}

fn relative(base_offset: Offset, bytes: [u8; 4]) -> Offset {
    base_offset.plus(i64::from(u32::from_be_bytes(bytes)))
}

fn until_zeros<T>(entries: impl Iterator<Item = T>, is_zero: impl Fn(&T) -> bool) -> Vec<T> {
    entries
        .enumerate()
        .take_while(|(at, entry)| *at == 0 || !is_zero(entry))
        .map(|(_, entry)| entry)
        .collect()
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
