//! Storage layouts of datasets.

use super::cursor::Cursor;
use super::error::{Hdf5Error, Result};
use super::source::CountedFile;

/// The storage layout of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hdf5Layout {
    /// The elements are in the object header.
    Compact(Vec<u8>),
    /// The elements are in one extent.
    Contiguous {
        /// Offset in the file; `None` if nothing was written.
        offset: Option<u64>,
        /// Length in bytes; `None` if an old file does not store it.
        length: Option<u64>,
    },
    /// The elements are in chunks.
    Chunked(ChunkLayout),
    /// The elements are in other datasets, mostly of other files.
    Virtual,
    /// The elements are in external files that the header names.
    External,
}

/// The chunk shape of a dataset, and the location of its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkLayout {
    /// Shape of a chunk.
    pub shape: Vec<u64>,
    /// Bytes of an element, as stored in the layout.
    pub element_bytes: u64,
    /// True if filters are skipped for partial edge chunks, regardless of their filter mask.
    pub edges_unfiltered: bool,
    /// The kind of the chunk index.
    pub index: ChunkIndex,
    /// Address of the index, or of the chunks if there is no index; `None` if nothing was written.
    pub(super) address: Option<u64>,
}

/// The kind of a dataset's chunk index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkIndex {
    /// A B-tree of version 1.
    BTreeV1,
    /// No index: the dataset has one chunk.
    Single {
        /// Stored length in bytes and filter mask, if the dataset has filters.
        filtered: Option<(u64, u32)>,
    },
    /// No index: all chunks are contiguous, in order.
    Implicit,
    /// An array of fixed length.
    FixedArray,
    /// An array that grows along one axis.
    ExtensibleArray,
    /// A B-tree of version 2.
    BTreeV2,
}

const EDGES_UNFILTERED: u8 = 0x01;
const SINGLE_IS_FILTERED: u8 = 0x02;

impl ChunkLayout {
    /// Returns the length of an unfiltered chunk in bytes; `None` if it exceeds 64 bits.
    pub fn chunk_bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.element_bytes, |bytes, size| bytes.checked_mul(*size))
    }
}

impl Hdf5Layout {
    pub(super) fn decode(source: &CountedFile<'_>, mut cursor: Cursor<'_>) -> Result<Self> {
        let version = cursor.u8()?;
        match version {
            1 | 2 => decode_old(source, cursor),
            3..=5 => decode_new(source, cursor, version),
            _ => Err(Hdf5Error::unknown(format!("version {version} of a layout"))),
        }
    }
}

fn decode_old(source: &CountedFile<'_>, mut cursor: Cursor<'_>) -> Result<Hdf5Layout> {
    let [rank, class] = cursor.array()?;
    cursor.skip(5)?;
    match class {
        0 => {
            cursor.skip(usize::from(rank).saturating_mul(4))?;
            let length = usize::try_from(cursor.u32()?).unwrap_or(usize::MAX);
            Ok(Hdf5Layout::Compact(cursor.take(length)?.to_vec()))
        }
        // The shape follows, in numbers too narrow for long axes; the dataspace has it.
        1 => {
            let address = cursor.address()?;
            let offset = address.map(|address| source.offset_of(address)).transpose()?;
            Ok(Hdf5Layout::Contiguous { offset, length: None })
        }
        2 => {
            let address = cursor.address()?;
            chunks(source, &mut cursor, rank, 4, address)
        }
        _ => Err(cursor.corrupt(format!("layout class {class}"))),
    }
}

fn decode_new(source: &CountedFile<'_>, mut cursor: Cursor<'_>, version: u8) -> Result<Hdf5Layout> {
    match cursor.u8()? {
        0 => {
            let length = cursor.u16()?;
            Ok(Hdf5Layout::Compact(cursor.take(length.into())?.to_vec()))
        }
        1 => {
            let address = cursor.address()?;
            let length = cursor.length()?;
            let offset = address.map(|address| source.extent_of(address, length)).transpose()?;
            Ok(Hdf5Layout::Contiguous { offset, length: Some(length) })
        }
        2 if version == 3 => {
            let rank = cursor.u8()?;
            let address = cursor.address()?;
            chunks(source, &mut cursor, rank, 4, address)
        }
        2 => decode_indexed(source, cursor),
        3 => Ok(Hdf5Layout::Virtual),
        class => Err(cursor.corrupt(format!("layout class {class}"))),
    }
}

/// Reads the shape of chunks, followed by the bytes of an element.
fn chunks(
    source: &CountedFile<'_>,
    cursor: &mut Cursor<'_>,
    rank: u8,
    width: usize,
    address: Option<u64>,
) -> Result<Hdf5Layout> {
    let rank_max = source.limits.rank_max;
    if usize::from(rank) > rank_max.saturating_add(1) {
        return Err(Hdf5Error::limit(format!("chunks of {rank} dimensions, {rank_max} allowed")));
    }
    let start = *cursor;
    let mut shape = (0..rank).map(|_| cursor.uint(width)).collect::<Result<Vec<u64>>>()?;
    let element_bytes = shape.pop().unwrap_or(0);
    if shape.is_empty() || element_bytes == 0 || shape.contains(&0) {
        return Err(start.corrupt("chunks without elements"));
    }
    let index = ChunkIndex::BTreeV1;
    let layout = ChunkLayout { shape, element_bytes, edges_unfiltered: false, index, address };
    if layout.chunk_bytes().is_none() {
        return Err(start.corrupt("chunks of more than 2^64 bytes"));
    }
    Ok(Hdf5Layout::Chunked(layout))
}

/// Decodes the chunked layout of versions 4 and 5, which have several kinds of index.
fn decode_indexed(source: &CountedFile<'_>, mut cursor: Cursor<'_>) -> Result<Hdf5Layout> {
    let [flags, rank, width] = cursor.array()?;
    if flags & !(EDGES_UNFILTERED | SINGLE_IS_FILTERED) != 0 {
        return Err(Hdf5Error::unknown(format!("chunk flags {flags:#x}")));
    }
    let layout = chunks(source, &mut cursor, rank, width.into(), None)?;
    let Hdf5Layout::Chunked(mut layout) = layout else { return Ok(layout) };
    let kind = cursor.u8()?;
    // Further creation parameters are skipped: the header of the index repeats them.
    layout.index = match kind {
        1 if flags & SINGLE_IS_FILTERED != 0 => {
            ChunkIndex::Single { filtered: Some((cursor.length()?, cursor.u32()?)) }
        }
        1 => ChunkIndex::Single { filtered: None },
        2 => ChunkIndex::Implicit,
        3 => {
            cursor.skip(1)?;
            ChunkIndex::FixedArray
        }
        4 => {
            cursor.skip(5)?;
            ChunkIndex::ExtensibleArray
        }
        5 => {
            cursor.skip(6)?;
            ChunkIndex::BTreeV2
        }
        _ => return Err(Hdf5Error::unknown(format!("chunk index {kind}"))),
    };
    layout.edges_unfiltered = flags & EDGES_UNFILTERED != 0;
    layout.address = cursor.address()?;
    Ok(Hdf5Layout::Chunked(layout))
}
