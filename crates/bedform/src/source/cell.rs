//! Sources and opened cells: a source opens one cell at a time, and an opened cell locates its
//! chunks.

use std::fmt::Debug;
use std::sync::Arc;

use bedform_format::shard::{Extent, ShardError, ShardIndex};
use bedform_storage::{
    Bell, Object, PendingObject, StorageError, StorageErrorKind, Version, lacks,
};

use crate::error::Result;
use crate::plan::opening::Need;

/// An opener of the objects that hold an array's chunks.
///
/// An object is named by its coordinates in the grid of objects, each of which has
/// [`StoredLayout::per_object`](super::StoredLayout) chunks along each axis.
pub(crate) trait Source: Sync {
    /// Requests the object at `coordinates` from a server without waiting for the answer; `need` is
    /// the part that is read. `None` if there is no server, or nothing to request.
    fn ask(&self, coordinates: &[u64], need: Need, bell: &Arc<Bell>) -> Option<PendingCell> {
        let _ = (coordinates, need, bell);
        None
    }

    /// Opens the object at `coordinates`, or takes the answer of the earlier request `asked`;
    /// `need` is the part that is read. `None` if there is no object: its chunks are fill values.
    /// `waits` is called before a wait for the device.
    ///
    /// # Errors
    /// `Corrupt` by the index or chunk map; those of storage.
    fn open(
        &self,
        coordinates: &[u64],
        need: Need,
        asked: Option<PendingCell>,
        waits: &dyn Fn(),
    ) -> Result<Option<OpenCell>>;

    /// Returns true if a read would find the same at `coordinates` as an earlier read of this
    /// handle: the object with `version`, or none.
    ///
    /// # Errors
    /// As [`Source::open`].
    fn is_still(&self, coordinates: &[u64], version: Option<&Version>) -> Result<bool> {
        let need = Need { chunks: 1, objects: 1 };
        let found = self.open(coordinates, need, None, &|| ())?;
        Ok(found.as_ref().map(|found| found.object.version()) == version)
    }

    /// Returns true if an object that is not yet known is fetched whole when it is opened, because
    /// that is faster than to request its index first. `need` is the part that is read.
    fn comes_whole(&self, need: Need) -> bool {
        let _ = need;
        false
    }

    /// Returns the object's name for messages.
    fn object_name(&self, coordinates: &[u64]) -> String;

    /// Returns the name of the file or store that holds the objects.
    fn place_name(&self) -> String;

    /// Returns true if reading an object makes its bytes, by a callback. The callback always makes
    /// all of them, so that a part of an object costs as much as the whole, and decoded chunks are
    /// worth caching.
    fn makes_chunks(&self) -> bool {
        false
    }

    /// Returns true if the name of an object may still need a path lookup when it is read. False if
    /// all objects are one file, which was looked up when it was opened.
    fn needs_lookups(&self) -> bool {
        true
    }

    /// Returns true if opening an object waits for a server.
    fn is_remote(&self) -> bool {
        false
    }
}

/// A request for an object that is in flight to a server; the answer is `None` if it does not
/// exist.
pub(crate) struct PendingCell {
    pub(crate) answer: PendingObject,
    /// The most bytes that the answer may have.
    pub(crate) bytes: u64,
}

/// An opened object and the locations of its chunks.
#[derive(Clone)]
pub(crate) struct OpenCell {
    pub(crate) object: Arc<dyn Object>,
    pub(crate) locations: ChunkLocations,
    /// The last commit that the object contains; 0 for none.
    pub(crate) contained: u64,
    /// Requests made to find the chunks.
    pub(crate) index_requests: u64,
    /// Bytes read to find the chunks.
    pub(crate) index_bytes: u64,
}

impl OpenCell {
    /// Makes the stand-in for a missing object over whose chunks a cover lies.
    pub(crate) fn absent() -> Self {
        Self {
            object: Arc::new(Absent(Version::default())),
            locations: ChunkLocations::Nowhere,
            contained: 0,
            index_requests: 0,
            index_bytes: 0,
        }
    }
}

/// The stand-in for a missing object. No byte of it is ever read.
#[derive(Debug)]
struct Absent(Version);

impl Object for Absent {
    fn version(&self) -> &Version {
        &self.0
    }

    fn read(&self, _offset: u64, buffer: &mut [u8]) -> std::result::Result<(), StorageError> {
        match buffer.is_empty() {
            true => Ok(()),
            false => Err(StorageError::new(StorageErrorKind::Truncated, "read", "")),
        }
    }

    fn is_current(&self) -> std::result::Result<bool, StorageError> {
        Ok(true)
    }

    lacks!(read_past, read_ahead, request, read_resident, buffered_range, buffered_bytes, kept);
}

/// The rule by which the location of a chunk follows from its position in the object.
#[derive(Debug, Clone)]
pub(crate) enum ChunkLocations {
    /// The object does not exist.
    Nowhere,
    /// The object is one chunk of so many bytes.
    Whole(u64),
    /// The index of a shard holds the locations.
    Index(Arc<ShardIndex>),
    /// A table of the source holds the locations: the chunk map of a foreign file.
    Table(Arc<dyn LocateChunk>),
}

/// A table of chunk locations that a source provides.
pub(crate) trait LocateChunk: Send + Sync + Debug {
    /// Returns the location of the chunk at `position`; `None` if it was never written.
    fn locate(&self, position: u64) -> Option<Location>;
}

/// The location of an encoded chunk in its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// The first part.
    pub(crate) extent: Extent,
    /// The parts that follow it in the encoded chunk, in any places of the object: a few.
    pub(crate) rest: Box<[Extent]>,
    /// A bit for each codec that the chunk was written without.
    pub(crate) skip: u32,
}

impl Location {
    /// Makes the location of a chunk in one part that was written with all codecs.
    pub(crate) fn of(extent: Extent) -> Self {
        Self { extent, rest: Box::default(), skip: 0 }
    }

    /// Returns the bytes of all parts.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts().map(|part| part.length).fold(0, u64::saturating_add)
    }

    /// Returns the parts in their order in the encoded chunk.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Extent> + '_ {
        std::iter::once(self.extent).chain(self.rest.iter().copied())
    }
}

impl ChunkLocations {
    /// Returns the location of the chunk at `position`; `None` if it was never written.
    ///
    /// # Errors
    /// If the index places the chunk outside the object.
    pub(crate) fn locate(
        &self,
        position: u64,
    ) -> std::result::Result<Option<Location>, ShardError> {
        Ok(match self {
            Self::Nowhere => None,
            Self::Whole(length) => Some(Location::of(Extent { offset: 0, length: *length })),
            Self::Index(index) => {
                let position = usize::try_from(position).unwrap_or(usize::MAX);
                index.get(position)?.map(Location::of)
            }
            Self::Table(table) => table.locate(position),
        })
    }
}
