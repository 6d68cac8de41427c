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

/// Makes hashes unpredictable.
#[derive(Clone, Copy, Debug)]
pub struct HashSecret(pub [u64; 2]);

const SLOT_BYTES: u64 = size_of::<[u64; 3]>() as u64;

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
        KeyMap {
            slots: vec![[0; 3]; usize::try_from(slots).unwrap_or(usize::MAX)],
            entries: 0,
            entries_max: usize::try_from(entries_max).unwrap_or(usize::MAX),
            secret,
        }
    }

    /// Notes that `key` stands at `offset`, which is not lower than where it stood before.
    pub fn put(&mut self, key: &[u8], offset: Offset) -> Result<(), Full> {
        let hash = self.hash(key);
        let at = self.find(hash);
        let Some(slot) = self.slots.get_mut(at) else { return Err(Full) };
        if slot[2] == 0 {
            if self.entries >= self.entries_max {
                return Err(Full);
            }
            self.entries += 1;
        }
        *slot = [hash[0], hash[1], offset.0.wrapping_add(1) as u64];
        Ok(())
    }

    /// Where `key` stands last; `None` if it is not in the map.
    pub fn last_offset(&self, key: &[u8]) -> Option<Offset> {
        let slot = self.slots.get(self.find(self.hash(key)))?;
        (slot[2] != 0).then(|| Offset((slot[2] as i64).wrapping_sub(1)))
    }

    pub fn count(&self) -> usize {
        self.entries
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        let HashSecret([first, second]) = self.secret;
        let mut hasher = SipHasher13::new_with_keys(first, second);
        hasher.write(key);
        let hash = hasher.finish128();
        [hash.h1, hash.h2]
    }

    /// The slot of a hash, or the free one where it belongs.
    fn find(&self, hash: [u64; 2]) -> usize {
        let slots = self.slots.len();
        // The hash as a fraction of the table.
        let home = ((u128::from(hash[0]) * slots as u128) >> 64) as usize;
        let is_here = |slot: &[u64; 3]| slot[2] == 0 || (slot[0] == hash[0] && slot[1] == hash[1]);
        let (before, after) = self.slots.split_at(home);
        match after.iter().position(is_here) {
            Some(at) => home + at,
            None => before.iter().position(is_here).unwrap_or(slots),
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

    #[test]
    fn a_map_takes_as_many_keys_as_its_budget_and_still_moves_known_ones() {
        let mut map = KeyMap::new(&budget(10, 0.9), 1_000, SECRET);
        for key in 0..9u8 {
            assert_eq!(map.put(&[key], Offset(i64::from(key))), Ok(()));
        }
        assert_eq!(map.put(&[9], Offset(9)), Err(Full));
        assert_eq!(map.put(&[3], Offset(10)), Ok(()));
        assert_eq!(map.last_offset(&[3]), Some(Offset(10)));
        assert_eq!(map.last_offset(&[9]), None);
        assert_eq!(map.count(), 9);
    }

    #[test]
    fn a_map_is_no_larger_than_its_keys_need_and_takes_at_least_one() {
        assert_eq!(KeyMap::new(&budget(1 << 40, 0.9), 3, SECRET).slots.len(), 6);
        for load_factor in [0.0, f64::NAN, -1.0, 7.0] {
            let mut map = KeyMap::new(&budget(0, load_factor), 3, SECRET);
            assert_eq!(map.put(b"", Offset(0)), Ok(()), "{load_factor}");
            assert_eq!(map.put(b"x", Offset(1)), Err(Full), "{load_factor}");
            assert_eq!(map.last_offset(b"x"), None);
            assert_eq!(map.last_offset(b""), Some(Offset(0)));
        }
    }

    proptest! {
        #[test]
        fn a_map_is_a_map(keys in prop::collection::vec(0u16..300, 0..400), secret: [u64; 2]) {
            let mut map = KeyMap::new(&budget(400, 0.9), 400, HashSecret(secret));
            let mut model = HashMap::new();
            for (offset, key) in keys.iter().enumerate() {
                map.put(&key.to_be_bytes(), Offset(offset as i64)).unwrap();
                model.insert(*key, Offset(offset as i64));
            }
            for key in 0..300u16 {
                prop_assert_eq!(map.last_offset(&key.to_be_bytes()), model.get(&key).copied());
            }
        }
    }
}
