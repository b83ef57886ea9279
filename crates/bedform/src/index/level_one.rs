//! The arrays of an index with an element for each block, read page by page: the ranges, and with
//! level two the counts of bins and the checksums of their numbers.
//!
//! A page that cannot be read, or does not have the fingerprint of the record, counts as absent.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_format::index::IndexRecord;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{ChunkGrid, Region, Selection, linearize};
use bedform_storage::Mode;

use super::bins::BinEdges;
use super::page_fingerprint;
use super::record::{GROUPS, directory_of};
use crate::error::{Error, Result};
use crate::opening::storage_in_sidecar;
use crate::options::{Freshness, OpenOptions, Prefetch};
use crate::plan::copy::CopyTarget;
use crate::run::deliver::Deliver;
use crate::run::execute::execute;
use crate::run::read_source::ReadSource;
use crate::sidecar::Sidecar;
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::source::ZarrSource;
use crate::zarr::state::{ArrayState, load};

/// The arrays of level one: the least values, the greatest, the counts of missing ones.
pub(crate) const ARRAY_NAMES: [&str; 3] = ["minimum", "maximum", "missing"];
/// The type of the counts.
pub(crate) const MISSING_TYPE: DataType = DataType::UInt32;
/// The arrays of level two: the number of elements in each bin, the missing ones last; and a
/// checksum of the numbers of each block.
pub(crate) const BIN_ARRAY_NAMES: [&str; 2] = ["counts", "checksums"];
/// With tails, a checksum of those of each block.
const TAIL_ARRAY_NAME: &str = "tail_checksums";
/// The type of these arrays.
const BIN_ARRAYS_TYPE: DataType = DataType::UInt32;
/// The most bytes of pages in memory; one more drops them all.
const PAGES_BYTES_MAX: u64 = 64 << 20;

/// The range of a block, in the machine's byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockValues {
    /// The least and greatest value that is not missing; `None` if all are missing.
    pub(crate) values: Option<(Vec<u8>, Vec<u8>)>,
    /// The number of missing elements.
    pub(crate) missing: u64,
}

/// A taker of the least and the greatest value of blocks, `None` if all elements are missing, and of
/// the number of missing ones.
pub(crate) type EachRange<'a> = dyn FnMut(Option<(&[u8], &[u8])>, u64) + 'a;

/// The bins of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockBins {
    /// The number of elements in each bin, the missing ones last.
    pub(crate) counts: Vec<u32>,
    /// The CRC-32C of the numbers of all elements in C order.
    pub(crate) checksum: u32,
    /// That of the positions of the elements in the outermost bins, and then of their values; 0
    /// without tails.
    pub(crate) tail_checksum: u32,
}

/// The opened level one of an index.
#[derive(Debug)]
pub(crate) struct LevelOne {
    pub(crate) record: IndexRecord,
    /// The blocks of the array as it was when the index was made.
    pub(crate) blocks: ChunkGrid,
    /// The pages, in units of blocks.
    paged: ChunkGrid,
    hierarchy: Hierarchy,
    /// The edges of the bins of level two.
    edges: Option<BinEdges>,
    /// The arrays, with the bytes of a block.
    arrays: Vec<(ObjectPath, ArrayState, usize)>,
    item_size: usize,
    pages: Mutex<HashMap<u64, Option<Arc<LevelOnePage>>>>,
}

/// The elements of all arrays in one page.
#[derive(Debug)]
struct LevelOnePage {
    region: Region,
    elements: Vec<Vec<u8>>,
    /// The place of the first element of each block's tail in the page's, and their number; empty
    /// without tails.
    tails: Vec<u64>,
}

/// The place of a block's tail.
#[derive(Debug)]
pub(crate) struct TailPlace {
    pub(super) page: Vec<u64>,
    /// Its elements among those of the page.
    pub(super) elements: Range<usize>,
    /// The number of elements of the page's tails.
    pub(super) all: u64,
}

impl LevelOne {
    /// Opens the level one that a record names, with elements of `data_type`.
    ///
    /// # Errors
    /// Those of opening it; `Corrupt` if it does not fit the record.
    pub(crate) fn open(
        sidecar: &Sidecar,
        record: IndexRecord,
        data_type: DataType,
        options: &OpenOptions,
    ) -> Result<Self> {
        let options = reading(options);
        let place = format!("{}/{GROUPS}/{}", directory_of(&record.array), record.group);
        let storage = storage_in_sidecar(sidecar, &place, Mode::ReadOnly, &options)?;
        let blocks = ChunkGrid::new(record.array_shape.clone(), record.block_shape.clone())?;
        let paged = ChunkGrid::new(blocks.grid_shape().to_vec(), record.page_shape.clone())?;
        let hierarchy = Hierarchy::new(storage, options, |_, _| Ok(None));
        let wrong = || Error::corrupt(place.clone(), "it is not the index of its record");
        let edges = match record.edges.is_empty() {
            true => None,
            false => {
                let edges = BinEdges::of_record(data_type, &record.edges).ok_or_else(wrong)?;
                Some(edges.with_tails(record.tails))
            }
        };
        let mut arrays = Vec::new();
        for (name, expected, bins) in described_arrays(data_type, edges.as_ref()) {
            let path = ObjectPath::parse(name)?;
            let state = load(&hierarchy, &path)?;
            let shape = [blocks.grid_shape(), &bins.map_or(vec![], |bins| vec![bins])].concat();
            let is_right = state.metadata.data_type == expected && state.metadata.shape == shape;
            let size = expected.item_size().filter(|_| is_right).ok_or_else(wrong)?;
            let bins = bins.and_then(|bins| usize::try_from(bins).ok()).unwrap_or(1);
            arrays.push((path, state, size * bins));
        }
        let item_size = data_type.item_size().unwrap_or(0);
        let pages = Mutex::default();
        Ok(Self { record, blocks, paged, hierarchy, edges, arrays, item_size, pages })
    }

    /// The edges of the bins of level two, if there is one.
    pub(crate) fn edges(&self) -> Option<&BinEdges> {
        self.edges.as_ref()
    }

    /// Returns the range of a block of the array as it was; `None` if its page is damaged.
    pub(crate) fn block(&self, block: &[u64]) -> Option<BlockValues> {
        let (page, number) = self.page_of(block)?;
        let element = |array: usize, size: usize| {
            page.elements.get(array)?.get(number * size..(number + 1) * size)
        };
        #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
        let missing = u32::from_ne_bytes(element(2, 4)?.try_into().ok()?);
        let count = self.blocks.chunk_region_clipped(block).len()?;
        let (least, greatest) = (element(0, self.item_size)?, element(1, self.item_size)?);
        let values = match u64::from(missing) {
            missing if missing > count => return None,
            missing if missing == count => None,
            _ => Some((least.to_vec(), greatest.to_vec())),
        };
        Some(BlockValues { values, missing: missing.into() })
    }

    /// Calls `act` with the least and the greatest value of each block of a box, unless all its
    /// elements are missing, and with the number of missing ones. `None` if a page is damaged.
    #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
    pub(crate) fn each_range(&self, blocks: &Region, act: &mut EachRange<'_>) -> Option<()> {
        let mut at = blocks.start().to_vec();
        let mut known = self.page_of(&at)?;
        loop {
            let (page, number) = &known;
            let element = |array: usize, size: usize| {
                page.elements.get(array)?.get(number * size..(number + 1) * size)
            };
            let missing = u64::from(u32::from_ne_bytes(element(2, 4)?.try_into().ok()?));
            let count = self.blocks.chunk_region_clipped(&at).len()?;
            if missing > count {
                return None;
            }
            let values = (element(0, self.item_size)?, element(1, self.item_size)?);
            act((missing < count).then_some(values), missing);
            let axes = (0..at.len()).rev();
            let Some(axis) = axes.into_iter().find(|axis| at[*axis] + 1 < blocks.end(*axis)) else {
                return Some(());
            };
            at[axis] += 1;
            at[axis + 1..].copy_from_slice(&blocks.start()[axis + 1..]);
            known = match number_in(&page.region, &at) {
                Some(number) => (Arc::clone(page), number),
                None => self.page_of(&at)?,
            };
        }
    }

    /// Returns the bins of a block of the array as it was; `None` without level two, and if its page
    /// is damaged.
    #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
    pub(crate) fn bins(&self, block: &[u64]) -> Option<BlockBins> {
        let size = 4 * (self.edges.as_ref()?.bins() + 1);
        let (page, number) = self.page_of(block)?;
        let counts = page.elements.get(3)?.get(number * size..(number + 1) * size)?;
        let (counts, _) = counts.as_chunks::<4>();
        let checksum = |array: usize| -> Option<u32> {
            let bytes = page.elements.get(array)?.get(number * 4..(number + 1) * 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        Some(BlockBins {
            counts: counts.iter().map(|count| u32::from_ne_bytes(*count)).collect(),
            checksum: checksum(4)?,
            tail_checksum: checksum(5).unwrap_or_default(),
        })
    }

    /// Returns the place of a block's tail; `None` without tails, and if the page is damaged.
    pub(crate) fn tail(&self, block: &[u64]) -> Option<TailPlace> {
        self.edges.as_ref().filter(|edges| edges.has_tails())?;
        let (page, number) = self.page_of(block)?;
        let place = |at: usize| page.tails.get(at).and_then(|place| usize::try_from(*place).ok());
        Some(TailPlace {
            page: self.paged.chunk_of(block),
            elements: place(number)?..place(number + 1)?,
            all: *page.tails.last()?,
        })
    }

    /// The pages, in units of blocks.
    pub(crate) fn paged(&self) -> &ChunkGrid {
        &self.paged
    }

    /// The page of a block, and the number of the block in it.
    fn page_of(&self, block: &[u64]) -> Option<(Arc<LevelOnePage>, usize)> {
        let inside = block.len() == self.blocks.rank()
            && block.iter().zip(self.blocks.grid_shape()).all(|(at, count)| at < count);
        let page = inside.then(|| self.page(&self.paged.chunk_of(block))).flatten()?;
        let number = number_in(&page.region, block)?;
        Some((page, number))
    }

    /// Returns the page at `coordinates`, read at its first use.
    fn page(&self, coordinates: &[u64]) -> Option<Arc<LevelOnePage>> {
        let number = linearize(coordinates, self.paged.grid_shape());
        let lock = || self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&number) {
            return known.clone();
        }
        // Without the lock: other pages are read meanwhile.
        let found = self.read_page(coordinates, number).ok().flatten().map(Arc::new);
        let mut pages = lock();
        let block_bytes: usize = self.arrays.iter().map(|(_, _, size)| size).sum();
        let page_bytes = self.page_blocks().saturating_mul(block_bytes as u64);
        if (pages.len() as u64 + 1).saturating_mul(page_bytes) > PAGES_BYTES_MAX {
            pages.clear();
        }
        pages.insert(number, found.clone());
        found
    }

    fn page_blocks(&self) -> u64 {
        let grid = self.blocks.grid_shape().iter().zip(self.paged.chunk_shape());
        grid.fold(1, |all, (grid, page)| all.saturating_mul(*page.min(grid)))
    }

    fn read_page(&self, coordinates: &[u64], number: u64) -> Result<Option<LevelOnePage>> {
        let region = self.paged.chunk_region_clipped(coordinates);
        let count = region.len().and_then(|count| usize::try_from(count).ok());
        let Some(count) = count else { return Ok(None) };
        let mut elements = Vec::with_capacity(self.arrays.len());
        for (path, state, size) in &self.arrays {
            // The record bounds the blocks of a page.
            let mut buffer = vec![0; count.saturating_mul(*size)];
            let rank = state.metadata.shape.len();
            let whole = &state.metadata.shape[region.rank()..rank];
            let start = [region.start(), &vec![0; whole.len()]].concat();
            let of_array = Region::new(start, [region.shape(), whole].concat())?;
            read_box(&self.hierarchy, path, state, of_array, &mut buffer)?;
            elements.push(buffer);
        }
        let parts: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
        let fingerprint = page_fingerprint(&parts);
        let number = usize::try_from(number).ok();
        let recorded = number.and_then(|number| self.record.pages.get(number));
        let edges = self.edges.as_ref().filter(|edges| edges.has_tails());
        let tails = edges.map(|edges| tails_of(edges, &elements[3])).unwrap_or_default();
        Ok((recorded == Some(&fingerprint)).then_some(LevelOnePage { region, elements, tails }))
    }
}

/// Returns the number of a block among those of a page, in C order; `None` if it lies elsewhere.
fn number_in(page: &Region, block: &[u64]) -> Option<usize> {
    let axes = block.iter().zip(page.start()).zip(page.shape());
    let number = axes.into_iter().try_fold(0, |number, ((at, start), length)| {
        let inside = at.checked_sub(*start).filter(|inside| inside < length)?;
        Some(number * length + inside)
    })?;
    usize::try_from(number).ok()
}

/// The place of the first element of each block's tail among those of a page, and the number of all,
/// by the counts of bins.
#[allow(clippy::host_endian_bytes, reason = "elements in memory")]
fn tails_of(edges: &BinEdges, counts: &[u8]) -> Vec<u64> {
    let (counts, _) = counts.as_chunks::<4>();
    let mut places = vec![0];
    let mut place = 0;
    for counts in counts.chunks(edges.bins() + 1) {
        let count = |at: usize| counts.get(at).map_or(0, |count| u32::from_ne_bytes(*count));
        place += u64::from(count(0)) + u64::from(count(edges.bins() - 1));
        places.push(place);
    }
    places
}

/// Reads a box of an array of the index into `buffer`, in C order.
///
/// # Errors
/// Those of reading.
pub(super) fn read_box(
    hierarchy: &Hierarchy,
    path: &ObjectPath,
    state: &ArrayState,
    region: Region,
    buffer: &mut [u8],
) -> Result<()> {
    let source = ZarrSource { hierarchy, path, state };
    let read = ReadSource::settled(&source, &state.layout, &hierarchy.tuning);
    let geometry = state.layout.geometry(&Selection::from(region))?;
    let deliver = Deliver::Buffer(CopyTarget::new(buffer));
    read.with_plan(&geometry, |plan| execute(plan, deliver))?;
    Ok(())
}

/// The options with which the groups of an index are read.
pub(super) fn reading(options: &OpenOptions) -> OpenOptions {
    OpenOptions {
        writable: false,
        freshness: Freshness::Never,
        prefetch: Prefetch::Off,
        cache_bytes: 0,
        replicas: false,
        records: false,
        sidecar: None,
        profile: None,
        refines: None,
        ..options.clone()
    }
}

/// The arrays of an index with elements of `data_type`: names and types, and for the one with a
/// further axis its length.
pub(crate) fn described_arrays(
    data_type: DataType,
    edges: Option<&BinEdges>,
) -> Vec<(&'static str, DataType, Option<u64>)> {
    let types = [data_type, data_type, MISSING_TYPE];
    let ranges = ARRAY_NAMES.into_iter().zip(types).map(|(name, of)| (name, of, None));
    let bins = edges.into_iter().flat_map(|edges| {
        let [counts, checksums] = BIN_ARRAY_NAMES;
        let length = edges.bins() as u64 + 1;
        let tails = edges.has_tails().then_some((TAIL_ARRAY_NAME, BIN_ARRAYS_TYPE, None));
        let bins = [(counts, BIN_ARRAYS_TYPE, Some(length)), (checksums, BIN_ARRAYS_TYPE, None)];
        bins.into_iter().chain(tails)
    });
    ranges.chain(bins).collect()
}
