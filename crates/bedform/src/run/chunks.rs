//! Decoded chunks that are kept between reads.

use std::sync::Arc;

use bedform_storage::Version;

use crate::cache::{CacheHandle, CacheKey, EntryKind, ObjectKey, Scope};

/// Where a read looks for decoded chunks and keeps those that it decodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkCache<'a> {
    handle: &'a CacheHandle,
    scope: &'a Arc<Scope>,
}

impl<'a> ChunkCache<'a> {
    /// The chunks of the array that `scope` says; nothing if the handle is a bypass.
    pub(crate) fn new(handle: &'a CacheHandle, scope: &'a Arc<Scope>) -> Option<Self> {
        (!handle.is_bypass()).then_some(Self { handle, scope })
    }

    /// The most bytes that can be kept.
    pub(crate) fn limit(&self) -> u64 {
        self.handle.limit()
    }

    /// The chunk at `position` of a version of an object, if it is kept.
    pub(crate) fn get(
        &self,
        object: &ObjectKey,
        version: &Version,
        position: u64,
    ) -> Option<Arc<[u8]>> {
        self.handle.get(&self.key(object, version, position))
    }

    /// Keeps a chunk that was decoded.
    pub(crate) fn put(&self, object: &ObjectKey, version: &Version, position: u64, decoded: &[u8]) {
        let key = self.key(object, version, position);
        self.handle.put(key, decoded.len() as u64, || Arc::<[u8]>::from(decoded));
    }

    fn key(&self, object: &ObjectKey, version: &Version, position: u64) -> CacheKey {
        self.handle.key(EntryKind::Chunk, self.scope, object.clone(), version, position)
    }
}
