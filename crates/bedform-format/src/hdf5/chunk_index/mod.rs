//! Chunk indexes: the extents of a dataset's chunks.

mod extensible_array;
mod fixed_array;
mod numbering;

use super::btree_v1::{self, TreeKind};
use super::btree_v2;
use super::cursor::Cursor;
use super::error::{Hdf5Error, Result};
use super::layout::{ChunkIndex, ChunkLayout};
use super::object::Dataset;
use super::source::CountedFile;
use numbering::Numbering;

/// A stored chunk of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Position in the chunk grid, axis by axis.
    pub position: &'a [u64],
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Stored length in bytes.
    pub length: u64,
    /// A bit for each filter of the pipeline that was skipped for this chunk.
    pub filter_mask: u32,
}

/// A callback for the chunks of a dataset.
pub type TakeChunk<'a> = &'a mut dyn FnMut(Chunk<'_>) -> std::result::Result<(), Hdf5Error>;

/// The properties of a dataset that its chunk index needs.
struct Indexed<'s, 'r> {
    source: &'s CountedFile<'r>,
    dataset: &'s Dataset,
    layout: &'s ChunkLayout,
    chunk_bytes: u64,
}

/// A decoded element of a chunk index.
struct IndexedChunk {
    address: u64,
    length: u64,
    filter_mask: u32,
}

/// Calls `take` with every chunk that the index of the dataset names.
pub(super) fn for_each(
    source: &CountedFile<'_>,
    dataset: &Dataset,
    layout: &ChunkLayout,
    take: TakeChunk<'_>,
) -> Result {
    let Some(address) = layout.address else { return Ok(()) };
    let chunk_bytes = layout.chunk_bytes().unwrap_or(u64::MAX);
    let indexed = Indexed { source, dataset, layout, chunk_bytes };
    match layout.index {
        ChunkIndex::BTreeV1 => indexed.tree_v1(address, take),
        ChunkIndex::Single { filtered } => {
            let (length, filter_mask) = filtered.unwrap_or((chunk_bytes, 0));
            let position = vec![0; layout.shape.len()];
            indexed.found(&position, &IndexedChunk { address, length, filter_mask }, take)
        }
        ChunkIndex::Implicit => indexed.implicit(address, take),
        ChunkIndex::FixedArray => fixed_array::for_each(&indexed, address, take),
        ChunkIndex::ExtensibleArray => extensible_array::for_each(&indexed, address, take),
        ChunkIndex::BTreeV2 => indexed.tree_v2(address, take),
    }
}

impl Indexed<'_, '_> {
    fn rank(&self) -> usize {
        self.layout.shape.len()
    }

    fn is_filtered(&self) -> bool {
        !self.dataset.filters.is_empty()
    }

    fn found(&self, position: &[u64], entry: &IndexedChunk, take: TakeChunk<'_>) -> Result {
        let offset = self.source.extent_of(entry.address, entry.length)?;
        take(Chunk { position, offset, length: entry.length, filter_mask: entry.filter_mask })
    }

    fn tree_v1(&self, address: u64, take: TakeChunk<'_>) -> Result {
        let offsets = self.rank().saturating_add(1);
        let key_bytes = offsets.saturating_mul(8).saturating_add(8);
        let mut position = vec![0; self.rank()];
        let chunk: Vec<u64> =
            self.layout.shape.iter().copied().chain([self.layout.element_bytes]).collect();
        btree_v1::for_each(
            self.source,
            address,
            (TreeKind::Chunks, &chunk),
            key_bytes,
            &mut |mut key, address| {
                let length = u64::from(key.u32()?);
                let filter_mask = key.u32()?;
                for (slot, size) in position.iter_mut().zip(&self.layout.shape) {
                    // The tree has checked that offsets are multiples of the sizes.
                    *slot = key.u64()?.checked_div(*size).unwrap_or(0);
                }
                self.found(&position, &IndexedChunk { address, length, filter_mask }, take)
            },
        )
    }

    /// Reads the chunks of a dataset of fixed shape without filters, stored contiguously in order.
    fn implicit(&self, address: u64, take: TakeChunk<'_>) -> Result {
        let numbering = Numbering::of(self, false);
        // Checks once, before the loop, that all chunks lie in the file.
        let count = numbering.chunk_count();
        let length = count.and_then(|count| count.checked_mul(self.chunk_bytes));
        self.source.extent_of(address, length.unwrap_or(u64::MAX))?;
        let mut position = vec![0; self.rank()];
        for number in 0..count.unwrap_or(0) {
            self.source.spend(0)?;
            numbering.position_of(number, &mut position);
            if !numbering.is_inside(&position) {
                continue;
            }
            let address = address.saturating_add(number.saturating_mul(self.chunk_bytes));
            let entry = IndexedChunk { address, length: self.chunk_bytes, filter_mask: 0 };
            self.found(&position, &entry, take)?;
        }
        Ok(())
    }

    fn tree_v2(&self, address: u64, take: TakeChunk<'_>) -> Result {
        let mut position = vec![0; self.rank()];
        btree_v2::for_each(self.source, address, &[10, 11], &mut |kind, mut record| {
            let positions_bytes = self.rank().saturating_mul(8);
            let Some(entry_bytes) = record.len().checked_sub(positions_bytes) else {
                return Err(record.corrupt("a B-tree record of another size"));
            };
            let entry = self.entry(&mut record.split(entry_bytes)?, kind == 11)?;
            for slot in &mut position {
                *slot = record.u64()?;
            }
            match entry {
                Some(entry) => self.found(&position, &entry, take),
                None => Ok(()),
            }
        })
    }

    /// Decodes one element, which is all of the cursor; `None` if the chunk was never written.
    fn entry(&self, cursor: &mut Cursor<'_>, is_filtered: bool) -> Result<Option<IndexedChunk>> {
        let start = *cursor;
        let address = cursor.address()?;
        let (length, filter_mask) = if is_filtered {
            let width = cursor.len().checked_sub(4);
            let width = width.ok_or_else(|| start.corrupt("no room for the length of a chunk"))?;
            (cursor.uint(width)?, cursor.u32()?)
        } else {
            (self.chunk_bytes, 0)
        };
        if !cursor.is_empty() {
            return Err(start.corrupt("an element of a chunk index of another size"));
        }
        Ok(address.map(|address| IndexedChunk { address, length, filter_mask }))
    }
}

/// The elements of a chunk index that is an array, taken in order.
struct IndexElements<'i, 's, 'r> {
    indexed: &'i Indexed<'s, 'r>,
    numbering: Numbering,
    element_bytes: usize,
    is_filtered: bool,
    /// Number of the next element.
    next: u64,
    position: Vec<u64>,
}

impl<'i, 's, 'r> IndexElements<'i, 's, 'r> {
    fn new(
        indexed: &'i Indexed<'s, 'r>,
        numbering: Numbering,
        element_bytes: u8,
        is_filtered: bool,
    ) -> Self {
        let position = vec![0; indexed.rank()];
        let element_bytes = element_bytes.into();
        Self { indexed, numbering, element_bytes, is_filtered, next: 0, position }
    }

    /// Takes `count` elements from a cursor; elements beyond the shape of the dataset are dropped.
    fn take_from(&mut self, cursor: &mut Cursor<'_>, count: u64, take: TakeChunk<'_>) -> Result {
        for _ in 0..count {
            let mut element = cursor.split(self.element_bytes)?;
            let entry = self.indexed.entry(&mut element, self.is_filtered)?;
            let number = self.next;
            self.skip(1);
            let Some(entry) = entry else { continue };
            self.numbering.position_of(number, &mut self.position);
            if self.numbering.is_inside(&self.position) {
                self.indexed.found(&self.position, &entry, take)?;
            }
        }
        Ok(())
    }

    fn skip(&mut self, count: u64) {
        self.next = self.next.saturating_add(count);
    }
}

/// Returns the bit of a page in the bitmap of written pages; page 0 is the highest bit of the first
/// byte.
fn is_page_written(bitmap: &[u8], page: u64) -> bool {
    let byte = usize::try_from(page / 8).ok().and_then(|at| bitmap.get(at));
    let mask = 0x80_u8.checked_shr(u32::try_from(page % 8).unwrap_or(0)).unwrap_or(0);
    byte.is_some_and(|byte| byte & mask != 0)
}
