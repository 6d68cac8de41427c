use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

use crate::model::Offset;

/// The last offset of each key in a part of a log, within a fixed number of bytes.
///
/// Keys are not kept, only their hash of 128 bits, as in Kafka: two keys with one hash would cost a record.
/// Clients choose keys, so the hash is keyed with a secret (SipHash-1-3, a tenth of the cost of Kafka's MD5);
/// it never leaves memory, and each map may have another one.
#[derive(Debug)]
pub struct KeyMap {
    /// Two words of hash, then the offset plus one; zero there marks a free slot. Plain words, because the
    /// allocator gives pages of zeros that cost nothing until they are used.
    slots: Vec<[u64; 3]>,
    /// How many slots there may be.
    slots_max: usize,
    entries: usize,
    entries_max: usize,
    secret: HashSecret,
}

/// What a map may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyMapBudget {
    pub size_bytes: u64,
    /// The part of the slots that may be taken, at most 1: `log.cleaner.io.buffer.load.factor`.
    pub load_factor: f64,
}

/// What a map keeps of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHash([u64; 2]);

/// Makes hashes unpredictable.
#[derive(Clone, Copy, Debug)]
pub struct HashSecret(pub [u64; 2]);

const SLOT_BYTES: u64 = size_of::<[u64; 3]>() as u64;

/// A map that may need more slots begins with a part of them: most logs that are compacted have far more records than
/// keys, and a search costs what the memory does that it is spread over.
const FIRST_SLOTS_MIN: u64 = 1 << 16;
const GROWTH: u64 = 4;

/// The map is full, and the key is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl KeyMap {
    /// A map for up to `keys` keys, or for as many as the budget allows, but at least one.
    pub fn new(budget: &KeyMapBudget, keys: u64, secret: HashSecret) -> KeyMap {
        let slots_max = (budget.size_bytes / SLOT_BYTES).max(2);
        // Half full at most, where that fits: a search then ends after a slot or two.
        let slots = keys.saturating_mul(2).clamp(2, slots_max);
        let allowed = slots_max as f64 * budget.load_factor.clamp(0.0, 1.0);
        // One slot is always free: it is where the search for an unknown key ends.
        let entries_max = (allowed as u64).clamp(1, slots - 1);
        // While it grows, the old slots take room beside the new ones.
        let may_grow = slots.saturating_add(slots / GROWTH) <= slots_max;
        let first_slots =
            if may_grow { (slots / GROWTH.pow(2)).max(FIRST_SLOTS_MIN).min(slots) } else { slots };
        let count = |slots| usize::try_from(slots).unwrap_or(usize::MAX);
        KeyMap {
            slots: vec![[0; 3]; count(first_slots)],
            slots_max: count(slots),
            entries: 0,
            entries_max: usize::try_from(entries_max).unwrap_or(usize::MAX),
            secret,
        }
    }

    /// The hash under which a key is known here.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let HashSecret([first, second]) = self.secret;
        let mut hasher = SipHasher13::new_with_keys(first, second);
        hasher.write(key);
        let hash = hasher.finish128();
        KeyHash([hash.h1, hash.h2])
    }

    /// Fetches the slots of these keys from memory, all at a time rather than one after the other, which is most of what
    /// a search costs.
    pub fn fetch(&self, hashes: impl Iterator<Item = KeyHash>) {
        let taken = |hash: KeyHash| self.slots.get(self.home(hash)).map_or(0, |slot| slot[2]);
        std::hint::black_box(hashes.map(taken).fold(0, |sum, offset| sum ^ offset));
    }

    /// Notes that a key stands at `offset`, which is not lower than where it stood before.
    pub fn put(&mut self, hash: KeyHash, offset: Offset) -> Result<(), Full> {
        let mut at = self.find(hash);
        if self.slots.get(at).is_none_or(|slot| slot[2] == 0) {
            if self.entries >= self.entries_max {
                return Err(Full);
            }
            if self.entries >= self.slots.len() / 2 && self.slots.len() < self.slots_max {
                self.grow();
                at = self.find(hash);
            }
            self.entries += 1;
        }
        let Some(slot) = self.slots.get_mut(at) else { return Err(Full) };
        *slot = [hash.0[0], hash.0[1], offset.0.wrapping_add(1) as u64];
        Ok(())
    }

    /// Where a key stands last; `None` if it is not in the map.
    pub fn last_offset(&self, hash: KeyHash) -> Option<Offset> {
        let slot = self.slots.get(self.find(hash))?;
        (slot[2] != 0).then(|| Offset((slot[2] as i64).wrapping_sub(1)))
    }

    pub fn count(&self) -> usize {
        self.entries
    }

    /// More slots, in which the entries keep their order.
    fn grow(&mut self) {
        let slots = self.slots.len().saturating_mul(GROWTH as usize).min(self.slots_max);
        let old = std::mem::replace(&mut self.slots, vec![[0; 3]; slots]);
        for entry in old.into_iter().filter(|entry| entry[2] != 0) {
            let at = self.find(KeyHash([entry[0], entry[1]]));
            if let Some(slot) = self.slots.get_mut(at) {
                *slot = entry;
            }
        }
    }

    /// Where the search for a hash begins: the hash as a fraction of the table.
    fn home(&self, hash: KeyHash) -> usize {
        ((u128::from(hash.0[0]) * self.slots.len() as u128) >> 64) as usize
    }

    /// The slot of a hash, or the free one where it belongs.
    fn find(&self, hash: KeyHash) -> usize {
        let KeyHash([first, second]) = hash;
        let is_here = |slot: &[u64; 3]| slot[2] == 0 || (slot[0] == first && slot[1] == second);
        let home = self.home(hash);
        let (before, after) = self.slots.split_at(home);
        match after.iter().position(is_here) {
            Some(at) => home + at,
            None => before.iter().position(is_here).unwrap_or(self.slots.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const SECRET: HashSecret = HashSecret([1, 2]);

    fn budget(slots: u64, load_factor: f64) -> KeyMapBudget {
        KeyMapBudget { size_bytes: slots * SLOT_BYTES, load_factor }
    }

    fn put(map: &mut KeyMap, key: &[u8], offset: i64) -> Result<(), Full> {
        map.put(map.hash(key), Offset(offset))
    }

    fn last(map: &KeyMap, key: &[u8]) -> Option<Offset> {
        map.last_offset(map.hash(key))
    }

    #[test]
    fn a_map_grows_with_its_keys_and_forgets_none() {
        let keys = 300_000_u32;
        for slots_max in [1 << 40, 700_000, 600_000] {
            let mut map = KeyMap::new(&budget(slots_max, 0.9), u64::from(keys), SECRET);
            for key in 0..keys {
                assert_eq!(put(&mut map, &key.to_be_bytes(), i64::from(key)), Ok(()));
                if key == 1_000 {
                    assert_eq!(map.slots.len() < 100_000, slots_max > 700_000, "{slots_max}");
                }
            }
            assert_eq!((map.count(), map.slots.len()), (300_000, 600_000));
            assert!((0..keys).all(|key| last(&map, &key.to_be_bytes()) == Some(Offset(i64::from(key)))));
        }
    }

    #[test]
    fn a_map_takes_as_many_keys_as_its_budget_and_still_moves_known_ones() {
        let mut map = KeyMap::new(&budget(10, 0.9), 1_000, SECRET);
        for key in 0..9u8 {
            assert_eq!(put(&mut map, &[key], i64::from(key)), Ok(()));
        }
        assert_eq!(put(&mut map, &[9], 9), Err(Full));
        assert_eq!(put(&mut map, &[3], 10), Ok(()));
        assert_eq!(last(&map, &[3]), Some(Offset(10)));
        assert_eq!(last(&map, &[9]), None);
        assert_eq!(map.count(), 9);
    }

    #[test]
    fn a_map_is_no_larger_than_its_keys_need_and_takes_at_least_one() {
        assert_eq!(KeyMap::new(&budget(1 << 40, 0.9), 3, SECRET).slots.len(), 6);
        for load_factor in [0.0, f64::NAN, -1.0, 7.0] {
            let mut map = KeyMap::new(&budget(0, load_factor), 3, SECRET);
            assert_eq!(put(&mut map, b"", 0), Ok(()), "{load_factor}");
            assert_eq!(put(&mut map, b"x", 1), Err(Full), "{load_factor}");
            assert_eq!(last(&map, b"x"), None);
            assert_eq!(last(&map, b""), Some(Offset(0)));
        }
    }

    proptest! {
        #[test]
        fn a_map_is_a_map(keys in prop::collection::vec(0u16..300, 0..400), secret: [u64; 2]) {
            let mut map = KeyMap::new(&budget(400, 0.9), 400, HashSecret(secret));
            let mut model = HashMap::new();
            for (offset, key) in keys.iter().enumerate() {
                put(&mut map, &key.to_be_bytes(), offset as i64).unwrap();
                model.insert(*key, Offset(offset as i64));
            }
            for key in 0..300u16 {
                prop_assert_eq!(last(&map, &key.to_be_bytes()), model.get(&key).copied());
            }
        }
    }
}
