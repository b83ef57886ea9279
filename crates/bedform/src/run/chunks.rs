//! Decoded chunks in the cache of the process.

use std::sync::Arc;

use bedform_storage::Version;

use crate::cache::{CacheHandle, CacheKey, EntryKind, ObjectKey, Scope};

/// The view of the process's cache in which a read looks up and keeps decoded chunks of one array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkCache<'a> {
    handle: &'a CacheHandle,
    scope: &'a Arc<Scope>,
}

impl<'a> ChunkCache<'a> {
    /// Returns the cached chunks of the array of `scope`; `None` if the handle bypasses the cache.
    pub(crate) fn new(handle: &'a CacheHandle, scope: &'a Arc<Scope>) -> Option<Self> {
        (!handle.is_bypass()).then_some(Self { handle, scope })
    }

    /// Returns the most bytes that the cache keeps for this handle.
    pub(crate) fn limit(&self) -> u64 {
        self.handle.limit()
    }

    /// Returns the chunk at `position` of a version of an object, if the cache has it.
    pub(crate) fn get(
        &self,
        object: &ObjectKey,
        version: &Version,
        position: u64,
    ) -> Option<Arc<[u8]>> {
        self.handle.get(&self.key(object, version, position))
    }

    /// Puts a decoded chunk into the cache.
    pub(crate) fn put(&self, object: &ObjectKey, version: &Version, position: u64, decoded: &[u8]) {
        let key = self.key(object, version, position);
        self.handle.put(key, decoded.len() as u64, || Arc::<[u8]>::from(decoded));
    }

    fn key(&self, object: &ObjectKey, version: &Version, position: u64) -> CacheKey {
        self.handle.key(EntryKind::Chunk, self.scope, object.clone(), version, position)
    }
}
