//! The values by their keys, in shards that are locked one by one.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::key::{BuildPassThrough, Key, Kind};

/// Shards of the table: more than the threads that are likely to meet.
const SHARDS: usize = 32;
/// Hits that are counted of an entry since it was looked at last.
const HITS_MAX: u8 = 3;

/// A value that is kept.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// Decoded bytes.
    Bytes(Arc<[u8]>),
    /// A value of any other type.
    Other(Arc<dyn Any + Send + Sync>),
}

/// Types that the cache keeps.
pub(crate) trait Cached: Sized {
    /// The value as the cache has it.
    fn into_value(self) -> Value;
    /// The value of this type; `None` if it is of another one.
    fn from_value(value: Value) -> Option<Self>;
}

impl Cached for Arc<[u8]> {
    fn into_value(self) -> Value {
        Value::Bytes(self)
    }

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Bytes(bytes) => Some(bytes),
            Value::Other(_) => None,
        }
    }
}

impl<T: Any + Send + Sync> Cached for Arc<T> {
    fn into_value(self) -> Value {
        Value::Other(self)
    }

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Bytes(_) => None,
            Value::Other(other) => other.downcast().ok(),
        }
    }
}

/// All values.
#[derive(Debug)]
pub(super) struct Table {
    shards: [Mutex<Shard>; SHARDS],
}

/// The values whose keys hash to one shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    entries: HashMap<Arc<Key>, Entry, BuildPassThrough>,
    /// Lookups by kind: those that found something, and those that did not.
    lookups: [Lookups; Kind::ALL.len()],
}

#[derive(Debug)]
struct Entry {
    value: Value,
    /// Lookups that found it since the order of eviction looked at it last.
    hits: u8,
}

/// Lookups of one kind.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lookups {
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl Default for Table {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Table {
    /// The shard of a key, locked.
    pub(super) fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        // Hash tables take their bits from both ends of a hash: the middle is free.
        let at = (key.digest() >> 32) as usize % SHARDS;
        lock(&self.shards[at])
    }

    /// Lookups of a kind, of all shards.
    pub(super) fn lookups(&self, kind: Kind) -> Lookups {
        self.shards.iter().fold(Lookups::default(), |all, shard| {
            let one = lock(shard).lookups[kind as usize];
            Lookups { hits: all.hits + one.hits, misses: all.misses + one.misses }
        })
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // No code panics between two changes that belong together.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    /// The value of `key`, which counts as asked for.
    pub(super) fn look_up(&mut self, key: &Key) -> Option<Value> {
        let lookups = &mut self.lookups[key.kind() as usize];
        let Some(entry) = self.entries.get_mut(key) else {
            lookups.misses += 1;
            return None;
        };
        lookups.hits += 1;
        entry.hits = HITS_MAX.min(entry.hits + 1);
        Some(entry.value.clone())
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.entries.contains_key(key)
    }

    pub(super) fn insert(&mut self, key: Arc<Key>, value: Value) {
        self.entries.insert(key, Entry { value, hits: 0 });
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Value> {
        self.entries.remove(key).map(|entry| entry.value)
    }

    /// True if lookups found an entry since it was looked at last; one of them is forgotten, or all.
    pub(super) fn was_asked_for(&mut self, key: &Key, forget_all: bool) -> bool {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.hits > 0) else {
            return false;
        };
        entry.hits = if forget_all { 0 } else { entry.hits - 1 };
        true
    }
}
