//! What a store keeps in memory between reads, each within a bound in bytes.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Values by key, bounded by the bytes that they are said to take; the least recently used go first.
#[derive(Debug)]
pub(crate) struct ByteCache<K, V> {
    limit: u64,
    state: Mutex<State<K, V>>,
}

#[derive(Debug)]
struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Keys by the time of their last use.
    ages: BTreeMap<u64, K>,
    clock: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: u64,
    used: u64,
}

impl<K: Eq + Hash + Clone, V: Clone> ByteCache<K, V> {
    /// A cache of at most `limit` bytes; 0 keeps nothing.
    pub(crate) fn new(limit: u64) -> Self {
        let state = State { entries: HashMap::new(), ages: BTreeMap::new(), clock: 0, bytes: 0 };
        Self { limit, state: Mutex::new(state) }
    }

    /// The bound in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        // No code of ours panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of `key`, if it is kept and `valid` says that it still holds; else it goes.
    pub(crate) fn get(&self, key: &K, valid: impl FnOnce(&V) -> bool) -> Option<V> {
        if self.limit == 0 {
            return None;
        }
        let mut state = self.lock();
        if !valid(&state.entries.get(key)?.value) {
            state.remove(key);
            return None;
        }
        state.clock += 1;
        let now = state.clock;
        let entry = state.entries.get_mut(key)?;
        let value = entry.value.clone();
        let before = std::mem::replace(&mut entry.used, now);
        state.ages.remove(&before);
        state.ages.insert(now, key.clone());
        Some(value)
    }

    /// Lets go of all.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.entries.clear();
        state.ages.clear();
        state.bytes = 0;
    }

    /// Keeps `value`, which takes `bytes`, and lets go of others as needed.
    pub(crate) fn put(&self, key: K, value: V, bytes: u64) {
        if bytes > self.limit {
            return;
        }
        let mut state = self.lock();
        state.remove(&key);
        while state.bytes + bytes > self.limit {
            let Some((_, oldest)) = state.ages.pop_first() else { break };
            state.remove(&oldest);
        }
        state.clock += 1;
        let used = state.clock;
        state.ages.insert(used, key.clone());
        state.entries.insert(key, Entry { value, bytes, used });
        state.bytes += bytes;
    }
}

impl<K: Eq + Hash, V> State<K, V> {
    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
            self.ages.remove(&entry.used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_go_first() {
        let cache = ByteCache::new(3);
        for key in 0..3 {
            cache.put(key, key * 10, 1);
        }
        assert_eq!(cache.get(&0, |_| true), Some(0));
        cache.put(3, 30, 1);
        assert_eq!(cache.get(&1, |_| true), None);
        assert_eq!(cache.get(&0, |_| true), Some(0));
        cache.put(4, 40, 2);
        assert_eq!((cache.get(&2, |_| true), cache.get(&3, |_| true)), (None, None));
        assert_eq!(cache.lock().bytes, 3);
    }

    #[test]
    fn what_no_longer_holds_is_let_go() {
        let cache = ByteCache::new(10);
        cache.put("a", 1, 4);
        assert_eq!(cache.get(&"a", |value| *value == 2), None);
        assert_eq!(cache.lock().bytes, 0);
        cache.put("b", 1, 11);
        assert_eq!(cache.get(&"b", |_| true), None);
        assert_eq!(ByteCache::<u8, u8>::new(0).get(&1, |_| true), None);
        cache.put("c", 1, 9);
        cache.clear();
        cache.put("d", 1, 10);
        assert_eq!((cache.get(&"c", |_| true), cache.get(&"d", |_| true)), (None, Some(1)));
    }
}
