//! Chunk maps of HDF5 files by our own parser, without the library.
//!
//! What the parser does not know, or finds damaged, is left to whoever has the library: it is the judge.

use std::fs::File;
use std::path::Path;

use bedform_format::chunk_map::{ChunkMap, ForeignStorage};
use bedform_format::hdf5::{BLOCK_BYTES, Hdf5File, ReadAt, ReadError, chunk_map};
use bedform_storage::Object;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::source_version;
use crate::options::OpenOptions;

/// A map of so many chunks is kept: to find them again takes longer than to read it.
const KEPT_CHUNKS_MIN: usize = 1 << 14;

struct Reader<'a>(&'a dyn Object);

impl ReadAt for Reader<'_> {
    fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; length];
        self.0.read(offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// The chunk map of the HDF5 file at `path`, which `object` is; nothing if it is for the library to say.
pub(super) fn parse(path: &Path, object: &dyn Object, options: &OpenOptions) -> Option<ChunkMap> {
    // The library holds this lock while it writes. Who cannot have it is told by the library; where the
    // system has no locks it does without, too.
    let file = File::open(path).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK) {
        return None;
    }
    let (reader, limits) = (Reader(object), &options.limits);
    let version = object.version();
    let opened = Hdf5File::open(&reader, version.size, BLOCK_BYTES, limits).ok()?;
    chunk_map(&opened, &source_version(version), limits).ok()
}

/// True if a map that was parsed is worth keeping.
pub(super) fn is_kept(map: &ChunkMap) -> bool {
    let chunks = map.arrays.iter().map(|array| match &array.storage {
        ForeignStorage::Chunked { chunks, .. } => chunks.len(),
        _ => 0,
    });
    chunks.sum::<usize>() >= KEPT_CHUNKS_MIN
}
