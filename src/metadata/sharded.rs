use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

/// Enough that a change among 10,000 entries copies some 80, few enough that cloning the map stays a
/// microsecond.
const SHARDS: usize = 128;

/// A copy-on-write map: a clone shares every shard, a change copies only the shard it touches.
///
/// Keys are hashed with std's seeded hasher, because clients choose topic names.
#[derive(Clone, Debug)]
pub(super) struct ShardedMap<K, V> {
    shards: Box<[Arc<HashMap<K, V>>]>,
    hasher: RandomState,
    len: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Default for ShardedMap<K, V> {
    fn default() -> Self {
        let empty = Arc::new(HashMap::new());
        ShardedMap { shards: vec![empty; SHARDS].into(), hasher: RandomState::new(), len: 0 }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> ShardedMap<K, V> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shards.get(self.shard_of(key))?.get(key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        let shard = self.shard_of(&key);
        let added = self.shards.get_mut(shard).map(|shard| Arc::make_mut(shard).insert(key, value).is_none());
        self.len += usize::from(added == Some(true));
    }

    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let shard = self.shard_of(key);
        let shard = self.shards.get_mut(shard)?;
        if !shard.contains_key(key) {
            return None;
        }
        self.len -= 1;
        Arc::make_mut(shard).remove(key)
    }

    /// In no particular order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.shards.iter().flat_map(|shard| shard.values())
    }

    fn shard_of<Q: Hash + ?Sized>(&self, key: &Q) -> usize {
        self.hasher.hash_one(key) as usize % SHARDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut map = ShardedMap::default();
        for number in 0..1_000 {
            map.insert(number, number);
        }
        let before = map.clone();
        map.insert(5, 50);
        map.insert(1_000, 0);
        assert_eq!(map.remove(&6), Some(6));
        assert_eq!(map.remove(&6), None);
        assert_eq!((before.get(&5), before.get(&6), before.len()), (Some(&5), Some(&6), 1_000));
        assert_eq!((map.get(&5), map.get(&6), map.len()), (Some(&50), None, 1_000));
        assert_eq!(map.values().count(), 1_000);
    }
}
