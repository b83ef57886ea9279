//! A source opens one cell at a time, and an opened cell says where its chunks lie.

use std::fmt::Debug;
use std::sync::Arc;

use bedform_format::shard::{Extent, ShardError, ShardIndex};
use bedform_storage::{Bell, Object, PendingObject, StorageError, StorageErrorKind, Version};

use crate::error::Result;
use crate::plan::opening::Need;

/// Finds and opens the objects that hold an array's chunks.
///
/// Objects are named by their coordinates in the grid of objects, which
/// [`StoredLayout::per_object`](super::StoredLayout) cuts the grid of chunks into.
pub(crate) trait Source: Sync {
    /// Asks a server for the object at `coordinates`, `need` of which is read, without waiting for the
    /// answer; nothing where there is no server, or nothing to ask it.
    fn ask(&self, coordinates: &[u64], need: Need, bell: &Arc<Bell>) -> Option<PendingCell> {
        let _ = (coordinates, need, bell);
        None
    }

    /// Opens the object at `coordinates`, `need` of which is read, or takes what was `asked` for; `None`
    /// if there is none: its chunks are fill values. `waits` is called before a wait for the device.
    ///
    /// # Errors
    /// `Corrupt` by what says where its chunks lie; those of storage.
    fn open(
        &self,
        coordinates: &[u64],
        need: Need,
        asked: Option<PendingCell>,
        waits: &dyn Fn(),
    ) -> Result<Option<OpenCell>>;

    /// True if a read would find at `coordinates` what another one of this handle has found: the object with
    /// `version`, or none.
    ///
    /// # Errors
    /// As [`Source::open`].
    fn is_still(&self, coordinates: &[u64], version: Option<&Version>) -> Result<bool> {
        let need = Need { chunks: 1, objects: 1 };
        let found = self.open(coordinates, need, None, &|| ())?;
        Ok(found.as_ref().map(|found| found.object.version()) == version)
    }

    /// True if an object `need` of which is read, and of which nothing is known, comes as a whole when it
    /// is opened, because that is sooner than to ask for its index first.
    fn comes_whole(&self, need: Need) -> bool {
        let _ = need;
        false
    }

    /// The object's name, for messages.
    fn object_name(&self, coordinates: &[u64]) -> String;

    /// True if reading an object makes its bytes, by a callback: all of them each time, so that a part of
    /// an object costs as much as the whole, and what was read is worth keeping.
    fn makes_chunks(&self) -> bool {
        false
    }

    /// True if the name of an object may still have to be looked for when it is read; false where all objects are
    /// one file, which was found when it was opened.
    fn has_names(&self) -> bool {
        true
    }

    /// True if opening an object is a wait for a server.
    fn is_remote(&self) -> bool {
        false
    }
}

/// An object that a server was asked for; nothing if it is not there.
pub(crate) struct PendingCell {
    pub(crate) answer: PendingObject,
    /// Bytes that come along at most.
    pub(crate) bytes: u64,
}

/// An object and the places of its chunks.
#[derive(Clone)]
pub(crate) struct OpenCell {
    pub(crate) object: Arc<dyn Object>,
    pub(crate) locations: ChunkLocations,
    /// The last commit that the object contains; 0 for none.
    pub(crate) contained: u64,
    /// Requests made to find the places.
    pub(crate) index_requests: u64,
    /// Bytes read to find the places.
    pub(crate) index_bytes: u64,
}

impl OpenCell {
    /// What stands for an object that is not there, where something lies over its chunks.
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

/// What stands for an object that is not there. Nothing of it is ever read.
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

    bedform_storage::lacks!(read_past, read_ahead, ask, read_resident, at_hand, known, kept);
}

/// How the place of a chunk follows from its position in the object.
#[derive(Debug, Clone)]
pub(crate) enum ChunkLocations {
    /// The object is not there.
    Nowhere,
    /// The object is the chunk, of so many bytes.
    Whole(u64),
    /// The index of a shard tells.
    Index(Arc<ShardIndex>),
    /// A table of the source's own tells: the chunk map of a foreign file.
    Table(Arc<dyn LocateChunk>),
}

/// A source's own table of chunks.
pub(crate) trait LocateChunk: Send + Sync + Debug {
    /// Where the chunk at `position` lies; `None` if it was never written.
    fn locate(&self, position: u64) -> Option<Location>;
}

/// Where an encoded chunk lies in its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// Its first part.
    pub(crate) extent: Extent,
    /// The parts that follow it in the encoded chunk, wherever they lie in the object: a few.
    pub(crate) rest: Box<[Extent]>,
    /// A bit for each codec that the chunk was written without.
    pub(crate) skip: u32,
}

impl Location {
    /// A chunk in one part that all codecs have worked on.
    pub(crate) fn of(extent: Extent) -> Self {
        Self { extent, rest: Box::default(), skip: 0 }
    }

    /// Bytes of all parts.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts().map(|part| part.length).fold(0, u64::saturating_add)
    }

    /// The parts in their order in the encoded chunk.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Extent> + '_ {
        std::iter::once(self.extent).chain(self.rest.iter().copied())
    }
}

impl ChunkLocations {
    /// Where the chunk at `position` lies; `None` if it was never written.
    ///
    /// # Errors
    /// If it is said to lie outside the object.
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
