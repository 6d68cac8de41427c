use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::{Offset, Timestamp};
use crate::runtime::fs::{File, OpenMode, read_full_at, write_all_at};

use super::directory::Place;
use super::names::FileKind;
use super::open_files::LazyFile;

/// A sparse index of one segment, in Kafka's file format.
///
/// The file is neither mapped nor sized in advance, as Kafka does it: an index that has no entry has no file
/// until the log is closed, and new entries wait in memory until a block of them is worth a write. That is
/// safe because an index is only trusted up to the recovery point, and a flush writes entries out before the
/// recovery point moves.
///
/// One thread at a time may append (the one that holds the log's append lock); any number may search. The
/// lock inside is held for a few instructions, never while a file is read or written.
pub(super) struct Index<E> {
    base_offset: Offset,
    file: LazyFile,
    state: Mutex<State<E>>,
}

struct State<E> {
    /// How many entries are in the file.
    written: usize,
    /// The entries after those.
    tail: Vec<E>,
    last: Option<E>,
}

/// One entry: an even piece of the file, with keys that grow along it.
pub(super) trait Entry: Copy + PartialEq + fmt::Debug {
    const SIZE_BYTES: usize;
    const KIND: FileKind;

    fn encode(self, into: &mut Vec<u8>);

    /// `bytes` holds [`SIZE_BYTES`](Entry::SIZE_BYTES).
    fn decode(bytes: &[u8]) -> Self;

    /// Whether `self` may stand before `next`.
    fn precedes(&self, next: &Self) -> bool;

    /// Whether there are records that it may stand for: zeros that a crash left are no entry.
    fn is_possible(&self) -> bool;
}

/// Where records stand in the segment file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OffsetEntry {
    /// The *last* offset of the record set at `position`, less the segment's base offset.
    pub(super) relative_offset: u32,
    pub(super) position: u32,
}

/// The greatest timestamp up to a place in the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimeEntry {
    pub(super) timestamp: Timestamp,
    /// The last offset of the batch that has the timestamp, less the segment's base offset.
    pub(super) relative_offset: u32,
}

/// Whether a search may wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiting {
    Allowed,
    /// What is not cached fails with `WouldBlock`.
    Refused,
}

/// Entries that wait in memory before they are written: a page of offset entries.
const TAIL_MAX: usize = 512;
/// Entries that a search reads at once.
const BLOCK: usize = 512;

impl<E: Entry> Index<E> {
    /// An index without entries, nor a file.
    pub(super) fn empty(base_offset: Offset) -> Self {
        let state = State { written: 0, tail: Vec::new(), last: None };
        Index { base_offset, file: LazyFile::new(), state: Mutex::new(state) }
    }

    /// The first `entries` entries of the file.
    pub(super) fn open(base_offset: Offset, entries: usize, place: &Place) -> io::Result<Self> {
        let index = Self::empty(base_offset);
        if let Some(before) = entries.checked_sub(1) {
            let last = index.read(place, before, 1, Waiting::Allowed)?.first().copied();
            let mut state = index.state.lock();
            state.written = entries;
            state.last = last;
        }
        Ok(index)
    }

    pub(super) fn len(&self) -> usize {
        let state = self.state.lock();
        state.written + state.tail.len()
    }

    /// Of the entries that wait; those in the file cost the page cache, not this process.
    pub(super) fn memory_bytes(&self) -> usize {
        self.state.lock().tail.capacity() * size_of::<E>()
    }

    pub(super) fn last(&self) -> Option<E> {
        self.state.lock().last
    }

    pub(super) fn append(&self, entry: E) {
        let mut state = self.state.lock();
        debug_assert!(state.last.is_none_or(|last| last.precedes(&entry)), "{:?} then {entry:?}", state.last);
        state.tail.push(entry);
        state.last = Some(entry);
    }

    /// Writes waiting entries out when there are many. Called before records are written, so that a disk that
    /// is full refuses the records and not their index.
    pub(super) fn make_room(&self, place: &Place) -> io::Result<()> {
        let is_full = self.state.lock().tail.len() >= TAIL_MAX;
        if is_full { self.write_out(place) } else { Ok(()) }
    }

    /// Writes all waiting entries to the file, which is created even if there are none.
    pub(super) fn write_out(&self, place: &Place) -> io::Result<()> {
        let (bytes, written, count) = {
            let state = self.state.lock();
            let mut bytes = Vec::with_capacity(state.tail.len() * E::SIZE_BYTES);
            state.tail.iter().for_each(|entry| entry.encode(&mut bytes));
            (bytes, state.written, state.tail.len())
        };
        if bytes.is_empty() && written > 0 {
            return Ok(());
        }
        let file = self.open_file(place, OpenMode::Create)?;
        if bytes.is_empty() {
            return Ok(());
        }
        write_all_at(&*file, &[IoSlice::new(&bytes)], (written * E::SIZE_BYTES) as u64)?;
        let mut state = self.state.lock();
        state.written += count;
        state.tail.drain(..count);
        state.tail.shrink_to(TAIL_MAX / 8);
        Ok(())
    }

    /// Makes durable what was written out.
    pub(super) fn sync(&self, place: &Place) -> io::Result<()> {
        if self.state.lock().written == 0 {
            Ok(())
        } else {
            self.open_file(place, OpenMode::Write)?.sync_data()
        }
    }

    /// Lets go of the file until it is needed again.
    pub(super) fn close(&self) {
        self.file.close();
    }

    /// The last entry for which `is_before` holds. It must hold for a prefix of the entries.
    pub(super) fn last_where(
        &self,
        place: &Place,
        waiting: Waiting,
        is_before: impl Fn(&E) -> bool,
    ) -> io::Result<Option<E>> {
        let written = {
            let state = self.state.lock();
            let in_tail = state.tail.partition_point(&is_before);
            if let Some(found) = in_tail.checked_sub(1).and_then(|at| state.tail.get(at)) {
                return Ok(Some(*found));
            }
            state.written
        };
        let found = self.last_written_where(place, written, waiting, is_before)?;
        Ok(found.map(|(_, entry)| entry))
    }

    /// The index of the entries for which `is_kept` holds, a prefix. The file is cut; `self` is no longer used.
    pub(super) fn shortened(&self, place: &Place, is_kept: impl Fn(&E) -> bool) -> io::Result<Self> {
        self.write_out(place)?;
        let written = self.state.lock().written;
        let last_kept = self.last_written_where(place, written, Waiting::Allowed, is_kept)?;
        let kept = last_kept.map_or(0, |(at, _)| at + 1);
        self.open_file(place, OpenMode::Write)?.truncate((kept * E::SIZE_BYTES) as u64)?;
        Index::open(self.base_offset, kept, place)
    }

    /// The last entry in the file for which `is_before` holds, and its number.
    fn last_written_where(
        &self,
        place: &Place,
        written: usize,
        waiting: Waiting,
        is_before: impl Fn(&E) -> bool,
    ) -> io::Result<Option<(usize, E)>> {
        // Finds the last block whose first entry qualifies, then looks inside it.
        let (mut low, mut high) = (0, written.div_ceil(BLOCK));
        while low < high {
            let middle = (low + high) / 2;
            let first = self.read(place, middle * BLOCK, 1, waiting)?;
            if first.first().is_some_and(&is_before) { low = middle + 1 } else { high = middle }
        }
        let Some(block) = low.checked_sub(1) else { return Ok(None) };
        let first = block * BLOCK;
        let entries = self.read(place, first, BLOCK.min(written - first), waiting)?;
        let inside = entries.partition_point(is_before);
        Ok(inside.checked_sub(1).and_then(|at| Some((first + at, *entries.get(at)?))))
    }

    /// Whether first and last entry in the file may be right.
    pub(super) fn is_plausible(&self, place: &Place) -> io::Result<bool> {
        let (written, last) = {
            let state = self.state.lock();
            (state.written, state.last)
        };
        let Some(last) = last else { return Ok(true) };
        if written < 2 {
            return Ok(last.is_possible());
        }
        let first = self.read(place, 0, 1, Waiting::Allowed)?;
        Ok(first.first().is_some_and(|first| first.is_possible() && first.precedes(&last)))
    }

    /// The index of the entries that are in order and for which `is_trusted` holds. Reads them all; the file
    /// is cut, and `self` is no longer used.
    pub(super) fn ordered_prefix(&self, place: &Place, is_trusted: impl Fn(&E) -> bool) -> io::Result<Self> {
        let written = self.state.lock().written;
        let mut kept = 0;
        let mut before: Option<E> = None;
        'blocks: for first in (0..written).step_by(BLOCK) {
            for entry in self.read(place, first, BLOCK.min(written - first), Waiting::Allowed)? {
                let follows = before.is_none_or(|before| before.precedes(&entry));
                if !(follows && entry.is_possible() && is_trusted(&entry)) {
                    break 'blocks;
                }
                before = Some(entry);
                kept += 1;
            }
        }
        self.open_file(place, OpenMode::Write)?.truncate((kept * E::SIZE_BYTES) as u64)?;
        Index::open(self.base_offset, kept, place)
    }

    /// Entries of the file. Fewer than asked for where a truncation cuts the file under a reader, which goes by the index
    /// as it was: what is missing lies behind all that is left.
    fn read(&self, place: &Place, first: usize, count: usize, waiting: Waiting) -> io::Result<Vec<E>> {
        let file = self.open_file(place, OpenMode::Write)?;
        let mut bytes = vec![0; count * E::SIZE_BYTES];
        let position = (first * E::SIZE_BYTES) as u64;
        let read = read_waiting(&*file, &mut bytes, position, waiting)?;
        bytes.truncate(read - read % E::SIZE_BYTES);
        Ok(bytes.chunks_exact(E::SIZE_BYTES).map(E::decode).collect())
    }

    fn open_file(&self, place: &Place, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        place.open_lazy(&self.file, self.base_offset, E::KIND, mode)
    }
}

/// Fills as much of `buffer` as the file has, or fails with `WouldBlock` if that means to wait.
pub(super) fn read_waiting(
    file: &dyn File,
    buffer: &mut [u8],
    position: u64,
    waiting: Waiting,
) -> io::Result<usize> {
    if waiting == Waiting::Allowed {
        return read_full_at(file, buffer, position);
    }
    match file.read_cached_at(buffer, position)? {
        Some(read) if read == buffer.len() => Ok(read),
        // Cut short by the end of the file, or by a page that is not cached: only the size can tell.
        Some(read) if position + read as u64 >= file.size_bytes()? => Ok(read),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Entry for OffsetEntry {
    const SIZE_BYTES: usize = 8;
    const KIND: FileKind = FileKind::OffsetIndex;

    fn encode(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.relative_offset.to_be_bytes());
        into.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        OffsetEntry { relative_offset: u32_at(bytes, 0), position: u32_at(bytes, 4) }
    }

    fn precedes(&self, next: &Self) -> bool {
        self.relative_offset < next.relative_offset && self.position < next.position
    }

    fn is_possible(&self) -> bool {
        // The first record set of a segment never gets an entry.
        self.position > 0
    }
}

impl Entry for TimeEntry {
    const SIZE_BYTES: usize = 12;
    const KIND: FileKind = FileKind::TimeIndex;

    fn encode(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.timestamp.0.to_be_bytes());
        into.extend_from_slice(&self.relative_offset.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        let timestamp = (u64::from(u32_at(bytes, 0)) << 32) | u64::from(u32_at(bytes, 4));
        TimeEntry { timestamp: Timestamp(timestamp as i64), relative_offset: u32_at(bytes, 8) }
    }

    fn precedes(&self, next: &Self) -> bool {
        self.timestamp < next.timestamp && self.relative_offset <= next.relative_offset
    }

    fn is_possible(&self) -> bool {
        self.timestamp > Timestamp::NONE
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

impl<E: Entry> fmt::Debug for Index<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("base_offset", &self.base_offset).field("len", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    fn entry(number: u32) -> OffsetEntry {
        OffsetEntry { relative_offset: number * 10 + 9, position: number * 100 + 50 }
    }

    fn filled(bench: &Bench, count: u32) -> Index<OffsetEntry> {
        let index = Index::empty(Offset(7));
        for number in 0..count {
            index.make_room(&bench.place).unwrap();
            index.append(entry(number));
        }
        index
    }

    #[track_caller]
    fn check(index: &Index<OffsetEntry>, bench: &Bench, count: u32) {
        assert_eq!(index.len(), count as usize);
        for target in [0, 8, 9, 10, 5_000, 5_119, 5_129, 20_000, u32::MAX] {
            let expected = (0..count).map(entry).rfind(|entry| entry.relative_offset <= target);
            let is_before = |entry: &OffsetEntry| entry.relative_offset <= target;
            assert_eq!(index.last_where(&bench.place, Waiting::Refused, is_before).unwrap(), expected);
        }
    }

    #[test]
    fn a_search_finds_entries_in_the_file_and_those_that_wait() {
        for count in [0, 1, 511, 512, 513, 1024, 2000] {
            let bench = Bench::new();
            check(&filled(&bench, count), &bench, count);
        }
    }

    #[test]
    fn an_index_reopens_as_it_was_written_out() {
        let bench = Bench::new();
        let index = filled(&bench, 700);
        index.write_out(&bench.place).unwrap();
        let bytes = bench.read("00000000000000000007.index");
        assert_eq!(bytes.len(), 700 * 8);
        assert_eq!(bytes[8..16], [0, 0, 0, 19, 0, 0, 0, 150]);
        let reopened = Index::open(Offset(7), 700, &bench.place).unwrap();
        assert_eq!(reopened.last(), Some(entry(699)));
        assert!(reopened.is_plausible(&bench.place).unwrap());
        check(&reopened, &bench, 700);
    }

    /// A follower truncates while a reader still goes by the index as it was.
    #[test]
    fn a_reader_of_an_index_that_is_cut_finds_what_is_left() {
        let bench = Bench::new();
        let index = filled(&bench, 2_000);
        let cut = index.shortened(&bench.place, |entry| entry.relative_offset < 10_000).unwrap();
        assert!(cut.len() < 1_500);
        for target in [0, 9_000, 10_000, 15_000, u32::MAX] {
            let is_before = |entry: &OffsetEntry| entry.relative_offset <= target;
            let left = cut.last_where(&bench.place, Waiting::Allowed, is_before).unwrap();
            assert_eq!(index.last_where(&bench.place, Waiting::Allowed, is_before).unwrap(), left);
        }
    }

    #[test]
    fn time_entries_are_twelve_bytes() {
        let bench = Bench::new();
        let index = Index::empty(Offset(0));
        let entry = TimeEntry { timestamp: Timestamp(0x0102_0304_0506_0708), relative_offset: 9 };
        index.append(entry);
        index.write_out(&bench.place).unwrap();
        let bytes = bench.read("00000000000000000000.timeindex");
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9]);
        assert_eq!(TimeEntry::decode(&bytes), entry);
    }
}
