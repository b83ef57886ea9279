//! Decoded chunks that are kept between reads.

use std::sync::Arc;

use bedform_storage::Version;

use crate::cache::ByteCache;

/// A decoded chunk: of which opened array, which version of which of its objects, and where in it.
/// Versions alone do not tell objects apart: those of a server that names no bytes may have one size and
/// one time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ChunkKey {
    array: u64,
    coordinates: Arc<[u64]>,
    object: Version,
    position: u64,
}

/// Decoded chunks.
pub(crate) type ChunkCache = ByteCache<ChunkKey, Arc<[u8]>>;

impl ChunkKey {
    /// The key of the chunk at `position` of an object of the array with number `array`, at `coordinates`
    /// in the grid of objects.
    pub(crate) fn new(
        array: u64,
        coordinates: &Arc<[u64]>,
        object: &Version,
        position: u64,
    ) -> Self {
        Self { array, coordinates: coordinates.clone(), object: object.clone(), position }
    }
}
