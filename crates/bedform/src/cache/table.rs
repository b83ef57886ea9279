//! The values by their keys, in shards with separate locks.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::key::{BuildPassThrough, CacheKey, EntryKind};

/// The number of shards of the table: more than threads that are likely to contend.
const SHARDS: usize = 32;
/// The most hits that are counted for an entry between two turns in the order of eviction.
const HITS_MAX: u8 = 3;

/// A cached value.
#[derive(Debug, Clone)]
pub(crate) enum CacheValue {
    /// Decoded bytes.
    Bytes(Arc<[u8]>),
    /// A value of any other type.
    Other(Arc<dyn Any + Send + Sync>),
}

/// A type that the cache can keep.
pub(crate) trait Cacheable: Sized {
    /// Wraps the value for the cache.
    fn into_value(self) -> CacheValue;
    /// Unwraps a value of this type; `None` if it has another one.
    fn from_value(value: CacheValue) -> Option<Self>;
}

impl Cacheable for Arc<[u8]> {
    fn into_value(self) -> CacheValue {
        CacheValue::Bytes(self)
    }

    fn from_value(value: CacheValue) -> Option<Self> {
        match value {
            CacheValue::Bytes(bytes) => Some(bytes),
            CacheValue::Other(_) => None,
        }
    }
}

impl<T: Any + Send + Sync> Cacheable for Arc<T> {
    fn into_value(self) -> CacheValue {
        CacheValue::Other(self)
    }

    fn from_value(value: CacheValue) -> Option<Self> {
        match value {
            CacheValue::Bytes(_) => None,
            CacheValue::Other(other) => other.downcast().ok(),
        }
    }
}

/// The shards of all values.
#[derive(Debug)]
pub(super) struct CacheTable {
    shards: [Mutex<Shard>; SHARDS],
}

/// The values whose keys hash to one shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    entries: HashMap<Arc<CacheKey>, CacheEntry, BuildPassThrough>,
    /// Hits and misses by kind.
    lookups: [Lookups; EntryKind::ALL.len()],
}

#[derive(Debug)]
struct CacheEntry {
    value: CacheValue,
    /// Hits since its last turn in the order of eviction.
    hits: u8,
}

/// Lookups of one kind.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lookups {
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl Default for CacheTable {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl CacheTable {
    /// Locks the shard of a key.
    pub(super) fn shard(&self, key: &CacheKey) -> MutexGuard<'_, Shard> {
        // Hash tables use the bits at both ends of a hash, so the middle is free.
        let at = (key.digest() >> 32) as usize % SHARDS;
        lock(&self.shards[at])
    }

    /// Sums the lookups of a kind over all shards.
    pub(super) fn lookups(&self, kind: EntryKind) -> Lookups {
        self.shards.iter().fold(Lookups::default(), |all, shard| {
            let one = lock(shard).lookups[kind as usize];
            Lookups { hits: all.hits + one.hits, misses: all.misses + one.misses }
        })
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // No code panics between two changes that belong together, so a poisoned lock is usable.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    /// Looks up the value of `key`, and counts a hit or a miss.
    pub(super) fn look_up(&mut self, key: &CacheKey) -> Option<CacheValue> {
        let lookups = &mut self.lookups[key.kind() as usize];
        let Some(entry) = self.entries.get_mut(key) else {
            lookups.misses += 1;
            return None;
        };
        lookups.hits += 1;
        entry.hits = HITS_MAX.min(entry.hits + 1);
        Some(entry.value.clone())
    }

    pub(super) fn contains(&self, key: &CacheKey) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn insert(&mut self, key: Arc<CacheKey>, value: CacheValue) {
        self.entries.insert(key, CacheEntry { value, hits: 0 });
    }

    pub(super) fn remove(&mut self, key: &CacheKey) -> Option<CacheValue> {
        self.entries.remove(key).map(|entry| entry.value)
    }

    /// True if an entry had hits since its last turn; forgets one of them, or all.
    pub(super) fn was_asked_for(&mut self, key: &CacheKey, forget_all: bool) -> bool {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.hits > 0) else {
            return false;
        };
        entry.hits = if forget_all { 0 } else { entry.hits - 1 };
        true
    }
}
