use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering, fence};

use crate::model::Offset;

/// The places in a segment where the newest batches end, for readers near the end of a log.
///
/// A consumer that follows a log asks for exactly these offsets, and a high watermark is one of them, so
/// the reads that matter most need neither an index nor a look at the file. One thread at a time notes;
/// any number look up, without a lock.
#[derive(Debug)]
pub(super) struct Marks {
    next: AtomicUsize,
    slots: [Slot; SLOTS],
}

/// A place between two batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    /// The offset of the first record after the place.
    pub(super) offset: Offset,
    pub(super) position: u32,
}

const SLOTS: usize = 32;
const EMPTY: i64 = -1;

#[derive(Debug)]
struct Slot {
    offset: AtomicI64,
    position: AtomicU32,
}

impl Slot {
    fn read(&self) -> Option<Mark> {
        let offset = self.offset.load(Ordering::Acquire);
        let position = self.position.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // Offsets only grow, so an unchanged one means that the position belongs to it.
        let is_whole = offset != EMPTY && self.offset.load(Ordering::Relaxed) == offset;
        is_whole.then_some(Mark { offset: Offset(offset), position })
    }
}

impl Marks {
    pub(super) fn new() -> Self {
        let slots =
            std::array::from_fn(|_| Slot { offset: AtomicI64::new(EMPTY), position: AtomicU32::new(0) });
        Marks { next: AtomicUsize::new(0), slots }
    }

    pub(super) fn note(&self, mark: Mark) {
        let at = self.next.load(Ordering::Relaxed);
        self.next.store((at + 1) % SLOTS, Ordering::Relaxed);
        if let Some(slot) = self.slots.get(at) {
            slot.offset.store(EMPTY, Ordering::Relaxed);
            fence(Ordering::Release);
            slot.position.store(mark.position, Ordering::Relaxed);
            slot.offset.store(mark.offset.0, Ordering::Release);
        }
    }

    /// Where the first record at or after `offset` is, if a batch that is remembered ended right before it.
    pub(super) fn find(&self, offset: Offset) -> Option<u32> {
        let holds = |slot: &&Slot| slot.offset.load(Ordering::Relaxed) == offset.0;
        let mark = self.slots.iter().find(holds)?.read()?;
        (mark.offset == offset).then_some(mark.position)
    }

    /// The last remembered place that is not after `position`.
    pub(super) fn last_until(&self, position: u32) -> Option<Mark> {
        let marks = self.slots.iter().filter_map(Slot::read);
        marks.filter(|mark| mark.position <= position).max_by_key(|mark| mark.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(number: u32) -> Mark {
        Mark { offset: Offset(i64::from(number) * 10), position: number * 100 }
    }

    #[test]
    fn the_newest_places_are_remembered() {
        let marks = Marks::new();
        assert_eq!(marks.find(Offset(0)), None);
        for number in 0..100 {
            marks.note(mark(number));
        }
        assert_eq!(marks.find(Offset(990)), Some(9_900));
        assert_eq!(marks.find(Offset(680)), Some(6_800));
        assert_eq!(marks.find(Offset(670)), None);
        assert_eq!(marks.find(Offset(985)), None);
        assert_eq!(marks.last_until(9_850), Some(mark(98)));
        assert_eq!(marks.last_until(6_799), None);
    }

    #[test]
    fn concurrent_readers_see_whole_marks() {
        let marks = Marks::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200_000).for_each(|number| marks.note(mark(number))));
            for number in 0..200_000 {
                let expected = mark(number);
                assert!(marks.find(expected.offset).is_none_or(|position| position == expected.position));
            }
        });
    }
}
