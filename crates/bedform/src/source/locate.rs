//! Where the chunks of an opened object lie in it.

use std::sync::Arc;

use bedform_format::shard::{Extent, ShardError, ShardIndex};
use bedform_storage::{Bell, Object, PendingObject, StorageError, StorageErrorKind, Version};

use crate::error::Result;
use crate::log::overlay::Overlay;
use crate::plan::opening::Need;

/// Finds and opens the objects that hold an array's chunks.
pub(crate) trait Source: Sync {
    /// Asks a server for the object at `coordinates` in the grid of objects, `need` of which is read;
    /// nothing where there is no server, or nothing to ask it.
    fn ask(&self, coordinates: &[u64], need: Need, bell: &Arc<Bell>) -> Option<Opening> {
        let _ = (coordinates, need, bell);
        None
    }

    /// Opens the object at `coordinates` in the grid of objects, `need` of which is read, or takes what was
    /// `asked` for; `None` if there is none and nothing is laid over it either, which means that its chunks
    /// are fill values. `waits` is called before a wait for the device.
    fn open(
        &self,
        coordinates: &[u64],
        need: Need,
        asked: Option<Opening>,
        waits: &dyn Fn(),
    ) -> Result<Option<OpenCell>>;

    /// True if an object `need` of which is read, and of which nothing is known, comes as a whole when it
    /// is opened, because that is sooner than to ask for its index first.
    fn comes_whole(&self, need: Need) -> bool {
        let _ = need;
        false
    }

    /// The object's name, for messages.
    fn object_name(&self, coordinates: &[u64]) -> String;

    /// True if opening an object is a wait for a server.
    fn is_remote(&self) -> bool {
        false
    }
}

/// An object that a server was asked for; nothing if it is not there.
pub(crate) struct Opening {
    pub(crate) answer: PendingObject,
    /// Bytes that come along at most.
    pub(crate) bytes: u64,
}

/// An object and the places of its chunks.
pub(crate) struct OpenCell {
    pub(crate) object: Arc<dyn Object>,
    pub(crate) places: ChunkLocations,
    /// Requests made to find the places.
    pub(crate) index_requests: u64,
    /// Bytes read to find the places.
    pub(crate) index_bytes: u64,
    /// What commits that are not settled lay over the object's chunks.
    pub(crate) overlay: Option<Arc<Overlay>>,
}

impl OpenCell {
    /// An object that is not there, of which commits that are not settled have something.
    pub(crate) fn absent(overlay: Arc<Overlay>) -> Self {
        Self {
            object: Arc::new(Absent(Version::default())),
            places: ChunkLocations::Nowhere,
            index_requests: 0,
            index_bytes: 0,
            overlay: Some(overlay),
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
pub(crate) enum ChunkLocations {
    /// The object is not there.
    Nowhere,
    /// The object is the chunk.
    Whole(u64),
    /// An index tells.
    Index(Arc<ShardIndex>),
    /// A foreign file's chunk map tells.
    Map(Arc<dyn ChunkPlaces>),
}

/// A foreign file's chunk map of one array.
pub(crate) trait ChunkPlaces: Send + Sync {
    /// Where the chunk at `position` lies, with a bit for each codec it was written without.
    fn find(&self, position: u64) -> Option<(Extent, u32)>;
}

impl ChunkLocations {
    /// Where the chunk at `position` lies, with a bit for each codec it was written without; `None`
    /// if it was never written.
    ///
    /// # Errors
    /// If it is said to lie outside the object.
    pub(crate) fn find(
        &self,
        position: u64,
    ) -> std::result::Result<Option<(Extent, u32)>, ShardError> {
        Ok(match self {
            Self::Nowhere => None,
            Self::Whole(length) => Some((Extent { offset: 0, length: *length }, 0)),
            Self::Index(index) => {
                let position = usize::try_from(position).unwrap_or(usize::MAX);
                index.get(position)?.map(|extent| (extent, 0))
            }
            Self::Map(map) => map.find(position),
        })
    }
}
