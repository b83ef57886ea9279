//! The places of the chunks of one variable in its file.

use std::sync::Arc;

use bedform_format::chunk_map::{ChunkMap, ChunkTable, ForeignStorage};
use bedform_format::shard::Extent;
use bedform_storage::Object;

use crate::source::{ChunkLocations, LocateChunk, Location, OpenCell};

/// The places of the chunks of one variable.
#[derive(Debug)]
enum VariableChunks {
    /// One chunk: its offset and length in bytes.
    Whole(u64, u64),
    /// One chunk for each record: the offset of the first, their distance, their length, in bytes.
    Records(u64, u64, u64),
    Table(TableHandle),
}

/// The chunk table of a variable.
#[derive(Debug)]
pub(super) enum TableHandle {
    Own(Arc<ChunkTable>),
    /// The table of a variable of a chunk map, by its position there.
    OfMap(Arc<ChunkMap>, usize),
}

impl TableHandle {
    fn get(&self) -> Option<&ChunkTable> {
        match self {
            Self::Own(table) => Some(table),
            Self::OfMap(map, position) => match &map.arrays[*position].storage {
                ForeignStorage::Chunked { chunks, .. } => Some(chunks),
                _ => None,
            },
        }
    }
}

/// Returns the cell that a variable of the given storage is in its file, which is `object`.
/// `begins` is the offset of its bytes if `storage` lacks it; `table` is called for a variable with
/// chunks.
pub(super) fn cell_of(
    object: Arc<dyn Object>,
    storage: &ForeignStorage,
    begins: Option<u64>,
    table: impl FnOnce() -> TableHandle,
) -> OpenCell {
    let at = |offset: u64| begins.unwrap_or(offset);
    let chunks = match storage {
        ForeignStorage::Contiguous { offset, length } => {
            VariableChunks::Whole(at(*offset), *length)
        }
        ForeignStorage::Compact { .. } => VariableChunks::Whole(0, object.version().size),
        ForeignStorage::Records { offset, stride, length } => {
            VariableChunks::Records(at(*offset), *stride, *length)
        }
        _ => VariableChunks::Table(table()),
    };
    OpenCell {
        object,
        locations: ChunkLocations::Table(Arc::new(chunks)),
        contained: 0,
        index_requests: 0,
        index_bytes: 0,
    }
}

impl LocateChunk for VariableChunks {
    fn locate(&self, position: u64) -> Option<Location> {
        let at = |offset, length| Location::of(Extent { offset, length });
        match self {
            Self::Whole(offset, length) => Some(at(*offset, *length)),
            Self::Records(offset, stride, length) => {
                Some(at(offset.checked_add(stride.checked_mul(position)?)?, *length))
            }
            Self::Table(table) => {
                let entry = table.get()?.find(position)?;
                Some(Location { skip: entry.filter_mask, ..at(entry.offset, entry.length) })
            }
        }
    }
}
