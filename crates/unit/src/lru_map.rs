//! A map that can evict the least recently refreshed entry.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map that keeps the order in which its entries were inserted or refreshed. The map does not
/// limit its size: the owner calls [`LruMap::pop_oldest`].
#[derive(Clone, Debug)]
pub struct LruMap<K, V> {
    entries: HashMap<K, (u64, V)>,
    /// Keys by the value of `count` at their last insertion or refresh.
    order: BTreeMap<u64, K>,
    /// Insertions and refreshes so far; the latest key in `order`.
    count: u64,
}

impl<K, V> Default for LruMap<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), count: 0 }
    }
}

impl<K: Copy + Eq + Hash, V> LruMap<K, V> {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Returns the value without refreshing its entry.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    /// Makes the entry of `key` the newest one and returns its value; inserts `new()` if the key is
    /// absent.
    pub fn refresh_or_insert_with(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        self.count += 1;
        self.order.insert(self.count, key);
        let (heard, value) = self.entries.entry(key).or_insert_with(|| (self.count, new()));
        if *heard != self.count {
            self.order.remove(heard);
            *heard = self.count;
        }
        value
    }

    /// Inserts a value as the newest entry and returns the previous value of `key`.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.remove(&key);
        self.refresh_or_insert_with(key, || value);
        before
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (heard, value) = self.entries.remove(key)?;
        self.order.remove(&heard);
        Some(value)
    }

    /// All entries, the oldest one first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.order.values().filter_map(|key| Some((key, self.get(key)?)))
    }

    pub fn oldest(&self) -> Option<&V> {
        self.order.first_key_value().and_then(|(_, key)| self.get(key))
    }

    pub fn pop_oldest(&mut self) -> Option<(K, V)> {
        let (_, key) = self.order.pop_first()?;
        self.entries.remove(&key).map(|(_, value)| (key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_was_inserted_or_refreshed_longest_ago() {
        let mut bounded = LruMap::default();
        for key in [1, 2, 3] {
            assert_eq!(bounded.insert(key, key * 10), None);
        }
        *bounded.get_mut(&1).unwrap() += 1;
        assert_eq!(bounded.oldest(), Some(&11));
        assert_eq!(bounded.refresh_or_insert_with(1, || 0), &11);
        assert_eq!(bounded.insert(2, 21), Some(20));
        assert_eq!(bounded.refresh_or_insert_with(4, || 40), &40);
        assert_eq!(bounded.remove(&1), Some(11));
        assert_eq!(bounded.remove(&1), None);
        assert_eq!(bounded.iter().collect::<Vec<_>>(), [(&3, &30), (&2, &21), (&4, &40)]);
        let left: Vec<_> = std::iter::from_fn(|| bounded.pop_oldest()).collect();
        assert_eq!(left, [(3, 30), (2, 21), (4, 40)]);
        assert_eq!((bounded.len(), bounded.order.len()), (0, 0));
    }
}
