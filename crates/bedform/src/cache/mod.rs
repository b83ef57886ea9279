//! The cache of the process: decoded chunks, indexes and parts of logs, for all stores, files and
//! handles.
//!
//! Promises:
//!
//! - **One budget.** Kept bytes and reserved bytes together never exceed the budget of the process.
//!   It is set by [`set_cache_budget`], else by the variable `BEDFORM_CACHE`, else it is the
//!   largest cap that a handle of this process has asked for. So a process with one store takes no
//!   more than its `cache=`, and a hundred stores share that. (A part of the machine's memory would
//!   be another number in every container, and never the one that the user typed.)
//! - **Two engines, one budget.** A process with the connector of HDF5 may have two copies of this
//!   library. Each then takes half of the budget.
//! - **Shared.** A handle finds entries that other handles of the same place have kept. Keys
//!   contain everything that decides a value: kind, place and credentials, object, version,
//!   position, decoding. An object whose version does not identify it is found only by the handle
//!   that kept it.
//! - **Never stale.** An object that was changed within a clock step of its file system is not
//!   kept: its next version could have the same time, size and number.
//! - **Caps.** A handle is charged for the entries that it keeps. Above its cap its own entries are
//!   evicted. A cap of 0 is a bypass: the handle neither reads nor writes the cache.
//! - **A floor for indexes.** Data evict no shard index, log directory or log table while these
//!   have no more than an eighth of the budget.
//! - **Scan resistance.** A scan evicts no entry that is in use. See `policy`.
//! - **Forks.** A child makes its own cache and waits for no lock of its parent's. See
//!   `threads::per_process`.
//!
//! How it works: the table of values is divided into shards, each with a lock; a lookup takes only
//! that lock and allocates nothing. The order of eviction and all accounts are under one more lock.
//! It is taken only to keep or to evict an entry, after a read and decoding that take much longer.
//!
//! | module | holds |
//! |---|---|
//! | `key` | keys |
//! | `table` | values by key, in shards |
//! | `policy`, `list` | the order of eviction, floors, caps, accounts |

mod key;
mod list;
mod policy;
mod table;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::size;
use bedform_storage::Version;

pub(crate) use key::{
    CacheKey, EntryKind, ObjectKey, PlaceId, Scope, clock_step, is_coarsely_young, is_young,
    was_too_young,
};
pub(crate) use table::Cacheable;

use crate::error::{Error, Result};
use crate::threads::per_process::PerProcess;
use policy::{Policy, RoomRequest};
use table::{CacheTable, CacheValue};

/// Bytes of an entry in addition to its value: its key, its places in the table and in the order of
/// eviction, its ghost. Callers do not count them.
pub(crate) const ENTRY_BYTES: u64 = 512;

/// The cache of this process.
static PROCESS: PerProcess<Cache> = PerProcess::new();

/// Returns the cache of this process, and makes it at the first call. A child's begins empty, with
/// its parent's budget.
fn of_process() -> &'static Cache {
    PROCESS.get(|parent| match parent {
        Some(parent) => Cache { budget: parent.budget.copy(), ..Cache::default() },
        None => Cache::default(),
    })
}

/// Sets the budget of the process in bytes. Entries above it are evicted at once. Without a call
/// the budget is that of the variable `BEDFORM_CACHE` when the first store was opened, else the
/// largest cap that a handle has asked for.
///
/// ```
/// bedform::set_cache_budget(1 << 20);
/// assert_eq!(bedform::cache_statistics().budget, 1 << 20);
/// ```
pub fn set_cache_budget(bytes: u64) {
    of_process().set_budget(bytes);
}

/// The variable with the budget of the process, a size.
const VARIABLE: &str = "BEDFORM_CACHE";

/// Takes the budget from `BEDFORM_CACHE`, unless one was set before.
///
/// # Errors
/// `InvalidArgument` if the variable is not a size.
pub(crate) fn take_budget_of_environment() -> Result<()> {
    let Some(text) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let bytes = size::parse(&text.to_string_lossy())
        .map_err(|error| Error::invalid(format!("{VARIABLE}: {error}")))?;
    of_process().set_first_budget(bytes);
    Ok(())
}

/// True if HDF5 in this process loads the connector, which has an engine of its own.
fn has_connector() -> bool {
    std::env::var_os("HDF5_VOL_CONNECTOR")
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"bedform"))
}

/// Counts the entries of this process's cache, its hits and its misses.
pub fn cache_statistics() -> CacheStatistics {
    of_process().statistics()
}

/// Counts of a cache's entries, hits and misses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// The most bytes that may be kept.
    pub budget: u64,
    /// Bytes that are kept, or reserved for values in preparation.
    pub bytes: u64,
    /// The most that `bytes` ever was.
    pub bytes_peak: u64,
    /// By kind of entry.
    pub kinds: Vec<KindStatistics>,
}

/// Counts of one kind of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindStatistics {
    /// The kind's name: `"chunks"`, `"shard indexes"`.
    pub kind: &'static str,
    /// Entries that are kept.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Lookups that found an entry.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
}

/// A cache with a budget.
#[derive(Debug, Default)]
struct Cache {
    table: CacheTable,
    policy: Mutex<Policy>,
    budget: CacheBudget,
}

/// The budget of a cache, in bytes.
#[derive(Debug)]
struct CacheBudget {
    /// The budget that the user has set; `u64::MAX` if none.
    set: AtomicU64,
    /// The largest cap of a handle so far.
    largest_cap: AtomicU64,
    /// True if another copy of this library has the other half.
    is_halved: AtomicBool,
}

impl Default for CacheBudget {
    fn default() -> Self {
        let (set, largest_cap) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Self { set, largest_cap, is_halved: AtomicBool::new(false) }
    }
}

impl CacheBudget {
    fn bytes(&self) -> u64 {
        let whole = match self.set.load(Ordering::Relaxed) {
            u64::MAX => self.largest_cap.load(Ordering::Relaxed),
            bytes => bytes,
        };
        whole >> u32::from(self.is_halved.load(Ordering::Relaxed))
    }

    fn copy(&self) -> Self {
        let copy = |value: &AtomicU64| AtomicU64::new(value.load(Ordering::Relaxed));
        let is_halved = AtomicBool::new(self.is_halved.load(Ordering::Relaxed));
        Self { set: copy(&self.set), largest_cap: copy(&self.largest_cap), is_halved }
    }
}

/// Room that is reserved for a value, and released on drop unless the value is kept.
struct CacheReservation<'c> {
    cache: &'c Cache,
    request: RoomRequest,
}

impl Drop for CacheReservation<'_> {
    fn drop(&mut self) {
        self.cache.policy().release(self.request);
    }
}

impl Cache {
    fn policy(&self) -> MutexGuard<'_, Policy> {
        // No code panics between two changes that belong together, so a poisoned lock is usable.
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_budget(&self, bytes: u64) {
        // The largest number means that no budget is set; no machine has that much memory.
        self.budget.set.store(bytes.min(u64::MAX - 1), Ordering::Relaxed);
        let mut freed = Vec::new();
        self.policy().shrink(&self.table, bytes, &mut freed);
    }

    /// As [`Cache::set_budget`], unless one was set before.
    fn set_first_budget(&self, bytes: u64) {
        let set = &self.budget.set;
        let bytes = bytes.min(u64::MAX - 1);
        if set.compare_exchange(u64::MAX, bytes, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.set_budget(bytes);
        }
    }

    fn look_up(&self, key: &CacheKey) -> Option<CacheValue> {
        self.table.shard(key).look_up(key)
    }

    /// Reserves room, and keeps the value that `make` returns.
    fn keep(&self, request: RoomRequest, key: CacheKey, make: impl FnOnce() -> CacheValue) {
        if self.table.shard(&key).contains(&key) {
            return;
        }
        let Some(reservation) = self.reserve(request) else { return };
        let (key, value) = (Arc::new(key), make());
        let mut policy = self.policy();
        let unused = policy.keep(&self.table, request, self.budget.bytes(), key, value);
        drop(policy);
        // The policy has taken over the reserved room.
        std::mem::forget(reservation);
        drop(unused);
    }

    fn reserve(&self, request: RoomRequest) -> Option<CacheReservation<'_>> {
        let mut freed = Vec::new();
        let mut policy = self.policy();
        // The budget is read under the lock, because a thread that lowers it takes the lock
        // afterwards.
        let budget = self.budget.bytes();
        let is_reserved = policy.reserve(&self.table, request, budget, &mut freed);
        // Evicted values are dropped outside of the lock, before the new value allocates.
        drop(policy);
        drop(freed);
        is_reserved.then(|| CacheReservation { cache: self, request })
    }

    fn statistics(&self) -> CacheStatistics {
        let policy = self.policy();
        let kinds = EntryKind::ALL.map(|kind| {
            let (account, lookups) = (policy.kind(kind), self.table.lookups(kind));
            KindStatistics {
                kind: kind.name(),
                entries: account.entries,
                bytes: account.bytes,
                hits: lookups.hits,
                misses: lookups.misses,
            }
        });
        CacheStatistics {
            budget: self.budget.bytes(),
            bytes: policy.used(),
            bytes_peak: policy.peak(),
            kinds: kinds.into(),
        }
    }
}

/// The use of the process's cache by one opened store or file.
#[derive(Debug)]
pub(crate) struct CacheHandle {
    /// A number that differs among handles of a process and of its children.
    id: u64,
    cap: u64,
    place: Option<PlaceId>,
    /// A cache other than that of the process, for tests.
    other: Option<Arc<Cache>>,
}

impl CacheHandle {
    /// Makes a handle that keeps at most `cap` bytes; 0 is a bypass. It shares entries with handles
    /// of the same place, or with none if the place has no identity.
    pub(crate) fn new(cap: u64, place: Option<PlaceId>) -> Self {
        Self::in_cache(None, cap, place)
    }

    fn in_cache(other: Option<Arc<Cache>>, cap: u64, place: Option<PlaceId>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let handle = Self { id: NEXT.fetch_add(1, Ordering::Relaxed), cap, place, other };
        if !handle.is_bypass() {
            let budget = &handle.cache().budget;
            budget.largest_cap.fetch_max(cap, Ordering::Relaxed);
            budget.is_halved.store(has_connector(), Ordering::Relaxed);
        }
        handle
    }

    /// Makes another handle of the same place.
    pub(crate) fn with_cap(&self, cap: u64) -> Self {
        Self::in_cache(self.other.clone(), cap, self.place.clone())
    }

    /// The most bytes that the handle may keep.
    pub(crate) fn cap(&self) -> u64 {
        self.cap
    }

    /// True if the handle neither reads nor writes the cache.
    pub(crate) fn is_bypass(&self) -> bool {
        self.cap == 0
    }

    /// The most bytes that the handle can keep: its cap, or the budget where that is less.
    pub(crate) fn limit(&self) -> u64 {
        if self.is_bypass() { 0 } else { self.cap.min(self.cache().budget.bytes()) }
    }

    /// The scope of objects at or below `path`; see [`Scope::new`].
    pub(crate) fn scope(&self, path: &str, decoding: u64) -> Arc<Scope> {
        Scope::new(self.place.as_ref(), path, decoding)
    }

    /// The key of the entry at `position` of one version of an object. It is the same in other
    /// handles of the place, unless the version does not identify the object.
    pub(crate) fn key(
        &self,
        kind: EntryKind,
        scope: &Arc<Scope>,
        object: ObjectKey,
        version: &Version,
        position: u64,
    ) -> CacheKey {
        let is_shared = scope.is_shared() && key::tells_apart(version);
        let handle = if is_shared { 0 } else { self.id };
        CacheKey::new(handle, kind, scope, object, version, position)
    }

    /// The key of an entry of an immutable object, which its name identifies.
    pub(crate) fn key_of_immutable(
        &self,
        kind: EntryKind,
        scope: &Arc<Scope>,
        object: ObjectKey,
        position: u64,
    ) -> CacheKey {
        let handle = if scope.is_shared() { 0 } else { self.id };
        CacheKey::new(handle, kind, scope, object, &Version::default(), position)
    }

    /// The key of an entry that no other handle may see.
    pub(crate) fn own_key(
        &self,
        kind: EntryKind,
        scope: &Arc<Scope>,
        object: ObjectKey,
        position: u64,
    ) -> CacheKey {
        CacheKey::new(self.id, kind, scope, object, &Version::default(), position)
    }

    /// Returns the value of a key, if it is kept. Allocates nothing.
    pub(crate) fn get<V: Cacheable>(&self, key: &CacheKey) -> Option<V> {
        if self.is_bypass() {
            return None;
        }
        V::from_value(self.cache().look_up(key)?)
    }

    /// Keeps the value that `make` returns, of `bytes` bytes, if there is room or room can be made.
    /// `make` is not called without room, for a key that is kept already, or for an object that was
    /// changed just now.
    pub(crate) fn put<V: Cacheable>(&self, key: CacheKey, bytes: u64, make: impl FnOnce() -> V) {
        let bytes = bytes.saturating_add(ENTRY_BYTES);
        if bytes > self.cap || key.is_too_young() {
            return;
        }
        let request = RoomRequest { handle: self.id, cap: self.cap, kind: key.kind(), bytes };
        self.cache().keep(request, key, || make().into_value());
    }

    /// Evicts the entries that no other handle may see.
    pub(crate) fn forget_own(&self) {
        let (cache, mut freed) = (self.cache(), Vec::new());
        cache.policy().evict_own(&cache.table, self.id, &mut freed);
    }

    fn cache(&self) -> &Cache {
        self.other.as_deref().unwrap_or_else(|| of_process())
    }
}

impl Drop for CacheHandle {
    fn drop(&mut self) {
        if self.is_bypass() {
            return;
        }
        // A child that has used no cache has no entries of its parent's handles to evict.
        let Some(cache) = self.other.as_deref().or_else(|| PROCESS.existing()) else { return };
        let mut freed = Vec::new();
        cache.policy().close(&cache.table, self.id, &mut freed);
    }
}
