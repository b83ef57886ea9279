//! Level two of an index: the array with the number of the bin of each element, read block by block,
//! and the elements of the outermost bins, read page by page.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_format::checksum::crc32c;
use bedform_format::index::IndexRecord;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{ChunkGrid, Region};
use bedform_storage::Mode;

use super::level_one::{TailPlace, read_box, reading};
use super::record::{BINS, directory_of};
use crate::error::{Error, Result};
use crate::opening::storage_in_sidecar;
use crate::options::OpenOptions;
use crate::sidecar::Sidecar;
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::state::{ArrayState, load};

/// The array of the numbers, in its group.
pub(crate) const NUMBERS: &str = "numbers";
/// The arrays with a row for each page: positions of the elements of its tails, and their values.
pub(crate) const TAIL_NAMES: [&str; 2] = ["tail_positions", "tail_values"];
/// The type of the positions: places in the C order of a block.
pub(crate) const POSITION_TYPE: DataType = DataType::UInt16;
/// A page has room for the tails of one of so many elements.
const TAIL_SHARE: u64 = 32;
const POSITION_BYTES: usize = size_of::<u16>();
/// The most bytes of tails in memory; one page more drops them all.
const TAILS_BYTES_MAX: usize = 64 << 20;

/// The opened level two of an index.
#[derive(Debug)]
pub(crate) struct LevelTwo {
    hierarchy: Hierarchy,
    path: ObjectPath,
    state: ArrayState,
    tails: Option<TailArrays>,
}

/// The arrays of the tails.
#[derive(Debug)]
struct TailArrays {
    positions: (ObjectPath, ArrayState),
    values: (ObjectPath, ArrayState),
    pages: Mutex<HashMap<Vec<u64>, Option<Arc<BlockTails>>>>,
}

/// The elements in the outermost bins of some blocks, block by block: 16-bit positions in the C
/// order of the block, ascending, and values, both in the machine's byte order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BlockTails {
    pub(crate) positions: Vec<u8>,
    pub(crate) values: Vec<u8>,
}

/// Returns the most elements of the tails of a page: a small share of its elements. A page with more
/// of them has no tails.
pub(crate) fn tail_room(paged: &ChunkGrid, blocks: &ChunkGrid) -> u64 {
    let lengths = paged.chunk_shape().iter().chain(blocks.chunk_shape());
    let elements = lengths.fold(1, |all: u64, length| all.saturating_mul(*length));
    elements.div_ceil(TAIL_SHARE)
}

impl BlockTails {
    /// The number of elements.
    pub(crate) fn len(&self) -> u64 {
        (self.positions.len() / POSITION_BYTES) as u64
    }

    /// The checksum of the tail of a block; 0 without elements.
    pub(crate) fn checksum(&self) -> u32 {
        if self.positions.is_empty() { 0 } else { crc32c(&self.positions) ^ crc32c(&self.values) }
    }

    /// Some of the elements; `None` if it has fewer.
    fn part(&self, elements: &Range<usize>) -> Option<Self> {
        let all = (self.positions.len() / POSITION_BYTES).max(1);
        let part = |bytes: &[u8]| {
            let size = bytes.len() / all;
            Some(bytes.get(elements.start * size..elements.end * size)?.to_vec())
        };
        Some(Self { positions: part(&self.positions)?, values: part(&self.values)? })
    }
}

impl LevelTwo {
    /// Opens the level two that a record names, of an array of this type. `paged` are its pages in
    /// units of blocks.
    ///
    /// # Errors
    /// Those of opening it; `Corrupt` if it does not fit the record.
    pub(crate) fn open(
        sidecar: &Sidecar,
        record: &IndexRecord,
        data_type: DataType,
        paged: &ChunkGrid,
        options: &OpenOptions,
    ) -> Result<Self> {
        let options = reading(options);
        let place = format!("{}/{BINS}/{}", directory_of(&record.array), record.bins);
        let storage = storage_in_sidecar(sidecar, &place, Mode::ReadOnly, &options)?;
        let hierarchy = Hierarchy::new(storage, options, |_, _| Ok(None));
        let opened = |name: &str, of: DataType, rank: usize| {
            let path = ObjectPath::parse(name)?;
            let state = load(&hierarchy, &path)?;
            let is_right = state.metadata.data_type == of && state.metadata.shape.len() == rank;
            match is_right {
                true => Ok((path, state)),
                false => Err(Error::corrupt(&*place, "it is not the level two of its record")),
            }
        };
        let rank = record.array_shape.len();
        let tails = match record.tails {
            false => None,
            true => {
                let [positions, values] = TAIL_NAMES;
                let positions = opened(positions, POSITION_TYPE, rank + 1)?;
                let values = opened(values, data_type, rank + 1)?;
                let pages = paged.grid_shape();
                let fits = [&positions, &values].iter().all(|(_, state)| {
                    let shape = &state.metadata.shape;
                    pages.iter().zip(shape).all(|(pages, length)| pages <= length)
                });
                fits.then_some(TailArrays { positions, values, pages: Mutex::default() })
            }
        };
        let (path, state) = opened(NUMBERS, DataType::UInt8, rank)?;
        Ok(Self { hierarchy, path, state, tails })
    }

    /// Reads the numbers of the elements of a block, in C order; `None` if they do not have the
    /// checksum, or cannot be read.
    pub(crate) fn numbers(&self, block: Region, checksum: u32) -> Option<Vec<u8>> {
        let shape = &self.state.metadata.shape;
        let inside = (0..block.rank()).all(|axis| block.end(axis) <= shape[axis]);
        let elements = block.len().filter(|_| inside)?;
        // The record bounds the elements of a block.
        let mut numbers = vec![0; usize::try_from(elements).ok()?];
        read_box(&self.hierarchy, &self.path, &self.state, block, &mut numbers).ok()?;
        (crc32c(&numbers) == checksum).then_some(numbers)
    }

    /// Returns the tail of a block; `None` if it does not have the checksum, or cannot be read.
    pub(crate) fn tail(&self, place: &TailPlace, checksum: u32) -> Option<BlockTails> {
        if place.elements.is_empty() {
            return Some(BlockTails::default());
        }
        let found = self.page_tails(&place.page, place.all)?.part(&place.elements)?;
        (found.checksum() == checksum).then_some(found)
    }

    /// Returns the tails of a page, `all` elements, read at their first use.
    fn page_tails(&self, page: &[u64], all: u64) -> Option<Arc<BlockTails>> {
        let tails = self.tails.as_ref()?;
        let lock = || tails.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(page) {
            return known.clone();
        }
        // Without the lock: other pages are read meanwhile.
        let read = |(path, state): &(ObjectPath, ArrayState)| {
            state.metadata.shape.last().filter(|length| all <= **length)?;
            let item = state.metadata.data_type.item_size()?;
            let start = [page, &[0]].concat();
            let shape = [vec![1; page.len()], vec![all]].concat();
            let bytes = usize::try_from(all).ok()?.checked_mul(item)?;
            let mut buffer = vec![0; bytes];
            let region = Region::new(start, shape).ok()?;
            read_box(&self.hierarchy, path, state, region, &mut buffer).ok()?;
            Some(buffer)
        };
        let found = read(&tails.positions).zip(read(&tails.values));
        let found = found.map(|(positions, values)| Arc::new(BlockTails { positions, values }));
        let mut pages = lock();
        let bytes = |one: &Option<Arc<BlockTails>>| {
            one.as_ref().map_or(0, |one| one.positions.len() + one.values.len())
        };
        if pages.values().map(bytes).sum::<usize>() + bytes(&found) > TAILS_BYTES_MAX {
            pages.clear();
        }
        pages.insert(page.to_vec(), found.clone());
        found
    }
}
